"""The walk: the right pairs, within the budget, with reads ahead, and nothing pinned afterwards."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from matwin import BudgetError, CorruptPage, InputError
from matwin.scheduler import MODES, Pair, Walk, frames_for, plan, reach_of
from matwin.storage import LmdbPageFile, PageId, Store, Window, read_trace

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("id", pa.int64())])
PAGE = 4096
ON = {"t": 60, "x": 0.3}


def rows(count: int, seed: int) -> pa.RecordBatch:
    generator = np.random.default_rng(seed)
    t = np.sort(generator.integers(0, 3 * count, count))
    return pa.record_batch([t, generator.random(count), np.arange(count)], schema=SCHEMA)


@contextmanager
def two_windows(
    tmp_path: Path, form: str = "slab", memory: int = 40 * PAGE, file: Any = None
) -> Iterator[tuple[Store, Window, Window]]:
    """Two windows of some 25 pages each on a real page file, all of them out of memory."""
    file = file or LmdbPageFile(tmp_path / "pages", page_size=PAGE)
    with Store(memory=memory, file=file, trace=tmp_path / "run.trace") as store:
        windows = []
        for seed, name in enumerate(("left", "right")):
            window = store.window(name, SCHEMA, on=ON, materialize=form)
            window.append(rows(2500, seed))
            windows.append(window)
        store.commit()
        for window in windows:
            for ref in window.pages():
                store.pool.evict(ref.page_id)
        yield store, *windows
        store.check()


def matches(pair: Pair) -> set[tuple[int, int]]:
    """The ids of the rows within ε."""
    a, b = pair.left, pair.right
    near = abs(b.values("t")[None, :] - a.values("t")[:, None]) <= 60
    near &= abs(b.values("x")[None, :] - a.values("x")[:, None]) <= 0.3
    i, j = np.nonzero(near)
    return set(zip(a.values("id")[i].tolist(), b.values("id")[j].tolist(), strict=True))


def expected(left: pa.RecordBatch, right: pa.RecordBatch) -> set[tuple[int, int]]:
    found = set()
    rt, rx = right["t"].to_numpy(), right["x"].to_numpy()
    for i, (t, x) in enumerate(zip(left["t"].to_numpy(), left["x"].to_numpy(), strict=True)):
        near = np.flatnonzero((abs(rt - t) <= 60) & (abs(rx - x) <= 0.3))
        found.update((i, int(j)) for j in near)
    return found


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
@pytest.mark.parametrize("mode", MODES)
def test_every_match_is_found_within_the_frames(form: str, mode: str, tmp_path: Path) -> None:
    with two_windows(tmp_path, form, memory=200 * PAGE) as (store, left, right):
        sides = left.pages(), right.pages()
        for page in [ref.page_id for side in sides for ref in side]:
            store.pool.evict(page)
        schedule = plan(reach_of(left.grid, *sides), frames=6, mode=mode)
        before, held, kept = store.pool.counters.as_dict(), store.pool.held_bytes, store.pool.frames
        found: set[tuple[int, int]] = set()
        for pair in Walk(store.pool, schedule, *sides).pairs():
            assert store.pool.frames <= kept + 6 + 2
            found |= matches(pair)
        reads = store.pool.counters.reads - before["reads"]
        assert reads <= schedule.page_reads
        assert store.pool.held_bytes == held
        assert store.pool.counters.writes == before["writes"]
    assert found == expected(rows(2500, 0), rows(2500, 1))
    events = Counter(read_trace(tmp_path / "run.trace")["event"].to_pylist())
    assert events["visit"] == events["visited"] == schedule.visits
    assert events["plan"] == events["walked"] == 1
    assert events["mode"] == len(schedule.stretches)


def test_a_window_with_itself(tmp_path: Path) -> None:
    with two_windows(tmp_path) as (store, left, _):
        pages = left.pages()
        schedule = plan(reach_of(left.grid, pages), frames=5)
        walk = Walk(store.pool, schedule, pages)
        found: set[tuple[int, int]] = set()
        for pair in walk.pairs():
            found |= matches(pair)
    assert found == expected(rows(2500, 0), rows(2500, 0))


def test_the_same_window_on_both_sides(tmp_path: Path) -> None:
    """No self-join: each page stands on either side, and is read for either."""
    with two_windows(tmp_path) as (store, left, _):
        pages, held = left.pages(), store.pool.held_bytes
        schedule = plan(reach_of(left.grid, pages, pages), frames=6)
        found: set[tuple[int, int]] = set()
        for pair in Walk(store.pool, schedule, pages, pages).pairs():
            found |= matches(pair)
        assert store.pool.held_bytes == held
    assert found == expected(rows(2500, 0), rows(2500, 0))


def test_the_reasons_of_a_self_join_name_a_page_once(tmp_path: Path) -> None:
    with two_windows(tmp_path) as (store, left, _):
        pages = left.pages()
        schedule = plan(reach_of(left.grid, pages), frames=5)
        assert sum(1 for _ in Walk(store.pool, schedule, pages).pairs()) == schedule.visits
    events = read_trace(tmp_path / "run.trace").to_pylist()
    named = [e["why"].split("meets left ")[1] for e in events if "meets left" in e["why"]]
    assert named
    for text in named:
        numbers = text.split(" and ")[0].split(", ")
        assert len(set(numbers)) == len(numbers), text


def test_a_walk_that_nobody_traces_tells_no_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Walk) -> str:
        raise AssertionError("nobody asked for the layout")

    monkeypatch.setattr(Walk, "_layout", fails)
    with Store(memory=100 * PAGE, page_size=PAGE, scratch=tmp_path) as store:
        window = store.window("w", SCHEMA, on=ON, materialize="slab")
        window.append(rows(2000, 0))
        pages = window.pages()
        schedule = plan(reach_of(window.grid, pages), frames=10)
        assert sum(1 for _ in Walk(store.pool, schedule, pages).pairs()) == schedule.visits


def test_what_fits_is_read_once_and_never_written(tmp_path: Path) -> None:
    with Store(memory=100 * PAGE, page_size=PAGE, scratch=tmp_path) as store:
        window = store.window("w", SCHEMA, on=ON, materialize="slab")
        window.append(rows(2000, 0))
        pages = window.pages()
        schedule = plan(reach_of(window.grid, pages), frames=frames_for(store.pool, pages))
        assert sum(1 for _ in Walk(store.pool, schedule, pages).pairs()) == schedule.visits
        counters = store.pool.counters
        assert (counters.reads, counters.writes, counters.evictions) == (0, 0, 0)


class Gated(LmdbPageFile):
    """A page file whose reads each need a permit, once there is a gate."""

    gate: threading.Semaphore | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waiting = threading.Semaphore(0)

    def read(self, page_id: PageId) -> pa.Buffer:
        if self.gate is not None:
            self.waiting.release()
            assert self.gate.acquire(timeout=30)
        return super().read(page_id)


def test_the_next_pages_are_read_while_a_pair_is_visited(tmp_path: Path) -> None:
    """Two pages are let through and make the first pair; the third must be asked for meanwhile."""
    file = Gated(tmp_path / "pages", page_size=PAGE)
    with two_windows(tmp_path, "standard", file=file) as (store, left, right):
        sides = left.pages(), right.pages()
        for page in [ref.page_id for side in sides for ref in side]:
            store.pool.evict(page)
        schedule = plan(reach_of(left.grid, *sides), frames=6, mode="gallop")
        file.gate = threading.Semaphore(2)
        visits = 0
        for visits, _ in enumerate(Walk(store.pool, schedule, *sides).pairs(), 1):
            if visits == 1:
                assert all(file.waiting.acquire(timeout=30) for _ in range(3)), "no reading ahead"
                file.gate.release(10**6)
        assert visits == schedule.visits
    assert overlapped(read_trace(tmp_path / "run.trace").to_pylist()) > 0


def overlapped(events: list[dict[str, Any]]) -> int:
    """Reads that began before the end of a visit that had begun before the read's end."""
    visiting, reading, found = 0, 0, 0
    for event in events:
        visiting += {"visit": 1, "visited": -1}.get(event["event"], 0)
        reading += {"fetch": 1, "read": -1}.get(event["event"], 0)
        found += event["event"] in ("fetch", "visit") and visiting > 0 and reading > 0
    return found


