"""Sorted runs: rows in order, cut into pages, and many runs merged into one.

    rows ──sort_rows──▶ sorted rows ──RunWriter──▶ pages of one run
    runs ──merge──────▶ sorted rows ──RunWriter──▶ pages of a longer run

Merging takes no step per row.  All runs show one page each; everything up to the smallest of the
pages' last rows can be put out, so those parts are concatenated and sorted as a whole, which a
sort of few presorted stretches does in little more than the time to copy them.

Invariants: a run's pages are in ε-Grid-Order and full but for the last; the order of rows that
compare equal depends on nothing but the input and the budget; buffers are reserved in the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .arrays import arrow
from .columns import INT64_MIN, Int64s, order_key
from .errors import StoreError
from .grid import Grid
from .layout import Fence, PageId, encode_page, rows_that_fit
from .ordering import count_upto, sort_order
from .pagefile import record_bytes
from .pool import BufferPool

FAN_IN_MAX = 64
BYTES_PER_ROW_MIN = 8
"""Pages hold at most ``page_size / 8`` rows, so that their sort keys stay in proportion."""


@dataclass(slots=True, eq=False)
class PageRef:
    """A page of a window and what is known of it without reading it.

    Rows whose order key is below `low` have expired, though they are still in the page.
    """

    page_id: PageId
    run: int
    rows: int
    size: int
    fence: Fence
    low: int = INT64_MIN

    @property
    def is_whole(self) -> bool:
        """Whether no row of the page has expired."""
        return self.fence.order_min >= self.low


class Sorted(NamedTuple):
    """Rows and their sort keys."""

    batch: pa.RecordBatch
    keys: list[Int64s]

    def slice(self, start: int, limit: int) -> Sorted:
        """The rows from `start` up to, not including, `limit`."""
        return Sorted(self.batch.slice(start, limit - start), [k[start:limit] for k in self.keys])

    def key(self, row: int) -> tuple[int, ...]:
        """A row's sort keys."""
        return tuple(int(k[row]) for k in self.keys)


def sort_rows(batch: pa.RecordBatch, grid: Grid) -> Sorted:
    """The rows in ε-Grid-Order, by the order attribute within a cell; stable."""
    keys = grid.sort_keys(batch)
    order = sort_order(keys) if batch.num_rows else None
    if order is None:
        return Sorted(batch, keys)
    return Sorted(batch.take(arrow(order)), [k[order] for k in keys])


def sort_space(rows: int, size: int, keys: int) -> int:
    """Bytes that sorting takes: the rows joined and sorted, their keys before and after, and the
    packed words."""
    return 2 * size + 8 * rows * (2 * keys + 2)


def live_rows(batch: pa.RecordBatch, ref: PageRef, grid: Grid) -> pa.RecordBatch:
    """The rows of a page that have not expired; no copy when all are there."""
    if ref.is_whole:
        return batch
    return batch.filter(arrow(order_key(batch.column(grid.order.name)) >= ref.low))


class RunWriter:
    """Sorted rows into the pages of one run; an error inside its block gives them all up."""

    def __init__(
        self,
        pool: BufferPool,
        window: int,
        next_page: Callable[[], int],
        *,
        run: int,
        why: str,
        keep: bool = False,
    ) -> None:
        self._pool = pool
        self._window = window
        self._next_page = next_page
        self._run = run
        self._why = why
        self._keep = keep
        self._pending: Sorted | None = None
        self._capacity = record_bytes(pool.file.page_size)
        self._rows_max = pool.file.page_size // BYTES_PER_ROW_MIN
        self._guess = 1024
        self.refs: list[PageRef] = []

    def add(self, rows: Sorted) -> None:
        """Take rows that follow those taken before."""
        if rows.batch.num_rows == 0:
            return
        self._pending = whole = _joined([self._pending, rows] if self._pending else [rows])
        while (fits := self._fits()) < self._pending.batch.num_rows:
            self._emit(fits)
        if self._pending is not whole:
            self._pending = _copied(self._pending)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(StoreError):
                self._pool.drop([ref.page_id for ref in self.refs], "abandoned")

    def finish(self) -> list[PageRef]:
        """Write what is left; the pages of the run."""
        while self._pending is not None and self._pending.batch.num_rows:
            self._emit(self._fits())
        return self.refs

    def _fits(self) -> int:
        assert self._pending is not None
        batch, keys = self._pending
        if batch.num_rows > self._rows_max:
            batch, keys = self._pending.slice(0, self._rows_max)
        return rows_that_fit(batch, keys, self._capacity, self._guess)

    def _emit(self, rows: int) -> None:
        assert self._pending is not None
        self._guess = rows
        page, self._pending = (
            self._pending.slice(0, rows),
            self._pending.slice(rows, self._pending.batch.num_rows),
        )
        page_id = PageId(self._window, self._next_page())
        data, fence = encode_page(page_id, page.batch, page.keys, self._pool.mark(self._window))
        self._pool.put(page_id, data, self._why, keep=self._keep)
        self.refs.append(PageRef(page_id, self._run, rows, data.size, fence))


