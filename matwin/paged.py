"""A direction on pages: both windows in the storage engine, judged by a scheduled walk.

    windows ──fences──▶ reach ──▶ schedule ──walk──▶ pairs of pages ──kernel──▶ candidates
                                                                                   │
            probe page visited for the last time ◀── partial results of its rows ──┘
                       │
                       └──▶ base rows of the survivors gathered, handed over, forgotten

An ε-join needs no state between visits: what a visit finds is handed over at once.  The best of a
probe row are known only after the last visit of its page; until then they are partial results, kept
as row numbers and keys (the base rows are read again when they are needed) and counted against the
budget.  Gallop finishes a probe page before the next; other schedules read fewer pages and keep
more pages open.  Where the partial results outgrow their share, the walk is broken off and what is
not finished is judged in halves: fewer pages, then fewer rows at a time.

Invariants: what a probe row finds is handed over exactly once, whatever was broken off; partial
results never take more than `partial_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from matwin.scheduler import Pair, Walk, reach_of
from matwin.storage.columns import INT64_MAX, INT64_MIN, Bools, Int64s, no_rows
from matwin.storage.errors import BudgetError
from matwin.storage.frame import Pinned
from matwin.storage.materialize import Window
from matwin.storage.runs import PageRef
from matwin.storage.store import Store
from matwin.storage.units import format_size

from .block import Block, Blocks
from .candidates import Candidates, joined
from .judge import Found, Judge
from .matched import Finish, Matched, Result, unmatched_rows
from .paging import Shares, planned
from .report import Report
from .shares import MATCH_SHARE
from .sizes import cuts
from .state import Held

ROW_BITS = 32
_Task = tuple[int, int, int]  # a probe page, and which of its rows


class TooManyTies(BudgetError):
    """The best matches of a single row do not fit."""


class _Overflow(Exception):
    """The partial results have outgrown their share."""


class PagedDirection:
    """Probe and base window of one direction, in a store."""

    def __init__(
        self, judge: Judge, store: Store, names: dict[str, str], arrivals: dict[str, str], *,
        materialize: str, schedule: str, threads: int, wants_unmatched: bool, report: Report,
    ) -> None:  # fmt: skip
        self.judge = judge
        self._store = store
        self._mode = schedule
        self._threads = threads
        self._wants_unmatched = wants_unmatched
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


@dataclass(slots=True)
class _Open:
    """A probe page that has visits to come: what its rows have found so far."""

    visits: int
    candidates: Candidates | None = None
    is_hit: Bools | None = None


@dataclass(frozen=True, slots=True)
class _Visit:
    """What a worker has found in a pair of pages: the first portion, and where to go on."""

    pair: Pair
    found: Found


class _Step(Generic[Result]):
    """One walk over the probe pages, or several where partial results outgrow their share."""

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
        self._open: dict[int, _Open] = {}
        self._partial_bytes = 0
        self._widths = np.array([-(-ref.size // ref.rows) for ref in bases], np.int64)
        self._base_numbers = {ref.page_id: number for number, ref in enumerate(bases)}
        aside = direction.feeds.append_bytes if direction.feeds else 0
        self._shares = Shares.of(self._pool, self._judge, [*probes, *bases], aside)

    def run(self) -> Iterator[Result]:
        """Judge every probe page."""
        everyone = [(number, 0, ref.rows) for number, ref in enumerate(self._probes)]
        todo = [everyone] if everyone else []
        with self._pool.reserve(self._shares.reserved_bytes):
            yield from self._all_of(todo)

    def _all_of(self, todo: list[list[_Task]]) -> Iterator[Result]:
        while todo:
            tasks = todo.pop()
            self._open = {}
            try:
                yield from self._walk(tasks)
            except _Overflow:
                rest = [task for task in tasks if task[0] in self._open]
                todo += reversed(_halves(rest, self._pool.budget_bytes))
            finally:
                self._pool.give_back(self._partial_bytes)
                self._partial_bytes = 0

    def _walk(self, tasks: list[_Task]) -> Iterator[Result]:
        """Walk some probe pages, or a stretch of rows of one of them."""
        refs = [self._probes[number] for number, _, _ in tasks]
        stretches = {number: (first, limit) for number, first, limit in tasks}
        reach = reach_of(self._judge.probe.grid, refs, self._bases)
        visits = _degrees(reach.triples(), len(refs))
        self._open = {
            task[0]: _Open(count) for task, count in zip(tasks, visits.tolist(), strict=True)
        }
        yield from self._lonely_pages(
            [task for task, n in zip(tasks, visits, strict=True) if n == 0]
        )
        if reach.pairs == 0:
            return
        report = self._direction._report
        is_best = self._judge.mode == "best"
        schedule = planned(reach, self._shares, self._direction._mode, is_best=is_best)
        report.decide(f"schedule: {schedule.mode}, {schedule.reason or 'as asked for'}")
        report.pairs_planned += reach.pairs
        numbers = {self._probes[number].page_id: number for number, _, _ in tasks}
        walk = Walk(self._pool, schedule, refs, self._bases, read_ahead=self._shares.read_ahead)
        for visit in walk.each(
            lambda pair: self._visit(pair, stretches[numbers[pair.left_ref.page_id]]),
            workers=self._direction._threads,
        ):
            number = numbers[visit.pair.left_ref.page_id]
            report.pairs_visited += 1
            yield from self._taken(number, visit, stretches[number])

    def _visit(self, pair: Pair, stretch: tuple[int, int]) -> _Visit:
        """The first portion of a pair of pages; runs on a worker.  Only numbers come back: output
        rows are made one batch at a time, or the workers' would take most of a small budget."""
        return _Visit(pair, next(self._search(pair, *stretch)))

    def _search(self, pair: Pair, first: int, limit: int) -> Iterator[Found]:
        probe, base = _block(pair.left, self._judge.probe), _block(pair.right, self._judge.base)
        return self._judge.search(
            probe, base, (pair.left.batch, pair.right.batch), capacity=self._shares.capacity,
            first=first, limit=limit, orders=self._orders(pair.left_ref), with_keys=True,
        )  # fmt: skip

    def _orders(self, ref: PageRef) -> tuple[int, int]:
        """Rows below the page's own bound have been judged before."""
        return ref.low, self._last

    def _taken(self, number: int, visit: _Visit, stretch: tuple[int, int]) -> Iterator[Result]:
        """Take what a visit found, and the rest of it where one portion was not enough."""
        rest: Iterable[Found] = ()
        if visit.found.limit < stretch[1]:
            rest = self._search(visit.pair, visit.found.limit, stretch[1])
        for found in chain([visit.found], rest):
            if self._judge.mode == "all" and len(found.candidates):
                yield self._handed_over(visit.pair, found)
            self._note(number, visit.pair, found)
        page = self._open[number]
        page.visits -= 1
        if page.visits == 0:
            yield from self._finished(number, visit.pair.left.batch, stretch)

    def _handed_over(self, pair: Pair, found: Found) -> Result:
        none = np.empty(0, np.int64)
        return self._finish(Matched(pair.left.batch, pair.right.batch, found.candidates, none))

    def _note(self, number: int, pair: Pair, found: Found) -> None:
        """Add what was found to the page's state."""
        page, hits = self._open[number], found.candidates.probe
        if self._judge.mode == "best" and len(hits):
            self._merge(page, self._numbered(pair, found.candidates))
        elif self._judge.mode == "any" or self._direction._wants_unmatched:
            if page.is_hit is None:
                self._count(pair.left_ref.rows)
                page.is_hit = np.zeros(pair.left_ref.rows, np.bool_)
            page.is_hit[hits] = True

    def _numbered(self, pair: Pair, found: Candidates) -> Candidates:
        """Base rows by page and row."""
        page = self._base_numbers[pair.right_ref.page_id]
        return Candidates(found.probe, found.base | (page << ROW_BITS), found.keys, found.boxes)

    def _merge(self, page: _Open, new: Candidates) -> None:
        old = page.candidates
        merged = new if old is None else self._merged(old, new)
        self._count(merged.size - (old.size if old else 0))
        page.candidates = merged

    def _merged(self, old: Candidates, new: Candidates) -> Candidates:
        """Merge the rows that a portion is about; the others stay as they are."""
        start = int(np.searchsorted(old.probe, new.probe[0]))
        limit = int(np.searchsorted(old.probe, new.probe[-1], "right"))
        if start == limit == len(old):
            return joined([old, new])
        merged = self._judge.contest.merged(old.slice(start, limit), new)
        return joined([old.slice(0, start), merged, old.slice(limit, len(old))])

    def _count(self, size: int) -> None:
        """Count partial results against the budget."""
        if size > 0 and self._partial_bytes + size > self._shares.partial_bytes:
            raise _Overflow
        if size > 0:
            self._pool.take(size)
        else:
            self._pool.give_back(-size)
        self._partial_bytes += size

    def _finished(
        self, number: int, rows: pa.RecordBatch, stretch: tuple[int, int]
    ) -> Iterator[Result]:
        """Hand over the rows of a probe page that has been visited for the last time."""
        page = self._open.pop(number)
        found = page.candidates
        size = found.size if found is not None else 0
        size += rows.num_rows if page.is_hit is not None else 0
        if found is not None:
            yield from self._gathered(rows, found)
        lonely = self._lonely(number, page, rows, stretch)
        hits = np.empty(0, np.int64)
        if self._judge.mode == "any" and page.is_hit is not None:
            hits = np.flatnonzero(page.is_hit)
        if len(lonely) or len(hits):
            nobody = Candidates(hits, np.zeros(len(hits), np.int64), np.empty((0, 0), np.int64))
            yield self._finish(Matched(rows, self._direction.no_base_rows, nobody, lonely))
        self._pool.give_back(size)
        self._partial_bytes -= size

    def _lonely(
        self, number: int, page: _Open, rows: pa.RecordBatch, stretch: tuple[int, int]
    ) -> Int64s:
        if not self._direction._wants_unmatched:
            return np.empty(0, np.int64)
        keys = self._judge.probe.side.order_keys(rows)
        orders = self._orders(self._probes[number])
        hits = np.empty(0, np.int64)
        if page.candidates is not None:
            hits = np.unique(page.candidates.probe)
        elif page.is_hit is not None:
            hits = np.flatnonzero(page.is_hit)
        return unmatched_rows(keys, orders, *stretch, hits)

    def _lonely_pages(self, tasks: list[_Task]) -> Iterator[Result]:
        """Hand over the rows of pages that meet no other page."""
        for number, first, limit in tasks:
            if self._direction._wants_unmatched or self._judge.mode == "any":
                with self._pool.pin(self._probes[number].page_id, "meets no page") as page:
                    yield from self._finished(number, page.batch, (first, limit))
            else:
                del self._open[number]

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
            with self._pool.pin(ref.page_id, "rows of a match") as page:
                parts.append(page.batch.take(pa.array(places[these] & ((1 << ROW_BITS) - 1))))
        at = np.empty(len(places), np.int64)
        at[order] = np.arange(len(places))
        return pa.concat_batches(parts), at[back]


def _block(page: Pinned, blocks: Blocks) -> Block:
    """A page's block: made once, and kept while the walk holds the page."""
    if page.block is None:
        page.block = blocks.of(page.batch)
    block: Block = page.block
    return block


def _page_names(window: Window) -> list[str]:
    return [*window.grid.names, *(n for n in window.schema.names if n not in window.grid.names)]


def _halves(tasks: list[_Task], budget_bytes: int) -> list[list[_Task]]:
    """What is not finished, as two smaller lots: half the pages, or half the rows of one."""
    if len(tasks) > 1:
        middle = len(tasks) // 2
        return [tasks[:middle], tasks[middle:]]
    number, first, limit = tasks[0]
    if limit - first <= 1:
        raise TooManyTies(
            f"the best matches of a single row do not fit their share of a budget of "
            f"{format_size(budget_bytes)}; give at least twice as much",
            smallest_bytes=2 * budget_bytes,
        )
    middle = (first + limit) // 2
    return [[(number, first, middle)], [(number, middle, limit)]]


def _degrees(triples: Any, pages: int) -> Int64s:
    counts = np.zeros(pages, np.int64)
    for left, first, limit in triples:
        counts[left] += limit - first
    return counts
