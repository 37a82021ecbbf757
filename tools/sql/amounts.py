"""Amounts in a query: numbers and lengths of time, exactly.

    5, -2.5, 60 * 5                            numbers, as fractions
    interval '10 minutes', interval 5 minute   lengths of time, in nanoseconds
    '10 minutes'::interval, to_seconds(5)
    '10min', '1h30min'                         as everywhere in MatWin

Months and years have no length and are no amounts.  A bound that is left open and one that is not
become what the joins take (`tolerance`): on whole numbers the next whole number inside.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from matwin.bounds import Strict
from matwin.storage.columns import is_temporal
from matwin.storage.errors import InputError
from matwin.storage.units import nanoseconds, unit_nanoseconds

from .dialect import RAW

_SECOND = 10**9
UNITS = {
    "nanosecond": 1, "ns": 1, "microsecond": 10**3, "us": 10**3, "usec": 10**3,
    "millisecond": 10**6, "ms": 10**6, "msec": 10**6,
    "second": _SECOND, "sec": _SECOND, "s": _SECOND, "minute": 60 * _SECOND, "min": 60 * _SECOND,
    "m": 60 * _SECOND, "hour": 3600 * _SECOND, "hr": 3600 * _SECOND, "h": 3600 * _SECOND,
    "day": 86_400 * _SECOND, "d": 86_400 * _SECOND, "week": 7 * 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
}  # fmt: skip
_SHOWN = (
    ("d", 86_400 * _SECOND), ("h", 3600 * _SECOND), ("min", 60 * _SECOND), ("s", _SECOND),
    ("ms", 10**6), ("us", 10**3), ("ns", 1),
)  # fmt: skip
_FRACTIONAL = (_SECOND, 10**6)
"""Units of which DuckDB takes parts: seconds and milliseconds."""
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?\s*")
_PLAIN = re.compile(r"\s*[+-]?\d+(?:\.\d+)?\s*")
_TO = re.compile(r"to_(\w+?)s?$")
DIGITS_MAX = 400


@dataclass(frozen=True, slots=True)
class Amount:
    """A number, or nanoseconds where `is_time`."""

    value: Fraction
    is_time: bool = False

    def __neg__(self) -> Amount:
        return Amount(-self.value, self.is_time)

    def __str__(self) -> str:
        return shown_time(self.value) if self.is_time else shown_number(self.value)


def shown_number(value: Fraction) -> str:
    """A number as people write it."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value)!r}"


def shown_time(value: Fraction) -> str:
    """A length of time as the joins take it: ``10min``, ``1h30min``."""
    if value == 0:
        return "0s"
    rest, parts = abs(value), ""
    for unit, length in _SHOWN:
        count = rest // length
        if count:
            parts += f"{count}{unit}"
            rest -= count * length
    if rest:
        raise InputError(f"{float(value)} ns is finer than a nanosecond")
    return f"-{parts}" if value < 0 else parts


def amount_of(node: exp.Expr | None) -> Amount | None:
    """The amount that an expression without columns is; None where it is none."""
    match node:
        case exp.Paren():
            return amount_of(node.this)
        case exp.Neg():
            inner = amount_of(node.this)
            return None if inner is None else -inner
        case exp.Literal():
            return text_amount(node.this) if node.is_string else _number(node.this)
        case exp.Interval():
            return _interval(node)
        case exp.Cast() if node.to.is_type("interval"):
            return _words(node.this.this) if isinstance(node.this, exp.Literal) else None
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _computed(node)
        case exp.Anonymous():
            return _function(node)
    return None


def _number(text: str) -> Amount | None:
    try:
        return Amount(Fraction(text.replace("_", ""))) if len(text) <= DIGITS_MAX else None
    except (ValueError, OverflowError):
        return None


def text_amount(text: str) -> Amount | None:
    """A length of time in text: ours, or as DuckDB's intervals are written."""
    try:
        return Amount(nanoseconds(text), True)
    except InputError:
        return _words(text)


