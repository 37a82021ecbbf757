"""Strips: the stretches of sorted base rows that the cells of a probe row can reach.

Base rows are in ε-Grid-Order.  Rows that agree in all coordinates but the last form a strip, in
which the last coordinate ascends:

    cells   (0,0) (0,2) (0,2) (1,0) (1,1) (1,5) (2,0) (2,1)         probe cell (1,1), reach ±1:
            └─────strip 0───┘ └─────strip 1───┘ └─strip 2─┘         strips 0, 1 and 2, and of each
                                                                    the last coordinates 0 to 2
As probe cells ascend, so do the places in every strip: a cursor for each of them moves forward
only, by doubling steps, so that a dense probe pays a step and a sparse one a binary search.

A stretch of a few rows is not cut further: testing them costs less than finding out.  In eight
dimensions nearly every strip is one row; without this the search would visit 3⁷ of them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.columns import INT64_MAX, INT64_MIN
from matwin.storage.grid import FIRST_CELL, LAST_CELL
from matwin.storage.kernel import kernel

Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any

FEW_ROWS = 12
"""Handed to the kernels with every call, so that tests can do without."""
UNLIMITED_DOWN, UNLIMITED_UP = INT64_MIN, INT64_MAX
FROM, LIMIT, IS_LOOSE = 0, 1, 2


@kernel
def saturated(value: Int, by: Int) -> Int:
    """``value + by``, held at the ends of 64 bits."""
    if by >= 0:
        return value + by if value <= INT64_MAX - by else INT64_MAX
    return value + by if value >= INT64_MIN - by else INT64_MIN


@kernel
def lowest(cell: Int, down: Int) -> Int:
    """The first cell within reach, which is never after the last cell that there is."""
    return FIRST_CELL if down == UNLIMITED_DOWN else min(saturated(cell, down), LAST_CELL)


@kernel
def highest(cell: Int, up: Int) -> Int:
    """The last cell within reach; the last of all may hold a value more than others."""
    return INT64_MAX if cell >= LAST_CELL or up == UNLIMITED_UP else saturated(cell, up)


@kernel
def first_at_least(cells: Int64s, axis: Int, start: Int, limit: Int, bound: Int) -> Int:
    """The first row from `start` on whose coordinate is at least `bound`."""
    if start >= limit or cells[start, axis] >= bound:
        return start
    low, step = start, 1
    while low + step < limit and cells[low + step, axis] < bound:
        low += step
        step *= 2
    high = min(low + step, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if cells[middle, axis] < bound:
            low = middle
        else:
            high = middle
    return high


@kernel
def first_above(cells: Int64s, axis: Int, start: Int, limit: Int, bound: Int) -> Int:
    """The first row from `start` on whose coordinate is above `bound`."""
    if bound == INT64_MAX:
        return limit
    return first_at_least(cells, axis, start, limit, bound + 1)


@kernel
def strips_of(
    cells: Int64s, pieces: Int64s, probe: Int64s, row: Int, down: Int64s, up: Int64s,
    few_rows: Int, strips: Int64s,
) -> tuple[Int64s, Int]:  # fmt: skip
    """The strips that a probe row can reach, in `strips` (or a longer array), and how many.

    Each piece of the base rows is in order by itself, so a strip is of one piece.
    """
    count = np.int64(len(pieces))
    if len(strips) < count:
        strips = np.empty((count, 3), np.int64)
    for k in range(count):
        strips[k, FROM], strips[k, LIMIT], strips[k, IS_LOOSE] = pieces[k, 0], pieces[k, 1], 0
    for axis in range(cells.shape[1] - 1):
        low = lowest(probe[row, axis], down[axis])
        high = highest(probe[row, axis], up[axis])
        strips, count = _cut(cells, axis, low, high, few_rows, strips, count)
    return strips, count


@kernel
def _cut(
    cells: Int64s, axis: Int, low: Int, high: Int, few_rows: Int, strips: Int64s, count: Int
) -> tuple[Int64s, Int]:
    """Every strip cut by one coordinate more; strips of few rows stay as they are."""
    parts = np.empty((max(len(strips), 3 * count), 3), np.int64)
    found = np.int64(0)
    for k in range(count):
        limit = strips[k, LIMIT]
        if strips[k, IS_LOOSE] or limit - strips[k, FROM] <= few_rows:
            parts = _with_room(parts, found)
            parts[found, FROM], parts[found, LIMIT], parts[found, IS_LOOSE] = (
                strips[k, FROM], limit, 1,
            )  # fmt: skip
            found += 1
            continue
        at = first_at_least(cells, axis, strips[k, FROM], limit, low)
        while at < limit and cells[at, axis] <= high:
            end = first_above(cells, axis, at, limit, cells[at, axis])
            parts = _with_room(parts, found)
            parts[found, FROM], parts[found, LIMIT], parts[found, IS_LOOSE] = at, end, 0
            found += 1
            at = end
    return parts, found


@kernel
def _with_room(parts: Int64s, found: Int) -> Int64s:
    if found < len(parts):
        return parts
    longer = np.empty((2 * len(parts), 3), np.int64)
    for k in range(len(parts)):
        for i in range(3):
            longer[k, i] = parts[k, i]
    return longer


@kernel
def advance(
    cells: Int64s, cell: Int, down: Int, up: Int, strips: Int64s, count: Int, spans: Int64s
) -> Int:
    """Move each strip's cursors to what the last coordinate can reach; the rows in all of them."""
    axis = cells.shape[1] - 1
    low, high = lowest(cell, down), highest(cell, up)
    total = 0
    for k in range(count):
        limit = strips[k, LIMIT]
        if not strips[k, IS_LOOSE]:
            spans[k, FROM] = first_at_least(cells, axis, spans[k, FROM], limit, low)
            start = max(spans[k, LIMIT], spans[k, FROM])
            spans[k, LIMIT] = first_above(cells, axis, start, limit, high)
        total += spans[k, LIMIT] - spans[k, FROM]
    return total


