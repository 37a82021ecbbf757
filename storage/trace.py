"""The trace: every read, hit, write, pin, eviction, visit and expiry, as one Arrow IPC file.

An event is one row: when, what, which page of which window, in which frame, how many bytes, in
which epoch, with which mate, and why.  Events gather as tuples and become columns a few thousand
at a time.

    seq  time_ns  event  window  page  frame  bytes   epoch  mate_window  mate_page  why
      0     1843  make   left       0      0  262080      0                      -1  slab
      1     2977  write  left       0      0  262080      0                      -1  room
      2     4102  visit  left       0     -1       0      0  right                3

The file appears under its name when it is closed; a trace that was there stays until then.

A mate is the other page of a visit.  The counts in a trace equal the pool's counters: both are
made by the same call.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from .errors import InputError, StoreError
from .names import listed
from .partfile import PartFile

TRACE_VERSION = 2
EVENTS = (
    "make",  # a page was encoded into a frame
    "fetch",  # the reading of a page began, into this frame
    "read",  # a page was read from the page file into a frame
    "hit",  # a page was wanted and was in a frame
    "pin",
    "unpin",
    "write",  # a frame was written to the page file
    "evict",  # a page left its frame to make room
    "drop",  # a page was given up because it was rewritten
    "expire",  # a page was given up because its rows are below the bound
    "choose",  # a decision, with its reason
    "complete",  # a step became visible
    "plan",  # a walk over pairs of pages began; why is its layout, as JSON
    "mode",  # the walk changed its mode
    "visit",  # a kernel got a pair of pages, this one and its mate
    "visited",  # the kernel was done with the pair
    "walked",  # the walk is over, or was given up
)
NO_MATE = ("", -1)
Event = tuple[int, str, str, int, int, int, int, str, int, str]
_FLUSH_EVERY = 8192
_HEAD_BYTES = 8192
_NAME = pa.dictionary(pa.int32(), pa.utf8())
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("time_ns", pa.int64()),
        ("event", _NAME),
        ("window", _NAME),
        ("page", pa.int64()),
        ("frame", pa.int32()),
        ("bytes", pa.int64()),
        ("epoch", pa.int64()),
        ("mate_window", _NAME),
        ("mate_page", pa.int64()),
        ("why", pa.utf8()),
    ]
)


class Trace(Protocol):
    """Where events go."""

    def record(
        self,
        event: str,
        window: str,
        page: int,
        frame: int,
        size: int,
        epoch: int,
        why: str,
        mate: tuple[str, int] = NO_MATE,
    ) -> None:
        """Take one event."""

    def close(self) -> None:
        """No more events."""


class NoTrace:
    """A trace that nobody asked for."""

    def record(
        self,
        event: str,
        window: str,
        page: int,
        frame: int,
        size: int,
        epoch: int,
        why: str,
        mate: tuple[str, int] = NO_MATE,
    ) -> None:
        """Forget the event."""

    def close(self) -> None:
        """Nothing to close."""


class TraceFile:
    """Events into an Arrow IPC file; `settings` are kept in the file's schema."""

    def __init__(self, path: Path, settings: dict[str, str] | None = None) -> None:
        check_target(path)
        metadata = {"matwin.trace": str(TRACE_VERSION), **(settings or {})}
        try:
            self._part = PartFile(path.resolve(), overwrite=True)
            self._sink = pa.OSFile(str(self._part.path), "wb")
        except (OSError, RuntimeError) as e:
            raise StoreError(f"{path}: the trace can't be written: {e}") from e
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        self._writer = pa.ipc.new_file(self._sink, SCHEMA.with_metadata(metadata), options=options)
        self._events: list[Event] = []
        self._names: dict[str, dict[str, int]] = {"event": {}, "window": {}, "mate_window": {}}
        self._seq = 0
        self._start = time.perf_counter_ns()
        self._is_closed = False
        self._process = os.getpid()
        self._path = path
        self._error: Exception | None = None

    def record(
        self,
        event: str,
        window: str,
        page: int,
        frame: int,
        size: int,
        epoch: int,
        why: str,
        mate: tuple[str, int] = NO_MATE,
    ) -> None:
        """Take one event."""
        now = time.perf_counter_ns() - self._start
        self._events.append((now, event, window, page, frame, size, epoch, *mate, why))
        if len(self._events) >= _FLUSH_EVERY:
            self._flush()

    def _flush(self) -> None:
        if not self._events:
            return
        times, events, windows, pages, frames, sizes, epochs, mates, mate_pages, whys = zip(
            *self._events, strict=True
        )
        count = len(self._events)
        columns = [
            pa.array(range(self._seq, self._seq + count), pa.int64()),
            pa.array(times, pa.int64()),
            self._encoded("event", events),
            self._encoded("window", windows),
            pa.array(pages, pa.int64()),
            pa.array(frames, pa.int32()),
            pa.array(sizes, pa.int64()),
            pa.array(epochs, pa.int64()),
            self._encoded("mate_window", mates),
            pa.array(mate_pages, pa.int64()),
            pa.array(whys, pa.utf8()),
        ]
        self._events.clear()
        self._seq += count
        self._write(pa.RecordBatch.from_arrays(columns, names=SCHEMA.names))

    def _write(self, batch: pa.RecordBatch) -> None:
        """A disk that is full ends the trace, not the work: the error waits for `close`."""
        if self._error is None:
            try:
                self._writer.write_batch(batch)
            except (OSError, pa.ArrowInvalid) as e:
                self._error = e

    def _encoded(self, column: str, values: tuple[str, ...]) -> pa.DictionaryArray:
        codes = self._names[column]
        indices = pa.array([codes.setdefault(value, len(codes)) for value in values], pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(codes, pa.utf8()))

    def close(self) -> None:
        """Write what is left and the file's footer; a forked child leaves the file alone."""
        if self._is_closed or self._process != os.getpid():
            return
        self._is_closed = True
        self._flush()
        try:
            self._writer.close()
            self._sink.close()
            if self._error is None:
                self._part.complete()
        except (OSError, pa.ArrowInvalid) as e:
            self._error = self._error or e
        finally:
            self._part.remove()
            os.close(self._part.descriptor)
        if self._error is not None:
            raise StoreError(f"{self._path}: the trace is not complete: {self._error}")


