"""Every argument of a join is one of its verification.

For each argument and its values: the join's own answer is equal, and the same answer with a row
dropped, doubled, changed or, where the order is asked for, moved, is different; so is the answer to
the question with another value of the argument, where that has other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import Case, as_bag, cases
from support import campaign

import matwin
from matwin.storage.errors import InputError
from matwin.tools.verify_question import READERS, asked_arguments
from matwin.tools.verify_window import WAYS
from matwin.tools.window_question import PlainQuestion

Join = Callable[..., matwin.Result]
JOINS: list[Join] = [
    matwin.bestmatch_join, matwin.epsilon_join, matwin.asof_join, matwin.fixed_window_join,
]  # fmt: skip


def named(join: Join) -> list[str]:
    """The arguments of a join that are no options."""
    found = signature(join).parameters.values()
    return [parameter.name for parameter in found if parameter.kind is Parameter.KEYWORD_ONLY]


# ── by construction ──────────────────────────────────────────────────────────────────────────

LEFT = pa.table({"t": [1, 4, 4, 9], "x": [0, 1, 1, 2], "k": ["a", "a", "b", None], "i": range(4)})
RIGHT = pa.table({"t": [2, 4, 4, 8], "x": [0, 0, 3, 2], "k": ["a", "a", "b", "b"], "j": range(4)})
ON: dict[Join, dict[str, Any]] = {
    matwin.bestmatch_join: {"on": {"t": 3}},
    matwin.epsilon_join: {"on": {"t": 3}},
    matwin.asof_join: {"on": "t"},
    matwin.fixed_window_join: {"on": {"x": 9}, "time": "t", "period": 4},
}


@pytest.mark.parametrize("join", JOINS)
def test_every_argument_reaches_the_question(join: Join) -> None:
    asked = asked_arguments(join, (LEFT, RIGHT), ON[join])
    assert list(asked) == named(join)
    with pytest.raises(TypeError, match="unheard_of"):
        READERS[join](LEFT.schema, RIGHT.schema, **asked, unheard_of=1)


def test_every_argument_of_a_window_join_reaches_the_question() -> None:
    assert {*named(matwin.window_join)} == {"time", "windows", "by", "where", *WAYS}
    schemas = {"a": LEFT.schema, "b": RIGHT.schema}
    with pytest.raises(TypeError, match="unheard_of"):
        PlainQuestion.of(schemas, time="t", windows=1, unheard_of=1)  # type: ignore[call-arg]


def test_words_that_no_join_has_are_refused_with_an_answer_as_well() -> None:
    answer = matwin.epsilon_join(LEFT, RIGHT, on={"t": 3}).to_arrow()
    with pytest.raises(TypeError, match="unheard_of"):
        matwin.verify(LEFT, RIGHT, best=False, on={"t": 3}, unheard_of=1, result=answer)
    with pytest.raises(TypeError, match=r"asof_join.*orders"):
        matwin.verify(LEFT, RIGHT, join=matwin.asof_join, on="t", orders={}, result=answer)
    with pytest.raises(InputError, match="time= is missing"):
        matwin.verify(LEFT, RIGHT, join=matwin.fixed_window_join, on={"t": 3}, period=1)
    with pytest.raises(InputError, match="verify_window_join is for window joins"):
        matwin.verify(LEFT, RIGHT, join=matwin.window_join, on={"t": 3})
    with pytest.raises(TypeError, match="unheard_of"):
        matwin.verify_window_join({"a": LEFT, "b": RIGHT}, time="t", windows=1, unheard_of=1)


def test_streams_that_drop_rows_are_refused() -> None:
    stream = matwin.stream(LEFT, late="drop")
    with pytest.raises(InputError, match="'left' drops rows that come late"):
        matwin.verify(stream, RIGHT, on={"t": 3})


# ── each value of each argument ──────────────────────────────────────────────────────────────

SHARED: dict[str, list[Any]] = {
    "by": ["k", [("k", "k")]],
    "suffixes": [("_a", "_b")],
    "distances": [True],
}
VALUES: dict[Join, dict[str, list[Any]]] = {
    matwin.bestmatch_join: {
        **SHARED,
        "on": [{"t": None}, {"t": 3, "x": 1}, {"t": matwin.nonzero(3)}, {"t": (None, 0)}],
        "how": ["left", "right", "full", "inner"],
        "orders": [{"t": "youngest"}, {"t": "indifferent"}, {"t": lambda a, b: abs(a + b - 9)}],
        "where": [{"x": 0}, {"x": matwin.nonzero()}, {("i", "j"): (None, 0)}],
        "ties": ["first", "last", "all", ["t"], ["t", "first"]],
        "keep_unmatched": [True, False],
        "ordered": [True, False],
        "emit": ["final", "updates"],
    },
    matwin.epsilon_join: {
        **SHARED,
        "on": [{"t": 0}, {"t": 3, "x": 1}, {"t": matwin.strict(3)}],
        "where": [{"x": 0}, {"x": matwin.nonzero()}],
        "how": ["inner", "left", "right", "full", "semi", "anti"],
        "ordered": [True, False],
    },
    matwin.asof_join: {
        "on": ["x", ("t", "x")],
        "by": SHARED["by"],
        "suffixes": SHARED["suffixes"],
        "tolerance": [0, 1, 3, None],
        "direction": ["backward", "forward", "nearest"],
        "allow_exact_matches": [False, True],
        "ties": ["first", "last", "all"],
        "how": ["left", "inner"],
        "ordered": [True, False],
    },
    matwin.fixed_window_join: {
        **SHARED,
        "on": [{"x": 0}, {"x": None, "i": None}],
        "time": [("t", "x"), "x"],
        "period": [0, 1, 9],
        "every": [2, 5],
        "how": ["left", "right", "full", "inner"],
        "orders": [{"x": "youngest"}],
        "keep_unmatched": [True, False],
    },
}
TABLES = (LEFT.append_column("n", [[1, 1, 2, 2]]), RIGHT.append_column("n", [[5, 5, 5, 5]]))
SIDES = (
    TABLES[0].append_column("j", [[0, 2, 1, 1]]), TABLES[1].append_column("i", [[0, 2, 1, 1]]),
)  # fmt: skip


def test_each_argument_of_each_join_is_tried() -> None:
    for join, values in VALUES.items():
        assert sorted(values) == sorted(named(join))


@pytest.mark.parametrize(
    ("join", "name"),
    [(join, name) for join, values in VALUES.items() for name in values],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_an_argument_is_verified(join: Join, name: str) -> None:
    answers = []
    for value in VALUES[join][name]:
        asked = {**ON[join], **_needed(join, name, value), name: value}
        answer = join(*SIDES, **asked).to_arrow()
        check_verdicts(join, *SIDES, asked, answer)
        answers.append((asked, answer))
    for (asked, right), (_, other) in pairwise([*answers, answers[0]]):
        is_same = right.schema.names == other.schema.names and as_bag(right) == as_bag(other)
        if not is_same:
            verdict = matwin.verify(*SIDES, join=join, result=other, **asked)
            assert not verdict.is_equal, asked


def _needed(join: Join, name: str, value: Any) -> dict[str, Any]:
    """What an argument's value goes with."""
    if join is not matwin.bestmatch_join:
        return {}
    if name == "ties":
        return {"on": {"t": 3, "x": 9}}
    return {"how": "inner"} if value == "updates" else {}


