"""Candidates: eligible pairs of some probe rows, with what their orders say.

    probe   base   keys [n, attributes with a number]   boxes: (a, b) of the others
      0      17        3   9                              ({1,2}, {2})
      0      20        5   1                              ({1,2}, {1,2})

A function's number has two keys: a float's, and in a column at the end how much more a whole number
is than that float.  Both together are exact; they are made one before anything is compared.

`Contest` decides between them: by compiled code where every order is a number, else pair by pair.
A pair dominates another of its group when it is at least as good on every attribute and better on
one; whoever is dominated goes, and so does whoever the rule for ties can't keep (`ties`).  Where
that goes by the rows' order, a pair has a rank: the last column of its keys.

Invariant: candidates ascend by probe row, and a probe row's are complete within what was searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.columns import Int64s, comparable, is_numeric
from matwin.storage.errors import InputError

from .kernels.skyline import best_of_groups, merge_best
from .orders.base import Values
from .question import Question
from .ties import ALL, Ties, least_of_each


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pairs of a probe row and a base row, each by its number."""

    probe: Int64s
    base: Int64s
    keys: Int64s
    boxes: tuple[Values, ...] = ()

    def __len__(self) -> int:
        return len(self.probe)

    def take(self, rows: Int64s) -> Candidates:
        """Some of the pairs."""
        return Candidates(
            self.probe[rows],
            self.base[rows],
            self.keys[rows] if len(self.keys) == len(self.probe) else self.keys,
            tuple(box[rows] for box in self.boxes),
        )

    def shifted(self, by: int) -> Candidates:
        """The same pairs with their base rows numbered from `by` on."""
        return Candidates(self.probe, self.base + by, self.keys, self.boxes)

    def slice(self, start: int, limit: int) -> Candidates:
        """The pairs from `start` up to `limit`."""
        return Candidates(
            self.probe[start:limit],
            self.base[start:limit],
            self.keys[start:limit],
            tuple(box[start:limit] for box in self.boxes),
        )

    @property
    def size(self) -> int:
        """Bytes; what a black box compares is reckoned at 200 a pair."""
        arrays = self.probe.nbytes + self.base.nbytes + self.keys.nbytes
        return int(arrays + 200 * len(self.boxes) * len(self.probe))


