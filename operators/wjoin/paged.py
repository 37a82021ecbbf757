"""Joining slab by slab with windows on pages.

    live     rows gather in memory, a quarter of the budget ──step──▶ meet every page they can,
                                                                      are written to pages
    finite   rows are written to pages ──the end──▶ meet each other, one step

A step reads every page that its new rows can meet, so it waits until they pay for that, or until
`max_delay` says that they must not wait longer, or until nobody has anything to say.  Finite inputs
wait for their end, because in one step every page is read about once: range of keys by range
(`partitions`), or, where there are no keys or a form of materialization is asked for, page by page.

Page by page the tuples grow with one page of each stream held at a time, so that no key is too hot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.storage.pool import BufferPool
from matwin.storage.store import Store

from .block import BYTES_PER_ROW, Blocks
from .output import Output
from .parts import Gathering, KeptBlocks, MemoryPart, PagedPart
from .question import WindowQuestion
from .reaches import BlockRef
from .slabs import stepped

KEPT_BLOCKS_MAX = 256
NEW_SHARE = 4
"""What gathers is a quarter of the budget: the more, the seldomer the windows are read."""


def page_by_page(
    question: WindowQuestion, old: Sequence[PagedPart], new: Sequence[PagedPart | MemoryPart],
    output: Output, pool: BufferPool, bounds: str,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """All tuples with a new row, with a page of each stream held at a time."""
    kept, size = _kept_blocks([p for p in (*old, *new) if isinstance(p, PagedPart)], output, pool)
    with pool.reserve(output.share_bytes + size):
        olds: list[list[BlockRef]] = [[*part.refs(kept)] for part in old]
        news = [[*(p.refs(kept) if isinstance(p, PagedPart) else p.refs())] for p in new]
        counts = [sum(r.rows for r in (*o, *n)) for o, n in zip(olds, news, strict=True)]
        yield from stepped(question, olds, news, counts, bounds, output, 1)


def _kept_blocks(
    parts: Sequence[PagedPart], output: Output, pool: BufferPool
) -> tuple[KeptBlocks, int]:
    """How many pages' arrays are kept, and what they take: a page of each stream at least, and half
    of what is left beside output and frames."""
    refs = [ref for part in parts for ref in part.pages()]
    each = max([ref.rows for ref in refs], default=1) * BYTES_PER_ROW
    page = max([ref.size for ref in refs], default=1)
    room = pool.budget_bytes - pool.write_space - pool.held_bytes - output.share_bytes
    streams = len(parts)
    limit = max(streams, min(KEPT_BLOCKS_MAX, (room - (streams + 1) * page) // 2 // each))
    return KeptBlocks(limit), limit * each


class LivePages:
    """Old rows on pages, new ones in memory until a step pays."""

    copies = 0  # a store counts its own

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, store: Store, *,
        bounds: str, arrivals: Sequence[str], materialize: str,
    ) -> None:  # fmt: skip
        self._question = question
        self._output = output
        self._bounds = bounds
        self._pool = store.pool
        self.old = [
            PagedPart(b, store, name, materialize=materialize, arrival=arrival)
            for b, name, arrival in zip(blocks, question.names, arrivals, strict=True)
        ]
        self.new = [MemoryPart(b) for b in blocks]
        self._gathering = Gathering(self.new, store.pool)

    @property
    def new_bytes(self) -> int:
        """What has gathered since the last step."""
        return self._gathering.size

    @property
    def is_step_due(self) -> bool:
        """Whether as much has come as pays for reading the windows."""
        return self.new_bytes > self._pool.budget_bytes // NEW_SHARE

    @property
    def reason(self) -> str:
        """What the windows are, and why."""
        window = self.old[0].window
        return f"{window.form} windows, joined as rows come: {window.reason}"

    def take(self, stream: int, rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """Keep rows for the next step."""
        self.new[stream].append(rows, size)
        self._gathering.count()
        return iter(())

    def take_old(self, stream: int, rows: pa.RecordBatch) -> None:
        """Rows whose tuples with one another have been found."""
        self.old[stream].append(rows)

    def advance(self, needed: Sequence[int], upto: int) -> Iterator[pa.RecordBatch]:
        """Nothing: a step waits until it pays."""
        return iter(())

    def step(self, needed: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row; then drop what no later row can meet."""
        yield from page_by_page(
            self._question, self.old, self.new, self._output, self._pool, self._bounds
        )
        for number, part in enumerate(self.new):
            for batch in part.clear():
                self.old[number].append(batch)
            self._gathering.count()
        for old, bound in zip(self.old, needed, strict=True):
            old.drop_below(bound)
