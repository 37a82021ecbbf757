"""Whether a pair is among those that its row has noted, in compiled code."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any


@kernel
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


@kernel
def distinct(groups: Int64s, vectors: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Each group once, where its different vectors begin (and the last end), and these vectors.

    A group's rows lie together.  They are the best pairs of a row, about three, so each is compared
    with all before it: sorting them by group and vector took a sixth of a full join's time.
    """
    rows, width = vectors.shape
    kept = np.empty((rows, width), np.int64)
    found, starts = np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
    count, number = 0, -1
    for k in range(rows):
        if k == 0 or groups[k] != groups[k - 1]:
            number += 1
            found[number], starts[number] = groups[k], count
        is_new = True
        for j in range(starts[number], count):
            is_same = True
            for i in range(width):
                is_same &= kept[j, i] == vectors[k, i]
            is_new &= not is_same
        if is_new:
            for i in range(width):  # a slice would add a second of compilation
                kept[count, i] = vectors[k, i]
            count += 1
    starts[number + 1] = count
    return found[: number + 1], starts[: number + 2], kept[:count]
