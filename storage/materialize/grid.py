"""Grid materialization: a list of pages for each cell, of which only the last is rewritten.

    cells (sorted)        pages
    (0, 0) ─────────────▶ 3 · 7 · 12*          * takes new rows, until it is full
    (0, 1) … (2, 4) ────▶ 4*                   sparse neighbours share a page
    (2, 5) ─────────────▶ 9 · 11*

A cell with half a page of rows or more has pages of its own.  Sparser neighbours share one; when
it overflows, it is cut into even parts between two cells, as a leaf of a B-tree is.  So a window of
one row a cell takes as many pages as its rows need, not one for each row: 26,500 pages for 1 MB
became 6.

Cost of a step: for each list that got rows, at most one page is read and rewritten, and new pages
are written for what does not fit.

Invariant: no page begins before the one listed before it has ended.  New rows therefore go to the
last page that begins at or before their cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict

from ..columns import INT64_MAX
from ..ordering import count_upto, group_starts
from ..pagefile import record_bytes
from ..runs import PageRef, Sorted, sort_rows, sort_space
from .window import Window

Cell = tuple[int, ...]
FULL = 0.95
"""A page filled beyond this share is left alone."""
DENSE = 0.5
"""A cell that fills this share of a page has pages of its own."""
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
ROW_BYTES = 2
"""What a row takes at most in a page's directory."""


class GridWindow(Window):
    """Pages by the cell they begin with."""

    form = "grid"
    _sorted_at_once = 2  # the tail, and some of its rows with those of a page

    def _begin(self) -> None:
        self._cells: SortedDict[Cell, list[PageRef]] = SortedDict()

    def _settle(self) -> None:
        """Bring the tail's rows to the pages of their cells."""
        self._spill()

    def _spill(self) -> None:
        if not self._tail.rows:
            self._tail.clear()
            return
        with self._tail.in_order() as rows:
            done = 0
            try:
                while done < rows.batch.num_rows:
                    done += self._insert(rows.slice(done, rows.batch.num_rows))
            finally:
                # After an error, the rows that did not reach their cells stay in the tail.
                self._tail.replace(rows.batch.slice(done))

    def _insert(self, rows: Sorted) -> int:
        """Bring the first of the rows to their page, with all others that belong there; how many
        these are."""
        first = rows.key(0)[:-1]
        place = self._cells.bisect_right(first)
        count: int = rows.batch.num_rows
        if place < len(self._cells):
            count = _count_below(rows, self._cells.keys()[place])
        old = self._page_for(place)
        if old is not None and self._is_dense(old):
            same = count_upto(rows.keys, (*old.fence.last, INT64_MAX))
            if same == 0 or old.size >= FULL * self._capacity:
                old = None  # behind a cell that has pages of its own, or more pages for it
            count = same or count
        self._write(rows.slice(0, count), old)
        return count

    def _page_for(self, place: int) -> PageRef | None:
        """The page that takes rows before the list at `place`: the last that begins at or before
        them, or the first of all, if they share it."""
        if place:
            before: PageRef = self._cells.peekitem(place - 1)[1][-1]
            return before
        if not self._cells or len(self._cells.peekitem(0)[1]) > 1:
            return None
        page = self._cells.peekitem(0)[1][0]
        return None if self._is_dense(page) else page

    def _is_dense(self, ref: PageRef) -> bool:
        """Whether a page is for one cell alone."""
        return ref.fence.first == ref.fence.last and ref.size >= DENSE * self._capacity

    @property
    def _capacity(self) -> int:
        return record_bytes(self._pool.file.page_size)

    def _write(self, rows: Sorted, old: PageRef | None) -> None:
        """Write rows to pages, with those of an old one that has room or is shared."""
        if old is None:
            self._add(self._written(rows, is_even=False), None)
            return
        size = old.size + rows.batch.nbytes
        space = sort_space(old.rows + rows.batch.num_rows, size, len(self.grid.names) + 1)
        with self._pool.reserve(space), self.read(old, "cell") as batch:
            together = sort_rows(pa.concat_batches([batch, rows.batch]), self.grid)
            # Rows that come in order leave full pages behind.
            refs = self._written(together, is_even=rows.key(0)[:-1] <= old.fence.last)
        self._add(refs, old)

    def _written(self, rows: Sorted, *, is_even: bool) -> list[PageRef]:
        """New pages of rows, full ones or evenly filled."""
        count: int = rows.batch.num_rows
        fits = FULL * self._capacity * count / (rows.batch.nbytes + ROW_BYTES * count)
        fits = max(1, min(int(fits), count))
        if is_even:
            pages = -(-count // fits)
            fits = -(-count // pages)
        with self._writer(0, "cell") as writer:
            for part in _parts(rows, fits):
                writer.add(part)
                writer.finish()
            return writer.refs

    def _add(self, refs: list[PageRef], old: PageRef | None) -> None:
        """List new pages, and forget the one that they replace."""
        own = refs[0].fence.first if old is None else old.fence.first
        if old is not None:
            self._forget([old])
        fronts: dict[Cell, int] = {}
        for ref in refs:
            cell = ref.fence.first
            pages = self._cells.setdefault(cell, [])
            # A page that begins with a cell that was there goes before that cell's other pages,
            # unless it is the cell the rows were added to.
            at = len(pages) if cell == own else fronts.get(cell, 0)
            fronts[cell] = at + 1
            pages.insert(at, ref)
        self._by_order.update(refs)
        if old is not None:
            self._retire(old)

    def _listed(self) -> Iterable[PageRef]:
        for pages in self._cells.values():
            yield from pages

    def _forget(self, refs: list[PageRef]) -> None:
        for ref in refs:
            self._by_order.remove(ref)
            pages = self._cells[ref.fence.first]
            pages.remove(ref)
            if not pages:
                del self._cells[ref.fence.first]

    def _restore(self, refs: list[PageRef]) -> None:
        for ref in refs:
            self._cells.setdefault(ref.fence.first, []).append(ref)
        self._by_order.update(refs)


def _count_below(rows: Sorted, cell: Cell) -> int:
    """How many rows are in cells before this one."""
    start, limit = 0, rows.batch.num_rows
    for column, value in zip(rows.keys[:-1], cell, strict=True):
        left, right = (np.searchsorted(column[start:limit], value, side) for side in SIDES)
        start, limit = start + int(left), start + int(right)
    return start


def _parts(rows: Sorted, fits: int) -> Iterator[Sorted]:
    """Neighbouring cells together, about as many rows as fit a page; dense cells alone.

    A step for each part, not for each cell: there may be as many as rows.
    """
    starts = group_starts(rows.keys[:-1])
    ends = np.append(starts[1:], rows.batch.num_rows)
    dense = np.flatnonzero(ends - starts >= max(2, DENSE * fits))
    at = 0
    while at < len(starts):
        following = int(np.searchsorted(dense, at))
        next_dense = int(dense[following]) if following < len(dense) else len(starts)
        limit = int(np.searchsorted(ends, starts[at] + fits, "right"))
        limit = at + 1 if next_dense == at else min(max(limit, at + 1), next_dense)
        yield rows.slice(int(starts[at]), int(ends[limit - 1]))
        at = limit
