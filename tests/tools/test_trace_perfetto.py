"""A trace as Chrome trace events: the documented structure, and the counts of the summary."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin.tools import cli
from matwin.tools.trace.events import Events
from matwin.tools.trace.frames import frames_in_use
from matwin.tools.trace.perfetto import INSTANTS, LANES_MAX, WINDOWS
from matwin.tools.trace.summary import summarize


def exported(trace: Path) -> list[dict[str, Any]]:
    """The trace events of a trace, checked."""
    output = trace.with_name("out.json")
    assert cli.main(["trace", "perfetto", str(trace), "-o", str(output), "--overwrite"]) == 0
    told = json.loads(output.read_bytes())
    assert told["otherData"]["trace"] == trace.name
    check(told["traceEvents"])
    return list(told["traceEvents"])


def check(told: list[dict[str, Any]]) -> None:
    """What the description of the format demands."""
    for event in told:
        assert event["ph"] in ("X", "i", "C", "M")
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["ts"], (int, float))
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] != "i" or event["s"] in "tpg"
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
    names = Counter((e["pid"], e["tid"]) for e in told if e["name"] == "thread_name")
    assert set(names.values()) <= {1}
    assert set(names) >= {(e["pid"], e["tid"]) for e in told if e["ph"] in "Xi"}


def check_nested(told: list[dict[str, Any]]) -> None:
    """On one track, slices are inside of each other or apart."""
    tracks = defaultdict(list)
    for event in told:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, -round(event["dur"] * 1000)))
    for slices in tracks.values():
        open_until: list[int] = []
        for begin, minus_length in sorted(slices):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or begin - minus_length <= open_until[-1]
            open_until.append(begin - minus_length)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A window join of three streams, whose visits overlap."""
    path = tmp_path_factory.mktemp("window") / "run.trace"
    chance = np.random.default_rng(1)
    tables = {
        name: pa.table({"t": chance.integers(0, 4000, 1500), "k": chance.integers(0, 50, 1500)})
        for name in ("door", "lift", "desk")
    }
    found = matwin.window_join(
        tables, time="t", by="k", windows=5, memory=48 * 4096, page_size=4096, trace=path
    )
    assert found.read_all().num_rows > 0
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return traces.walked(tmp_path_factory.mktemp("walk"))[0]


@pytest.mark.parametrize("which", ["two", "three", "overlapping"])
def test_counts_are_those_of_the_summary(
    which: str, two: Path, three: Path, tmp_path: Path
) -> None:
    trace = {"two": two, "three": three}.get(which) or traces.overlapping(tmp_path / "t")
    events = Events.open(trace)
    told = exported(trace)
    check_nested(told)
    summary = summarize(events)
    totals = summary["totals"]
    slices = Counter(e["cat"] for e in told if e["ph"] == "X")
    expected = {"read": totals["reads"], "visit": totals["visits"],
                "walk": len(summary["plans"]), "mode": len(summary["modes"])}  # fmt: skip
    assert slices == {kind: count for kind, count in expected.items() if count}
    instants = Counter(e["cat"] for e in told if e["ph"] == "i")
    assert instants == {k: n for k in INSTANTS if (n := int(events.of_kind(k).sum()))}
    names = [e for e in told if e["name"] == "thread_name" and e["pid"] == WINDOWS]
    track = {e["tid"]: e["args"]["name"] for e in names}
    reads = [e for e in told if e["ph"] == "X" and e["cat"] == "read"]
    for name, counts in summary["windows"].items():
        mine = [e["args"]["bytes"] for e in reads if track[e["tid"]].split(" (")[0] == name]
        assert (len(mine), sum(mine)) == (counts["reads"], counts["bytes_read"])


def test_times_and_numbers_are_those_of_the_trace(two: Path) -> None:
    events = Events.open(two)
    kinds = events.table["event"].to_pylist()
    for event in exported(two):
        if event["ph"] not in "Xi":
            continue
        place = event["args"]["event"]  # of a whole trace, the number is the place
        last = place
        if event["ph"] == "i":
            assert kinds[place] == event["cat"]
        elif event["cat"] == "read":
            assert kinds[place] == "read"
            page = (events.window[place], events.page[place])
            while kinds[place] != "fetch" or (events.window[place], events.page[place]) != page:
                place -= 1
            assert event["dur"] == (events.time_ns[last] - events.time_ns[place]) / 1000
        elif event["cat"] == "visit":
            while kinds[last] != "visited" or events.page[last] != events.page[place]:
                last += 1
            assert event["dur"] <= (events.time_ns[last] - events.time_ns[place]) / 1000 + 1e-3
        assert event["ts"] == events.time_ns[place] / 1000


