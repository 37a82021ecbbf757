"""Grid windows of sparse cells: neighbours share pages, whatever the order in which rows come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

from matwin.storage import Store

PAGE = 4096
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("i", pa.int64()), ("s", pa.string())])


def batch(t: Any, x: Any, first: int, text: str = "") -> pa.RecordBatch:
    ids = np.arange(first, first + len(t))
    texts = [text * (int(i) % 3) for i in ids]
    return pa.record_batch([pa.array(t), pa.array(x), pa.array(ids), texts], schema=SCHEMA)


@pytest.mark.parametrize("order", ["ascending", "descending", "scattered"])
def test_one_row_a_cell_takes_as_many_pages_as_the_rows_need(order: str) -> None:
    """32,000 rows took 26,500 pages once; here 3,000 in pages of 4 KiB, in ten steps."""
    random = np.random.default_rng(1)
    t = random.permutation(3000) * 100
    if order != "scattered":
        t = np.sort(t)[:: 1 if order == "ascending" else -1]
    with Store(memory=64 * PAGE, page_size=PAGE) as store:
        window = store.window("w", SCHEMA, on={"t": 10, "x": 0.001}, materialize="grid")
        for first in range(0, 3000, 300):
            part = t[first : first + 300]
            window.append(batch(part, random.random(300), first))
            window.settle()
            window.check()
        full = sum(ref.size for ref in window.pages()) / (0.95 * PAGE)
        assert len(window.pages()) <= 2 * full + 1
        rows = pa.Table.from_batches(window.scan())
        assert sorted(rows["i"].to_pylist()) == list(range(3000))


@settings(max_examples=campaign(25, 1000), deadline=None)
@given(data=st.data())
def test_dense_and_sparse_cells_in_any_order(data: st.DataObject) -> None:
    """The order of pages, and every row, after any steps; ends of 64 bits are cells like others."""
    seed, span = data.draw(st.integers(0, 2**32)), data.draw(st.sampled_from([3, 40, 100_000]))
    random = np.random.default_rng(seed)
    kept: dict[int, int] = {}
    with Store(memory=64 * PAGE, page_size=PAGE) as store:
        window = store.window("w", SCHEMA, on={"t": 1}, materialize="grid")
        first = 0
        for _ in range(data.draw(st.integers(1, 6))):
            count = data.draw(st.sampled_from([1, 30, 700]))
            t = random.integers(0, span, count)
            if random.random() < 0.2:
                t[0] = random.choice([-(2**63), 2**63 - 1])
            window.append(batch(t, np.zeros(count), first, "some text "))
            kept |= dict(zip(range(first, first + count), t.tolist(), strict=True))
            first += count
            if data.draw(st.booleans()):
                below = int(random.integers(0, span))
                window.expire(below)
                kept = {i: time for i, time in kept.items() if time >= below}
            window.settle()
            window.check()
            store.pool.check()
        found = pa.Table.from_batches(window.scan(), schema=SCHEMA)
        assert dict(zip(found["i"].to_pylist(), found["t"].to_pylist(), strict=True)) == kept
        assert found.num_rows == len(kept)
