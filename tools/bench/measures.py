"""Measuring joins: beside others, with a tenth of the memory, beside their floor, and as they grow.

    Beside   ours and a rival's time, in turns, on the same tables
    Small    the join once more with a tenth of the memory, in a child process          (`tenth.py`)
    Floor    what no join can do without: sorting both inputs once, gathering what comes out
    Growth   times over sizes at the same window

The best of several runs counts on every side: the other runs measure what else the machine did.
Row counts are compared wherever two ways answer one question; a difference is an error, not a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log

import numpy as np
import pyarrow as pa

from matwin.storage.errors import MatwinError
from matwin.storage.grid import Grid
from matwin.storage.runs import sort_rows

from .joins import REPEAT_SECONDS, THREADS, Case, Timed, timed, warm
from .rivals import Rival
from .tenth import Tenth, in_a_tenth

GATHER_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Versus:
    """A rival, the size that it is asked at, and how many times as fast we want to be."""

    rival: Rival
    rows: int
    reach: float | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """Our time beside a rival's."""

    case: Case
    rival: str
    ours: Timed
    theirs: Timed
    reach: float | None

    @property
    def times(self) -> float:
        """How many times as fast as the rival we are."""
        return self.theirs.seconds / self.ours.seconds


@dataclass(frozen=True, slots=True)
class Own:
    """Our time beside what we can't do without, and with little memory."""

    case: Case
    ours: Timed
    sort_seconds: float
    gather_seconds: float
    tenth: Tenth | None

    @property
    def floor_seconds(self) -> float:
        """Sorting and gathering."""
        return self.sort_seconds + self.gather_seconds

    @property
    def to_floor(self) -> float:
        """Our time as a multiple of the floor."""
        return self.ours.seconds / self.floor_seconds

    @property
    def tenth_times(self) -> float | None:
        """The time with a tenth of the memory as a multiple of the time with enough."""
        return None if self.tenth is None else self.tenth.seconds / self.ours.seconds

    @property
    def rows_a_second(self) -> float:
        """Input rows of both sides."""
        return 2 * self.case.rows / self.ours.seconds


@dataclass(frozen=True, slots=True)
class Grown:
    """One size of a series, and what a doubling has cost since the size before."""

    case: Case
    ours: Timed
    per_doubling: float | None


class Disagreement(MatwinError):
    """Two ways to answer one question found different numbers of rows."""


def beside(case: Case, against: Sequence[Versus], repeat: int) -> Iterator[Beside | str]:
    """Our time beside each rival's, or why it is left out."""
    warm(case)
    for versus in against:
        if versus.rival.missing is not None:
            yield versus.rival.missing
            continue
        smaller = case.of_rows(min(versus.rows, case.rows))
        left, right = smaller.tables()
        versus.rival.run(case, *smaller.of_rows(200).tables())  # compiles, imports
        ours, theirs = in_turns(
            lambda: smaller.run(left, right),  # noqa: B023  # called at once
            lambda: versus.rival.run(smaller, left, right),  # noqa: B023
            repeat,
        )
        check(smaller, versus.rival.name, ours.rows_out, theirs.rows_out)
        yield Beside(smaller, versus.rival.name, ours, theirs, versus.reach)


def in_turns(
    ours: Callable[[], int], theirs: Callable[[], int], repeat: int
) -> tuple[Timed, Timed]:
    """The best of each.  Both see the same machine, whatever else it does; ours runs before and
    after theirs."""
    runs: list[tuple[Timed, Timed]] = []
    while len(runs) < repeat and sum(run[1].seconds for run in runs) < REPEAT_SECONDS:
        before, there, after = timed(ours), timed(theirs), timed(ours)
        runs.append((better(before, after), there))
    return better(*(run[0] for run in runs)), better(*(run[1] for run in runs))


def better(*runs: Timed) -> Timed:
    """The shortest of some runs."""
    return min(runs, key=lambda run: run.seconds)


def own(case: Case, repeat: int, scratch: str | None, *, with_tenth: bool = True) -> Own:
    """Our time, the floor, and our time with little memory."""
    warm(case)
    left, right = case.tables()
    ours = timed(lambda: case.run(left, right), repeat)
    sort_seconds, gather_seconds = floor(case, left, right, ours.rows_out, repeat)
    again = timed(lambda: case.run(left, right), repeat)
    tenth = in_a_tenth(case, min(repeat, 2), scratch) if with_tenth else None
    if tenth is not None:
        check(case, "a tenth of the memory", ours.rows_out, tenth.rows_out)
    return Own(case, better(ours, again), sort_seconds, gather_seconds, tenth)


def floor(
    case: Case, left: pa.Table, right: pa.Table, rows_out: int, repeat: int
) -> tuple[float, float]:
    """Seconds to sort both sides in ε-Grid-Order, and to gather as many output rows, two threads.

    The rows gathered lie near each other, as those of a join of sorted inputs do.
    """
    batches = [table.combine_chunks().to_batches()[0] for table in (left, right)]
    grids = [Grid.of(batch.schema, case.on, case.by) for batch in batches]
    with ThreadPoolExecutor(THREADS) as pool:

        def sort() -> int:
            return sum(rows.batch.num_rows for rows in pool.map(sort_rows, batches, grids))

        def gather() -> int:
            starts = range(0, rows_out, GATHER_ROWS)
            return sum(pool.map(lambda start: _gather(batches, start, rows_out), starts))

        return timed(sort, repeat).seconds, timed(gather, repeat).seconds


def _gather(batches: list[pa.RecordBatch], start: int, rows_out: int) -> int:
    at = np.arange(start, min(start + GATHER_ROWS, rows_out))
    for batch in batches:
        batch.take(pa.array(at * batch.num_rows // max(rows_out, 1)))
    return len(at)


def growth(case: Case, sizes: Sequence[int], repeat: int) -> Iterator[Grown]:
    """Times over sizes; ε and the matches of a row stay, the stretch of the order attribute grows.

    Small sizes take milliseconds, and are repeated more often.
    """
    warm(case)
    before: tuple[int, float] | None = None
    for rows in sizes:
        sized = case.of_rows(rows)
        left, right = sized.tables()
        found = timed(lambda: sized.run(left, right), max(repeat, min(20, 1_000_000 // rows)))  # noqa: B023
        per_doubling = None
        if before is not None:
            ratio, factor = found.seconds / before[1], rows / before[0]
            per_doubling = ratio ** (log(2) / log(factor))
        yield Grown(sized, found, per_doubling)
        before = rows, found.seconds


def check(case: Case, name: str, ours: int, theirs: int) -> None:
    """Two ways to answer one question find as many rows."""
    if ours != theirs:
        raise Disagreement(
            f"{case.name}, {case.rows:,} rows a side, seed {case.seed}: we find {ours:,} rows, "
            f"{name} finds {theirs:,}"
        )
