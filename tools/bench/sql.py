"""`matwin bench sql`: a query with one join beside the join called directly and DuckDB's own time.

    sql       matwin.sql(text)                                    plan, join, DuckDB for the rest
    direct    the join's function, Arrow in and Arrow out          of the columns that are needed
    rest      DuckDB on the rows that the direct call has given    grouping, filters, expressions
    ratio     sql / (direct + rest)                                at most 1.1 is aimed at
    plan      parsing and planning alone, warm                     at most 20 ms

CPU time of the process, the best of several runs, all asked in turns; the results must be alike.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import matwin

from ..sql.catalog import Catalog
from ..sql.session import planned
from .measures import Disagreement
from .suite import QUICK_ROWS, check_numbers

KEYS = 1_000
Tables = dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and the same by hand: a join, and DuckDB's part over its rows `j`."""

    name: str
    text: str
    direct: Callable[[Tables], Any]
    rest: str | None
    unused: tuple[str, ...] = ("x",)
    """Columns that the query doesn't need, and that nobody would join by hand."""


@dataclass(frozen=True, slots=True)
class Row:
    """CPU seconds of each."""

    name: str
    rows: int
    sql: float
    direct: float
    rest: float
    plan_ms: float

    @property
    def ratio(self) -> float:
        """How many times as long as the join and DuckDB by themselves."""
        return self.sql / (self.direct + self.rest)


def tables(rows: int, seed: int) -> Tables:
    """Two tables of random times by random keys; each row has about two partners nearby."""
    made = {}
    for side, payload in enumerate(("v", "w")):
        chance = np.random.default_rng((seed, side))
        made["ab"[side]] = pa.table({
            "t": chance.integers(0, rows * 4, rows), "k": chance.integers(0, KEYS, rows),
            "x": chance.random(rows) * 100, payload: chance.random(rows),
        })  # fmt: skip
    return made


CASES = (
    Case(
        "range join, rows",
        "select a.k, a.v, b.w from a join b on a.k = b.k and abs(a.t - b.t) <= 4000",
        lambda given: matwin.epsilon_join(given["a"], given["b"], on={"t": 4000}, by="k"),
        None,
    ),
    Case(
        "range join, grouped",
        "select a.k, count(*) as n, sum(b.w * a.v) as s from a join b "
        "on a.k = b.k and b.t between a.t - 4000 and a.t + 4000 group by a.k",
        lambda given: matwin.epsilon_join(given["a"], given["b"], on={"t": 4000}, by="k"),
        "select k, count(*) as n, sum(w * v) as s from j group by k",
    ),
    Case(
        "as-of join, averaged",
        "select a.k, avg(b.w) as m from a asof join b on a.k = b.k and a.t >= b.t group by a.k",
        lambda given: matwin.asof_join(
            given["a"], given["b"], on="t", by="k", how="inner", ordered=False
        ),
        "select k, avg(w) as m from j group by k",
        unused=("x", "v"),
    ),
    Case(
        "bestmatch join, filtered",
        "select a.v, b.w, a.v + b.w as both from a left bestmatch join b on a.t mindist b.t, "
        "a.x mindist b.x where abs(a.t - b.t) <= 4000 and abs(a.x - b.x) <= 50 and a.k = b.k "
        "and b.w > 0.5",
        lambda given: matwin.bestmatch_join(
            given["a"], given["b"], on={"t": 4000, "x": 50.0}, by="k"
        ),
        "select v, w, v + w as both from j where w > 0.5",
        unused=(),
    ),
    Case(
        "window join, counted",
        "select count(*) as n, max(b.w) as m from a, b where a.k = b.k window (a, b) = 4000",
        lambda given: matwin.window_join(given, time="t", windows=4000, by="k"),
        "select count(*) as n, max(b_w) as m from j",
        unused=("x", "v"),
    ),
)


def measure(case: Case, given: Tables, repeat: int) -> Row:
    """All in turns, so that what else the machine does meets all of them."""
    best = {"sql": float("inf"), "direct": float("inf"), "rest": 0.0 if case.rest is None else 1e9}
    plan_ms = float("inf")
    narrow = {name: _without(table, case.unused) for name, table in given.items()}
    for _ in range(repeat):
        ours, seconds = _cpu(lambda: matwin.sql(case.text, **given).to_arrow())
        best["sql"] = min(best["sql"], seconds)
        joined, seconds = _cpu(lambda: case.direct(narrow).to_arrow())
        best["direct"] = min(best["direct"], seconds)
        theirs = joined
        if case.rest is not None:
            theirs, seconds = _cpu(lambda j=joined: _rest(case.rest, j))  # type: ignore[misc]
            best["rest"] = min(best["rest"], seconds)
        if ours.num_rows != theirs.num_rows:
            message = f"{case.name}: {ours.num_rows} rows, and {theirs.num_rows} by hand"
            raise Disagreement(message)
        plan_ms = min(plan_ms, _cpu(lambda: planned(case.text, Catalog(given)))[1] * 1000)
    rows = given["a"].num_rows
    return Row(case.name, rows, best["sql"], best["direct"], best["rest"], plan_ms)


def _without(table: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    return table.drop_columns([name for name in columns if name in table.column_names])


def _cpu(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def _rest(text: str | None, joined: pa.Table) -> pa.Table:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("j", joined)
        return connection.sql(str(text)).to_arrow_table()


def text_of(rows: list[Row]) -> str:
    """A line for each case."""
    head = (
        f"{'query':<28}{'rows a side':>12}{'sql s':>9}{'direct s':>10}{'rest s':>9}{'ratio':>8}"
        f"{'plan ms':>10}"
    )
    lines = [head, "─" * len(head)]
    lines += [
        f"{row.name:<28}{row.rows:>12,}{row.sql:>9.3f}{row.direct:>10.3f}{row.rest:>9.3f}"
        f"{row.ratio:>7.2f}×{row.plan_ms:>10.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_numbers(args)
    size = min(args.rows, QUICK_ROWS) if args.quick else args.rows
    given = tables(size, args.seed)
    rows = [measure(case, given, args.repeat) for case in CASES]
    if args.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=2))
    else:
        print(text_of(rows))
    return 0
