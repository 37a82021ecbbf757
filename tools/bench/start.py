"""`matwin bench start`: what a process's first join costs, beside those of Polars and DuckDB.

    cold       nothing compiled yet: a new folder for compiled kernels
    warm       the same in a new process, with what the cold one has kept
    few rows   three rows a side: no compiled code

Every figure is of a process of its own that reads two Arrow files and joins them: the CPU time
of the whole process, Python and imports included, and its resident memory after the join.  Files
are read by pyarrow; tables made of NumPy's arrays would import pandas, which takes 0.2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa

from matwin.storage.errors import MatwinError

from .suite import QUICK_ROWS, check_numbers

FEW = 3
_READ = """
import pyarrow as pa, sys
from pyarrow import ipc
left, right = (ipc.open_file(pa.memory_map(path)).read_all() for path in sys.argv[1:3])
"""
_TOLD = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
held = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")]
print(json.dumps([used.ru_utime + used.ru_stime, int(held[0]) / 1024, rows]))
"""
_OURS = "import matwin\nrows = matwin.{}.read_all().num_rows"
JOINS = {
    "bestmatch": _OURS.format('bestmatch_join(left, right, on={"t": 50, "x": 0.5})'),
    "bestmatch, inner": _OURS.format(
        'bestmatch_join(left, right, on={"t": 50, "x": 0.5}, how="inner")'
    ),
    "bestmatch, full": _OURS.format(
        'bestmatch_join(left, right, on={"t": 50, "x": 0.5}, how="full")'
    ),
    "ε": _OURS.format('epsilon_join(left, right, on={"t": 20, "x": 0.5})'),
    "as-of": _OURS.format('asof_join(left, right, on="t", by="k")'),
    "window": _OURS.format('window_join({"a": left, "b": right}, time="t", windows=20, by="k")'),
}
RIVALS = {
    "Polars as-of": """
import polars as pl, warnings
warnings.simplefilter("ignore")
one, other = (pl.from_arrow(table) for table in (left, right))
rows = one.join_asof(other, on="t", by="k").to_arrow().num_rows
""",
    "DuckDB as-of": """
import duckdb
rows = duckdb.sql(
    'SELECT l.*, r.x FROM "left" l ASOF LEFT JOIN "right" r ON l.k = r.k AND l.t >= r.t'
).to_arrow_table().num_rows
""",
}


@dataclass(frozen=True, slots=True)
class Start:
    """A process with one join."""

    cpu_seconds: float
    resident_mib: float
    rows_out: int


@dataclass(frozen=True, slots=True)
class Row:
    """A join in all its processes; rivals compile nothing."""

    name: str
    cold: Start | None
    warm: Start
    few: Start


def measure(folder: Path, rows: int, repeat: int, seed: int) -> Iterator[Row]:
    """Ours, each with a folder of its own for compiled kernels, then the others."""
    many, few = (_files(folder, count, seed) for count in (rows, FEW))
    for name, code in JOINS.items():
        kept = folder / name
        cold = first_join(code, many, kept)
        warm = min((first_join(code, many, kept) for _ in range(repeat)), key=_cpu)
        yield Row(name, cold, warm, first_join(code, few, kept))
    for name, code in RIVALS.items():
        if find_spec(name.split()[0].lower()) is not None:
            warm = min((first_join(code, many, folder) for _ in range(repeat)), key=_cpu)
            yield Row(name, None, warm, first_join(code, few, folder))


def _cpu(start: Start) -> float:
    return start.cpu_seconds


def first_join(code: str, files: list[Path], kept: Path) -> Start:
    """A new process that joins two files and keeps what it compiles in a folder."""
    child = subprocess.run(
        [sys.executable, "-c", _READ + code + _TOLD, *map(str, files)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kept)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode:
        raise MatwinError(f"a process failed: {child.stderr[-500:]}")
    return Start(*json.loads(child.stdout))


def _files(folder: Path, rows: int, seed: int) -> list[Path]:
    made = []
    for side in (0, 1):
        chance = np.random.default_rng((seed, side))
        table = pa.table({
            "t": np.sort(chance.integers(0, 10 * rows, rows)),
            "x": chance.random(rows),
            "k": chance.integers(0, 100, rows),
        })  # fmt: skip
        made.append(folder / f"{rows}-{side}.arrow")
        with pa.OSFile(str(made[-1]), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return made


def text(rows: list[Row]) -> str:
    """A line for each join."""
    kinds = ("cold", "warm", "few rows")
    head = f"{'first join of a process':<26}"
    head += "".join(f"{f'{kind} s':>12}{'MiB':>6}" for kind in kinds)
    lines = [head, "─" * len(head)]
    for row in rows:
        line = f"{row.name:<26}"
        for start in (row.cold, row.warm, row.few):
            line += (
                f"{start.cpu_seconds:>12.2f}{start.resident_mib:>6.0f}"
                if start is not None
                else f"{'–':>12}{'':>6}"
            )
        lines.append(line)
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_numbers(args)
    size = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    with tempfile.TemporaryDirectory(prefix="matwin-start-") as folder:
        rows = list(measure(Path(folder), size, args.repeat, args.seed))
    print(json.dumps([asdict(row) for row in rows], indent=2) if args.json else text(rows))
    return 0
