"""Others that join over windows: DuckDB, Polars, Pathway.

    duckdb        the question as one writes it: equal keys, a band for each pair with a window
    duckdb_cells  DuckDB at its best: each stream is copied into the cells of time that it reaches,
                  and joined by key and cell of the stream that its window is anchored at
    polars        join_where, two streams
    pathway       interval_join, two streams

    clique   cells 2w wide: a row reaches one or two of them     anchored at the first stream
    chain    cells w wide: its own, the one before, the next     anchored at the stream before

Which cells were tried out: at a million rows wide cells take 0.9 of the time of narrow ones in a
clique, and narrow ones 0.7 of the time of wide ones in a chain of three.

Pathway takes rows as Python objects and gives them back as such.  It is asked to count its results
itself, so that what it finds is in its time and what Python makes of it is not; Arrow to rows is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from . import rivals
from .joins import THREADS, drain
from .window_cases import CHAIN, NAMES, WindowCase

Work = Callable[..., int]
"""Called with a case and all its tables."""


@dataclass(frozen=True, slots=True)
class WindowRival:
    """How it is called, what runs it, the package that it needs, and how that is installed."""

    name: str
    run: Work
    package: str | None = None
    install: str = "'matwin[bench]'"

    @property
    def missing(self) -> str | None:
        """What to install, if it is not there."""
        if self.package is None or find_spec(self.package) is not None:
            return None
        return (
            f"{self.name}: left out, {self.package} is not installed (pip install {self.install})"
        )


# ── DuckDB ───────────────────────────────────────────────────────────────────────────────────


def _duckdb(case: WindowCase, *tables: pa.Table) -> int:
    if case.streams == 2:
        return rivals.DUCKDB.run(case.pair, *tables)
    names = NAMES[: case.streams]
    joins = " ".join(f"JOIN {name} ON {name}.k = a.k" for name in names[1:])
    near = " AND ".join(_near(case, *pair) for pair in case.pairs)
    return _ask(tables, f"SELECT {_columns(tables)} FROM a {joins} WHERE {near}")


def _duckdb_cells(case: WindowCase, *tables: pa.Table) -> int:
    if case.streams == 2:
        return rivals.DUCKDB_CELLS.run(case.pair, *tables)
    width = case.epsilon * (1 if case.shape == CHAIN else 2)
    copies, joins = [], []
    for at, name in enumerate(NAMES[1 : case.streams], 1):
        copies.append(f"{name}_cells AS ({_copies(case, name)})")
        anchor = NAMES[at - 1] if case.shape == CHAIN else "a"
        near = [_near(case, *pair) for pair in case.pairs if pair[1] == name]
        tests = [f"{name}.k = a.k", f"{name}.cell = {anchor}.t // {width}", *near]
        joins.append(f"JOIN {name}_cells {name} ON {' AND '.join(tests)}")
    text = f"WITH {', '.join(copies)} SELECT {_columns(tables)} FROM a {' '.join(joins)}"
    return _ask(tables, text)


def _copies(case: WindowCase, name: str) -> str:
    """The rows of a stream, once for each cell in which partners can be."""
    window = case.epsilon
    if case.shape == CHAIN:
        shifts = "(VALUES (-1), (0), (1)) shifts(shift)"
        return f"SELECT {name}.*, t // {window} + shift AS cell FROM {name}, {shifts}"
    # Times are not negative, but t - w can be, and // cuts towards zero there.
    first, last = (f"floor((t {sign} {window}) / {2 * window})::BIGINT" for sign in "-+")
    return (
        f"SELECT *, {first} AS cell FROM {name} "
        f"UNION ALL SELECT *, {last} AS cell FROM {name} WHERE {first} < {last}"
    )


def _near(case: WindowCase, one: str, other: str) -> str:
    return f"abs({one}.t - {other}.t) <= {case.epsilon}"


def _columns(tables: tuple[pa.Table, ...]) -> str:
    """The key once, then the other columns of all streams."""
    columns = [
        f"{name}.{column} AS {name}_{column}"
        for name, table in zip(NAMES, tables, strict=False)
        for column in table.column_names
        if column != "k"
    ]
    return ", ".join(["a.k", *columns])


def _ask(tables: tuple[pa.Table, ...], text: str) -> int:
    database = rivals._database()
    for name, table in zip(NAMES, tables, strict=False):
        database.register(name, table)
    return drain(database.sql(text).to_arrow_reader(rivals.BATCH_ROWS))


# ── Polars and Pathway ───────────────────────────────────────────────────────────────────────


def _polars(case: WindowCase, *tables: pa.Table) -> int:
    return rivals.POLARS.run(case.pair, *tables)


def _pathway(case: WindowCase, *tables: pa.Table) -> int:
    os.environ.setdefault("PATHWAY_THREADS", str(THREADS))  # read when it is imported
    pw: Any = import_module("pathway")
    logging.getLogger("pathway_engine").setLevel(logging.WARNING)
    pw.internals.parse_graph.G.clear()
    # A column can't be called "id" there.
    left, right = (
        pw.debug.table_from_pandas(
            table.rename_columns([f"c_{name}" for name in table.column_names]).to_pandas()
        )
        for table in tables
    )
    within = pw.temporal.interval(-case.epsilon, case.epsilon)
    pairs = left.interval_join(right, left.c_t, right.c_t, within, left.c_k == right.c_k)
    columns = {"k": left.c_k}
    for name, side in (("a", left), ("b", right)):
        columns |= {
            f"{name}_{column}": side[f"c_{column}"]
            for column in tables[0].column_names
            if column != "k"
        }
    counted = pairs.select(**columns).reduce(found=pw.reducers.count())
    return int(pw.debug.table_to_pandas(counted)["found"].sum())


DUCKDB = WindowRival("DuckDB, as one writes it", _duckdb)
DUCKDB_CELLS = WindowRival("DuckDB, by cells of time", _duckdb_cells)
POLARS = WindowRival("Polars join_where", _polars, "polars")
PATHWAY = WindowRival("Pathway interval_join", _pathway, "pathway", "pathway")
