"""Sorting and searching rows by several ``int64`` columns, without Python per row.

Several columns are packed into one 64-bit word where their spans allow it, with the row number in
the low bits: sorting the words is then a stable sort, and NumPy sorts plain words with SIMD.
Measured on 2 cores (AVX2), 1M rows: 15 ms packed, 70 ms `argsort`, 155 ms `lexsort` of three.

    cell t   cell x    order key          row
    ───────┬─────────┬──────────────────┬──────────
     7 bits│  9 bits │      24 bits     │  20 bits     → one uint64
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .columns import Int64s

Rows = npt.NDArray[np.int64]
Keys = Sequence[Int64s]


def is_sorted(keys: Keys) -> bool:
    """Whether the rows already ascend by the columns, the first being the most significant."""
    tied: npt.NDArray[np.bool_] | None = None
    for column in keys:
        before, after = column[:-1], column[1:]
        wrong, equal = before > after, before == after
        if (wrong if tied is None else wrong & tied).any():
            return False
        tied = equal if tied is None else tied & equal
        if not tied.any():
            break
    return True


def sort_order(keys: Keys) -> Rows | None:
    """The stable permutation that sorts the rows, or None when they are sorted already.

    >>> sort_order([np.array([1, 0, 1]), np.array([5, 9, 4])]).tolist()
    [1, 2, 0]
    """
    if is_sorted(keys):
        return None
    rows = len(keys[0])
    row_bits = (rows - 1).bit_length()
    words, word_bits = _packed(keys)
    if words is None:
        return _sorted_from_the_last(keys)
    if word_bits + row_bits > 64:
        return np.argsort(words, kind="stable")
    words <<= np.uint64(row_bits)
    words |= np.arange(rows, dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << row_bits) - 1)
    return words.view(np.int64)


def _sorted_from_the_last(keys: Keys) -> Rows:
    """Sort by the last column, then stably by the others, which pack better without it.

    1M rows by two cells and a float's order key: 0.14 s instead of 0.6 s with `lexsort`.
    """
    order = np.argsort(keys[-1], kind="stable")
    if len(keys) == 1:
        return order
    following = sort_order([column[order] for column in keys[:-1]])
    return order if following is None else order[following]


def _packed(keys: Keys) -> tuple[npt.NDArray[np.uint64] | None, int]:
    """The columns side by side in one word, and how many bits that takes."""
    lows = [int(column.min()) for column in keys]
    bits = [(int(column.max()) - low).bit_length() for column, low in zip(keys, lows, strict=True)]
    if sum(bits) > 64:
        return None, sum(bits)
    words = np.zeros(len(keys[0]), np.uint64)
    for column, low, width in zip(keys, lows, bits, strict=True):
        if width:
            words <<= np.uint64(width % 64)
            words |= column.view(np.uint64) - np.uint64(low % 2**64)
    return words, sum(bits)


def count_upto(keys: Keys, bound: Sequence[int]) -> int:
    """How many of the sorted rows are at most `bound`.

    >>> count_upto([np.array([0, 1, 1, 2]), np.array([7, 3, 4, 0])], (1, 3))
    2
    """
    first, limit = 0, len(keys[0])
    for column, value in zip(keys, bound, strict=True):
        part = column[first:limit]
        limit = first + int(np.searchsorted(part, value, "right"))
        first = first + int(np.searchsorted(part, value, "left"))
        if first == limit:
            break
    return limit


def group_starts(keys: Keys) -> Rows:
    """The rows at which a new combination of values begins."""
    rows = len(keys[0])
    if rows == 0:
        return np.empty(0, np.int64)
    begins = np.zeros(rows, np.bool_)
    begins[0] = True
    for column in keys:
        begins[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(begins)
