"""The benchmarks of window joins: rivals and baselines answer alike, the commands run."""

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

import matwin
from matwin.storage.errors import InputError
from matwin.tools.bench import (
    paper_window,
    paper_window_data,
    paper_window_figures,
    paper_window_operator,
    paper_window_plot,
    paper_window_runs,
    suite,
    window,
    window_measures,
    window_rivals,
    window_streaming,
    window_tenth,
)
from matwin.tools.bench.joins import Timed
from matwin.tools.bench.measures import Beside, Disagreement
from matwin.tools.bench.paper_window_data import Streams, by_time, joined, round_robin
from matwin.tools.bench.paper_window_figures import Point, Size
from matwin.tools.bench.paper_window_kernels import _hash
from matwin.tools.bench.paper_window_runs import Algorithm, Served, directed, limits_of, uniform
from matwin.tools.bench.suite import Found
from matwin.tools.bench.window import WindowSuite
from matwin.tools.bench.window_cases import CHAIN, CLIQUE, WindowCase
from matwin.tools.bench.window_measures import WindowOwn, WindowVersus, a_doubling, beside, growth
from matwin.tools.bench.window_rivals import WindowRival
from matwin.tools.bench.window_streaming import Flow, Streamed, stream_once, streaming
from matwin.tools.bench.window_tenth import in_a_tenth

TWO = WindowCase("window", 2_000, 10, keys=10)
CASES = [
    TWO,
    replace(TWO, texts=3),
    replace(TWO, is_growing=True),
    *(replace(TWO, streams=n, shape=shape) for n in (3, 4) for shape in (CHAIN, CLIQUE)),
]
TINY = Size(0.01, (2, 3), 0.3, 120, 0.1, 10, 50_000.0, 0.001, 1)


# ── cases and rivals ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_row_is_in_about_as_many_results_as_its_case_says(case: WindowCase) -> None:
    found = case.run(*case.sources())
    assert 0.7 * case.matches < found / case.rows < 1.2 * case.matches


def test_two_streams_are_the_keyed_epsilon_join() -> None:
    case = replace(TWO, rows=500, keys=7)
    assert case.epsilon == case.pair.epsilon
    for ours, theirs in zip(case.sources(), case.pair.tables(), strict=True):
        assert ours.equals(theirs)
    assert case.run(*case.sources()) == case.pair.run(*case.pair.tables())


def test_tables_depend_on_case_and_seed_alone() -> None:
    case = replace(TWO, rows=100, streams=3)
    first, second, third = case.sources()
    assert first.equals(case.sources()[0])
    assert not first.equals(second) and not second.equals(third)
    assert not first.equals(replace(case, seed=1).sources()[0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rivals_find_as_many_rows(case: WindowCase) -> None:
    tables = case.sources()
    ours = case.run(*tables)
    against = [window_rivals.DUCKDB, window_rivals.DUCKDB_CELLS]
    if case.streams == 2 and not case.texts:
        against += [window_rivals.POLARS, window_rivals.PATHWAY]
    for rival in against:
        if rival.missing is None:
            assert rival.run(case, *tables) == ours, rival.name


def test_a_rival_that_is_not_installed_is_told_and_left_out() -> None:
    rival = WindowRival("nobody", lambda case, *tables: 0, "no_such_package", "nobody")
    (row,) = beside(replace(TWO, rows=50), [WindowVersus(rival, 50)], 1)
    assert row == "nobody: left out, no_such_package is not installed (pip install nobody)"


def test_a_rival_that_finds_other_rows_is_an_error() -> None:
    rival = WindowRival("wrong", lambda case, *tables: 3)
    case = replace(TWO, rows=300, streams=3)
    with pytest.raises(Disagreement, match=r"seed 0: we find [\d,]+ rows, wrong finds 3"):
        list(beside(case, [WindowVersus(rival, 300)], 1))


# ── measures ─────────────────────────────────────────────────────────────────────────────────────


def test_a_tenth_is_measured_in_a_process_of_its_own() -> None:
    case = replace(TWO, rows=8_000, matches=2, streams=3)
    tables = case.sources()
    found = in_a_tenth(case, 1)
    assert found.rows_out == case.run(*tables)
    assert found.data_bytes == sum(table.nbytes for table in tables)
    assert found.budget_bytes == max(found.data_bytes // 10, 2**18)
    assert found.decisions


def test_a_child_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match="a tenth of the memory: the child process: "):
        in_a_tenth(replace(TWO, rows=8_000), 1, scratch="/dev/null/folder")


def test_own_counts_the_rows_of_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(TWO, rows=300, streams=4)
    small = window_tenth.Tenth(4_000, 400, 64, 9.0, case.run(*case.sources()), 10, 5, 6, 1, [])
    monkeypatch.setattr(window_measures, "in_a_tenth", lambda *_: small)
    found = window_measures.own(case, 1, None)
    assert found.rows_a_second == pytest.approx(4 * 300 / found.ours.seconds)
    assert found.floor_seconds > 0
    monkeypatch.setattr(window_measures, "in_a_tenth", lambda *_: replace(small, rows_out=1))
    with pytest.raises(Disagreement, match="a tenth of the memory finds 1"):
        window_measures.own(case, 1, None)


def test_growth_is_told_per_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 8.0, 8.0])
    monkeypatch.setattr(window_measures, "timed", lambda work, repeat: Timed(next(times), 0))
    rows = list(growth(replace(TWO, rows=50, is_growing=True), (10, 80, 160), 1))
    assert [row.per_doubling for row in rows] == [None, pytest.approx(2.0), 1.0]
    assert len({row.case.epsilon for row in rows}) == 1
    assert a_doubling((1, 3.0), (2, 6.0)) == 2.0


