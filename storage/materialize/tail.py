"""The tail: rows that wait in memory until they are sorted and written.

    portions   ▐ bytes 0 ▐ bytes 1 ▐ bytes 2 ▐      as they came, each a copy of its own

Every portion is counted against the pool's budget, from the moment it is taken until it is
cleared.  The tail is never larger than can be sorted in `limit` bytes, unless a single row is.
Many small portions become one now and then, so that rows may come one at a time.

What waits is bytes, as in a page, and is decoded when it is needed: Arrow takes 400 bytes for each
column of a decoded batch, and 48 for each column of an encoded one, its head.  Where columns are so
many that heads are the larger part, rows are not cut as small as else, and portions become one at
once: 2,500 columns in 8 MiB waited, and were written, two rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..arrays import arrow
from ..columns import Int64s, no_rows, order_key
from ..errors import BudgetError
from ..grid import Grid
from ..pool import BufferPool
from ..runs import Sorted, sort_rows, sort_space
from ..units import format_size

PORTIONS_MAX = 64
HEADS_SHARE = 8
"""Portions become one before their heads take an eighth of what sorting may."""


def smallest_for_row(size: int, keys: int, windows: int) -> int:
    """The least budget in which so many windows can sort, merge and write a row of `size` bytes."""
    return 4 * (windows + 1) * sort_space(1, size, keys)


@dataclass(frozen=True, slots=True)
class Portion:
    """Some rows, encoded, their order keys, and the bytes they are counted with."""

    data: pa.Buffer
    schema: pa.Schema
    keys: Int64s
    size: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.keys)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows, decoded; views of the bytes."""
        return pa.ipc.read_record_batch(self.data, self.schema)


class Tail:
    """Rows that wait."""

    def __init__(self, pool: BufferPool, grid: Grid, schema: pa.Schema) -> None:
        self._pool = pool
        self._grid = grid
        self._schema = schema
        self._order = grid.order.name
        self._head = _size_of(no_rows(schema))
        self.portions: list[Portion] = []
        self.rows = 0
        self.size = 0

    @property
    def limit(self) -> int:
        """What sorting may take: a quarter of the budget for a window on its own."""
        return self._pool.budget_bytes // (2 * (self._pool.windows + 1))

    def sort_space(self, more_rows: int = 0, more_bytes: int = 0) -> int:
        """What sorting the tail takes, with some rows more: as one portion, with one head."""
        keys, heads = len(self._grid.names) + 1, self._head * max(len(self.portions) - 1, 0)
        return sort_space(self.rows + more_rows, self.size - heads + more_bytes, keys)

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in parts a fraction of the tail's size, a single row at the least."""
        rows, size = batch.num_rows, _size_of(batch)
        space = sort_space(rows, size, len(self._grid.names) + 1)
        is_large = space > self.limit // 2 or (space > self.limit // 4 and size > 2 * self._head)
        if rows > 1 and is_large:
            yield from self.pieces(batch.slice(0, rows // 2))
            yield from self.pieces(batch.slice(rows // 2))
        elif rows:
            yield self._exact(batch)

    def _exact(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, encoded with no bytes but their own.  Arrow rounds the beginning of a column up
        to 64 bytes if there are more, which is much where columns are many and rows are few."""
        is_beginning = piece.num_rows < 8 and piece.column(self._order).offset == 0
        if self._head <= self.limit // HEADS_SHARE or not is_beginning:
            return piece
        return piece.take(arrow(np.arange(piece.num_rows)))

    def is_full_for(self, piece: pa.RecordBatch, rows: int = 0, size: int = 0) -> bool:
        """Whether something has to go before the rows can be taken; `rows` of `size` bytes will be
        sorted with the tail."""
        if not self.portions and not rows:
            return False
        size += _size_of(piece) - (self._head if self.portions else 0)
        return self.sort_space(rows + piece.num_rows, size) > self.limit

    def take(self, piece: pa.RecordBatch) -> None:
        """Take a copy of the rows."""
        size = _size_of(piece)
        self._check_fits(piece.num_rows, size)
        self._pool.take(size)
        self.put_back([self._encoded(piece, size)])

    def _encoded(self, rows: pa.RecordBatch, size: int) -> Portion:
        return Portion(rows.serialize(), self._schema, order_key(rows.column(self._order)), size)

    def _check_fits(self, rows: int, size: int) -> None:
        """A row must be small enough to be sorted, merged and written within the budget."""
        space = sort_space(rows, size, len(self._grid.names) + 1)
        if space > self.limit // 2:
            smallest = smallest_for_row(size, len(self._grid.names) + 1, self._pool.windows)
            raise BudgetError(
                f"a row of {format_size(size)} is too large for a budget of "
                f"{format_size(self._pool.budget_bytes)}; the smallest that works is "
                f"{format_size(smallest)} ({smallest} bytes)",
                smallest_bytes=smallest,
            )

    def join(self) -> None:
        """Make one portion of many."""
        portions_max = max(2, min(PORTIONS_MAX, self.limit // HEADS_SHARE // self._head))
        if len(self.portions) >= portions_max:
            with self._pool.reserve(2 * self.size):
                self.replace(pa.concat_batches([portion.batch for portion in self.portions]))

    def expire(self, bound: int) -> None:
        """Drop the rows whose order key is below the bound."""
        kept = []
        for portion in self.cut(0):
            alive = portion.keys >= bound
            if alive.all():
                kept.append(portion)
            elif alive.any():
                kept.append(self._encoded(portion.batch.filter(arrow(alive)), portion.size))
            else:
                self._pool.give_back(portion.size)
        self.put_back(kept)

    def first_key(self, at_least: int) -> int | None:
        """The least order key from `at_least` on, if there is one."""
        first: int | None = None
        for portion in self.portions:
            first = least_from(portion.keys, at_least, first)
        return first

    @contextmanager
    def in_order(self) -> Iterator[Sorted]:
        """The rows in ε-Grid-Order, with room for sorting and writing them."""
        with self._pool.reserve(self.sort_space() + 2 * self._pool.file.page_size):
            rows = pa.concat_batches([portion.batch for portion in self.portions])
            yield sort_rows(rows, self._grid)

    def cut(self, first: int) -> list[Portion]:
        """Take out the portions from `first` on; they still count against the budget."""
        portions = self.portions[first:]
        del self.portions[first:]
        self.rows -= sum(portion.rows for portion in portions)
        self.size -= sum(portion.size for portion in portions)
        return portions

    def put_back(self, portions: Sequence[Portion]) -> None:
        """Add portions that count against the budget already."""
        self.portions += portions
        self.rows += sum(portion.rows for portion in portions)
        self.size += sum(portion.size for portion in portions)

    def clear(self, first: int = 0) -> None:
        """Give up the portions from `first` on."""
        self._pool.give_back(sum(portion.size for portion in self.cut(first)))

    def replace(self, rest: pa.RecordBatch) -> None:
        """Keep only these rows, which were in the tail before, counted with no more bytes."""
        before = sum(portion.size for portion in self.cut(0))
        after = min(before, _size_of(rest)) if rest.num_rows else 0
        self._pool.give_back(before - after)
        if rest.num_rows:
            self.put_back([self._encoded(rest, after)])


def _size_of(rows: pa.RecordBatch) -> int:
    return int(pa.ipc.get_record_batch_size(rows))


def least_from(keys: Int64s, at_least: int, before: int | None) -> int | None:
    """The least of the keys from `at_least` on, or the one found before if that is less."""
    found = keys[keys >= at_least]
    if len(found) == 0:
        return before
    least = int(found.min())
    return least if before is None else min(least, before)
