"""Windows of chunks: a first scan while the chunk is open, and every later one, give the rows that
came, in their order, whatever lies on pages by then."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

from matwin.operators.epochs.chunks import CHUNK, ChunkSource, ChunkWindow, Stopped
from matwin.storage.errors import InputError
from matwin.storage.store import Store

PAYLOADS: dict[str, Any] = {
    "whole": (pa.int64(), lambda i: None if i % 5 == 4 else i),
    "float": (pa.float32(), lambda i: [0.0, -0.0, float("inf"), None, 1.5][i % 5]),
    "text": (pa.string(), lambda i: None if i % 4 == 3 else "ä" * (i % 7)),
    "large text": (pa.large_string(), lambda i: "x" * (i % 3)),
    "view": (pa.string_view(), lambda i: "a long text beside short ones" if i % 2 else "s"),
    "bytes": (pa.binary(3), lambda i: bytes([i % 7] * 3)),
    "bool": (pa.bool_(), lambda i: [True, False, None][i % 3]),
    "words": (pa.dictionary(pa.int8(), pa.string()), lambda i: [None, "one", "two"][i % 3]),
    "list": (pa.list_(pa.int16()), lambda i: None if i % 4 == 0 else list(range(i % 3))),
    "struct": (pa.struct([("x", pa.int8()), ("y", pa.string())]), lambda i: {"x": i % 9, "y": "t"}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda i: [("k", i)]),
    "decimal": (pa.decimal128(9, 2), lambda i: None),
    "time": (pa.timestamp("ns", "UTC"), lambda i: i * 10**9),
    "null": (pa.null(), lambda i: None),
}


def rows(names: list[str], first: int, count: int) -> pa.RecordBatch:
    columns = {"id": pa.array(range(first, first + count), pa.int64())}
    for name in names:
        kind, value = PAYLOADS[name]
        columns[name] = pa.array([value(i) for i in range(first, first + count)], kind)
    return pa.record_batch(columns)


def plain(found: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


class Scan(threading.Thread):
    """A scan in a thread of its own."""

    def __init__(self, window: ChunkWindow, epochs: list[int], columns: Any = None) -> None:
        super().__init__()
        self.window, self.epochs, self.columns = window, epochs, columns
        self.found: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for batch in self.window.scan(self.epochs, self.columns):
                self.found += batch.to_pylist()
        except BaseException as e:
            self.error = e

    def result(self) -> list[dict[str, Any]]:
        self.join(30)
        assert not self.is_alive(), "a scan that waits for what has come"
        if self.error is not None:
            raise self.error
        return self.found


@pytest.mark.proof("epochs: queries against plain loops")
@settings(max_examples=campaign(80, 3000))
@given(
    names=st.lists(st.sampled_from([*PAYLOADS]), max_size=3, unique=True),
    parts=st.lists(st.lists(st.integers(0, 40), max_size=5), min_size=1, max_size=6),
    keep=st.integers(1, 4), share=st.sampled_from([0, 300, 2000, 10**9]),
)  # fmt: skip
def test_scans(names: list[str], parts: list[list[int]], keep: int, share: int) -> None:
    tried()
    model: dict[int, list[dict[str, Any]]] = {}
    with Store(memory="128KiB", page_size=4096) as store:
        window = ChunkWindow(store, "w", rows(names, 0, 0).schema, keep, share)
        first = 0
        for epoch, sizes in enumerate(parts, 1):
            window.begin(epoch)
            model[epoch] = []
            known = window.epochs()
            assert known == [e for e in model if e > epoch - keep]
            scans = [Scan(window, known)]
            assert window.rows(known) is None
            for size in sizes:
                batch = rows(names, first, size)
                window.add(batch)
                model[epoch] += batch.to_pylist()
                first += size
                scans.append(Scan(window, [epoch], ["id"]))
            window.end()
            whole = [row for e in known for row in model[e]]
            assert scans[0].result() == whole
            for scan in scans[1:]:
                assert scan.result() == [{"id": row["id"]} for row in model[epoch]]
            assert window.rows(known) == window.held_rows == len(whole)
            assert plain(list(window.scan(known))) == whole
            for last in (1, keep):
                source = ChunkSource.of(window, window.epochs(last, skip=1))
                old = [row for e in known if epoch - last < e < epoch for row in model[e]]
                assert plain(list(source.batches())) == old
        store.check()
        assert sum(ref.rows for ref in window._window.pages()) == window.held_rows


def test_chunks_leave_whole_and_their_pages_with_them() -> None:
    with Store(memory="128KiB", page_size=4096) as store:
        window = ChunkWindow(store, "w", rows(["text"], 0, 0).schema, 2, 0)
        for epoch in range(1, 30):
            window.begin(epoch)
            window.add(rows(["text"], epoch * 200, 200))
            window.end()
            assert window.epochs() == [e for e in (epoch - 1, epoch) if e]
            pages = window._window.pages()
            assert {ref.fence.order_min for ref in pages} == set(window.epochs())
            assert all(ref.fence.order_min == ref.fence.order_max for ref in pages)
        assert len(store.file.page_ids()) <= 2 * len(pages)


def test_a_scan_of_an_open_chunk_ends_when_nothing_more_comes() -> None:
    with Store(memory="128KiB", page_size=4096) as store:
        window = ChunkWindow(store, "w", rows([], 0, 0).schema, 1, 10**9)
        window.begin(1)
        window.add(rows([], 0, 5))
        scan = Scan(window, [1])
        window.stop()
        with pytest.raises(Stopped):
            scan.result()


def test_a_chunk_that_does_not_happen_leaves_nothing() -> None:
    with Store(memory="128KiB", page_size=4096) as store:
        window = ChunkWindow(store, "w", rows([], 0, 0).schema, 3, 0)
        window.begin(1)
        window.add(rows([], 0, 50))
        window.end()
        window.begin(2)
        window.add(rows([], 50, 50))
        window.take_back()
        assert window.epochs() == [1]
        window.begin(2)
        window.add(rows([], 50, 7))
        window.end()
        assert [r["id"] for r in plain(list(window.scan([1, 2])))] == list(range(57))
        assert sum(ref.rows for ref in window._window.pages()) == 57


def test_our_column_is_ours() -> None:
    with Store(memory="128KiB", page_size=4096) as store, pytest.raises(InputError, match="rename"):
        ChunkWindow(store, "w", pa.schema([(CHUNK, pa.int64())]), 1, 0)
