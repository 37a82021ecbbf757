"""Bounds that leave something out: `strict`, whose ends are not within, and `nonzero`.

    on={"t": 5}                       -5 <= right.t - left.t <= 5
    on={"t": matwin.strict(5)}        -5 <  right.t - left.t <  5
    on={"t": matwin.strict(-5, 0)}    -5 <  right.t - left.t <  0
    on={"t": matwin.nonzero(5)}       -5 <= right.t - left.t <= 5, and not 0

With `nonzero` a self-join finds "the nearest other row" of each row in one call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.units import Counts, Tolerance, in_units, is_duration, nanoseconds, shown

INT_LIMIT, FLOAT_LIMIT = 2**70, math.inf
"""What stands for no limit on one side: no two whole numbers are further apart, and the rounded
difference of two floats may be infinite."""
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Strict:
    """A tolerance with ends that are not within; None is no end."""

    lo: Any
    hi: Any
    is_open: tuple[bool, bool] = (True, True)
    """Which of the ends are not within."""


@dataclass(frozen=True, slots=True)
class Nonzero:
    """A tolerance without equal values."""

    tolerance: Any


def strict(lo: Any, hi: Any = _MISSING) -> Strict:
    """A tolerance without its ends.

    ``strict(5)`` is less than 5 apart, ``strict(-5, 0)`` before, by less than 5, and
    ``strict(None, 0)`` anything before.

    >>> import matwin, pyarrow as pa
    >>> rows = pa.table({"t": [1, 3, 5]})
    >>> pairs = matwin.epsilon_join(rows, rows, on={"t": matwin.strict(0, 4)}).to_arrow()
    >>> list(zip(*pairs.to_pydict().values()))
    [(1, 3), (3, 5)]
    """
    if hi is _MISSING:
        return Strict(negative(lo), lo)
    return Strict(lo, hi)


def nonzero(tolerance: Any = None) -> Nonzero:
    """A tolerance (None: any distance) that equal values are not within.

    >>> import matwin, pyarrow as pa
    >>> rows = pa.table({"t": [1, 2, 5]})
    >>> nearest = matwin.bestmatch_join(rows, rows, on={"t": matwin.nonzero(10)}).to_arrow()
    >>> sorted(zip(*nearest.to_pydict().values()))
    [(1, 2), (2, 1), (5, 2)]
    """
    return Nonzero(tolerance)


def negative(amount: Any) -> Any:
    """An amount, however it is written, with the other sign."""
    if isinstance(amount, str):
        return amount[1:] if amount.startswith("-") else f"-{amount}"
    try:
        return -amount
    except (TypeError, OverflowError) as e:
        if not is_duration(amount):
            raise InputError(f"{shown(amount)} is not an amount") from e
    # Arrow's durations have no sign to turn, and the longest timedelta has no negative.
    return f"{-int(nanoseconds(amount))}ns"


def bare_tolerance(
    tolerance: Tolerance | Strict | Nonzero, field: pa.Field
) -> tuple[Tolerance | Counts, bool]:
    """The tolerance with ends that are within, and whether equal values are out."""
    if isinstance(tolerance, Nonzero):
        return bare_tolerance(tolerance.tolerance, field)[0], True
    if isinstance(tolerance, Strict):
        return _counts(tolerance.lo, tolerance.hi, field, tolerance.is_open), False
    if isinstance(tolerance, tuple) and len(tolerance) == 2 and None in tolerance:
        return _counts(*tolerance, field, (False, False)), False
    return tolerance, False


def _counts(lo: Any, hi: Any, field: pa.Field, is_open: tuple[bool, bool]) -> Counts | None:
    """Both ends in the column's unit; None on one side is a limit that no two values reach."""
    if lo is None and hi is None:
        return None
    limit = FLOAT_LIMIT if pa.types.is_floating(field.type) else INT_LIMIT
    return Counts(
        -limit if lo is None else _end(lo, field, 1, is_open=is_open[0]),
        limit if hi is None else _end(hi, field, -1, is_open=is_open[1]),
    )


def _end(end: Any, field: pa.Field, inward: int, *, is_open: bool) -> int | float:
    """An end that is within: the next value inward where it is not itself."""
    if not is_open:
        return in_units(end, field, rounding=math.ceil if inward > 0 else math.floor)
    if pa.types.is_floating(field.type):
        return math.nextafter(in_units(end, field, rounding=round), inward * math.inf)
    # Beyond a fraction is the next whole number; beyond a whole one the one after it.
    return in_units(end, field, rounding=math.floor if inward > 0 else math.ceil) + inward
