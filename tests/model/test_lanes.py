"""Lanes against a dictionary: what is put down in a lane comes back once, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.storage import CorruptPage, Store
from matwin.storage.lanes import Lanes
from matwin.storage.layout import PageId
from matwin.storage.memory import MemoryPageFile
from matwin.storage.pagefile import LmdbPageFile

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
PAGE = 4096


def rows(first: int, count: int, width: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.record_batch({"n": numbers, "text": [f"{n % 10}" * width for n in numbers]})


def put(lanes: Lanes, first: int, counts: list[int], width: int) -> None:
    """Rows numbered from `first` on, so many for each lane."""
    lanes.put(rows(first, sum(counts), width), [0, *accumulate(counts)])


puts = st.tuples(
    st.just("put"), st.just(0), st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.sampled_from([0, 3, 700]),
)  # fmt: skip
takes = st.tuples(st.just("take"), st.integers(0, 4), st.just(0), st.just(0))
peeks = st.tuples(st.just("peek"), st.integers(0, 4), st.just(0), st.just(0))


@pytest.mark.parametrize("kind", ["lmdb", "memory"])
@given(st.lists(st.one_of(puts, puts, takes, peeks), max_size=40))
@settings(max_examples=60)
def test_lanes_are_a_dictionary_of_lists(kind: str, script: list[Any]) -> None:
    """Also where pages take several records, and more than the pool can hold."""
    file = LmdbPageFile(None, page_size=PAGE) if kind == "lmdb" else MemoryPageFile(page_size=PAGE)
    model: dict[int, list[int]] = {}
    with Store(memory=32 * PAGE, page_size=PAGE, file=file) as store:
        lanes = store.lanes("parts", SCHEMA)
        number = 0
        for what, lane, counts, width in script:
            kept = model.get(lane, [])
            if what == "put":
                put(lanes, number, counts, width)
                for to, count in enumerate(counts):
                    model[to] = [*model.get(to, []), *range(number, number + count)]
                    number += count
            elif what == "take":
                found = [n for batch in lanes.taken(lane) for n in batch["n"].to_pylist()]
                assert found == model.pop(lane, [])
            else:
                seen = [n for batch in lanes.peeked(lane, 100) for n in batch["n"].to_pylist()]
                assert seen == kept
            assert lanes.lane(lane).rows == len(model.get(lane, []))
            store.pool.check()
        lanes.close()
        assert store.pool.frames == 0


def test_records_are_as_long_as_their_pages() -> None:
    """Small pages don't take a whole record each, and pieces of many lanes share one."""
    with Store(memory="8MiB", page_size="256KiB") as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(200):
            put(lanes, number, [2] * 5, 100)
        store.pool.flush()
        assert store.pool.counters.writes == 200
        assert store.file.file_bytes < 200 * 2 * PAGE + 2**20


def test_a_page_goes_with_its_last_piece() -> None:
    """Whatever the order in which lanes are taken; each page counts as read once."""
    with Store(memory=32 * PAGE, page_size=PAGE) as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(40):
            put(lanes, number, [5, 5, 5], 100)
        pages = store.pool.counters.makes
        for lane in (1, 0):
            assert sum(batch.num_rows for batch in lanes.taken(lane)) == 200
            assert store.pool.counters.drops == 0
        assert sum(batch.num_rows for batch in lanes.taken(2)) == 200
        counters = store.pool.counters
        assert counters.drops == counters.hits + counters.reads == pages


def test_threads_take_lanes_that_share_pages() -> None:
    """No page goes while another thread still has a piece of it to read, and all go in the end."""
    lanes_count, puts_count = 12, 60
    with Store(memory=32 * PAGE, page_size=PAGE) as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(puts_count):
            put(lanes, number * lanes_count, [1] * lanes_count, 40)

        def taken(lane: int) -> list[int]:
            return [n for batch in lanes.taken(lane) for n in batch["n"].to_pylist()]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(taken, range(lanes_count)))
        for lane, numbers in enumerate(found):
            assert numbers == [lane + lanes_count * number for number in range(puts_count)]
        counters = store.pool.counters
        assert counters.drops == counters.hits + counters.reads == counters.makes
        store.pool.check()


def test_a_flipped_bit_in_a_lane_is_noticed(tmp_path: Path) -> None:
    """A page that came back changed is named, also where many are read at once."""

    def flipped(page_id: PageId, page: pa.Buffer) -> pa.Buffer:
        data = bytearray(page)
        data[-9] ^= page_id.page == 1
        return pa.py_buffer(bytes(data))

    class Flipping(LmdbPageFile):
        def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
            super().write([(page_id, flipped(page_id, page)) for page_id, page in pages])

    file = Flipping(tmp_path / "s", page_size=PAGE)
    with Store(memory=32 * PAGE, page_size=PAGE, file=file) as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(3):
            put(lanes, number, [10, 10], 10)
        store.pool.flush()
        for page in range(3):
            store.pool.evict(PageId(0, page))
        assert len(list(lanes.taken(0))) == 3
        with pytest.raises(CorruptPage, match="checksum of page 1 of window 0"):
            list(lanes.taken(1))
