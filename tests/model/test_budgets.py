"""The same rows whatever the budget, and never more counted than the budget.

Tables of some thousand rows against themselves in memory with room to spare (which
`test_joins.py` holds against a nested loop): in slabs, on pages, in halves, sorted out by a store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from questions import as_bag

import matwin
from matwin import paging
from matwin.report import Report
from matwin.storage import BudgetError

SMALL = {"page_size": "4KiB", "memory": 32 * 4096}
BEST = ("left", "right", "full", "inner")
ALL = ("inner", "left", "right", "full", "semi", "anti")


def table(rows: int, seed: int, *, is_sorted: bool = False, ties: int = 1 << 20) -> pa.Table:
    random = np.random.default_rng(seed)
    t = random.integers(0, min(rows * 4, ties), rows)
    columns = {
        "t": np.sort(t) if is_sorted else t,
        "x": np.round(random.random(rows), 2),
        "k": pa.array(random.choice(["red", "green", None], rows, p=[0.6, 0.3, 0.1]).tolist()),
        "name": pa.array([f"row {i}" for i in random.integers(0, rows, rows)]),
    }
    return pa.table(columns)


def joined(how: str, left: Any, right: Any, *, best: bool, **options: Any) -> tuple[Any, Report]:
    report = Report()
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    reader = join(
        left, right, on={"t": 40, "x": 0.2}, by="k", how=how, report=report, threads=2, **options
    )
    found = reader.read_all()
    report.check()
    return as_bag(found), report


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize(("how", "best"), [*((h, True) for h in BEST), *((h, False) for h in ALL)])
def test_small_budgets_give_the_same_rows(how: str, best: bool, is_sorted: bool) -> None:
    left, right = (table(4000, seed, is_sorted=is_sorted) for seed in (1, 2))
    expected, _ = joined(how, left, right, best=best)
    found, report = joined(how, left, right, best=best, **SMALL)
    assert found == expected
    assert report.peak_bytes <= SMALL["memory"]
    assert report.steps > 1 or report.pages_written > 0


@pytest.mark.parametrize("how", BEST)
def test_sorted_inputs_go_slab_by_slab_and_nothing_is_written(how: str) -> None:
    left, right = (table(4000, seed, is_sorted=True) for seed in (1, 2))
    _, report = joined(how, left, right, best=True, **SMALL)
    assert report.steps > 2
    assert report.pages_written == 0
    assert any("slab by slab" in decision for decision in report.decisions)


@pytest.mark.parametrize("how", ["left", "full", "semi"])
@pytest.mark.parametrize("columns", [3, 200])
def test_sorted_portions_that_take_more_than_expected(how: str, columns: int) -> None:
    """A portion that takes more than the memory has left is not left out of the step that makes
    room for it, though its feed has told already how far it goes."""
    ids = np.arange(2000)
    widths = [3000 if n > 300 and n % 37 == 0 else n % 5 for n in ids.tolist()]
    payload = {f"c{number}": ids for number in range(columns)}
    table = pa.table({"t": ids, "p": ["p" * width for width in widths], **payload})
    join = matwin.epsilon_join if how == "semi" else matwin.bestmatch_join
    for memory in range(1024, 2048, 256):
        found = join(
            table, table, on={"t": 0}, how=how, memory=f"{memory}KiB", page_size="32KiB"
        ).read_all()
        times = found["t" if how == "semi" else "t_left"].to_pylist()
        assert sorted(times) == ids.tolist(), memory


def test_a_window_wider_than_the_memory_is_paged() -> None:
    left, right = (table(3000, seed, is_sorted=True, ties=100) for seed in (1, 2))
    expected, _ = joined("left", left, right, best=True)
    found, report = joined("left", left, right, best=True, **SMALL)
    assert found == expected
    assert report.pages_written > 0
    assert report.peak_bytes <= SMALL["memory"]


@pytest.mark.parametrize("schedule", ["gallop", "crabstep", "lookahead", "auto"])
@pytest.mark.parametrize("materialize", ["standard", "grid", "slab"])
def test_every_layout_and_schedule(materialize: str, schedule: str) -> None:
    left, right = table(2500, 3), table(2500, 4)
    expected, _ = joined("left", left, right, best=True)
    found, report = joined(
        "left", left, right, best=True, materialize=materialize, schedule=schedule, **SMALL
    )
    assert found == expected
    assert 0 < report.pairs_visited <= report.pairs_planned  # fewer where a walk is broken off


def test_partial_results_that_outgrow_their_share_are_judged_in_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All times are equal and so are all distances: every pair is best, and none can be dropped."""
    left = pa.table({"t": np.zeros(300, np.int64), "i": np.arange(300)})
    right = pa.table({"t": np.zeros(400, np.int64), "j": np.arange(400)})
    made = paging.Shares.of.__func__

    def cramped(cls: Any, *arguments: Any) -> Any:
        shares = made(cls, *arguments)
        return paging.replace(shares, partial_bytes=24 * 2000)

    monkeypatch.setattr(paging.Shares, "of", classmethod(cramped))
    report = Report()
    found = matwin.bestmatch_join(
        left, right, on={"t": 1}, materialize="slab", report=report, **SMALL
    ).read_all()
    assert found.num_rows == 300 * 400
    assert len(set(zip(found["i"].to_pylist(), found["j"].to_pylist(), strict=True))) == 300 * 400
    assert report.pairs_visited > 1


def test_best_matches_of_a_row_that_fit_nowhere_are_a_budget_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = paging.Shares.of.__func__
    monkeypatch.setattr(
        paging.Shares, "of",
        classmethod(lambda cls, *a: paging.replace(made(cls, *a), partial_bytes=24 * 3)),
    )  # fmt: skip
    rows = pa.table({"t": np.zeros(9, np.int64)})
    reader = matwin.bestmatch_join(rows, rows, on={"t": 1}, materialize="slab", **SMALL)
    with pytest.raises(BudgetError, match="a single row"):
        reader.read_all()


def test_the_same_input_gives_the_same_bytes() -> None:
    left, right = table(3000, 7), table(3000, 8)
    for options in ({}, {**SMALL, "schedule": "crabstep"}, {**SMALL, "materialize": "grid"}):
        runs = [
            matwin.bestmatch_join(
                left, right, on={"t": 40, "x": 0.2}, threads=2, **options
            ).read_all()
            for _ in range(2)
        ]
        assert runs[0].equals(runs[1])
