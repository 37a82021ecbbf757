"""`matwin bench spark`: joins on Spark beside Spark SQL's own plans and beside the embedded joins.

    beside      window joins with keys, ε-joins without, bestmatch joins: Spark SQL as one writes
                the question and by exploded cells; ASOF JOIN and NEAREST BY where they can say it
    embedded    five times the rows, with and without Spark
    ship        bytes shuffled, whole rows and partial ones
    executors   one and two

All but the last is one session on ``local[2]``: two tasks at a time in one JVM, which is the best
that two cores allow Spark SQL, because nothing is sent between processes.  Inputs are the same
Parquet files for both sides; results go to Spark's ``noop`` sink.  Executors are processes of a
local cluster with one core each.

A range join tests all pairs of a key.  Where that takes too long it gets fewer rows, and we the
same.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matwin.storage.errors import InputError
from matwin.storage.units import format_size
from matwin.tools.spark_words import spark_module

from . import plot, suite
from .arguments import SPARK_PARTS
from .progress import Progress, begin
from .spark_data import SparkCase
from .spark_measures import Bench, Overhead, Scaled, Shipped, SparkBeside, SparkVersus, scaled
from .spark_rivals import (
    ASOF,
    CELLS,
    CELLS_FIRST,
    CELLS_NOT_EXISTS,
    CELLS_WINDOWED,
    NEAREST,
    PLAIN,
    PLAIN_NOT_EXISTS,
    PLAIN_WINDOWED,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MASTER = "local[2]"
CONF = {
    "spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",  # rows are narrow: docs/SPARK.md
}  # fmt: skip
BEST_ROWS = 20_000
TIMES_EMBEDDED = 2.5
EXECUTOR_MIB = 2048


@dataclass(frozen=True, slots=True)
class SparkFound:
    """What came out."""

    beside: list[SparkBeside] = field(default_factory=list)
    overhead: list[Overhead] = field(default_factory=list)
    shipped: list[Shipped] = field(default_factory=list)
    scaled: list[Scaled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    for name in ("rows", "repeat"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} {getattr(args, name)}: give a number from 1 on")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: give a number from 0 on")
    path = None if args.plot is None else plot.plot_path(args.plot)
    found = measure(args.rows, args.only or SPARK_PARTS, args.repeat, args.seed, args.scratch)
    if path is not None:
        draw(found, path)
    print(json.dumps(as_json(found), indent=2) if args.json else text(found))
    return 0


def questions(rows: int, seed: int) -> dict[str, list[tuple[SparkCase, list[SparkVersus]]]]:
    """What is asked beside Spark SQL, by part; a part of the rows where a plan tests all pairs."""
    few = min(rows, BEST_ROWS)
    half = few // 2 or 1
    tenth = max(rows // 10, 1)
    return {
        "window": [
            (
                SparkCase("window", rows, 10, keys=1_000, seed=seed),
                [SparkVersus(CELLS, rows, 2), SparkVersus(PLAIN, rows, 2)],
            ),
            (
                SparkCase("window", rows, 10, keys=10, seed=seed),
                [SparkVersus(CELLS, rows, 20), SparkVersus(PLAIN, rows // 5 or 1, 20)],
            ),
        ],
        "epsilon": [
            (
                SparkCase("epsilon", rows, 9, dimensions=dimensions, seed=seed),
                [SparkVersus(CELLS, rows, 20), SparkVersus(PLAIN, tenth, 20)],
            )
            for dimensions in (2, 1)
        ],
        "bestmatch": [
            (
                SparkCase("bestmatch", few, 32, dimensions=2, seed=seed),
                [
                    SparkVersus(CELLS_WINDOWED, few, 50),
                    SparkVersus(CELLS_NOT_EXISTS, few, 50),
                    SparkVersus(PLAIN_WINDOWED, few, 50),
                    SparkVersus(PLAIN_NOT_EXISTS, few, 50),
                ],
            ),
            (
                SparkCase("before", rows, 10, keys=1_000, seed=seed),
                [SparkVersus(ASOF, rows), SparkVersus(CELLS_FIRST, tenth)],
            ),
            (SparkCase("asof", rows, 10, keys=1_000, seed=seed), [SparkVersus(ASOF, rows)]),
            (
                SparkCase("bestmatch", tenth, 32, dimensions=2, seed=seed),
                [SparkVersus(CELLS_WINDOWED, tenth), SparkVersus(PLAIN_WINDOWED, tenth)],
            ),
            (SparkCase("nearest", half, 20, seed=seed), [SparkVersus(NEAREST, half)]),
        ],
    }


# ── measuring ────────────────────────────────────────────────────────────────────────────────


def measure(
    rows: int, parts: tuple[str, ...] | list[str], repeat: int, seed: int, scratch: str | None
) -> SparkFound:
    """All of it."""
    session = spark_module("matwin.spark.session")
    found = SparkFound()
    with tempfile.TemporaryDirectory(prefix="matwin-bench-", dir=scratch) as folder:
        if set(parts) - {"executors"}:
            with session.failures_told(), session.started(MASTER, CONF) as spark:
                found.notes.append(_setting(spark))
                steps(Bench(spark, Path(folder), repeat), parts, rows, seed, found)
        if "executors" in parts:
            case = SparkCase("window", rows, 10, keys=1_000, seed=seed)
            for executors in (1, 2):
                done = scaled(case, executors, EXECUTOR_MIB, Path(folder), repeat)
                found.scaled.append(done)
    return found


def steps(
    bench: Bench, parts: tuple[str, ...] | list[str], rows: int, seed: int, found: SparkFound
) -> None:
    """Everything that one session can do."""
    asked = questions(rows, seed)
    work: list[tuple[str, Callable[[], object]]] = []
    for part in parts:
        for case, against in asked.get(part, ()):
            work.append((f"{case.name}, beside Spark SQL", _beside(bench, case, against, found)))
    if "embedded" in parts:
        for matches in (10, 1):
            case = SparkCase("window", 5 * rows, matches, keys=1_000, seed=seed)
            work.append((f"{case.name}, with and without Spark", _overhead(bench, case, found)))
    if "ship" in parts:
        case = SparkCase("epsilon", max(rows // 4, 1), 0.05, keys=1_000, payload=400, seed=seed)
        for ship in ("full", "partial"):
            work.append((f"{case.name}, {ship}", _shipped(bench, case, ship, found)))
    progress = Progress(len(work))
    try:
        for number, (name, step) in enumerate(work, 1):
            progress.say(number, name)
            step()
    finally:
        progress.clear()


def _beside(
    bench: Bench, case: SparkCase, against: list[SparkVersus], found: SparkFound
) -> Callable[[], None]:
    def step() -> None:
        for row in bench.beside(against, case):
            if isinstance(row, str):
                found.notes.append(row)
            else:
                found.beside.append(row)

    return step


def _overhead(bench: Bench, case: SparkCase, found: SparkFound) -> Callable[[], None]:
    return lambda: found.overhead.append(bench.overhead(case))


def _shipped(bench: Bench, case: SparkCase, ship: str, found: SparkFound) -> Callable[[], None]:
    return lambda: found.shipped.append(bench.shipped(case, ship))


def _setting(spark: Any) -> str:
    return (
        f"Spark {spark.version} on {spark.conf.get('spark.master')}, Python "
        f"{platform.python_version()}, {spark.conf.get('spark.sql.shuffle.partitions')} shuffle "
        "partitions; Parquet files in, the noop sink out; the best of the runs counts"
    )


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def text(found: SparkFound) -> str:
    """The tables."""
    parts = [
        suite.beside_table(found) if found.beside else "",  # type: ignore[arg-type]  # the same rows
        _overhead_table(found.overhead), _shipped_table(found.shipped), _scaled_table(found.scaled),
        "\n".join(dict.fromkeys(found.notes)),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def _overhead_table(rows: list[Overhead]) -> str:
    if not rows:
        return ""
    head = (
        f"{'with and without Spark':<36}{'rows a side':>12}{'out a row':>10}{'Spark s':>10}"
        f"{'embedded s':>12}{'times':>8}"
    )
    lines = [head, "─" * len(head)]
    for row in rows:
        lines.append(
            f"{row.case.name:<36}{row.case.rows:>12,}{row.ours.rows_out / row.case.rows:>10.1f}"
            f"{row.ours.seconds:>10.3f}{row.embedded.seconds:>12.3f}{row.times:>7.1f}×"
            f"{suite.missed(row.times > TIMES_EMBEDDED)}"
        )
    return "\n".join([*lines, f"to reach: {TIMES_EMBEDDED:g}× the time of the embedded join"])


def _shipped_table(rows: list[Shipped]) -> str:
    if not rows:
        return ""
    head = f"{'ship':<12}{'rows a side':>12}{'out a row':>10}{'s':>10}{'shuffled':>12}  question"
    lines = [head, "─" * len(head)]
    for row in rows:
        size = "?" if row.shuffle_bytes is None else format_size(row.shuffle_bytes)
        lines.append(
            f"{row.ship:<12}{row.case.rows:>12,}{row.ours.rows_out / row.case.rows:>10.2f}"
            f"{row.ours.seconds:>10.3f}{size:>12}  {row.case.name}"
        )
    return "\n".join(lines)


def _scaled_table(rows: list[Scaled]) -> str:
    if not rows:
        return ""
    head = f"{'executors, one core each':<28}{'rows a side':>12}{'s':>10}{'times':>8}  question"
    lines = [head, "─" * len(head)]
    for row in rows:
        times = rows[0].ours.seconds / row.ours.seconds
        lines.append(
            f"{row.executors:<28}{row.case.rows:>12,}{row.ours.seconds:>10.3f}{times:>7.2f}×"
            f"  {row.case.name}"
        )
    return "\n".join(lines)


def as_json(found: SparkFound) -> dict[str, Any]:
    """Everything, with the ratios."""
    return {
        "beside": [{"name": r.case.name, **asdict(r), "times": r.times} for r in found.beside],
        "embedded": [{"name": r.case.name, **asdict(r), "times": r.times} for r in found.overhead],
        "ship": [{"name": r.case.name, **asdict(r)} for r in found.shipped],
        "executors": [{"name": r.case.name, **asdict(r)} for r in found.scaled],
        "notes": found.notes,
    }


# ── plot ─────────────────────────────────────────────────────────────────────────────────────


def draw(found: SparkFound, path: Path) -> None:
    """Times beside Spark SQL as bars; Spark beside the embedded joins, bytes and executors too."""
    with plot.figure(path, (15, max(4.2, 0.42 * len(found.beside) + 1.4)), 3) as panels:
        if found.beside:
            suite._draw_beside(panels[0], found.beside)  # type: ignore[arg-type]  # the same rows
            panels[0].set_title("Times as fast as Spark SQL")
        _draw_seconds(panels[1], found)
        _draw_bytes(panels[2], found.shipped)


def _draw_seconds(axes: Axes, found: SparkFound) -> None:
    bars: list[tuple[str, float]] = []
    for row in found.overhead:
        name = f"{suite._short(row.case.rows)} rows, {row.case.matches:g} a row"
        bars += [(f"Spark\n{name}", row.ours.seconds), (f"embedded\n{name}", row.embedded.seconds)]
    for scale in found.scaled:
        plural = "s" if scale.executors > 1 else ""
        name = f"{scale.executors} executor{plural}\n{suite._short(scale.case.rows)} rows"
        bars.append((name, scale.ours.seconds))
    _bars(axes, bars, "{:.2g} s")
    axes.set_title("Beside the embedded join; executors")
    axes.set_xlabel("seconds, window join with 1,000 keys")


def _draw_bytes(axes: Axes, rows: list[Shipped]) -> None:
    known = [(row.ship, row.shuffle_bytes) for row in rows if row.shuffle_bytes is not None]
    _bars(axes, [(f'ship="{ship}"', size / 1e6) for ship, size in known], "{:.3g} MB")
    axes.set_title("Shuffled, long rows that rarely match")
    axes.set_xlabel("megabytes")


def _bars(axes: Axes, bars: list[tuple[str, float]], label: str) -> None:
    at = range(len(bars))
    drawn = axes.barh(at, [value for _, value in bars], color=plot.COLOURS[6], height=0.55)
    axes.bar_label(drawn, [label.format(value) for _, value in bars], padding=3, fontsize=8.5)
    axes.set_yticks(list(at), [name for name, _ in bars], fontsize=8)
    axes.margins(x=0.18)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_axisbelow(True)


if __name__ == "__main__":
    sys.exit("run it as: matwin bench spark")
