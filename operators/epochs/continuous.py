"""A continuous query: one living instance that runs epoch by epoch.

    captures ──rows as they come──▶ chunk windows ◀──scan, scan again── query, in a thread
        │ cut                                                             │
        ▼                                                                 ▼ result, put down
    commit: chunks, positions, result ──▶ sink delivers ──▶ Epoch ──▶ rewind: the next chunk opens

Invariants:
* An epoch is one commit: after a crash it has happened with its chunks, positions and result, or
  nothing of it has.
* A result is delivered after its commit, and once (`sinks.py`).
* What a query holds of an epoch goes with it; chunks within `keep`, tables and notes stay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from matwin.inbox import Bell
from matwin.report import Report, Visitors, visitors_of
from matwin.result import Result
from matwin.storage.errors import StoreError
from matwin.storage.store import Store

from .align import Alignment
from .capture import Capture
from .chunks import ChunkWindow, Stopped
from .cut import Bounds
from .durable import Notes, StateFolder
from .query import Query, Rows, Windows
from .sinks import Sink
from .spool import Held, Kept, Spooled

ARRIVALS_MAX = 16
"""Batches that wait for a query that takes rows as they come."""
WAIT_SECONDS = 0.05
Arrival = tuple[str, pa.RecordBatch] | Stopped | None
"""Rows of a stream, or that there are no more, or that the epoch does not happen."""


@dataclass(slots=True)
class EpochReport:
    """What an epoch has counted."""

    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each stream in the chunk."""
    late: dict[str, int] = field(default_factory=dict)
    """Rows of each stream that have come too late, since the beginning."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows without a value to cut by, since the beginning."""
    visitors: dict[str, Visitors] = field(default_factory=dict)
    """Of streams that listen, whose connections were refused or broke off, since the start."""
    rows_out: int = 0
    seconds_after_cut: float = 0.0
    """From the last row of the chunk to the result."""
    seconds_commit: float = 0.0
    """From the result to the end of the commit."""
    seconds: float = 0.0
    """From the first row of the chunk to the commit."""
    state_rows: int = 0
    """Rows that are kept of all streams."""
    state_bytes: int = 0
    """What the page file takes on disk."""


@dataclass(slots=True)
class Epoch:
    """One epoch: what it covers, and its result."""

    id: int
    bounds: Bounds | str
    result: Result
    report: EpochReport
    is_replayed: bool = False
    """Whether it was committed before a restart, and perhaps delivered then."""
    is_partial: bool = False
    """Whether the query was stopped before its chunk was complete."""

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.report.rows.items())
        return f"<Epoch {self.id}: {self.bounds}; {rows} rows in, {self.report.rows_out:,} out>"


@dataclass(slots=True)
class Status:
    """How a running query is doing; the same object all the time."""

    epoch: int = 0
    bounds: str = ""
    rows_in: int = 0
    rows_out: int = 0
    open_rows: int = 0
    """Rows of the chunk that is open."""
    waiting_rows: int = 0
    """Rows that have been read and are of later chunks."""
    late: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    """As in `EpochReport`, and those that came after the last epoch."""
    visitors: dict[str, Visitors] = field(default_factory=dict)
    """As in `EpochReport`, counted as they come."""
    state_rows: int = 0
    state_bytes: int = 0
    seconds_after_cut: float = 0.0
    newest_at: float | None = None
    """The newest row's time, in seconds since 1970, where streams are cut by times."""
    began_at: float = field(default_factory=time.time)
    is_done: bool = False

    @property
    def lag_seconds(self) -> float | None:
        """How far the newest row's time is behind the clock."""
        return None if self.newest_at is None else time.time() - self.newest_at


