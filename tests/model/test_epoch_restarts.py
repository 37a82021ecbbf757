"""A query that is stopped and started again gives the epochs of one that never was.

Every epoch may be the last of a process: what comes next is known from the folder alone, and from
sources that can be read again.  Nothing is compared with the product's own idea of an epoch but
with the uninterrupted run, which `test_epoch_cuts.py` compares with a plain loop.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin.operators.epochs import capture, front
from matwin.reading import Source
from matwin.storage.errors import InputError

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a sync costs nothing: no power cut is tried here."""
SCHEMA = pa.schema([("v", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])


@dataclass(frozen=True)
class Log(Source):
    """A source that names its places itself, as a log with offsets does: a mark is the number of a
    batch, and of the first row in it."""

    parts: tuple[Any, ...] = ()
    asked: list[Any] = field(default_factory=list)

    def items_from(self, mark: Any) -> Iterator[Any]:
        self.asked.append(mark)
        yield from self.parts[mark[0] if mark else 0 :]

    def mark(self, row: int) -> tuple[Any, int]:
        first = 0
        for number, part in enumerate(self.parts):
            if isinstance(part, pa.RecordBatch):
                if row < first + part.num_rows:
                    return [number, first], row - first
                first += part.num_rows
        return [len(self.parts), first], row - first

    def batches(self, columns: Any = None) -> Iterator[pa.RecordBatch]:
        yield from (part for part in self.parts if isinstance(part, pa.RecordBatch))


@st.composite
def visits(draw: Any, rows: int) -> list[int]:
    """Objects that another stream may lack, or has late; often rising."""
    found = draw(st.lists(st.integers(0, draw(st.sampled_from([1, 5]))), min_size=rows,
                          max_size=rows))  # fmt: skip
    return sorted(found) if draw(st.booleans()) else found


@st.composite
def asked(draw: Any) -> dict[str, Any]:
    order = draw(
        st.sampled_from(
            [matwin.Sorted(), matwin.Lateness(12), matwin.ReadAhead(3), matwin.GridOrdered(5)]
        )
    )
    cut = draw(
        st.sampled_from(
            [matwin.cut.count(4), matwin.cut.every(10, on="v"), matwin.cut.on_change("k"),
             matwin.cut.on_change("k"), matwin.cut.every(7, on="v", align="first")]
        )
    )  # fmt: skip
    streams = {}
    for name in draw(st.sampled_from(["a", "ab"])):
        values = draw(st.lists(st.one_of(st.integers(0, 60), st.none()), max_size=25))
        if draw(st.booleans()):
            numbers = sorted(v for v in values if v is not None)
            values = [None if v is None else numbers.pop(0) for v in values]
        streams[name] = pa.record_batch(
            [values, draw(visits(len(values))), list(range(len(values)))], schema=SCHEMA
        )
    return {
        "order": order, "cut": cut, "streams": streams, "keep": draw(st.integers(1, 3)),
        "form": draw(st.sampled_from(["table", "log", "live log"])),
        "places": draw(st.lists(st.integers(1, 24), max_size=5)),
        "is_rising": draw(st.booleans()),
    }  # fmt: skip


def parts_of(rows: pa.RecordBatch, places: list[int]) -> tuple[pa.RecordBatch, ...]:
    stops = sorted({0, *(p for p in places if p < rows.num_rows), rows.num_rows})
    return tuple(rows.slice(a, b - a) for a, b in pairwise(stops))


def sources(case: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, rows in case["streams"].items():
        parts = parts_of(rows, case["places"])
        if case["form"] == "table":
            inner: Any = pa.Table.from_batches(parts, SCHEMA)
        else:
            inner = Log(name, SCHEMA, False, None, None, parts)
        # Objects are declared to rise by an order of their own column.
        is_rising = case["is_rising"] and str(case["cut"]).startswith("on_change")
        found[name] = matwin.stream(
            inner, order="sorted" if is_rising else case["order"], on="k" if is_rising else None,
            late="drop", live=case["form"] == "live log",
        )  # fmt: skip
    return found


def look(windows: Any) -> pa.Table:
    """All chunks that are kept, and how often it has been asked."""
    windows.notes["epochs"] = [*windows.notes.get("epochs", ()), windows.epoch]
    windows.notes[7] = windows.notes.get("7", 0) + 1  # a key that JSON has only as text
    names = list(windows)
    rows = {n: windows[n].to_arrow() for n in names}
    return pa.table({
        "stream": [n for n in names for _ in range(rows[n].num_rows)],
        "id": [i for n in names for i in rows[n]["id"].to_pylist()],
        "asked": [str(dict(windows.notes))] * sum(t.num_rows for t in rows.values()),
    })  # fmt: skip


def query(case: dict[str, Any], state: Path | None, **options: Any) -> Any:
    return matwin.continuous_query(
        look, sources(case), cut=case["cut"], keep=case["keep"], state=state, memory="512KiB",
        **options,
    )  # fmt: skip


def seen(epoch: Any) -> tuple[Any, ...]:
    rows = epoch.result.to_arrow().to_pydict()
    return epoch.id, str(epoch.bounds), tuple(sorted(epoch.report.rows.items())), str(rows)


@pytest.mark.proof("epochs: stopped and started again")
@settings(max_examples=campaign(50, 2000))
@given(case=asked(), steps=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_restarts(case: dict[str, Any], steps: list[int]) -> None:
    tried()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        whole = query(case, Path(folder) / "whole")
        expected = [seen(epoch) for epoch in whole]
        found: dict[int, Any] = {}
        for start in range(1000):
            again = query(case, Path(folder) / "state")
            epochs = iter(again)
            with closing(epochs):
                for _ in range(steps[start % len(steps)]):
                    epoch = next(epochs, None)
                    if epoch is None:
                        break
                    assert epoch.is_replayed == (epoch.id in found)
                    told = seen(epoch)
                    if epoch.is_replayed:
                        assert found[epoch.id][3] == told[3]
                    else:
                        found[epoch.id] = told
                else:
                    if start % 2:  # the last is acknowledged, and what follows is not begun
                        again.stop()
                        assert list(epochs) == []
                    continue
            break
        assert list(found.values()) == expected
        assert again.status.late == whole.status.late
        assert again.status.rejected == whole.status.rejected
        assert again.status.rows_in == whole.status.rows_in


def stopping(case: dict[str, Any], state: Path, after: int) -> Any:
    """A query that is stopped after so much progress, wherever it is then."""
    left = [after]

    def stop(status: Any) -> None:
        left[0] -= 1
        if left[0] < 0 and not status.is_done:
            found.stop()

    found = query(case, state, progress=stop)
    return found


@pytest.mark.proof("epochs: stopped and started again")
@settings(max_examples=campaign(50, 2000))
@given(case=asked(), steps=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_stopped_in_the_middle_of_a_chunk(case: dict[str, Any], steps: list[int]) -> None:
    """What has come of a chunk is left for the next start: on pages, in notes, nowhere.  What is
    read ahead for objects that are missing may be put down."""
    tried()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(front, "FRESH_SHARE", 2**60)  # every row is on a page at once
        patch.setattr(capture, "HELD_PORTIONS", 0)  # and what waits is put down
        expected = [seen(epoch) for epoch in query(case, Path(folder) / "whole")]
        found: dict[int, Any] = {}
        for start in range(1000):
            left = steps[start % len(steps)] + start // 50
            again = stopping(case, Path(folder) / "state", left)
            for epoch in again:
                assert not epoch.is_partial
                assert epoch.id not in found
                found[epoch.id] = seen(epoch)
            if not again._stop:
                break
        assert list(found.values()) == expected
        with closing(query(case, Path(folder) / "state")) as last:
            held = sum(window.held_rows for window in last._windows.values())
            assert held == sum(len(window.pages()) and window.count() for window in
                               (w._window for w in last._windows.values()))  # fmt: skip


def rows(first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"v": ids, "k": [0] * count, "id": ids}, SCHEMA)


def test_a_source_that_has_become_shorter(tmp_path: Path) -> None:
    def ask(source: Any) -> Any:
        return matwin.continuous_query(
            look, {"a": source}, cut=matwin.cut.count(10), state=tmp_path / "state"
        )

    assert len(list(ask(rows(0, 35)))) == 4
    for shorter in (rows(0, 34), rows(0, 0)):
        with pytest.raises(InputError, match=r"a: it ends after \d+ rows, and 35 had been read"):
            list(ask(shorter))
    # One that has grown goes on.
    found = list(ask(rows(0, 50)))
    assert [(e.id, e.report.rows) for e in found] == [(5, {"a": 10}), (6, {"a": 5})]


def test_streams_that_can_be_read_once_only_go_on_with_what_comes(tmp_path: Path) -> None:
    """The chunk that was open when it was stopped is open again: no row of it is late."""
    state, seen_rows = tmp_path / "state", []

    def ask(numbers: list[int], stop_at: int | None) -> Any:
        def items() -> Iterator[Any]:
            for n in numbers:
                while n == stop_at:
                    query.stop()
                    yield None
                yield {"v": n, "k": 0, "id": n}

        query = matwin.continuous_query(
            lambda windows: windows.newest("a").to_arrow(),
            {"a": matwin.stream(items(), schema=SCHEMA, live=False)},
            cut=matwin.cut.every(10, on="v"), state=state,
        )  # fmt: skip
        return query

    for epoch in ask([1, 2, 11, 13, 15], 15):
        seen_rows.append((epoch.result.to_arrow()["id"].to_pylist(), epoch.is_partial))
    for epoch in ask([15, 19, 22], None):
        if not epoch.is_replayed:
            seen_rows.append((epoch.result.to_arrow()["id"].to_pylist(), epoch.is_partial))
    assert [rows for rows, _ in seen_rows] == [[1, 2], [11, 13], [15, 19], [22]]


@pytest.mark.parametrize("cut", [matwin.cut.count(10), matwin.cut.every(10, on="v")])
@pytest.mark.parametrize("is_live", [True, False])
def test_stopping_loses_nothing_that_was_taken(cut: Any, is_live: bool) -> None:
    """One batch is many chunks; whoever stops after the first gets the others, too: they can't be
    had again.  What has not been taken is left."""
    taken = []

    def items() -> Iterator[Any]:
        for first in range(0, 10_000, 95):
            taken.extend(range(first, first + 95))
            yield rows(first, 95).to_batches()[0]

    query = matwin.continuous_query(
        lambda windows: windows.newest("a").to_arrow(),
        {"a": matwin.stream(items(), schema=SCHEMA, live=is_live)}, cut=cut, memory="8MiB",
    )  # fmt: skip
    found = []
    for epoch in query:
        query.stop()
        found += epoch.result.to_arrow()["id"].to_pylist()
    assert found == list(range(len(found)))
    assert epoch.is_partial or len(found) % 10 == 0
    # A thread may have taken one more batch, which it could hand over to nobody.
    assert len(found) in ((len(taken), len(taken) - 95) if is_live else (95,))
    assert len(found) < 10_000
