"""The benchmark of schedules: its bound is a bound, its reference the optimum where it is known."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.scheduler import MODES, Reach, Schedule, plan
from matwin.storage.errors import InputError
from matwin.tools import cli
from matwin.tools.bench import plot, schedule
from matwin.tools.bench.bound import bound_of
from matwin.tools.bench.layouts import FRAMES_SERIES, PAIRS_SERIES, PAPER, Case, band, grid, slabs
from matwin.tools.bench.reference import partners_of, reference_reads

WIDTH_TINY = 300
TO_REFERENCE = 1.05
PAGES_TRIED = 7


def least_reads(reach: Reach, frames: int) -> int:
    """The fewest reads of any schedule: level by level, every page that may come, every victim."""
    partners, alone = partners_of(reach)
    edges = {
        frozenset((page, other))
        for page, mask in enumerate(partners.tolist())
        for other in range(len(partners))
        if mask >> other & 1
    }
    level = {(frozenset[int](), frozenset(edges))}
    reads = 0
    while all(to_do for _, to_do in level):
        reads += 1
        following = set()
        for here, to_do in level:
            for page in frozenset().union(*to_do) - here:
                for stays in [here] if len(here) < frames else [here - {gone} for gone in here]:
                    met = {frozenset((page, other)) for other in stays}
                    following.add((stays | {page}, to_do - met))
        level = following
    return reads + alone


@st.composite
def tiny_layouts(draw: st.DrawFn) -> Reach:
    is_self = draw(st.booleans())
    lefts = draw(st.integers(1, 5 if is_self else 4))
    rights = lefts if is_self else draw(st.integers(1, min(PAGES_TRIED - lefts, 4)))
    edge = st.integers(0, rights)
    intervals = draw(
        st.lists(
            st.lists(st.tuples(edge, edge).map(sorted).map(tuple), max_size=2),
            min_size=lefts,
            max_size=lefts,
        )
    )
    return Reach.of(intervals, right_pages=rights, is_self=is_self)


# ── the bound and the reference ──────────────────────────────────────────────────────────────────


@settings(max_examples=60)
@given(tiny_layouts(), st.integers(2, 5))
def test_the_bound_is_never_above_the_optimum(reach: Reach, frames: int) -> None:
    optimum = least_reads(reach, frames)
    assert bound_of(reach, frames).reads <= optimum
    assert reference_reads(reach, frames, WIDTH_TINY) == optimum
    assert plan(reach, frames=frames).page_reads >= optimum


@st.composite
def layouts(draw: st.DrawFn) -> Reach:
    edge = st.integers(0, 30)
    edges = draw(st.lists(st.tuples(edge, edge).map(sorted), min_size=1, max_size=30))
    is_self = draw(st.booleans())
    pages = len(edges) if is_self else 30
    return Reach.of([(min(a, pages), min(b, pages)) for a, b in edges], is_self=is_self)


@settings(max_examples=150)
@given(layouts(), st.integers(2, 12))
def test_the_bound_is_never_above_a_schedule(reach: Reach, frames: int) -> None:
    bound = bound_of(reach, frames)
    assert bound.reads == max(bound.pages, bound.pairs, bound.turns)
    assert bound.reads <= plan(reach, frames=frames, mode="crabstep").page_reads


@settings(max_examples=15)
@given(layouts(), st.integers(2, 12))
def test_the_bound_is_never_above_a_searched_schedule(reach: Reach, frames: int) -> None:
    """With fewer examples, since a search takes long; the small layouts below are more of them."""
    assert bound_of(reach, frames).reads <= plan(reach, frames=frames, mode="lookahead").page_reads


def test_each_bound_is_the_largest_somewhere() -> None:
    names = {
        bound_of(band(100, 2), 8).name,
        bound_of(band(14, 6, is_self=True), 4).name,
        bound_of(band(100, 25), 10).name,
    }
    assert names == {"pages", "pairs", "turns"}


def test_a_bound_where_nothing_meets_and_where_pages_meet_only_themselves() -> None:
    assert bound_of(Reach.of([(0, 0)] * 3), 4).reads == 0
    itself = Reach.of([(i, i + 1) for i in range(3)], is_self=True)
    assert bound_of(itself, 2).reads == reference_reads(itself, 2) == 3


def test_the_reference_refuses_more_pages_than_bits() -> None:
    with pytest.raises(InputError, match="at most 64"):
        reference_reads(band(33, 1), 3)


# ── the layouts ──────────────────────────────────────────────────────────────────────────────────


def test_the_layouts_depend_on_the_seed_alone() -> None:
    def shapes(seed: int) -> list[Any]:
        return [(case.layout, case.frames, case.reach.triples()) for case in grid(seed)[:50]]

    assert shapes(0) == shapes(0)
    assert shapes(0) != shapes(1)


def test_the_grid_has_every_kind_in_small_and_large() -> None:
    cases = grid()
    groups = {case.group for case in cases}
    series = {FRAMES_SERIES, PAIRS_SERIES}
    assert {case.group for case in cases if case.is_small} == groups - series
    assert {case.group for case in cases if not case.is_small} == groups - {PAPER}
    assert max(case.reach.pairs for case in cases) >= 20_000_000
    assert {case.reach.left_pages for case in cases} >= {100, 1_000, 10_000}
    assert max(case.frames for case in cases) >= 2_000 and min(c.frames for c in cases) == 3


def test_pages_of_slabs_meet_in_every_run() -> None:
    reach = slabs(np.random.default_rng(0), 2, 3, 6, 1.0)
    assert max(len(reach.intervals(left)) for left in range(reach.left_pages)) >= 2
    assert (reach.left_pages, reach.right_pages) == (12, 18)


# ── the planner on the layouts ───────────────────────────────────────────────────────────────────

QUICK = grid(is_quick=True)
SMALL = [case for case in QUICK if case.is_small]
REFERENCE = {
    ("the paper's example", "±2", 4, 29): 16,
    ("bands", "±1", 3, 40): 28,
    ("bands", "±2", 4, 64): 33,
    ("bands", "±3", 6, 72): 27,
    ("bands", "±4", 4, 106): 48,
    ("bands", "all with all", 4, 100): 47,
    ("staircases", "no. 1, up to 4 wide", 4, 48): 30,
    ("staircases", "no. 2, up to 5 wide", 5, 33): 19,
    ("staircases", "no. 3, up to 5 wide", 6, 68): 29,
    ("intervals in no order", "no. 1, up to 5 wide", 5, 33): 21,
    ("intervals in no order", "no. 2, up to 2 wide", 5, 12): 15,
    ("intervals in no order", "no. 3, up to 6 wide", 4, 41): 27,
    ("slab windows", "2 and 2 runs of 5, ±1.5", 4, 63): 30,
    ("slab windows", "3 and 3 runs of 4, ±1", 4, 78): 36,
    ("slab windows", "3 and 3 runs of 4, ±2", 5, 100): 37,
    ("self-joins", "±3", 4, 86): 14,
    ("self-joins", "±6", 4, 140): 23,
    ("unequal page counts", "staircase, up to 5 wide", 4, 41): 25,
}
"""What `reference_reads` finds at its full width, by group, layout, frames and pairs.  It finds the
same every time, and takes half a second a layout."""


@cache
def planned(reach: Reach, *, frames: int, mode: str) -> Schedule:
    """A search takes long, so each layout is planned once for all tests here."""
    return plan(reach, frames=frames, mode=mode)


def reference_of(case: Case) -> int:
    return REFERENCE[case.group, case.layout, case.frames, case.reach.pairs]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.group}, {case.layout}")
def test_auto_is_near_the_reference(case: Case) -> None:
    reference, bound = reference_of(case), bound_of(case.reach, case.frames).reads
    reads = planned(case.reach, frames=case.frames, mode="auto").page_reads
    assert bound <= reference
    assert bound <= reads <= TO_REFERENCE * reference


def test_the_reference_is_what_the_search_finds() -> None:
    for case in (SMALL[0], SMALL[-3]):
        assert reference_reads(case.reach, case.frames) == reference_of(case)


# ── the command ──────────────────────────────────────────────────────────────────────────────────


FEW = [
    QUICK[0],
    *(Case(FRAMES_SERIES, "±2", band(30, 2), frames) for frames in (6, 8)),
    *(Case(PAIRS_SERIES, "±2", band(pages, 2), 6) for pages in (20, 40)),
]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's example and two points of each series: what takes next to no time."""
    monkeypatch.setattr(schedule, "grid", lambda seed, is_quick: FEW)
    monkeypatch.setattr(schedule, "plan", planned)


