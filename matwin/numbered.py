"""Rows of one side on pages in the order of their numbers, a block at a time.

    rows, as they come ──gathered──▶ block 0 │ block 1 │ block 2 │ …      each a page or so
                                       0–811   812–1990  1991–…           numbers, times, bytes

Blocks are read again by number, as often as wanted, and dropped whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.store import Store

from .finality import NOTHING
from .side import ROW
from .sizes import column_bytes

TIME = "matwin time"
"""Order keys, kept where not all rows of a block leave at once."""


@dataclass(slots=True)
class Block:
    """Rows that were put down together, and what is known of them without reading them."""

    number: int
    first: int
    last: int
    """The first and the last row's number."""
    rows: int
    size: int
    low: int
    high: int
    """The least and the greatest order key."""
    done: int = NOTHING
    """Rows up to this order key have left."""


class Numbered:
    """The rows of a side; the last column but the time is their number."""

    def __init__(self, store: Store, name: str, schema: pa.Schema) -> None:
        self.schema = schema
        self._lanes = store.lanes(name, schema)
        self._pool = store.pool
        self._block_bytes = store.file.page_size
        self._next = 0
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._low, self._high = 2**64, -(2**64)
        self.blocks: list[Block] = []
        self.rows = 0
        self.size = 0

    def add(self, rows: pa.RecordBatch, keys: Int64s) -> None:
        """Take rows, whose numbers follow those taken before."""
        if rows.num_rows == 0:
            return
        size = int(rows.nbytes)
        if rows.num_rows > 1 and size > self._block_bytes:
            half = rows.num_rows // 2
            self.add(rows.slice(0, half), keys[:half])
            self.add(rows.slice(half), keys[half:])
            return
        if self._waiting and self._size + size > self._block_bytes:
            self.settle()
        size += column_bytes(rows.num_columns)
        self._pool.take(2 * size)  # with the message that is made of them
        self._waiting.append(rows)
        self._size += size
        self._low, self._high = min(self._low, int(keys.min())), max(self._high, int(keys.max()))
        if self._size >= self._block_bytes:
            self.settle()

    def settle(self) -> None:
        """Put down what has gathered."""
        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        size, self._waiting, self._size = self._size, [], 0
        numbers = numbers_of(rows)
        self._lanes.add(self._next, [rows])
        self.blocks.append(
            Block(
                self._next, int(numbers[0]), int(numbers[-1]), rows.num_rows, size,
                self._low, self._high,
            )
        )  # fmt: skip
        self._next += 1
        self.rows += rows.num_rows
        self.size += size
        self._low, self._high = 2**64, -(2**64)
        del rows
        self._pool.give_back(2 * size)

    def read(self, blocks: Sequence[Block]) -> pa.RecordBatch:
        """The rows of blocks; whoever reads them has reserved room for two copies."""
        parts = [part for block in blocks for part in self._lanes.read(block.number)]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def drop(self, gone: Sequence[Block]) -> None:
        """Give up blocks."""
        numbers = {block.number for block in gone}
        if not numbers:
            return
        self.blocks = [block for block in self.blocks if block.number not in numbers]
        for block in gone:
            self._lanes.drop(block.number)
            self.rows -= block.rows
            self.size -= block.size

    def groups(self, room: int) -> Iterator[list[Block]]:
        """Blocks one after the other that take so many bytes together, one at the least."""
        some: list[Block] = []
        size = 0
        for block in self.blocks:
            if some and size + block.size > room:
                yield some
                some, size = [], 0
            some.append(block)
            size += block.size
        if some:
            yield some

    def close(self) -> None:
        """Give up all rows."""
        self._pool.give_back(2 * self._size)
        self._waiting, self._size, self.blocks = [], 0, []
        self._lanes.close()


def numbers_of(rows: pa.RecordBatch) -> Int64s:
    """The rows' numbers."""
    found: Int64s = as_numpy(rows.column(ROW)).astype(np.int64, copy=False)
    return found
