"""What a verification starts from: the rows of files as DuckDB reads them.

    CSV, TSV       every field as text, then as the column's type     read_csv
    Parquet        columns of types that both have exactly            read_parquet
    JSON lines     whole numbers, numbers, truth and text             read_json
    all else       as the join itself gets it: tables, readers, Arrow files

A reader that loses a row or makes a text of nothing would lose it for the join and for the answer
that it is compared with, if both were given what it reads.  DuckDB says what a file holds, in the
columns and types that the join has told; what it can't read, or hasn't a type for, our reader does,
and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from matwin.csv_values import null_words
from matwin.sources import Source
from matwin.storage.errors import StoreError
from matwin.streams import Stream

from .answer import database_in_memory

if TYPE_CHECKING:
    from matwin.file import File

_PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": None, ".lz4": None}
"""How DuckDB calls what a name says; None where it can't."""
_NUMBERS = {
    pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN", pa.string(): "VARCHAR",
}  # fmt: skip
_FIELDS = _NUMBERS | {
    pa.date32(): "DATE", pa.timestamp("s"): "TIMESTAMP_S", pa.timestamp("ns"): "TIMESTAMP_NS",
    pa.timestamp("s", "UTC"): "TIMESTAMPTZ", pa.time32("s"): "TIME",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a source, and who has read them."""

    table: pa.Table
    own: tuple[str, ...] = ()
    """The files that our reader has read, so that DuckDB knows no more of them than we do."""


def rows_of(source: Source) -> Rows:
    """All rows, by DuckDB where they are in files that it reads."""
    inner = source.source if isinstance(source, Stream) else source
    files: Sequence[File] = getattr(inner, "files", ())
    asked = [_asked(file, source.schema) for file in files]
    known = [one for one in asked if one is not None]
    if not files or len(known) < len(asked):
        return _by_us(source, files)
    try:
        with database_in_memory([path for _, path in known]) as database:
            parts = [_read(database, text, path) for text, path in known]
        table = pa.concat_tables(
            _fitted(part, file, source.schema) for part, file in zip(parts, files, strict=True)
        )
    except (StoreError, pa.ArrowException):
        return _by_us(source, files)
    return Rows(table)


def table_of(source: Source) -> pa.Table:
    """The same without who has read them."""
    return rows_of(source).table


def _by_us(source: Source, files: Sequence[File]) -> Rows:
    table = pa.Table.from_batches(source.batches(), source.schema)
    return Rows(table, tuple(file.path for file in files) or source.paths)


def _read(database: Any, text: str, path: str) -> pa.Table:
    return database.sql(text, params=[path]).to_arrow_table()


def _fitted(table: pa.Table, file: File, schema: pa.Schema) -> pa.Table:
    """The rows with the columns that a folder tells, in the types of the source."""
    constants = dict(file.constants)
    columns = [
        pa.chunked_array([pa.repeat(constants[field.name], table.num_rows)]).cast(field.type)
        if field.name in constants
        else table[field.name].cast(field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _asked(file: File, schema: pa.Schema) -> tuple[str, str] | None:
    """What DuckDB is asked for a file, and its path; None where it can't be."""
    from matwin.csv_file import Csv, Tsv
    from matwin.formats import JsonLines, Parquet

    makers: dict[type[File], Callable[[File, pa.Schema], str | None]] = {
        Csv: _csv, Tsv: _csv, Parquet: _parquet, JsonLines: _json,
    }  # fmt: skip
    place = file.place
    is_whole = place.local is not None and place.held is None and file.groups is None
    make = makers.get(type(file)) if is_whole else None
    names = [name for name in file.schema.names if name not in dict(file.constants)]
    own = pa.schema([schema.field(name) for name in names])
    text = make(file, own) if make is not None else None
    return None if text is None else (text, str(Path(str(place.local)).absolute()))


def _csv(file: Any, own: pa.Schema) -> str | None:
    packed = _PACKED.get(Path(file.path).suffix.lower(), "none")
    if packed is None or any(t not in _FIELDS for t in own.types):
        return None
    # All of them are texts first: DuckDB has one list of words for null for all columns, as well.
    names = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in own.names)
    columns = ", ".join(_converted(field) for field in own)
    return (
        f"SELECT {columns} FROM read_csv(?, auto_detect = false, header = true, nullstr = '', "
        f"allow_quoted_nulls = false, hive_partitioning = false, quote = '\"',"
        f" escape = '\"', delim = {_text(file.delimiter)}, columns = {{{names}}}, "
        f"compression = '{packed}')"
    )


def _converted(field: pa.Field) -> str:
    name = _name(field.name)
    if pa.types.is_string(field.type):
        return name
    words = ", ".join(map(_text, null_words(field.type)))
    value = f"CAST({name} AS {_FIELDS[field.type]})"
    return f"CASE WHEN {name} IN ({words}) THEN NULL ELSE {value} END AS {name}"


def _parquet(file: Any, own: pa.Schema) -> str | None:
    if not all(map(_is_exact, own.types)):
        return None
    columns = ", ".join(map(_name, own.names))
    return f"SELECT {columns} FROM read_parquet(?, hive_partitioning = false)"


def _json(file: Any, own: pa.Schema) -> str | None:
    packed = _PACKED.get(Path(file.path).suffix.lower(), "none")
    if packed is None or any(t not in _NUMBERS for t in own.types):
        return None
    types = ", ".join(f"{_text(f.name)}: '{_NUMBERS[f.type]}'" for f in own)
    columns = ", ".join(map(_name, own.names))
    return (
        f"SELECT {columns} FROM read_json(?, format = 'newline_delimited', hive_partitioning = "
        f"false, columns = {{{types}}}, compression = '{packed}')"
    )


def _is_exact(data_type: pa.DataType) -> bool:
    """Whether DuckDB has every value of a type."""
    t = pa.types
    if t.is_dictionary(data_type) or t.is_list(data_type):
        return _is_exact(data_type.value_type)
    if t.is_struct(data_type):
        return all(_is_exact(data_type.field(i).type) for i in range(data_type.num_fields))
    is_text = t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type)
    is_number = t.is_integer(data_type) or data_type in (pa.float32(), pa.float64(), pa.bool_())
    is_moment = t.is_timestamp(data_type) and (data_type.tz is None or data_type.unit != "ns")
    is_time = is_moment or data_type in (
        pa.date32(),
        pa.time32("s"),
        pa.time32("ms"),
        pa.time64("us"),
    )
    return bool(
        is_text or is_number or is_time or t.is_binary(data_type) or t.is_decimal128(data_type)
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
