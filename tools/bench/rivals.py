"""Others that answer the same question: DuckDB, scipy, Polars, and the paper's nested loops.

    duckdb        the question as one writes it: a band, an equality, NOT EXISTS for bestmatch
    duckdb_cells  DuckDB at its best: rows joined by grid cell, window functions for bestmatch
    ckdtree       a k-d tree of the right side, asked for the neighbours of every left row
    polars        join_where in its streaming engine
    nested_loops  algorithm 1 of the bestmatch paper with the tolerances tested first, compiled

Each takes both tables and returns the number of rows it found.  Building what it needs (a tree,
cells) is in its time, as sorting is in ours.  Two threads each.  scipy and Polars are extras; where
they are not installed, `missing` says so and the row is left out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .joins import THREADS, Case, drain

BATCH_ROWS = 1 << 16
_LEFT, _RIGHT = "PARTITION BY id_left", "PARTITION BY id_right"
PARTITIONS = {"left": [_LEFT], "right": [_RIGHT], "full": [_LEFT, _RIGHT], "inner": [""]}
"""Among which pairs a pair has to be the best one; of the first or of the second."""
Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
OutOfMemory = duckdb.OutOfMemoryException
Work = Callable[[Case, pa.Table, pa.Table], int]


@dataclass(frozen=True, slots=True)
class Rival:
    """How it is called, what runs it, and the package that it needs."""

    name: str
    run: Work
    package: str | None = None

    @property
    def missing(self) -> str | None:
        """What to install, if it is not there."""
        if self.package is None or find_spec(self.package) is not None:
            return None
        return (
            f"{self.name}: left out, {self.package} is not installed (pip install 'matwin[bench]')"
        )


# ── DuckDB ───────────────────────────────────────────────────────────────────────────────────


def _ask(left: pa.Table, right: pa.Table, text: str) -> int:
    database = _database()
    database.register("left_rows", left)
    database.register("right_rows", right)
    return drain(database.sql(text).to_arrow_reader(BATCH_ROWS))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Opened once: that takes 15 ms and is no part of a join."""
    database = duckdb.connect()
    database.execute(f"SET threads = {THREADS}")
    database.execute("SET enable_progress_bar = false")
    return database


def limit(memory: int, scratch: str | None) -> None:
    """Give DuckDB so many bytes, and a folder for what does not fit."""
    database = _database()
    database.execute(f"SET memory_limit = '{memory}B'")
    database.execute("SET preserve_insertion_order = false")  # takes less
    folder = str(Path(scratch or tempfile.gettempdir()) / f"duckdb-{os.getpid()}")
    database.execute("SET temp_directory = $folder", {"folder": folder})


def _columns(left: pa.Table, right: pa.Table) -> str:
    ours = [f"l.{name} AS {name}_left" for name in left.column_names]
    return ", ".join(ours + [f"r.{name} AS {name}_right" for name in right.column_names])


def _duckdb(case: Case, left: pa.Table, right: pa.Table) -> int:
    first, *others = case.on.items()
    tests = [f"r.{name} BETWEEN l.{name} - {e!r} AND l.{name} + {e!r}" for name, e in [first]]
    # A second band in the same form takes DuckDB 2.0 70 times as long.
    tests += [f"abs(r.{name} - l.{name}) <= {e!r}" for name, e in others]
    tests += [f"l.{case.by} = r.{case.by}"] * (case.by is not None)
    pairs = f"FROM left_rows l JOIN right_rows r ON {' AND '.join(tests)}"
    if case.join == "epsilon":
        return _ask(left, right, f"SELECT {_columns(left, right)} {pairs}")
    costs = [f"{name}_cost" for name in case.on]
    as_good = " AND ".join(f"rival.{cost} <= pair.{cost}" for cost in costs)
    better = " OR ".join(f"rival.{cost} < pair.{cost}" for cost in costs)
    text = f"""
        WITH pairs AS (SELECT {_columns(left, right)}, {_costs(case)} {pairs})
        SELECT * EXCLUDE ({", ".join(costs)}) FROM pairs AS pair WHERE NOT EXISTS (
            FROM pairs AS rival
            WHERE rival.id_left = pair.id_left AND {as_good} AND ({better}))
    """
    return _ask(left, right, text)


def _costs(case: Case) -> str:
    return ", ".join(f"abs(r.{name} - l.{name}) AS {name}_cost" for name in case.on)


def _duckdb_cells(case: Case, left: pa.Table, right: pa.Table) -> int:
    """Left rows in their cell, right rows in their own and all neighbouring ones."""
    cells = [f"floor({name} / {e!r})::BIGINT" for name, e in case.on.items()]
    ours = ", ".join(f"{cell} AS cell{at}" for at, cell in enumerate(cells))
    theirs = ", ".join(f"{cell} + d{at}.d AS cell{at}" for at, cell in enumerate(cells))
    shifts = ", ".join(f"(VALUES (-1), (0), (1)) d{at}(d)" for at in range(len(cells)))
    using = [f"cell{at}" for at in range(len(cells))] + [case.by] * (case.by is not None)
    near = " AND ".join(f"abs(r.{name} - l.{name}) <= {e!r}" for name, e in case.on.items())
    pairs = f"FROM ours l JOIN theirs r USING ({', '.join(map(str, using))}) WHERE {near}"
    text = f"""
        WITH ours AS (SELECT *, {ours} FROM left_rows),
        theirs AS (SELECT right_rows.*, {theirs} FROM right_rows, {shifts})
    """
    if case.join == "epsilon":
        return _ask(left, right, f"{text} SELECT {_columns(left, right)} {pairs}")
    costs = [f"{name}_cost" for name in case.on]
    text += f"""
        , pairs AS (SELECT {_columns(left, right)}, {_costs(case)} {pairs})
        SELECT * EXCLUDE ({", ".join(costs)}) FROM pairs
        QUALIFY {" OR ".join(_best(costs, partition) for partition in PARTITIONS[case.how])}
    """
    return _ask(left, right, text)


