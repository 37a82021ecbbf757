"""Where results go: a file of some format, a pipe, or a table on the terminal.

    reader ──batch by batch──▶ format ──▶ outputs.py ──complete──▶ result.csv

Invariants:
* At most one group of rows is in memory at a time.
* A file appears under its name when it is complete and not before (`outputs.py`).
* Errors of the join that makes the rows pass unchanged.

Formats: parquet, ipc (Arrow; a file, or a stream in a pipe), csv, tsv, jsonl, markdown, line (each
value on its own) and table, which shows the first rows and counts the others.  The format is the
one given, or the one the name ends in; for standard output a table on a terminal and CSV in a pipe.
Text whose name goes on with .gz, .bz2, .zst or .lz4 is compressed.
"""

from __future__ import annotations

import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from matwin.storage.columns import cast_columns
from matwin.storage.errors import InputError

from .fitting import fitted, shorter_times
from .hints import did_you_mean
from .outputs import address, explained, is_regular, written
from .plain import csv_batch, csv_type, json_rows, shown_rows
from .text import Ink, escaped, width_of

GROUP_ROWS = 131072
GROUP_BYTES = 32 * 2**20

_FORMATS = {
    "parquet": "parquet", "pq": "parquet",
    "ipc": "ipc", "arrow": "ipc", "feather": "ipc",
    "csv": "csv", "tsv": "tsv",
    "jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl",
    "markdown": "markdown", "md": "markdown", "line": "line",
    "table": "table",
}  # fmt: skip


COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
TEXTS = ("csv", "tsv", "jsonl")


class Rows(Protocol):
    """A result, or a reader of Arrow's."""

    @property
    def schema(self) -> pa.Schema: ...
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def write(
    reader: Rows,
    out: str | None,
    *,
    format: str | None = None,
    max_rows_shown: int = 20,
    overwrite: bool = False,
) -> int:
    """Write all rows to a file or to standard output (None or "-"); how many there were.

    A file that is there already is replaced only where `overwrite` says so.
    """
    kind = format_of(out, format)
    is_stdout = out is None or out == "-"
    name = "standard output" if is_stdout else str(out)
    rows = 0
    compression = None if is_stdout else compression_of(name, kind)
    with (
        to_stdout(kind) if is_stdout else _to_file(name, overwrite=overwrite) as plain,
        _packed(plain, compression, name) as file,
    ):
        with explained(name):
            sink = _SINKS[kind](file, reader.schema, is_stdout, max_rows_shown)
        try:
            for batch in reader:
                with explained(name):
                    sink.add(batch)
                rows += batch.num_rows
            with explained(name):
                sink.finish(rows)
        except BaseException:
            sink.abandon()
            raise
    return rows


def format_of(out: str | None, format: str | None) -> str:
    """The format that is asked for, by its word or by the file's name."""
    if format is not None:
        word = format.lower()
    elif out is None or out == "-":
        word = "table" if sys.stdout.isatty() else "csv"
    else:
        path = Path(address(out))
        is_packed = path.suffix.lower() in COMPRESSIONS
        word = (path.with_suffix("") if is_packed else path).suffix.lower().removeprefix(".")
    if word not in _FORMATS:
        asked = f"the format {format!r}" if format is not None else f"the suffix of {out!r}"
        if not word:
            raise InputError(_without_suffix(str(out)))
        near = did_you_mean(word, _FORMATS)
        raise InputError(f"{asked} is none of {', '.join(_FORMATS)}{near}")
    return _FORMATS[word]


def _without_suffix(out: str) -> str:
    if out and Path(out).is_dir():
        return f"{out!r} is a folder; name a file in it, such as {out.rstrip('/')}/rows.parquet"
    return (
        f"the name {out!r} has no suffix that says its format; write for example {out}.parquet, or "
        f"say it with format= or --format: {', '.join(_FORMATS)}"
    )