def _copied(rows: Sorted) -> Sorted:
    """The rows in memory of their own: a slice would keep alive all that it was cut from."""
    batch = pa.ipc.read_record_batch(rows.batch.serialize(), rows.batch.schema)
    return Sorted(batch, [k.copy() for k in rows.keys])


def _joined(parts: Sequence[Sorted]) -> Sorted:
    if len(parts) == 1:
        return parts[0]
    batch = pa.concat_batches([part.batch for part in parts])
    columns = zip(*(part.keys for part in parts), strict=True)
    return Sorted(batch, [_concat(column) for column in columns])


def _concat(columns: Sequence[Int64s]) -> Int64s:
    return np.concatenate(columns)


class _Cursor:
    """A place in a run: the rows of one pinned page that have not been put out."""

    def __init__(self, pool: BufferPool, grid: Grid, refs: Sequence[PageRef]) -> None:
        self._pool = pool
        self._grid = grid
        self._refs = iter(refs)
        self._pin = ExitStack()
        self.rows: Sorted | None = None
        self.advance()

    def advance(self) -> None:
        """Go to the next page that has rows."""
        self.close()
        for ref in self._refs:
            page = self._pin.enter_context(self._pool.pin(ref.page_id, "merge"))
            batch = live_rows(page.batch, ref, self._grid)
            if batch.num_rows:
                self.rows = Sorted(batch, self._grid.sort_keys(batch))
                self.at, self.limit = 0, batch.num_rows
                self.first, self.last = self.rows.key(0), self.rows.key(-1)
                return
            self.close()

    def upto(self, bound: tuple[int, ...]) -> Sorted:
        """Take the rows up to and including the bound."""
        assert self.rows is not None
        start = self.at
        self.at = self.limit if self.last <= bound else count_upto(self.rows.keys, bound)
        if self.at < self.limit:
            self.first = self.rows.key(self.at)
        return self.rows.slice(start, self.at)

    def close(self) -> None:
        """Unpin."""
        self.rows = None
        self._pin.close()


def merge(pool: BufferPool, grid: Grid, runs: Sequence[Sequence[PageRef]]) -> Iterator[Sorted]:
    """The rows of all runs in order.  What is yielded is good until the next is asked for."""
    cursors = [_Cursor(pool, grid, refs) for refs in runs]
    try:
        while active := [cursor for cursor in cursors if cursor.rows is not None]:
            bound = min(cursor.last for cursor in active)
            sharing = [cursor for cursor in active if cursor.first <= bound]
            yield _resorted([cursor.upto(bound) for cursor in sharing])
            for cursor in sharing:
                if cursor.at == cursor.limit:
                    cursor.advance()
    finally:
        for cursor in cursors:
            cursor.close()


def _resorted(parts: Sequence[Sorted]) -> Sorted:
    joined = _joined(parts)
    order = sort_order(joined.keys) if len(parts) > 1 else None
    if order is None:
        return joined
    return Sorted(joined.batch.take(arrow(order)), [k[order] for k in joined.keys])


def merge_space(runs: Sequence[Sequence[PageRef]], fan_in: int, keys: int, page_size: int) -> int:
    """Bytes that merging takes beside the pinned pages: their keys, what is sorted at a time, and
    the writer's two pages."""
    refs = [ref for run in runs for ref in run]
    rows, size = max(ref.rows for ref in refs), max(ref.size for ref in refs)
    pinned_keys = 8 * keys * fan_in * rows
    return pinned_keys + sort_space(fan_in * rows, fan_in * size, keys) + 2 * max(size, page_size)


def fan_in(pool: BufferPool, runs: Sequence[Sequence[PageRef]], keys: int) -> int:
    """How many runs can be merged at once in what the budget leaves free, at least two."""
    page_size = pool.file.page_size
    pinned = max(ref.size for run in runs for ref in run)
    frames_to_fill = 2 * max(pinned, page_size)  # a row may be larger than a page
    room = pool.budget_bytes - pool.write_space - pool.held_bytes - frames_to_fill
    ways = 2
    while ways < min(len(runs), FAN_IN_MAX) and (
        merge_space(runs, ways + 1, keys, page_size) + (ways + 1) * pinned <= room
    ):
        ways += 1
    return ways


def merge_into_one(
    pool: BufferPool,
    grid: Grid,
    runs: list[list[PageRef]],
    writer: Callable[[], RunWriter],
) -> None:
    """Merge until `runs` holds one run, in as many passes as the budget asks for.

    The list is right after every pass, so that nothing is lost when one fails.
    """
    keys = len(grid.names) + 1
    while len(runs) > 1:
        ways = fan_in(pool, runs, keys)
        # Short runs go first, and just so many that all later passes merge as many as they can:
        # the long ones, such as the old window, are rewritten once.
        runs.sort(key=len)
        left_over = (len(runs) - 1) % (ways - 1)
        ways = left_over + 1 if left_over and len(runs) > ways else ways
        first = runs[:ways]
        space = merge_space(first, ways, keys, pool.file.page_size)
        with pool.reserve(space), writer() as merged:
            for rows in merge(pool, grid, first):
                merged.add(rows)
                del rows  # before the next are made
            refs = merged.finish()
        runs[:ways] = []
        if refs or not runs:
            runs.append(refs)
        pool.drop([ref.page_id for run in first for ref in run], "merged")
