"""What other frames, modes and replacements cost, against oracles that try or count everything."""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traces
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.scheduler import MODES, plan
from matwin.tools import cli
from matwin.tools.trace import replay
from matwin.tools.trace.caches import GONE, MAKE, USE, Uses
from matwin.tools.trace.events import Events
from matwin.tools.trace.replay import parse_frames
from matwin.tools.trace.walks import walks

PAGES = 5
ACTIONS = st.lists(
    st.tuples(st.sampled_from([USE, USE, USE, MAKE, GONE]), st.integers(0, PAGES - 1)), max_size=40
)
FEW = st.lists(
    st.tuples(st.sampled_from([USE, USE, USE, MAKE, GONE]), st.integers(0, 3)), max_size=12
)


def uses_of(actions: list[tuple[int, int]], pages: int = PAGES) -> Uses:
    kinds = np.array([kind for kind, _ in actions], np.int64)
    return Uses(kinds, np.array([page for _, page in actions], np.int64), pages)


def in_a_row(actions: list[tuple[int, int]], frames: int, *, moves: bool) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    reads = 0
    for kind, page in actions:
        if kind == GONE:
            held.pop(page, None)
        elif page in held:
            if moves:
                held.move_to_end(page)
        else:
            reads += kind == USE
            if len(held) == frames:
                held.popitem(last=False)
            held[page] = None
    return reads


def least(actions: list[tuple[int, int]], frames: int) -> int:
    """The fewest reads that any choice of victims leads to, by trying all of them."""

    @cache
    def from_here(at: int, held: frozenset[int]) -> int:
        if at == len(actions):
            return 0
        kind, page = actions[at]
        if kind == GONE:
            return from_here(at + 1, held - {page})
        if page in held:
            return from_here(at + 1, held)
        cost = int(kind == USE)
        if len(held) < frames:
            return cost + from_here(at + 1, held | {page})
        return cost + min(from_here(at + 1, (held - {victim}) | {page}) for victim in held)

    return from_here(0, frozenset())


@given(ACTIONS, st.integers(1, PAGES + 1))
def test_lru_and_fifo(actions: list[tuple[int, int]], frames: int) -> None:
    uses = uses_of(actions)
    assert uses.reads("lru", frames) == in_a_row(actions, frames, moves=True)
    assert uses.reads("fifo", frames) == in_a_row(actions, frames, moves=False)


@settings(max_examples=300)
@given(FEW, st.integers(1, 4))
def test_optimal_is_the_least(actions: list[tuple[int, int]], frames: int) -> None:
    assert uses_of(actions, 4).reads("optimal", frames) == least(actions, frames)


@given(ACTIONS, st.integers(1, PAGES))
def test_more_frames_and_hindsight_never_cost(actions: list[tuple[int, int]], frames: int) -> None:
    uses = uses_of(actions)
    best = uses.reads("optimal", frames)
    assert best <= min(uses.reads("lru", frames), uses.reads("fifo", frames))
    assert uses.reads("optimal", frames + 1) <= best


def test_no_uses_at_all() -> None:
    for replacement in ("lru", "fifo", "optimal"):
        assert uses_of([], 0).reads(replacement, 2) == 0