def compression_of(out: str, kind: str) -> str | None:
    """How a file is compressed, by its name."""
    suffix = Path(address(out)).suffix.lower()
    if suffix in COMPRESSIONS and kind not in TEXTS:
        raise InputError(
            f"{out!r}: only text ({', '.join(TEXTS)}) is compressed as a file, not {kind}; take "
            f"{suffix} off its name"
        )
    return COMPRESSIONS.get(suffix)


# ── formats ──────────────────────────────────────────────────────────────────────────────────────


class Sink(ABC):
    """A format being written."""

    def __init__(self, file: Any, schema: pa.Schema, is_stdout: bool, max_rows_shown: int) -> None:
        self.file = file
        self.is_stdout = is_stdout
        self.max_rows_shown = max_rows_shown
        self.begin(schema)

    def begin(self, schema: pa.Schema) -> None:
        """Write what comes before the rows."""
        self.schema = schema

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None:
        """Write more rows."""

    def finish(self, rows: int) -> None:
        """Write what comes after the rows, of which there were so many."""
        self.file.flush()

    def abandon(self) -> None:
        """Give up: nobody wants the rest."""
        return


class Grouped(Sink):
    """A binary format, whose groups should not be small: batches are gathered."""

    def begin(self, schema: pa.Schema) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self.schema = pa.schema([field.with_type(self.type_of(field.type)) for field in schema])
        self.writer = self.opened()

    @abstractmethod
    def opened(self) -> Any:
        """A writer of tables to the file."""

    @staticmethod
    @abstractmethod
    def type_of(data_type: pa.DataType) -> pa.DataType:
        """The type that a column of this type is written as."""

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(cast_columns(batch, self.schema))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self.writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks())
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self, rows: int) -> None:
        self._flush()
        self.writer.close()

    def abandon(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):
            self.writer.close()  # while its file is open: it would close itself later, aloud


class Parquet(Grouped):
    """Groups of rows, compressed."""

    def opened(self) -> Any:
        return pq.ParquetWriter(self.file, self.schema)

    @staticmethod
    def type_of(data_type: pa.DataType) -> pa.DataType:
        is_encoded = pa.types.is_run_end_encoded(data_type)
        return data_type.value_type if is_encoded else data_type


class Ipc(Grouped):
    """Arrow's own format."""

    def opened(self) -> Any:
        make = pa.ipc.new_stream if self.is_stdout else pa.ipc.new_file
        return make(self.file, self.schema)

    @staticmethod
    def type_of(data_type: pa.DataType) -> pa.DataType:
        """Without dictionaries: a file has one for all its batches, and ours may differ."""
        t = pa.types
        if t.is_dictionary(data_type):
            return data_type.value_type
        if t.is_list(data_type) or t.is_large_list(data_type):
            make = pa.list_ if t.is_list(data_type) else pa.large_list
            item = data_type.value_field
            return make(item.with_type(Ipc.type_of(item.type)))
        if t.is_struct(data_type):
            fields = [data_type.field(i) for i in range(data_type.num_fields)]
            return pa.struct([field.with_type(Ipc.type_of(field.type)) for field in fields])
        return data_type


class Csv(Sink):
    """Text with a header line."""

    delimiter = ","

    def begin(self, schema: pa.Schema) -> None:
        fields = [pa.field(field.name, csv_type(field.type)) for field in schema]
        self.schema = pa.schema(fields)
        options = pa_csv.WriteOptions(delimiter=self.delimiter)
        self.writer = pa_csv.CSVWriter(self.file, self.schema, write_options=options)

    def add(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(csv_batch(batch, self.schema))
        if self.is_stdout:
            self.file.flush()

    def finish(self, rows: int) -> None:
        self.writer.close()


class Tsv(Csv):
    """The same with tabs."""

    delimiter = "\t"


class JsonLines(Sink):
    """One object for each row."""

    def add(self, batch: pa.RecordBatch) -> None:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in json_rows(batch)]
        self.file.write("".join(lines).encode())
        if self.is_stdout:
            self.file.flush()


