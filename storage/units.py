"""Sizes and durations as people write them: ``"256MiB"``, ``"10min"``.

>>> parse_size("256MiB")
268435456
>>> parse_duration("1.5h", "s")
5400
>>> format_size(268435456)
'256 MiB'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from .errors import InputError

_SIZES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9,
    "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "hour": 3600 * 10**9,
    "d": 86400 * 10**9, "day": 86400 * 10**9, "w": 7 * 86400 * 10**9, "week": 7 * 86400 * 10**9,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([^\W\d_]*)\s*")


@dataclass(frozen=True, slots=True)
class Counts:
    """A tolerance that is given in the column's own unit: how we hand on what we have read."""

    lo: int | float
    hi: int | float


def parse_size(size: int | str) -> int:
    """Bytes in a size given as a number or as text with a unit."""
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _NUMBER_AND_UNIT.fullmatch(size) if isinstance(size, str) else None
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


def parse_duration(duration: str | timedelta, unit: str) -> int:
    """A duration in whole `unit`s (``"s"``, ``"ms"``, ``"us"``, ``"ns"``, ``"D"``), exactly.

    >>> parse_duration("-10min", "ms")
    -600000
    """
    if isinstance(duration, timedelta):
        nanoseconds = Fraction((duration // timedelta(microseconds=1)) * 1000)
    else:
        nanoseconds = _text_nanoseconds(duration)
    amount = nanoseconds / (_NANOSECONDS["d"] if unit == "D" else _NANOSECONDS[unit])
    if amount.denominator != 1:
        raise InputError(f"{duration!r} is not a whole number of {unit}, the column's resolution")
    return int(amount)


def _text_nanoseconds(text: str) -> Fraction:
    total, position = Fraction(0), 0
    sign = -1 if text.lstrip().startswith("-") else 1
    while position < len(text) or position == 0:
        match = _NUMBER_AND_UNIT.match(text, position)
        factor = match and (_NANOSECONDS.get(match[2]) or _NANOSECONDS.get(match[2].rstrip("s")))
        if not match or not factor:
            raise InputError(f"{text!r} is not a duration; write text such as '10min' or '1h30min'")
        total += abs(Fraction(match[1])) * factor
        position = match.end()
    return sign * total
