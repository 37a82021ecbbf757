"""Where the cell of a value begins, in order keys: the first key of its cell.

    cells of width w      │  q - 1  │    q    │  q + 1  │
                                    ▲    y              the start of y's cell, q = floor(y / w)

Whole numbers and times are divided exactly; a start below all keys is the least key.

Floats get the benefit of the doubt.  ``floor(y / w)`` depends on how it is computed: 1.0 / 0.1 is
10 and 1.0 // 0.1 is 9.  A stream may be in order by either, so y's cell is the lower of the two,
and it begins `DOUBT` neighbouring floats before q * w, which is more than both can be off.  Cell
numbers that no float64 holds are one cell, the first or the last.

Invariants: the start is monotone in the key, and never after it.  One key at a time and many give
the same; the first is for streams of single rows, where arrays would cost 25 µs a row.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s, float_key, floats_of_keys
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension
from matwin.storage.units import Amount, Counts, in_units

from .keys import TOP, float_of_key, key_of_float, lowered

DOUBT = 8
_LARGEST = 1.7976931348623157e308
_EXACT_BELOW = 2.0**52  # beyond, only the rounded quotient is sure to be monotone
_VANISHING = 2.0**-1074  # a quotient below this vanishes to -0.0, which lies in cell 0


def cell_width(width: Amount | None, field: pa.Field, tolerance: Counts | None) -> int | float:
    """The width that is declared, or else the tolerance ε: of two bounds the one further from 0.
    (Cells of pages are as wide as half of what both span, which is something else.)"""
    if width is not None:
        return in_units(width, field, rounding=lambda fraction: _whole(fraction, field))
    dimension = Dimension.of(field, tolerance)
    if dimension.lo is None or dimension.hi is None:
        raise InputError(
            f"column {field.name!r} has no tolerance that could be the width of its cells; "
            "give it with order=GridOrdered(width)"
        )
    widest = max(abs(dimension.lo), abs(dimension.hi))
    if pa.types.is_floating(field.type):
        if widest == 0:
            raise InputError(
                f"column {field.name!r} has a tolerance of 0, and cells must be wider than that; "
                "give their width with order=GridOrdered(width), or declare the stream sorted"
            )
        return float(widest)
    return min(max(int(widest), 1), INT64_MAX)


def _whole(width: float, field: pa.Field) -> int:
    """A whole number: cells of 2.5 are no cells of 2 or of 3."""
    if width != math.floor(width):
        raise InputError(
            f"column {field.name!r} is {field.type}: cells {width} wide divide no whole numbers; "
            "give order=GridOrdered(...) a whole width"
        )
    return int(width)


def cell_start(key: int, width: int, zero: int) -> int:
    """The start of the key's cell; `zero` is the key of the number 0."""
    return max(key - (key - zero) % width, INT64_MIN)


def cell_starts(keys: Int64s, width: int, zero: int) -> Int64s:
    """The same for many keys."""
    if zero:
        plain = keys.view(np.uint64) ^ TOP
        over = plain % np.uint64(width) if width < 2**64 else plain
    elif width <= INT64_MAX:
        over = (keys % np.int64(width)).view(np.uint64)
    else:  # two cells, below zero and from it on
        over = np.where(keys < 0, TOP, keys.view(np.uint64))
    return lowered(keys, over)


def float_cell_start(key: int, width: float) -> int:
    """The start of the cell of a float's key."""
    if width == 0:
        return key
    value = float_of_key(key)
    cell = min(value / width, _LARGEST)
    if abs(cell) < _EXACT_BELOW:
        cell = min(float(math.floor(cell)), value // width)
    first = cell * width
    if first == 0:
        first -= width * _VANISHING
    if first == -math.inf:
        return INT64_MIN
    return min(key_of_float(min(first, _LARGEST)) - DOUBT, key)


def float_cell_starts(keys: Int64s, width: float) -> Int64s:
    """The same for many keys."""
    if width == 0:
        return keys
    values = floats_of_keys(keys)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        cells = np.minimum(values / width, _LARGEST)
        exact = np.minimum(np.floor(cells), np.floor_divide(values, width))
        first = np.where(np.abs(cells) < _EXACT_BELOW, exact, cells) * width
    first -= np.where(first == 0, width * _VANISHING, 0.0)
    starts = np.minimum(float_key(np.minimum(first, _LARGEST)) - DOUBT, keys)
    return np.where(np.isneginf(first), INT64_MIN, starts)
