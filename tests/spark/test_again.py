"""Frames that give other rows whenever they are read: a join loses none of them and doubles none.

What such a frame holds is not known beforehand, so results are judged by themselves: a full join
shows every row of both sides, with the random value that it was joined by, and from these the join
follows.  Of the others, what their rows say must fit together.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from proofs import tried
from sparks import needs_spark, no_job, setting
from support import campaign

pytest.importorskip("pyspark", reason="matwin.spark can't be imported without pyspark")

from pyspark.sql import functions as F

import matwin
from matwin.spark.again import doubt_of

pytestmark = [needs_spark, pytest.mark.spark]

ROWS = 300
STRIPS = [1000, 2000]
EPSILON = 2


def rows(spark: Any) -> Any:
    return spark.range(0, ROWS, 1, 3).selectExpr("id", "repeat('payload', 20) AS p")


def of_rand(spark: Any) -> Any:
    """The seed is the frame's, but which row gets which number depends on the order of rows."""
    return rows(spark).repartition(5).selectExpr("id", "p", "CAST(rand() * 3000 AS LONG) AS x")


def of_function(spark: Any) -> Any:
    drawn = F.udf(lambda _: random.randrange(3000), "long").asNondeterministic()
    return rows(spark).withColumn("x", drawn("id"))


def of_careless_function(spark: Any) -> Any:
    """One that doesn't say that it is random, so that Spark may call it as often as it likes."""
    return rows(spark).withColumn("x", F.udf(lambda _: random.randrange(3000), "long")("id"))


def of_task(spark: Any) -> Any:
    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            drawn = pa.array([random.randrange(3000) for _ in range(batch.num_rows)], pa.int64())
            yield pa.RecordBatch.from_arrays([*batch.columns, drawn], names=["id", "p", "x"])

    return rows(spark).mapInArrow(draw, "id long, p string, x long")


def of_rdd(spark: Any) -> Any:
    drawn = spark.sparkContext.range(ROWS, numSlices=3).map(
        lambda i: (i, "payload" * 20, random.randrange(3000))
    )
    return spark.createDataFrame(drawn, "id long, p string, x long")


FRAMES: dict[str, Callable[[Any], Any]] = {
    "rand": of_rand, "function": of_function, "careless": of_careless_function,
    "task": of_task, "rdd": of_rdd,
}  # fmt: skip


def both(spark: Any, kind: str) -> tuple[Any, Any]:
    make = FRAMES[kind]
    left, right = make(spark), make(spark)
    return left, right.selectExpr("id + 10000 AS id", "p", "x")


def values(table: pa.Table, side: str) -> dict[int, int]:
    """The value of every row of a side; it must be one and the same wherever the row comes out."""
    found: dict[int, int] = {}
    for row, x in zip(table[f"id{side}"].to_pylist(), table[f"x{side}"].to_pylist(), strict=True):
        if row is not None:
            assert found.setdefault(row, x) == x, f"row {row} was read as {found[row]} and as {x}"
    return found


