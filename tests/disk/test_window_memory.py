"""Window joins of files ten times the budget: near the budget, and inside a memory cgroup."""

from __future__ import annotations

from collections.abc import Iterator
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
ROWS, GROUP = 300_000, 50_000
BUDGET = 2 * 2**20
PAGE = "64KiB"
CASES = {
    # unsorted files; sorted ones whose windows fit; sorted ones whose windows don't; one key
    "unsorted": {"is_sorted": False, "keys": 1000, "window": 5_000},
    "sorted": {"is_sorted": True, "keys": 10, "window": 50},
    "long windows": {"is_sorted": True, "keys": 30_000, "window": 150_000},
    "hot": {"is_sorted": False, "keys": 1, "window": 5},
}


def write(path: Path, seed: int, case: dict[str, Any]) -> None:
    """A file of rows, one group after the other."""
    random = np.random.default_rng(seed)
    with pq.ParquetWriter(path, _rows(random, 0, case).schema) as writer:
        for first in range(0, ROWS, GROUP):
            writer.write_table(_rows(random, first, case))


def _rows(random: Any, first: int, case: dict[str, Any]) -> pa.Table:
    spread = (first * 10, (first + GROUP) * 10) if case["is_sorted"] else (0, ROWS * 10)
    t = random.integers(*spread, GROUP)
    ids = np.arange(first, first + GROUP)
    keys = random.integers(0, case["keys"], GROUP)
    return pa.table({"t": np.sort(t) if case["is_sorted"] else t, "k": keys, "id": ids, "v": ids})


def join(folder: str, case: dict[str, Any], memory: int) -> dict[str, Any]:
    """Join the two files; what came out and what it took."""
    small = pa.table({name: np.arange(3000) for name in ("t", "k", "id", "v")})
    for options in ({}, {"materialize": "standard", "memory": BUDGET, "page_size": PAGE}):
        matwin.window_join(
            {"a": small, "b": small}, time="t", windows=9, by="k", **options
        ).read_all()  # compiled, not measured
    peak_begins_anew()
    start = resident("VmRSS")
    told = joined(folder, case, memory)
    return {**told, "peak": resident("VmHWM") - start}


def joined(folder: str, case: dict[str, Any], memory: int) -> dict[str, Any]:
    """What comes out of the join."""
    report = Report()
    streams = {name: str(Path(folder) / f"{name}.parquet") for name in "ab"}
    rows = total = 0
    for batch in matwin.window_join(
        streams, time="t", windows=case["window"], by="k", memory=memory, page_size=PAGE,
        report=report,
    ):  # fmt: skip
        rows += batch.num_rows
        total += int((np.asarray(batch["a_id"]) * 7 + np.asarray(batch["b_id"])).sum() % 1_000_003)
    return {
        "rows": rows, "sum": total % 1_000_003, "counted": report.peak_bytes,
        "written": report.pages_written,
    }  # fmt: skip


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("files")
    for seed, name in enumerate("ab"):
        write(made / f"{name}.parquet", seed, CASES[request.param])
    return request.param, made


def test_the_process_stays_near_the_budget(case: tuple[str, Path]) -> None:
    name, folder = case
    told = call_in_child(join, str(folder), CASES[name], BUDGET)
    roomy = joined(str(folder), CASES[name], 2**31)  # here: nothing of it is measured
    assert told["rows"] == roomy["rows"] > 0
    assert told["sum"] == roomy["sum"]
    assert told["counted"] <= BUDGET
    assert told["peak"] <= BUDGET + 60 * MB, told
    assert (told["written"] == 0) == (name == "sorted")  # slabs fit, and nothing is written
    assert roomy["written"] == 0


def test_inside_a_memory_cgroup(case: tuple[str, Path]) -> None:
    """The kernel kills whoever takes 320 MB in all, the libraries and the page cache included."""
    name, folder = case
    with memory_limit(320 * 2**20) as group:
        told = call_in_child(join, str(folder), CASES[name], BUDGET, before=group.enter)
    assert told["rows"] > 0


def stream_rows(seed: int) -> Iterator[pa.RecordBatch]:
    """A sorted stream without keys in common but a few."""
    random = np.random.default_rng(seed)
    for first in range(0, ROWS // 3, 4096):
        ids = np.arange(first, min(first + 4096, ROWS // 3))
        yield pa.record_batch({"t": ids, "k": random.integers(0, 50_000, len(ids)), "id": ids})


def follow(algorithm: str, memory: int) -> dict[str, Any]:
    """Join two live streams."""
    schema = next(stream_rows(0)).schema
    streams = {n: matwin.stream(stream_rows(i), schema=schema) for i, n in enumerate("ab")}
    report, rows, total = Report(), 0, 0
    for batch in matwin.window_join(
        streams, time="t", windows=40_000, by="k", algorithm=algorithm, memory=memory,
        page_size="16KiB", report=report,
    ):  # fmt: skip
        rows += batch.num_rows
        total += int((np.asarray(batch["a_id"]) * 7 + np.asarray(batch["b_id"])).sum() % 1_000_003)
    return {
        "rows": rows, "sum": total % 1_000_003, "counted": report.peak_bytes,
        "written": report.pages_written,
    }  # fmt: skip


def test_live_windows_spill_and_lose_nothing() -> None:
    told, roomy = follow("auto", BUDGET), follow("backward-hash", 2**31)
    assert (told["rows"], told["sum"]) == (roomy["rows"], roomy["sum"])
    assert told["rows"] > 0
    assert told["counted"] <= BUDGET
    assert told["written"] > 0 == roomy["written"]


STEPS = 12


def grown(memory: int) -> dict[str, Any]:
    """What a live join takes beyond what the process had: by twelfths of its rows."""
    follow("auto", BUDGET)  # compiled, not measured
    schema = next(stream_rows(0)).schema
    start, tops, spilled = resident("RssAnon"), [0] * STEPS, 0
    seen = 0

    def rows(seed: int) -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in stream_rows(seed):
            step = seen * STEPS // (2 * (ROWS // 3))
            tops[step] = max(tops[step], resident("RssAnon") - start)
            seen += batch.num_rows
            yield batch

    report = Report()
    streams = {n: matwin.stream(rows(i), schema=schema) for i, n in enumerate("ab")}
    for _ in matwin.window_join(
        streams, time="t", windows=20_000, by="k", memory=memory, page_size="16KiB", report=report
    ):
        spilled = report.pages_written
    return {"tops": tops, "written": spilled, "counted": report.peak_bytes}


@pytest.mark.parametrize("memory", [BUDGET, 2**22])
def test_a_live_window_takes_its_budget_and_then_no_more(memory: int) -> None:
    """Memory rises by the budget, until the window is full; it does not rise with its rows."""
    told = call_in_child(grown, memory)
    first, later = told["tops"][: STEPS // 2], told["tops"][STEPS // 2 :]
    assert told["counted"] <= memory
    assert max(told["tops"]) <= memory + 30 * MB, told
    assert max(later) <= max(first) + memory // 4 + 8 * MB, told
    assert told["written"] > 0, told
