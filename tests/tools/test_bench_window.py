"""The benchmark of window joins: rivals answer alike, measures add up, the command runs."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

import matwin
from matwin.storage.errors import InputError
from matwin.tools.bench import (
    arguments,
    suite,
    tenth,
    window,
    window_measures,
    window_rivals,
    window_streaming,
)
from matwin.tools.bench.joins import Timed
from matwin.tools.bench.measures import Beside, Disagreement
from matwin.tools.bench.suite import Found
from matwin.tools.bench.tenth import in_a_tenth
from matwin.tools.bench.window import WindowSuite
from matwin.tools.bench.window_cases import CHAIN, CLIQUE, WindowCase
from matwin.tools.bench.window_measures import WindowOwn, WindowVersus, a_doubling, beside, growth
from matwin.tools.bench.window_rivals import WindowRival
from matwin.tools.bench.window_streaming import Flow, Streamed, stream_once, streaming

TWO = WindowCase("window", 2_000, 10, keys=10)
CASES = [
    TWO,
    replace(TWO, texts=3),
    replace(TWO, is_growing=True),
    *(replace(TWO, streams=n, shape=shape) for n in (3, 4) for shape in (CHAIN, CLIQUE)),
]


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
    small = tenth.Tenth(4_000, 400, 64, 9.0, case.run(*case.sources()), 10, 5, 6, 1, [])
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


@pytest.mark.parametrize("streams", [2, 3])
def test_live_streams_find_in_memory_and_on_disk_what_tables_do(streams: int) -> None:
    flow = Flow(600, 900, seed=3, streams=streams)
    tables = {name: flow.table(side) for side, name in enumerate("abc"[:streams])}
    expected = sum(
        batch.num_rows
        for batch in matwin.window_join(tables, time="t", windows=flow.window, by="k")
    )
    rows = list(streaming([flow], None))
    assert [row.is_on_disk for row in rows] == [False, True]
    assert [row.rows_out for row in rows] == [expected, expected]
    # A stream may be read ahead before the other is full; those rows are not counted.
    assert all(900 <= row.tuples <= 900 * streams for row in rows)
    assert not any(row.is_cut for row in rows)
    assert 8 < streams * (flow.window_rows / flow.keys) ** (streams - 1) < 12
    rates = [row.tuples_a_second for row in rows]
    assert [row.of_memory for row in rows] == [None, pytest.approx(rates[1] / rates[0])]


def test_a_flow_that_takes_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_streaming, "FLOW_SECONDS", -1.0)
    row = stream_once(Flow(600, 600), None, is_on_disk=False)
    assert row.is_cut and row.tuples == 0 and row.rows_out == 0


def test_a_flow_that_was_cut_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(flow: Flow, scratch: str | None, *, is_on_disk: bool) -> Streamed:
        is_cut = is_on_disk and flow.window_rows == 40
        return replace(
            streamed(), flow=flow, is_on_disk=is_on_disk, is_cut=is_cut, per_doubling=None
        )

    monkeypatch.setattr(window_streaming, "stream_once", once)
    rows = list(streaming([Flow(10, 10), Flow(40, 10), Flow(80, 10)], None))
    assert [row.per_doubling for row in rows] == [None, 1.0, 1.0, None, None, None]
    assert [row.of_memory for row in rows] == [None, None, None, 1.0, None, 1.0]


def test_a_doubling_is_of_as_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(flow: Flow, scratch: str | None, *, is_on_disk: bool) -> Streamed:
        row = replace(streamed(), flow=flow, is_on_disk=is_on_disk, is_cut=False)
        return replace(row, per_doubling=None)

    monkeypatch.setattr(window_streaming, "stream_once", once)
    flows = [Flow(10, 10), Flow(40, 10), Flow(10, 10, streams=3), Flow(40, 10, streams=3)]
    rows = list(streaming(flows, None))
    assert [row.per_doubling for row in rows] == [None, 1.0] * 4


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
    small = tenth.Tenth(4_000, 400, 64, 9.0, 9, 10**9, 5, 6, 1, [])
    found = Found(
        [Beside(case, "other", Timed(2.0, 9), Timed(10.0, 9), 6.0)],
        [WindowOwn(case, Timed(2.0, 9), 0.5, 0.1, small)], [], ["left out"], {},
    )  # fmt: skip
    three = replace(streamed(), is_cut=False, flow=Flow(9, 9, streams=3), seconds=0.02)
    shown = window.text(found, [streamed(), replace(three, of_memory=0.4)])
    assert "3-way clique, 10 keys" in shown and "6×!" in shown
    assert "1.50 " in shown, "million rows a second of three streams"
    assert "500,000!" in shown and "1.50×!" in shown and "windows on disk (cut)" in shown
    assert "3-way, windows on disk" in shown and "100,000!" in shown and "0.40!" in shown
    assert "left out" in shown and "to reach: 1,000,000 tuples a second" in shown


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def few(rows: int, seed: int) -> WindowSuite:
    case = replace(TWO, rows=300, seed=seed)
    chain = replace(case, streams=3, shape=CHAIN)
    versus = [WindowVersus(window_rivals.DUCKDB_CELLS, 200, 6)]
    return WindowSuite([(case, versus), (chain, versus)], [chain], [case])


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    arguments.configure_window(parser)
    return window.run(parser.parse_args(words))


def test_the_suite_as_json_and_plot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(window, "suite_of", few)
    monkeypatch.setattr(window, "QUICK_WINDOWS", (300, 600))
    plot = tmp_path / "joins.svg"
    assert run("--quick", "--repeat", "1", "--json", "--plot", str(plot)) == 0
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
    assert [row["flow"]["window_rows"] for row in live] == [300, 600] * 4
    assert [row["flow"]["streams"] for row in live] == [2, 2, 3, 3] * 2
    assert [row["is_on_disk"] for row in live] == [False] * 4 + [True] * 4
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
    assert {
        versus.reach for case, against in full.beside for versus in against if case.streams == 4
    } == {6}


@pytest.mark.parametrize(
    "words",
    [["--rows", "0"], ["--repeat", "0"], ["--seed", "-1"], ["--window", "0"], ["--plot", "a.pdf"]],
    ids=str,
)
def test_bad_arguments_are_told(words: list[str]) -> None:
    with pytest.raises(InputError, match=f"^{words[0]} "):
        run("--quick", *words)
