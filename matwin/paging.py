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
open; any other keeps as many as it leaves unfinished, and what exceeds the share is put down and
read back (`partials`).  `auto` takes the schedule that costs least: pages read, and pages put down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matwin.scheduler import Reach, Schedule, plan
from matwin.storage.columns import Int64s
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

PARTIAL_RATIO = 2
"""Pairs a row and attribute: with one attribute a row keeps its nearest (1.0 at the end of a join
of 200,000 rows a side), with two a skyline (3.3 of 15 candidates)."""
PUT_DOWN_COST = 1.0
"""A page of partial results put down and read back, in page reads.  Reckoned, not measured: it is
two transfers and no block is made of it, where a page read is one transfer and a block."""
READ_AHEAD = 2
FRAMES_MIN = 2
FRAMES_TIGHT = FRAMES_MIN + 2
"""Frames of the smallest walk: a page is read ahead, and one for the rows of a match."""
CAPACITY_MIN = 16
IN_FLIGHT = 5
"""Portions that workers have found or look for, however many workers there are."""
PORTIONS = IN_FLIGHT + 3
"""Room for these, and for the batch that is made of one."""


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
    page_bytes: int
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
        attributes = len(judge.question.attributes)
        partial_page = rows * PARTIAL_RATIO * attributes * pair_bytes
        return cls(
            int(frames), partial, int(frames) * block_bytes + output,
            max(CAPACITY_MIN, min(int(capacity), BATCH_ROWS)), partial_page, page_bytes, read_ahead,
        )  # fmt: skip


def bytes_of_pair(judge: Judge) -> int:
    """What a pair that was found takes as numbers."""
    keys = len(judge.question.attributes) + judge.contest.ties.columns
    return 8 * (2 + (keys if judge.mode == "best" else 0))


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
    """The schedule of a walk: as asked for, or what costs least with its partial results."""
    if mode != "auto" or not is_best:
        return plan(reach, frames=shares.frames, mode=mode)
    gallop = plan(reach, frames=shares.frames, mode="gallop")
    if gallop.page_reads <= gallop.pages_needed:
        return replace(gallop, reason="gallop reads every page once and finishes a page at a time")
    others = [plan(reach, frames=shares.frames, mode=mode) for mode in ("crabstep", "lookahead")]
    costs = {schedule: cost(schedule, shares) for schedule in (gallop, *others)}
    best = min(costs, key=lambda schedule: costs[schedule])
    told = ", ".join(
        f"{schedule.mode} {schedule.page_reads}{_more(costs[schedule] - schedule.page_reads)}"
        for schedule in costs
    )
    return replace(best, reason=f"the least of pages read and partial results put down: {told}")


def _more(put_down: float) -> str:
    return f" + {put_down:.0f}" if round(put_down) else ""


def cost(schedule: Schedule, shares: Shares) -> float:
    """Pages that are read, and pages of partial results that are put down and read back."""
    room = shares.partial_bytes / max(shares.partial_page_bytes, 1)
    pages = put_down(schedule, room) * shares.partial_page_bytes / shares.page_bytes
    return schedule.page_reads + PUT_DOWN_COST * pages


def put_down(schedule: Schedule, room: float) -> float:
    """How often a page's partial results are put down, where there is room for so many pages'.

    Of the pages that are open, those that there is room for are kept: whoever is visited again has
    been put down as probably as not.
    """
    owners, first, last = _owners(schedule)
    open_ = _open(len(owners), first, last)
    is_again = np.diff(owners, prepend=-1) != 0
    is_again[first] = False
    missing = 1 - room / np.maximum(open_[is_again], 1)
    return float(np.maximum(missing, 0).sum())


def open_pages(schedule: Schedule) -> int:
    """The most probe pages that are visited, and not for the last time, at any moment."""
    owners, first, last = _owners(schedule)
    return int(_open(len(owners), first, last).max())


def _owners(schedule: Schedule) -> tuple[Int64s, Int64s, Int64s]:
    """The probe page of each visit, and where each page's first and last visits are."""
    owners = np.concatenate([owners for _, owners, _ in schedule.replayed()]).astype(np.int64)
    first = np.unique(owners, return_index=True)[1]
    last = len(owners) - 1 - np.unique(owners[::-1], return_index=True)[1]
    return owners, first, last


def _open(visits: int, first: Int64s, last: Int64s) -> Int64s:
    """How many pages are open at each visit."""
    change = np.zeros(visits + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last + 1, -1)
    return change.cumsum()[:-1]
