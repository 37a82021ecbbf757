"""Live streams of single rows: what has come while the join was busy is one portion and one step.

A step over a window costs much the same for one row as for a hundred, so that 6,000 batches of one
row once took 20 to 50 times what 60 batches of a hundred did.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin import driver
from matwin.driver import Driver
from matwin.inbox import LOOSE_MAX, SMALL_ROWS, Bell, Inbox
from matwin.report import Report

ROWS = 3000


def single_rows(first: int, limit: int) -> Iterator[pa.RecordBatch]:
    for row in range(first, limit):
        yield pa.record_batch({"t": [row], "text": [f"row {row}"]})


def test_single_rows_that_wait_come_as_one() -> None:
    """In order, and few objects wait for them."""
    inbox = Inbox(single_rows(0, ROWS), Bell(), "a", 2**24)
    inbox._read()  # all of them fit
    assert len(inbox._queue) < LOOSE_MAX + SMALL_ROWS // LOOSE_MAX
    found = list(inbox)
    assert [batch.num_rows for batch in found] == [ROWS]
    assert found[0]["t"].to_pylist() == list(range(ROWS))
    assert (inbox._rows, inbox._bytes) == (0, 0)


def test_wide_single_rows_are_counted_with_their_columns() -> None:
    """A row of 2,000 columns takes a megabyte as a batch of its own, and 16 KB among others."""
    row = pa.record_batch({f"c{at}": [at] for at in range(2000)})
    inbox = Inbox(iter([row] * 100), Bell(), "a", 2**28)
    inbox._read()
    assert [waiting.rows for waiting in inbox._queue] == [LOOSE_MAX] + [1] * (100 - LOOSE_MAX)
    assert inbox._bytes == sum(waiting.size for waiting in inbox._queue)
    assert inbox._bytes > (100 - LOOSE_MAX) * 700_000
    assert [batch.num_rows for batch in inbox] == [100]
    assert inbox._bytes == 0


def test_what_is_said_between_rows_stays_there() -> None:
    def items() -> Iterator[Any]:
        for start in range(0, 400, 100):
            yield from single_rows(start, start + 100)
            yield matwin.Punctuation(start + 99)

    inbox = Inbox(items(), Bell(), "a", 2**24)
    inbox._read()
    found = list(inbox)
    assert [getattr(item, "num_rows", item) for item in found] == [
        100, matwin.Punctuation(99), 100, matwin.Punctuation(199), 100, matwin.Punctuation(299),
        100, matwin.Punctuation(399),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 1000, 5000])
def test_no_more_waits_than_has_room(size: int) -> None:
    """By rows, and by bytes whatever rows are like."""
    text = "x" * 1000
    batch = pa.record_batch({"t": range(size), "text": [text] * size})
    queued = Event()

    def items() -> Iterator[pa.RecordBatch]:
        for _ in range(100_000 // size):
            yield batch
        queued.set()

    inbox = Inbox(items(), Bell(), "a", 2**20)
    inbox.start()
    seen, most = 0, 0
    while seen < 100_000 // size * size:
        item = next(inbox)
        seen += item.num_rows
        most = max(most, item.nbytes)
    assert queued.wait(60)
    assert most <= max(2**20 + 2**16, batch.nbytes)


@pytest.mark.parametrize("form", [None, "standard", "grid", "slab"])
def test_rows_that_come_during_a_step_are_the_next_one(form: Any) -> None:
    """The first step goes on until all rows have been said; they are not joined one by one."""
    all_said = Event()
    waited: list[bool] = []

    def left() -> Iterator[pa.RecordBatch]:
        for row in range(ROWS):
            yield pa.record_batch({"t": [row], "a": [row]})
        all_said.set()

    def cost(a: Any, b: Any) -> Any:
        if not waited:
            waited.append(all_said.wait(60))
        return b

    right = pa.table({"t": range(ROWS), "b": range(ROWS)})
    on: dict[Any, Any] = {"t": 2, ("a", "b"): 2}
    options = {} if form is None else {"materialize": form}
    report = Report()
    schema = pa.schema([("t", pa.int64()), ("a", pa.int64())])
    found = matwin.bestmatch_join(
        matwin.stream(left(), schema=schema), right, on=on,
        orders={("a", "b"): matwin.minimize(cost)}, report=report, **options,
    ).to_arrow()  # fmt: skip
    assert waited == [True]
    assert set(found["a"].to_pylist()) == set(range(ROWS))
    assert report.steps < 12, report.steps


@pytest.mark.parametrize("form", [None, "standard", "grid", "slab"])
def test_a_row_that_somebody_waits_for_does_not_wait(form: Any) -> None:
    """The next row is said only when the last one's match has come out."""
    come: list[int] = []
    seen = Event()

    def left() -> Iterator[Any]:
        for row in range(30):
            seen.clear()
            yield pa.record_batch({"t": [row], "a": [row]})
            assert seen.wait(60), "its match did not come"
            come.append(row)

    right = pa.table({"t": range(30), "b": range(30)})
    options = {} if form is None else {"materialize": form}
    schema = pa.schema([("t", pa.int64()), ("a", pa.int64())])
    found = matwin.bestmatch_join(
        matwin.stream(left(), schema=schema), right, on={"t": 0}, **options
    )
    for batch in found:
        for _ in range(batch.num_rows):
            seen.set()
    assert come == list(range(30))


def test_what_gathers_from_fast_streams_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the last step took: a source that always has more says megabytes meanwhile."""
    monkeypatch.setattr(Driver, "_step_seconds", property(lambda _: 60.0, lambda *_: None),
                        raising=False)  # fmt: skip
    monkeypatch.setattr(driver, "WAIT_SECONDS", 60.0)
    schema = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("x", pa.float64())])

    def rows(seed: int) -> Iterator[pa.RecordBatch]:
        for first in range(0, 300_000, 2000):
            ids = np.arange(first, first + 2000)
            yield pa.record_batch([ids, ids * 7919 % 50_000 + seed, ids * 0.5], schema=schema)

    report = Report()
    streams = {n: matwin.stream(rows(i), schema=schema) for i, n in enumerate("ab")}
    found = matwin.window_join(
        streams, time="t", windows=200_000, by="k", memory="8MiB", report=report
    )
    assert sum(batch.num_rows for batch in found) >= 0
    assert report.pages_written > 0
    assert report.peak_bytes <= report.budget_bytes
