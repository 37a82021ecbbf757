"""The reasons in a trace name pages that exist: every number shown is that of a page of the window
that is named, within reach, and visited or read as the reason says.

The joins go through many steps, so that pages have expired and a page's number is not its place in
the plan.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import traces

import matwin
from matwin.scheduler import MODES
from matwin.tools.trace.events import Events
from matwin.tools.trace.summary import summarize
from matwin.tools.trace.walks import Walked, walks

MEETS = re.compile(r"(\w+): meets (.+?) (\d+(?:, \d+)*)( and \d+ more)?")
FOR = re.compile(r"for (.+) (\d+)")


def joined(trace: Path, how: str, schedule: str) -> Events:
    """The trace of a join of sorted streams in as little memory as will do."""
    rng = np.random.default_rng(3)
    sides = []
    for _ in range(2):
        t = np.sort(rng.integers(0, 15_000, 4_000))
        table = pa.table({"t": t, "x": rng.random(4_000), "p": ["payload" * 4] * 4_000})
        sides.append(matwin.stream(table.to_reader(500), schema=table.schema))
    found = matwin.bestmatch_join(
        *sides, on={"t": 600, "x": 0.2}, how=how, memory="512KiB", page_size="4KiB",
        materialize="slab", schedule=schedule, trace=trace,
    )  # fmt: skip
    assert found.read_all().num_rows > 0
    return Events.open(trace)


def check_reasons(events: Events, walk: Walked) -> int:
    """Check all reasons of a walk's events; how many of their pages have another place."""
    sides = {0: (walk.left, walk.left_pages), 1: (walk.right, walk.right_pages)}
    visits = set(zip(*(found.tolist() for found in walk.visits(events)[1:]), strict=True))
    moved = 0
    for place in walk.places_of(events, "fetch", "read", "hit", "pin").tolist():
        told = MEETS.fullmatch(events.why(place))
        if told is None:  # a page to come, or rows of a match that are read again
            assert "meets" not in events.why(place), events.why(place)
            continue
        (node,) = walk.nodes(events, np.array([place])).tolist()
        is_left = node < walk.left_count
        name, pages = sides[1 if is_left else 0]
        assert told[2] == name, events.why(place)
        for number in map(int, told[3].split(", ")):
            (at,) = np.flatnonzero(pages == number).tolist()
            pair = (node, at) if is_left else (at, node - walk.left_count)
            both = {pair, pair[::-1]} if walk.is_self else {pair}
            assert both & visits, f"{events.why(place)}: {number} is never visited with it"
            moved += at != number
    return moved


def check_evictions(events: Events) -> int:
    """Whoever leaves for a page leaves for one that is there."""
    known = set(zip(events.window.tolist(), events.page.tolist(), strict=True))
    found = 0
    for place in events.places_of("evict").tolist():
        told = FOR.fullmatch(events.why(place))
        if told is not None:
            assert (events.names.index(told[1]), int(told[2])) in known, events.why(place)
            found += 1
    return found


@pytest.mark.parametrize(
    ("how", "schedule"), [("left", "lookahead"), ("right", "crabstep"), ("full", "auto")]
)
def test_the_reasons_of_a_join_name_pages(how: str, schedule: str, tmp_path: Path) -> None:
    events = joined(tmp_path / "join.trace", how, schedule)
    assert sum(check_reasons(events, walk) for walk in walks(events)) > 0
    assert check_evictions(events) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("names", [("a 7", "meets b 3"), ("a",)], ids=["two", "self"])
def test_the_reasons_of_a_walk_name_pages(mode: str, names: Any, tmp_path: Path) -> None:
    """Also where windows have odd names."""
    events = Events.open(traces.walked(tmp_path, names=names, mode=mode)[0])
    (walk,) = walks(events)
    check_reasons(events, walk)
    check_evictions(events)


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_of_a_walk_are_those_of_its_plan(mode: str, tmp_path: Path) -> None:
    """A plan of crabstep gallops until it is stuck; any other mode is its plan's throughout."""
    events = Events.open(traces.walked(tmp_path, mode=mode)[0])
    summary = summarize(events)
    (plan,) = summary["plans"]
    modes = {stretch["mode"] for stretch in summary["modes"]}
    assert plan["mode"] in modes
    assert modes <= {plan["mode"], "gallop"}
    assert modes == {plan["mode"]} or plan["mode"] == "crabstep"
