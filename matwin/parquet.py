"""A Parquet file in portions, however wide its rows and however large its row groups.

    footer, page headers ─▶ what a row takes, and what each column keeps open while it is read
         │ all columns at once take little?  ─▶ some rows of all columns at a time
         │ too much?      ─▶ columns in groups, one group after the other, put down in slices of
         │                   rows; then slice after slice of all groups
         └ one column alone too much?        ─▶ refused, with its size

A column that is being read keeps a page, packed and unpacked, and its dictionary.  What a row takes
is bounded by its pages (plain values), or by the longest text of the dictionary: 40,000 rows of
10 KB were 318 KB on disk and 400 MB when they were read 16,384 at a time.

Left out: lists that are far longer in some rows than in others, and texts that share prefixes
(DELTA_BYTE_ARRAY), are reckoned by their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from matwin.storage.machine import release_unused
from matwin.storage.units import format_size

from .ipc_layout import ReadAt
from .parquet_pages import DICTIONARY_PAGE, Page, longest_text, pages
from .places import Place
from .row_groups import RowGroup
from .shares import ROOMY, ReadShare
from .spill import Spill

BATCH_ROWS = 2**14
BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 2**12, 2**18
COLUMN_BYTES = 2**14
"""What a column's reader takes by itself, however small the column: 12 KB, measured."""
COLUMNS_MAX = 512
PREFIX_FACTOR = 16
_COMPARED = ("INT32", "INT64", "FLOAT", "DOUBLE")
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}


@dataclass(frozen=True, slots=True)
class Column:
    """What a column of a row group takes: for each row, and while it is open."""

    name: str
    row_bytes: float
    open_bytes: int


def opened(place: Place, columns: int, share: ReadShare) -> pq.ParquetFile:
    """A file of which so many columns are read at once.

    One row group of 8 million rows, 168 MB on disk, peaks at 53 MB this way, in the same time; at
    250 MB without a buffer size, which reads whole column chunks.
    """
    each = share.whole_bytes // 4 // max(min(columns, COLUMNS_MAX), 1)
    buffer = max(BUFFER_BYTES_MIN, min(each, BUFFER_BYTES_MAX))
    return pq.ParquetFile(
        place.local if place.local is not None else place.file(),
        pre_buffer=False,
        buffer_size=buffer,
        page_checksum_verification=True,
    )


def described(place: Place) -> tuple[pa.Schema, int, int]:
    """The columns of a file, what it takes when it is decoded, and its rows."""
    with opened(place, 1, ROOMY) as file:
        about, schema = file.metadata, file.schema_arrow
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        rows = int(about.num_rows)
    del file, about
    _give_back(len(schema))
    return schema, size, rows


def row_groups(place: Place, name: str) -> list[RowGroup] | None:
    """What the footer says of a column of numbers; None where it does not say it of every row
    group."""
    try:
        with opened(place, 1, ROOMY) as file:
            leaves = leaves_of(file)[name]
            is_time = pa.types.is_temporal(file.schema_arrow.field(name).type)
            about = file.metadata
            chunks = [about.row_group(i).column(leaves[0]) for i in range(about.num_row_groups)]
            found = [_row_group(chunk, is_time=is_time) for chunk in chunks]
            is_one = len(leaves) == 1 and file.schema.column(leaves[0]).max_repetition_level == 0
    except (pa.ArrowException, ValueError, OverflowError, OSError):  # no reason to fail: they help
        return None
    return [each for each in found if each is not None] if is_one and None not in found else None


def _row_group(chunk: Any, *, is_time: bool) -> RowGroup | None:
    told = chunk.statistics
    if told is None or chunk.physical_type not in _COMPARED:
        return None
    if not told.has_min_max:
        is_null = told.has_null_count and told.null_count == chunk.num_values
        return RowGroup(chunk.num_values, None) if is_null else None
    # As the file has them: times of nanoseconds are no `datetime`.
    limits = (told.min_raw, told.max_raw) if is_time else (told.min, told.max)
    if not all(isinstance(value, int | float) and isfinite(value) for value in limits):
        return None  # an infinite value is one that no join looks at, and hides the others
    return RowGroup(chunk.num_values, limits)


