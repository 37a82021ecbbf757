"""Window joins of live streams: what leaves when, disorder, silence, early ends and back-pressure.

A backward join owes a tuple as soon as the last of its rows has been read, whatever the other
streams do; a forward one when every stream has passed it.  Both owe the same rows in the end, and
every row read is used, late or rejected.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign
from talking import BACKWARD, FORWARD, PATIENCE, Listener, Talk, live, row, table
from wquestions import simple

import matwin
from matwin.report import Report

PAGES: dict[str, Any] = {
    "page_size": "4KiB", "memory": 32 * 4096, "materialize": "slab", "max_delay": "0s"
}  # fmt: skip
PLACES = pytest.mark.parametrize("options", [{}, PAGES], ids=["memory", "pages"])


def named(algorithm: str, options: dict[str, Any]) -> str:
    """Pages are for `auto`: an algorithm that is named has its windows in memory."""
    return "auto" if options else algorithm


WINDOWS = [
    3,
    {("a", "b"): 2, ("b", "c"): 4},
    {("a", "b"): (0, 3), ("c", "b"): (-2, 5)},
    {("b", "c"): (-4, -1), ("a", "c"): 3, ("a", "b"): (0, 6)},
]


def listening(talks: dict[str, Talk], **arguments: Any) -> Listener:
    sources = {name: live(talk) for name, talk in talks.items()}
    arguments = {"time": "t", "by": "k", **arguments}
    return Listener(matwin.window_join(sources, **arguments), talks)


# ── what leaves when ─────────────────────────────────────────────────────────────────────────

said = st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from([0, 0, 0, 1]))


@PLACES
@pytest.mark.parametrize("algorithm", BACKWARD)
@given(st.lists(said, max_size=14), st.sampled_from(WINDOWS))
@settings(max_examples=campaign(25, 1000))
def test_a_tuple_leaves_with_its_last_row(
    options: dict[str, Any], algorithm: str, script: list[Any], windows: Any
) -> None:
    """Any interleaving: streams run ahead of each other, stand still and jump."""
    talks = {name: Talk() for name in "abc"}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in "abc"}
    by = {"windows": windows, "algorithm": named(algorithm, options), **options}
    with listening(talks, **by) as listener:
        for name, step, key in script:
            before = rows[name][-1]["t"] if rows[name] else 0
            rows[name].append(row(before + step, key, len(rows[name])))
            talks[name].say(rows[name][-1])
            expected = simple({n: table(r) for n, r in rows.items()}, windows, "k").expected
            came = listener.heard(expected.total())
            assert Counter(tuple(r.values()) for r in came) == expected
        assert len(listener.all()) == len(came) if script else listener.all() == []


@PLACES
@pytest.mark.parametrize("algorithm", FORWARD)
def test_forward_results_leave_when_every_stream_has_passed(
    algorithm: str, options: dict[str, Any]
) -> None:
    talks = {name: Talk() for name in "abc"}
    with listening(talks, windows=3, algorithm=named(algorithm, options), **options) as listener:
        for talk in talks.values():
            talk.say(row(5), row(100))
        early = [r["a_t"] for r in listener.heard(1)]
        # On pages rows are joined as they come, whatever the algorithm.
        assert early == [5] if not options else early[0] == 5
        assert sorted(r["a_t"] for r in listener.all()) == [5, 100]


@PLACES
@pytest.mark.parametrize("algorithm", BACKWARD)
@pytest.mark.parametrize("silence", ["blocks", "None"])
def test_a_silent_stream_keeps_nobody_waiting(
    silence: str, algorithm: str, options: dict[str, Any]
) -> None:
    """Results with what the silent stream said before come while it says nothing."""
    speak = threading.Event()

    def silent() -> Iterator[Any]:
        yield row(10)
        if silence == "None":
            while not speak.wait(0.001):
                yield None
        assert speak.wait(PATIENCE)
        yield row(12, 0, 1)

    talks = {name: Talk() for name in "ab"}
    sources = {"a": live(talks["a"]), "b": live(talks["b"]), "c": live(silent())}
    reader = matwin.window_join(
        sources, time="t", windows=3, by="k", algorithm=named(algorithm, options), **options
    )
    with Listener(reader, talks) as listener:
        try:
            times = (8, 9, 13, 13, 13)  # beyond the silent one, and on
            for number, t in enumerate(times):
                talks["a"].say(row(t, 0, number))
                talks["b"].say(row(t, 0, number))
            pairs = product(enumerate(times), repeat=2)
            near = {(i, j) for (i, t), (j, u) in pairs if abs(t - u) <= 3}
            assert {(r["a_id"], r["b_id"]) for r in listener.heard(len(near))} == near
        finally:
            speak.set()
        assert {r["c_t"] for r in listener.all()} == {10, 12}


def test_nothing_is_read_before_somebody_asks() -> None:
    def unread() -> Iterator[Any]:
        pytest.fail("a stream was read before the join was")
        yield

    reader = matwin.window_join({"a": live(unread()), "b": live(unread())}, time="t", windows=1)
    assert reader.schema.names == ["a_t", "a_k", "a_id", "b_t", "b_k", "b_id"]


@PLACES
def test_rows_at_the_same_time(options: dict[str, Any]) -> None:
    """Every row of one moment meets every other, in whatever pieces they come."""
    talks = {name: Talk() for name in "abc"}
    with listening(talks, windows={("a", "b"): (0, 0), ("b", "c"): 1}, **options) as listener:
        for number in range(6):
            for talk in talks.values():
                talk.say([row(7, 0, 2 * number), row(7, 0, 2 * number + 1)])
        came = listener.heard(12**3)
        assert len({(r["a_id"], r["b_id"], r["c_id"]) for r in came}) == 12**3
        assert len(listener.all()) == 12**3


@PLACES
@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
def test_a_burst(algorithm: str, options: dict[str, Any]) -> None:
    """Thousands of rows at once, then a row of each other stream for some of them."""
    talks = {name: Talk() for name in "abc"}
    with listening(talks, windows=1, algorithm=named(algorithm, options), **options) as listener:
        talks["a"].say(table([row(t, t % 50, t) for t in range(3000)]))
        for t in (0, 777, 2999):
            talks["b"].say(row(t, t % 50))
            talks["c"].say(row(t, t % 50))
        if algorithm in BACKWARD:
            assert [r["a_id"] for r in listener.heard(3)] == [0, 777, 2999]
        assert sorted(r["a_id"] for r in listener.all()) == [0, 777, 2999]


@PLACES
@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
def test_a_stream_that_ends_early(algorithm: str, options: dict[str, Any]) -> None:
    """Its last rows are joined with what comes later; then nothing can match any more."""
    talks = {name: Talk() for name in "abc"}
    with listening(talks, windows=5, algorithm=named(algorithm, options), **options) as listener:
        talks["c"].say(row(10))
        talks["c"].end()
        for t in (7, 12, 15, 16, 400):
            talks["a"].say(row(t))
            talks["b"].say(row(t))
        near = {(7, 7), (7, 12), (12, 7), (12, 12), (12, 15), (15, 12), (15, 15)}
        came = listener.heard(len(near))
        assert {(r["a_t"], r["b_t"]) for r in came} == near
        assert len(listener.all()) == len(near)


def test_streams_without_any_row() -> None:
    report = Report()
    sources = {"a": live(iter([row(1)])), "b": live(iter([])), "c": live(iter([None, None]))}
    found = matwin.window_join(sources, time="t", windows=5, report=report).read_all()
    assert found.num_rows == 0
    assert report.is_done
    report.check()


# ── disorder ─────────────────────────────────────────────────────────────────────────────────

PROMISES = (
    matwin.Sorted(), matwin.Lateness(0), matwin.Lateness(4), matwin.ReadAhead(1),
    matwin.ReadAhead(3), matwin.GridOrdered(4), matwin.Punctuated(),
)  # fmt: skip
some_rows = st.tuples(st.none() | st.integers(0, 15), st.sampled_from([0, 0, 0, 1, None]))
items = st.lists(st.tuples(some_rows, st.none() | st.integers(0, 12)), max_size=9)


def spoken(drawn: list[Any], promise: Any) -> list[Any]:
    """Rows, and among them punctuations where they are promised."""
    said: list[Any] = []
    for number, ((t, k), upto) in enumerate(drawn):
        said.append(row(t, k, number))
        if isinstance(promise, matwin.Punctuated) and upto is not None:
            said.append(matwin.Punctuation(upto))
    return said


def in_time(said: list[Any], promise: Any) -> tuple[list[dict[str, Any]], int]:
    """The rows that keep the promise, by a plain reading of what it says; how many are late."""
    kept: list[dict[str, Any]] = []
    complete, late = -math.inf, 0  # everything below has come
    for item in said:
        if isinstance(item, matwin.Punctuation):
            complete = max(complete, item.upto + 1)
            continue
        t = item["t"]
        if t is None or item["k"] is None:  # rejected; says nothing about the others
            continue
        if t < complete:
            late += 1
            continue
        kept.append(item)
        times = [r["t"] for r in kept]
        match promise:
            case matwin.Sorted():
                complete = max(complete, t)
            case matwin.Lateness(lateness):
                complete = max(complete, t - lateness + 1)
            case matwin.ReadAhead(rows):
                if len(times) >= rows:
                    complete = max(complete, min(times[-rows:]))
            case matwin.GridOrdered(width):
                complete = max(complete, t // width * width)
    return kept, late


@PLACES
@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
@given(st.data(), st.sampled_from(WINDOWS))
@settings(max_examples=campaign(40, 2000))
def test_disorder(
    options: dict[str, Any], algorithm: str, data: st.DataObject, windows: Any
) -> None:
    """What is in time is joined as if it had come in order, and every row is counted once."""
    sources, kept, given_, late = {}, {}, {}, {}
    for name in "abc":
        promise = data.draw(st.sampled_from(PROMISES), label=name)
        said = spoken(data.draw(items), promise)
        sources[name] = live(iter(said), order=promise, late="drop")
        kept[name], late[name] = in_time(said, promise)
        given_[name] = sum(isinstance(item, dict) for item in said)
    report = Report()
    found = matwin.window_join(
        sources,
        time="t",
        windows=windows,
        by="k",
        algorithm=named(algorithm, options),
        report=report,
        **options,
    )
    asked = simple({name: table(rows) for name, rows in kept.items()}, windows, "k")
    assert as_bag(found) == asked.expected
    report.check()
    for name, counts in report.streams.items():
        assert counts.rows_in == given_[name] == counts.used + counts.late + counts.rejected
        assert (counts.used, counts.late) == (len(kept[name]), late[name])


@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
def test_a_late_row_is_named(algorithm: str) -> None:
    sources = {"a": live(iter([row(5), row(9), row(3)])), "b": live(iter([row(5)]))}
    with pytest.raises(matwin.OrderError, match=r"^a: row 2 is late: its 't' is 3 after 9.*Late"):
        matwin.window_join(sources, time="t", windows=1, by="k", algorithm=algorithm).read_all()


@pytest.mark.parametrize("algorithm", FORWARD)
def test_a_punctuation_makes_rows_final(algorithm: str) -> None:
    """Rows below it leave a forward join, though no later row has come."""
    talks = {name: Talk() for name in "ab"}
    sources = {name: live(talk, order=matwin.Punctuated()) for name, talk in talks.items()}
    reader = matwin.window_join(sources, time="t", windows=2, by="k", algorithm=algorithm)
    with Listener(reader, talks) as listener:
        for talk in talks.values():
            talk.say(row(5), row(3), matwin.Punctuation(20))
        assert len(listener.heard(4)) == 4


def test_a_live_stream_beside_tables() -> None:
    """Tables that are not sorted are complete only at their end; the answer is the same."""
    chance = np.random.default_rng(1)
    rows = [row(int(t), int(t) % 3, i) for i, t in enumerate(chance.integers(0, 300, 200))]
    ordered = sorted(rows, key=lambda r: r["t"])
    windows = {("a", "b"): 5, ("b", "c"): (0, 9)}
    asked = simple({name: table(rows) for name in "abc"}, windows, "k")
    sources = {"a": live(iter(ordered)), "b": table(rows), "c": matwin.stream(table(ordered))}
    found = matwin.window_join(sources, **asked.arguments)
    assert as_bag(found) == asked.expected


def test_paths_in_both_directions_as_they_come() -> None:
    """A walk there, a walk back, and one who stands still: each once."""
    talks = {name: Talk() for name in "abc"}
    path = matwin.path([*"abc"], windows=[5, 5], both_ways=True)
    with listening(talks, windows=path) as listener:
        for key, times in enumerate([(1, 3, 6), (6, 3, 1), (4, 4, 4), (1, 3, 2)]):
            for name, t in zip("abc", times, strict=True):
                talks[name].say(row(100 * key + t, key))
        assert [r["k"] for r in listener.heard(3)] == [0, 1, 2]
        assert len(listener.all()) == 3
