"""Several streams, one epoch: which rows belong to it, and when it is over.

    a   ───────│──────────│───────
    b   ────────│─────────│────────        an epoch is over when every stream has passed its end,
    c   ──│ silent                         has ended, or has been silent for too long

Who has passed the end waits for the others: it is not read any further.  Live streams are read by
threads of their own into short queues (`matwin.inbox`), so that nobody waits for a silent one.

Invariants: chunk numbers go up by one, whatever the streams say; rows of a chunk that is over are
late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from matwin.inbox import Bell
from matwin.storage.errors import InputError

from .capture import NEVER, Capture
from .cut import Bounds
from .cutter import RangeCutter
from .matching import ChangeCutter, Matching

WAIT_SECONDS = 0.05
EMPTY_MAX = 1_000_000
"""More empty ranges in a row than this are a wrong value, not a quiet stream."""


class Alignment:
    """The captures of one query, chunk by chunk."""

    def __init__(
        self, captures: Sequence[Capture], bell: Bell, idle_seconds: float | None,
        is_stopped: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.captures = captures
        self.chunk: int | None = None
        """The number of the chunk that is open, or was open last."""
        self._bell, self._idle, self._is_stopped = bell, idle_seconds, is_stopped
        self._rows = 0
        self._is_by_value = captures[0].cutter.is_by_value
        is_by_object = isinstance(captures[0].cutter, ChangeCutter)
        self._matching = Matching(captures) if is_by_object else None
        for capture in captures:
            capture.when_first = self._found_first

    @property
    def is_stopped(self) -> bool:
        """Whether somebody wants it to end."""
        return self._is_stopped()

    def begin(self) -> bool:
        """Open the next chunk; False where there is none."""
        self._rows = 0
        self._drain_if_stopped()
        if not (self._open_first() if self.chunk is None else self._open_next(self.chunk + 1)):
            return False
        assert self.chunk is not None
        for capture in self.captures:
            capture.cutter.close(self.chunk - 1)
        if self._matching is not None and not self._open_object(self._matching, self.chunk):
            return False
        self._check_gap(self.chunk)
        return not self.is_stopped or self.is_left

    def _drain_if_stopped(self) -> None:
        """What has been taken from streams that can't be read again is still used."""
        if self.is_stopped and not any(c.is_replayable for c in self.captures):
            for capture in self.captures:
                capture.drain()

    @property
    def is_left(self) -> bool:
        """Whether rows wait that would be lost."""
        is_once = not any(c.is_replayable for c in self.captures)
        return is_once and any(c.first_waiting is not None for c in self.captures)

    def _open_first(self) -> bool:
        """Begin with the first chunk that a stream has rows of."""
        if not self._is_by_value:
            self.chunk = 0
            return self._has_more(0)
        while True:
            known = [c.first_waiting for c in self.captures if c.first_waiting is not None]
            first = min(known, default=NEVER)
            # Rows of an earlier chunk may still come where the order is not sorted.
            waits = [c for c in self.captures if not c.is_done and c.complete_below < first]
            if not waits or self.is_stopped or (known and all(self._is_idle(c) for c in waits)):
                if known:
                    self.chunk = first
                return bool(known)
            self._read(waits)
            self._drain_if_stopped()

    def _open_next(self, chunk: int) -> bool:
        self.chunk = chunk
        while not self.is_stopped and self._is_far(chunk):
            self._read([c for c in self.captures if not c.is_done])
        return self._has_more(chunk)

    def _open_object(self, matching: Matching[Capture], chunk: int) -> bool:
        """Find the streams that have the next object; False where there is none, or none yet."""
        while True:
            wanted = matching.open(chunk, self._is_all_known)
            if not wanted:
                return wanted is not None
            waits = [c for c in wanted if not c.is_done]
            if self.is_stopped or not waits:
                return False
            self._read(waits)
            self._drain_if_stopped()

    def _is_all_known(self, capture: Capture) -> bool:
        """Whether a stream says no more, or has been silent for so long that nobody waits for it
        who has something to say."""
        if self.is_stopped and not any(c.is_replayable for c in self.captures):
            return True
        if capture.is_done:
            return not capture.is_cut_short
        return self._is_idle(capture) and any(c.objects.ahead for c in self.captures)

    def _is_far(self, chunk: int) -> bool:
        """Whether all that is known is that nothing comes for a very long time: a punctuation that
        means the end is no million of empty epochs."""
        complete = min(c.complete_below for c in self.captures)
        waits = any(c.first_waiting is not None for c in self.captures)
        return not waits and self._has_more(chunk) and complete - chunk > EMPTY_MAX

    def _has_more(self, chunk: int) -> bool:
        """Whether rows of this chunk or a later one are there, or may come."""
        return any(not c.is_done or c.first_waiting is not None for c in self.captures)

    def _check_gap(self, chunk: int) -> None:
        nexts = [c.first_waiting for c in self.captures if c.first_waiting is not None]
        if nexts and min(nexts) - chunk > EMPTY_MAX:
            ahead = next(c for c in self.captures if c.first_waiting == min(nexts))
            raise InputError(
                f"{ahead.name}: after {self.bounds()} its next rows are of "
                f"{ahead.cutter.bounds(min(nexts))}, {min(nexts) - chunk:,} empty ranges later; "
                "mend the value, or cut by a wider range"
            )

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The open chunk's rows, as they come, until it is over; it is not if it was stopped."""
        assert self.chunk is not None
        while True:
            self._drain_if_stopped()
            for capture in self.captures:
                for rows in capture.take(self.chunk):
                    self._rows += rows.num_rows
                    yield capture.name, rows
            waits = [c for c in self.captures if c.complete_below <= self.chunk]
            if self.is_stopped or all(c.is_done for c in waits):
                return
            if not self._close_idle(waits):
                self._read(waits)

    @property
    def is_over(self) -> bool:
        """Whether the open chunk has come whole."""
        assert self.chunk is not None
        return all(c.complete_below > self.chunk for c in self.captures)

    @property
    def is_real(self) -> bool:
        """Whether the open chunk is one: after the last rows of all streams nothing begins."""
        return self._rows > 0 or self._has_more(self.chunk or 0)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def _read(self, wanted: Sequence[Capture]) -> None:
        """Read of one that has something; else wait a little."""
        usable = [c for c in wanted if self._may_read(c)]
        for capture in usable:
            capture.ask(self.chunk)
        ready = [c for c in usable if c.is_ready]
        heard = [c.read() for c in ready]
        if not any(heard):
            self._bell.wait_for([c.inbox for c in usable if c.inbox is not None], WAIT_SECONDS)

    def _may_read(self, capture: Capture) -> bool:
        """Whether it is known where ranges begin; who comes first says it."""
        return not _needs_origin(capture) or capture is self._leader

    @property
    def _leader(self) -> Capture | None:
        return next((c for c in self.captures if not c.is_done and not self._is_idle(c)), None)

    def _found_first(self, capture: Capture, rows: pa.RecordBatch) -> None:
        """The first rows of whoever comes first: ranges begin there."""
        assert isinstance(capture.cutter, RangeCutter)
        value: Any = capture.cutter.first_value(rows)
        for other in self.captures if value is not None else ():
            assert isinstance(other.cutter, RangeCutter)
            other.cutter.set_origin(value)

    def _is_idle(self, capture: Capture) -> bool:
        return (
            self._idle is not None
            and not capture.is_ready
            and time.monotonic() - capture.heard_at >= self._idle
        )

    def _close_idle(self, waits: Sequence[Capture]) -> bool:
        """Close the chunk for streams that have been silent too long, where somebody waits."""
        assert self.chunk is not None
        if self._idle is None or not all(self._is_idle(c) for c in waits):
            return False
        if not self._rows and not any(self._is_beyond(c) for c in self.captures):
            return False  # nobody has anything to wait for
        for capture in waits:
            capture.cutter.close(self.chunk)
        return True

    def _is_beyond(self, capture: Capture) -> bool:
        """Whether a stream has something to say of later chunks."""
        is_past = not capture.is_done and capture.complete_below > cast(int, self.chunk)
        return capture.first_waiting is not None or is_past

    def bounds(self) -> Bounds:
        """What the open chunk covers."""
        assert self.chunk is not None
        found = [c.cutter.bounds(self.chunk) for c in self.captures]
        return next((b for b in found if str(b) != "None"), found[0])


def _needs_origin(capture: Capture) -> bool:
    return isinstance(capture.cutter, RangeCutter) and capture.cutter.needs_origin
