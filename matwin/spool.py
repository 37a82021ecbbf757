"""A query's result, kept from when it is first asked for.

DuckDB allows one open result for each connection, and the two sides of a join usually share one.
So the rows are taken in one go and the connection is free again.  The same for Polars' LazyFrames:

    query ────▶ │ batches in memory, a share │ the rest in a file without a name │
                └────────── read again from here, as often as asked ─────────────┘

A second run of the query would be cheaper in space, but could give other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from matwin.storage.errors import InputError

from .reading import ROWS_PER_BATCH, Source, checked_schema, first_line, guarded, read, validated
from .shares import ReadShare
from .spill import BatchSpill

TEXT_ROWS = 128
"""So many rows are asked of DuckDB at a time where they may be wide.  It works on 2,048 at a time
by itself, so fewer would not save much."""


class Query(Protocol):
    """Something that makes rows when it is asked."""

    def schema(self, name: str) -> pa.Schema:
        """Its columns, without its rows."""

    def reader(self, rows: int, name: str) -> pa.RecordBatchReader:
        """Its rows, so many at a time."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A query of DuckDB's."""

    relation: Any

    def schema(self, name: str) -> pa.Schema:
        return opened(self.relation.limit(0), name).schema  # closed at once: there is room for one

    def reader(self, rows: int, name: str) -> pa.RecordBatchReader:
        return self.relation.to_arrow_reader(rows)


@dataclass(frozen=True, slots=True)
class Lazy:
    """A `LazyFrame` of Polars'."""

    frame: Any

    def schema(self, name: str) -> pa.Schema:
        try:
            empty = self.frame.collect_schema().to_frame()
        except Exception as e:  # plans a query, with errors of its own
            raise InputError(f"{name}: its columns can't be had: {first_line(e)}") from e
        return empty.to_arrow().schema

    def reader(self, rows: int, name: str) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema(name), self._batches(rows, name))

    def _batches(self, rows: int, name: str) -> Iterator[pa.RecordBatch]:
        has_batches = hasattr(self.frame, "collect_batches")  # Polars before 1.34 has none
        try:
            for frame in (
                self.frame.collect_batches(chunk_size=rows)
                if has_batches
                else [self.frame.collect()]
            ):
                # Not by its Arrow stream: views of 128 rows hold the texts of all others, and each
                # was put down with them (200 MB of texts took minutes).
                yield from frame.to_arrow().to_batches()
        except Exception as e:  # runs a whole query, with errors of its own
            raise InputError(f"{name}: its rows can't be had: {first_line(e)}") from e


@dataclass(frozen=True)
class Spooled(Source):
    """The rows of a query."""

    query: Query
    kept: list[_Kept] = field(default_factory=list)  # empty until the rows are asked for

    @classmethod
    def of(cls, query: Query, name: str) -> Spooled:
        """The source of a query; its columns are asked for, its rows not yet."""
        return cls(name, checked_schema(query.schema(name), name), True, None, None, query)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        return self._batches(columns)

    def _batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if not self.kept:
            reader = self._opened()
            self.kept.append(_Kept(reader, self.name, self.share))
        yield from read(self.kept[0], columns, self.name, self.share.portion_bytes)

    def _opened(self) -> pa.RecordBatchReader:
        rows = rows_at_a_time(self.schema, self.share.portion_bytes)
        try:
            return self.query.reader(rows, self.name)
        except Exception as e:  # runs a whole query, with errors of its own
            raise InputError(f"{self.name}: its rows can't be had: {first_line(e)}") from e


def rows_at_a_time(schema: pa.Schema, portion_bytes: int) -> int:
    """How many rows to ask for; left to themselves DuckDB hands over a million, and Arrow's
    scans 131,072."""
    try:
        width = sum(max(int(field.type.bit_width) // 8, 1) for field in schema)
    except ValueError:  # a column of texts or lists
        return TEXT_ROWS
    return max(1, min(ROWS_PER_BATCH, portion_bytes // max(width, 1)))


def opened(data: Any, name: str) -> pa.RecordBatchReader:
    """A reader of whatever has the Arrow stream interface."""
    try:
        return pa.RecordBatchReader.from_stream(data)
    except Exception as e:  # runs foreign code, a whole query perhaps, with errors of its own
        raise InputError(f"{name}: its Arrow stream can't be opened: {first_line(e)}") from e


class _Kept:
    """Batches that can be gone through again."""

    def __init__(self, reader: pa.RecordBatchReader, name: str, share: ReadShare) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.spill: BatchSpill | None = None
        size = 0
        for batch in gathered(guarded(reader, name), share.portion_bytes):
            if self.spill is not None:
                self.spill.write(batch)
                continue
            self.batches.append(validated(batch, name))
            size += batch.nbytes
            if size > share.whole_bytes // 4:
                self.spill = BatchSpill(name, share.scratch, reader.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches
        yield from self.spill or ()


def gathered(batches: Iterator[pa.RecordBatch], portion_bytes: int) -> Iterator[pa.RecordBatch]:
    """Small batches joined to portions, which are copies: what they were cut from can go."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= portion_bytes:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)
