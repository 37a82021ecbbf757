"""Parts: every row put down once into a part that fits, and each part joined in memory.

    portions ─▶ gather ─▶ which parts ─▶ sorted by part ─▶ lanes: pages
                                                             │ the end
             batches ◀── engine in memory ◀── rows of a part ┘   two parts at a time

A part is the work of one engine in memory: rows of the anchor side are in one part, the others come
along as far as they can be reached (`scheduler.layout`), so that every result is found in exactly
one part.  A row is written once and read once, whatever the budget, while parts divide.

A part that turns out too large is divided again, by whatever divides it best then.  One that can't
be, a single hot key or instant, is walked on pages.

Where parts are large, two are under way on two cores, and hand their results over in turns, batch
by batch.  So the order of the results depends on the rows alone, and no core waits for the other's
part to end.

Invariants: rows that wait, parts under way and their output stay within the pool's budget; lanes
that have been joined are gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.scheduler.division import Plan
from matwin.scheduler.layout import ANCHOR, Int64s
from matwin.storage.arrays import arrow
from matwin.storage.pool import smallest_budget
from matwin.storage.store import Store

from .cutting import Cut, Cutting
from .engine import Divisible
from .feed import Portion
from .finality import DONE
from .options import PAGE_MIN, Options, page_within
from .report import Report
from .sampling import SAMPLE_ROWS, strided
from .shares import GATHER_SHARE, OUTPUT_SHARE, PART_ROOM, WALK_ROOM
from .side import OWN, own_rows
from .sizes import batch_bytes

NUMBERS_BYTES = 12
"""A row's part, place and order while rows are put down: 24 bytes, and there are two copies."""
DIVIDES = 0.6
"""Dividing a part again must make its largest piece at most so large, or it is walked."""
GATHER_BYTES_MAX, PART_BYTES_MAX = 2**28, 2**26
"""What gathers before it is put down, and a part: a larger one is joined slower, however much
memory there is."""
PART_BYTES_WORTH = 2**24
"""Two threads take turns in Python: 1M rows a side in 9.6 MB took 2.4 s in parts of 3 MB on two
threads, and 1.2 s in parts of 6 MB on one."""
RELEASE_BYTES = 2**25
"""Memory is given back after so much of it has been used, not after each part of 5 MB: the next one
would fault it in again.  To give nothing back at all, here and in the pool, saved 5 to 9%."""
DEPTH_MAX = 6
SAMPLED_PAGES = 16
_END = object()


