"""Texts as Parquet has them: a length of four bytes, then the text."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)  # type: ignore[misc]
def longest(data):  # type: ignore[no-untyped-def]
    at, longest = 0, 0
    while at + 4 <= len(data):
        length = (
            np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
            | np.int64(data[at + 3]) << 24
        )  # fmt: skip
        longest = max(longest, length)
        at += 4 + length
    return min(longest, len(data))
