"""Decimals as whole numbers of 64 bits: counts of the last digit that both sides have.

    1.5, 2.25  at two digits after the point  ──integers──▶  150, 225  ──decimals──▶  1.50, 2.25

What is compared is exact, and as fast as integers are.  A value that does not fit 64 bits then is
the caller's to refuse: `first_misfit` says which.  The type in which decimals are compared is
written ``decimal64(18, digits)``; only its digits count, and such values are stored as ``int64``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import as_numpy
from .columns import INT64_MAX, Bools, Int64s

PRECISION = 20
"""Digits of the largest distance of two numbers of 64 bits."""


def compared_type(digits: int) -> pa.DataType:
    """The type in which decimals of so many digits after the point are compared."""
    return pa.decimal64(18, digits)


def digits_of(data_type: pa.DataType) -> int:
    """Digits after the point; whole numbers have none."""
    return int(data_type.scale) if pa.types.is_decimal(data_type) else 0


def shown_type(digits: int) -> pa.DataType:
    """The type in which such counts come out."""
    return pa.decimal128(max(PRECISION, min(digits, 38)), digits)


def integers(column: pa.Array, digits: int) -> tuple[Int64s, Bools]:
    """Counts of the last of so many digits, and which of them are right: null and what does not
    fit 64 bits are 0 and not."""
    values, fits = _unscaled(column)
    if column.null_count:
        fits = fits & as_numpy(column.is_valid())
    factor = 10 ** (digits - digits_of(column.type))
    limit = INT64_MAX // factor
    fits = fits & (values >= -limit) & (values <= limit)
    counts: Int64s = np.where(fits, values, 0) * np.int64(min(factor, INT64_MAX))
    return counts, fits


def first_misfit(column: pa.Array, digits: int) -> int | None:
    """The first value that is not null and does not fit; None where there is none."""
    _, fits = integers(column, digits)
    wrong = ~fits
    if column.null_count:
        wrong &= as_numpy(column.is_valid())
    return int(np.argmax(wrong)) if wrong.any() else None


def decimals(counts: npt.NDArray[Any], digits: int) -> pa.Array:
    """Counts, signed or not, as decimals again."""
    words = np.empty((len(counts), 2), np.uint64)
    words[:, 0] = counts.view(np.uint64)
    words[:, 1] = 0 if counts.dtype == np.uint64 else (counts >> 63).view(np.uint64)
    return pa.Array.from_buffers(shown_type(digits), len(counts), [None, pa.py_buffer(words)])


def _unscaled(column: pa.Array) -> tuple[Int64s, Bools]:
    """A column's own counts, as far as they fit 64 bits, and which do."""
    fits: Bools = np.ones(len(column), np.bool_)
    if not pa.types.is_decimal(column.type):
        numbers = _numbers(column, np.dtype(column.type.to_pandas_dtype()), 1)[:, 0]
        if numbers.dtype == np.uint64:
            fits = numbers <= INT64_MAX
        return numbers.astype(np.int64), fits
    width = column.type.byte_width
    if width <= 8:
        return _numbers(column, np.dtype(f"i{width}"), 1)[:, 0].astype(np.int64), fits
    words = _numbers(column, np.dtype(np.int64), width // 8)
    values = words[:, 0]
    # The words above the first repeat its sign where it is all there is.
    fits = (words[:, 1:] == (values >> 63)[:, None]).all(axis=1)
    return values, fits


def _numbers(column: pa.Array, dtype: np.dtype[Any], words: int) -> npt.NDArray[Any]:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros((len(column), words), dtype)
    last = column.offset + len(column)
    found = np.frombuffer(buffer, dtype, count=last * words).reshape(last, words)
    return found[column.offset :]
