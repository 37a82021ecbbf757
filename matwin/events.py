"""Keys, times and row numbers of both sides in one order, sorted on pages.

    left   key time row ─┐ gathered ──full──▶ sorted ──▶ a run  ┐
    right  key time row ─┘          ──full──▶ sorted ──▶ a run  ├──merged──▶ portions, in order
                                    ──end───▶ sorted ──▶ a run  ┘

All that an as-of join looks at fits some whole numbers a row, so that no other column is sorted,
however wide it is.  Rows are ordered by their key's codes, their time, and at one time right rows
before left ones: whoever reads on has seen every right row that a left row may look back at.

Merging reads the run next whose last row that was read comes first.  What comes before all of those
is complete, and leaves.

Invariant: a portion's rows are not before those of the portions that left earlier.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.lanes import Lanes
from matwin.storage.layout import Piece
from matwin.storage.ordering import count_upto, sort_order
from matwin.storage.store import Store

from .sizes import ways_of

LEFT_BIT = 62
LEFT = 1 << LEFT_BIT
"""Added to a left row's number."""
FAN_IN, FAN_IN_MIN, FAN_IN_MAX = 20, 12, 48
"""How many runs are merged at a time: all of them where they are few enough, else so many that
chunks stay large, because a chunk takes 60 us: 240 runs are merged in two passes."""
CHUNK_BYTES_MIN = 1 << 10
SORTING = 4
"""What sorting takes, in copies of the rows: as they have gathered, as one, packed, and sorted."""
Columns = list[Int64s]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EventRoom:
    """What gathering and merging may take."""

    run_bytes: int
    """Rows that are sorted at a time."""
    merge_bytes: int
    """Rows of all runs that are there at a time."""
    expected_bytes: int | None = None
    """All rows, where that is known beforehand: few runs have large chunks."""

    @property
    def chunk_bytes(self) -> int:
        """Rows of one run that are read at a time."""
        ways = FAN_IN
        if self.expected_bytes is not None:
            runs = 5 * self.expected_bytes // self.run_bytes // 4
            each = runs if runs <= FAN_IN_MAX else ways_of(runs, FAN_IN)
            ways = max(FAN_IN_MIN, each)
        return max(CHUNK_BYTES_MIN, self.merge_bytes // 2 // ways)

    @property
    def fan_in(self) -> int:
        """How many runs are merged at a time."""
        return max(2, self.merge_bytes // 2 // self.chunk_bytes)


class Events:
    """Rows of both sides as numbers: their key's codes, their time, their row."""

    def __init__(self, store: Store, codes: int, room: EventRoom, *, by_row: bool) -> None:
        """`by_row`: rows of one side, key and time are in order of their numbers."""
        names = [*(f"key {n}" for n in range(codes)), "time", "row"]
        self._schema = pa.schema([(name, pa.int64()) for name in names])
        self._lanes = store.lanes("order", self._schema)
        self._pool = store.pool
        self._room = room
        self._by_row = by_row
        self._chunk_rows = max(1, room.chunk_bytes // (8 * len(names)))
        self._numbers = count()
        self._runs: list[_Run] = []
        self._waiting: list[Columns] = []
        self._size = 0

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def add(self, columns: Columns) -> None:
        """Take rows of one side."""
        rows, width = len(columns[0]), 8 * len(columns)
        start = 0
        while start < rows:
            fits = max(1, (self._room_left() - self._size) // width)
            part = [column[start : start + fits] for column in columns]
            size = width * len(part[0])
            self._pool.take(SORTING * size)
            self._waiting.append(part)
            self._size += size
            start += fits
            if self._size + width > self._room_left():
                self.settle()

    def _room_left(self) -> int:
        """What a run may take: its share, or less where rows that come from memory have not left
        it yet."""
        pool = self._pool
        free = pool.budget_bytes - pool.write_space - pool.held_bytes - 4 * pool.file.page_size
        return min(self._room.run_bytes, self._size + max(free, 0) // SORTING)

    def settle(self) -> None:
        """What has gathered becomes a run."""
        if not self._waiting:
            return
        self._runs.append(self._write([self._sorted(self._waiting)]))
        size, self._waiting, self._size = self._size, [], 0
        self._pool.give_back(SORTING * size)

    def _sorted(self, parts: Sequence[Columns]) -> Columns:
        columns = [np.concatenate(some) for some in zip(*parts, strict=True)]
        order = sort_order(self._keys(columns))
        return columns if order is None else [column[order] for column in columns]

    def _keys(self, columns: Columns) -> Columns:
        keys = [*columns[:-1], columns[-1] >> LEFT_BIT]
        return [*keys, columns[-1]] if self._by_row else keys

    def _write(self, sorted_: Iterable[Columns]) -> _Run:
        """Sorted rows, as a run in chunks."""
        lasts: list[Key] = []
        pieces = self._lanes.add_bytes(next(self._numbers), self._chunks(sorted_, lasts))
        return _Run(pieces, lasts)

    def _chunks(self, sorted_: Iterable[Columns], lasts: list[Key]) -> Iterator[pa.Buffer]:
        """Chunks as bytes, column after column, and the key of the last row of each."""
        for columns in sorted_:
            for start in range(0, len(columns[0]), self._chunk_rows):
                part = [column[start : start + self._chunk_rows] for column in columns]
                lasts.append(tuple(int(key[-1]) for key in self._keys([c[-1:] for c in part])))
                yield pa.py_buffer(np.concatenate(part))

    def keep(self) -> Keeper:
        """A run of rows that come in order, while others are merged."""
        return Keeper(self)

    # ── rows out ─────────────────────────────────────────────────────────────────────────────

    @property
    def merging_bytes(self) -> int:
        """What merging takes: what has been read, and what leaves, sorted."""
        return (1 + SORTING) * (self._room.merge_bytes + self._room.chunk_bytes)

    def portions(self) -> Iterator[Columns]:
        """All rows in order; they are gone here."""
        self.settle()
        while len(self._runs) > self._room.fan_in:
            ways = min(self._room.fan_in, len(self._runs) - self._room.fan_in + 1)
            some, self._runs = self._runs[:ways], self._runs[ways:]
            self._runs.append(self._write(self._merged(some)))
        runs, self._runs = self._runs, []
        yield from self._merged(runs)

    def _merged(self, runs: Sequence[_Run]) -> Iterator[Columns]:
        heads = [_Head(run) for run in runs]
        # What comes first to be read next; every run has a chunk there before anything leaves.
        open_: list[tuple[Key, int]] = [((), number) for number in range(len(heads))]
        loaded = 0
        while True:
            chosen: list[tuple[_Head, Piece, Key]] = []
            while open_ and (loaded < self._room.merge_bytes or not open_[0][0]):
                number = open_[0][1]
                head = heads[number]
                if not head.run.pieces:
                    heapq.heappop(open_)
                    continue
                piece, last = head.run.pieces.popleft(), head.run.lasts.popleft()
                chosen.append((head, piece, last))
                loaded += piece.size
                heapq.heapreplace(open_, (last, number))
            self._load(chosen)
            bound = open_[0][0] if open_ else None
            parts = [part for head in heads for part in head.upto(bound, self._keys)]
            if not parts:
                return
            loaded -= sum(8 * len(part) * len(part[0]) for part in parts)
            yield self._sorted(parts)

    def _load(self, chosen: Sequence[tuple[_Head, Piece, Key]]) -> None:
        """Read chunks of several runs in one call: a call for each took 200 us of 230."""
        bodies = self._lanes.take_bytes([piece for _, piece, _ in chosen]) if chosen else []
        for (head, _, last), body in zip(chosen, bodies, strict=True):
            # A copy: as long as one chunk is held, so is all that was read with it.
            columns = np.frombuffer(body, np.int64).reshape(len(self._schema), -1).copy()
            head.parts.append((list(columns), last))

    def close(self) -> None:
        """Give up all rows."""
        self._pool.give_back(SORTING * self._size)
        self._waiting, self._size = [], 0
        self._lanes.close()


class _Run:
    """Where the chunks of a run are, and the key of the last row of each."""

    def __init__(self, pieces: Iterable[Piece], lasts: Iterable[Key]) -> None:
        self.pieces, self.lasts = deque(pieces), deque(lasts)


@dataclass(slots=True)
class _Head:
    """The chunks of a run that have been read, and those that have not."""

    run: _Run
    parts: list[tuple[Columns, Key]] = field(default_factory=list)
    """With the key of the last row of each."""

    def upto(self, bound: Key | None, keys: Callable[[Columns], Columns]) -> Iterator[Columns]:
        """Take the rows up to and including the bound; all of them where there is none."""
        while self.parts:
            part, last = self.parts[0]
            if bound is None or last <= bound:
                yield self.parts.pop(0)[0]
                continue
            rows = count_upto(keys(part), bound)
            if rows:
                yield [column[:rows] for column in part]
                self.parts[0] = [column[rows:] for column in part], last
            return


class Keeper:
    """Rows that stay, written as they come."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._waiting: list[Columns] = []
        self._rows = 0
        self._run = _Run((), ())

    def add(self, columns: Columns) -> None:
        """Take rows that follow those taken before."""
        if len(columns[0]):
            self._waiting.append([column.copy() for column in columns])
            self._rows += len(columns[0])
        if self._rows >= 4 * self._events._chunk_rows:
            self._put()

    def _put(self) -> None:
        if self._waiting:
            whole = [np.concatenate(some) for some in zip(*self._waiting, strict=True)]
            made = self._events._write([whole])
            self._run.pieces += made.pieces
            self._run.lasts += made.lasts
        self._waiting, self._rows = [], 0

    def finish(self) -> None:
        """The rows are events again."""
        self._put()
        if self._run.pieces:
            self._events._runs.append(self._run)


class Pile:
    """Whole numbers that wait, a few of them in memory and the others on pages; they can be read
    again."""

    def __init__(self, lanes: Lanes, number: int, columns: int, limit: int) -> None:
        self._lanes = lanes
        self._number = number
        self._columns = columns
        self._limit = limit
        self._parts: list[Columns] = []
        self._size = 0
        self.rows = 0

    def add(self, *columns: Int64s) -> None:
        """Take some."""
        if len(columns[0]) == 0:
            return
        self.rows += len(columns[0])
        self._parts.append([column.copy() for column in columns])
        self._size += sum(column.nbytes for column in columns)
        if self._size > self._limit:
            self._lanes.add(self._number, self._pieces())
            self._parts, self._size = [], 0

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        schema = self._lanes.schema
        rows_max = max(1, self._limit // (8 * self._columns))
        for part in self._parts:
            for start in range(0, len(part[0]), rows_max):
                some = [arrow(column[start : start + rows_max]) for column in part]
                some += [arrow(np.zeros(len(some[0]), np.int64))] * (len(schema) - len(some))
                yield pa.RecordBatch.from_arrays(some, schema=schema)

    def chunks(self) -> Iterator[Columns]:
        """All of them, in the order in which they came."""
        for piece in self._lanes.read(self._number):
            yield [as_numpy(column) for column in piece.columns[: self._columns]]
        yield from self._parts

    def clear(self) -> None:
        """Forget them."""
        self._lanes.drop(self._number)
        self._parts, self._size, self.rows = [], 0, 0
