"""Parts: rows of one stream that are joined as sorted blocks, in memory or on pages.

    MemoryPart   batches ──first use──▶ one block, its arrays sorted by key and time, and its rows
                                        too unless they are few
    PagedPart    a window in a store, its pages sorted by key and time; a page is a block

Both list their blocks with what is known of each without reading it: the first and last key, the
first and last time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from matwin.sizes import batch_bytes
from matwin.storage.arrays import arrow
from matwin.storage.columns import INT64_MAX, INT64_MIN
from matwin.storage.frame import Pinned
from matwin.storage.grid import LAST_CELL
from matwin.storage.materialize import SlabWindow, Window
from matwin.storage.ordering import is_sorted
from matwin.storage.pool import BufferPool
from matwin.storage.runs import PageRef
from matwin.storage.store import Store

from .block import BYTES_PER_ROW, KEY, Block, Blocks
from .reaches import InMemory

SORTING_BYTES = 32
"""Words to sort, their order and what NumPy makes on the way, for a row."""


class MemoryPart:
    """Rows in memory."""

    def __init__(self, blocks: Blocks, *, keeps_rows: bool = False) -> None:
        """`keeps_rows`: rows stay where they lie, and only their arrays are sorted."""
        self._blocks = blocks
        self._made = blocks.ordered if keeps_rows else blocks.sorted
        self._batches: list[pa.RecordBatch] = []
        self._block: Block | None = None
        self.rows = 0
        self.size = 0

    def append(self, rows: pa.RecordBatch, size: int) -> None:
        """Take rows."""
        if rows.num_rows:
            self._block = None
            self._batches.append(rows)
            self.rows += rows.num_rows
            self.size += size

    def batches(self) -> list[pa.RecordBatch]:
        """The rows as they came, or sorted."""
        return list(self._batches)

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, forgotten as they are handed out."""
        while self.rows:
            yield self.pop()

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take rows of a part like this one."""
        self.append(rows, batch_bytes(rows))

    def refs(self) -> list[InMemory]:
        """The block of all rows, where there are any."""
        if self.rows == 0:
            return []
        if self._block is None:
            self._block = self._made(_joined(self._batches))
            self._batches = [self._block.rows]
        return [InMemory(self._block)]

    def sorted_rows(self) -> pa.RecordBatch | None:
        """All rows in order of key and time, where there are any."""
        refs = self.refs()
        return refs[0].block.rows if refs else None

    @property
    def sorting_bytes(self) -> int:
        """What sorting takes beside the rows: a copy of them, and numbers."""
        return 0 if self._block is not None else self.size + self.rows * SORTING_BYTES

    @property
    def held_bytes(self) -> int:
        """What the rows take, and their arrays."""
        return self.size + self.rows * BYTES_PER_ROW

    def bytes_from(self, bound: int) -> int:
        """What the rows from a time on take, reckoned at their share, arrays included."""
        if self.rows == 0 or bound > INT64_MAX:
            return 0
        keys = (self._blocks.side.order_keys(batch) for batch in self._batches)
        kept = sum(int(np.count_nonzero(times >= bound)) for times in keys)
        return self.held_bytes * kept // self.rows

    def absorb(self, other: MemoryPart) -> None:
        """Take all rows of another part."""
        for batch in other._batches:
            self.append(batch, 0)
        self.size += other.size
        other.clear()

    def pop(self) -> pa.RecordBatch:
        """Take out the first rows."""
        batch = self._batches.pop(0)
        self.size -= self.size * batch.num_rows // self.rows
        self.rows -= batch.num_rows
        self._block = None
        return batch

    def clear(self) -> None:
        """Forget all rows."""
        self._batches, self._block, self.rows, self.size = [], None, 0, 0

    def drop_below(self, bound: int) -> None:
        """Forget rows whose time is below `bound`."""
        if self.rows == 0 or bound <= INT64_MIN:
            return
        kept = []
        for batch in self._batches:
            times = self._blocks.side.order_keys(batch)
            alive = times >= bound if bound <= INT64_MAX else np.zeros(len(times), np.bool_)
            if alive.all():
                kept.append(batch)
            elif alive.any():
                kept.append(batch.filter(arrow(alive)))
        self._batches, self._block = kept, None
        self.rows = sum(batch.num_rows for batch in kept)
        self.size = sum(map(batch_bytes, kept))  # those that are left may be the widest


def needed_bytes(parts: Sequence[MemoryPart], together: int = 1) -> int:
    """What parts take while so many of them are sorted at a time."""
    sorting = sorted(part.sorting_bytes for part in parts)[-together:]
    return sum(part.held_bytes for part in parts) + sum(sorting)


class Gathering:
    """Parts that gather, counted against a pool's budget: their rows, and what it takes to sort and
    write one of them after the other."""

    def __init__(self, parts: Sequence[MemoryPart], pool: BufferPool) -> None:
        self._parts = parts
        self._pool = pool
        self.size = 0

    def count(self) -> None:
        """Count what the parts take now."""
        sorting = max(part.sorting_bytes + part.rows * BYTES_PER_ROW for part in self._parts)
        more = sum(part.size for part in self._parts) + sorting - self.size
        if more > 0:
            self._pool.take(more)
        else:
            self._pool.give_back(-more)
        self.size += more


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


class PagedPart:
    """Rows in a window of a store."""

    def __init__(
        self, blocks: Blocks, store: Store, name: str, *, materialize: str, arrival: str,
        has_only_runs: bool = False,
    ) -> None:  # fmt: skip
        """`has_only_runs`: all rows come sorted, and are put down; the window is of runs."""
        self._blocks = blocks
        self._pool = store.pool
        side = blocks.side
        schema = pa.schema([*side.stored, *blocks.page_fields])
        order = side.grid.order
        by = list(side.keys) if blocks.is_exact else [KEY]
        self._key = by[0] if by else None
        on = {order.name: order.limits}
        self.window: Window = store.window(
            name, schema, on=on, by=by, materialize=materialize, arrival=arrival
        )
        # Rows that come in a step have pages of their own: in the window, if that is of runs.
        self._new = self.window if isinstance(self.window, SlabWindow) else None
        if has_only_runs and self._new is not None:
            self._new.only_runs()
        self._new_from: int | None = None  # the first run of rows that wait for their step
        self._make_new = partial(
            store.window, f"{name} new", schema, on=on, by=by, materialize="slab"
        )

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        if rows.num_rows:
            self.window.append(self._blocks.on_page(rows))

    def put_down(self, rows: pa.RecordBatch | None) -> None:
        """Write rows that wait for a step."""
        new = self._runs()
        if rows is None:
            return
        if self._new_from is None:
            new.settle()  # no run of old rows comes after this one
            self._new_from = new.next_run
        new.add_run(self._blocks.on_page(rows), is_to_merge=True)

    def staged(self, rows: pa.RecordBatch | None) -> tuple[list[OnPage], list[OnPage]]:
        """Take the rows of a step, with those that wait for it: the pages that were there, and
        those of these rows alone."""
        refs = self._staged(rows)
        new = {ref.page_id for ref in refs}
        old = [ref for ref in self.window.pages() if ref.page_id not in new]
        return self._on_pages(old), self._on_pages(refs)

    def _staged(self, rows: pa.RecordBatch | None) -> list[PageRef]:
        new = self._runs()
        if self._new_from is not None:
            self.put_down(rows)
            first, self._new_from = self._new_from, None
            return new.merge_from(first)
        new.settle()  # before: it may join short runs to a longer one
        return [] if rows is None else new.add_run(self._blocks.on_page(rows))

    def _runs(self) -> SlabWindow:
        """Where new rows are."""
        if self._new is None:
            made = self._make_new()
            assert isinstance(made, SlabWindow)
            self._new = made.only_runs()
        return self._new

    def settle(self) -> None:
        """After a step its rows are the window's, as all others."""
        if self._new is not None and self._new is not self.window:
            for batch in self._new.scan():
                self.window.append(batch)
            self._new.clear("taken over")

    def compact(self) -> None:
        """Make long runs of short ones, so that a page has few keys and meets few others."""
        if isinstance(self.window, SlabWindow):
            self.window.compact()

    @property
    def rows_waiting(self) -> int:
        """Rows on pages that wait for a step."""
        if self._new is None or self._new_from is None:
            return 0
        return sum(ref.rows for ref in self._new.pages() if ref.run >= self._new_from)

    @property
    def rows(self) -> int:
        """Rows on the window's pages but those that wait."""
        waiting = self.rows_waiting if self._new is self.window else 0
        return sum(ref.rows for ref in self.window.pages()) - waiting

    @property
    def state(self) -> tuple[list[str], dict[str, int]]:
        """The windows in the store, and from which run on rows wait."""
        names = [self.window.name]
        if self._new is None or self._new_from is None:
            return names, {}
        names += [self._new.name] if self._new is not self.window else []
        return names, {self._mark: self._new_from}

    def restore(self, marks: Mapping[str, int]) -> None:
        """Go on with rows that wait."""
        if self._mark in marks:
            self._runs()
            self._new_from = marks[self._mark]

    @property
    def _mark(self) -> str:
        return f"{self.window.name} waits from run"

    def pages(self) -> list[OnPage]:
        """The pages with what is known of them."""
        return self._on_pages(self.window.pages())

    def _on_pages(self, refs: Sequence[PageRef]) -> list[OnPage]:
        return [OnPage(ref, self._pool, self._blocks, self._key) for ref in refs]

    def drop_below(self, bound: int) -> None:
        """Forget rows whose time is below `bound`."""
        if bound > INT64_MAX:
            self.window.clear("no later row can meet it")
        elif bound > INT64_MIN:
            self.window.expire_key(bound, "no later row can meet it")


