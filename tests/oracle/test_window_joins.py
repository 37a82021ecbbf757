"""Window joins against DuckDB, on random streams of some thousand rows and on real data.

    streams ──join: every algorithm, on pages, live──▶ ids of the rows ─┐
                                                                        ├─ the same bag
    streams ──DuckDB (the SQL below)─────────────────▶ ids of the rows ─┘

Every stream has a column `id`, its row number, so that an answer is an array of row numbers; the
other columns of the output are then looked up in the streams.  DuckDB answers once; every way to
run the join has to agree.  The SQL is written from what a question means, as `wquestions.py` holds
it, and is held against the nested loop there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from support import campaign
from wcases import questions
from wquestions import Asked, Bound, Predicate, simple, times_of, tuples_of

import matwin
from matwin.report import Report

REAL = Path(__file__).parents[3] / "shared" / "data"
SECOND = 1_000_000
SMALL: dict[str, Any] = {"memory": "512KiB", "page_size": "8KiB"}
ALGORITHMS = (
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip
BOUNDS = ("auto", "global", "local", "graph")

needs_data = pytest.mark.skipif(not REAL.exists(), reason="the real data are not here")
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


@given(questions())
@settings(max_examples=campaign(40, 2000))
def test_the_referees_agree(asked: Asked) -> None:
    expected = np.array(tuples_of(asked), np.int64).reshape(-1, len(asked.streams))
    assert np.array_equal(answer(asked), in_order(expected))


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


# ── random streams ───────────────────────────────────────────────────────────────────────────

NOON_2024 = 1_704_110_400


def times(kind: str, rows: int, span: int, chance: np.random.Generator, at: int) -> pa.Array:
    """Times on exact boundaries, with ties; one in a hundred is missing."""
    steps = chance.integers(0, span, rows)
    missing = chance.random(rows) < 0.01
    match kind:
        case "ints":
            return pa.array(steps - span // 2, mask=missing)
        case "tenths":
            values = np.where(chance.random(rows) < 0.5, steps * 0.1, steps / 10)
            values[chance.random(rows) < 0.003] = np.nan
            values[chance.random(rows) < 0.003] = -np.inf
            return pa.array(values, mask=missing)
        case "units":
            unit = ("s", "us", "ns", "ms")[at]
            factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
            off = chance.integers(-1, 2, rows) if at else 0
            counts = (NOON_2024 + steps) * factor + off
            return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp(unit))
    raise AssertionError(kind)


def random_question(kind: str, graph: str, count: int, seed: int, key: int) -> Asked:
    """Streams of 2,000 to 9,000 rows (20,000 in a campaign), and of 4,000 where there is no key.

    `key` is how many keys there are; 0: none.  A row has about three partners in each window.
    """
    chance = np.random.default_rng([seed, count, key, *kind.encode(), *graph.encode()])
    streams = {}
    for at, name in enumerate("abcd"[:count]):
        rows = int(chance.integers(2_000, campaign(9_000, 20_000) if key else 4_000))
        span = 10 * rows // max(key, 1)
        columns = {"t": times(kind, rows, span, chance, at)}
        if key:
            numbers = chance.integers(0, key, rows).tolist()
            columns["k"] = pa.array([None if n == 0 else f"key {n}" for n in numbers])
        columns["x"] = pa.array(np.round(chance.random(rows), 2))
        columns["id"] = pa.array(np.arange(rows))
        streams[name] = pa.table(columns)
    step = {"ints": 1, "tenths": 0.1, "units": 10**9}[kind]
    return asked_of(streams, graph, step, "k" if key else None)


def asked_of(streams: dict[str, pa.Table], graph: str, step: Any, by: str | None) -> Asked:
    """A constraint graph over these streams; windows are a few steps wide."""
    names = list(streams)
    links = list(pairwise(names))
    if graph == "clique":
        return simple(streams, 9 * step, by)
    if graph == "star":  # one in the middle, a window of its own for each
        return simple(
            streams,
            {(names[1], n): (3 + at) * step for at, n in enumerate(names) if n != names[1]},
            by,
        )
    if graph == "limits":  # a chain, ahead and behind, and one that closes it
        pairs: dict[Any, Any] = dict.fromkeys(links, (-9 * step, -2 * step))
        pairs[names[-1], names[0]] = (0, 16 * (len(names) - 1) * step // 2)
        return simple(streams, pairs, by)
    widths = [(5 + at) * step for at, _ in enumerate(links)]
    routes = [tuple(Bound(a, b, 0, w) for (a, b), w in zip(links, widths, strict=True))]
    if graph == "both ways":
        routes.append(tuple(Bound(b.b, b.a, 0, b.hi) for b in routes[0]))
    given = matwin.path(names, windows=widths, both_ways=graph == "both ways")
    base = simple(streams, dict.fromkeys(links, 1), by)
    return replace(base, routes=tuple(routes), arguments={**base.arguments, "windows": given})


GRAPHS = ("clique", "star", "limits", "path", "both ways")


@pytest.mark.parametrize("key", [0, 5, 200])
@pytest.mark.parametrize("kind", ["ints", "tenths", "units"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_random_streams(graph: str, kind: str, key: int) -> None:
    for seed in range(campaign(1, 20)):
        count = 3 + (len(graph) + len(kind) + key + seed) % 2
        asked = random_question(kind, graph, count, seed, key)
        expected = answer(asked)
        assert 0 < len(expected) < 1_000_000
        check(asked, expected)
        check(asked, expected, threads=1, bounds="global")
        check(asked, expected, live(asked, 700))
        if kind == "ints":
            report = check(asked, expected, **SMALL)
            assert report.peak_bytes <= report.budget_bytes


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_and_bounds(algorithm: str, bounds: str) -> None:
    for graph, kind in (("limits", "ints"), ("both ways", "tenths")):
        asked = random_question(kind, graph, 4, 1, 20)
        options = {"algorithm": algorithm, "bounds": bounds}
        check(asked, expected_of(kind, graph), **options)
        if algorithm != "merge":
            check(asked, expected_of(kind, graph), live(asked, 900), **options)


@cache
def expected_of(kind: str, graph: str) -> Ids:
    return answer(random_question(kind, graph, 4, 1, 20))


def close(a: Any, b: Any) -> Any:
    return abs(a - b) < 0.25


def not_below(a: Any, b: Any) -> Any:
    """Works on whole columns only."""
    return np.array([p >= q for p, q in zip(a.tolist(), b.tolist(), strict=True)])


@pytest.mark.parametrize("key", [0, 5])
def test_predicates(key: int) -> None:
    asked = random_question("ints", "clique", 3, 2, key)
    tests = (
        Predicate((("a", "x"), ("b", "x")), bool, "abs({0} - {1}) < 0.25"),
        Predicate((("c", "x"), ("a", "x")), bool, "{0} >= {1}"),
        Predicate((("b", "x"), ("c", "x")), bool, "{1} - {0} between -0.5 and 0.1"),
    )
    where = [
        {("a.x", "b.x"): close, ("c.x", "a.x"): not_below},
        {("b.x", "c.x"): (-0.5, 0.1)},
    ]
    asked = replace(asked, tests=tests, arguments={**asked.arguments, "where": where})
    expected = answer(asked)
    assert len(expected) > 0
    for algorithm in filter(lambda name: usable(asked, name), ALGORITHMS):
        check(asked, expected, algorithm=algorithm)
    check(asked, expected, **SMALL)


# ── the papers' questions ────────────────────────────────────────────────────────────────────


def store(seed: int, rows: int = 6_000) -> pa.Table:
    """A shop's sales of a day: items of which some are sold all the time."""
    chance = np.random.default_rng(seed)
    t = np.sort(chance.integers(0, 86_400, rows))
    items = np.minimum(chance.zipf(1.3, rows), 2_000)
    return numbered(pa.table({"t": pa.array(t).cast(pa.timestamp("s")), "item": items}))


