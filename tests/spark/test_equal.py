"""The joins on Spark give the bag of rows that the embedded ones give, whatever the layout.

Tables are small and have every trap in them; strips are cut through their values, so that nearly
every match crosses a bound.  Questions on one pair of tables are asked at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sparks import BOUNDS, SHIPS, cluster, frame, needs_spark, same, setting, some, trapped

import matwin
from matwin.spark.windows import prepare_windows

pytestmark = [needs_spark, pytest.mark.spark]

HOWS = ("inner", "left", "right", "full", "semi", "anti")
Asked = tuple[str, dict[str, Any], dict[str, Any]]
"""A join's name, its arguments, and the options that only Spark has."""

# ── asking both ──────────────────────────────────────────────────────────────────────────────


def check_all(tables: Any, questions: Sequence[Asked]) -> list[int]:
    """Ask both engines everything; how many rows came out of each."""
    if isinstance(tables, dict):
        frames: Any = ({name: frame(cluster(), table) for name, table in tables.items()},)
        sources: Any = (tables,)
    else:
        sources, frames = tables, [frame(cluster(), table) for table in tables]

    def check(question: Asked) -> int:
        join, arguments, options = question
        asked = getattr(matwin.spark, join)(*frames, **arguments, **options)
        try:
            return same(asked, getattr(matwin, join)(*sources, **arguments))
        except AssertionError as e:
            raise AssertionError(f"{join} {arguments} {options}: {e}") from e

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(check, questions))


def epsilon(
    on: Any, how: str = "inner", strips: Any = None, ship: str = "full", **more: Any
) -> Asked:
    return "epsilon_join", {"on": on, "how": how, **more}, {"strips": strips, "ship": ship}


def best(on: Any, how: str = "left", strips: Any = None, ship: str = "full", **more: Any) -> Asked:
    return "bestmatch_join", {"on": on, "how": how, **more}, {"strips": strips, "ship": ship}


def windows(windows: Any, strips: Any = None, ship: str = "full", **more: Any) -> Asked:
    arguments = {"time": "t", "windows": windows, **more}
    return "window_join", arguments, {"strips": strips, "ship": ship}


# ── tables ───────────────────────────────────────────────────────────────────────────────────


TRAPPED = trapped(1, pa.int32()), trapped(2, pa.int64())


# ── joins of two sides ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", [None, "k", ["k", "n"], "f"], ids=str)
def test_epsilon_joins(by: Any) -> None:
    strips = cycle([BOUNDS, 3] if by else [BOUNDS])
    ons = cycle([{"t": 3}, {"t": (-4, 1)}, {"t": 6, "x": 0.25}])
    asked = [
        epsilon(on, how, strip, ship, by=by, distances=how != "semi" and how != "anti")
        for how, on, strip, ship in zip(HOWS, ons, strips, cycle(SHIPS))
    ]
    assert min(check_all(TRAPPED, asked)) > 0


@pytest.mark.parametrize("by", [None, "n", ["f", "k"]], ids=str)
def test_bestmatch_joins(by: Any) -> None:
    ways = [
        ("inner", False), ("left", False), ("left", True), ("right", False), ("right", True),
        ("full", False), ("full", True),
    ]  # fmt: skip
    ons = cycle([{"t": 5, "x": 0.5}, {"t": (-9, 0)}])
    strips = cycle([BOUNDS, BOUNDS, 4])
    asked = [
        best(on, how, strip, ship, by=by, keep_unmatched=keep, distances=True)
        for (how, keep), on, strip, ship in zip(ways, ons, strips, cycle(SHIPS))
    ]
    assert min(check_all(TRAPPED, asked)) > 0


