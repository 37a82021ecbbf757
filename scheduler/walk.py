"""The walk: a schedule, executed on the buffer pool; the scheduler's only place that does I/O.

    loader thread     │ L0 │ R0 │ R1 │      │ L1 │            reads run ahead of the visits,
    visits                  └L0·R0┘└L0·R1┘        └L1·R0┘     at most `read_ahead` pages

A page is pinned when its move loads it and let go when the schedule evicts it, so what the pool
holds for a walk is never more than ``schedule.frames + read_ahead`` pages.  `frames_for` says how
many frames a budget allows.

Pairs come to one consumer (`pairs`) or to a kernel on several threads (`each`), whose results leave
in the order of the schedule.  A page whose visits are still running is not let go.  Whatever fails,
the file, the kernel or the consumer, every pin is released.

Pages that are in frames already when the walk begins cost no read, so that the pool may read fewer
pages than planned, but never more.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from matwin.storage.errors import BudgetError, InputError
from matwin.storage.frame import Pinned
from matwin.storage.layout import PageId
from matwin.storage.pool import BufferPool
from matwin.storage.runs import PageRef
from matwin.storage.units import format_size

from .choose import FRAMES_MIN
from .reach import whole_number
from .schedule import LEFT, RIGHT, Move, PageAt, Schedule, Stretch

READ_AHEAD = 2
NAMES_SHOWN = 6
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two pinned pages within each other's reach; valid until the next pair is asked for, or until
    the kernel returns."""

    left: Pinned
    right: Pinned
    left_ref: PageRef
    right_ref: PageRef


def frames_for(
    pool: BufferPool,
    left: Sequence[PageRef],
    right: Sequence[PageRef] = (),
    *,
    read_ahead: int = READ_AHEAD,
    spare_bytes: int = 0,
) -> int:
    """How many frames a schedule over these pages may have, beside the pages read ahead and
    `spare_bytes` for the caller's own use."""
    largest = max((ref.size for side in (left, right) for ref in side), default=1)
    largest = max(largest, pool.file.page_size)
    room = pool.budget_bytes - pool.write_space - pool.held_bytes - spare_bytes
    frames = room // largest - read_ahead
    if frames < FRAMES_MIN:
        wanted = (FRAMES_MIN + read_ahead) * largest - room
        smallest = pool.budget_bytes + wanted * 8 // 7 + 1
        raise BudgetError(
            f"the budget of {format_size(pool.budget_bytes)} leaves no {FRAMES_MIN} frames of "
            f"{format_size(largest)} for a walk; give at least {format_size(smallest)} "
            f"({smallest} bytes)",
            smallest_bytes=smallest,
        )
    return frames


