"""Continuous queries over windows ten times the budget: near the budget, epoch after epoch, and a
state folder that stays as large as what it has to hold."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import call_in_child, memory_limit, peak_begins_anew, resident

import matwin

pytestmark = [pytest.mark.disk, pytest.mark.slow]

MB = 10**6
BUDGET = 2 * 2**20
ROWS, KEEP, EPOCHS = 16_000, 12, 24
"""A chunk of each of two streams is 1 MB: the windows are 26 MB, twelve times the budget."""
TEXT = "a payload of some length"


def rows(seed: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    for first in range(0, ROWS * EPOCHS, ROWS // 5):
        ids = np.arange(first, first + ROWS // 5)
        keys = random.integers(0, 200_000, len(ids))
        texts = pa.array([TEXT]).take(pa.array(np.zeros(len(ids), np.int64)))
        yield pa.record_batch({"t": ids, "k": keys, "id": ids, "text": texts})


def query(state: str | None, memory: int, text: str | None) -> Any:
    schema = next(rows(0)).schema
    sources = {n: matwin.stream(rows(i), schema=schema, live=False) for i, n in enumerate("ab")}
    join = partial(
        matwin.epsilon_join, matwin.chunks("a", last=1), matwin.chunks("b"), on={"t": ROWS * KEEP},
        by="k",
    )  # fmt: skip
    return matwin.continuous_query(
        text or join, sources, cut=matwin.cut.count(ROWS), keep=KEEP, state=state, memory=memory
    )


SQL = "SELECT k % 5 AS k, count(*) AS n, sum(id) AS total, min(text) AS t FROM b GROUP BY 1"


def measured(state: str | None, memory: int, text: str | None) -> dict[str, Any]:
    """Run it; what came out, what it took, and how large the file was."""
    peaks, found, sizes = [], [], []
    for epoch in query(state, memory, text):
        count = total = 0
        for batch in epoch.result:
            count += batch.num_rows
            names = ("n", "total") if text else ("id_left", "id_right")
            total += sum(int(np.asarray(batch[name]).astype(np.int64).sum()) for name in names)
        found.append([count, total])
        peaks.append(resident("VmHWM"))
        sizes.append(epoch.report.state_bytes)
        live = epoch.report.state_rows
        del epoch
        gc.collect()
        peak_begins_anew()
        if len(peaks) == 1:
            start = resident("VmRSS")
    return {"found": found, "start": start, "peaks": peaks, "sizes": sizes, "live_rows": live}


@pytest.fixture(scope="module", params=["join", "sql"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("state")
    text = SQL if request.param == "sql" else None
    with memory_limit(400 * 2**20) as group:
        told = call_in_child(measured, str(folder / "s"), BUDGET, text, before=group.enter)
    return text, told


def test_windows_larger_than_the_budget(asked: Any) -> None:
    """The same rows as with all the memory there is, inside a cgroup that kills whoever takes
    more than 400 MB, libraries and the page cache included."""
    text, told = asked
    roomy = measured(None, 2**31, text)
    assert told["found"] == roomy["found"]
    assert len(told["found"]) == EPOCHS
    assert told["live_rows"] == 2 * ROWS * KEEP


def test_memory_is_flat(asked: Any) -> None:
    """After its first epoch, which compiles, it stays near the budget, in the last epoch as in the
    one in which the windows became full."""
    _, told = asked
    full, last = told["peaks"][KEEP : KEEP + 5], told["peaks"][-5:]
    assert max(last) - told["start"] <= BUDGET + 60 * MB, told
    assert max(last) <= max(full) + 12 * MB, told


def test_the_file_is_as_large_as_what_it_holds(asked: Any) -> None:
    """Pages of chunks that have left are used again."""
    _, told = asked
    live = told["live_rows"] * (3 * 8 + 8 + 4 + len(TEXT))  # with the number of the chunk
    assert max(told["sizes"]) <= 2 * live, told
    assert max(told["sizes"][-5:]) <= 1.1 * max(told["sizes"][KEEP : KEEP + 5]), told
