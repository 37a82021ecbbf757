"""A query's result, kept from when it is first asked for.

DuckDB allows one open result for each connection, and the two sides of a join usually share one.
So the rows are taken in one go and the connection is free again:

    relation ─▶ │ batches in memory, up to 64 MiB │ the rest in a file without a name │
                └──────────── read again from here, as often as asked ───────────────┘

A second run of the query would be cheaper in space, but could give other rows.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError, StoreError

from .reading import Source, checked_schema, first_line, guarded, read, validated

MEMORY_BYTES = 64 * 2**20


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
            self.kept.append(_Kept(opened(self.query, self.name), self.name))
        yield from read(self.kept[0], columns, self.name)


def opened(data: Any, name: str) -> pa.RecordBatchReader:
    """A reader of whatever has the Arrow stream interface."""
    try:
        return pa.RecordBatchReader.from_stream(data)
    except Exception as e:  # runs foreign code, a whole query perhaps, with errors of its own
        raise InputError(f"{name}: its Arrow stream can't be opened: {first_line(e)}") from e


class _Kept:
    """Batches that can be gone through again."""

    def __init__(self, reader: pa.RecordBatchReader, name: str) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.file: Any = None
        rest = guarded(reader, name)
        size = 0
        for batch in rest:
            self.batches.append(validated(batch, name))
            size += batch.nbytes
            if size > MEMORY_BYTES:
                self._write(reader.schema, rest, name)

    def _write(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], name: str) -> None:
        try:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            with pa.ipc.new_stream(self.file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            self.file.flush()
        except OSError as e:
            raise StoreError(
                f"{name}: its rows can't be kept in {tempfile.gettempdir()}: {e}; free some space "
                "there, or set TMPDIR to another folder"
            ) from e

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches
        if self.file is not None:
            yield from pa.ipc.open_stream(_Reading(self.file.fileno()))


class _Reading(io.RawIOBase):
    """A file from its beginning, with a place of its own."""

    def __init__(self, fd: int) -> None:
        self._fd, self._place = fd, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._fd, [buffer], self._place)
        self._place += count
        return count
