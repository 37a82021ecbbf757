"""`matwin bench paper-bestmatch`: the experiments of the bestmatch paper, on this engine.

    sizes          execution time over the size of the inputs, 2 dimensions       (figure 11)
    dimensions     execution time over the number of dimensions                   (figure 12)
    distributions  share of the results delivered over time, four distributions   (figure 13)
    precisions     the same with 1 to 5 decimals of the order attribute           (figure 14)

All are left bestmatch joins with ε = 0.1 in every dimension, on one thread.  The lines of figures
11 and 12:

    nested loops                 algorithm 1, compiled; in memory                 (`rivals.py`)
    standard                     the paper's steps without ε-Grid-Order           (`paper_steps.py`)
    standard, ε-Grid-Order       our join on live streams, a step with every batch
    grid, ε-Grid-Order           the same with grid materialization
    auto                         our join of the two tables, as it comes

A step moves the windows on by ε/5.  The paper's step is a tuple, which would measure the overhead
of a step and little else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

import matwin
from matwin.storage.errors import InputError

from . import paper_plot, plot
from .joins import drain, timed
from .measures import Disagreement
from .paper_data import DISTRIBUTIONS, EPSILON, streams, tolerances
from .paper_steps import standard_steps
from .progress import Progress, begin, tell_plot
from .rivals import nested_loops

STEPS = 50
BOUNDS = np.linspace(1 / STEPS, 1, STEPS)
PAGES: dict[str, Any] = {"memory": "8MiB", "page_size": "64KiB"}
SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000)
DIMENSIONS = tuple(range(1, 9))
DELIVERED_ROWS = 1_000
LINE_SECONDS = 10.0
"""A line over growing sizes ends with the first point that takes longer."""
POINT_SECONDS = 60.0
"""What takes longer is given up, where it can be."""
NESTED, STANDARD, STANDARD_EGO, GRID_EGO, AUTO = LINES = (
    "nested loops", "standard", "standard, ε-Grid-Order", "grid, ε-Grid-Order", "auto"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """The time of one line at one place of an experiment; None is more than `POINT_SECONDS`."""

    experiment: str
    line: str
    rows: int
    dimensions: int
    seconds: float | None
    rows_out: int | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """When results came: seconds since the start, and the rows delivered by then."""

    experiment: str
    line: str
    seconds: list[float]
    rows_out: list[int]

    @property
    def first_share(self) -> float:
        """When the first result came, as a share of the whole time."""
        return self.seconds[0] / self.seconds[-1]

    @property
    def unevenness(self) -> float:
        """The largest distance from a delivery at a steady rate, as a share of all results."""
        times = np.array(self.seconds) / self.seconds[-1]
        after = np.array(self.rows_out) / self.rows_out[-1]
        before = np.concatenate([[0.0], after[:-1]])
        return float(max(np.abs(after - times).max(), np.abs(before - times).max()))


class _TooLong(Exception):
    """A point that is given up."""


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    if args.repeat < 1:
        raise InputError(f"--repeat {args.repeat}: run at least once")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")
    path = None if args.plot is None else plot.plot_path(args.plot)
    points, deliveries = measure(args.repeat, args.seed, is_quick=args.quick)
    if path is not None:
        for name, drawn in paper_plot.draw(points, deliveries, path).items():
            tell_plot(args, name, drawn)
    if args.json:
        found = {"points": [*map(asdict, points)], "deliveries": [*map(asdict, deliveries)]}
        print(json.dumps(found))
    else:
        print("\n\n".join([points_table(points), deliveries_table(deliveries)]))
    return 0


def measure(
    repeat: int, seed: int, *, is_quick: bool = False
) -> tuple[list[Point], list[Delivery]]:
    """All four experiments."""
    sizes = (100, 200) if is_quick else SIZES
    dimensions = (1, 2, 3) if is_quick else DIMENSIONS
    dimension_rows = (100,) if is_quick else (1_000, 10_000)
    delivered = 60 if is_quick else DELIVERED_ROWS
    progress = Progress(4)
    try:
        progress.say(1, "sizes")
        points = list(over_sizes(sizes, repeat, seed))
        progress.say(2, "dimensions")
        for rows in dimension_rows:
            points += over_dimensions(rows, dimensions, repeat, seed)
        progress.say(3, "distributions")
        deliveries = [
            delivered_best("distributions", name, repeat, name, delivered, None, seed)
            for name in DISTRIBUTIONS
        ]
        progress.say(4, "precisions")
        deliveries += [
            delivered_best(
                "precisions", f"{n} decimal{'s' * (n > 1)}", repeat, "uniform", delivered, n, seed
            )
            for n in range(1, 6)
        ]
    finally:
        progress.clear()
    return points, deliveries


# ── execution time ───────────────────────────────────────────────────────────────────────────


def over_sizes(sizes: tuple[int, ...], repeat: int, seed: int) -> Iterator[Point]:
    """Figure 11."""
    ended: set[str] = set()
    for rows in sizes:
        lines = [line for line in LINES if line not in ended]
        for point in _points("sizes", lines, rows, 2, repeat, seed):
            yield point
            if point.seconds is None or point.seconds > LINE_SECONDS:
                ended.add(point.line)


def over_dimensions(
    rows: int, dimensions: tuple[int, ...], repeat: int, seed: int
) -> Iterator[Point]:
    """Figure 12; nested loops only where they take no minutes."""
    lines = LINES if rows <= DELIVERED_ROWS else LINES[1:]
    for count in dimensions:
        yield from _points("dimensions", list(lines), rows, count, repeat, seed)


def _points(
    experiment: str, lines: list[str], rows: int, dimensions: int, repeat: int, seed: int
) -> Iterator[Point]:
    left, right = streams("uniform", rows, dimensions, seed=seed)
    few = streams("uniform", 50, dimensions, seed=seed)
    counts: dict[str, int] = {}
    for line in lines:
        work = WORK[line]
        work(*few, dimensions)  # compiles
        try:
            found = timed(lambda: work(left, right, dimensions), repeat)  # noqa: B023
        except _TooLong:
            yield Point(experiment, line, rows, dimensions, None, None)
            continue
        counts[line] = found.rows_out
        yield Point(experiment, line, rows, dimensions, found.seconds, found.rows_out)
    if len(set(counts.values())) > 1:
        raise Disagreement(f"{rows} rows, {dimensions} dimensions, seed {seed}: {counts}")


def _nested(left: pa.Table, right: pa.Table, dimensions: int) -> int:
    names = tolerances(dimensions)
    sides = [np.column_stack([table[name] for name in names]) for table in (left, right)]
    pairs = nested_loops(sides[0], sides[1], np.full(dimensions, EPSILON), 0, len(left))
    right.take(pa.array(pairs[:, 1]))
    return int(left.take(pa.array(pairs[:, 0])).num_rows)


def _standard(left: pa.Table, right: pa.Table, dimensions: int) -> int:
    return standard_steps(left, right, dimensions, BOUNDS, **PAGES)


def _stepped(form: str) -> Callable[[pa.Table, pa.Table, int], int]:
    def work(left: pa.Table, right: pa.Table, dimensions: int) -> int:
        deadline = time.monotonic() + POINT_SECONDS
        live = [
            matwin.stream(_slices(table, deadline), order="sorted", schema=table.schema)
            for table in (left, right)
        ]
        # A delay of next to nothing makes every batch a step, as the paper's steps are.
        return drain(
            matwin.bestmatch_join(
                *live, on=tolerances(dimensions), materialize=cast(Any, form), max_delay="1us",
                threads=1, **PAGES,
            )
        )  # fmt: skip

    return work


def _slices(table: pa.Table, deadline: float) -> Iterator[pa.RecordBatch]:
    """What each step brings."""
    rows = table.combine_chunks().to_batches()[0]
    edges = np.searchsorted(rows.column("y1").to_numpy(), BOUNDS, side="right").tolist()
    for start, stop in zip([0, *edges], edges, strict=False):
        if time.monotonic() > deadline:
            raise _TooLong
        if stop > start:
            yield rows.slice(start, stop - start)


def _auto(left: pa.Table, right: pa.Table, dimensions: int) -> int:
    return drain(matwin.bestmatch_join(left, right, on=tolerances(dimensions), threads=1))


WORK: dict[str, Callable[[pa.Table, pa.Table, int], int]] = {
    NESTED: _nested,
    STANDARD: _standard,
    STANDARD_EGO: _stepped("standard"),
    GRID_EGO: _stepped("grid"),
    AUTO: _auto,
}


# ── delivery over time ───────────────────────────────────────────────────────────────────────


def delivered_best(
    experiment: str, line: str, repeat: int, distribution: str, rows: int,
    decimals: int | None, seed: int,
) -> Delivery:  # fmt: skip
    """Figures 13 and 14: of some runs the one that was done first."""
    left, right = streams(distribution, rows, 2, decimals=decimals, seed=seed)
    runs = [_delivered(experiment, line, left, right) for _ in range(repeat + 1)]
    return min(runs[1:], key=lambda run: run.seconds[-1])


def _delivered(experiment: str, line: str, left: pa.Table, right: pa.Table) -> Delivery:
    """Both streams come tuple by tuple; what the join finds is noted as it comes."""
    live = [
        matwin.stream(_tuples(table), order="sorted", schema=table.schema)
        for table in (left, right)
    ]
    seconds, rows_out = [], []
    start, count = time.perf_counter(), 0
    for batch in matwin.bestmatch_join(*live, on=tolerances(2), threads=1):
        count += batch.num_rows
        seconds.append(time.perf_counter() - start)
        rows_out.append(count)
    return Delivery(experiment, line, seconds, rows_out)


def _tuples(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.combine_chunks().to_batches(max_chunksize=1))


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def points_table(points: list[Point]) -> str:
    """The times, a line of the table for each place."""
    head = f"{'seconds':<12}{'rows':>8}{'dimensions':>12}{'out':>10}"
    head += "".join(f"{line:>24}" for line in LINES)
    lines = [head, "─" * len(head)]
    places = dict.fromkeys((p.experiment, p.rows, p.dimensions) for p in points)
    for place in places:
        here = {p.line: p for p in points if (p.experiment, p.rows, p.dimensions) == place}
        out = next(p.rows_out for p in here.values() if p.rows_out is not None)
        lines.append(
            f"{place[0]:<12}{place[1]:>8,}{place[2]:>12}{out:>10,}"
            + "".join(f"{_seconds(here.get(line)):>24}" for line in LINES)
        )
    return "\n".join(lines)


def _seconds(point: Point | None) -> str:
    if point is None:
        return ""
    return f"> {POINT_SECONDS:g}" if point.seconds is None else f"{point.seconds:.4f}"


def deliveries_table(deliveries: list[Delivery]) -> str:
    """How evenly the results came."""
    head = f"{'delivered':<15}{'line':<18}{'out':>8}{'seconds':>10}{'first at':>10}{'uneven':>9}"
    lines = [head, "─" * len(head)]
    for row in deliveries:
        lines.append(
            f"{row.experiment:<15}{row.line:<18}{row.rows_out[-1]:>8,}{row.seconds[-1]:>10.3f}"
            f"{row.first_share:>9.0%}{row.unevenness:>9.0%}"
        )
    lines.append("uneven: the farthest from a delivery at a steady rate, as a share of all results")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit("run it as: matwin bench paper-bestmatch")
