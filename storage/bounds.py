"""Values as users write them against a column's order keys: where a bound lies.

    below=2.5 on whole numbers        key 3, and no value of the column is 2.5
    upto=noon on a column of days     the next day's key, and no value of the column is noon

A bound on numbers is a number; on times it is a time (Python's, pandas', NumPy's or Arrow's), to
the nanosecond.  A bare number on times is refused, because nobody can see its unit; 0 needs none.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from .columns import INT64_MAX, INT64_MIN, float_key, is_temporal
from .errors import InputError
from .units import is_duration, nanoseconds, shown, unit_nanoseconds

_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY = 86_400 * 10**9


def bound_key(bound: object, data_type: pa.DataType, column: str) -> int:
    """The order key of the first value of a column that is not below a bound.

    >>> bound_key(2.5, pa.int64(), "t")
    3
    """
    return bound_place(bound, data_type, column)[0]


def bound_place(bound: object, data_type: pa.DataType, column: str) -> tuple[int, bool]:
    """The same, and whether that value is the bound itself."""
    if isinstance(bound, pa.Scalar) and not is_temporal(bound.type):
        bound = bound.as_py()
    is_number = isinstance(bound, np.number) and bound.dtype.kind in "iuf"
    bound = bound.item() if is_number else bound  # type: ignore[attr-defined]  # as just seen
    if bound is None or bound != bound:
        raise InputError(
            f"column {column!r}: {shown(bound)} is no bound; give a value of the column"
        )
    if is_temporal(data_type):
        exact = _since_zero(bound, data_type, column) / unit_nanoseconds(data_type)
    elif isinstance(bound, bool) or not isinstance(bound, int | float | decimal.Decimal):
        raise InputError(
            f"column {column!r} ({data_type}): {shown(bound)} is no bound; give a number"
        )
    elif pa.types.is_floating(data_type):
        value = _float_upward(bound)
        return int(float_key(np.array([value]))[0]), value == bound
    else:
        digits = data_type.scale if pa.types.is_decimal(data_type) else 0
        limit = Fraction(2**65) / Fraction(10) ** digits
        exact = Fraction(max(min(bound, limit), -limit)) * Fraction(10) ** digits
    whole = math.ceil(exact)
    key = whole - 2**63 if data_type == pa.uint64() else whole
    if key > INT64_MAX:
        raise InputError(f"column {column!r}: the bound {shown(bound)} is beyond {data_type}")
    return max(key, INT64_MIN), key >= INT64_MIN and whole == exact


def _float_upward(bound: Any) -> float:
    try:
        value = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -1.7976931348623157e308
    return math.nextafter(value, math.inf) if value < bound else value


# ── times ────────────────────────────────────────────────────────────────────────────────────


def _since_zero(bound: Any, data_type: pa.DataType, column: str) -> Fraction:
    """The nanoseconds of a bound since the column's zero."""
    tests, kind = pa.types, None
    if isinstance(bound, int | float | decimal.Decimal) and not isinstance(bound, bool):
        if bound == 0:
            return Fraction(0)
        raise InputError(
            f"column {column!r} is {data_type}, and the number {bound} does not say its unit; give "
            "a value of the column, such as a datetime, or for a duration a timedelta"
        )
    if tests.is_duration(data_type):
        kind = nanoseconds(bound) if is_duration(bound) else None
    elif tests.is_time(data_type):
        kind = _time_of_day(bound)
    elif tests.is_timestamp(data_type) or tests.is_date(data_type):
        kind = _moment(bound, data_type, column)
    if kind is None:
        raise InputError(
            f"column {column!r} ({data_type}): {shown(bound)} is no bound; give a value of the "
            "column"
        )
    return kind


def _time_of_day(bound: Any) -> Fraction | None:
    if isinstance(bound, pa.Time32Scalar | pa.Time64Scalar):
        return Fraction(bound.value * unit_nanoseconds(bound.type)) if bound.is_valid else None
    return Fraction(_clock(bound)) if isinstance(bound, dt.time) else None


def _clock(time: dt.time | dt.datetime) -> int:
    seconds = time.hour * 3600 + time.minute * 60 + time.second
    below = getattr(time, "nanosecond", 0)  # pandas has them, Python does not
    return seconds * 10**9 + time.microsecond * 1000 + below


def _moment(bound: Any, data_type: pa.DataType, column: str) -> Fraction | None:
    found = _instant(bound)
    if found is None:
        return None
    since, zoned = found
    if zoned is not None and zoned != (getattr(data_type, "tz", None) is not None):
        raise InputError(
            f"column {column!r} is {data_type} and the bound {shown(bound)} has "
            f"{'a' if zoned else 'no'} time zone; give both a time zone or neither"
        )
    return since


def _instant(bound: Any) -> tuple[Fraction, bool | None] | None:
    """Nanoseconds since 1970, and whether it has a zone; None: a day has neither."""
    if isinstance(bound, pa.Scalar):
        return _arrow_instant(bound) if bound.is_valid else None
    if isinstance(bound, np.datetime64):
        return _numpy_instant(bound), False
    if isinstance(bound, dt.datetime):
        offset = bound.utcoffset()
        since = (bound.toordinal() - _EPOCH) * _DAY + _clock(bound)
        return since - nanoseconds(offset or dt.timedelta()), offset is not None
    if isinstance(bound, dt.date):
        return Fraction((bound.toordinal() - _EPOCH) * _DAY), None
    return None


def _arrow_instant(bound: Any) -> tuple[Fraction, bool | None] | None:
    if pa.types.is_date(bound.type):
        return Fraction(bound.value * unit_nanoseconds(bound.type)), None
    if not pa.types.is_timestamp(bound.type):
        return None
    return Fraction(bound.value * unit_nanoseconds(bound.type)), bound.type.tz is not None


def _numpy_instant(bound: np.datetime64) -> Fraction:
    if np.datetime_data(bound)[0] in ("Y", "M"):
        bound = bound.astype("datetime64[D]")
    unit, step = np.datetime_data(bound)
    since: Any = np.timedelta64(int(bound.view(np.int64)) * step, unit)  # type: ignore[call-overload]
    return nanoseconds(since)
