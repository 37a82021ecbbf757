"""Looking at the data before a join: one job over order attributes and keys.

    each task   counts its rows, keeps up to TASK_ROWS of them at random   value, hash of the keys
    one task    brings these together, at most ALL_ROWS, with their weights
    driver      a `Sample` of each side

Spark's sampling jobs look at one column of one frame; this looks at all sides at once, and an
executor without the package is found out here, before the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from matwin.storage.columns import comparable

from .cut import hash_of, quoted
from .errors import explained
from .exchange import Exchange
from .frames import spark_type
from .plan import Sample
from .ship import sent

TASK_ROWS, ALL_ROWS = 4096, 200_000
SLOTS = -1
"""The tag of rows that only count the tasks that a new frame gets: Spark's own parallelism."""


@dataclass(frozen=True)
class Counting:
    """A task that keeps a random sample of its rows."""

    is_float: bool

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Its rows with their weights."""
        kept: dict[int, Any] = {}
        rows: dict[int, int] = {}
        chance = np.random.default_rng(_seed())
        for batch in batches:
            tags = batch.column("tag").to_numpy(zero_copy_only=False)
            values = _numbers(batch.column("value"), self.is_float)
            hashes = batch.column("hash").to_numpy(zero_copy_only=False)
            for tag in np.unique(tags):
                mine = np.flatnonzero(tags == tag)[: 1 if tag == SLOTS else None]
                drawn = chance.random(len(mine))
                new = (drawn, values[mine], hashes[mine])
                kept[int(tag)] = _lowest([*kept.get(int(tag), []), new])
                rows[int(tag)] = rows.get(int(tag), 0) + len(mine)
        for tag, parts in kept.items():
            drawn, values, hashes = _together(parts if tag != SLOTS else parts[:1])
            each = rows[tag] / max(len(drawn), 1)
            yield _batch(tag, values, hashes, np.full(len(drawn), each), self.is_float)


@dataclass(frozen=True)
class Gathering:
    """The task that brings all samples together."""

    is_float: bool

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows, or so many of each side that the driver can take them."""
        table = pa.Table.from_batches(list(batches))
        is_slot = pc.equal(table.column("tag"), SLOTS)
        yield from table.filter(is_slot).to_batches()
        table = table.filter(pc.invert(is_slot)).combine_chunks()
        if table.num_rows > ALL_ROWS:
            chance = np.random.default_rng(0)
            weights = table.column("weight").to_numpy()
            taken = chance.choice(len(weights), ALL_ROWS, p=weights / weights.sum())
            even = pa.array(np.full(ALL_ROWS, weights.sum() / ALL_ROWS))
            table = table.take(pa.array(taken)).set_column(3, "weight", even)
        yield from table.to_batches()


def _seed() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _numbers(column: pa.Array, is_float: bool) -> Any:
    wanted = np.float64 if is_float else np.int64
    if pa.types.is_null(column.type):
        return np.zeros(len(column), wanted)
    return comparable(column)[0].astype(wanted, copy=False)


def _lowest(parts: list[Any]) -> list[Any]:
    """The rows with the lowest draws; parts are brought together now and then."""
    if sum(len(part[0]) for part in parts) <= 8 * TASK_ROWS:
        return parts
    drawn, values, hashes = _together(parts)
    return [(drawn, values, hashes)]


def _together(parts: list[Any]) -> Any:
    drawn, values, hashes = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(drawn) > TASK_ROWS:
        low = np.argpartition(drawn, TASK_ROWS)[:TASK_ROWS]
        drawn, values, hashes = drawn[low], values[low], hashes[low]
    return drawn, values, hashes


def _batch(tag: int, values: Any, hashes: Any, weights: Any, is_float: bool) -> pa.RecordBatch:
    kind = pa.float64() if is_float else pa.int64()
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(values), tag, np.int32)), pa.array(values, kind),
            pa.array(hashes), pa.array(weights),
        ],
        names=["tag", "value", "hash", "weight"],
    )  # fmt: skip


@dataclass(frozen=True)
class Looked:
    """What the job has found."""

    samples: dict[str, Sample]
    slots: int


def looked_at(session: SparkSession, exchange: Exchange, operator: str) -> Looked:
    """Run the job."""
    kind = exchange.strip_type or pa.int64()
    is_float = bool(pa.types.is_floating(kind))
    schema = f"tag int, value {'double' if is_float else 'long'}, hash long, weight double"
    union = reduce(DataFrame.union, [*_projected(exchange, kind), _nothing(session, kind)])
    counted = union.mapInArrow(sent(Counting(is_float)), schema)
    gathered = counted.repartition(1).mapInArrow(sent(Gathering(is_float)), schema)
    with explained(operator):
        table = gathered.toArrow()
    tags, values, hashes, weights = (column.to_numpy() for column in table.columns)
    samples = {}
    for number, name in enumerate(exchange.routes):
        mine = tags == number
        samples[name] = Sample(values[mine], hashes[mine], weights[mine])
    return Looked(samples, max(1, int(np.count_nonzero(tags == SLOTS))))


def _projected(exchange: Exchange, kind: pa.DataType) -> Iterator[DataFrame]:
    for number, route in enumerate(exchange.routes.values()):
        value = F.lit(None) if route.strip is None else F.col(quoted(route.strip))
        yield route.frame.frame.filter(route.usable).select(
            F.lit(number).alias("tag"), value.cast(spark_type(kind)).alias("value"),
            hash_of(route.keys).alias("hash"),
        )  # fmt: skip


def _nothing(session: SparkSession, kind: pa.DataType) -> DataFrame:
    """A new frame, in as many tasks as Spark gives it."""
    return session.range(10_000).select(
        F.lit(SLOTS).alias("tag"), F.lit(None).cast(spark_type(kind)).alias("value"),
        F.lit(0).cast("long").alias("hash"),
    )  # fmt: skip
