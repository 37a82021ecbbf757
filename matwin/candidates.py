"""Candidates: eligible pairs of some probe rows, with what their orders say.

    probe   base   keys [n, attributes with a number]   boxes: (a, b) of the others
      0      17        3   9                              ({1,2}, {2})
      0      20        5   1                              ({1,2}, {1,2})

A function's number has two keys: a float's, and in a column at the end how much more a whole number
is than that float.  Both together are exact; they are made one before anything is compared.

`Contest` decides between them: by compiled code where every order is a number, else pair by pair.
A pair dominates another of its group when it is at least as good on every attribute and better on
one; whoever is dominated goes.

Invariant: candidates ascend by probe row, and a probe row's are complete within what was searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s, comparable, float_key, is_numeric
from matwin.storage.errors import InputError

from .functions import PairFunction, Values
from .kernels.skyline import best_of_groups, merge_best
from .orders import MinDistance, Minimize, Order, PartialOrder, Subset, Youngest
from .question import Question


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


TOP_BIT = np.uint64(1 << 63)
Compare = Callable[[Any, Any], "bool | None"]


class Contest:
    """Who stays among candidates."""

    def __init__(self, question: Question, probe: str) -> None:
        self._question = question
        self._is_swapped = probe == "right"
        self._functions = {
            a.name: PairFunction(a.order.function)
            for a in question.attributes
            if isinstance(a.order, Minimize)
        }
        self._refined = refined_columns(question)
        self._compares = [
            _comparison(a.order)
            for a in question.attributes
            if isinstance(a.order, Subset | PartialOrder)
        ]

    @property
    def key_columns(self) -> int:
        """How many keys a pair has."""
        return key_columns(self._question)

    def no_boxes(self) -> tuple[Values, ...]:
        """What no pairs at all have for black boxes to compare."""
        return tuple(np.empty(0, object) for _ in self._compares)

    def box_columns(
        self, found: Candidates, probe_rows: pa.RecordBatch, base_rows: pa.RecordBatch,
        stored: tuple[tuple[str | None, ...], tuple[str | None, ...]],
    ) -> list[pa.Array]:  # fmt: skip
        """What black boxes compare, as columns: the probe's and the base's values for each."""
        columns = []
        for at, attribute in enumerate(self._question.attributes):
            if isinstance(attribute.order, Subset | PartialOrder):
                names = [s[at] or getattr(attribute, which) for s, which in self._sides(stored)]
                columns.append(probe_rows.column(names[0]).take(pa.array(found.probe)))
                columns.append(base_rows.column(names[1]).take(pa.array(found.base)))
        return columns

    def boxes_of(self, columns: Sequence[pa.Array]) -> tuple[Values, ...]:
        """What black boxes compare, from its columns."""
        orders = [a.order for a in self._question.attributes]
        boxed = [order for order in orders if isinstance(order, Subset | PartialOrder)]
        values = [_values_of(column) for column in columns]
        return tuple(
            self._box(order, *pair)
            for order, pair in zip(boxed, zip(values[::2], values[1::2], strict=True), strict=True)
        )

    def _box(self, order: Order, probe: Values, base: Values) -> Values:
        left, right = (base, probe) if self._is_swapped else (probe, base)
        return _common(left, right) if isinstance(order, Subset) else _tuples(left, right)

    def evaluated(
        self, found: Candidates, probe_rows: pa.RecordBatch, base_rows: pa.RecordBatch,
        stored: tuple[tuple[str | None, ...], tuple[str | None, ...]],
    ) -> Candidates:  # fmt: skip
        """The candidates with their keys and boxes, from the rows they name."""
        keys, rests, boxes = [], [], []
        for at, attribute in enumerate(self._question.attributes):
            names = [side[at] or getattr(attribute, which) for side, which in self._sides(stored)]
            a = _values(probe_rows, names[0], found.probe)
            b = _values(base_rows, names[1], found.base)
            left, right = (b, a) if self._is_swapped else (a, b)
            order = attribute.order
            if isinstance(order, Subset | PartialOrder):
                boxes.append(self._box(order, a, b))
            elif isinstance(order, Minimize):
                key, rest = self._functions[attribute.name].keys(left, right)
                keys.append(key)
                rests.append(rest)
            else:
                keys.append(_keys(order, left, right))
        keys += rests
        matrix = np.column_stack(keys) if keys else np.zeros((len(found), 0), np.int64)
        return Candidates(found.probe, found.base, matrix, tuple(boxes))

    def _sides(self, stored: Any) -> Iterator[tuple[Any, str]]:
        names = ("right", "left") if self._is_swapped else ("left", "right")
        return zip(stored, names, strict=True)

    def best(self, found: Candidates) -> Candidates:
        """Those that nothing of their probe row dominates."""
        if self._compares:
            return found.take(np.array(list(self._best_boxed(found)), np.int64))
        return found.take(best_of_groups(found.probe, plain_keys(found.keys, self._refined)))

    def merged(self, old: Candidates, new: Candidates) -> Candidates:
        """Two lists of best candidates as one."""
        if self._compares:
            both = joined([old, new])
            order = np.argsort(both.probe, kind="stable")
            return self.best(both.take(order))
        both = joined([old, new])
        keys = plain_keys(both.keys, self._refined)
        kept = merge_best(old.probe, keys[: len(old)], new.probe, keys[len(old) :])
        return both.take(np.where(kept < 0, len(old) + ~kept, kept))

    def _best_boxed(self, found: Candidates) -> Iterator[int]:
        found = replace(found, keys=plain_keys(found.keys, self._refined))
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


def refined_columns(question: Question) -> tuple[int, ...]:
    """Which key columns have another one at the end that decides where they are equal."""
    boxes = (Subset, PartialOrder)
    orders = [a.order for a in question.attributes if not isinstance(a.order, boxes)]
    return tuple(at for at, order in enumerate(orders) if isinstance(order, Minimize))


def key_columns(question: Question) -> int:
    """How many keys a pair has."""
    boxes = sum(isinstance(a.order, Subset | PartialOrder) for a in question.attributes)
    return len(question.attributes) - boxes + len(refined_columns(question))


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


def _keys(order: Order, left: Values, right: Values) -> Int64s:
    if isinstance(order, MinDistance):
        return distance_keys(left, right)
    assert isinstance(order, Youngest)
    return youngest_keys(left, right)


def distance_keys(left: Values, right: Values) -> Int64s:
    """Distances as int64 that ascend with them, as the kernel makes them."""
    if left.dtype == np.float64:
        distances: Int64s = np.abs(right - left).view(np.int64)
        return distances
    apart = np.where(left > right, left, right).view(np.int64) - np.where(
        left > right, right, left
    ).view(np.int64)
    keys: Int64s = apart ^ np.int64(-(2**63))
    return keys


def youngest_keys(left: Values, right: Values) -> Int64s:
    """Numbers that descend as the younger of both values grows."""
    younger = np.maximum(left, right)
    if younger.dtype == np.float64:
        return ~float_key(younger)
    keys: Int64s = ~((younger ^ TOP_BIT).view(np.int64) if younger.dtype == np.uint64 else younger)
    return keys


def _values(rows: pa.RecordBatch, name: str, at: Int64s) -> Values:
    column = rows.column(name)
    if is_numeric(column.type):
        return comparable(column)[0][at]
    return _values_of(column.take(pa.array(at)))


def _values_of(column: pa.Array) -> Values:
    if is_numeric(column.type):
        return comparable(column)[0]
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found


def _tuples(left: Values, right: Values) -> Values:
    pairs = np.empty(len(left), object)
    pairs[:] = list(zip(left.tolist(), right.tolist(), strict=True))
    return pairs


def _common(left: Values, right: Values) -> Values:
    common = np.empty(len(left), object)
    try:
        common[:] = [
            frozenset(x for x in set(a) & set(b) if x is not None and x == x)
            for a, b in zip(left, right, strict=True)
        ]
    except TypeError as e:
        raise InputError(f"orders: 'subset' needs lists of plain values on both sides: {e}") from e
    return common


def _comparison(order: Order) -> Compare:
    if isinstance(order, Subset):
        return lambda one, other: one >= other or None
    assert isinstance(order, PartialOrder)
    function = order.function
    name = str(getattr(function, "__name__", None) or repr(function))

    def compare(one: Any, other: Any) -> bool | None:
        try:
            answer = function(one, other)
        except Exception as e:
            raise InputError(
                f"the partial order {name!r} fails for {one} and {other}: {type(e).__name__}: {e}"
            ) from e
        if answer is not None and not isinstance(answer, bool | np.bool_):
            raise InputError(
                f"the partial order {name!r} returns {answer!r} for {one} and {other}; it must "
                "return True, False or None"
            )
        return None if answer is None else bool(answer)

    compare.__name__ = name
    return compare
