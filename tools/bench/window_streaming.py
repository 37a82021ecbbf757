"""Live streams through a keyed window join on one thread: tuples a second over the window.

    batches ─▶ │ fill: one window of each stream │ measured rows │ ─▶ results, drained
                                                 └ the clock starts when all streams are here

    window of W tuples of each stream    as many keys that a tuple always has its matches: for two
                                         streams 2 W / matches, for more as in `window_cases.py`

The window is full when the clock starts, so that what is measured is a steady state: rows come,
probe, and as many expire.  Each window is measured in memory and with a tenth of it as memory,
where it has to be on disk.  Twice the window should cost the same for a tuple.

The tables are made before; a stream is slices of one.  The join reads a few batches ahead of what
it has joined, and on disk it may gather rows before it joins them; what has gathered when the clock
starts is joined on the clock.  So the measured rows grow with the window.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

import matwin
from matwin.report import Report

from .arguments import WINDOW_LARGEST
from .joins import TICKS_A_ROW, WARM_ROWS, drain
from .measures import Disagreement
from .tenth import budget_of
from .window_cases import NAMES
from .window_measures import a_doubling

BATCH_ROWS = 8_192
WINDOWS = (100_000, 1_000_000, WINDOW_LARGEST)
QUICK_WINDOWS = (2_000, 4_000)
MEASURED_ROWS = 1_000_000
MEASURED_SHARE = 0.2
"""Of a window, at least."""
MATCHES = 10
LEAST_BYTES = 2 << 20
"""Memory of windows on disk, where a tenth of them is less; but never more than half of them."""
FLOW_SECONDS = 40.0
"""A flow that takes longer is cut: what it has done by then is shown, and compared with nothing."""
THREE_WAY = 3
THREE_WAY_WINDOW_MAX = 1_000_000
TUPLES_A_SECOND = 1_000_000.0
"""Of two streams in memory."""
THREE_WAY_A_SECOND = 200_000.0
"""Of three streams on disk."""
OF_MEMORY = 0.5
"""Of the rate in memory, on disk."""
SAME_COST = 1.1
"""What a doubling of the window may do to the cost of a tuple and still count as the same."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Live streams: how many tuples a window of each holds, and what is measured."""

    window_rows: int
    measured_rows: int
    matches: int = MATCHES
    seed: int = 0
    streams: int = 2

    @property
    def keys(self) -> int:
        """As many that a tuple has its number of matches."""
        of_a_key = (self.matches / self.streams) ** (1 / (self.streams - 1))
        return max(int(self.window_rows / of_a_key), 1)

    @property
    def window(self) -> int:
        """In units of time."""
        return self.window_rows * TICKS_A_ROW

    @property
    def window_bytes(self) -> int:
        """What all windows hold, in three columns of 64 bits."""
        return self.streams * self.window_rows * 3 * 8

    @property
    def all_rows(self) -> int:
        """Tuples of all streams, those that fill the windows among them."""
        return self.streams * (self.window_rows + self.measured_rows)

    def table(self, side: int) -> pa.Table:
        """All rows of a stream, in order."""
        generator = np.random.default_rng([self.seed, side])
        rows = self.window_rows + self.measured_rows
        times = np.arange(rows) * TICKS_A_ROW + generator.integers(0, TICKS_A_ROW, rows)
        keys = generator.integers(0, self.keys, rows)
        return pa.table({"k": keys, "t": times, "id": np.arange(rows)})


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one flow did."""

    flow: Flow
    is_on_disk: bool
    tuples: int
    seconds: float
    rows_out: int
    budget_bytes: int
    peak_bytes: int
    pages_read: int
    pages_written: int
    decisions: list[str]
    is_cut: bool = False
    """Whether it took too long, and was ended before all its rows had come."""
    per_doubling: float | None = None
    of_memory: float | None = None
    """The rate on disk as a share of that in memory."""

    @property
    def reach(self) -> float | None:
        """Tuples a second that are to be reached."""
        if self.flow.streams == 2:
            return None if self.is_on_disk else TUPLES_A_SECOND
        return THREE_WAY_A_SECOND if self.is_on_disk else None

    @property
    def is_too_slow(self) -> bool:
        """Whether it misses what is to be reached."""
        return self.is_cut or self.tuples_a_second < (self.reach or 0)

    @property
    def tuples_a_second(self) -> float:
        """Of all streams, in the measured part."""
        return self.tuples / self.seconds

    @property
    def microseconds(self) -> float:
        """For each tuple."""
        return 1e6 / self.tuples_a_second


class _Clock:
    """Starts when every stream has come to its measured part, and counts tuples from then on."""

    def __init__(self, streams: int) -> None:
        self._filling = streams
        self._lock = Lock()
        self.started = time.perf_counter()
        self.deadline = self.started + FLOW_SECONDS
        self.tuples = 0
        self.is_cut = False

    def fill(self) -> None:
        """One of the streams has filled its window."""
        with self._lock:
            self._filling -= 1
            if self._filling == 0:
                self.started, self.tuples = time.perf_counter(), 0

    def is_over(self, rows: int) -> bool:
        """Whether it is too late to give out more rows; counts them if not."""
        with self._lock:
            self.is_cut = self.is_cut or time.perf_counter() > self.deadline
            self.tuples += 0 if self.is_cut else rows
            return self.is_cut


def streaming(flows: Sequence[Flow], scratch: str | None) -> Iterator[Streamed]:
    """Every flow in memory, then every flow on disk; both find the same."""
    in_memory: dict[Flow, Streamed] = {}
    for is_on_disk in (False, True):
        before: Streamed | None = None
        for streams in sorted({flow.streams for flow in flows}):
            few = Flow(WARM_ROWS, WARM_ROWS, streams=streams)
            stream_once(few, scratch, is_on_disk=is_on_disk)  # compiles
        for flow in flows:
            row = stream_once(flow, scratch, is_on_disk=is_on_disk)
            row = _beside(in_memory.setdefault(flow, row), _grown(before, row))
            yield row
            before = row


def _grown(before: Streamed | None, row: Streamed) -> Streamed:
    """The row with what a doubling of the window has cost since the one before.

    The windows of a flow that was cut were never full, or not for long.
    """
    if before is None or before.is_cut or row.is_cut or before.flow.streams != row.flow.streams:
        return row
    sizes = (before.flow.window_rows, before.microseconds)
    rate = a_doubling(sizes, (row.flow.window_rows, row.microseconds))
    return replace(row, per_doubling=rate)


def _beside(memory: Streamed, row: Streamed) -> Streamed:
    """The row with its rate as a share of that in memory."""
    if not row.is_on_disk or memory.is_cut or row.is_cut:
        return row
    if memory.rows_out != row.rows_out:
        flow = row.flow
        raise Disagreement(
            f"live streams, windows of {flow.window_rows:,}, seed {flow.seed}: "
            f"{memory.rows_out:,} rows in memory, {row.rows_out:,} on disk"
        )
    return replace(row, of_memory=row.tuples_a_second / memory.tuples_a_second)


def stream_once(flow: Flow, scratch: str | None, *, is_on_disk: bool) -> Streamed:
    """One flow, once."""
    options: dict[str, Any]
    if is_on_disk:
        budget, page = budget_of(
            max(flow.window_bytes, min(10 * LEAST_BYTES, 5 * flow.window_bytes))
        )
        options = {"memory": budget, "page_size": page, "scratch": scratch}
    else:
        # A limit, not what is taken: with less, the join would look for pages to be safe.
        options = {"memory": max(16 * flow.window_bytes, 1 << 30)}
    tables = [flow.table(side) for side in range(flow.streams)]
    clock, report = _Clock(flow.streams), Report()
    streams = {
        name: matwin.stream(
            _batches(table, flow.window_rows, clock), order="sorted", schema=table.schema
        )
        for name, table in zip(NAMES, tables, strict=False)
    }
    rows_out = drain(
        matwin.window_join(
            streams, time="t", windows=flow.window, by="k", threads=1, report=report, **options
        )
    )
    seconds = time.perf_counter() - clock.started
    return Streamed(
        flow, is_on_disk, clock.tuples, seconds, rows_out, report.budget_bytes, report.peak_bytes,
        report.pages_read, report.pages_written, list(report.decisions), clock.is_cut,
    )  # fmt: skip


def _batches(table: pa.Table, fill_rows: int, clock: _Clock) -> Iterator[pa.RecordBatch]:
    whole = table.combine_chunks().to_batches()[0]
    edges = [*range(0, fill_rows, BATCH_ROWS), *range(fill_rows, whole.num_rows, BATCH_ROWS)]
    for start, stop in pairwise([*edges, whole.num_rows]):
        if start == fill_rows:
            clock.fill()
        if clock.is_over(stop - start):
            return
        yield whole.slice(start, stop - start)
