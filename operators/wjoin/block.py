"""Blocks: a stream's rows as the plain arrays that kernels take.

    rows ──▶ times  [rows]   the time as order key: integers ascend as the times do
             keys   [rows]   one number for the equality keys; 0 where there are none
             second [rows]   another hash of them, unless the number is the key itself

A page is a block, and so are all rows of a stream in memory.  Blocks that are merged lie in order
of key and time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.side import Side
from matwin.sizes import bytes_at
from matwin.storage.arrays import arrow
from matwin.storage.columns import Int64s, is_numeric, key_code, order_key
from matwin.storage.ordering import sort_order

KEY, SECOND = "matwin key", "matwin second key"
MIX = np.uint64(0x9E3779B97F4A7C15)
BYTES_PER_ROW = 24
"""Time, key and second hash of a row."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one stream."""

    rows: pa.RecordBatch
    times: Int64s
    keys: Int64s
    second: Int64s | None
    order: Int64s | None = None
    """Where each of them lies in `rows`; None: as here."""

    def __len__(self) -> int:
        return len(self.times)

    def columns_at(self, names: Sequence[str], at: Int64s) -> list[pa.Array]:
        """The values of columns in some rows, all in one call."""
        places = arrow(self._places(at))
        taken: pa.RecordBatch = pc.take(self.rows.select(names), places, boundscheck=False)
        return taken.columns  # type: ignore[no-any-return]

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        return bytes_at(self.rows, self._places(at))

    def _places(self, at: Int64s) -> Int64s:
        return at if self.order is None else self.order[at]


class Held(Protocol):
    """What the pipeline sees of a stream's rows: a block, or a buffer."""

    @property
    def times(self) -> Int64s: ...
    @property
    def keys(self) -> Int64s: ...
    @property
    def second(self) -> Int64s | None: ...
    def columns_at(self, names: Sequence[str], at: Int64s) -> list[pa.Array]: ...
    def bytes_at(self, at: Int64s) -> Int64s | int: ...


@dataclass(frozen=True, slots=True)
class Blocks:
    """How rows of one stream become blocks."""

    side: Side

    @property
    def is_exact(self) -> bool:
        """Whether the key is a single number, which needs no second hash."""
        keys = self.side.keys
        return not keys or (len(keys) == 1 and is_numeric(self.side.stored.field(keys[0]).type))

    def of(self, rows: pa.RecordBatch) -> Block:
        """The block of rows as they lie."""
        times = self.side.order_keys(rows)
        second = None if self.is_exact else self.codes(rows, salt=1)
        return Block(rows, times, self.codes(rows), second)

    @property
    def page_fields(self) -> list[pa.Field]:
        """Columns that pages have beside the rows': numbers of keys that are none themselves."""
        return [] if self.is_exact else [pa.field(KEY, pa.int64()), pa.field(SECOND, pa.int64())]

    def on_page(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they stand on pages, so that a page is a block without more ado."""
        if self.is_exact:
            return rows
        codes = [arrow(self.codes(rows)), arrow(self.codes(rows, salt=1))]
        schema = pa.schema([*rows.schema, *self.page_fields])
        return pa.RecordBatch.from_arrays([*rows.columns, *codes], schema=schema)

    def of_page(self, rows: pa.RecordBatch) -> Block:
        """The block of a page's rows."""
        times = self.side.order_keys(rows)
        if self.is_exact:
            return Block(rows, times, self.codes(rows), None)
        return Block(rows, times, order_key(rows.column(KEY)), order_key(rows.column(SECOND)))

    def sorted_page(self, rows: pa.RecordBatch) -> Block:
        """The block of rows of several pages, in order of key and time."""
        block = self.of_page(rows)
        order = sort_order([block.keys, block.times])
        return block if order is None else self.of_page(rows.take(arrow(order)))

    @property
    def bytes_per_row(self) -> int:
        """What the block of a page takes beside the page: numbers of 64 bits are there already."""
        names = [self.side.grid.order.name, *(self.side.keys if self.is_exact else ())]
        types = [self.side.stored.field(name).type for name in names]
        return sum(0 if _is_its_own_key(t) else 8 for t in types)

    def sorted(self, rows: pa.RecordBatch) -> Block:
        """The block of rows in order of key and time."""
        block = self.ordered(rows)
        if block.order is None:
            return block
        return replace(block, rows=rows.take(arrow(block.order)), order=None)

    def ordered(self, rows: pa.RecordBatch) -> Block:
        """The same, with the rows left where they lie: for as many as a CPU's cache holds."""
        block = self.of(rows)
        order = sort_order([block.keys, block.times]) if rows.num_rows else None
        if order is None:
            return block
        second = None if block.second is None else block.second[order]
        return Block(rows, block.times[order], block.keys[order], second, order)

    def codes(self, rows: pa.RecordBatch, salt: int = 0) -> Int64s:
        """One number for the keys of each row; equal keys have equal numbers."""
        keys = self.side.keys
        if not keys:
            return np.zeros(rows.num_rows, np.int64)
        code = key_code(rows.column(keys[0]), keys[0], salt=salt)
        if self.is_exact:
            return code
        mixed = _mixed(code.view(np.uint64), salt)
        for key in keys[1:]:
            more = key_code(rows.column(key), key, salt=salt).view(np.uint64)
            mixed = _mixed(mixed * MIX + more, salt)
        return mixed.view(np.int64)


def _is_its_own_key(data_type: pa.DataType) -> bool:
    is_float = pa.types.is_floating(data_type) or pa.types.is_uint64(data_type)
    return not is_float and is_numeric(data_type) and int(data_type.bit_width) == 64


def joined(blocks: Sequence[Block]) -> list[Block]:
    """Blocks that follow each other in order of key and time as one, the others as they are."""
    found: list[list[Block]] = []
    for block in blocks:
        if found and _last(found[-1][-1]) <= (int(block.keys[0]), int(block.times[0])):
            found[-1].append(block)
        else:
            found.append([block])
    return [_as_one(some) if len(some) > 1 else some[0] for some in found]


def _last(block: Block) -> tuple[int, int]:
    return int(block.keys[-1]), int(block.times[-1])


def _as_one(blocks: Sequence[Block]) -> Block:
    second = [block.second for block in blocks if block.second is not None]
    return Block(
        pa.concat_batches([block.rows for block in blocks]),
        np.concatenate([block.times for block in blocks]),
        np.concatenate([block.keys for block in blocks]),
        np.concatenate(second) if second else None,
    )


def _mixed(words: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.uint64]:
    """Bits stirred so that two keys together are as good a hash as one."""
    words = words + np.uint64(salt) * MIX
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
