"""Measuring window joins of any number of streams, as `measures.py` measures joins of two.

    beside   ours and a rival's time, in turns, on the same tables
    own      our time beside the floor, and once more with a tenth of the memory
    growth   times over sizes at the same window

Row counts are compared wherever two ways answer one question; a difference is an error, not a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import log

import pyarrow as pa

from matwin.storage.grid import Grid
from matwin.storage.runs import sort_rows

from .joins import THREADS, timed, warm
from .measures import (
    GATHER_ROWS,
    Beside,
    Grown,
    Own,
    _gather,
    better,
    check,
    in_turns,
)
from .tenth import in_a_tenth
from .window_cases import WindowCase
from .window_rivals import WindowRival

RIVAL_WARM_ROWS = 200


@dataclass(frozen=True, slots=True)
class WindowVersus:
    """A rival, the size that it is asked at, how many times as fast we want to be, and how often
    it is asked; None is as often as we are."""

    rival: WindowRival
    rows: int
    reach: float | None = None
    repeat: int | None = None


@dataclass(frozen=True, slots=True)
class WindowOwn(Own):
    """Our time beside the floor, for any number of streams."""

    @property
    def rows_a_second(self) -> float:
        """Input rows of all streams."""
        streams = self.case.streams if isinstance(self.case, WindowCase) else 2
        return streams * self.case.rows / self.ours.seconds


def beside(
    case: WindowCase, against: Sequence[WindowVersus], repeat: int
) -> Iterator[Beside | str]:
    """Our time beside each rival's, or why it is left out."""
    warm(case)
    for versus in against:
        if versus.rival.missing is not None:
            yield versus.rival.missing
            continue
        smaller = case.of_rows(min(versus.rows, case.rows))
        tables = smaller.sources()
        few = case.of_rows(min(smaller.rows, RIVAL_WARM_ROWS))
        versus.rival.run(few, *few.sources())  # compiles, imports
        ours, theirs = in_turns(
            lambda: smaller.run(*tables),  # noqa: B023  # called at once
            lambda: versus.rival.run(smaller, *tables),  # noqa: B023
            min(repeat, versus.repeat or repeat),
        )
        check(smaller, versus.rival.name, ours.rows_out, theirs.rows_out)
        yield Beside(smaller, versus.rival.name, ours, theirs, versus.reach)


def own(case: WindowCase, repeat: int, scratch: str | None) -> WindowOwn:
    """Our time, the floor, and our time with little memory."""
    warm(case)
    tables = case.sources()
    ours = timed(lambda: case.run(*tables), repeat)
    sort_seconds, gather_seconds = floor(case, tables, ours.rows_out, repeat)
    again = timed(lambda: case.run(*tables), repeat)
    tenth = in_a_tenth(case, 1, scratch)
    check(case, "a tenth of the memory", ours.rows_out, tenth.rows_out)
    return WindowOwn(case, better(ours, again), sort_seconds, gather_seconds, tenth)


def floor(
    case: WindowCase, tables: tuple[pa.Table, ...], rows_out: int, repeat: int
) -> tuple[float, float]:
    """Seconds to sort all streams by key and time, and to gather as many output rows; two threads.

    The rows gathered lie near each other, as those of a join of sorted inputs do.
    """
    batches = [table.combine_chunks().to_batches()[0] for table in tables]
    grids = [Grid.of(batch.schema, case.on, case.by) for batch in batches]
    with ThreadPoolExecutor(THREADS) as pool:

        def sort() -> int:
            return sum(rows.batch.num_rows for rows in pool.map(sort_rows, batches, grids))

        def gather() -> int:
            # The key comes out once, with the first stream.
            taken = [batches[0], *(batch.drop_columns(["k"]) for batch in batches[1:])]
            starts = range(0, rows_out, GATHER_ROWS)
            return sum(pool.map(lambda start: _gather(taken, start, rows_out), starts))

        return timed(sort, repeat).seconds, timed(gather, repeat).seconds


def growth(case: WindowCase, sizes: Sequence[int], repeat: int) -> Iterator[Grown]:
    """Times over sizes; the window and the matches of a row stay, the stretch of time grows."""
    warm(case)
    before: tuple[int, float] | None = None
    for rows in sizes:
        sized = case.of_rows(rows)
        tables = sized.sources()
        often = max(repeat, min(20, 1_000_000 // rows))  # small sizes take milliseconds
        found = timed(lambda: sized.run(*tables), often)  # noqa: B023
        per_doubling = None if before is None else a_doubling(before, (rows, found.seconds))
        yield Grown(sized, found, per_doubling)
        before = rows, found.seconds


def a_doubling(before: tuple[float, float], now: tuple[float, float]) -> float:
    """What a doubling of the size has cost between two sizes with their costs.

    >>> a_doubling((10, 1.0), (40, 9.0)), a_doubling((10, 2.0), (20, 2.0))
    (3.0, 1.0)
    """
    ratio, factor = now[1] / before[1], now[0] / before[0]
    return round(float(ratio ** (log(2) / log(factor))), 9)
