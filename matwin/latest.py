"""As-of search in memory: for each probe row the nearest base row before it, after it, or either.

    rows of both sides, as they lie ──▶ order by time (none where they are sorted)
                                    ──▶ a number for each key ──▶ one pass (`kernels/latest`)
                                    ──▶ base row of each probe row, or nobody

Keys are not sorted by and rows are not moved, so results come in the probe's own order.  The pass
finds who is nearest; the tolerance is tested afterwards, on what was found: a row that is too far
away makes everybody further away too far as well.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import (
    Bools,
    Int64s,
    comparable,
    has_own_code,
    key_bytes,
    key_code,
)
from matwin.storage.ordering import group_starts, sort_order

from .attributes import Attribute
from .kernels import latest as kernel
from .side import Side

NOBODY = kernel.NOBODY
FAR = 2**64
"""No two whole numbers are so far apart."""
NO_ORDER = np.empty(0, np.int64)
HUGE = 2.0**1020
"""Sums of such floats may be infinite."""
STRETCH_ROWS_MIN = 1 << 17
Values: TypeAlias = npt.NDArray[Any]
DENSE = 4
"""Whole numbers that span at most so many times the rows are numbers already."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows of a side, with their times as order keys."""

    side: Side
    rows: pa.RecordBatch
    keys: Int64s

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.keys)

    def order(self) -> Int64s:
        """Where the rows lie in order of time; empty: as they are."""
        order = sort_order([self.keys]) if self.count else None
        return NO_ORDER if order is None else order


@dataclass(frozen=True, slots=True)
class Latest:
    """How an as-of join chooses."""

    direction: str
    is_strict: bool
    ties: str

    def search(self, attribute: Attribute, probe: Timed, base: Timed, *, threads: int) -> Mates:
        """The base rows of every probe row."""
        numbers = key_numbers(probe, base)
        both = _Pass(probe, base, numbers, self, threads)
        found, others = self._nearest(both, Near.of(attribute), _values(probe), _values(base))
        if self.ties != "all":
            return OneMate(found)
        return AllMates.of(found, others, numbers.base, base.keys)

    def _nearest(
        self, both: _Pass, near: Near, ours: Values, theirs: Values
    ) -> tuple[Int64s, Int64s | None]:
        """One base row of every probe row, and where one before and one after it are as near, the
        one after it."""
        before = after = None
        if self.direction != "forward":
            before = near.within(both.found(kernel.last_before), ours, theirs, is_after=False)
        if self.direction != "backward":
            after = near.within(both.found(kernel.first_after), ours, theirs, is_after=True)
        if before is None or after is None:
            found = before if after is None else after
            assert found is not None
            return found, None
        rows = np.flatnonzero((before >= 0) & (after >= 0))
        side = nearer(ours[rows], theirs[before[rows]], theirs[after[rows]])
        found = np.where(before >= 0, before, after)
        found[rows[side > 0]] = after[rows[side > 0]]
        others = np.full(len(found), NOBODY)
        others[rows[side == 0]] = after[rows[side == 0]]
        return found, others


class Mates(Protocol):
    """What a search has found."""

    @property
    def rows(self) -> int:
        """How many probe rows."""

    def stretch(self, first: int, limit: int, capacity: int) -> tuple[Int64s | None, Int64s, int]:
        """The probe row (None: each once, in order) and the base row, or `NOBODY`, of about so many
        pairs from a probe row on, and the first probe row that is not among them."""


@dataclass(frozen=True, slots=True)
class OneMate:
    """A base row for each probe row, or `NOBODY`."""

    found: Int64s

    @property
    def rows(self) -> int:
        """See `Mates`."""
        return len(self.found)

    def stretch(self, first: int, limit: int, capacity: int) -> tuple[Int64s | None, Int64s, int]:
        """See `Mates`."""
        limit = min(limit, first + capacity)
        return None, self.found[first:limit], limit


