"""Tables of a query over cut streams: read once, when it begins, whatever becomes of them later.

    prices.parquet ──read once──▶ kept: in memory, or in a file in scratch ──▶ every epoch

An epoch that read a file again would see another one as soon as somebody replaces it: one query,
two tables.  A reader could not be read again at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from matwin.operators.epochs.spool import Held as Spool
from matwin.sources import Held, Source

from .nodes import Scan

SHARE = 16
"""Of the query's memory, what the rows of all tables may take; the rest of them is on disk."""


@dataclass(frozen=True)
class Kept(Source):
    """Rows that stay as they were read."""

    spool: Spool

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        for batch in self.spool:
            yield batch if columns is None else batch.select(columns)


class Statics:
    """The tables of one query, by the source that each was."""

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}

    def read(self, scans: Iterable[Scan], memory: int, scratch: str | Path | None) -> None:
        """Read them, but for those that are in memory anyway; each column that a scan needs."""
        wanted: dict[int, list[Scan]] = {}
        for scan in scans:
            if scan.spec is None and not isinstance(scan.source, Held):
                wanted.setdefault(id(scan.source), []).append(scan)
        for key, same in wanted.items():
            source = same[0].source
            names = {name for scan in same for name in scan.columns}
            fields = [field for field in source.schema if field.name in names]
            rows = _Rows(source, pa.schema(fields))
            spool = Spool(rows, memory // SHARE // len(wanted), scratch)
            self._kept[key] = Kept(
                source.name, rows.schema, True, source.bytes_hint, spool.rows, spool
            )

    def of(self, scan: Scan) -> Source:
        """What a scan reads."""
        return self._kept.get(id(scan.source), scan.source)

    def close(self) -> None:
        """Let go of them."""
        for kept in self._kept.values():
            kept.spool.close()
        self._kept = {}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some columns of a source, under its own schema."""

    source: Source
    schema: pa.Schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.source.batches(self.schema.names):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
