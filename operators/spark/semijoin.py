"""Semijoin shipping: what is shuffled before it is known to match.

    full      rows ──shuffle──▶ join                                                          SPJ

    partial   keys, attributes, id ──shuffle──▶ join ──ids of what matches──broadcast──┐      SMJ
              rows ──────────────────────────── those with such an id ◀────────────────┘
                     └──shuffle──▶ join

The paper's node 1 ships partial tuples, node 2 asks for the full ones that match.  On Spark every
executor is both: the first join runs on what is needed to join by, and the ids of what it has found
are the requests.  They go to all executors, each of which ships the rows that were asked for.

A row's id is the hash of its side and of all that decides whether it matches.  It needs no
numbering, which Spark would repeat differently after a failure; rows that agree in all of it match
alike; and a row that is asked for by accident (two hashes that agree) is judged again by the second
join.  Rows that match nothing are never shuffled, also where they come out unmatched.

Rows are read twice.  Where that may give other rows (`again.py`), what was read first is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from matwin.streams import Stream

from .cut import quoted
from .prepared import Prepared, helper_names
from .shipping import Shipping, shipping_of
from .task import Work

REQUESTS = StructType([StructField("id", LongType(), False)])
FLUSH_IDS = 1 << 20
ID = "matwin id"
BROADCAST_IDS = 10_000_000
"""So many ids are sent to every executor; of more Spark makes what it likes."""


def shipped(prepared: Prepared) -> DataFrame:
    """The join's result, with its rows shipped as was asked for or as is cheaper."""
    prepared = prepared.standing()
    shipping = shipping_of(prepared)
    if shipping.ship == "full":
        return prepared.finish(prepared)
    # What the first join asks for must be there when the rows are read again.
    settled = prepared.settled()
    reduced, alone = _answered(settled, requested(settled), shipping)
    asked_for = settled.with_frames(reduced)
    return reduce(DataFrame.union, [asked_for.finish(asked_for), *alone])


def requested(prepared: Prepared) -> DataFrame:
    """The ids of rows that match, by side."""
    suffixes = getattr(prepared.question, "suffixes", ())
    ids = dict(zip(prepared.frames, helper_names("id", prepared.frames, suffixes), strict=True))
    narrow = {
        name: frame.frame.select(
            *(F.col(quoted(column)) for column in prepared.needed[name]),
            row_id(prepared, name).alias(ids[name]),
        )
        for name, frame in prepared.frames.items()
    }
    assert prepared.asking is not None
    first = replace(prepared.asking(narrow), is_settled=True).planned(prepared.plan)
    outputs = tuple(prepared.renamed(name, ids[name]) for name in prepared.frames)
    if first.finish is not Prepared.frame:
        return _ids_of(first.finish(first), outputs).distinct()
    return first.mapped(Requests(first.work, outputs), REQUESTS).distinct()


def _ids_of(pairs: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """The ids of both sides of some few pairs."""
    sides = [pairs.select(F.col(quoted(column)).alias("id")) for column in columns]
    return reduce(DataFrame.union, sides)


def row_id(prepared: Prepared, side: str) -> Column:
    """The hash of a row's side and of what decides whether it matches."""
    number = list(prepared.frames).index(side)
    return F.xxhash64(F.lit(number), *(F.col(quoted(name)) for name in prepared.needed[side]))


def _answered(
    prepared: Prepared, requests: DataFrame, shipping: Shipping
) -> tuple[dict[str, DataFrame], list[DataFrame]]:
    """The rows that were asked for, and output rows of those that were not but come out alone."""
    asked, alone = {}, []
    ids = requests.withColumnRenamed("id", ID)
    if shipping.requests is None or shipping.requests <= BROADCAST_IDS:
        ids = F.broadcast(ids)
    for side, frame in prepared.frames.items():
        rows = frame.frame.withColumn(ID, row_id(prepared, side))
        asked[side] = rows.join(ids, ID, "left_semi").drop(ID)
        if prepared.exchange.routes[side].keeps_rejected:
            rest = rows.join(ids, ID, "left_anti").drop(ID)
            alone.append(_alone(prepared, side, rest))
    return asked, alone


def _alone(prepared: Prepared, side: str, rows: DataFrame) -> DataFrame:
    """Rows that match nothing as output rows: null wherever the other side would stand."""
    mine = {prepared.renamed(side, name): name for name in prepared.frames[side].fields}
    columns = []
    for field in prepared.output:
        name = mine.get(field.name)
        value = F.lit(None) if name is None else F.col(quoted(name))
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns)


@dataclass(frozen=True)
class Requests(Work):
    """The ids of the rows that a join has brought together."""

    work: Work
    columns: tuple[str, ...]

    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        waiting: list[Any] = []
        for batch in self.work(streams, arguments, options):
            for column in self.columns:
                if column in batch.schema.names:
                    ids = batch.column(column).drop_null().to_numpy(zero_copy_only=False)
                    waiting.append(np.unique(ids))
            if sum(map(len, waiting)) > FLUSH_IDS:
                yield from _flushed(waiting)
        yield from _flushed(waiting)


def _flushed(ids: list[Any]) -> Iterator[pa.RecordBatch]:
    if ids:
        found = np.unique(np.concatenate(ids))
        ids.clear()
        yield pa.RecordBatch.from_arrays([pa.array(found)], names=["id"])