# ── live streams ─────────────────────────────────────────────────────────────────────────────────


def test_live_streams_find_in_memory_and_on_disk_what_tables_do() -> None:
    flow = Flow(600, 900, seed=3)
    tables = {name: flow.table(side) for side, name in enumerate("ab")}
    expected = sum(
        batch.num_rows
        for batch in matwin.window_join(tables, time="t", windows=flow.window, by="k")
    )
    rows = list(streaming([flow], None))
    assert [row.is_on_disk for row in rows] == [False, True]
    assert [row.rows_out for row in rows] == [expected, expected]
    # A stream may be read ahead before the other is full; those rows are not counted.
    assert all(900 <= row.tuples <= 1_800 for row in rows)
    assert not any(row.is_cut for row in rows)
    assert 8 < 2 * flow.window_rows / flow.keys < 12


def test_a_flow_that_takes_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_streaming, "FLOW_SECONDS", -1.0)
    row = stream_once(Flow(600, 600), None, is_on_disk=False)
    assert row.is_cut and row.tuples == 0 and row.rows_out == 0


def test_memory_and_disk_that_differ_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(flow: Flow, scratch: str | None, *, is_on_disk: bool) -> Streamed:
        row = replace(streamed(), flow=flow, is_on_disk=is_on_disk, is_cut=False)
        return replace(row, rows_out=5 + is_on_disk)

    monkeypatch.setattr(window_streaming, "stream_once", once)
    with pytest.raises(Disagreement, match="5 rows in memory, 6 on disk"):
        list(streaming([Flow(10, 10)], None))


def streamed() -> Streamed:
    flow = Flow(1_000, 1_000)
    return Streamed(flow, True, 2_000, 0.004, 20_000, 1 << 20, 9, 7, 8, ["so"], True, 1.5)


def test_tables_mark_what_misses_its_reach() -> None:
    case = replace(TWO, rows=1_000_000, streams=3)
    small = window_tenth.Tenth(4_000, 400, 64, 9.0, 9, 10**9, 5, 6, 1, [])
    found = Found(
        [Beside(case, "other", Timed(2.0, 9), Timed(10.0, 9), 6.0)],
        [WindowOwn(case, Timed(2.0, 9), 0.5, 0.1, small)], [], ["left out"], {},
    )  # fmt: skip
    shown = window.text(found, [streamed()])
    assert "3-way clique, 10 keys" in shown and "6×!" in shown
    assert "1.50 " in shown, "million rows a second of three streams"
    assert "500,000!" in shown and "1.50×!" in shown and "windows on disk (cut)" in shown
    assert "left out" in shown and "to reach: 1,000,000 tuples a second" in shown


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def few(rows: int, seed: int) -> WindowSuite:
    case = replace(TWO, rows=300, seed=seed)
    chain = replace(case, streams=3, shape=CHAIN)
    versus = [WindowVersus(window_rivals.DUCKDB_CELLS, 200, 6)]
    return WindowSuite([(case, versus), (chain, versus)], [chain], [case])


