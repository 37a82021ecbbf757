"""Reads that a sequence of page uses costs, under other replacements and other numbers of frames.

    uses         a  b  c  a  d  a  b          two frames
    lru          R  R  R  R  R  ·  R          the least recently used leaves
    fifo         R  R  R  R  R  ·  R          the one that came first leaves
    optimal      R  R  R  ·  R  ·  R          the one whose next use is furthest leaves (Belady)

A *use* is a pin that found the page (hit) or read it.  A page that is *made* takes a frame without
a read.  A page that is given up, dropped or expired, frees its frame.  Optimal replacement knows
the future, so that nothing reads less; a page that is never read again, or made anew first, is what
it gives up before all others.

All pages are taken to be of one size, and none to be pinned.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from matwin.storage.kernel import kernel

from .events import Bools, Events, Int64s

REPLACEMENTS = ("lru", "fifo", "optimal")
USE, MAKE, GONE = 0, 1, 2
NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """What happened to pages, in order: an action on a page, pages numbered from 0."""

    actions: Int64s
    pages: Int64s
    page_count: int

    @classmethod
    def of(cls, events: Events, part: Bools | slice = slice(None)) -> Uses:
        """The uses in a trace, or in a part of it."""
        used = events.of_kind("hit", "read")
        made = events.of_kind("make")
        mask = (used | made | events.of_kind("drop", "expire")) & (events.identity >= 0)
        actions = np.where(used, USE, np.where(made, MAKE, GONE))
        mask = mask[part]
        return cls(actions[part][mask], events.identity[part][mask], len(events.identities[0]))

    @property
    def makes(self) -> int:
        """How many pages are made."""
        return int((self.actions == MAKE).sum())

    @property
    def count(self) -> int:
        """How many hits and reads there are."""
        return int((self.actions == USE).sum())

    def reads(self, replacement: str, frames: int) -> int:
        """How many of the uses have to read their page.

        >>> uses = Uses(np.zeros(7, np.int64), np.array([0, 1, 2, 0, 3, 0, 1]), 4)
        >>> [uses.reads(replacement, 2) for replacement in REPLACEMENTS]
        [6, 6, 5]
        """
        frames = min(frames, self.page_count)  # all that there are fit: more change nothing
        if replacement == "optimal":
            return int(_optimal(self.actions, self.pages, self.page_count, frames))
        is_lru = replacement == "lru"
        return int(_in_a_row(self.actions, self.pages, self.page_count, frames, is_lru))


@kernel(few_rows=0)
def _in_a_row(
    actions: Int64s, pages: Int64s, page_count: int, frames: int, moves_when_used: bool
) -> int:
    """Resident pages in a ring through the node `page_count`, the next to leave first."""
    before = np.full(page_count + 1, NOBODY)
    after = np.full(page_count + 1, NOBODY)
    before[page_count] = after[page_count] = page_count
    reads, resident = 0, 0
    for at in range(len(pages)):
        page, action = pages[at], actions[at]
        is_there = after[page] != NOBODY
        if is_there and (action == GONE or moves_when_used):
            _unlink(before, after, page)
            resident -= 1
        if action == GONE or (is_there and not moves_when_used):
            continue
        if not is_there:
            reads += action == USE
            if resident == frames:
                _unlink(before, after, after[page_count])
                resident -= 1
        last = before[page_count]
        before[page], after[page] = last, page_count
        after[last] = before[page_count] = page
        resident += 1
    return reads


@kernel(few_rows=0)
def _unlink(before: Int64s, after: Int64s, page: int) -> None:
    after[before[page]], before[after[page]] = after[page], before[page]
    before[page] = after[page] = NOBODY


@kernel(few_rows=0)
def _optimal(actions: Int64s, pages: Int64s, page_count: int, frames: int) -> int:
    """A heap of (next use, page) with the furthest on top; entries grow stale and are skipped."""
    count = len(pages)
    following = np.empty(count, np.int64)
    seen = np.full(page_count, count)  # `count`: never used again
    for at in range(count - 1, -1, -1):
        following[at] = seen[pages[at]]
        seen[pages[at]] = at if actions[at] == USE else count
    wanted = np.full(page_count, NOBODY)  # the next use of resident pages
    heap = [np.int64(0)]
    heap.clear()
    reads, resident = 0, 0
    for at in range(count):
        page, action = pages[at], actions[at]
        if action == GONE:
            resident -= wanted[page] != NOBODY
            wanted[page] = NOBODY
            continue
        if wanted[page] == NOBODY:
            reads += action == USE
            if resident == frames:
                while True:
                    code = heapq.heappop(heap)
                    victim = code % page_count
                    if wanted[victim] == count - code // page_count:
                        break
                wanted[victim] = NOBODY
                resident -= 1
            resident += 1
        wanted[page] = following[at]
        heapq.heappush(heap, (count - following[at]) * page_count + page)
    return reads
