"""What may be said of a join beside tolerances, on Spark as embedded: `ties`, `where`, `strict`,
`nonzero`, one column against two, keys with two names."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from sparks import BOUNDS, cluster, frame, in_order, needs_spark, no_job, same, trapped

import matwin
from matwin import InputError

pytestmark = [needs_spark, pytest.mark.spark]

LEFT = trapped(21, pa.int32())
RIGHT = pa.concat_tables([trapped(22, pa.int64()), trapped(22, pa.int64(), 25)])
SPANS = pa.table({
    "start": pa.array([10, 20, 20, None, 90, 95, 140], pa.int64()),
    "end": pa.array([30, 40, 35, 60, 120, 96, 139], pa.int64()),
    "code": ["a", "b", "a", "b", "é", "a", "b"],
})  # fmt: skip
Asked = tuple[str, dict[str, Any], dict[str, Any]]


def check_all(left: pa.Table, right: pa.Table, asked: Sequence[Asked]) -> int:
    """Ask both engines; the embedded one has the rows in the order of ties."""
    frames = frame(cluster(), left, 2), frame(cluster(), right, 3)

    def check(question: Asked) -> int:
        join, arguments, options = question
        name = next(iter(arguments["on"]))
        ours, theirs = (name, name) if isinstance(name, str) else name
        tables = in_order(left, ours), in_order(right, theirs)
        found = getattr(matwin.spark, join)(*frames, **arguments, **options)
        try:
            return same(found, getattr(matwin, join)(*tables, **arguments))
        except AssertionError as e:
            raise AssertionError(f"{question}: {e}") from e

    with ThreadPoolExecutor(3) as pool:
        return min(pool.map(check, asked))


def best(on: Any, strips: Any = BOUNDS, ship: str = "full", **more: Any) -> Asked:
    return "bestmatch_join", {"on": on, **more}, {"strips": strips, "ship": ship}


def epsilon(on: Any, strips: Any = BOUNDS, ship: str = "full", **more: Any) -> Asked:
    return "epsilon_join", {"on": on, **more}, {"strips": strips, "ship": ship}


def test_ties() -> None:
    both = {"t": 9, "x": 0.5}
    asked = [
        best({"t": 5}, ties="first", keep_unmatched=True), best({"t": 5}, ties="last", by="n"),
        best(both, how="right", ties="last", distances=True), best(both, ties=("x", "t")),
        best(both, ship="partial", ties=["x", "first"], keep_unmatched=True),
        best({"t": None, "x": 0.5}, [0.25, 0.75], ties=["t", "last"]),
        best({"t": None}, 3, how="right", by="k", ties="first", keep_unmatched=True),
    ]  # fmt: skip
    assert check_all(LEFT, RIGHT, asked) > 0


def test_where_and_bounds_that_leave_something_out() -> None:
    other = {"id": matwin.nonzero()}
    asked = [
        best({"t": 9}, where=other), best({"t": 9}, how="full", where=other, keep_unmatched=True),
        best({"t": 9}, how="inner", where={"x": 0.25}),
        best({"t": 9}, ship="partial", where={"x": (0, 0.5)}),
        best({"t": matwin.strict(6)}, how="right"), best({"t": matwin.nonzero(6)}, by="k"),
        best({"t": matwin.nonzero()}, 3, by="k"), best({"x": matwin.strict(None, 0)}, 1),
        epsilon({"t": matwin.strict(-6, 0)}, how="full"),
        epsilon({"t": matwin.nonzero(4)}, how="semi", ship="partial"),
        epsilon({"t": 6, "x": matwin.strict(0.25)}, how="left", where=other, distances=True),
        epsilon({"t": 6}, how="anti", where={("n", "id"): (-100, 30)}, by="k"),
    ]  # fmt: skip
    assert check_all(LEFT, RIGHT, asked) > 0


def test_one_column_against_two() -> None:
    """A time within a span; its distances are told apart by both names."""
    inside = {("t", "start"): (None, 0), ("t", "end"): (0, None)}
    near: dict[Any, Any] = {("t", "start"): (-30, 0), ("t", "end"): (0, 30)}
    asked = [
        epsilon(inside, 1), epsilon(inside, 3, how="left", by=("k", "code")),
        epsilon(near, [20, 30, 95], how="full", distances=True),
        epsilon(near, [30], ship="partial", how="right", distances=True),
        best(near, [25, 30, 91], distances=True), best(near, [30], how="inner", distances=True),
        best(near, [30], how="full", keep_unmatched=True, distances=True, by=[("k", "code")]),
    ]  # fmt: skip
    assert check_all(LEFT, SPANS, asked) > 0
    frames = frame(cluster(), LEFT), frame(cluster(), SPANS)
    joined = matwin.spark.bestmatch_join(*frames, on=near, distances=True, strips=1)
    assert joined.columns[-2:] == ["t_start_distance", "t_end_distance"]


def test_keys_with_two_names_in_window_joins() -> None:
    tables = {"a": LEFT.select(["t", "k", "n"]), "b": SPANS.rename_columns(["t", "end", "code"])}
    frames = {name: frame(cluster(), table) for name, table in tables.items()}
    for options in (
        {"by": ("k", "code")},
        {"by": [("k", "code")], "where": {("a.n", "b.end"): 90}},
    ):
        asked: dict[str, Any] = {"time": "t", "windows": 40, **options}
        found = matwin.spark.window_join(frames, **asked, strips=[30, 90])
        assert same(found, matwin.window_join(tables, **asked)) > 0


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("bestmatch_join", {"how": "full", "ties": "last"}, "goes with how='left' or 'right'"),
    ("bestmatch_join", {"ties": "any"}, "'any' is not an attribute with a distance"),
    ("bestmatch_join", {"ties": []}, "give 'all', 'first', 'last' or a list"),
    ("bestmatch_join", {"where": 5}, "where=5: write for example"),
    ("epsilon_join", {"where": {"zz": 5}}, "left: column 'zz' is not there"),
    ("epsilon_join", {"ordered": True}, "sort the result with orderBy"),
    ("bestmatch_join", {"ordered": True}, "sort the result with orderBy"),
]


@pytest.mark.parametrize(("join", "changed", "says"), REFUSED, ids=[str(r[:2]) for r in REFUSED])
def test_bad_words(join: str, changed: dict[str, Any], says: str) -> None:
    frames = frame(cluster(), LEFT), frame(cluster(), RIGHT)
    with no_job(cluster()), pytest.raises(InputError) as told:
        getattr(matwin.spark, join)(*frames, **{"on": {"t": 5}, **changed})
    assert says in str(told.value)


def test_ties_of_columns_without_an_order() -> None:
    frames = frame(cluster(), LEFT), cluster().sql("SELECT 1 AS t, map(1, 2) AS m")
    with (
        no_job(cluster()),
        pytest.raises(InputError, match=r"'m' is map<.*, or cast it to text"),
    ):
        matwin.spark.bestmatch_join(*frames, on={"t": 5}, ties="last")
