"""The MatWin loop: windows over both inputs, moved by their frontiers.

    read the side that is behind ──▶ append to the windows of every direction
            ▲                                    │
            │                                    ▼  a step, when it is due
            │                        judge the probe rows that are final
            └── drop what nobody can need ◀── hand over what they found

A *direction* judges the rows of one side, the probe, against those of the other, the base:

    how          directions
    left, inner  left → right
    right        right → left
    full         both, each with windows of its own; in a bestmatch join the left direction hands
                 the rows that it has judged on to the right one

When a step is due is the economics of it, decided here and nowhere else:
* live streams step with every batch, so that results leave as soon as they are final;
* otherwise a step waits until the memory is full, because a step's cost is mostly its own; what
  fits in memory is one step;
* when a step leaves the memory more than half full, the windows move to pages and stay there.  From
  then on a step is due when as much has come as half the budget, or, live, after `max_delay`.
A source whose order is not declared is looked through once the memory is full, if it can be read
again: sorted files step like declared streams.  Unsorted ones are sorted by the store, in one step
at the end.

Invariants: every probe row is judged exactly once, when its frontier says so; what is counted never
exceeds the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pyarrow as pa

from matwin.storage.errors import BudgetError
from matwin.storage.pool import BufferPool
from matwin.storage.store import Store

from .feed import Feed
from .finality import NOTHING, Finality
from .judge import Judge
from .matched import Finish
from .memory import MemoryDirection
from .need import WalkNeed
from .options import Options
from .paged import PagedDirection, TooManyTies
from .report import Report
from .watch import ProcessWatch

PROGRESS_SECONDS = 0.1
OUTPUT_SHARE = 8
PORTION_SHARE = 16
"""Output that is under way may take an eighth of the budget."""
OnRejected = Callable[[str, pa.RecordBatch], Iterator[Any]]


class Direction:
    """A judge with its windows, in memory or on pages, and what to do with what it finds."""

    def __init__(
        self, judge: Judge, finish: Finish[Any], finality: Finality, *, wants_unmatched: bool,
        threads: int, output_bytes: int, is_live: bool, with_keys: bool = False,
        after: Direction | None = None,
    ) -> None:  # fmt: skip
        self.judge = judge
        self.finish = finish
        self.finality = finality
        self.wants_unmatched = wants_unmatched
        self.with_keys = with_keys
        self.judged_upto = NOTHING
        self.after = after
        self.hand_on: Callable[[Any], None] = lambda result: None
        """Gives what was judged to another direction, once its results have been handed over."""
        self.windows: MemoryDirection | PagedDirection = MemoryDirection(
            judge, finality, threads=threads, output_bytes=output_bytes, is_live=is_live
        )

    @property
    def held_bytes(self) -> int:
        """What the windows take in memory; a store counts its own."""
        return self.windows.held_bytes if isinstance(self.windows, MemoryDirection) else 0

    def takes(self, side: str) -> bool:
        """Whether the rows of a side come from its feed, and not from another direction."""
        return self.after is None or side == self.judge.probe_name

    def base_frontier(self, feed: int) -> int:
        """What later base rows are not below, given their feed's frontier."""
        return feed if self.after is None else min(feed, self.after.judged_upto + 1)


