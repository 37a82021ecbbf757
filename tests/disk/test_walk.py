"""A walk over windows far larger than the budget: memory, page reads and bytes from the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import call_in_child, peak_begins_anew, resident

from matwin.scheduler import Pair, Walk, frames_for, plan, reach_of
from matwin.storage import Store

pytestmark = [pytest.mark.disk, pytest.mark.slow]

MB = 10**6
BUDGET = 16 * 2**20
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("id", pa.int64()), ("v", pa.int64())])
ROWS, BATCH = 4_800_000, 50_000  # 154 MB a side


def batches(seed: int) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(seed)
    for first in range(0, ROWS, BATCH):
        ids = np.arange(first, first + BATCH)
        yield pa.record_batch([ids, generator.random(BATCH), ids, ids], schema=SCHEMA)


def bytes_from_disk() -> int:
    """What this process has read with system calls and page faults, by the kernel's count."""
    text = Path("/proc/self/io").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes"))


def walk(scratch: str, lots: list[int]) -> list[dict[str, Any]]:
    """Join two windows page by page, so many columns at a time; what each of these walks took."""
    plan([(0, 2), (1, 3), (0, 3)], frames=2)  # compiled, or loaded: not what is measured
    with Store(memory=BUDGET, page_size="256KiB", scratch=scratch) as store:
        windows = []
        for seed, name in enumerate(("left", "right")):
            window = store.window(name, SCHEMA, on={"t": 300_000, "x": 0.02}, materialize="slab")
            for batch in batches(seed):
                window.append(batch)
            windows.append(window)
        pages = [window.pages() for window in windows]
        spare = 2 * 2**20
        schedule = plan(
            reach_of(windows[0].grid, *pages),
            frames=frames_for(store.pool, *pages, spare_bytes=spare),
        )
        expected = sum(
            pages[0][i].rows * pages[1][j].rows
            for i, first, limit in schedule.reach.triples()
            for j in range(first, limit)
        )
        start, told = resident("VmRSS"), []
        for columns in lots:
            peak_begins_anew()
            before = store.pool.counters.reads
            with store.pool.reserve(spare):
                rows = sum(
                    _rows(pair)
                    for met, _ in Walk(store.pool, schedule, *pages).together(columns)
                    for pair in chain.from_iterable(met)
                )
            told.append({
                "columns": columns,
                "rows": rows,
                "expected": expected,
                "peak": resident("VmHWM") - start,
                "reads": store.pool.counters.reads - before,
                "planned": schedule.page_reads,
                "visits": schedule.visits,
                "bytes_peak": store.pool.counters.bytes_peak,
            })  # fmt: skip
        return told


def _rows(pair: Pair) -> int:
    """Every pair of rows is looked at as far as the first values go."""
    left, right = pair.left.values("id"), pair.right.values("id")
    assert left.min() >= 0 and right.max() < ROWS
    return len(left) * len(right)


def test_a_walk_stays_within_the_budget(tmp_path: Path) -> None:
    """One column of pages at a time, and five; both over the same windows."""
    for told in call_in_child(walk, str(tmp_path), [1, 5]):
        assert told["rows"] == told["expected"], told
        assert told["visits"] > 2000, told
        assert told["reads"] <= told["planned"], told
        assert told["bytes_peak"] <= BUDGET, told
        # The pages that are read were out of memory: most of the budget was free at the start.
        assert told["peak"] <= BUDGET + 40 * MB, told


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_pages_read_are_the_bytes_that_come_from_the_disk(tmp_path: Path) -> None:
    """With a cold cache the kernel reads what the schedule says, and little more."""
    told = call_in_child(cold_walk, str(tmp_path))
    if told["from_disk"] == 0:
        pytest.skip("this file system does not count its reads")
    assert told["reads"] * 200_000 <= told["from_disk"] <= told["reads"] * 256 * 1024 * 1.1


def cold_walk(folder: str) -> dict[str, Any]:
    """A walk over pages that the kernel has forgotten."""
    from support import forget

    with Store(Path(folder) / "pages", memory=BUDGET, page_size="256KiB") as store:
        window = store.window("w", SCHEMA, on={"t": 100_000, "x": 0.1}, materialize="slab")
        for batch in list(batches(0))[:40]:
            window.append(batch)
        store.commit()
        pages = window.pages()
        for ref in pages:
            store.pool.evict(ref.page_id)
        schedule = plan(reach_of(window.grid, pages), frames=20)
        for file in (Path(folder) / "pages").iterdir():
            forget(file)
        before, reads = bytes_from_disk(), store.pool.counters.reads
        sum(1 for _ in Walk(store.pool, schedule, pages).pairs())
        return {
            "from_disk": bytes_from_disk() - before,
            "reads": store.pool.counters.reads - reads,
        }
