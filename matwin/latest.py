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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import Int64s, comparable, has_own_code, key_bytes, key_code
from matwin.storage.ordering import sort_order

from .attributes import Attribute
from .kernels import latest as kernel
from .side import Side

NOBODY = kernel.NOBODY
FAR = 2**64
"""No two whole numbers are so far apart."""
NO_ORDER = np.empty(0, np.int64)
STRETCH_ROWS_MIN = 1 << 17
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

    def search(self, attribute: Attribute, probe: Timed, base: Timed, *, threads: int) -> Int64s:
        """The base row of every probe row, or `NOBODY`."""
        both = _Pass(probe, base, key_numbers(probe, base), self, threads)
        near = _Near(attribute, probe, base)
        before = after = None
        if self.direction != "forward":
            before = near.within(both.found(kernel.last_before), is_after=False)
        if self.direction != "backward":
            after = near.within(both.found(kernel.first_after), is_after=True)
        if before is None or after is None:
            found = before if after is None else after
            assert found is not None
            return found
        return near.nearer(before, after)


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


class _Near:
    """Distances of pairs, by the attribute's own rules."""

    def __init__(self, attribute: Attribute, probe: Timed, base: Timed) -> None:
        self._lo, self._hi = attribute.lo, attribute.hi
        self._probe, self._base = _values(probe), _values(base)

    def within(self, found: Int64s, *, is_after: bool) -> Int64s:
        """Nobody in place of those beyond the tolerance; all are on one side, after or before."""
        far = self._hi if is_after else self._lo
        if far is None or abs(far) >= (FAR if self._probe.dtype != np.float64 else np.inf):
            return found
        rows = np.flatnonzero(found >= 0)
        ours, theirs = self._probe[rows], self._base[found[rows]]
        if ours.dtype == np.float64:
            apart = theirs - ours
            is_far = apart > far if is_after else apart < far
        else:
            is_far = _apart(theirs, ours, is_after=is_after) > np.uint64(abs(int(far)))
        found[rows[is_far]] = NOBODY
        return found

    def nearer(self, before: Int64s, after: Int64s) -> Int64s:
        """Of both the nearer one; the one before where they are as near."""
        both = np.flatnonzero((before >= 0) & (after >= 0))
        ours, one, other = self._probe[both], self._base[before[both]], self._base[after[both]]
        if ours.dtype == np.float64:
            is_after = np.abs(other - ours) < np.abs(ours - one)
        else:
            is_after = _apart(other, ours, is_after=True) < _apart(one, ours, is_after=False)
        found = np.where(before >= 0, before, after)
        found[both[is_after]] = after[both[is_after]]
        return found


def _apart(theirs: Int64s, ours: Int64s, *, is_after: bool) -> npt.NDArray[np.uint64]:
    """Distances as unsigned numbers, because one may need 64 bits."""
    high, low = (theirs, ours) if is_after else (ours, theirs)
    return high.view(np.uint64) - low.view(np.uint64)


def _values(timed: Timed) -> npt.NDArray[Any]:
    """The order attribute as numbers with a distance."""
    name = timed.side.attributes[0]
    assert name is not None
    values, _ = comparable(timed.rows.column(name))
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
