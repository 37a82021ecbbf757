"""DuckDB as the referee of window joins, and the runs that are held against it.

Every stream has a column `id`, its row number, so that an answer is an array of row numbers; the
other columns of the output are then looked up in the streams.  The SQL is written from what a
question means, as `wquestions.py` holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from wquestions import Asked, Bound, times_of

import matwin
from matwin.report import Report

SECOND = 1_000_000
SMALL: dict[str, Any] = {"memory": "512KiB", "page_size": "8KiB"}
ALGORITHMS = (
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip
BOUNDS = ("auto", "global", "local", "graph")
Ids = np.ndarray[Any, np.dtype[np.int64]]

# ── the question in SQL ──────────────────────────────────────────────────────────────────────


def answer(asked: Asked) -> Ids:
    """Row numbers of every tuple, one column for each stream, in order."""
    names = list(asked.streams)
    text = " union ".join(_select(asked, route) for route in asked.routes)
    with duckdb.connect(config={"threads": 2}) as base:
        base.execute("set disabled_optimizers = 'join_order'")
        for name in names:
            base.register(name, _with_counts(asked, name))
        found = base.sql(text).to_arrow_table()
    return in_order(np.stack([found[name].to_numpy() for name in names], axis=1))


def _select(asked: Asked, route: tuple[Bound, ...]) -> str:
    """The tuples that satisfy all bounds of a route: each stream joins one that it is bound to.

    Left to itself DuckDB may join two streams by their key alone, and thousands of millions of
    pairs come of it.
    """
    text, joined, left = f'from "{route[0].a}"', {route[0].a}, list(route)
    while left:
        near = next(b for b in left if b.a in joined or b.b in joined)
        new = near.b if near.a in joined else near.a
        joined.add(new)
        decided = [b for b in left if b.a in joined and b.b in joined]
        left = [b for b in left if b not in decided]
        if decided:
            keys = [_same_keys(asked, near.a, near.b)] if asked.keys else []
            conditions = keys + [_near(asked, b) for b in decided]
            text += f' join "{new}" on {" and ".join(conditions)}'
    tests = []
    for test in asked.tests:
        columns = [f'"{stream}"."{column}"' for stream, column in test.columns]
        tests.append(f"({test.sql.format(*columns)})")
    shown = ", ".join(f'"{name}"._row as "{name}"' for name in asked.streams)
    return f"select {shown} {text} where {' and '.join(tests) or 'true'}"


def _same_keys(asked: Asked, one: str, other: str) -> str:
    pairs = zip(asked.keys[one], asked.keys[other], strict=True)
    return " and ".join(f'"{one}"."{a}" = "{other}"."{b}"' for a, b in pairs)


def _near(asked: Asked, bound: Bound) -> str:
    a, b = f'"{bound.a}"._time', f'"{bound.b}"._time'
    if not _is_float(asked):
        return f"{b} >= {a} + ({bound.lo}) and {b} <= {a} + ({bound.hi})"
    lo, hi = (f"'{limit!r}'::double" for limit in (float(bound.lo), float(bound.hi)))
    return f"{b} - {a} >= {lo} and {b} - {a} <= {hi}"


def _is_float(asked: Asked) -> bool:
    times = (asked.streams[name][column] for name, column in asked.time.items())
    return any(pa.types.is_floating(column.type) for column in times)


def _with_counts(asked: Asked, name: str) -> pa.Table:
    """The stream's rows that can match, their times as numbers of one unit, and their numbers."""
    table = asked.streams[name]
    times = times_of(asked)[name]
    whole = pa.int64() if _fits_64_bits(times, asked) else pa.decimal128(38)
    counts = pa.array(times, pa.float64() if _is_float(asked) else whole)
    rows = pa.array(range(table.num_rows), pa.int64())
    kept = table.append_column("_time", counts).append_column("_row", rows)
    for at, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            kept = kept.set_column(at, column.name, kept[column.name].cast(pa.int64()))
    keep = np.array([time is not None for time in times], bool)
    for key in asked.keys.get(name, ()):  # in DuckDB NaN equals NaN, and infinity itself
        if pa.types.is_floating(table[key].type):
            keep &= np.isfinite(table[key].to_numpy())
    return kept.filter(pa.array(keep, pa.bool_()))


def _fits_64_bits(times: list[Any], asked: Asked) -> bool:
    limits = [abs(limit) for route in asked.routes for b in route for limit in (b.lo, b.hi)]
    return max(limits) + max((abs(t) for t in times if t is not None), default=0) < 2**63


def in_order(ids: Ids) -> Ids:
    return ids[np.lexsort(ids.T[::-1])]


# ── the join ─────────────────────────────────────────────────────────────────────────────────


def run(asked: Asked, sources: dict[str, Any] | None = None, **options: Any) -> tuple[Ids, Report]:
    """Row numbers that the join found, in order; its other columns belong to these rows."""
    report = Report()
    sources = {**asked.streams, **(sources or {})}
    found = matwin.window_join(sources, report=report, **asked.arguments, **options).read_all()
    report.check()
    assert report.is_done and report.rows_out == found.num_rows
    assert found.column_names == asked.names
    ids = np.stack([found[f"{name}_id"].to_numpy() for name in asked.streams], axis=1)
    for at, (name, table) in enumerate(asked.streams.items()):
        rows = pa.array(ids[:, at])
        for column in table.column_names:
            shown = f"{name}_{column}" if column not in asked.keys.get(name, ()) else column
            if shown in found.column_names and (at == 0 or shown != column):
                assert found[shown].equals(table[column].take(rows)), shown
    return in_order(ids), report


def numbered(table: pa.Table) -> pa.Table:
    if "id" in table.column_names:
        table = table.drop_columns("id")
    return table.append_column("id", pa.array(np.arange(table.num_rows)))


def shuffled(table: pa.Table) -> pa.Table:
    """The rows in no order; they keep their numbers."""
    return table.take(np.random.default_rng(7).permutation(table.num_rows))


def pieces(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """The table as something that comes piece by piece, and only once."""
    yield from table.combine_chunks().to_batches(max_chunksize=rows)


def live(asked: Asked, rows: int) -> dict[str, Any]:
    """The streams by their time, as live ones."""
    return {
        name: matwin.stream(pieces(table.sort_by(asked.time[name]), rows), schema=table.schema)
        for name, table in asked.streams.items()
    }


def differ(found: Ids, expected: Ids) -> str:
    """What is missing and what is too much, in a few words; nothing if they are the same bag."""
    if np.array_equal(found, expected):
        return ""
    bags = [Counter(map(tuple, ids.tolist())) for ids in (found, expected)]
    missing, extra = bags[1] - bags[0], bags[0] - bags[1]
    return f"missing {missing.total()}: {[*missing][:3]}, too many {extra.total()}: {[*extra][:3]}"


def check(asked: Asked, expected: Ids, sources: Any = None, **options: Any) -> Report:
    found, report = run(asked, sources, **options)
    assert not differ(found, expected), options
    return report


def usable(asked: Asked, algorithm: str) -> bool:
    return bool(asked.keys) or not algorithm.endswith("hash")


def answer_by_id(asked: Asked) -> Ids:
    """The answer in the rows' own numbers, where some rows have been left out."""
    places = answer(asked)
    columns = [
        table["id"].to_numpy()[places[:, at]] for at, table in enumerate(asked.streams.values())
    ]
    return in_order(np.stack(columns, axis=1))
