"""Buffers: a stream's window in memory, with rows coming in at one end and going out at the other.

              oldest                              limit
                │                                   │
    ░░░░░░░░░░░░│███████████████████████████████████│··········    arrays with room to grow
      dropped       times, keys, links; values        to come
    │
    base: how many rows were moved out before

`by_time` buffers lie in order of time: a new row that is not the latest is put in its place.  The
others lie in order of arrival, and rows of one key are linked, each to the one before it: a hash
table that keeps the order of arrival, with jumps past what is too young, so that a hot key costs no
more than others.  The papers' lists are doubly linked so that rows can leave
from the middle; here rows leave in order of arrival and the rest is skipped by time.

Dropped rows stay until they are half of all: then the arrays are moved, once for as many rows as
are left.  Places in a buffer change only then.  Links and the table count rows from the first that
ever came, which is `base` more than their place, so that rows are moved with their links as they
are: to link them again took longer than to link those that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s

from .block import Block, Blocks
from .kernels import expand
from .values import Values, resident_bytes, resized

ROOM_FIRST = 1 << 5


class Buffer:
    """The rows of one stream that later rows may meet."""

    def __init__(self, blocks: Blocks, *, by_time: bool, is_linked: bool) -> None:
        self._blocks = blocks
        self._by_time = by_time
        self._is_linked = is_linked
        self._asked: tuple[Int64s, Int64s] | None = None
        self._empty()

    def _empty(self) -> None:
        self._values = Values(self._blocks.side.stored, ROOM_FIRST)
        self._nodes = _nodes(ROOM_FIRST, is_linked=self._is_linked)
        self._second = None if self._blocks.is_exact else np.empty(ROOM_FIRST, np.int64)
        self._places: Int64s | None = None  # where each row's values are, once not in order
        self._slots_used = 0
        self.table = np.full(2 * ROOM_FIRST, -1, np.int64)
        self.base = 0
        self.oldest = 0
        self.limit = 0
        self._written = 0  # rows of the arrays that were ever there

    # ── what the pipeline sees ───────────────────────────────────────────────────────────────

    @property
    def rows(self) -> int:
        """How many rows are in the window."""
        return self.limit - self.oldest

    @property
    def nodes(self) -> Int64s:
        """Times, keys and links, a row each."""
        return self._nodes[: self.limit]

    @property
    def times(self) -> Int64s:
        """Times as order keys."""
        return self._nodes[: self.limit, expand.TIME]

    @property
    def keys(self) -> Int64s:
        """The keys' numbers."""
        return self._nodes[: self.limit, expand.KEY]

    @property
    def second(self) -> Int64s | None:
        """The keys' second hashes."""
        return None if self._second is None else self._second[: self.limit]

    def columns_at(self, names: Sequence[str], at: Int64s) -> list[pa.Array]:
        """The values of columns in some rows."""
        rows = self._values_of(at)
        return [self._values.column_at(name, rows) for name in names]

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        return self._values.bytes_at(self._values_of(at))

    def _values_of(self, at: Int64s) -> Int64s:
        """Where the values of some rows are; asked for once for each column of them."""
        if self._places is None:
            return at
        if self._asked is None or self._asked[0] is not at:
            self._asked = (at, self._places[at])
        return self._asked[1]

    @property
    def held_bytes(self) -> int:
        """What all of it takes, dropped rows included."""
        return self._values.held_bytes(self._written) + sum(self._array_sizes) + self.table.nbytes

    @property
    def growing_bytes(self) -> int:
        """What it takes to make the arrays larger, one after the other, or the table."""
        largest = max(self._values.largest_bytes(self._written), *self._array_sizes)
        return max(largest, 2 * self.table.nbytes)

    @property
    def row_bytes(self) -> int:
        """What a new row takes beside its values, while the arrays grow for it."""
        return 2 * (self._nodes.strides[0] + 2 * self._nodes.itemsize)

    @property
    def _array_sizes(self) -> list[int]:
        arrays = (self._nodes, self._second, self._places)
        return [
            resident_bytes(len(array), array.strides[0], self._written)
            for array in arrays
            if array is not None
        ]

    # ── rows in and out ──────────────────────────────────────────────────────────────────────

    def append(self, block: Block) -> None:
        """Take rows."""
        count = len(block)
        if count == 0:
            return
        if self.limit + count > len(self._nodes):
            self._resize(max(2 * len(self._nodes), self.limit + count))
        first, self.limit = self.limit, self.limit + count
        self._written = max(self._written, self.limit)
        self._nodes[first : self.limit, expand.TIME] = block.times
        self._nodes[first : self.limit, expand.KEY] = block.keys
        if self._second is not None and block.second is not None:
            self._second[first : self.limit] = block.second
        if self._places is not None:
            self._places[first : self.limit] = np.arange(first, self.limit)
        self._asked = None
        self._values.append(block.rows, first)
        if self._by_time:
            self._put_in_order(first)
        if self._is_linked:
            self._link(first)

    def _resize(self, room: int) -> None:
        """Give the rows so much room."""
        nodes = _nodes(room, is_linked=self._is_linked)
        nodes[: self.limit] = self._nodes[: self.limit]
        self._nodes = nodes
        if self._second is not None:
            self._second = resized(self._second, room, self.limit)
        if self._places is not None:
            self._places = resized(self._places, room, self.limit)
        self._values.resize(room, self.limit)
        self._written = self.limit

    def _put_in_order(self, first: int) -> None:
        """Bring the new rows to their places by time, after older rows of the same time."""
        times = self.times
        new = times[first:]
        is_behind = first > self.oldest and int(new.min()) < int(times[first - 1])
        if not is_behind and not (new[1:] < new[:-1]).any():
            return
        start = self.oldest
        if first > start:
            start = max(
                start, int(expand.first_not_below(times[:first], first - 1, int(new.min())))
            )
        order = start + np.argsort(times[start:], kind="stable")
        self._nodes[start : self.limit] = self._nodes[order]
        if self._second is not None:
            self._second[start : self.limit] = self._second[order]
        if self._places is None:
            self._places = resized(np.arange(self.limit), len(self._nodes), self.limit)
        self._places[start : self.limit] = self._places[order]

    def _link(self, first: int) -> None:
        """Link rows; the table grows with the chains there are, which may be many or few."""
        while first < self.limit:
            room = len(self.table) // 2 - self._slots_used
            new, first = expand.link(self.table, self._nodes, self.base, first, self.limit, room)
            self._slots_used += int(new)
            if first < self.limit:
                self._make_table()

    def _make_table(self) -> None:
        """A table with the chains that have rows, in a quarter of its slots at most."""
        alive = self.base + self.oldest
        size, chains = 2 * ROOM_FIRST, int(np.count_nonzero(self.table >= alive))
        while size < 4 * chains:
            size *= 2
        table = np.full(size, -1, np.int64)
        expand.move_chains(self.table, table, self._nodes, self.base, alive)
        self.table, self._slots_used = table, chains

    def drop_below(self, bound: int) -> None:
        """Forget rows from the front whose time is below `bound`."""
        if bound > INT64_MAX:
            self.oldest = self.limit
        elif bound > INT64_MIN:
            self.oldest = int(expand.first_alive(self._nodes, self.oldest, self.limit, bound))
        if 2 * self.oldest > self.limit:
            self._compact()

    def _compact(self) -> None:
        """Move what is left to the beginning."""
        gone, kept = self.oldest, self.rows
        if self._places is not None:
            self._values.sort(self._places[: self.limit])
            self._places = None
        self._asked = None
        self._values.drop(gone, self.limit)
        # No row lies both here and there: fewer are kept than go.
        self._nodes[:kept] = self._nodes[gone : self.limit]
        if self._second is not None:
            self._second[:kept] = self._second[gone : self.limit]
        self.base, self.oldest, self.limit = self.base + gone, 0, kept
        room = max(ROOM_FIRST, 2 * kept)
        if len(self._nodes) > 2 * room:
            self._resize(room)
            self._make_table()

    def batches(self) -> list[pa.RecordBatch]:
        """All rows, in order of arrival.  Where that is not the order of time, dropped ones may be
        among them: nobody can meet these, and to leave them out would be to copy the others."""
        first = self.oldest
        if self._places is not None and self.rows:
            first = int(self._places[self.oldest : self.limit].min())
        return self._values.batches(first, self.limit)

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, forgotten as they are handed out."""
        batches = self.batches()
        self._empty()
        while batches:
            yield batches.pop(0)

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take rows of a buffer like this one."""
        self.append(self._blocks.of(rows))


def _nodes(room: int, *, is_linked: bool) -> Int64s:
    """Nodes with nothing in them; linked ones begin where a cache line does.  With nodes of half
    a line, of which every other lay across two, a chain took 1.3 times as long."""
    if not is_linked:
        return np.empty((room, expand.COLUMNS), np.int64)
    line = expand.COLUMNS_LINKED
    words = np.empty((room + 1) * line, np.int64)
    start = -(words.ctypes.data // words.itemsize) % line
    return words[start : start + room * line].reshape(room, line)
