"""Joins of files ten times the budget: the process stays near it, and inside a memory cgroup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import call_in_child, memory_limit, peak_begins_anew, resident

import matwin
from matwin.report import Report

pytestmark = [pytest.mark.disk, pytest.mark.slow]

MB = 10**6
ROWS, GROUP = 150_000, 25_000  # 6 MB a side
BUDGET = 2**20
PAGE = "32KiB"
WARM_ROWS = 20_000
MIXED = np.random.default_rng(9).permutation(WARM_ROWS)
WARM = pa.table(
    dict.fromkeys(("t", "id", "v", "w"), MIXED) | {"x": MIXED % 100 / 100}
)  # in no order, and more than the budget: every kernel that is measured runs on it first


def write(path: Path, seed: int, *, is_sorted: bool) -> None:
    """A file of rows, one group after the other."""
    random = np.random.default_rng(seed)
    with pq.ParquetWriter(path, _rows(random, 0, is_sorted).schema) as writer:
        for first in range(0, ROWS, GROUP):
            writer.write_table(_rows(random, first, is_sorted))


def _rows(random: Any, first: int, is_sorted: bool) -> pa.Table:
    spread = (first * 10, (first + GROUP) * 10) if is_sorted else (0, ROWS * 10)
    t = random.integers(*spread, GROUP)
    ids = np.arange(first, first + GROUP)
    columns = {"t": np.sort(t) if is_sorted else t, "x": random.random(GROUP)}
    return pa.table({**columns, "id": ids, "v": ids, "w": ids})


def join(folder: str, best: bool, how: str, memory: int) -> dict[str, Any]:
    """Join the two files; what came out and what it took."""
    run = matwin.bestmatch_join if best else matwin.epsilon_join
    small: dict[str, Any] = {"memory": BUDGET, "page_size": PAGE}
    few = WARM.slice(0, 8000)  # reaches the same kernels; slabs of more in no order take seconds
    for table, options in ((WARM, {}), (few, {"materialize": "slab", **small}), (WARM, small)):
        run(table, table, on={"t": 3, "x": 1.0}, how=how, **options).read_all()  # not measured
    peak_begins_anew()
    start = resident("VmRSS")
    told = joined(folder, best, how, memory)
    return {**told, "peak": resident("VmHWM") - start}


def joined(folder: str, best: bool, how: str, memory: int) -> dict[str, Any]:
    """What comes out of the join."""
    run, report = matwin.bestmatch_join if best else matwin.epsilon_join, Report()
    sides = [str(Path(folder) / f"{name}.parquet") for name in ("left", "right")]
    rows = total = 0
    options: dict[str, Any] = {"memory": memory, "page_size": PAGE}
    for batch in run(*sides, on={"t": 200, "x": 0.1}, how=how, report=report, **options):
        rows += batch.num_rows
        total += int(np.asarray(batch["id_left"]).sum() % 1_000_003)
    return {
        "rows": rows, "sum": total % 1_000_003, "counted": report.peak_bytes,
        "written": report.pages_written, "steps": report.steps,
    }  # fmt: skip


@pytest.fixture(scope="module", params=["sorted", "unsorted"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    for seed, name in enumerate(("left", "right")):
        write(made / f"{name}.parquet", seed, is_sorted=request.param == "sorted")
    return made


@pytest.mark.parametrize(
    ("best", "how"), [(True, "left"), (True, "full"), (True, "inner"), (False, "inner")]
)
def test_the_process_stays_near_the_budget(folder: Path, best: bool, how: str) -> None:
    told = call_in_child(join, str(folder), best, how, BUDGET)
    roomy = joined(str(folder), best, how, 2**31)  # here: nothing of it is measured
    assert told["rows"] == roomy["rows"] > 0
    assert told["sum"] == roomy["sum"]
    assert told["counted"] <= BUDGET
    assert told["peak"] <= BUDGET + 100 * MB, told
    is_sorted = folder.name.startswith("sorted")
    assert (told["written"] == 0) == is_sorted  # slabs fit, and nothing is written
    assert told["steps"] > 2 or not is_sorted
    assert roomy["written"] == 0


def test_inside_a_memory_cgroup(folder: Path) -> None:
    """12 MB of rows, a budget of 1 MiB, and the kernel kills whoever takes 384 MB in all, the
    libraries and the page cache included."""
    with memory_limit(384 * 2**20) as group:
        told = call_in_child(join, str(folder), True, "left", BUDGET, before=group.enter)
    assert told["rows"] > 0
