"""Window joins on pages: whatever the schedule, form, budget and keys, as in memory.

A step reads its pages in one of three ways, and the data here reaches each of them: all that a
driver page meets is in frames (a whole column), some of it at a time (parts of a column, two
streams), or a page of each stream at a time (more streams, and a hot key).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign
from wcases import questions
from wquestions import Asked, simple
from wreferee import answer, check, live, numbered, shuffled

import matwin
from matwin.operators.wjoin import reduced, walked
from matwin.scheduler import MODES
from matwin.storage import read_trace, smallest_budget
from matwin.storage.columns import INT64_MAX, INT64_MIN
from matwin.tools.trace.events import Events
from matwin.tools.trace.walks import walks

PAGE = 4096
SMALLEST = smallest_budget(PAGE)
MEMORY = 32 * PAGE
FORMS = ("auto", "standard", "grid", "slab")
ENDS = np.array([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, 0])


def codes(kind: str, rows: int, chance: np.random.Generator) -> Any:
    match kind:
        case "skewed":
            return np.where(chance.random(rows) < 0.9, 7, chance.integers(-50, 50, rows))
        case "one":
            return np.zeros(rows, np.int64)
        case "ends":
            return chance.choice(ENDS, rows)
    return chance.integers(0, 60, rows)


def table(seed: int, rows: int, kind: str, span: int, *, is_float: bool = False) -> pa.Table:
    chance = np.random.default_rng(seed)
    k = pa.array(codes(kind, rows, chance))
    t = chance.integers(0, span, rows)
    made = {"t": t / 8 if is_float else t, "k": k.cast(pa.string()) if kind == "text" else k}
    if kind == "two":
        made["l"] = pa.array(chance.choice(["p", "q"], rows).tolist())
    return numbered(pa.table(made))


WINDOWS: dict[int, Any] = {
    2: {("a", "b"): 20},
    3: {("a", "b"): 20, ("b", "c"): (0, 30)},
    4: {("a", "b"): 20, ("b", "c"): (0, 30), ("c", "d"): 10},
}


def asked_of(streams: int, kind: str, *, rows: int = 1200, is_float: bool = False) -> Asked:
    """Streams of as few tuples as a plain referee likes: hot keys are spread over more time."""
    span = {"even": 2, "text": 2, "two": 2}.get(kind, 20) * rows
    span *= 8 if is_float else 1  # eighths
    tables = {
        name: table(seed, rows + 100 * seed, kind, span, is_float=is_float)
        for seed, name in enumerate("abcd"[:streams])
    }
    by = {"none": None, "two": ["k", "l"]}.get(kind, "k")
    return simple(tables, WINDOWS[streams], by)


KEYS = ["even", "skewed", "one", "ends", "text", "two", "none"]


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("is_live", [False, True])
def test_every_kind_of_keys(is_live: bool, streams: int, kind: str, tmp_path: Path) -> None:
    asked = asked_of(streams, kind, is_float=kind in ("even", "one"))
    expected = answer(asked)
    assert len(expected) > (5 if streams == 4 else 30)
    forms = ("auto", "grid") if is_live else ("standard", "slab")
    for form in forms:
        sources = (
            live(asked, 400) if is_live else {n: shuffled(t) for n, t in asked.streams.items()}
        )
        trace = tmp_path / f"{form}.trace"
        report = check(
            asked, expected, sources, memory=MEMORY, page_size=PAGE, materialize=form, trace=trace
        )
        assert report.pairs_visited == report.pairs_planned
        assert report.peak_bytes <= MEMORY
        assert_as_planned(trace)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_live", [False, True])
def test_every_schedule_of_two_streams(is_live: bool, form: str, mode: str, tmp_path: Path) -> None:
    asked = asked_of(2, "skewed")
    sources = live(asked, 400) if is_live else None
    report = check(
        asked, answer(asked), sources, memory=MEMORY, page_size=PAGE, materialize=form,
        schedule=mode, trace=tmp_path / "run.trace",
    )  # fmt: skip
    assert report.pairs_visited == report.pairs_planned > 0
    modes = {plan["mode"] for plan, _ in assert_as_planned(tmp_path / "run.trace")}
    assert modes <= {mode} or mode == "auto"
    assert any(decision.startswith("schedule: ") for decision in report.decisions)


@pytest.mark.parametrize("mode", ["auto", "gallop"])
def test_more_streams_have_one_schedule(mode: str, tmp_path: Path) -> None:
    asked = asked_of(3, "even")
    trace = tmp_path / "run.trace"
    check(asked, answer(asked), memory=MEMORY, page_size=PAGE, schedule=mode, trace=trace)
    assert {plan["mode"] for plan, _ in assert_as_planned(trace)} == {"gallop"}


def assert_as_planned(trace: Path) -> list[tuple[dict[str, Any], Counter[str]]]:
    """Every walk visits the pairs of its plan, and reads no more pages than that says."""
    found: list[tuple[dict[str, Any], Counter[str]]] = []
    is_walking = False
    for event in read_trace(trace).to_pylist():
        if event["event"] == "plan":
            assert not is_walking
            found.append((json.loads(event["why"]), Counter()))
        is_walking = (is_walking and event["event"] != "walked") or event["event"] == "plan"
        if is_walking:
            found[-1][1][event["event"]] += 1
    for plan, counts in found:
        assert counts["read"] <= plan["page_reads"]
        assert counts["visit"] == counts["visited"]
        assert counts["visit"] == sum(limit - first for _, first, limit in plan["reach"])
    events = Events.open(trace)
    told = walks(events)  # as the inspector understands them
    assert len(told) == len(found)
    for walk in told:
        assert walk.outcome == "done"
        assert len(walk.visits(events)[0]) == walk.reach.pairs
    return found


@pytest.mark.parametrize(
    ("streams", "kind", "memory", "ways"),
    [
        (2, "even", MEMORY, {"whole"}),
        (2, "none", SMALLEST, {"parts"}),
        (3, "even", 3 * MEMORY, {"whole"}),
        (3, "none", SMALLEST, {"reduced"}),
    ],
)
def test_each_way_is_taken(
    streams: int, kind: str, memory: int, ways: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would prove less if their data never met these."""
    taken = set()
    judged = walked._Rooted._judged

    def noted(self: Any, pairs: Any, *, is_whole: bool) -> Any:
        taken.add("whole" if is_whole else "parts")
        return judged(self, pairs, is_whole=is_whole)

    monkeypatch.setattr(walked._Rooted, "_judged", noted)
    if kind == "none":
        asked = simple({n: _wide(seed) for seed, n in enumerate("abc"[:streams])}, 10**6)
    else:
        asked = asked_of(streams, kind, rows=2400)
    report = check(asked, answer(asked), memory=memory, page_size=PAGE, materialize="standard")
    if any("reduced" in decision for decision in report.decisions):
        taken.add("reduced")
    assert ways <= taken