def test_common_items_sold_by_all_stores_within_an_hour() -> None:
    streams = {name: store(seed, 1_500) for seed, name in enumerate(("north", "south", "west"))}
    streams = {n: t.filter(pc.greater(t["item"], 12)) for n, t in streams.items()}
    streams = {n: numbered(t) for n, t in streams.items()}
    asked = simple(streams, 3_600, "item")
    asked = replace(asked, arguments={**asked.arguments, "windows": "1h"})
    expected = answer(asked)
    assert len(expected) > 1_000
    for algorithm in ALGORITHMS:
        check(asked, expected, algorithm=algorithm)
    check(asked, expected, live(asked, 100))


def test_objects_that_three_cameras_see_one_after_the_other() -> None:
    """A window for each pair: how long an object may take from one camera to the next."""
    chance = np.random.default_rng(5)
    streams = {}
    for name, delay in (("cam1", 0), ("cam2", 4_000), ("cam3", 7_000)):
        objects = chance.integers(0, 500, 8_000)
        t = objects * 3_000 + chance.integers(0, 9, 8_000) * 100_000 + delay
        t = t + chance.integers(-3_000, 3_001, 8_000)
        columns = {"t": pa.array(t).cast(pa.timestamp("ms")), "obj": objects}
        streams[name] = numbered(pa.table(columns).sort_by("t"))
    asked = simple(streams, {("cam1", "cam2"): 5_000, ("cam2", "cam3"): 3_000}, "obj")
    windows = {("cam1", "cam2"): "5s", ("cam2", "cam3"): "3s"}
    asked = replace(asked, arguments={**asked.arguments, "windows": windows})
    expected = answer(asked)
    assert len(expected) > 1_000
    for bounds in BOUNDS:
        check(asked, expected, bounds=bounds)
    check(asked, expected, live(asked, 500))
    check(asked, expected, **SMALL)