def _is_ordered(join: Join, asked: dict[str, Any]) -> bool:
    return bool(asked.get("ordered", join is matwin.asof_join))


def check_verdicts(
    join: Join, left: pa.Table, right: pa.Table, asked: dict[str, Any], answer: pa.Table
) -> None:
    """The right answer is equal, given and run; every wrong one is different."""
    given = {"join": join, **asked}
    verdict = matwin.verify(left, right, result=answer, **given)
    assert verdict.is_equal, (asked, str(verdict))
    for what, wrong in tampered(answer, is_ordered=_is_ordered(join, asked)):
        assert not matwin.verify(left, right, result=wrong, **given).is_equal, (what, asked)


def tampered(answer: pa.Table, *, is_ordered: bool) -> Iterator[tuple[str, pa.Table]]:
    """Wrong answers."""
    rows = answer.num_rows
    if not rows:
        yield (
            "a row out of nowhere",
            pa.table([pa.nulls(1, field.type) for field in answer.schema], schema=answer.schema),
        )
        return
    at = rows // 2
    before, after = answer.slice(0, at), answer.slice(at + 1)
    yield "dropped", pa.concat_tables([before, after])
    yield "doubled", pa.concat_tables([answer.slice(0, at + 1), answer.slice(at)])
    numbers = [n for n, field in enumerate(answer.schema) if pa.types.is_integer(field.type)]
    values = [77, *answer.column(numbers[-1]).to_pylist()[1:]]
    field = answer.schema.field(numbers[-1])
    yield "changed", answer.set_column(numbers[-1], field, pa.array(values, field.type))
    ids = answer["i"].to_pylist() if "i" in answer.schema.names else []
    if is_ordered and ids != ids[::-1]:
        yield "moved", answer.take(list(range(rows))[::-1])


@given(st.data(), cases(best=True, ties=True) | cases(best=False))
@settings(max_examples=campaign(30, 2000))
def test_any_join_is_verified(data: st.DataObject, case: Case) -> None:
    join = matwin.bestmatch_join if case.best else matwin.epsilon_join
    asked = {**case.arguments}
    if case.arguments["how"] != "inner":
        asked["ordered"] = data.draw(st.booleans())
    answer = join(case.left, case.right, **asked).to_arrow()
    assert as_bag(answer) == case.expected
    verdict = matwin.verify(case.left, case.right, join=join, result=answer, **asked)
    assert verdict.is_equal, str(verdict)
    if answer.num_rows:
        at = data.draw(st.integers(0, answer.num_rows - 1))
        wrong = pa.concat_tables([answer.slice(0, at), answer.slice(at + 1)])
        verdict = matwin.verify(case.left, case.right, join=join, result=wrong, **asked)
        assert (verdict.missing, verdict.extra) == (1, 0)


