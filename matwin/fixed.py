"""Fixed time windows: the best matches among what is not older than T, anew with every change.

Time is no join attribute here; it only says how long a row counts (section 3.5.1 of the paper):

                          t - T                     t
    left    ······▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        with every new time t:
    right   ····▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        drop what is older than t - T,
            gone ▲                                            join the windows, mark the rows with t

A pair that was dominated comes back when what dominated it has grown too old, so results can't be
updated; every evaluation is a join of its own, and costs one.  `every` spaces them out.

The windows are in a store, on half of the budget; what fits is not written.  Rows go there as they
come, also those that are later than what is evaluated next: only their times wait outside, and are
counted.  The join of an evaluation has the other half.  Where half is too little for pages of the
size asked for, pages are smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MIN, Int64s, is_temporal, stored_dtype
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.grid import Dimension
from matwin.storage.materialize import Window
from matwin.storage.pool import FRAMES_MIN, smallest_budget
from matwin.storage.store import Store
from matwin.storage.units import Tolerance, format_size, shown

from .bestmatch import bestmatch_join
from .feed import Feed, items_of
from .finality import DONE
from .joining import check_rows_out
from .judge import Judge
from .keys import float_key_within, float_of_key
from .need import WalkNeed
from .options import Options, options_of
from .paged import TooManyTies
from .question import Question
from .report import Report
from .shares import PORTION_SHARE, ReadShare
from .side import Side
from .sources import Source, check_trace, two_sources
from .streams import Sorted, Stream, stream
from .watch import ProcessWatch

EVALUATED_AT = "evaluated_at"
PAGE_MIN = 1 << 12


def fixed_window_join(
    left: object,
    right: object,
    *,
    time: str | tuple[str, str],
    period: Tolerance,
    on: Mapping[Any, Tolerance],
    how: str = "left",
    by: object = None,
    orders: Mapping[Any, object] | None = None,
    every: Tolerance = None,
    keep_unmatched: bool = False,
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    **options: Any,
) -> pa.RecordBatchReader:
    """A bestmatch join of all rows not older than `period`, whenever a row comes.

    The column ``evaluated_at`` says when.  Sources without a declared order are sorted by time.
    `every` leaves at least that much time between two evaluations.

    >>> import matwin
    >>> parts = pa.table({"t": [1, 4], "cost": [5, 9]})
    >>> others = pa.table({"t": [2, 3], "cost": [8, 6]})
    >>> found = matwin.fixed_window_join(parts, others, time="t", period=2, on={"cost": None})
    >>> [tuple(row.values()) for row in found.read_all().to_pylist()]
    [(2, 1, 5, 2, 8), (3, 1, 5, 3, 6), (4, 4, 9, 2, 8)]
    """
    _check_length("period", period)
    _check_length("every", every)
    sources = dict(zip(("left", "right"), two_sources(left, right), strict=True))
    arguments = {
        "on": on, "how": how, "by": by, "orders": orders, "keep_unmatched": keep_unmatched,
        "suffixes": suffixes, "distances": distances,
    }  # fmt: skip
    schemas = [source.schema for source in sources.values()]
    asked = Question.of(*schemas, best=True, **arguments)  # type: ignore[arg-type]
    if EVALUATED_AT in asked.schema.names:
        raise InputError(f"the result adds a column {EVALUATED_AT!r}; rename the one that is there")
    clock = Question.of(*schemas, on={time: period}, how="inner", best=False)
    evaluation = Evaluation(
        clock, asked, sources, arguments, options_of("fixed_window_join", options), every
    )
    field = pa.field(EVALUATED_AT, clock.order.type, nullable=False)
    schema = pa.schema([field, *asked.schema])
    return pa.RecordBatchReader.from_batches(schema, evaluation.batches(schema))


class Evaluation:
    """Two windows over time, and a join of them for every change."""

    def __init__(
        self, clock: Question, asked: Question, sources: dict[str, Source],
        arguments: dict[str, Any], options: Options, every: Tolerance,
    ) -> None:  # fmt: skip
        check_trace(options.trace, sources.values())
        self._clock = clock.order
        self._period = _span(clock.order.hi)
        self._every = 0 if every is None else _span(_in_units(every, clock))
        self._arguments = arguments
        self._options = options
        self._report = options.report or Report()
        self._sides = {name: Side.of(clock, name) for name in ("left", "right")}
        share = ReadShare.of(options.budget_bytes // 2, 2, options.scratch)
        self._sources = {name: source.within(share) for name, source in sources.items()}
        self._last_evaluated: int | None = None
        self._items = {name: items_of(source) for name, source in self._sources.items()}
        self._asked = {name: Side.of(asked, name) for name in ("left", "right")}
        self._need = WalkNeed(  # windows, and two more while sources are sorted
            [Judge(asked, self._asked, name, "best") for name in self._asked],
            budget_bytes=options.budget_bytes // 2, page_bytes=options.page_bytes,
        )  # fmt: skip
        self._pages_before = (0, 0)
        self._watch = ProcessWatch(self._report)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The results of every evaluation, marked with its time."""
        self._report.budget_bytes = self._options.budget_bytes
        try:
            half, page = _halves(self._options)
            with Store(
                memory=half, page_size=page, scratch=self._options.scratch,
                trace=self._options.trace,
            ) as store:  # fmt: skip
                windows = {name: self._window(store, name) for name in self._sides}
                form = windows["left"].form
                self._report.decide(f"{form} windows on pages, joined whenever rows have come")
                for at in self._changes(store, windows):
                    for window in windows.values():
                        window.expire_key(self._before(at), "older than the period")
                    if self._is_due(at):
                        self._watch.look()
                        self._last_evaluated = at
                        yield from self._evaluated(at, store, windows, schema)
                self._count(store, Report())
        except BudgetError as e:
            raise self._announced(e) from e
        self._watch.look()
        self._report.is_done = True

    def _window(self, store: Store, name: str) -> Window:
        side = self._sides[name]
        on = {side.grid.order.name: self._clock.limits}
        return store.window(name, side.stored, on=on, materialize=self._options.materialize)

    # ── changes ──────────────────────────────────────────────────────────────────────────────

    def _changes(self, store: Store, windows: dict[str, Window]) -> Iterator[int]:
        """Every time at which rows come, ascending, once all rows up to it are in the windows."""
        feeds = [self._feed(store, name) for name in self._sides]
        waiting: Int64s = np.empty(0, np.int64)
        share = store.pool.budget_bytes // PORTION_SHARE
        while not all(feed.is_done for feed in feeds):
            feed = min(
                (feed for feed in feeds if not feed.is_done),
                key=lambda feed: (feed.is_silent, feed.frontier),
            )
            portion = feed.read(lambda rows, size: max(1, share * rows // max(size, 1)))
            if not feed.is_silent:
                for other in feeds:
                    other.is_silent = False
            if portion is not None:
                self._count_rejected(feed, portion.rows)
                windows[feed.side.name].append(portion.rows)
                more = np.union1d(waiting, portion.keys)
                store.pool.take(more.nbytes - waiting.nbytes)
                waiting = more
            complete = min(min(feed.frontier for feed in feeds) - 1, DONE - 1)
            count = int(np.searchsorted(waiting, complete, "right")) if complete >= INT64_MIN else 0
            yield from waiting[:count].tolist()
            store.pool.give_back(8 * count)
            waiting = waiting[count:].copy()

    def _count_rejected(self, feed: Feed, rows: pa.RecordBatch) -> None:
        """A feed rejects rows without a time.  Others that can match nothing are in the windows,
        where they may come out unmatched, and are counted when they come, not at every join."""
        rejected = self._asked[feed.side.name].rejected(rows)
        feed.report.used -= rejected
        feed.report.rejected += rejected

    def _feed(self, store: Store, name: str) -> Feed:
        source = self._sources[name]
        side, report = self._sides[name], getattr(self._report, name)
        items = self._seen(self._items[name])
        if not isinstance(source, Stream):
            ordered = self._sorted(store, items, source, name)
            source = replace(
                stream(ordered, schema=source.schema, order=Sorted()), name=source.name
            )
            items = items_of(source)
        return Feed(source, side, report, self._clock.limits, items)

    def _sorted(
        self, store: Store, items: Iterator[Any], source: Source, name: str
    ) -> Iterator[pa.RecordBatch]:
        """A source by time, sorted by the store; its pages are given up once they are read."""
        with store.sort(items, source.schema, on=getattr(self._clock, name)) as rows:
            yield from rows.batches()

    def _seen(self, items: Iterator[Any]) -> Iterator[Any]:
        """The items, and a note of their widest row."""
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self._need.see(item)
            yield item

    def _announced(self, error: BudgetError) -> BudgetError:
        """The error with a budget of which each half is enough for all rows, also the rest."""
        for name, source in self._sources.items():
            if not (isinstance(source, Stream) and source.is_live):
                self._need.see_rest(self._items[name])
        half = self._need.announced(error, has_ties=isinstance(error, TooManyTies))
        smallest = 2 * half.smallest_bytes
        told = f"windows and join have half of it each: give at least {format_size(smallest)}"
        return BudgetError(f"{error}; {told} ({smallest} bytes)", smallest_bytes=smallest)

    def _before(self, at: int) -> int:
        """The order key of the oldest row that counts at this time."""
        if pa.types.is_floating(self._clock.type):
            return float_key_within(at, self._period)
        return max(at - int(self._period), INT64_MIN)

    def _is_due(self, at: int) -> bool:
        if self._last_evaluated is None or not self._every:
            return True
        if pa.types.is_floating(self._clock.type):
            return float_of_key(at) - float_of_key(self._last_evaluated) >= self._every
        return at - self._last_evaluated >= self._every

    # ── evaluations ──────────────────────────────────────────────────────────────────────────

    def _evaluated(
        self, at: int, store: Store, windows: dict[str, Window], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        options, report = self._options, Report()
        half, page = _halves(options)
        rows = [
            pa.RecordBatchReader.from_batches(
                side.schema, _columns(windows[name].scan(upto_key=at), side.schema)
            )
            for name, side in self._sides.items()
        ]
        found = bestmatch_join(
            *rows, memory=half, page_size=page, scratch=options.scratch, threads=options.threads,
            materialize=options.materialize, schedule=options.schedule, report=report,
            **self._arguments,
        )  # fmt: skip
        self._report.steps += 1
        for batch in found:
            self._report.rows_out += batch.num_rows
            check_rows_out(self._report, options)
            self._count(store, report)
            times = _times(at, batch.num_rows, self._clock.type)
            yield pa.RecordBatch.from_arrays([times, *batch.columns], schema=schema)
        self._count(store, report)
        self._pages_before = (
            self._pages_before[0] + report.pages_read,
            self._pages_before[1] + report.pages_written,
        )
        for decision in report.decisions:
            self._report.decide(decision)

    def _count(self, store: Store, report: Report) -> None:
        """What both halves have taken and read so far."""
        own, counters = self._report, store.pool.counters
        own.peak_bytes = max(own.peak_bytes, counters.bytes_peak + report.peak_bytes)
        own.pages_read = self._pages_before[0] + counters.reads + report.pages_read
        own.pages_written = self._pages_before[1] + counters.writes + report.pages_written


def _halves(options: Options) -> tuple[int, int]:
    """What the windows and a join have each, and the size of their pages."""
    half = options.budget_bytes // 2
    page = min(options.page_bytes, half // FRAMES_MIN // PAGE_MIN * PAGE_MIN)
    if page < PAGE_MIN:
        raise BudgetError(
            f"a budget of {format_size(options.budget_bytes)} is too small for windows and a join "
            "of them",
            smallest_bytes=smallest_budget(options.page_bytes),
        )
    return half, page


def _columns(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(schema.names)


def _times(key: int, rows: int, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_floating(data_type):
        return pa.array(np.full(rows, float_of_key(key)), data_type)
    values: Int64s = np.full(rows, key, np.int64)
    if data_type == pa.uint64():
        return pa.array(values.view(np.uint64) ^ np.uint64(1 << 63))
    stored = values.astype(stored_dtype(data_type))
    return pa.array(stored).cast(data_type) if is_temporal(data_type) else pa.array(stored)


def _check_length(name: str, length: object) -> None:
    """A tolerance may be a pair of bounds, a length of time may not."""
    if isinstance(length, tuple | list):
        raise InputError(f"{name}={shown(length)}: give one length, not two bounds")


def _span(length: int | float | None) -> int | float:
    if length is None:
        raise InputError("a fixed time window needs a period, such as period='10min'")
    if length < 0:
        raise InputError(f"a period of {length} is negative")
    return length


def _in_units(length: Tolerance, clock: Question) -> int | float | None:
    return Dimension.of(pa.field(clock.order.name, clock.order.type), length).hi
