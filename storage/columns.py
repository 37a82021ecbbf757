"""Arrow columns as plain 64-bit numbers.

Everything the engine compares is one of three things: an ``int64`` (integers, times, dates,
durations), a ``uint64``, or a ``float64``.  `physical` gives that view of a column without a copy
where the memory already looks so; `order_key` turns any of them into an ``int64`` that sorts the
same way, so that fences, expiry bounds and sort keys have one type.

    column  ──physical──▶  values + validity  ──order_key──▶  int64, NO_VALUE for null and NaN

Left out: decimals, which are compared as counts of their last digit (`decimals.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import as_numpy
from .checksum import crc32
from .encodings import plain_array
from .errors import InputError

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
NO_VALUE = INT64_MAX
"""The order key of null and NaN: after everything, below nothing."""

_STORED_AS = {
    pa.types.is_date32: np.int32,
    pa.types.is_time32: np.int32,
    pa.types.is_date64: np.int64,
    pa.types.is_time64: np.int64,
    pa.types.is_timestamp: np.int64,
    pa.types.is_duration: np.int64,
}


def is_temporal(data_type: pa.DataType) -> bool:
    """Whether values are stored as a count of time units."""
    return any(test(data_type) for test in _STORED_AS)


def is_numeric(data_type: pa.DataType) -> bool:
    """Whether values can be a join attribute: they have an order and a distance."""
    return (
        pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or is_temporal(data_type)
    )


def is_measurable(data_type: pa.DataType) -> bool:
    """Whether a user's column can be a join attribute: decimals are, as counts of a digit."""
    return is_numeric(data_type) or bool(pa.types.is_decimal(data_type))


def compared_dtype(data_type: pa.DataType) -> pa.DataType:
    """The type in which values that are compared as this type are stored."""
    return pa.int64() if pa.types.is_decimal(data_type) else data_type


def stored_dtype(data_type: pa.DataType) -> np.dtype[Any]:
    """The NumPy type of a numeric column's buffer."""
    stored = next((kind for test, kind in _STORED_AS.items() if test(data_type)), None)
    return np.dtype(stored or data_type.to_pandas_dtype())


def physical(column: pa.Array) -> tuple[npt.NDArray[Any], Bools | None]:
    """A numeric column's values as stored, and which are valid (None: all of them)."""
    dtype = stored_dtype(column.type)
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        values = np.zeros(len(column), dtype)
    else:
        values = np.frombuffer(buffer, dtype, count=column.offset + len(column))[column.offset :]
    valid = None if column.null_count == 0 else as_numpy(column.is_valid())
    return values, valid


def comparable(column: pa.Array) -> tuple[npt.NDArray[Any], Bools | None]:
    """Values widened to int64, uint64 or float64, and which of them count (not null, not NaN)."""
    values, valid = physical(column)
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
        nan = np.isnan(values)
        if nan.any():
            valid = ~nan if valid is None else valid & ~nan
    elif values.dtype != np.uint64:
        values = values.astype(np.int64, copy=False)
    return values, valid


def order_key(column: pa.Array) -> Int64s:
    """Numbers that sort as the column does; null and NaN last, -0.0 equal to 0.0.

    >>> order_key(pa.array([-1.5, -0.0, 0.0, None, float("nan")])).argsort(kind="stable").tolist()
    [0, 1, 2, 3, 4]
    """
    values, valid = comparable(column)
    if values.dtype == np.float64:
        keys = float_key(values)
    elif values.dtype == np.uint64:
        keys = (values ^ np.uint64(1 << 63)).view(np.int64)
    else:
        keys = values
    return keys if valid is None else np.where(valid, keys, NO_VALUE)


def float_key(values: npt.NDArray[np.float64]) -> Int64s:
    """Bits of a float rearranged so that they compare like the floats."""
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return np.where(bits < 0, bits ^ INT64_MAX, bits)


def floats_of_keys(keys: Int64s) -> npt.NDArray[np.float64]:
    """The floats that have these order keys."""
    values: npt.NDArray[np.float64] = np.where(keys < 0, keys ^ INT64_MAX, keys).view(np.float64)
    return values + 0.0