@kernel
def nearest(
    cells: Int64s, value: Int, strips: Int64s, count: Int, spans: Int64s, few_rows: Int,
    near: Int64s,
) -> Int64s:  # fmt: skip
    """The spans cut down to the rows whose last coordinate is nearest to a value, in `near` (or a
    longer array); both neighbours' where they are as near.  Few rows stay as they are."""
    axis = cells.shape[1] - 1
    if len(near) < count:
        near = np.empty((2 * count, 2), np.int64)
    for k in range(count):
        start, limit = spans[k, FROM], spans[k, LIMIT]
        near[k, FROM], near[k, LIMIT] = start, limit
        if strips[k, IS_LOOSE] or limit - start <= few_rows:
            continue
        at = first_at_least(cells, axis, start, limit, value)
        # Unsigned: a difference may need 64 bits.
        below = np.uint64(value) - np.uint64(cells[at - 1, axis]) if at > start else np.uint64(0)
        above = np.uint64(cells[at, axis]) - np.uint64(value) if at < limit else np.uint64(0)
        near[k, FROM] = near[k, LIMIT] = at
        if at > start and (at == limit or below <= above):
            near[k, FROM] = first_at_least(cells, axis, start, at, cells[at - 1, axis])
        if at < limit and (at == start or above <= below):
            near[k, LIMIT] = first_above(cells, axis, at, limit, cells[at, axis])
    return near


@kernel
def spans_at_start(strips: Int64s, count: Int, spans: Int64s) -> Int64s:
    """Cursors for the strips, before the first cell; loose strips are always seen whole."""
    if len(spans) < count:
        spans = np.empty((2 * count, 2), np.int64)
    for k in range(count):
        spans[k, FROM] = strips[k, FROM]
        spans[k, LIMIT] = strips[k, LIMIT] if strips[k, IS_LOOSE] else strips[k, FROM]
    return spans
