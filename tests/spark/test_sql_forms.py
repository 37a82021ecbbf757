"""`matwin.spark.sql`: the same queries on Spark and embedded give the same rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import cluster, frame, needs_spark

import matwin

pytestmark = [needs_spark, pytest.mark.spark]


def rows(seed: int, payload: str) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({
        "t": rng.integers(0, 300, 80), "x": rng.integers(0, 40, 80) / 2,
        "k": rng.integers(0, 3, 80), payload: rng.integers(0, 9, 80),
    })  # fmt: skip


TABLES = {"temp": rows(1, "v"), "hum": rows(2, "w"), "wind": rows(3, "u")}
QUERIES = [
    "select temp.v, hum.w from temp left outer bestmatch join hum on temp.t mindist hum.t, "
    "temp.x mindist hum.x where abs(temp.t - hum.t) <= 9 and abs(temp.x - hum.x) < 5 "
    "and temp.k = hum.k and hum.w > 2 and temp.v > 1",
    "select temp.k, count(*) as n, sum(w) as s from temp join hum on temp.k = hum.k and "
    "hum.t between temp.t - 5 and temp.t + 5 group by temp.k order by n",
    "select temp.v, hum.w from temp left join hum on abs(temp.t - hum.t) <= 3 and temp.k = hum.k",
    "select a.v, b.w, c.u from temp a, hum b, wind c where a.k = b.k and b.k = c.k "
    "window (a, b) = 5 and dwindow (b, c) = 9",
    "with near as (select * from hum where w > 4) select temp.v, near.w from temp "
    "right bestmatch join near on temp.t mindist near.t where abs(temp.t - near.t) <= 20",
    "select v, count(*) as n from (select temp.v from temp, hum where abs(temp.t - hum.t) < 4) "
    "group by v",
    # Distances on columns that no order names.
    "select temp.v, hum.w from temp left bestmatch join hum on temp.t mindist hum.t "
    "where abs(temp.t - hum.t) <= 20 and temp.x - hum.x between -3 and 8",
    "select temp.v, hum.w from temp full bestmatch join hum on temp.t mindist hum.t "
    "where abs(temp.x - hum.x) < 0.5 and hum.t >= temp.t",
    # Which of several rows of one time is taken differs, so only times are selected.
    "select temp.v, hum.t from temp asof join hum on temp.k = hum.k and temp.t >= hum.t",
    "select temp.v, hum.t, temp.k, hum.k from temp asof left join hum on temp.t < hum.t "
    "and hum.k = temp.k where temp.v > 1",
    "select temp.t, count(hum.t) as n, max(hum.t) as m from temp asof left join hum on "
    "hum.t > temp.t group by temp.t having count(*) > 0",
    "select a.v, b.w, c.t from temp a join hum b on abs(a.t - b.t) <= 2 and a.k = b.k "
    "asof join wind c on a.k = c.k and b.t >= c.t",
    # Columns that USING merges, a hidden table, tables without a name.
    "select k, v, u from (select t, k, v from temp) a join (select t, w from hum) b on "
    "abs(a.t - b.t) <= 2 left join (select k, u from wind) c using (k) where u > 6",
    "select * from temp left semi join (select t from hum where w > 5) hum on "
    "abs(temp.t - hum.t) < 2",
    "select -v as v, count(*) as n from (select t, v from temp) join (select t as y from hum) on "
    "abs(t - y) <= 1 group by v having count(*) > 1 order by v, n",
]


def spark() -> Any:
    session = cluster()
    for name, table in TABLES.items():
        frame(session, table).createOrReplaceTempView(name)
    return session


@pytest.mark.parametrize("query", QUERIES)
def test_queries_give_the_same_rows(query: str) -> None:
    session = spark()
    found = Counter(tuple(row) for row in matwin.spark.sql(session, query).collect())
    embedded = matwin.sql(query, **TABLES).to_arrow()
    columns = [column.to_pylist() for column in embedded.columns]
    assert found == Counter(zip(*columns, strict=True))
    assert found
    left = [one.name for one in session.catalog.listTables() if "matwin" in one.name]
    assert not left


def test_what_spark_does_not_have_is_told() -> None:
    session = spark()
    with pytest.raises(matwin.InputError, match="with hum can't be run here: only inner"):
        matwin.spark.sql(session, "select * from temp asof right join hum on temp.t >= hum.t")
    with pytest.raises(matwin.InputError, match="there is no table 'nowhere'"):
        matwin.spark.sql(session, "select * from nowhere")
    with pytest.raises(matwin.InputError, match="temp has no column 'tt'"):
        matwin.spark.sql(session, "select temp.tt from temp, hum where abs(temp.t - hum.t) < 3")
