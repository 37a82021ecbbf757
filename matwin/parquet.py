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
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from matwin.storage.machine import release_unused
from matwin.storage.names import listed
from matwin.storage.units import format_size

from .ipc_layout import ReadAt
from .parquet_empty import empty_pages, hidden
from .parquet_footer import Chunk, Damaged, Footer
from .parquet_levels import contradicts
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


@dataclass(frozen=True, slots=True)
class Column:
    """What a column of a row group takes: for each row, and while it is open."""

    name: str
    row_bytes: float
    open_bytes: int


def opened(place: Place, columns: int, share: ReadShare, instead: Any = None) -> pq.ParquetFile:
    """A file of which so many columns are read at once; `instead` is what Arrow is given for it.

    One row group of 8 million rows, 168 MB on disk, peaks at 53 MB this way, in the same time; at
    250 MB without a buffer size, which reads whole column chunks.
    """
    each = share.whole_bytes // 4 // max(min(columns, COLUMNS_MAX), 1)
    buffer = max(BUFFER_BYTES_MIN, min(each, BUFFER_BYTES_MAX))
    return pq.ParquetFile(
        instead or (place.local if place.local is not None else place.file()),
        pre_buffer=False,
        buffer_size=buffer,
        page_checksum_verification=True,
    )


def footer_of(place: Place) -> Footer:
    """What a file says of itself, looked through before pyarrow is asked to open it."""
    with place.bytes() as read_at:
        return Footer.of(read_at, place.size())


def described(place: Place) -> tuple[pa.Schema, int, int]:
    """The columns of a file, what it takes when it is decoded, and its rows."""
    footer = footer_of(place)
    with opened(place, 1, ROOMY) as file:
        schema = file.schema_arrow
    del file
    _give_back(len(schema))
    return schema, footer.unpacked, footer.rows