@dataclass(frozen=True, slots=True)
class AllMates:
    """Every base row of the same value, before a probe row or after it or both."""

    groups: tuple[Int64s, ...]
    """For the probe rows, a group of base rows, or `NOBODY`; a second where there may be two."""
    order: Int64s
    starts: Int64s
    """The base rows group by group, and where each group begins, with the end of the last."""
    ends: Int64s
    """How many pairs there are up to each probe row, which has one at least."""

    @classmethod
    def of(cls, found: Int64s, others: Int64s | None, codes: Int64s, keys: Int64s) -> AllMates:
        """All base rows like those that were found."""
        order = sort_order([codes, keys]) if len(keys) else None
        order = np.arange(len(keys)) if order is None else order
        starts = group_starts([codes[order], keys[order]])
        group = np.empty(len(keys) + 1, np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(keys))))
        group[-1] = NOBODY  # of nobody
        starts = np.append(starts, len(keys))
        groups = tuple(group[rows] for rows in (found, others) if rows is not None)
        if len(groups) > 1:  # of equal values before and after are the same
            groups[1][groups[0] == groups[1]] = NOBODY
        pairs = sum((_sizes(starts, some) for some in groups), np.zeros(len(found), np.int64))
        return cls(groups, order, starts, np.cumsum(np.maximum(pairs, 1)))

    @property
    def rows(self) -> int:
        """See `Mates`."""
        return len(self.ends)

    def stretch(self, first: int, limit: int, capacity: int) -> tuple[Int64s | None, Int64s, int]:
        """See `Mates`."""
        before = int(self.ends[first - 1]) if first else 0
        fits = int(np.searchsorted(self.ends, before + capacity, "right"))
        limit = min(limit, max(fits, first + 1))
        rows, mates = [], []
        for groups in self.groups:
            some = groups[first:limit]
            sizes = _sizes(self.starts, some)
            rows.append(np.repeat(np.arange(first, limit), sizes))
            mates.append(self.order[expanded(self.starts[some], sizes)])
        has_mates = np.zeros(limit - first, np.bool_)
        has_mates[np.concatenate(rows) - first] = True
        alone = first + np.flatnonzero(~has_mates)
        probe = np.concatenate((*rows, alone))
        found = np.concatenate((*mates, np.full(len(alone), NOBODY)))
        at = np.lexsort((found, probe))
        return probe[at], found[at], limit


def _sizes(starts: Int64s, groups: Int64s) -> Int64s:
    """How many base rows are in each group; none in that of nobody."""
    return np.where(groups >= 0, starts[groups + 1] - starts[groups], 0)


def expanded(starts: Int64s, sizes: Int64s) -> Int64s:
    """The numbers from each start on, so many.

    >>> expanded(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)


class _Pass:
    """Both sides as the kernels take them."""

    def __init__(
        self, probe: Timed, base: Timed, keys: Numbers, latest: Latest, threads: int
    ) -> None:
        self._rows = probe.count
        self._count = keys.count
        self._sides = (
            probe.order(), probe.keys, keys.probe, base.order(), base.keys, keys.base, keys.least,
            latest.is_strict, latest.ties == "first",
        )  # fmt: skip
        # A stretch meets the base rows before it again, and has what it saw last of each key.
        is_worth_it = self._rows >= STRETCH_ROWS_MIN and threads * self._count <= self._rows
        self._stretches = threads if is_worth_it else 1

    def found(self, find: Callable[..., object]) -> Int64s:
        """What a kernel finds, on all threads."""
        found = np.empty(self._rows, np.int64)
        ends = [self._rows * n // self._stretches for n in range(self._stretches + 1)]

        def run(stretch: tuple[int, int]) -> None:
            last = np.full(self._count, NOBODY, np.int64)
            find(*stretch, *self._sides, last, found)

        if self._stretches == 1:
            run((0, self._rows))
        else:
            with ThreadPoolExecutor(self._stretches, "matwin-latest") as executor:
                list(executor.map(run, pairwise(ends)))
        return found


@dataclass(frozen=True, slots=True)
class Near:
    """Distances by the attribute's own rules; values are floats, or whole numbers as order keys."""

    lo: int | float | None
    hi: int | float | None

    @classmethod
    def of(cls, attribute: Attribute) -> Near:
        """The limits of an attribute."""
        return cls(attribute.lo, attribute.hi)

    def is_far(self, ours: Values, theirs: Values, *, is_after: bool) -> Bools | None:
        """Which are beyond the tolerance, all on one side, after or before; None: nobody is."""
        far = self.hi if is_after else self.lo
        if far is None or abs(far) >= (FAR if ours.dtype != np.float64 else np.inf):
            return None
        if ours.dtype == np.float64:
            with np.errstate(over="ignore"):
                apart = theirs - ours
            return apart > far if is_after else apart < far
        return _apart(theirs, ours, is_after=is_after) > np.uint64(abs(int(far)))

    def within(self, found: Int64s, ours: Values, theirs: Values, *, is_after: bool) -> Int64s:
        """Nobody in place of those beyond the tolerance."""
        rows = np.flatnonzero(found >= 0)
        is_far = self.is_far(ours[rows], theirs[found[rows]], is_after=is_after)
        if is_far is not None:
            found[rows[is_far]] = NOBODY
        return found


