"""Windows between streams, as difference constraints closed by shortest paths.  Pure.

    windows={("a", "b"): "5s", ("b", "c"): then("3s")}

    a ◀── 5 ──▶ b ── 0..3 ──▶ c        given:    -5 <= b - a <= 5,   0 <= c - b <= 3
                                       follows:  -5 <= c - a <= 8    (a path through b)

`upper[i][j]` is the largest ``t_j - t_i``; every pair has one after the closure, because a graph
that is not connected is refused: its state would be unbounded.  A cycle whose upper bounds sum to
less than nothing admits no tuple at all and is refused as well.

A path in both directions is two systems, and a tuple qualifies when it satisfies one of them; the
hull of both bounds what is looked at.  A tuple that satisfies both is still one tuple.

Invariant: no tuple that satisfies an alternative lies outside `upper`, also with floats, whose sums
are rounded: those windows are widened by more than that first, and the given ones decide.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension
from matwin.storage.units import Amount, is_duration, shown

BOUNDS = ("global", "local", "graph")
FLOAT_SLACK = 2.0**-40
LARGEST = sys.float_info.max
FARTHEST = 2**63 - 1
"""What is as far apart is looked for without a limit, and decided by the given windows."""
Number = int | float
Matrix = tuple[tuple[Number, ...], ...]


@dataclass(frozen=True, slots=True)
class Then:
    """A directed window: the second stream's row comes at the same time or up to `within` later."""

    within: Amount


@dataclass(frozen=True, slots=True)
class Path:
    """Streams one after the other, each within its window of the one before."""

    names: tuple[str, ...]
    windows: tuple[Amount, ...]
    both_ways: bool


def then(within: Amount) -> Then:
    """A directed window, for a pair ``(a, b)``: ``0 <= t_b - t_a <= within``.

    >>> then("5s")
    Then(within='5s')
    """
    return Then(within)


def path(names: Sequence[str], *, windows: Sequence[Amount], both_ways: bool = False) -> Path:
    """Rows that pass the streams in this order; with `both_ways`, in this order or the reverse.

    >>> path(["a", "b", "c"], windows=["5s", "3s"]).windows
    ('5s', '3s')
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"path({names!r}): give the names of the streams in their order")
    if is_duration(windows) or not isinstance(windows, Sequence):
        raise InputError(f"path(windows={windows!r}): give a list, one window for each step")
    if len(windows) != len(names) - 1 or len(names) < 2:
        raise InputError(
            f"path({list(names)}, windows={list(windows)}): {len(names)} streams have "
            f"{max(len(names) - 1, 0)} steps, each with a window of its own"
        )
    return Path(tuple(names), tuple(windows), bool(both_ways))


@dataclass(frozen=True, slots=True)
class Between:
    """``lo <= t_b - t_a <= hi``, for streams by number."""

    a: int
    b: int
    lo: Number
    hi: Number

    def reversed(self) -> Between:
        """The same window along the opposite direction."""
        return Between(self.a, self.b, -self.hi, -self.lo)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the times of a qualifying tuple satisfy: one of `alternatives`, all of its windows."""

    names: tuple[str, ...]
    alternatives: tuple[tuple[Between, ...], ...]
    upper: Matrix
    is_float: bool

    @classmethod
    def of(
        cls, names: Sequence[str], windows: object, time_type: pa.DataType, time: str = "time"
    ) -> Constraints:
        """The constraints of the argument `windows`, in units of the time's type; `time` is what
        the time column is called."""
        is_float = bool(pa.types.is_floating(time_type))
        systems = _systems(tuple(names), windows, pa.field(time, time_type))
        for system in systems:
            _check_connected(names, system)
        closed = [_closed(names, [_wider(one) for one in system]) for system in systems]
        upper = closed[0]
        for other in closed[1:]:
            upper = _hull(upper, other)
        return cls(tuple(names), tuple(systems), upper, is_float)

    def bounds(self, kind: str) -> Matrix:
        """The upper bounds that candidates are looked for in, none tighter than `upper`.

        ``graph`` is `upper` itself; ``local`` takes the widest window of each stream, ``global``
        the widest of all.
        """
        if kind == "graph":
            return self.upper
        count = len(self.names)
        widths = [
            max(abs(w) for j in range(count) for w in (self.upper[i][j], self.upper[j][i]))
            for i in range(count)
        ]
        widest = [max(widths)] * count if kind == "global" else widths
        return tuple(
            tuple(0 if i == j else min(widest[i], widest[j]) for j in range(count))
            for i in range(count)
        )

    @property
    def is_uniform(self) -> bool:
        """Whether every pair has the same symmetric window: then rows that are within it of the
        latest are within it of each other."""
        count = len(self.names)
        widths = {self.upper[i][j] for i in range(count) for j in range(count) if i != j}
        return not self.is_float and len(self.alternatives) == 1 and len(widths) == 1

    def is_refined(self, kind: str) -> bool:
        """Whether tuples within the bounds of this kind satisfy the constraints already."""
        is_narrow = all(one.hi < FARTHEST and -one.lo < FARTHEST for one in self.alternatives[0])
        bounds = self.bounds(kind)
        is_single = not self.is_float and len(self.alternatives) == 1
        return is_single and is_narrow and bounds == self.upper


