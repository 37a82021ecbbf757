"""Reach from fences: which pages meet, told from their first and last cells alone.

A page holds rows of cells between its fences, in ε-Grid-Order.  Two pages can meet when some cell
that the one may hold is within reach of some cell that the other may hold, in every dimension:

      x ▲   left page, cells (1,1) … (2,0)        right pages that can meet it: those with a cell
      2 │  ·  L  ·                                in (0,0) … (0,2), (1,0) … (3,1) or (1,2) … (2,2);
      1 │  ·  L  ·                                a page with cells (0,3) … (0,9) can't, though it
      0 │  ·  ·  L                                stands between others that can
        └──────────▶ t
           0  1  2

So a left page has several intervals of right pages: one in each run, and more where a run has pages
between that lie too far off in a later dimension.

Exact: a pair of pages is within reach exactly if cells between the fences exist that are.  Rows
with null or NaN (`NO_CELL`) meet nothing.

The test goes through the dimensions once.  As long as a cell's coordinates so far equal those of a
fence, the next coordinate is bounded by that fence; a cell that has left both fences is free.  So
there are 16 situations (each side at its first fence or not, at its last or not), and a set of
those fits 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from matwin.storage.grid import FIRST_CELL, LAST_CELL, Grid
from matwin.storage.kernel import kernel
from matwin.storage.runs import PageRef

from .reach import Int, Int64s, Reach

AT_FIRST, AT_LAST = 1, 2
BOTH_AT_BOTH = 15  # a situation is the left side's flags, and four times the right side's
BOTH_FREE = 0
BLOCKS = (512, 64, 8)


def reach_of(grid: Grid, left: Sequence[PageRef], right: Sequence[PageRef] | None = None) -> Reach:
    """Which right pages each left page can meet; without `right`, the left pages themselves.

    `grid` is the left window's: its tolerances bound ``right - left``.
    """
    is_self = right is None
    right = left if right is None else right
    bounds = _bounds(grid, left)
    owners, edges = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    for start, run in _runs(right):
        first, last = _cells(run, "first"), _cells(run, "last")
        found = _meeting(bounds, first, last)
        owners.append(found[:, 0])
        edges.append(found[:, 1:] + start)
    return Reach.from_intervals(
        np.concatenate(owners), np.concatenate(edges), len(left), len(right), is_self=is_self
    )


def _runs(refs: Sequence[PageRef]) -> Iterator[tuple[int, list[PageRef]]]:
    """The runs of a window's pages, with the place of each run's first page."""
    start = 0
    for _, group in groupby(refs, key=lambda ref: ref.run):
        run = list(group)
        yield start, run
        start += len(run)


def _cells(refs: Sequence[PageRef], end: str) -> Int64s:
    """A row of coordinates for each page's first or last cell."""
    return np.array([getattr(ref.fence, end) for ref in refs], np.int64)


# What is kept for each left page and dimension: its fences, and what these and the coordinates
# between them reach.
FIRST, LAST, FIRST_DOWN, FIRST_UP, LAST_DOWN, LAST_UP, AFTER_DOWN, BEFORE_UP = range(8)


def _bounds(grid: Grid, refs: Sequence[PageRef]) -> Int64s:
    table = np.empty((len(refs), len(grid.axes), 8), np.int64)
    if not refs:
        return table
    first, last = _cells(refs, "first"), _cells(refs, "last")
    for k, axis in enumerate(grid.axes):
        a, b = first[:, k].copy(), last[:, k].copy()
        after, before = np.minimum(a, LAST_CELL - 1) + 1, np.maximum(b, FIRST_CELL + 1) - 1
        table[:, k, FIRST], table[:, k, LAST] = a, b
        table[:, k, FIRST_DOWN], table[:, k, FIRST_UP] = axis.reach(a, a)
        table[:, k, LAST_DOWN], table[:, k, LAST_UP] = axis.reach(b, b)
        table[:, k, AFTER_DOWN] = axis.reach(after, after)[0]
        table[:, k, BEFORE_UP] = axis.reach(before, before)[1]
    return table