def row_groups(place: Place, name: str) -> list[RowGroup] | None:
    """What the footer says of a column of numbers; None where it does not say it of every row
    group."""
    try:
        return footer_of(place).ranges(name)
    except (pa.ArrowException, ValueError, OSError):  # no reason to fail: they help
        return None


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
        self._place, self._read_at, self._names, self._share = place, read_at, names, share
        self._footer = footer_of(place)
        self._file = opened(place, len(names), share)
        if self._file.schema_arrow.names != list(self._footer.columns):
            raise Damaged("its columns are not those of its Arrow schema")
        every = range(self._footer.groups)
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
            _give_back(len(self._footer.columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        self._check_levels()
        for group in self._groups:
            columns = self._columns(group)
            rows = self._rows(columns)
            if self._is_little(columns):
                yield from self._read(group, self._names, rows)
            else:
                yield from self._by_groups(group, columns, rows)

    def _check_levels(self) -> None:
        """Refuse columns whose pages show that the schema is wrong about nulls."""
        group = next((each for each in self._groups if self._footer.rows_of(each)), None)
        if group is None:
            return
        for number in (number for name in self._names for number in self._footer.columns[name]):
            leaf, chunk = self._footer.leaves[number], self._footer.chunk(group, number)
            if leaf.optional > 1 or self._footer.levels_are_told_twice(group, number):
                continue
            has_levels = leaf.optional > 0
            is_wrong = False
            with suppress(ValueError):  # damaged headers: Arrow says it, or the rows will
                is_wrong = contradicts(
                    self._read_at, self._pages(chunk), chunk.codec, leaf.bits, has_levels,
                    self._share.single_bytes,
                )  # fmt: skip
            if is_wrong:
                raise Damaged(
                    f"its schema says that column {leaf.name!r} "
                    f"{'may' if has_levels else 'may not'} have nulls, and its pages are written "
                    "the other way"
                )

    def _rows(self, columns: list[Column]) -> int:
        """How many rows take a portion."""
        width = sum(column.row_bytes for column in columns)
        return max(1, min(BATCH_ROWS, int(self._share.portion_bytes // max(width, 1))))

    def _is_little(self, columns: list[Column]) -> bool:
        size = sum(column.open_bytes for column in columns)
        return size <= self._share.whole_bytes and len(columns) <= COLUMNS_MAX

    def _read(self, group: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Some columns of a row group, as many rows as its footer says."""
        count = given = 0
        wanted = self._footer.rows_of(group)
        failure: Exception | None = None
        try:
            for batch in _batches(self._file, group, names, rows):
                given += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError) as e:  # one column is shorter than another
            failure = e
        if failure is None and given == wanted:
            return
        empty = self._empty_pages(group, names)
        if empty:
            source = hidden(self._read_at, self._place.size(), empty)
            with opened(self._place, len(names), self._share, source) as file:
                for batch in _batches(file, group, names, rows):
                    count += batch.num_rows
                    if count > given:
                        yield batch.slice(max(0, batch.num_rows - count + given))
            given = count
        elif failure is not None:
            raise failure
        if given != wanted:
            raise Damaged(
                f"row group {group} has {wanted} rows by the footer, and {given} were read of its "
                f"columns {listed(names)}; copy the file anew from where it came, or have it "
                "written anew with larger data pages"
            )

    def _empty_pages(self, group: int, names: Sequence[str]) -> list[int]:
        """Where data pages have no values, at which Arrow stops reading."""
        chunks = [
            self._footer.chunk(group, leaf) for name in names for leaf in self._footer.columns[name]
        ]
        with suppress(ValueError):  # damaged headers: Arrow has said it, or the rows will
            return [at for c in chunks for at in empty_pages(self._read_at, self._pages(c))]
        return []

    # ── columns in groups ────────────────────────────────────────────────────────────────────

    def _by_groups(self, group: int, columns: list[Column], rows: int) -> Iterator[pa.RecordBatch]:
        with Spill(f"file {self._place.path!r}", self._share.scratch) as spill:
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
            f"file {self._place.path!r}: column {name!r} has {what} that takes "
            f"{format_size(size)} and can only be read whole",
            size, "write the file anew with smaller pages and dictionaries",
        )  # fmt: skip

    # ── what columns take ────────────────────────────────────────────────────────────────────

    def _columns(self, group: int) -> list[Column]:
        return [self._column(group, name, self._footer.columns[name]) for name in self._names]

    def _column(self, group: int, name: str, leaves: range) -> Column:
        found = [self._leaf(group, name, number) for number in leaves]
        return Column(name, sum(width for width, _ in found), sum(size for _, size in found))

    def _leaf(self, group: int, name: str, number: int) -> tuple[float, int]:
        """The bytes of a row, and those that are open, of one leaf of a column."""
        leaf, chunk = self._footer.leaves[number], self._footer.chunk(group, number)
        rows = max(chunk.rows, 1)
        mean = chunk.unpacked / rows
        size = chunk.unpacked + chunk.packed
        is_text = leaf.type == "BYTE_ARRAY"
        found: list[Page] = []
        # Where all of it may be open, nobody needs to know how large its pages are: their headers
        # took an eighth of the time of a join of 4M rows.
        may_be_open = not is_text and size * len(self._names) <= self._share.whole_bytes
        if size > self._share.portion_bytes and not may_be_open:
            found = list(self._pages(chunk))
            size = max((page.unpacked + page.size for page in found), default=0)
        elif is_text and chunk.has_dictionary:
            found = list(islice(self._pages(chunk), 1))
        first = found[0] if found and found[0].kind == DICTIONARY_PAGE else None
        kept = 0 if first is None else 2 * first.unpacked
        open_bytes = COLUMN_BYTES + kept + size
        values = max(chunk.values / rows, 1.0)
        width = max(leaf.bytes, 1) * values
        if is_text:
            width = 8 * values + _plain_width(found, mean)
            if chunk.has_prefixes:
                width += PREFIX_FACTOR * mean
            if first is not None:
                if open_bytes > self._share.single_bytes:
                    raise self._refused(name, open_bytes, "a dictionary or page")
                width += values * longest_text(self._read_at, first, chunk.codec)
        return width, open_bytes

    def _pages(self, chunk: Chunk) -> Iterator[Page]:
        return pages(self._read_at, chunk.start, chunk.packed)


def _batches(
    file: pq.ParquetFile, group: int, names: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(  # type: ignore[no-any-return]
        batch_size=rows, row_groups=[group], columns=list(names), use_threads=False
    )


def _plain_width(found: list[Page], mean: float) -> float:
    """The bytes of a value in the page where they are widest."""
    plain = [p.unpacked / max(p.values, 1) for p in found if p.kind != DICTIONARY_PAGE]
    return max(plain, default=mean)


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