def _best(costs: list[str], partition: str) -> str:
    """Of two costs: nothing that is as good in one is better in the other."""
    one, other = costs
    by, other_by = (f"OVER ({partition} ORDER BY {cost})" for cost in (other, one))
    return f"({one} = min({one}) {by} AND {other} = min({other}) {other_by})"


# ── scipy and Polars ─────────────────────────────────────────────────────────────────────────


def _ckdtree(case: Case, left: pa.Table, right: pa.Table) -> int:
    """Lists of row numbers are what it gives; no output columns are gathered from them."""
    spatial: Any = import_module("scipy.spatial")
    points = [np.column_stack([table["x"], table["y"]]) for table in (left, right)]
    found = spatial.cKDTree(points[1]).query_ball_point(
        points[0], case.epsilon, p=np.inf, workers=THREADS, return_sorted=False
    )
    return sum(map(len, found))


def _polars(case: Case, left: pa.Table, right: pa.Table) -> int:
    os.environ.setdefault("POLARS_MAX_THREADS", str(THREADS))  # read when it is imported
    pl: Any = import_module("polars")
    ours, theirs = (pl.from_arrow(table).lazy() for table in (left, right))
    tests = [
        test
        for name, e in case.on.items()
        for test in (
            pl.col(f"{name}_right") >= pl.col(name) - e,
            pl.col(f"{name}_right") <= pl.col(name) + e,
        )
    ]
    tests += [pl.col(case.by) == pl.col(f"{case.by}_right")] if case.by else []
    return int(ours.join_where(theirs, *tests).collect(engine="streaming").to_arrow().num_rows)


# ── nested loops ─────────────────────────────────────────────────────────────────────────────


def _nested_loops(case: Case, left: pa.Table, right: pa.Table) -> int:
    ours, theirs = [np.column_stack([table[name] for name in case.on]) for table in (left, right)]
    epsilon = np.array(list(case.on.values()), np.float64)
    edges = np.linspace(0, len(ours), 16 * THREADS + 1).astype(np.int64).tolist()
    with ThreadPoolExecutor(THREADS) as pool:
        parts = pool.map(
            lambda at: nested_loops(ours, theirs, epsilon, edges[at], edges[at + 1]),
            range(len(edges) - 1),
        )
        pairs = np.concatenate(list(parts))
    taken = [left.take(pa.array(pairs[:, 0])), right.take(pa.array(pairs[:, 1]))]
    return int(taken[0].num_rows)


@numba.njit(nogil=True, cache=True)
def nested_loops(left: Floats, right: Floats, epsilon: Floats, start: int, stop: int) -> Int64s:
    """Algorithm 1 for some left rows: each eligible pair against all others, up to the first that
    dominates it."""
    pairs = np.empty((1024, 2), np.int64)
    count = 0
    for i in range(start, stop):
        for j in range(len(right)):
            if not is_near(left[i], right[j], epsilon):
                continue
            is_dominated = False
            for other in range(len(right)):
                if _dominates(left[i], right[other], right[j]):
                    is_dominated = True
                    break
            if not is_dominated:
                if count == len(pairs):
                    pairs = np.concatenate((pairs, np.empty_like(pairs)))
                pairs[count, 0], pairs[count, 1] = i, j
                count += 1
    return pairs[:count]


@numba.njit(nogil=True, cache=True)
def is_near(one: Floats, other: Floats, epsilon: Floats) -> bool:
    """Whether two rows are within the tolerance in every attribute."""
    for at in range(len(epsilon)):  # noqa: SIM110  # Numba has no all() of a generator
        if abs(one[at] - other[at]) > epsilon[at]:
            return False
    return True


@numba.njit(nogil=True, cache=True)
def _dominates(row: Floats, rival: Floats, mate: Floats) -> bool:
    """Whether the rival is nearer to the row than its mate is; it is then within ε as well."""
    is_better = False
    for at in range(len(row)):
        rivals, mates = abs(row[at] - rival[at]), abs(row[at] - mate[at])
        if rivals > mates:
            return False
        is_better |= rivals < mates
    return is_better


DUCKDB = Rival("DuckDB, as one writes it", _duckdb)
DUCKDB_CELLS = Rival("DuckDB, by grid cells", _duckdb_cells)
CKDTREE = Rival("scipy cKDTree", _ckdtree, "scipy")
POLARS = Rival("Polars join_where", _polars, "polars")
NESTED_LOOPS = Rival("nested loops (the paper's)", _nested_loops)
