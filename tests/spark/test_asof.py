"""As-of joins on Spark: the rows of the embedded join, whose right rows come in the order of ties.

Without a tolerance strips stand on rows that a look at the data has seen, so layouts are forced
that have such strips: for all rows, and for frequent keys.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import BOUNDS, cluster, frame, in_order, needs_spark, no_job, same, some, trapped

pytest.importorskip("pyspark", reason="matwin.spark can't be imported without pyspark")

from pyspark.sql import functions as F

import matwin
from matwin import InputError
from matwin.scheduler import division

pytestmark = [needs_spark, pytest.mark.spark]

LEFT = trapped(1, pa.int32()).drop(["s"])
RIGHT = trapped(2, pa.int64())
RIGHT = pa.concat_tables([RIGHT, trapped(3, pa.int64(), 40), RIGHT.slice(0, 20)])
DIRECTIONS, TIES = ("backward", "forward", "nearest"), ("last", "first", "all")
Asked = tuple[dict[str, Any], dict[str, Any]]


def check_all(left: pa.Table, right: pa.Table, asked: Sequence[Asked], first: Any = ()) -> int:
    """Ask both engines everything; the least number of rows that came out."""
    ours, theirs = frame(cluster(), left, 2), frame(cluster(), right, 3)

    def check(question: Asked) -> int:
        arguments, options = question
        on = arguments["on"]
        ordered = in_order(right, on if isinstance(on, str) else on[1], *first)
        found = matwin.spark.asof_join(ours, theirs, **arguments, **options)
        try:
            return same(found, matwin.asof_join(left, ordered, **arguments))
        except AssertionError as e:
            raise AssertionError(f"{arguments} {options}: {e}") from e

    with ThreadPoolExecutor(3) as pool:
        return min(pool.map(check, asked))


# ── the same rows as the embedded join ───────────────────────────────────────────────────────


@pytest.mark.parametrize("by", [None, "k"], ids=str)
def test_as_of_joins(by: Any) -> None:
    """Directions and ties in all combinations, the rest in turn."""
    ways = cycle([BOUNDS, 3] if by is None else [3, 5])
    limits, exact = cycle([None, None, 9, None]), cycle([True, False])
    hows = cycle(["left", "inner", "left", "left", "inner"])
    ships = cycle(["full", "partial", "full", "auto", "full"])
    asked = [
        (
            {
                "on": "t", "by": by, "direction": direction, "ties": ties, "tolerance": limit,
                "allow_exact_matches": is_exact, "how": how,
            },
            {"strips": strips, "ship": ship},
        )
        for (direction, ties), limit, is_exact, how, strips, ship in zip(
            product(DIRECTIONS, TIES), limits, exact, hows, ways, ships, strict=False
        )
    ]  # fmt: skip
    assert check_all(LEFT, RIGHT, asked[:: 1 if by is None else 2]) > 0


def test_frequent_keys_have_strips_without_a_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "HOT_ROWS", 2)
    from matwin.spark.asof import prepare_asof

    ours, theirs = frame(cluster(), LEFT), frame(cluster(), RIGHT)
    layout = prepare_asof(ours, theirs, on="t", by="k", strips=16).plan.layout
    assert layout.hot and layout.has_seen
    asked = [
        ({"on": "t", "by": by, "direction": direction, "ties": ties}, {"strips": 16})
        for direction, by, ties in zip(DIRECTIONS, ["k", ["k", "n"], "f"], TIES, strict=True)
    ]
    assert check_all(LEFT, RIGHT, asked) > 0


def test_two_keys_with_the_same_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly impossible, so it is made: an error, because one key's rows could hide the other's."""
    monkeypatch.setattr(division, "HOT_ROWS", 2)
    for module in ("exchange", "sample"):
        monkeypatch.setattr(f"matwin.spark.{module}.hash_of", lambda keys: "7L")
    frames = frame(cluster(), LEFT), frame(cluster(), RIGHT)
    with pytest.raises(Exception, match=r"two frequent keys have the same hash.*give strips=1"):
        matwin.spark.asof_join(*frames, on="t", by="k", strips=6).toArrow()
    found = matwin.spark.asof_join(*frames, on="t", by="k", strips=1)
    same(found, matwin.asof_join(LEFT, in_order(RIGHT, "t"), on="t", by="k"))


