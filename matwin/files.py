"""Files as sources: Parquet, CSV and Arrow IPC, alone, in lists or by a pattern.

    "day*.parquet"  ─▶  [day1, day2, …]  ─▶  one schema  ─▶  batches, file after file

Each format is a class that knows a file's columns without reading its rows, and reads them in
portions of bytes (`shares.py`): Parquet by its pages (`parquet.py`), Arrow IPC by its buffers
(`ipc.py`), CSV in blocks, which a row must fit, of 1 MiB at most or more in large budgets.

Invariants:
* The files of one list have the same column names.  Their types are brought to a common one that
  holds every value, each value checked, or it is an error that names the file.
* A file that can't be read, from its name to its last byte, is an `InputError` with the name of
  source and file.

Left out: remote paths (open them with pyarrow and pass the reader), folders (a pattern says which
files are meant), and CSV types that show only late: they come from the first 8 MiB.
"""

from __future__ import annotations

import glob
import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from matwin.storage.errors import InputError, MatwinError
from matwin.storage.machine import release_unused
from matwin.storage.names import listed
from matwin.storage.units import format_size

from .ipc import batches as ipc_batches
from .ipc import can_be_cut, largest_batch
from .ipc_layout import is_little_endian, is_stream
from .parquet import Reader, described
from .reading import Source, checked_schema, first_line, sliced, validated
from .shares import ReadShare
from .spill import read_at

CSV_BLOCK_BYTES_MIN, CSV_BLOCK_BYTES = 2**16, 2**20
CSV_BLOCKS_AHEAD = 32
CSV_SAMPLE_BYTES = 8 * 2**20