def _interval(node: exp.Interval) -> Amount | None:
    unit, count = node.args.get("unit"), node.this
    raw = node.meta.get(RAW)
    if raw is not None and not _PLAIN.fullmatch(raw):
        return _words(raw)
    if isinstance(count, exp.Paren):
        count = count.this
    if unit is None:
        return _words(count.this) if isinstance(count, exp.Literal) else None
    length = UNITS.get(_singular(unit.name))
    inner = _number(count.this) if isinstance(count, exp.Literal) else amount_of(count)
    if length is None or inner is None or inner.is_time:
        return None
    # DuckDB drops the rest of `interval 1.5 hours`, though not of `interval '1.5 hours'`.
    count_of = inner.value if length in _FRACTIONAL else math.trunc(inner.value)
    return Amount(Fraction(count_of) * length, True)


def _singular(unit: str) -> str:
    unit = unit.lower()
    return unit[:-1] if len(unit) > 2 and unit.endswith("s") and unit[:-1] in UNITS else unit


def _words(text: str) -> Amount | None:
    """``1 hour 30 minutes``, ``00:10:00``, ``1 day 02:00``."""
    if len(text) > DIGITS_MAX:
        return None
    total, at = Fraction(0), 0
    while at < len(text) or not at:
        if clock := _CLOCK.match(text, at):
            sign = -1 if clock[1] == "-" else 1
            seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + Fraction(clock[4] or "0")
            total, at = total + sign * seconds * _SECOND, clock.end()
            continue
        part = _PART.match(text, at)
        length = UNITS.get(_singular(part[2])) if part else None
        if part is None or length is None:
            return None
        total, at = total + Fraction(part[1]) * length, part.end()
    return Amount(total, True)


def _function(node: exp.Anonymous) -> Amount | None:
    """``to_seconds(5)`` and its like."""
    name = _TO.match(node.name.lower())
    length = UNITS.get(name[1]) if name else None
    inner = amount_of(node.expressions[0]) if len(node.expressions) == 1 else None
    if length is None or inner is None or inner.is_time:
        return None
    if inner.value.denominator != 1 and length not in _FRACTIONAL:
        return None  # DuckDB rounds it
    return Amount(inner.value * length, True)


def _computed(node: exp.Binary) -> Amount | None:
    left, right = amount_of(node.this), amount_of(node.expression)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Add | exp.Sub):
        sign = -1 if isinstance(node, exp.Sub) else 1
        same = left.is_time == right.is_time
        return Amount(left.value + sign * right.value, left.is_time) if same else None
    if isinstance(node, exp.Mul) and not (left.is_time and right.is_time):
        return Amount(left.value * right.value, left.is_time or right.is_time)
    return None  # a quotient is rounded, and how depends on DuckDB's types