def _give_back(columns: int) -> None:
    """A footer takes 3.5 KB for each column, which the C library would keep."""
    if columns > COLUMNS_MAX:
        release_unused()


class Reader:
    """Some columns of a file."""

    def __init__(
        self, place: Place, read_at: ReadAt, names: Sequence[str], share: ReadShare,
        groups: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """`groups` are the row groups to be read; None: all."""
        self._path, self._read_at, self._names, self._share = place.path, read_at, names, share
        self._file = opened(place, len(names), share)
        self._leaves = leaves_of(self._file)
        every = range(self._file.metadata.num_row_groups)
        self._groups: Sequence[int] = every if groups is None else groups

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        """Give up the file and its footer."""
        if self._file is not None:
            self._file.close()
            self._file = None
            _give_back(len(self._leaves))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        for group in self._groups:
            columns = self._columns(group)
            rows = self._rows(columns)
            if self._is_little(columns):
                yield from self._read(group, self._names, rows)
            else:
                yield from self._by_groups(group, columns, rows)

    def _rows(self, columns: list[Column]) -> int:
        """How many rows take a portion."""
        width = sum(column.row_bytes for column in columns)
        return max(1, min(BATCH_ROWS, int(self._share.portion_bytes // max(width, 1))))

    def _is_little(self, columns: list[Column]) -> bool:
        size = sum(column.open_bytes for column in columns)
        return size <= self._share.whole_bytes and len(columns) <= COLUMNS_MAX

    def _read(self, group: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        return self._file.iter_batches(  # type: ignore[no-any-return]
            batch_size=rows, row_groups=[group], columns=list(names), use_threads=False
        )

    # ── columns in groups ────────────────────────────────────────────────────────────────────

    def _by_groups(self, group: int, columns: list[Column], rows: int) -> Iterator[pa.RecordBatch]:
        with Spill(f"file {self._path!r}", self._share.scratch) as spill:
            parts = [
                _Slices(spill, self._batches_of(group, some, rows), rows)
                for some in self._divided(columns)
            ]
            if group == self._groups[-1]:  # all that is still to be read has been put down
                self._close()
            names = [name for part in parts for name in part.names]
            for number in range(parts[0].count):
                arrays = [column for part in parts for column in part.read(number).columns]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _batches_of(self, group: int, some: list[Column], rows: int) -> Iterator[pa.RecordBatch]:
        at_once = max(1, self._rows(some) // rows) * rows
        return self._read(group, [column.name for column in some], at_once)

    def _divided(self, columns: list[Column]) -> Iterator[list[Column]]:
        """Columns that may be open at the same time."""
        some: list[Column] = []
        size = 0
        for column in columns:
            if column.open_bytes > self._share.single_bytes:
                raise self._refused(column.name, column.open_bytes, "a page")
            size += column.open_bytes
            if some and (size > self._share.whole_bytes or len(some) == COLUMNS_MAX):
                yield some
                some, size = [], column.open_bytes
            some.append(column)
        yield some

    def _refused(self, name: str, size: int, what: str) -> Exception:
        return self._share.refusal(
            f"file {self._path!r}: column {name!r} has {what} that takes {format_size(size)} and "
            "can only be read whole",
            size, "write the file anew with smaller pages and dictionaries",
        )  # fmt: skip

    # ── what columns take ────────────────────────────────────────────────────────────────────

    def _columns(self, group: int) -> list[Column]:
        about = self._file.metadata.row_group(group)
        return [self._column(about, name, self._leaves[name]) for name in self._names]

    def _column(self, about: Any, name: str, leaves: range) -> Column:
        found = [self._leaf(about, name, number) for number in leaves]
        return Column(name, sum(width for width, _ in found), sum(size for _, size in found))

    def _leaf(self, about: Any, name: str, number: int) -> tuple[float, int]:
        """The bytes of a row, and those that are open, of one leaf of a column."""
        chunk = about.column(number)
        rows = max(about.num_rows, 1)
        has_dictionary = any("DICT" in encoding for encoding in chunk.encodings)
        mean = chunk.total_uncompressed_size / rows
        size = chunk.total_uncompressed_size + chunk.total_compressed_size
        is_text = chunk.physical_type == "BYTE_ARRAY"
        found: list[Page] = []
        # Where all of it may be open, nobody needs to know how large its pages are: their headers
        # took an eighth of the time of a join of 4M rows.
        may_be_open = not is_text and size * len(self._names) <= self._share.whole_bytes
        if size > self._share.portion_bytes and not may_be_open:
            found = list(self._pages(chunk))
            size = max((page.unpacked + page.size for page in found), default=0)
        elif is_text and has_dictionary:
            found = list(islice(self._pages(chunk), 1))
        first = found[0] if found and found[0].kind == DICTIONARY_PAGE else None
        kept = 0 if first is None else 2 * first.unpacked
        open_bytes = COLUMN_BYTES + kept + size
        values = max(chunk.num_values / rows, 1.0)
        width = float(_width(self._file.schema.column(number)) * values)
        if is_text:
            width = 8 * values + _plain_width(found, mean)
            if any("DELTA_BYTE_ARRAY" in encoding for encoding in chunk.encodings):
                width += PREFIX_FACTOR * mean
            if first is not None:
                if open_bytes > self._share.single_bytes:
                    raise self._refused(name, open_bytes, "a dictionary or page")
                width += values * longest_text(self._read_at, first, chunk.compression)
        return width, open_bytes

    def _pages(self, chunk: Any) -> Iterator[Page]:
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset:
            start = min(start, chunk.dictionary_page_offset)
        return pages(self._read_at, start, chunk.total_compressed_size)


def _plain_width(found: list[Page], mean: float) -> float:
    """The bytes of a value in the page where they are widest."""
    plain = [p.unpacked / max(p.values, 1) for p in found if p.kind != DICTIONARY_PAGE]
    return max(plain, default=mean)


def _width(leaf: Any) -> int:
    return _WIDTHS.get(leaf.physical_type) or max(leaf.length or 0, 1)


def leaves_of(file: pq.ParquetFile) -> dict[str, range]:
    """The leaves of every column, by number; columns of structs and maps have several."""
    schema = file.schema_arrow
    starts = [0]
    for field in schema:
        starts.append(starts[-1] + _leaf_count(field.type))
    if starts[-1] != file.metadata.num_columns:
        raise ValueError("its columns are not those of its Arrow schema")
    return {name: range(*ends) for name, ends in zip(schema.names, pairwise(starts), strict=True)}


def _leaf_count(data_type: pa.DataType) -> int:
    if isinstance(data_type, pa.BaseExtensionType):
        return _leaf_count(data_type.storage_type)
    if pa.types.is_dictionary(data_type) or data_type.num_fields == 0:
        return 1
    return sum(_leaf_count(data_type.field(i).type) for i in range(data_type.num_fields))


class _Slices:
    """Some columns of a row group, put down in slices of equally many rows."""

    def __init__(self, spill: Spill, batches: Iterator[pa.RecordBatch], rows: int) -> None:
        self._spill, self._rows = spill, rows
        self._places: list[tuple[int, int]] = []
        self._schema: pa.Schema | None = None
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(_plain(batch))
            if sum(b.num_rows for b in waiting) >= rows:
                waiting = self._put(pa.concat_batches(waiting))
        if waiting:
            self._write(pa.concat_batches(waiting))

    def _put(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Write whole slices; what is left waits."""
        whole = batch.num_rows - batch.num_rows % self._rows
        for first in range(0, whole, self._rows):
            self._write(batch.slice(first, self._rows))
        return [batch.slice(whole)] if whole < batch.num_rows else []

    def _write(self, batch: pa.RecordBatch) -> None:
        self._schema = batch.schema
        place = self._spill.size
        self._spill.write(batch.serialize())
        self._places.append((place, self._spill.size - place))

    @property
    def names(self) -> list[str]:
        """The columns, in the order of the file."""
        return [] if self._schema is None else list(self._schema.names)

    @property
    def count(self) -> int:
        """How many slices there are."""
        return len(self._places)

    def read(self, number: int) -> pa.RecordBatch:
        """A slice."""
        data = self._spill.read_at(*self._places[number])
        return pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries, which are not part of a batch's bytes."""
    columns = {
        name: c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c
        for name, c in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.RecordBatch.from_pydict(columns)
