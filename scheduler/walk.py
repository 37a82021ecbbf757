"""The walk: a schedule, executed on the buffer pool; the scheduler's only place that does I/O.

    loader thread     │ L0 │ R0 │ R1 │      │ L1 │            reads run ahead of the visits,
    visits                  └L0·R0┘└L0·R1┘        └L1·R0┘     at most `read_ahead` pages

A page is pinned when its move loads it and let go when the schedule evicts it, so what the pool
holds for a walk is never more than ``schedule.frames + read_ahead`` pages.  `frames_for` says how
many frames a budget allows.

Pairs come to one consumer, one by one (`pairs`) or as many as are in frames together (`together`),
and their pages are held until it asks for more.  Whatever fails, the file or the consumer, every
pin is released.

Pages that are in frames already when the walk begins cost no read, so that the pool may read fewer
pages than planned, but never more.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, islice

import numpy as np

from matwin.storage.errors import BudgetError, InputError
from matwin.storage.frame import Pinned
from matwin.storage.layout import PageId
from matwin.storage.pool import BufferPool
from matwin.storage.runs import PageRef
from matwin.storage.units import format_size

from .choose import FRAMES_MIN
from .reach import Reach, whole_number
from .schedule import LEFT, RIGHT, Move, PageAt, Schedule, Stretch

READ_AHEAD = 2
NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Pair:
    """Two pinned pages within each other's reach; valid until the next pair is asked for, or until
    the kernel returns."""

    left: Pinned
    right: Pinned
    left_ref: PageRef
    right_ref: PageRef

    @property
    def page_ids(self) -> tuple[PageId, PageId]:
        """Which pages."""
        return self.left_ref.page_id, self.right_ref.page_id


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
    """One walk of a schedule over the pages of two windows, or of one with itself.

    The left pages are of one window; the right ones may be of several, those of each window next to
    each other.
    """

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
        self._names = {window: pool.name_of(window) for window in _windows(right)}

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

    def together(self, columns: int = 1) -> Iterator[tuple[list[list[Pair]], bool]]:
        """Pairs whose pages are all in frames, a list for each left page: of up to `columns` left
        pages everything that they meet (True), or, where that does not fit the frames, some of what
        they meet (False)."""
        with self._started() as loader:
            lot = _Lot(self._schedule.reach, columns)
            while (move := loader.coming) is not None:
                yield from self._handed_over(lot.leaving(loader.leaving))
                self._take(loader, move)
                for left, right in move.visits:
                    yield from self._handed_over(lot.full())
                    lot.add(left, self._pair(loader, left, right))
            yield from self._handed_over(lot.rest())

    def _handed_over(
        self, lots: Iterable[tuple[list[list[Pair]], bool]]
    ) -> Iterator[tuple[list[list[Pair]], bool]]:
        for columns, is_whole in lots:
            for pair in chain.from_iterable(columns):
                self._note("visit", pair)
            yield columns, is_whole
            for pair in chain.from_iterable(columns):
                self._note("visited", pair)

    def _take(self, loader: _Loader, move: _Load) -> None:
        if move.begins is not None:
            why = f"{move.begins.mode}: {move.begins.reason}"
            self._pool.note("mode", self._left_name, why, mate=(self._right_name, -1))
        loader.take()

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
        refs = self._right if move.page.side == LEFT else self._left
        shown = self._numbered([refs[at].page_id for at in others[:NAMES_SHOWN]])
        more = f" and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
        return f"meets {shown}{more}"

    def _numbered(self, pages: Sequence[PageId]) -> str:
        """Pages by the names of their windows and their numbers."""
        windows = groupby(pages, key=lambda page: page.window)
        return ", ".join(
            f"{self._pool.name_of(window)} {', '.join(str(page.page) for page in own)}"
            for window, own in windows
        )

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
            "right_windows": [] if is_self else self._right_windows(),
            "is_self": is_self,
            "reach": schedule.reach.triples(),
        }
        return json.dumps(layout, separators=(",", ":"))

    def _right_windows(self) -> list[tuple[str, int]]:
        """Which of the right pages are of which window: names, and how many follow each other."""
        windows = groupby(ref.page_id.window for ref in self._right)
        return [(self._names[window], len(list(own))) for window, own in windows]

    def _note(self, event: str, pair: Pair) -> None:
        right = pair.right_ref.page_id
        mate = (self._names[right.window], right.page)
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


class _Lot:
    """Pairs that are in frames together, by left page; a left page is *whole* once it has come
    together with all that it meets."""

    def __init__(self, reach: Reach, columns: int) -> None:
        edges = reach.limit.astype(np.int64) - reach.first
        self._to_come = np.bincount(reach.owners, edges, reach.left_pages).astype(np.int64)
        self._columns = columns
        self._whole: list[list[Pair]] = []
        self._pages: set[PageId] = set()
        self._open: dict[int, list[Pair]] = {}
        self._lefts: dict[PageId, dict[int, None]] = {}  # of each page the open ones it is in
        self._begun: set[int] = set()  # left pages of which some pairs have been handed over

    def add(self, left: int, pair: Pair) -> None:
        """One more pair of a left page."""
        self._open.setdefault(left, []).append(pair)
        for page in pair.page_ids:
            self._lefts.setdefault(page, {})[left] = None
        self._to_come[left] -= 1
        if self._to_come[left] == 0 and left not in self._begun:
            own = self._closed(left)
            self._whole.append(own)
            self._pages.update(page for p in own for page in p.page_ids)

    def full(self) -> Iterator[tuple[list[list[Pair]], bool]]:
        """The whole left pages, once they are as many as are wanted."""
        if len(self._whole) >= self._columns:
            yield from self._poured()

    def leaving(self, page: PageId | None) -> Iterator[tuple[list[list[Pair]], bool]]:
        """What has to be handed over before a page leaves."""
        if page is None:
            return
        if page in self._pages:
            yield from self._poured()
        lefts = list(self._lefts.get(page, ()))
        if lefts:
            self._begun.update(lefts)
            yield [self._closed(left) for left in lefts], False

    def rest(self) -> Iterator[tuple[list[list[Pair]], bool]]:
        """All that is left."""
        yield from self._poured()
        if self._open:
            yield list(self._open.values()), False

    def _closed(self, left: int) -> list[Pair]:
        pairs = self._open.pop(left)
        for page in dict.fromkeys(page for pair in pairs for page in pair.page_ids):
            own = self._lefts[page]
            del own[left]
            if not own:
                del self._lefts[page]
        return pairs

    def _poured(self) -> Iterator[tuple[list[list[Pair]], bool]]:
        whole, self._whole, self._pages = self._whole, [], set()
        if whole:
            yield whole, True


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
        self._ahead: deque[tuple[_Load, Future[list[Pinned]], int]] = deque()
        # Two lots are under way, so that one is read while the other is used up.
        self._lot = max(1, read_ahead // 2)

    def start(self) -> None:
        """Begin to read ahead."""
        for _ in range(self._read_ahead // self._lot):
            self._begin(list(islice(self._moves, self._lot)))

    @property
    def coming(self) -> _Load | None:
        """The next move, or None after the last."""
        return self._ahead[0][0] if self._ahead else None

    @property
    def leaving(self) -> PageId | None:
        """The page that the next move evicts."""
        victim = self._ahead[0][0].victim
        return None if victim is None else self.held[victim].page_id

    def take(self) -> None:
        """Make the next move: its victim leaves, its page is held."""
        move, future, place = self._ahead[0]
        if move.victim is not None:
            leaving = self.held.pop(move.victim)
            leaving.release()
            comes = f"{self._pool.name_of(move.page.window)} {move.page.page}"
            self._pool.evict(leaving.page_id, f"for {comes}")
        self.held[move.at] = future.result()[place]
        self._ahead.popleft()
        if len(self._ahead) <= self._read_ahead - self._lot:
            self._begin(list(islice(self._moves, self._lot)))

    def _begin(self, moves: list[_Load]) -> None:
        if moves:
            future = self._thread.submit(self._read, moves)
            self._ahead += [(move, future, place) for place, move in enumerate(moves)]

    def _read(self, moves: list[_Load]) -> list[Pinned]:
        """Pin pages, all of them or none; one task for several, because threads take turns."""
        with ExitStack() as stack:
            pages = [stack.enter_context(self._pool.pin(m.page, m.why)) for m in moves]
            stack.pop_all()
            return pages

    def close(self) -> None:
        """Let everything go, also what is still being read."""
        for _, future, _ in self._ahead:
            future.cancel()
        self._thread.shutdown(wait=True)
        for _, future, place in self._ahead:
            if not future.cancelled() and future.exception() is None:
                future.result()[place].release()
        for page in self.held.values():
            page.release()
        self.held.clear()
        self._ahead.clear()


def _windows(refs: Sequence[PageRef]) -> list[int]:
    """The windows of pages, each once, in their order."""
    return list(dict.fromkeys(ref.page_id.window for ref in refs))


def _name(pool: BufferPool, refs: Sequence[PageRef]) -> str:
    return pool.name_of(refs[0].page_id.window) if refs else ""
