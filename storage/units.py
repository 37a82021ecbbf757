"""Sizes and durations as people write them: ``"256MiB"``, ``"10min"``, ``timedelta(seconds=5)``.

    text            "10min", "1h30min", "-1.5h"      a sign at most, then numbers with their units,
                                                     the largest unit first, each once
    timedelta       also pandas' Timedelta, to the nanosecond
    timedelta64     NumPy's, of any unit but months and years, which have no length
    DurationScalar  Arrow's

`in_units` is the one place where such a duration becomes a count of a column's own unit.  It is
exact: what is no whole number of the unit is refused, never rounded.  A bare number on a column of
times is refused as well, because nobody can see its unit; 0 needs none.  Numbers go with columns of
numbers, and there fractions are rounded on columns of whole numbers, in the direction that the
caller says.

>>> parse_size("256MiB")
268435456
>>> parse_duration("1.5h", "s")
5400
>>> format_size(268435456)
'256 MiB'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from .columns import is_temporal
from .errors import InputError

_SIZES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*([^\W\d_]*)\s*")
_SECOND = 10**9
_NANOSECONDS: dict[str, int | Fraction] = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND,
    "D": 86_400 * _SECOND, "W": 7 * 86_400 * _SECOND,
    "ps": Fraction(1, 10**3), "fs": Fraction(1, 10**6), "as": Fraction(1, 10**9),
}  # fmt: skip
"""By NumPy's names of units; Arrow's are among them."""
_WORDS = {
    "ns": "ns", "us": "us", "µs": "us", "μs": "us", "ms": "ms", "s": "s", "sec": "s", "secs": "s",
    "second": "s", "seconds": "s", "m": "m", "min": "m", "mins": "m", "minute": "m",
    "minutes": "m", "h": "h", "hour": "h", "hours": "h",
    "d": "D", "day": "D", "days": "D", "w": "W", "week": "W", "weeks": "W",
}  # fmt: skip
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([^\W\d_]+)\s*")
HOW_TO_WRITE = (
    "write text such as '10min', '1h30min' or '-1.5s' (units w, d, h, min, s, ms, us, ns, the "
    "largest first), or a timedelta"
)

_NUMBERS = (int, float, Decimal, np.integer, np.floating)
Duration: TypeAlias = "str | timedelta | np.timedelta64 | pa.DurationScalar"
"""pandas' Timedelta is a timedelta."""
Amount: TypeAlias = "int | float | Decimal | Duration"
Tolerance: TypeAlias = "Amount | tuple[Any, Any] | None"
Rounding = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Counts:
    """A tolerance that is given in the column's own unit: how we hand on what we have read."""

    lo: int | float
    hi: int | float


def parse_size(size: int | str) -> int:
    """Bytes in a size given as a number or as text with a unit."""
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    factor = _SIZES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InputError(f"{size!r} is not a size; write bytes, or text such as '256MiB'")
    return int(Decimal(match[1]) * factor)


def format_size(size: int) -> str:
    """A size in the largest binary unit that leaves a readable number."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def parse_duration(duration: Duration, unit: str) -> int:
    """A duration in whole `unit`s (``"s"``, ``"ms"``, ``"us"``, ``"ns"``, ``"D"``), exactly.

    >>> parse_duration("-10min", "ms"), parse_duration(np.timedelta64(3, "h"), "s")
    (-600000, 10800)
    """
    amount = nanoseconds(duration) / _NANOSECONDS[unit]
    if amount.denominator != 1:
        raise InputError(
            f"{shown(duration)} is not a whole number of {unit}, the column's resolution"
        )
    return int(amount)


def shown(value: object) -> str:
    """A value as messages show it.  Arrow can't show times and durations that Python can't hold."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    try:
        return repr(value)
    except (OverflowError, ValueError):
        count, unit = (
            getattr(value, "value", "?"),
            getattr(getattr(value, "type", None), "unit", ""),
        )
        return f"{type(value).__name__}({count}{unit})"


def is_duration(value: object) -> bool:
    """Whether a value is a length of time that says its unit."""
    return isinstance(value, str | timedelta | np.timedelta64 | pa.DurationScalar)


def nanoseconds(duration: Duration) -> Fraction:
    """The length of a duration, exactly."""
    if isinstance(duration, timedelta):
        seconds = duration.days * 86_400 + duration.seconds
        below = getattr(duration, "nanoseconds", 0)  # pandas has them, Python does not
        return Fraction(seconds * _SECOND + duration.microseconds * 1000 + below)
    if isinstance(duration, np.timedelta64):
        return _numpy_nanoseconds(duration)
    if isinstance(duration, pa.DurationScalar):
        if not duration.is_valid:
            raise InputError("null is not a duration")
        return Fraction(duration.value * _NANOSECONDS[duration.type.unit])
    return _text_nanoseconds(duration)


def seconds_of(duration: Duration) -> float:
    """The length of a duration in seconds, for clocks."""
    try:
        return float(nanoseconds(duration)) / _SECOND
    except OverflowError as e:
        raise InputError(f"{shown(duration):.60} is longer than a clock can count") from e


def _numpy_nanoseconds(duration: np.timedelta64) -> Fraction:
    unit, step = np.datetime_data(duration)
    count = int(duration.view(np.int64)) * step
    if np.isnat(duration):
        raise InputError("NaT is not a duration")
    if unit in _NANOSECONDS:
        return Fraction(count * _NANOSECONDS[unit])
    if count == 0:
        return Fraction(0)
    problem = "has no unit" if unit == "generic" else "has no fixed length"
    raise InputError(f"{shown(duration)} {problem}; {HOW_TO_WRITE}")


