"""The fragments of a pyarrow dataset as files of ours, which are read in portions.

    ParquetFileFragment ─▶ Parquet     the row groups that its filter leaves
    IPC                 ─▶ Ipc
    CSV                 ─▶ DatasetCsv  as its format says: names, types, nulls, delimiters
    JSON                ─▶ DatasetJson the same
    ORC, memory         ─▶ None        Arrow scans the dataset

Arrow's scan decodes whole row groups and batches, however few rows are asked for, and reads all of
a CSV file ahead: 32,000 rows of 10 KB grew the process by 675 MB (Parquet), 327 MB (IPC), 314 MB
(CSV) and 69 MB (JSON) in a budget of 32, and by 137, 7, 58 and 25 MB as files of ours.  ORC took 30
MB by Arrow's scan.

Invariants: what the folders of a file tell stands, as Arrow has it; a file gives the other columns
in the types of its dataset, and null for those that it lacks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.json as pa_json
from pyarrow.fs import LocalFileSystem

from matwin.storage.errors import InputError
from matwin.storage.machine import release_unused
from matwin.storage.units import format_size

from .csv_file import CSV_SAMPLE_BYTES, Csv, further, head, longest_row
from .file import COMPRESSED, File, described_file
from .files import with_columns
from .formats import Ipc, Parquet
from .parquet import footer_of
from .parquet_footer import Damaged, Footer
from .places import Place
from .records import Records, blocks
from .shares import ReadShare

BLOCK_BYTES_MIN, BLOCK_BYTES = 2**16, 2**20
BLOCKS_AHEAD = 32

_LONG_ROW = ("straddl", "Empty CSV file or block")
"""What Arrow says of a row that is longer than a block; the latter where it is the header."""


@dataclass(frozen=True)
class DatasetText(Csv):
    """A file of text in a dataset, whose schema and format tell how it is read.

    It is cut into records here, as other CSV is.  Where its format says more than we know of
    (lines to skip, escapes), Arrow cuts it, which reads 32 blocks ahead: they are small, and grow
    where a row is longer than one.
    """

    is_parsed = False  # a format may say that UTF-8 is not checked
    format: Any = None
    names: tuple[str, ...] = ()
    """All columns of the file, where the format has them."""

    @property
    @abstractmethod
    def records(self) -> Records | None:
        """What cuts it; None for Arrow."""

    @abstractmethod
    def _table(self, text: memoryview, columns: Sequence[str]) -> pa.Table:
        """The rows of some records."""

    @property
    def has_header(self) -> bool:
        """Whether the first record is none of the rows."""
        return False

    @abstractmethod
    def _blocks(self, text: Any, block_bytes: int, columns: Sequence[str]) -> Any:
        """Arrow's reader of some columns, or of all where none are named."""

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        block = max(BLOCK_BYTES_MIN, min(share.portion_bytes // 2, BLOCK_BYTES))
        records = self.records
        if records is None:
            yield from self._by_arrow(columns, share, block)
            return
        with self.place.text() as text:
            texts = blocks(text, records, block, self._check_row(share))
            rows = 0
            if self.has_header:
                next(texts, None)
                rows = 1
            for some in texts:
                try:
                    table = self._table(some, columns)
                except pa.ArrowInvalid as e:
                    raise pa.ArrowInvalid(further(str(e), rows)) from e
                rows += table.num_rows
                yield from table.combine_chunks().to_batches()

    def _by_arrow(
        self, columns: Sequence[str], share: ReadShare, block: int
    ) -> Iterator[pa.RecordBatch]:
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
        with self.place.text() as text, self._blocks(text, block, columns) as reader:
            for batch in reader:
                if first < batch.num_rows:
                    yield batch.slice(first)
                first = max(first - batch.num_rows, 0)

    def _larger(self, block: int, share: ReadShare) -> int:
        """A block for rows that are longer than this one, if the share has room for it."""
        largest = share.whole_bytes // BLOCKS_AHEAD
        if block < largest:
            return min(2 * block, largest)
        with self.place.text() as text:
            size = longest_row(text)
        raise share.refusal(
            f"file {self.path!r}: a row takes {format_size(size)} and 32 of them are read ahead",
            max(size, largest + 1) * BLOCKS_AHEAD,
            "write it as Parquet",
        )


@dataclass(frozen=True)
class DatasetCsv(DatasetText):
    """A CSV file of a dataset."""

    @property
    def records(self) -> Records | None:
        reading = self.format.default_fragment_scan_options.read_options
        parsing = self.format.parse_options
        is_skipping = reading.skip_rows or reading.skip_rows_after_names
        is_usual = parsing.double_quote and parsing.ignore_empty_lines and not parsing.escape_char
        is_plain = parsing.delimiter.isascii() and str(parsing.quote_char or "").isascii()
        if is_skipping or not is_usual or not is_plain:
            return None
        quote = parsing.quote_char if parsing.newlines_in_values else None
        return Records(parsing.delimiter, quote or None)

    @property
    def has_header(self) -> bool:
        reading = self.format.default_fragment_scan_options.read_options
        return not (reading.column_names or reading.autogenerate_column_names)

    def _options(self, block_bytes: int, columns: Sequence[str]) -> tuple[Any, Any, Any]:
        """How Arrow reads, parses and converts."""
        options = self.format.default_fragment_scan_options
        reading, converting = copy(options.read_options), copy(options.convert_options)
        reading.block_size, reading.use_threads = block_bytes, False
        converting.column_types = {field.name: field.type for field in self.schema}
        converting.include_columns = list(columns)
        return reading, self.format.parse_options, converting

    def _blocks(self, text: Any, block_bytes: int, columns: Sequence[str]) -> Any:
        return pa_csv.open_csv(text, *self._options(block_bytes, columns))

    def _table(self, text: memoryview, columns: Sequence[str]) -> pa.Table:
        reading, parsing, converting = self._options(len(text) + 1, columns)
        reading.column_names, reading.autogenerate_column_names = list(self.names), False
        return pa_csv.read_csv(pa.BufferReader(text), reading, parsing, converting)

    def described(self) -> File:
        with self.place.text() as text, self._blocks(head(text), CSV_SAMPLE_BYTES, ()) as reader:
            names = reader.schema.names
        del reader
        release_unused()  # the sample, which took several times its size
        known = [field for field in self.schema if field.name in names]
        hint = None if self.path.lower().endswith(COMPRESSED) else self.size
        return replace(self, schema=pa.schema(known), bytes_hint=hint, names=tuple(names))


class DatasetJson(DatasetText):
    """A file of JSON objects, which Arrow reads in blocks as it does CSV."""

    @property
    def records(self) -> Records | None:
        options = self.format.default_fragment_scan_options
        return None if options.parse_options.newlines_in_values else Records(",", None)

    def _options(self, block_bytes: int, columns: Sequence[str]) -> tuple[Any, Any]:
        """How Arrow reads and parses."""
        options = self.format.default_fragment_scan_options
        reading, parsing = copy(options.read_options), copy(options.parse_options)
        reading.block_size, reading.use_threads = block_bytes, False
        parsing.explicit_schema = pa.schema([self.schema.field(name) for name in columns])
        parsing.unexpected_field_behavior = "ignore"
        return reading, parsing

    def _blocks(self, text: Any, block_bytes: int, columns: Sequence[str]) -> Any:
        return pa_json.open_json(text, *self._options(block_bytes, columns))

    def _table(self, text: memoryview, columns: Sequence[str]) -> pa.Table:
        return pa_json.read_json(pa.BufferReader(text), *self._options(len(text) + 1, columns))

    def described(self) -> File:
        # Its columns are what the dataset says: a name that no object has is null in all of them.
        return replace(self, bytes_hint=self.size)


def file_of(fragment: Any, schema: pa.Schema, condition: Any, name: str) -> File | None:
    """A fragment as a file with the columns of its dataset; None where Arrow has to read it."""
    kind = _kind(getattr(fragment, "format", None))
    if kind is None or fragment.buffer is not None:
        return None
    place = _place(fragment)
    told = ds.get_partition_keys(fragment.partition_expression)
    own = pa.schema([field for field in schema if field.name not in told])
    file = described_file(place, name, kind, own if isinstance(kind, partial) else None)
    file = replace(file, schema=pa.schema([f for f in file.schema if f.name not in told]))
    values = {
        field.name: pa.scalar(told.get(field.name), field.type)
        for field in schema
        if field.name not in file.schema.names
    }
    return _thinned(with_columns(file, values), fragment, schema, condition)


def _kind(format: Any) -> Any:
    """What makes a file of this format; None: nobody here."""
    if isinstance(format, ds.ParquetFileFormat):
        return Parquet
    if isinstance(format, ds.IpcFileFormat):
        return Ipc
    if isinstance(format, ds.CsvFileFormat):
        return partial(DatasetCsv, format=format) if _is_utf8(format) else None
    if isinstance(format, ds.JsonFileFormat):
        return partial(DatasetJson, format=format)
    return None


def _is_utf8(format: Any) -> bool:
    """Whether a CSV format takes texts as they are.  It keeps its encoding to itself, so it is
    given an é to read."""
    options = format.default_fragment_scan_options.read_options
    line = format.parse_options.delimiter.join(["é"] * max(1, len(options.column_names))) + "\n"
    lines = line * (2 + options.skip_rows + options.skip_rows_after_names)
    try:
        table = format.make_fragment(pa.py_buffer(lines.encode())).to_table()
    except (pa.ArrowException, ValueError):
        return False
    return {"é"} == {value for column in table.columns for value in column.to_pylist()}


def check(fragment: Any, condition: Any, name: str) -> None:
    """Refuse a Parquet file that Arrow is to scan if it might end the process: its exceptions about
    footers are caught by nobody."""
    if not isinstance(fragment.format, ds.ParquetFileFormat):
        return
    try:
        footer = _footer(fragment)
        if condition is not None and not footer.has_sound_statistics:
            raise Damaged("its statistics are of other sizes than its columns")
    except (ValueError, OSError) as e:
        raise InputError(f"{name}: file {fragment.path!r}: {e}; is the file whole?") from e


def _footer(fragment: Any) -> Footer:
    if fragment.buffer is not None:
        data = fragment.buffer
        return Footer.of(lambda at, count: data.slice(at, count).to_pybytes(), data.size)
    return footer_of(_place(fragment))


def _place(fragment: Any) -> Place:
    is_local = isinstance(fragment.filesystem, LocalFileSystem)
    local = fragment.path if is_local else None
    return Place(fragment.path, local, fragment.filesystem, fragment.path)


def _thinned(file: File, fragment: Any, schema: pa.Schema, condition: Any) -> File:
    """The file without the row groups that have no row of the condition, as its footer says."""
    if not isinstance(file, Parquet):
        return file
    footer = footer_of(file.place)
    if condition is not None and footer.has_sound_statistics:
        fragment = fragment.subset(filter=condition, schema=schema)
    groups = tuple(group.id for group in fragment.row_groups)
    return replace(file, groups=groups, rows_hint=sum(map(footer.rows_of, groups)))
