"""A task joins ten times its budget and more: its Python worker stays near the budget.

    worker  =  Python and its libraries      +  budget  +  batches from and to the JVM
               (Arrow, NumPy, LLVM, kernels)               10,000 rows each, and Arrow's free memory

A first join of few rows loads all of the first; what is resident then is where counting starts.
The peak is the kernel's own mark (`VmHWM`), read when the result is there, while the worker waits
for its next task.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import needs_campaign, needs_spark

import matwin

pytestmark = [
    needs_campaign, needs_spark, pytest.mark.spark, pytest.mark.disk, pytest.mark.slow,
]  # fmt: skip

MB = 10**6
ROWS, PAYLOAD_BYTES = 60_000, 1800
BUDGET = 16 * 2**20
BATCHES = 8 * 10_000 * PAYLOAD_BYTES
"""Spark sends 10,000 rows at a time: one batch on each side of a pipe, divided, joined, copied."""
LIBRARIES = 300 * MB
OPTIONS: dict[str, Any] = {"memory": BUDGET, "page_size": "64KiB"}
ON = {"t": ROWS // 3, "x": 3e-5}
"""Up to two thirds of the rows are within reach of each: windows of 72 MB."""


def side(spark: Any, name: str, rows: int = ROWS) -> Any:
    """Rows made by Spark itself; `t` and `x` scatter, and nothing is random."""
    factor = {"left": 7919, "right": 104_729}[name]
    return spark.range(rows).selectExpr(
        f"id * {factor} % {rows} AS t", f"id * {factor} % 99991 / 99991.0D AS x",
        f"id AS {name}", f"rpad(string(id), {PAYLOAD_BYTES}, '{name}') AS payload_{name}",
    )  # fmt: skip


def table(name: str) -> pa.Table:
    """The same rows without the payload."""
    factor = {"left": 7919, "right": 104_729}[name]
    ids = np.arange(ROWS)
    return pa.table({"t": ids * factor % ROWS, "x": ids * factor % 99_991 / 99_991.0, name: ids})


def pairs(joined: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(*(joined[name].to_pylist() for name in ("left", "right")), strict=True))


def parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    return found


def workers() -> list[Path]:
    """The folders in /proc of Python processes that executors of this process have started."""
    tree = parents()
    found = []
    for pid in tree:
        ancestor = pid
        while ancestor in tree and ancestor != os.getpid():
            ancestor = tree[ancestor]
        folder = Path("/proc", str(pid))
        if ancestor == os.getpid() and b"pyspark.daemon" in (folder / "cmdline").read_bytes():
            found.append(folder)
    return found


def resident(name: str) -> int:
    """The most of any worker: now (`VmRSS`) or at its peak (`VmHWM`)."""
    lines = [line for folder in workers() for line in (folder / "status").open()]
    return max(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def test_a_task_stays_near_its_budget(spark: Any) -> None:
    def joined(rows: int) -> Any:
        sides = [side(spark, name, rows) for name in ("left", "right")]
        return matwin.spark.bestmatch_join(*sides, on=ON, strips=1, ship="full", **OPTIONS)

    joined(5000).count()
    start = resident("VmRSS")
    found = joined(ROWS).select("left", "right").toArrow()
    peak = resident("VmHWM")
    assert 2 * ROWS * PAYLOAD_BYTES > 10 * BUDGET
    told = f"{start / MB:.0f} MB before, {peak / MB:.0f} MB at the peak"
    assert peak - start < BUDGET + BATCHES, told
    assert peak < LIBRARIES + BUDGET + BATCHES, told
    expected = matwin.bestmatch_join(table("left"), table("right"), on=ON).read_all()
    assert pairs(found) == pairs(expected)
    assert len(pairs(found)) > ROWS // 2