def test_pairs_that_come_together_are_the_same_pairs(tmp_path: Path) -> None:
    with two_windows(tmp_path) as (store, left, right):
        sides = left.pages(), right.pages()
        schedule = plan(reach_of(left.grid, *sides), frames=frames_for(store.pool, *sides))
        walk, held = Walk(store.pool, schedule, *sides), store.pool.held_bytes
        one_by_one = {p.page_ids: matches(p) for p in walk.pairs()}
        together = {
            pair.page_ids: matches(pair)
            for columns, _ in walk.together(3) for pairs in columns for pair in pairs
        }  # fmt: skip
        assert together == one_by_one
        assert store.pool.counters.bytes_peak <= store.pool.budget_bytes
        assert store.pool.held_bytes == held


class Holed(LmdbPageFile):
    """A page file that has lost a page."""

    missing: PageId | None = None

    def read(self, page_id: PageId) -> pa.Buffer:
        if page_id == self.missing:
            page_id = PageId(page_id.window, 10**6)
        return super().read(page_id)


@pytest.mark.parametrize("how", ["together", "consumer", "closed", "file"])
def test_nothing_stays_pinned_after_an_error(how: str, tmp_path: Path) -> None:
    file = Holed(tmp_path / "pages", page_size=PAGE)
    with two_windows(tmp_path, file=file) as (store, left, right):
        sides = left.pages(), right.pages()
        schedule = plan(reach_of(left.grid, *sides), frames=6)
        walk, held = Walk(store.pool, schedule, *sides), store.pool.held_bytes
        if how == "file":
            file.missing = sides[1][3].page_id
            with pytest.raises(CorruptPage, match="missing"):
                list(walk.pairs())
        elif how == "closed":
            pairs = walk.pairs()
            next(pairs), next(pairs)
            pairs.close()
        elif how == "consumer":
            with pytest.raises(ZeroDivisionError):
                for number, _ in enumerate(walk.pairs()):
                    1 / (5 - number)
        else:
            with pytest.raises(ZeroDivisionError):
                for number, _ in enumerate(walk.together()):
                    1 / (2 - number)
        assert store.pool.held_bytes == held
        store.pool.check()
        assert not [t for t in threading.enumerate() if t.name.startswith("matwin-")]
    last = read_trace(tmp_path / "run.trace").to_pylist()[-1]
    assert (last["event"], last["why"]) == ("walked", "given up")


