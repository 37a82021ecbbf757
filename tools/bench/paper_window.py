"""`matwin bench paper-window`: the experiments of the two W-join papers, repeated.

    M. Hammad, W. Aref, A. Elmagarmid: Joining Multiple Data Streams with Window Constraints (2002)
                                       Stream Window Join: Tracking Moving Objects … (SSDBM 2003)

The papers' algorithms are compiled and run tuple by tuple (`paper_window_kernels.py`), because that
is where their differences are: tests and comparisons of single tuples.  The operator works on
batches, and takes part in figures of its own (`paper_window_operator.py`).  All on one thread.

What is measured where is said in `docs/bench/paper-window.md`, with what came out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from matwin.storage.errors import InputError

from . import paper_window_figures as figures
from . import paper_window_operator as operator
from . import paper_window_plot, plot
from .paper_window_figures import QUICK, Point, Size
from .progress import Progress, begin, tell_plot

EXPERIMENTS: dict[str, Callable[[Size], Iterator[Point]]] = {
    "shops": figures.over_time,
    "streams": figures.over_streams,
    "switching": figures.while_switching,
    "bounds": figures.unequal_windows,
    "path": figures.along_a_path,
    "throughput": figures.over_rates,
    "response": figures.over_arrivals,
    "paced": operator.over_paces,
    "operator": operator.over_algorithms,
    "operator bounds": operator.over_bounds,
    "operator path": operator.over_paths,
}
SERIES = ("shops", "switching", "output")
"""Experiments with a point for every portion; a table shows their means."""


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    if args.repeat < 1:
        raise InputError(f"--repeat {args.repeat}: run at least once")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")
    path = None if args.plot is None else plot.plot_path(args.plot)
    size = replace(QUICK if args.quick else Size(), seed=args.seed)
    size = size if args.quick else replace(size, repeat=args.repeat)
    points = measure(size)
    if path is not None:
        for name, drawn in paper_window_plot.draw(points, path).items():
            tell_plot(args, name, drawn)
    if args.json:
        print(json.dumps({"points": [*map(asdict, points)]}))
    else:
        print(table(points))
    return 0


def measure(size: Size) -> list[Point]:
    """All experiments."""
    progress = Progress(len(EXPERIMENTS))
    points: list[Point] = []
    try:
        for number, (name, experiment) in enumerate(EXPERIMENTS.items(), 1):
            progress.say(number, name)
            points += experiment(size)
    finally:
        progress.clear()
    return points


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def table(points: list[Point]) -> str:
    """A line for each panel and place, a column for each line of it."""
    blocks = []
    for experiment in dict.fromkeys(point.experiment for point in points):
        here = [point for point in points if point.experiment == experiment]
        lines = list(dict.fromkeys(point.line for point in here))
        width = max(14, *(len(line) + 2 for line in lines))
        head = f"{experiment:<16}{'':<36}{_place(experiment):>12}"
        head += (
            "".join(f"{line:>{width}}" for line in lines) + f"{'results':>14}  {_unit(experiment)}"
        )
        rows = [head, "─" * len(head)]
        for panel in dict.fromkeys(point.panel for point in here):
            rows += _panel_rows([p for p in here if p.panel == panel], lines, width)
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _panel_rows(points: list[Point], lines: list[str], width: int) -> Iterator[str]:
    experiment, panel = points[0].experiment, points[0].panel
    is_series = experiment in SERIES
    places = [None] if is_series else list(dict.fromkeys(point.x for point in points))
    for place in places:
        here = [point for point in points if place is None or point.x == place]
        cells = []
        for line in lines:
            ys = [point.y for point in here if point.line == line]
            value = ys[-1] if experiment == "output" and ys else sum(ys) / max(len(ys), 1)
            cells.append(f"{value:>{width},.2f}" if ys else " " * width)
        found = [point.results for point in here if point.results is not None]
        shown = "" if place is None else f"{place:,.0f}"
        results = f"{max(found):,}" if found else ""
        yield f"{'':<16}{panel:<36}{shown:>12}{''.join(cells)}{results:>14}"


def _place(experiment: str) -> str:
    return {"streams": "streams", "throughput": "streams", "operator": "streams",
            "response": "tuples/s"}.get(experiment, "")  # fmt: skip


def _unit(experiment: str) -> str:
    units = {"throughput": "tuples a second", "response": "ms", "output": "s"}
    return units.get(experiment, "µs a tuple")


if __name__ == "__main__":
    sys.exit("run it as: matwin bench paper-window")
