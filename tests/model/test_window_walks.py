"""Window joins on pages: whatever the schedule, form, budget and keys, as in memory.

A step reads its pages in one of three ways, and the data here reaches each of them: all that a
driver page meets is in frames (a whole column), some of it at a time (parts of a column, two
streams), or a page of each stream at a time (more streams, and a hot key).
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
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
from matwin.operators.wjoin.gathered import GatheredPages
from matwin.operators.wjoin.paged import LivePages
from matwin.operators.wjoin.parts import PagedPart
from matwin.scheduler import MODES
from matwin.storage import read_trace, smallest_budget
from matwin.storage.columns import INT64_MAX, INT64_MIN
from matwin.storage.materialize.slab import LONG_SHARE, SHORT_SHARE, short_runs
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


def test_old_and_new_rows_meet_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that fit for a while are joined in memory; what has been found there is old."""
    old, take_old = [], LivePages.take_old

    def noted(self: LivePages, stream: int, rows: pa.RecordBatch) -> None:
        old.append(rows.num_rows)
        take_old(self, stream, rows)

    monkeypatch.setattr(LivePages, "take_old", noted)
    tables = {}
    for seed, name in enumerate("abc"):
        chance = np.random.default_rng(seed)
        t = np.sort(chance.integers(0, 12_000, 3000))
        tables[name] = numbered(pa.table({"t": t, "k": chance.integers(0, 1000, 3000)}))
    asked = simple(tables, 10**5, "k")
    report = check(asked, answer(asked), live(asked, 100), memory=MEMORY, page_size=PAGE)
    assert sum(old) > 0
    assert report.pages_written > 0
    assert report.pairs_visited > 0 or any("reduced" in d for d in report.decisions)


def test_what_was_gathered_is_walked_once() -> None:
    """Whoever asks again at the end gets nothing twice."""
    asked = asked_of(2, "even", rows=600)
    handed: list[int] = []
    advance = GatheredPages.advance

    def twice(self: GatheredPages, frontiers: Any) -> Any:
        yield from advance(self, frontiers)
        handed.extend(batch.num_rows for batch in advance(self, frontiers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatheredPages, "advance", twice)
        check(asked, answer(asked), memory=MEMORY, page_size=PAGE, materialize="standard")
    assert handed == []


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


@pytest.mark.parametrize("form", ["slab", "standard", "grid"])
@pytest.mark.parametrize(("streams", "is_text"), [(2, False), (2, True), (3, False)])
def test_rows_wait_until_they_pay_for_the_windows(
    streams: int, is_text: bool, form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody asks for results soon, so that rows wait on pages, and a step finds all of theirs."""
    more = 0
    own = PagedPart.put_down

    def counted(self: Any, rows: Any) -> None:
        nonlocal more
        more += self.rows_waiting > 0
        own(self, rows)

    monkeypatch.setattr(PagedPart, "put_down", counted)
    tables = {}
    for seed, name in enumerate("abc"[:streams]):
        chance = np.random.default_rng(seed)
        k = pa.array(chance.integers(0, 4000, 8000))
        t = np.sort(chance.integers(0, 32_000, 8000))
        k = k.cast(pa.string()) if is_text else k
        tables[name] = numbered(pa.table({"t": t, "k": k}))
    asked = simple(tables, 20_000, "k")
    trace = tmp_path / "run.trace"
    report = check(
        asked, answer(asked), live(asked, 200), memory=MEMORY, page_size=PAGE, materialize=form,
        trace=trace, max_delay="1h",
    )  # fmt: skip
    assert more >= 2 * streams, "no rows have come to others that wait"
    assert report.peak_bytes <= MEMORY
    assert_as_planned(trace)


@given(st.lists(st.integers(1, 400) | st.integers(1, 3), max_size=80))
def test_short_runs_are_few_and_rows_seldom_written(rows: list[int]) -> None:
    """As runs come and short ones are merged, whatever their lengths."""
    runs: list[int] = []
    written = 0
    for one in rows:
        runs.append(one)
        while (found := short_runs(runs)) != (0, 0):
            first, limit = found
            merged = sum(runs[first:limit])
            assert limit - first > 1
            assert merged * LONG_SHARE <= sum(runs)
            runs[first:limit] = [merged]
            written += merged
        total = sum(runs)
        for older, newer in pairwise(runs):
            is_short = min(older, newer) * SHORT_SHARE <= total
            assert not is_short or older >= 2 * newer or (older + newer) * LONG_SHARE > total
    assert sum(runs) == sum(rows)
    assert written <= 2 * sum(rows) * np.log2(sum(rows) + 2)


@pytest.mark.parametrize("ones", [100, 1000])
def test_equal_runs_become_few(ones: int) -> None:
    runs: list[int] = []
    for _ in range(ones):
        runs.append(1)
        while (found := short_runs(runs)) != (0, 0):
            runs[slice(*found)] = [sum(runs[slice(*found)])]
    assert len(runs) <= SHORT_SHARE + np.log2(ones)
