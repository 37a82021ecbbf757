"""What `matwin bench epsilon` and `matwin bench bestmatch` share: arguments, tables, JSON, plot.

    Suite   cases with their rivals, cases measured alone, series of sizes
      └─▶ side by side │ floor and a tenth of the memory │ growth ─▶ text, JSON, plot

A suite is made for a number of rows, so that `--quick` and `--rows` change nothing but sizes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matwin.storage.errors import InputError
from matwin.storage.units import format_size

from . import plot
from .joins import Case
from .measures import Beside, Grown, Own, Versus, beside, growth, own
from .progress import Progress, begin
from .tenth import BEYOND_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_ROWS = 3_000
TOO_SMALL = "quick: too small to be compared with what is to be reached"
GROWTH_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
QUICK_SIZES = (1_000, 2_000, 4_000)
BAR_FOOT, BAR_FOR_TEXT = 0.5, 1.5
TO_FLOOR, TENTH_TIMES, PER_DOUBLING = 2.0, 2.5, 2.2


@dataclass(frozen=True, slots=True)
class Suite:
    """What is measured."""

    beside: list[tuple[Case, list[Versus]]]
    own: list[Case]
    growth: list[Case]
    rates: dict[Case, float] = field(default_factory=dict)
    """Input rows a second that a case is to reach."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came out."""

    beside: list[Beside]
    own: list[Own]
    growth: list[list[Grown]]
    notes: list[str]
    rates: dict[Case, float]


def check_numbers(args: argparse.Namespace) -> None:
    """Refuse numbers that make no sense, wherever they are among the arguments."""
    for name in ("rows", "repeat", "growth", "window", "timeout", "chunk", "keep"):
        if getattr(args, name, 1) < 1:
            raise InputError(f"--{name} {getattr(args, name)}: give a number from 1 on")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")


def run(args: argparse.Namespace, suite_of: Callable[[int, int], Suite]) -> int:
    """Measure the suite that `suite_of(rows, seed)` makes, and print what came out."""
    begin(args)
    check_numbers(args)
    path = None if args.plot is None else plot.plot_path(args.plot)
    suite = suite_of(min(args.rows, QUICK_ROWS) if args.quick else args.rows, args.seed)
    sizes = QUICK_SIZES if args.quick else [n for n in GROWTH_SIZES if n <= args.growth]
    found = measure(suite, sizes or GROWTH_SIZES[:1], args.repeat, args.scratch)
    if path is not None:
        draw(found, path)
    if args.quick:
        found.notes.append(TOO_SMALL)
    print(json.dumps(as_json(found), indent=2) if args.json else text(found))
    return 0


def measure(suite: Suite, sizes: Iterable[int], repeat: int, scratch: str | None) -> Found:
    """All of it."""
    sizes = list(sizes)
    progress = Progress(len(suite.beside) + len(suite.own) + len(suite.growth))
    found = Found([], [], [], [], suite.rates)
    number = 0
    try:
        for case, against in suite.beside:
            progress.say(number := number + 1, f"{case.name}, beside others")
            for row in beside(case, against, repeat):
                (found.notes if isinstance(row, str) else found.beside).append(row)  # type: ignore[arg-type]
        for case in suite.own:
            progress.say(number := number + 1, f"{case.name}, with a tenth of the memory")
            found.own.append(own(case, repeat, scratch))
        for case in suite.growth:
            progress.say(number := number + 1, f"{case.name}, growing")
            found.growth.append(list(growth(case, sizes, repeat)))
    finally:
        progress.clear()
    return found


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def text(found: Found) -> str:
    """The tables."""
    parts = [beside_table(found), own_table(found), growth_table(found)]
    return "\n\n".join(part for part in [*parts, "\n".join(sorted(set(found.notes)))] if part)


def beside_table(found: Found) -> str:
    """Our times beside others'."""
    head = (
        f"{'beside others':<36}{'rows a side':>12}{'out a row':>10}{'MatWin s':>10}"
        f"  {'beside':<28}{'s':>9}{'times':>8}{'to reach':>9}"
    )
    lines = [head, "─" * len(head)]
    for row in found.beside:
        reach = "" if row.reach is None else f"{row.reach:,.0f}×{missed(row.times < row.reach)}"
        lines.append(
            f"{row.case.name:<36}{row.case.rows:>12,}{row.ours.rows_out / row.case.rows:>10.1f}"
            f"{row.ours.seconds:>10.3f}  {row.rival:<28}{row.theirs.seconds:>9.3f}"
            f"{row.times:>7.1f}×{reach:>9}"
        )
    return "\n".join(lines)


def own_table(found: Found) -> str:
    """Our times beside the floor and with little memory."""
    head = (
        f"{'alone':<36}{'rows a side':>12}{'MatWin s':>10}{'M rows/s':>10}{'sort s':>8}"
        f"{'gather s':>9}{'to floor':>9}  │{'data':>10}{'memory':>10}{'pages':>8}{'s':>9}"
        f"{'times':>8}{'peak':>10}{'read':>8}{'written':>8}"
    )
    lines = [head, "─" * len(head)]
    for row in found.own:
        rate = row.rows_a_second
        lines.append(
            f"{row.case.name:<36}{row.case.rows:>12,}{row.ours.seconds:>10.3f}"
            f"{rate / 1e6:>9.2f}{missed(rate < found.rates.get(row.case, 0)) or ' '}"
            f"{row.sort_seconds:>8.3f}{row.gather_seconds:>9.3f}"
            f"{row.to_floor:>7.1f}×{missed(row.to_floor > TO_FLOOR) or ' '}  │{_tenth_text(row)}"
        )
    lines.append(
        f"to reach: {TO_FLOOR:g}× the floor; with a tenth of the memory {TENTH_TIMES:g}× the time, "
        f"a peak of memory + {BEYOND_BYTES / 1e6:.0f} MB; ! marks what misses it"
    )
    if any(row.tenth is not None and not row.tenth.is_a_tenth for row in found.own):
        lines.append("small tables get the least memory that works, which is more than a tenth")
    return "\n".join(lines)


