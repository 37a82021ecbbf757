"""The same rows whatever the budget, and never more counted than the budget.

Tables of some thousand rows against themselves in memory with room to spare (which
`test_joins.py` holds against a nested loop): in slabs, on pages, sorted out by a store.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from questions import as_bag

import matwin
from matwin import paging
from matwin.judge import Judge
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
    assert 0 < report.pairs_visited == report.pairs_planned


@pytest.mark.parametrize("is_nearest", [True, False])
@pytest.mark.parametrize(("how", "best"), [*((h, True) for h in BEST), *((h, False) for h in ALL)])
def test_all_pages_that_are_held_are_judged_in_one_call(
    how: str, best: bool, is_nearest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of several runs and cells at once, by their values and by the nearest of them.

    With fewer rows, or less memory for them, nothing is read again or too few pages are held.
    """
    left, right = table(4000, 5), table(5000, 6)
    wide = 2000 if best else 200  # all pairs of a wide one would be millions
    on = {"t": wide} if is_nearest else {"t": wide, "x": 0.1}
    pieces, searched = [], Judge.search

    def noted(self: Any, probe: Any, base: Any, *a: Any, **options: Any) -> Any:
        pieces.append(1 if base.pieces is None else len(base.pieces))
        return searched(self, probe, base, *a, **options)

    monkeypatch.setattr(Judge, "search", noted)
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    ask = partial(join, left, right, on=on, by="k", how=how, threads=2)
    expected = as_bag(ask().read_all())
    assert set(pieces) == {1}
    for form in ("standard", "grid", "slab"):
        pieces.clear()
        report = Report()
        found = ask(memory="1MiB", page_size="4KiB", materialize=form, report=report).read_all()
        assert max(pieces) >= 3, form
        assert as_bag(found) == expected, form
        assert report.pairs_visited == report.pairs_planned, form
        assert report.peak_bytes <= 2**20, form


@pytest.mark.parametrize("schedule", ["crabstep", "lookahead"])
@pytest.mark.parametrize("share", [600, 5000])
@pytest.mark.parametrize(
    ("how", "best"),
    [("left", True), ("full", True), ("inner", True), ("left", False), ("semi", False)],
)
def test_partial_results_are_put_down_and_pages_are_read_as_planned(
    how: str, best: bool, share: int, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever room there is, every pair of pages is visited once."""
    left, right = table(1500, 5), table(1500, 6)
    expected, _ = joined(how, left, right, best=best)
    _cramp(monkeypatch, share)
    found, report = joined(
        how, left, right, best=best, materialize="slab", schedule=schedule, **SMALL
    )
    assert found == expected
    assert report.pairs_visited == report.pairs_planned > 0
    assert report.peak_bytes <= SMALL["memory"]
    is_down = any("put down" in decision for decision in report.decisions)
    assert is_down or share > 600


def test_what_black_boxes_compare_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets can't be put down as numbers."""
    random = np.random.default_rng(3)

    def sets(seed: int) -> pa.Table:
        tags = [random.choice(4, random.integers(1, 4), replace=False).tolist() for _ in range(300)]
        return table(300, seed).append_column("s", pa.array(tags, pa.list_(pa.int64())))

    left, right = sets(1), sets(2)
    ask = partial(
        matwin.bestmatch_join, left, right, on={"t": 300, "s": None}, orders={"s": "subset"}
    )
    expected = as_bag(ask().read_all())
    _cramp(monkeypatch, 20_000)
    report = Report()
    found = ask(materialize="slab", schedule="lookahead", report=report, **SMALL).read_all()
    assert as_bag(found) == expected
    assert any("put down" in decision for decision in report.decisions)


def _cramp(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    """Leave so many bytes for partial results."""
    made = paging.Shares.of.__func__
    monkeypatch.setattr(
        paging.Shares, "of",
        classmethod(lambda cls, *a: paging.replace(made(cls, *a), partial_bytes=share)),
    )  # fmt: skip


def test_ties_that_outgrow_their_share_go_a_few_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All times are equal and so are all distances: every pair is best, and none can be dropped."""
    left = pa.table({"t": np.zeros(300, np.int64), "i": np.arange(300)})
    right = pa.table({"t": np.zeros(400, np.int64), "j": np.arange(400)})
    _cramp(monkeypatch, 24 * 2000)
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
    _cramp(monkeypatch, 24 * 3)
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
