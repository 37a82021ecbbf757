"""The cost model of docs/SCALE.md: it counts copies as layouts do, and fits what is there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sparks import cluster, needs_campaign, needs_spark

from matwin.scheduler.division import Sample, expected
from matwin.scheduler.layout import ANCHOR, Halo, Layout
from matwin.tools.bench.scale_model import (
    Cluster,
    Costs,
    Run,
    even_replication,
    outlook,
    replication,
)
from matwin.tools.cli import main

COSTS = Costs(start=0.5, task=0.1, row=1e-6, result=3e-7)


def runs(costs: Costs) -> list[Run]:
    sizes = [(1e5, 1e5, 2), (2e5, 1e5, 2), (2e5, 2e6, 4), (2e5, 2e5, 8), (5e5, 2e6, 4)]
    plain = [Run(rows, results, parts, 2) for rows, results, parts in sizes]
    return [Run(r.shuffled_rows, r.results, r.parts, 2, costs.seconds(r)) for r in plain]


@pytest.mark.parametrize("row", [1e-6, 0.0])
def test_the_fit_finds_the_costs_that_made_the_runs(row: float) -> None:
    made = Costs(COSTS.start, COSTS.task, row, COSTS.result)
    found = Costs.fitted(runs(made))
    for name in ("start", "task", "row", "result"):
        assert getattr(found, name) == pytest.approx(getattr(made, name), abs=1e-9)


@given(st.lists(st.floats(0.05, 20), min_size=5, max_size=5))
def test_no_cost_is_negative_whatever_was_measured(seconds: list[float]) -> None:
    measured = [
        Run(run.shuffled_rows, run.results, run.parts, run.slots, taken)
        for run, taken in zip(runs(COSTS), seconds, strict=True)
    ]
    found = Costs.fitted(measured)
    assert min(found.start, found.task, found.row, found.result) >= 0


@given(
    values=st.lists(st.integers(0, 200), min_size=1, max_size=60),
    bounds=st.sets(st.integers(1, 199), max_size=6).map(sorted),
    lo=st.integers(-30, 30), width=st.integers(0, 40),
)  # fmt: skip
def test_copies_are_those_of_a_layout(
    values: list[int], bounds: list[int], lo: int, width: int
) -> None:
    times, hi = np.sort(values), lo + width
    sample = Sample(times, np.zeros(len(times), np.int64), np.ones(len(times)))
    halos: dict[str, Any] = {"left": ANCHOR, "right": Halo(lo, hi)}
    samples = {"left": sample, "right": sample}
    plan = expected(Layout.of_strips(tuple(bounds)), halos, samples, 2, "")
    share = lambda value: float(np.searchsorted(times, value, side="left")) / len(times)  # noqa: E731
    found = float(plan.loads["right"].sum()) / len(times)
    assert found == pytest.approx(replication(bounds, lo, hi, share))


def test_even_rows_are_a_special_case() -> None:
    share = lambda value: min(max(value / 1000, 0.0), 1.0)  # noqa: E731
    bounds = [250, 500, 750]
    assert replication(bounds, -10, 10, share) == pytest.approx(even_replication(4, 20, 1000))


def test_more_machines_take_less_time_and_send_the_same() -> None:
    asked: dict[str, Any] = {
        "rows": 1e9, "results": 1e9, "row_bytes": 20.0, "reach": 120.0, "span": 1e7,
        "largest_part": 4e6, "most_parts": 2_500,
    }  # fmt: skip
    few, many = (outlook(COSTS, Cluster(n, 4, 1e9), **asked) for n in (5, 10))
    assert few.parts == many.parts == 250
    assert few.shuffle_bytes == many.shuffle_bytes
    assert many.network_seconds == pytest.approx(few.network_seconds / 2)
    assert many.compute_seconds < 0.6 * few.compute_seconds


@needs_campaign
@needs_spark
@pytest.mark.spark
def test_the_command_finds_the_copies_that_the_model_says(
    capfd: pytest.CaptureFixture[str],
) -> None:
    cluster()
    assert main(["bench", "scale", "--rows", "2000", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    for copies in found["copies"]:
        assert copies["measured"] == pytest.approx(copies["model"], rel=0.01)
    assert found["big"]["parts"] == 2_500