def test_tolerances_without_limits() -> None:
    """No strips by an attribute without a limit: the next one is taken, or keys, or one task."""
    open_below = {"t": (None, 0)}
    x_bounds = [0.25, 0.5, 0.75]
    asked = [
        epsilon(open_below, by="k"), epsilon(open_below, "anti", 3, by="k"),
        best({"t": (None, 0)}, strips=5), best({"t": None, "x": 0.25}, strips=x_bounds),
        best({"t": None}, "full", strips=3, by=["k"], keep_unmatched=True),
        best({"t": (None, 0), "x": (0, 0.5)}, "right", x_bounds, "partial"),
        best({"t": None, "x": None}, "inner"), epsilon({"t": None, "x": 0.0}, "full", x_bounds),
    ]  # fmt: skip
    assert min(check_all(TRAPPED, asked)) > 0


def test_distances_without_a_limit() -> None:
    """They may be larger than a long, and are as exact as those of the embedded join."""
    low, high = -(2**63), 2**63 - 1
    tables = [pa.table({"t": [low]}), pa.table({"t": [high]})]
    frames = [frame(cluster(), table) for table in tables]
    asked: dict[str, Any] = {"on": {"t": None}, "distances": True}
    found = matwin.spark.bestmatch_join(*frames, **asked, strips=1).toArrow()
    expected = matwin.bestmatch_join(*tables, **asked).read_all()
    assert found["t_distance"].to_pylist() == expected["t_distance"].to_pylist() == [high - low]


def test_orders() -> None:
    cheap = matwin.minimize(lambda a, b: a * 3 + b)
    later = matwin.partial_order(lambda p, q: True if p[1] >= q[1] else None)
    near = {"t": 9}
    asked = [
        best(near, "left", BOUNDS, orders={"t": "youngest"}, distances=True),
        best(near, "inner", BOUNDS, orders={"t": "youngest"}),
        best(near, "right", BOUNDS, "partial", orders={"t": cheap}, distances=True),
        best(near, "inner", BOUNDS, orders={"t": cheap}, by="k"),
        best({"t": 9, "s": None}, "left", BOUNDS, orders={"s": "subset"}),
        best({"t": 9, "s": None}, "inner", BOUNDS, "partial", orders={"s": "subset"}),
        best({"t": 9, "id": None}, "full", BOUNDS, orders={"id": later}, keep_unmatched=True),
        best({"t": 9, "id": None}, "left", BOUNDS, "partial", orders={"id": later}, by="n"),
    ]  # fmt: skip
    assert min(check_all(TRAPPED, asked)) > 0


def test_times_near_the_edges_of_64_bits() -> None:
    rng = np.random.default_rng(3)
    edges = [-(2**63), -(2**63) + 3, -1, 0, 2, 2**63 - 4, 2**63 - 1]
    tables = [pa.table({"t": some(rng, edges, 30), "i": range(30)}) for _ in range(2)]
    cuts = [-(2**63) + 1, 0, 1, 2**63 - 2]
    asked = [
        epsilon({"t": 3}, "full", cuts, distances=True), epsilon({"t": 2**62}, strips=cuts),
        best({"t": (0, 2**63)}, "right", cuts), best({"t": 3}, "full", cuts, keep_unmatched=True),
        best({"t": 4}, "inner", cuts, distances=True), epsilon({"t": 3}, "anti", 4, "partial"),
    ]  # fmt: skip
    assert min(check_all(tables, asked)[:-1]) > 0


def test_floats_that_are_exactly_the_tolerance_apart() -> None:
    """0.3 - 0.2 is less than 0.1 and 0.4 - 0.3 is more: no bound may tell them apart otherwise."""
    tenths = [n / 10 for n in range(-12, 13)] + [float("nan"), float("inf"), -0.0, 5e-324, 1e308]
    tables = [pa.table({"t": tenths, "i": range(len(tenths))}) for _ in range(2)]
    narrow = [
        tables[0].set_column(0, "t", tables[0]["t"].cast(pa.float32(), safe=False)),
        tables[1],
    ]
    cuts = [-0.7, -0.3, 0.0, 0.1, 0.3, 0.6, 0.8]
    asked = [
        epsilon({"t": 0.1}, "full", cuts, distances=True), epsilon({"t": (0.1, 0.3)}, strips=cuts),
        epsilon({"t": (-0.3, -0.1)}, "right", cuts, "partial"), best({"t": 0.1}, "full", cuts),
        best({"t": (0.1, 0.2)}, "left", cuts, keep_unmatched=True, distances=True),
    ]  # fmt: skip
    assert min(check_all(tables, asked)) > 0
    assert min(check_all(narrow, asked[:2])) > 0


