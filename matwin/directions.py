"""The engine of two-sided joins: directions, each with windows over both feeds.

A *direction* judges the rows of one side, the probe, against those of the other, the base:

    how          directions
    left, inner  left → right
    right        right → left
    full         both, each with windows of its own; in a bestmatch join the left direction hands
                 the rows that it has judged on to the right one

    portion ──▶ appended to the windows of every direction
    advance ──▶ judge the probe rows that are final ──▶ hand over what they found
                                                    ──▶ drop what nobody can need

Windows are in memory (`memory.py`) or on pages (`paged.py`), behind one face.

Invariant: every probe row is judged exactly once, when the base's frontier says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.pool import BufferPool
from matwin.storage.store import Store

from .engine import Moved
from .feed import Portion
from .finality import NOTHING, Finality
from .judge import Judge
from .matched import Finish, Result
from .memory import FEW_PAIRS, MemoryDirection
from .options import Options
from .paged import PagedDirection
from .report import Report
from .shares import OUTPUT_SHARE, STEP_SHARE
from .side import SIDES
from .state import Held, Kept, State, kept, popped, put_back

SORTING_BYTES = 48
"""A row's order key, its place, and what sorting takes, where only arrays are sorted."""


class Windows(Protocol):
    """Probe rows that wait and base rows that they may meet."""

    held_bytes: int
    judge_bytes: int
    output_bytes: int
    exceeds_offsets: bool

    @property
    def holders(self) -> Sequence[Held]: ...
    @property
    def names(self) -> Sequence[str]: ...
    def append(self, side: str, rows: pa.RecordBatch, keys: Int64s, size: int) -> None: ...
    def waiting(self, last: int) -> bool: ...
    def drop_base(self, below: int) -> None: ...
    def kept_share(self, last: int, below: int) -> float: ...
    def judge_upto(
        self, last: int, finish: Finish[Result], *, with_keys: bool = False
    ) -> Iterator[Result]: ...