def nearer(ours: Values, before: Values, after: Values) -> npt.NDArray[np.int8]:
    """Less than 0 where the value before is nearer, more where the one after is, 0 where they are
    exactly as far: distances of floats are not rounded here.

    >>> nearer(*np.array([[5.0, 1e16], [4.5, -0.5], [5.5, 2e16]])).tolist()
    [0, 1]
    """
    if ours.dtype != np.float64:
        left, right = _apart(before, ours, is_after=False), _apart(after, ours, is_after=True)
        return (left > right).astype(np.int8) - (left < right).astype(np.int8)
    # before + after against twice ours; the sum's error is exact too (Knuth), and decides where
    # the sum as rounded does not.  Large values are scaled so that no sum overflows.
    scale = np.where(np.maximum(np.abs(before), np.abs(after)) > HUGE, 0.25, 1.0)
    low, high, twice = before * scale, after * scale, 2 * scale * ours
    total = low + high
    part = total - low
    error = (low - (total - part)) + (high - part)
    signs = np.sign(twice - total)
    found: npt.NDArray[np.int8] = np.where(signs != 0, signs, -np.sign(error)).astype(np.int8)
    return found


def _apart(theirs: Int64s, ours: Int64s, *, is_after: bool) -> npt.NDArray[np.uint64]:
    """Distances as unsigned numbers, because one may need 64 bits."""
    high, low = (theirs, ours) if is_after else (ours, theirs)
    return high.view(np.uint64) - low.view(np.uint64)


def _values(timed: Timed) -> Values:
    return values_of(timed.side, timed.rows)


def values_of(side: Side, rows: pa.RecordBatch) -> Values:
    """The order attribute as numbers with a distance."""
    name = side.attributes[0]
    assert name is not None
    values, _ = comparable(rows.column(name))
    if values.dtype == np.float64:
        return values
    if values.dtype == np.uint64:
        return (values ^ np.uint64(1 << 63)).view(np.int64)
    return values.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Keys of both sides as numbers that are equal where the keys are, from `least` on, below
    ``least + count``."""

    probe: Int64s
    base: Int64s
    least: int
    count: int

    @classmethod
    def of(cls, probe: Int64s, base: Int64s) -> Numbers:
        """Numbers that span whatever they do: as they are if they lie close together."""
        ends = [(int(codes.min()), int(codes.max())) for codes in (probe, base) if len(codes)]
        least, most = (
            (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0, 0)
        )
        rows = len(probe) + len(base)
        if most - least < max(DENSE * rows, 1):
            return cls(probe, base, least, most - least + 1)
        table = np.full(1 << (2 * rows).bit_length(), -1, np.int64)
        numbers = np.empty(rows, np.int64)
        codes = np.concatenate((probe, base))
        count = int(kernel.number_keys(codes, table, np.empty(rows, np.int64), numbers))
        return cls(numbers[: len(probe)], numbers[len(probe) :], 0, count)

    def with_next(self, more: Numbers) -> Numbers:
        """The numbers of two keys together."""
        pairs = [
            (first - self.least) * more.count + (second - more.least)
            for first, second in ((self.probe, more.probe), (self.base, more.base))
        ]
        return Numbers.of(*pairs)


def key_numbers(probe: Timed, base: Timed) -> Numbers:
    """A number for the key of every row."""
    keys = [_one_key(probe, base, at) for at in range(len(probe.side.keys))]
    if not keys:
        return Numbers(np.zeros(probe.count, np.int64), np.zeros(base.count, np.int64), 0, 1)
    return reduce(Numbers.with_next, keys)


def _one_key(probe: Timed, base: Timed, at: int) -> Numbers:
    names = probe.side.keys[at], base.side.keys[at]
    columns = [side.rows.column(name) for side, name in zip((probe, base), names, strict=True)]
    if all(has_own_code(column.type) for column in columns):
        return Numbers.of(*(key_code(*named) for named in zip(columns, names, strict=True)))
    # Arrow numbers 1M texts a side in 26 ms; two hashes of each alone took 86.
    texts = [key_bytes(*named) for named in zip(columns, names, strict=True)]
    encoded = pa.chunked_array(texts, pa.large_binary()).dictionary_encode()
    ours, theirs = (as_numpy(chunk.indices).astype(np.int64) for chunk in encoded.chunks)
    return Numbers(ours, theirs, 0, max(len(encoded.chunk(0).dictionary), 1))
