"""Joins on streams: what leaves when, what late rows do, and windows of a fixed time.

Streams that are live say what a test tells them, so that a result can be held against what was
known when it came.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag, oracle
from talking import PATIENCE, Listener, Talk

import matwin
from matwin.question import Question
from matwin.report import Report

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("id", pa.int64())])
ON = {"t": 3, "x": 2.0}
SMALL = {"page_size": "4KiB", "memory": 32 * 4096, "materialize": "slab", "max_delay": "0s"}


def rows_of(times: list[int], spots: list[int]) -> list[dict[str, Any]]:
    pairs = zip(times, spots, strict=False)
    return [{"t": t, "x": float(x), "id": i} for i, (t, x) in enumerate(pairs)]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def listening(talks: dict[str, Talk], **options: Any) -> Listener:
    left, right = (matwin.stream(talks[side], schema=SCHEMA) for side in ("left", "right"))
    return Listener(matwin.bestmatch_join(left, right, on=ON, **options), talks)


times = st.lists(st.integers(0, 20), max_size=14)
spots = st.lists(st.integers(0, 5), min_size=14, max_size=14)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 5)), max_size=12))
@settings(max_examples=40)
def test_a_left_row_leaves_when_the_right_frontier_has_passed_its_reach(
    script: list[tuple[bool, int, int]],
) -> None:
    """Nothing that is final waits for another row, and nothing comes before it is final."""
    talks, rows = {"left": Talk(), "right": Talk()}, {"left": [], "right": []}
    with listening(talks, keep_unmatched=True) as listener:
        for is_left, step, x in script:
            side = rows["left" if is_left else "right"]
            before = side[-1]["t"] if side else 0
            side.append({"t": before + step, "x": float(x), "id": len(side)})
            talks["left" if is_left else "right"].say(side[-1])
            frontier = rows["right"][-1]["t"] if rows["right"] else -1
            final = {row["id"] for row in rows["left"] if row["t"] + 3 < frontier}
            came = {row["id_left"] for row in listener.heard_of("id_left", len(final))}
            assert came == final
        assert {row["id_left"] for row in listener.all()} == set(range(len(rows["left"])))


def test_a_silent_side_holds_nobody_back() -> None:
    """What the other side says is read on: its own rows are final by what the silent one said."""
    talks = {"left": Talk(), "right": Talk()}
    with listening(talks) as listener:
        talks["right"].say({"t": 1, "x": 0.0, "id": 0}, {"t": 100, "x": 0.0, "id": 1})
        for number in range(5):  # the left side is far behind, and the right one says nothing more
            talks["left"].say({"t": number, "x": 0.0, "id": number})
            assert len(listener.heard(number + 1)) == number + 1


@pytest.mark.parametrize("options", [{}, SMALL])
@given(st.data())
def test_rows_out_of_order_within_their_lateness(options: Any, data: st.DataObject) -> None:
    """What is not late is joined as if it had come in order; every row is counted once."""
    sides = {}
    for side in ("left", "right"):
        drawn = data.draw(times)
        sides[side] = rows_of(drawn, data.draw(spots))
    lateness = data.draw(st.integers(0, 8))
    order = data.draw(st.sampled_from(["lateness", "read ahead", "sorted"]))
    promises = {
        "lateness": matwin.Lateness(lateness),
        "read ahead": matwin.ReadAhead(lateness + 1),
        "sorted": matwin.Sorted(),
    }
    how = data.draw(st.sampled_from(["left", "right", "full"]))
    in_time = {side: _in_time(rows, order, lateness) for side, rows in sides.items()}
    report = Report()
    found = matwin.bestmatch_join(
        *(
            matwin.stream(iter(rows), schema=SCHEMA, order=promises[order], late="drop")
            for rows in sides.values()
        ),
        on=ON, how=how, report=report, **options,
    ).read_all()  # fmt: skip
    question = Question.of(SCHEMA, SCHEMA, on=ON, how=how, best=True)
    expected = oracle(as_table(in_time["left"]), as_table(in_time["right"]), question)
    assert as_bag(found) == as_bag(expected)
    report.check()
    for side, rows in sides.items():
        counts = getattr(report, side)
        assert counts.rows_in == len(rows)
        assert counts.late == len(rows) - len(in_time[side])


def _in_time(rows: list[dict[str, Any]], order: str, lateness: int) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    frontier = -1
    for row in rows:
        if row["t"] < frontier:
            continue
        kept.append(row)
        seen = [r["t"] for r in kept]
        if order == "lateness":
            frontier = max(frontier, max(seen) - lateness + 1)
        elif order == "sorted":
            frontier = max(seen)
        elif len(seen) > lateness:
            frontier = max(frontier, min(seen[-(lateness + 1) :]))
    return kept


@given(times, times, spots)
def test_updates_add_up_to_the_final_result(
    left_times: list[int], right_times: list[int], xs: list[int]
) -> None:
    left, right = rows_of(sorted(left_times), xs), rows_of(sorted(right_times), xs[::-1])

    def streams() -> list[Any]:
        return [matwin.stream(iter(rows), schema=SCHEMA) for rows in (left, right)]

    standing: Counter[Any] = Counter()
    for batch in matwin.bestmatch_join(*streams(), on=ON, how="inner", emit="updates"):
        for row in batch.to_pylist():
            change = row.pop("change")
            assert change in ("added", "withdrawn")
            standing[tuple(row.values())] += 1 if change == "added" else -1
            assert min(standing.values()) >= 0
    final = matwin.bestmatch_join(*streams(), on=ON, how="inner").read_all()
    question = Question.of(SCHEMA, SCHEMA, on=ON, how="inner", best=True)
    expected = as_bag(oracle(as_table(left), as_table(right), question))
    assert as_bag(final) == expected
    assert +standing == expected


def test_punctuations_say_what_is_complete() -> None:
    talk = Talk()
    left = as_table(rows_of([2, 9], [0, 0]))
    reader = matwin.bestmatch_join(
        matwin.stream(left, order="sorted"),
        matwin.stream(talk, schema=SCHEMA, order=matwin.Punctuated()),
        on=ON,
    )
    with Listener(reader, {"right": talk}) as listener:
        talk.say({"t": 5, "x": 0.0, "id": 0}, {"t": 2, "x": 0.0, "id": 1}, matwin.Punctuation(6))
        # It leaves as soon as that is said, before another row comes.
        assert [row["id_right"] for row in listener.heard(1)] == [1]
        talk.say({"t": 9, "x": 0.0, "id": 2}, {"t": 7, "x": 0.0, "id": 3})
        assert [row["id_right"] for row in listener.all()] == [1, 2]


def test_a_stream_needs_a_tolerance_on_its_order_attribute() -> None:
    table = as_table(rows_of([1], [1]))
    with pytest.raises(matwin.InputError, match="order attribute 't' needs a tolerance"):
        matwin.bestmatch_join(matwin.stream(table), table, on={"t": None}).read_all()


def test_an_unsorted_row_is_named() -> None:
    left = matwin.stream(as_table(rows_of([1, 5, 3], [0, 0, 0])))
    with pytest.raises(matwin.OrderError, match=r"row 2 .* 3 .* 5"):
        matwin.bestmatch_join(left, as_table(rows_of([1], [0])), on={"t": 1}).read_all()


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=7),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=7),
    st.integers(0, 5),
    st.sampled_from([None, 2]),
)
def test_fixed_windows_against_a_plain_loop(
    left: list[tuple[int, int]], right: list[tuple[int, int]], period: int, every: int | None
) -> None:
    schema = pa.schema([("t", pa.int64()), ("v", pa.int64())])
    tables = [
        pa.table({"t": [t for t, _ in rows], "v": [v for _, v in rows]}, schema)
        for rows in (left, right)
    ]
    found = matwin.fixed_window_join(
        *tables, time="t", period=period, on={"v": 3}, every=every, threads=1
    ).read_all()
    expected = []
    last = None
    for now in sorted({t for t, _ in (*left, *right)}):
        if last is not None and every is not None and now - last < every:
            continue
        last = now
        mates = [row for row in right if now - period <= row[0] <= now]
        for row in (row for row in left if now - period <= row[0] <= now):
            near = [abs(row[1] - mate[1]) for mate in mates if abs(row[1] - mate[1]) <= 3]
            expected += [
                (now, *row, *mate) for mate in mates if near and abs(row[1] - mate[1]) == min(near)
            ]
    assert as_bag(found) == as_bag(expected)


@pytest.mark.parametrize("keep", [False, True])
def test_fixed_windows_count_rows_that_can_match_nothing(keep: bool) -> None:
    """Null, NaN and infinities, in times, attributes and keys, each once and not at every join."""
    left = pa.table(
        {
            "t": [1, 2, 3, None, 5, 6],
            "x": [1.0, math.nan, math.inf, 1.0, 2.0, None],
            "k": ["a", "a", "a", "a", None, "a"],
        }
    )
    right = pa.table({"t": [2, 4], "x": [1.5, 2.5], "k": ["a", "a"]})
    report = Report()
    matwin.fixed_window_join(
        left, right, time="t", period=9, on={"x": 1.0}, by="k", keep_unmatched=keep, report=report
    ).read_all()
    assert (report.left.rows_in, report.left.used, report.left.rejected) == (6, 1, 5)
    assert (report.right.rows_in, report.right.used, report.right.rejected) == (2, 2, 0)
    report.check()


def test_fixed_windows_read_on_while_a_side_is_silent() -> None:
    """Its rows are in the windows by the time that the silent one says something."""
    talk, is_read = Talk(), threading.Event()

    def speaking() -> Iterator[dict[str, Any]]:
        for number in range(300):  # more than a queue holds
            yield {"t": number, "x": 0.0, "id": number}
        is_read.set()

    reader = matwin.fixed_window_join(
        matwin.stream(talk, schema=SCHEMA), matwin.stream(speaking(), schema=SCHEMA),
        time="t", period=2, on={"x": 1.0},
    )  # fmt: skip
    with Listener(reader, {"left": talk}) as listener:
        assert is_read.wait(PATIENCE)
        talk.say({"t": 3, "x": 0.0, "id": 0}, {"t": 5, "x": 9.0, "id": 1})
        expected = [(at, mate) for at in (3, 4, 5) for mate in range(at - 2, at + 1)]
        came = [(row["evaluated_at"], row["id_right"]) for row in listener.heard(6)]
        assert came == expected[:6]  # nobody knows yet whether more rows come at 5
        talk.say({"t": 9, "x": 9.0, "id": 2})
        came = [(row["evaluated_at"], row["id_right"]) for row in listener.heard(9)]
        assert came == expected


def test_fixed_windows_hold_what_an_evaluation_can_still_need() -> None:
    """Neither the rows between two evaluations nor the times that wait are kept."""
    rows, report, told = 60_000, Report(), []
    table = pa.table({"t": np.arange(rows), "x": np.zeros(rows, np.int64)})
    asked: dict[str, Any] = {"time": "t", "period": 2, "every": 25_000, "on": {"x": 0}}
    small: dict[str, Any] = {"memory": 2 * 32 * 4096, "page_size": 4096}
    found = matwin.fixed_window_join(
        matwin.stream(table), matwin.stream(table), report=report, progress=told.append,
        **asked, **small,
    ).read_all()  # fmt: skip
    times = [at for at in (0, 25_000, 50_000) for _ in range(9 if at else 1)]
    assert found["evaluated_at"].to_pylist() == times
    assert report.pages_written == 0
    assert told[-1] is report and report.is_done
    shuffled = table.take(np.random.default_rng(1).permutation(rows))
    found = matwin.fixed_window_join(shuffled, shuffled, **asked, **small)
    assert found.read_all()["evaluated_at"].to_pylist() == times
