"""A stream cut into objects, and the streams of a query brought together object by object.

    rows ──▶ ChangeCutter: visits 0, 1, 2 …      one for each stretch of equal values
                 │ visit + shift = chunk         a stream that lacks an object is shifted by one
    Matching ────┘ says whose visit the next chunk is (`objects.py`)

Rows that wait keep the number of their visit, so that nothing is renumbered when a stream is passed
over.  After a restart visits are numbered like the chunks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.errors import OrderError
from matwin.streams import Sorted, Stream

from .cut import Bounds, OnChange, column_of
from .cutter import InTurn, Piece, checked_column
from .objects import (
    AHEAD,
    PASSED_MAX,
    Ahead,
    Wanted,
    can_rise,
    changes,
    in_turn,
    kept,
    object_of,
    plain,
    rising,
    taken_back,
)


class Visit(NamedTuple):
    """A stretch of rows with the same value."""

    number: int
    object: Any
    shown: object
    """The value, for people."""
    row: int
    """Its first row."""


class ChangeCutter(InTurn):
    """A visit for each stretch of equal values; null equals null."""

    def __init__(self, name: str, cut: OnChange, stream: Stream) -> None:
        super().__init__(name)
        self._column = checked_column(column_of(cut, name), stream.schema, name)
        self.field = stream.schema.field(self._column)
        is_sorted = stream.on == self._column and isinstance(stream.order, Sorted)
        self.is_rising = is_sorted and can_rise(self.field.type)
        """Whether it is declared that no object is below one before it."""
        self._is_late_dropped = stream.late == "drop"
        self.shift = 0
        self.ahead: deque[Visit] = deque()
        """Visits that have begun and are in no chunk yet."""
        self._last: pa.Array | None = None
        self._known = -1  # the last visit that has been ahead
        self._dropped = -1
        self._taken: tuple[int, Visit] | None = None
        self._passed: dict[str, None] = {}
        self._over: list[tuple[int, Any]] = []  # the last two chunks and their objects, if rising

    @property
    def complete_below(self) -> int:
        return self.number + self.shift

    def pieces(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        if self.is_rising:
            rows, numbers = self._usable(rows, numbers)
        if not rows.num_rows:
            return []
        column = plain(rows.column(self._column))
        before = column if self._last is None else pa.concat_arrays([self._last, column])
        places = np.flatnonzero(changes(before)) + (self._last is None)
        self._last = column.slice(rows.num_rows - 1, 1)
        found = []
        for piece in self._cut_at(rows, numbers, places.tolist()):
            if piece.chunk == self._dropped:
                self.late += piece.rows.num_rows
                continue
            if piece.chunk > self._known:
                self._know(piece)
            found.append(piece)
        return found

    def _usable(self, rows: pa.RecordBatch, numbers: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """Rows that have a value: null is neither below nor above another object."""
        column = rows.column(self._column)
        if not column.null_count:
            return rows, numbers
        self.rejected += column.null_count
        valid = column.is_valid()
        return rows.filter(valid), numbers[valid.to_numpy(zero_copy_only=False)]

    def _know(self, piece: Piece) -> None:
        value = plain(piece.rows.column(self._column).slice(0, 1))[0]
        self._known = piece.chunk
        first = int(piece.numbers[0])
        self.ahead.append(Visit(piece.chunk, object_of(value), value.as_py(), first))

    # ── chunks ───────────────────────────────────────────────────────────────────────────────

    def take(self, chunk: int) -> None:
        """The next visit is the chunk's."""
        visit = self.ahead.popleft()
        assert visit.number + self.shift == chunk
        self._taken = chunk, visit
        self._passed.pop(kept(visit.object), None)
        self._is_over(chunk, visit.object)

    def pass_over(self, chunk: int, value: Any) -> None:
        """The chunk is an object of others."""
        self.shift += 1
        self._lack(value)
        self._is_over(chunk, value)

    def _lack(self, value: Any) -> None:
        if value == value:  # NaN is another object each time
            self._passed[kept(value)] = None
        while len(self._passed) > PASSED_MAX:
            del self._passed[next(iter(self._passed))]

    def _is_over(self, chunk: int, value: Any) -> None:
        if self.is_rising:
            self._over = [*self._over[-1:], (chunk, value)]

    def is_late(self, value: Any) -> bool:
        """Whether it was passed over for this object before."""
        if self.is_rising:
            return bool(self._over) and bool(value <= self._over[-1][1])
        return kept(value) in self._passed

    def drop(self) -> int:
        """The next visit is late; its number, where late rows are dropped."""
        visit = self.ahead[0]
        if not self._is_late_dropped:
            upto = f"objects up to {self._over[-1][1]} are" if self.is_rising else "its epoch is"
            raise OrderError(
                f"{self.name}: row {visit.row} is late: its {self._column!r} is {visit.shown}, and "
                f"{upto} over: the other streams had it earlier, or {self.name} was silent for "
                "longer than idle_after; give all streams' objects in the same order, or have late "
                "rows dropped and counted with late='drop'"
            )
        self.ahead.popleft()
        self._dropped = visit.number
        self.shift -= 1
        return visit.number

    def close(self, chunk: int) -> None:
        if self.complete_below > chunk:
            return
        self.number, self._last = chunk + 1 - self.shift, None
        if self._taken is not None and self._taken[0] == chunk:
            self._lack(self._taken[1].object)  # what comes of it now is late

    def bounds(self, chunk: int) -> Bounds:
        is_taken = self._taken is not None and self._taken[0] == chunk
        return Bounds(value=self._taken[1].shown if self._taken and is_taken else None)

    def state(self, chunk: int) -> dict[str, Any]:
        over = [kept(value) for at, value in self._over if at <= chunk]
        return {**super().state(chunk), "passed": [*self._passed], "over": over[-1:]}

    def restore(self, state: Mapping[str, Any], *, is_again: bool) -> None:
        super().restore(state, is_again=is_again)
        self._known = self._dropped = self.number - 1
        # (A state of an earlier release has neither.)
        self._passed = dict.fromkeys(state.get("passed", ()))
        self._over = [(self.number - 1, taken_back(text)) for text in state.get("over", ())]


