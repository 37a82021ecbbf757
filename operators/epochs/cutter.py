"""A stream's rows divided into chunks, as they come.

    batch ──cutter──▶ pieces, each of one chunk ──▶ the open chunk, or wait for their turn
                 └──▶ late, rejected: counted

A cutter numbers the chunks of one stream, upward, and says below which number all have come:

    count       number = rows before / n          complete when the next row has another number
    on_change   number = changes so far           the same (`matching.py`)
    every       number = floor(value / width)     complete when the declared order says so

What it knows is plain data, so that a commit can keep it and a restart cuts the same chunks.

Invariants: pieces keep the order in which rows came; rows = in pieces + late + rejected; the number
of a row depends on the rows before it, never on how they came in batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from matwin.frontier import Frontier, ReadAheadFrontier, frontier_of
from matwin.hints import did_you_mean
from matwin.keys import float_of_key, key_value, order_zero
from matwin.storage.columns import INT64_MIN, Bools, Int64s, comparable, is_numeric, order_key
from matwin.storage.errors import InputError, OrderError
from matwin.storage.names import listed
from matwin.storage.units import in_units, unit_nanoseconds
from matwin.streams import Stream

from .cut import Bounds, Count, Every, column_of

EXACT = 2.0**53
"""Beyond it not every whole number is a float, and two ranges would be one."""


class Piece(NamedTuple):
    """Rows of one chunk, by the stream's own count, with their numbers in the stream."""

    chunk: int
    rows: pa.RecordBatch
    numbers: Int64s


