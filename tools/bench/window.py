"""`matwin bench window`: window joins beside others, with little memory, growing, and streaming.

    two streams    1,000 keys and 10 keys, about 10 matches a row; once with three texts a side
    more streams   chains and cliques of three and four, about 10 results a row
    live streams   two and three, one thread, windows of 10^5 to 10^7 tuples, in memory and on disk

DuckDB is asked twice: as one writes the question, which tests all pairs of a key, and by cells of
time, which is our own idea in SQL.  With 10 keys the first takes a quarter of an hour at a million
rows; it gets a fifth of them, and we the same.  Polars gets half, which takes it a quarter of the
time, and Pathway, which makes Python objects of rows, a tenth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matwin.storage.units import format_size

from . import plot, suite
from .progress import Progress, begin
from .suite import Found
from .window_cases import CHAIN, CLIQUE, WindowCase
from .window_measures import WindowVersus, beside, growth, own
from .window_rivals import DUCKDB, DUCKDB_CELLS, PATHWAY, POLARS
from .window_streaming import (
    MEASURED_ROWS,
    MEASURED_SHARE,
    OF_MEMORY,
    QUICK_WINDOWS,
    SAME_COST,
    THREE_WAY,
    THREE_WAY_A_SECOND,
    THREE_WAY_WINDOW_MAX,
    TUPLES_A_SECOND,
    WINDOWS,
    Flow,
    Streamed,
    streaming,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOUR_WAY = {4: 6.0}
"""Times as fast as DuckDB by cells that joins of so many streams are to be."""


@dataclass(frozen=True, slots=True)
class WindowSuite:
    """What is measured."""

    beside: list[tuple[WindowCase, list[WindowVersus]]]
    own: list[WindowCase]
    growth: list[WindowCase]
    flows: list[Flow] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    suite.check_numbers(args)
    path = None if args.plot is None else plot.plot_path(args.plot)
    rows = min(args.rows, suite.QUICK_ROWS) if args.quick else args.rows
    measured = suite_of(rows, args.seed)
    measured = replace(measured, flows=flows_of(args))
    every_size = suite.QUICK_SIZES if args.quick else suite.GROWTH_SIZES
    sizes = [size for size in every_size if size <= args.growth] or every_size[:1]
    found, streamed = measure(measured, sizes, args.repeat, args.scratch)
    if args.quick:
        found.notes.append(suite.TOO_SMALL)
    if path is not None:
        draw(found, streamed, path)
    if args.json:
        rows_json = [_streamed_json(row) for row in streamed]
        print(json.dumps({**suite.as_json(found), "streaming": rows_json}, indent=2))
    else:
        print(text(found, streamed))
    return 0


def suite_of(rows: int, seed: int = 0) -> WindowSuite:
    """The cases at a number of rows."""
    keyed = WindowCase("window", rows, 10, keys=1_000, seed=seed)
    few_keys = replace(keyed, keys=10)
    texts = replace(keyed, texts=3)
    more = [
        replace(keyed, streams=streams, shape=shape)
        for streams in (3, 4)
        for shape in (CHAIN, CLIQUE)
    ]
    return WindowSuite(
        beside=[
            (
                keyed,
                [
                    WindowVersus(DUCKDB_CELLS, rows, 20),
                    WindowVersus(DUCKDB, rows, 20, 1),
                    WindowVersus(POLARS, rows // 2, 40, 1),
                    WindowVersus(PATHWAY, rows // 10, 100, 1),
                ],
            ),
            (
                few_keys,
                [
                    WindowVersus(DUCKDB_CELLS, rows, 300),
                    WindowVersus(DUCKDB, rows // 5, 300, 1),
                ],
            ),
            (texts, [WindowVersus(DUCKDB_CELLS, rows)]),
            *(
                (case, [WindowVersus(DUCKDB_CELLS, rows, FOUR_WAY.get(case.streams), 2)])
                for case in more
            ),
        ],
        own=[keyed, few_keys, texts, *more],
        growth=[replace(case, is_growing=True) for case in (keyed, few_keys)],
    )


def flows_of(args: argparse.Namespace) -> list[Flow]:
    """The live streams."""
    windows = QUICK_WINDOWS if args.quick else [size for size in WINDOWS if size <= args.window]
    least = 2_000 if args.quick else MEASURED_ROWS
    two = [
        Flow(size, max(least, round(MEASURED_SHARE * size)), seed=args.seed)
        for size in windows or WINDOWS[:1]
    ]
    few = [flow for flow in two if flow.window_rows <= THREE_WAY_WINDOW_MAX]
    return two + [replace(flow, streams=THREE_WAY) for flow in few]


def measure(
    measured: WindowSuite, sizes: Sequence[int], repeat: int, scratch: str | None
) -> tuple[Found, list[Streamed]]:
    """All of it."""
    steps = [*measured.beside, *measured.own, *measured.growth, *measured.flows, *measured.flows]
    progress, number = Progress(len(steps)), 0
    found, streamed = Found([], [], [], [], {}), []
    try:
        for case, against in measured.beside:
            progress.say(number := number + 1, f"{case.name}, beside others")
            for row in beside(case, against, repeat):
                (found.notes if isinstance(row, str) else found.beside).append(row)  # type: ignore[arg-type]
        for case in measured.own:
            progress.say(number := number + 1, f"{case.name}, with a tenth of the memory")
            found.own.append(own(case, repeat, scratch))
        for case in measured.growth:
            progress.say(number := number + 1, f"{case.name}, growing")
            found.growth.append(list(growth(case, sizes, repeat)))
        progress.say(number := number + 1, "live streams")
        for done in streaming(measured.flows, scratch):
            progress.say(number := number + 1, "live streams")
            streamed.append(done)
    finally:
        progress.clear()
    return found, streamed


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def text(found: Found, streamed: list[Streamed]) -> str:
    """The tables."""
    return "\n\n".join(part for part in [suite.text(found), streaming_table(streamed)] if part)


def streaming_table(rows: list[Streamed]) -> str:
    """Live streams over the size of their windows."""
    if not rows:
        return ""
    head = (
        f"{'live streams, one thread':<30}{'window':>12}{'keys':>11}{'out a tuple':>12}"
        f"{'tuples/s':>12}{'µs a tuple':>11}{'a doubling':>12}{'of memory':>11}{'memory':>11}"
        f"{'read':>10}{'written':>9}"
    )
    lines = [head, "─" * len(head)]
    for row in rows:
        flow, rate, share = row.flow, row.per_doubling, row.of_memory
        where = f"{flow.streams}-way, " + ("windows on disk" if row.is_on_disk else "in memory")
        where += " (cut)" * row.is_cut
        of_memory = "" if share is None else f"{share:.2f}{suite.missed(share < OF_MEMORY) or ' '}"
        cost = "" if rate is None else f"{rate:.2f}×{suite.missed(rate > SAME_COST) or ' '}"
        lines.append(
            f"{where:<30}{flow.window_rows:>12,}{flow.keys:>11,}"
            f"{row.rows_out / flow.all_rows:>12.1f}"
            f"{row.tuples_a_second:>11,.0f}{suite.missed(row.is_too_slow) or ' '}"
            f"{row.microseconds:>11.2f}{cost:>12}{of_memory:>11}{format_size(row.budget_bytes):>11}"
            f"{row.pages_read:>10,}{row.pages_written:>9,}"
        )
    if any(row.is_cut for row in rows):
        lines.append("cut: took too long and was ended before its windows were full for long")
    lines.append(
        f"to reach: {TUPLES_A_SECOND:,.0f} tuples a second of two streams in memory, {OF_MEMORY:g} "
        f"of that on disk, {THREE_WAY_A_SECOND:,.0f} of three on disk, and {SAME_COST:g}× for a "
        "doubling of the window; window: tuples of each stream; tuples of all streams"
    )
    return "\n".join(lines)


def _streamed_json(row: Streamed) -> dict[str, Any]:
    ratios = {"tuples_a_second": row.tuples_a_second, "microseconds": row.microseconds}
    return {**asdict(row), **ratios, "keys": row.flow.keys, "reach": row.reach}


# ── plot ─────────────────────────────────────────────────────────────────────────────────────


def draw(found: Found, streamed: list[Streamed], path: Path) -> None:
    """Times beside others as bars, growth and streams as lines."""
    with plot.figure(path, (16, max(4.2, 0.42 * len(found.beside) + 1.4)), 3) as panels:
        suite._draw_beside(panels[0], found.beside)
        suite._draw_growth(panels[1], found.growth)
        _draw_streaming(panels[2], streamed)


def _draw_streaming(axes: Axes, rows: list[Streamed]) -> None:
    """A flow that was cut is a hollow mark, and no line leads there."""
    kinds = sorted({(row.flow.streams, row.is_on_disk) for row in rows})
    for number, kind in enumerate(kinds):
        here = [row for row in rows if (row.flow.streams, row.is_on_disk) == kind]
        colour, marker = plot.COLOURS[(6, 0, 2, 1)[number]], plot.MARKERS[number]
        axes.plot(
            [row.flow.window_rows for row in here],
            [float("nan") if row.is_cut else row.tuples_a_second / 1e6 for row in here],
            label=f"{kind[0]} streams, " + ("windows on disk" if kind[1] else "in memory"),
            color=colour, marker=marker, markersize=5, linewidth=1.6,
        )  # fmt: skip
        for row in here:
            if row.is_cut:
                at = row.flow.window_rows, row.tuples_a_second / 1e6
                axes.plot(*at, marker, color=colour, markersize=6, fillstyle="none")
    axes.axhline(TUPLES_A_SECOND / 1e6, color=plot.COLOURS[4], linewidth=1.4, linestyle="--")
    axes.set_ylim(0)
    plot.log_axis(axes, "x", sorted({row.flow.window_rows for row in rows}), suite._short)
    axes.legend(loc="lower left")
    axes.set_title("Live streams on one thread")
    axes.set_xlabel("tuples in a window; dashed: to be reached; hollow: cut")
    axes.set_ylabel("million tuples a second")


if __name__ == "__main__":
    sys.exit("run it as: matwin bench window")
