"""The benchmarks of joins: their data is what they say, rivals answer alike, the commands run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matwin
from matwin.tools import cli
from matwin.tools.bench import bestmatch, epsilon, measures, paper_bestmatch, rivals, suite, tenth
from matwin.tools.bench.joins import Case, Timed, drain, timed
from matwin.tools.bench.measures import Beside, Disagreement, Grown, Own, Versus, beside, growth
from matwin.tools.bench.paper_data import DISTRIBUTIONS, EPSILON, streams, tolerances
from matwin.tools.bench.paper_steps import best_of_each, standard_steps
from matwin.tools.bench.rivals import Rival, nested_loops
from matwin.tools.bench.suite import Found, Suite

CASES = [
    Case("epsilon", 2_000, 9),
    Case("epsilon", 2_000, 9, texts=3),
    Case("epsilon", 2_000, 10, keys=10),
    Case("epsilon", 2_000, 9, is_growing=True),
    Case("epsilon", 2_000, 10, keys=10, is_growing=True),
    Case("bestmatch", 800, 32),
]


# ── cases ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", [case for case in CASES if case.join == "epsilon"], ids=str)
def test_a_row_has_about_as_many_matches_as_its_case_says(case: Case) -> None:
    found = case.run(*case.tables())
    assert 0.75 * case.matches < found / case.rows < 1.15 * case.matches


def test_tables_depend_on_case_and_seed_alone() -> None:
    case = Case("epsilon", 100, 9, texts=3)
    assert case.tables()[0].equals(case.tables()[0])
    assert not case.tables()[0].equals(case.tables()[1])
    assert not case.tables()[0].equals(Case("epsilon", 100, 9, texts=3, seed=1).tables()[0])


def test_growing_keeps_the_window() -> None:
    for keys in (0, 10):
        small = Case("epsilon", 1_000, 9, keys=keys, is_growing=True)
        assert small.of_rows(4_000).on == small.on
    plane = Case("epsilon", 1_000, 9)
    assert plane.of_rows(4_000).on["x"] == plane.on["x"] / 2


def test_timed_takes_the_best_and_counts() -> None:
    calls: list[int] = []
    found = timed(lambda: calls.append(0) or 7, 3)  # type: ignore[func-returns-value]
    assert (len(calls), found.rows_out) == (3, 7)
    assert found.seconds > 0


# ── rivals ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rivals_find_as_many_rows(case: Case) -> None:
    left, right = case.tables()
    ours = case.run(left, right)
    against = [rivals.DUCKDB, rivals.DUCKDB_CELLS]
    if case.join == "bestmatch":
        against.append(rivals.NESTED_LOOPS)
    elif case.keys:
        against.append(rivals.POLARS)
    else:
        against.append(rivals.CKDTREE)
    for rival in against:
        if rival.missing is None:
            assert rival.run(case, left, right) == ours, rival.name


def test_a_rival_that_is_not_installed_is_told_and_left_out() -> None:
    rival = Rival("nobody", lambda case, left, right: 0, "no_such_package")
    case = Case("epsilon", 50, 9)
    (row,) = beside(case, [Versus(rival, 50)], 1)
    assert row == (
        "nobody: left out, no_such_package is not installed (pip install 'matwin[bench]')"
    )


def test_a_rival_that_finds_other_rows_is_an_error() -> None:
    rival = Rival("wrong", lambda case, left, right: 3)
    with pytest.raises(Disagreement, match=r"seed 0: we find [\d,]+ rows, wrong finds 3"):
        list(beside(Case("epsilon", 300, 9), [Versus(rival, 300)], 1))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(0, 2**32), st.integers(0, 25), st.integers(0, 25))
def test_the_baselines_agree_with_the_join(
    dimensions: int, seed: int, lefts: int, rights: int
) -> None:
    """Coarse values, so that ties, duplicates and distances of exactly ε come up."""
    generator = np.random.default_rng(seed)
    sides = []
    for rows in (lefts, rights):
        values = np.round(generator.random((rows, dimensions)), 1)
        values = values[np.argsort(values[:, 0], kind="stable")]
        columns = {f"y{at + 1}": values[:, at] for at in range(dimensions)}
        sides.append(pa.table({"data": pa.array([""] * rows, pa.string()), **columns}))
    expected = drain(matwin.bestmatch_join(*sides, on=tolerances(dimensions)))
    points = [np.column_stack([side[name] for name in tolerances(dimensions)]) for side in sides]
    pairs = nested_loops(points[0], points[1], np.full(dimensions, EPSILON), 0, lefts)
    assert len(pairs) == expected
    bounds = np.linspace(0.13, 1.0, 7)
    if lefts and rights:
        found = standard_steps(*sides, dimensions, bounds, memory="2MiB", page_size="4KiB")
        assert found == expected


def test_ties_stay_and_the_dominated_go() -> None:
    distances = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [0.0, 9.0], [5.0, 5.0]])
    found = best_of_each(np.array([0, 0, 0, 0, 1]), distances)
    assert found.tolist() == [True, True, False, True, True]


# ── measures ─────────────────────────────────────────────────────────────────────────────────────


def test_a_tenth_is_measured_in_a_process_of_its_own() -> None:
    case = Case("epsilon", 40_000, 2)
    left, right = case.tables()
    found = tenth.in_a_tenth(case, 1)
    assert found.rows_out == case.run(left, right)
    assert found.data_bytes == left.nbytes + right.nbytes
    assert found.budget_bytes == max(found.data_bytes // 10, 2**18)
    assert found.pages_written > 0 and found.pages_read > 0
    assert found.peak_bytes <= found.budget_bytes + tenth.BEYOND_BYTES
    assert not found.is_a_tenth


def test_a_child_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(measures.MatwinError, match="the child process"):
        tenth.in_a_tenth(Case("epsilon", 40_000, 2), 1, scratch="/dev/null/folder")


def test_growth_is_told_per_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 8.0, 8.0])
    monkeypatch.setattr(measures, "timed", lambda work, repeat: Timed(next(times), 0))
    rows = list(growth(Case("epsilon", 50, 9, is_growing=True), (10, 80, 160), 1))
    assert [row.per_doubling for row in rows] == [None, pytest.approx(2.0), 1.0]


def found_once() -> Found:
    case = Case("epsilon", 1_000_000, 9)
    small = tenth.Tenth(4_000, 400, 64, 9.0, 9, 10**9, 5, 6, 1, [])
    return Found(
        [Beside(case, "other", Timed(2.0, 9_000_000), Timed(10.0, 9_000_000), 6.0)],
        [Own(case, Timed(2.0, 9_000_000), 0.5, 0.1, small)],
        [[Grown(case, Timed(1.0, 1), None), Grown(case, Timed(2.5, 1), 2.5)]],
        ["left out"],
        {case: 2e6},
    )


def test_tables_mark_what_misses_its_reach() -> None:
    shown = suite.text(found_once())
    assert "5.0×" in shown and "6×!" in shown
    assert "1.00!" in shown and "3.3×!" in shown and "4.5×!" in shown
    assert "953.7 MiB!" in shown and "2.50×!" in shown
    assert shown.endswith("left out")


# ── commands ─────────────────────────────────────────────────────────────────────────────────────


def few(rows: int, seed: int) -> Suite:
    case = Case("epsilon", 300, 9, seed=seed)
    return Suite([(case, [Versus(rivals.DUCKDB_CELLS, 200, 6)])], [case], [case], {case: 1e9})


def run_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert cli.main(words) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return json.loads(streams.out)


@pytest.mark.parametrize("module", [epsilon, bestmatch])
def test_a_suite_as_json_and_plot(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "suite_of", few)
    name = module.__name__.rpartition(".")[2]
    plot = tmp_path / "joins.svg"
    words = ["bench", name, "--quick", "--repeat", "1", "--json", "--plot", str(plot)]
    found = run_json(words, capsys)
    (row,) = found["beside"]
    assert row["case"]["rows"] == 200
    assert row["times"] == pytest.approx(row["theirs"]["seconds"] / row["ours"]["seconds"])
    (alone,) = found["own"]
    assert alone["tenth"]["rows_out"] == alone["ours"]["rows_out"]
    assert [point["case"]["rows"] for point in found["growth"][0]] == [*suite.QUICK_SIZES]
    assert "DuckDB, by grid cells" in plot.read_text() or plot.stat().st_size > 1_000


@pytest.mark.parametrize("module", [epsilon, bestmatch])
def test_suites_hold_the_sizes_that_are_promised(module: Any) -> None:
    full = module.suite_of(1_000_000, 0)
    assert max(case.rows for case in full.own) == 1_000_000
    assert all(versus.rows <= case.rows for case, against in full.beside for versus in against)
    quick = module.suite_of(suite.QUICK_ROWS, 0)
    assert max(case.rows for case in quick.own) == suite.QUICK_ROWS


@pytest.mark.parametrize(
    "words",
    [["--rows", "0"], ["--repeat", "0"], ["--seed", "-1"], ["--plot", "joins.pdf"]],
    ids=str,
)
def test_bad_arguments_are_told_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "epsilon", "--quick", *words]) == 2
    assert capsys.readouterr().err.startswith(f"matwin: error: {words[0]}")


# ── the paper ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_streams_are_sorted_and_within_the_unit_cube(distribution: str) -> None:
    for table in streams(distribution, 500, 3):
        values = np.column_stack([table[f"y{at}"] for at in (1, 2, 3)])
        assert values.min() >= 0 and values.max() <= 1
        assert (np.diff(values[:, 0]) >= 0).all()


def test_distributions_lean_the_way_they_are_called() -> None:
    def correlation(distribution: str) -> float:
        table = streams(distribution, 4_000, 2)[0]
        return float(np.corrcoef(table["y1"], table["y2"])[0, 1])

    assert correlation("correlated") > 0.8
    assert correlation("anti-correlated") < -0.8
    assert abs(correlation("uniform")) < 0.1 and abs(correlation("normal")) < 0.1


def test_decimals_round_the_order_attribute_alone() -> None:
    table = streams("uniform", 300, 2, decimals=1)[0]
    assert len(set(table["y1"].to_pylist())) == 11
    assert len(set(table["y2"].to_pylist())) == 300


def test_the_paper_quick(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(paper_bestmatch, "STEPS", 5)
    monkeypatch.setattr(paper_bestmatch, "BOUNDS", np.linspace(0.2, 1, 5))
    words = ["bench", "paper-bestmatch", "--quick", "--repeat", "1"]
    assert cli.main([*words, "--plot", str(tmp_path / "p.svg")]) == 0
    shown = capsys.readouterr()
    assert "nested loops" in shown.out and "anti-correlated" in shown.out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        f"p-{name}.svg" for name in ("sizes", "dimensions", "distributions", "precisions")
    }


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_bestmatch, "POINT_SECONDS", -1.0)
    lines = [paper_bestmatch.STANDARD_EGO, paper_bestmatch.AUTO]
    monkeypatch.setattr(paper_bestmatch, "LINES", lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(paper_bestmatch.WORK, lines[0], _too_long_beyond_warming())
        points = list(paper_bestmatch.over_sizes((60, 70), 1, 0))
    assert [(p.rows, p.line, p.seconds is None) for p in points] == [
        (60, lines[0], True), (60, lines[1], False), (70, lines[1], False),
    ]  # fmt: skip


def _too_long_beyond_warming() -> Any:
    work = paper_bestmatch.WORK[paper_bestmatch.STANDARD_EGO]
    return lambda left, right, dimensions: 0 if len(left) == 50 else work(left, right, dimensions)


def test_unevenness() -> None:
    even = paper_bestmatch.Delivery("", "", [1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4])
    steps = paper_bestmatch.Delivery("", "", [2.0, 4.0], [2, 4])
    late = paper_bestmatch.Delivery("", "", [3.9, 4.0], [1, 100])
    assert even.unevenness == pytest.approx(0.25)
    assert steps.unevenness == pytest.approx(0.5)
    assert late.unevenness == pytest.approx(0.99)
    assert late.first_share == pytest.approx(0.975)
