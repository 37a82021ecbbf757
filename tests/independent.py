"""An oracle that shares no code with the product: joins as plain loops over Python's numbers.

Written from the definitions alone.  It never imports the product, nor anything that does; a column
is a list of integers or floats with None for null, times are counts of their unit.  Everything is
compared in pairs, whatever that takes.

    eligible   lo <= right - left <= hi in every attribute, whole numbers exactly, floats in
               float64; keys are equal; nothing that is compared is null, NaN or infinite
    best       no eligible pair of the same left row (right row, of all) is at least as good in
               every attribute and better in one
    window     at a time, what is not later and not older than the period
    tuple      one row of each stream, every window ``lo <= t_b - t_a <= hi`` holds, keys are equal

Rows are told by their numbers, so an answer is a bag of pairs or tuples of numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

Number = int | float
Column = Sequence[Any]


@dataclass(frozen=True)
class Attribute:
    """Two columns in the unit in which they are compared; a bound that is None is no bound."""

    left: Column
    right: Column
    lo: Number | None
    hi: Number | None
    is_youngest: bool = False


@dataclass(frozen=True)
class Pairs:
    """What a join of two sides asks."""

    rows: tuple[int, int]
    attributes: tuple[Attribute, ...]
    keys: tuple[tuple[Column, Column], ...]
    how: str
    is_best: bool
    keeps_unmatched: bool
    measures: bool

    def answer(self) -> Counter[tuple[Any, ...]]:
        """Rows as (left number, right number, a distance for each attribute)."""
        eligible = [pair for pair in product(*map(range, self.rows)) if self._is_eligible(*pair)]
        chosen = self._best(eligible) if self.is_best else eligible
        lefts, rights = {i for i, _ in eligible}, {j for _, j in eligible}
        if self.how == "semi" and not self.is_best:
            return Counter((i,) for i in lefts)
        lonely = [i for i in range(self.rows[0]) if i not in lefts]
        if self.how == "anti" and not self.is_best:
            return Counter((i,) for i in lonely)
        keeps = self.keeps_unmatched if self.is_best else True
        none = (None,) * len(self.attributes) if self.measures else ()
        rows = [(i, j, *(self._costs(i, j) if self.measures else ())) for i, j in chosen]
        if keeps and self.how in ("left", "full"):
            rows += [(i, None, *none) for i in lonely]
        if keeps and self.how in ("right", "full"):
            rows += [(None, j, *none) for j in range(self.rows[1]) if j not in rights]
        return Counter(rows)

    def _is_eligible(self, i: int, j: int) -> bool:
        return all(is_same(ours[i], theirs[j]) for ours, theirs in self.keys) and all(
            is_near(a.left[i], a.right[j], a.lo, a.hi) for a in self.attributes
        )

    def _costs(self, i: int, j: int) -> tuple[Number, ...]:
        return tuple(
            max(a.left[i], a.right[j]) if a.is_youngest else abs(a.right[j] - a.left[i])
            for a in self.attributes
        )

    def _best(self, eligible: list[tuple[int, int]]) -> list[tuple[int, int]]:
        costs = {
            (i, j): tuple(
                -c if a.is_youngest else c
                for a, c in zip(self.attributes, self._costs(i, j), strict=True)
            )
            for i, j in eligible
        }

        def is_best(pair: tuple[int, int], side: int | None) -> bool:
            rivals = [p for p in eligible if side is None or p[side] == pair[side]]
            return not any(dominates(costs[rival], costs[pair]) for rival in rivals)

        sides = {"inner": (None,), "left": (0,), "right": (1,), "full": (0, 1)}[self.how]
        return [pair for pair in eligible if any(is_best(pair, side) for side in sides)]


@dataclass(frozen=True)
class Evaluations:
    """What a fixed window join asks: a join of what is not older than a period, at every time.

    `every` is the least time between two evaluations.  The difference of times decides, whole
    numbers exactly, floats in float64.
    """

    times: tuple[Column, Column]
    period: Number
    every: Number
    asked: Pairs

    def answer(self) -> Counter[tuple[Any, ...]]:
        """Rows as (time of the evaluation, and what `Pairs` answers)."""
        moments = sorted({t for side in self.times for t in side if is_comparable(t)})
        found: Counter[tuple[Any, ...]] = Counter()
        last = None
        for at in moments:
            if last is None or at - last >= self.every:
                last = at
                found.update((at, *row) for row in self._answer_at(at).elements())
        return found

    def _answer_at(self, at: Number) -> Counter[tuple[Any, ...]]:
        mine, theirs = ([*self._alive(side, at)] for side in self.times)
        attributes = tuple(
            replace(a, left=[a.left[i] for i in mine], right=[a.right[j] for j in theirs])
            for a in self.asked.attributes
        )
        keys = tuple(
            ([ours[i] for i in mine], [others[j] for j in theirs])
            for ours, others in self.asked.keys
        )
        rows = (len(mine), len(theirs))
        found = replace(self.asked, rows=rows, attributes=attributes, keys=keys).answer()
        return Counter(
            (None if i is None else mine[i], None if j is None else theirs[j], *rest)
            for i, j, *rest in found.elements()
        )

    def _alive(self, times: Column, at: Number) -> Iterator[int]:
        for row, t in enumerate(times):
            if is_comparable(t) and t <= at and at - t <= self.period:
                yield row


def dominates(one: tuple[Number, ...], other: tuple[Number, ...]) -> bool:
    """At least as small everywhere, and smaller somewhere."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def is_near(left: Any, right: Any, lo: Number | None, hi: Number | None) -> bool:
    """Whether two values can be compared and their difference is within the bounds."""
    if not (is_comparable(left) and is_comparable(right)):
        return False
    apart = right - left
    return (lo is None or lo <= apart) and (hi is None or apart <= hi)