def test_numbers_at_their_ends_and_times() -> None:
    rng = np.random.default_rng(6)
    edges = [-(2**63), -(2**63) + 3, -1, 0, 2, 2**63 - 4, 2**63 - 1]
    odd = [0.0, -0.0, 5e-324, -5e-324, 0.1, 0.2, 0.3, 1e308, -1e308, float("nan"), float("inf")]
    start = dt.datetime(2024, 3, 10, 6, tzinfo=dt.UTC)
    times = [start + dt.timedelta(minutes=17 * n) for n in range(12)]
    left, right = (
        pa.table({
            "i": some(rng, edges, 40), "f": some(rng, odd, 40), "v": range(40),
            "at": pa.array(some(rng, times, 40), pa.timestamp("us", "UTC")),
            "day": pa.array(some(rng, range(19_000, 19_010), 40), pa.int32()).view(pa.date32()),
        })
        for _ in range(2)
    )  # fmt: skip
    cuts: dict[str, Any] = {
        "i": [-(2**63) + 1, 0, 1, 2**63 - 2], "f": [-1.0, -0.0, 0.2, 1e307],
        "at": times[2:9:3], "day": [dt.date(2022, 1, 12), dt.date(2022, 1, 15)],
    }  # fmt: skip
    asked = [
        ({"on": on, "direction": d, "ties": t, "allow_exact_matches": e}, {"strips": cuts[on]})
        for on, (d, t, e) in product(
            cuts, [("backward", "first", False), ("nearest", "last", True)]
        )
    ]
    asked.append(({"on": "i", "direction": "forward", "ties": "all"}, {"strips": cuts["i"]}))
    asked.append(({"on": "at", "tolerance": "20min", "direction": "nearest"}, {"strips": 3}))
    assert check_all(left, right, asked) >= 40


def test_next_to_no_rows() -> None:
    for rows in ((0, 5), (5, 0), (0, 0), (1, 1)):
        left, right = LEFT.slice(10, rows[0]), RIGHT.slice(10, rows[1])
        check_all(left, right, [({"on": "t"}, {"strips": BOUNDS}), ({"on": "t", "by": "k"}, {})])


def test_names_that_differ_or_are_hostile() -> None:
    left = LEFT.rename_columns(["t", "x", "`k`", "n", "f", "a.b"])
    right = RIGHT.rename_columns(["T s", "s0", "k;--", "n", "own_left", "tag", "id"])
    asked = [
        ({"on": ("t", "T s"), "by": [("`k`", "k;--")]}, {"strips": 4}),
        ({"on": ("t", "T s"), "by": ("`k`", "k;--"), "suffixes": ("_a", "_b")}, {"strips": 2}),
        ({"on": ("a.b", "id"), "direction": "forward"}, {"strips": [20, 40], "ship": "partial"}),
    ]  # fmt: skip
    assert check_all(left, right, asked) > 0


# ── ties ─────────────────────────────────────────────────────────────────────────────────────

EQUALS = pa.table({
    "t": pa.array([4, 4, 4, 4, 4, 2], pa.int64()),
    "seq": [3, 1, 2, None, 0, 9],
    "x": [1.0, 2.0, float("nan"), -0.0, 5.0, 0.0],
    "name": ["a", "é", "b", None, "Z", "a"],
})  # fmt: skip


def test_ties_are_by_values() -> None:
    """By the columns as they stand, or by those that are named first; nulls come first."""
    left = pa.table({"t": [5]})
    found = {}
    for order_by in (None, "seq", ["name", "seq"], "x"):
        named = [order_by] if isinstance(order_by, str) else order_by or []
        for ties in ("last", "first"):
            arguments = {"on": "t", "ties": ties}
            given = (arguments, {"order_by": order_by, "strips": 1})
            check_all(left, EQUALS, [given], named)
            rows = matwin.asof_join(left, in_order(EQUALS, "t", *named), **arguments)
            found[str(order_by), ties] = rows.to_arrow()["seq"].to_pylist()[0]
    assert found["None", "last"] == found["seq", "last"] == 3
    assert found["['name', 'seq']", "last"] == 1
    assert found["x", "last"] == 2
    assert found["x", "first"] is None


def test_ties_that_only_the_sign_of_a_zero_tells_apart() -> None:
    right = pa.table({"t": [0.0, -0.0], "x": [-0.0, 0.0]})
    asked: list[Asked] = [({"on": "t", "ties": ties}, {"strips": 1}) for ties in ("first", "last")]
    check_all(pa.table({"t": [1.0]}), right, asked)


