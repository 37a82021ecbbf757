"""The page size that a small budget gets by itself; errors stay for one that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from questions import as_bag

import matwin
from matwin.options import Options
from matwin.report import Report
from matwin.storage import BudgetError


@pytest.mark.parametrize(
    ("memory", "kib"), [("128KiB", 4), ("2MiB", 64), ("4MiB", 128), ("8MiB", 256), ("1GiB", 256)]
)
def test_the_largest_page_that_the_memory_can_work_with(memory: str, kib: int) -> None:
    assert Options(memory=memory).page_bytes == kib << 10


def test_what_no_page_fits_and_what_was_asked_for_are_errors() -> None:
    with pytest.raises(BudgetError, match="128 KiB"):
        Options(memory="127KiB")
    with pytest.raises(BudgetError, match="8 MiB"):
        Options(memory="2MiB", page_size="256KiB")


def rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    t, k = random.integers(0, 40_000, 20_000), random.integers(0, 500, 20_000)
    return pa.table({"t": t, "x": random.random(20_000), "k": k, "s": [f"row {n}" for n in k]})


LEFT, RIGHT = rows(1), rows(2)


@pytest.mark.parametrize("join", ["best left", "best full", "epsilon full", "semi", "window"])
def test_joins_of_small_budgets_need_no_page_size(join: str) -> None:
    def ask(**options: Any) -> pa.RecordBatchReader:
        kind, _, how = join.partition(" ")
        if kind == "window":
            streams = {"a": LEFT, "b": RIGHT}
            return matwin.window_join(streams, time="t", windows=60, by="k", **options)
        if kind == "best":
            return matwin.bestmatch_join(LEFT, RIGHT, on={"t": 9, "x": 0.2}, how=how, **options)
        return matwin.epsilon_join(LEFT, RIGHT, on={"t": 9, "x": 0.1}, how=how or kind, **options)

    report = Report()
    assert as_bag(ask(memory="512KiB", report=report).read_all()) == as_bag(ask().read_all())
    assert 0 < report.peak_bytes <= 512 << 10