class ContinuousQuery:
    """A query over streams, run epoch by epoch; made by `matwin.continuous_query`.

    Iterate over it for the epochs, or `run` it to its end where a sink takes the results.
    """

    def __init__(
        self, query: Query, captures: Mapping[str, Capture], windows: Mapping[str, ChunkWindow],
        tables: Mapping[str, Any], sink: Sink, store: Store, *, state: StateFolder | None,
        asked: dict[str, str], bell: Bell, idle_seconds: float | None, query_bytes: int,
        spool_bytes: int, scratch: str | Path | None,
        progress: Callable[[Status], None] | None,
    ) -> None:  # fmt: skip
        self._query, self._sink, self._store, self._state = query, sink, store, state
        self._captures, self._windows, self._tables = captures, windows, tables
        self._query_bytes, self._spool_bytes, self._scratch = query_bytes, spool_bytes, scratch
        self._asked, self._progress = asked, progress
        self._stop = False
        self._is_closed = self._is_running = False
        self._alignment = Alignment(list(captures.values()), bell, idle_seconds, lambda: self._stop)
        self._notes = (state.notes if state else None) or Notes(asked)
        self._alignment.chunk = self._notes.chunk
        self.status = Status(
            self._notes.epoch, self._notes.bounds, self._notes.rows_in, self._notes.rows_out
        )
        known = {name: visitors_of(capture.inner) for name, capture in captures.items()}
        self.status.visitors = {name: each for name, each in known.items() if each is not None}

    # ── the caller's side ────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Epoch]:
        """The epochs, each when it is committed and delivered."""
        if self._is_running or self._is_closed:
            raise StoreError("a continuous query runs once; call continuous_query again")
        self._is_running = True
        return self._epochs()

    def run(self) -> Status:
        """Run to the end of all streams, or until it is stopped."""
        for _ in self:
            pass
        return self.status

    def stop(self) -> None:
        """End after the epoch that is under way.  A signal handler may call it.

        Where every source can be read again, rows of an unfinished chunk are left for the next
        start; otherwise they are an epoch of their own.  Where none can, what has been taken from
        them besides is used as well, in as many epochs as it takes.
        """
        self._stop = True

    def close(self) -> None:
        """Let go of everything; what is committed stays."""
        if self._is_closed:
            return
        self._is_closed = True
        for capture in self._captures.values():
            capture.close()
        for window in self._windows.values():
            window.stop()
        self._query.close()
        self._sink.close()
        if self._state is not None:
            self._state.close()
        else:
            self._store.close()

    def __enter__(self) -> ContinuousQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── epochs ───────────────────────────────────────────────────────────────────────────────

    def _epochs(self) -> Iterator[Epoch]:
        try:
            yield from self._left_over()
            for capture in self._captures.values():
                capture.open(self._notes.streams.get(capture.name))
            while self._alignment.begin():
                epoch = self._run_epoch()
                if epoch is None:
                    break
                yield epoch
            self._acknowledge()
            self._count()
            self.status.is_done = True
            self._tell()
        finally:
            self.close()

    def _acknowledge(self) -> None:
        """The last result has been taken: the next start need not deliver it again."""
        if self._state is not None and self._notes.output is not None:
            self._notes.output = None
            self._state.commit(self._notes)

    def _left_over(self) -> Iterator[Epoch]:
        """The result that was committed last: perhaps nobody has got it."""
        about = self._notes.output
        if self._state is None or about is None:
            return
        self._state.sweep()
        path = self._state.result_path(about["epoch"])
        if (self._sink.last() or 0) < about["epoch"]:
            result = Kept.read_back(path, about)
            self._sink.deliver(about["epoch"], result)
            report = EpochReport(rows=about["rows_in"], rows_out=about["rows"])
            yield Epoch(about["epoch"], self._notes.bounds, _result(result), report,
                        is_replayed=True)  # fmt: skip

    def _run_epoch(self) -> Epoch | None:
        """One epoch, from its first row to its delivery; None where it is none."""
        number = self._notes.epoch + 1
        report = EpochReport(rows=dict.fromkeys(self._windows, 0))
        for window in self._windows.values():
            window.begin(number)
        seen = self._seen(number)
        run = _Run(self._query, seen, lambda rows: self._put_down(number, rows))
        try:
            began = self._collect(run, report)
            is_partial = not self._alignment.is_over
            if not self._is_epoch(is_partial):
                run.abandon(self._windows.values())
                for window in self._windows.values():
                    window.take_back()
                return None
            cut_at = time.monotonic()
            for window in self._windows.values():
                window.end()
            result = run.result()
        except BaseException:
            run.abandon(self._windows.values())
            raise
        done_at = time.monotonic()
        report.rows_out, report.seconds_after_cut = result.rows, done_at - cut_at
        self._commit(number, result, report, seen.notes, is_partial)
        report.seconds_commit = time.monotonic() - done_at
        report.seconds = time.monotonic() - (began or cut_at)
        self._sink.deliver(number, result)
        self._note(report)
        return Epoch(number, self._alignment.bounds(), _result(result), report,
                     is_partial=is_partial)  # fmt: skip

    def _seen(self, epoch: int) -> Windows:
        # A copy: an epoch that does not happen leaves no notes.
        notes = deepcopy(self._notes.user)
        return Windows(self._windows, self._tables, notes, epoch, self._query_bytes, self._scratch)

    def _collect(self, run: _Run, report: EpochReport) -> float | None:
        """Take the chunk's rows as they come; when the first one came."""
        began: float | None = None
        self.status.open_rows = 0
        for name, rows in self._alignment.rows():
            began = began or time.monotonic()
            self._windows[name].add(rows)
            report.rows[name] += rows.num_rows
            self.status.open_rows += rows.num_rows
            run.give(name, rows)
            self._tell()
        return began

    def _is_epoch(self, is_partial: bool) -> bool:
        """Whether what has come is an epoch: not after the last row of all, nor where an
        unfinished chunk is better read again."""
        if is_partial and all(c.is_replayable for c in self._captures.values()):
            return False
        if is_partial:
            return self.status.open_rows > 0 or self._alignment.is_left
        return self._alignment.is_real

    def _put_down(self, epoch: int, rows: Rows) -> Spooled:
        if self._state is not None:
            return Kept.written(self._state.result_path(epoch), rows)
        return Held(rows, self._spool_bytes, self._scratch)

    def _commit(
        self, epoch: int, result: Spooled, report: EpochReport, user: dict[str, Any],
        is_partial: bool,
    ) -> None:  # fmt: skip
        assert self._alignment.chunk is not None
        # The next start opens an unfinished chunk again, for the rest of its rows.
        chunk, old = self._alignment.chunk - is_partial, self._notes
        rows_in = sum(report.rows.values())
        notes = Notes(
            self._asked, epoch, chunk, str(self._alignment.bounds()),
            user=user, rows_in=old.rows_in + rows_in, rows_out=old.rows_out + result.rows,
        )  # fmt: skip
        if self._state is not None and isinstance(result, Kept):
            notes.streams = {n: c.position(chunk) for n, c in self._captures.items()}
            notes.output = {"epoch": epoch, "rows_in": report.rows, **result.about()}
            self._state.commit(notes)
        else:
            self._store.pool.epoch = epoch
            self._store.pool.note("complete", "", f"epoch {epoch}")
        self._notes = notes

    def _note(self, report: EpochReport) -> None:
        self._count()
        report.late, report.rejected = self.status.late, self.status.rejected
        report.visitors = {name: replace(each) for name, each in self.status.visitors.items()}
        report.state_rows = sum(w.held_rows for w in self._windows.values())
        report.state_bytes = self._store.file.file_bytes
        status, notes = self.status, self._notes
        status.epoch, status.bounds = notes.epoch, notes.bounds
        status.rows_in, status.rows_out = notes.rows_in, notes.rows_out
        status.state_rows, status.state_bytes = report.state_rows, report.state_bytes
        status.seconds_after_cut = report.seconds_after_cut
        status.open_rows = 0
        self._tell()

    def _count(self) -> None:
        """What has come of no use; new dicts, because reports keep them."""
        self.status.late = {n: c.cutter.late for n, c in self._captures.items()}
        self.status.rejected = {n: c.cutter.rejected for n, c in self._captures.items()}

    def _tell(self) -> None:
        self.status.newest_at = self._newest()
        self.status.waiting_rows = sum(c.waiting_rows for c in self._captures.values())
        if self._progress is not None:
            self._progress(self.status)

    def _newest(self) -> float | None:
        times = [c.cutter.newest_at for c in self._captures.values()]
        return max((t for t in times if t is not None), default=None)


