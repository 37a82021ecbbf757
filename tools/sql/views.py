"""A source as a query sees it: some columns, under the query's names, and rows that pass filters.

    Parquet file ──▶ View(columns t, x; called a.t, a.x; where a.x > 3) ──▶ a join

Only the columns are read.  Filters are DuckDB's, batch by batch, so that a live stream's rows pass
at once, and its promise about their order still holds: what is left out is in nobody's way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from matwin.row_groups import RowGroup
from matwin.shares import ReadShare
from matwin.sources import Batches, Held, Source
from matwin.storage.errors import InputError
from matwin.streams import Stream, stream

from .dialect import quoted
from .engine import cursor, forget_if_broken, shared_database
from .nodes import Scan, columns_of

ROWS = "__matwin_rows"


@dataclass(frozen=True)
class View(Source):
    """Columns of another source, under other names."""

    source: Source
    origins: dict[str, str]
    """The name here, and there."""
    keeps: Callable[[pa.RecordBatch], pa.RecordBatch] | None
    extra: tuple[str, ...]
    """Columns that only the filters need, as they are called there."""

    @property
    def paths(self) -> tuple[str, ...]:
        return self.source.paths

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        wanted = list(self.origins) if columns is None else list(columns)
        theirs = [self.origins[name] for name in wanted]
        more = [name for name in self.extra if name not in theirs] if self.keeps else []
        return self._batches(wanted, theirs, more)

    def _batches(
        self, wanted: list[str], theirs: list[str], more: list[str]
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.source.batches([*theirs, *more]):
            if self.keeps is not None:
                batch = self.keeps(batch)
            if batch.num_rows:
                yield batch.select(theirs).rename_columns(wanted)

    def row_groups(self, column: str) -> list[RowGroup] | None:
        return None if self.keeps else self.source.row_groups(self.origins[column])

    def thinned(self, columns: Sequence[str], groups: int) -> Source | None:
        inner = self.source.thinned([self.origins[name] for name in columns], groups)
        if inner is None or self.keeps:
            return None
        origins = {name: self.origins[name] for name in columns}
        schema = pa.schema([self.schema.field(name) for name in columns])
        return replace(self, source=inner, origins=origins, schema=schema)

    def within(self, share: ReadShare) -> View:
        return replace(self, share=share, source=self.source.within(share))


def view_of(scan: Scan) -> Source:
    """What a scan reads."""
    schema = pa.schema(columns_of(scan))
    kept = scan.columns if scan.kept is None else scan.kept
    origins = dict(zip(schema.names, kept, strict=True))
    keeps = Filter(scan) if scan.filters else None
    extra = tuple(name for name in scan.columns if name not in kept)
    source = scan.source
    # Where DuckDB reads it, a stream's order is of no use, nor the column that has it.
    if isinstance(source, Stream) and scan.alias is not None:
        return _stream_view(scan, source, schema, origins, keeps, extra)
    if isinstance(source, Held) and keeps is None:
        table = source.table.select(list(kept)).rename_columns(schema.names)
        return Held.of(table, scan.alias or scan.label)
    return _view(scan, source, schema, origins, keeps, extra)


def _view(
    scan: Scan, source: Source, schema: pa.Schema, origins: dict[str, str], keeps: Any,
    extra: tuple[str, ...],
) -> View:  # fmt: skip
    share = len(scan.columns) / max(1, len(source.schema.names))
    size = None if source.bytes_hint is None else int(source.bytes_hint * share)
    return View(
        scan.alias or scan.label, schema, source.is_repeatable, size, source.rows_hint, source,
        origins, keeps, extra,
    )  # fmt: skip


def _stream_view(
    scan: Scan, given: Stream, schema: pa.Schema, origins: dict[str, str], keeps: Any,
    extra: tuple[str, ...],
) -> Stream:  # fmt: skip
    back = {there: here for here, there in origins.items()}
    on = None if given.on is None else back.get(given.on)
    if given.on is not None and on is None:
        raise InputError(
            f"{scan.label} is ordered by {given.on!r}, which this query does not use; join by it"
        )
    name = scan.alias or scan.label
    if not isinstance(given.source, Batches):
        inner = _view(scan, given.source, schema, origins, keeps, extra)
        return replace(given, name=name, schema=schema, source=inner, on=on)
    late: Any = given.late
    items = _items(given, list(origins), list(origins.values()), keeps, list(extra))
    return stream(
        items, on=on, order=given.order, late=late, schema=schema, name=name,
        live=given.is_live,
    )  # fmt: skip


def _items(
    given: Stream, wanted: list[str], theirs: list[str], keeps: Any, more: list[str]
) -> Iterator[Any]:
    for item in given.items([*theirs, *more]):
        if not isinstance(item, pa.RecordBatch):
            yield item
            continue
        batch = item if keeps is None else keeps(item)
        yield batch.select(theirs).rename_columns(wanted)


class Filter:
    """Conditions on the rows of one table, as DuckDB understands them."""

    def __init__(self, scan: Scan) -> None:
        conditions = " AND ".join(f"({one})" for one in scan.filters)
        name = quoted(scan.alias or scan.label)
        self._sql = f"SELECT {ROWID} FROM {ROWS} AS {name} WHERE {conditions}"
        self._shown = " and ".join(scan.filters)
        self._cursor: Any = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that satisfy all conditions."""
        if self._cursor is None:
            self._cursor = cursor()
        numbered = batch.append_column(ROWID, pa.array(range_of(batch.num_rows)))
        self._cursor.register(ROWS, pa.Table.from_batches([numbered]))
        try:
            kept = self._cursor.sql(self._sql).to_arrow_table().column(0)
        except Exception as error:
            forget_if_broken(error)
            shortage = shared_database().shortage(error)
            if shortage is not None:
                raise shortage from None
            said = str(error).splitlines()[0]
            raise InputError(f"DuckDB, at {self._shown}: {said}") from None
        if len(kept) == batch.num_rows:
            return batch
        # By number, not by DuckDB's copy of the rows: columns keep their Arrow types.
        return batch.take(kept.combine_chunks())


ROWID = "__matwin_row"


def range_of(count: int) -> Any:
    """The numbers of some rows."""
    import numpy as np

    return np.arange(count, dtype=np.int64)