def easiest(cases: list[Case]) -> list[Case]:
    """Of each group a small and a large layout, those with the fewest pairs."""
    best: dict[tuple[str, bool], Case] = {}
    for case in sorted(cases, key=lambda case: -case.reach.pairs):
        best[case.group, case.is_small] = case
    return [case for case in cases if case in best.values()]


def test_the_command_quick_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen, asked = easiest(QUICK), []
    monkeypatch.setattr(schedule, "grid", lambda *seed, **how: asked.append((seed, how)) or chosen)
    monkeypatch.setattr(schedule, "plan", planned)
    assert cli.main(["bench", "schedule", "--quick", "--json"]) == 0
    assert asked == [((0,), {"is_quick": True})]
    streams = capsys.readouterr()
    assert streams.err == ""
    found = json.loads(streams.out)
    rows, summary = found["rows"], found["summary"]
    assert [row["layout"] for row in rows] == [case.layout for case in chosen]
    paper = rows[0]
    assert (paper["reads"]["gallop"], paper["reads"]["crabstep"]) == (30, 21)
    assert paper["reads"]["auto"] <= 17 and paper["bound"] == 14
    for row in rows:
        assert row["bound"] <= row["reads"]["auto"] == min(row["reads"].values())
        assert set(row["seconds"]) == set(MODES)
        assert (row["reference"] is None) == (row["auto_to_best"] is None)
    assert {row["group"] for row in rows} == {case.group for case in QUICK}
    assert summary["auto_above_another_mode"] == 0
    assert summary["auto_to_best_worst"] >= summary["auto_to_best_mean"] >= 1
    assert summary["small_layouts"] + summary["large_layouts"] == len(rows)