def _text_nanoseconds(text: str) -> Fraction:
    body = text.strip()
    sign = -1 if body.startswith("-") else 1
    position = 1 if body[:1] in ("-", "+") else 0
    total = Fraction(0)
    units: list[int | Fraction] = []
    while position < len(body) or not units:
        match = _AMOUNT.match(body, position)
        factor = _NANOSECONDS.get(_WORDS.get(match[2], "")) if match else None
        if match is None or factor is None or (units and factor >= units[-1]):
            raise InputError(f"{text!r} is not a duration; {HOW_TO_WRITE}")
        total += Fraction(match[1]) * factor
        position = match.end()
        units.append(factor)
    return sign * total


def in_units(amount: Any, field: pa.Field, *, rounding: Rounding) -> int | float:
    """An amount of a column in its own unit: a duration for times, a number for numbers.

    `rounding` is for fractions on columns of whole numbers.

    >>> in_units("5s", pa.field("t", pa.timestamp("ms")), rounding=math.ceil)
    5000
    >>> in_units(2.5, pa.field("x", pa.int64()), rounding=math.ceil)
    3
    """
    name, data_type = field.name, field.type
    if pa.types.is_decimal(data_type):
        return rounding(_decimal(amount, field) * Fraction(10) ** data_type.scale)
    if is_duration(amount):
        if not is_temporal(data_type):
            raise InputError(
                f"column {name!r} is {data_type}: a tolerance of time needs a time column"
            )
        try:
            return parse_duration(amount, unit_of(data_type))
        except InputError as e:
            raise InputError(f"column {name!r}: {e}") from e
    if isinstance(amount, bool) or not isinstance(amount, _NUMBERS):
        raise InputError(f"column {name!r}: {shown(amount)} is not a tolerance")
    if not isinstance(amount, int | np.integer) and not math.isfinite(amount):
        raise InputError(f"column {name!r}: the tolerance must be finite; use None for no limit")
    if is_temporal(data_type) and amount != 0:
        raise InputError(no_unit(amount, field))
    if pa.types.is_floating(data_type):
        return _as_float(amount, name)
    return rounding(amount)


def _decimal(amount: Any, field: pa.Field) -> Fraction:
    """An amount of a column of decimals as it is written: 0.29 is 29 hundredths, and not the float
    below."""
    try:
        if isinstance(amount, bool) or not isinstance(amount, (str, Fraction, *_NUMBERS)):
            raise ValueError
        return amount if isinstance(amount, Fraction) else Fraction(Decimal(str(amount)))
    except (ValueError, OverflowError, ArithmeticError) as e:
        raise InputError(
            f"column {field.name!r} holds decimals: {shown(amount)} is not a tolerance; give a "
            "finite number, a Decimal, or one as text such as '0.05'"
        ) from e


def no_unit(amount: Any, field: pa.Field) -> str:
    """What is said of a bare number where a time is needed."""
    return (
        f"column {field.name!r} is {field.type}, and the number {amount} does not say its unit; "
        f"{HOW_TO_WRITE}"
    )


def _as_float(amount: Any, name: str) -> float:
    try:
        return float(amount)
    except OverflowError as e:
        raise InputError(f"column {name!r}: no float is as large as {amount}") from e


def unit_of(data_type: pa.DataType) -> str:
    """The unit that values of a type of times are counts of, by NumPy's name."""
    if pa.types.is_date32(data_type):
        return "D"
    return "ms" if pa.types.is_date64(data_type) else str(data_type.unit)


def unit_nanoseconds(data_type: pa.DataType) -> int:
    """How long that unit is."""
    return int(_NANOSECONDS[unit_of(data_type)])


def limits_of(tolerance: Any, field: pa.Field) -> tuple[int | float, int | float] | None:
    """The least and the greatest difference that a tolerance admits, in the column's own unit.

    A fraction on a column of whole numbers is rounded inwards, which admits the same differences.

    >>> limits_of(("-1.5s", 0), pa.field("t", pa.timestamp("ms")))
    (-1500, 0)
    """
    if tolerance is None:
        return None
    if isinstance(tolerance, Counts):
        lo, hi = tolerance.lo, tolerance.hi
    elif isinstance(tolerance, tuple):
        if len(tolerance) != 2:
            raise InputError(f"column {field.name!r}: a tolerance is one value or a pair (lo, hi)")
        lo = in_units(tolerance[0], field, rounding=math.ceil)
        hi = in_units(tolerance[1], field, rounding=math.floor)
    else:
        hi = in_units(tolerance, field, rounding=math.floor)
        lo = -hi
        if hi < 0:
            raise InputError(
                f"column {field.name!r}: the tolerance {shown(tolerance)} is negative; it is a "
                "distance to either side, so leave out the sign, or give both ends of right - left "
                "(on the command line -10min..0s)"
            )
    if lo > hi:
        told = f"from {lo} to {hi}" if isinstance(tolerance, Counts) else shown(tolerance)
        raise InputError(
            f"column {field.name!r}: the tolerance {told} admits nothing: its lower end comes "
            "first and must not be above the upper one"
        )
    return lo, hi
