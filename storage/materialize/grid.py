"""Grid materialization: a list of pages for each cell, of which only the last is rewritten.

    cells (sorted)        pages
    (0, 0) ─────────────▶ 3 · 7 · 12*          * takes new rows, until it is full
    (0, 1) ─────────────▶ 4*
    (2, 5) ─────────────▶ 9 · 11*

Cost of a step: for each cell that got rows, at most one page is read and rewritten, and new pages
are written for what does not fit.  A page holds rows of one cell only, so sparse cells leave
records mostly empty on disk; in memory a page takes only the bytes it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from sortedcontainers import SortedDict

from ..ordering import group_starts
from ..pagefile import record_bytes
from ..runs import PageRef, Sorted, sort_rows, sort_space
from .window import Window

Cell = tuple[int, ...]
FULL = 0.95
"""A page filled beyond this share is left alone."""


class GridWindow(Window):
    """Pages by cell."""

    form = "grid"
    _sorted_at_once = 2  # the tail, and a cell's rows with those of its last page

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
                for cell, part in _by_cell(rows):
                    self._insert(cell, part)
                    done += part.batch.num_rows
            finally:
                # After an error, the rows that did not reach their cells stay in the tail.
                self._tail.replace(rows.batch.slice(done))

    def _insert(self, cell: Cell, rows: Sorted) -> None:
        pages = self._cells.get(cell, [])
        old = pages[-1] if pages and self._has_room(pages[-1]) else None
        with self._writer(0, "cell") as writer:
            if old is None:
                writer.add(rows)
            else:
                keys = len(self.grid.names) + 1
                space = sort_space(
                    old.rows + rows.batch.num_rows, old.size + rows.batch.nbytes, keys
                )
                with self._pool.reserve(space), self.read(old, "cell") as batch:
                    together = pa.concat_batches([batch, rows.batch])
                    writer.add(sort_rows(together, self.grid))
            refs = writer.finish()
        if old is not None:
            self._forget([old])
        self._cells.setdefault(cell, []).extend(refs)
        self._by_order.update(refs)
        if old is not None:
            self._retire(old)

    def _has_room(self, ref: PageRef) -> bool:
        return ref.size < FULL * record_bytes(self._pool.file.page_size)

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


def _by_cell(rows: Sorted) -> Iterator[tuple[Cell, Sorted]]:
    starts = group_starts(rows.keys[:-1]).tolist()
    for start, limit in zip(starts, [*starts[1:], rows.batch.num_rows], strict=True):
        part = rows.slice(start, limit)
        yield part.key(0)[:-1], part
