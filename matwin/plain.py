r"""Columns as text formats hold them.

    column            CSV, terminal            JSON
    timestamp         as Arrow writes it       ISO 8601; with a time zone, in UTC with a Z
    duration          "1500ms", which we read  the same
    interval          "1 month 2 days 03:00:00", as DuckDB writes it, in both
    bytes             base64; on a terminal    base64
                      a\x00b, as DuckDB
    list, struct      JSON text                itself
    NaN, ±inf         as they are              null
    decimal           as it is                 text, exactly

Dictionaries, views and run-end encodings are their values.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from base64 import b64encode
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.columns import cast_columns
from matwin.storage.encodings import plain_type
from matwin.storage.units import nanoseconds


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries, views and run-end encodings."""
    schema = pa.schema([field.with_type(_flat_type(field.type)) for field in batch.schema])
    return batch if schema.types == batch.schema.types else cast_columns(batch, schema)


def csv_type(data_type: pa.DataType) -> pa.DataType:
    """What a column of this type is in CSV."""
    flat = _flat_type(data_type)
    return flat if _is_simple(flat) else pa.string()


def _flat_type(data_type: pa.DataType) -> pa.DataType:
    """What a dictionary, a view or an encoding is of; lists of all kinds become JSON anyway."""
    is_list_like = pa.types.is_nested(data_type) and not pa.types.is_run_end_encoded(data_type)
    return data_type if is_list_like else plain_type(data_type)


def csv_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch as CSV can hold it; `schema` has the types of `csv_type`."""
    columns = [
        column if column.type == field.type else _text(column)
        for column, field in zip(decoded(batch).columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as dicts that JSON can hold."""
    names = batch.schema.names
    columns = [_json_values(column) for column in decoded(batch).columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown_rows(batch: pa.RecordBatch) -> list[list[str]]:
    """The rows as texts for a person."""
    columns = [
        ["null" if value is None else value for value in _shown(column).to_pylist()]
        for column in decoded(batch).columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if one is None else bytes_text(one) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column.cast(pa.string()) if _is_simple(column.type) else _text(column)


def _is_simple(data_type: pa.DataType) -> bool:
    """Whether Arrow itself writes the type as text that can be read back."""
    t = pa.types
    is_number = t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type)
    is_time = t.is_timestamp(data_type) or t.is_date(data_type) or t.is_time(data_type)
    is_text = t.is_string(data_type) or t.is_large_string(data_type)
    is_flat = is_number or is_time or is_text
    return bool(is_flat or t.is_boolean(data_type) or t.is_null(data_type))


def _text(column: pa.Array) -> pa.Array:
    """Text for what is not simple."""
    values = _json_values(column)
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    ]
    return pa.array(texts, pa.string())


def _json_values(column: pa.Array) -> list[Any]:
    t, data_type = pa.types, column.type
    if t.is_timestamp(data_type):
        values = _iso(column)
    elif t.is_duration(data_type):
        count = column.cast(pa.int64()).cast(pa.string())
        values = pc.binary_join_element_wise(count, data_type.unit, "")
    elif t.is_date(data_type) or t.is_time(data_type) or t.is_decimal(data_type):
        values = column.cast(pa.string())
    elif t.is_floating(data_type):
        wide = column.cast(pa.float64())
        values = pc.if_else(pc.is_finite(wide), wide, pa.scalar(None, pa.float64()))
    elif _is_simple(data_type):
        values = column
    else:
        return [_clean(value) for value in column.to_pylist()]
    listed: list[Any] = values.to_pylist()
    return listed


def _iso(column: pa.Array) -> pa.Array:
    naive = column.cast(pa.timestamp(column.type.unit))  # of a moment: its UTC time
    text = pc.replace_substring(naive.cast(pa.string()), " ", "T", max_replacements=1)
    return text if column.type.tz is None else pc.binary_join_element_wise(text, "Z", "")


def _clean(value: Any) -> Any:
    """A nested value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return interval_text(*value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration_text(nanoseconds(value))
    return str(value) if isinstance(value, decimal.Decimal) else value


def bytes_text(value: bytes) -> str:
    r"""Bytes as DuckDB shows them: plain signs, and the others by their numbers.

    >>> print(bytes_text(b"a\x00b"))
    a\x00b
    """
    return "".join(chr(one) if 32 <= one < 127 and one != 92 else f"\\x{one:02X}" for one in value)


def interval_text(months: int, days: int, nanos: int) -> str:
    """Months, days and a time as DuckDB writes them.

    >>> interval_text(14, 1, 7_200_000_000_000), interval_text(0, 0, -1_500_000_000)
    ('1 year 2 months 1 day 02:00:00', '-00:00:01.5')
    """
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    counts = {"year": sign * years, "month": sign * rest, "day": days}
    words = [f"{n} {unit}{'s' if abs(n) != 1 else ''}" for unit, n in counts.items() if n]
    if nanos or not words:
        seconds, fraction = divmod(abs(nanos), 10**9)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        part = f".{fraction:09}".rstrip("0") if fraction else ""
        words.append(f"{'-' if nanos < 0 else ''}{clock}{part}")
    return " ".join(words)


def _duration_text(exact: Fraction) -> str:
    """In microseconds where that is exact, else in nanoseconds."""
    return f"{exact // 1000}us" if exact % 1000 == 0 else f"{exact}ns"