def _result(spooled: Spooled) -> Result:
    report = Report()
    report.rows_out, report.is_done = spooled.rows, True
    return Result(spooled.schema, spooled.opened(), report, lambda: "the result of an epoch")


class _Run:
    """A query at work on one epoch, in a thread of its own."""

    def __init__(self, query: Query, windows: Windows, put_down: Callable[[Rows], Spooled]) -> None:
        self._query, self._windows, self._put_down = query, windows, put_down
        # A join that a signal breaks off takes the thread for over (up to Python 3.12).
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: Spooled | None = None
        self._error: BaseException | None = None
        self._arrivals: SimpleQueue[Arrival] | None = None
        if getattr(query, "takes_arrivals", False):
            self._arrivals = SimpleQueue()
            self._room = threading.Semaphore(ARRIVALS_MAX)
            windows.arrivals = self._arriving(self._arrivals)

    def start(self) -> None:
        """Begin, if it has not."""
        if self._thread is None:
            name = f"matwin epoch {self._windows.epoch}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        try:
            self._result = self._put_down(self._query.run(self._windows))
        except BaseException as e:
            self._error = e  # raised where the rows are captured
        finally:
            self._done.set()

    def give(self, name: str, rows: pa.RecordBatch) -> None:
        """Rows have come; a query that takes them as they do is waited for if it falls behind."""
        self.start()
        self.check()
        if self._arrivals is not None:
            while not self._room.acquire(timeout=WAIT_SECONDS):
                self.check()
            self._arrivals.put((name, rows))

    def _arriving(self, arrivals: SimpleQueue[Arrival]) -> Iterator[tuple[str, pa.RecordBatch]]:
        while (arrival := arrivals.get()) is not None:
            if isinstance(arrival, Stopped):
                raise arrival
            yield arrival
            self._room.release()

    def check(self) -> None:
        """Raise what went wrong so far."""
        if self._error is not None:
            raise self._error

    def result(self) -> Spooled:
        """The result, waited for; the chunks are complete."""
        self.start()
        assert self._thread is not None
        if self._arrivals is not None:
            self._arrivals.put(None)
        self._thread.join()
        self.check()
        assert self._result is not None
        return self._result

    def abandon(self, windows: Any) -> None:
        """The epoch does not happen."""
        for window in windows:
            window.stop()
        if self._arrivals is not None:
            self._arrivals.put(Stopped())
        if self._thread is not None:
            interrupt = getattr(self._query, "interrupt", None)
            if interrupt is not None:
                interrupt()
            self._done.wait()
        if self._result is not None:
            self._result.close()
