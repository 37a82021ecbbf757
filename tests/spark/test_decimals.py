"""Decimals to join by on Spark: the rows and types of the embedded joins, divided or not."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import cluster, frame, needs_spark

import matwin

pytestmark = [needs_spark, pytest.mark.spark]

COUNT = 300


@cache
def tables() -> tuple[pa.Table, pa.Table]:
    """Prices of two and of four digits after the point, some missing, many equal."""
    made = []
    for seed, (name, digits) in enumerate((("l", 2), ("r", 4))):
        rng = np.random.default_rng(seed)
        prices = [
            None if n % 17 == 0 else Decimal(int(rng.integers(-3_000, 3_000))).scaleb(-2)
            for n in range(COUNT)
        ]
        columns: dict[str, Any] = {
            "d": pa.array(prices, pa.decimal128(12, digits)), "k": rng.integers(0, 3, COUNT),
            name: np.arange(COUNT),
        }  # fmt: skip
        made.append(pa.table(columns))
    return made[0], made[1]


JOINS: dict[str, Any] = {
    "epsilon": ("epsilon_join", {"on": {"d": "0.75"}, "by": "k", "distances": True}),
    "no key": ("epsilon_join", {"on": {"d": (Decimal("-0.2"), 0.1)}, "how": "full"}),
    "bestmatch": ("bestmatch_join", {"on": {"d": "5"}, "by": "k", "distances": True}),
    "youngest": ("bestmatch_join", {"on": {"d": 1}, "orders": {"d": "youngest"}}),
    "asof": ("asof_join", {"on": "d", "by": "k", "ties": "all"}),
    "nearest": ("asof_join", {"on": "d", "direction": "nearest", "tolerance": "0.5",
                              "ties": "all"}),
}  # fmt: skip


@pytest.mark.parametrize("strips", [None, 4, [Decimal("-10"), Decimal("0.005"), 12.5]])
@pytest.mark.parametrize("name", JOINS)
def test_the_same_as_embedded(name: str, strips: Any) -> None:
    join, arguments = JOINS[name]
    if name == "asof" and isinstance(strips, list):
        strips = 3  # without a tolerance there are no strips of all rows
    left, right = tables()
    wanted = getattr(matwin, join)(left, right, **arguments).to_arrow()
    frames = [frame(cluster(), table) for table in (left, right)]
    options = {} if strips is None else {"strips": strips}
    made = getattr(matwin.spark, join)(*frames, **arguments, **options)
    found = made.toArrow()
    assert [f.type for f in found.schema] == [f.type for f in wanted.schema]
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist()))


def test_window_joins() -> None:
    left, right = tables()
    arguments: Any = {"time": "d", "windows": {("a", "b"): "0.3"}, "by": "k"}
    wanted = matwin.window_join({"a": left, "b": right}, **arguments).to_arrow()
    frames = {n: frame(cluster(), t) for n, t in zip("ab", (left, right), strict=True)}
    found = matwin.spark.window_join(frames, **arguments).toArrow()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist()))


def test_what_does_not_fit_is_refused() -> None:
    left, _ = tables()
    wide = pa.table({"d": pa.array([Decimal(1), Decimal(10) ** 20], pa.decimal128(38, 2))})
    made = matwin.spark.epsilon_join(
        frame(cluster(), wide), frame(cluster(), left), on={"d": 1}, strips=3
    )
    with pytest.raises(Exception, match=r"'d', row .* is beyond 64 bits"):
        made.toArrow()


def test_sql() -> None:
    left, right = tables()
    text = (
        "select a.l, b.r from a left bestmatch join b on a.d mindist b.d where abs(a.d - b.d) < 2"
    )
    wanted = matwin.sql(text, a=left, b=right).to_arrow()
    frames = {n: frame(cluster(), t) for n, t in zip("ab", (left, right), strict=True)}
    found = matwin.spark.sql(cluster(), text, **frames).toArrow()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist()))


CUTS = [
    ("stream(a, 'CUT ON k BY 60 SECS') s", "cut on k by 1min", "window(k, '60 seconds')"),
    ("STREAM_x(a, 'CUT ON k BY 5 MIN', 'BLOCK') s", "cut on k by", "window(k, '300 seconds')"),
    ("STREAM_x(a, 'CUT ON k BY 60 SECS', 'BLOCK', 12) s", "cut on k by", "from a s"),
    ("stream(a, 'CUT BY 100 ROWS') a", "cut by 100 rows", "from a,"),
    ("stream(a, 'CUT ON k') s", "cut when k changes", "matwin.continuous_query"),
]


@pytest.mark.parametrize(("call", "cut", "written"), CUTS)
@pytest.mark.parametrize("place", ["{}", "a x join {} on true", "(select * from {}) y"])
def test_streams_that_are_cut_are_refused(call: str, cut: str, written: str, place: str) -> None:
    """Whole tables would be joined, whatever the cut and the number of chunks say."""
    left, _ = tables()
    text = f"select count(*) from {place.format(call)}"
    with pytest.raises(matwin.InputError) as told:
        matwin.spark.sql(cluster(), text, a=frame(cluster(), left))
    message, line, carets = str(told.value).splitlines()
    assert cut in message and written in message
    assert line[carets.index("^") :].startswith("'CUT ")
