"""Windows as difference constraints: closed bounds are right and tight, bad systems are named.

Small systems over a small line of time can be solved by trying every tuple: what is closed must
hold for every solution, and some solution must lie on each bound.  For larger numbers a plain
Bellman-Ford from each stream says the same thing in another way.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import matwin
from matwin import InputError
from matwin.operators.wjoin.constraints import Constraints

INTS = pa.int64()
Limits = dict[tuple[str, str], tuple[Any, Any]]


def closed(windows: Any, names: str = "abc", time_type: pa.DataType = INTS) -> Constraints:
    return Constraints.of(names, windows, time_type)


@st.composite
def systems(draw: st.DrawFn, width: int = 3, names_max: int = 4) -> tuple[str, Limits]:
    """Streams and limits between some pairs of them; connected, but maybe contradictory."""
    names = "abcde"[: draw(st.integers(2, names_max))]
    tree = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, len(names))]
    pairs = tree + draw(st.lists(st.sampled_from(list(combinations(names, 2))), max_size=4))
    limits: Limits = {}
    for pair in dict.fromkeys(pairs):
        lo = draw(st.integers(-width, width))
        limits[pair if draw(st.booleans()) else pair[::-1]] = (lo, lo + draw(st.integers(0, width)))
    return names, limits


def shortest(names: str, limits: Limits) -> list[list[Any]] | None:
    """The largest difference of each pair, by Bellman-Ford from every stream; None: there is a
    negative cycle."""
    steps = [(a, b, hi) for (a, b), (_, hi) in limits.items()]
    steps += [(b, a, -lo) for (a, b), (lo, _) in limits.items()]
    upper = []
    for start in names:
        far = {name: 0 if name == start else math.inf for name in names}
        for _ in names:
            for a, b, length in steps:
                far[b] = min(far[b], far[a] + length)
        if any(far[a] + length < far[b] for a, b, length in steps):
            return None
        upper.append([far[name] for name in names])
    return upper


def is_consistent(system: tuple[str, Limits]) -> bool:
    return shortest(*system) is not None


def solutions(names: str, limits: Limits, reach: int) -> list[tuple[int, ...]]:
    """Every tuple that satisfies the limits, the first stream's time being 0."""
    found = []
    for times in product(range(-reach, reach + 1), repeat=len(names) - 1):
        at = dict(zip(names, (0, *times), strict=True))
        if all(lo <= at[b] - at[a] <= hi for (a, b), (lo, hi) in limits.items()):
            found.append((0, *times))
    return found


# ── closing ──────────────────────────────────────────────────────────────────────────────────


@given(systems(width=100, names_max=5))
def test_closed_by_shortest_paths(system: tuple[str, Limits]) -> None:
    names, limits = system
    expected = shortest(names, limits)
    if expected is None:
        with pytest.raises(InputError, match="contradict each other along"):
            closed(limits, names)
    else:
        assert [list(row) for row in closed(limits, names).upper] == expected


@given(systems(width=2, names_max=3))
def test_closed_bounds_hold_and_are_tight(system: tuple[str, Limits]) -> None:
    """No tuple that the windows admit is outside, and on every bound there is one."""
    names, limits = system
    tuples = solutions(names, limits, reach=4 * (len(names) - 1))
    if not tuples:
        with pytest.raises(InputError, match="contradict"):
            closed(limits, names)
        return
    upper = closed(limits, names).upper
    for i, j in product(range(len(names)), repeat=2):
        assert max(times[j] - times[i] for times in tuples) == upper[i][j]


@given(systems(width=3).filter(is_consistent))
def test_wider_bounds_are_never_tighter(system: tuple[str, Limits]) -> None:
    names, limits = system
    constraints = closed(limits, names)
    for kind in ("global", "local", "graph"):
        bounds = constraints.bounds(kind)
        for i, j in product(range(len(names)), repeat=2):
            assert bounds[i][j] >= constraints.upper[i][j]
    assert constraints.bounds("graph") == constraints.upper


@given(
    systems(width=2, names_max=3).filter(is_consistent),
    st.sampled_from(["global", "local", "graph"]),
)
def test_what_needs_no_refinement(system: tuple[str, Limits], kind: str) -> None:
    """Where it is said that bounds suffice, every tuple within them satisfies the windows."""
    names, limits = system
    constraints = closed(limits, names)
    if not constraints.is_refined(kind):
        assert kind != "graph"  # the closed windows of one system of whole numbers always do
        return
    bounds = constraints.bounds(kind)
    within = {
        (names[i], names[j]): (-bounds[j][i], bounds[i][j])
        for i, j in combinations(range(len(names)), 2)
    }
    reach = 4 * (len(names) - 1)
    assert solutions(names, within, reach) == solutions(names, limits, reach)


