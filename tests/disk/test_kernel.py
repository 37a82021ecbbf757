"""The bytes that the kernel says went to and came from the disk, against the pool's counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import call_in_child, forget

from matwin.storage import Store, Window
from matwin.storage.scratch import filesystem_of

pytestmark = pytest.mark.disk

PAGE = 256 * 1024
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("id", pa.int64())])
BATCH = 50_000
TOTAL = 40 * BATCH


def batch(first: int) -> pa.RecordBatch:
    ids = np.arange(first, first + BATCH)
    return pa.record_batch([ids // 10, (ids * 7919) % 1000003 / 1e6, ids], schema=SCHEMA)


def kernel_bytes(name: str) -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)[name])


def opened(folder: str) -> tuple[Store, Window]:
    store = Store(folder, memory="16MiB", page_size=PAGE)
    return store, store.window("w", SCHEMA, on={"t": 1000, "x": 0.05}, materialize="slab")


def write(folder: str) -> dict[str, Any]:
    store, window = opened(folder)
    names = ("write_bytes", "wchar")
    before = {name: kernel_bytes(name) for name in names}
    for first in range(0, TOTAL, BATCH):
        window.append(batch(first))
    store.commit()
    told = {name: kernel_bytes(name) - before[name] for name in names}
    told["pages"] = store.pool.counters.writes
    store.close()
    return told


def scan_cold(folder: str) -> dict[str, Any]:
    forget(Path(folder) / "data.mdb")
    before = kernel_bytes("read_bytes")
    store, window = opened(folder)
    total = sum(rows.num_rows for rows in window.scan())
    told = {"kernel": kernel_bytes("read_bytes") - before, "pages": store.pool.counters.reads}
    assert total == TOTAL
    store.close()
    return told


def read_some_cold(folder: str) -> dict[str, Any]:
    forget(Path(folder) / "data.mdb")
    before = kernel_bytes("read_bytes")
    store, window = opened(folder)
    refs = window.pages()[::10]
    for ref in np.random.default_rng(0).permutation(len(refs)):
        with store.pool.pin(refs[ref].page_id):
            pass
    told = {"kernel": kernel_bytes("read_bytes") - before, "pages": store.pool.counters.reads}
    store.close()
    return told


def test_a_few_pages_cost_the_disk_a_few_pages(tmp_path: Path) -> None:
    """The kernel is asked for the pages that are wanted, not for what lies around them; opening
    the file and checking LMDB's tree cost a megabyte."""
    if filesystem_of(tmp_path) == "tmpfs":
        pytest.skip("a tmpfs is no disk")
    call_in_child(write, str(tmp_path / "s"))
    read = call_in_child(read_some_cold, str(tmp_path / "s"))
    assert read["pages"] >= 18
    assert 0 <= read["kernel"] - read["pages"] * PAGE <= 2 * 2**20, read


def test_bytes_to_and_from_the_disk(tmp_path: Path) -> None:
    """LMDB's tree, and checking it on opening, cost at most 2 % on top of the pages.

    What is written is what the process hands to the kernel.  How much of that goes to the disk is
    the kernel's affair: LMDB writes pages of its tree again, and if the kernel has flushed them in
    the meantime, because others write much or time has passed, they go there again.  (Flushed after
    every batch: 1.072 times the pages, and 1.006 handed over as ever.)
    """
    if filesystem_of(tmp_path) == "tmpfs":
        pytest.skip("a tmpfs is no disk")
    written = call_in_child(write, str(tmp_path / "s"))
    assert written["pages"] > 180
    assert 1.0 <= written["wchar"] / (written["pages"] * PAGE) <= 1.02, written
    assert written["write_bytes"] >= written["pages"] * PAGE, written
    read = call_in_child(scan_cold, str(tmp_path / "s"))
    assert read["pages"] == written["pages"]
    assert 1.0 <= read["kernel"] / (read["pages"] * PAGE) <= 1.02, read
