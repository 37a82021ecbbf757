"""One match of a row is one, wherever its candidates come from and in whatever pieces.

Rows with hundreds of equal matches in a budget of a few pages: what a row has found is handed over,
merged, put down and read back in many pieces, and the rule for ties holds for the whole row.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin

SMALL: dict[str, Any] = {"memory": "128KiB", "page_size": "4KiB"}
FORMS = ("standard", "grid", "slab")
SCHEDULES = ("auto", "gallop", "crabstep", "lookahead")


def table(name: str, rows: int, values: int, seed: int, *, is_sorted: bool = False) -> pa.Table:
    chance = np.random.default_rng(seed)
    times = chance.integers(0, values, rows)
    times = np.sort(times) if is_sorted else times
    return pa.table({"t": times, "x": chance.integers(0, 4, rows), name: np.arange(rows)})


def once_each(found: pa.Table, rows: int) -> None:
    """Every left row came out, once."""
    assert Counter(found["a"].to_pylist()) == Counter(range(rows))


@pytest.mark.parametrize("rows", [100, 2000])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ties", ["first", "last"])
def test_of_equal_rows_one_is_kept(rows: int, schedule: Any, ties: Any) -> None:
    left, right = pa.table({"t": [0]}), pa.table({"t": [0] * rows, "rid": range(rows)})
    wanted = [0 if ties == "first" else rows - 1]
    near = matwin.asof_join(left, right, on="t", ties=ties, schedule=schedule, **SMALL)
    assert near.to_arrow()["rid"].to_pylist() == wanted
    best = matwin.bestmatch_join(left, right, on={"t": 1}, ties=ties, schedule=schedule, **SMALL)
    assert best.to_arrow()["rid"].to_pylist() == wanted


def test_of_equal_rows_one_is_kept_where_pages_are_asked_for(tmp_path: Path) -> None:
    rows = 70_000
    left, right = pa.table({"t": [0]}), pa.table({"t": [0] * rows, "rid": range(rows)})
    found = matwin.asof_join(left, right, on="t", trace=tmp_path / "trace.arrow").to_arrow()
    assert found["rid"].to_pylist() == [rows - 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ties", ["first", "last", ("x", "last")])
def test_every_row_has_one_best_match(
    form: Any, schedule: Any, ties: Any, tmp_path: Path
) -> None:  # fmt: skip
    """What the memory finds, however pages lie and whenever they are visited."""
    left, right = table("a", 2500, 300, 1), table("b", 2500, 300, 2)
    asked: dict[str, Any] = {"on": {"t": 8, "x": 2}, "ties": ties, "keep_unmatched": True}
    pages: dict[str, Any] = {"materialize": form, "schedule": schedule, "page_size": "4KiB"}
    trace = tmp_path / "trace.arrow"
    found = matwin.bestmatch_join(left, right, memory="512KiB", trace=trace, **pages, **asked)
    found = found.to_arrow()
    once_each(found, left.num_rows)
    wanted = matwin.bestmatch_join(left, right, **asked).to_arrow()
    assert found.sort_by("a").equals(wanted.sort_by("a"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tolerance", [30, 300])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_every_row_of_a_live_stream_comes_once(form: Any, tolerance: int, ties: Any) -> None:
    left = table("a", 6000, 2000, 3, is_sorted=True)
    right = table("b", 6000, 2000, 4, is_sorted=True)
    asked: dict[str, Any] = {"on": "t", "tolerance": tolerance, "ties": ties}
    streams = [matwin.stream(iter(side.to_batches(max_chunksize=500))) for side in (left, right)]
    found = matwin.asof_join(
        *streams, ordered=False, memory="256KiB", page_size="4KiB", materialize=form, **asked
    ).to_arrow()
    once_each(found, left.num_rows)
    assert found.sort_by("a").equals(matwin.asof_join(left, right, **asked).to_arrow())


@pytest.mark.parametrize("on", [{"t": 1}, {"t": 1, "x": 4}])
@pytest.mark.parametrize("ties", ["first", "last", ("t", "first")])
def test_ties_take_no_room(on: dict[str, Any], ties: Any) -> None:
    """A row holds one match for each place on its frontier, however many thousands tie there."""
    rows, few = 6000, 40
    left = pa.table({"t": [0] * few, "x": [0] * few, "a": range(few)})
    right = pa.table({"t": [0] * rows, "x": [0] * rows, "b": range(rows)})
    found = matwin.bestmatch_join(left, right, on=on, ties=ties, how="left", **SMALL)
    end = 0 if "first" in ties else rows - 1
    assert found.to_arrow()["b"].to_pylist() == [end] * few
    assert any(decision.startswith("pages") for decision in found.report.decisions)
    assert not any("put down" in decision for decision in found.report.decisions)


def test_ties_that_only_a_function_can_judge_take_no_room() -> None:
    """Pairs of the same values are asked about once."""
    asked: list[int] = []

    def nearer(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
        asked.append(1)
        return abs(one[1] - one[0]) <= abs(other[1] - other[0])

    rows = 1200
    left = pa.table({"t": [0, 0]})
    right = pa.table({"t": [1, 2] * (rows // 2), "b": range(rows)})
    found = matwin.bestmatch_join(
        left, right, on={"t": 3}, orders={"t": matwin.partial_order(nearer)}, ties="last", **SMALL
    )
    assert found.to_arrow()["b"].to_pylist() == [rows - 2] * 2
    assert len(asked) < rows