def test_counters_end_where_the_summary_ends(three: Path) -> None:
    events = Events.open(three)
    told = exported(three)
    totals = summarize(events)["totals"]
    frames = [e["args"]["frames"] for e in told if e["name"] == "frames in use"]
    assert max(frames) == totals["frames_peak"]
    assert all(before != after for before, after in pairwise(frames))
    rates = [e["args"]["percent"] for e in told if e["name"] == "hit rate"]
    assert rates[-1] == pytest.approx(100 * totals["hit_rate"], abs=0.05)


def test_reads_that_overlap_get_tracks_of_their_own(tmp_path: Path) -> None:
    events: list[tuple[object, ...]] = [("fetch", "w", page, page, 9, 0, "") for page in range(3)]
    events += [("read", "w", page, page, 9, 0, "") for page in range(3)]
    events += [("read", "w", 7, 1, 9, 0, "no beginning"), ("fetch", "w", 8, 2, 9, 0, "no end")]
    told = exported(traces.written(tmp_path / "t", events))
    check_nested(told)
    names = [e["args"]["name"] for e in told if e["name"] == "thread_name"]
    assert names == ["w", "w (2)", "w (3)"]
    reads = {e["name"]: e for e in told if e["ph"] == "X"}
    assert sorted(reads) == ["read 0", "read 1", "read 2", "read 7"]
    assert reads["read 7"]["dur"] == 0
    assert reads["read 7"]["args"]["why"] == "no beginning"


def test_more_at_once_than_there_are_tracks(tmp_path: Path) -> None:
    count = LANES_MAX + 5
    events: list[tuple[object, ...]] = [("fetch", "w", n, n, 9, 0, "") for n in range(count)]
    events += [("read", "w", n, n, 9, 0, "") for n in range(count)]
    events += [("hit", "v", 1, 0, 9, 0, "")]
    told = exported(traces.written(tmp_path / "t", events))
    slices = [e["tid"] for e in told if e["ph"] == "X"]
    assert len(slices) == count and len(set(slices)) == LANES_MAX
    (hit,) = (e for e in told if e["ph"] == "i")
    assert hit["tid"] not in slices


def test_nothing_and_next_to_nothing(tmp_path: Path) -> None:
    assert {e["ph"] for e in exported(traces.written(tmp_path / "empty", []))} == {"M"}
    told = exported(traces.written(tmp_path / "one", [("complete", "", -1, -1, 0, 1, "step 1")]))
    (event,) = (e for e in told if e["ph"] == "i")
    assert (event["name"], event["args"]["why"]) == ("complete", "step 1")


def test_it_says_where_it_wrote(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["trace", "perfetto", str(two)]) == 0
    usual = two.with_suffix(".perfetto.json")
    assert str(usual) in capsys.readouterr().out
    written = usual.read_bytes()
    assert cli.main(["trace", "perfetto", str(two)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert cli.main(["trace", "perfetto", str(two), "-o", str(two), "--overwrite"]) == 2
    assert "is an input" in capsys.readouterr().err
    assert usual.read_bytes() == written
    assert cli.main(["trace", "perfetto", str(tmp_path / "missing")]) == 2


# ── frames in use, beside a plain loop ───────────────────────────────────────────────────────────


def plain(events: list[tuple[str, int]]) -> list[int]:
    """How many frames hold a page after each event."""
    held: dict[int, int] = {}  # frame → pins
    given_up: set[int] = set()
    counts = []
    for kind, frame in events:
        if kind in ("make", "fetch") or (kind == "read" and frame not in held):
            held[frame] = 0
            given_up.discard(frame)
        elif kind == "pin" and frame in held:
            held[frame] += 1
        elif kind == "unpin" and frame in held:
            held[frame] = max(held[frame] - 1, 0)
            if frame in given_up and held[frame] == 0:
                del held[frame]
                given_up.remove(frame)
        elif kind in ("evict", "drop", "expire") and frame in held:
            if held[frame]:
                given_up.add(frame)
            else:
                del held[frame]
        counts.append(len(held))
    return counts


KINDS = st.sampled_from(["make", "fetch", "read", "pin", "unpin", "evict", "drop", "expire"])


@given(st.lists(st.tuples(KINDS, st.sampled_from([0, 1, 2, 2**31 - 1])), max_size=60))
def test_frames_in_use(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "frames.trace"
    traces.written(path, [(kind, "w", 0, frame, 9, 0, "") for kind, frame in events])
    places, counts = frames_in_use(Events.open(path))
    assert places.tolist() == list(range(len(events)))
    assert counts.tolist() == plain(events)
