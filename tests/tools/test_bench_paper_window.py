"""The W-join papers' experiments: every algorithm finds what the definition says."""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.storage.errors import InputError
from matwin.tools.bench import (
    arguments,
    paper_window,
    paper_window_data,
    paper_window_figures,
    paper_window_operator,
    paper_window_plot,
    paper_window_runs,
)
from matwin.tools.bench.measures import Disagreement
from matwin.tools.bench.paper_window_data import Streams, by_time, joined, round_robin
from matwin.tools.bench.paper_window_figures import Point, Size
from matwin.tools.bench.paper_window_kernels import _hash
from matwin.tools.bench.paper_window_runs import Algorithm, Served, directed, limits_of, uniform

TINY = Size(0.01, (2, 3), 0.3, 120, 0.1, 10, 50_000.0, 0.001, 1)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    arguments.configure_paper_window(parser)
    return paper_window.run(parser.parse_args(words))


# ── data ─────────────────────────────────────────────────────────────────────────────


def test_shops_sell_in_opening_hours_and_some_items_more_often() -> None:
    streams = paper_window_data.shops(3, 1.5, 0)
    assert streams.ways == 3
    of_day = streams.times % paper_window_data.DAY
    assert of_day.min() >= paper_window_data.OPENS and of_day.max() < paper_window_data.CLOSES
    noon = (paper_window_data.OPENS + paper_window_data.CLOSES) / 2
    assert streams.times.max() <= paper_window_data.DAY + noon
    rows_a_day = paper_window_data.ROWS_AN_HOUR * 12.5
    assert 1.2 * rows_a_day < streams.rows < 1.8 * rows_a_day
    for at in range(3):
        assert (np.diff(streams.times[streams.offset[at] : streams.offset[at + 1]]) >= 0).all()
    often = np.sort(np.bincount(streams.keys))[::-1]
    assert often[:100].sum() > 0.05 * streams.rows
    first = of_day[streams.times < paper_window_data.DAY]
    evening, morning = (
        np.count_nonzero((first > hour * 3600) & (first < (hour + 1) * 3600)) for hour in (17, 9)
    )
    assert evening > 1.5 * morning > 0


def test_a_switching_stream_is_slow_half_of_its_tuples() -> None:
    streams = paper_window_data.switching(1_000, 10, 100, 4, 5, 400, 0)
    gaps = np.diff(streams.times[streams.offset[3] :])
    assert gaps[:99].mean() > 30 * gaps[100:199].mean()
    assert 0.3 < np.diff(streams.times[: streams.offset[1]]).sum() < 0.5


def test_the_order_of_arrivals() -> None:
    streams = joined([
        (np.array([1.0, 5.0, 6.0]), np.zeros(3, np.int64)),
        (np.array([2.0]), np.zeros(1, np.int64)),
        (np.array([3.0, 4.0]), np.zeros(2, np.int64)),
    ])  # fmt: skip
    assert by_time(streams).tolist() == [0, 1, 2, 2, 0, 0]
    assert round_robin(streams).tolist() == [0, 1, 2, 0, 2, 0]


# ── algorithms ───────────────────────────────────────────────────────────────────────

EVERY_WAY = [
    paper_window_runs.NLW, paper_window_runs.HW, paper_window_runs.MW, paper_window_runs.FEW_HASH,
    Algorithm("ripple join", purge_every=3), Algorithm("XJoin", is_hash=True, purge_every=3),
    paper_window_runs.GCA, paper_window_runs.LCA, paper_window_runs.GRAPH,
    paper_window_runs.PATH_NLW,
]  # fmt: skip


def oracle(streams: Streams, alternatives: list[Any]) -> tuple[int, int]:
    """Every combination of tuples, tested as the definition says."""
    parts = [range(first, limit) for first, limit in itertools.pairwise(streams.offset.tolist())]
    pairs = list(itertools.permutations(range(streams.ways), 2))
    count = mark = 0
    for chosen in itertools.product(*parts):
        times = streams.times[list(chosen)]
        is_equal = len(set(streams.keys[list(chosen)].tolist())) == 1
        if is_equal and any(
            all(times[j] - times[i] <= limits[i, j] for i, j in pairs) for limits in alternatives
        ):
            count += 1
            mark = (mark + int(_hash(np.array(chosen, np.int64)))) % 2**64
    return count, mark


@st.composite
def drawn_streams(draw: st.DrawFn, apart: float = 0.0) -> Streams:
    """Two to four short streams of coarse times; `apart` keeps times of two streams from being
    equal."""
    parts = []
    for number in range(draw(st.integers(2, 4))):
        rows = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=7))
        times = np.array(sorted(row[0] for row in rows), np.float64) + apart * number
        parts.append((times, np.array([row[1] for row in rows], np.int64)))
    return joined(parts)


def check(streams: Streams, alternatives: list[Any], algorithms: list[Algorithm]) -> None:
    expected = oracle(streams, alternatives)
    for order, algorithm in itertools.product((by_time, round_robin), algorithms):
        if streams.rows:
            found = paper_window_runs.serve(algorithm, streams, order(streams), alternatives, 3)
            assert found.found == expected, (order.__name__, algorithm)


@settings(max_examples=60, deadline=None)
@given(drawn_streams(), st.integers(0, 6))
def test_one_window_for_all(streams: Streams, window_size: int) -> None:
    check(streams, [uniform(streams.ways, window_size)], EVERY_WAY)


@settings(max_examples=60, deadline=None)
@given(drawn_streams(), st.data())
def test_windows_that_differ_or_are_missing(streams: Streams, data: st.DataObject) -> None:
    windows = {
        (one, other): float(data.draw(st.integers(0, 6)))
        for one, other in itertools.combinations(range(streams.ways), 2)
        if other == one + 1 or data.draw(st.booleans())
    }
    check(streams, [limits_of(streams.ways, windows)], EVERY_WAY)