def is_comparable(value: Any) -> bool:
    """Neither null nor NaN nor infinite."""
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def is_same(one: Any, other: Any) -> bool:
    """Whether two keys are equal; null, NaN and infinities equal nothing."""
    return is_comparable(one) and is_comparable(other) and bool(one == other)


@dataclass(frozen=True)
class Window:
    """``lo <= t_b - t_a <= hi``, for streams by number."""

    a: int
    b: int
    lo: Number
    hi: Number


@dataclass(frozen=True)
class Tuples:
    """What a window join asks: times and keys of each stream, windows, and other near columns."""

    times: tuple[Column, ...]
    keys: tuple[tuple[Column, ...], ...]
    windows: tuple[Window, ...]
    near: tuple[tuple[int, Column, int, Column, Number | None, Number | None], ...] = ()

    def answer(self) -> Counter[tuple[Any, ...]]:
        """Tuples of row numbers, one for each stream."""
        found: list[tuple[int, ...]] = [()]
        for stream, times in enumerate(self.times):
            found = [
                (*rows, row)
                for rows in found
                for row in range(len(times))
                if self._fits((*rows, row), stream)
            ]
        return Counter(found)

    def _fits(self, rows: tuple[int, ...], last: int) -> bool:
        """Whether the last row goes with those before it."""
        if not is_comparable(self.times[last][rows[last]]):
            return False
        keys = [self.keys[last][k][rows[last]] for k in range(len(self.keys[last]))]
        if not all(map(is_comparable, keys)):
            return False
        if last and any(not is_same(self.keys[0][k][rows[0]], key) for k, key in enumerate(keys)):
            return False
        return all(
            is_near(self.times[w.a][rows[w.a]], self.times[w.b][rows[w.b]], w.lo, w.hi)
            for w in self.windows
            if max(w.a, w.b) == last
        ) and all(
            is_near(ours[rows[a]], theirs[rows[b]], lo, hi)
            for a, ours, b, theirs, lo, hi in self.near
            if max(a, b) == last
        )