class Loop:
    """Two feeds and the directions that they fill."""

    def __init__(
        self, feeds: dict[str, Feed], directions: list[Direction], options: Options, report: Report
    ) -> None:
        self._feeds = feeds
        self._directions = directions
        self._options = options
        self._report = report
        self._store: Store | None = None
        self._is_live = any(feed.is_live for feed in feeds.values())
        self._is_slabbed = False
        self._new_bytes = 0
        self._stepped_at = time.monotonic()
        self._told_at = 0.0
        self._watch = ProcessWatch(report)
        self._pages_before = (report.pages_read, report.pages_written)
        self._limit = options.budget_bytes
        self._need = WalkNeed(
            [direction.judge for direction in directions],
            budget_bytes=options.budget_bytes, page_bytes=options.page_bytes,
        )  # fmt: skip
        self._block_bytes = max(d.judge.probe.bytes_per_row() for d in directions)
        report.budget_bytes = options.budget_bytes

    def run(self, on_rejected: OnRejected) -> Generator[Any]:
        """Everything the directions hand over, as soon as it is final."""
        try:
            if self._is_live:
                self._report.decide("live: judged with every batch while the windows fit memory")
            if self._options.wants_pages:
                self._move_to_pages("asked for")
            while not all(feed.is_done for feed in self._feeds.values()):
                yield from self._read(on_rejected)
                if not self._has_room():
                    yield from self._made_room()
                if self._is_step_due():
                    yield from self._step()
            if self._store is None and not self._is_live and not self._is_slabbed:
                self._report.decide("memory: everything fits, judged in one step")
            yield from self._step()
            self._report.is_done = True
            self._tell(always=True)
        except BudgetError as e:
            raise self._announced(e) from e
        finally:
            self._close()

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def _read(self, on_rejected: OnRejected) -> Iterator[Any]:
        """Read from the side that is behind, unless it has just had nothing to say."""
        feed = min(
            (feed for feed in self._feeds.values() if not feed.is_done),
            key=lambda feed: (feed.is_silent, feed.frontier, feed.report.rows_in),
        )
        portion = feed.read(self._rows_at_a_time)
        if not feed.is_silent:
            for other in self._feeds.values():
                other.is_silent = False
        self._tell()
        if portion is None:
            return
        self._need.see(portion.rows)
        for direction in self._directions:
            if direction.takes(feed.side.name):
                direction.windows.append(feed.side.name, portion.rows, portion.keys, portion.size)
        self._new_bytes += portion.size * len(self._directions)
        if portion.rejected is not None:
            yield from on_rejected(feed.side.name, portion.rejected)

    def _rows_at_a_time(self, rows: int, size: int) -> int:
        """How many of so many rows of `size` bytes take a sixteenth of the budget, at least one."""
        each = size if self._store is not None else 3 * (size + rows * (8 + self._block_bytes))
        share = self._limit // PORTION_SHARE
        return max(1, share * rows // max(each * len(self._directions), 1))

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def _is_step_due(self) -> bool:
        """Whether what has been read should be judged at once."""
        return self._is_live if self._store is None else self._is_paged_step_due()

    def _is_paged_step_due(self) -> bool:
        """Half the budget has come, or somebody waits: at once while nothing had to be written."""
        assert self._store is not None
        if self._new_bytes > self._limit // 2:
            return True
        delay = self._options.delay_seconds
        if delay is None:
            return self._is_live and self._store.pool.counters.writes == 0
        return self._is_live and time.monotonic() - self._stepped_at >= delay

    def _has_room(self) -> bool:
        """Whether another portion fits the memory; pages make room by themselves."""
        if self._store is not None:
            return True
        if self._exceeds_offsets():
            return False
        # A portion is a sixteenth of the budget, or a single row.
        row = self._need.row_bytes + 3 * self._block_bytes
        row = sum((1 + windows.copies) * row for windows in self._in_memory())
        return self._memory_needed() + max(self._limit // PORTION_SHARE, row) <= self._limit

    def _made_room(self) -> Iterator[Any]:
        """A step to make room in memory, if judging fits; when it leaves little, on to pages."""
        self._look_for_order()
        if self._memory_needed() <= self._limit:
            yield from self._step()
        if self._pays_on_pages():
            self._move_to_pages("the windows do not fit the memory")
        elif not self._is_live:
            self._is_slabbed = True
            self._report.decide("memory: slab by slab, what is final makes room for what comes")

    def _pays_on_pages(self) -> bool:
        """Whether memory is more than half full after a step: the next one would come soon.  Rows
        that are too wide for pages stay as long as there is room for another."""
        if self._exceeds_offsets():
            return True
        if not self._need.fits_pages and self._has_room():
            return False
        return self._memory_needed() > self._limit // 2

    def _exceeds_offsets(self) -> bool:
        return any(windows.exceeds_offsets for windows in self._in_memory())

    def _memory_needed(self) -> int:
        """What the windows in memory take, judging and output included."""
        everyone = list(self._in_memory())
        held = sum(windows.held_bytes for windows in everyone)
        # One direction judges at a time.
        held += max((w.judge_bytes + w.output_bytes for w in everyone), default=0)
        # What a direction has judged is another's base, with notes.
        held += sum(2 * d.after.held_bytes for d in self._directions if d.after)
        return held

    def _in_memory(self) -> Iterator[MemoryDirection]:
        for direction in self._directions:
            if isinstance(direction.windows, MemoryDirection):
                yield direction.windows

    def _look_for_order(self) -> None:
        """Find out whether sources of undeclared order are sorted, unless one is surely not."""
        if all(feed.is_ordered or feed.is_done for feed in self._feeds.values()):
            return
        for feed in self._feeds.values():
            if not feed.is_done and not feed.find_sorted():
                return
        self._report.decide("both inputs are sorted by the order attribute")

    def _step(self) -> Iterator[Any]:
        """Judge what is final, then drop what nobody needs."""
        if self._store is None:
            self._count(self._memory_needed())
        for direction in self._directions:
            probe, base = self._frontiers(direction)
            last = direction.finality.final_upto(base)
            if last > NOTHING and direction.windows.waiting(last):
                self._report.steps += 1
                for result in direction.windows.judge_upto(
                    last, direction.finish, with_keys=direction.with_keys
                ):
                    yield result
                    direction.hand_on(result)
                    self._tell()
            direction.judged_upto = last
            lowest_open = min(last + 1, probe)
            direction.windows.drop_base(direction.finality.needed_from(lowest_open))
        self._new_bytes = 0
        self._stepped_at = time.monotonic()
        if self._store is not None:
            self._count_pages()
            pa.default_memory_pool().release_unused()

    def _frontiers(self, direction: Direction) -> tuple[int, int]:
        judge = direction.judge
        base = direction.base_frontier(self._feeds[judge.base_name].frontier)
        return self._feeds[judge.probe_name].frontier, base

    # ── pages ────────────────────────────────────────────────────────────────────────────────

    def _move_to_pages(self, why: str) -> None:
        """From now on the windows are in a store."""
        options = self._options
        self._store = Store(
            memory=options.budget_bytes, page_size=options.page_bytes, scratch=options.scratch,
            trace=options.trace,
        )  # fmt: skip
        arrivals = {name: feed.arrival for name, feed in self._feeds.items()}
        before = list(self._in_memory())
        for number, direction in enumerate(self._directions):
            again = "" if number == 0 else " again"
            direction.windows = PagedDirection(
                direction.judge, self._store, {side: side + again for side in arrivals}, arrivals,
                materialize=options.materialize, schedule=options.schedule,
                threads=options.workers, wants_unmatched=direction.wants_unmatched,
                report=self._report,
            )  # fmt: skip
            if direction.after is not None and isinstance(direction.after.windows, PagedDirection):
                direction.after.windows.feeds = direction.windows.base
        # All windows are there before the first row: they share what sorting may take.
        _pour(before, [direction.windows for direction in self._directions], self._store.pool)
        # What Arrow has been given back it keeps for a while: up to 30 MB in a budget of 2 MiB.
        pa.default_memory_pool().release_unused()
        form = self._directions[0].windows
        assert isinstance(form, PagedDirection)
        forms = {f"{w.form} windows: {w.reason}": None for w in (form.probe, form.base)}
        self._report.decide(f"pages: {why}; {'; '.join(forms)}")

    def _announced(self, error: BudgetError) -> BudgetError:
        """The error with a budget that is enough for all rows, also those not read yet."""
        for feed in self._feeds.values():
            if not feed.is_live:
                self._need.see_rest(feed.rest())
        return self._need.announced(error, has_ties=isinstance(error, TooManyTies))

    def _close(self) -> None:
        if self._store is not None:
            self._count_pages()
            self._store.close()

    def _count_pages(self) -> None:
        assert self._store is not None
        counters, (reads, writes) = self._store.pool.counters, self._pages_before
        self._report.pages_read = reads + counters.reads
        self._report.pages_written = writes + counters.writes
        self._count(counters.bytes_peak)

    def _count(self, size: int) -> None:
        """Note what is counted against the budget now."""
        assert size <= self._limit, (size, self._limit)
        self._report.peak_bytes = max(self._report.peak_bytes, size)

    def _tell(self, *, always: bool = False) -> None:
        """Look at the process and call the progress function, about ten times a second."""
        now = time.monotonic()
        if always or now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._watch.look()
            if self._options.progress is not None:
                self._options.progress(self._report)


def _pour(
    memory: list[MemoryDirection], paged: Sequence[MemoryDirection | PagedDirection],
    pool: BufferPool,
) -> None:  # fmt: skip
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