def test_the_table_and_the_summary(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "schedule", "--quick"]) == 0
    out = capsys.readouterr().out
    for text in (PAPER, FRAMES_SERIES, "milliseconds to plan", "auto is never above gallop"):
        assert text in out
    paper = next(line for line in out.splitlines() if "7 × 7" in line).split()
    assert {"30", "21", "14", "pages"} <= set(paper)


def test_who_wins_depends_on_the_room_for_open_pages() -> None:
    row = next(schedule.measure(QUICK[:1], width=WIDTH_TINY))
    assert row.layout == "±2" and row.open_pages["gallop"] == 1
    costs = {
        1: {"gallop": 30.0, "crabstep": 52.0, "lookahead": 71.0, "auto": 30.0},
        4: {"gallop": 30.0, "crabstep": 21.0, "lookahead": 25.0, "auto": 30.0},
        8: {"gallop": 30.0, "crabstep": 21.0, "lookahead": 16.0, "auto": 16.0},
    }
    told = replace(row, costs=costs, chosen={1: "gallop", 4: "gallop", 8: "lookahead"})
    assert told.winners(1) == ["gallop"]
    assert told.winners(4) == ["crabstep"]
    assert told.winners(8) == ["lookahead"]
    lines = schedule.winners_table([told]).splitlines()
    assert [line.split()[-2:] for line in lines[2:5]] == [
        ["gallop", "1.00"], ["gallop", "1.43!"], ["lookahead", "1.00"]
    ]  # fmt: skip
    assert "in 2 of 3" in lines[5] and lines[6] == "wins: gallop 1, crabstep 1, lookahead 1"


def test_the_summary_tells_when_auto_is_above() -> None:
    row = next(schedule.measure(QUICK[:1], width=WIDTH_TINY))
    reads = {**row.reads, "auto": 40}
    large = schedule.Row(
        row.group,
        row.layout,
        7,
        7,
        False,
        29,
        4,
        14,
        "pages",
        reads,
        row.seconds,
        None,
        {},
        {},
        {},
    )
    assert "auto is above another mode on 1 layouts" in schedule.summary_text([row, large])


@pytest.mark.parametrize(
    ("name", "begins"), [("reads.png", b"\x89PNG\r\n\x1a\n"), ("reads.svg", b"<?xml")]
)
def test_the_plot_is_an_image(
    name: str, begins: bytes, few: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert cli.main(["bench", "schedule", "--quick", "--plot", str(path)]) == 0
    data = path.read_bytes()
    assert data.startswith(begins) and len(data) > 10_000
    if path.suffix == ".svg":
        assert b"</svg>" in data


def test_a_terminal_sees_progress(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert cli.main(["bench", "schedule"]) == 0
    shown = capsys.readouterr().err
    assert "1/5  the paper's example: ±2, 4 frames" in shown and shown.endswith("\r\x1b[K")


# ── bad arguments ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--plot", "reads.pdf"], "ends in .png or .svg"),
        (["--plot", "no/such/folder/reads.png"], "there is no folder"),
        (["--plot", "folder.png"], "this is a folder"),
        (["--seed", "-1"], "from 0 on"),
        (["--repeat", "0"], "at least once"),
    ],
)
def test_bad_arguments_are_one_line(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    assert cli.main(["bench", "schedule", *words]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1 and says in streams.err


def test_bad_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "schedule", "--seed", "many"]) == 2
    assert cli.main(["bench", "schedule", "--no-such-option"]) == 2


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["bench", "schedule", "--plot", str(tmp_path / "reads.png")]) == 2
    streams = capsys.readouterr()
    assert "matwin[bench]" in streams.err and streams.err.count("\n") == 1


def test_a_plot_that_cannot_be_written_is_told(few: None, tmp_path: Path) -> None:
    args = argparse.Namespace(
        quick=True, seed=0, repeat=1, plot=str(tmp_path / "x.png"), json=True, quiet=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plot, "plot_path", lambda text: Path("/dev/full/x.png"))
        with pytest.raises(InputError, match="--plot"):
            schedule.run(args)
