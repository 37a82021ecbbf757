"""Which part of the work a row belongs to.  Pure: NumPy on a driver's sample, nothing of Spark.

    order attribute ──────────────────────────────────────────────▶
      strip 0        │   strip 1      │        strip 2                bounds b1, b2
                 ◀ε──┤        ├──ε▶                                   halo of strip 0's rows, …

A *part* is what one task joins.  Rows of the *anchor* side are in exactly one part, so a match is
owned by the part of its anchor row.  A row of another side is in every part where an anchor row can
reach it: with ``lo <= t - anchor <= hi``, in the strips from the first whose end lies above
``t - hi`` to the last whose begin is not above ``t - lo``.

Ways of dividing the work, which can be mixed:

    strips      ranges of the strip attribute, cut by quantiles; other sides have halos
    cold keys   buckets of the keys' hash, no halos at all
    hot keys    a key too frequent for a bucket has strips of its own
    salts       a strip that can't be cut further (one instant) divides its anchor rows by their
                hash, and each of its salts has all rows of the other sides

Parts are numbered so that those a row belongs to are always consecutive.

A halo without a limit is *open*, and allowed where only the nearest row beyond a bound counts, as
in an as-of join.  Rows that are known to be there, from a sample, say how far it reaches:

      ───●──●────●─│──────────────●─▶     the strip begins at │; ● was seen: all from the last one
                 └▷│                      before it on go along, and nobody needs those before

Each row that was seen stands for all before it, so the rows of a group must have one key.

Invariants: bounds only say where rows go, so any bounds give the same result; no eligible pair is
separated, with floats too, whose thresholds are moved outwards by more than their sums can round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

Number = int | float
Int64s = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
Limits = tuple[int, int]
Seen = tuple[Number | None, Number | None]
"""Values that rows are known to have: the last below a bound, and the first that is not below."""
INT64: Limits = (-(2**63), 2**63 - 1)
SLACK = 2.0**-48


@dataclass(frozen=True, slots=True)
class Halo:
    """``lo <= t - anchor <= hi`` for the rows of a side; the anchor's own are in one part only."""

    lo: Number
    hi: Number
    is_anchor: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it has no limit on a side: there only the nearest rows beyond a bound count."""
        return self.lo == -math.inf or self.hi == math.inf


ANCHOR = Halo(0, 0, is_anchor=True)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How many of these a value is not below: `always` at least, and so many of `values`."""

    values: tuple[Number, ...]
    always: int

    @classmethod
    def of(
        cls, bounds: Sequence[Number], by: Number, direction: int, limits: Limits = INT64
    ) -> Thresholds:
        """The bounds moved by a tolerance; `direction` says which way a float is rounded.

        Whole numbers have limits: a threshold above is never reached, one below always is.
        """
        moved = [_moved(bound, by, direction) for bound in bounds]
        if any(isinstance(value, float) for value in moved):
            return cls(tuple(moved), 0)
        least, most = limits
        inside = tuple(value for value in moved if least <= value <= most)
        return cls(inside, sum(value < least for value in moved))

    @classmethod
    def from_last_before(cls, seen: Sequence[Seen]) -> Thresholds:
        """For each bound, the last value seen before it; all rows are beyond where none was."""
        known = tuple(before for before, _ in seen if before is not None)
        return cls(known, len(seen) - len(known))

    @classmethod
    def above_first_after(cls, seen: Sequence[Seen], limits: Limits = INT64) -> Thresholds:
        """For each bound, what lies above the first value seen from it on; nothing where none
        was."""
        above = [_above(after) for _, after in seen if after is not None]
        return cls(tuple(a for a in above if isinstance(a, float) or a <= limits[1]), 0)

    def count(self, values: Values) -> Int64s:
        """The same for a column of values."""
        edges = np.array(self.values, values.dtype)
        found: Int64s = np.searchsorted(edges, values, side="right").astype(np.int64) + self.always
        return found


