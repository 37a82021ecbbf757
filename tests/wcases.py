"""Questions for window joins, drawn by Hypothesis with their meaning beside them.

    kind       types and values of the times: ties, edges of 64 bits, tenths, mixed units, dates
    graph      a random tree of windows and some more of them: uniform, pairs, (lo, hi), then, paths
    by, where  keys under one name or several, tolerances, functions of both sorts

Windows never contradict each other: streams get spots on the line of time, and every window admits
the distance between the spots of its streams.  Times and keys are drawn one by one, so that they
shrink; the payload comes from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from questions import INT_EDGES, ODD_FLOATS, column_of
from wquestions import DAY, PER_SECOND, Asked, Bound, Predicate

import matwin

# ── times ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Kind:
    """Times of the streams: types, values of each, and how far apart they may be.

    `step` is what neighbours differ by; `slacks` are added to both ends of a window.
    """

    types: list[pa.DataType]
    values: list[st.SearchStrategy[Any]]
    slacks: list[int | float]
    step: int | float = 1
    unit: str | None = None

    def written(self, amount: int | float) -> st.SearchStrategy[Any]:
        """An amount of time as a user may write it."""
        if not self.unit:
            return st.just(amount)
        ways: list[Any] = [f"{amount}{self.unit}", *([0] if amount == 0 else [])]
        if abs(amount) < 2**63:
            ways.append(np.timedelta64(amount, {"d": "D"}.get(self.unit, self.unit)))
        if self.unit == "d":
            ways.append(timedelta(days=amount))
        elif self.unit != "ns":
            ways.append(timedelta(microseconds=amount * (10**6 // PER_SECOND[self.unit])))
        return st.sampled_from(ways)


# Where rounding decides: 0.3 - 0.2 is a little less than 0.1, and 3 * 0.1 is not 0.3.
TENTHS = st.integers(-3, 3).map(lambda n: n / 10) | st.integers(-3, 3).map(lambda n: n * 0.1)


def _or_odd(near: st.SearchStrategy[Any], odd: list[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[near] * 11, st.sampled_from([*odd, None]))


def _whole(count: int, *types: pa.DataType) -> st.SearchStrategy[Kind]:
    near = _or_odd(st.integers(-2, 2), [-9, 9])
    drawn = st.lists(st.sampled_from(types), min_size=count, max_size=count)
    return drawn.map(lambda chosen: Kind(chosen, [near] * count, [0, 1, 2, 3, 4]))


WIDEST = 2**63 - 1
"""What a window of whole numbers can be at most."""


def _edges(count: int) -> st.SearchStrategy[Kind]:
    near = _or_odd(st.sampled_from([*INT_EDGES, 0, 1, -1]), [])
    slacks = [0, 1, 2, 2**62, WIDEST]
    return st.just(Kind([pa.int64()] * count, [near] * count, slacks))


def _unsigned(count: int) -> st.SearchStrategy[Kind]:
    near = _or_odd(st.integers(0, 4), [2**64 - 1, 2**64 - 3, 2**63, 2**63 - 1])
    return st.just(Kind([pa.uint64()] * count, [near] * count, [0, 1, 2, 3, 4]))


def _floats(count: int) -> st.SearchStrategy[Kind]:
    def kind(is_whole: list[bool]) -> Kind:
        types = [pa.int64() if whole else pa.float64() for whole in is_whole]
        values = [st.integers(-1, 1) if w else _or_odd(TENTHS, ODD_FLOATS) for w in is_whole]
        return Kind(types, values, [0.0, 0.1, 0.3, 0.2, 0.7, 1e308], 0.1)

    whole = st.sampled_from([[False] * count, [True] + [False] * (count - 1)])
    return whole.map(kind)


def _units(count: int) -> st.SearchStrategy[Kind]:
    """Times of mixed units around half seconds, so that exact and by-one distances occur."""

    def kind(units: list[str]) -> Kind:
        finest = max(units, key=PER_SECOND.__getitem__)
        half = max(PER_SECOND[finest] // 2, 1)
        values = [_or_odd(_half_seconds(unit), []) for unit in units]
        types = [pa.timestamp(unit) for unit in units]
        return Kind(types, values, [0, 1, half, 2 * half, 2 * half - 1, 5 * half], half, finest)

    return st.lists(st.sampled_from(list(PER_SECOND)), min_size=count, max_size=count).map(kind)


def _half_seconds(unit: str) -> st.SearchStrategy[int]:
    if unit == "s":
        return st.integers(-2, 2)
    half = PER_SECOND[unit] // 2
    return st.tuples(st.integers(-3, 3), st.sampled_from([0, 0, 1, -1])).map(
        lambda drawn: drawn[0] * half + drawn[1]
    )


def _zoned(count: int) -> st.SearchStrategy[Kind]:
    zones = st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York"])
    near = _or_odd(st.integers(-2, 2), [2**60, -(2**60)])
    return st.lists(zones, min_size=count, max_size=count).map(
        lambda chosen: Kind(
            [pa.timestamp("us", zone) for zone in chosen], [near] * count, [0, 1, 3, 4], 1, "us"
        )
    )


def _dates(count: int) -> st.SearchStrategy[Kind]:
    """Dates, or dates beside times at midnight and around it."""
    near = _or_odd(st.integers(-3, 3), [])
    around = _or_odd(
        st.tuples(st.integers(-3, 3), st.integers(-1, 1)).map(lambda d: d[0] * DAY + d[1]), []
    )
    days = Kind([pa.date32()] * count, [near] * count, [0, 1, 2], 1, "d")
    mixed = Kind(
        [pa.timestamp("s")] + [pa.date32()] * (count - 1), [around] + [near] * (count - 1),
        [0, 1, DAY, 2 * DAY - 1], DAY, "s",
    )  # fmt: skip
    return st.sampled_from([days, mixed])


def _durations(count: int) -> st.SearchStrategy[Kind]:
    near = _or_odd(st.integers(-2, 2), [])
    return st.just(Kind([pa.duration("ms")] * count, [near] * count, [0, 1, 2, 4], 1, "ms"))


KINDS: dict[str, Callable[[int], st.SearchStrategy[Kind]]] = {
    "ints": lambda count: _whole(count, pa.int64()),
    "small ints": lambda count: _whole(count, pa.int64(), pa.int16(), pa.int32()),
    "edges": _edges, "unsigned": _unsigned, "floats": _floats, "units": _units, "zoned": _zoned,
    "dates": _dates, "durations": _durations,
}  # fmt: skip

# ── windows ──────────────────────────────────────────────────────────────────────────────────

Windows = tuple[tuple[tuple[Bound, ...], ...], Any]
"""What they mean, and how they are written."""


@st.composite
def windows(draw: st.DrawFn, names: list[str], kind: Kind) -> Windows:
    """Windows that connect all streams and do not contradict each other."""
    form = draw(st.sampled_from(["uniform", "pairs", "pairs", "pairs", "path"]))
    wide = [slack for slack in kind.slacks if slack > 0]
    if form == "uniform":
        width = draw(st.sampled_from(wide))
        route = tuple(Bound(a, b, -width, width) for a, b in combinations(names, 2))
        return (route,), draw(kind.written(width))
    if form == "path":
        order = draw(st.permutations(names))
        widths = [draw(st.sampled_from(wide)) for _ in names[1:]]
        steps = list(zip(pairwise(order), widths, strict=True))
        routes = [tuple(Bound(a, b, 0, width) for (a, b), width in steps)]
        both_ways = draw(st.booleans())
        if both_ways:
            routes.append(tuple(Bound(b, a, 0, width) for (a, b), width in steps))
        written = [draw(kind.written(width)) for width in widths]
        return tuple(routes), matwin.path(order, windows=written, both_ways=both_ways)
    drawn = [draw(_window(pair, kind)) for pair in draw(_graphs(names, kind))]
    return (tuple(bound for bound, _ in drawn),), {(b.a, b.b): given for b, given in drawn}


Edge = tuple[str, str, int | float, bool]
"""Two streams, how far apart their spots are, and whether it closes a cycle."""


@st.composite
def _graphs(draw: st.DrawFn, names: list[str], kind: Kind) -> list[Edge]:
    spots = {name: draw(st.sampled_from([0] * 6 + [1, -2])) * kind.step for name in names}
    order = draw(st.permutations(names))
    tree = [(order[i], order[draw(st.integers(0, i - 1))]) for i in range(1, len(names))]
    others = [p for p in combinations(names, 2) if p not in tree and p[::-1] not in tree]
    more = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
    edges = [(pair, False) for pair in tree] + [(pair, True) for pair in more]
    turned = [(pair[::-1] if draw(st.booleans()) else pair, closes) for pair, closes in edges]
    return [(a, b, spots[b] - spots[a], closes) for (a, b), closes in turned]


@st.composite
def _window(draw: st.DrawFn, edge: Edge, kind: Kind) -> tuple[Bound, Any]:
    a, b, apart, closes = edge
    # Sums of tenths are rounded: a window that closes a cycle needs some room.
    slacks = [s for s in kind.slacks if s or not (closes and isinstance(s, float))]
    slacks += kind.slacks[-2:] * 2
    wide = slacks[1:]
    form = draw(st.sampled_from(["symmetric", "limits", "limits", "then"]))
    if form == "limits":
        lo, hi = apart - draw(st.sampled_from(slacks)), apart + draw(st.sampled_from(slacks))
        if isinstance(apart, int):
            lo, hi = max(lo, -WIDEST), min(hi, WIDEST)
        return Bound(a, b, lo, hi), (draw(kind.written(lo)), draw(kind.written(hi)))
    width = abs(apart) + draw(st.sampled_from(wide))
    width = min(width, WIDEST) if isinstance(width, int) else width
    if form == "symmetric":
        return Bound(a, b, -width, width), draw(kind.written(width))
    if apart < 0:
        a, b = b, a
    return Bound(a, b, 0, width), matwin.then(draw(kind.written(width)))


# ── keys ─────────────────────────────────────────────────────────────────────────────────────

KEY_VALUES: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "int": ([pa.int64(), pa.int32()], [*[7] * 8, 0, None]),
    "text": ([pa.string(), pa.large_string()], [*["a"] * 8, "b", "", None]),
    "float": ([pa.float64()], [*[0.0, -0.0] * 6, 1.5, math.nan, math.inf, None]),
    "bool": ([pa.bool_()], [*[True] * 6, False, None]),
}


@dataclass(frozen=True)
class Keys:
    """Kinds of the keys, what each stream calls them, and `by` as it is written."""

    kinds: list[str]
    names: dict[str, tuple[str, ...]]
    by: Any


@st.composite
def keys(draw: st.DrawFn, names: list[str]) -> Keys:
    """No key, one, or two, under one name for all or under names of each stream."""
    count = draw(st.sampled_from([0, 0, 1, 1, 2]))
    if not count:
        return Keys([], {}, None)
    kinds = draw(st.lists(st.sampled_from(list(KEY_VALUES)), min_size=count, max_size=count))
    called = [f"k{at}" for at in range(count)]
    if draw(st.booleans()):
        shared = dict.fromkeys(names, tuple(called))
        return Keys(kinds, shared, called if count > 1 or draw(st.booleans()) else called[0])
    own = {name: tuple(f"{key}_of_{name}" for key in called) for name in names}
    is_bare = count == 1 and draw(st.booleans())
    return Keys(kinds, own, {name: of[0] if is_bare else list(of) for name, of in own.items()})


# ── predicates ───────────────────────────────────────────────────────────────────────────────


def near(a: Any, b: Any) -> Any:
    """Numba compiles it."""
    return abs(a - b) <= 1


def total(a: Any, b: Any, c: Any) -> Any:
    """Three columns, compiled."""
    return a + b <= c


def difference(a: Any, b: Any) -> Any:
    """Not a truth value but a number; NaN is not true."""
    return a - b


def even(a: Any, b: Any) -> Any:
    """Works on whole columns only."""
    return np.array([(p + q) % 2 == 0 for p, q in zip(a.tolist(), b.tolist(), strict=True)])


def same(a: Any, b: Any) -> Any:
    """For text."""
    return a == b


def _is_true_difference(a: float, b: float) -> bool:
    return not math.isnan(a - b) and a != b


FUNCTIONS: list[tuple[Any, str, Callable[..., bool], str]] = [
    (near, "0.x 1.x", lambda a, b: abs(a - b) <= 1, "abs({0} - {1}) <= 1"),
    (total, "0.x 1.x 0.id", lambda a, b, c: a + b <= c, "{0} + {1} <= {2}"),
    (total, "1.v 0.v 1.x", lambda a, b, c: a + b <= c, "{0} + {1} <= {2}"),
    (difference, "0.v 1.v", _is_true_difference, "{0} <> {1} and not isnan({0} - {1})"),
    (even, "0.x 1.x", lambda a, b: (a + b) % 2 == 0, "({0} + {1}) % 2 = 0"),
    (same, "0.name 1.name", lambda a, b: a == b, "{0} = {1}"),
]
"""A function, its columns (of which of two streams), what it means, and what it means in SQL."""
TOLERANCES: dict[str, list[tuple[Any, Any, Any]]] = {
    "x": [(1, -1, 1), (0, 0, 0), ((-1, 2), -1, 2), ((1, 1), 1, 1)],
    "v": [(0.1, -0.1, 0.1), ((0.1, 0.3), 0.1, 0.3), (1, -1, 1)],
    "at": [
        ("2ms", -2, 2),
        ("1ms", -1, 1),
        (timedelta(milliseconds=3), -3, 3),
        (("-2ms", 0), -2, 0),
    ],
}


ODD_TOLERANCES: dict[str, list[tuple[Any, Callable[[Any], bool], str]]] = {
    "x": [
        ((None, 1), lambda d: d <= 1, "{d} <= 1"),
        ((0, None), lambda d: d >= 0, "{d} >= 0"),
        (matwin.strict(2), lambda d: -2 < d < 2, "{d} > -2 and {d} < 2"),
        (matwin.strict(None, 0), lambda d: d < 0, "{d} < 0"),
        (matwin.nonzero(), lambda d: d != 0, "{d} <> 0"),
        (matwin.nonzero(1), lambda d: -1 <= d <= 1 and d != 0, "abs({d}) = 1"),
    ],
    "v": [
        ((None, 0.1), lambda d: d <= 0.1, "{d} <= 0.1"),
        (matwin.strict(0, 0.3), lambda d: 0 < d < 0.3, "{d} > 0 and {d} < 0.3"),
        (matwin.nonzero(0.1), lambda d: -0.1 <= d <= 0.1 and d != 0,
         "{d} between -0.1 and 0.1 and {d} <> 0"),
    ],
    "at": [
        ((None, "1ms"), lambda d: d <= 1, "{d} <= 1"),
        (matwin.strict("2ms"), lambda d: -2 < d < 2, "{d} > -2 and {d} < 2"),
        (matwin.nonzero("2ms"), lambda d: -2 <= d <= 2 and d != 0,
         "{d} between -2 and 2 and {d} <> 0"),
    ],
}  # fmt: skip
"""A tolerance, what it means for a difference, and what it means in SQL."""


@st.composite
def predicates(draw: st.DrawFn, names: list[str]) -> tuple[tuple[Predicate, ...], Any]:
    """None to two predicates, and `where` as it is written."""
    tests, written = [], []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        pair = draw(st.permutations(names))[:2]
        if draw(st.booleans()):
            given, columns, holds, sql = draw(st.sampled_from(FUNCTIONS))
            named = (column.split(".") for column in columns.split())
            places = tuple((pair[int(at)], column) for at, column in named)
        else:
            column = draw(st.sampled_from(list(TOLERANCES)))
            given, holds, sql = draw(st.sampled_from(_tolerances(column)))
            places = tuple((stream, column) for stream in pair)
        tests.append(Predicate(places, holds, sql))
        written.append({tuple(f"{s}.{c}" for s, c in places): given})
    if not tests:
        return (), None
    is_one = len(written) == 1 and draw(st.booleans())
    return tuple(tests), written[0] if is_one else written


def _tolerances(column: str) -> list[tuple[Any, Callable[[Any, Any], bool], str]]:
    """Tolerances as they are written, what they mean for two values, and in SQL."""
    usual = [
        (given, _between(lo, hi), f"{{1}} - {{0}} between {lo} and {hi}")
        for given, lo, hi in TOLERANCES[column]
    ]
    odd = ODD_TOLERANCES[column]
    return usual + [(one, _of_difference(holds), sql.replace("{d}", "({1} - {0})"))
                    for one, holds, sql in odd]  # fmt: skip


def _between(lo: Any, hi: Any) -> Callable[[Any, Any], bool]:
    return lambda a, b: lo <= b - a <= hi


def _of_difference(holds: Callable[[Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: holds(b - a)


# ── questions ────────────────────────────────────────────────────────────────────────────────

ROWS = {2: (5, 8), 3: (4, 6), 4: (4, 5), 5: (3, 4)}
"""How many rows a stream has, by the number of streams."""


@st.composite
def questions(
    draw: st.DrawFn, *, kinds: tuple[str, ...] = tuple(KINDS), with_where: bool = True
) -> Asked:
    """A window join of two to five small streams."""
    names = [*"abcde"][: draw(st.sampled_from([2, 3, 3, 3, 4, 4, 5]))]
    kind = draw(KINDS[draw(st.sampled_from(kinds))](len(names)))
    by = draw(keys(names))
    is_own = draw(st.booleans())
    time = {name: f"t_{name}" if is_own else "t" for name in names}
    rows = [draw(st.integers(*ROWS[len(names)])) for _ in names]
    if draw(st.integers(0, 9)) == 9:
        rows[draw(st.integers(0, len(names) - 1))] = draw(st.integers(0, 1))
    streams = {
        name: draw(tables(kind.types[at], kind.values[at], time[name], by, name, rows[at]))
        for at, name in enumerate(names)
    }
    if streams["a"].schema == streams["b"].schema and draw(st.integers(0, 3)) == 0:
        streams["b"] = streams["a"]
    routes, given = draw(windows(names, kind))
    tests, where = draw(predicates(names)) if with_where else ((), None)
    arguments = {"time": time if is_own else "t", "windows": given, "by": by.by, "where": where}
    return Asked(streams, time, routes, by.names, tests, arguments)


@st.composite
def tables(
    draw: st.DrawFn,
    data_type: pa.DataType,
    values: st.SearchStrategy[Any],
    time: str,
    by: Keys,
    name: str,
    rows: int,
) -> pa.Table:
    """A stream's rows: the time, keys and some payload, in no order."""
    columns = {time: column_of(draw(st.lists(values, min_size=rows, max_size=rows)), data_type)}
    for called, kind in zip(by.names.get(name, ()), by.kinds, strict=True):
        types, choices = KEY_VALUES[kind]
        drawn = draw(st.lists(st.sampled_from(choices), min_size=rows, max_size=rows))
        columns[called] = pa.array(drawn, draw(st.sampled_from(types)))
    chance = random.Random(draw(st.integers(0, 999)))

    def chosen(*among: Any) -> list[Any]:
        return [chance.choice(among) for _ in range(rows)]

    columns["id"] = pa.array(chance.choice([list(range(rows)), [0] * rows]), pa.int64())
    columns["x"] = pa.array(chosen(-1, 0, 1, 2, 3, 3, None), pa.int64())
    columns["v"] = pa.array(chosen(0.1, 0.2, 0.3, 0.7, 0.8, -0.0, math.nan, math.inf, None))
    columns["v"] = columns["v"].cast(pa.float64())
    columns["at"] = column_of(chosen(0, 1, 2, 5, None), pa.timestamp("ms"))
    columns["name"] = pa.array(chosen("p", "q", None), pa.string())
    if name in ("a", "b"):
        columns["tags"] = pa.array(chosen([], [1, None], None), pa.list_(pa.int32()))
    return pa.table(columns)
