"""Which of several best matches of a row is kept.

    "all"             every one: the default
    "first", "last"   the one that comes first or last in the other side's order
    ["t", "x"]        the best in t, of those the best in x; then all that are left
    ["t", "last"]     the same, and then the last

Bestmatch in several attributes leaves several matches of a row mostly because none is better in
every attribute; a priority of attributes settles that.

    some candidates of a row ──▶ those that can still be kept: the best in t so far,
      ▲                          and of equally good ones the last
      └── more of them ────┤
                           └── all have been seen ──▶ one

What can't be kept any more goes at once, wherever the row's candidates come from and in whatever
pieces: the best in t of all is the best in t of some, and whoever is dominated by one that is worse
in t than another is worse in t as well.  So a row holds one candidate for each place on its
frontier, however many tie there, and the rule is applied once more when the row is whole.

A candidate's *rank* says who comes first of equally good ones: its row's number, as the last
column of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError
from matwin.storage.names import listed

from .question import Question
from .side import ROW

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

    @property
    def columns(self) -> int:
        """How many columns a pair's rank has: one, or none where no row comes first."""
        return int(self.end is not None)

    def ranks(self, rows: pa.RecordBatch) -> Int64s:
        """The rank of all pairs of each base row, in an array of its own: kernels are compiled for
        arrays that can be written."""
        numbers: Int64s = as_numpy(rows.column(ROW))
        return numbers.copy() if self.end == "first" else ~numbers


ALL = Ties()


def least_of_each(groups: Sequence[Int64s], ranks: Sequence[Int64s], *, is_one: bool) -> Int64s:
    """Where the least ranks of each group are, ascending, the first rank deciding first; with
    `is_one` a single one of each."""
    order = np.lexsort((*ranks[::-1], *groups[::-1]))
    count = len(order)
    is_first = np.zeros(count, np.bool_)
    is_first[:1] = True
    for group in groups:
        is_first[1:] |= group[order[1:]] != group[order[:-1]]
    starts = np.flatnonzero(is_first)
    if is_one:
        return np.sort(order[starts])
    first = np.repeat(order[starts], np.diff(np.append(starts, count)))
    good = np.ones(count, np.bool_)
    for rank in ranks:
        good &= rank[order] == rank[first]
    return np.sort(order[good])
