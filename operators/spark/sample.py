"""Looking at the data before a join: one job over order attributes and keys, in Spark alone.

    each side   value, hash of the keys, a random number ──▶ the rows with the least random numbers
    driver      a `Sample` of each side

The K rows with the least of n random numbers are a sample of K rows, and tell n too: the largest
of them is about K/n.  One pass, no counting, and only K rows of a task go anywhere.

Finding the least is most of the work, so rows that can't be among them are left out before: a
task's i-th row with a number above 2K/i.  Of i rows about 2K have a number below that, so that K of
them are less is certain enough: the chance that it fails is below e^(-K/6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from matwin.scheduler.division import Sample
from matwin.storage.columns import comparable
from matwin.storage.decimals import integers

from .cut import cast_sql, hash_of, quoted
from .exchange import Exchange

SAMPLE_ROWS = 20_000
SEED = 20011
ROW_NUMBER = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
"""Which of its task's rows a row is, from 0; above bit 33 is the task's number."""


@dataclass(frozen=True)
class Looked:
    """What the job has found."""

    samples: dict[str, Sample]
    slots: int


def looked_at(session: SparkSession, exchange: Exchange) -> Looked:
    """Run the job."""
    kind = exchange.strip_type or pa.int64()
    table = reduce(DataFrame.union, _drawn(exchange, kind)).toArrow().combine_chunks()
    tags = table.column("tag").to_numpy()
    samples = {}
    for number, name in enumerate(exchange.routes):
        mine = table.filter(pa.array(tags == number)).combine_chunks()
        samples[name] = _sample(mine, is_float=bool(pa.types.is_floating(kind)))
    return Looked(samples, slots_of(session))


def _drawn(exchange: Exchange, kind: pa.DataType) -> Iterator[DataFrame]:
    for number, route in enumerate(exchange.routes.values()):
        value = "NULL" if route.strip is None else quoted(route.strip)
        rows = route.frame.frame.filter(route.usable).selectExpr(
            f"{number} AS tag", f"{cast_sql(value, kind)} AS value",
            f"{hash_of(route.keys)} AS hash", f"rand({SEED + number}) AS drawn",
        )  # fmt: skip
        likely = f"drawn * ({ROW_NUMBER} + 1) < {2 * SAMPLE_ROWS}"
        yield rows.filter(likely).orderBy("drawn").limit(SAMPLE_ROWS)


def _sample(rows: pa.Table, *, is_float: bool) -> Sample:
    wanted = np.float64 if is_float else np.int64
    count = rows.num_rows
    values = _numbers(rows.column("value"), wanted)
    hashes = rows.column("hash").to_numpy()
    drawn = rows.column("drawn").to_numpy()
    total = count if count < SAMPLE_ROWS else (count - 1) / float(drawn.max())
    return Sample(values, hashes, np.full(count, total / max(count, 1)))


def _numbers(column: pa.ChunkedArray, wanted: Any) -> Any:
    whole = column.combine_chunks()
    if whole.null_count == len(whole):
        return np.zeros(len(whole), wanted)
    if pa.types.is_decimal(whole.type):
        return integers(whole, whole.type.scale)[0]
    return comparable(whole)[0].astype(wanted, copy=False)


def slots_of(session: SparkSession) -> int:
    """How many tasks run at a time."""
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except (PySparkException, AttributeError):  # Spark Connect: as many as a new frame is given
        tasks = session.range(10_000).select(F.spark_partition_id().alias("task"))
        return max(1, tasks.distinct().count())
