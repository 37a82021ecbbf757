"""`matwin bench asof`: as-of joins beside Polars and DuckDB, Arrow in and Arrow out.

    keys      numbers │ texts          each left row with the last right row of its key before it
    input     sorted │ in any order    Polars wants sorted input: sorting is in its time

Two threads for DuckDB and for us; Polars takes those of the machine.  All are asked in turns, the
best run of each counts, and they must find the same number of matches.  `--merge`: see `merge.py`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import matwin

from .joins import THREADS, TIME_RANGE, Timed, timed
from .measures import Disagreement
from .suite import QUICK_ROWS, check_numbers

KEYS = 1_000
POLARS, DUCKDB = "Polars join_asof", "DuckDB ASOF"


@dataclass(frozen=True, slots=True)
class Case:
    """Two tables of random times by random keys."""

    rows: int
    is_sorted: bool
    has_texts: bool
    seed: int = 0

    @property
    def name(self) -> str:
        """How it is shown."""
        return f"{'texts' if self.has_texts else 'numbers'}, {self._order}"

    @property
    def _order(self) -> str:
        return "sorted" if self.is_sorted else "in any order"

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Left and right."""
        return self._table(0, "v"), self._table(1, "w")

    def _table(self, side: int, payload: str) -> pa.Table:
        chance = np.random.default_rng((self.seed, side))
        times = chance.integers(0, TIME_RANGE, self.rows)
        keys = pa.array(chance.integers(0, KEYS, self.rows))
        return pa.table({
            "t": np.sort(times) if self.is_sorted else times,
            "k": keys.cast(pa.string()) if self.has_texts else keys,
            payload: chance.random(self.rows),
        })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A case with the times of all."""

    case: Case
    ours: Timed
    theirs: dict[str, Timed]

    def times(self, rival: str) -> float:
        """How many times as long it takes as we do."""
        return self.theirs[rival].seconds / self.ours.seconds


def ours(case: Case, left: pa.Table, right: pa.Table) -> pa.Table:
    """The join that is measured."""
    return matwin.asof_join(left, right, on="t", by="k", threads=THREADS).to_arrow()


def polars(case: Case, left: pa.Table, right: pa.Table) -> pa.Table:
    """`join_asof`, of frames that are sorted first where they are not."""
    pl: Any = import_module("polars")
    frames = [pl.from_arrow(table) for table in (left, right)]
    if not case.is_sorted:
        frames = [frame.sort("t") for frame in frames]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it can't check the order within keys
        return frames[0].join_asof(frames[1], on="t", by="k").to_arrow()


def duckdb_asof(case: Case, left: pa.Table, right: pa.Table) -> pa.Table:
    """ASOF LEFT JOIN."""
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.register("l", left)
        connection.register("r", right)
        return connection.sql(
            "SELECT l.*, r.t AS t_right, w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.t >= r.t"
        ).to_arrow_table()


RIVALS: dict[str, Callable[[Case, pa.Table, pa.Table], pa.Table]] = {
    POLARS: polars, DUCKDB: duckdb_asof,
}  # fmt: skip


def measure(case: Case, repeat: int, rivals: list[str]) -> Row:
    """All in turns, so that what else the machine does meets all of them."""
    left, right = case.tables()
    best: dict[str, Timed] = {}
    for _ in range(repeat):
        for name, run in (("MatWin", ours), *((name, RIVALS[name]) for name in rivals)):
            found = timed(lambda run=run: _matches(run(case, left, right)))  # type: ignore[misc]
            best[name] = min(best.get(name, found), found, key=lambda one: one.seconds)
    mine = best.pop("MatWin")
    for name, found in best.items():
        if found.rows_out != mine.rows_out:
            raise Disagreement(f"{case.name}: {name} {found.rows_out}, MatWin {mine.rows_out}")
    return Row(case, mine, best)


def _matches(found: pa.Table) -> int:
    return int(found.num_rows - found["w"].null_count)


def cases(rows: int, seed: int) -> Iterator[Case]:
    """Keys that are numbers and texts, sorted and not."""
    for has_texts in (False, True):
        for is_sorted in (True, False):
            yield Case(rows, is_sorted, has_texts, seed)


def text(rows: list[Row], rivals: list[str]) -> str:
    """A line for each case."""
    head = f"{'as-of join by keys':<24}{'rows a side':>12}{'MatWin s':>10}"
    head += "".join(f"{f'{name} s':>20}{'times':>8}" for name in rivals)
    lines = [head, "─" * len(head)]
    for row in rows:
        line = f"{row.case.name:<24}{row.case.rows:>12,}{row.ours.seconds:>10.3f}"
        for name in rivals:
            line += f"{row.theirs[name].seconds:>20.3f}{row.times(name):>7.1f}×"
        lines.append(line)
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_numbers(args)
    size = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    if args.merge:
        from . import merge  # here: it is made of this module's cases

        merged = list(merge.measure(size, args.repeat, args.seed))
        as_json = json.dumps([asdict(row) for row in merged], indent=2)
        print(as_json if args.json else merge.text(merged))
        return 0
    names = [DUCKDB] if find_spec("polars") is None else [POLARS, DUCKDB]
    rows = [measure(case, args.repeat, names) for case in cases(size, args.seed)]
    if args.json:
        found = [{"name": r.case.name, **asdict(r)} for r in rows]
        print(json.dumps(found, indent=2))
    else:
        print(text(rows, names))
    return 0
