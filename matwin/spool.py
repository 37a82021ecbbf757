"""A query's result, kept from when it is first asked for.

DuckDB allows one open result for each connection, and the two sides of a join usually share one.
So the rows are taken in one go and the connection is free again:

    relation ─▶ │ batches in memory, a share │ the rest in a file without a name │
                └────────── read again from here, as often as asked ─────────────┘

A second run of the query would be cheaper in space, but could give other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .reading import ROWS_PER_BATCH, Source, checked_schema, first_line, guarded, read, validated
from .shares import ReadShare
from .spill import BatchSpill

TEXT_ROWS = 128
"""So many rows are asked of DuckDB at a time where they may be wide.  It works on 2,048 at a time
by itself, so fewer would not save much."""


@dataclass(frozen=True)
class Spooled(Source):
    """The rows of a DuckDB relation."""

    query: Any
    kept: list[_Kept] = field(default_factory=list)  # empty until the rows are asked for

    @classmethod
    def of(cls, query: Any, name: str) -> Spooled:
        """The source of a relation; its columns are asked for, its rows not yet."""
        reader = opened(query.limit(0), name)
        schema = checked_schema(reader.schema, name)
        del reader  # the connection has room for one
        return cls(name, schema, True, None, None, query)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        return self._batches(columns)

    def _batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if not self.kept:
            reader = self._opened()
            self.kept.append(_Kept(reader, self.name, self.share))
        yield from read(self.kept[0], columns, self.name, self.share.portion_bytes)

    def _opened(self) -> pa.RecordBatchReader:
        rows = _rows_at_a_time(self.schema, self.share.portion_bytes)
        try:
            return self.query.to_arrow_reader(rows)
        except Exception as e:  # runs a whole query, with errors of its own
            raise InputError(f"{self.name}: its rows can't be had: {first_line(e)}") from e


def _rows_at_a_time(schema: pa.Schema, portion_bytes: int) -> int:
    """How many rows to ask for; left to itself DuckDB hands over a million."""
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
        for batch in _gathered(guarded(reader, name), share.portion_bytes):
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


def _gathered(batches: Iterator[pa.RecordBatch], portion_bytes: int) -> Iterator[pa.RecordBatch]:
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
