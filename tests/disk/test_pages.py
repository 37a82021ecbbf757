"""What each form reads and writes, page by page, against the costs that the documents name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support import FORMS, ON, ROWS_PER_TICK, SCHEMA, ids_in, rows

from matwin.storage import Store, Window, read_trace

pytestmark = pytest.mark.disk

STEP = 600
LIVE = 4 * STEP

PLAIN = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("id", pa.int64())])
PLAIN_ROW_BYTES = 24


def opened(path: Path | None, memory: str, **options: object) -> Store:
    return Store(path, memory=memory, page_size=4096, **options)  # type: ignore[arg-type]


def window_in(store: Store, form: str) -> Window:
    return store.window("w", SCHEMA, on=ON, materialize=form)


def advance(window: Window, step: int) -> None:
    """Expire what the step leaves behind, then bring its rows."""
    window.expire(below=max(0, step * STEP - LIVE) // ROWS_PER_TICK)
    window.append(rows(range(step * STEP - STEP, step * STEP)))


def ids_at(step: int) -> list[int]:
    return list(range(max(0, step * STEP - LIVE), step * STEP))


# ── nothing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMS)
def test_what_fits_is_not_written(tmp_path: Path, form: str) -> None:
    with opened(None, "8MiB", scratch=tmp_path) as store:
        window = window_in(store, form)
        for step in range(1, 8):
            advance(window, step)
            assert ids_in(window.scan()) == ids_at(step)
        counters = store.pool.counters
        assert (counters.writes, counters.reads, counters.evictions) == (0, 0, 0)
        assert store.file.file_bytes == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_step_without_news_writes_nothing(tmp_path: Path, form: str) -> None:
    with opened(tmp_path / "s", "8MiB") as store:
        window = window_in(store, form)
        advance(window, 1)
        store.commit()
        before = store.pool.counters.writes
        store.commit()
        window.expire(below=10)
        store.commit()
        assert store.pool.counters.writes == before


# ── a step of each form, with and without its pages in frames ────────────────────────────────────


class Step:
    """What one step did: the window's pages before (less the expired) and after, and the I/O."""

    def __init__(self, store: Store, window: Window, step: int) -> None:
        counters = store.pool.counters
        window.expire(below=max(0, step * STEP - LIVE) // ROWS_PER_TICK)
        self.before = {ref.page_id: ref for ref in window.pages()}
        reads, writes = counters.reads, counters.writes
        window.append(rows(range(step * STEP - STEP, step * STEP)))
        store.commit()
        self.after = {ref.page_id: ref for ref in window.pages()}
        self.reads, self.writes = counters.reads - reads, counters.writes - writes
        self.replaced = self.before.keys() - self.after.keys()
        self.made = self.after.keys() - self.before.keys()
        assert store.step == step


def steps(path: Path, form: str, memory: str, *, cold: bool) -> Iterator[tuple[Step, Window]]:
    """Steps with a commit each; with `cold` the store is opened anew for each of them."""
    store = opened(path, memory)
    window = window_in(store, form)
    for step in range(1, 10):
        if cold:
            store.close()
            store = opened(path, memory)
            window = window_in(store, form)
        yield Step(store, window, step), window
    assert ids_in(window.scan()) == ids_at(9)
    store.close()


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_standard_rewrites_the_live_window(tmp_path: Path, cold: bool) -> None:
    for step, _ in steps(tmp_path / "s", "standard", "8MiB", cold=cold):
        assert step.made == step.after.keys(), "every page is new"
        assert step.writes == len(step.after)
        assert step.reads == (len(step.before) if cold else 0)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_grid_rewrites_one_page_for_each_cell(tmp_path: Path, cold: bool) -> None:
    rewritten = 0
    for step, _ in steps(tmp_path / "s", "grid", "8MiB", cold=cold):
        cells = {step.after[page].fence.first for page in step.made}
        old = Counter(step.before[page].fence.first for page in step.replaced)
        assert old.keys() <= cells
        assert max(old.values(), default=0) <= 1, "of each cell one page at most is replaced"
        full = [ref for page, ref in step.after.items() if page in step.made and ref.size > 3500]
        assert len(step.made) <= len(cells) + len(full)
        assert step.writes == len(step.made)
        assert step.reads == (len(step.replaced) if cold else 0)
        rewritten += len(step.replaced)
    assert rewritten > 0


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_slab_writes_the_new_rows_only(tmp_path: Path, cold: bool) -> None:
    """Commits write small runs too early; once they are long enough they are written again."""
    for step, _ in steps(tmp_path / "s", "slab", "8MiB", cold=cold):
        new_rows = sum(step.after[page].rows for page in step.made)
        assert step.replaced == set()
        assert new_rows == STEP
        assert step.writes == len(step.made)
        assert step.reads == 0


# ── larger than memory ───────────────────────────────────────────────────────────────────────────


def plain_rows(first: int, limit: int) -> pa.RecordBatch:
    ids = np.arange(first, limit)
    return pa.record_batch([ids // 10, (ids * 7919) % 1000003 / 1e6, ids], schema=PLAIN)


def test_slab_writes_every_row_once(tmp_path: Path) -> None:
    """Rows of 24 bytes, ten times the budget, pages of the usual size."""
    budget, batch = 16 * 2**20, 50_000
    total = 10 * budget // PLAIN_ROW_BYTES // batch * batch
    with Store(memory=budget, page_size="256KiB", scratch=tmp_path) as store:
        window = store.window("w", PLAIN, on={"t": 1000, "x": 0.05}, materialize="slab")
        for first in range(0, total, batch):
            window.append(plain_rows(first, first + batch))
        window.settle()
        store.pool.flush()
        counters = store.pool.counters
        written = counters.writes * store.file.page_size
        assert written / (total * PLAIN_ROW_BYTES) <= 1.1
        assert written / (total * PLAIN_ROW_BYTES) >= 1.0
        assert counters.reads == 0
        assert counters.bytes_peak <= budget
        assert window.count() == total


@pytest.mark.parametrize("form", FORMS)
def test_a_scan_reads_each_page_once(tmp_path: Path, form: str) -> None:
    trace = tmp_path / "trace"
    with opened(None, "192KiB", scratch=tmp_path, trace=trace) as store:
        window = window_in(store, form)
        for first in range(0, 8000, 400):
            window.append(rows(range(first, first + 400)))
        pages = [ref.page_id for ref in window.pages()]
        absent = {page.page for page in pages if not store.pool.is_resident(page)}
        reads, hits = store.pool.counters.reads, store.pool.counters.hits
        assert ids_in(window.scan()) == list(range(8000))
        reads, hits = store.pool.counters.reads - reads, store.pool.counters.hits - hits
    assert reads + hits == len(pages)
    assert len(absent) > len(pages) // 2
    columns = read_trace(trace).select(["event", "page", "why"]).to_pydict().values()
    events = Counter(
        (event, page)
        for event, page, why in zip(*columns, strict=True)
        if why == "scan" and event in ("read", "hit")
    )
    assert max(events.values()) == 1
    assert {page for event, page in events if event == "read"} >= absent
    assert sum(event == "read" for event, _ in events) == reads


# ── the trace ────────────────────────────────────────────────────────────────────────────────────

COUNTED = {
    "pin": "pins",
    "hit": "hits",
    "read": "reads",
    "make": "makes",
    "write": "writes",
    "evict": "evictions",
    "drop": "drops",
    "expire": "expiries",
}


@pytest.mark.parametrize("memory", ["160KiB", "8MiB"])
def test_the_trace_counts_what_the_pool_counts(tmp_path: Path, memory: str) -> None:
    with opened(tmp_path / "s", memory, trace=tmp_path / "trace") as store:
        windows = [store.window(form, SCHEMA, on=ON, materialize=form) for form in FORMS]
        for step in range(1, 9):
            for window in windows:
                advance(window, step)
                assert ids_in(window.scan()) == ids_at(step)
            store.commit()
        store.drop("grid")
        counters = store.pool.counters.as_dict()
    table = read_trace(tmp_path / "trace")
    events = Counter(table["event"].to_pylist())
    assert {event: events[event] for event in COUNTED} == {
        event: counters[name] for event, name in COUNTED.items()
    }
    assert events["unpin"] == events["pin"]
    assert events["complete"] == 8
    assert events["choose"] == 3
    assert sum(events.values()) == table.num_rows
    sizes: Counter[str] = Counter()
    for event, size in zip(table["event"].to_pylist(), table["bytes"].to_pylist(), strict=True):
        sizes[event] += size
    assert sizes["read"] == counters["bytes_read"]
    assert sizes["write"] == counters["bytes_written"]
    assert table["seq"].to_pylist() == list(range(table.num_rows))
    if memory == "160KiB":
        assert min(events[event] for event in COUNTED) > 0, events
