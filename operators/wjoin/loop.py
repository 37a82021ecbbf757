"""The loop of a window join: read, join, drop, and move to pages when the memory is full.

    read a stream that has something, the one that is furthest behind
        │
        ▼
    engine.take(rows)        backward: what they find leaves at once
        │                    forward: they wait until they are final
        ▼                    merge: they wait for a step
    engine.advance(needed)   drop what no later row can meet
        │
        ▼
    memory full?  a step, then pages if that has not made room enough

An engine is in memory (`Backward`, `Forward`, `Slabs`) or on pages (`LivePages`, `GatheredPages`);
all algorithms share the latter, because there a step must pay for the pages it reads.  What an
engine in memory has joined already is old on pages, what has waited is new: nothing is lost or
found twice.

Finite inputs whose order is not declared are looked through once the memory is full, if they can be
read again: sorted ones go slab by slab.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from matwin.feed import Feed, items_of
from matwin.finality import DONE
from matwin.options import Options
from matwin.report import Report, StreamReport
from matwin.shares import ReadShare
from matwin.sources import Source
from matwin.storage.columns import INT64_MIN
from matwin.storage.errors import BudgetError
from matwin.storage.store import Store
from matwin.streams import Stream
from matwin.watch import ProcessWatch

from .block import BYTES_PER_ROW, Blocks
from .choose import Choice
from .evaluate import Backward, Forward
from .gathered import GatheredPages
from .inbox import Bell, Inbox
from .need import StreamsNeed
from .needed import needed_from
from .output import Output
from .paged import LivePages
from .question import WindowQuestion
from .slabs import Slabs

PORTION_SHARE = 16
PROGRESS_SECONDS = 0.1
WAIT_SECONDS = 0.05
WAITS_MAX = 100
Engine = Backward | Forward | Slabs | LivePages | GatheredPages


class WindowLoop:
    """Feeds of all streams, and the engine that joins their rows."""

    def __init__(
        self, question: WindowQuestion, sources: Sequence[Source], choice: Choice,
        options: Options, report: Report,
    ) -> None:  # fmt: skip
        self._question = question
        self._choice = choice
        self._options = options
        self._report = report
        self._bell = Bell()
        self._inboxes: dict[int, Inbox] = {}
        self._feeds = [self._feed(i, source) for i, source in enumerate(sources)]
        self._blocks = [Blocks(side) for side in question.sides]
        threads = options.workers if choice.algorithm == "merge" else 1
        self._output = Output(question, options.budget_bytes, threads)
        self._upper = question.constraints.bounds(choice.bounds)
        self._need = StreamsNeed(
            question, budget_bytes=options.budget_bytes, page_bytes=options.page_bytes
        )
        self._store: Store | None = None
        self._engine: Engine = self._in_memory(threads)
        self._is_live = bool(self._inboxes)
        self._told_at = self._stepped_at = 0.0
        self._watch = ProcessWatch(report)
        self._started = [0.0] * len(sources)
        self._waits = 0  # since something was read

    def _feed(self, number: int, source: Source) -> Feed:
        name = self._question.names[number]
        report = self._report.streams.setdefault(name, StreamReport())
        options, count = self._options, len(self._question.names)
        source = source.within(ReadShare.of(options.budget_bytes, count, options.scratch))
        items = items_of(source)
        if isinstance(source, Stream) and source.is_live:
            share = options.budget_bytes // PORTION_SHARE // count
            items = self._inboxes[number] = Inbox(items, self._bell, name, share)
        side = self._question.sides[number]
        return Feed(source, side, report, side.grid.order.limits, items)

    def _in_memory(self, threads: int) -> Engine:
        choice, common = self._choice, (self._question, self._blocks, self._output)
        if choice.algorithm == "merge":
            return Slabs(*common, bounds=choice.bounds, threads=threads)
        evaluation = Forward if choice.is_forward else Backward
        return evaluation(*common, bounds=choice.bounds, is_hash=choice.is_hash)

    def run(self) -> Generator[pa.RecordBatch]:
        """All tuples as output rows, as soon as they are found."""
        self._report.budget_bytes = self._options.budget_bytes
        if not self._options.wants_pages:
            self._report.decide(self._choice.reason)
        try:
            for inbox in self._inboxes.values():
                inbox.start()
            if self._options.wants_pages:
                yield from self._move_to_pages("asked for")
            while not all(feed.is_done for feed in self._feeds):
                yield from self._turn()
            yield from self._end()
            self._report.is_done = True
            self._tell(always=True)
        except BudgetError as e:
            raise self._announced(e) from e
        finally:
            self._close()

    # ── one turn ─────────────────────────────────────────────────────────────────────────────

    def _turn(self) -> Iterator[pa.RecordBatch]:
        """Read one portion, join it, drop what is over."""
        number = self._next()
        if number is None:  # nobody has anything to say: time to join what waits
            yield from self._step_if_due(is_idle=True)
            return
        self._waits = 0
        feed = self._feeds[number]
        portion = feed.read(self._rows_at_a_time)
        if not feed.is_silent:
            for other in self._feeds:
                other.is_silent = False
        began = time.monotonic()
        self._started[number] = self._started[number] or began
        if portion is not None:
            self._need.see(portion.rows)
            if not self._has_room(self._growth(portion.rows.num_rows, portion.size)):
                yield from self._move_to_pages("the windows do not fit the memory")
            yield from self._engine.take(number, portion.rows, portion.size)
            self._count_memory()
        yield from self._engine.advance(self._needed(), self._upto())
        yield from self._step_if_due()
        if not self._has_room_for_more():
            yield from self._made_room()
        if portion is not None:
            self._note(number, began)
        self._tell()

    def _next(self) -> int | None:
        """The stream to read: of those that have something, the one that is furthest behind."""
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
        """Whether a row of each stream is all that still fits, and pages are no way out: who is
        ahead then waits for the others, for some seconds."""
        if self._need.fits_pages or self._waits >= WAITS_MAX:
            return False
        return not self._has_room(len(self._feeds) * self._growth(1, self._need.row_bytes))

    def _turn_of(self, number: int, frontier: int) -> tuple[bool, int, int]:
        """Who is furthest behind comes first, unless it has just had nothing to say."""
        feed = self._feeds[number]
        return feed.is_silent, frontier, feed.report.rows_in

    def _is_ready(self, number: int) -> bool:
        inbox = self._inboxes.get(number)
        return inbox is None or self._feeds[number].has_rest or inbox.is_ready

    def _is_useful(self, number: int, silent: list[int]) -> bool:
        """Whether a stream should be read while others are silent.  Live ones always, unless memory
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
        return max(1, share * rows // max(3 * (size + rows * 2 * BYTES_PER_ROW), 1))

    def _growth(self, rows: int, size: int) -> int:
        """What so many rows of `size` bytes take in memory, copies and arrays included."""
        return self._engine.copies * size + 3 * rows * 2 * BYTES_PER_ROW

    def _frontiers(self) -> list[int]:
        return [feed.frontier for feed in self._feeds]

    def _needed(self) -> list[int]:
        """What each stream's rows are needed from."""
        frontiers = self._frontiers()
        if isinstance(self._engine, Forward):
            # Rows that wait are still to come.
            lowest = self._upto()
            frontiers = [
                lowest if f != DONE or waiting else DONE
                for f, waiting in zip(frontiers, self._engine.waiting, strict=True)
            ]
        return needed_from(frontiers, self._upper, is_float=self._question.is_float)

    def _upto(self) -> int:
        """Below this time every stream is complete."""
        return min(self._frontiers())

    def _note(self, number: int, began: float) -> None:
        report = self._feeds[number].report
        assert isinstance(report, StreamReport)
        now = time.monotonic()
        report.portions += 1
        report.response_total += now - began
        report.response_max = max(report.response_max, now - began)
        report.seconds = now - self._started[number]

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    def _has_room(self, more: int) -> bool:
        """Whether so much more fits the memory; pages make room by themselves."""
        if isinstance(self._engine, LivePages | GatheredPages):
            return True
        return self._engine.needed_bytes + more <= self._options.budget_bytes

    def _has_room_for_more(self) -> bool:
        """Whether another portion fits: a sixteenth of the budget, or a single row."""
        row = self._growth(1, self._need.row_bytes)
        return self._has_room(max(self._options.budget_bytes // PORTION_SHARE, row))

    def _count_memory(self) -> None:
        """Note what an engine in memory takes now; a store counts its own."""
        if not isinstance(self._engine, LivePages | GatheredPages):
            self._count(self._engine.held_bytes + self._output.used_bytes)

    def _count(self, size: int) -> None:
        assert size <= self._options.budget_bytes, (size, self._options.budget_bytes)
        self._report.peak_bytes = max(self._report.peak_bytes, size)

    def _made_room(self) -> Iterator[pa.RecordBatch]:
        """A step, if the engine makes steps; when that leaves little room, on to pages."""
        engine = self._engine
        if isinstance(engine, Slabs):
            self._look_for_order()
            if all(f > INT64_MIN for f in self._frontiers()):
                yield from self._step()
        assert not isinstance(engine, LivePages | GatheredPages)
        if isinstance(engine, Slabs) and not self._pays_on_pages(engine):
            return
        yield from self._move_to_pages("the windows do not fit the memory")

    def _pays_on_pages(self, engine: Slabs) -> bool:
        """Whether memory is more than half full after a step: the next one would come soon.  Rows
        that are too wide for pages stay as long as there is room for another."""
        if not self._need.fits_pages and self._has_room_for_more():
            return False
        return engine.needed_bytes > self._options.budget_bytes // 2

    def _look_for_order(self) -> None:
        """Find out whether sources of undeclared order are sorted, unless one is surely not."""
        if all(feed.is_ordered or feed.is_done for feed in self._feeds):
            return
        for feed in self._feeds:
            if not feed.is_done and not feed.find_sorted():
                return
        self._report.decide("all inputs are sorted by time: joined slab by slab")

    def _move_to_pages(self, why: str) -> Iterator[pa.RecordBatch]:
        """From now on the windows are in a store; rows that have waited may be too many for one
        step."""
        options, engine = self._options, self._engine
        assert not isinstance(engine, LivePages | GatheredPages)
        self._store = Store(
            memory=options.budget_bytes, page_size=options.page_bytes, scratch=options.scratch,
            trace=options.trace,
        )  # fmt: skip
        paged: LivePages | GatheredPages
        common = (self._question, self._blocks, self._output, self._store)
        if self._is_live:
            paged = LivePages(
                *common, bounds=self._choice.bounds, materialize=options.materialize,
                arrivals=[feed.arrival for feed in self._feeds],
            )  # fmt: skip
        else:
            # Every page is then read about once, however long the windows are; steps would read
            # the windows again and again.
            paged = GatheredPages(
                *common, bounds=self._choice.bounds, materialize=options.materialize,
                threads=options.workers,
            )  # fmt: skip
        self._engine = paged
        self._output.divide(1 if self._is_live else options.workers)
        self._report.decide(self._choice.on_pages(why, paged.reason))
        for number, is_new, batches in engine.pour():
            while batches:
                batch = batches.pop(0)
                for part in self._parts_of(batch):
                    if not is_new:
                        paged.take_old(number, part)
                        continue
                    paged.take(number, part, part.nbytes)
                    if paged.is_step_due:  # rows that wait are still to come: nothing is dropped
                        yield from paged.step([INT64_MIN] * len(self._feeds))
        pa.default_memory_pool().release_unused()

    def _parts_of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch in parts that take a sixteenth of the budget."""
        size = self._rows_at_a_time(batch.num_rows, batch.nbytes)
        return (batch.slice(first, size) for first in range(0, batch.num_rows, size))

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def _step_if_due(self, *, is_idle: bool = False) -> Iterator[pa.RecordBatch]:
        engine, delay = self._engine, self._options.delay_seconds
        if not isinstance(engine, LivePages | GatheredPages):
            return
        waited = time.monotonic() - self._stepped_at
        is_late = self._is_live and engine.new_bytes > 0 and waited >= (delay or 0.0)
        # Somebody waits for results of a live stream: at once while nothing had to be written.
        assert self._store is not None
        if is_late and delay is None:
            is_late = is_idle or self._store.pool.counters.writes == 0
        if engine.is_step_due or is_late:
            yield from self._step()

    def _step(self) -> Iterator[pa.RecordBatch]:
        engine = self._engine
        assert isinstance(engine, Slabs | LivePages | GatheredPages)
        self._report.steps += 1
        if isinstance(engine, Slabs):  # sorts, and makes output
            self._count(engine.needed_bytes)
        yield from engine.step(self._needed())
        if isinstance(engine, GatheredPages):
            self._report.decide(f"at the end: {engine.joined}")
        self._stepped_at = time.monotonic()
        self._count_pages()
        if self._store is not None:
            pa.default_memory_pool().release_unused()

    def _end(self) -> Iterator[pa.RecordBatch]:
        """What was waiting."""
        yield from self._engine.advance(self._needed(), DONE)
        if isinstance(self._engine, Slabs | LivePages | GatheredPages):
            yield from self._step()

    def _announced(self, error: BudgetError) -> BudgetError:
        """The error with a budget that is enough for all rows, also those not read yet."""
        for feed in self._feeds:
            if not feed.is_live:
                self._need.see_rest(feed.rest())
        return self._need.announced(error, has_ties=False)

    def _close(self) -> None:
        for inbox in self._inboxes.values():
            inbox.close()
        if self._store is not None:
            self._count_pages()
            self._store.close()

    def _count_pages(self) -> None:
        if self._store is None:
            return
        counters = self._store.pool.counters
        self._report.pages_read, self._report.pages_written = counters.reads, counters.writes
        self._count(counters.bytes_peak)

    def _tell(self, *, always: bool = False) -> None:
        """Look at the process and call the progress function, about ten times a second."""
        now = time.monotonic()
        if always or now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._watch.look()
            if self._options.progress is not None:
                self._options.progress(self._report)
