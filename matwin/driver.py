"""The driver: reads N feeds, steps when it is due, and decides where the rows live.

    read a feed that has something, the one that is furthest behind
        │
        ▼
    engine.take(rows)             what is found at once leaves at once
        │
        ▼  when a step is due
    engine.advance(frontiers)     what is final leaves, what nobody needs is dropped
        │
        ▼  memory full
    a step that makes room ──▶ slab by slab, nothing is written
    else                   ──▶ on to pages, once and for all

It is written once for all joins and knows nothing of them.  One that has no engine in memory begins
on pages.

When a step is due is the economics of it, decided here and nowhere else:
* engines that hand results over as rows come step with every portion;
* others wait until the memory is full, because a step's cost is mostly its own: what fits in memory
  is one step, at the end;
* on pages a step must pay for what it reads.  Somebody waits for the results of live streams, so
  there it is due as well after `max_delay`, when nobody has anything to say, and with every portion
  while nothing had to be written;
* where it is due with every portion, those that are there already are taken first, for as long as
  the last step took: a step over a window costs much the same whether one row is new or a hundred.

A source whose order is not declared is looked through once the memory is full, if it can be read
again: sorted ones go slab by slab.

Invariant: what is counted never exceeds the budget.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from matwin.storage.errors import BudgetError
from matwin.storage.pool import BufferPool
from matwin.storage.store import Store
from matwin.storage.units import format_size

from . import ways as choice
from .engine import Divisible, Engine, Joining, MemoryEngine
from .feed import Feed, items_of
from .inbox import Bell, Inbox
from .options import Options
from .partials import TooManyTies
from .parts import Parts, Room, may_walk
from .report import Report, SideReport, StreamReport
from .sampling import drawn
from .shares import PORTION_SHARE, WAIT_SHARE, WALK_ROOM, ReadShare
from .sizes import column_bytes
from .sources import Source
from .state import Kept
from .streams import Stream
from .watch import ProcessWatch
from .ways import Ways, ways_of

PROGRESS_SECONDS = 0.1
DIVIDES_FROM = 1 << 29
"""Bytes of rows from which on parts are faster than one step, though everything fits.  10M rows of
48 bytes a side took 0.8 of the CPU time (left bestmatch, two attributes) to 0.96 (ε, ten matches),
and half of the memory; 4M took longer."""
WAIT_SECONDS = 0.05
WAITS_MAX = 100
FEW_ROWS = 8


class Driver:
    """Feeds, and the engine that joins their rows."""

    def __init__(
        self, joining: Joining, sources: Sequence[Source], reports: Sequence[SideReport],
        options: Options, report: Report, *, is_told: bool = False,
    ) -> None:  # fmt: skip
        """Where it `is_told`, somebody else has the live streams' rows, and says when to look."""
        self._joining = joining
        self._options = options
        self._report = report
        self._bell = Bell()
        self._inboxes: dict[int, Inbox] = {}
        self._is_told = is_told
        self._feeds = [self._feed(i, sources, reports[i]) for i in range(len(sources))]
        self._is_live = bool(self._inboxes) or is_told
        self._engine: Engine
        self._memory: MemoryEngine | None = joining.in_memory()
        if self._memory is not None:
            self._engine = self._memory
        self._store: Store | None = None
        self._new_bytes = 0
        self._has_news = False
        self._waits = 0  # since something was read
        self._divides_from: int | None = DIVIDES_FROM
        self._weight_max = 0
        self._stepped_at = time.monotonic()
        self._step_seconds = 0.0  # what the last step took
        self._told_at = 0.0
        self._started = [0.0] * len(sources)
        self._watch = ProcessWatch(report)
        self._pages_counted = (0, 0)
        self._pages_share = 1.0
        """What the windows have of the budget once they are on pages."""
        report.budget_bytes = options.budget_bytes

    def _feed(self, number: int, sources: Sequence[Source], report: SideReport) -> Feed:
        options, side = self._options, self._joining.sides[number]
        share = ReadShare.of(options.budget_bytes, len(sources), options.scratch)
        source = sources[number].within(share)
        items = items_of(source)
        if isinstance(source, Stream) and source.is_live and not self._is_told:
            waiting = options.budget_bytes // PORTION_SHARE // len(sources)
            items = self._inboxes[number] = Inbox(items, self._bell, side.name, waiting)
        return Feed(source, side, report, self._joining.tolerances[number], items)

    def run(self) -> Generator[Any]:
        """All results, as soon as they are there."""
        try:
            for inbox in self._inboxes.values():
                inbox.start()
            if self._options.is_short:
                raise BudgetError(
                    f"a budget of {format_size(self._options.budget_bytes)} can't be divided",
                    smallest_bytes=self._options.budget_bytes,
                )
            is_forced = choice.FORCED == "walk"
            if self._memory is None or self._options.wants_pages or is_forced:
                yield from self._move_to_pages("asked for")
            elif self._joining.decision:
                self._report.decide(self._joining.decision)
            while not all(feed.is_done for feed in self._feeds):
                yield from self._turn()
            yield from self._end()
            self._report.is_done = True
            self._tell(always=True)
        except BudgetError as e:
            raise self.announced(e) from e
        finally:
            self._close()

    def round(self, *, is_over: bool) -> Iterator[Any]:
        """What the feeds have to say now; and where that is all for now, a step."""
        for feed in self._feeds:
            feed.is_silent = False
        try:
            while not all(feed.is_silent or feed.is_done for feed in self._feeds):
                yield from self._turn()
            if is_over:
                yield from self._step()
        except BudgetError as e:
            raise self.announced(e) from e

    def close(self) -> None:
        """Give back what is held; after `run` that is done already."""
        self._close()

    # ── one turn ─────────────────────────────────────────────────────────────────────────────

    def _turn(self) -> Iterator[Any]:
        """Read one portion, take it, step if that is due, and see that there is room."""
        number = self._next()
        if number is not None:
            yield from self._read(number)
        if self._memory is not None and self._must_leave(self._memory):
            yield from self._made_room(self._memory)
        elif self._memory is not None and self._is_worth_dividing(self._memory):
            self._moved_to_parts(self._memory, "what fits the cache is joined faster")
        if self._is_step_due(is_idle=number is None):
            yield from self._step()
        self._tell()

    def _read(self, number: int) -> Iterator[Any]:
        self._waits = 0
        feed = self._feeds[number]
        portion = feed.read(self._rows_at_a_time)
        if not feed.is_silent:
            self._has_news = True
            for other in self._feeds:
                other.is_silent = False
        if portion is None:
            return
        began = time.monotonic()
        self._joining.need.see(portion.rows, number)
        self._new_bytes += portion.size
        weight = self._engine.weight(portion.rows.num_rows, portion.size)
        self._weight_max = max(self._weight_max, weight)
        engine = self._memory
        if engine is not None and engine.joins_at_once and not self._has_room(engine, weight):
            # No step here: the feed's frontier is past rows that have not been taken yet.
            yield from self._move_to_pages("the windows do not fit the memory")
        yield from self._engine.take(number, portion)
        if portion.rejected is not None:
            yield from self._joining.rejected(number, portion.rejected)
        self._note(number, began)

    def _next(self) -> int | None:
        """The feed to read: of those that have something, the one that is furthest behind."""
        open_ = [i for i, feed in enumerate(self._feeds) if not feed.is_done]
        silent = [i for i in open_ if not self._is_ready(i)]
        ready = [i for i in open_ if i not in silent and self._is_useful(i, silent)]
        if ready:
            # Where an order is still to be found out, all keep pace, so that it can be of use.
            knows = self._is_live or all(self._feeds[i].is_ordered for i in open_)
            frontiers = [feed.frontier if knows else 0 for feed in self._feeds]
            return min(ready, key=lambda i: self._turn_of(i, frontiers[i]))
        self._bell.wait_for([self._inboxes[i] for i in silent], WAIT_SECONDS)
        self._waits += 1
        return None

    def _is_tight(self) -> bool:
        """Whether hardly anything still fits, and pages are no way out: who is ahead then waits for
        the others, for some seconds."""
        need = self._joining.need
        if self._memory is None or self._waits >= WAITS_MAX:
            return False
        if not need.fits_pages():  # a row of each feed must find room
            row = self._engine.weight(1, need.row_bytes)
            return not self._has_room(self._memory, (len(self._feeds) + 1) * row)
        # An algorithm by name is refused where the next portion does not fit.
        has_room = self._has_room(self._memory, self._portion_bytes())
        return self._joining.needs_memory and not has_room

    def _turn_of(self, number: int, frontier: int) -> tuple[bool, int, int]:
        """Who is furthest behind comes first, unless it has just had nothing to say."""
        feed = self._feeds[number]
        return feed.is_silent, frontier, feed.report.rows_in

    def _is_ready(self, number: int) -> bool:
        inbox = self._inboxes.get(number)
        return inbox is None or self._feeds[number].has_rest or inbox.is_ready

    def _is_useful(self, number: int, silent: list[int]) -> bool:
        """Whether a feed should be read while others are silent.  Live ones always, unless memory
        is tight: nobody knows what holds them together.  A finite one waits for those that it is
        ahead of."""
        is_free = number in self._inboxes and not self._is_tight()
        if is_free or not self._feeds[number].is_ordered:
            return True
        ahead = self._feeds[number].frontier
        return all(ahead <= self._feeds[i].frontier for i in silent)

    def _rows_at_a_time(self, rows: int, size: int) -> int:
        """How many of so many rows of `size` bytes take a sixteenth of the budget, at least one."""
        share = self._options.budget_bytes // PORTION_SHARE
        return max(1, share * rows // max(self._engine.weight(rows, size), 1))

    def _note(self, number: int, began: float) -> None:
        """How long a stream's portion took, and how long the stream has been read."""
        report, now = self._feeds[number].report, time.monotonic()
        if not isinstance(report, StreamReport):
            return
        self._started[number] = self._started[number] or began
        report.portions += 1
        report.response_total += now - began
        report.response_max = max(report.response_max, now - began)
        report.seconds = now - self._started[number]

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def _is_step_due(self, *, is_idle: bool) -> bool:
        pays, is_gathering = self._engine.step_bytes, not is_idle and self._is_gathering()
        if pays is not None and self._new_bytes >= pays and not (pays == 0 and is_gathering):
            return True
        if not (self._is_live and self._has_news) or self._store is None:
            return False
        delay = self._options.delay_seconds
        if delay is not None:
            return time.monotonic() - self._stepped_at >= delay
        return is_idle or (self._store.pool.counters.writes == 0 and not is_gathering)

    def _is_gathering(self) -> bool:
        """Whether somebody has more to say at once, and the last step was only just now."""
        if not any(inbox.has_items for inbox in self._inboxes.values()):
            return False
        if self._new_bytes >= self._options.budget_bytes // WAIT_SHARE:
            return False  # a pause in which a fast source would fill the memory
        delay = self._options.delay_seconds
        pause = min(self._step_seconds, WAIT_SECONDS if delay is None else delay)
        return time.monotonic() - self._stepped_at < pause

    def _step(self) -> Iterator[Any]:
        began = time.monotonic()
        self._new_bytes = 0
        self._has_news = False
        if self._memory is not None:
            self._count(self._memory.counted_bytes)
        for result in self._engine.advance(self._frontiers()):
            self._count_pages()
            yield result
            self._tell()
        self._stepped_at = time.monotonic()
        self._step_seconds = self._stepped_at - began
        self._count_pages()
        if self._store is not None:
            pa.default_memory_pool().release_unused()

    def _end(self) -> Iterator[Any]:
        """What was waiting for the end."""
        if self._memory is not None and not self._report.decisions:
            self._report.decide("memory: everything fits, judged in one step")
        yield from self._step()

    def _frontiers(self) -> list[int]:
        return [feed.frontier for feed in self._feeds]

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    def _has_room(self, engine: MemoryEngine, more: int) -> bool:
        """Whether so much more fits the memory."""
        return not engine.exceeds_offsets and self._stays_below(engine.needed_bytes + more, 1)

    def _must_leave(self, engine: MemoryEngine) -> bool:
        """Whether the next portion does not fit, or rows of all feeds are there that have to go
        into parts anyway."""
        is_known = all(feed.is_done or feed.report.rows_in for feed in self._feeds)
        if choice.FORCED == "parts" and is_known:
            return True
        return not self._has_room(engine, self._portion_bytes())

    def _stays_below(self, size: int, part: int) -> bool:
        return size <= self._options.budget_bytes // part

    def _portion_bytes(self) -> int:
        """What the next portion takes: a sixteenth of the budget, a single row, or as much as those
        before."""
        row = self._engine.weight(1, self._joining.need.row_bytes)
        return max(self._options.budget_bytes // PORTION_SHARE, row, self._weight_max)

    def _made_room(self, engine: MemoryEngine) -> Iterator[Any]:
        """A step to make room in memory, if it fits; where it would leave little, on to pages."""
        self._look_for_order()
        kept = engine.kept_bytes(self._frontiers())
        if self._stays_below(engine.needed_bytes, 1) and (self._is_live or self._pays(kept)):
            yield from self._step()
        if not engine.exceeds_offsets and self._pays(engine.needed_bytes):
            if not self._is_live:
                self._report.decide("memory: slab by slab, what is final makes room for what comes")
        elif self._moved_to_parts(engine, "the windows do not fit the memory"):
            return
        elif not (self._joining.needs_memory and self._has_room(engine, self._portion_bytes())):
            yield from self._move_to_pages("the windows do not fit the memory")

    def _pays(self, needed: int) -> bool:
        """Whether it pays to stay in memory: with less than half of it free the next step would
        come soon.  Rows that are too wide for pages stay as long as there is room for another."""
        if choice.FORCED in ("parts", "walk"):
            return False
        if not self._joining.need.fits_pages() or choice.FORCED == "slabs":
            return self._stays_below(needed + self._portion_bytes(), 1)
        return self._stays_below(needed, 2)

    def _look_for_order(self) -> None:
        """Find out whether sources of undeclared order are sorted, unless one is surely not."""
        if all(feed.is_ordered or feed.is_done for feed in self._feeds):
            return
        for feed in self._feeds:
            if not feed.is_done and not feed.find_sorted():
                if feed.is_told_unsorted:
                    told = f"{feed.side.name} is not sorted, by the statistics of its row groups"
                    self._report.decide(told)
                return
        self._report.decide("all inputs are sorted by the order attribute")

    def _is_worth_dividing(self, engine: MemoryEngine) -> bool:
        """Whether so much has come, in no order, that many small sorts beat a large one; asked
        once."""
        is_much = self._divides_from is not None and engine.held_bytes > self._divides_from
        is_barred = self._is_live or choice.FORCED == "memory"
        if not is_much or is_barred or not engine.is_untouched:
            return False
        if not cast(Divisible, self._joining).is_faster_in_parts:
            return False
        self._divides_from = None
        self._look_for_order()
        return not all(feed.is_ordered or feed.is_done for feed in self._feeds)

    def _moved_to_parts(self, engine: MemoryEngine, why: str) -> bool:
        """Divide all rows, where nothing has been joined yet and that costs less than a walk."""
        joining = cast(Divisible, self._joining)  # as are all that begin in memory
        if (
            self._is_live
            or not engine.is_untouched
            or not self._rows_fit_parts(joining, self._options)
        ):
            return False
        ways = self._ways(joining, engine)
        if ways.division is None or not (ways.prefers_parts or joining.needs_memory):
            return False
        store = self._open_store()
        parts = Parts(joining, *ways.division, store, self._options, self._report)
        self._memory, self._engine, self._pages_share = None, parts, WALK_ROOM
        self._report.decide(f"parts: {why}; {ways['parts'].why}")
        for feed, _, rows in _poured(engine, store.pool):
            parts.gather(feed, rows)
        pa.default_memory_pool().release_unused()
        return True

    def _rows_fit_parts(self, joining: Divisible, options: Options) -> bool:
        """Whether a part has room for a few of the widest rows, and for as many pages of them (by
        itself a batch of very many columns takes some megabytes), and could be walked, where it may
        be."""
        room = Room.of(options)
        row = joining.in_part(room.output_bytes).weight(1, joining.need.row_bytes)
        pages = sum(column_bytes(len(side.stored)) for side in joining.sides)
        has_way_out = joining.needs_memory or may_walk(options)
        return has_way_out and FEW_ROWS * (row + pages) <= room.part_bytes

    def _ways(self, joining: Divisible, engine: MemoryEngine) -> Ways:
        """What the ways beyond memory cost, by the rows that have been read."""
        rows = [engine.rows_of(feed) for feed in range(len(self._feeds))]
        sizes = [sum(b.nbytes for b in some) / max(sum(b.num_rows for b in some), 1)
                 for some in rows]  # fmt: skip
        cutting = joining.cutting
        samples = [drawn(cutting, i, feed.source, rows[i], is_all=feed.is_done)
                   for i, feed in enumerate(self._feeds)]  # fmt: skip
        return ways_of(joining, samples, sizes, self._options, is_sorted=False)

    def _open_store(self) -> Store:
        options = self._options
        self._store = Store(
            memory=options.budget_bytes, page_size=options.page_bytes, scratch=options.scratch,
            trace=options.trace,
        )  # fmt: skip
        return self._store

    def _move_to_pages(self, why: str) -> Iterator[Any]:
        """From now on the windows are in a store."""
        store = self._open_store()
        arrivals = [feed.arrival for feed in self._feeds]
        moved = self._joining.on_pages(self._memory, store, arrivals, why)
        self._memory, self._engine = None, moved.engine
        self._report.decide(moved.decision)
        yield from moved.results
        # What Arrow has been given back it keeps for a while: up to 30 MB in a budget of 2 MiB.
        pa.default_memory_pool().release_unused()

    def announced(self, error: BudgetError) -> BudgetError:
        """The error with a budget that is enough for all rows, also those not read yet."""
        need = self._joining.need
        for number, feed in enumerate(self._feeds):
            if not feed.is_live:
                need.see_rest(feed.rest(), number)
        has_ties = isinstance(error, TooManyTies)
        return need.announced(error, has_ties=has_ties, share_at=self._share_at)

    def _share_at(self, budget: int) -> float:
        """Which part of another budget pages have: beside parts, which come first, not all."""
        if self._pages_share < 1 or self._is_live or self._options.wants_pages:
            return self._pages_share
        if not hasattr(self._joining, "in_part"):
            return 1.0
        joining = cast(Divisible, self._joining)
        if not joining.cutting.cuts:
            return 1.0
        return WALK_ROOM if self._rows_fit_parts(joining, self._options.at(budget)) else 1.0

    def _close(self) -> None:
        for inbox in self._inboxes.values():
            inbox.close()
        self._count_pages()
        if self._store is not None:
            self._store.close()

    def _count_pages(self) -> None:
        """Add what the store has read and written since the last time; an engine that has stores
        of its own besides adds theirs."""
        if self._store is None:
            return
        counters, (reads, writes) = self._store.pool.counters, self._pages_counted
        self._report.pages_read += counters.reads - reads
        self._report.pages_written += counters.writes - writes
        self._pages_counted = (counters.reads, counters.writes)
        self._count(counters.bytes_peak)

    def _count(self, size: int) -> None:
        """Note what is counted against the budget now."""
        assert size <= self._options.budget_bytes, (size, self._options.budget_bytes)
        self._report.peak_bytes = max(self._report.peak_bytes, size)

    def _tell(self, *, always: bool = False) -> None:
        """Look at the process and call the progress function, about ten times a second."""
        now = time.monotonic()
        if always or now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._watch.look()
            if self._options.progress is not None:
                self._options.progress(self._report)


def _poured(engine: MemoryEngine, pool: BufferPool) -> Iterator[Kept]:
    """An engine's rows; those that it still holds count against the pool's budget."""
    held = engine.held_bytes
    pool.take(held)
    try:
        for kept in engine.pour():
            left = engine.held_bytes
            pool.give_back(held - left)
            held = left
            yield kept
    finally:
        pool.give_back(held)
