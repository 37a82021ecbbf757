"""Lanes against a dictionary: what is put down in a lane comes back once, in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.storage import CorruptPage, Store
from matwin.storage.layout import PageId
from matwin.storage.memory import MemoryPageFile
from matwin.storage.pagefile import LmdbPageFile

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
PAGE = 4096


def rows(first: int, count: int, width: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.record_batch({"n": numbers, "text": [f"{n % 10}" * width for n in numbers]})


puts = st.tuples(
    st.just("put"), st.integers(0, 4), st.integers(1, 40), st.sampled_from([0, 3, 700])
)
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
        for what, lane, count, width in script:
            kept = model.get(lane, [])
            if what == "put":
                lanes.append(lane, rows(number, count, width))
                model[lane] = [*kept, *range(number, number + count)]
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
    """Small pages don't take a whole record each."""
    with Store(memory="8MiB", page_size="256KiB") as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(200):
            lanes.append(number, rows(number, 10, 100))
        store.pool.flush()
        assert store.file.file_bytes < 200 * 2 * PAGE + 2**20


def test_a_flipped_bit_in_a_lane_is_noticed(tmp_path: Path) -> None:
    """A page that came back changed is named, also where many are read at once."""

    class Flipping(LmdbPageFile):
        def _first_part(self, view: memoryview, page_id: PageId) -> pa.Buffer:
            page = bytearray(super()._first_part(view, page_id))
            page[len(page) // 2] ^= page_id.page == 1
            return pa.py_buffer(bytes(page))

    file = Flipping(tmp_path / "s", page_size=PAGE)
    with Store(memory=32 * PAGE, page_size=PAGE, file=file) as store:
        lanes = store.lanes("parts", SCHEMA)
        for number in range(3):
            lanes.append(0, rows(number, 10, 10))
        store.pool.flush()
        for page in range(3):
            store.pool.evict(PageId(0, page))
        with pytest.raises(CorruptPage, match="checksum of page 1 of window 0"):
            list(lanes.taken(0))
