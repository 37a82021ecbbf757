"""Fixed time windows: the best matches among what is not older than T, anew with every change.

Time is no join attribute here; it only says how long a row counts (section 3.5.1 of the paper):

                          t - T                     t
    left    ······▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        with every new time t:
    right   ····▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐▐│        drop what is older than t - T,
            gone ▲                                            join the windows, mark the rows with t

A pair that was dominated comes back when what dominated it has grown too old, so results can't be
updated; every evaluation is a join of its own, and costs one.  `every` spaces them out.

The driver reads, and an evaluation is due when both feeds are complete up to its time.  The windows
are in a store, on half of the budget; what fits is not written.  Rows go there as they come, sorted
or not, also those that are later than what is evaluated next: the windows know the next time.  The
join of an evaluation has the other half.  Where half is too little for pages of the size asked for,
pages are smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s, is_temporal, stored_dtype
from matwin.storage.counters import Counters
from matwin.storage.decimals import decimals, shown_type
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.grid import Dimension
from matwin.storage.materialize import Window
from matwin.storage.store import Store
from matwin.storage.units import Counts, Tolerance, shown

from .bestmatch import bestmatch_join
from .driver import Driver
from .engine import Moved
from .feed import Portion
from .finality import DONE
from .hints import explains_words
from .joining import Batches, flattened, handed_out
from .judge import Judge
from .keys import float_key_apart, float_key_within, float_of_key
from .need import Need, WalkNeed
from .options import JoinOptions, Options, half_of, options_of
from .question import BestHow, By, Question
from .report import Report
from .result import Result
from .side import SIDES, Side
from .sources import Source, check_trace, two_sources
from .state import State

EVALUATED_AT = "evaluated_at"


@explains_words
def fixed_window_join(
    left: object,
    right: object,
    *,
    time: str | tuple[str, str],
    period: Tolerance,
    on: Mapping[Any, Tolerance],
    how: BestHow = "left",
    by: By = None,
    orders: Mapping[Any, object] | None = None,
    every: Tolerance = None,
    keep_unmatched: bool = False,
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    **options: Unpack[JoinOptions],
) -> Result:
    """A bestmatch join of all rows not older than `period`, whenever a row comes.

    The paper's fixed time windows: at each time at which rows come, all rows that are not older
    than `period` are joined anew.  Every evaluation is a join of its own and costs one.

    * `time`: the column that says when a row came; a pair where it has two names.
    * `period`: how long a row counts, such as ``"1h"``.
    * `every`: leave at least so much time between two evaluations.
    * `on`, `how`, `by`, `orders`, `keep_unmatched`, `suffixes`, `distances`: as in
      `matwin.bestmatch_join`.
    * further options, such as `memory`: see `matwin.JoinOptions`.

    A column ``evaluated_at`` comes first.  Sources without a declared order are sorted by time.

    >>> import matwin
    >>> parts = pa.table({"t": [1, 4], "cost": [5, 9]})
    >>> others = pa.table({"t": [2, 3], "cost": [8, 6]})
    >>> found = matwin.fixed_window_join(parts, others, time="t", period=2, on={"cost": None})
    >>> [tuple(row.values()) for row in found.read_all().to_pylist()]
    [(2, 1, 5, 2, 8), (3, 1, 5, 3, 6), (4, 4, 9, 2, 8)]
    """
    _check_length("period", period)
    _check_length("every", every)
    sources = two_sources(left, right)
    arguments = {
        "on": on, "how": how, "by": by, "orders": orders, "keep_unmatched": keep_unmatched,
        "suffixes": suffixes, "distances": distances,
    }  # fmt: skip
    schemas = [source.schema for source in sources]
    asked = Question.of(*schemas, best=True, **arguments)  # type: ignore[arg-type]
    if EVALUATED_AT in asked.schema.names:
        raise InputError(f"the result adds a column {EVALUATED_AT!r}; rename the one that is there")
    timed = Question.of(*schemas, on={time: period}, how="inner", best=False)
    chosen = options_of("fixed_window_join", options)
    check_trace(chosen.trace, sources)
    clock, report = Clock.of(timed, every), chosen.report or Report()
    evaluation = Evaluation(clock, asked, arguments, half_of(chosen), report)
    joining = FixedWindowJoining(timed, evaluation, chosen)
    reports = [report.left, report.right]
    driver = Driver(joining, sources, reports, evaluation.options, report)
    report.budget_bytes = chosen.budget_bytes  # the driver has half of it
    rows = handed_out(flattened(driver.run()), report, chosen)
    return Result(evaluation.schema, rows, report, partial(_explained, sources, arguments, clock))


def _explained(sources: tuple[Source, Source], arguments: dict[str, Any], clock: Clock) -> str:
    """The join of each evaluation, and how often there is one."""
    spaced = f", at least {clock.every} apart" if clock.every else ""
    join = bestmatch_join(*sources, **arguments).explain()
    return (
        f"at every time at which rows come{spaced}, of rows not older than {clock.period}:\n{join}"
    )


@dataclass(frozen=True, slots=True)
class Clock:
    """How long rows count, and when they are evaluated, in order keys."""

    type: pa.DataType
    period: int | float
    every: int | float

    @classmethod
    def of(cls, timed: Question, every: Tolerance) -> Clock:
        """The clock of a question whose only attribute is the time."""
        order, period = timed.order, _span(timed.order.hi)
        if every is None:
            return cls(order.type, period, 0)
        column = pa.field(order.name, order.type)
        return cls(order.type, period, _span(Dimension.of(column, every).hi))

    def oldest(self, at: int) -> int:
        """The least key that counts at this time; after the end none does."""
        if at > INT64_MAX:
            return at
        if pa.types.is_floating(self.type):
            return float_key_within(at, self.period)
        return max(at - int(self.period), INT64_MIN)

    def following(self, at: int) -> int:
        """The first key that may be evaluated after this one."""
        if not self.every:
            return at + 1
        if pa.types.is_floating(self.type):
            return float_key_apart(at, self.every)
        return at + int(self.every)

    @property
    def shown_type(self) -> pa.DataType:
        """The type of a column of times."""
        return shown_type(self.type.scale) if pa.types.is_decimal(self.type) else self.type

    def times(self, at: int, rows: int) -> pa.Array:
        """A column that says so many times what time it is."""
        if pa.types.is_floating(self.type):
            return pa.array(np.full(rows, float_of_key(at)), self.type)
        values: Int64s = np.full(rows, at, np.int64)
        if self.type == pa.uint64():
            return pa.array(values.view(np.uint64) ^ np.uint64(1 << 63))
        if pa.types.is_decimal(self.type):
            return decimals(values, self.type.scale)
        stored = values.astype(stored_dtype(self.type))
        return pa.array(stored).cast(self.type) if is_temporal(self.type) else pa.array(stored)


class Evaluation:
    """A bestmatch join of the rows that count at a time."""

    def __init__(
        self, clock: Clock, asked: Question, arguments: dict[str, Any], options: Options,
        report: Report,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.sides = {name: Side.of(asked, name) for name in SIDES}
        # Of a join for both sides each is judged; else one is, and has all the memory of a join.
        judged = SIDES if asked.how == "full" else ("right" if asked.how == "right" else "left",)
        self.judges = [Judge(asked, self.sides, name, "best") for name in judged]
        self.schema = pa.schema(
            [pa.field(EVALUATED_AT, clock.shown_type, nullable=False), *asked.schema]
        )
        self.options = options
        self.report = report
        self._arguments = arguments

    def results(
        self, at: int, rows: Sequence[pa.RecordBatchReader], windows: Counters
    ) -> Iterator[Batches]:
        """What the rows of both sides make at a time, beside what the windows take."""
        options, report = self.options, Report()
        found = bestmatch_join(
            *rows, memory=options.budget_bytes, page_size=options.page_bytes,
            scratch=options.scratch, threads=options.threads, materialize=options.materialize,
            schedule=options.schedule, report=report, **self._arguments,
        )  # fmt: skip
        self.report.steps += 1
        pages = (0, 0)
        for batch in _refused_for_half(found):
            pages = self._counted(report, windows, pages)
            times = self.clock.times(at, batch.num_rows)
            yield [pa.RecordBatch.from_arrays([times, *batch.columns], schema=self.schema)]
        self._counted(report, windows, pages)
        for decision in report.decisions:
            self.report.decide(decision)

    def _counted(
        self, report: Report, windows: Counters, pages: tuple[int, int]
    ) -> tuple[int, int]:
        """Add what the join has taken and read since there were so many pages; how many are now."""
        own = self.report
        own.peak_bytes = max(own.peak_bytes, windows.bytes_peak + report.peak_bytes)
        own.pages_read += report.pages_read - pages[0]
        own.pages_written += report.pages_written - pages[1]
        return report.pages_read, report.pages_written

    def count_rejected(self, side: str, rows: pa.RecordBatch) -> None:
        """A feed rejects rows without a time.  Others that can match nothing are in the windows,
        where they may come out unmatched, and are counted when they come, not at every join."""
        rejected, report = self.sides[side].rejected(rows), getattr(self.report, side)
        report.used -= rejected
        report.rejected += rejected


def _refused_for_half(found: Result) -> Iterator[pa.RecordBatch]:
    """The batches of a join that has half of the budget; what it asks for is not the whole."""
    try:
        yield from found
    except BudgetError as e:
        raise BudgetError(str(e), smallest_bytes=e.smallest_bytes) from e


class FixedWindows:
    """The engine: two windows over time, and an evaluation for every change."""

    step_bytes = 0  # an evaluation is due when its time is complete, whatever it costs
    makes_room = True
    needed_bytes = 0  # a store counts its own

    def __init__(
        self, evaluation: Evaluation, sides: Sequence[Side], store: Store, arrivals: Sequence[str]
    ) -> None:
        self._evaluation = evaluation
        self._clock = evaluation.clock
        self._store = store
        self._sides = sides
        self.windows = [self._window(*one) for one in zip(sides, arrivals, strict=True)]
        self._complete = INT64_MIN
        """All rows before it have come, and all times before it are evaluated."""
        self._due = INT64_MIN
        """No time before it is evaluated any more."""

    def _window(self, side: Side, arrival: str) -> Window:
        order, form = side.grid.order, self._evaluation.options.materialize
        return self._store.window(
            side.name, side.stored, on={order.name: order.limits}, materialize=form,
            arrival=arrival,
        )  # fmt: skip

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes: its own bytes."""
        return size

    def take(self, feed: int, portion: Portion) -> Iterator[Batches]:
        """Append rows to the windows."""
        self._evaluation.count_rejected(SIDES[feed], portion.rows)
        self.windows[feed].append(portion.rows)
        return iter(())

    def advance(self, frontiers: Sequence[int]) -> Iterator[Batches]:
        """Evaluate every time up to which all rows have come, then drop what is too old."""
        if min(frontiers) == self._complete:
            return
        self._complete = min(frontiers)
        while (at := self._next_time()) < self._complete:
            self._drop_before(self._clock.oldest(at))
            self._due = self._clock.following(at)
            rows = [self._rows(feed, at) for feed in range(len(self._sides))]
            yield from self._evaluation.results(at, rows, self._store.pool.counters)
        self._drop_before(self._clock.oldest(max(self._complete, self._due)))

    def state(self) -> State:
        """How far it has come; the rows are in the store."""
        names = [window.name for window in self.windows]
        return State((), names, {"complete": self._complete, "due": self._due})

    def restore(self, state: State) -> None:
        """Go on as far as another has come, with the rows of the store."""
        self._complete, self._due = state.marks["complete"], state.marks["due"]

    def _next_time(self) -> int:
        """The first time at which rows have come and that is due."""
        keys = [window.first_key(self._due) for window in self.windows]
        return min([key for key in keys if key is not None], default=DONE)

    def _drop_before(self, key: int) -> None:
        for window in self.windows:
            window.expire_key(key, "older than the period")

    def _rows(self, feed: int, at: int) -> pa.RecordBatchReader:
        """The rows of a side that have come up to this time, those that are too old being gone."""
        schema = self._sides[feed].schema
        batches = self.windows[feed].scan(upto_key=at)
        return pa.RecordBatchReader.from_batches(
            schema, (batch.select(schema.names) for batch in batches)
        )


class FixedWindowJoining:
    """A fixed window join as the driver knows it."""

    needs_memory = False

    decision = ""

    def __init__(self, timed: Question, evaluation: Evaluation, options: Options) -> None:
        self._evaluation = evaluation
        self.sides: Sequence[Side] = [Side.of(timed, name) for name in SIDES]
        self.tolerances: Sequence[Counts | None] = [timed.order.limits] * 2
        self.need: Need = WalkNeed(evaluation.judges, evaluation.options)

    def in_memory(self) -> None:
        """Nothing: the windows are in a store, which writes nothing while they fit."""

    def on_pages(self, engine: None, store: Store, arrivals: Sequence[str], why: str) -> Moved:
        """Windows without rows."""
        paged = FixedWindows(self._evaluation, self.sides, store, arrivals)
        forms = " and ".join(dict.fromkeys(window.form for window in paged.windows))
        decision = f"{forms} windows on pages, joined whenever rows have come"
        return Moved(paged, decision, iter(()))

    def rejected(self, feed: int, rows: pa.RecordBatch) -> Iterator[Batches]:
        """Rows without a time are in no window."""
        return iter(())


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
