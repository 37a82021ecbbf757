"""Skylines: which of some pairs no other pair dominates.

Pairs are rows of a matrix of ``int64`` keys, one column for each attribute, smaller is better:

    keys   7 2     kept        dominates: at most as large in every column, smaller in one
           3 5     kept
           7 5     dominated by both
           7 2     kept: a tie with the first

The pairs kept so far stand in front; each new pair is compared with them.  With m pairs of which s
stay that is O(m·s), and s is small (about ln m in two dimensions when values are independent).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any

FEW_PAIRS = 4


@njit(cache=True, nogil=True)
def best_first(keys: Int64s, tags: Int64s, count: Int) -> Int:
    """Move the rows that nothing dominates to the front, with their tags; how many they are."""
    if keys.shape[1] == 1:
        return _least_first(keys, tags, count)
    if count > FEW_PAIRS:
        count = _without_dominated(keys, tags, count, _promising(keys, count))
    kept = 0
    for j in range(count):
        k = 0
        is_dominated = False
        while k < kept and not is_dominated:
            # In place: a call for each comparison costs more than the comparison.
            is_worse = is_better = False
            for i in range(keys.shape[1]):
                is_worse |= keys[j, i] > keys[k, i]
                is_better |= keys[j, i] < keys[k, i]
            if is_better and not is_worse:
                kept -= 1
                _copy(keys, tags, kept, k)
            else:
                is_dominated = is_worse and not is_better
                k += 1
        if not is_dominated:
            _copy(keys, tags, j, kept)
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _promising(keys: Int64s, count: Int) -> Int:
    """A row that is small in all columns together, and likely to dominate many."""
    best = 0
    least = np.int64(0)
    for j in range(count):
        total = np.int64(0)
        for i in range(keys.shape[1]):
            total += keys[j, i] >> np.int64(5)  # so that no sum of up to 32 columns wraps
        if j == 0 or total < least:
            best, least = j, total
    return best


@njit(cache=True, nogil=True)
def _without_dominated(keys: Int64s, tags: Int64s, count: Int, pivot: Int) -> Int:
    """Move the rows that one row does not dominate to the front; how many they are.

    One pass without a branch, which leaves few rows to compare with each other.
    """
    for i in range(keys.shape[1]):
        keys[0, i], keys[pivot, i] = keys[pivot, i], keys[0, i]
    tags[0], tags[pivot] = tags[pivot], tags[0]
    kept = 1
    for j in range(1, count):
        is_worse, is_better = False, False
        for i in range(keys.shape[1]):
            key = keys[j, i]
            is_worse |= key > keys[0, i]
            is_better |= key < keys[0, i]
            keys[kept, i] = key
        tags[kept] = tags[j]
        kept += is_better | (not is_worse)
    return kept


@njit(cache=True, nogil=True)
def _least_first(keys: Int64s, tags: Int64s, count: Int) -> Int:
    kept = 0
    for j in range(count):
        key = keys[j, 0]
        if kept and key > keys[0, 0]:
            continue
        if kept and key < keys[0, 0]:
            kept = 0
        keys[kept, 0] = key
        tags[kept] = tags[j]
        kept += 1
    return kept


@njit(cache=True, nogil=True)
def _copy(keys: Int64s, tags: Int64s, source: Int, target: Int) -> None:
    if source != target:
        for k in range(keys.shape[1]):
            keys[target, k] = keys[source, k]
        tags[target] = tags[source]


@njit(cache=True, nogil=True)
def best_of_groups(groups: Int64s, keys: Int64s) -> Int64s:
    """The rows that nothing in their group dominates; groups are contiguous."""
    rows = len(groups)
    kept = np.empty(rows, np.int64)
    count = start = 0
    while start < rows:
        limit = start + 1
        while limit < rows and groups[limit] == groups[start]:
            limit += 1
        scratch = keys[start:limit].copy()
        tags = np.arange(start, limit)
        for k in range(best_first(scratch, tags, limit - start)):
            kept[count] = tags[k]
            count += 1
        start = limit
    return kept[:count]


@njit(cache=True, nogil=True)
def merge_best(
    old_groups: Int64s, old_keys: Int64s, new_groups: Int64s, new_keys: Int64s
) -> Int64s:
    """Two skylines by group, both ascending by group, as one: old rows by number, new ones by
    ``~number``, ascending by group."""
    olds, news = len(old_groups), len(new_groups)
    kept = np.empty(olds + news, np.int64)
    keys = np.empty((16, old_keys.shape[1]), np.int64)
    tags = np.empty(16, np.int64)
    count = old = new = 0
    while old < olds or new < news:
        group = old_groups[old] if old < olds else new_groups[new]
        if new < news and new_groups[new] < group:
            group = new_groups[new]
        size = 0
        while old < olds and old_groups[old] == group:
            keys, tags = _roomy(keys, tags, size)
            keys[size] = old_keys[old]
            tags[size] = old
            size += 1
            old += 1
        while new < news and new_groups[new] == group:
            keys, tags = _roomy(keys, tags, size)
            keys[size] = new_keys[new]
            tags[size] = ~new
            size += 1
            new += 1
        for k in range(best_first(keys, tags, size)):
            kept[count] = tags[k]
            count += 1
    return kept[:count]


@njit(cache=True, nogil=True)
def _roomy(keys: Int64s, tags: Int64s, size: Int) -> tuple[Int64s, Int64s]:
    """The arrays with room for one row more."""
    if size < len(tags):
        return keys, tags
    more_keys = np.empty((2 * len(tags), keys.shape[1]), np.int64)
    more_tags = np.empty(2 * len(tags), np.int64)
    more_keys[: len(tags)] = keys
    more_tags[: len(tags)] = tags
    return more_keys, more_tags
