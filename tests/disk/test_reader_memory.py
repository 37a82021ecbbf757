"""Wide rows and nasty files: every reader and every join, with ten times the budget a side, in a
control group of the budget and 250 MB, the libraries and the page cache included."""

from __future__ import annotations

from pathlib import Path

import pytest
from nasty import FILES, JOINS, MADE, MB, run, written
from proofs import tried
from support import call_in_child, campaign, memory_limit

pytestmark = [pytest.mark.disk, pytest.mark.slow]

BUDGET = 8 * 2**20
BESIDE = 250 * MB
USUAL = [
    ("parquet", "window", 100_000), ("parquet plain", "narrow", 100_000),
    ("ipc stream lz4", "epsilon", 10_000), ("csv", "narrow", 900_000),
    ("stream", "window", 1_000_000),
]  # fmt: skip
MANY = [(kind, join, 10_000) for kind in (*FILES, *MADE) for join in JOINS] + [
    # DuckDB works on 2,048 rows at a time, so much wider ones are too much for itself.
    (kind, join, width)
    for kind in (*FILES, *MADE)
    for join in ("epsilon", "window")
    for width in (100_000, 900_000)
    if kind != "duckdb" and "columns" not in kind
]
CASES = MANY if campaign(0, 1) else USUAL


@pytest.mark.proof("memory: wide rows and nasty files in a cgroup")
@pytest.mark.parametrize(("kind", "join", "width"), CASES)
def test_inside_a_memory_cgroup(tmp_path: Path, kind: str, join: str, width: int) -> None:
    """It finishes with the right count, or says beforehand why not; nobody is killed."""
    rows = 10 * BUDGET // width
    path = call_in_child(written, kind, str(tmp_path), rows, width) if kind in FILES else ""
    with memory_limit(BUDGET + BESIDE) as group:
        told = call_in_child(run, kind, join, path, rows, width, BUDGET, before=group.enter)
    tried()
    few = 20_000 if kind == "parquet late" else 0
    is_refused = told["error"].startswith("BudgetError") and told["rows"] == 0
    assert told["rows"] == rows + few or (is_refused and CASES is MANY), told
    assert told["process"] > 0
