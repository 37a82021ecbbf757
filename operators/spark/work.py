"""What tasks do with their streams: the embedded joins, and nothing else.  Runs in executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import matwin
from matwin.streams import Stream

from .task import Work


@dataclass(frozen=True)
class Bestmatch(Work):
    """A bestmatch join of a part; `own` names the columns that mark a row's own copy."""

    own: tuple[str, ...] | None = None
    ties: Any = "all"

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        reader = matwin.bestmatch_join(
            streams["left"], streams["right"], ties=self.ties, **arguments, **options
        )
        return reader if self.own is None else owned(reader, self.own)


@dataclass(frozen=True)
class Epsilon(Work):
    """An ε-join of a part."""

    own: tuple[str, ...] | None = None

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        reader = matwin.epsilon_join(streams["left"], streams["right"], **arguments, **options)
        return reader if self.own is None else owned(reader, self.own)


@dataclass(frozen=True)
class Asof(Work):
    """An as-of join of a part."""

    own: None = None

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        left, right = streams["left"], streams["right"]
        return matwin.asof_join(left, right, ordered=False, **arguments, **options)


@dataclass(frozen=True)
class Windows(Work):
    """A window join of a part."""

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        reader: Iterable[pa.RecordBatch] = matwin.window_join(streams, **arguments, **options)
        return reader


def owned(batches: Iterable[pa.RecordBatch], own: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Rows that belong to this part: pairs by their left row, rows alone by themselves."""
    left, right = own
    for batch in batches:
        here = pc.coalesce(batch.column(left), batch.column(right))
        mine = batch.filter(here).drop_columns([left, right])
        if mine.num_rows:
            yield mine