def _systems(names: tuple[str, ...], windows: object, field: pa.Field) -> list[tuple[Between, ...]]:
    if isinstance(windows, Path):
        return _path_systems(names, windows, field)
    if isinstance(windows, Mapping):
        if not windows:
            raise InputError('windows={}: write for example windows={("a", "b"): "5s"}')
        return [_pairs(names, windows, field)]
    if isinstance(windows, tuple | Then) or windows is None or isinstance(windows, bool):
        raise InputError(
            f"windows={shown(windows)}: one duration holds for every pair; a pair (lo, hi) or "
            'then(...) needs its streams: windows={("a", "b"): ...}'
        )
    pairs = dict.fromkeys(combinations(names, 2), windows)
    return [_pairs(names, pairs, field)]


def _path_systems(names: tuple[str, ...], given: Path, field: pa.Field) -> list[Any]:
    if sorted(given.names) != sorted(names):
        raise InputError(
            f"the path {' → '.join(given.names)} must name each stream once; the streams are "
            f"{', '.join(names)}"
        )
    steps = {
        step: Then(window)
        for step, window in zip(pairwise(given.names), given.windows, strict=True)
    }
    forth = _pairs(names, steps, field)
    return [forth, tuple(one.reversed() for one in forth)] if given.both_ways else [forth]


def _pairs(
    names: tuple[str, ...], windows: Mapping[Any, Any], field: pa.Field
) -> tuple[Between, ...]:
    seen: set[frozenset[str]] = set()
    found = []
    for pair, window in windows.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"windows: {pair!r} is no pair of streams; write ('a', 'b')")
        for name in pair:
            if name not in names:
                raise InputError(
                    f"windows: {name!r} in the pair {pair!r} is no stream; the streams are "
                    f"{', '.join(names)}"
                )
        if pair[0] == pair[1]:
            raise InputError(f"windows: the pair {pair!r} names one stream twice")
        if frozenset(pair) in seen:
            raise InputError(f"windows: the pair {pair!r} has two windows; give it one")
        seen.add(frozenset(pair))
        lo, hi = _limits(pair, window, field)
        found.append(Between(names.index(pair[0]), names.index(pair[1]), lo, hi))
    return tuple(found)


