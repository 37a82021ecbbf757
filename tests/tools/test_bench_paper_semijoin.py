"""The semijoin paper's experiments: what is counted, printed and drawn."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from matwin.operators.semijoin_cost import Processing
from matwin.storage.errors import InputError
from matwin.tools.bench import (
    arguments,
    paper_semijoin,
    paper_semijoin_plot,
    paper_semijoin_runs,
)
from matwin.tools.bench.measures import Disagreement
from matwin.tools.bench.paper_semijoin import EXPERIMENTS, LEAN, SMJ, SPJ, STEADY, Point, Size
from matwin.tools.bench.paper_semijoin_runs import Setting

STEPS = Processing(1e-6, 1e-6, 1e-6, 1e-6)
SMALL = Setting(distinct=40, window=30)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    arguments.configure_paper_semijoin(parser)
    return paper_semijoin.run(parser.parse_args(words))


def points_of(setting: Setting, rows: int = 2_000, name: str = "distinct") -> dict[str, Point]:
    made = paper_semijoin.place(name, setting.distinct, setting, Size(rows, repeat=1), STEPS)
    return {point.line: point for point in made}


def test_streams_come_in_order_of_time_at_their_rate() -> None:
    arrivals = paper_semijoin_runs.draw(replace(SMALL, rate=100), 50, 0)
    times = [row.time for _, row in arrivals]
    assert times == sorted(times) and times[-1] == pytest.approx(0.5)
    firsts = [row for is_first, row in arrivals if is_first]
    assert [row.number for row in firsts] == list(range(50))
    assert {row.full_bytes for row in firsts} == {100}
    assert {row.partial_bytes for row in firsts} == {10}
    assert all(0 <= row.key < 40 for row in firsts)


def test_windows_are_full_before_anything_is_counted() -> None:
    arrivals = paper_semijoin_runs.draw(SMALL, 100 + 60, 0)
    ran = paper_semijoin_runs.run(SPJ, SMALL, arrivals, 120)
    assert (ran.tuples, ran.messages["full"], ran.size_bytes) == (200, 100, 10_000)
    assert ran.seconds == pytest.approx(100 / SMALL.rate)
    assert ran.unit_transmission == pytest.approx(52.5)


def test_a_place_has_measured_and_reckoned_lines_that_agree() -> None:
    lines = points_of(SMALL, 6_000)
    assert set(lines) == {SPJ, SMJ, LEAN, STEADY, *paper_semijoin.BY_FORMULA.values()}
    formula = paper_semijoin.BY_FORMULA
    assert lines[SPJ].transmission == pytest.approx(lines[formula[SPJ]].transmission)
    assert lines[SMJ].transmission == pytest.approx(lines[STEADY].transmission, rel=0.05)
    assert lines[LEAN].transmission <= lines[SMJ].transmission
    smj = lines[SMJ]
    assert smj.messages is not None and smj.processing is not None and smj.processing > 0
    assert smj.messages["reply"] == smj.messages["ask one"] + smj.messages["ask all"]
    assert smj.results == lines[SPJ].results and smj.mixed


def test_larger_blocks_have_no_formula_and_fewer_messages() -> None:
    one, ten = (points_of(replace(SMALL, block=block), name="block") for block in (1, 10))
    assert set(ten) == {SPJ, SMJ, LEAN}
    for line in ten:
        counts = [sum((points[line].messages or {}).values()) for points in (one, ten)]
        assert counts[0] > 2 * counts[1] > 0


def test_joins_that_disagree_stop_the_benchmark() -> None:
    arrivals = paper_semijoin_runs.draw(SMALL, 200, 0)
    ran = paper_semijoin_runs.run(SMJ, SMALL, arrivals, 10)
    paper_semijoin_runs.agree("same", [ran, ran])
    with pytest.raises(Disagreement, match="results differ"):
        paper_semijoin_runs.agree("other", [ran, replace(ran, mark=ran.mark + 1)])


def test_steps_take_time() -> None:
    steps = paper_semijoin_runs.steps(SMALL, 500, 0)
    assert min(steps.probe_first, steps.probe_all, steps.update, steps.replace) > 0


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--quick", "--json", "--plot", str(tmp_path / "all.png")) == 0
    told = json.loads(capsys.readouterr().out)
    assert {point["experiment"] for point in told["points"]} == set(EXPERIMENTS)
    assert (tmp_path / "all.png").stat().st_size > 10_000


def test_the_table() -> None:
    points = list(points_of(SMALL, 200).values())
    text = paper_semijoin.table(points, STEPS)
    assert all(line in text for line in paper_semijoin.SHOWN)
    assert "52.50" in text
    blocks = list(points_of(replace(SMALL, block=5), 200, "block").values())
    assert "block" in paper_semijoin.table(blocks, STEPS)


def test_a_plot_has_a_panel_for_each_experiment_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "some.svg"
    paper_semijoin_plot.draw(list(points_of(SMALL, 200).values()), path)
    text = path.read_text()
    assert "distinct values" in text and "window, tuples" not in text


@pytest.mark.parametrize("words", [("--repeat", "0"), ("--seed", "-1"), ("--plot", "x.txt")])
def test_bad_arguments(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        run(*words)
