"""Which of several best matches of a row is kept.

    "all"             every one: the default
    "first", "last"   the one that comes first or last in the other side's order
    ["t", "x"]        the best in t, of those the best in x; then all that are left
    ["t", "last"]     the same, and then the last

Bestmatch in several attributes leaves several matches of a row mostly because none is better in
every attribute; a priority of attributes settles that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Int64s, comparable
from matwin.storage.errors import InputError
from matwin.storage.names import listed

from .matched import Matched
from .question import Question
from .side import ROW, Side

ENDS = ("first", "last")


@dataclass(frozen=True, slots=True)
class Ties:
    """Attributes by their places, the most important first, and which end of the order."""

    places: tuple[int, ...] = ()
    end: str | None = None

    @classmethod
    def of(cls, given: object, question: Question) -> Ties:
        """What a user means."""
        words = [given] if isinstance(given, str) else given
        if words == ["all"]:
            return cls()
        if not isinstance(words, list | tuple) or not words:
            raise InputError(f"ties={given!r}; give 'all', 'first', 'last' or a list of attributes")
        if question.how not in ("left", "right"):
            raise InputError(
                f"ties={given!r} keeps one match of a row, which goes with how='left' or 'right'"
            )
        end = words[-1] if words[-1] in ENDS else None
        names = words[:-1] if end else words
        known = [a.name for a in question.attributes]
        for name in names:
            if name not in known or question.attributes[known.index(name)].order.measure is None:
                raise InputError(
                    f"ties={given!r}: {name!r} is not an attribute with a distance; there are "
                    f"{listed(known)}, and 'first' and 'last' at the end"
                )
        return cls(tuple(known.index(name) for name in names), end)

    @property
    def are_kept(self) -> bool:
        """Whether every match stays."""
        return not self.places and self.end is None

    def kept(
        self, question: Question, matched: Matched, probe: Side, base: Side
    ) -> tuple[Int64s, Int64s]:
        """The pairs that stay, by their rows."""
        found = matched.candidates
        if self.are_kept or not (found.probe[1:] == found.probe[:-1]).any():
            return found.probe, found.base
        ranks: list[Int64s] = []
        for place in self.places:
            ranks += _ranks(question, place, matched, probe, base)
        if self.end is not None:
            numbers = as_numpy(matched.base_rows.column(ROW))[found.base]
            ranks.append(numbers if self.end == "first" else -numbers)
        return best_of_each(found.probe, found.base, ranks, is_one=self.end is not None)


def best_of_each(
    probe: Int64s, base: Int64s, ranks: list[Int64s], *, is_one: bool
) -> tuple[Int64s, Int64s]:
    """The pairs of each probe row with the least ranks, the first rank deciding first; with
    `is_one` a single one of them."""
    order = np.lexsort((*ranks[::-1], probe))
    rows = probe[order]
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    if is_one:
        at = order[starts]
        return probe[at], base[at]
    first = np.repeat(order[starts], np.diff(np.append(starts, len(rows))))
    good = np.ones(len(rows), np.bool_)
    for rank in ranks:
        good &= rank[order] == rank[first]
    at = order[good]
    return probe[at], base[at]


def _ranks(
    question: Question, place: int, matched: Matched, probe: Side, base: Side
) -> tuple[Int64s, ...]:
    """How good each pair is in one attribute: the less the better."""
    found, attribute = matched.candidates, question.attributes[place]
    sides = ((probe, matched.probe_rows, found.probe), (base, matched.base_rows, found.base))
    values = []
    for side, rows, at in sides:
        name = side.attributes[place] or getattr(attribute, side.name)
        values.append(comparable(rows.column(name).take(arrow(at)))[0])
    left, right = values if probe.name == "left" else values[::-1]
    measure = attribute.order.measure
    assert measure is not None
    return measure.keys()(left, right)
