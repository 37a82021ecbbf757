"""How a walk's memory is divided, and which schedule suits it: the cost model of pages.

    budget ─┬─ write space, what the windows hold
            ├─ frames: pages of both sides, each with the arrays made from it
            ├─ partial results: a quarter, for bestmatch only
            ├─ output: an eighth, a quarter for ε-joins: pairs that workers have found and that are
            │  not handed over yet, as numbers, and the batch that is being made of them
            └─ aside: what a window takes that gets rows while the walk goes on (full bestmatch)

Where that leaves less than two frames, a walk has two frames, one page read ahead, and half of the
rest for partial results: it fits wherever a page fits a few times.

Bestmatch: a schedule that finishes one probe page before the next keeps one page of partial results
open; any other keeps as many as it leaves unfinished.  `auto` takes the schedule that reads least
unless what it keeps open, reckoned at `PARTIAL_RATIO` pairs a row, exceeds the share: then crabstep
if that fits, else gallop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from matwin.scheduler import Reach, Schedule, plan
from matwin.storage.errors import BudgetError
from matwin.storage.pool import BufferPool
from matwin.storage.runs import PageRef
from matwin.storage.units import format_size

from .judge import Judge
from .output import BATCH_ROWS
from .shares import (
    FOUND_ROOM,
    FOUND_ROOM_ALL,
    PARTIAL_ROOM,
    PARTIAL_ROOM_ALL,
    TIGHT_FOUND,
    TIGHT_PARTIAL,
)

PARTIAL_RATIO = 4
READ_AHEAD = 2
FRAMES_MIN = 2
FRAMES_TIGHT = FRAMES_MIN + 2
"""Frames of the smallest walk: a page is read ahead, and one for the rows of a match."""
CAPACITY_MIN = 16
PORTIONS = 8
"""Portions in flight: what two workers have queued (see `Walk.each`), and room for a batch."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What each part of a walk may take."""

    frames: int
    partial_bytes: int
    reserved_bytes: int
    capacity: int
    """Pairs in a portion of output."""
    partial_page_bytes: int
    """What a probe page's partial results are reckoned at."""
    read_ahead: int = READ_AHEAD

    @classmethod
    def of(
        cls, pool: BufferPool, judge: Judge, refs: Sequence[PageRef], aside_bytes: int = 0
    ) -> Shares:
        """The shares of what the pool's budget leaves free, `aside_bytes` left alone."""
        page_bytes = max([ref.size for ref in refs], default=1)
        page_bytes = max(page_bytes, pool.file.page_size)
        rows = max([ref.rows for ref in refs], default=1)
        block_bytes = rows * max(judge.probe.bytes_per_row(), judge.base.bytes_per_row())
        room = pool.budget_bytes - pool.write_space - pool.held_bytes - aside_bytes
        is_best = judge.mode == "best"
        partial = int(room * (PARTIAL_ROOM if is_best else PARTIAL_ROOM_ALL))
        output = int(room * (FOUND_ROOM if is_best else FOUND_ROOM_ALL))
        frame_bytes = page_bytes + block_bytes
        frames = (room - partial - output) // frame_bytes - READ_AHEAD - 1
        read_ahead, pair_bytes = READ_AHEAD, bytes_of_pair(judge)
        if frames < FRAMES_MIN:
            frames, read_ahead = FRAMES_MIN, 1
            rest = room - FRAMES_TIGHT * frame_bytes
            if rest < rest_min(pair_bytes):
                raise _too_small(pool, frame_bytes, room, rest_min(pair_bytes))
            partial, output = int(rest * TIGHT_PARTIAL), int(rest * TIGHT_FOUND)
        capacity = output // (PORTIONS * pair_bytes)
        partial_page = rows * PARTIAL_RATIO * pair_bytes
        return cls(
            int(frames), partial, int(frames) * block_bytes + output,
            max(CAPACITY_MIN, min(int(capacity), BATCH_ROWS)), partial_page, read_ahead,
        )  # fmt: skip


def bytes_of_pair(judge: Judge) -> int:
    """What a pair that was found takes as numbers."""
    return 8 * (2 + (len(judge.question.attributes) if judge.mode == "best" else 0))


def rest_min(pair_bytes: int) -> int:
    """What a walk takes at least beside its frames."""
    return 3 * PORTIONS * CAPACITY_MIN * pair_bytes


def _too_small(pool: BufferPool, frame_bytes: int, room: int, rest: int) -> BudgetError:
    missing = FRAMES_TIGHT * frame_bytes + rest - room
    smallest = pool.budget_bytes + missing * 8
    return BudgetError(
        f"a budget of {format_size(pool.budget_bytes)} leaves no {FRAMES_MIN} frames of "
        f"{format_size(frame_bytes)} for a walk; give at least {format_size(smallest)} "
        f"({smallest} bytes) or a smaller page_size",
        smallest_bytes=smallest,
    )


def planned(reach: Reach, shares: Shares, mode: str, *, is_best: bool) -> Schedule:
    """The schedule of a walk: as asked for, or what reads least and keeps partial results within
    their share."""
    if mode != "auto" or not is_best:
        return plan(reach, frames=shares.frames, mode=mode)
    gallop = plan(reach, frames=shares.frames, mode="gallop")
    if gallop.page_reads <= gallop.pages_needed:
        return replace(gallop, reason="gallop reads every page once and finishes a page at a time")
    refused: list[str] = []
    for best in _by_reads(reach, shares.frames, gallop):
        kept = open_pages(best) * shares.partial_page_bytes
        share = f"about {format_size(kept)} of partial results, the share is "
        share += format_size(shares.partial_bytes)
        if kept <= shares.partial_bytes:
            found = f"{best.reason or f'{best.mode} reads {best.page_reads} pages'}; it keeps"
            return replace(best, reason="; ".join([*refused, f"{found} {share}"]))
        reads = f"{best.mode} would read {best.page_reads} instead of {gallop.page_reads} pages"
        refused.append(f"{reads} but keep {share}")
    return replace(gallop, reason="; ".join(refused)) if refused else gallop


def _by_reads(reach: Reach, frames: int, gallop: Schedule) -> Iterator[Schedule]:
    """Schedules that read fewer pages than gallop, those that read least first.  Crabstep reads
    more than lookahead mostly, and keeps less open."""
    best = plan(reach, frames=frames, mode="auto")
    if best.mode == "lookahead":
        yield best
        best = plan(reach, frames=frames, mode="crabstep")
    if best.page_reads < gallop.page_reads:
        yield best


def open_pages(schedule: Schedule) -> int:
    """The most probe pages that are visited, and not for the last time, at any moment."""
    owners = np.concatenate([owners for _, owners, _ in schedule.replayed()])
    first = np.unique(owners, return_index=True)[1]
    last = len(owners) - 1 - np.unique(owners[::-1], return_index=True)[1]
    change = np.zeros(len(owners) + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last + 1, -1)
    return int(change.cumsum().max())
