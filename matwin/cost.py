"""What the four ways of a join cost, and which is the cheapest.  Pure.

    way      what it takes
    memory   sort and judge every row
    slabs    the same, a slab at a time: for sorted inputs
    parts    the same for every copy of a row, and its bytes written once and read once
    walk     every row sorted into windows on pages, merged, and judged page by page
    merge    the same place for as-of joins: numbers sorted on pages, rows written and read twice

The constants are seconds on one core of a 2-core machine (`matwin bench` measures the whole); only
their ratios decide.  What the results of a join cost is the same whatever the way, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matwin.scheduler.division import Plan
from matwin.storage.units import format_size

ROW_SECONDS = 0.25e-6
"""To sort and judge a row in memory."""
BYTE_SECONDS = 2.5e-9
"""To bring a byte to its part, to write it and to read it again."""
PAGE_SECONDS = 60e-6
"""To make a page and to take it back, beside its bytes."""
WALK_ROW_SECONDS = 1.5e-6
"""To sort a row into a window on pages, and to judge it there: measured at five to eight times what
it takes in memory."""
WALK_PAGE_SECONDS = 250e-6
"""To make a page of a window, to read it, and to judge it with the pages that it meets: 40,000 rows
a side took 600 us for each page written, whether they were of 4, 8 or 16 KiB."""
MERGE_ROW_SECONDS = 1.3e-6
"""To sort a row's numbers on pages, and to bring its match to it: 2M rows a side in 16 MiB took
3.6 s, 0.5 of them in memory."""
WAYS = ("memory", "slabs", "parts", "walk", "merge")


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be joined, as far as it is known beforehand."""

    rows: float
    size: float
    needed_bytes: float
    """What joining all of it in memory takes."""
    budget_bytes: int
    page_bytes: int
    is_sorted: bool | None
    """Whether all inputs are known to be sorted; None: nobody has said so."""
    is_live: bool = False
    beyond: str = "walk"
    """What is left where nothing else is possible: a walk, or for as-of joins a merge."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One way: what it costs, and why it can or can't be."""

    way: str
    seconds: float
    is_possible: bool
    why: str


def estimates(work: Work, plan: Plan | None, chunk_bytes: float) -> list[Estimate]:
    """All four ways.  `plan` is the best division into parts, None where there is none; rows are
    put down in chunks of `chunk_bytes`."""
    in_memory = work.rows * ROW_SECONDS
    fits = work.needed_bytes <= work.budget_bytes
    told = f"takes {format_size(int(work.needed_bytes))} of {format_size(work.budget_bytes)}"
    sorted_ = {True: "inputs are sorted", False: "inputs are not sorted"}
    why = sorted_.get(work.is_sorted, "the order is not declared")  # type: ignore[arg-type]
    why = "everything fits" if fits else why
    return [
        Estimate("memory", in_memory, fits and not work.is_live, told),
        Estimate("slabs", in_memory, work.is_sorted is not False and not fits, why),
        _of_parts(work, plan, chunk_bytes),
        _beyond(work),
    ]


def _beyond(work: Work) -> Estimate:
    if work.beyond == "merge":
        told = "sorted by key and time on pages, one pass, rows fetched in order"
        seconds = work.rows * MERGE_ROW_SECONDS + 2 * work.size * BYTE_SECONDS
        return Estimate("merge", seconds, True, told)
    return Estimate("walk", _walk_seconds(work), True, "windows on pages, read by a schedule")


def _walk_seconds(work: Work) -> float:
    """Runs are written and read, merged into windows, and those are read: four times each page."""
    moved = 2 * work.size * BYTE_SECONDS + 4 * work.size / work.page_bytes * WALK_PAGE_SECONDS
    return work.rows * WALK_ROW_SECONDS + moved


def _of_parts(work: Work, plan: Plan | None, chunk_bytes: float) -> Estimate:
    if plan is None or work.is_live:
        reason = "live inputs have no end" if work.is_live else "nothing divides the rows"
        return Estimate("parts", float("inf"), False, reason)
    copies = plan.replication
    pages = copies * plan.parts * max(1.0, work.size / chunk_bytes)
    moved = copies * work.size * BYTE_SECONDS + pages * PAGE_SECONDS
    why = f"{plan.parts} parts, {plan.reason}, {copies:.2f} copies of a row"
    return Estimate("parts", copies * work.rows * ROW_SECONDS + moved, True, why)


def cheapest(found: Sequence[Estimate]) -> Estimate:
    """The way to take: of those that are possible, the one that costs least."""
    return min((one for one in found if one.is_possible), key=lambda one: one.seconds)