def key_code(column: pa.Array, name: str, *, salt: int = 0) -> Int64s:
    """One number for each value of an equality key; equal values have equal codes.

    Numbers and times are their own code.  Text and bytes are hashed: two keys may share a code,
    which costs a comparison later and never a match.  Another `salt` is another hash.
    """
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if has_own_code(column.type):
        return order_key(column)
    codes = hash_bytes(key_bytes(column, name), salt)
    return codes if column.null_count == 0 else np.where(_valid(column), codes, NO_VALUE)


def has_own_code(data_type: pa.DataType) -> bool:
    """Whether the values of an equality key are their own codes."""
    return is_numeric(data_type) or bool(pa.types.is_boolean(data_type))


def _valid(column: pa.Array) -> Bools:
    valid: Bools = as_numpy(column.is_valid())
    return valid


def key_bytes(column: pa.Array, name: str) -> pa.Array:
    """The values of an equality key that is not a number, as bytes: equal where they are."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    try:
        return column.cast(pa.large_binary())
    except pa.ArrowNotImplementedError as e:
        raise InputError(
            f"column {name!r} is {column.type}: an equality key must be a number, a time, text, "
            "bytes, a decimal or true/false"
        ) from e


def hash_bytes(column: pa.Array, salt: int = 0) -> Int64s:
    """A 64-bit hash of each value of a ``large_binary`` column, eight bytes at a time.

    All values advance together, so the work is a few array operations for each eight bytes of the
    longest value instead of Python for each row.
    """
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column) + 1]
    data = column.buffers()[2]
    padded = np.zeros((int(offsets[-1]) if len(offsets) else 0) + 8, np.uint8)
    if data is not None:
        padded[: offsets[-1]] = np.frombuffer(data, np.uint8)[: offsets[-1]]
    words = np.ndarray((len(padded) - 7,), np.uint64, padded, strides=(1,))
    lengths = np.diff(offsets)
    codes = _mixed(lengths.astype(np.uint64) + np.uint64(1 + (salt << 32)))
    active, done = np.flatnonzero(lengths > 0), 0
    while len(active):
        left = lengths[active] - done
        keep = np.where(left >= 8, 0, 64 - 8 * left).astype(np.uint64)
        chunk = words[offsets[:-1][active] + done] << keep >> keep
        codes[active] = _mixed(codes[active] ^ chunk)
        done += 8
        active = active[left > 8]
        if done >= LONG_KEY:
            for row in active.tolist():  # rare: a step for each eight bytes would cost more
                rest = padded[offsets[row] + done : offsets[row + 1]]
                codes[row] ^= np.uint64(_rest_code(rest, salt))
            break
    return _mixed(codes).view(np.int64)


LONG_KEY = 256


def _rest_code(rest: npt.NDArray[np.uint8], salt: int) -> int:
    """The tail of a long key: 32 bits for the cell, 64 where keys are told apart."""
    if salt == 0:
        return crc32(rest) + 1
    digest = hashlib.blake2b(
        rest.tobytes(), digest_size=8, salt=salt.to_bytes(8, "little")
    ).digest()
    return int.from_bytes(digest, "little")


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(32))
    return mixed


def mixed_codes(rows: pa.RecordBatch, keys: Sequence[str]) -> Int64s:
    """One number for all keys of a row, its bits stirred: numbers with a pattern have none then."""
    found = np.zeros(rows.num_rows, np.uint64)
    for key in keys:
        found = _mixed(found * np.uint64(31) + key_code(rows.column(key), key).view(np.uint64))
    return found.view(np.int64)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows.  Arrow's own ways to make one import pandas, which takes 40 MB."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def cast_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `schema`, by name, cast where the type differs."""
    if batch.schema.names != schema.names:
        batch = batch.select(schema.names)
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type != field.type:
            column = _cast(column, field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        plain = plain_array(column)
        if plain.type == field.type:
            return plain
        if pa.types.is_run_end_encoded(field.type):
            return pc.run_end_encode(plain, field.type.run_end_type)
        if pa.types.is_dictionary(field.type):
            return plain.dictionary_encode()
        return plain.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise InputError(
            f"column {field.name!r} is {column.type} and can't be kept as {field.type}: {e}"
        ) from e