@settings(max_examples=60, deadline=None)
@given(drawn_streams(apart=0.125), st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_a_path_both_ways(streams: Streams, windows: list[int]) -> None:
    ways = directed(windows[: streams.ways - 1])
    runs = [paper_window_runs.LCA, paper_window_runs.GCA, paper_window_runs.PATH_NLW]
    check(streams, ways, runs)


def test_algorithms_that_differ_are_an_error() -> None:
    one = Served("one", [1.0], [1], [7], 0, 99, np.zeros(1, np.int64))
    paper_window_runs.agree("so", [one, one])
    with pytest.raises(Disagreement, match="so: results differ in number or in kind: one 7, two 7"):
        paper_window_runs.agree("so", [one, replace(one, algorithm="two", mark=98)])


def test_what_lies_outside_the_windows_is_tested_by_the_ripple_join_alone() -> None:
    """In order of time, nothing that has expired is looked at by the others."""
    streams = paper_window_data.synthetic([1_000, 1_000], 50, 0.5, 0)
    limits = [uniform(2, 0.01)]
    tested = {
        algorithm.name: paper_window_runs.serve(algorithm, streams, by_time(streams), limits).tested
        for algorithm in (paper_window_runs.RIPPLE, paper_window_runs.NLW, paper_window_runs.MW)
    }
    assert tested["ripple join"] > 5 * tested["NLW"] >= 5 * tested["MW"] > 0


def test_forward_does_not_look_at_streams_that_have_run_ahead() -> None:
    streams = paper_window_data.synthetic([1_000, 100], 50, 2.0, 0)
    limits = [uniform(2, 0.05)]
    tested = {
        algorithm.name: paper_window_runs.serve(
            algorithm, streams, round_robin(streams), limits
        ).tested
        for algorithm in (paper_window_runs.NLW, paper_window_runs.MW)
    }
    assert tested["NLW"] > 5 * tested["MW"]


def test_response_is_waiting_and_work() -> None:
    streams = joined([
        (np.array([0.0, 1.0, 10.0]), np.zeros(3, np.int64)),
        (np.array([0.5]), np.zeros(1, np.int64)),
    ])  # fmt: skip
    at_once = Served("", [8.0, 2.0], [2, 2], [0, 0], 0, 0, np.array([0, 2, 3, 1]))
    # Costs 4, 4, 1, 1: done at 4, 8, 9 and, after a pause, 11.
    waited = paper_window_runs.respond(at_once, streams, by_time(streams))
    assert waited.tolist() == [4.0, 7.5, 8.0, 1.0]
    later = replace(at_once, done=np.array([1, -1, 3, 1]))
    waited = paper_window_runs.respond(later, streams, by_time(streams))
    assert waited[[0, 1, 3]].tolist() == [8.0, 7.5, 1.0] and np.isnan(waited[2])


def test_the_highest_rate_is_where_a_second_of_work_takes_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seconds(algorithm: Algorithm, count: int, rate: float, size: Size) -> float:
        return rate / 1e10  # two streams: the load is 1 at 70,711 a second each

    monkeypatch.setattr(paper_window_figures, "_seconds_a_tuple", seconds)
    found = paper_window_figures.highest_rate(paper_window_runs.NLW, 2, Size())
    assert found == pytest.approx(2 * (1e10 / 2) ** 0.5)


# ── the command ──────────────────────────────────────────────────────────────────────


def test_the_papers_quick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(paper_window, "QUICK", TINY)
    monkeypatch.setattr(paper_window_operator, "PACED_RATES", (300,))
    assert run("--quick", "--plot", str(tmp_path / "p.svg")) == 0
    shown = capsys.readouterr()
    for line in ("ripple join", "XJoin", "GCA", "NLW along the path", "forward-hash"):
        assert line in shown.out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"p-{name}.svg" for name in paper_window_plot.FIGURES}


def test_the_papers_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paper_window, "EXPERIMENTS", {"path": paper_window_figures.along_a_path})
    monkeypatch.setattr(paper_window, "QUICK", TINY)
    assert run("--quick", "--json") == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert {(point["panel"], point["line"]) for point in points} == {
        (panel, line)
        for panel in ("comparable rates", "variable rates")
        for line in ("LCA", "NLW along the path")
    }
    assert {"experiment", "x", "y", "results"} <= points[0].keys()


def test_the_operator_finds_what_the_papers_algorithms_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = list(paper_window_operator.over_algorithms(TINY))
    assert {point.line for point in points} == set(paper_window_operator.ALGORITHMS)
    assert all(point.results for point in points)
    monkeypatch.setattr(paper_window_operator, "drain", lambda reader: len(list(reader)) - 5_000)
    with pytest.raises(Disagreement, match="the operator finds"):
        list(paper_window_operator.over_algorithms(TINY))


@pytest.mark.parametrize(
    "words", [["--repeat", "0"], ["--seed", "-1"], ["--plot", "a.pdf"]], ids=str
)
def test_bad_arguments_of_the_papers_are_told(words: list[str]) -> None:
    with pytest.raises(InputError, match=f"^{words[0]} "):
        run("--quick", *words)


def test_a_table_has_the_mean_of_a_series_and_the_end_of_an_output() -> None:
    series = [Point("shops", "loops", "NLW", at, 2.0 * at, 5) for at in (1, 2)]
    output = [Point("output", "2 streams", "HW", at, 7.0 * at, 9) for at in (1, 2)]
    points = [*series, *output]
    shown = paper_window.table(points)
    assert "3.00" in shown and "14.00" in shown and "7.00" not in shown
