"""`matwin bench scale`: does the cost model of docs/SCALE.md foretell what Spark does?

    copies   rows shuffled by Spark's own count, beside the model's replication factor: several
             tolerances, numbers of strips, and rows that crowd together
    time     costs fitted to small runs, then a larger one foretold and measured
    outlook  what 100 executors would do with 10^11 rows, by the same costs

Everything runs on the cores of this machine; the outlook adds a network that is not here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from matwin.storage.errors import InputError
from matwin.storage.units import format_size

from . import plot
from .scale_model import Cluster, Costs, Outlook, Run, outlook, replication

SPAN = 1_000_000
SPREADS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "even": lambda chance, rows: chance.integers(0, SPAN, rows),
    "bell": lambda chance, rows: np.clip(
        chance.normal(SPAN / 2, SPAN / 10, rows), 0, SPAN - 1
    ).astype(np.int64),
    "90% in 1%": lambda chance, rows: np.where(
        chance.random(rows) < 0.9,
        chance.integers(SPAN // 2, SPAN // 2 + SPAN // 100, rows),
        chance.integers(0, SPAN, rows),
    ),
}
FITTED = ((8, 1, 2), (4, 1, 2), (4, 8, 4), (4, 1, 8), (2, 4, 4), (2, 1, 2))
"""Runs that the costs are fitted to: by what the rows are divided, results a row, parts."""
REPEAT = 3
"""Runs of each; the best counts, as the others did something else besides."""
CLUSTER = Cluster(executors=100, cores=4, network=1e9)
BIG_ROWS = 1e11
BIG_DAYS = 365


@dataclass(frozen=True, slots=True)
class Copies:
    """One question on how often rows are sent."""

    spread: str
    reach: int
    strips: int
    model: float
    measured: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A run beside what the costs say of it."""

    run: Run
    expected: float
    is_fitted: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """Everything that was measured."""

    copies: list[Copies]
    costs: Costs
    timed: list[Timed]
    row_bytes: float
    big: Outlook


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    if args.rows < 1000 or args.slots < 1:
        raise InputError("--rows: give at least 1000; --slots: at least 1")
    path = None if args.plot is None else plot.plot_path(args.plot)
    found = measured(args.rows, args.master, args.slots)
    if path is not None:
        draw(found, path)
    print(json.dumps(asdict(found), indent=2) if args.json else text(found))
    return 0


