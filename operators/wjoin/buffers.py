"""Buffers: a stream's window in memory, with rows coming in at one end and going out at the other.

              oldest                              limit
                │                                   │
    ░░░░░░░░░░░░│███████████████████████████████████│··········    arrays with room to grow
      dropped           times, keys, nodes            to come

`by_time` buffers lie in order of time: a new row that is not the latest is put in its place.  The
others lie in order of arrival, and rows of one key are linked, each to the one before it: a hash
table that keeps the order of arrival, with jumps past what is too young, so that a hot key costs no
more than others.  The papers' lists are doubly linked so that rows can leave
from the middle; here rows leave in order of arrival and the rest is skipped by time.

Dropped rows stay until they are half of all: then the arrays are moved, once for as many rows as
are left.  Places in a buffer change only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.sizes import batch_bytes, bytes_at
from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s

from .block import Block, Blocks
from .kernels import expand

ROOM_FIRST = 1 << 5
PORTION_ROWS = 1 << 17
WIDE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Gather:
    """Rows to be taken from several portions: which from which, and how to put them back in order.

    Arrow's own `take` of a column in chunks makes one of all of them first.
    """

    asked: Int64s
    parts: list[tuple[int, pa.Array]]
    back: pa.Array | None

    @classmethod
    def of(cls, asked: Int64s, places: Int64s, portions: list[pa.RecordBatch]) -> Gather:
        """The plan for rows at these places of all portions together."""
        ends = np.cumsum([portion.num_rows for portion in portions])
        which = np.searchsorted(ends, places, "right").astype(np.uint16)
        if len(which) == 0 or (which == which[0]).all():
            number = int(which[0]) if len(which) else 0
            start = int(ends[number]) - portions[number].num_rows
            return cls(asked, [(number, pa.array(places - start))], None)
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order])) + 1
        parts = []
        for rows in np.split(order, cuts):
            number = int(which[rows[0]])
            start = int(ends[number]) - portions[number].num_rows
            parts.append((number, pa.array(places[rows] - start)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return cls(asked, parts, pa.array(back))

    def column(self, name: str, portions: list[pa.RecordBatch]) -> pa.Array:
        """The values of a column in these rows."""
        found = [
            pc.take(portions[number].column(name), at, boundscheck=False)
            for number, at in self.parts
        ]
        if self.back is None:
            return found[0]
        return pc.take(pa.concat_arrays(found), self.back, boundscheck=False)

    def sizes(self, portions: list[pa.RecordBatch]) -> Int64s | int:
        """The bytes of each of these rows; one number where all take as much."""
        found = [bytes_at(portions[number], at.to_numpy()) for number, at in self.parts]
        if all(isinstance(each, int) for each in found):
            return max(map(int, found))
        each = [np.full(len(at), b) for b, (_, at) in zip(found, self.parts, strict=True)]
        sizes: Int64s = np.concatenate(each)
        return sizes if self.back is None else sizes[self.back.to_numpy()]


class Buffer:
    """The rows of one stream that later rows may meet."""

    def __init__(self, blocks: Blocks, *, by_time: bool, is_linked: bool) -> None:
        self._blocks = blocks
        self._by_time = by_time
        self._is_linked = is_linked
        self._portions: list[pa.RecordBatch] = []
        self._gather: Gather | None = None
        columns = expand.COLUMNS_LINKED if is_linked else expand.COLUMNS
        self._nodes = np.empty((ROOM_FIRST, columns), np.int64)
        self._second = None if blocks.is_exact else np.empty(ROOM_FIRST, np.int64)
        self._places: Int64s | None = None  # where each row lies in the portions, once not in order
        self._chains = 0
        self.table = np.full(2 * ROOM_FIRST, -1, np.int64)
        self.oldest = 0
        self.limit = 0
        self.size = 0

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

    def column_at(self, name: str, at: Int64s) -> pa.Array:
        """The values of a column in some rows."""
        return self._gathered(at).column(name, self._portions)

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        return self._gathered(at).sizes(self._portions) if len(at) else 0

    def _gathered(self, at: Int64s) -> Gather:
        """How to take some rows; asked for once for each column of them."""
        if self._gather is None or self._gather.asked is not at:
            places = at if self._places is None else self._places[at]
            self._gather = Gather.of(at, places, self._portions)
        return self._gather

    @property
    def held_bytes(self) -> int:
        """What all of it takes, dropped rows included."""
        return self.size + self._array_bytes + self.table.nbytes

    @property
    def growing_bytes(self) -> int:
        """What it takes to make the arrays larger, beside those that are there."""
        return self._array_bytes + self._array_bytes // 4 + 2 * self.table.nbytes

    @property
    def row_bytes(self) -> int:
        """What a new row takes beside its values, while the arrays grow for it."""
        return int(5 * self._nodes.strides[0] // 2)

    @property
    def _array_bytes(self) -> int:
        arrays = (self._nodes, self._second, self._places)
        return sum(array.nbytes for array in arrays if array is not None)

    # ── rows in and out ──────────────────────────────────────────────────────────────────────

    def append(self, block: Block, size: int) -> None:
        """Take rows."""
        count = len(block)
        if count == 0:
            return
        self._make_room(count)
        first, self.limit = self.limit, self.limit + count
        self._nodes[first : self.limit, expand.TIME] = block.times
        self._nodes[first : self.limit, expand.KEY] = block.keys
        if self._second is not None and block.second is not None:
            self._second[first : self.limit] = block.second
        if self._places is not None:
            self._places[first : self.limit] = np.arange(first, self.limit)
        self._keep(block.rows, size)
        if self._by_time:
            self._put_in_order(first)
        if self._is_linked:
            self._link(first)

    def _make_room(self, count: int) -> None:
        room = len(self._nodes)
        if self.limit + count <= room:
            return
        room = max(room + room // 4, self.limit + count)
        nodes = np.empty((room, self._nodes.shape[1]), np.int64)
        nodes[: self.limit] = self._nodes[: self.limit]
        self._nodes = nodes
        self._second = _roomier(self._second, room)
        self._places = _roomier(self._places, room)

    def _keep(self, rows: pa.RecordBatch, size: int) -> None:
        """Portions of like size become one: n rows that come singly are copied log n times.  Wide
        ones do not: a copy of them has no room."""
        self._gather = None
        self.size += size
        parts = [rows]
        count = rows.num_rows
        most = 0 if size > WIDE_BYTES * rows.num_rows else PORTION_ROWS
        while self._portions and self._portions[-1].num_rows <= 2 * count < most:
            parts.append(self._portions.pop())
            count += parts[-1].num_rows
        self._portions.append(pa.concat_batches(parts[::-1]) if len(parts) > 1 else rows)

    def _put_in_order(self, first: int) -> None:
        """Bring the new rows to their places by time, after older rows of the same time."""
        times = self.times
        new = times[first:]
        is_behind = first > self.oldest and int(new.min()) < int(times[first - 1])
        if not is_behind and not (new[1:] < new[:-1]).any():
            return
        start = self.oldest
        if first > start:
            start = max(start, int(expand.first_time(times[:first], first - 1, int(new.min()))))
        order = start + np.argsort(times[start:], kind="stable")
        self._nodes[start : self.limit] = self._nodes[order]
        if self._second is not None:
            self._second[start : self.limit] = self._second[order]
        if self._places is None:
            self._places = np.arange(len(self._nodes))
        self._places[start : self.limit] = self._places[order]

    def _link(self, first: int) -> None:
        """Link rows; the table grows with the chains there are, which may be many or few."""
        while first < self.limit:
            room = len(self.table) // 2 - self._chains
            new, first = expand.link(self.table, self._nodes, first, self.limit, room)
            self._chains += int(new)
            if first < self.limit:
                self._empty_table(2 * len(self.table))
                first = self.oldest

    def _empty_table(self, size: int) -> None:
        self.table = np.full(size, -1, np.int64)
        self._chains = 0

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
        kept = self.rows
        if self._places is not None:
            self._sort_rows()
        self._nodes[:kept] = self._nodes[self.oldest : self.limit]
        if self._second is not None:
            self._second[:kept] = self._second[self.oldest : self.limit]
        self._cut(self.oldest)
        self.size = sum(map(batch_bytes, self._portions))
        self.oldest, self.limit = 0, kept
        room = max(ROOM_FIRST, 2 * kept)
        if len(self._nodes) > 2 * room:
            self._nodes = self._nodes[:room].copy()
            self._second = None if self._second is None else self._second[:room].copy()
        if self._is_linked:
            self._empty_table(2 * ROOM_FIRST)
            self._link(0)

    def _sort_rows(self) -> None:
        """Bring the portions into the order of the places."""
        assert self._places is not None
        places = pa.array(self._places[: self.limit])
        rows = pa.Table.from_batches(self._portions).take(places)
        self._portions = rows.combine_chunks().to_batches()
        self._places, self._gather = None, None

    def _cut(self, gone: int) -> None:
        self._gather = None
        while self._portions and gone >= self._portions[0].num_rows:
            gone -= self._portions.pop(0).num_rows
        if gone:
            # A copy, so that the memory of the rest is given back.
            rest = self._portions[0].slice(gone)
            self._portions[0] = rest.take(pa.array(np.arange(rest.num_rows)))

    def batches(self) -> list[pa.RecordBatch]:
        """All rows, in order of arrival.  Where that is not the order of time, dropped ones may be
        among them: nobody can meet these, and to leave them out would be to copy the others."""
        gone = self.oldest
        if self._places is not None and self.rows:
            gone = int(self._places[self.oldest : self.limit].min())
        found = []
        for portion in self._portions:
            if gone < portion.num_rows:
                found.append(portion.slice(gone))
            gone = max(gone - portion.num_rows, 0)
        return found

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, forgotten as they are handed out."""
        batches, self._portions, self._gather = self.batches(), [], None
        self._places, self.oldest, self.limit, self.size = None, 0, 0, 0
        while batches:
            yield batches.pop(0)

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take rows of a buffer like this one."""
        self.append(self._blocks.of(rows), batch_bytes(rows))


def _roomier(numbers: Int64s | None, room: int) -> Int64s | None:
    """The numbers in an array with more room."""
    if numbers is None:
        return None
    roomier = np.empty(room, np.int64)
    roomier[: len(numbers)] = numbers
    return roomier
