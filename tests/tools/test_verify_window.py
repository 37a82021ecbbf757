"""Referees of window joins: DuckDB by generated SQL, and the plain loop of wquestions.py.

They share no code.  Then the verdict that a user sees: rows that are missing, too much or changed.
"""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign
from wcases import KINDS, questions
from wquestions import Asked

import matwin
from matwin.storage.errors import InputError
from matwin.tools.arguments import ALGORITHMS, BOUNDS
from matwin.tools.verify_window import verify_window_join
from matwin.tools.window_answer import window_answer
from matwin.tools.window_question import PlainQuestion
from matwin.tools.window_sql import question_sql

# ── the referees ─────────────────────────────────────────────────────────────────────────────


def question_of(tables: dict[str, pa.Table], arguments: dict[str, Any]) -> PlainQuestion:
    return PlainQuestion.of({name: table.schema for name, table in tables.items()}, **arguments)


def run_sql(tables: dict[str, pa.Table], arguments: dict[str, Any]) -> pa.Table:
    """What DuckDB makes of the printed SQL."""
    question = question_of(tables, arguments)
    with duckdb.connect(config={"enable_external_access": "false"}) as database:
        for name, table in tables.items():
            database.register(name, table)
        found = database.sql(question_sql(question)).to_arrow_table()
    assert found.schema.names == question.schema.names
    return found


@given(questions())
@settings(max_examples=campaign(60, 3000))
def test_both_referees_agree(asked: Asked) -> None:
    question = question_of(asked.streams, asked.arguments)
    found = window_answer(list(asked.streams.values()), question)
    assert found.schema.equals(question.schema)
    assert as_bag(found) == asked.expected


def has_sql(asked: Asked) -> bool:
    where = asked.arguments["where"] or []
    given_tests = [where] if isinstance(where, dict) else where
    return not any(callable(test) for mapping in given_tests for test in mapping.values())


# DuckDB gives a duration back as months, days and nanoseconds; far ones don't fit its INTERVAL.
@given(questions(kinds=tuple(kind for kind in KINDS if kind != "durations")).filter(has_sql))
@settings(max_examples=campaign(60, 3000))
def test_the_printed_sql_agrees(asked: Asked) -> None:
    assert as_bag(run_sql(asked.streams, asked.arguments)) == asked.expected


@given(questions(), st.sampled_from(ALGORITHMS), st.sampled_from(BOUNDS))
@settings(max_examples=campaign(60, 3000))
def test_every_algorithm_agrees_with_duckdb(asked: Asked, algorithm: str, bounds: str) -> None:
    if algorithm.endswith("hash") and not asked.keys:
        algorithm = algorithm.replace("hash", "nested-loop")
    verdict = verify_window_join(
        asked.streams, **asked.arguments, algorithm=algorithm, bounds=bounds
    )
    assert verdict.is_equal, str(verdict)
    assert verdict.rows == asked.expected.total()


# ── exactly ──────────────────────────────────────────────────────────────────────────────────


def ids(columns: dict[str, Any], **arguments: Any) -> list[tuple[int, ...]]:
    """Which rows meet, by DuckDB and by the printed SQL, and by the join itself."""
    tables = {
        name: pa.table({"t": values, "i": pa.array(range(len(values)), pa.int64())})
        for name, values in columns.items()
    }
    asked = {"time": "t", **arguments}
    assert verify_window_join(tables, **asked).is_equal
    answer = window_answer(list(tables.values()), question_of(tables, asked))
    found = [
        sorted(zip(*(rows[f"{name}_i"].to_pylist() for name in tables), strict=True))
        for rows in (answer, run_sql(tables, asked))
    ]
    assert found[0] == found[1]
    return found[0]


def test_the_edges_of_integers() -> None:
    edge = 2**63 - 1
    assert ids({"a": [-edge - 1, edge], "b": [edge - 1, -edge]}, windows=1) == [(0, 1), (1, 0)]
    assert ids({"a": [-edge - 1], "b": [edge]}, windows=edge) == []


def test_bounds_are_inclusive_and_nanoseconds_count() -> None:
    fine = pa.array([5_000_000_000, 5_000_000_001], pa.timestamp("ns"))
    coarse = pa.array([0], pa.timestamp("s"))
    assert ids({"a": coarse, "b": fine}, windows="5s") == [(0, 0)]
    assert ids({"a": fine, "b": coarse}, windows={("a", "b"): ("-5s", "0s")}) == [(0, 0)]