@dataclass(frozen=True, slots=True)
class Room:
    """What the parts under way may take."""

    slots: int
    part_bytes: int
    output_bytes: int

    @classmethod
    def of(cls, options: Options) -> Room:
        """As many parts as there are threads, each with its share, but none so small that Python
        has more to do for it than the kernels."""
        budget = options.budget_bytes
        room = int(budget * PART_ROOM) - budget // OUTPUT_SHARE
        slots = max(1, min(options.workers, room // PART_BYTES_WORTH))
        part = min(room // slots, PART_BYTES_MAX)
        return cls(slots, part, budget // OUTPUT_SHARE // slots)

    @property
    def reserved_bytes(self) -> int:
        """All of them together."""
        return self.slots * (self.part_bytes + self.output_bytes)


class Parts:
    """Rows divided into parts, in a store."""

    step_bytes: int | None = None
    makes_room = True
    needed_bytes = 0  # a store counts its own

    def __init__(
        self, joining: Divisible, cut: Cut, plan: Plan, store: Store, options: Options,
        report: Report, *, depth: int = 0,
    ) -> None:  # fmt: skip
        self._depth = depth
        # Rows as they came, and all their copies in order of their parts.
        self._copies = 1 + max(1.0, plan.replication)
        self._joining = joining
        self._cutting = joining.cutting
        self._cut = cut
        self._plan = plan
        self._store = store
        self._pool = store.pool
        self._options = options
        self._report = report
        self._room = Room.of(options)
        sides = self._cutting.sides
        self._lanes = [store.lanes(f"{side.name}, parts", side.stored) for side in sides]
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in sides]
        self._sizes = [0] * len(sides)
        self._rows_seen = [0] * len(sides)
        self._joined_bytes = 0
        self._engine = joining.in_part(self._room.output_bytes)  # only weighs

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes: it gathers, and is copied when it is put down."""
        return int(self._copies * (size + NUMBERS_BYTES * rows))

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def take(self, feed: int, portion: Portion) -> Iterator[Any]:
        """Gather rows."""
        self.gather(feed, portion.rows)
        return iter(())

    def gather(self, feed: int, rows: pa.RecordBatch) -> None:
        """Gather rows; the side with the most of them is put down when the share is used up."""
        if rows.num_rows == 0:
            return
        size = self.weight(rows.num_rows, batch_bytes(rows))
        if rows.num_rows > 1 and size > self._gather_room(sum(self._sizes)):
            half = rows.num_rows // 2
            self.gather(feed, rows.slice(0, half))
            self.gather(feed, rows.slice(half))
            return
        while (held := sum(self._sizes)) and held + size > self._gather_room(held):
            self._put_down(int(np.argmax(self._sizes)))
        self._pool.take(size)
        self._waiting[feed].append(rows)
        self._sizes[feed] += size

    def _gather_room(self, gathered: int) -> int:
        """How much may gather, copies included: the share, or what others leave of the budget."""
        pool = self._pool
        free = pool.budget_bytes - pool.write_space - pool.held_bytes - 2 * pool.file.page_size
        share = min(pool.budget_bytes * GATHER_SHARE, GATHER_BYTES_MAX)
        return min(int(self._copies * share), gathered + free)

    def _put_down(self, feed: int) -> None:
        """Bring what waits into its parts."""
        if not self._waiting[feed]:
            return
        rows = pa.concat_batches(self._waiting[feed])
        size, self._waiting[feed], self._sizes[feed] = self._sizes[feed], [], 0
        parts, at = self._places(feed, rows)
        order = np.argsort(parts, kind="stable")
        taken = rows.take(arrow(at[order] if at is not None else order))
        if self._cutting.marks_own:
            taken = self._marked(feed, rows, taken, parts, at, order)
        del rows
        counts = np.bincount(parts, minlength=self._plan.parts)
        self._lanes[feed].put(taken, [0, *np.cumsum(counts).tolist()])
        self._pool.give_back(size)

    def _places(
        self, feed: int, rows: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.uint16], Int64s | None]:
        """The part of every copy, and which row it is a copy of; None where all rows have one."""
        first, last = self._parts_of(feed, rows, is_own=False)
        self._rows_seen[feed] += rows.num_rows
        copies = last - first + 1
        if (copies == 1).all():
            return first.astype(np.uint16), None
        at = np.repeat(np.arange(rows.num_rows), copies)
        starts = np.repeat(np.cumsum(copies) - copies, copies)
        parts = first[at] + (np.arange(len(at)) - starts)
        return parts.astype(np.uint16), at

    def _parts_of(self, feed: int, rows: pa.RecordBatch, *, is_own: bool) -> tuple[Int64s, Int64s]:
        cutting = self._cutting
        values, hashes = cutting.values(self._cut, feed, rows), cutting.hashes(feed, rows)
        salts = np.arange(self._rows_seen[feed], self._rows_seen[feed] + rows.num_rows)
        halo = ANCHOR if is_own else self._plan.halos[cutting.sides[feed].name]
        return self._plan.layout.parts_of(values, hashes, salts, halo)

    def _marked(
        self, feed: int, rows: pa.RecordBatch, taken: pa.RecordBatch,
        parts: npt.NDArray[np.uint16], at: Int64s | None, order: Int64s,
    ) -> pa.RecordBatch:  # fmt: skip
        """Mark the copies that are in their own part; one that was not before is in none."""
        home, _ = self._parts_of(feed, rows, is_own=True)
        is_own = (home if at is None else home[at]) == parts
        marks = arrow((is_own[order] & own_rows(taken)).astype(np.int8))
        place = taken.schema.get_field_index(OWN)
        return taken.set_column(place, taken.schema.field(place), marks)

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def advance(self, frontiers: Sequence[int]) -> Iterator[Any]:
        """All results, at the end."""
        if min(frontiers) < DONE:
            return
        for feed in range(len(self._lanes)):
            self._put_down(feed)
        sizes = [self._needed(part) for part in range(self._plan.parts)]
        limit = self._room.part_bytes
        fits = [part for part, size in enumerate(sizes) if 0 < size <= limit]
        for part, size in enumerate(sizes):  # first: whatever can fail should fail early
            if size > limit:
                yield from self._too_large(part, size)
        with self._pool.reserve(self._room.reserved_bytes):
            yield from self._in_turns(map(self._joined, fits))
        for lanes in self._lanes:
            lanes.close()

    def _needed(self, part: int) -> int:
        """What joining a part takes."""
        held = [lanes.lane(part) for lanes in self._lanes]
        return sum(self._engine.weight(lane.rows, lane.size) for lane in held)

    def _joined(self, part: int) -> Iterator[Any]:
        """The results of one part; runs on a worker."""
        size = self._needed(part)
        engine = self._joining.in_part(self._room.output_bytes)
        for feed, lanes in enumerate(self._lanes):
            # Pages' memory outlives their frames while rows refer to it; it counts for the part.
            batches = list(lanes.taken(part))
            if batches:
                rows = pa.concat_batches(batches)
                del batches
                yield from engine.take(feed, portion_of(self._cutting, feed, rows))
        yield from engine.advance([DONE] * len(self._lanes))
        del engine
        self._joined_bytes += size
        if self._joined_bytes >= RELEASE_BYTES:  # Arrow would keep what the parts took
            self._joined_bytes = 0
            pa.default_memory_pool().release_unused()

    def _in_turns(self, parts: Iterable[Iterator[Any]]) -> Iterator[Any]:
        """Results of several parts at a time, one of each in turn."""
        if self._room.slots == 1:
            for part in parts:
                yield from part
            return
        todo, running = iter(parts), deque[tuple[Iterator[Any], Future[Any]]]()
        with ThreadPoolExecutor(self._room.slots, "matwin-part") as pool:

            def start() -> None:
                made = next(todo, None)
                if made is not None:
                    running.append((made, pool.submit(next, made, _END)))

            for _ in range(self._room.slots):
                start()
            while running:
                made, future = running.popleft()
                result = future.result()
                if result is _END:
                    start()
                    continue
                running.append((made, pool.submit(next, made, _END)))
                yield result

    # ── what does not fit ────────────────────────────────────────────────────────────────────

    def _too_large(self, part: int, size: int) -> Iterator[Any]:
        """A part that does not fit: divided again, or walked."""
        again = self._divided_again(part, size)
        if again is None:
            yield from self._walked(part)
            return
        self._report.decide(f"parts: one of them does not fit, {again._plan.parts} of it")
        for feed, lanes in enumerate(self._lanes):
            for batch in lanes.taken(part):
                again.gather(feed, batch)
        yield from again.advance([DONE] * len(self._lanes))

    def _divided_again(self, part: int, size: int) -> Parts | None:
        rows = [self._sample(feed, part) for feed in range(len(self._lanes))]
        held = [lanes.lane(part) for lanes in self._lanes]
        weights = [self._engine.weight(lane.rows, lane.size) / max(lane.rows, 1) for lane in held]
        found = self._cutting.planned(
            rows, [lane.rows for lane in held], weights, self._room.part_bytes, self._room.slots
        )
        if found is None or self._depth == DEPTH_MAX:
            return None
        cut, plan = found
        by_name = dict(zip(self._cutting.names(), weights, strict=True))
        if plan.bytes_of_parts(by_name).max() > DIVIDES * size:
            return None
        return Parts(
            self._joining, cut, plan, self._store, self._options, self._report,
            depth=self._depth + 1,
        )  # fmt: skip

    def _sample(self, feed: int, part: int) -> list[pa.RecordBatch]:
        """Some rows of a part, without their payload."""
        lanes, names = self._lanes[feed], self._cutting.columns(feed)
        stride = max(1, lanes.lane(part).rows // SAMPLE_ROWS)
        pages = lanes.peeked(part, SAMPLED_PAGES)
        return list(strided((page.select(names) for page in pages), stride))

    def _walked(self, part: int) -> Iterator[Any]:
        """A part that nothing divides, on pages of a store of its own."""
        options = _smaller(self._options)
        arrivals = ["unsorted"] * len(self._lanes)
        with (
            self._pool.reserve(options.budget_bytes),
            Store(
                memory=options.budget_bytes, page_size=options.page_bytes, scratch=options.scratch
            ) as store,
        ):
            moved = self._joining.on_pages(
                self._joining.in_memory(), store, arrivals, "one key or instant does not fit"
            )
            self._report.decide(moved.decision)
            yield from moved.results
            for feed, lanes in enumerate(self._lanes):
                for batch in lanes.taken(part):
                    yield from moved.engine.take(feed, portion_of(self._cutting, feed, batch))
            yield from moved.engine.advance([DONE] * len(self._lanes))
            self._report.pages_read += store.pool.counters.reads
            self._report.pages_written += store.pool.counters.writes


def portion_of(cutting: Cutting, feed: int, rows: pa.RecordBatch) -> Portion:
    """Rows of a part as an engine takes them."""
    return Portion(rows, cutting.sides[feed].order_keys(rows), None, rows.nbytes)


def may_walk(options: Options) -> bool:
    """Whether the budget leaves enough for a walk beside the lanes."""
    return smallest_budget(PAGE_MIN) <= int(options.budget_bytes * WALK_ROOM)


def _smaller(options: Options) -> Options:
    """What a walk has while the lanes are there."""
    memory = int(options.budget_bytes * WALK_ROOM)
    page = page_within(memory, options.page_bytes)
    return replace(options, memory=memory, page_size=page, trace=None)