@pytest.mark.parametrize("both_ways", [False, True])
def test_packets_on_their_way_through_three_networks(both_ways: bool) -> None:
    """A packet passes A, then B, then C; with both ways also those that come back."""
    chance = np.random.default_rng(6)
    rows = 5_000
    start, ways = np.sort(chance.integers(0, 10_000_000, rows)), chance.integers(0, 2, rows)
    streams = {}
    for at, name in enumerate("ABC"):
        place = np.where(ways == 0, at, 2 - at)
        t = start + place * chance.integers(0, 900, rows)
        columns = {"t": t, "src": chance.permutation(rows) % 3, "packet": np.arange(rows) % 700}
        columns["src"] = np.arange(rows) % 3
        streams[name] = numbered(pa.table(columns).sort_by("t"))
    asked = asked_of(streams, "both ways" if both_ways else "path", 200, None)
    keys = dict.fromkeys(streams, ("src", "packet"))
    asked = replace(asked, keys=keys, arguments={**asked.arguments, "by": ["src", "packet"]})
    expected = answer(asked)
    assert len(expected) > 500
    for algorithm in ALGORITHMS:
        check(asked, expected, algorithm=algorithm)
    check(asked, expected, live(asked, 300))


# ── real streams ─────────────────────────────────────────────────────────────────────────────


@cache
def real(name: str) -> pa.Table:
    return pq.read_table(REAL / f"{name}.parquet")


@cache
def room() -> Asked:
    """Temperature, humidity and the next temperature reading, in the same room."""
    warm, wet = (
        numbered(real(f"room_climate/{n}").slice(0, 5_000)) for n in ("temperature", "humidity")
    )
    warm = warm.select(["t", "location", "node", "temperature", "id"])
    streams = {"warm": warm, "wet": wet, "later": warm}
    windows = {
        ("warm", "wet"): 2 * SECOND,
        ("wet", "later"): (0, 3 * SECOND),
        ("warm", "later"): (1, 4 * SECOND),
    }
    return simple(streams, windows, "location")


CALM = 1_521_911_950 * SECOND
"""Before the burst of odd packets, which has a hundred million matches."""
CLIENT = ["t", "id_orig_h", "uid"]
LOOKUPS = {("ssl", "dns"): (-10 * SECOND, 0), ("weird", "dns"): 10 * SECOND}