_LONG_ROW = ("straddl", "Empty CSV file or block")
"""What Arrow says of a row that is longer than a block; the latter where it is the header."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass(frozen=True)
class File(ABC):
    """One file: where it is, and what it says of itself."""

    path: str
    size: int
    schema: Any = None
    bytes_hint: int | None = None
    rows_hint: int | None = None

    @abstractmethod
    def described(self) -> File:
        """The file with its schema, and with its size where that is cheap to know."""

    @abstractmethod
    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        """Its rows, with at least these columns."""

    def explained(self, error: str) -> str:
        """What Arrow says of a failure, and what to do about it."""
        return f"{error}; is the file whole and of this format?"


class Parquet(File):
    """Columns in row groups; a row group is decoded piece by piece."""

    def described(self) -> File:
        schema, size, rows = described(self.path)
        return replace(self, schema=schema, bytes_hint=size, rows_hint=rows)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        with Path(self.path).open("rb") as raw:
            get = partial(read_at, raw.fileno())
            with Reader(self.path, get, columns, share) as reader:
                yield from reader.batches()


class Csv(File):
    """Text with a header line, perhaps compressed."""

    def _opened(self, text: Any, block_bytes: int, columns: Sequence[str] | None = None) -> Any:
        delimiter = "\t" if ".tsv" in Path(self.path.lower()).suffixes else ","
        types = {} if self.schema is None else {f.name: f.type for f in self.schema}
        return pa_csv.open_csv(
            text,
            # Without threads the rows are counted in messages, and no blocks are read ahead.
            read_options=pa_csv.ReadOptions(block_size=block_bytes, use_threads=False),
            # A quoted line break may fall on the edge of a block; looking for them costs nothing.
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=columns),
        )

    def described(self) -> File:
        is_compressed = self.path.lower().endswith(_COMPRESSED)
        with self._text() as text, self._opened(_Head(text), CSV_SAMPLE_BYTES) as reader:
            schema = reader.schema
        del reader
        release_unused()  # the sample, which took several times its size
        return replace(self, schema=schema, bytes_hint=None if is_compressed else self.size)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        # Arrow reads 32 blocks ahead, so they are small, and grow where a row is longer than one.
        block = max(CSV_BLOCK_BYTES_MIN, min(share.portion_bytes // 2, CSV_BLOCK_BYTES))
        done = 0
        while True:
            try:
                for batch in self._rest(columns, block, done):
                    done += batch.num_rows
                    yield batch
                return
            except pa.ArrowInvalid as e:
                if not any(words in str(e) for words in _LONG_ROW):
                    raise
                block = self._larger(block, share)

    def _rest(self, columns: Sequence[str], block: int, first: int) -> Iterator[pa.RecordBatch]:
        """The rows from a number on."""
        with self._text() as text, self._opened(text, block, columns) as reader:
            for batch in reader:
                if first < batch.num_rows:
                    yield batch.slice(first)
                first = max(first - batch.num_rows, 0)

    def _larger(self, block: int, share: ReadShare) -> int:
        """A block for rows that are longer than this one, if the share has room for it."""
        # The blocks ahead are open while rows are read, as Parquet's pages are.
        largest = share.whole_bytes // CSV_BLOCKS_AHEAD
        if block < largest:
            return min(2 * block, largest)
        with self._text() as text:
            size = longest_row(text)
        raise share.refusal(
            f"file {self.path!r}: a row takes {format_size(size)} and 32 of them are read ahead",
            max(size, largest + 1) * CSV_BLOCKS_AHEAD,
            "write it as Parquet",
        )

    def _text(self) -> Any:
        return pa.input_stream(self.path, compression="detect")

    def explained(self, error: str) -> str:
        named = re.sub(r"In CSV column #(\d+): ", self._column_name, error)
        if "conversion error" in error:
            return (
                f"{named}; types come from the first 8 MiB of the file: write it as Parquet, or "
                "pass pyarrow.csv.open_csv(..., convert_options=...) with the column's type"
            )
        if "straddl" in error:
            return f"a row is longer than {CSV_SAMPLE_BYTES} bytes; write the file as Parquet"
        return super().explained(named)

    def _column_name(self, match: re.Match[str]) -> str:
        names = self.schema.names if self.schema is not None else []
        number = int(match[1])
        return f"column {names[number]!r}: " if number < len(names) else match[0]


class _Head(io.RawIOBase):
    """The beginning of a text: the sample, and a block more to find the end of its last line.
    Without an end Arrow would read 32 blocks ahead, 256 MiB, while it looks at the first."""

    def __init__(self, text: Any) -> None:
        self._text, self._left = text, 2 * CSV_SAMPLE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        done, count = 0, min(len(buffer), self._left)
        while done < count:
            data = self._text.read(min(count - done, CSV_BLOCK_BYTES))
            if not data:
                break
            buffer[done : done + len(data)] = data
            done += len(data)
        self._left -= done
        return done


def longest_row(text: Any) -> int:
    """The bytes of the longest row of a CSV text, line breaks in quotes included.

    >>> longest_row(io.BytesIO(b'a,b\\n1,"x\\ny"\\n22,z'))
    8
    """
    longest = start = at = quotes = 0
    while data := text.read(CSV_BLOCK_BYTES):
        found = np.frombuffer(data, np.uint8)
        inside = (quotes + np.cumsum(found == ord('"'))) & 1
        ends = at + 1 + np.flatnonzero((found == ord("\n")) & (inside == 0))
        longest = max(longest, int(np.diff(ends, prepend=start).max(initial=0)))
        start, quotes = int(ends[-1]) if len(ends) else start, int(inside[-1])
        at += len(data)
    return max(longest, at - start)


class Ipc(File):
    """Arrow's own format, as a file (with a directory at its end) or as a stream."""

    def _opened(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """The schema, then the batches, decoded by Arrow as they were written."""
        options = pa.ipc.IpcReadOptions()
        if columns is not None:
            options.included_fields = [self.schema.get_field_index(name) for name in columns]
        with Path(self.path).open("rb") as raw:
            is_plain = is_stream(partial(read_at, raw.fileno()), self.size)
        with pa.OSFile(self.path) as file:
            if is_plain:
                reader = pa.ipc.open_stream(file, options=options)
                yield reader.schema
                yield from reader
            else:
                directory = pa.ipc.open_file(file, options=options)
                yield directory.schema
                yield from map(directory.get_batch, range(directory.num_record_batches))

    def described(self) -> File:
        schema = next(self._opened(None))
        return replace(self, schema=schema, bytes_hint=self.size)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        with Path(self.path).open("rb") as raw:
            get = partial(read_at, raw.fileno())
            schema = next(self._opened(None))
            is_cut = all(can_be_cut(field.type) for field in schema)
            if is_cut and is_little_endian(get, self.size):
                yield from ipc_batches(get, self.size, schema, columns, share, self.path)
                return
            self._check_size(largest_batch(get, self.size), share)
        batches = self._opened(columns)
        next(batches)
        yield from batches

    def _check_size(self, largest: int, share: ReadShare) -> None:
        if largest > share.whole_bytes:
            raise share.refusal(
                f"file {self.path!r}: a batch takes {format_size(largest)} and, with its "
                "dictionaries, unions or runs, can only be read whole",
                largest, "write smaller batches",
            )  # fmt: skip


_FORMATS: dict[str, type[File]] = {
    ".parquet": Parquet, ".pq": Parquet,
    ".csv": Csv, ".tsv": Csv,
    ".arrow": Ipc, ".ipc": Ipc, ".feather": Ipc, ".arrows": Ipc,
}  # fmt: skip


@dataclass(frozen=True)
class Files(Source):
    """The rows of files, one after the other."""

    files: tuple[File, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return self._batches(names, schema)

    def _batches(self, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        portion_bytes = self.share.portion_bytes
        for file in self.files:
            where = f"{self.name}: file {file.path!r}"
            batches = file.batches(names, self.share)
            while True:
                with _reading(file, where):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield from sliced(_cast(validated(batch, where), schema, where), portion_bytes)


def files_source(data: Any, name: str) -> Files:
    """The source of a path, a pattern or a list of them."""
    patterns = data if isinstance(data, list | tuple) else [data]
    paths = [path for pattern in patterns for path in _paths(os.fsdecode(pattern), name)]
    files = [_described(path, name) for path in paths]
    schema = _common_schema(files, name)
    files = [replace(file, schema=_without_nulls(file.schema, schema)) for file in files]
    size, rows = _sum(f.bytes_hint for f in files), _sum(f.rows_hint for f in files)
    return Files(name, schema, True, size, rows, tuple(files))


def _sum(hints: Iterable[int | None]) -> int | None:
    known = list(hints)
    return None if None in known else sum(hint for hint in known if hint is not None)


def _paths(pattern: str, name: str) -> list[str]:
    """The files that a path or pattern means; a file whose name looks like a pattern is itself."""
    try:
        path = str(Path(pattern).expanduser())
        if os.path.lexists(path) or not glob.has_magic(path):
            return [path]
        found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  (pathlib's is relative)
    except (OSError, ValueError, RuntimeError) as e:
        raise InputError(f"{name}: {pattern!r} is no path: {e}") from e
    files = [path for path in found if not Path(path).is_dir()]
    if not files:
        raise InputError(f"{name}: no file matches {pattern!r}")
    return files


def _described(path: str, name: str) -> File:
    where = f"{name}: file {path!r}"
    try:
        about = Path(path).stat()
    except FileNotFoundError as e:
        raise InputError(f"{where} is not there") from e
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be opened: {e}") from e
    if stat.S_ISDIR(about.st_mode):
        raise InputError(f"{where} is a folder; name its files, such as {path + '/*.parquet'!r}")
    if not stat.S_ISREG(about.st_mode):
        raise InputError(f"{where} is not a regular file; read it with pyarrow and pass the reader")
    file = _format(path, where)(path, about.st_size)
    with _reading(file, where):
        file = file.described()
    checked_schema(file.schema, where)
    return file


def _format(path: str, where: str) -> type[File]:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    is_compressed = bool(suffixes) and suffixes[-1] in _COMPRESSED
    suffix = "".join(suffixes[-2:-1] if is_compressed else suffixes[-1:])
    kind = _FORMATS.get(suffix)
    if kind is None or (is_compressed and kind is not Csv):
        raise InputError(
            f"{where}: its suffix is none of {', '.join(_FORMATS)} or .csv.gz, so its format is "
            "not known; rename it, or read it with pyarrow and pass the reader"
        )
    return kind


@contextmanager
def _reading(file: File, where: str) -> Iterator[None]:
    try:
        yield
    except MatwinError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as e:
        raise InputError(f"{where}: {file.explained(first_line(e))}") from e


def _common_schema(files: list[File], name: str) -> pa.Schema:
    """One schema for all files, of types that hold the values of each."""
    schema = files[0].schema
    for file in files[1:]:
        where = f"{name}: file {file.path!r}"
        odd = sorted({*schema.names} ^ {*file.schema.names})
        if odd:
            raise InputError(
                f"{where}: column {odd[0]!r} is not in all files of the list; {files[0].path!r} "
                f"has {listed(schema.names)}, this one {listed(file.schema.names)}"
            )
        try:
            schema = pa.unify_schemas([schema, file.schema], promote_options="permissive")
        except pa.ArrowException as e:
            raise InputError(f"{where}: its types don't go with the files before: {e}") from e
    is_csv = all(isinstance(file, Csv) for file in files)
    return _without_nulls(schema, None) if is_csv else schema


def _without_nulls(schema: pa.Schema, common: pa.Schema | None) -> pa.Schema:
    """The schema with a type for columns that look empty: the common one, or text."""
    fields = []
    for field in schema:
        if pa.types.is_null(field.type):
            field = field.with_type(common.field(field.name).type if common else pa.string())
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch with the columns and types of the schema, no value changed."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names != schema.names:
        batch = batch.select(schema.names)
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as e:
                raise InputError(
                    f"{where}: column {field.name!r} is {column.type} here and {field.type} for "
                    f"all files, and a value does not fit: {first_line(e)}; give the files one type"
                ) from e
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
