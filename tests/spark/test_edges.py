"""Corners that were once wrong: the ends of types, names of our own, what has no hash."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from sparks import cluster, frame, needs_spark, same, setting

import matwin
from matwin.spark.two_sided import prepare_epsilon

pytestmark = [needs_spark, pytest.mark.spark]


@pytest.mark.parametrize("days", [None, [2**31 - 1], [2**31 - 5, 2**31 - 2]])
def test_the_last_days_there_are(days: list[int] | None) -> None:
    strips = [pa.scalar(day, pa.date32()) for day in days] if days else 1
    left, right = (
        cluster().sql(f"select date_from_unix_date({2**31 - back}) t") for back in (2, 1)
    )
    assert matwin.spark.epsilon_join(left, right, on={"t": "10d"}, strips=strips).count() == 1
    assert matwin.spark.epsilon_join(right, left, on={"t": "10d"}, strips=strips).count() == 1


@pytest.mark.parametrize("strips", [1, [dt.time(23)]])
def test_the_end_of_a_day(strips: object) -> None:
    with setting(cluster(), "spark.sql.timeType.enabled", "true"):
        left = cluster().sql("select TIME '22:30:00' t")
        right = cluster().sql("select TIME '23:59:59.999999' t")
        assert matwin.spark.epsilon_join(left, right, on={"t": "2h"}, strips=strips).count() == 1


def test_columns_that_are_called_like_ours() -> None:
    names = ["t", "own", "id", "own_left", "id_right", "score 0", "best score 0", "tag", "s0"]
    table = pa.table({name: [1, 5, 9] for name in names})
    frames = [frame(cluster(), table) for _ in range(2)]
    for how in ("full", "inner"):
        found = matwin.spark.bestmatch_join(*frames, on={"t": 4}, how=how, strips=[5])
        same(found, matwin.bestmatch_join(table, table, on={"t": 4}, how=how))
    found = matwin.spark.epsilon_join(*frames, on={"id": 4}, strips=[5], ship="partial")
    same(found, matwin.epsilon_join(table, table, on={"id": 4}))


def test_partial_shipping_limits_the_result_and_not_the_question() -> None:
    table = pa.table({"t": [3] * 40, "x": range(40)})
    left = frame(cluster(), table)
    asked = {"on": {"t": 0}, "how": "semi", "strips": [3], "max_output_rows": 40}
    assert matwin.spark.epsilon_join(left, left, **asked, ship="partial").count() == 40


def test_what_has_no_hash_is_shipped_whole() -> None:
    left = cluster().sql("select 1L t, map('a', 2) m")
    found = matwin.spark.window_join(
        {"a": left, "b": left}, time="t", windows=1, ship="partial", strips=[1],
        where={("a.m", "b.m"): lambda a, b: True},
    )  # fmt: skip
    assert found.count() == 1


@pytest.mark.parametrize("rows, tasks", [(300_000, 1), (300_000, 5), (20_001, 1), (19_000, 3)])
def test_a_sample_is_of_all_rows_alike(rows: int, tasks: int) -> None:
    table = cluster().range(0, rows, 1, tasks).selectExpr("id AS t")
    samples = prepare_epsilon(table, table, on={"t": 5}).looked.samples
    assert list(samples) == ["left", "right"]
    for sample in samples.values():
        assert len(sample.values) == len(set(sample.values.tolist())) == min(rows, 20_000)
        assert sample.rows == pytest.approx(rows, rel=0.03)
        tenths = np.bincount(sample.values * 10 // rows, minlength=10) / len(sample.values)
        assert tenths == pytest.approx(np.full(10, 0.1), abs=0.012)