def check_pairs(table: pa.Table) -> set[tuple[int | None, int | None]]:
    pairs = list(zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a pair came twice"
    left, right = values(table, "_left"), values(table, "_right")
    for a, b in pairs:
        assert a is None or b is None or abs(left[a] - right[b]) <= EPSILON
    return set(pairs)


def check_alone(pairs: set[tuple[Any, Any]], own: int, ids: range) -> None:
    """Every row of a side is there, alone or with partners."""
    partners = defaultdict(list)
    for pair in pairs:
        partners[pair[own]].append(pair[1 - own])
    assert set(partners) - {None} == set(ids)
    partners.pop(None, None)
    assert all(None not in mates or len(mates) == 1 for mates in partners.values())


@pytest.mark.proof("Spark: frames that differ when read again")
@pytest.mark.parametrize(
    ("kind", "ship"), [*((kind, "partial") for kind in FRAMES), ("careless", "full")]
)
def test_full_joins(spark: Any, kind: str, ship: str) -> None:
    for _ in range(campaign(1, 10)):
        asked = {"on": {"x": EPSILON}, "how": "full", "strips": STRIPS, "ship": ship}
        table = matwin.spark.epsilon_join(*both(spark, kind), **asked).toArrow()
        pairs = check_pairs(table)
        lefts, rights = values(table, "_left"), values(table, "_right")
        assert {pair for pair in pairs if None not in pair} == {
            (a, b) for a, x in lefts.items() for b, y in rights.items() if abs(x - y) <= EPSILON
        }
        check_alone(pairs, 0, range(ROWS))
        check_alone(pairs, 1, range(10000, 10000 + ROWS))
        tried()


@pytest.mark.proof("Spark: frames that differ when read again")
def test_left_joins_shipped_as_auto_likes(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it would save, rows that may differ are shipped whole."""
    monkeypatch.setattr("matwin.spark.shipping.WORTH_BYTES", 0)
    frames = both(spark, "rand")
    asked: dict[str, Any] = {"on": {"x": EPSILON}, "how": "left", "keep_unmatched": True}
    told = matwin.spark.explain(matwin.spark.bestmatch_join, *frames, **asked)
    assert "full: partial reads twice, and these may give other rows then: left (rand())" in told
    check_alone(
        check_pairs(matwin.spark.bestmatch_join(*frames, **asked).toArrow()), 0, range(ROWS)
    )
    tried()


@pytest.mark.proof("Spark: frames that differ when read again")
@pytest.mark.parametrize("ship", ["full", "partial"])
def test_best_pairs_of_all(spark: Any, ship: str) -> None:
    """The frontier is that of the pairs that come out, also where nothing is shuffled once."""
    asked: dict[str, Any] = {"on": {"x": 500}, "how": "inner", "strips": STRIPS, "ship": ship}
    with setting(spark, "spark.sql.exchange.reuse", "false"):
        found = matwin.spark.bestmatch_join(*both(spark, "task"), **asked, distances=True)
        table = found.toArrow()
    assert table.num_rows > 0
    assert len(set(table["x_distance"].to_pylist())) == 1
    tried()


def test_what_is_known_to_stay_is_not_pinned(spark: Any, tmp_path: Path) -> None:
    """A file is read twice as it is, whatever its payload; the call runs no job for that."""
    rows(spark).write.parquet(str(tmp_path / "rows"))
    files = spark.read.parquet(str(tmp_path / "rows"))
    known = [
        files, files.selectExpr("id", "rand() AS r", "uuid() AS u"), rows(spark).repartition(3),
        files.filter("id > 3").orderBy("p"), files.unionByName(rows(spark)),
        files.selectExpr("CAST(id AS STRING) AS s", "id").join(files, "id"),
    ]  # fmt: skip
    with no_job(spark):
        assert [doubt_of(frame, ["id"]) for frame in known] == [None] * len(known)


def test_what_may_differ(spark: Any, tmp_path: Path) -> None:
    rows(spark).write.csv(str(tmp_path / "rows"), header=True)
    ranged, window = rows(spark), "OVER (ORDER BY p)"
    doubted = {
        "limit": ranged.limit(5), "sample": ranged.sample(0.5), "first": ranged.groupBy("p").agg(
            F.first("id").alias("id")), "number": ranged.selectExpr(f"row_number() {window} AS id"),
        "serial": ranged.selectExpr("monotonically_increasing_id() AS id"),
        "filter": ranged.filter("rand() < 0.5"), "uuid": ranged.selectExpr("uuid() AS id"),
        "distinct": ranged.dropDuplicates(["p"]), "persisted": ranged.persist(),
        "csv": spark.read.csv(str(tmp_path / "rows"), header=True),
        "wide": ranged.selectExpr(*(f"id + {i} AS c{i}" for i in range(40)), "id"),
    }  # fmt: skip
    columns = {"wide": [f"c{i}" for i in range(40)]}
    told = {name: doubt_of(frame, columns.get(name, ["id"])) for name, frame in doubted.items()}
    ranged.unpersist()
    assert all(told.values()), told
    assert told["wide"] == "Project of many columns"
