"""What the tests of the Spark joins share: one real cluster, frames of Arrow tables, bags of rows.

    pytest worker ── driver ──┬── executor JVM ── Python workers
                              └── executor JVM ── Python workers      local-cluster[2,1,1024]

There is one session per process, and all tests that use it belong to one group, so that a run of
pytest with several workers starts it once:

    pytestmark = [needs_spark, pytest.mark.spark]

The session's time zone has daylight-saving time, which no result may depend on.  A folder of links
stands for Spark's own, because workers write their logs into it.
"""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

MASTER = "local-cluster[2,1,1024]"
ZONE = "America/New_York"
# Before the tests end, Java's second compiler takes longer than it saves: half of the CPU time of
# the tests in test_edges.py and test_types.py, 48 s without it and 92 s with it.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DRIVER_JAVA = {"SPARK_SUBMIT_OPTS": JAVA}
"""The same for a driver that gets no settings, as variables of its environment."""
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "2g",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.log.level": "ERROR",
    # Whoever asks a killed executor for its blocks waits 5 s three times before it gives up.
    "spark.shuffle.io.retryWait": "200ms",
    "spark.sql.session.timeZone": ZONE,
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "2",  # a new worker for each: what always fails has failed twice
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def missing() -> str | None:
    """Why there can be no Spark here."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=str(Path(home) / "bin") if home else None):
        return "there is no Java for Spark"
    return None


needs_campaign = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "campaign",
    reason="it takes a minute: make campaign runs it",
)
needs_spark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

# ── the cluster ──────────────────────────────────────────────────────────────────────────────


def prepare() -> Path:
    """Say in the environment where Spark is and which Python runs tasks; a folder for its files."""
    import pyspark

    home = Path(tempfile.mkdtemp(prefix="matwin-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return home


def new_session(master: str = MASTER, **settings: str) -> Any:
    """A session of its own; a process can have one only.  Dots in a setting's name are ``__``."""
    home = prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("matwin tests")
    given = {name.replace("__", "."): value for name, value in settings.items()}
    folders = {"spark.local.dir": home / "local", "spark.sql.warehouse.dir": home / "warehouse"}
    for name, value in {**SETTINGS, **folders, **given}.items():
        builder = builder.config(name, str(value))
    return builder.getOrCreate()


@cache
def cluster() -> Any:
    """The session that the tests of this process share."""
    session = new_session()
    atexit.register(session.stop)
    return session


def jobs_so_far(spark: Any) -> int:
    """How many jobs the driver has started; asked of its scheduler, so it is never behind."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@contextmanager
def no_job(spark: Any) -> Iterator[None]:
    """What is done inside may start no Spark job."""
    before = jobs_so_far(spark)
    yield
    assert jobs_so_far(spark) == before, "a job has run"


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    """One of the session's settings for a while."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


# ── tables and frames ────────────────────────────────────────────────────────────────────────

BOUNDS = [50, 100, 101, 170]
"""Strips through the times of `trapped`."""
SHIPS = ("full", "partial", "auto")


def frame(spark: Any, table: pa.Table, parts: int | None = None) -> Any:
    """A DataFrame of the table's rows; times without a zone stay without."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    made = spark.createDataFrame(table, schema=schema)
    return made if parts is None else made.repartition(parts)


def some(rng: Any, values: Sequence[Any], rows: int, nulls: float = 0.08) -> list[Any]:
    """Values at random, some of them null."""
    drawn = [values[i] for i in rng.integers(0, len(values), rows)]
    missing = rng.random(rows) < nulls
    return [None if gone else value for value, gone in zip(drawn, missing, strict=True)]


def trapped(seed: int, whole: pa.DataType, rows: int = 70) -> pa.Table:
    """Times with ties and nulls, odd floats, keys of several types with nulls."""
    rng = np.random.default_rng(seed)
    nan, inf = float("nan"), float("inf")
    numbers = [0.0, -0.0, 0.25, 0.5, 0.75, 1.0, nan, inf, -inf]
    return pa.table({
        "t": pa.array(some(rng, range(200), rows), pa.int64()),
        "x": pa.array(some(rng, numbers, rows), pa.float64()),
        "k": pa.array(some(rng, ["a", "b", "", "é"], rows)),
        "n": pa.array(some(rng, [1, 2, 2**31 - 1], rows), whole),
        "f": pa.array(some(rng, [0.0, -0.0, 1.5, nan, inf], rows), pa.float64()),
        "s": pa.array(some(rng, [[1], [1, 2], [2, 3], []], rows, 0), pa.list_(pa.int64())),
        "id": pa.array(range(rows), pa.int64()),
    })  # fmt: skip


def in_order(table: pa.Table, *first: str) -> pa.Table:
    """The rows in the order in which ties are on Spark: by the columns named, then by all, nulls
    first; NaN is the largest number, and -0.0 comes before 0.0 where nothing else tells."""
    names = list(dict.fromkeys([*first, *table.column_names]))
    rows = table.select(names).to_pylist()
    order = sorted(range(len(rows)), key=lambda i: _order_key(list(rows[i].values())))
    return table.take(pa.array(order, pa.int64()))


def _order_key(row: list[Any]) -> Any:
    signs = [math.copysign(1, value) for value in row if isinstance(value, float)]
    return [_value_key(value) for value in row], signs


def _value_key(value: Any) -> Any:
    if value is None:
        return (0,)
    if isinstance(value, list):
        return 1, [_value_key(one) for one in value]
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    return 1, value.encode() if isinstance(value, str) else value


def bag(table: pa.Table) -> Counter[str]:
    """The rows with how often each occurs; instants in UTC, and -0.0 is not 0.0."""
    columns = [_in_utc(column).to_pylist() for column in table.columns]
    return Counter(repr(row) for row in zip(*columns, strict=True))


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp("us", "UTC"))
    return column


def same(found: Any, expected: Any) -> int:
    """Whether two results are the same bag of the same columns; how many rows they have.

    Either may be a Spark DataFrame, an Arrow table or a reader.
    """
    ours, theirs = _table(found), _table(expected)
    assert ours.column_names == theirs.column_names
    a, b = bag(ours), bag(theirs)
    assert a == b, f"{(a - b).total()} rows too many, {(b - a).total()} missing: " + "; ".join(
        [f"+ {row}" for row in list(a - b)[:3]] + [f"- {row}" for row in list(b - a)[:3]]
    )
    return int(ours.num_rows)


def _table(given: Any) -> pa.Table:
    if hasattr(given, "toArrow"):
        return given.toArrow()
    return given.read_all() if hasattr(given, "read_all") else given