# ── the command ──────────────────────────────────────────────────────────────────────────────


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["trace", "replay", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plans_are_planned_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reach = traces.paper_reach()
    path = traces.scripted(tmp_path / "t", traces.gallop(reach, 4), reach)
    found = asked(capsys, str(path), "--frames", "3..5", "--mode", "all")
    (planned,) = found["plans"]
    assert planned["bound"] == 14
    reads = {(cost["frames"], cost["mode"]): cost["page_reads"] for cost in planned["costs"]}
    assert reads[4, "gallop"] == planned["page_reads"] == planned["reads"] == 30
    assert reads[4, "crabstep"] == 21
    for (frames, mode), count in reads.items():
        assert count == plan(reach, frames=frames, mode=mode).page_reads
    assert {frames for frames, _ in reads} == {3, 4, 5}
    assert {mode for _, mode in reads} == {"gallop", "crabstep", "lookahead", "auto"}


def test_uses_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, counters = traces.walked(tmp_path)
    found = asked(capsys, str(trace), "--frames", "4,9,60")["uses"]
    assert found["reads"] == counters["reads"]
    assert found["uses"] == counters["reads"] + counters["hits"]
    assert found["makes"] == counters["makes"]
    kinds = {"hit": USE, "read": USE, "make": MAKE, "drop": GONE, "expire": GONE}
    numbers: dict[tuple[str, int], int] = {}
    actions = [
        (kinds[event["event"]], numbers.setdefault((event["window"], event["page"]), len(numbers)))
        for event in Events.open(trace).table.to_pylist()
        if event["event"] in kinds
    ]
    for cost in found["costs"]:
        if cost["replacement"] != "optimal":
            moves = cost["replacement"] == "lru"
            assert cost["reads"] == in_a_row(actions, cost["frames"], moves=moves)
    assert {cost["reads"] for cost in found["costs"] if cost["frames"] == 60} == {0}


@pytest.mark.parametrize(
    "asked_for", [[], ["--frames", "1000000000"], ["--frames", "4..1000000000"]]
)
@pytest.mark.parametrize("is_self", [False, True])
def test_no_more_frames_are_planned_with_than_there_are_pages(
    asked_for: list[str],
    is_self: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Memory follows what is really there, not what a trace or a command line says."""
    layout = {
        "mode": "auto", "frames": 300_000_000, "page_reads": 4, "left": [0, 1, 2, 3],
        "right": [] if is_self else [5, 6, 7], "is_self": is_self,
        "reach": [[i, max(i - 1, 0), min(i + 2, 3)] for i in range(4)],
    }  # fmt: skip
    events = [
        ("plan", "w", -1, -1, 0, 0, json.dumps(layout), ("w" if is_self else "v", -1)),
        *(("read", "w", page, page, 9, 0, "") for page in (0, 1, 2, 0)),
    ]
    path = str(traces.written(tmp_path / "t", events))
    pages = 4 if is_self else 7
    planned = []

    def recorded(*args: Any, frames: int, **more: Any) -> Any:
        planned.append(frames)
        return plan(*args, frames=frames, **more)

    monkeypatch.setattr(replay, "plan", recorded)
    found = asked(capsys, path, *asked_for)
    assert max(planned) == pages and len(planned) == len(set(planned)) * len(MODES)
    (told,) = found["plans"]
    assert told["frames"] == 300_000_000
    largest = max(cost["frames"] for cost in told["costs"])
    assert largest == (1_000_000_000 if asked_for else pages)
    enough = {cost["page_reads"] for cost in told["costs"] if cost["frames"] == largest}
    assert enough == {told["bound"]}
    most = max(cost["frames"] for cost in found["uses"]["costs"])
    assert {c["reads"] for c in found["uses"]["costs"] if c["frames"] == most} == {3}
    assert cli.main(["trace", "replay", path, *asked_for]) == 0
    out = capsys.readouterr().out
    assert "300,000,000 frames" in out
    if not asked_for:
        assert f"{pages} ←" in out


def test_the_uses_of_one_walk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reach = traces.paper_reach()
    path = traces.scripted(tmp_path / "t", traces.gallop(reach, 4), reach)
    found = asked(capsys, str(path), "--plan", "0", "--frames", "14", "--replacement", "optimal")
    assert found["uses"]["costs"] == [{"frames": 14, "replacement": "optimal", "reads": 14}]


@pytest.mark.parametrize("names", [("readings", "weather"), ("events",)])
def test_text(names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path, names=names)
    assert cli.main(["trace", "replay", str(trace)]) == 0
    text = capsys.readouterr().out
    for word in ("gallop", "crabstep", "lookahead", "auto", "bound", "lru", "fifo", "optimal", "┤"):
        assert word in text
    assert cli.main(["trace", "replay", str(trace), "--frames", "4", "--mode", "gallop"]) == 0
    assert "┤" not in capsys.readouterr().out


def test_without_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = traces.written(
        tmp_path / "t", [("read", "w", 0, 0, 9, 0, ""), ("hit", "w", 0, 0, 9, 0, "")]
    )
    assert cli.main(["trace", "replay", str(path)]) == 0
    assert "no plan" in capsys.readouterr().out


def test_frames_as_people_write_them() -> None:
    assert parse_frames(" 4") == [4]
    assert parse_frames("9,4,4") == [4, 9]
    assert parse_frames("2..5") == [2, 3, 4, 5]
    wide = parse_frames("2..1000000")
    assert wide[0] == 2 and wide[-1] == 1_000_000 and len(wide) <= 50


def test_the_bound_is_the_pages_that_meet_another(tmp_path: Path) -> None:
    layout = {"left": [0, 1, 2], "right": [], "is_self": True, "reach": [[0, 1, 2]]}
    other = {"left": [0, 1, 2], "right": [5, 6], "reach": [[0, 1, 2], [2, 1, 2]]}
    events = [("plan", "w", -1, -1, 0, 0, json.dumps(text), ("v", -1)) for text in (layout, other)]
    found = walks(Events.open(traces.written(tmp_path / "t", events)))
    assert [walk.pages_needed for walk in found] == [2, 3]
    assert [walk.right for walk in found] == ["w", "v"]