class Walk:
    """One walk of a schedule over the pages of two windows, or of one with itself."""

    def __init__(
        self,
        pool: BufferPool,
        schedule: Schedule,
        left: Sequence[PageRef],
        right: Sequence[PageRef] | None = None,
        *,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        whole_number(read_ahead, "read_ahead")
        if read_ahead < 1:
            raise InputError(f"read_ahead={read_ahead}: at least one page is read ahead")
        if (right is None) != schedule.reach.is_self:
            raise InputError("a self-join has the pages of one window, every other join of two")
        right = left if right is None else right
        wanted = (schedule.reach.left_pages, schedule.reach.right_pages)
        if wanted != (len(left), len(right)):
            raise InputError(
                f"the schedule is for {wanted[0]} × {wanted[1]} pages, "
                f"not for {len(left)} × {len(right)}"
            )
        self._pool = pool
        self._schedule = schedule
        self._left, self._right = left, right
        self._read_ahead = read_ahead
        self._left_name, self._right_name = _name(pool, left), _name(pool, right)

    def pairs(self) -> Iterator[Pair]:
        """The pairs one after the other; pages are read ahead meanwhile."""
        with self._started() as loader:
            while (move := loader.coming) is not None:
                self._take(loader, move)
                for left, right in move.visits:
                    pair = self._pair(loader, left, right)
                    self._note("visit", pair)
                    yield pair
                    self._note("visited", pair)

    def each(self, kernel: Callable[[Pair], Result], *, workers: int = 2) -> Iterator[Result]:
        """What the kernel makes of every pair, in the order of the schedule."""
        whole_number(workers, "workers")
        if workers < 1:
            raise InputError(f"workers={workers}: at least one is needed")
        return self._each(kernel, workers)

    def _each(self, kernel: Callable[[Pair], Result], workers: int) -> Iterator[Result]:
        running: deque[tuple[Pair, Future[Result]]] = deque()
        with self._started() as loader, ThreadPoolExecutor(workers, "matwin-visit") as executor:
            try:
                while (move := loader.coming) is not None:
                    while any(loader.is_leaving(pair) for pair, _ in running):
                        yield running.popleft()[1].result()
                    self._take(loader, move)
                    for left, right in move.visits:
                        pair = self._pair(loader, left, right)
                        running.append((pair, executor.submit(self._visit, kernel, pair)))
                        if len(running) > 2 * workers:
                            yield running.popleft()[1].result()
                while running:
                    yield running.popleft()[1].result()
            finally:
                for _, future in running:
                    future.cancel()

    def _take(self, loader: _Loader, move: _Load) -> None:
        if move.begins is not None:
            why = f"{move.begins.mode}: {move.begins.reason}"
            self._pool.note("mode", self._left_name, why, mate=(self._right_name, -1))
        loader.take()

    def _visit(self, kernel: Callable[[Pair], Result], pair: Pair) -> Result:
        self._note("visit", pair)
        result = kernel(pair)
        self._note("visited", pair)
        return result

    def _pair(self, loader: _Loader, left: int, right: int) -> Pair:
        left_ref, right_ref = self._left[left], self._right[right]
        # The pages of a self-join are all left.
        right_at = PageAt(LEFT if self._schedule.reach.is_self else RIGHT, right)
        held = loader.held
        return Pair(held[PageAt(LEFT, left)], held[right_at], left_ref, right_ref)

    @contextmanager
    def _started(self) -> Iterator[_Loader]:
        if self._pool.is_traced:  # the layout of a large walk is a megabyte of text
            self._pool.note("plan", self._left_name, self._layout(), mate=(self._right_name, -1))
        loader = _Loader(self._pool, self._moves(), self._read_ahead)
        why = "given up"
        try:
            loader.start()
            yield loader
            why = "done"
        finally:
            loader.close()
            self._pool.note("walked", self._left_name, why, mate=(self._right_name, -1))

    def _moves(self) -> Iterator[_Load]:
        """The schedule in terms of the pool, with its reasons."""
        sides = {LEFT: self._left, RIGHT: self._right}
        stretches = {stretch.start: stretch for stretch in self._schedule.stretches}
        mode = self._schedule.mode
        for at, move in enumerate(self._schedule.moves()):
            begins = stretches.get(at)
            mode = begins.mode if begins else mode
            page = sides[move.page.side][move.page.page].page_id
            yield _Load(
                move.page, page, move.victim, move.visits, f"{mode}: {self._meets(move)}", begins
            )

    def _meets(self, move: Move) -> str:
        """Why a page is loaded: the pages that it meets, as their window numbers them."""
        met = [right if move.page == (LEFT, left) else left for left, right in move.visits]
        others = list(dict.fromkeys(met))  # a self-join's pairs go both ways
        if not others:
            return "for a page to come"
        is_left = move.page.side == LEFT
        refs, name = (self._right, self._right_name) if is_left else (self._left, self._left_name)
        shown = ", ".join(str(refs[at].page_id.page) for at in others[:NAMES_SHOWN])
        more = f" and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
        return f"meets {name} {shown}{more}"

    def _layout(self) -> str:
        """The layout as JSON, for the trace."""
        schedule = self._schedule
        is_self = schedule.reach.is_self
        layout = {
            "mode": schedule.mode,
            "frames": schedule.frames,
            "page_reads": schedule.page_reads,
            "explain": schedule.explain(),
            "left": [ref.page_id.page for ref in self._left],
            "right": [] if is_self else [ref.page_id.page for ref in self._right],
            "is_self": is_self,
            "reach": schedule.reach.triples(),
        }
        return json.dumps(layout, separators=(",", ":"))

    def _note(self, event: str, pair: Pair) -> None:
        mate = (self._right_name, pair.right_ref.page_id.page)
        self._pool.note(event, self._left_name, "", page=pair.left_ref.page_id.page, mate=mate)


@dataclass(frozen=True, slots=True)
class _Load:
    """A move of the schedule in terms of the pool."""

    at: PageAt
    page: PageId
    victim: PageAt | None
    visits: list[tuple[int, int]]
    why: str
    begins: Stretch | None


class _Loader:
    """Reads pages ahead in a thread of its own, and holds those that are in use.

    At most `read_ahead` pages beside those that the schedule has in frames.
    """

    def __init__(self, pool: BufferPool, moves: Iterator[_Load], read_ahead: int) -> None:
        self.held: dict[PageAt, Pinned] = {}
        self._pool = pool
        self._moves = moves
        self._read_ahead = read_ahead
        self._thread = ThreadPoolExecutor(1, "matwin-load")
        self._ahead: deque[tuple[_Load, Future[Pinned]]] = deque()

    def start(self) -> None:
        """Begin to read ahead."""
        for move in islice(self._moves, self._read_ahead):
            self._begin(move)

    @property
    def coming(self) -> _Load | None:
        """The next move, or None after the last."""
        return self._ahead[0][0] if self._ahead else None

    def is_leaving(self, pair: Pair) -> bool:
        """Whether the next move evicts a page of this pair."""
        victim = self._ahead[0][0].victim
        return victim is not None and self.held[victim] in (pair.left, pair.right)

    def take(self) -> None:
        """Make the next move: its victim leaves, its page is held."""
        move, future = self._ahead[0]
        if move.victim is not None:
            leaving = self.held.pop(move.victim)
            leaving.release()
            comes = f"{self._pool.name_of(move.page.window)} {move.page.page}"
            self._pool.evict(leaving.page_id, f"for {comes}")
        self.held[move.at] = future.result()
        self._ahead.popleft()
        following = next(self._moves, None)
        if following is not None:
            self._begin(following)

    def _begin(self, move: _Load) -> None:
        self._ahead.append((move, self._thread.submit(self._pool.pin, move.page, move.why)))

    def close(self) -> None:
        """Let everything go, also what is still being read."""
        for _, future in self._ahead:
            future.cancel()
        self._thread.shutdown(wait=True)
        for _, future in self._ahead:
            if not future.cancelled() and future.exception() is None:
                future.result().release()
        for page in self.held.values():
            page.release()
        self.held.clear()
        self._ahead.clear()


def _name(pool: BufferPool, refs: Sequence[PageRef]) -> str:
    return pool.name_of(refs[0].page_id.window) if refs else ""