def columns(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> pa.Table:
    rows = draw(st.lists(st.tuples(values, st.sampled_from(["a", "b", None])), max_size=9))
    t, k = zip(*rows, strict=True) if rows else ((), ())
    kind = pa.float64() if any(isinstance(v, float) for v in t) else pa.int64()
    return pa.table({
        "t": pa.array(t, kind), "k": pa.array(k, pa.string()),
        "i": pa.array(range(len(rows)), pa.int64()),
    })  # fmt: skip


INTS = st.one_of(st.none(), st.integers(-4, 4))
FLOATS = st.sampled_from([0.5, 0.25, 0.125, 1e16, -1e16, 0.0, -0.0, None, float("nan"), 1.0])


@st.composite
def sides(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    values = draw(st.sampled_from([INTS, FLOATS]))
    return columns(draw, values), columns(draw, values)


@given(sides(), st.fixed_dictionaries({
    "by": st.sampled_from([None, "k"]), "tolerance": st.sampled_from([None, 0, 1, 3]),
    "direction": st.sampled_from(["backward", "forward", "nearest"]),
    "allow_exact_matches": st.booleans(), "ties": st.sampled_from(["first", "last", "all"]),
    "how": st.sampled_from(["left", "inner"]), "ordered": st.booleans(),
}))  # fmt: skip
@settings(max_examples=campaign(30, 2000))
def test_any_as_of_join_is_verified(given_sides: Any, asked: dict[str, Any]) -> None:
    asked["on"] = "t"
    answer = matwin.asof_join(*given_sides, **asked).to_arrow()
    verdict = matwin.verify(*given_sides, join=matwin.asof_join, result=answer, **asked)
    assert verdict.is_equal, (asked, str(verdict))
    other = {"first": "last", "last": "all", "all": "first"}[asked["ties"]]
    swapped = matwin.asof_join(*given_sides, **{**asked, "ties": other}).to_arrow()
    verdict = matwin.verify(*given_sides, join=matwin.asof_join, result=swapped, **asked)
    assert verdict.is_equal == (as_bag(swapped) == as_bag(answer))


@given(sides(), st.fixed_dictionaries({
    "by": st.sampled_from([None, "k"]), "period": st.sampled_from([0, 1, 0.25, 3]),
    "every": st.sampled_from([None, 1, 2]), "distances": st.booleans(),
    "how": st.sampled_from(["left", "right", "full", "inner"]),
    "on": st.sampled_from([{"i": None}, {"i": 1}]),
}), st.booleans())  # fmt: skip
@settings(max_examples=campaign(25, 1000))
def test_any_fixed_window_join_is_verified(
    given_sides: Any, asked: dict[str, Any], keeps: bool
) -> None:
    if all(pa.types.is_integer(side.schema.field("t").type) for side in given_sides):
        asked["period"] = int(asked["period"])
    asked |= {"time": "t", "keep_unmatched": keeps and asked["how"] != "inner"}
    verdict = matwin.verify(*given_sides, join=matwin.fixed_window_join, **asked)
    assert verdict.is_equal, (asked, str(verdict))


WINDOWS: dict[str, list[Any]] = {
    "time": ["t", {"a": "t", "b": "x", "c": "t"}],
    "windows": [
        3,
        {("a", "b"): 1, ("b", "c"): (0, 4)},
        matwin.path(["a", "b", "c"], windows=[2, 4]),
    ],
    "by": [None, "k", ["k", "x"]],
    "where": [{("a.x", "b.x"): 0}, {("b.x", "c.x"): (0, 2)}, {("a.x", "b.x"): lambda a, b: a < b}],
    "algorithm": ["auto", "backward-nested-loop"],
    "bounds": ["auto", "local"],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_an_argument_of_a_window_join_is_verified(name: str) -> None:
    assert sorted(WINDOWS) == sorted(named(matwin.window_join))
    streams = {"a": SIDES[0], "b": SIDES[1], "c": SIDES[0]}
    answers = []
    for value in WINDOWS[name]:
        asked = {"time": "t", "windows": 3, name: value}
        answer = matwin.window_join(streams, **asked).to_arrow()
        assert matwin.verify_window_join(streams, result=answer, **asked).is_equal, asked
        for what, wrong in tampered(answer, is_ordered=False):
            verdict = matwin.verify_window_join(streams, result=wrong, **asked)
            assert not verdict.is_equal, (what, asked)
        answers.append((asked, answer))
    for (asked, right), (_, other) in pairwise([*answers, answers[0]]):
        if right.schema != other.schema or as_bag(right) != as_bag(other):
            assert not matwin.verify_window_join(streams, result=other, **asked).is_equal