class Cutter(ABC):
    """Numbers the chunks of one stream."""

    is_by_value: ClassVar[bool] = False
    """Whether a row's own value says its chunk, so that ranges without rows are chunks."""

    shift = 0
    """What is added to the number of a piece to have the number of its chunk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.late = self.rejected = 0

    @property
    @abstractmethod
    def complete_below(self) -> int:
        """Every later row's chunk has at least this number."""

    @abstractmethod
    def pieces(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        """Divide rows."""

    @abstractmethod
    def close(self, chunk: int) -> None:
        """The stream has been silent too long: a chunk is what has come of it."""

    @abstractmethod
    def bounds(self, chunk: int) -> Bounds:
        """What a chunk covers."""

    @property
    def newest_at(self) -> float | None:
        """The latest time that has come, in seconds since 1970; None where it is cut otherwise."""
        return None

    def again(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        """Divide rows that were read before a restart, and were in time then."""
        return self.pieces(rows, numbers)

    def state(self, chunk: int) -> dict[str, Any]:
        """What a restart needs that goes on after a chunk."""
        return {"late": self.late, "rejected": self.rejected}

    def restore(self, state: Mapping[str, Any], *, is_again: bool) -> None:
        """Go on where another cutter was.  Where its rows can't be read again (`is_again`), what it
        knew of those that are in no chunk is nothing to go by."""
        self.late, self.rejected = state["late"], state["rejected"]


class InTurn(Cutter):
    """Chunks that follow each other as the rows do."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.number = 0

    @property
    def complete_below(self) -> int:
        return self.number

    def _cut_at(self, rows: pa.RecordBatch, numbers: Int64s, places: Sequence[int]) -> list[Piece]:
        """Pieces between the places at which a chunk begins; the first row may be one of them."""
        found = []
        start = 0
        for place in (*places, rows.num_rows):
            if place > start:
                piece = Piece(self.number, rows.slice(start, place - start), numbers[start:place])
                found.append(piece)
                start = place
            if place < rows.num_rows:
                self.number += 1
        return found

    def state(self, chunk: int) -> dict[str, Any]:
        # What has been read beyond the chunk is read again, and is cut again.
        return {**super().state(chunk), "number": chunk + 1}

    def restore(self, state: Mapping[str, Any], *, is_again: bool) -> None:
        super().restore(state, is_again=is_again)
        self.number = state["number"]


class CountCutter(InTurn):
    """So many rows to a chunk; one is complete with its last row."""

    def __init__(self, name: str, cut: Count) -> None:
        super().__init__(name)
        self._rows, self._has = cut.rows, 0

    @property
    def complete_below(self) -> int:
        return self.number + (self._has == self._rows)

    def pieces(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        first = self._rows - self._has
        places = range(first, rows.num_rows, self._rows)
        found = self._cut_at(rows, numbers, places)
        self._has += rows.num_rows
        self._has -= len(places) * self._rows
        return found

    def close(self, chunk: int) -> None:
        if self.number <= chunk:
            self.number, self._has = chunk + 1, 0

    def bounds(self, chunk: int) -> Bounds:
        return Bounds(chunk * self._rows, (chunk + 1) * self._rows)


class RangeCutter(Cutter):
    """A chunk for each range of a column; the stream's declared order says what is complete."""

    is_by_value = True

    def __init__(self, name: str, cut: Every, stream: Stream) -> None:
        super().__init__(name)
        self._column = checked_column(column_of(cut, name), stream.schema, name)
        self.field = stream.schema.field(self._column)
        if not is_numeric(self.field.type):
            raise InputError(
                f"{name}: column {self._column!r} is {self.field.type}, and a range needs numbers "
                "or times; cut it with cut.on_change, or cast the column"
            )
        if stream.on is not None and stream.on != self._column:
            raise InputError(
                f"{name}: the stream is ordered by {stream.on!r} and cut by {self._column!r}; cut "
                "it by the column that it is ordered by"
            )
        self._is_float = bool(pa.types.is_floating(self.field.type))
        self.width: Any = in_units(cut.width, self.field, rounding=self._whole)
        if not self._is_float and self.width >= 2**63:
            self._whole(self.width)
        self._wants_origin = cut.align == "first"
        self.origin: Any = 0.0 if self._is_float else 0
        self._is_late_dropped = stream.late == "drop"
        self._closed_below = -(2**70)
        self._newest = INT64_MIN
        self._frontier: Frontier = frontier_of(
            stream.order, field=self.field, tolerance=None, late=stream.late, source=name
        )

    @property
    def complete_below(self) -> int:
        value = self._frontier.value
        if value == INT64_MIN:
            return self._closed_below
        return max(self._closed_below, self._chunk_of_key(value))

    def _whole(self, width: float) -> int:
        if width != math.floor(width) or width >= 2**63:
            raise InputError(
                f"{self.name}: column {self._column!r} is {self.field.type}, and ranges of {width} "
                "divide no whole numbers of 64 bits; give a smaller whole width"
            )
        return int(width)

    @property
    def newest_at(self) -> float | None:
        kinds = pa.types
        is_moment = kinds.is_timestamp(self.field.type) or kinds.is_date(self.field.type)
        if not is_moment or self._newest == INT64_MIN:
            return None
        return self._newest * unit_nanoseconds(self.field.type) / 1e9

    @property
    def needs_origin(self) -> bool:
        """Whether ranges begin at a first row that has not come yet."""
        return self._wants_origin

    def set_origin(self, origin: Any) -> None:
        """Where ranges begin."""
        self.origin, self._wants_origin = origin, False

    def first_value(self, rows: pa.RecordBatch) -> Any:
        """The first value that can be a range's beginning; None where there is none."""
        values, valid = self._values(rows)
        usable = np.flatnonzero(valid) if valid is not None else np.arange(len(values))
        return values[usable[0]].item() if len(usable) else None

    def pieces(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        rows, numbers = self._usable(rows, numbers)
        keys = order_key(rows.column(self._column))
        if len(keys):
            self._newest = max(self._newest, int(keys.max()))
        in_time = self._frontier.admit(keys, numbers)
        if in_time is not None:
            self.late += int(len(keys) - np.count_nonzero(in_time))
            rows, numbers = _where(rows, numbers, in_time)
        return self._divided(rows, numbers)

    def again(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        return self._divided(*self._usable(rows, numbers))

    def punctuate(self, key: int) -> None:
        """Nothing up to this key comes any more."""
        self._frontier.punctuate(key)

    def _usable(self, rows: pa.RecordBatch, numbers: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """Rows whose value is a number."""
        _, valid = self._values(rows)
        if valid is None:
            return rows, numbers
        self.rejected += int(rows.num_rows - np.count_nonzero(valid))
        return _where(rows, numbers, valid)

    def _values(self, rows: pa.RecordBatch) -> tuple[Any, Bools | None]:
        values, valid = comparable(rows.column(self._column))
        if self._is_float:
            finite = np.isfinite(values)
            if not finite.all():
                valid = finite if valid is None else valid & finite
        return values, valid

    def _divided(self, rows: pa.RecordBatch, numbers: Int64s) -> list[Piece]:
        if not rows.num_rows:
            return []
        chunks = self._chunks(rows, numbers)
        late = chunks < self._closed_below
        if late.any():
            self._check_closed(rows, numbers, chunks, late)
            rows, numbers = _where(rows, numbers, ~late)
            chunks = chunks[~late]
        return _grouped(rows, numbers, chunks)

    def _check_closed(
        self, rows: pa.RecordBatch, numbers: Int64s, chunks: Int64s, late: Bools
    ) -> None:
        """Rows of a chunk that is over are late, whatever the stream's own order says: it was
        silent too long, or sends again what was committed before a restart."""
        if not self._is_late_dropped:
            place = int(np.argmax(late))
            bounds = self.bounds(int(chunks[place]))
            raise OrderError(
                f"{self.name}: row {int(numbers[place])} is late: its {self._column!r} is "
                f"{rows.column(self._column)[place]}, and the range {bounds} is over: the stream "
                "was silent for longer than idle_after, or repeats what was committed; raise "
                "idle_after, or have late rows dropped and counted with late='drop'"
            )
        self.late += int(np.count_nonzero(late))

    def _chunks(self, rows: pa.RecordBatch, numbers: Int64s) -> Int64s:
        values, _ = self._values(rows)
        if not self._is_float:
            return self._whole_chunks(values, numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.floor((values - self.origin) / self.width)
        if len(found) and not np.abs(found).max() < EXACT:
            place = int(np.argmax(~(np.abs(found) < EXACT)))
            raise InputError(
                f"{self.name}: row {int(numbers[place])}: its {self._column!r} is "
                f"{values[place]}, where ranges of {self.width} can't be told apart; cut by a "
                "wider range"
            )
        whole: Int64s = found.astype(np.int64)
        return whole

    def _whole_chunks(self, values: Any, numbers: Int64s) -> Int64s:
        """``floor((value - origin) / width)`` without leaving 64 bits.  Of unsigned values 2^63 is
        taken from the quotient, so that it is a signed number."""
        before, rest = divmod(self.origin, self.width)
        width = values.dtype.type(self.width)
        quotients = values // width
        if values.dtype == np.uint64:
            found = (quotients ^ np.uint64(1 << 63)).view(np.int64)
        else:
            found = quotients
        before += order_zero(self.field.type) - self._shift()
        if before:
            self._check_far(found, before, values, numbers)
            found = found - np.int64(before)
        if rest:
            found = found - (values - quotients * width < values.dtype.type(rest))
        chunks: Int64s = found
        return chunks

    def _check_far(self, found: Int64s, before: int, values: Any, numbers: Int64s) -> None:
        """Refuse a row whose range has no number of 64 bits, counted from the first."""
        for place in (int(found.argmin()), int(found.argmax())):
            if not -(2**63) < int(found[place]) - before < 2**63:
                raise InputError(
                    f"{self.name}: row {int(numbers[place])}: its {self._column!r} is "
                    f"{values[place]}, more ranges of {self.width} from the first, at "
                    f"{self.origin}, than 64 bits can number; cut by a wider range"
                )

    def _shift(self) -> int:
        """What is added to the numbers of ranges: those from a first row on are small by
        themselves."""
        return order_zero(self.field.type) if not self.origin else 0

    def _chunk_of_key(self, key: int) -> int:
        """The chunk of the value that has an order key."""
        if self._is_float:
            value = float_of_key(key)
            if not math.isfinite(value):
                return -(2**70) if value < 0 else 2**70
            place = (value - self.origin) / self.width
            return math.floor(place) if math.isfinite(place) else int(math.copysign(2**70, place))
        value = key - order_zero(self.field.type)
        return int((value - self.origin) // self.width) + self._shift()

    def close(self, chunk: int) -> None:
        self._closed_below = max(self._closed_below, chunk + 1)

    def bounds(self, chunk: int) -> Bounds:
        low, high = (
            (number - self._shift()) * self.width + self.origin for number in (chunk, chunk + 1)
        )
        if self._is_float:
            return Bounds(low, high)
        zero = order_zero(self.field.type)
        return Bounds(key_value(low + zero, self.field), key_value(high + zero, self.field))

    def state(self, chunk: int) -> dict[str, Any]:
        found = {
            **super().state(chunk),
            "frontier": self._frontier.value,
            "closed_below": self._closed_below,
            "origin": None if self._wants_origin else self.origin,
        }
        if isinstance(self._frontier, ReadAheadFrontier):
            found["read_ahead"] = self._frontier.kept()
        return found

    def restore(self, state: Mapping[str, Any], *, is_again: bool) -> None:
        super().restore(state, is_again=is_again)
        self._closed_below = state["closed_below"]
        if state["origin"] is not None:
            self.set_origin(state["origin"])
        if is_again:
            self._frontier.value = state["frontier"]
        if is_again and isinstance(self._frontier, ReadAheadFrontier):
            self._frontier.take_back(state["read_ahead"])


def _where(rows: pa.RecordBatch, numbers: Int64s, mask: Bools) -> tuple[pa.RecordBatch, Int64s]:
    return rows.filter(pa.array(mask)), numbers[mask]


def _grouped(rows: pa.RecordBatch, numbers: Int64s, chunks: Int64s) -> list[Piece]:
    """A piece for each chunk, ascending; slices where the chunks ascend already."""
    if not len(chunks):
        return []
    if (chunks[1:] < chunks[:-1]).any():
        order = np.argsort(chunks, kind="stable")
        rows, numbers, chunks = rows.take(pa.array(order)), numbers[order], chunks[order]
    starts = np.flatnonzero(np.append(True, chunks[1:] != chunks[:-1])).tolist()
    ends = [*starts[1:], len(chunks)]
    return [
        Piece(int(chunks[a]), rows.slice(a, b - a), numbers[a:b])
        for a, b in zip(starts, ends, strict=True)
    ]


def checked_column(column: str, schema: pa.Schema, name: str) -> str:
    """The column that a stream is cut by; refused where it is not there."""
    if column not in schema.names:
        near = did_you_mean(column, schema.names)
        raise InputError(
            f"{name}: it is cut by column {column!r}, which is not there{near}; there are "
            f"{listed(schema.names)}"
        )
    return column