@cache
def log(name: str) -> pa.Table:
    table = real(f"zeek_wrccdc/{name}")
    return numbered(table.filter(pc.less(table["t"], CALM)).select(CLIENT))


@cache
def logs() -> Asked:
    """The same client looks up a name, does something odd and opens a connection."""
    return simple({name: log(name) for name in ("dns", "weird", "ssl")}, LOOKUPS, "id_orig_h")


@cache
def bikes() -> Asked:
    """Four streams: a bike comes, another one leaves, twice, at one station within minutes."""
    came, left = (
        numbered(real(f"bikeshare14/{n}").slice(0, 9_000).select(["t", "station", "bike_id"]))
        for n in ("arrivals", "departures")
    )
    minute = 60 * SECOND
    windows = {
        ("came", "left"): (0, 5 * minute), ("left", "back"): (0, 10 * minute),
        ("back", "gone"): (0, 5 * minute), ("came", "gone"): (minute, 15 * minute),
    }  # fmt: skip
    return simple({"came": came, "left": left, "back": came, "gone": left}, windows, "station")


REAL_QUESTIONS = {"room": room, "logs": logs, "bikes": bikes}


@cache
def expected_real(name: str) -> Ids:
    expected = answer(REAL_QUESTIONS[name]())
    assert len(expected) > 1_000
    return expected


@needs_data
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", REAL_QUESTIONS)
def test_real_streams(name: str, algorithm: str) -> None:
    asked, expected = REAL_QUESTIONS[name](), expected_real(name)
    check(asked, expected, algorithm=algorithm)
    if algorithm != "merge":
        check(asked, expected, live(asked, 1_000), algorithm=algorithm)


@needs_data
@pytest.mark.parametrize("name", REAL_QUESTIONS)
def test_real_streams_in_no_order_and_little_memory(name: str) -> None:
    asked, expected = REAL_QUESTIONS[name](), expected_real(name)
    tables = {stream: shuffled(table) for stream, table in asked.streams.items()}
    report = check(asked, expected, tables, memory="1MiB", page_size="16KiB")
    assert report.peak_bytes <= report.budget_bytes
    assert report.pages_written > 0


def on_time(table: pa.Table, lateness: int) -> pa.Table:
    """The rows that are not late, row by row: late is at or below (largest so far - lateness)."""
    largest, kept = -(2**63), []
    for row, t in enumerate(table["t"].to_pylist()):
        if t > largest - lateness:
            kept.append(row)
            largest = max(largest, t)
    return table.take(kept)


@needs_data
@pytest.mark.parametrize("algorithm", ["auto", "backward-nested-loop", "forward-hash"])
@pytest.mark.parametrize("lateness", [5, 900])
def test_logs_in_the_order_they_were_written(lateness: int, algorithm: str) -> None:
    """Real disorder: what comes too late is dropped and counted, the rest is joined."""
    written = {name: log(f"{name}_raw_order") for name in ("ssl", "dns")}
    written["weird"] = log("weird")
    kept = {name: on_time(table, lateness * SECOND) for name, table in written.items()}
    expected = answer_by_id(simple(kept, LOOKUPS, "id_orig_h"))
    sources = {
        name: matwin.stream(
            pieces(table, 500), schema=table.schema, late="drop",
            order=matwin.Lateness(lateness * SECOND),
        )
        for name, table in written.items()
    }  # fmt: skip
    report = check(simple(written, LOOKUPS, "id_orig_h"), expected, sources, algorithm=algorithm)
    for name, table in written.items():
        counts = report.streams[name]
        assert (counts.rows_in, counts.used) == (table.num_rows, kept[name].num_rows)
    assert (report.streams["ssl"].late > 0) == (lateness < 900)


def answer_by_id(asked: Asked) -> Ids:
    """The answer in the rows' own numbers, where some rows have been left out."""
    places = answer(asked)
    columns = [
        table["id"].to_numpy()[places[:, at]] for at, table in enumerate(asked.streams.values())
    ]
    return in_order(np.stack(columns, axis=1))
