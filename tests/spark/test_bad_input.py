"""Bad input to the joins on Spark: refused on the driver, before a job runs, in one clear line.

What only a task can find comes back with the join, the strip and the cause.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from sparks import cluster, frame, needs_spark, no_job

import matwin
from matwin import BudgetError, InputError

pytestmark = [needs_spark, pytest.mark.spark]

NOON = dt.datetime(2024, 1, 1, 12)
TIMES = pa.array([NOON + n * dt.timedelta(minutes=1) for n in range(3)], pa.timestamp("us"))
LEFT = pa.table({"t": [1, 2, 3], "x": [0.0, 1.0, 2.0], "k": ["a", "b", "a"], "at": TIMES})
RIGHT = pa.table({"t": [1, 2, 4], "x": [0.5, -0.0, 2.0], "k": ["a", "b", "b"], "v": [1, 2, 3]})
RIGHT = RIGHT.append_column("at", TIMES.cast(pa.timestamp("us", "UTC")))


@cache
def frames() -> tuple[Any, Any]:
    return frame(cluster(), LEFT), frame(cluster(), RIGHT)


def sql(text: str) -> Any:
    return cluster().sql(text)


def refused(call: Callable[[], Any], *says: str, error: Any = InputError) -> str:
    """The message of an error that comes before any job, in one line; it has all of these words."""
    with no_job(cluster()), pytest.raises(error) as told:
        call()
    message = str(told.value)
    for words in says:
        assert words in message, message
    assert "\n" not in message.strip()
    return message


# ── what is asked ────────────────────────────────────────────────────────────────────────────

ARGUMENTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"on": {}}, ["on="]),
    ({"on": 5}, ["on="]),
    ({"on": {"zz": 1}}, ["left", "'zz'", "the columns are"]),
    ({"on": {("t", "zz"): 1}}, ["right", "'zz'", "the columns are"]),
    ({"on": {("t", "x", "k"): 1}}, ["on=", "pair"]),
    ({"by": "zz"}, ["left", "'zz'", "the columns are"]),
    ({"by": [("k", "v")]}, ["'k'", "'v'", "cast one of them"]),
    ({"by": [("x", "k")]}, ["'x'", "'k'", "cast one of them"]),
    ({"by": "t"}, ["'t'", "twice"]),
    ({"on": {"k": 1}}, ["left", "'k'", "must be a number"]),
    ({"on": {"t": -1}}, ["'t'", "-1"]),
    ({"on": {"t": math.nan}}, ["'t'", "must be finite", "None"]),
    ({"on": {"x": math.nan}}, ["'x'", "must be finite", "None"]),
    ({"on": {"t": (3, 1)}}, ["'t'", "3", "1"]),
    ({"on": {"t": [1, 2]}}, ["'t'"]),
    ({"on": {"t": "10min"}}, ["'t'", "needs a time column"]),
    ({"on": {"at": "1min"}}, ["'at'", "time zone"]),
    ({"on": {("at", "t"): 1}}, ["'at'", "'t'", "can't be compared"]),
    ({"how": "outer"}, ["how='outer'", "choose one of"]),
    ({"suffixes": ("", "")}, ["'t'", "rename them"]),
    ({"ship": "x"}, ["ship='x'", "auto, full, partial"]),
    ({"strips": 0}, ["strips=0", "from 1 to"]),
    ({"strips": -1}, ["strips=-1", "from 1 to"]),
    ({"strips": 10**9}, ["strips=", "from 1 to"]),
    ({"strips": "x"}, ["strips='x'", "bounds"]),
    ({"strips": True}, ["strips=True", "bounds"]),
    ({"strips": 2.5}, ["strips=2.5", "bounds"]),
    ({"strips": [3, 1]}, ["strips=[3, 1]", "ascend"]),
    ({"strips": [1, 1]}, ["strips=[1, 1]", "ascend"]),
    ({"strips": ["a"]}, ["'t'", "'a'"]),
    ({"strips": [NOON]}, ["'t'"]),
    ({"strips": [None]}, ["'t'", "None"]),
    ({"strips": [math.nan]}, ["'t'", "nan"]),
    ({"strips": [1], "on": {"t": None}}, ["strips", "tolerance"]),
    ({"trace": "x.html"}, ["trace=", "one process"]),
    ({"progress": print}, ["progress="]),
    ({"report": matwin.Report()}, ["report="]),
    ({"emit": "eager"}, ["emit="]),
    ({"max_delay": 5}, ["max_delay="]),
    ({"memory": "lots"}, ["'lots'", "256MiB"]),
    ({"page_size": "3KiB"}, ["page_size"]),
    ({"schedule": "random"}, ["schedule", "random"]),
]


def named(cases: list[tuple[dict[str, Any], list[str]]]) -> list[str]:
    """A name for each case that is the same in every process."""
    return [f"{number} {' '.join(changed)}" for number, (changed, _) in enumerate(cases)]


@pytest.mark.parametrize("join", ["bestmatch_join", "epsilon_join"])
@pytest.mark.parametrize(("changed", "says"), ARGUMENTS, ids=named(ARGUMENTS))
def test_arguments(join: str, changed: dict[str, Any], says: list[str]) -> None:
    asked = {"on": {"t": 1}, **changed}
    refused(lambda: getattr(matwin.spark, join)(*frames(), **asked), *says)


@pytest.mark.parametrize("join", ["bestmatch_join", "epsilon_join"])
def test_an_option_that_does_not_exist(join: str) -> None:
    call = getattr(matwin.spark, join)
    refused(lambda: call(*frames(), on={"t": 1}, frobnicate=1), "frobnicate", error=TypeError)
    refused(lambda: call(*frames()), "on", error=TypeError)


def test_a_budget_that_is_too_small_names_one_that_works() -> None:
    call = matwin.spark.epsilon_join
    asked: dict[str, Any] = {"on": {"t": 1}, "page_size": "64KiB"}
    message = refused(lambda: call(*frames(), **asked, memory="4KiB"), "4", error=BudgetError)
    enough = re.search(r"the smallest that works .*\((\d+) bytes\)", message)
    assert enough, message
    assert call(*frames(), **asked, memory=int(enough[1]), strips=[2]).count() > 0


def test_orders_and_unmatched_rows() -> None:
    def call(**asked: Any) -> Callable[[], Any]:
        return lambda: matwin.spark.bestmatch_join(*frames(), **{"on": {"t": 1}, **asked})

    refused(call(how="inner", keep_unmatched=True), "keep_unmatched")
    refused(call(orders={"zz": "youngest"}), "zz", "orders=")
    refused(call(orders={"t": "subset"}), "'t'", "lists")
    refused(call(orders={"t": "best"}), "best")
    refused(call(on={"k": None}), "'k'", "orders=")


WINDOWS: list[tuple[dict[str, Any], list[str]]] = [
    ({"time": "zz"}, ["'zz'", "the columns are"]),
    ({"time": "k"}, ["'k'"]),
    ({"time": "at"}, ["time zone"]),
    ({"windows": -1}, ["-1"]),
    ({"windows": math.nan}, ["nan"]),
    ({"windows": {("a", "z"): 1}}, ["z"]),
    ({"windows": {("a", "b"): 1}}, ["c"]),
    ({"windows": {("a", "b"): (2, 3), ("b", "c"): (2, 3), ("a", "c"): 1}}, ["a", "b", "c"]),
    ({"by": "v"}, ["'v'"]),
    ({"where": {("a.zz", "b.x"): 1}}, ["where", "'zz'"]),
    ({"where": 5}, ["where=5"]),
    ({"algorithm": "quick"}, ["quick"]),
    ({"bounds": "x"}, ["bounds", "x"]),
    ({"strips": [5, 1]}, ["ascend"]),
    ({"strips": 0}, ["strips=0"]),
    ({"ship": 5}, ["ship=5"]),
    ({"report": matwin.Report()}, ["report="]),
    ({"emit": "x"}, ["emit="]),
    ({"memory": "lots"}, ["'lots'", "256MiB"]),
]


@pytest.mark.parametrize(("changed", "says"), WINDOWS, ids=named(WINDOWS))
def test_window_joins(changed: dict[str, Any], says: list[str]) -> None:
    left, right = frames()
    streams = {"a": left, "b": right, "c": left}
    asked = {"time": "t", "windows": 1, **changed}
    refused(lambda: matwin.spark.window_join(streams, **asked), *says)


@pytest.mark.parametrize(
    "given", [{}, {"a": None}, [], 5, {"a": 1, "b": 2}, {"": 1, "b": 2}], ids=str
)
def test_what_are_no_streams(given: Any) -> None:
    refused(lambda: matwin.spark.window_join(given, time="t", windows=1))


# ── what is joined ───────────────────────────────────────────────────────────────────────────


def each_join(left: Any, right: Any) -> list[Callable[[], Any]]:
    """All joins of these two by their column `t`."""
    streams = {"left": left, "right": right}
    return [
        lambda: matwin.spark.bestmatch_join(left, right, on={"t": 1}, strips=[2]),
        lambda: matwin.spark.epsilon_join(left, right, on={"t": 1}, strips=[2]),
        lambda: matwin.spark.window_join(streams, time="t", windows=1, strips=[2]),
    ]


def each_refused(left: Any, right: Any, *says: str) -> None:
    for call in each_join(left, right):
        refused(call, *says)


def test_what_is_no_frame() -> None:
    left, right = frames()
    for given in (LEFT, LEFT.to_pandas(), "left.parquet", None, left.columns, left.groupBy("k")):
        each_refused(given, right, "left: a ", type(given).__name__, "no Spark DataFrame")
        each_refused(left, given, "right: a ", type(given).__name__, "no Spark DataFrame")


def test_streaming_frames() -> None:
    rate = cluster().readStream.format("rate").load().selectExpr("value as t")
    each_refused(rate, frames()[1], "left: ", "streaming", "spark.read")
    each_refused(frames()[0], rate, "right: ", "streaming", "spark.read")


def test_names_that_are_ours() -> None:
    mine = sql("select 1L t, 2 `matwin value`")
    each_refused(mine, frames()[1], "left: ", "'matwin value'", "rename")
    each_refused(frames()[0], mine, "right: ", "'matwin value'", "rename")


def test_names_that_are_variables_of_spark() -> None:
    mine = sql("select 1L t, 2 x").withColumnRenamed("x", "x${env:HOME}")
    each_refused(mine, frames()[1], "left: ", "x${env:HOME}", "withColumnRenamed")
    each_refused(frames()[0], mine, "right: ", "x${env:HOME}", "withColumnRenamed")


def test_names_that_stand_there_twice() -> None:
    for text in ("select 1L t, 1 x, 2 x", "select 1L t, 2L t"):
        twice = sql(text)
        name = repr(twice.columns[-1])
        each_refused(twice, frames()[1], "left: ", name)
        each_refused(frames()[0], twice, "right: ", name)


def test_names_that_spark_can_not_tell_apart() -> None:
    """Spark takes no notice of case unless it is told to."""
    alike = sql("select 1L t, 2 T")
    each_refused(alike, frames()[1], "left: ", "'t'", "'T'")


def test_types_that_arrow_can_not_carry() -> None:
    odd = sql("select 1L t, make_interval(1, 2) i")
    each_refused(odd, frames()[1], "left: ", "'i'", "cast it, or drop it")


def test_keys_with_a_collation() -> None:
    folded = sql("select 1L t, 'a' collate UTF8_LCASE k")
    refused(
        lambda: matwin.spark.epsilon_join(folded, frames()[1], on={"t": 1}, by="k"),
        "left: ", "'k'", "UTF8_BINARY",
    )  # fmt: skip
    refused(
        lambda: matwin.spark.window_join(
            {"a": frames()[0], "b": folded}, time="t", windows=1, by="k"
        ),
        "b: ", "'k'", "UTF8_BINARY",
    )  # fmt: skip


def test_frames_of_two_sessions_of_an_application() -> None:
    """As in `foreachBatch`, whose frames have a session of their own."""
    one = cluster().sql("select 1L t, 'a' x")
    other = cluster().newSession().sql("select 1L t, 'b' y")
    found = matwin.spark.epsilon_join(one, other, on={"t": 1}, strips=1)
    assert found.toArrow().to_pydict() == {"t_left": [1], "x": ["a"], "t_right": [1], "y": ["b"]}


def test_names_of_ours_whatever_their_case() -> None:
    one, other = cluster().sql("select 1L t, 5 `Matwin value`"), cluster().sql("select 1L t")
    refused(lambda: matwin.spark.epsilon_join(one, other, on={"t": 1}), "'Matwin value'", "rename")
    refused(
        lambda: matwin.spark.window_join({"a": one, "b": other}, time="t", windows=1),
        "'Matwin value'", "rename",
    )  # fmt: skip


def test_output_names_that_spark_can_not_tell_apart() -> None:
    one, other = cluster().sql("select 1L t, 5 X"), cluster().sql("select 1L t, 6 x")
    refused(lambda: matwin.spark.epsilon_join(one, other, on={"t": 1}), "output", "'X'", "'x'")


# ── what only a task can find ────────────────────────────────────────────────────────────────


def failing(found: Any, *says: str) -> None:
    """The job fails, and tells all of this in one line."""
    with pytest.raises(Exception, match="TaskError") as told:
        found.collect()
    lines = [line for line in str(told.value).splitlines() if "TaskError: " in line]
    for words in says:
        assert words in lines[0], lines[0]


def test_a_function_that_raises() -> None:
    def broken(a: Any, b: Any) -> Any:
        raise ZeroDivisionError("no such price")

    found = matwin.spark.bestmatch_join(
        *frames(), on={"t": 1}, orders={"t": matwin.minimize(broken)}, strips=[2, 3]
    )
    failing(
        found, "matwin.spark.bestmatch_join, strip ", " of 3", "InputError", "broken",
        "no such price",
    )  # fmt: skip


def test_a_predicate_that_raises() -> None:
    def broken(a: Any, b: Any) -> Any:
        raise KeyError("nobody home")

    left, right = frames()
    found = matwin.spark.window_join(
        {"a": left, "b": right}, time="t", windows=1, where={("a.x", "b.x"): broken}, strips=[2]
    )
    failing(found, "matwin.spark.window_join, strip ", " of 2", "broken", "nobody home")


def test_more_rows_than_allowed() -> None:
    found = matwin.spark.epsilon_join(*frames(), on={"t": 9}, strips=[2], max_output_rows=2)
    failing(found, "matwin.spark.epsilon_join, strip ", " of 2 (", "max_output_rows=2")


def test_whole_numbers_that_no_float_holds() -> None:
    large = frame(cluster(), pa.table({"t": [2**53 + 1, 5]}))
    floats = frame(cluster(), pa.table({"t": [1.0, 2.0]}))
    found = matwin.spark.epsilon_join(large, floats, on={"t": 1.0}, strips=[3.0])
    failing(found, "matwin.spark.epsilon_join, strip 1 of 2", "InputError", "'t'")