def test_nothing_stays_pinned_when_the_schedule_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_windows(tmp_path) as (store, left, right):
        sides, held = (left.pages(), right.pages()), store.pool.held_bytes
        schedule = plan(reach_of(left.grid, *sides), frames=6)
        for good in (0, 1, 2, 7):
            walk = Walk(store.pool, schedule, *sides)
            monkeypatch.setattr(walk, "_moves", lambda walk=walk, good=good: broken(walk, good))
            with pytest.raises(KeyboardInterrupt):
                list(walk.pairs())
            assert store.pool.held_bytes == held


def broken(walk: Walk, good: int) -> Iterator[Any]:
    """The moves of a walk, of which only the first come."""
    yield from itertools.islice(Walk._moves(walk), good)
    raise KeyboardInterrupt


def test_frames_for_a_budget(tmp_path: Path) -> None:
    with two_windows(tmp_path) as (store, left, right):
        sides = left.pages(), right.pages()
        frames = frames_for(store.pool, *sides)
        assert 25 <= frames <= 38
        assert frames_for(store.pool, *sides, read_ahead=5) == frames - 3
        assert frames_for(store.pool, *sides, spare_bytes=10 * PAGE) == frames - 10
        with pytest.raises(BudgetError, match="give at least") as caught:
            frames_for(store.pool, *sides, spare_bytes=34 * PAGE)
        assert caught.value.smallest_bytes > store.pool.budget_bytes
        schedule = plan(reach_of(left.grid, *sides), frames=frames)
        assert sum(1 for _ in Walk(store.pool, schedule, *sides).pairs()) == schedule.visits
        assert store.pool.counters.bytes_peak <= store.pool.budget_bytes


def test_a_schedule_for_other_pages_is_refused(tmp_path: Path) -> None:
    with two_windows(tmp_path) as (store, left, right):
        schedule = plan([(0, 1)], frames=2)
        with pytest.raises(InputError, match="1 × 1"):
            Walk(store.pool, schedule, left.pages(), right.pages())
        with pytest.raises(InputError, match="self-join"):
            Walk(store.pool, schedule, left.pages()[:1])
        with pytest.raises(InputError, match="read_ahead='x'"):
            Walk(store.pool, schedule, left.pages()[:1], right.pages()[:1], read_ahead="x")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="read_ahead=0"):
            Walk(store.pool, schedule, left.pages()[:1], right.pages()[:1], read_ahead=0)
