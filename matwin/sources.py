"""Sources: whatever a user has, as record batches with one schema.

    pa.Table, RecordBatch, Polars and pandas frames  ─▶ Held       in memory, zero-copy slices
    list of dicts                                    ─▶ Held       made a table first
    RecordBatchReader, any other Arrow C stream      ─▶ Streamed   once
    pyarrow Scanner                                  ─▶ Streamed   once
    pyarrow Dataset                                  ─▶ Files, Filtered, Scanned    by its fragments
    Polars LazyFrame                                 ─▶ Files, Spooled    by its plan
    DuckDB relation                                  ─▶ Spooled    taken when first asked for
    list, tuple, generator of batches                ─▶ Batches    as they come
    path, URI, folder, glob, list of them, "-"       ─▶ Files      a bounded batch at a time

Invariants: every batch has the source's schema, is valid all the way down, has at least one and at
most `ROWS_PER_BATCH` rows, and takes at most the portion that the source has been told (`within`),
unless it is a single row; only an iterable's batches keep the length they come in, and are cut by
the feed.

Left out: casting to what a join needs, which knows its columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from matwin.storage.encodings import plain_batch
from matwin.storage.errors import InputError

from .frames import is_rows, pandas_table, rows_table
from .reading import ROWS_PER_BATCH as ROWS_PER_BATCH
from .reading import Source as Source
from .reading import checked_schema, first_line, read, sliced, validated
from .spool import Relation, Spooled, opened

IN_MEMORY = ("pandas", "polars")


def source_of(data: object, name: str) -> Source:
    """The source that `data` is; `name` is what errors call it.

    >>> source_of(pa.table({"t": [1, 2, 3]}), "left").rows_hint
    3
    """
    if isinstance(data, Source):
        return data.called(name)
    if _is_path(data) or _is_list_of_paths(data):
        from .files import files_source  # 40 ms for Parquet, CSV and object stores

        return files_source(data, name)
    if isinstance(data, pa.Table):
        return Held.of(data, name)
    if isinstance(data, pa.RecordBatch):
        return Held.of(_imported(lambda: pa.Table.from_batches([data]), name), name)
    if _is_scanned(data, "Dataset") or _is_scanned(data, "Scanner"):
        from .scans import dataset_source, scan_of

        if _is_scanned(data, "Dataset"):
            return dataset_source(data, name)
        return _streamed(scan_of(data, name), name, data)
    if _module(data) == "polars" and hasattr(data, "collect_schema") and hasattr(data, "sink_csv"):
        from .lazy import lazy_source

        return lazy_source(data, name)
    if hasattr(data, "__arrow_c_stream__"):
        return _stream_source(data, name)
    if hasattr(data, "__arrow_c_array__"):
        return source_of(_imported(lambda: pa.record_batch(data), name), name)
    if is_rows(data):
        return Held.of(rows_table(data, name), name)  # type: ignore[arg-type]
    if is_iterable_source(data):
        return Batches.of(data, name)
    raise InputError(
        f"{name}: a {type(data).__name__} is no source; give a table or anything with the Arrow "
        "stream interface, a path, folder, list or glob of Parquet, CSV, JSON lines or Arrow "
        "files, a list of dicts, or an iterable of record batches"
    )


def _is_scanned(data: object, kind: str) -> bool:
    """Whether something is a `Dataset` or a `Scanner` of pyarrow's, which nobody has to import for
    the answer."""
    return any(
        base.__name__ == kind and base.__module__ == "pyarrow._dataset" for base in type(data).mro()
    )


def two_sources(left: object, right: object) -> tuple[Source, Source]:
    """Both sides of a join; one that can be read only once can't be both."""
    ours, theirs = source_of(left, "left"), source_of(right, "right")
    once = read_once(ours)
    if once is not None and once is read_once(theirs):
        raise InputError(
            "left and right are the same source, which can be read only once; give a table, or "
            "two readers"
        )
    return ours, theirs


def check_trace(trace: str | Path | None, sources: Iterable[Source]) -> None:
    """Refuse a trace that would replace a file which is read, by whatever name."""
    for source in sources:
        for path in source.paths if trace is not None else ():
            if _is_same_file(path, trace):
                raise InputError(
                    f"trace={str(trace)!r} is an input, {path!r} of {source.name}; name another "
                    "file"
                )


def _is_same_file(one: str | Path, other: str | Path | None) -> bool:
    try:
        return other is not None and Path(one).samefile(other)
    except (OSError, ValueError):
        return False  # one of them is not there


def read_once(source: Source) -> object:
    """What a source can read a single time and another may be reading too; None where it can be
    read again."""
    inner = getattr(source, "source", source)
    given = getattr(inner, "given", None) or getattr(inner, "reader", None)
    return (given.origin or given.thing) if isinstance(given, Once) else None


def is_iterable_source(data: object) -> bool:
    """Whether the source is an iterable of items that come one after the other."""
    is_arrow = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    is_other = isinstance(data, Source | bytes | dict) or _is_path(data) or _is_list_of_paths(data)
    return isinstance(data, Iterable) and not is_arrow and not is_other


def _is_path(data: object) -> bool:
    return isinstance(data, str | os.PathLike)


def _is_list_of_paths(data: object) -> bool:
    return isinstance(data, list | tuple) and len(data) > 0 and all(map(_is_path, data))


def _module(data: object) -> str:
    return type(data).__module__.split(".")[0]