@dataclass(frozen=True, slots=True)
class Range:
    """``lo <= right - left <= hi``; None is no end, and an open end is not within."""

    lo: Amount | None = None
    hi: Amount | None = None
    is_open: tuple[bool, bool] = (False, False)

    def swapped(self) -> Range:
        """The same for ``left - right``."""
        lo = None if self.hi is None else -self.hi
        hi = None if self.lo is None else -self.lo
        return Range(lo, hi, (self.is_open[1], self.is_open[0]))

    def meet(self, other: Range) -> Range:
        """What is within both."""
        lo, lo_open = _stricter((self.lo, self.is_open[0]), (other.lo, other.is_open[0]), 1)
        hi, hi_open = _stricter((self.hi, self.is_open[1]), (other.hi, other.is_open[1]), -1)
        return Range(lo, hi, (lo_open, hi_open))

    @property
    def is_bounded(self) -> bool:
        """Whether it has both ends."""
        return self.lo is not None and self.hi is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is within."""
        if self.lo is None or self.hi is None:
            return False
        return self.lo.value > self.hi.value or (
            self.lo.value == self.hi.value and any(self.is_open)
        )

    @property
    def is_time(self) -> bool | None:
        """Whether its ends are lengths of time; None where both are 0, which has no unit."""
        kinds = {end.is_time for end in (self.lo, self.hi) if end is not None and end.value}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def is_mixed(self) -> bool:
        """Whether one end is a number and the other a length of time."""
        kinds = {end.is_time for end in (self.lo, self.hi) if end is not None and end.value}
        return len(kinds) > 1

    def __str__(self) -> str:
        lo, hi = self.lo, self.hi
        if lo is not None and hi is not None and -lo.value == hi.value and not any(self.is_open):
            return f"±{hi}"
        left = "" if lo is None else f"{lo} {'<' if self.is_open[0] else '<='} "
        right = "" if hi is None else f" {'<' if self.is_open[1] else '<='} {hi}"
        return f"{left}right - left{right}"


def _stricter(
    one: tuple[Amount | None, bool], other: tuple[Amount | None, bool], inward: int
) -> tuple[Amount | None, bool]:
    if one[0] is None:
        return other
    if other[0] is None:
        return one
    if one[0].value == other[0].value:
        return (one[0] if one[0].is_time else other[0]), one[1] or other[1]
    return one if (one[0].value > other[0].value) == (inward > 0) else other


def tolerance(limits: Range, data_type: pa.DataType) -> Any:
    """The range as a join's argument, for columns that are compared as this type."""
    ends = [_end(limits, side, data_type) for side in (0, 1)]
    values = tuple(value for value, _ in ends)
    if not any(is_open for _, is_open in ends):
        lo, hi = values
        is_even = lo is not None and hi is not None and _is_even(limits)
        return hi if is_even and limits.hi and limits.hi.value > 0 else (lo, hi)
    return Strict(values[0], values[1], (ends[0][1], ends[1][1]))


def _is_even(limits: Range) -> bool:
    assert limits.lo is not None and limits.hi is not None
    return -limits.lo.value == limits.hi.value and limits.is_open[0] == limits.is_open[1]


def _end(limits: Range, side: int, data_type: pa.DataType) -> tuple[Any, bool]:
    """An end in the form a join takes, and whether it is still open."""
    end, is_open = (limits.lo, limits.hi)[side], limits.is_open[side]
    if end is None:
        return None, False
    if pa.types.is_floating(data_type):
        return float(end.value), is_open
    round_inward = math.ceil if side == 0 else math.floor
    if is_temporal(data_type):
        length = end.value if end.is_time or not end.value else end.value * UNITS["day"]
        unit = unit_nanoseconds(data_type)
        whole = round_inward(length / unit) * unit
        return shown_time(Fraction(whole)), is_open and whole == length
    inward = 1 if side == 0 else -1
    length = end.value * _counts_in_one(data_type)
    whole = round_inward(length)
    whole += inward if is_open and whole == length else 0
    if pa.types.is_decimal(data_type):
        return Decimal(whole).scaleb(-data_type.scale), False
    return whole, False


def _counts_in_one(data_type: pa.DataType) -> Fraction:
    """How many of what a column counts in make 1."""
    return Fraction(10) ** (data_type.scale if pa.types.is_decimal(data_type) else 0)


def admits_nothing(limits: Range, data_type: pa.DataType) -> bool:
    """Whether no two values of a type are so far apart: ``0 < b - a < 1`` on whole numbers."""
    if limits.is_empty:
        return True
    if not limits.is_bounded or pa.types.is_floating(data_type):
        return False
    unit: Fraction = 1 / _counts_in_one(data_type)
    if is_temporal(data_type):
        unit = Fraction(unit_nanoseconds(data_type))
    lo, hi = (_counted(end, unit) for end in (limits.lo, limits.hi))
    first = math.floor(lo) + 1 if limits.is_open[0] else math.ceil(lo)
    last = math.ceil(hi) - 1 if limits.is_open[1] else math.floor(hi)
    return first > last


def _counted(end: Amount | None, unit: Fraction) -> Fraction:
    """An end in units of a column; a number on a date is days."""
    assert end is not None
    is_days = unit > 1 and not end.is_time
    return end.value * UNITS["day"] / unit if is_days else end.value / unit
