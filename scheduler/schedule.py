"""A schedule: which page is read when, what leaves for it, and which pairs are then visited.

    >>> from matwin.scheduler import plan
    >>> schedule = plan([(0, 2), (0, 2)], frames=3, mode="gallop")
    >>> print(schedule)
    L0 R0:0 R1:0 L1<L0:0,1
    >>> schedule.page_reads, schedule.visits
    (4, 4)
    >>> for step in list(schedule)[:4]:
    ...     print(step)
    load left 0
    load right 0
    visit left 0 right 0
    load right 1

The compact form has a word for each read: the page, what it replaces, and the pages of the other
side that it meets.  A schedule is pure data: printing it reads nothing, and walking it
(`matwin.scheduler.walk`) does exactly what is printed.

Invariants (`check`): every pair within reach is visited once, with both pages in frames; never more
than `frames` pages are; a page is evicted only to make room for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .board import NOBODY, board_of, graph_of, replay, replay_in_order
from .reach import Int32s, Int64s, Reach

VISITS_AT_A_TIME = 1 << 12
LEFT, RIGHT = "left", "right"


class Step(NamedTuple):
    """One step: ``load`` or ``evict`` a page of a side, or ``visit`` left page and right `mate`."""

    action: str
    side: str
    page: int
    mate: int = NOBODY

    def __str__(self) -> str:
        mate = f" right {self.mate}" if self.action == "visit" else ""
        return f"{self.action} {self.side} {self.page}{mate}"


class PageAt(NamedTuple):
    """A page by its side and place in the layout.  A self-join's pages are all left."""

    side: str
    page: int

    def __str__(self) -> str:
        return f"{self.side[0].upper()}{self.page}"


