"""Order keys back to values.

`storage.columns.order_key` gives the keys by which everything is ordered:

    integers, times   the number itself
    uint64            its bits with the highest one flipped
    floats            their bits so arranged that they compare like the floats; the next key is the
                      next float (only -1, which would be -0.0, is nobody's)

This is the way back, for messages and for arithmetic in the column's own type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.bounds import bound_place
from matwin.storage.columns import (
    INT64_MAX,
    INT64_MIN,
    Int64s,
    is_temporal,
    stored_dtype,
)

TOP = np.uint64(1 << 63)


def lowered(keys: Int64s, by: npt.NDArray[np.uint64] | np.uint64) -> Int64s:
    """``keys - by``, or the least key there is."""
    room = keys.view(np.uint64) ^ TOP
    lower: Int64s = (keys.view(np.uint64) - np.minimum(room, by)).view(np.int64)
    return lower


def order_zero(data_type: pa.DataType) -> int:
    """The order key of the whole number 0."""
    return INT64_MIN if data_type == pa.uint64() else 0


def float_of_key(key: int) -> float:
    """The float that has this order key."""
    bits = struct.pack("<q", key ^ INT64_MAX if key < 0 else key)
    return float(struct.unpack("<d", bits)[0]) + 0.0


def key_of_float(value: float) -> int:
    """The order key of a float."""
    bits = int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])
    return bits ^ INT64_MAX if bits < 0 else bits


def float_key_within(key: int, length: float) -> int:
    """The order key of the least float from which to this one it is at most `length`.

    As everywhere, the rounded difference decides: subtracting `length` would round as well, and to
    another float where many have the same difference.

    >>> float_of_key(float_key_within(key_of_float(0.7), 8.7))
    -8.0
    >>> 0.7 - 8.7
    -7.999999999999999
    """
    value = float_of_key(key)
    return _first(key_of_float(-math.inf), key, lambda k: value - float_of_key(k) <= length)


def float_key_apart(key: int, length: float) -> int:
    """The order key of the least float to which from this one it is at least `length`.

    >>> float_of_key(float_key_apart(key_of_float(-8.0), 8.7))
    0.6999999999999984
    >>> 0.6999999999999984 - -8.0
    8.7
    """
    value = float_of_key(key)
    return _first(key, key_of_float(math.inf), lambda k: float_of_key(k) - value >= length)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first key from `low` on for which something holds that holds from there to `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def key_value(key: int, field: pa.Field) -> object:
    """The value that has this order key, for messages: a number, or a time as text.

    >>> key_value(1, pa.field("t", pa.timestamp("ns")))
    '1970-01-01 00:00:00.000000001'
    """
    if pa.types.is_floating(field.type):
        return float_of_key(key)
    if is_temporal(field.type):
        return _time_text(key, field.type)
    if pa.types.is_decimal(field.type):
        return Decimal(key).scaleb(-field.type.scale)
    return key - order_zero(field.type)


def _time_text(key: int, data_type: pa.DataType) -> str:
    if not pa.types.is_duration(data_type):
        stored = pa.int32() if stored_dtype(data_type).itemsize == 4 else pa.int64()
        try:
            return str(pa.array([key], stored).view(data_type).cast(pa.string())[0])
        except (pa.ArrowException, OverflowError):  # beyond the calendar, or no time zones here
            pass
    return f"{key} {getattr(data_type, 'unit', data_type)}"


def punctuation_key(upto: object, field: pa.Field) -> int:
    """The largest order key that a punctuation covers: that of the last value not above `upto`.

    >>> punctuation_key(2.5, pa.field("t", pa.int64()))
    2
    """
    key, is_value = bound_place(upto, field.type, field.name)
    return key if is_value else key - 1
