"""Whether a pair is among those that its row has noted, in compiled code."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any


@njit(cache=True, nogil=True)
def is_noted(
    offsets: Int64s, noted: Int64s, rows: Int64s, vectors: Int64s
) -> npt.NDArray[np.bool_]:
    """For each vector, whether the notes of its row hold it.

    Row r's notes are ``noted[offsets[r]:offsets[r + 1]]``, vectors one after the other.
    """
    found = np.zeros(len(rows), np.bool_)
    width = vectors.shape[1]
    for k in range(len(rows)):
        at, limit = offsets[rows[k]], offsets[rows[k] + 1]
        while at < limit and not found[k]:
            is_same = True
            for i in range(width):
                is_same &= noted[at + i] == vectors[k, i]
            found[k] = is_same
            at += width
    return found


@njit(cache=True, nogil=True)
def first_of_each(groups: Int64s, vectors: Int64s) -> npt.NDArray[np.bool_]:
    """Which rows, sorted by group and vector, differ from the one before."""
    rows = len(groups)
    differs = np.ones(rows, np.bool_)
    for k in range(1, rows):
        is_same = groups[k] == groups[k - 1]
        for i in range(vectors.shape[1]):
            is_same &= vectors[k, i] == vectors[k - 1, i]
        differs[k] = not is_same
    return differs
