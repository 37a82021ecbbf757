"""Joining slab by slab with windows on pages.

    rows that come ──▶ gather in memory, an eighth of the budget ──step──▶ meet every page they can
                                                                       ──▶ are written to pages

A step reads every page that its new rows can meet, so it waits until they pay for that, or until
`max_delay` says that they must not wait longer.  The tuples are grown page by page, with one page
of each stream held at a time, so that no key is too hot.  Inputs of which nothing is final before
their end are sorted on pages by key and time and joined in one step at the end: each page then
meets those of its own keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.storage.store import Store

from .block import BYTES_PER_ROW, Blocks
from .output import Output
from .parts import KeptBlocks, MemoryPart, PagedPart
from .question import WindowQuestion
from .slabs import stepped

KEPT_BLOCKS_MAX = 256


class PagedSlabs:
    """Old rows on pages, and new ones too where nothing is final before the end."""

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, store: Store, *,
        bounds: str, arrivals: Sequence[str], materialize: str, gathers_all: bool,
    ) -> None:  # fmt: skip
        self._question = question
        self._output = output
        self._bounds = bounds
        self._pool = store.pool
        self._gathers_all = gathers_all
        names = question.names
        self.old = [
            PagedPart(b, store, name, materialize=materialize, arrival=arrival)
            for b, name, arrival in zip(blocks, names, arrivals, strict=True)
        ]
        self._paged_new = (
            [
                PagedPart(b, store, name + " new", materialize=materialize, arrival="unsorted")
                for b, name in zip(blocks, names, strict=True)
            ]
            if gathers_all
            else []
        )
        self.new = [MemoryPart(b) for b in blocks]
        self.new_bytes = 0

    @property
    def is_step_due(self) -> bool:
        """Whether as much has come as pays for reading the windows."""
        return not self._gathers_all and self.new_bytes > self._pool.budget_bytes // 8

    def take(self, stream: int, rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """Keep rows for the next step."""
        if self._gathers_all:
            self._paged_new[stream].append(rows)
        else:
            held = self.new[stream].held_bytes
            self.new[stream].append(rows, size)
            more = 2 * (self.new[stream].held_bytes - held)
            self._pool.take(more)
            self.new_bytes += more
        return iter(())

    def take_old(self, stream: int, rows: pa.RecordBatch) -> None:
        """Rows whose tuples with one another have been found."""
        self.old[stream].append(rows)

    def advance(self, needed: Sequence[int], upto: int) -> Iterator[pa.RecordBatch]:
        """Nothing: a step waits until it pays."""
        return iter(())

    def step(self, needed: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row; then drop what no later row can meet."""
        kept, size = self._kept_blocks()
        with self._pool.reserve(self._output.share_bytes + size):
            old = [part.refs(kept) for part in self.old]
            new = [part.refs() for part in self.new]
            for refs, part in zip(new, self._paged_new, strict=False):
                refs += part.refs(kept)
            counts = [sum(r.rows for r in (*o, *n)) for o, n in zip(old, new, strict=True)]
            yield from stepped(self._question, old, new, counts, self._bounds, self._output, 1)
        self._keep(needed)

    def _kept_blocks(self) -> tuple[KeptBlocks, int]:
        """How many pages' arrays are kept, and what they take: a page of each stream at least, and
        half of what is left beside output and frames."""
        pool, streams = self._pool, len(self.old)
        refs = [ref for part in (*self.old, *self._paged_new) for ref in part.pages()]
        each = max([ref.rows for ref in refs], default=1) * BYTES_PER_ROW
        page = max([ref.size for ref in refs], default=1)
        room = pool.budget_bytes - pool.write_space - pool.held_bytes - self._output.share_bytes
        limit = max(streams, min(KEPT_BLOCKS_MAX, (room - (streams + 1) * page) // 2 // each))
        return KeptBlocks(limit), limit * each

    def _keep(self, needed: Sequence[int]) -> None:
        """New rows become old ones."""
        for number, part in enumerate(self.new):
            for batch in part.clear():
                self.old[number].append(batch)
        self._pool.give_back(self.new_bytes)
        self.new_bytes = 0
        for old, bound in zip(self.old, needed, strict=True):
            old.drop_below(bound)