_OPEN = re.compile(r"/dev/(fd/\d+|std(in|out|err))|/proc/self/fd/\d+")


def check_target(path: Path) -> None:
    """Refuse to write a trace over anything but a trace: it may be what is about to be read."""
    try:
        if not path.exists():
            return
        # The end of an Arrow file says where its parts begin, and a name of what is open already is
        # nothing to be replaced.
        if not path.is_file() or _OPEN.fullmatch(str(path)):
            raise InputError(f"{path} is no plain file, which a trace needs; name another file")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except InputError:
        raise
    except (OSError, ValueError) as e:
        raise StoreError(f"{path}: the trace can't be written: {e}") from e
    if head and not (head.startswith(b"ARROW1") and b"matwin.trace" in head):
        raise InputError(f"{path} is there already, and is no trace; name another file for it")


def read_trace(path: Path) -> pa.Table:
    """The events of a trace file; its settings are in the schema's metadata.

    >>> sorted(EVENTS)[:3]
    ['choose', 'complete', 'drop']
    """
    try:
        with pa.ipc.open_file(str(path)) as reader:
            table = reader.read_all()
    except FileNotFoundError as e:
        raise StoreError(f"{path}: there is no such trace file") from e
    except (pa.ArrowInvalid, OSError) as e:
        raise StoreError(f"{path} is no trace file, or is cut off: {e}") from e
    _check_version(path, table.schema)
    return table


def _check_version(path: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(b"matwin.trace")
    if version is None or not version.isdigit():
        raise StoreError(f"{path} is an Arrow file, but not a trace")
    if int(version) > TRACE_VERSION:
        raise StoreError(f"{path} is a trace of version {int(version)}; update MatWin to read it")
    if int(version) < TRACE_VERSION:
        raise StoreError(
            f"{path} is a trace of version {int(version)}; run again to make a new one"
        )
    if schema.names != SCHEMA.names or schema.types != SCHEMA.types:
        raise StoreError(f"{path} says it is a trace, but its columns are {listed(schema.names)}")