class Move(NamedTuple):
    """A load with what it replaces, and the pairs ``(left, right)`` that it completes."""

    page: PageAt
    victim: PageAt | None
    visits: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """From move `start` on, the schedule is in this mode, for this reason."""

    start: int
    mode: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What `plan` returns."""

    reach: Reach
    frames: int
    mode: str
    nodes: Int32s
    victims: Int32s
    stretches: tuple[Stretch, ...] = ()
    reason: str = ""
    is_in_order: bool = False
    """Whether visits go column by column, and not as soon as both pages are there."""

    @property
    def page_reads(self) -> int:
        """How many pages are read."""
        return len(self.nodes)

    @property
    def left_reads(self) -> int:
        """How many of them are left pages; all of them in a self-join."""
        return int((self.nodes < self.reach.left_pages).sum())

    @property
    def right_reads(self) -> int:
        """How many of them are right pages."""
        return self.page_reads - self.left_reads

    @property
    def visits(self) -> int:
        """How many pairs of pages are visited."""
        return self.reach.pairs

    @property
    def mode_switches(self) -> int:
        """How often the mode changes on the way."""
        return max(len(self.stretches) - 1, 0)

    @property
    def pages_needed(self) -> int:
        """How many pages meet another at all: no schedule reads fewer."""
        graph = graph_of(self.reach)
        return int((graph.degree > 0).sum())

    def moves(self) -> Iterator[Move]:
        """The schedule read by read."""
        start = 0
        for ends, owners, partners in self.replayed():
            visits = self._visits(owners, partners)
            begin = 0
            for at, end in enumerate(ends.tolist(), start):
                node, victim = int(self.nodes[at]), int(self.victims[at])
                pairs = [pair for both in visits[begin:end] for pair in both]
                yield Move(self._at(node), self._at(victim) if victim >= 0 else None, pairs)
                begin = end
            start += len(ends)

    def replayed(self) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """The visits as arrays, a portion at a time: where those of each move end, and the nodes.

        Left page i is node i, right page j is node ``left_pages + j``; in a self-join, page i is
        node i and a pair stands for both directions.
        """
        graph = graph_of(self.reach)
        board = board_of(graph, self.frames)
        first = int(graph.own[0, 0]) if len(graph.own) else 0
        cursor = np.array([0, 0, first])
        start = emitted = 0
        while start < len(self.nodes):
            moves = (board, self.nodes, self.victims, start, VISITS_AT_A_TIME)
            start, ends, owners, partners = (
                replay_in_order(*moves, cursor) if self.is_in_order else replay(*moves)
            )
            emitted += len(owners)
            yield ends, owners, partners
        assert emitted == graph.pairs, (emitted, graph.pairs)

    def _at(self, node: int) -> PageAt:
        lefts = self.reach.left_pages
        return PageAt(LEFT, node) if node < lefts else PageAt(RIGHT, node - lefts)

    def _visits(self, owners: Int32s, partners: Int32s) -> list[list[tuple[int, int]]]:
        """The pairs of pages that each pair of nodes stands for: two in a self-join, at most."""
        if not self.reach.is_self:
            rights = (partners - self.reach.left_pages).tolist()
            return [[pair] for pair in zip(owners.tolist(), rights, strict=True)]
        return [
            [pair for pair in dict.fromkeys([(a, b), (b, a)]) if self._meets(*pair)]
            for a, b in zip(owners.tolist(), partners.tolist(), strict=True)
        ]

    def _meets(self, left: int, right: int) -> bool:
        return any(first <= right < limit for first, limit in self.reach.intervals(left))

    def __iter__(self) -> Iterator[Step]:
        for page, victim, visits in self.moves():
            if victim is not None:
                yield Step("evict", *victim)
            yield Step("load", *page)
            for left, right in visits:
                yield Step("visit", LEFT, left, right)

    def __str__(self) -> str:
        """The compact form."""
        return " ".join(_word(move) for move in self.moves())

    def explain(self) -> str:
        """What the schedule does and what it costs, as text.

        >>> from matwin.scheduler import plan
        >>> print(plan([(0, 3), (0, 3)], frames=3, mode="gallop").explain())
        gallop: 8 page reads (2 left, 6 right) for 6 pairs of 2 × 3 pages in 3 frames
        each page that meets another is read 1.60 times on average; 5 is the least
        """
        lefts, rights = self.reach.left_pages, self.reach.right_pages
        needed = self.pages_needed
        sides = (
            f"{lefts} pages with themselves" if self.reach.is_self else f"{lefts} × {rights} pages"
        )
        reads = "" if self.reach.is_self else f" ({self.left_reads} left, {self.right_reads} right)"
        lines = [
            f"{self.mode}: {self.page_reads} page reads{reads} "
            f"for {self.visits} pairs of {sides} in {self.frames} frames",
            f"each page that meets another is read {self.page_reads / max(needed, 1):.2f} times "
            f"on average; {needed} is the least",
        ]
        if self.reason:
            lines.append(self.reason)
        if self.mode_switches:
            lines.append(f"the mode changes {self.mode_switches} times:")
        shown = self.stretches[:12] if self.mode_switches else ()
        lines += [f"  read {s.start}: {s.mode}: {s.reason}" for s in shown]
        if len(self.stretches) > len(shown) > 0:
            lines.append(f"  … and {len(self.stretches) - len(shown)} more")
        return "\n".join(lines)

    def check(self) -> None:
        """Raise `AssertionError` unless every invariant holds."""
        resident: set[PageAt] = set()
        seen = np.zeros((self.reach.left_pages, self.reach.right_pages), bool)
        right = LEFT if self.reach.is_self else RIGHT
        for page, victim, visits in self.moves():
            if victim is not None:
                resident.remove(victim)
            assert page not in resident, page
            resident.add(page)
            assert len(resident) <= self.frames
            for i, j in visits:
                assert not seen[i, j], (i, j)
                assert {PageAt(LEFT, i), PageAt(right, j)} <= resident, (i, j)
                seen[i, j] = True
        assert int(seen.sum()) == self.visits
        for left, first, limit in self.reach.triples():
            assert seen[left, first:limit].all(), left


def _word(move: Move) -> str:
    page, victim, visits = move
    replaces = f"<{victim}" if victim else ""
    others = [right if page == (LEFT, left) else left for left, right in visits]
    return f"{page}{replaces}{':' if others else ''}{','.join(map(str, others))}"
