"""Finite inputs whose windows do not fit: written to pages as they come, joined at their end.

Rows gather in memory first, as many as fit, and are sorted by key and time: the pages they become
hold few keys each, and a range of keys later finds its rows on few pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.storage.store import Store

from .block import Blocks
from .output import Output
from .paged import page_by_page
from .partitions import Pages, Partitions, Range
from .parts import Gathering, KeptBlocks, MemoryPart, PagedPart
from .question import WindowQuestion

GATHER_SHARE = 4
READS_MAX = 8
"""Reads of a page for which ranges of keys are still cheaper than merging the runs."""


class GatheredPages:
    """All rows on pages: old ones, which have met each other in memory, and new ones."""

    copies = 0  # a store counts its own
    is_step_due = False
    new_bytes = 0
    joined = "nothing joined"
    """How the runs were joined; known when that begins."""

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, store: Store, *,
        bounds: str, materialize: str, threads: int,
    ) -> None:  # fmt: skip
        self._question = question
        self._blocks = blocks
        self._output = output
        self._store = store
        self._bounds = bounds
        self._threads = threads
        self._is_cut = question.is_keyed and materialize == "auto"
        self._form = "standard" if self._is_cut else materialize
        self._parts: dict[tuple[int, bool], PagedPart] = {}
        self._waiting = [MemoryPart(b) for b in blocks]
        self._gathering = Gathering(self._waiting, store.pool)

    @property
    def reason(self) -> str:
        """What the windows are, and why."""
        return "inputs are finite: sorted runs, joined at the end"

    def take(self, stream: int, rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """Gather rows; the stream with the most of them writes when the share is used up."""
        if not self._is_cut:
            self._part(stream, is_new=True).append(rows)
            return iter(())
        self._waiting[stream].append(rows, size)
        self._gathering.count()
        if self._gathering.size > self._store.pool.budget_bytes // GATHER_SHARE:
            self._write(max(range(len(self._waiting)), key=lambda i: self._waiting[i].size))
        return iter(())

    def _write(self, stream: int) -> None:
        """Write what waits, in order of key and time."""
        part = self._part(stream, is_new=True)
        waiting = self._waiting[stream]
        for ref in waiting.refs():
            part.append(ref.block.rows)
        waiting.clear()
        self._gathering.count()

    def take_old(self, stream: int, rows: pa.RecordBatch) -> None:
        """Rows whose tuples with one another have been found."""
        self._part(stream, is_new=False).append(rows)

    def _part(self, stream: int, *, is_new: bool) -> PagedPart:
        """The part, made when it is first needed: windows share what sorting may take."""
        if (stream, is_new) not in self._parts:
            name = self._question.names[stream] + ("" if is_new else " before")
            self._parts[stream, is_new] = PagedPart(
                self._blocks[stream], self._store, name, materialize=self._form, arrival="unsorted"
            )
        return self._parts[stream, is_new]

    def advance(self, needed: Sequence[int], upto: int) -> Iterator[pa.RecordBatch]:
        """Nothing: everything waits for the end."""
        return iter(())

    def step(self, needed: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row."""
        streams = range(len(self._blocks))
        for stream in streams:
            self._write(stream)
        old = [self._part(i, is_new=False) for i in streams]
        new = [self._part(i, is_new=True) for i in streams]
        cut = self._cut(old, new) if self._is_cut else None
        self.joined = "runs joined page by page" if cut is None else f"{len(cut[1])} ranges of keys"
        if cut is None:
            pool = self._store.pool
            yield from page_by_page(self._question, old, new, self._output, pool, self._bounds)
        else:
            yield from cut[0].joined(cut[1])

    def _cut(
        self, old: list[PagedPart], new: list[PagedPart]
    ) -> tuple[Partitions, list[Range]] | None:
        """Ranges of keys, if they read the runs' pages seldom enough to save merging them."""
        kept = KeptBlocks(0)
        cut = Partitions(
            self._question, self._blocks, self._output, self._store, self._bounds, self._threads,
            [Pages.of(part.refs(kept, merged=False)) for part in old],
            [Pages.of(part.refs(kept, merged=False)) for part in new],
        )  # fmt: skip
        ranges = cut.ranges()
        return (cut, ranges) if cut.reads(ranges) <= READS_MAX * len(cut.pages) else None