@lru_cache(maxsize=64)
def _thresholds(
    bounds: tuple[Number, ...], seen: tuple[Seen, ...], halo: Halo, limits: Limits
) -> tuple[Thresholds, Thresholds]:
    """Kept, because it is asked for with every portion of rows, bound by bound in Python."""
    if halo.is_open:  # a row that was seen is within reach of all beyond the bound
        assert len(seen) == len(bounds) and halo.lo <= 0 <= halo.hi, (seen, halo)
    if halo.hi == math.inf:
        first = Thresholds.above_first_after(seen, limits)
    else:
        first = Thresholds.of(bounds, halo.hi, 1, limits)
    if halo.lo == -math.inf:
        return first, Thresholds.from_last_before(seen)
    return first, Thresholds.of(bounds, halo.lo, -1, limits)


def _above(value: Number) -> Number:
    return math.nextafter(value, math.inf) if isinstance(value, float) else value + 1


def _moved(bound: Number, by: Number, direction: int) -> Number:
    moved = bound + by
    if by == 0 or not isinstance(moved, float):
        return moved
    slack = (abs(bound) + abs(by)) * SLACK
    return math.nextafter(moved + direction * slack, math.copysign(math.inf, direction))


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are divided by strips: all of them, or those of one hot key."""

    first: int
    bounds: tuple[Number, ...] = ()
    salts: tuple[int, ...] = (1,)
    seen: tuple[Seen, ...] = ()
    """For each bound, where open halos end."""

    def __post_init__(self) -> None:
        assert len(self.salts) == len(self.bounds) + 1, self

    @property
    def parts(self) -> int:
        """How many parts it has."""
        return sum(self.salts)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first part of each strip, and the part after the last."""
        return tuple(accumulate(self.salts, initial=self.first))

    @property
    def has_salts(self) -> bool:
        """Whether a strip is divided further."""
        return any(salts > 1 for salts in self.salts)

    def thresholds(self, halo: Halo, limits: Limits = INT64) -> tuple[Thresholds, Thresholds]:
        """What tells a row's first strip, and its last."""
        return _thresholds(self.bounds, self.seen, halo, limits)

    def strips(self, values: Values, halo: Halo) -> tuple[Int64s, Int64s]:
        """The first and last strip of each row."""
        first, last = self.thresholds(halo)
        # A search among all thresholds tells both: a search among random rows is what this costs.
        edges = np.unique(np.array([*first.values, *last.values], values.dtype))
        at = np.searchsorted(edges, values, side="right")
        return tuple(  # type: ignore[return-value]
            np.concatenate(([one.always], one.count(edges)))[at] for one in (first, last)
        )

    def moved_to(self, first: int) -> Group:
        """The same group with its parts numbered from `first` on."""
        return replace(self, first=first)

    def having_seen(self, values: Values) -> Group:
        """The same group, in which rows are known to have these values."""
        ordered = np.sort(values)
        at = np.searchsorted(ordered, np.array(self.bounds, ordered.dtype), side="left")
        seen = tuple(
            (
                ordered[i - 1].item() if i > 0 else None,
                ordered[i].item() if i < len(ordered) else None,
            )
            for i in at.tolist()
        )
        return replace(self, seen=seen)


