"""How a join's rows may be divided into parts: by which attribute or key, and with which halos.

    how                 anchor   the other side's rows come as far as
    left, semi, anti    left     lo <= right - left <= hi
    right               right    lo <= right - left <= hi
    inner               either   the cheaper; the best pairs of all have the left one
    full                none     both sides have halos; a pair belongs to the part of its left row,
                                 a row alone to its own.  In a bestmatch join the left side's halo
                                 is twice as wide: a right row must see all its left rows' rivals

Any attribute with a tolerance on both sides will do, not only the order attribute: the fewest
copies decide.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from matwin.scheduler.division import Asked, Plan, Sample, fitted
from matwin.scheduler.layout import ANCHOR, Halo, Int64s, Values
from matwin.storage.columns import comparable, mixed_codes, order_key

from .attributes import Attribute
from .question import Question
from .side import Side

Halos = tuple[Mapping[str, Halo], ...]


def halos_of(question: Question, attribute: Attribute | None) -> Halos:
    """For each allowed anchor, how far every side's rows may be from it in an attribute."""
    lo = attribute.lo if attribute and attribute.lo is not None else 0
    hi = attribute.hi if attribute and attribute.hi is not None else 0
    from_left = {"left": ANCHOR, "right": Halo(lo, hi)}
    from_right = {"left": Halo(-hi, -lo), "right": ANCHOR}
    if question.how == "full":
        right = Halo(min(lo, 0), max(hi, 0))
        if question.best:
            return ({"left": Halo(min(lo, 0) - hi, max(hi, 0) - lo), "right": right},)
        return ({"left": Halo(min(-hi, 0), max(-lo, 0)), "right": right},)
    if question.how == "right":
        return (from_right,)
    if question.how == "inner" and not question.best:
        return from_left, from_right
    return (from_left,)


def nearest_halos(attribute: Attribute) -> Halos:
    """The same for an as-of join, which needs the nearest rows only: it may have no limit."""
    lo, hi = attribute.reach
    if not attribute.is_limited:  # without equal values one side ends short of zero
        lo, hi = min(lo, 0), max(hi, 0)
    return ({"left": ANCHOR, "right": Halo(lo, hi)},)


@dataclass(frozen=True, slots=True)
class Cut:
    """One way of dividing: by strips of a column, by keys, or by both."""

    columns: tuple[str, ...] | None
    """The stored column of each side that strips are cut by; None: by keys alone."""
    halos: Halos


@dataclass(frozen=True, slots=True)
class Cutting:
    """All ways in which a join may be divided."""

    sides: Sequence[Side]
    cuts: tuple[Cut, ...]
    has_keys: bool
    may_salt: bool
    marks_own: bool
    """Whether each copy of a row must know if it is the one in its own part."""

    def names(self) -> list[str]:
        """What the sides are called."""
        return [side.name for side in self.sides]

    def values(self, cut: Cut, side: int, rows: pa.RecordBatch) -> Values:
        """What a row is placed by among strips: floats as they are, all else as order keys."""
        if cut.columns is None:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(cut.columns[side])
        return comparable(column)[0] if pa.types.is_floating(column.type) else order_key(column)

    def hashes(self, side: int, rows: pa.RecordBatch) -> Int64s:
        """One number for a row's keys."""
        if not self.has_keys:
            return np.zeros(rows.num_rows, np.int64)
        return mixed_codes(rows, self.sides[side].keys)

    def columns(self, side: int) -> list[str]:
        """The stored columns that say where a row goes."""
        found = [cut.columns[side] for cut in self.cuts if cut.columns is not None]
        return list(dict.fromkeys([*found, *self.sides[side].keys]))

    def planned(
        self, rows: Sequence[Sequence[pa.RecordBatch]], totals: Sequence[float],
        weights: Sequence[float], room: float, slots: int,
    ) -> tuple[Cut, Plan] | None:  # fmt: skip
        """The cheapest division by a sample of each side's rows, which stand for `totals` rows;
        None where there is no way."""
        by_name = dict(zip(self.names(), weights, strict=True))
        found = []
        for cut in self.cuts:
            samples = self._samples(cut, rows, totals)
            asked = Asked(cut.halos, cut.columns is not None, self.has_keys, self.may_salt, slots)
            plan = fitted(samples, asked, by_name, room)
            if not plan.layout.uses_keys and cut.columns is not None:
                plan = replace(plan, reason=f"strips of {self.sides[0].origin(cut.columns[0])}")
            found.append((plan.bytes_moved(by_name, room), cut, plan))
        return min(found, key=lambda one: one[0])[1:] if found else None

    def _samples(
        self, cut: Cut, drawn: Sequence[Sequence[pa.RecordBatch]], totals: Sequence[float]
    ) -> dict[str, Sample]:
        samples = {}
        told = [[self.values(cut, at, batch) for batch in some] for at, some in enumerate(drawn)]
        # A side without rows has the numbers of the other: halos of floats are beyond integers.
        kind = next((values.dtype for some in told for values in some), np.dtype(np.int64))
        for number, (name, batches) in enumerate(zip(self.names(), drawn, strict=True)):
            values = np.concatenate(told[number] or [np.empty(0, kind)])
            hashes = np.concatenate(
                [self.hashes(number, batch) for batch in batches] or [np.empty(0, np.int64)]
            )
            weights = np.full(len(values), totals[number] / max(len(values), 1))
            # A dozen layouts are tried, and each looks the values up, in order more cheaply.
            order = np.argsort(values)
            samples[name] = Sample(values[order], hashes[order], weights)
        return samples


def cutting_of(question: Question, sides: Mapping[str, Side]) -> Cutting:
    """How a two-sided join may be divided."""
    own = [sides["left"], sides["right"]]
    cuts = []
    for number, attribute in enumerate(question.attributes):
        columns = tuple(side.attributes[number] for side in own)
        if attribute.is_number and attribute.is_limited and None not in columns:
            cuts.append(Cut(columns, halos_of(question, attribute)))  # type: ignore[arg-type]
    if question.keys and not cuts:
        cuts.append(Cut(None, halos_of(question, None)))
    return Cutting(own, tuple(cuts), bool(question.keys), question.how != "full",
                   question.how == "full")  # fmt: skip
