"""`matwin bench large`: a keyed window join of Parquet files that are many times the memory.

    portions ─▶ two Parquet files ─▶ child: joined in 512 MiB, the results counted ─▶ rows a second
                                                    a tenth of the rows first, then all of them

100M rows a side are 6.4 GB of files: four numbers a row, not compressed, in no order.  They are
written a portion at a time, one side after the other, and removed when they have been joined, so
that this process stays small too.  Both sizes get the same memory.

The ε-join of `--epsilon` files fits in memory; `--beside` names the Python of another installation,
which joins the same files in turn, so that two versions can be compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from matwin.storage.errors import InputError
from matwin.storage.units import format_size, parse_size

from .joins import Case, Timed
from .measures import better, check
from .progress import Progress, begin
from .suite import TOO_SMALL, check_numbers, missed
from .tenth import Setting, Tenth, in_child
from .window_cases import WindowCase

EPSILON_ROWS = (4_000_000, 10_000_000)
QUICK_ROWS, QUICK_MEMORY = 40_000, "1MiB"
PORTION_ROWS = 1 << 20
ROW_BYTES = 32
LESS = 10
"""The smaller join has so many times fewer rows."""
TIMES, FASTER = 1.5, 1.5
EPSILON_REPEAT = 3
SCRIPT = """
import json, sys, time, matwin
told = json.loads(sys.argv[1])
def joined():
    start = time.perf_counter()
    found = matwin.epsilon_join(*told["paths"], on=told["on"], memory=told["memory"], threads=2)
    rows = sum(batch.num_rows for batch in found)
    return time.perf_counter() - start, rows
print(json.dumps(min(joined() for _ in range(told["repeat"]))))
"""
"""Only what every version has; the first run compiles and loads, the best counts."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One size, and its time for a row as a multiple of the smaller size's."""

    case: Case
    found: Tenth
    times: float | None = None

    @property
    def rows_a_second(self) -> float:
        """Input rows of both sides."""
        return 2 * self.case.rows / self.found.seconds


@dataclass(frozen=True, slots=True)
class InMemory:
    """An ε-join of files, here and by another installation."""

    case: Case
    ours: Timed
    theirs: Timed | None

    @property
    def faster(self) -> float | None:
        """How many times as fast as the other installation we are."""
        return None if self.theirs is None else self.theirs.seconds / self.ours.seconds


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    check_numbers(args)
    rows = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    memory = parse_size(QUICK_MEMORY if args.quick else args.memory)
    usual = (QUICK_ROWS,) if args.quick else EPSILON_ROWS
    sizes = usual if args.epsilon is None else args.epsilon
    progress = Progress(2 + len(sizes))
    try:
        large = list(joined(rows, memory, args.seed, args.scratch, progress))
        small = [in_memory(size, args.seed, args.scratch, args.beside) for size in sizes]
    finally:
        progress.clear()
    if args.json:
        print(json.dumps(as_json(large, small), indent=2))
    else:
        tables = [large_table(large), epsilon_table(small) if small else ""]
        print("\n\n".join(part for part in [*tables, TOO_SMALL * args.quick] if part))
    return 0


# ── measuring ────────────────────────────────────────────────────────────────────────────────