class Markdown(Sink):
    """A table as documents have it; columns are as wide as their values happen to be."""

    def begin(self, schema: pa.Schema) -> None:
        self.schema = schema
        marks = ["--:" if _is_number(field.type) else "---" for field in schema]
        self._write([[escaped(name) for name in schema.names], marks])

    def add(self, batch: pa.RecordBatch) -> None:
        self._write([[escaped(cell) for cell in row] for row in shown_rows(batch)])

    def _write(self, rows: list[list[str]]) -> None:
        lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"
                 for row in rows]  # fmt: skip
        self.file.write("".join(lines).encode("utf-8", "replace"))


class Line(Sink):
    """A line for each value, and an empty one between rows."""

    def begin(self, schema: pa.Schema) -> None:
        self.schema = schema
        names = [escaped(name) for name in schema.names]
        width = max(map(width_of, names), default=0)
        self._heads = [" " * (width - width_of(name)) + name for name in names]
        self._is_first = True

    def add(self, batch: pa.RecordBatch) -> None:
        for row in shown_rows(batch):
            lines = [f"{head} = {escaped(cell)}\n"
                     for head, cell in zip(self._heads, row, strict=True)]  # fmt: skip
            between = "" if self._is_first else "\n"
            self.file.write((between + "".join(lines)).encode("utf-8", "replace"))
            self._is_first = False


class Shown(Sink):
    """A table of the first rows; the others are counted."""

    def begin(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows: list[list[str]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        missing = self.max_rows_shown - len(self._rows)
        if missing > 0:
            self._rows += shown_rows(batch.slice(0, missing))

    def finish(self, rows: int) -> None:
        head = [escaped(name) for name in self.schema.names]
        kinds = [_kind(field.type) for field in self.schema]
        columns = [
            shorter_times(column) if kind == "time" else [escaped(cell) for cell in column]
            for column, kind in zip(self._columns(), kinds, strict=True)
        ]
        more = rows - len(self._rows)
        width = shutil.get_terminal_size().columns
        lines = [fitted(head, columns, kinds, width, Ink.for_stdout())] if head else []
        if rows == 0:
            lines.append("no rows")
        elif more:
            lines.append(f"… and {more:,} more row{'s' if more > 1 else ''}")
        self.file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def _columns(self) -> list[list[str]]:
        return [[row[at] for row in self._rows] for at in range(len(self.schema.names))]


def _kind(data_type: pa.DataType) -> str:
    """What a table must not do to a column: only texts are cut, and numbers end in one place."""
    if _is_number(data_type):
        return "number"
    return "time" if pa.types.is_timestamp(data_type) or pa.types.is_time(data_type) else "text"


def _is_number(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(data_type) or t.is_floating(data_type) or t.is_decimal(data_type))


_SINKS: dict[str, type[Sink]] = {
    "parquet": Parquet, "ipc": Ipc, "csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "table": Shown,
    "markdown": Markdown, "line": Line,
}  # fmt: skip


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


class _Pipe:
    """Standard output as Arrow wants it: it knows its place, and closing it does not close it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._place, self.closed = file, 0, False

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._place += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


@contextmanager
def to_stdout(kind: str) -> Iterator[Any]:
    if kind in ("parquet", "ipc") and sys.stdout.isatty():
        raise InputError(f"{kind} is not for a terminal; name a file, or lead it into a pipe")
    sys.stdout.flush()
    yield _Pipe(sys.stdout.buffer)
    sys.stdout.buffer.flush()


@contextmanager
def _to_file(out: str, *, overwrite: bool) -> Iterator[Any]:
    with written(out, overwrite=overwrite) as file:
        yield file if is_regular(file) else _Pipe(file)


@contextmanager
def _packed(file: Any, compression: str | None, name: str) -> Iterator[Any]:
    """The file, or one that compresses what goes there."""
    if compression is None:
        yield file
        return
    # Arrow closes what it has wrapped, and this file still has to take its name.
    packed = pa.CompressedOutputStream(pa.PythonFile(_Pipe(file), "w"), compression)
    try:
        yield packed
        with explained(name):
            packed.close()
    finally:
        with suppress(OSError, pa.ArrowException):  # what went wrong has been told
            packed.close()
