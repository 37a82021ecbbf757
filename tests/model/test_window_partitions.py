"""Finite inputs on pages: range by range of keys, and page by page, both as in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from questions import as_bag

import matwin
from matwin.operators.wjoin import gathered
from matwin.operators.wjoin.partitions import Range, _ranges
from matwin.storage.columns import INT64_MAX, INT64_MIN

ROWS = 4_000


def rows(seed: int, keys: str) -> pa.Table:
    random = np.random.default_rng(seed)
    codes = {
        "even": random.integers(0, 100, ROWS),
        "skewed": np.where(random.random(ROWS) < 0.9, 7, random.integers(-50, 50, ROWS)),
        "one": np.zeros(ROWS, np.int64),
        "ends": random.choice(np.array([INT64_MIN, INT64_MAX - 1, INT64_MAX, 0]), ROWS),
    }["even" if keys == "text" else keys]
    k = pa.array(codes)
    return pa.table(
        {
            "t": random.integers(0, 20_000 if keys in ("one", "skewed", "ends") else 2_000, ROWS),
            "k": k.cast(pa.string()) if keys == "text" else k,
            "i": np.arange(ROWS),
        }
    )


@pytest.mark.parametrize("reads_max", [0, 10**9])
@pytest.mark.parametrize("keys", ["even", "skewed", "one", "ends", "text"])
def test_as_in_memory(keys: str, reads_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "READS_MAX", reads_max)
    streams = {name: rows(seed, keys) for seed, name in enumerate("abc")}
    asked: dict[str, Any] = {
        "time": "t", "by": "k", "windows": {("a", "b"): 20, ("b", "c"): matwin.then(30)},
    }  # fmt: skip
    report = matwin.Report()
    small = matwin.window_join(
        streams, **asked, memory="256KiB", page_size="8KiB", report=report
    ).read_all()
    large = matwin.window_join(streams, **asked).read_all()
    assert large.num_rows > 0
    assert as_bag(small) == as_bag(large)
    assert report.pages_written > 0
    assert report.peak_bytes <= 256 * 2**10
    report.check()


def test_ranges_hold_every_key_once() -> None:
    spans = [(INT64_MIN, -5), (-3, 4), (0, 0), (3, INT64_MAX), (7, 9)]
    found = _ranges(spans, [100.0, 50, 10, 200, 30], 20)
    assert found[0].first == INT64_MIN
    assert found[-1].last == INT64_MAX
    assert all(a.last + 1 == b.first for a, b in pairwise(found))
    assert len(found) > 5


def test_halves_of_a_range() -> None:
    assert Range(0, 9).halves(4) == (Range(0, 3), Range(4, 9))