def joined(
    rows: int, memory: int, seed: int, scratch: str | None, progress: Progress
) -> Iterator[Joined]:
    """A tenth of the rows, then all of them."""
    before: Joined | None = None
    for number, size in enumerate((max(rows // LESS, 1), rows), 1):
        progress.say(number, f"window join, {size:,} rows a side")
        case = WindowCase("window", size, 10, keys=1_000, row_bytes=ROW_BYTES, seed=seed)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="matwin-bench-") as folder:
            paths = written(case, Path(folder))
            found = in_child(case, Setting(1, scratch, memory, paths=paths))
        row = Joined(case, found)
        if before is not None:
            row = replace(row, times=before.rows_a_second / row.rows_a_second)
        yield row
        before = row


def written(case: Case, folder: Path) -> tuple[str, str]:
    """Both sides as Parquet files, made a portion at a time."""
    left, right = (_written(case, side, folder / f"{side}.parquet") for side in (0, 1))
    return left, right


def _written(case: Case, side: int, path: Path) -> str:
    writer: pq.ParquetWriter | None = None
    for number, start in enumerate(range(0, case.rows, PORTION_ROWS)):
        rows = min(PORTION_ROWS, case.rows - start)
        # Times and keys are drawn from the same ranges whatever the rows, as no case here grows.
        table = replace(case, rows=rows, seed=case.seed * 10_000 + number).table(side)
        writer = writer or pq.ParquetWriter(
            path, table.schema, compression="none", use_dictionary=False
        )
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return str(path)


def in_memory(rows: int, seed: int, scratch: str | None, beside: str | None) -> InMemory:
    """An ε-join of files that fits in memory, here and by another installation."""
    case = Case("epsilon", rows, 10, dimensions=1, row_bytes=ROW_BYTES, seed=seed)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="matwin-bench-") as folder:
        paths = written(case, Path(folder))
        memory = max(16 * sum(Path(path).stat().st_size for path in paths), 1 << 30)
        told = {"paths": paths, "on": case.on, "memory": memory, "repeat": EPSILON_REPEAT}
        ours = _by(sys.executable, told)
        theirs = None if beside is None else _by(beside, told)
        if theirs is not None:  # before and after, whatever else the machine does
            ours = better(ours, _by(sys.executable, told))
    if theirs is not None:
        check(case, "the other installation", ours.rows_out, theirs.rows_out)
    return InMemory(case, ours, theirs)


def _by(python: str, told: dict[str, Any]) -> Timed:
    try:
        done = subprocess.run(
            # -P: a checkout in the working folder must not stand before the installed version.
            [python, "-P", "-c", SCRIPT, json.dumps(told)],
            capture_output=True,
            text=True,
        )
    except OSError as e:
        raise InputError(f"--beside {python}: {e.strerror}") from e
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InputError(f"{python}: the join of Parquet files: {last[0]}")
    return Timed(*json.loads(done.stdout))


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def large_table(rows: list[Joined]) -> str:
    """Both sizes."""
    head = (
        f"{'Parquet files':<20}{'rows a side':>13}{'files':>10}{'memory':>10}{'out a row':>10}"
        f"{'s':>10}{'M rows/s':>10}  {'way':<14}{'peak':>10}{'a row':>9}"
    )
    lines = [head, "─" * len(head)]
    for row in rows:
        found, times = row.found, row.times
        cost = "" if times is None else f"{times:.2f}×{missed(times > TIMES)}"
        lines.append(
            f"{row.case.name:<20}{row.case.rows:>13,}{format_size(found.data_bytes):>10}"
            f"{format_size(found.budget_bytes):>10}{found.rows_out / row.case.rows:>10.1f}"
            f"{found.seconds:>10.2f}{row.rows_a_second / 1e6:>10.2f}  {found.way:<14}"
            f"{format_size(found.peak_bytes):>10}{cost:>9}"
        )
    lines.append(f"to reach: {TIMES:g}× the smaller join's time for a row; ! marks what misses it")
    return "\n".join(lines)


def epsilon_table(rows: list[InMemory]) -> str:
    """ε-joins in memory."""
    head = f"{'Parquet files':<20}{'rows a side':>13}{'s':>10}{'M rows/s':>10}{'beside s':>10}"
    head += f"{'faster':>9}"
    lines = [head, "─" * len(head)]
    for row in rows:
        theirs, faster = row.theirs, row.faster
        other = ""
        if theirs is not None and faster is not None:
            other = f"{theirs.seconds:>10.2f}{faster:>7.2f}×{missed(faster < FASTER)}"
        rate = 2 * row.case.rows / row.ours.seconds / 1e6
        lines.append(
            f"{row.case.name:<20}{row.case.rows:>13,}{row.ours.seconds:>10.2f}{rate:>10.2f}{other}"
        )
    lines.append(f"in memory; to reach: {FASTER:g}× as fast as before, which --beside PYTHON joins")
    return "\n".join(lines)


def as_json(large: list[Joined], small: list[InMemory]) -> dict[str, Any]:
    """Everything, with the ratios."""
    return {
        "large": [
            {**asdict(row), "rows_a_second": row.rows_a_second, "way": row.found.way}
            for row in large
        ],
        "epsilon": [{**asdict(row), "faster": row.faster} for row in small],
    }


if __name__ == "__main__":
    sys.exit("run it as: matwin bench large")
