"""`matwin bench schedule`: page reads of every mode beside what is possible, and the time to plan.

    layout     a band, a staircase, slab windows, …                               (`layouts.py`)
    bound      no schedule reads fewer pages; proved, and not always reached      (`bound.py`)
    reference  what a slow, wide search finds, on layouts that are small enough   (`reference.py`)

On a small layout `auto` is compared with the best that is known, which is the reference or any mode
that beat it; on every layout with the bound.

A bestmatch join keeps partial results of every left page that is not finished, has room for a few
such pages only, and puts the others down.  So a second table has what each mode costs with that,
which of the modes is the cheapest, and what a bestmatch join takes.  What is put down is reckoned
by the model that the choice is made with: this shows where each mode wins by the model, not that
the model is right.  `tests/disk/test_schedules.py` counts what joins really read and put down.

The counts are the same on every machine.  The times are not, and are taken after all that is
compiled has been compiled, on a layout of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from matwin.paging import Shares, cost, open_pages, planned
from matwin.scheduler import MODES, Reach, Schedule, plan
from matwin.storage.errors import InputError

from . import plot
from .bound import bound_of
from .layouts import FRAMES_SERIES, PAIRS_SERIES, Case, band, grid
from .progress import Progress, begin
from .reference import WIDTH, reference_reads

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AUTO = "auto"
QUICK_WIDTH = 1_000
PAIRS_TIMED = 100_000
MANY_PAIRS = 20_000_000
PAIRS_REPLAYED = 100_000
"""Of larger layouts nobody counts the open pages."""
ROOMS = (2, 4)
"""Open pages for a frame.  How many fit is a matter of the rows: with a quarter of the memory for
partial results, five eighths for frames and rows of 48 bytes it is 0.3 where four pairs of every
row are kept, and 4 where every third row has one."""
HEAVY = 10
"""Pages that the partial results of an open page take where there is room for one: many ties.  An
assumption, the other end of the scale from rows that keep one pair."""
NEAR = 1.1
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Row:
    """What one layout costs."""

    group: str
    layout: str
    left_pages: int
    right_pages: int
    is_self: bool
    pairs: int
    frames: int
    bound: int
    bound_name: str
    reads: dict[str, int]
    seconds: dict[str, float]
    reference: int | None
    open_pages: dict[str, int]
    """Left pages that each mode keeps open at most; the layouts that are not too large."""
    costs: dict[int, dict[str, float]]
    """Pages read, and pages of partial results put down, by the open pages that there is room for:
    what the join has taken (`auto`) and what each mode would cost."""
    chosen: dict[int, str]
    """What a bestmatch join takes, by the same."""

    def winners(self, room: int) -> list[str]:
        """The modes that cost least."""
        costs = {mode: cost for mode, cost in self.costs[room].items() if mode != AUTO}
        return [mode for mode, cost in costs.items() if cost == min(costs.values())]

    def to_winner(self, room: int) -> float:
        """What is taken as a multiple of the cheapest."""
        return self.costs[room][AUTO] / min(self.costs[room].values())

    @property
    def best_known(self) -> int | None:
        """The fewest reads that anything found; None where no reference was searched for."""
        return None if self.reference is None else min(self.reference, *self.reads.values())

    @property
    def to_best(self) -> float | None:
        """Reads of auto as a multiple of the best known."""
        return None if self.best_known is None else self.reads[AUTO] / self.best_known

    @property
    def to_bound(self) -> float:
        """Reads of auto as a multiple of the bound."""
        return self.reads[AUTO] / self.bound

    @property
    def pages(self) -> str:
        """The pages of both sides."""
        return f"{self.left_pages:,} {'self' if self.is_self else f'× {self.right_pages:,}'}"


def run(args: argparse.Namespace) -> int:
    """Plan everything, and print what came out."""
    begin(args)
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")
    if args.repeat < 1:
        raise InputError(f"--repeat {args.repeat}: plan at least once")
    path = None if args.plot is None else plot.plot_path(args.plot)
    cases = grid(args.seed, is_quick=args.quick)
    rows = list(measure(cases, args.repeat, QUICK_WIDTH if args.quick else WIDTH))
    if path is not None:
        draw(rows, path)
    if args.json:
        found = {"rows": [_as_json(row) for row in rows], "summary": summary(rows)}
        print(json.dumps(found, indent=2))
    else:
        tables = [reads_table(rows), winners_table(rows), times_table(rows), summary_text(rows)]
        print("\n\n".join(tables))
    return 0


# ── measuring ────────────────────────────────────────────────────────────────────────────────


def measure(cases: list[Case], repeat: int = 1, width: int = WIDTH) -> Iterator[Row]:
    """A row for each case."""
    progress = Progress(len(cases))
    try:
        progress.say(0, "compiling")
        compile_all()
        for number, case in enumerate(cases, 1):
            progress.say(number, f"{case.group}: {case.layout}, {case.frames:,} frames")
            yield _row(case, repeat, width)
    finally:
        progress.clear()


@cache
def compile_all() -> None:
    """Make every planner run, on both kinds of join, so that no time has compiling in it.

    Auto runs all of them.  Once in a process is enough.
    """
    for is_self in (False, True):
        for frames in (3, 20):
            plan(band(60, 15, is_self=is_self), frames=frames, mode=AUTO)


def _row(case: Case, repeat: int, width: int) -> Row:
    reach, frames = case.reach, case.frames
    made, seconds = {}, {}
    for mode in MODES:
        made[mode], seconds[mode] = _planned(reach, frames, mode, repeat)
    reads = {mode: schedule.page_reads for mode, schedule in made.items()}
    del made[AUTO]
    is_replayed = not reach.is_self and reach.pairs <= PAIRS_REPLAYED
    kept = {mode: open_pages(schedule) for mode, schedule in made.items()} if is_replayed else {}
    costs, chosen = {}, {}
    for room in rooms_of(frames) if is_replayed else []:
        shares = _shares(frames, room)
        taken = planned(reach, shares, AUTO, is_best=True)
        chosen[room] = taken.mode
        costs[room] = {mode: cost(schedule, shares) for mode, schedule in made.items()}
        costs[room][AUTO] = cost(taken, shares)
    bound = bound_of(reach, frames)
    return Row(
        case.group, case.layout, reach.left_pages, reach.right_pages, reach.is_self, reach.pairs,
        frames, bound.reads, bound.name, reads, seconds,
        reference_reads(reach, frames, width) if case.is_small else None, kept, costs,
        chosen,
    )  # fmt: skip


def rooms_of(frames: int) -> list[int]:
    """Room for one open page, and for more of them.

    >>> rooms_of(4)
    [1, 8, 16]
    """
    return [1, *(frames * room for room in ROOMS)]


def _shares(frames: int, room: int) -> Shares:
    """Room for the partial results of so many open pages; of a single one they are large."""
    size = HEAVY if room == 1 else 1
    return Shares(frames, room * size, 0, 1, partial_page_bytes=size, page_bytes=1)


def _planned(reach: Reach, frames: int, mode: str, repeat: int) -> tuple[Schedule, float]:
    """A schedule, and the shortest time that it took to plan it."""
    runs = [_timed(lambda: plan(reach, frames=frames, mode=mode)) for _ in range(repeat)]
    return runs[0][0], min(seconds for _, seconds in runs)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def reads_table(rows: list[Row]) -> str:
    """The page reads of all layouts."""
    head = (
        f"{'page reads':<32}{'pages':>16}{'pairs':>12}{'frames':>8}"
        f"{'gallop':>11}{'crabstep':>10}{'lookahead':>11}{'auto':>9}"
        f"{'bound':>10} {'by':<6}{'reference':>10}{'auto/best':>11}{'auto/bound':>11}"
    )
    lines = [head, "─" * len(head)]
    for group, members in groupby(rows, lambda row: row.group):
        lines.append(group)
        lines += [_reads_line(row) for row in members]
    return "\n".join(lines)


def _reads_line(row: Row) -> str:
    reads = row.reads
    reference = "" if row.reference is None else f"{row.reference:,}"
    to_best = "" if row.to_best is None else f"{row.to_best:.3f}"
    return (
        f"  {row.layout:<30}{row.pages:>16}{row.pairs:>12,}{row.frames:>8,}"
        f"{reads['gallop']:>11,}{reads['crabstep']:>10,}{reads['lookahead']:>11,}"
        f"{reads[AUTO]:>9,}{row.bound:>10,} {row.bound_name:<6}{reference:>10}{to_best:>11}"
        f"{row.to_bound:>11.2f}"
    )


def winners_table(rows: list[Row]) -> str:
    """Which mode wins where open pages have to be kept, and what is taken."""
    head = f"{'with partial results':<62}{'frames':>8}{'room':>6}" + "".join(
        f"{mode:>18}" for mode in MODES if mode != AUTO
    )
    head += f"  {'cheapest':<28}{'taken':<10}{'taken/cheapest':>15}"
    lines = [head, "─" * len(head)]
    for row in rows:
        lines += [_winners_line(row, room) for room in _telling(row)]
    right = [is_right for row in rows for is_right in _rightly(row)]
    lines.append(
        "page reads + pages put down (pages kept open); room: open pages that fit; the cheapest "
        f"mode, or one within {NEAR:g}× of it, is taken in {sum(right)} of {len(right)} (by the "
        "model that chooses), ! marks the others"
    )
    wins = {mode: sum(mode in row.winners(room) for row in rows for room in row.chosen)
            for mode in MODES if mode != AUTO}  # fmt: skip
    lines.append("wins: " + ", ".join(f"{mode} {count}" for mode, count in wins.items()))
    return "\n".join(lines)


def _winners_line(row: Row, room: int) -> str:
    cells = "".join(f"{_cost(row, room, mode):>18}" for mode in row.open_pages)
    winners, times = row.winners(room), row.to_winner(room)
    name = f"{row.group}: {row.layout}"
    return (
        f"{name:<62}{row.frames:>8,}{room:>6,}{cells}  {' '.join(winners):<28}"
        f"{row.chosen[room]:<10}{times:>15.2f}{'!' if times > NEAR else ''}"
    )


def _cost(row: Row, room: int, mode: str) -> str:
    down = round(row.costs[room][mode] - row.reads[mode])
    return f"{row.reads[mode]:,}{f' + {down:,}' if down else ''} ({row.open_pages[mode]:,})"


def _telling(row: Row) -> Iterator[int]:
    """The rooms with which something else wins or is taken than with less."""
    before = None
    for room, taken in row.chosen.items():
        now = (row.winners(room), taken)
        if now != before:
            yield room
        before = now


def _rightly(row: Row) -> Iterator[bool]:
    for room in row.chosen:
        yield row.to_winner(room) <= NEAR


def times_table(rows: Iterable[Row]) -> str:
    """The time that it took to plan the larger layouts."""
    head = f"{'milliseconds to plan':<62}{'pairs':>12}{'frames':>8}"
    head += "".join(f"{mode:>11}" for mode in MODES) + f"{'µs/read':>9}{'ns/pair':>9}"
    lines = [head, "─" * len(head)]
    for row in rows:
        if row.pairs >= PAIRS_TIMED or row.group == PAIRS_SERIES:
            seconds = row.seconds[AUTO]
            times = "".join(f"{row.seconds[mode] * 1e3:>11,.1f}" for mode in MODES)
            lines.append(
                f"{f'{row.group}: {row.layout}':<62}{row.pairs:>12,}{row.frames:>8,}{times}"
                f"{seconds / row.reads[AUTO] * 1e6:>9.1f}{seconds / row.pairs * 1e9:>9.0f}"
            )
    lines.append("auto plans all modes and keeps the best; the last columns are of auto")
    return "\n".join(lines)


def summary(rows: list[Row]) -> dict[str, Any]:
    """What it comes to."""
    small = [row.to_best for row in rows if row.to_best is not None]
    large = [row for row in rows if row.to_best is None]
    many = [row.seconds[AUTO] for row in rows if row.pairs >= MANY_PAIRS]
    above = [row for row in rows if row.reads[AUTO] > min(row.reads.values())]
    return {
        "small_layouts": len(small),
        "auto_to_best_worst": max(small),
        "auto_to_best_mean": sum(small) / len(small),
        "large_layouts": len(large),
        "auto_to_bound_worst": max(row.to_bound for row in large),
        "auto_to_bound_mean": sum(row.to_bound for row in large) / len(large),
        "gallop_to_bound_mean": sum(row.reads["gallop"] / row.bound for row in large) / len(large),
        "auto_above_another_mode": len(above),
        "many_pairs_seconds": max(many) if many else None,
        "with_partial_results": sum(len(row.chosen) for row in rows),
        "with_partial_results_right": sum(is_right for row in rows for is_right in _rightly(row)),
    }


def summary_text(rows: list[Row]) -> str:
    """The summary as lines."""
    found = summary(rows)
    count, many = found["auto_above_another_mode"], found["many_pairs_seconds"]
    worst = max((row for row in rows if row.to_best is not None), key=lambda row: row.to_best or 0)
    lines = [
        f"auto beside the best known, {found['small_layouts']} small layouts: "
        f"worst {found['auto_to_best_worst']:.3f} ({worst.group}, {worst.layout}, "
        f"{worst.frames} frames), mean {found['auto_to_best_mean']:.3f}",
        f"auto beside the bound, {found['large_layouts']} large layouts: "
        f"worst {found['auto_to_bound_worst']:.2f}, mean {found['auto_to_bound_mean']:.2f}; "
        f"gallop's mean {found['gallop_to_bound_mean']:.2f}",
        f"auto is above another mode on {count} layouts"
        if count
        else "auto is never above gallop, crabstep or lookahead",
    ]
    if many is not None:
        lines.append(f"{MANY_PAIRS / 1e6:.0f} million pairs are planned in {many:.1f} s")
    return "\n".join(lines)


def _as_json(row: Row) -> dict[str, Any]:
    ratios = {"auto_to_best": row.to_best, "auto_to_bound": row.to_bound}
    return {**asdict(row), "best_known": row.best_known, **ratios}


# ── plot ─────────────────────────────────────────────────────────────────────────────────────


def draw(rows: list[Row], path: Path) -> None:
    """Both series as a plot: reads over frames on one band, time over pairs on growing bands."""
    with plot.figure(path, (11, 4.8), 2) as (left, right):
        _draw_reads(left, [row for row in rows if row.group == FRAMES_SERIES])
        _draw_times(right, [row for row in rows if row.group == PAIRS_SERIES])
        plot.legend_above(left)


def _draw_reads(axes: Axes, rows: list[Row]) -> None:
    frames = [row.frames for row in rows]
    for mode in MODES:
        _line(axes, mode, frames, [row.reads[mode] / row.bound for row in rows])
    axes.axhline(1, color="#555555", linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(0.8)
    plot.log_axis(axes, "x", (3, 6, 12, 24, 48, 96, 192))
    plot.log_axis(axes, "y", (1, 1.5, 2, 3, 5, 10, 20, 40), "{:g}×".format)
    axes.annotate(
        "no schedule reads fewer pages", (frames[0], 0.97), (0, 0),
        textcoords="offset points", va="top", color="#555555", fontsize=8.5,
    )  # fmt: skip
    axes.set_title(f"Page reads, a band of {rows[0].pages} pages, {rows[0].layout}")
    axes.set_xlabel("frames")
    axes.set_ylabel("page reads as a multiple of the bound")


def _draw_times(axes: Axes, rows: list[Row]) -> None:
    pairs = [row.pairs for row in rows]
    for mode in MODES:
        _line(axes, mode, pairs, [row.seconds[mode] for row in rows])
    plot.log_axis(axes, "x", plot.round_numbers(pairs), "{:,.0f}".format)
    plot.log_axis(axes, "y", [10.0**n for n in range(-6, 3)], plot.seconds_text)
    axes.set_title("Time to plan, bands of growing size")
    axes.set_xlabel("pairs of pages")
    axes.set_ylabel("time to plan")


def _line(axes: Axes, mode: str, x: list[int], y: list[float]) -> None:
    """Auto lies under the others, wide and pale: where it coincides with one, both are seen."""
    at = MODES.index(mode)
    is_auto = mode == AUTO
    axes.plot(
        x, y, label="auto: plans all three, keeps the best" if is_auto else mode,
        color=plot.COLOURS[at], marker="" if is_auto else plot.MARKERS[at], markersize=5,
        linewidth=9 if is_auto else 1.6, alpha=0.2 if is_auto else 1, zorder=1 if is_auto else 2,
        solid_capstyle="round",
    )  # fmt: skip