def test_a_tuple_that_goes_both_ways_is_one_tuple() -> None:
    both = matwin.path(["a", "b", "c"], windows=[2, 2], both_ways=True)
    times = {"a": [5], "b": [5, 6, 4], "c": [5, 7, 3]}
    assert ids(times, windows=both) == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 2, 2)]
    there = matwin.path(["a", "b", "c"], windows=[2, 2])
    assert ids(times, windows=there) == [(0, 0, 0), (0, 0, 1), (0, 1, 1)]


def test_what_is_no_number_never_matches() -> None:
    odd = pa.array([math.nan, math.inf, -math.inf, None, 0.0])
    assert ids({"a": odd, "b": odd, "c": pa.array([-0.0])}, windows=1e308) == [(4, 4, 0)]


def test_windows_that_sum_beyond_the_floats() -> None:
    wide = matwin.path(["a", "b", "c"], windows=[1e308, 1e308])
    assert ids({"a": [-1e308], "b": [0.0], "c": [1e308]}, windows=wide) == [(0, 0, 0)]


KEYED = {
    "a": pa.table({"t": [1, 1, 1, 1], "k": pa.array([-0.0, math.inf, math.nan, 7.0])}),
    "b": pa.table({"t": [1, 1, 1], "key": pa.array([0, 7, None], pa.int32())}),
}


def test_keys_of_other_names_and_types() -> None:
    arguments: dict[str, Any] = {"time": "t", "windows": 1, "by": {"a": "k", "b": ["key"]}}
    found = window_answer(list(KEYED.values()), question_of(KEYED, arguments))
    assert found.schema.names == ["k", "a_t", "b_t"] and found.schema.field("k").type == "double"
    assert sorted(found["k"].to_pylist()) == [0.0, 7.0]
    assert verify_window_join(KEYED, **arguments).is_equal


def test_nan_and_infinite_keys_equal_nothing() -> None:
    tables = {"a": KEYED["a"], "b": KEYED["a"]}
    arguments: dict[str, Any] = {"time": "t", "windows": 1, "by": "k"}
    verdict = verify_window_join(tables, **arguments)
    assert verdict.is_equal and verdict.rows == 2
    assert run_sql(tables, arguments).num_rows == 2


PLACES = {
    "a": pa.table({"t": [1, 2, 3], "x": [0.0, 1.0, None], "y": [0.0, 5.0, 1.0]}),
    "b": pa.table({"t": [1, 2, 3], "x": [0.5, 1.5, 2.0], "y": [math.nan, 5.5, 0.0]}),
}


def is_close(ax: float, ay: float, bx: float, by: float) -> bool:
    return (ax - bx) ** 2 + (ay - by) ** 2 < 1


def test_functions_are_asked_of_python() -> None:
    key = ("a.x", "a.y", "b.x", "b.y")
    arguments: dict[str, Any] = {"time": "t", "windows": 5, "where": {key: is_close}}
    verdict = verify_window_join(PLACES, **arguments)
    assert verdict.is_equal and verdict.rows == 1
    with pytest.raises(InputError, match="'is_close' has no SQL"):
        question_sql(question_of(PLACES, arguments))


def test_a_function_that_fails_is_named() -> None:
    def careless(a: float, b: float) -> bool:
        raise RuntimeError("oops")

    answer = pa.table({"a_t": [1]})
    with pytest.raises(InputError, match="'careless' of the streams 'a' and 'b' fails"):
        verify_window_join(
            PLACES, time="t", windows=5, where={("a.x", "b.x"): careless}, result=answer
        )


def test_hostile_names_stay_names() -> None:
    name = 'x"; DROP TABLE "a'
    tables = {
        'a"b': pa.table({name: [1], "#t": [1], "b.c": [1.0]}),
        'A"B': pa.table({name: [2], "##k0": [1], "c": [1.5]}),
    }
    arguments: dict[str, Any] = {
        "time": name, "windows": 1, "where": {('a"b.b.c', 'A"B.c'): 0.5}
    }  # fmt: skip
    assert verify_window_join(tables, **arguments).rows == 1
    question = question_of(tables, arguments)
    with duckdb.connect(config={"enable_external_access": "false"}) as database:
        for number, table in enumerate(tables.values()):
            database.register(f"it's{number}", table)
        assert len(database.sql(question_sql(question, ["it's0", "it's1"])).fetchall()) == 1


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────

