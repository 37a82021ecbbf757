"""A capture: one stream, read and cut, with rows that wait for their epoch.

    source ──items──▶ cutter ──pieces──▶ waiting, by chunk ──take(chunk)──▶ the open chunk
                                           └── rows of later chunks: the row that opens the next
                                               epoch, and what came too early

Where reading begins again after a restart is one number, the first row that is in no chunk yet, and
which rows behind it are in one already (streams that are not sorted).  Nothing that waits is
written: it is read again.

    rows      0 1 2 3 4 5 6 7 8      in chunks: 0 1 2 4 5
    begins at       3                done behind it: 4 5

Invariant: rows read = taken + waiting + late + rejected.
"""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from matwin.feed import items_of
from matwin.growing import Growing
from matwin.inbox import Bell, Inbox
from matwin.keys import punctuation_key
from matwin.reading import Source
from matwin.storage.columns import Bools, Int64s
from matwin.storage.errors import InputError
from matwin.streams import Punctuation, Stream

from .cutter import Cutter, Piece, RangeCutter
from .matching import ChangeCutter
from .waiting import Waiting

NEVER = 2**70
"""Above the number of every chunk."""
HELD_PORTIONS = 4
"""Portions of a source that wait in memory, before more are put down."""


@runtime_checkable
class Replayable(Protocol):
    """A source that can be read again from a place that it has named itself."""

    def items_from(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on (None: from the beginning), None where nothing is there now."""

    def mark(self, row: int) -> tuple[Any, int]:
        """Where to begin for a row, by its number, as plain data that JSON can hold; and how many
        rows come before it from there on.  Asked with growing numbers."""


@runtime_checkable
class InStep(Protocol):
    """A source that gives rows only when an epoch needs them, and knows of the cuts."""

    def items_in_step(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on, each when it is asked for."""

    def ask(self, chunk: int | None, row: int) -> None:
        """The open chunk needs more than the rows below a number."""


class Capture:
    """One stream while it is captured."""

    def __init__(self, name: str, stream: Stream, cutter: Cutter, bell: Bell, waiting: int) -> None:
        """At most `waiting` bytes of a live stream are read ahead."""
        self.name, self.stream, self.cutter = name, stream, cutter
        self.rows_read = 0
        self.is_done = False
        # Objects that other streams lack may have to be read beyond: they are put down.
        by_object, share = isinstance(cutter, ChangeCutter), stream.source.share
        limit = HELD_PORTIONS * share.portion_bytes if by_object else None
        self._waiting = Waiting(name, stream.schema, limit, share.scratch)
        self._begin_row = 0
        self._read_before = 0
        """Rows below this number were read before a restart."""
        self._done: Bools | None = None
        """Which of these, from `_begin_row` on, are in a chunk already."""
        self._bell, self._waiting_bytes = bell, waiting
        self._items: Iterator[Any] | None = None
        self._inbox: Inbox | None = None
        self.heard_at = time.monotonic()
        self.goes_on = False
        """Whether the next start goes on with what a source that was told to end has left."""
        self.when_first: Callable[[Capture, pa.RecordBatch], None] | None = None
        """Called with the first rows, where ranges begin with them."""

    @property
    def schema(self) -> pa.Schema:
        """The stream's columns."""
        return self.stream.schema

    @property
    def inner(self) -> Source:
        """The source that the stream declares the order of."""
        return self.stream.source

    @property
    def is_replayable(self) -> bool:
        """Whether rows that are in no committed chunk can be read again."""
        return isinstance(self.inner, Replayable) or self.inner.is_repeatable

    def open(self, position: Mapping[str, Any] | None = None) -> None:
        """Begin to read, at the beginning or where a commit says."""
        mark = None
        if position is not None:
            mark = self._went_back(position)
        items = self._items_from(mark)
        if self.stream.is_live:
            self._inbox = Inbox(items, self._bell, self.name, self._waiting_bytes)
            self._inbox.start()
            items = self._inbox
        self._items = items
        self.heard_at = time.monotonic()

    def _items_from(self, mark: Any) -> Iterator[Any]:
        inner = self.inner
        if isinstance(inner, InStep):
            return inner.items_in_step(mark)
        return inner.items_from(mark) if isinstance(inner, Replayable) else items_of(self.stream)

    def _went_back(self, position: Mapping[str, Any]) -> Any:
        """Be where a commit was; what to give the source."""
        self.cutter.restore(position["cutter"], is_again=self.is_replayable)
        if not self.is_replayable:
            self.rows_read = self._begin_row = self._read_before = position["read"]
            return None
        self._begin_row, self._read_before = position["begin"], position["read"]
        self._done = _unpacked(position["done"], self._read_before - self._begin_row)
        self.rows_read = self._begin_row - position["skip"]
        return position["mark"]

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    @property
    def is_ready(self) -> bool:
        """Whether reading would not wait."""
        return not self.is_done and (self._inbox is None or self._inbox.is_ready)

    def ask(self, chunk: int | None) -> None:
        """Have a source that keeps in step give rows for a chunk."""
        if isinstance(self.inner, InStep):
            self.inner.ask(chunk, self.rows_read)

    @property
    def inbox(self) -> Inbox | None:
        """The queue of a live stream."""
        return self._inbox

    def read(self) -> bool:
        """Read an item; whether it said anything."""
        assert self._items is not None
        item = next(self._items, self)
        if item is None:
            return False
        self.heard_at = time.monotonic()
        if item is self:
            self._check_end()
            self.is_done = True
        elif isinstance(item, Punctuation):
            if isinstance(self.cutter, RangeCutter):
                self.cutter.punctuate(punctuation_key(item.upto, self.cutter.field))
        else:
            self._take(item)
        return True

    def drain(self) -> None:
        """Read what a live stream has said already, and nothing more."""
        if self._inbox is not None:
            self._inbox.close()
            while self._inbox.has_items:
                self.read()

    def _check_end(self) -> None:
        """Refuse a source that has become shorter: it is not the one that was read."""
        if self.rows_read < self._read_before and self.is_replayable:
            raise InputError(
                f"{self.name}: it ends after {self.rows_read:,} rows, and {self._read_before:,} "
                "had been read when the last epoch was committed; give the source that it was, or "
                "name another state folder"
            )

    def _take(self, rows: pa.RecordBatch) -> None:
        numbers = np.arange(self.rows_read, self.rows_read + rows.num_rows)
        self.rows_read += rows.num_rows
        if isinstance(self.cutter, RangeCutter) and self.cutter.needs_origin and self.when_first:
            self.when_first(self, rows)
        before = int(np.searchsorted(numbers, self._read_before))
        if before:
            old, old_numbers = self._not_done(rows.slice(0, before), numbers[:before])
            self._wait(self.cutter.again(old, old_numbers))
        if before < rows.num_rows:
            self._wait(self.cutter.pieces(rows.slice(before), numbers[before:]))

    def _not_done(self, rows: pa.RecordBatch, numbers: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """Of rows that were read before a restart, those that are in no chunk."""
        assert self._done is not None
        places = numbers - self._begin_row
        wanted = places >= 0
        wanted[wanted] = ~self._done[places[wanted]]
        return rows.filter(pa.array(wanted)), numbers[wanted]

    def _wait(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._waiting.put(piece)

    # ── chunks ───────────────────────────────────────────────────────────────────────────────

    @property
    def is_cut_short(self) -> bool:
        """Whether it was told to give what is there: what its last chunk lacks may come later, for
        a query that goes on then."""
        inner = self.inner
        is_told = isinstance(inner, Growing) and inner.switch.is_on
        return self.goes_on and self.is_replayable and is_told

    @property
    def complete_below(self) -> int:
        """Chunks below this number have come whole."""
        if self.is_done and not self.is_cut_short:
            return NEVER
        # The cutter knows what had been read before a restart; rows of that are still to come.
        is_behind = self.rows_read < self._read_before
        return -NEVER if is_behind else self.cutter.complete_below

    @property
    def first_waiting(self) -> int | None:
        """The number of the first chunk of which rows wait."""
        first = self._waiting.first
        return None if first is None else first + self.cutter.shift

    def take(self, chunk: int) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk that have come."""
        return self._waiting.take(chunk - self.cutter.shift)

    @property
    def objects(self) -> ChangeCutter:
        """The cutter of a stream that is cut by object."""
        assert isinstance(self.cutter, ChangeCutter)
        return self.cutter

    def drop_late(self) -> None:
        """The next object is late: its rows are of no use."""
        for rows in self._waiting.take(self.objects.drop()):
            self.cutter.late += rows.num_rows

    @property
    def waiting_rows(self) -> int:
        """How many rows wait for a later epoch."""
        return self._waiting.rows

    def position(self, chunk: int) -> dict[str, Any]:
        """Where a restart goes on after a chunk, as plain data."""
        waiting = self._waiting.ranges()
        read = max(self.rows_read, self._read_before)
        begin = min((first for first, _ in waiting), default=read)
        begin = min(begin, self._first_unread())
        done = np.ones(read - begin, np.bool_)
        for first, end in waiting:
            done[first - begin : end - begin] = False
        self._keep_unread(done, begin)
        mark, skip = self._mark(begin)
        return {
            "begin": begin, "read": read, "done": _packed(done), "mark": mark, "skip": skip,
            "cutter": self.cutter.state(chunk),
        }  # fmt: skip

    def _first_unread(self) -> int:
        """The first row that was read before a restart and is still to be read again."""
        if self._done is None or self.rows_read >= self._read_before:
            return NEVER
        at = max(self.rows_read - self._begin_row, 0)
        left = np.flatnonzero(~self._done[at:])
        return self._begin_row + at + int(left[0]) if len(left) else NEVER

    def _keep_unread(self, done: Bools, begin: int) -> None:
        """Rows that are still to be read again are as they were."""
        if self._done is not None and self.rows_read < self._read_before:
            at = max(self.rows_read, begin)
            done[at - begin :] = self._done[at - self._begin_row :]

    def _mark(self, row: int) -> tuple[Any, int]:
        if isinstance(self.inner, Replayable):
            return self.inner.mark(row)
        return None, row

    def close(self) -> None:
        """Read no more."""
        if self._inbox is not None:
            self._inbox.close()
        self._waiting.close()


def _packed(done: Bools) -> str:
    """Which rows are done, as text; runs of the same take next to nothing."""
    return base64.b64encode(zlib.compress(np.packbits(done).tobytes())).decode()


def _unpacked(text: str, rows: int) -> Bools:
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    found: Bools = np.unpackbits(bits, count=rows).astype(np.bool_)
    return found