def joined(parts: list[Candidates]) -> Candidates:
    """Candidates one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Candidates(
        np.concatenate([p.probe for p in parts]),
        np.concatenate([p.base for p in parts]),
        np.concatenate([p.keys for p in parts]),
        tuple(np.concatenate(boxes) for boxes in zip(*(p.boxes for p in parts), strict=True)),
    )


class Contest:
    """Who stays among candidates."""

    def __init__(self, question: Question, probe: str, ties: Ties = ALL) -> None:
        self._question = question
        self.ties = ties
        measured = [at for at, a in enumerate(question.attributes) if a.order.measure]
        places = [measured.index(place) for place in self.ties.places]
        self.firsts = np.array(places, np.int64)
        """The keys that decide first between equally good pairs."""
        self._is_swapped = probe == "right"
        orders = [(at, a.order) for at, a in enumerate(question.attributes)]
        self._keys = {at: order.measure.keys() for at, order in orders if order.measure}
        self._boxes = {at: order.black_box.boxes for at, order in orders if order.black_box}
        self._refined = refined_columns(question)
        self._compares = [box.comparison() for box in question.black_boxes]

    @property
    def key_columns(self) -> int:
        """How many keys a pair has, without its ranks."""
        return key_columns(self._question)

    def ranked(self, found: Candidates, ranks: Int64s) -> Candidates:
        """The candidates with their ranks, from those of the base rows."""
        if self.ties.columns == 0:
            return found
        return replace(found, keys=np.column_stack((found.keys, ranks[found.base])))

    def ranked_as(self, found: Candidates, before: Candidates) -> Candidates:
        """The candidates with the ranks that they had before."""
        if self.ties.columns == 0:
            return found
        own = before.keys[:, -self.ties.columns :]
        return replace(found, keys=np.column_stack((found.keys, own)))

    def no_boxes(self) -> tuple[Values, ...]:
        """What no pairs at all have for black boxes to compare."""
        return tuple(np.empty(0, object) for _ in self._compares)

    def box_columns(
        self, found: Candidates, probe_rows: pa.RecordBatch, base_rows: pa.RecordBatch,
        stored: tuple[tuple[str | None, ...], tuple[str | None, ...]],
    ) -> list[pa.Array]:  # fmt: skip
        """What black boxes compare, as columns: the probe's and the base's values for each."""
        columns = []
        for at in self._boxes:
            names = self._names(at, stored)
            columns.append(probe_rows.column(names[0]).take(arrow(found.probe)))
            columns.append(base_rows.column(names[1]).take(arrow(found.base)))
        return columns

    def boxes_of(self, columns: Sequence[pa.Array]) -> tuple[Values, ...]:
        """What black boxes compare, from its columns."""
        values = [_values_of(column) for column in columns]
        pairs = zip(values[::2], values[1::2], strict=True)
        return tuple(
            boxes(*self._facing(*pair))
            for boxes, pair in zip(self._boxes.values(), pairs, strict=True)
        )

    def _facing(self, probe: Values, base: Values) -> tuple[Values, Values]:
        """As the left and the right values."""
        return (base, probe) if self._is_swapped else (probe, base)

    def evaluated(
        self, found: Candidates, probe_rows: pa.RecordBatch, base_rows: pa.RecordBatch,
        stored: tuple[tuple[str | None, ...], tuple[str | None, ...]],
    ) -> Candidates:  # fmt: skip
        """The candidates with their keys and boxes, from the rows they name."""
        keys, rests, boxes = [], [], []
        for at in range(len(self._question.attributes)):
            names = self._names(at, stored)
            left, right = self._facing(
                _values(probe_rows, names[0], found.probe), _values(base_rows, names[1], found.base)
            )
            if at in self._boxes:
                boxes.append(self._boxes[at](left, right))
            else:
                key, *rest = self._keys[at](left, right)
                keys.append(key)
                rests += rest
        keys += rests
        matrix = np.column_stack(keys) if keys else np.zeros((len(found), 0), np.int64)
        return Candidates(found.probe, found.base, matrix, tuple(boxes))

    def _names(self, at: int, stored: tuple[tuple[str | None, ...], ...]) -> list[str]:
        """What an attribute is called on the probe's side and on the base's."""
        attribute = self._question.attributes[at]
        given = (attribute.left, attribute.right)[:: -1 if self._is_swapped else 1]
        return [side[at] or name for side, name in zip(stored, given, strict=True)]

    def best(self, found: Candidates) -> Candidates:
        """Those that nothing of their probe row dominates."""
        if self._compares:
            found = self._told_apart(found)
            return self.kept(found.take(np.array(list(self._best_boxed(found)), np.int64)))
        return self.kept(found.take(best_of_groups(found.probe, self._plain(found))))

    def merged(self, old: Candidates, new: Candidates) -> Candidates:
        """Two lists of best candidates as one."""
        both = joined([old, new])
        if self._compares:
            order = np.argsort(both.probe, kind="stable")
            return self.best(both.take(order))
        keys = self._plain(both)
        kept = merge_best(old.probe, keys[: len(old)], new.probe, keys[len(old) :])
        return self.kept(both.take(np.where(kept < 0, len(old) + ~kept, kept)))

    def kept(self, found: Candidates) -> Candidates:
        """Of the best candidates so far those that the rule for ties may keep."""
        ties = self.ties
        if ties.are_kept or not has_several(found.probe):
            return found
        if len(self.firsts):
            keys = self._plain(found)
            firsts = [keys[:, at] for at in self.firsts]
            found = found.take(least_of_each([found.probe], firsts, is_one=False))
        if ties.end is None or self._compares:  # what has no number may be as good, or neither
            return found
        keys = self._plain(found)
        groups = [found.probe, *keys.T]
        return found.take(least_of_each(groups, self._ranks(found), is_one=True))

    def _told_apart(self, found: Candidates) -> Candidates:
        """Of pairs of a row that look the same to every black box the one that the rule for ties
        would keep, so that each is asked about once."""
        if self.ties.end is None or not has_several(found.probe):
            return found
        ranks = self._ranks(found)[0].tolist()
        keys = map(tuple, self._plain(found).tolist())
        looks = zip(found.probe.tolist(), keys, *found.boxes, strict=True)
        kept: dict[Any, int] = {}
        try:
            for at, look in enumerate(looks):
                if ranks[at] <= ranks[kept.setdefault(look, at)]:
                    kept[look] = at
        except TypeError:  # values that can't be looked up, such as lists
            return found
        return found.take(np.sort(np.fromiter(kept.values(), np.int64, len(kept))))

    def settled(self, found: Candidates) -> Candidates:
        """What stays of probe rows' best candidates, now that all of them are known."""
        if self.ties.end is None or not has_several(found.probe):
            return found
        keys = self._plain(found)
        ranks = [*(keys[:, at] for at in self.firsts), *self._ranks(found)]
        return found.take(least_of_each([found.probe], ranks, is_one=True))

    def _plain(self, found: Candidates) -> Int64s:
        """One key for each attribute that has a number, without ranks."""
        limit = found.keys.shape[1] - self.ties.columns
        return np.ascontiguousarray(plain_keys(found.keys[:, :limit], self._refined))

    def _ranks(self, found: Candidates) -> list[Int64s]:
        return list(found.keys[:, found.keys.shape[1] - self.ties.columns :].T)

    def _best_boxed(self, found: Candidates) -> Iterator[int]:
        found = replace(found, keys=self._plain(found))
        starts = np.flatnonzero(np.diff(found.probe, prepend=-1, append=-2))
        for start, limit in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            kept: list[int] = []
            for j in range(start, limit):
                if not any(self._dominates(found, k, j) for k in kept):
                    kept = [k for k in kept if not self._dominates(found, j, k)]
                    kept.append(j)
            yield from kept

    def _dominates(self, found: Candidates, one: int, other: int) -> bool:
        a, b = found.keys[one], found.keys[other]
        if (a > b).any():
            return False
        is_better = bool((a < b).any())
        for compare, box in zip(self._compares, found.boxes, strict=True):
            forth, back = compare(box[one], box[other]), compare(box[other], box[one])
            if forth is False and back is False:
                raise InputError(
                    f"orders: {compare.__name__!r} says that {box[one]} is worse than {box[other]} "
                    "and the other way round; that is no order"
                )
            if forth is not True:
                return False
            is_better = is_better or back is not True
        return is_better


