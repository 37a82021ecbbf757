"""JSON lines as record batches: one object on each line, a column for each of its names.

    {"t": "2024-05-01T12:00:00Z", "obj": "p7", "x": 1.5}
       │            types from the first lines, or declared
    t: timestamp[us, tz=UTC]   obj: string   x: double

Types that are not declared come from the first `SAMPLE_LINES` lines: whole numbers, numbers, truth,
text, ISO 8601 days and moments, and what is nested.  Moments are counts or text, durations counts
or text such as ``1500ms``, bytes are base64: as `sinks.py` writes them.

Invariants:
* No value is changed on the way: what a column's type can't hold is an `InputError` that names the
  line and the column.
* A line has at most `LINE_BYTES_MAX` bytes and `NESTING_MAX` levels: a stream that never ends its
  line, or never stops to nest, takes neither memory nor the stack.
* A name that is missing is null.  A name that the types don't have is an error where they come from
  the first lines, and left out where they are declared.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.names import repeated
from matwin.storage.units import parse_duration

from .reading import ROWS_PER_BATCH

SAMPLE_LINES, SAMPLE_BYTES = 1000, 2**22
CHUNK_BYTES = 2**20
LINE_BYTES_MAX = 4 * 2**20
NESTING_MAX = 64
SUFFIXES = (".jsonl", ".ndjson")

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.(?P<digits>\d{1,9}))?)?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*(?:tz=)?([^\]]+)\]")
_DECODER = json.JSONDecoder()
_DECLARE = "declare its type with --schema, or write Parquet"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """A row and where it stands."""

    number: int
    row: Row
    size: int = 0


def line_of(text: bytes, number: int, where: str) -> Line | None:
    """The row of one line; None for an empty one."""
    try:
        stripped = text.decode().strip()
        if not stripped:
            return None
        row, end = _DECODER.raw_decode(stripped)  # json.loads takes a third longer
        if end != len(stripped):
            raise ValueError(f"it goes on after column {end}")
    except ValueError as e:
        raise InputError(f"{where}: line {number} is no JSON: {e}") from e
    except RecursionError as e:
        raise _too_deep(number, where) from e
    _check_depth(row, NESTING_MAX, number, where)
    if not isinstance(row, dict):
        raise InputError(
            f"{where}: line {number} is no JSON object: {row!r:.60}; write one object on each line"
        )
    if "\\u" in stripped:
        _check_text(row, number, where)
    return Line(number, row, len(text))


def _check_depth(value: Any, levels: int, number: int, where: str) -> None:
    if isinstance(value, dict | list):
        if levels == 0:
            raise _too_deep(number, where)
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, levels - 1, number, where)


def _too_deep(number: int, where: str) -> InputError:
    return InputError(f"{where}: line {number} nests deeper than {NESTING_MAX} levels; flatten it")


def _check_text(row: Row, number: int, where: str) -> None:
    """Refuse halves of surrogate pairs, which JSON can write and no text can hold."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        half = f"\\u{ord(e.object[e.start]):04x}"
        raise InputError(
            f"{where}: line {number} has {half} alone, which is half a character and no text; "
            "write the whole pair"
        ) from e


def check_length(size: int, number: int, where: str) -> None:
    """Refuse a line that does not end in time."""
    if size > LINE_BYTES_MAX:
        raise InputError(
            f"{where}: line {number} is longer than {LINE_BYTES_MAX} bytes; is every row on a line "
            "of its own?"
        )


# ── types ────────────────────────────────────────────────────────────────────────────────────


def declared_schema(text: str, option: str) -> pa.Schema:
    """The schema of ``t:timestamp[us],obj:string``.

    >>> declared_schema("t:timestamp[us, tz=UTC],n:int64", "--schema").types
    [TimestampType(timestamp[us, tz=UTC]), DataType(int64)]
    """
    fields = []
    for part in re.split(r",(?![^][(),]*[])])", text):  # not inside brackets
        name, colon, word = part.rpartition(":") if "[" not in part else part.partition(":")
        if not (colon and name.strip()):
            raise InputError(f"{option}: {part!r} is no column and type; write t:timestamp[us]")
        fields.append(pa.field(name.strip(), _declared_type(word.strip(), option)))
    twice = repeated(field.name for field in fields)
    if twice:
        raise InputError(f"{option}: column {twice[0]!r} is there twice")
    return pa.schema(fields)


def _declared_type(word: str, option: str) -> pa.DataType:
    zoned = _ZONED.fullmatch(word)
    if zoned:
        return pa.timestamp(zoned[1], zoned[2].strip())
    sized = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", word)
    try:
        return pa.decimal128(int(sized[1]), int(sized[2])) if sized else pa.type_for_alias(word)
    except (ValueError, pa.ArrowException) as e:
        raise InputError(
            f"{option}: {word!r} is no type; write for example int64, double, string, bool, "
            "timestamp[us], timestamp[us, tz=UTC], date32 or duration[ms]"
        ) from e


def schema_of(lines: Sequence[Line], where: str) -> pa.Schema:
    """The schema that the lines have in common."""
    names = dict.fromkeys(name for line in lines for name in line.row)
    return pa.schema([(name, _type_of(lines, name, where)) for name in names])


def _type_of(lines: Sequence[Line], name: str, where: str) -> pa.DataType:
    values = [value for line in lines if (value := line.row.get(name)) is not None]
    kinds = {type(value) for value in values}
    if not values or kinds == {str}:
        return _text_type(values)
    if kinds == {float, int}:
        return pa.float64()
    try:
        return pa.array(values).type
    except _FAILURES as e:
        _check_whole(lines, name, where)
        reason = f"column {name!r} has values of no one type: {e}"
        raise InputError(f"{where}: {reason}; {_DECLARE}") from e


