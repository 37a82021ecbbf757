"""Columns of every type come out as they went in, and the result is a DataFrame like any other.

payload of all types ──▶ join ──▶ schema: the inputs' fields      known before anything runs
                                  values: those of the inputs     looked up by the row's id
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sparks import cluster, frame, needs_spark, no_job, same, setting

import matwin

pytestmark = [needs_spark, pytest.mark.spark]

ROWS = 12
UTC = dt.UTC
SPRING = dt.datetime(2024, 3, 10, 2, 30)  # no such time in New York
TURN = dt.datetime(2024, 11, 3, 5, 30, tzinfo=UTC)  # the first of two half past ones there
STRUCT = "struct<a: int, b: struct<c: string, d: array<double>>>"
SCHEMA = f"""
    t bigint not null, id int, ts timestamp, ntz timestamp_ntz, day date, wide decimal(38,18),
    price decimal(10,2), list array<bigint>, lists array<array<string>>, inner {STRUCT},
    map map<string, array<int>>, bytes binary, yes boolean, tiny tinyint, small smallint,
    text string, span interval day to second, single float
"""


def row(n: int) -> tuple[Any, ...]:
    """A row of all types; every fifth is null in all that may be."""
    if n % 5 == 4:
        return (n * 10, n, *[None] * 16)
    return (
        n * 10, n, TURN + dt.timedelta(minutes=30 * n), SPRING + dt.timedelta(minutes=n),
        dt.date(1, 1, 1) if n == 0 else dt.date(2024, 2, 29), Decimal(10) ** 19 - Decimal(n) / 7,
        Decimal("-12345678.90") + n, [n, None, 2**63 - 1], [["é", None], [], None],
        (n, (None if n % 2 else "c", [0.0, float("inf")])), {"k": [n, None], "": None},
        bytes([0, n, 255]), n % 2 == 0, -128 + n, 32767 - n, "line\nbreak\0☃" * n,
        dt.timedelta(days=-n, microseconds=1), n / 7,
    )  # fmt: skip


def rows_frame() -> Any:
    return cluster().createDataFrame([row(n) for n in range(ROWS)], SCHEMA)


@cache
def sides() -> tuple[Any, Any]:
    """Two frames of all types, the right one 3 later and with a note on its text."""
    from pyspark.sql import functions as F

    from matwin.spark.probe import check_executors

    check_executors(cluster(), "test")  # the first join of a session runs a job for that
    left = rows_frame()
    notes = {"comment": "who said it", "unit": "°C"}
    right = rows_frame().withColumn("t", F.col("t") + 3).withMetadata("text", notes)
    return left, right.filter("id < 9")


def by_id(spark_rows: Any, prefix: str = "", suffix: str = "") -> dict[int, Any]:
    names = [f"{prefix}{name}{suffix}" for name in sides()[0].columns]
    found = [tuple(one[name] for name in names) for one in spark_rows]
    return {values[1]: repr(values[2:]) for values in found if values[1] is not None}


def original(side: int) -> dict[int, Any]:
    return by_id(sides()[side].collect())


# ── carried faithfully ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ship", ["full", "partial"])
def test_every_type_is_carried_through_both_sides(ship: str) -> None:
    left, right = sides()
    # Rows given to Spark as a list are an RDD to it, which might differ when it is read again.
    with no_job(cluster()) if ship == "full" else nullcontext():
        found = matwin.spark.epsilon_join(
            left, right, on={"t": (0, 5)}, how="full", strips=[30, 63], ship=ship
        )
        fields = {field.name: field for field in found.schema}
    for side, given in (("_left", left), ("_right", right)):
        for field in given.schema:
            out = fields[field.name + side]
            assert out.dataType == field.dataType
            assert out.metadata == field.metadata
            assert out.nullable, "a row may come without the other side's"
    rows = found.collect()
    assert len(rows) == ROWS
    assert by_id(rows, suffix="_left") == original(0)
    assert by_id(rows, suffix="_right") == original(1)
    assert all(one["t_right"] in (None, one["t_left"] + 3) for one in rows)


def test_inner_and_window_joins_carry_them_too() -> None:
    left, right = sides()
    with no_job(cluster()):
        inner = matwin.spark.bestmatch_join(left, right, on={"t": (0, 5)}, strips=[45])
        windows = matwin.spark.window_join(
            {"a": left, "b": right}, time="t", windows={("a", "b"): matwin.then(5)}, strips=[45]
        )
        assert not inner.schema["t_left"].nullable
        assert not windows.schema["b_t"].nullable
        assert windows.schema["b_text"].metadata == right.schema["text"].metadata
    for found, ends in (
        (inner, [("", "_left"), ("", "_right")]),
        (windows, [("a_", ""), ("b_", "")]),
    ):
        rows = found.collect()
        for side, (prefix, suffix) in enumerate(ends):
            whole = {n: values for n, values in original(side).items() if n < 9}
            assert by_id(rows, prefix, suffix) == whole


def test_the_result_is_a_frame_like_any_other(tmp_path: Path, capsys: Any) -> None:
    left, right = sides()
    found = matwin.spark.bestmatch_join(
        left, right, on={"t": (0, 5)}, strips=[45], keep_unmatched=True, distances=True
    )
    folder = str(tmp_path / "out.parquet")
    found.write.parquet(folder)
    back = cluster().read.parquet(folder)
    assert back.dtypes == found.dtypes
    assert by_id(back.collect(), suffix="_left") == original(0)
    found.explain()
    assert "MapInArrow" in capsys.readouterr().out
    found.createOrReplaceTempView("matwin_found")
    counts = cluster().sql(
        "select day_left, count(*) n, max(t_distance) d from matwin_found where t_left < 95 "
        "group by day_left order by n"
    )
    assert [(one.n, one.d) for one in counts.collect()] == [(1, 3), (2, 3), (7, 3)]
    assert found.select("id_left", "text_right").filter("t_distance is null").count() == ROWS - 9
    assert found.groupBy("yes_left").count().count() == 3


def test_a_null_that_matters_stays_null() -> None:
    table = pa.table({"t": [1, None, 3], "v": pa.array([None, "x", None], pa.string())})
    given = frame(cluster(), table)
    found = matwin.spark.epsilon_join(given, given, on={"t": 0}, how="left", strips=[2])
    same(found, matwin.epsilon_join(table, table, on={"t": 0}, how="left"))


# ── joined by ────────────────────────────────────────────────────────────────────────────────

MINUTE = dt.timedelta(minutes=1)
HOURS = [TURN + n * 15 * MINUTE for n in range(-8, 8)]
LATE = [2**63 - 1 - n * 3_600_000_000 for n in range(60)]
ATTRIBUTES: dict[str, tuple[pa.Array, Any, list[Any]]] = {
    "timestamp": (pa.array(HOURS, pa.timestamp("us", "UTC")), "20min", HOURS[3::4]),
    "timestamp_ntz": (
        pa.array([h.replace(tzinfo=None) for h in HOURS], pa.timestamp("us")), 20 * MINUTE,
        [h.replace(tzinfo=None) for h in HOURS[3::4]],
    ),
    "date": (
        pa.array([dt.date(2024, 2, 20) + n * dt.timedelta(1) for n in range(16)]),
        dt.timedelta(days=2), [dt.date(2024, 2, 28), dt.date(2024, 3, 1)],
    ),
    "interval": (
        pa.array([n * MINUTE for n in range(-8, 8)], pa.duration("us")), "3min",
        [-MINUTE, 4 * MINUTE],
    ),
    "long interval": (
        pa.array(LATE, pa.int64()).view(pa.duration("us")), "90min",
        [pa.scalar(n, pa.int64()).cast(pa.duration("us")) for n in LATE[-1::-9]],
    ),
    "byte": (pa.array(range(112, 128), pa.int8()), 3, [115, 120]),
    "float": (pa.array([n / 8 for n in range(16)], pa.float32()), 0.25, [0.5, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_type_can_be_joined_by(name: str) -> None:
    """Also in a zone that has the hour twice: instants are instants."""
    column, tolerance, bounds = ATTRIBUTES[name]
    table = pa.table({"t": column, "i": range(len(column))})
    given = frame(cluster(), table)
    on: Any = {"t": tolerance}
    found = matwin.spark.epsilon_join(
        given, given, on=on, how="full", strips=bounds, distances=True
    )
    assert same(found, matwin.epsilon_join(table, table, on=on, how="full", distances=True)) > 16
    chosen = matwin.spark.bestmatch_join(given, given, on=on, strips=3, by="i")
    assert same(chosen, matwin.bestmatch_join(table, table, on=on, by="i")) == len(column)


def test_a_date_next_to_a_time_without_a_zone() -> None:
    days = pa.table({"d": pa.array([19_000, 19_001, 19_005], pa.date32()), "i": [1, 2, 3]})
    times = ATTRIBUTES["timestamp_ntz"][0][:3].cast(pa.int64())
    base = 19_000 * 86_400_000_000
    moments = pa.array([base + t.as_py() % 10**9 for t in times]).view(pa.timestamp("us"))
    stamps = pa.table({"t": moments, "j": [1, 2, 3]})
    arguments: Any = {"on": {("d", "t"): "1d"}, "how": "left", "distances": True}
    found = matwin.spark.epsilon_join(
        frame(cluster(), days), frame(cluster(), stamps), **arguments, strips=2
    )
    assert same(found, matwin.epsilon_join(days, stamps, **arguments)) >= 3


@contextmanager
def time_of_day() -> Iterator[None]:
    """Spark has the type TIME from 4.1 on, and only where it is turned on."""
    try:
        with setting(cluster(), "spark.sql.timeType.enabled", "true"):
            cluster().sql("select TIME '10:00:00' as t").schema  # noqa: B018
            yield
    except Exception as e:
        if "TIME" not in str(e) and "timeType" not in str(e):
            raise
        pytest.skip(f"this Spark has no type TIME: {str(e).splitlines()[0]}")


def test_times_of_day() -> None:
    nanos = [0, 1_000, 3_600 * 10**9, 3_601 * 10**9, 86_399_999_999_000]
    table = pa.table({"t": pa.array(nanos).view(pa.time64("ns")), "i": range(5)})
    with time_of_day():
        given = cluster().sql(
            "select make_time(0, 0, cast(0 as decimal(16,6))) t, 0L i "
            "union all select TIME '00:00:00.000001', 1L union all select TIME '01:00:00', 2L "
            "union all select TIME '01:00:01', 3L union all select TIME '23:59:59.999999', 4L"
        )
        bounds = [dt.time(1), dt.time(23)]
        found = matwin.spark.epsilon_join(given, given, on={"t": "1s"}, how="full", strips=bounds)
        assert same(found, matwin.epsilon_join(table, table, on={"t": "1s"}, how="full")) == 9


def test_distances_that_no_long_holds() -> None:
    table = pa.table({"t": [-(2**63), 0, 2**63 - 1], "i": [0, 1, 2]})
    given = frame(cluster(), table)
    far = matwin.spark.epsilon_join(given, given, on={"t": 2**64 - 1}, strips=[0], distances=True)
    apart = sorted(int(one["t_distance"]) for one in far.collect())
    assert apart == [0, 0, 0, 2**63 - 1, 2**63 - 1, 2**63, 2**63, 2**64 - 1, 2**64 - 1]
    near = matwin.spark.epsilon_join(given, given, on={"t": 5}, strips=[0], distances=True)
    assert dict(near.dtypes)["t_distance"] == "bigint"
