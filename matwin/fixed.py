"""Fixed time windows: the best matches among what is not older than T, anew with every change.

Time is no join attribute here; it only says how long a row counts (section 3.5.1 of the paper):

                          t - T                     t
    left    ······▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        with every new time t:
    right   ····▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        drop what is older than t - T,
            gone ▲                                            join the windows, mark the rows with t

A pair that was dominated comes back when what dominated it has grown too old, so results can't be
updated; every evaluation is a join of its own, and costs one.  `every` spaces them out.

The windows are slabs in a store, on half of the budget; what fits is not written.  The join of an
evaluation has the other half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MIN, Int64s, float_key, is_temporal, stored_dtype
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension
from matwin.storage.materialize import Window
from matwin.storage.pool import smallest_budget
from matwin.storage.store import Store
from matwin.storage.units import Tolerance

from .bestmatch import bestmatch_join
from .feed import Feed
from .finality import DONE, float_of
from .joining import check_rows_out
from .memory import Rows
from .options import Options, options_of
from .question import Question
from .report import Report
from .side import Side
from .sources import Source, two_sources
from .streams import Sorted, Stream, stream

EVALUATED_AT = "evaluated_at"


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
        clock, sources, arguments, options_of("fixed_window_join", options), every
    )
    field = pa.field(EVALUATED_AT, clock.order.type, nullable=False)
    schema = pa.schema([field, *asked.schema])
    return pa.RecordBatchReader.from_batches(schema, evaluation.batches(schema))


class Evaluation:
    """Two windows over time, and a join of them for every change."""

    def __init__(
        self, clock: Question, sources: dict[str, Source], arguments: dict[str, Any],
        options: Options, every: Tolerance,
    ) -> None:  # fmt: skip
        self._clock = clock.order
        self._period = _span(clock.order.hi)
        self._every = 0 if every is None else _span(_in_units(every, clock))
        self._arguments = arguments
        self._options = options
        self._report = options.report or Report()
        self._sides = {name: Side.of(clock, name) for name in ("left", "right")}
        self._sources = sources
        self._last_evaluated: int | None = None

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The results of every evaluation, marked with its time."""
        budget = max(self._options.budget_bytes // 2, smallest_budget(self._options.page_bytes))
        with Store(
            memory=budget, page_size=self._options.page_bytes, scratch=self._options.scratch,
            trace=self._options.trace,
        ) as store:  # fmt: skip
            windows = {name: self._window(store, name) for name in self._sides}
            form = windows["left"]
            self._report.decide(f"{form.form} windows on pages, joined whenever rows have come")
            for at, arrivals in self._changes(store):
                for name, rows in arrivals.items():
                    windows[name].append(rows)
                    windows[name].expire_key(self._before(at), "older than the period")
                if self._is_due(at):
                    self._last_evaluated = at
                    yield from self._evaluated(at, windows, schema)
        self._report.is_done = True

    def _window(self, store: Store, name: str) -> Window:
        side = self._sides[name]
        on = {side.grid.order.name: self._clock.limits}
        return store.window(name, side.stored, on=on, materialize="slab")

    # ── changes ──────────────────────────────────────────────────────────────────────────────

    def _changes(self, store: Store) -> Iterator[tuple[int, dict[str, pa.RecordBatch]]]:
        """Every time at which rows come, ascending, with the rows."""
        feeds = {name: self._feed(store, name) for name in self._sides}
        waiting = {name: Rows(side.stored) for name, side in self._sides.items()}
        while not all(feed.is_done for feed in feeds.values()):
            feed = min(
                (feed for feed in feeds.values() if not feed.is_done), key=lambda f: f.frontier
            )
            portion = feed.read(lambda rows, size: rows)
            if portion is not None:
                waiting[feed.side.name].append(portion.rows, portion.keys, portion.size)
            complete = min(feed.frontier for feed in feeds.values()) - 1
            if complete >= INT64_MIN:
                yield from self._by_time(waiting, min(complete, DONE - 1))

    def _feed(self, store: Store, name: str) -> Feed:
        source = self._sources[name]
        if not isinstance(source, Stream):
            source = self._sorted(store, source, name)
        return Feed(source, self._sides[name], getattr(self._report, name), self._clock.limits)

    def _sorted(self, store: Store, source: Source, name: str) -> Stream:
        """A source as a stream by time, sorted by the store."""
        rows = store.sort(source.batches(), source.schema, on=getattr(self._clock, name))
        return replace(
            stream(rows.batches(), schema=source.schema, order=Sorted()), name=source.name
        )

    def _by_time(
        self, waiting: dict[str, Rows], last: int
    ) -> Iterator[tuple[int, dict[str, pa.RecordBatch]]]:
        ready = {name: rows.upto(last) for name, rows in waiting.items()}
        batches = {name: rows.joined() for name, rows in ready.items()}
        keys = {name: self._sides[name].order_keys(batch) for name, batch in batches.items()}
        for at in np.unique(np.concatenate(list(keys.values()))).tolist():
            yield (
                at,
                {name: batch.filter(pa.array(keys[name] == at)) for name, batch in batches.items()},
            )

    def _before(self, at: int) -> int:
        """The order key of the oldest row that counts at this time."""
        if pa.types.is_floating(self._clock.type):
            return int(float_key(np.array([float_of(at) - self._period]))[0])
        return max(at - int(self._period), INT64_MIN)

    def _is_due(self, at: int) -> bool:
        if self._last_evaluated is None or not self._every:
            return True
        if pa.types.is_floating(self._clock.type):
            return float_of(at) - float_of(self._last_evaluated) >= self._every
        return at - self._last_evaluated >= self._every

    # ── evaluations ──────────────────────────────────────────────────────────────────────────

    def _evaluated(
        self, at: int, windows: dict[str, Window], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        rows = {
            name: pa.RecordBatchReader.from_batches(
                side.schema, _columns(windows[name].scan(), side.schema)
            )
            for name, side in self._sides.items()
        }
        budget = max(self._options.budget_bytes // 2, smallest_budget(self._options.page_bytes))
        found = bestmatch_join(
            rows["left"], rows["right"], memory=budget, page_size=self._options.page_bytes,
            scratch=self._options.scratch, threads=self._options.threads, **self._arguments,
        )  # fmt: skip
        self._report.steps += 1
        for batch in found:
            self._report.rows_out += batch.num_rows
            check_rows_out(self._report, self._options)
            times = _times(at, batch.num_rows, self._clock.type)
            yield pa.RecordBatch.from_arrays([times, *batch.columns], schema=schema)


def _columns(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(schema.names)


def _times(key: int, rows: int, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_floating(data_type):
        return pa.array(np.full(rows, float_of(key)), data_type)
    values: Int64s = np.full(rows, key, np.int64)
    if data_type == pa.uint64():
        return pa.array(values.view(np.uint64) ^ np.uint64(1 << 63))
    stored = values.astype(stored_dtype(data_type))
    return pa.array(stored).cast(data_type) if is_temporal(data_type) else pa.array(stored)


def _span(length: int | float | None) -> int | float:
    if length is None:
        raise InputError("a fixed time window needs a period, such as period='10min'")
    if length < 0:
        raise InputError(f"a period of {length} is negative")
    return length


def _in_units(length: Tolerance, clock: Question) -> int | float | None:
    return Dimension.of(pa.field(clock.order.name, clock.order.type), length).hi
