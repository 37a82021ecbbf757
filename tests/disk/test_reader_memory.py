"""Wide rows and nasty files: every reader and every join, with ten times the budget a side, in a
control group of the budget and 250 MB, the libraries and the page cache included."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from nasty import FILES, FRAMES, JOINS, MADE, MB, MORE_JOINS, run, written
from proofs import tried
from support import call_in_child, campaign, memory_limit

pytestmark = [pytest.mark.disk, pytest.mark.slow]

BUDGET = 8 * 2**20
BESIDE = 250 * MB
USUAL = [
    ("parquet", "window", 100_000), ("parquet plain", "narrow", 100_000),
    ("ipc stream lz4", "epsilon", 10_000), ("csv", "narrow", 200_000),
    ("stream", "window", 1_000_000), ("dataset", "window", 100_000),
    ("dataset filter", "window", 10_000), ("dataset csv", "window", 10_000),
    ("dataset ipc", "window", 10_000), ("dataset json", "window", 10_000),
    ("dataset orc", "window", 100_000), ("lazy parquet", "window", 10_000),
]  # fmt: skip
MANY = (
    [(kind, join, 10_000) for kind in (*FILES, *MADE) for join in JOINS]
    # DuckDB works on 2,048 rows at a time, so much wider ones are too much for itself.
    + [
        (kind, join, width)
        for kind in (*FILES, *MADE)
        for join in ("epsilon", "window")
        for width in (100_000, 900_000)
        if kind != "duckdb" and "columns" not in kind
    ]
    + [
        (kind, join, 100_000)
        for kind in ("parquet", "csv", "ipc file lz4", "jsonl", "generator")
        for join in MORE_JOINS
    ]
)
CASES = [(*case, BUDGET, 10 * BUDGET // case[2]) for case in (MANY if campaign(0, 1) else USUAL)]
# 84 MB are too little for Polars to be killed.
CASES += [("lazy ipc", "window", 10_000, 2 * BUDGET, 20 * BUDGET // 10_000)]
LARGE = [
    ("parquet", "window", 10_000, 64, 40_000), ("parquet", "epsilon", 100_000, 64, 4_000),
    ("parquet plain", "window", 1_000_000, 64, 300), ("parquet", "best full", 1_000_000, 64, 300),
    ("parquet columns", "window", 80_000, 64, 1_500),
    ("ipc file lz4", "window", 10_000, 40, 40_000), ("ipc stream", "epsilon", 10_000, 40, 40_000),
    ("csv.gz", "window", 900_000, 64, 700), ("dicts", "window", 1_000_000, 64, 640),
    ("generator", "epsilon", 1_000_000, 72, 640), ("generator", "best left", 1_000_000, 72, 640),
    ("duckdb", "window", 40_000, 16, 4_000),
    # The caller has these rows in memory, as many as fit the control group.
    ("pandas", "window", 10_000, 8, 4_000), ("polars", "window", 10_000, 8, 4_000),
]  # fmt: skip
if campaign(0, 1):
    CASES += [(*case[:3], case[3] * 2**20, case[4]) for case in LARGE]


@pytest.mark.proof("memory: wide rows and nasty files in a cgroup")
@pytest.mark.parametrize(("kind", "join", "width", "budget", "rows"), CASES)
def test_inside_a_memory_cgroup(
    tmp_path: Path, kind: str, join: str, width: int, budget: int, rows: int
) -> None:
    """It finishes with the right count, or says before the first row which budget it needs, which
    is then enough; nobody is killed, and no more is counted than the budget."""
    if kind in FRAMES and importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    path = call_in_child(written, kind, str(tmp_path), rows, width) if kind in FILES else ""
    told = _limited(budget, kind, join, path, rows, width)
    tried()
    few = 20_000 if kind == "parquet late" else 0
    if told["smallest"] and campaign(0, 1):
        assert told["rows"] == 0, told
        told = _limited(told["smallest"], kind, join, path, rows, width)
    assert told["rows"] == rows + few, told
    assert told["over"] <= 0, told
    assert told["process"] > 0


@pytest.mark.parametrize("join", ["window", "epsilon"])
@pytest.mark.parametrize("kind", ["csv", "dataset csv", "dataset json"])
def test_rows_of_nearly_a_megabyte_of_text_are_not_read_ahead(
    tmp_path: Path, kind: str, join: str
) -> None:
    """No more than the budget and 120 MB beside the libraries: 32 blocks ahead took 60 more."""
    path = call_in_child(written, kind, str(tmp_path), 90, 900_000) if kind in FILES else ""
    told = call_in_child(run, kind, join, path, 90, 900_000, BUDGET)
    assert told["rows"] == 90, told
    assert told["grown"] <= BUDGET // MB + 120, told


def _limited(budget: int, *case: Any) -> dict[str, Any]:
    """Run a case in a control group.  Who is killed may have compiled kernels, which takes more
    than the group has: it has another try once they are kept."""
    for _ in range(2):
        with memory_limit(budget + BESIDE) as group:
            try:
                return call_in_child(run, *case, budget, before=group.enter)  # type: ignore[no-any-return]
            except AssertionError as e:
                error = e
        call_in_child(run, *case, budget)
    raise error