def _tenth_text(row: Own) -> str:
    tenth, times = row.tenth, row.tenth_times
    if tenth is None or times is None:
        return ""
    above = tenth.peak_bytes > tenth.budget_bytes + BEYOND_BYTES
    return (
        f"{format_size(tenth.data_bytes):>10}{format_size(tenth.budget_bytes):>10}"
        f"{format_size(tenth.page_bytes):>8}{tenth.seconds:>9.2f}"
        f"{times:>6.1f}×{missed(tenth.is_a_tenth and times > TENTH_TIMES) or ' '}"
        f"{format_size(tenth.peak_bytes):>9}"
        f"{missed(above) or ' '}{tenth.pages_read:>8,}{tenth.pages_written:>8,}"
    )


def growth_table(found: Found) -> str:
    """Times over sizes."""
    head = f"{'growth at the same window':<36}{'rows a side':>12}{'s':>10}{'µs a row':>10}"
    head += f"{'a doubling':>12}"
    lines = [head, "─" * len(head)]
    for series in found.growth:
        for row in series:
            rate = row.per_doubling
            cost = "" if rate is None else f"{rate:.2f}×{missed(rate > PER_DOUBLING)}"
            per_row = row.ours.seconds / row.case.rows / 2 * 1e6
            lines.append(
                f"{row.case.name:<36}{row.case.rows:>12,}{row.ours.seconds:>10.3f}"
                f"{per_row:>10.2f}{cost:>12}"
            )
    lines.append(f"to reach: {PER_DOUBLING:g}× for a doubling; µs for each input row of both sides")
    return "\n".join(lines)


def missed(is_missed: bool) -> str:
    """The mark of what misses its aim."""
    return "!" if is_missed else ""


def as_json(found: Found) -> dict[str, Any]:
    """Everything, with the ratios."""
    return {
        "beside": [
            {"name": row.case.name, **asdict(row), "times": row.times} for row in found.beside
        ],
        "own": [
            {
                "name": row.case.name, **asdict(row), "to_floor": row.to_floor,
                "tenth_times": row.tenth_times, "rows_a_second": row.rows_a_second,
            }
            for row in found.own
        ],
        "growth": [
            [{"name": row.case.name, **asdict(row)} for row in series] for series in found.growth
        ],
        "notes": found.notes,
    }  # fmt: skip


# ── plot ─────────────────────────────────────────────────────────────────────────────────────


def draw(found: Found, path: Path) -> None:
    """Times beside others as bars, growth as lines."""
    bars = len(found.beside)
    with plot.figure(path, (12, max(3.6, 0.42 * bars + 1.4)), 2) as (left, right):
        _draw_beside(left, found.beside)
        _draw_growth(right, found.growth)


def _draw_beside(axes: Axes, rows: list[Beside]) -> None:
    labels = [f"{row.rival}\n{row.case.name}, {_short(row.case.rows)}" for row in rows]
    at = range(len(rows))
    axes.barh(at, [row.times for row in rows], color=plot.COLOURS[6], height=0.55)
    for y, row in zip(at, rows, strict=True):
        is_inside = row.times >= BAR_FOR_TEXT  # at its foot, where no mark stands
        axes.annotate(
            f"{row.times:,.1f}×", (BAR_FOOT if is_inside else row.times, y), (4, 0),
            textcoords="offset points", va="center", color="white" if is_inside else "black",
            fontsize=8.5,
        )  # fmt: skip
        if row.reach is not None:
            axes.plot([row.reach] * 2, [y - 0.38, y + 0.38], color=plot.COLOURS[4], linewidth=2)
    axes.set_yticks(list(at), labels, fontsize=8)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_axisbelow(True)
    axes.set_xlim(BAR_FOOT, max(max(1.5 * (row.reach or 1), 3 * row.times) for row in rows))
    plot.log_axis(axes, "x", (1, 3, 10, 30, 100, 300, 1000, 3000), "{:g}×".format)
    axes.set_title("Times as fast as others")
    axes.set_xlabel("their time / ours; the mark is what is to be reached")


def _draw_growth(axes: Axes, series: list[list[Grown]]) -> None:
    sizes: list[int] = []
    for number, rows in enumerate(series):
        sizes = [row.case.rows for row in rows]
        seconds = [row.ours.seconds for row in rows]
        axes.plot(
            sizes, seconds, label=rows[0].case.name, color=plot.COLOURS[(6, 0, 2)[number % 3]],
            marker=plot.MARKERS[number], markersize=5, linewidth=1.6,
        )  # fmt: skip
    plot.log_axis(axes, "x", sizes, _short)
    places = [digit * 10.0**n for n in range(-6, 4) for digit in (1, 3)]
    plot.log_axis(axes, "y", places, plot.seconds_text)
    axes.legend(loc="upper left")
    axes.set_title("Growth at the same window")
    axes.set_xlabel("rows a side")
    axes.set_ylabel("time")


def _short(rows: float) -> str:
    """A number of rows as a label.

    >>> _short(20_000), _short(3_000_000), _short(500)
    ('20k', '3M', '500')
    """
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if rows >= size:
            return f"{rows / size:g}{unit}"
    return f"{rows:g}"