@kernel(few_rows=0)
def _meeting(bounds: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Rows of left page, first and limit: the intervals of one run's pages that are met."""
    found = np.empty((len(bounds) + 16, 3), np.int64)
    count = 0
    for left in range(len(bounds)):
        right, limit = _outer(bounds[left], first, last)
        is_open = False
        while right < limit:
            skip = _skipped(bounds[left], first, last, right, limit)
            if skip:
                right, is_open = right + skip, False
                continue
            meets = _meets(bounds[left], first[right], last[right])
            if meets and not is_open:
                if count == len(found):
                    larger = np.empty((2 * count, 3), np.int64)
                    for at in range(count):
                        for column in range(3):
                            larger[at, column] = found[at, column]
                    found = larger
                found[count, 0], found[count, 1] = left, right
                count += 1
            if meets:
                found[count - 1, 2] = right + 1
            is_open = meets
            right += 1
    return found[:count]


@kernel(few_rows=0)
def _skipped(bounds: Int64s, first: Int64s, last: Int64s, right: Int, limit: Int) -> Int:
    """How many pages from here on can't be met: pages that follow each other are like one page
    from the first's first cell to the last's last, and mostly all of them are far off."""
    for size in BLOCKS:
        is_block = right % size == 0 and right + size <= limit
        if is_block and not _meets(bounds, first[right], last[right + size - 1]):
            return size
    return 0


@kernel(few_rows=0)
def _outer(bounds: Int64s, first: Int64s, last: Int64s) -> tuple[Int, Int]:
    """The places of the run between which all pages lie that can be met, by their order alone."""
    dimensions = len(bounds)
    lowest = np.full(dimensions, FIRST_CELL, np.int64)
    highest = np.full(dimensions, LAST_CELL, np.int64)
    is_one_cell = True
    for k in range(dimensions):
        lowest[k] = bounds[k, FIRST_DOWN]
        is_one_cell = is_one_cell and bounds[k, FIRST] == bounds[k, LAST]
        if not is_one_cell and bounds[k, AFTER_DOWN] == lowest[k]:
            break  # other cells reach down as far: the next coordinate may be anything
    is_one_cell = True
    for k in range(dimensions):
        highest[k] = bounds[k, LAST_UP]
        is_one_cell = is_one_cell and bounds[k, FIRST] == bounds[k, LAST]
        if not is_one_cell and bounds[k, BEFORE_UP] == highest[k]:
            break
    low, high = 0, len(last)
    while low < high:
        middle = (low + high) // 2
        if _is_less(last[middle], lowest):
            low = middle + 1
        else:
            high = middle
    start, high = low, len(first)
    while low < high:
        middle = (low + high) // 2
        if _is_less(highest, first[middle]):
            high = middle
        else:
            low = middle + 1
    return start, low


@kernel(few_rows=0)
def _is_less(one: Int64s, other: Int64s) -> bool:
    for k in range(len(one)):
        if one[k] != other[k]:
            return bool(one[k] < other[k])
    return False


@kernel(few_rows=0)
def _meets(bounds: Int64s, first: Int64s, last: Int64s) -> bool:
    """Whether cells exist between the fences of both pages that are within reach of each other."""
    situations = 1 << BOTH_AT_BOTH
    for k in range(len(first)):
        following = 0
        for situation in range(16):
            if situations >> situation & 1:
                following |= _following(bounds[k], first[k], last[k], situation)
        if following == 0:
            return False
        if following >> BOTH_FREE & 1:
            return True
        situations = following
    return True


@kernel(few_rows=0)
def _following(bounds: Int64s, first: Int, last: Int, situation: Int) -> Int:
    """The situations that some choice of both coordinates in one dimension leads to."""
    following = 0
    for left_choice in range(3):
        down, up, left = _reached(bounds, situation & 3, left_choice)
        if down > up:
            continue
        for right_choice in range(3):
            low, high, right = _chosen(first, last, situation >> 2, right_choice)
            if low <= high and down <= high and low <= up:
                following |= 1 << (left + 4 * right)
    return following


@kernel(few_rows=0)
def _chosen(first: Int, last: Int, tight: Int, choice: Int) -> tuple[Int, Int, Int]:
    """The coordinates from which to which a choice goes, and where it leaves the cell: at the first
    fence (0), at the last (1) or between (2).  An empty range where there is no such choice."""
    if choice == 0 and tight & AT_FIRST and first <= LAST_CELL:
        is_at_last = tight & AT_LAST and first == last
        return first, first, AT_FIRST | (AT_LAST if is_at_last else 0)
    if choice == 1 and tight & AT_LAST and last <= LAST_CELL:
        is_at_first = tight & AT_FIRST and first == last
        if not is_at_first:
            return last, last, AT_LAST
    if choice == 2:
        low = FIRST_CELL if not tight & AT_FIRST else min(first, LAST_CELL) + 1
        high = LAST_CELL if not tight & AT_LAST else max(last, FIRST_CELL + 1) - 1
        if not (tight & AT_LAST and last == FIRST_CELL):
            return low, min(high, LAST_CELL), 0
    return 1, 0, 0


@kernel(few_rows=0)
def _reached(bounds: Int64s, tight: Int, choice: Int) -> tuple[Int, Int, Int]:
    """What a choice of the left coordinate reaches, and where it leaves the cell."""
    low, high, left = _chosen(bounds[FIRST], bounds[LAST], tight, choice)
    if low > high:
        return 1, 0, 0
    if choice == 0:
        return bounds[FIRST_DOWN], bounds[FIRST_UP], left
    if choice == 1:
        return bounds[LAST_DOWN], bounds[LAST_UP], left
    down = bounds[AFTER_DOWN] if tight & AT_FIRST else FIRST_CELL
    up = bounds[BEFORE_UP] if tight & AT_LAST else LAST_CELL
    return down, up, left
