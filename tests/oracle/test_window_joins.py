"""Window joins against DuckDB, on random streams of some thousand rows, and the papers' questions.

    streams ──join: every algorithm, on pages, live──▶ ids of the rows ─┐
                                                                        ├─ the same bag
    streams ──DuckDB (wreferee.py)────────────────────▶ ids of the rows ─┘

Every stream has a column `id`, its row number, so that an answer is an array of row numbers; the
other columns of the output are then looked up in the streams.  DuckDB answers once; every way to
run the join has to agree.  The SQL is written from what a question means, as `wquestions.py` holds
it, and is held against the nested loop there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from support import campaign
from wcases import questions
from wquestions import Asked, Bound, Predicate, simple, tuples_of, written
from wreferee import (
    ALGORITHMS,
    BOUNDS,
    SMALL,
    Ids,
    answer,
    check,
    in_order,
    live,
    numbered,
    usable,
)

import matwin


@given(questions())
@settings(max_examples=campaign(40, 2000))
def test_the_referees_agree(asked: Asked) -> None:
    expected = np.array(tuples_of(asked), np.int64).reshape(-1, len(asked.streams))
    assert np.array_equal(answer(asked), in_order(expected))


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
    unit = "ns" if kind == "units" else ""
    return asked_of(streams, graph, step, "k" if key else None, unit)


def asked_of(
    streams: dict[str, pa.Table], graph: str, step: Any, by: str | None, unit: str = ""
) -> Asked:
    """A constraint graph over these streams; windows are a few steps wide."""
    names = list(streams)
    links = list(pairwise(names))
    if graph == "clique":
        return simple(streams, 9 * step, by, unit=unit)
    if graph == "star":  # one in the middle, a window of its own for each
        return simple(
            streams,
            {(names[1], n): (3 + at) * step for at, n in enumerate(names) if n != names[1]},
            by,
            unit=unit,
        )
    if graph == "limits":  # a chain, ahead and behind, and one that closes it
        pairs: dict[Any, Any] = dict.fromkeys(links, (-9 * step, -2 * step))
        pairs[names[-1], names[0]] = (0, 16 * (len(names) - 1) * step // 2)
        return simple(streams, pairs, by, unit=unit)
    widths = [(5 + at) * step for at, _ in enumerate(links)]
    routes = [tuple(Bound(a, b, 0, w) for (a, b), w in zip(links, widths, strict=True))]
    if graph == "both ways":
        routes.append(tuple(Bound(b.b, b.a, 0, b.hi) for b in routes[0]))
    given = matwin.path(
        names, windows=[written(width, unit) for width in widths], both_ways=graph == "both ways"
    )
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