@dataclass(frozen=True, slots=True)
class Means:
    """What a direction in memory works with."""

    threads: int
    output_bytes: int
    is_live: bool
    keeps_rows: bool = False
    """Whether rows are few enough to be left where they lie."""

    @classmethod
    def of(cls, options: Options, *, is_live: bool) -> Means:
        """All that the options allow."""
        return cls(options.workers, options.budget_bytes // OUTPUT_SHARE, is_live)


class Direction:
    """A judge with its windows, in memory or on pages, and what to do with what it finds."""

    def __init__(
        self, judge: Judge, finish: Finish[Any], finality: Finality, means: Means, *,
        wants_unmatched: bool, with_keys: bool = False, after: Direction | None = None,
    ) -> None:  # fmt: skip
        self.judge = judge
        self.finish = finish
        self.finality = finality
        self.wants_unmatched = wants_unmatched
        self.with_keys = with_keys
        self.after = after
        self.hand_on: Callable[[Any], None] = lambda result: None
        """Gives what was judged to another direction, once its results have been handed over."""
        self.keeps_rows = means.keeps_rows and judge.is_fused
        self.windows: Any = MemoryDirection(
            judge, finality, threads=means.threads, output_bytes=means.output_bytes,
            is_live=means.is_live, wants_unmatched=wants_unmatched, keeps_rows=means.keeps_rows,
        )  # fmt: skip

    def takes(self, side: str) -> bool:
        """Whether the rows of a side come from its feed, and not from another direction."""
        return self.after is None or side == self.judge.probe_name

    def bounds(self, frontiers: dict[str, int]) -> tuple[int, int]:
        """The last order key of probe rows that are final, and the first of base rows that are
        still needed then."""
        base = frontiers[self.judge.base_name]
        if self.after is not None:  # its base rows come as far as those will have been judged
            base = min(base, self.after.bounds(frontiers)[0] + 1)
        last = self.finality.final_upto(base)
        lowest_open = min(last + 1, frontiers[self.judge.probe_name])
        return last, self.finality.needed_from(lowest_open)


class Directions:
    """All directions of a join."""

    joins_at_once = False

    def __init__(
        self, directions: Sequence[Direction], options: Options, report: Report, *, is_live: bool
    ) -> None:
        self.directions = directions
        self._options = options
        self._report = report
        self.step_bytes: int | None = 0 if is_live else None
        self.makes_room = False
        self.is_untouched = True
        self._keeps_rows = directions[0].keeps_rows
        self._block_bytes = max(d.judge.probe.bytes_per_row() for d in directions)

    @property
    def needed_bytes(self) -> int:
        """What the windows in memory take, judging and output included."""
        return self._needed([1.0] * len(self.directions))

    @property
    def counted_bytes(self) -> int:
        """What a step takes."""
        return self.needed_bytes

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step."""
        known = dict(zip(SIDES, frontiers, strict=True))
        return self._needed([d.windows.kept_share(*d.bounds(known)) for d in self.directions])

    def _needed(self, shares: Sequence[float]) -> int:
        """What so much of each direction's windows takes."""
        windows = [d.windows for d in self.directions]
        held = sum(share * w.held_bytes for share, w in zip(shares, windows, strict=True))
        # One direction judges at a time.
        held += max(
            s * w.judge_bytes + w.output_bytes for s, w in zip(shares, windows, strict=True)
        )
        # What a direction has judged is another's base, with notes.
        held += sum(2 * d.after.windows.held_bytes for d in self.directions if d.after)
        return int(held)

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return sum(direction.windows.held_bytes for direction in self.directions)

    @property
    def exceeds_offsets(self) -> bool:
        """Whether a side has more bytes than a column's 32-bit offsets can tell."""
        return any(d.windows.exceeds_offsets for d in self.directions)

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes: in memory its copies and arrays too, a store counts its own."""
        if self.makes_room:
            return size * len(self.directions)
        if self._keeps_rows:
            # Pages and rows are both there while a part is loaded, rows and arrays afterwards.
            each = size + max(size, rows * (self._block_bytes + SORTING_BYTES))
        else:
            copies = max(d.windows.copies for d in self.directions)
            copies = max(copies, 2 if rows * rows > FEW_PAIRS else 1)
            each = (1 + copies) * (size + 8 * rows) + 3 * rows * self._block_bytes
        return each * len(self.directions)

    def take(self, feed: int, portion: Portion) -> Iterator[Any]:
        """Append rows to the windows."""
        side = SIDES[feed]
        for direction in self.directions:
            if direction.takes(side):
                direction.windows.append(side, portion.rows, portion.keys, portion.size)
        return iter(())

    def advance(self, frontiers: Sequence[int]) -> Iterator[Any]:
        """Judge what is final, then drop what nobody needs."""
        known = dict(zip(SIDES, frontiers, strict=True))
        for direction in self.directions:
            last, needed_from = direction.bounds(known)
            if last > NOTHING and direction.windows.waiting(last):
                self.is_untouched = False
                self._report.steps += 1
                for result in direction.windows.judge_upto(
                    last, direction.finish, with_keys=direction.with_keys
                ):
                    yield result
                    direction.hand_on(result)
            direction.windows.drop_base(needed_from)

    # ── on to parts ──────────────────────────────────────────────────────────────────────────

    def rows_of(self, feed: int) -> list[pa.RecordBatch]:
        """The rows of a feed, of which none has been judged yet: those of one direction, because
        all hold the same ones."""
        return State(kept(self.directions[0].windows.holders)).rows_of(feed)

    def pour(self) -> Iterator[Kept]:
        """The same of both feeds; they are forgotten here."""
        first, *others = [direction.windows for direction in self.directions]
        for windows in others:
            windows.clear()
        yield from popped(first.holders)

    # ── on to another engine ─────────────────────────────────────────────────────────────────

    def state(self) -> State:
        """Rows that wait and rows that they may meet, in memory or in a store's windows."""
        names = [name for d in self.directions for name in d.windows.names]
        return State(kept(self._holders), names, {"is_untouched": int(self.is_untouched)})

    def restore(self, state: State) -> None:
        """Go on with the rows of another; those in a store are there already."""
        put_back(self._holders, state)
        self.is_untouched = bool(state.marks["is_untouched"])

    @property
    def _holders(self) -> list[Held]:
        return [held for d in self.directions for held in d.windows.holders]

    # ── on to pages ──────────────────────────────────────────────────────────────────────────

    def moved_to(self, store: Store, arrivals: Sequence[str], why: str) -> Moved:
        """The same engine with its windows in a store."""
        options, by_side = self._options, dict(zip(SIDES, arrivals, strict=True))
        before = [direction.windows for direction in self.directions]
        for number, direction in enumerate(self.directions):
            again = "" if number == 0 else " again"
            direction.windows = PagedDirection(
                direction.judge, store, {side: side + again for side in SIDES}, by_side,
                materialize=options.materialize, schedule=options.schedule,
                threads=options.workers, wants_unmatched=direction.wants_unmatched,
                scratch=options.scratch, report=self._report,
            )  # fmt: skip
            if direction.after is not None:
                direction.after.windows.feeds = direction.windows.base
        # All windows are there before the first row: they share what sorting may take.
        _pour(before, [direction.windows for direction in self.directions], store.pool)
        self.step_bytes = options.budget_bytes // STEP_SHARE // len(self.directions)
        self.makes_room = True
        first = self.directions[0].windows
        forms = {f"{w.form} windows: {w.reason}": None for w in (first.probe, first.base)}
        return Moved(self, f"pages: {why}; {'; '.join(forms)}", iter(()))


def _pour(
    memory: Sequence[MemoryDirection], paged: Sequence[PagedDirection], pool: BufferPool
) -> None:
    """Move the rows; what has not been moved yet counts against the pool's budget as well."""
    left = sum(windows.held_bytes for windows in memory)
    pool.take(left)
    try:
        for before, after in zip(memory, paged, strict=True):
            judge = before.judge
            for rows, side in ((before.probe, judge.probe_name), (before.base, judge.base_name)):
                while rows.portions:
                    portion = rows.pop()
                    after.append(side, portion.batch, portion.keys, portion.size)
                    pool.give_back(portion.size)
                    left -= portion.size
    finally:
        pool.give_back(left)
