"""Files as sources: Parquet, CSV, JSON lines and Arrow IPC, alone, in lists, folders, by a pattern.

    "day*.parquet"  ─▶  [day1, day2, …]  ─▶  one schema  ─▶  batches, file after file
                    └── places.py, on this machine or in an object store

Each format is a class that knows a file's columns without reading its rows, and reads them in
portions of bytes (`shares.py`): Parquet by its pages (`parquet.py`), Arrow IPC by its buffers
(`ipc.py`), CSV in blocks, which a row must fit, of 1 MiB at most or more in large budgets, JSON
lines by lines (`jsonl.py`).

Invariants:
* The files of one list have the same column names.  Their types are brought to a common one that
  holds every value, each value checked, or it is an error that names the file.
* A file that can't be read, from its name to its last byte, is an `InputError` with the name of
  source and file.

* Columns that folders tell (`key=value/`) are whole numbers if all values are, else text.  A column
  of that name in the file itself stands.

Left out: CSV types that show only late: they come from the first 8 MiB.
"""

from __future__ import annotations

import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from matwin.storage.errors import InputError, MatwinError
from matwin.storage.machine import release_unused
from matwin.storage.names import listed
from matwin.storage.units import format_size

from . import jsonl
from .hints import did_you_mean
from .ipc import batches as ipc_batches
from .ipc import can_be_cut, largest_batch
from .ipc_layout import is_little_endian, is_stream
from .parquet import Reader, described, row_groups
from .places import Place, places
from .reading import Source, checked_schema, first_line, sliced, validated
from .row_groups import RowGroup, are_alike
from .shares import ReadShare

CSV_BLOCK_BYTES_MIN, CSV_BLOCK_BYTES = 2**16, 2**20
NAMES_MAX = 10_000  # of a folder, when a file is missing
CSV_BLOCKS_AHEAD = 32
CSV_SAMPLE_BYTES = 8 * 2**20

_LONG_ROW = ("straddl", "Empty CSV file or block")
"""What Arrow says of a row that is longer than a block; the latter where it is the header."""
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass(frozen=True)
class File(ABC):
    """One file: where it is, and what it says of itself."""

    place: Place
    size: int
    name: str
    """How errors call the source."""
    schema: Any = None
    bytes_hint: int | None = None
    rows_hint: int | None = None
    groups: tuple[int, ...] | None = None
    """The row groups that are read, where a format has them; None: all."""
    is_declared: bool = False
    """Whether somebody has said what the columns are, where the file itself does not."""
    constants: tuple[tuple[str, pa.Scalar], ...] = ()
    """Columns that the file does not have, and what they are in all its rows."""

    @property
    def path(self) -> str:
        """How messages call the file."""
        return self.place.path

    @abstractmethod
    def described(self) -> File:
        """The file with its schema, and with its size where that is cheap to know."""

    @abstractmethod
    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        """Its rows, with at least these columns."""

    def row_groups(self, column: str) -> list[RowGroup] | None:
        """What the file says of a column without being read; None: nothing."""
        return None

    def explained(self, error: str) -> str:
        """What Arrow says of a failure, and what to do about it."""
        return f"{error}; is the file whole and of this format?"


class Parquet(File):
    """Columns in row groups; a row group is decoded piece by piece."""

    def described(self) -> File:
        schema, size, rows = described(self.place)
        return replace(self, schema=schema, bytes_hint=size, rows_hint=rows)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        with (
            self.place.bytes() as get,
            Reader(self.place, get, columns, share, self.groups) as reader,
        ):
            yield from reader.batches()

    def row_groups(self, column: str) -> list[RowGroup] | None:
        return row_groups(self.place, column)


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
        is_compressed = self.path.lower().endswith(COMPRESSED)
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
        return self.place.text()

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
        with self.place.bytes() as get:
            is_plain = is_stream(get, self.size)
        with self.place.file() as file:
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
        with self.place.bytes() as get:
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