def _limits(pair: tuple[str, str], window: Any, field: pa.Field) -> tuple[Number, Number]:
    """The least and the greatest difference that a window admits."""
    where = f"windows: the pair {pair!r}"
    inner = window.within if isinstance(window, Then) else window
    if inner is None or isinstance(inner, bool):
        raise InputError(f"{where} has the window {shown(inner)}; without one its state has no end")
    limits = inner if isinstance(inner, tuple) else (inner,)
    if any(isinstance(limit, float) and not math.isfinite(limit) for limit in limits):
        raise InputError(
            f"{where} has the window {shown(inner)}; a window of the time {field.name!r} must be "
            "finite"
        )
    try:
        bound = Dimension.of(field, inner)
    except InputError as e:
        raise InputError(f"{where} has the window {shown(inner)}: {e}") from e
    if bound.lo is None or bound.hi is None:
        raise InputError(f"{where} has no window")
    if not isinstance(inner, tuple) and bound.hi <= 0:
        raise InputError(
            f"{where} has a window of {shown(inner)}, and a window must be wider than nothing; for "
            "rows at the same time write (0, 0), on the command line 0..0"
        )
    if isinstance(window, Then) and isinstance(inner, tuple):
        raise InputError(
            f"{where}: then({shown(inner)}) takes one duration; a pair needs no then()"
        )
    for limit in (bound.lo, bound.hi):
        if not pa.types.is_floating(field.type) and abs(limit) >= 2**63:
            raise InputError(
                f"{where} has the window {shown(inner)}; the widest in 64-bit integers is 2**63 - 1"
            )
    return (0 if isinstance(window, Then) else bound.lo), bound.hi


def _check_connected(names: Sequence[str], system: Iterable[Between]) -> None:
    part = list(range(len(names)))
    for one in system:
        old, new = part[one.a], part[one.b]
        part = [new if p == old else p for p in part]
    if len(set(part)) > 1:
        groups = [
            [n for n, p in zip(names, part, strict=True) if p == q] for q in dict.fromkeys(part)
        ]
        shown = " and ".join("{" + ", ".join(group) + "}" for group in groups)
        raise InputError(
            f"windows: nothing connects {shown}, so that their rows would have to be kept for "
            "ever; give a window between them"
        )


def _closed(names: Sequence[str], system: Sequence[Between]) -> Matrix:
    """The largest difference of each pair, by shortest paths; a negative cycle is refused."""
    count = len(names)
    far = float("inf")
    upper: list[list[Any]] = [[0 if i == j else far for j in range(count)] for i in range(count)]
    following = [list(range(count)) for _ in range(count)]
    for one in system:
        upper[one.a][one.b] = min(upper[one.a][one.b], one.hi)
        upper[one.b][one.a] = min(upper[one.b][one.a], -one.lo)
    for k in range(count):
        for i in range(count):
            for j in range(count):
                if far in (upper[i][k], upper[k][j]):
                    continue
                through = upper[i][k] + upper[k][j]
                if through >= upper[i][j]:
                    continue
                upper[i][j] = through
                following[i][j] = following[i][k]
                if i == j:
                    _refuse_cycle(names, i, following)
    return tuple(map(tuple, upper))


def _refuse_cycle(names: Sequence[str], start: int, following: list[list[int]]) -> None:
    walked = [start]
    while following[walked[-1]][start] not in walked:
        walked.append(following[walked[-1]][start])
    shown = " → ".join(names[i] for i in [*walked, start])
    raise InputError(
        f"windows: they contradict each other along {shown}, so that no rows can ever match; widen "
        "one of them"
    )


def _hull(one: Matrix, other: Matrix) -> Matrix:
    return tuple(tuple(map(max, a, b)) for a, b in zip(one, other, strict=True))


def _wider(one: Between) -> Between:
    """A window of floats with room for the rounding of its sums, before they can cancel out."""
    if not (isinstance(one.lo, float) or isinstance(one.hi, float)):
        return one
    lo, hi = one.lo - abs(one.lo) * FLOAT_SLACK, one.hi + abs(one.hi) * FLOAT_SLACK
    return Between(one.a, one.b, max(lo, -LARGEST), min(hi, LARGEST))
