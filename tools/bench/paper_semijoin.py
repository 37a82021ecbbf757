"""`matwin bench paper-semijoin`: the experiments of the semijoin paper, repeated.

    T. Tran, B. S. Lee, M. W. Bovee: Why Not Semijoins for Streams, When Distributed?  Section 5.2

    experiment      varies                                       else
    distinct        values of the join attribute                 10,000
    ratio           bytes of a full tuple / of a partial one     10 (20 and 2 attributes of 5 bytes)
    transmission    bytes a second of the link                   1,000
    window          tuples in each window                        500
    rate            tuples a second of each stream               500; latency 5 ms throughout
    block           tuples that are handled at once              1: the paper's future work

The operators of `matwin.operators.semijoin` run over drawn streams; their link counts, and the
paper's formula turns counts into seconds.  Beside what was measured stand the paper's cost model,
formulas (1) and (2), and our refinement of (2).  SPJ and SMJ have to find the same pairs, or the
benchmark stops.

What came out is in `docs/bench/paper-semijoin.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from matwin.operators.semijoin_cost import (
    Processing,
    smj_cost,
    smj_steady_transmission,
    smj_transmission,
    spj_cost,
    spj_transmission,
)
from matwin.storage.errors import InputError

from . import paper_semijoin_plot, plot
from .paper_semijoin_runs import LEAN, SMJ, SPJ, Setting, agree, best_of, draw, steps
from .progress import Progress, begin, tell_plot

EXPERIMENTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "distinct": ("distinct", (10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)),
    "ratio": ("full_attributes", (2, 4, 6, 10, 20, 40, 100, 200)),
    "transmission": ("bytes_per_second", (100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)),
    "window": ("window", (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)),
    "rate": ("rate", (50, 100, 200, 500, 1_000, 2_000)),
    "block": ("block", (1, 2, 5, 10, 20, 50, 100, 1_000)),
}
"""Each experiment: the field of the setting that it varies, and the values."""
BY_FORMULA = {SPJ: "SPJ, formula (1)", SMJ: "SMJ, formula (2)"}
STEADY = "SMJ, refined"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rows: int = 20_000
    """Tuples of each stream after the windows are full."""
    values: int = 99
    """Of each experiment, at most so many places."""
    repeat: int = 2
    seed: int = 0


QUICK = Size(300, 2, 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One place on one line: seconds for each second of the streams.

    What is reckoned and not run has no counts.
    """

    experiment: str
    line: str
    x: float
    transmission: float
    processing: float | None = None
    messages: dict[str, int] | None = None
    size_bytes: int | None = None
    replied: int | None = None
    tuples: int | None = None
    results: int | None = None
    mixed: int | None = None

    @property
    def total(self) -> float:
        """Transmission and processing."""
        return self.transmission + (self.processing or 0.0)


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    if args.repeat < 1:
        raise InputError(f"--repeat {args.repeat}: run at least once")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")
    path = None if args.plot is None else plot.plot_path(args.plot)
    size = replace(QUICK if args.quick else Size(repeat=args.repeat), seed=args.seed)
    constants = steps(Setting(), max(size.rows, 1_000), size.seed)
    points = measure(size, constants)
    if path is not None:
        paper_semijoin_plot.draw(points, path)
        tell_plot(args, "plot", path)
    if args.json:
        print(json.dumps({"steps": asdict(constants), "points": [*map(asdict, points)]}))
    else:
        print(table(points, constants))
    return 0


def measure(size: Size, constants: Processing) -> list[Point]:
    """All experiments."""
    progress = Progress(len(EXPERIMENTS))
    points: list[Point] = []
    try:
        for number, (name, (field, values)) in enumerate(EXPERIMENTS.items(), 1):
            for value in values[: size.values]:
                progress.say(number, f"{name} {value:,}")
                setting = replace(Setting(), **{field: value})
                points += place(name, place_of(name, setting), setting, size, constants)
    finally:
        progress.clear()
    return points


def place_of(experiment: str, setting: Setting) -> float:
    """Where a setting stands on the axis of its experiment."""
    if experiment == "ratio":
        return setting.full_attributes / setting.partial_attributes
    return float(getattr(setting, EXPERIMENTS[experiment][0]))


def place(
    experiment: str, x: float, setting: Setting, size: Size, constants: Processing
) -> Iterator[Point]:
    """One setting: both joins as they run, and as they should."""
    filling = 2 * setting.window
    arrivals = draw(setting, filling + size.rows, size.seed)
    runs = [best_of(size.repeat, line, setting, arrivals, 2 * filling) for line in (SPJ, SMJ, LEAN)]
    agree(f"{experiment} {x:g}, seed {size.seed}", runs)
    for ran in runs:
        yield Point(
            experiment, ran.line, x, ran.unit_transmission, ran.unit_processing, ran.messages,
            ran.size_bytes, ran.replied, ran.tuples, ran.results, ran.mixed,
        )  # fmt: skip
    if setting.block > 1:
        return  # the paper has no formula for it
    s = setting.statistics
    one, two = spj_transmission(s), smj_transmission(s)
    yield Point(experiment, BY_FORMULA[SPJ], x, one, spj_cost(s, constants) - one)
    yield Point(experiment, BY_FORMULA[SMJ], x, two, smj_cost(s, constants) - two)
    yield Point(experiment, STEADY, x, smj_steady_transmission(s))


# ── text ─────────────────────────────────────────────────────────────────────────────────────

SHOWN = (SPJ, BY_FORMULA[SPJ], SMJ, BY_FORMULA[SMJ], STEADY, LEAN)


def table(points: list[Point], constants: Processing) -> str:
    """For each place the transmission of every line, and what the nodes take for a tuple."""
    micro = 1e6
    told = (
        f"steps, µs: probe for the first {micro * constants.probe_first:.2f}, for all "
        f"{micro * constants.probe_all:.2f}, update {micro * constants.update:.2f}, replace "
        f"{micro * constants.replace:.2f}"
    )
    blocks = ["transmission: seconds for each second of the streams; " + told]
    for experiment in dict.fromkeys(point.experiment for point in points):
        head = f"{experiment:<14}" + "".join(f"{line:>20}" for line in SHOWN)
        head += f"{'asks one, all':>18}{'mixed':>7}{'results':>11}{'µs SPJ':>8}{'µs SMJ':>8}"
        here = [point for point in points if point.experiment == experiment]
        rows = [head, "─" * len(head)]
        rows += [
            _row({p.line: p for p in here if p.x == x}) for x in dict.fromkeys(p.x for p in here)
        ]
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _row(lines: dict[str, Point]) -> str:
    smj = lines[SMJ]
    assert smj.messages is not None
    asked = f"{smj.messages['ask one']:,} {smj.messages['ask all']:,}"
    cells = "".join(
        f"{lines[line].transmission:>20,.2f}" if line in lines else f"{'':>20}" for line in SHOWN
    )
    # a second of the streams has so many tuples, of both
    nodes = "".join(f"{_microseconds(lines[line]):>8.1f}" for line in (SPJ, SMJ))
    return f"{smj.x:>13,.0f} {cells}{asked:>18}{smj.mixed or 0:>7,}{smj.results or 0:>11,}{nodes}"


def _microseconds(point: Point) -> float:
    """What the nodes take for a tuple of either stream."""
    rate = place_rate(point)
    return 1e6 * (point.processing or 0.0) / (2 * rate)


def place_rate(point: Point) -> float:
    """Tuples a second of each stream at a point."""
    return point.x if point.experiment == "rate" else Setting().rate


if __name__ == "__main__":
    sys.exit("run it as: matwin bench paper-semijoin")
