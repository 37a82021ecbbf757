"""The frontier: up to which order value a stream is complete.

A declared order is a promise about rows that have not come yet.  The frontier turns the rows seen
so far into one number: no later row has a smaller key.  What lies below it is final.

    keys seen      5  9  7 12  8 …           Lateness(4): complete up to max - 4
                                             ───▶ order attribute
    ░░░░░░░░░░░░░░░░░│····8··9·····12        value = 12 - 4 + 1
       final       value   open

Every promise but two is a function `f` of the largest key so far, and ``value = max f(key)``:

    Sorted          f(y) = y
    Lateness(c)     f(y) = the key after y - c
    GridOrdered(w)  f(y) = the first key of y's cell

`ReadAhead` needs the last n rows, and `Punctuated` needs to be told.

Invariants:
* `value` never falls.  A row is late when its key is below the value that stood before it.
* Late rows never move the frontier: ``f(y) <= y + 1``, and a late row's y is below the value.
* What is late, and the last value, depend on the rows alone, not on how they are cut into batches:
  each f is monotone, with floats too.
* After an `OrderError` the stream is over; where its frontier stands then has no meaning.

Keys are those of `storage.columns.order_key`.  Rows without a finite value never come here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NoReturn

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Bools, Int64s, float_key, floats_of_keys
from matwin.storage.errors import InputError, OrderError
from matwin.storage.units import Counts, in_units

from .cells import cell_start, cell_starts, cell_width, float_cell_start, float_cell_starts
from .keys import float_of_key, key_of_float, lowered, order_zero
from .keys import key_value as key_value
from .keys import punctuation_key as punctuation_key
from .lookback import Lookback
from .streams import GridOrdered, Lateness, Order, Punctuated, ReadAhead, Sorted


class Frontier(ABC):
    """How far a stream has come, moved on by its rows."""

    remedy = ""
    promise = ""

    def __init__(self, field: pa.Field, late: str, source: str) -> None:
        self.field = field
        self.late = late
        self.source = source
        self.value = INT64_MIN
        self.late_rows = 0
        self._rows_seen = 0

    def admit(self, keys: Int64s, rows: Int64s | None = None) -> Bools | None:
        """Which rows are in time (None: all of them); the frontier moves on past them."""
        if len(keys) == 0:
            return None
        in_time = self._admitted(keys, rows)
        self._rows_seen += len(keys)
        if in_time is not None:
            self.late_rows += len(keys) - int(np.count_nonzero(in_time))
        return in_time

    @abstractmethod
    def _admitted(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        """The same for at least one key."""

    def punctuate(self, key: int) -> None:
        """No more rows with a key up to and including this one."""
        self.value = max(self.value, min(key + 1, INT64_MAX))

    def finish(self) -> None:
        """No more rows."""
        self.value = INT64_MAX

    def _refuse(self, keys: Int64s, place: int, behind: int, rows: Int64s | None) -> NoReturn:
        number = self._rows_seen + place if rows is None else int(rows[place])
        raise OrderError(
            f"{self.source}: row {number} is late: its {self.field.name!r} is "
            f"{key_value(int(keys[place]), self.field)} after {key_value(behind, self.field)}, in "
            f"a stream declared {self.promise}; {self.remedy}, or have late rows dropped and "
            "counted with late='drop'"
        )


class Unordered(Frontier):
    """A finite source without a promise: nothing is final before its end."""

    def _admitted(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        return None


class Following(Frontier):
    """A frontier that follows the largest key: ``value = max f(key)``, f monotone."""

    def __init__(self, field: pa.Field, late: str, source: str) -> None:
        super().__init__(field, late, source)
        self._largest = INT64_MIN - 1  # below every key

    @abstractmethod
    def _bound(self, key: int) -> int:
        """f of one key."""

    @abstractmethod
    def _bounds(self, keys: Int64s) -> Int64s:
        """f of each key."""

    def _admitted(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        lowest, highest = _range(keys)
        value = max(self.value, self._bound(highest)) if highest > self._largest else self.value
        if lowest < value and (len(keys) > 1 or lowest < self.value):
            in_time = self._in_time(keys, rows)
        else:
            in_time = None
        self.value, self._largest = value, max(self._largest, highest)
        return in_time

    def _in_time(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        before = np.empty_like(keys)
        before[0] = self.value
        np.maximum(self._bounds(keys[:-1]), self.value, out=before[1:])
        np.maximum.accumulate(before, out=before)
        in_time: Bools = keys >= before
        if in_time.all():
            return None
        if self.late == "error":
            place = int(np.argmin(in_time))
            largest = max(self._largest, int(keys[:place].max(initial=INT64_MIN)))
            behind = largest if largest >= keys[place] else self.value
            self._refuse(keys, place, behind, rows)
        return in_time


def _range(keys: Int64s) -> tuple[int, int]:
    if len(keys) == 1:
        key = int(keys[0])
        return key, key
    return int(keys.min()), int(keys.max())


class SortedFrontier(Following):
    """No row is below the largest before it."""

    promise = "sorted"
    remedy = "declare how late rows may come with order=Lateness(...)"

    def _bound(self, key: int) -> int:
        return key

    def _bounds(self, keys: Int64s) -> Int64s:
        return keys


def _back(order: Lateness, field: pa.Field) -> int | float:
    """The lateness in the column's unit; a fraction of a whole number goes up."""
    return in_units(order.lateness, field, rounding=math.ceil)