STREAMS = {
    "a": pa.table({"t": [1, 5, 9], "k": ["x", "y", "x"]}),
    "b": pa.table({"t": [2, 4, 8], "k": ["x", "y", "x"], "v": [1.5, 2.5, 3.5]}),
}
ASKED: dict[str, Any] = {"time": "t", "windows": 1, "by": "k"}
ANSWER = pa.table(
    {"k": ["x", "y", "x"], "a_t": [1, 5, 9], "b_t": [2, 4, 8], "b_v": [1.5, 2.5, 3.5]}
)


def test_a_right_answer() -> None:
    verdict = verify_window_join(STREAMS, **ASKED, result=ANSWER)
    assert verdict.is_equal and verdict.rows == 3
    assert str(verdict) == "equal: DuckDB finds the same rows, 3 in all"
    assert verify_window_join(STREAMS, **ASKED, memory="64MiB").is_equal


@pytest.mark.parametrize(
    ("wrong", "missing", "extra"),
    [
        (ANSWER.slice(1), 1, 0),
        (ANSWER.slice(0, 0), 3, 0),
        (pa.concat_tables([ANSWER, ANSWER.slice(0, 1)]), 0, 1),
        (ANSWER.set_column(3, "b_v", pa.array([1.5, 2.5, 3.0])), 1, 1),
        (ANSWER.take([0, 1, 1]), 1, 1),
    ],
    ids=["missing", "all missing", "twice", "changed", "another"],
)
def test_a_wrong_answer(wrong: pa.Table, missing: int, extra: int) -> None:
    verdict = verify_window_join(STREAMS, **ASKED, result=wrong)
    assert (verdict.is_equal, verdict.missing, verdict.extra) == (False, missing, extra)
    assert str(verdict).startswith(f"different: {wrong.num_rows} rows, and 3 by DuckDB")


def test_an_answer_with_other_columns() -> None:
    verdict = verify_window_join(STREAMS, **ASKED, result=ANSWER.rename_columns(list("kabc")))
    assert not verdict.is_equal and "b_v" in verdict.difference.columns


def test_a_join_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = matwin.window_join
    monkeypatch.setattr(
        matwin, "window_join", lambda *a, **k: whole(*a, **k).read_all().slice(1).to_reader()
    )
    assert verify_window_join(STREAMS, **ASKED).missing == 1


def test_readers_are_read_once() -> None:
    readers = {name: table.to_reader() for name, table in STREAMS.items()}
    assert verify_window_join(readers, **ASKED).is_equal


def test_one_source_under_two_names() -> None:
    table = STREAMS["a"]
    verdict = verify_window_join({"x": table, "y": table}, time="t", windows=3)
    assert verdict.is_equal and verdict.rows == 3


def test_streams_that_can_be_read_again() -> None:
    batches = {name: matwin.stream(table.to_batches()) for name, table in STREAMS.items()}
    assert verify_window_join(batches, time="t", windows=1).is_equal
    declared = {name: matwin.stream(table, order="sorted") for name, table in STREAMS.items()}
    assert verify_window_join(declared, time="t", windows=1).is_equal


def test_streams_that_can_not() -> None:
    once = matwin.stream(iter(STREAMS["a"].to_batches()), schema=STREAMS["a"].schema)
    with pytest.raises(InputError, match="'a' can be read only once"):
        verify_window_join({"a": once, "b": STREAMS["b"]}, **ASKED)
    drops = matwin.stream(STREAMS["a"], late="drop")
    with pytest.raises(InputError, match="'a' drops rows that come late"):
        verify_window_join({"a": drops, "b": STREAMS["b"]}, **ASKED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"windows": 1}, "time= is missing"),
        ({"time": "t"}, "windows= is missing"),
        ({"time": "u", "windows": 1}, "'u' is not there"),
        ({"time": {"a": "t"}, "windows": 1}, "'b'"),
        ({"time": "t", "windows": {("a", "z"): 1}}, "'z'"),
        ({"time": "k", "windows": 1}, "must be a number"),
        ({"time": "t", "windows": 1, "by": "v"}, "'v' is not there"),
        ({"time": "t", "windows": 1, "by": {"a": "t", "b": "k"}}, "cast one of them"),
        ({"time": "t", "windows": 1, "where": {("a.t", "a.k"): 1}}, "two streams"),
        ({"time": "t", "windows": 1, "where": {("a.t", "b.v"): -1}}, "negative"),
        ({"time": "t", "windows": 1, "where": {("a.t", "b.w"): 1}}, "'b.w' is no column"),
    ],
)
def test_bad_questions_are_told_before_data_is_read(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        verify_window_join(STREAMS, **arguments, result=ANSWER)
