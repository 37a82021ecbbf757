"""The pool against a dictionary, and two workers with a prefetcher on one pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from matwin.storage import (
    BudgetError,
    BufferPool,
    CorruptPage,
    MemoryPageFile,
    PageId,
    Store,
    StoreError,
    smallest_budget,
)
from matwin.storage.layout import encode_page, schema_mark

PAGE = 4096
SCHEMA = pa.schema([("t", pa.int64())])


def page(number: int, rows: int) -> pa.Buffer:
    t = np.arange(rows, dtype=np.int64) + number
    batch = pa.record_batch([t], schema=SCHEMA)
    return encode_page(PageId(0, number), batch, [t, t], schema_mark(SCHEMA))[0]


class PoolIsADictionary(RuleBasedStateMachine):
    """Pages come back as they were put, whatever was evicted, and the budget holds."""

    pages: Bundle[int] = Bundle("pages")

    @initialize()
    def start(self) -> None:
        self.file = MemoryPageFile(page_size=PAGE)
        self.pool = BufferPool(self.file, budget_bytes=smallest_budget(PAGE))
        self.pool.register(0, "w", SCHEMA)
        self.model: dict[int, int] = {}
        self.pins: list[Any] = []
        self.taken: list[int] = []
        self.next = 0

    @rule(target=pages, rows=st.integers(1, 250))
    def put(self, rows: int) -> int:
        number, self.next = self.next, self.next + 1
        if self.fits(lambda: self.pool.put(PageId(0, number), page(number, rows))):
            self.model[number] = rows
        return number

    @rule(number=pages, hold=st.booleans())
    def pin(self, number: int, hold: bool) -> None:
        if number not in self.model:
            return
        pinned: list[Any] = []
        if self.fits(lambda: pinned.append(self.pool.pin(PageId(0, number)))):
            expected = list(range(number, number + self.model[number]))
            assert pinned[0].values("t").tolist() == expected
            self.pins.append(pinned[0])
            if not hold:
                self.pins.pop().release()

    @rule()
    def unpin(self) -> None:
        if self.pins:
            guard = self.pins.pop(0)
            guard.release()
            with pytest.raises(RuntimeError):
                _ = guard.batch

    @rule(number=pages)
    def evict(self, number: int) -> None:
        is_free = all(guard.page_id.page != number for guard in self.pins)
        was_there = self.pool.is_resident(PageId(0, number))
        assert self.pool.evict(PageId(0, number)) == (is_free and was_there)

    @rule(number=pages)
    def drop(self, number: int) -> None:
        if number in self.model and all(g.page_id.page != number for g in self.pins):
            del self.model[number]
            self.pool.drop([PageId(0, number)])
            with pytest.raises((CorruptPage, BudgetError)):
                self.pool.pin(PageId(0, number))

    @rule(size=st.integers(1, smallest_budget(PAGE)))
    def take(self, size: int) -> None:
        if self.fits(lambda: self.pool.take(size)):
            self.taken.append(size)

    @rule()
    def give_back(self) -> None:
        if self.taken:
            self.pool.give_back(self.taken.pop())

    @rule()
    def flush(self) -> None:
        self.pool.flush()
        assert {p.page for p in self.file.page_ids()} == set(self.model)

    def fits(self, act: Callable[[], object]) -> bool:
        """Whether the budget allowed it; a refusal names a budget that is larger than this."""
        try:
            act()
        except BudgetError as error:
            assert error.smallest_bytes > self.pool.budget_bytes
            assert str(error.smallest_bytes) in str(error)
            return False
        return True

    @invariant()
    def invariants_hold(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()


TestPoolIsADictionary = PoolIsADictionary.TestCase


def test_a_budget_below_the_smallest_is_refused_and_the_smallest_works() -> None:
    with pytest.raises(BudgetError, match="smallest that works") as caught:
        Store(memory=100_000, page_size=PAGE)
    smallest = caught.value.smallest_bytes
    rows = pa.record_batch({"t": np.arange(50_000)[::-1].copy()})
    with Store(memory=smallest, page_size=PAGE) as store:
        for form in ("standard", "grid", "slab"):
            window = store.window(form, SCHEMA, on={"t": 20_000}, materialize=form)
            window.append(rows)
            window.expire(below=10)
            assert window.count() == 49_990
        store.check()


def test_a_refused_pin_leaves_the_pool_usable() -> None:
    file = MemoryPageFile(page_size=PAGE)
    pool = BufferPool(file, budget_bytes=smallest_budget(PAGE))
    pool.register(0, "w", SCHEMA)
    file.write([(PageId(0, n), page(n, 400)) for n in range(64)])
    guards = []
    with pytest.raises(BudgetError):
        for n in range(64):
            guards.append(pool.pin(PageId(0, n)))
    assert not pool.prefetch(PageId(0, 63))
    for guard in guards:
        guard.release()
        guard.release()
    assert pool.prefetch(PageId(0, 63))
    pool.check()


def test_an_error_inside_the_block_unpins() -> None:
    pool = BufferPool(MemoryPageFile(page_size=PAGE), budget_bytes=smallest_budget(PAGE))
    pool.register(0, "w", SCHEMA)
    pool.put(PageId(0, 1), page(1, 5))
    with pytest.raises(ZeroDivisionError), pool.pin(PageId(0, 1)) as pinned:
        _ = 1 // int(pinned.values("t")[0] - 1)
    assert pool.evict(PageId(0, 1))


def test_the_choice_of_a_victim_can_be_replaced() -> None:
    class Youngest:
        def __init__(self) -> None:
            self.order: list[PageId] = []

        def used(self, page: PageId) -> None:
            self.gone(page)
            self.order.append(page)

        def gone(self, page: PageId) -> None:
            if page in self.order:
                self.order.remove(page)

        def victim(self, may_go: Callable[[PageId], bool]) -> PageId | None:
            return next((p for p in reversed(self.order) if may_go(p)), None)

    file = MemoryPageFile(page_size=PAGE)
    pool = BufferPool(file, budget_bytes=smallest_budget(PAGE), replacer=Youngest())
    pool.register(0, "w", SCHEMA)
    for n in range(60):
        pool.put(PageId(0, n), page(n, 400))
    assert pool.is_resident(PageId(0, 0))
    assert not pool.is_resident(PageId(0, 50))
    pool.check()


class SlowFile(MemoryPageFile):
    """Reads that can be made to overlap on purpose."""

    def __init__(self) -> None:
        super().__init__(page_size=PAGE)
        self.gate: threading.Barrier | None = None
        self.reads: list[PageId] = []

    def read(self, page_id: PageId) -> pa.Buffer:
        self.reads.append(page_id)
        if self.gate is not None:
            self.gate.wait(timeout=30)
        return super().read(page_id)


def test_two_workers_and_a_prefetcher_read_at_the_same_time() -> None:
    file = SlowFile()
    pool = BufferPool(file, budget_bytes=smallest_budget(PAGE))
    pool.register(0, "w", SCHEMA)
    file.write([(PageId(0, n), page(n, 100)) for n in range(3)])
    file.gate = threading.Barrier(3)  # passes only when three reads are under way together

    def work(n: int) -> None:
        if n == 2:
            assert pool.prefetch(PageId(0, n))
        else:
            with pool.pin(PageId(0, n)) as pinned:
                assert pinned.values("t")[0] == n

    run_together([lambda n=n: work(n) for n in range(3)])
    assert pool.counters.reads == 3
    pool.check()


def test_a_page_wanted_by_many_is_read_once() -> None:
    file = SlowFile()
    pool = BufferPool(file, budget_bytes=smallest_budget(PAGE))
    pool.register(0, "w", SCHEMA)
    file.write([(PageId(0, 0), page(0, 100))])

    def work() -> None:
        with pool.pin(PageId(0, 0)) as pinned:
            assert pinned.batch.num_rows == 100

    run_together([work] * 8)
    assert len(file.reads) == 1
    assert pool.counters.hits == 7
    pool.check()


def test_many_threads_stay_within_the_budget() -> None:
    with Store(memory=smallest_budget(PAGE), page_size=PAGE) as store:
        window = store.window("w", SCHEMA, on={"t": 100})
        for start in range(0, 60_000, 5_000):
            window.append(pa.record_batch({"t": np.arange(start, start + 5_000)}))
        refs = window.pages()
        totals = []

        def work(seed: int) -> None:
            total = 0
            for place in np.random.default_rng(seed).permutation(len(refs)):
                with store.pool.pin(refs[place].page_id) as pinned:
                    total += int(pinned.values("t").sum())
                    store.pool.check()
            totals.append(total)

        run_together([lambda seed=seed: work(seed) for seed in range(4)])
        assert totals == [sum(range(60_000))] * 4
        assert store.pool.counters.reads > len(refs)


def run_together(works: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


class FullAfterReading(MemoryPageFile):
    """A file with no space left, once a page has been read."""

    is_full = False

    def read(self, page_id: PageId) -> pa.Buffer:
        self.is_full = True
        return super().read(page_id)

    def write(self, pages: Any) -> None:
        if self.is_full:
            raise StoreError("no space left")
        super().write(pages)


def test_a_read_that_finds_no_room_leaves_no_frame_behind() -> None:
    """The page is larger than the pool was told, and the new page that must leave stays."""
    file = FullAfterReading(page_size=PAGE)
    large = PageId(0, 10**6)
    file.write([(large, page(large.page, 2000))])
    pool = BufferPool(file, budget_bytes=smallest_budget(PAGE))
    pool.register(0, "w", SCHEMA)
    number = 0
    while pool.counters.writes == 0:
        pool.put(PageId(0, number), page(number, 300))
        number += 1
    pool.put(PageId(0, number), page(number, 300))
    for _ in range(2):  # the second would wait for ever for the first's read
        with pytest.raises(StoreError, match="no space"):
            pool.pin(large)
        assert not pool.is_resident(large)
        pool.check()
        file.is_full = False
        for new in range(number + 1, number + 9):
            pool.put(PageId(0, new), page(new, 300))
        number += 8
    assert pool.held_bytes == 0