def has_several(probe: Int64s) -> bool:
    """Whether a probe row has several candidates."""
    return bool((probe[1:] == probe[:-1]).any())


def refined_columns(question: Question) -> tuple[int, ...]:
    """Which key columns have another one at the end that decides where they are equal."""
    return tuple(at for at, measure in enumerate(question.measures) if measure.is_refined)


def key_columns(question: Question) -> int:
    """How many keys a pair has."""
    return len(question.measures) + len(refined_columns(question))


def plain_keys(keys: Int64s, refined: tuple[int, ...]) -> Int64s:
    """One key for each attribute: where a second one decides, both become their rank."""
    if not refined:
        return keys
    plain, rests = keys[:, : -len(refined)], keys[:, -len(refined) :]
    plain = plain.copy()
    if not rests.any():
        return plain
    for column, rest in zip(refined, rests.T, strict=True):
        both = np.column_stack([plain[:, column], rest])
        plain[:, column] = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
    return plain


def _values(rows: pa.RecordBatch, name: str, at: Int64s) -> Values:
    column = rows.column(name)
    if is_numeric(column.type):
        return comparable(column)[0][at]
    return _values_of(column.take(arrow(at)))


def _values_of(column: pa.Array) -> Values:
    if is_numeric(column.type):
        return comparable(column)[0]
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found