class ByObject(Protocol):
    """A stream that is cut into visits, with the rows that wait."""

    @property
    def objects(self) -> ChangeCutter: ...
    def drop_late(self) -> None:
        """The next visit is late."""


C = TypeVar("C", bound=ByObject)


class Matching(Generic[C]):
    """Whose visit each chunk is."""

    def __init__(self, streams: Sequence[C]) -> None:
        self._streams = streams
        self._cutters = [one.objects for one in streams]
        is_rising = all(cutter.is_rising for cutter in self._cutters)
        for cutter in self._cutters:
            cutter.is_rising = is_rising
        self._next = rising if is_rising else in_turn
        self._is_rising = is_rising

    def open(self, chunk: int, is_all: Callable[[C], bool]) -> Sequence[C] | None:
        """Find the object of a chunk.  None: there is none; otherwise the streams that must be read
        further first.  `is_all` says of which streams no more comes than is known."""
        while True:
            found = self._next([self._ahead(one, is_all) for one in self._streams])
            if isinstance(found, Wanted):
                return [self._streams[place] for place in found.places]
            if not found:
                return None
            value = self._cutters[min(found)].ahead[0].object
            if not self._is_late(found, value):
                break
            for place in found:
                self._streams[place].drop_late()
        for place, cutter in enumerate(self._cutters):
            if place in found:
                cutter.take(chunk)
            else:
                cutter.pass_over(chunk, value)
        return []

    def _ahead(self, one: C, is_all: Callable[[C], bool]) -> Ahead:
        return Ahead([visit.object for visit in islice(one.objects.ahead, AHEAD)], is_all(one))

    def _is_late(self, places: frozenset[int], value: Any) -> bool:
        """Whether the others had it before: it comes again only with one who had it then."""
        if len(self._cutters) == 1 and not self._is_rising:
            return False
        return all(self._cutters[place].is_late(value) for place in places)
