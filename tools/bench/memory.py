"""`matwin bench memory`: finite joins with a tenth of the data as memory, and all of it in memory.

    case ─┬─▶ child: everything fits        ─┐
          ├─▶ child: a tenth of the data     ├─▶ seconds, times, the way that was taken, peaks
          └─▶ child: DuckDB by cells, a tenth┘   row counts that differ are an error

Each run has a process of its own, Arrow in and Arrow out, drained.  Rows of 48 bytes in no order,
about ten matches each.  The last case is the one whose order attribute is the wrong one to cut by:
`on={"t": 0.5, "x": 2e-6}` with 8M rows a side in 64 MiB; other sizes keep candidates and share.

DuckDB gets the same limit, a folder to spill to and two threads.  Where it gives up for lack of
memory it *fails*; where it takes longer than `--timeout`, it is *cut*.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from matwin.storage.errors import InputError
from matwin.storage.units import format_size

from .joins import Case
from .measures import check
from .progress import Progress, begin
from .suite import QUICK_ROWS, TOO_SMALL, check_numbers, missed
from .tenth import OUT_OF_MEMORY, Setting, Tenth, in_child
from .window_cases import CHAIN, CLIQUE, WindowCase

TIMES, NARROW_TIMES = 1.5, 2.0
BESIDE_BYTES = 120_000_000
"""What the process may take beside its budget."""
ROW_BYTES = 48
NARROW_ROWS, NARROW_BYTES = 8_000_000, 64 << 20
FAILS, CUT = "fails", "cut"


@dataclass(frozen=True, slots=True)
class Asked:
    """A case, the memory that it gets (None is a tenth of the data), and the time that it may take
    as a multiple of the time in memory."""

    case: Case
    reach: float = TIMES
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """One case in memory, in little memory, and DuckDB's in as little."""

    asked: Asked
    memory: Tenth
    tenth: Tenth
    duckdb: Tenth | str | None
    """A text: why it has no time; None: it was not asked."""

    @property
    def times(self) -> float:
        """The time in little memory as a multiple of the time in memory."""
        return self.tenth.seconds / self.memory.seconds

    @property
    def ahead(self) -> float | None:
        """How many times as fast as DuckDB we are in as little memory."""
        duckdb = self.duckdb
        return duckdb.seconds / self.tenth.seconds if isinstance(duckdb, Tenth) else None


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    begin(args)
    check_numbers(args)
    rows = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    every = [asked for asked in asked_of(rows, args.seed) if args.only in asked.case.name]
    if not every:
        raise InputError(f"--only {args.only!r}: no case has this in its name")
    setting = Setting(args.repeat, args.scratch)
    found = list(measure(every, setting, None if args.no_duckdb else args.timeout))
    print(json.dumps([_as_json(row) for row in found], indent=2) if args.json else table(found))
    if args.quick and not args.json:
        print(TOO_SMALL)
    return 0


def asked_of(rows: int, seed: int = 0) -> list[Asked]:
    """All cases with so many rows a side."""
    plane = Case("epsilon", rows, 10, row_bytes=ROW_BYTES, seed=seed)
    keyed = replace(plane, keys=1_000)
    window = WindowCase("window", rows, 10, keys=1_000, row_bytes=ROW_BYTES, seed=seed)
    best = [replace(plane, join="bestmatch", how=how) for how in ("left", "right", "full", "inner")]
    shapes = [(2, CLIQUE), (3, CHAIN), (3, CLIQUE), (4, CHAIN), (4, CLIQUE)]
    windows = [replace(window, streams=streams, shape=shape) for streams, shape in shapes]
    cases = [replace(plane, dimensions=1), plane, keyed, *best, *windows]
    narrow_rows = min(8 * rows, NARROW_ROWS)
    narrow = Case("bestmatch", narrow_rows, 24, is_narrow=True, seed=seed)
    memory = NARROW_BYTES * narrow_rows // NARROW_ROWS
    return [*map(Asked, cases), Asked(narrow, NARROW_TIMES, memory)]


def measure(every: list[Asked], setting: Setting, timeout: float | None) -> Iterator[Answered]:
    """Each case three times; without a timeout, DuckDB is not asked."""
    progress = Progress(len(every))
    try:
        for number, asked in enumerate(every, 1):
            progress.say(number, asked.case.name)
            yield answered(asked, setting, timeout)
    finally:
        progress.clear()


def answered(asked: Asked, setting: Setting, timeout: float | None) -> Answered:
    """One case."""
    case, little = asked.case, replace(setting, memory=asked.memory)
    memory = in_child(case, replace(setting, is_roomy=True))
    tenth = in_child(case, little)
    check(case, "little memory", memory.rows_out, tenth.rows_out)
    duckdb = None if timeout is None else _duckdb(case, little, timeout)
    if isinstance(duckdb, Tenth):
        check(case, "DuckDB", memory.rows_out, duckdb.rows_out)
    return Answered(asked, memory, tenth, duckdb)


def _duckdb(case: Case, setting: Setting, timeout: float) -> Tenth | str:
    try:
        return in_child(case, replace(setting, is_duckdb=True, repeat=1), timeout)
    except TimeoutError:
        return CUT
    except InputError as e:
        if OUT_OF_MEMORY in str(e):
            return FAILS
        raise


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def table(found: list[Answered]) -> str:
    """All cases."""
    head = (
        f"{'a tenth of the memory':<28}{'rows a side':>12}{'out a row':>10}{'data':>10}"
        f"{'memory':>10}{'in memory s':>12}{'s':>9}{'times':>8}{'to reach':>9}  {'way':<14}"
        f"{'peak':>10} {'in memory':>10}{'DuckDB s':>10}{'ahead':>8}"
    )
    lines = [head, "─" * len(head), *map(_line, found)]
    lines.append(
        f"to reach as well: a peak of memory + {BESIDE_BYTES / 1e6:.0f} MB, ahead of DuckDB by "
        "cells in the same memory; ! marks what misses it; peaks of the process, above its start"
    )
    if any(row.asked.memory is None and not row.tenth.is_a_tenth for row in found):
        lines.append("small tables get the least memory that works, which is more than a tenth")
    return "\n".join(lines)


def _line(row: Answered) -> str:
    case, tenth = row.asked.case, row.tenth
    is_above = tenth.peak_bytes > tenth.budget_bytes + BESIDE_BYTES
    return (
        f"{case.name:<28}{case.rows:>12,}{tenth.rows_out / case.rows:>10.1f}"
        f"{format_size(tenth.data_bytes):>10}{format_size(tenth.budget_bytes):>10}"
        f"{row.memory.seconds:>12.2f}{tenth.seconds:>9.2f}{row.times:>7.2f}×"
        f"{row.asked.reach:>7g}×{missed(row.times > row.asked.reach) or ' '}  {tenth.way:<14}"
        f"{format_size(tenth.peak_bytes):>10}{missed(is_above) or ' '}"
        f"{format_size(row.memory.peak_bytes):>10}{_duckdb_text(row)}"
    )


def _duckdb_text(row: Answered) -> str:
    if isinstance(row.duckdb, Tenth) and row.ahead is not None:
        mark = missed(row.ahead < 1) or " "
        return f"{row.duckdb.seconds:>10.2f}{row.ahead:>6.1f}×{mark}"
    return f"{row.duckdb or '':>10}"


def _as_json(row: Answered) -> dict[str, Any]:
    ratios = {"times": row.times, "ahead": row.ahead, "way": row.tenth.way}
    return {"name": row.asked.case.name, **asdict(row), **ratios}


if __name__ == "__main__":
    sys.exit("run it as: matwin bench memory")
