"""A direction on pages: both windows in the storage engine, judged by a scheduled walk.

    windows ──fences──▶ reach ──▶ schedule ──walk──▶ a probe page, and all base pages in frames
                                                     that it meets ──kernel──▶ candidates
                                                                                   │
            probe page visited for the last time ◀── partial results of its rows ──┘
                       │
                       └──▶ base rows of the survivors gathered, handed over, forgotten;
                            after the walk, where their pages are gone by then (`survivors`)

An ε-join needs no state between visits: what a visit finds is handed over at once.  The best of a
probe row are known only after the last visit of its page; until then they are partial results, kept
as row numbers and keys (the base rows are read again when they are needed), within a share of the
budget and beyond it on a file (`partials`).  Gallop finishes a probe page before the next; other
schedules read fewer pages and keep more pages open.

Invariant: what a probe row finds is handed over exactly once, and of ties what is kept: that is
settled when the row is whole, so that whatever cuts its candidates afterwards cuts no decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from matwin.scheduler import Pair, Reach, Walk, reach_of
from matwin.storage.arrays import arrow
from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s, no_rows
from matwin.storage.frame import Pinned
from matwin.storage.materialize import Window
from matwin.storage.runs import PageRef
from matwin.storage.store import Store

from .block import Block
from .candidates import Candidates, joined
from .judge import Found, Judge
from .matched import Finish, Matched, Result, unmatched_rows
from .paging import IN_FLIGHT, Shares, planned
from .partials import Partials
from .report import Report
from .shares import MATCH_SHARE
from .sizes import cuts
from .slots import Placed, Slots
from .state import Held
from .survivors import ROW_BITS, Survivors

WHY = "rows of a match"


class PagedDirection:
    """Probe and base window of one direction, in a store."""

    def __init__(
        self, judge: Judge, store: Store, names: dict[str, str], arrivals: dict[str, str], *,
        materialize: str, schedule: str, threads: int, wants_unmatched: bool,
        scratch: str | Path | None, report: Report,
    ) -> None:  # fmt: skip
        self.judge = judge
        self._store = store
        self._mode = schedule
        self._threads = threads
        self._wants_unmatched = wants_unmatched
        self._scratch = scratch
        self._report = report
        self.feeds: Window | None = None
        """A window of another direction that gets rows while this one is judged."""
        self._windows = {
            side: _window(store, names[side], blocks, materialize, arrivals[side])
            for side, blocks in ((judge.probe_name, judge.probe), (judge.base_name, judge.base))
        }

    @cached_property
    def no_base_rows(self) -> pa.RecordBatch:
        """None, with the columns of a base page."""
        names, stored = _page_names(self.base), self.judge.base.side.stored
        return no_rows(pa.schema([stored.field(n) for n in names]))

    held_bytes = judge_bytes = output_bytes = 0  # a store counts its own
    exceeds_offsets = False
    holders: Sequence[Held] = ()  # all rows are on pages

    def kept_share(self, last: int, below: int) -> float:
        """Pages make room by themselves."""
        return 1.0

    @property
    def names(self) -> list[str]:
        """The windows in the store."""
        return [window.name for window in self._windows.values()]

    @property
    def probe(self) -> Window:
        """The window of the rows to be judged."""
        return self._windows[self.judge.probe_name]

    @property
    def base(self) -> Window:
        """The window of the rows they may meet."""
        return self._windows[self.judge.base_name]

    def append(self, side: str, rows: pa.RecordBatch, keys: Int64s, size: int) -> None:
        """Take rows of a side."""
        if rows.num_rows:
            self._windows[side].append(rows)

    def waiting(self, last: int) -> bool:
        """Whether some probe row could be judged: pages are not asked, a step finds out."""
        return True

    def drop_base(self, below: int) -> None:
        """Forget base rows that no probe row can reach any more."""
        if below > INT64_MAX:
            self.base.clear("out of reach")
        elif below > INT64_MIN:
            self.base.expire_key(below, "out of reach")

    def judge_upto(
        self, last: int, finish: Finish[Result], *, with_keys: bool = False
    ) -> Iterator[Result]:
        """Judge the probe rows whose key is at most `last`; they are forgotten."""
        probes = [ref for ref in self.probe.pages() if ref.fence.order_min <= last]
        bases = self.base.pages()
        step = _Step(self, probes, bases, last, finish)
        yield from step.run()
        if last < INT64_MAX:
            self.probe.expire_key(last + 1, "judged")
        else:
            self.probe.clear("judged")


def _window(store: Store, name: str, blocks: Any, materialize: str, arrival: str) -> Window:
    on = {d.name: d.limits for d in blocks.side.grid.dimensions}
    return store.window(
        name, blocks.side.stored, on=on, by=list(blocks.side.keys), materialize=materialize,
        arrival=arrival,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Call:
    """A probe page and base pages that are held together: what one kernel call judges."""

    number: int
    page: Pinned
    mates: Sequence[Pinned]
    numbers: Int64s
    """The base pages by their numbers, in the order of `mates`."""
    base: Block
    starts: Int64s
    """Where each of them begins in `base`."""

    def places(self, at: Int64s) -> tuple[Int64s, Int64s]:
        """Rows of `base` by the place of their page in `mates`, and by their place on it."""
        mate = np.searchsorted(self.starts, at, "right") - 1
        return mate, at - self.starts[mate]


class _Step(Generic[Result]):
    """One walk over the probe pages."""

    def __init__(
        self, direction: PagedDirection, probes: Sequence[PageRef], bases: Sequence[PageRef],
        last: int, finish: Finish[Result],
    ) -> None:  # fmt: skip
        self._direction = direction
        self._judge = direction.judge
        self._pool = direction._store.pool
        self._probes = probes
        self._bases = bases
        self._last = last
        self._finish = finish
        self._widths = np.array([-(-ref.size // ref.rows) for ref in bases], np.int64)
        self._probe_numbers = {ref.page_id: number for number, ref in enumerate(probes)}
        self._base_numbers = {ref.page_id: number for number, ref in enumerate(bases)}
        aside = direction.feeds.append_bytes if direction.feeds else 0
        self._shares = Shares.of(self._pool, self._judge, [*probes, *bases], aside)
        contest, share = self._judge.contest, self._shares.partial_bytes
        self._partials = Partials(contest, self._pool, share, direction._scratch)
        self._survivors: Survivors | None = None

    def run(self) -> Iterator[Result]:
        """Judge every probe page."""
        if not self._probes:
            return
        with self._pool.reserve(self._shares.reserved_bytes), closing(self._partials):
            reach = reach_of(self._judge.probe.grid, self._probes, self._bases)
            visits = np.zeros(len(self._probes), np.int64)
            np.add.at(visits, reach.owners, reach.limit.astype(np.int64) - reach.first)
            yield from self._lonely_pages(np.flatnonzero(visits == 0).tolist())
            if reach.pairs:
                yield from self._walk(reach, visits)

    def _walk(self, reach: Reach, visits: Int64s) -> Iterator[Result]:
        report, shares = self._direction._report, self._shares
        is_best = self._judge.mode == "best"
        schedule = planned(reach, shares, self._direction._mode, is_best=is_best)
        report.decide(f"schedule: {schedule.mode}, {schedule.reason or 'as asked for'}")
        report.pairs_planned += reach.pairs
        rows = max(ref.rows for ref in (*self._probes, *self._bases))
        pages = len(self._probes) + len(self._bases)
        slots = Slots(self._judge, min(shares.frames, pages), rows)
        # Rows that are handed on to another window go with a note of all that they have found.
        is_late = schedule.page_reads > schedule.pages_needed and self._direction.feeds is None
        if is_best and is_late:
            chunk = shares.frames - 1
            self._survivors = Survivors(len(self._bases), chunk, self._direction._scratch)
        walk = Walk(
            self._pool, schedule, self._probes, self._bases, read_ahead=shares.read_ahead
        )  # fmt: skip
        with ThreadPoolExecutor(self._direction._threads, "matwin-visit") as executor:
            for columns, _ in walk.together(columns=IN_FLIGHT):
                for call, found in self._judged(slots, columns, executor):
                    report.pairs_visited += len(call.mates)
                    yield from self._taken(call, found)
                    visits[call.number] -= len(call.mates)
                    if visits[call.number] == 0:
                        yield from self._finished(call.number, call.page.batch)
        if self._survivors is not None:
            with closing(self._survivors):
                yield from self._late(self._survivors)
        if self._partials.put_down_bytes:
            report.decide("partial results: what outgrew their share was put down in a file")

    # ── visits ───────────────────────────────────────────────────────────────────────────────

    def _judged(
        self, slots: Slots, columns: Sequence[Sequence[Pair]], executor: ThreadPoolExecutor
    ) -> Iterator[tuple[_Call, Found]]:
        """The first portion of what each call finds, in order, on several threads.  Only numbers
        come back: output rows are made one batch at a time, or the workers' would take most of a
        small budget."""
        calls = [call for pairs in columns for call in self._calls(slots, pairs)]
        if len(calls) == 1:  # nothing to do meanwhile
            yield calls[0], self._first(calls[0])
            return
        running: deque[tuple[_Call, Future[Found]]] = deque()
        try:
            for call in calls:
                if len(running) == IN_FLIGHT:
                    done, future = running.popleft()
                    yield done, future.result()
                running.append((call, executor.submit(self._first, call)))
            while running:
                done, future = running.popleft()
                yield done, future.result()
        finally:
            # Their pages are let go next, so who is at work on them is waited for.
            for _, future in running:
                future.cancel()
            wait([future for _, future in running])

    def _calls(self, slots: Slots, pairs: Sequence[Pair]) -> Iterator[_Call]:
        """A probe page with the base pages that it meets: as many in one call as a portion has room
        for if one of its rows meets all of theirs, at least one."""
        page, mates = pairs[0].left, [pair.right for pair in pairs]
        slots.probe(page)
        mates = [mates[at] for at in slots.in_order(mates)]
        rows_max = self._shares.capacity if self._judge.is_fused else 0
        widths = np.array([mate.batch.num_rows for mate in mates])
        for start, limit in cuts(widths, len(mates), rows_max, len(mates)):
            some = mates[start:limit]
            numbers = np.array([self._base_numbers[mate.page_id] for mate in some])
            number = self._probe_numbers[page.page_id]
            yield _Call(number, page, some, numbers, *slots.base(some))

    def _first(self, call: _Call) -> Found:
        return next(self._search(call, 0))

    def _search(self, call: _Call, first: int) -> Iterator[Found]:
        placed: Placed = call.page.block
        return self._judge.search(
            placed.block, call.base, (call.page.batch, call.mates[0].batch),
            capacity=self._shares.capacity, first=first, orders=self._orders(call.number),
            with_keys=True, reach=placed.reach,
        )  # fmt: skip

    def _orders(self, number: int) -> tuple[int, int]:
        """Rows below the page's own bound have been judged before."""
        return self._probes[number].low, self._last

    def _taken(self, call: _Call, found: Found) -> Iterator[Result]:
        """Take what a call found, and the rest of it where one portion was not enough."""
        rest: Iterable[Found] = ()
        if found.limit < call.page.batch.num_rows:
            rest = self._search(call, found.limit)
        for portion in chain([found], rest):
            if self._judge.mode == "all" and len(portion.candidates):
                yield from self._handed_over(call, portion.candidates)
            self._note(call, portion.candidates)

    def _handed_over(self, call: _Call, found: Candidates) -> Iterator[Result]:
        """What was found, by base page."""
        mates, rows = call.places(found.base)
        order = np.argsort(mates, kind="stable")
        ends = np.searchsorted(mates[order], np.arange(len(call.mates) + 1)).tolist()
        none = np.empty(0, np.int64)
        for mate, start, limit in zip(call.mates, ends, ends[1:], strict=False):
            if start < limit:
                own = order[start:limit]
                part = Candidates(found.probe[own], rows[own], found.keys)
                yield self._finish(Matched(call.page.batch, mate.batch, part, none))

    def _note(self, call: _Call, found: Candidates) -> None:
        """Keep what the probe rows have found."""
        if self._judge.mode == "best":
            mates, rows = call.places(found.base)
            places = rows | (call.numbers[mates] << ROW_BITS)
            self._partials.add(
                call.number, Candidates(found.probe, places, found.keys, found.boxes)
            )
        elif self._judge.mode == "any" or self._direction._wants_unmatched:
            self._partials.add_hits(call.number, call.page.batch.num_rows, found.probe)

    # ── pages that are finished ──────────────────────────────────────────────────────────────

    def _finished(self, number: int, rows: pa.RecordBatch) -> Iterator[Result]:
        """Hand over the rows of a probe page that has been visited for the last time."""
        none = np.empty(0, np.int64)
        if self._judge.mode != "best":
            hits = np.flatnonzero(self._partials.taken_hits(number, rows.num_rows))
            yield from self._without_mates(number, rows, (0, rows.num_rows), hits)
            return
        again = partial(self._evaluated, rows)
        for first, limit, found in self._partials.taken(number, rows.num_rows, again):
            if found is not None:
                found = self._judge.contest.settled(found)
            if found is not None and self._survivors is not None:
                self._survivors.add(number, found)
            elif found is not None:
                yield from self._gathered(rows, found)
            hits = none if found is None else np.unique(found.probe)
            yield from self._without_mates(number, rows, (first, limit), hits)

    def _without_mates(
        self, number: int, rows: pa.RecordBatch, stretch: tuple[int, int], hits: Int64s
    ) -> Iterator[Result]:
        """Rows that nobody's rows go with: the unmatched ones, and those of a semijoin."""
        lonely = np.empty(0, np.int64)
        if self._direction._wants_unmatched:
            keys = self._judge.probe.side.order_keys(rows)
            lonely = unmatched_rows(keys, self._orders(number), *stretch, hits)
        hits = hits if self._judge.mode == "any" else hits[:0]
        if len(lonely) or len(hits):
            nobody = Candidates(hits, np.zeros(len(hits), np.int64), np.empty((0, 0), np.int64))
            yield self._finish(Matched(rows, self._direction.no_base_rows, nobody, lonely))

    def _lonely_pages(self, numbers: Sequence[int]) -> Iterator[Result]:
        """Hand over the rows of pages that meet no other page."""
        if not self._direction._wants_unmatched:
            return
        for number in numbers:
            with self._pool.pin(self._probes[number].page_id, "meets no page") as page:
                yield from self._finished(number, page.batch)

    def _evaluated(self, rows: pa.RecordBatch, found: Candidates) -> Candidates:
        """Candidates with what black boxes compare, read again."""
        contest = self._judge.contest
        if not contest.no_boxes():
            return found
        parts = []
        for start, limit in self._portions(found.probe, found.base):
            part = found.slice(start, limit)
            base_rows, at = self._base_rows(part.base)
            own = Candidates(part.probe, at, part.keys)
            made = contest.evaluated(own, rows, base_rows, self._judge.stored)
            made = contest.ranked_as(made, part)
            parts.append(Candidates(part.probe, part.base, made.keys, made.boxes))
        return joined(parts)

    def _late(self, survivors: Survivors) -> Iterator[Result]:
        """The pairs of all probe pages, by chunks of base pages."""
        for lots in survivors.chunks():
            with ExitStack() as stack:
                held: dict[int, Pinned] = {}
                for number, found in lots:
                    for base in np.unique(found.base >> ROW_BITS).tolist():
                        if base not in held:
                            pin = self._pool.pin(self._bases[base].page_id, WHY)
                            held[base] = stack.enter_context(pin)
                    with self._pool.pin(self._probes[number].page_id, WHY) as page:
                        again = self._evaluated(page.batch, found)
                        yield from self._gathered(page.batch, again)

    def _gathered(self, rows: pa.RecordBatch, found: Candidates) -> Iterator[Result]:
        """Survivors with their base rows, a portion at a time."""
        order = np.lexsort((found.base, found.probe))  # whatever the schedule was
        none = np.empty(0, np.int64)
        for start, limit in self._portions(found.probe[order], found.base[order]):
            part = found.take(order[start:limit])
            base_rows, at = self._base_rows(part.base)
            candidates = Candidates(part.probe, at, part.keys, part.boxes)
            yield self._finish(Matched(rows, base_rows, candidates, none))

    def _portions(self, probes: Int64s, places: Int64s) -> list[tuple[int, int]]:
        """Stretches of pairs whose base rows take a batch's share.  Whole probe rows where they are
        handed on, with a note of all that they have found."""
        share = self._pool.budget_bytes // MATCH_SHARE
        portions = cuts(self._widths[places >> ROW_BITS], len(places), share, self._shares.capacity)
        if self._direction.feeds is None:
            return portions
        ends = np.array([probes[limit - 1] for _, limit in portions])
        limits = np.unique(np.searchsorted(probes, ends, "right")).tolist()
        return list(zip([0, *limits], limits, strict=False))

    def _base_rows(self, places: Int64s) -> tuple[pa.RecordBatch, Int64s]:
        """The base rows at these places, each once, and where those of each pair now are."""
        places, back = np.unique(places, return_inverse=True)
        pages = places >> ROW_BITS
        order = np.argsort(pages, kind="stable")
        parts = []
        starts = np.flatnonzero(np.diff(pages[order], prepend=-1, append=-1))
        for start, limit in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            these = order[start:limit]
            ref = self._bases[int(pages[these[0]])]
            with self._pool.pin(ref.page_id, WHY) as page:
                parts.append(page.batch.take(arrow(places[these] & ((1 << ROW_BITS) - 1))))
        at = np.empty(len(places), np.int64)
        at[order] = np.arange(len(places))
        return pa.concat_batches(parts), at[back]


def _page_names(window: Window) -> list[str]:
    return [*window.grid.names, *(n for n in window.schema.names if n not in window.grid.names)]