def _stream_source(data: Any, name: str) -> Source:
    module = _module(data)
    if module in ("duckdb", "_duckdb") and hasattr(data, "limit"):
        return Spooled.of(Relation(data), name)
    if module == "pandas" and hasattr(data, "index"):
        return Held.of(_imported(lambda: pandas_table(data), name), name)
    reader = data if isinstance(data, pa.RecordBatchReader) else opened(data, name)
    if module in IN_MEMORY:
        return Held.of(_imported(reader.read_all, name), name)
    return _streamed(reader, name)


def _streamed(reader: pa.RecordBatchReader, name: str, origin: object = None) -> Streamed:
    schema = checked_schema(reader.schema, name)
    return Streamed(name, schema, False, None, None, Once(reader, origin))


def _imported(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except (pa.ArrowException, ValueError, TypeError) as e:
        raise InputError(f"{name}: it can't be read as Arrow columns: {first_line(e)}") from e


@dataclass(frozen=True)
class Held(Source):
    """A table in memory."""

    table: pa.Table

    @classmethod
    def of(cls, table: pa.Table, name: str) -> Held:
        """The source of a table."""
        schema = checked_schema(table.schema, name)
        try:
            table.validate()  # the shape alone, because nbytes looks at offsets
        except pa.ArrowException as e:
            raise InputError(f"{name}: the table is malformed: {e}") from e
        return cls(name, schema, True, table.nbytes, table.num_rows, table)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        table = self.table if columns is None else self.table.select(columns)
        batches = validated(table, self.name).to_batches(max_chunksize=ROWS_PER_BATCH)
        return (part for batch in batches for part in sliced(batch, self.share.portion_bytes))


@dataclass
class Once:
    """Something that can be taken a single time; `origin` is what the user gave."""

    thing: Any
    origin: Any = None

    def take(self, name: str) -> Any:
        if self.thing is None:
            raise InputError(
                f"{name} can be read only once, and has been; give a table, files or a list of "
                "batches, or make a new reader"
            )
        thing, self.thing = self.thing, None
        return thing


@dataclass(frozen=True)
class Streamed(Source):
    """An Arrow stream that is read once."""

    reader: Once

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        return read(self.reader.take(self.name), columns, self.name, self.share.portion_bytes)


Reading = Callable[[Any, str], object]
"""Makes a batch of an item that is none, or lets it pass as it is; told how errors call it."""


def _no_batch(item: Any, where: str) -> object:
    raise InputError(f"{where} is a {type(item).__name__}; give record batches or tables")


@dataclass(frozen=True)
class Batches(Source):
    """An iterable of batches and tables, and of items that `reading` understands."""

    given: Iterable[Any] | Once
    reading: Reading

    comes_live: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        given: Any,
        name: str,
        schema: pa.Schema | None = None,
        reading: Reading = _no_batch,
    ) -> Batches:
        """The source of an iterable, whose first batch tells the schema unless it is given."""
        is_repeatable = isinstance(given, list | tuple)
        items = iter(given)
        if schema is None:
            head: list[Any] = []
            schema = _peeked(items, head, name)
            items = chain(head, items)
        return cls(
            name,
            checked_schema(schema, name),
            is_repeatable,
            None,
            None,
            given if is_repeatable else Once(items, given),
            reading,
        )

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return (item for item in self.items(columns) if isinstance(item, pa.RecordBatch))

    def items(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Batches, and between them what `reading` has let pass."""
        self.check_columns(columns)
        given = self.given.take(self.name) if isinstance(self.given, Once) else self.given
        return self._items(given, columns)

    def _items(self, given: Iterable[Any], columns: Sequence[str] | None) -> Iterator[Any]:
        for number, item in enumerate(given):
            where = f"{self.name}: batch {number}"
            if not isinstance(item, pa.RecordBatch | pa.Table):
                item = self.reading(item, where)
            if isinstance(item, pa.RecordBatch):
                yield from self._checked([item], columns, where)
            elif isinstance(item, pa.Table):
                yield from self._checked(item.to_batches(), columns, where)
            else:
                yield item

    def _checked(
        self, batches: list[pa.RecordBatch], columns: Sequence[str] | None, where: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            batch = validated(batch, where)
            if not batch.schema.equals(self.schema):  # which is plain
                batch = fitted(batch, self.schema, where)
            if batch.num_rows:
                yield batch if columns is None else batch.select(columns)


def _peeked(items: Iterator[Any], head: list[Any], name: str) -> pa.Schema:
    """The schema of the first batch; what had to be taken for it goes to `head`."""
    for item in items:
        head.append(item)
        if isinstance(item, pa.RecordBatch | pa.Table):
            return item.schema
        if isinstance(item, dict | list):
            break
    raise InputError(
        f"{name}: its columns are not known, for no record batch comes first; declare them with "
        "matwin.stream(..., schema=...)"
    )


def fitted(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch under the source's schema, from which it may differ in nothing but notes."""
    batch = plain_batch(batch)
    theirs = checked_schema(batch.schema, where)
    ours, its_names = set(schema.names), set(theirs.names)
    for name in [*schema.names, *theirs.names]:
        if name not in its_names:
            raise InputError(f"{where} lacks column {name!r}, which the source has")
        if name not in ours:
            raise InputError(f"{where} has column {name!r}, which the source lacks")
        mine, its = schema.field(name).type, theirs.field(name).type
        if mine != its:
            raise InputError(
                f"{where}: column {name!r} is {its}, and {mine} in the source; cast it"
            )
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