class JsonLines(File):
    """One object on each line, perhaps compressed."""

    @property
    def _where(self) -> str:
        return f"{self.name}: file {self.path!r}"

    def described(self) -> File:
        is_compressed = self.path.lower().endswith(COMPRESSED)
        hint = None if is_compressed else self.size
        if self.schema is not None:
            return replace(self, bytes_hint=hint)
        with self.place.lines() as lines:
            return replace(self, schema=jsonl.told_schema(lines, self._where), bytes_hint=hint)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        own = [field for field in self.schema if field.name not in dict(self.constants)]
        reading = jsonl.Reading(self._where, pa.schema(own), self.is_declared)
        with self.place.lines() as lines:
            yield from jsonl.batches(lines, reading, share.portion_bytes)


_FORMATS: dict[str, type[File]] = {
    ".parquet": Parquet, ".pq": Parquet,
    ".csv": Csv, ".tsv": Csv,
    ".jsonl": JsonLines, ".ndjson": JsonLines, ".json": JsonLines,
    ".arrow": Ipc, ".ipc": Ipc, ".feather": Ipc, ".arrows": Ipc,
}  # fmt: skip


@dataclass(frozen=True)
class Files(Source):
    """The rows of files, one after the other."""

    files: tuple[File, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.place.local for file in self.files if file.place.local is not None)

    def named(self, name: str) -> Files:
        return replace(self, name=name, files=tuple(replace(f, name=name) for f in self.files))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return self._batches(names, schema)

    def _batches(self, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        portion_bytes = self.share.portion_bytes
        for file in self.files:
            where = f"{self.name}: file {file.path!r}"
            batches = _with_constants(file, names, self.share)
            while True:
                with _reading(file, where):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield from sliced(_cast(validated(batch, where), schema, where), portion_bytes)

    def row_groups(self, column: str) -> list[RowGroup] | None:
        wanted = self.schema.field(column).type
        found: list[RowGroup] = []
        for file in self.files:
            is_same = file.schema.field(column).type == wanted
            is_own = column not in dict(file.constants)
            some = file.row_groups(column) if is_same and is_own else None
            if some is None:
                return None
            found += some
        return found

    def thinned(self, columns: Sequence[str], groups: int) -> Files | None:
        if len(self.files) > 1:  # a file is opened for what it says of a column
            return None
        told = [self.row_groups(column) for column in columns]
        if not told or not all(some is not None and are_alike(some) for some in told):
            return None
        every = told[0] or []
        if len(every) <= groups:
            return None
        chosen = tuple(range(0, len(every), -(-len(every) // groups)))
        rows = sum(every[at].rows for at in chosen)
        files = (replace(self.files[0], groups=chosen, rows_hint=rows),)
        return replace(self, files=files, rows_hint=rows, bytes_hint=None)


def _with_constants(file: File, names: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
    """A file's rows, with the columns that it does not have."""
    constants = dict(file.constants)
    own = [name for name in names if name not in constants]
    if len(own) == len(names):
        yield from file.batches(own, share)
        return
    # Somebody has to say how many rows there are.
    counting = [name for name in file.schema.names if name not in constants][:1]
    for batch in file.batches(own or counting, share):
        columns = {
            name: pa.repeat(constants[name], batch.num_rows)
            if name in constants
            else batch.column(name)
            for name in names
        }
        yield pa.RecordBatch.from_pydict(columns)


def files_source(data: Any, name: str, declared: pa.Schema | None = None) -> Files:
    """The source of a path, a folder, a pattern or a list of them.

    `declared` are the columns of JSON lines and CSV, which their first lines tell otherwise.
    """
    patterns = data if isinstance(data, list | tuple) else [data]
    found = [p for each in patterns for p in places(os.fsdecode(each), name, has_format)]
    files = _with_hive([_described(place, name, declared) for place in found])
    schema = _common_schema(files, name)
    files = [replace(file, schema=_without_nulls(file.schema, schema)) for file in files]
    return sum_of(files, schema, name)


def sum_of(files: Sequence[File], schema: pa.Schema, name: str) -> Files:
    """The source of files whose columns are known."""
    size, rows = _sum(f.bytes_hint for f in files), _sum(f.rows_hint for f in files)
    return Files(name, schema, True, size, rows, tuple(files))


def _with_hive(files: list[File]) -> list[File]:
    """The files with the columns that their folders tell."""
    told: dict[str, list[str | None]] = {}
    for file in files:
        for key, value in file.place.hive:
            told.setdefault(key, []).append(value)
    types = {key: _hive_type(values) for key, values in told.items()}
    return [with_columns(file, _scalars(file, types)) for file in files]


def _hive_type(values: Sequence[str | None]) -> pa.DataType:
    known = [value for value in values if value is not None]
    is_whole = all(re.fullmatch(r"-?[0-9]{1,18}", value) for value in known)
    return pa.int64() if known and is_whole else pa.string()


def _scalars(file: File, types: dict[str, pa.DataType]) -> dict[str, pa.Scalar]:
    def scalar(value: str | None, kind: pa.DataType) -> pa.Scalar:
        is_number = value is not None and pa.types.is_integer(kind)
        return pa.scalar(int(value) if is_number and value is not None else value, kind)

    return {key: scalar(value, types[key]) for key, value in file.place.hive}


def with_columns(file: File, values: dict[str, pa.Scalar]) -> File:
    """The file with columns that are the same in all its rows; its own stand."""
    new = {name: value for name, value in values.items() if name not in file.schema.names}
    schema = file.schema
    for name, value in new.items():
        schema = schema.append(pa.field(name, value.type))
    return replace(file, schema=schema, constants=tuple(new.items()))


def _sum(hints: Iterable[int | None]) -> int | None:
    known = list(hints)
    return None if None in known else sum(hint for hint in known if hint is not None)


def _described(place: Place, name: str, declared: pa.Schema | None = None) -> File:
    where = f"{name}: file {place.path!r}"
    _size(place, where)  # what is not there is told first
    kind = _sniffed(place) if place.held is not None else _format(place.path, where)
    return described_file(place, name, kind, declared if kind in (Csv, JsonLines) else None)


def _near(path: str) -> str:
    """A question for a file of a similar name in the same folder."""
    try:
        names = [other.name for other in islice(Path(path).parent.iterdir(), NAMES_MAX)]
    except (OSError, ValueError):
        return ""
    return did_you_mean(Path(path).name, names)


def described_file(
    place: Place, name: str, kind: type[File], declared: pa.Schema | None = None
) -> File:
    """A file of a format, with what it says of itself."""
    where = f"{name}: file {place.path!r}"
    file = kind(place, _size(place, where), name, declared, is_declared=declared is not None)
    with _reading(file, where):
        file = file.described()
    checked_schema(file.schema, where)
    return file


def _size(place: Place, where: str) -> int:
    if place.local is None:
        about = place.system.get_file_info(place.inner)
        if about.size is None:
            raise InputError(f"{where} is not there")
        return int(about.size)
    try:
        found = Path(place.local).stat()
    except FileNotFoundError as e:
        raise InputError(f"{where} is not there{_near(place.local)}") from e
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be opened: {e}") from e
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{where} is not a regular file; read it with pyarrow and pass the reader")
    return found.st_size


def has_format(path: str) -> bool:
    """Whether a file's name says its format."""
    return _kind(path) is not None


def _kind(path: str) -> type[File] | None:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    is_compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    kind = _FORMATS.get("".join(suffixes[-2:-1] if is_compressed else suffixes[-1:]))
    return kind if not is_compressed or kind in (Csv, JsonLines) else None


def _format(path: str, where: str) -> type[File]:
    kind = _kind(path)
    if kind is None:
        raise InputError(
            f"{where}: its suffix is none of {', '.join(_FORMATS)} or .csv.gz, so its format is "
            "not known; rename it, or read it with pyarrow and pass the reader"
        )
    return kind


def _sniffed(place: Place) -> type[File]:
    """The format that the first bytes tell, of a file without a name."""
    with place.bytes() as get:
        start = get(0, 6)
    if start[:4] == b"PAR1":
        return Parquet
    if start == b"ARROW1" or start[:4] == b"\xff\xff\xff\xff":
        return Ipc
    with place.lines() as lines:
        return JsonLines if lines.read(64).lstrip()[:1] == b"{" else Csv


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
