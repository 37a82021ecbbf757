"""What live window joins keep and let go: state, back-pressure, threads and errors.

    source ──thread──▶ short queue ──▶ join: rows that can still match ──▶ reader

A join that nobody reads must not read either; what no later row can meet must go, and not a row
more; and when the reader is gone its threads are gone.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from talking import BACKWARD, FORWARD, PATIENCE, SCHEMA, live, row

import matwin
from matwin.report import Report

# ── the state ────────────────────────────────────────────────────────────────────────────────


def counting(rows: int, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of this many rows, two for each moment, for ever or up to a limit of rows."""
    first = 0
    while limit is None or first < limit:
        number = np.arange(first, first + rows if limit is None else min(first + rows, limit))
        moment = number // 2
        yield pa.record_batch([moment, moment % 7, number], schema=SCHEMA)
        first += rows


@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
def test_what_no_later_row_can_meet_is_dropped(algorithm: str) -> None:
    """Many rows through a narrow window: nothing is written, and nothing is dropped too early.

    All matches are at the very edge of the windows, and an odd number of rows a batch leaves the
    second row of a moment for the next one.
    """
    report = Report()
    sources = {name: live(counting(333, limit=60_000)) for name in "abc"}
    windows = {("a", "b"): (7, 7), ("b", "c"): (-7, -7)}
    reader = matwin.window_join(
        sources, time="t", windows=windows, by="k", algorithm=algorithm, memory="2MiB",
        page_size="16KiB", report=report,
    )  # fmt: skip
    assert sum(batch.num_rows for batch in reader) == 8 * (30_000 - 7)
    assert report.pages_written == 0
    assert report.peak_bytes <= report.budget_bytes


@pytest.mark.parametrize("algorithm", BACKWARD)
def test_streams_go_on_after_one_has_ended(algorithm: str) -> None:
    """Once its last row is out of reach, the others' rows are not kept either."""
    report = Report()
    sources = {"a": live(counting(1000, limit=60_000)), "b": live(counting(1000, limit=60_000))}
    sources["c"] = live(iter([row(0), row(3, 3)]))
    reader = matwin.window_join(
        sources, time="t", windows=2, by="k", algorithm=algorithm, memory="2MiB",
        page_size="16KiB", report=report,
    )  # fmt: skip
    assert sum(batch.num_rows for batch in reader) == 2 * 4
    assert report.pages_written == 0
    report.check()


@pytest.mark.parametrize("algorithm", ["auto", "backward-nested-loop", "forward-hash"])
def test_an_endless_stream_is_not_read_ahead_of_its_reader(algorithm: str) -> None:
    taken: Counter[str] = Counter()
    too_many = threading.Event()

    def endless(name: str) -> Iterator[pa.RecordBatch]:
        for batch in counting(500):
            taken[name] += 1
            if taken[name] > 200:
                too_many.set()
            yield batch

    sources = {name: live(endless(name)) for name in "abc"}
    reader = matwin.window_join(
        sources, time="t", windows=2, by="k", algorithm=algorithm, memory="8MiB"
    )
    for _ in range(5):
        assert reader.read_next_batch().num_rows > 0
    # With nobody reading, the threads run into full queues long before two hundred batches; one
    # that did not stop would have taken them in a few milliseconds.
    assert not too_many.wait(0.3)
    assert min(taken.values()) > 0


def reading_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("matwin stream")]


def test_a_reader_that_is_dropped_stops_its_threads() -> None:
    before = set(reading_threads())
    reader = matwin.window_join(
        {name: live(counting(100)) for name in "ab"}, time="t", windows=2, by="k"
    )
    assert reader.read_next_batch().num_rows > 0
    started = set(reading_threads()) - before
    assert len(started) == 2
    del reader
    gc.collect()
    for thread in started:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in started)


def test_a_stream_that_says_nothing_for_ever_is_left_as_well() -> None:
    """Its thread ends with the reader, though it never has anything to hand over."""
    before, released = set(reading_threads()), threading.Event()

    def idle() -> Iterator[Any]:
        yield row(0)
        while not released.wait(0.001):
            yield None

    sources = {"a": live(idle()), "b": live(counting(10))}
    reader = matwin.window_join(sources, time="t", windows=2, by="k")
    assert reader.read_next_batch().num_rows > 0
    started = set(reading_threads()) - before
    try:
        del reader
        gc.collect()
        for thread in started:
            thread.join(PATIENCE)
        assert len(started) == 2
        assert not any(thread.is_alive() for thread in started)
    finally:
        released.set()


@pytest.mark.parametrize("algorithm", BACKWARD + FORWARD)
def test_a_stream_that_fails_lets_its_error_through(algorithm: str) -> None:
    before = set(reading_threads())

    def broken() -> Iterator[Any]:
        yield row(1)
        raise ConnectionError("the sensor is gone")

    sources = {"a": live(counting(10)), "b": live(broken())}
    reader = matwin.window_join(sources, time="t", windows=1, by="k", algorithm=algorithm)
    with pytest.raises(ConnectionError, match="the sensor is gone"):
        for _ in reader:
            pass
    for thread in set(reading_threads()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_an_endless_join_stops_at_its_limit() -> None:
    sources = {name: live(counting(100)) for name in "ab"}
    reader = matwin.window_join(sources, time="t", windows=2, by="k", max_output_rows=5000)
    got = 0
    with pytest.raises(matwin.InputError, match="max_output_rows=5000"):
        for batch in reader:
            got += batch.num_rows
    assert got <= 5000