@dataclass(frozen=True, slots=True)
class Layout:
    """All parts: buckets of cold keys first, then the groups of hot keys; or one group for all."""

    cold: int = 0
    hot: tuple[tuple[int, Group], ...] = ()
    shared: Group | None = Group(0)

    @classmethod
    def of_strips(cls, bounds: Sequence[Number], salts: Sequence[int] | None = None) -> Layout:
        """Strips for all rows, whatever their keys."""
        return cls(shared=Group(0, tuple(bounds), tuple(salts or [1] * (len(bounds) + 1))))

    @classmethod
    def of_keys(cls, cold: int, hot: Sequence[tuple[int, Group]] = ()) -> Layout:
        """Buckets of keys, and hot keys, by hash, with groups of their own."""
        placed, first = [], cold
        for key, group in hot:
            placed.append((key, group.moved_to(first)))
            first += group.parts
        return cls(cold, tuple(placed), None)

    @property
    def parts(self) -> int:
        """How many parts there are."""
        if self.shared is not None:
            return self.shared.parts
        return self.cold + sum(group.parts for _, group in self.hot)

    @property
    def _groups(self) -> list[Group]:
        return [self.shared] if self.shared is not None else [group for _, group in self.hot]

    @property
    def has_salts(self) -> bool:
        """Whether a strip is divided by the rows' hash."""
        return any(group.has_salts for group in self._groups)

    @property
    def uses_keys(self) -> bool:
        """Whether a row's key says where it goes."""
        return self.shared is None

    @property
    def has_seen(self) -> bool:
        """Whether rows that were seen say where others go."""
        return any(group.seen for group in self._groups)

    def loads(self, values: Values, hashes: Int64s, weights: Values, halo: Halo) -> Values:
        """How many rows of a side are expected in each part, from a weighted sample."""
        rows = np.zeros(self.parts)
        if self.shared is not None:
            _add(rows, self.shared, values, weights, halo)
            return rows
        is_cold = np.ones(len(hashes), np.bool_)
        for key, group in self.hot:
            mine = hashes == key
            is_cold &= ~mine
            _add(rows, group, values[mine], weights[mine], halo)
        if self.cold:
            np.add.at(rows, hashes[is_cold] % self.cold, weights[is_cold])
        return rows

    def parts_of(
        self, values: Values, hashes: Int64s, salts: Int64s, halo: Halo
    ) -> tuple[Int64s, Int64s]:
        """The first and the last part of each row; `salts` are hashes that tell rows apart."""
        if self.shared is not None:
            return _parts_of(self.shared, values, salts, halo)
        first = np.mod(hashes, self.cold)
        last = first.copy()
        for key, group in self.hot:
            mine = hashes == key
            if mine.any():
                first[mine], last[mine] = _parts_of(group, values[mine], salts[mine], halo)
        return first, last

    def name(self, part: int, shown: Callable[[Number], str] | None = None) -> str:
        """What a part is called in messages; `shown` makes text of a bound."""
        shown = shown or str
        if self.shared is not None:
            return f"strip {_strip_name(self.shared, part, shown)}"
        if part < self.cold:
            return f"key bucket {part} of {self.cold}"
        for key, group in self.hot:
            if part < group.first + group.parts:
                return (
                    f"strip {_strip_name(group, part, shown)} of the frequent key with hash {key}"
                )
        return f"part {part}"


def _parts_of(group: Group, values: Values, salts: Int64s, halo: Halo) -> tuple[Int64s, Int64s]:
    begin, end = group.strips(values, halo)
    starts = np.array(group.starts)
    if halo.is_anchor:
        part = starts[begin]
        if group.has_salts:
            part = part + np.mod(salts, np.array(group.salts)[begin])
        return part, part
    return starts[begin], starts[end + 1] - 1


def _strip_name(group: Group, part: int, shown: Callable[[Number], str]) -> str:
    strip = int(np.searchsorted(np.array(group.starts), part, side="right")) - 1
    begin = "" if strip == 0 else f"from {shown(group.bounds[strip - 1])} "
    end = "" if strip >= len(group.bounds) else f"to below {shown(group.bounds[strip])}"
    salt = ""
    if group.salts[min(strip, len(group.salts) - 1)] > 1:
        salt = f", salt {part - group.starts[strip]}"
    span = f" ({begin}{end})".replace(" )", ")") if begin or end else ""
    return f"{strip} of {len(group.salts)}{span}{salt}"


def _add(rows: Values, group: Group, values: Values, weights: Values, halo: Halo) -> None:
    """Spread the rows over the group's parts: an anchor's over the salts of its strip."""
    first, last = group.strips(values, halo)
    starts = np.array(group.starts)
    if halo.is_anchor:
        share = weights / np.array(group.salts)[first]
    else:
        share = weights
    change = np.zeros(len(rows) + 1)
    np.add.at(change, starts[first], share)
    np.add.at(change, starts[last + 1], -share)
    rows += np.cumsum(change)[:-1]