def run(module: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module.configure(parser)
    return int(module.run(parser.parse_args(words)))


def test_the_suite_as_json_and_plot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(window, "suite_of", few)
    monkeypatch.setattr(window, "QUICK_WINDOWS", (300, 600))
    plot = tmp_path / "joins.svg"
    assert run(window, "--quick", "--repeat", "1", "--json", "--plot", str(plot)) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["beside"]] == ["2-way, 10 keys", "3-way chain, 10 keys"]
    for row in found["beside"]:
        assert row["times"] == pytest.approx(row["theirs"]["seconds"] / row["ours"]["seconds"])
        assert row["ours"]["rows_out"] == row["theirs"]["rows_out"]
        assert row["reach"] == 6
    (alone,) = found["own"]
    assert alone["tenth"]["rows_out"] == alone["ours"]["rows_out"]
    assert {"to_floor", "tenth_times", "rows_a_second"} <= alone.keys()
    assert [point["case"]["rows"] for point in found["growth"][0]] == [*suite.QUICK_SIZES]
    live = found["streaming"]
    assert [row["flow"]["window_rows"] for row in live] == [300, 600, 300, 600]
    assert [row["is_on_disk"] for row in live] == [False, False, True, True]
    assert {"tuples_a_second", "microseconds", "reach", "per_doubling"} <= live[0].keys()
    assert found["notes"] == ["quick: too small to be compared with what is to be reached"]
    assert plot.stat().st_size > 1_000


def test_the_suite_holds_the_sizes_that_are_promised() -> None:
    full = window.suite_of(1_000_000, 0)
    assert {case.rows for case in full.own} == {1_000_000}
    assert {(case.streams, case.shape) for case in full.own} == {
        (2, CLIQUE), (3, CHAIN), (3, CLIQUE), (4, CHAIN), (4, CLIQUE),
    }  # fmt: skip
    assert {case.keys for case in full.own} == {10, 1_000}
    assert any(case.texts == 3 for case in full.own)
    reaches = {
        (case.keys, versus.rival.name): versus.reach
        for case, against in full.beside
        for versus in against
        if case.streams == 2 and not case.texts
    }
    assert reaches[1_000, "DuckDB, as one writes it"] == 20
    assert reaches[1_000, "Polars join_where"] == 40
    assert reaches[1_000, "Pathway interval_join"] == 100
    assert reaches[10, "DuckDB, as one writes it"] == 300


@pytest.mark.parametrize(
    "words",
    [["--rows", "0"], ["--repeat", "0"], ["--seed", "-1"], ["--window", "0"], ["--plot", "a.pdf"]],
    ids=str,
)
def test_bad_arguments_are_told(words: list[str]) -> None:
    with pytest.raises(InputError, match=f"^{words[0]} "):
        run(window, "--quick", *words)


# ── the papers: data ─────────────────────────────────────────────────────────────────────────────


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


# ── the papers: algorithms ───────────────────────────────────────────────────────────────────────

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


# ── the papers: the command ──────────────────────────────────────────────────────────────────────


def test_the_papers_quick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(paper_window, "QUICK", TINY)
    monkeypatch.setattr(paper_window_operator, "PACED_RATES", (300,))
    assert run(paper_window, "--quick", "--plot", str(tmp_path / "p.svg")) == 0
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
    assert run(paper_window, "--quick", "--json") == 0
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
        run(paper_window, "--quick", *words)


def test_a_table_has_the_mean_of_a_series_and_the_end_of_an_output() -> None:
    series = [Point("shops", "loops", "NLW", at, 2.0 * at, 5) for at in (1, 2)]
    output = [Point("output", "2 streams", "HW", at, 7.0 * at, 9) for at in (1, 2)]
    points = [*series, *output]
    shown = paper_window.table(points)
    assert "3.00" in shown and "14.00" in shown and "7.00" not in shown