def test_columns_without_an_order() -> None:
    spark = cluster()
    left = spark.sql("SELECT 5 AS t")
    right = spark.sql("SELECT * FROM VALUES (4, 1, map(1, 2)), (4, 2, map(1, 3)) AS r(t, n, m)")
    with no_job(spark), pytest.raises(InputError, match=r"right: column 'm' is map<.*order_by="):
        matwin.spark.asof_join(left, right, on="t")
    assert matwin.spark.asof_join(left, right, on="t", ties="all").count() == 2
    found = matwin.spark.asof_join(left, right, on="t", order_by="n").collect()
    assert [row.n for row in found] == [2]


# ── how the work is divided ──────────────────────────────────────────────────────────────────


def test_rows_that_differ_at_each_reading() -> None:
    """What the strips stand on is pinned: no row between a left row and its match has come out."""
    spark = cluster()
    ours = spark.range(0, 200, 1, 2).selectExpr("id AS l", "id * 15 AS x")
    drawn = F.udf(lambda _: random.randrange(3000), "long")  # which Spark takes for pure
    theirs = spark.range(0, 300, 1, 3).withColumn("x", drawn("id"))
    joined = matwin.spark.asof_join(ours, theirs, on="x", strips=list(range(100, 3000, 100)))
    told = matwin.spark.explain("asof_join", ours, theirs, on="x", strips=[1000])
    assert "pinned:   right, because it may differ" in told
    table = joined.toArrow()
    mine, its = table["x"].to_pylist(), table["x_right"].to_pylist()
    assert sorted(mine) == [n * 15 for n in range(200)]
    seen = sorted({x for x in its if x is not None})
    for x, match in zip(mine, its, strict=True):
        nearest = [other for other in seen if other <= x]
        assert match == (nearest[-1] if nearest else None)


def test_parts_fit_the_memory_where_nothing_is_final() -> None:
    from matwin.spark.asof import prepare_asof

    spark = cluster()
    wide = spark.range(0, 40_000).selectExpr("id AS t", "repeat('wide', 50) AS p")
    frames = wide.withColumn("t", wide.t * 3), wide
    few = prepare_asof(*frames, on="t", memory="256MiB").plan
    many = prepare_asof(*frames, on="t", memory="8MiB").plan
    assert few.parts <= 2
    assert many.total.max() * 200 < 8 << 20
    assert many.replication < 1.1
    limited = prepare_asof(*frames, on="t", memory="8MiB", tolerance=5).plan
    assert limited.parts <= 2, "sorted streams need memory for their windows only"


def test_explained() -> None:
    frames = frame(cluster(), LEFT), frame(cluster(), RIGHT)
    told = matwin.spark.explain(matwin.spark.asof_join, *frames, on="t", strips=3)
    assert told.splitlines()[0] == "matwin.spark.asof_join"
    assert "the nearest rows beyond a bound go along" in told
    assert "in order of t, x, k, n, f, s, id" in " ".join(told.split())
    told = matwin.spark.explain("asof_join", *frames, on="t", by="k", ties="all", order_by=None)
    assert "in order of" not in told


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"on": {"t": 5}}, "an as-of join has one column"),
    ({"on": "zz"}, "left: column 'zz' is not there"),
    ({"direction": "up"}, "direction='up'; choose one of backward, forward, nearest"),
    ({"ties": "any"}, "ties='any'; choose one of last, first, all"),
    ({"how": "full"}, "how='full'; choose one of left, inner"),
    ({"tolerance": (1, 2)}, "give one amount; direction= says the rest"),
    ({"tolerance": -1}, "tolerance=-1 is negative"),
    ({"tolerance": "5min"}, "needs a time column"),
    ({"on": "k"}, "must be a number"),
    ({"ordered": True}, "rows of a DataFrame have no order; sort the result with orderBy"),
    ({"order_by": "nn"}, "right has no column 'nn' (did you mean 'n'?)"),
    ({"order_by": 5}, "order_by=5: give a column's name"),
    ({"order_by": "n", "ties": "all"}, "ties='all' takes them all"),
    ({"trace": "x"}, "a trace belongs to one process"),
    ({"by": "k", "strips": [5]}, "a join by keys without a tolerance has buckets of keys"),
    ({"strips": [5, 1]}, "bounds must ascend"),
]


@pytest.mark.parametrize(("changed", "says"), ARGUMENTS, ids=[str(a) for a, _ in ARGUMENTS])
def test_bad_input(changed: dict[str, Any], says: str) -> None:
    frames = frame(cluster(), LEFT), frame(cluster(), RIGHT)
    with no_job(cluster()), pytest.raises(InputError) as told:
        matwin.spark.asof_join(*frames, **{"on": "t", **changed})
    assert says in str(told.value)
