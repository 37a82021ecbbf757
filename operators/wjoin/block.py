"""Blocks: a stream's rows as the plain arrays that kernels take.

    rows ──▶ times  [rows]   the time as order key: integers ascend as the times do
             keys   [rows]   one number for the equality keys; 0 where there are none
             second [rows]   another hash of them, unless the number is the key itself

A page is a block, and so are all rows of a stream in memory.  Blocks that are merged lie in order
of key and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.side import Side
from matwin.sizes import bytes_at
from matwin.storage.columns import Int64s, is_numeric, key_code
from matwin.storage.ordering import sort_order

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

    def __len__(self) -> int:
        return len(self.times)

    def column_at(self, name: str, at: Int64s) -> pa.Array:
        """The values of a column in some rows."""
        return pc.take(self.rows.column(name), pa.array(at), boundscheck=False)

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        return bytes_at(self.rows, at)


class Held(Protocol):
    """What the pipeline sees of a stream's rows: a block, or a buffer."""

    @property
    def times(self) -> Int64s: ...
    @property
    def keys(self) -> Int64s: ...
    @property
    def second(self) -> Int64s | None: ...
    def column_at(self, name: str, at: Int64s) -> pa.Array: ...
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

    def sorted(self, rows: pa.RecordBatch) -> Block:
        """The block of rows in order of key and time."""
        keys, times = self.codes(rows), self.side.order_keys(rows)
        order = sort_order([keys, times]) if rows.num_rows else None
        if order is not None:
            rows = rows.take(pa.array(order))
            keys, times = keys[order], times[order]
        second = None if self.is_exact else self.codes(rows, salt=1)
        return Block(rows, times, keys, second)

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


def _mixed(words: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.uint64]:
    """Bits stirred so that two keys together are as good a hash as one."""
    words = words + np.uint64(salt) * MIX
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