class LatenessFrontier(Following):
    """Complete up to the largest value - c, in whole numbers.

    There is no key after `INT64_MAX`, so that a row with that one is never late.
    """

    remedy = "declare a larger lateness"

    def __init__(self, field: pa.Field, late: str, source: str, order: Lateness) -> None:
        super().__init__(field, late, source)
        self.promise = repr(order)
        self._back = int(_back(order, field)) - 1

    def _bound(self, key: int) -> int:
        return min(max(key - self._back, INT64_MIN), INT64_MAX)

    def _bounds(self, keys: Int64s) -> Int64s:
        if self._back < 0:
            return np.where(keys == INT64_MAX, keys, keys + 1)
        return lowered(keys, np.uint64(min(self._back, 2**64 - 1)))


class FloatLatenessFrontier(Following):
    """Complete up to the largest value - c, in float64."""

    remedy = LatenessFrontier.remedy

    def __init__(self, field: pa.Field, late: str, source: str, order: Lateness) -> None:
        super().__init__(field, late, source)
        self.promise = repr(order)
        self._back = float(_back(order, field))

    def _bound(self, key: int) -> int:
        return key_of_float(float_of_key(key) - self._back) + 1

    def _bounds(self, keys: Int64s) -> Int64s:
        with np.errstate(over="ignore"):
            return float_key(floats_of_keys(keys) - self._back) + 1


class GridFrontier(Following):
    """Cells never go back; whole numbers, divided exactly."""

    remedy = "give the width of the cells that it is sorted by with order=GridOrdered(width)"

    def __init__(self, field: pa.Field, late: str, source: str, width: int) -> None:
        super().__init__(field, late, source)
        self.promise = f"GridOrdered(width={width})"
        self._width = width
        self._zero = order_zero(field.type)

    def _bound(self, key: int) -> int:
        return cell_start(key, self._width, self._zero)

    def _bounds(self, keys: Int64s) -> Int64s:
        return cell_starts(keys, self._width, self._zero)


class FloatGridFrontier(Following):
    """Cells never go back; floats, with the benefit of the doubt at a cell's edge."""

    remedy = GridFrontier.remedy

    def __init__(self, field: pa.Field, late: str, source: str, width: float) -> None:
        super().__init__(field, late, source)
        self.promise = f"GridOrdered(width={width})"
        self._width = width

    def _bound(self, key: int) -> int:
        return float_cell_start(key, self._width)

    def _bounds(self, keys: Int64s) -> Int64s:
        return float_cell_starts(keys, self._width)


class PunctuatedFrontier(Frontier):
    """Moves by punctuations only."""

    promise = "Punctuated()"
    remedy = "send the punctuation after the last row that it covers"

    def _admitted(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        in_time: Bools = keys >= self.value
        if in_time.all():
            return None
        if self.late == "error":
            self._refuse(keys, int(np.argmin(in_time)), self.value - 1, rows)
        return in_time


class ReadAheadFrontier(Frontier):
    """Complete below the least of any n consecutive rows that were in time."""

    remedy = "declare more rows of read-ahead"
    _ROUNDS = 8

    def __init__(self, field: pa.Field, late: str, source: str, order: ReadAhead) -> None:
        super().__init__(field, late, source)
        self.promise = repr(order)
        self._rows = order.rows
        self._last = Lookback(order.rows)

    def _admitted(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        # A row costs 0.4 µs; arrays at least 20 µs, and some passes over the rows read ahead.
        if len(keys) <= 64 or len(keys) * 32 < self._rows:
            return self._row_by_row(keys, rows)
        in_time = np.ones(len(keys), np.bool_)
        for _ in range(self._ROUNDS):
            kept = keys[in_time]
            values = np.concatenate([[self.value], self._last.leasts(kept)])
            np.maximum.accumulate(values, out=values)
            is_late = kept < values[:-1]
            if not is_late.any():
                self._last.extend(kept)
                self.value = int(values[-1])
                return None if len(kept) == len(keys) else in_time
            if self.late == "error":
                place = int(np.argmax(is_late))
                self._refuse(keys, place, int(values[place]), rows)
            # A late row only lowers the minima around it: what is late beside it is late without
            # it as well, and more may be.
            in_time[np.flatnonzero(in_time)[is_late]] = False
        return self._row_by_row(keys, rows)

    def kept(self) -> list[int]:
        """What is known of the last rows, as plain numbers."""
        return self._last.kept()

    def take_back(self, kept: list[int]) -> None:
        """Go on where another frontier was, of which this was kept."""
        self._last.extend(np.array(kept, np.int64))

    def _row_by_row(self, keys: Int64s, rows: Int64s | None) -> Bools | None:
        late = []
        for place, key in enumerate(keys.tolist()):
            if key >= self.value:
                self.value = max(self.value, self._last.push(key))
            elif self.late == "error":
                self._refuse(keys, place, self.value, rows)
            else:
                late.append(place)
        if not late:
            return None
        in_time = np.ones(len(keys), np.bool_)
        in_time[late] = False
        return in_time


def frontier_of(
    order: Order | None, *, field: pa.Field, tolerance: Counts | None, late: str, source: str
) -> Frontier:
    """The frontier of a source with this order; None is a finite source without one."""
    is_float = pa.types.is_floating(field.type)
    match order:
        case None:
            return Unordered(field, late, source)
        case Sorted():
            return SortedFrontier(field, late, source)
        case Lateness():
            kind = FloatLatenessFrontier if is_float else LatenessFrontier
            return kind(field, late, source, order)
        case ReadAhead():
            return ReadAheadFrontier(field, late, source, order)
        case Punctuated():
            return PunctuatedFrontier(field, late, source)
        case GridOrdered():
            width = cell_width(order.width, field, tolerance)
            if is_float:
                return FloatGridFrontier(field, late, source, float(width))
            return GridFrontier(field, late, source, int(width))
    raise InputError(f"{source}: {order!r} is not an order; use Sorted(), Lateness(...), …")
