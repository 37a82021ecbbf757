"""Skylines: which of some pairs no other pair dominates.

Pairs are rows of a matrix of ``int64`` keys, one column for each attribute, smaller is better:

    keys   7 2     kept        dominates: at most as large in every column, smaller in one
           3 5     kept
           7 5     dominated by both
           7 2     kept: a tie with the first

One pair for each place on the frontier so far stands in front; each new pair is compared with them.
With m pairs and s places that is O(m·s), and s is small (about ln m in two dimensions when values
are independent).  Many pairs of two columns are sorted instead: there every pair may be a place.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any

FEW_PAIRS, MANY_PAIRS = 4, 1024


@kernel
def best_first(keys: Int64s, tags: Int64s, count: Int) -> Int:
    """Move the rows that nothing dominates to the front, with their tags; how many they are."""
    if keys.shape[1] == 1:
        return _least_first(keys, tags, count)
    if keys.shape[1] == 2 and count > MANY_PAIRS:
        return _swept(keys, tags, count)
    if count > FEW_PAIRS:
        count = _without_dominated(keys, tags, count, _promising(keys, count))
    return _compared(keys, tags, count)


@kernel
def _compared(keys: Int64s, tags: Int64s, count: Int) -> Int:
    """Every row with one row for each place on the frontier so far, which stand in front; rows that
    tie with one of them are fetched at the end, so that ties cost no comparison with each other."""
    places = np.int64(0)
    has_ties = False
    for j in range(count):
        k = 0
        is_out = False
        while k < places and not is_out:
            # In place: a call for each comparison costs more than the comparison.
            is_worse = is_better = False
            for i in range(keys.shape[1]):
                is_worse |= keys[j, i] > keys[k, i]
                is_better |= keys[j, i] < keys[k, i]
            if is_better and not is_worse:
                places -= 1
                _swap(keys, tags, k, places)
            else:
                is_out = not is_better
                has_ties |= is_out and not is_worse
                k += 1
        if not is_out:
            _swap(keys, tags, j, places)
            places += 1
    return _with_ties(keys, tags, count, places) if has_ties else places


@kernel
def _with_ties(keys: Int64s, tags: Int64s, count: Int, places: Int) -> Int:
    kept = places
    for j in range(places, count):
        for k in range(places):
            is_same = True
            for i in range(keys.shape[1]):
                is_same &= keys[j, i] == keys[k, i]
            if is_same:
                _swap(keys, tags, j, kept)
                kept += 1
                break
    return kept


@kernel
def _swept(keys: Int64s, tags: Int64s, count: Int) -> Int:
    """Two columns: by the first, then the second must fall below all before."""
    order = _order(keys, count)
    sorted_keys, sorted_tags = np.empty((count, 2), np.int64), np.empty(count, np.int64)
    for j in range(count):
        row = order[j]
        sorted_keys[j, 0], sorted_keys[j, 1] = keys[row, 0], keys[row, 1]
        sorted_tags[j] = tags[row]
    kept = start = 0
    least = np.int64(0)
    while start < count:
        limit = start
        low, first = sorted_keys[start, 1], sorted_keys[start, 0]
        while limit < count and sorted_keys[limit, 0] == first:
            low = min(low, sorted_keys[limit, 1])
            limit += 1
        if start == 0 or low < least:
            least = low
            for j in range(start, limit):
                if sorted_keys[j, 1] == low:
                    keys[kept, 0], keys[kept, 1], tags[kept] = first, low, sorted_tags[j]
                    kept += 1
        start = limit
    return kept


@kernel
def _order(keys: Int64s, count: Int) -> Int64s:
    """The rows by the first column: merged, runs of twice the length each time.

    `np.argsort` takes a second to compile.  The keys move along with the rows: looked up by row, a
    million of them took 2.3 s for 0.2.
    """
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    values, others = np.empty(count, np.int64), np.empty(count, np.int64)
    for j in range(count):
        order[j], values[j] = j, keys[j, 0]
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, end = min(start + width, count), min(start + 2 * width, count)
            one, two = start, middle
            for at in range(start, end):
                if one < middle and (two >= end or values[one] <= values[two]):
                    other[at], others[at] = order[one], values[one]
                    one += 1
                else:
                    other[at], others[at] = order[two], values[two]
                    two += 1
        order, other, values, others = other, order, others, values
        width *= 2
    return order


@kernel
def _swap(keys: Int64s, tags: Int64s, one: Int, other: Int) -> None:
    if one != other:
        for i in range(keys.shape[1]):
            keys[one, i], keys[other, i] = keys[other, i], keys[one, i]
        tags[one], tags[other] = tags[other], tags[one]


@kernel
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


@kernel
def _without_dominated(keys: Int64s, tags: Int64s, count: Int, pivot: Int) -> Int:
    """Move the rows that one row does not dominate to the front; how many they are.

    One pass without a branch, which leaves few rows to compare with each other.
    """
    _swap(keys, tags, 0, pivot)
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


@kernel
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


@kernel
def best_of_groups(groups: Int64s, keys: Int64s) -> Int64s:
    """The rows that nothing in their group dominates; groups are contiguous."""
    rows = len(groups)
    kept = np.empty(rows, np.int64)
    scratch, tags = np.empty((16, keys.shape[1]), np.int64), np.empty(16, np.int64)
    count = start = 0
    while start < rows:
        limit = start + 1
        while limit < rows and groups[limit] == groups[start]:
            limit += 1
        size = limit - start
        if size > len(tags):
            scratch, tags = (
                np.empty((2 * size, keys.shape[1]), np.int64),
                np.empty(2 * size, np.int64),
            )
        for k in range(size):  # in place: a call for each row counts the arrays' references
            tags[k] = start + k
            for i in range(keys.shape[1]):
                scratch[k, i] = keys[start + k, i]
        for k in range(best_first(scratch, tags, size)):
            kept[count] = tags[k]
            count += 1
        start = limit
    return kept[:count]


@kernel
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
            tags[size] = old
            for i in range(keys.shape[1]):
                keys[size, i] = old_keys[old, i]
            size += 1
            old += 1
        while new < news and new_groups[new] == group:
            keys, tags = _roomy(keys, tags, size)
            tags[size] = ~new
            for i in range(keys.shape[1]):
                keys[size, i] = new_keys[new, i]
            size += 1
            new += 1
        for k in range(best_first(keys, tags, size)):
            kept[count] = tags[k]
            count += 1
    return kept[:count]


@kernel
def _roomy(keys: Int64s, tags: Int64s, size: Int) -> tuple[Int64s, Int64s]:
    """The arrays with room for one row more."""
    if size < len(tags):
        return keys, tags
    more_keys = np.empty((2 * len(tags), keys.shape[1]), np.int64)
    more_tags = np.empty(2 * len(tags), np.int64)
    for k in range(size):
        more_tags[k] = tags[k]
        for i in range(keys.shape[1]):
            more_keys[k, i] = keys[k, i]
    return more_keys, more_tags