@dataclass(frozen=True, slots=True)
class OnPage:
    """A block that is read when it is needed."""

    ref: PageRef
    pool: BufferPool
    blocks: Blocks
    key: str | None
    """The column that holds the keys' number."""

    @property
    def key_range(self) -> tuple[int, int]:
        """The first and the last key; the last cell of all holds the last two keys."""
        if self.key is None:
            return 0, 0
        first, last = self.ref.fence.first[0], self.ref.fence.last[0]
        return first, INT64_MAX if last == LAST_CELL else last

    @property
    def time_range(self) -> tuple[int, int]:
        """The first and the last time."""
        return self.ref.fence.order_min, self.ref.fence.order_max

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.ref.rows

    @contextmanager
    def pinned(self) -> Iterator[Block]:
        """The page's block, while the page is held in its frame."""
        with self.pool.pin(self.ref.page_id, "join") as page:
            yield self.block_of(page)

    def block_of(self, page: Pinned) -> Block:
        """The block of a page of this stream that is held: made once, and kept as long."""
        if page.block is None:
            block = self.blocks.of_page(page.batch)
            if block.keys[-1] >= LAST_CELL and not is_sorted([block.keys, block.times]):
                block = self.blocks.sorted(page.batch)  # the last two keys share a cell
            page.block = block
        own: Block = page.block
        return own