def test_one_instant_and_duplicates() -> None:
    tables = [pa.table({"t": [7] * n, "k": ["a"] * n, "x": [1, 1, 2] * (n // 3)}) for n in (30, 21)]
    asked = [
        epsilon({"t": 0}, "full", [7]), epsilon({"t": 0}, strips=4), epsilon({"t": 0}, by="k"),
        epsilon({"t": 0}, "semi", 6, "partial", by="k"), best({"t": 0, "x": 1}, "inner", 3),
        best({"t": 0, "x": 0}, "full", [6, 7, 8], keep_unmatched=True),
    ]  # fmt: skip
    assert check_all(tables, asked)[0] == 30 * 21


@pytest.mark.parametrize("rows", [(0, 5), (5, 0), (0, 0), (1, 1)], ids=str)
def test_next_to_no_rows(rows: tuple[int, int]) -> None:
    tables = [TRAPPED[0].slice(10, rows[0]), TRAPPED[1].slice(10, rows[1])]
    asked = [
        epsilon({"t": 500}, "full", by="k", distances=True), best({"t": 500}, "inner", 3),
        best({"t": 500}, "full", BOUNDS, "partial", keep_unmatched=True),
    ]  # fmt: skip
    check_all(tables, asked)


HOSTILE = [
    "a.b", "`tick`", "with space", 'qu"ote\'s', "snow☃", "🙂", "", "own_left", "s0", "tag", "sort",
    "score 0", "part", "SELECT *; --", "new\nline", "value", "id", "best score 0", "id_left",
]  # fmt: skip


def test_names_that_are_hostile_or_differ() -> None:
    rng = np.random.default_rng(5)
    left = pa.table({name: rng.integers(0, 100, 40) for name in HOSTILE})
    right = pa.table({name: rng.integers(0, 100, 40) for name in reversed(HOSTILE)})
    asked = [
        epsilon({"a.b": 3}, "full", [50], by="🙂", distances=True),
        best({("`tick`", "new\nline"): 5, "own_left": 40}, "left", [30], by=[("", "id")]),
        best({"s0": 5, "score 0": 9}, "inner", [30, 60], "partial", suffixes=(".l", "`r")),
        best({"sort": 5}, "full", [30, 60], "partial", keep_unmatched=True),
        epsilon({("tag", 'qu"ote\'s'): 2}, "semi", 3, by=[("part", "part")]),
    ]  # fmt: skip
    assert check_all((left, right), asked)[0] > 0


def test_names_that_differ_in_case_only() -> None:
    """Where Spark is told to look at their case; elsewhere they are refused."""
    with setting(cluster(), "spark.sql.caseSensitive", "true"):
        joined_by_case()


def joined_by_case() -> None:
    tables = [pa.table({t: [1, 5, 9], v: [1, 2, 3]}) for t, v in (("t", "V"), ("T", "v"))]
    asked = [
        epsilon({("t", "T"): 4}, "full", [5]),
        best({("t", "T"): 4}, "right", [5], "partial", keep_unmatched=True, distances=True),
    ]
    assert min(check_all(tables, asked)) > 0


# ── window joins ─────────────────────────────────────────────────────────────────────────────


def streams(count: int, rows: int = 40) -> dict[str, pa.Table]:
    names = ("a", "b", "c.d", "e f")[:count]
    found = {}
    for seed, name in enumerate(names):
        table = trapped(seed + 10, pa.int64() if seed % 2 else pa.int32(), rows)
        found[name] = table.select(["id", "t", "k", "n", "x"])
    return found


def test_window_joins_of_two_and_three() -> None:
    graph = {("a", "b"): 4, ("b", "c.d"): (-6, 2)}
    asked = [
        windows(5, BOUNDS), windows(5, None, by="k"), windows(30, 4, "partial", by=["k", "n"]),
        windows(graph, BOUNDS), windows(graph, BOUNDS, "partial", by="k"),
        windows(matwin.path(["b", "a", "c.d"], windows=[5, 3]), BOUNDS),
        windows(matwin.path(["a", "b", "c.d"], windows=[5, 3], both_ways=True), BOUNDS),
        windows({("a", "b"): matwin.then(9), ("b", "c.d"): matwin.then(4)}, [], by="n"),
        windows(6, BOUNDS, where={("a.x", "b.x"): 0.25}),
        windows(6, 3, "partial", where={("a.id", "c.d.id"): lambda i, j: i < j}),
    ]  # fmt: skip
    assert min(check_all(streams(3), asked)) > 0
    two = [
        windows(2, BOUNDS),
        windows({("a", "b"): (1, 8)}, None, by="k", algorithm="forward-hash"),
    ]
    assert min(check_all(streams(2), two)) > 0


def test_window_joins_of_four() -> None:
    star = {("a", "b"): 3, ("a", "c.d"): (-9, 0), ("a", "e f"): matwin.then(12)}
    times = {"a": "t", "b": "t", "c.d": "id", "e f": "t"}
    asked = [
        windows(9, BOUNDS), windows(90, BOUNDS, "partial", by="k"),
        ("window_join", {"time": times, "windows": star}, {"strips": 3}),
    ]  # fmt: skip
    assert min(check_all(streams(4, 24), asked)) > 0


def test_window_joins_that_the_tasks_sort_themselves() -> None:
    narrow = {name: table.drop(["k"]) for name, table in streams(3, 60).items()}
    frames = {name: frame(cluster(), table) for name, table in narrow.items()}
    for strips, is_sorted in ((3, False), (None, False), (BOUNDS, True)):
        plan = prepare_windows(frames, time="t", windows=5, strips=strips).plan
        assert plan.is_sorted == is_sorted
    asked = [
        windows(5, 3), windows(5, 3, by="n"), windows(8, 4, "partial", by="n"),
        windows({("a", "b"): 4, ("b", "c.d"): (-6, 2)}, 3),
        windows(9, None, where={("a.x", "b.x"): 0.25}),
    ]  # fmt: skip
    assert min(check_all(narrow, asked)) > 0


# ── by chance ────────────────────────────────────────────────────────────────────────────────

TABLES = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-12, 12)), st.sampled_from(["a", "b", None])),
    max_size=12,
)


def table_of(rows: Any) -> pa.Table:
    times, keys = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({
        "t": pa.array(times, pa.int64()), "k": pa.array(keys, pa.string()),
        "i": pa.array(range(len(rows)), pa.int64()),
    })  # fmt: skip


@settings(
    max_examples=4, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    derandomize=True,
)  # fmt: skip
@given(
    left=TABLES,
    right=TABLES,
    lo=st.integers(-6, 0),
    width=st.integers(0, 8),
    cuts=st.sets(st.integers(-12, 12), max_size=5),
)
def test_any_tables_and_any_bounds(left: Any, right: Any, lo: int, width: int, cuts: Any) -> None:
    on, strips = {"t": (lo, lo + width)}, sorted(cuts)
    asked = [
        epsilon(on, "full", strips, by="k"), best(on, "inner", strips),
        best(on, "full", strips, keep_unmatched=True), best(on, "right", strips, "partial", by="k"),
    ]  # fmt: skip
    check_all([table_of(left), table_of(right)], asked)
