"""Joins in parts against the same joins in memory: every row once, whatever divides them.

The budgets are so small that a few thousand rows are divided, divided again, and walked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign

import matwin

SMALL = {"memory": "256KiB", "page_size": "4KiB"}
BESTS = ("left", "right", "full", "inner")
EPSILONS = ("inner", "left", "right", "full", "semi", "anti")
JOINS = [("best", how) for how in BESTS] + [("epsilon", how) for how in EPSILONS]


def side(rng: np.random.Generator, shape: str, rows: int) -> pa.Table:
    """Rows that lie evenly, in one hot key, at one hot instant, or nearly sorted."""
    t = rng.integers(0, 4000, rows)
    k = rng.integers(0, 7, rows)
    if shape == "hot key":
        k = np.where(rng.random(rows) < 0.9, 3, k)
    elif shape == "hot instant":
        t = np.where(rng.random(rows) < 0.5, 1234, t)
    elif shape == "nearly sorted":
        t = np.sort(t)
        t[-2:] = t[:2]
    x = rng.random(rows) * 100
    return pa.table(
        {"t": t, "x": x, "k": k, "p": ["p" * int(n) for n in rng.integers(0, 40, rows)]}
    )


def joined(kind: str, left: Any, right: Any, **asked: Any) -> tuple[pa.Table, matwin.Report]:
    report = matwin.Report()
    join = matwin.bestmatch_join if kind == "best" else matwin.epsilon_join
    return join(left, right, report=report, **asked).read_all(), report


@pytest.mark.parametrize("shape", ["even", "hot key", "hot instant", "nearly sorted"])
@pytest.mark.parametrize(("kind", "how"), JOINS)
def test_the_same_rows_as_in_memory(kind: str, how: str, shape: str) -> None:
    for seed in range(campaign(1, 40)):
        rng = np.random.default_rng(seed)
        left, right = (side(rng, shape, int(rng.integers(1500, 2500))) for _ in range(2))
        on = [{"t": 4, "x": 3.0}, {"x": 0.5, "t": (0, 60)}, {"t": (1, 9)}][(seed + len(how)) % 3]
        keeps = {"keep_unmatched": True} if kind == "best" and how != "inner" else {}
        for by in (None, "k"):
            asked = {"on": on, "how": how, "by": by, **keeps}
            expected, _ = joined(kind, left, right, **asked)
            found, report = joined(kind, left, right, **asked, **SMALL)
            assert as_bag(found) == as_bag(expected), (seed, by, report.decisions)
            assert report.peak_bytes <= report.budget_bytes
            report.check()


@given(st.integers(0, 2**32), st.integers(2, 4), st.booleans())
@settings(max_examples=campaign(6, 300), deadline=None)
def test_window_joins(seed: int, streams: int, is_keyed: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = ["even", "hot key", "nearly sorted"][seed % 3]
    given_ = {name: side(rng, shape, 1000) for name in "abcd"[:streams]}
    asked = {"time": "t", "windows": 3 if is_keyed else 1, "by": "k" if is_keyed else None}
    expected = matwin.window_join(given_, **asked).read_all()
    report = matwin.Report()
    found = matwin.window_join(given_, report=report, **asked, **SMALL).read_all()
    assert as_bag(found) == as_bag(expected), report.decisions
    assert report.peak_bytes <= report.budget_bytes


def decisions(left: pa.Table, right: pa.Table, **asked: Any) -> list[str]:
    return joined("epsilon", left, right, **asked, **SMALL)[1].decisions


def test_rows_are_cut_by_the_attribute_that_makes_the_fewest_copies() -> None:
    rng = np.random.default_rng(0)
    left, right = side(rng, "even", 3000), side(rng, "even", 3000)
    assert any("strips of x" in d for d in decisions(left, right, on={"t": 400, "x": 0.1}))
    assert any("strips of t" in d for d in decisions(left, right, on={"t": 1, "x": 20.0}))
    assert any("keys by hash" in d for d in decisions(left, right, on={"t": 400}, by="k"))


def test_what_turns_out_too_large_is_divided_again() -> None:
    """A source that is read once begins unlike it ends, so its last strip gets too many rows."""
    rows = side(np.random.default_rng(1), "even", 3000)
    rows = rows.append_column("early", pa.array(rows["t"].to_numpy() < 1000))
    rows = rows.sort_by([("early", "descending")]).drop_columns(["early"])
    once = [
        pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=100))
        for _ in range(2)
    ]
    found, report = joined("epsilon", *once, on={"t": 1}, **SMALL)
    assert as_bag(found) == as_bag(joined("epsilon", rows, rows, on={"t": 1})[0])
    assert any("one of them does not fit" in d for d in report.decisions), report.decisions


def test_what_nothing_divides_is_walked() -> None:
    """All rows of both sides at one instant."""
    left = pa.table({"t": np.zeros(3000, np.int64), "n": np.arange(3000)})
    found, report = joined("epsilon", left, left, on={"t": 0}, how="semi", **SMALL)
    assert sorted(found["n"].to_pylist()) == list(range(3000))
    assert any(d.startswith("pages: ") for d in report.decisions), report.decisions
    assert report.pages_read > 0


def test_the_same_bytes_however_often() -> None:
    """Two parts are under way at a time, and still the order of the results is the rows' own."""
    rng = np.random.default_rng(2)
    left, right = side(rng, "even", 3000), side(rng, "even", 3000)
    first, *others = (
        joined("best", left, right, on={"t": 4, "x": 3.0}, threads=2, **SMALL)[0] for _ in range(3)
    )
    assert all(first.equals(other) for other in others)