def measured(rows: int, master: str, slots: int) -> Scale:
    """Run everything in one session."""
    from matwin.spark.session import started

    with tempfile.TemporaryDirectory() as folder, started(master, {}) as session:
        bench = _Bench(session, Path(folder), slots)
        copies = list(bench.copies(max(rows // 10, 1000)))
        bench.timed_run(max(rows // 2, 1000), 2, 2)  # compiles, warms up
        small = [
            bench.timed_run(rows // divisor, results, parts) for divisor, results, parts in FITTED
        ]
        costs = Costs.fitted(small)
        large = [bench.timed_run(rows, 1, 4), bench.timed_run(rows, 6, 4)]
        timed = [Timed(run, costs.seconds(run), True) for run in small]
        timed += [Timed(run, costs.seconds(run), False) for run in large]
        big = outlook(
            costs, CLUSTER, rows=BIG_ROWS, results=BIG_ROWS, row_bytes=bench.row_bytes,
            reach=120.0, span=BIG_DAYS * 86_400.0, largest_part=4e6, most_parts=2_500,
        )  # fmt: skip
        return Scale(copies, costs, timed, bench.row_bytes, big)


class _Bench:
    """Joins in one session, with Spark's own counts."""

    def __init__(self, session: Any, folder: Path, slots: int) -> None:
        self._session = session
        self._folder = folder
        self._slots = slots
        self._files = 0
        self.row_bytes = 0.0

    def _frames(self, spread: str, rows: int) -> tuple[Any, Any, list[Any]]:
        frames, times = [], []
        for side in ("left", "right"):
            chance = np.random.default_rng([self._files, rows])
            t = SPREADS[spread](chance, rows)
            table = pa.table({"t": t, side: chance.random(rows), f"{side}_n": chance.random(rows)})
            path = self._folder / f"{self._files}.parquet"
            self._files += 1
            pq.write_table(table, path)
            frames.append(self._session.read.parquet(str(path)))
            times.append(np.sort(t))
        return frames[0], frames[1], times

    def copies(self, rows: int) -> Iterator[Copies]:
        """Rows that Spark has shuffled, beside the model.  Semi joins: nobody wants all pairs of
        rows that crowd together."""
        for spread in SPREADS:
            left, right, times = self._frames(spread, rows)
            for reach, strips in ((SPAN // 1000, 8), (SPAN // 100, 8), (SPAN // 100, 32)):
                half = reach // 2
                bounds = _quantiles(times, strips)
                shuffled, _, _ = self._joined(left, right, half, bounds, how="semi")
                share = _share(times[1])
                model = (1 + replication(bounds, -half, half, share)) / 2
                yield Copies(spread, 2 * half, len(bounds) + 1, model, shuffled / (2 * rows))

    def timed_run(self, rows: int, results: int, parts: int) -> Run:
        """A join with so many results for each left row."""
        left, right, times = self._frames("even", rows)
        half = max(1, round(results * SPAN / rows / 2))
        bounds = _quantiles(times, parts)
        runs = [self._joined(left, right, half, bounds) for _ in range(REPEAT)]
        shuffled, found, seconds = min(runs, key=lambda run: run[2])
        return Run(shuffled, found, len(bounds) + 1, self._slots, seconds)

    def _joined(
        self, left: Any, right: Any, half: int, bounds: list[int], how: str = "left"
    ) -> tuple[float, int, float]:
        """Rows shuffled, results, and seconds of one join."""
        import matwin.spark
        from matwin.spark.files import consumed

        joined = matwin.spark.epsilon_join(
            left, right, on={"t": half}, how=how, strips=bounds, ship="full"
        )
        begun = time.perf_counter()
        with matwin.spark.Meter(self._session) as meter:
            results = consumed(joined)
            seconds = time.perf_counter() - begun
        rows, size = meter.shuffle_rows, meter.shuffle_bytes
        if not rows or size is None:
            raise InputError("Spark does not say what it has shuffled; switch its UI on")
        self.row_bytes = size / rows
        return rows, results, seconds


def _quantiles(times: list[Any], strips: int) -> list[int]:
    both = np.sort(np.concatenate(times))
    at = (np.arange(1, strips) * len(both)) // strips
    return [int(bound) for bound in np.unique(both[at])]


def _share(times: Any) -> Callable[[float], float]:
    return lambda value: float(np.searchsorted(times, value, side="left")) / len(times)


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def text(found: Scale) -> str:
    """Tables for a terminal."""
    lines = ["copies: rows shuffled for each row", ""]
    lines.append(f"{'rows':<12}{'reach':>9}{'strips':>8}{'model':>9}{'measured':>10}{'off':>8}")
    for one in found.copies:
        off = one.measured / one.model - 1
        lines.append(
            f"{one.spread:<12}{one.reach / SPAN:>9.2%}{one.strips:>8}{one.model:>9.3f}"
            f"{one.measured:>10.3f}{off:>8.1%}"
        )
    costs = found.costs
    lines += ["", "time: costs fitted to the first runs foretell the last", ""]
    lines.append(f"{'shuffled':>12}{'results':>12}{'parts':>7}{'model s':>9}{'measured':>10}")
    for timed in found.timed:
        run, mark = timed.run, "" if timed.is_fitted else "  foretold"
        lines.append(
            f"{run.shuffled_rows:>12,.0f}{run.results:>12,.0f}{run.parts:>7}"
            f"{timed.expected:>9.2f}{run.seconds:>10.2f}{mark}"
        )
    lines += [
        "",
        f"costs: start {costs.start:.2f} s, task {costs.task:.3f} s, row {costs.row * 1e6:.2f} µs, "
        f"result {costs.result * 1e6:.2f} µs; {found.row_bytes:.0f} bytes a shuffled row",
        "",
        _outlook(found.big),
    ]
    return "\n".join(lines)


def _outlook(big: Outlook) -> str:
    return (
        f"outlook: {BIG_ROWS:.0e} rows over {BIG_DAYS} days, ±1 minute, as many results, "
        f"{CLUSTER.executors} executors of {CLUSTER.cores} cores: {big.parts:,} parts, replication "
        f"{big.replication:.2f}, {format_size(int(big.shuffle_bytes))} shuffled, "
        f"{big.compute_seconds / 60:.0f} min of computing and {big.network_seconds / 60:.0f} min "
        "of sending"
    )


def draw(found: Scale, path: Path) -> None:
    """The model beside what was measured."""
    with plot.figure(path, (10, 4.5), 2) as (copies, times):
        for number, spread in enumerate(SPREADS):
            mine = [(one.model, one.measured) for one in found.copies if one.spread == spread]
            _dots(copies, mine, number, spread)
        _diagonal(copies, "replication factor")
        for number, label in enumerate(("foretold", "fitted")):
            runs = [t for t in found.timed if t.is_fitted == bool(number)]
            _dots(times, [(t.expected, t.run.seconds) for t in runs], number, label)
        _diagonal(times, "seconds")


def _dots(axes: Any, points: list[tuple[float, float]], number: int, label: str) -> None:
    colour, marker = plot.COLOURS[number], plot.MARKERS[number]
    axes.scatter(*zip(*points, strict=True), color=colour, marker=marker, label=label)


def _diagonal(axes: Any, what: str) -> None:
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="#AAAAAA", zorder=0)
    axes.set(title=what, xlabel="model", ylabel="measured")
    axes.legend()