tenths = st.integers(-30, 30).map(lambda n: n / 10) | st.integers(-30, 30).map(lambda n: n * 0.1)
far_floats = st.floats(-1e9, 1e9)


@given(st.lists(tenths | far_floats, min_size=3, max_size=5), st.randoms(use_true_random=False))
def test_floats_are_never_lost_to_rounding(times: list[float], chance: Any) -> None:
    """Windows as narrow as a tuple's own differences, rounded as the join rounds them, admit it."""
    names = "abcde"[: len(times)]
    at = dict(zip(names, times, strict=True))
    pairs = set(pairwise(names)) | {p for p in combinations(names, 2) if chance.random() < 0.5}
    limits = {(a, b): (at[b] - at[a], at[b] - at[a]) for a, b in pairs}
    upper = closed(limits, names, pa.float64()).upper
    for (i, a), (j, b) in product(enumerate(names), repeat=2):
        assert at[b] - at[a] <= upper[i][j]


def test_floats_whose_sums_have_no_end() -> None:
    upper = closed({("a", "b"): 1e308, ("b", "c"): 1e308}, "abc", pa.float64()).upper
    assert upper[0][2] == math.inf  # no limit: the given windows decide


def test_whole_numbers_do_not_pass_through_floats() -> None:
    wide = 2**62 + 1
    upper = closed({("a", "b"): wide, ("b", "c"): wide, ("c", "d"): wide}, "abcd").upper
    assert (upper[0][1], upper[0][2], upper[0][3]) == (wide, 2 * wide, 3 * wide)


# ── how windows are written ──────────────────────────────────────────────────────────────────


def spans(constraints: Constraints) -> list[Any]:
    return [
        {(constraints.names[b.a], constraints.names[b.b]): (b.lo, b.hi) for b in alternative}
        for alternative in constraints.alternatives
    ]


def test_one_window_is_every_pair() -> None:
    every = dict.fromkeys(combinations("abc", 2), (-5, 5))
    assert spans(closed(5)) == [every]
    assert closed(5).upper == ((0, 5, 5), (5, 0, 5), (5, 5, 0))


@pytest.mark.parametrize(
    ("window", "limits"),
    [
        (7, (-7, 7)),
        (matwin.then(7), (0, 7)),
        ((-2, 9), (-2, 9)),
        ((3, 4), (3, 4)),
        ((-9, -3), (-9, -3)),
        ((0, 0), (0, 0)),
    ],
)
def test_windows_of_a_pair(window: Any, limits: tuple[int, int]) -> None:
    assert spans(closed({("b", "a"): window}, "ab")) == [{("b", "a"): limits}]


@pytest.mark.parametrize(
    "window", ["1500ms", "1.5s", timedelta(seconds=1.5), np.timedelta64(1500, "ms")]
)
def test_durations(window: Any) -> None:
    found = closed({("a", "b"): window}, "ab", pa.timestamp("ms"))
    assert spans(found) == [{("a", "b"): (-1500, 1500)}]


def test_paths() -> None:
    """The order is the path's, not that of the streams; back again is another alternative."""
    given_ = matwin.path(["c", "a", "b"], windows=[2, 3])
    forth = {("c", "a"): (0, 2), ("a", "b"): (0, 3)}
    assert spans(closed(given_)) == [forth]
    assert closed(given_).upper == ((0, 3, 0), (0, 0, 0), (2, 5, 0))
    both = closed(matwin.path(["c", "a", "b"], windows=[2, 3], both_ways=True))
    assert spans(both) == [forth, {("c", "a"): (-2, 0), ("a", "b"): (-3, 0)}]
    assert both.upper == ((0, 3, 2), (3, 0, 5), (2, 5, 0))


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "windows", "parts"),
    [
        ("abc", {("a", "b"): 1}, [["a", "b"], ["c"]]),
        ("abcd", {("a", "c"): 1, ("d", "b"): 1}, [["a", "c"], ["b", "d"]]),
        ("abcd", {("b", "c"): 1}, [["a"], ["b", "c"], ["d"]]),
    ],
)
def test_parts_that_nothing_connects(names: str, windows: Any, parts: list[list[str]]) -> None:
    with pytest.raises(InputError, match="nothing connects") as told:
        closed(windows, names)
    found = [part.split(", ") for part in re.findall(r"\{(.*?)\}", str(told.value))]
    assert sorted(sorted(part) for part in found) == parts


