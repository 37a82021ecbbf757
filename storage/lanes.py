"""Lanes: rows put down once, by lane, and taken back once, lane by lane.

    append(lane, rows) ──▶ a page of its own ──▶ pool ──late──▶ page file
    taken(lane) ─────────▶ its pages, one after the other; then they are given up

Rows of a lane are in no order, so a page here has a fence of nothing and no cells.  What a window
offers (order, expiry, steps) is left out: a lane is for whoever divides rows that do not fit into
lots that do.  Pages are as large as the rows that came, and so are their records: nothing is
rewritten, so nothing can fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from .layout import PageId, encode_rows
from .pool import BufferPool

PAGES_AT_ONCE = 64


@dataclass(slots=True)
class Lane:
    """What is known of a lane without reading it."""

    rows: int = 0
    size: int = 0
    pages: list[PageId] = field(default_factory=list)


class Lanes:
    """Rows of one schema, by lane.  Made by `Store.lanes`."""

    def __init__(self, pool: BufferPool, window: int, name: str, schema: pa.Schema) -> None:
        self._pool = pool
        self._window = window
        self._next_page = 0
        self._lanes: dict[int, Lane] = {}
        pool.register(window, name, schema)
        pool.file.loosen(window)

    def lane(self, number: int) -> Lane:
        """What a lane holds."""
        return self._lanes.get(number) or Lane()

    def append(self, number: int, rows: pa.RecordBatch) -> None:
        """Put rows down at the end of a lane, in pages that are no larger than others': while one
        is made there are two copies of it."""
        if rows.nbytes > self._pool.file.page_size and rows.num_rows > 1:
            half = rows.num_rows // 2
            self.append(number, rows.slice(0, half))
            self.append(number, rows.slice(half))
            return
        page_id = PageId(self._window, self._next_page)
        self._next_page += 1
        data = encode_rows(page_id, rows, self._pool.mark(self._window))
        self._pool.put(page_id, data, f"part {number}" if self._pool.is_traced else "")
        lane = self._lanes.setdefault(number, Lane())
        lane.rows += rows.num_rows
        lane.size += rows.nbytes
        lane.pages.append(page_id)

    def peeked(self, number: int, pages: int) -> Iterator[pa.RecordBatch]:
        """Some pages of a lane, evenly spaced; they stay."""
        held = self.lane(number).pages
        for page_id in held[:: max(1, len(held) // pages)]:
            with self._pool.pin(page_id, "sample") as page:
                yield page.batch

    def taken(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a lane, a page at a time; they are gone here.

        Whoever takes them has reserved room for them: the pool does not count them any more.
        """
        lane = self._lanes.pop(number, Lane())
        for first in range(0, len(lane.pages), PAGES_AT_ONCE):
            some = lane.pages[first : first + PAGES_AT_ONCE]
            for page in self._pool.hand_over(some, f"part {number}"):
                yield page.batch

    def close(self) -> None:
        """Give up all lanes."""
        for lane in self._lanes.values():
            self._pool.drop(lane.pages, "closed")
        self._lanes.clear()
        self._pool.unregister(self._window)