@pytest.mark.parametrize(("room", "few"), [(0, 1), (0, 256), (1 << 14, 1)])
def test_rows_that_meet_too_much_go_in_halves_and_page_by_page(
    room: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = reduced.Reduced.__init__

    def tight(self: Any, pipeline: Any, lots: Any, given: int) -> None:
        begun(self, pipeline, lots, min(given, room))

    monkeypatch.setattr(reduced.Reduced, "__init__", tight)
    monkeypatch.setattr(reduced, "FEW_ROWS", few)
    asked = simple({n: _wide(seed).slice(0, 24) for seed, n in enumerate("abc")}, 10**6)
    report = check(asked, answer(asked), memory=SMALLEST, page_size=PAGE, materialize="standard")
    assert any("reduced" in decision for decision in report.decisions)


def _wide(seed: int) -> pa.Table:
    """Few rows on many pages, all within reach of each other."""
    texts = [f"{seed} {row} ".ljust(1900, "x") for row in range(24)]
    return numbered(pa.table({"t": np.arange(24), "k": texts}))


@given(questions(), st.data())
@settings(max_examples=campaign(40, 4000))
def test_small_questions(asked: Asked, data: st.DataObject) -> None:
    """Every trap of types and values, on pages of the smallest store."""
    modes = MODES if len(asked.streams) == 2 else ("auto", "gallop")
    found = matwin.window_join(
        asked.streams, **asked.arguments, memory=SMALLEST, page_size=PAGE,
        schedule=data.draw(st.sampled_from(modes)),
        materialize=data.draw(st.sampled_from(FORMS)),
    )  # fmt: skip
    assert as_bag(found.read_all()) == asked.expected


def test_old_and_new_rows_meet_once() -> None:
    """Streams that fit for a while are joined in memory; what has been found there is old."""
    asked = asked_of(3, "even", rows=3000)
    for algorithm in ("backward-hash", "forward-nested-loop"):
        sources = {n: matwin.stream(t.sort_by("t")) for n, t in asked.streams.items()}
        report = check(
            asked, answer(asked), sources, memory=MEMORY, page_size=PAGE, algorithm=algorithm
        )
        assert report.pages_written > 0 or report.pairs_visited == 0


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
def test_a_live_window_settles_while_nothing_gathers(form: str) -> None:
    """What gathers takes half of the budget; merging old rows beside it would not fit."""
    tables = {}
    for seed, name in enumerate("ab"):
        chance = np.random.default_rng(seed)
        rows = 4000 + 1000 * seed
        t = np.sort(chance.integers(0, 4 * rows, rows))
        tables[name] = numbered(pa.table({"t": t, "k": chance.integers(0, 1000, rows)}))
    asked = simple(tables, 100_000, "k")
    check(asked, answer(asked), live(asked, 800), memory=MEMORY, page_size=PAGE, materialize=form)


def test_decisions_of_a_long_stream_stay_few() -> None:
    asked = asked_of(3, "one")
    report = check(
        asked, answer(asked), live(asked, 100), memory=MEMORY, page_size=PAGE, materialize="slab"
    )
    assert report.steps > 5
    assert len(set(report.decisions)) == len(report.decisions)


@pytest.mark.parametrize("form", ["standard", "grid"])
@pytest.mark.parametrize("streams", [2, 3])
def test_walks_over_old_and_new_pages_of_the_driver(
    streams: int, form: str, tmp_path: Path
) -> None:
    """New rows have a window of their own beside the old ones; each walk has one on the left."""
    tables = {}
    for seed, name in enumerate("abc"[:streams]):
        chance = np.random.default_rng(seed)
        rows = 4000 + 1000 * seed
        t = np.sort(chance.integers(0, 4 * rows, rows))
        tables[name] = numbered(pa.table({"t": t, "k": chance.integers(0, 1000, rows)}))
    asked = simple(tables, 100_000, "k")
    trace = tmp_path / "run.trace"
    check(
        asked, answer(asked), live(asked, 800), memory=2 * MEMORY, page_size=PAGE,
        materialize=form, trace=trace,
    )  # fmt: skip
    assert_as_planned(trace)