@st.composite
def contradictions(draw: st.DrawFn) -> tuple[str, Limits]:
    """Every stream of a ring must come after the one before; others hang on to it."""
    names = "abcde"[: draw(st.integers(3, 5))]
    order = draw(st.permutations(names))
    ring = order[: draw(st.integers(3, len(names)))]
    limits: Limits = {}
    for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
        lo, hi = draw(st.integers(1, 3)), draw(st.integers(3, 6))
        if draw(st.booleans()):
            limits[a, b] = (lo, hi)
        else:
            limits[b, a] = (-hi, -lo)
    for name in order[len(ring) :]:
        limits[draw(st.sampled_from(ring)), name] = (-draw(st.integers(0, 9)), 9)
    return names, limits


@given(contradictions())
def test_contradictions_name_their_streams(system: tuple[str, Limits]) -> None:
    """The streams that are named contradict each other by themselves."""
    names, limits = system
    assert shortest(names, limits) is None
    with pytest.raises(InputError) as told:
        closed(limits, names)
    found = re.search(r"along (\w(?: → \w)+)", str(told.value))
    assert found is not None, told.value
    cycle = found[1].split(" → ")
    assert cycle[0] == cycle[-1] and len(set(cycle)) == len(cycle) - 1
    length = 0
    for a, b in pairwise(cycle):
        steps = [hi for pair, (_, hi) in limits.items() if pair == (a, b)]
        steps += [-lo for pair, (lo, _) in limits.items() if pair == (b, a)]
        assert steps, f"{a} and {b} have no window"
        length += min(steps)
    assert length < 0


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        (0, r"\(0, 0\)"),
        ({("a", "b"): 0, ("b", "c"): 1}, r"\('a', 'b'\).*\(0, 0\)"),
        ({("a", "b"): matwin.then(0), ("b", "c"): 1}, r"\('a', 'b'\).*\(0, 0\)"),
        ({("a", "b"): -1, ("b", "c"): 1}, r"\('a', 'b'\).*-1"),
        ({("a", "b"): (2, 1), ("b", "c"): 1}, r"\('a', 'b'\).*\(2, 1\)"),
        ({("a", "x"): 1}, "'x'.*the streams are a, b, c"),
        ({("a", "a"): 1}, r"\('a', 'a'\).*twice"),
        ({("a", "b"): 1, ("b", "a"): 2, ("b", "c"): 1}, r"\('b', 'a'\)"),
        ({"ab": 1}, "'ab' is no pair"),
        ({("a", "b", "c"): 1}, "no pair"),
        ({}, "windows"),
        (None, "windows"),
        (True, "windows"),
        ((0, 5), "needs its streams"),
        (matwin.then(5), "needs its streams"),
        ({("a", "b"): None, ("b", "c"): 1}, r"\('a', 'b'\)"),
        ({("a", "b"): math.inf, ("b", "c"): 1}, r"\('a', 'b'\).*finite"),
        ({("a", "b"): math.nan, ("b", "c"): 1}, r"\('a', 'b'\).*finite"),
        ({("a", "b"): "5s", ("b", "c"): 1}, r"\('a', 'b'\).*'5s'"),
        ({("a", "b"): (1, 2, 3), ("b", "c"): 1}, r"\('a', 'b'\)"),
        ({("a", "b"): matwin.then((0, 1)), ("b", "c"): 1}, r"\('a', 'b'\).*then"),
    ],
)
def test_windows_that_are_none(windows: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        closed(windows)


@pytest.mark.parametrize(
    ("names", "windows", "says"),
    [
        (["a", "b", "c"], [1], "3 streams have 2 steps"),
        (["a"], [], "0 steps"),
        ("abc", [1, 1], "names of the streams"),
        (["a", "b"], 1, "give a list"),
        (["a", "b"], "5s", "give a list"),
    ],
)
def test_paths_that_are_none(names: Any, windows: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        matwin.path(names, windows=windows)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "d"], ["a", "b", "a"]])
def test_a_path_passes_every_stream_once(names: list[str]) -> None:
    with pytest.raises(InputError, match="each stream once; the streams are a, b, c"):
        closed(matwin.path(names, windows=[1] * (len(names) - 1)))