def _check_whole(lines: Sequence[Line], name: str, where: str) -> None:
    """Refuse a whole number that an integer column can't hold."""
    for line in lines:
        value = line.row.get(name)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(
                f"{where}: line {line.number}: column {name!r} is {value!s:.60}, which does not "
                f"fit 64 bits; {_DECLARE}: uint64 up to 2**64 - 1, else decimal(38, 0)"
            )


def _text_type(values: list[str]) -> pa.DataType:
    if values and all(_DAY.fullmatch(value) for value in values):
        return pa.date32()
    moments = [_MOMENT.fullmatch(value) for value in values]
    if not values or None in moments:
        return pa.string()
    zones = {moment["zone"] is not None for moment in moments if moment}
    is_fine = any(len(moment["digits"] or "") > 6 for moment in moments if moment)
    if len(zones) > 1:
        return pa.string()
    return pa.timestamp("ns" if is_fine else "us", "UTC" if True in zones else None)


# ── columns ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Reading:
    """How the lines of one source become batches."""

    where: str
    schema: pa.Schema
    is_declared: bool

    def batch(self, lines: Sequence[Line]) -> pa.RecordBatch:
        """The rows of some lines."""
        if not self.is_declared:
            self._check_names(lines)
        columns = [self._column(lines, field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _check_names(self, lines: Sequence[Line]) -> None:
        known = set(self.schema.names)
        for line in lines:
            for name in line.row.keys() - known:
                raise InputError(
                    f"{self.where}: line {line.number} has a column {name!r}, which the first "
                    "lines don't have; declare all columns with --schema"
                )

    def _column(self, lines: Sequence[Line], field: pa.Field) -> pa.Array:
        values = [line.row.get(field.name) for line in lines]
        try:
            return _array(values, field.type)
        except _FAILURES:
            return self._explained(lines, values, field)

    def _explained(self, lines: Sequence[Line], values: list[Any], field: pa.Field) -> pa.Array:
        """The first value that the type can't hold, as an error."""
        for line, value in zip(lines, values, strict=True):
            try:
                _array([value], field.type)
            except _FAILURES as e:
                reason = str(e).splitlines()[0] if str(e) else type(e).__name__
                raise InputError(
                    f"{self.where}: line {line.number}: column {field.name!r} is {value!r:.60} "
                    f"and no {field.type} ({reason}); {_DECLARE}"
                ) from e
        # Values of two forms, such as moments as text and as counts: each by itself is right.
        return pa.concat_arrays([_array([value], field.type) for value in values])


_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError, decimal.DecimalException)


def _array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """An array of these values; an exception if one would have to be changed."""
    for test, convert in _CONVERSIONS.items():
        if test(data_type):
            return convert(values, data_type)
    return pa.array(values, data_type)


def _whole(values: list[Any], data_type: pa.DataType) -> pa.Array:
    for value in values:
        if value is not None and type(value) is not int:  # Arrow would cut 1.5 to 1
            raise ValueError("not a whole number")
    return pa.array(values, data_type)


def _counts(values: list[Any], data_type: pa.DataType) -> pa.Array:
    stored = pa.int32() if data_type in (pa.date32(), *map(pa.time32, ("s", "ms"))) else pa.int64()
    return _whole(values, stored).cast(data_type)


def _moments(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(data_type)
    return _counts(values, data_type)


def _times(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        times = [None if value is None else dt.time.fromisoformat(value) for value in values]
        exact = pa.array(times, pa.time64("us"))
        return exact.cast(data_type)
    return _counts(values, data_type)


def _durations(values: list[Any], data_type: pa.DataType) -> pa.Array:
    unit = data_type.unit
    return _counts(
        [parse_duration(v, unit) if isinstance(v, str) else v for v in values], data_type
    )


def _bytes(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array([v if v is None else base64.b64decode(v, validate=True) for v in values],
                    data_type)  # fmt: skip


def _decimals(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array([v if v is None else decimal.Decimal(str(v)) for v in values], data_type)


_CONVERSIONS: dict[Callable[[Any], bool], Callable[[list[Any], pa.DataType], pa.Array]] = {
    pa.types.is_integer: _whole,
    pa.types.is_timestamp: _moments,
    pa.types.is_date: _moments,
    pa.types.is_time: _times,
    pa.types.is_duration: _durations,
    pa.types.is_binary: _bytes,
    pa.types.is_large_binary: _bytes,
    pa.types.is_decimal: _decimals,
}


# ── a file ───────────────────────────────────────────────────────────────────────────────────


def told_schema(file: BinaryIO, where: str) -> pa.Schema:
    """The columns that the first lines tell."""
    head = _some(_lines(file, where), SAMPLE_LINES, SAMPLE_BYTES)
    if not head:
        raise InputError(f"{where} has no line to tell its columns; declare them with --schema")
    return schema_of(head, where)


def batches(file: BinaryIO, reading: Reading, portion_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some lines at a time."""
    lines = _lines(file, reading.where)
    while found := _some(lines, ROWS_PER_BATCH, min(CHUNK_BYTES, portion_bytes)):
        yield reading.batch(found)


def _lines(file: BinaryIO, where: str) -> Iterator[Line]:
    for number in count(1):
        text = file.readline(LINE_BYTES_MAX + 1)
        if not text:
            return
        check_length(len(text), number, where)
        line = line_of(text, number, where)
        if line is not None:
            yield line


def _some(lines: Iterator[Line], most: int, size: int) -> list[Line]:
    """The next lines: so many, or as many as have so many bytes."""
    found: list[Line] = []
    for line in lines:
        found.append(line)
        size -= line.size
        if len(found) == most or size <= 0:
            break
    return found
