"""DuckDB's answer to a window join's question.

    tables ──Arrow──▶ numbers of rows, codes of keys, 64-bit values        s0, s1, s2, …
                          │ DuckDB: tuples of row numbers                   (window_sql.py)
                          │ Python: those for which the functions are true
    tables ──take────▶ the rows of those tuples

As in `answer.py`, DuckDB sees nothing but numbers.  Functions are called for each pair of rows of
their two streams, one by one, with Python's numbers (times as counts of their unit): that is for
small tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.columns import comparable, is_numeric
from matwin.storage.errors import InputError

from .answer import (
    as_common,
    codes_of,
    create_table,
    database_in_memory,
    largest_of,
    plain_table,
)
from .window_question import Condition, Key, PlainQuestion
from .window_sql import tuples_sql

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


def window_answer(tables: Sequence[pa.Table], question: PlainQuestion) -> pa.Table:
    """DuckDB's answer to the question; the tables in the order of its streams."""
    plain = [plain_table(t, schema) for t, schema in zip(tables, question.schemas, strict=True)]
    with database_in_memory() as database:
        largest = _load(database, plain, question)
        found = database.sql(tuples_sql(question, largest)).to_arrow_table()
    tuples = [found[f"r{number}"].to_numpy() for number in range(len(plain))]
    for condition in question.conditions:
        is_true = _is_true(condition, plain, tuples, question)
        tuples = [rows[is_true] for rows in tuples]
    columns = [
        plain[column.stream][column.name].take(pa.array(tuples[column.stream]))
        for column, _ in question.output()
    ]
    return pa.table(columns, schema=question.schema)


# ── numbers for DuckDB ───────────────────────────────────────────────────────────────────────


def _load(database: Any, tables: list[pa.Table], question: PlainQuestion) -> float:
    """Make ``s<i>`` of the rows that can match; the largest time, of either sign."""
    keys = [_key_codes(tables, key) for key in question.keys]
    largest = 0.0
    for number, table in enumerate(tables):
        columns: dict[str, Any] = {"row": np.arange(table.num_rows)}
        columns["t"], is_fit = _values(table, question.times[number], question.time_type)
        for at, codes in enumerate(keys):
            columns[f"k{at}"] = codes[number]
            is_fit &= codes[number] >= 0
        for at, near in enumerate(question.near):
            for column in (near.a, near.b):
                if column.stream == number:
                    columns[f"x{at}"], valid = _values(table, column.name, near.type)
                    is_fit &= valid
        fit = pa.table(columns).filter(pa.array(is_fit))
        largest = max(largest, largest_of(fit, "t"))
        create_table(database, f"s{number}", fit, [_wide(field) for field in fit.schema])
    return largest


def _wide(field: pa.Field) -> str:
    is_value = field.name[0] in "tx" and pa.types.is_integer(field.type)
    return f"{field.name}::HUGEINT AS {field.name}" if is_value else field.name


def _values(table: pa.Table, column: str, common: pa.DataType) -> tuple[Numbers, Bools]:
    """A column's values as numbers, and which of them can match."""
    found = table[column].combine_chunks()
    values, is_there = comparable(as_common(found, column, common))
    valid = np.ones(len(values), np.bool_) if is_there is None else is_there.copy()
    if values.dtype == np.float64:
        valid &= np.isfinite(values)
        values = values + 0.0
    return values, valid


def _key_codes(tables: list[pa.Table], key: Key) -> list[npt.NDArray[np.int64]]:
    """Numbers for the values of a key, the same for equal values; -1 for what never matches."""
    values = pa.concat_arrays(
        as_common(table[name].combine_chunks(), name, key.type)
        for table, name in zip(tables, key.columns, strict=True)
    )
    codes = codes_of(values).fill_null(-1).to_numpy().astype(np.int64)
    return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])


# ── what Python is asked for ─────────────────────────────────────────────────────────────────


def _is_true(
    condition: Condition, tables: list[pa.Table], tuples: list[Numbers], question: PlainQuestion
) -> Bools:
    """For which tuples a function is true; each pair of rows is asked about once."""
    first, second = sorted({column.stream for column in condition.columns})
    pairs = np.stack([tuples[first], tuples[second]], axis=1)
    distinct, places = np.unique(pairs, axis=0, return_inverse=True)
    columns = [tables[c.stream][c.name] for c in condition.columns]
    values = [_python_values(column) for column in _in_one_unit(columns)]
    sides = [0 if column.stream == first else 1 for column in condition.columns]
    found = [
        _called(condition, [value[pair[side]] for value, side in zip(values, sides, strict=True)],
                question)
        for pair in distinct.tolist()
    ]  # fmt: skip
    return np.array(found, np.bool_)[places.reshape(-1)]


UNITS = {"date32[day]": "s", "date64[ms]": "ms"}


def _in_one_unit(columns: list[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """Times in the finest unit among them, as a function gets them."""
    times = [column.type for column in columns if pa.types.is_temporal(column.type)]
    if all(pa.types.is_date32(data_type) for data_type in times):
        return columns
    units = [UNITS.get(str(data_type)) or data_type.unit for data_type in times]
    finest = max(units, key=("s", "ms", "us", "ns").index)
    return [
        _cast_to_unit(column, finest) if pa.types.is_temporal(column.type) else column
        for column in columns
    ]


def _cast_to_unit(column: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    tests = pa.types
    if tests.is_duration(column.type):
        return column.cast(pa.duration(unit))
    if tests.is_time(column.type):
        return column.cast(pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit))
    return column.cast(pa.timestamp(unit, getattr(column.type, "tz", None)))


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Values as a function gets them: times as counts, None for null and NaN."""
    if not is_numeric(column.type):
        listed: list[Any] = column.to_pylist()
        return listed
    values, valid = comparable(column.combine_chunks())
    if valid is None:
        return values.tolist()  # type: ignore[no-any-return]
    return [
        value if is_there else None
        for value, is_there in zip(values.tolist(), valid.tolist(), strict=True)
    ]


def _called(condition: Condition, values: list[Any], question: PlainQuestion) -> bool:
    if any(value is None for value in values):
        return False
    try:
        result = _result(condition.function, values)
    except Exception as e:  # whatever a user's function raises
        streams = " and ".join(
            dict.fromkeys(repr(question.names[column.stream]) for column in condition.columns)
        )
        raise InputError(
            f"where: the function {condition.name!r} of the streams {streams} fails for {values}: "
            f"{type(e).__name__}: {e}"
        ) from e
    is_nan = isinstance(result, float) and math.isnan(result)
    return result is not None and not is_nan and bool(result)


def _result(function: Callable[..., Any], values: list[Any]) -> Any:
    try:
        return function(*values)
    except Exception:  # it may be one for whole columns
        columns = [
            np.array([value], object if isinstance(value, str) else None) for value in values
        ]
        return np.asarray(function(*columns)).item()
