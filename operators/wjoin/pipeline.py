"""The left-deep pipeline: tuples grow by one stream at a time, a portion after the other.

    rows of the root ──▶ pairs ──▶ triples ──▶ … ──▶ N-tuples
                      │         │
                      │         └─ candidates of the third stream: within the interval that the two
                      │            rows leave, with the same key
                      └─ refined: windows, predicates, second hash, each as soon as both its streams
                         are there

The interval of a tuple shrinks with every row: it is the intersection of what each row's window
leaves.  Nothing blocks and nothing is kept: at most `capacity` tuples wait at each level.

`Reach` is one stream's way of finding candidates (see `kernels.expand`).  What bounds the search
(`bounds`: graph, local, global) and what decides (`Refinement`) are two things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from matwin.storage.columns import INT64_MAX, INT64_MIN, Bools, Int64s, float_key, floats_of_keys

from .block import Held
from .constraints import Between, Matrix
from .kernels import expand
from .kernels import interval as kernel
from .predicates import Predicate
from .question import WindowQuestion

Tuples = dict[int, Int64s]
"""Row numbers by stream, one entry a tuple."""


class Span(NamedTuple):
    """How far from a stream's row another stream's row may be."""

    stream: int
    down: float
    up: float


class Probe:
    """Tuples that look for rows of one more stream; each of their rows leaves an interval."""

    def __init__(
        self, tuples: Tuples, blocks: dict[int, Held], root: int, spans: Sequence[Span], *,
        is_float: bool,
    ) -> None:  # fmt: skip
        self.tuples = tuples
        self._blocks = blocks
        self._root = root
        self._spans = spans
        self._is_float = is_float

    def __len__(self) -> int:
        return len(self.tuples[self._root])

    @cached_property
    def keys(self) -> Int64s:
        """The number of each tuple's keys."""
        return self._blocks[self._root].keys[self.tuples[self._root]]

    @cached_property
    def intervals(self) -> tuple[Int64s, Int64s]:
        """The times that all rows of a tuple leave: the first and the last."""
        lows, highs = np.full(len(self), INT64_MIN), np.full(len(self), INT64_MAX)
        for span in self._spans:
            self._narrow(lows, highs, span, self.tuples[span.stream])
        return lows, highs

    def _narrow(self, lows: Int64s, highs: Int64s, span: Span, rows: Int64s) -> None:
        block = self._blocks[span.stream]
        if self._is_float:
            _narrow_floats(lows, highs, block, rows, float(span.down), float(span.up))
        else:
            bounds = _limited(span.down), _limited(span.up)
            kernel.narrow(lows, highs, block.times, rows, *bounds)

    def places_in(self, block: Held) -> tuple[Int64s, Int64s] | None:
        """Between which places of a sorted block the rows lie that each tuple can meet; None where
        an interval for each tuple is cheaper.

        A row is part of many tuples, and what it can meet is one stretch of the block.  So that is
        looked for once for each row, in one pass over both, and what a tuple can meet is where the
        stretches of its rows overlap: a chain of four took 0.7 of the time.
        """
        rows_of = [self.tuples[span.stream] for span in self._spans]
        if len(self.tuples) == 1 or len(self) == 0:
            return None
        ranges = [(int(rows.min()), int(rows.max()) + 1) for rows in rows_of]
        if any(limit - first > len(self) for first, limit in ranges):
            return None
        begins, ends = np.zeros(len(self), np.int64), np.full(len(self), len(block.times))
        for span, rows, (first, limit) in zip(self._spans, rows_of, ranges, strict=True):
            lows, highs = np.full(limit - first, INT64_MIN), np.full(limit - first, INT64_MAX)
            self._narrow(lows, highs, span, np.arange(first, limit))
            keys = self._blocks[span.stream].keys[first:limit]
            own = np.empty_like(lows), np.empty_like(highs)
            expand.stretches(block.keys, block.times, keys, lows, highs, *own)
            expand.overlap(begins, ends, *own, rows, first)
        return begins, ends


Found = tuple[Int64s, Int64s]
"""Tuple numbers and row numbers of candidates."""


class Reach(Protocol):
    """How candidates of a stream are found: portions, each with the block its rows are of."""

    def candidates(self, probe: Probe, capacity: int) -> Iterator[tuple[Held, Found]]:
        """Candidates of all tuples, at most `capacity` at a time."""


class Pipeline:
    """A question with one stream as its root, and the order in which the others join."""

    def __init__(
        self, question: WindowQuestion, root: int, *, bounds: str,
        rows: Sequence[int] | None = None, is_forward: bool = False,
    ) -> None:  # fmt: skip
        self.question = question
        self.root = root
        self._upper = question.constraints.bounds(bounds)
        self.order = _joining_order(self._upper, root, rows)
        is_refined = question.constraints.is_refined(bounds)
        if is_forward:
            is_refined = question.constraints.is_uniform
        systems = () if is_refined else question.constraints.alternatives
        self._refinements = _refinements(self.order, systems, question.predicates)

    def run(
        self, root: Held, rows: Int64s, reaches: dict[int, Reach], capacity: int
    ) -> Iterator[tuple[dict[int, Held], Tuples]]:
        """The N-tuples of some rows of the root, in portions."""
        blocks = {self.root: root}
        yield from self._grown(1, blocks, {self.root: rows}, reaches, capacity)

    def _grown(
        self, level: int, blocks: dict[int, Held], tuples: Tuples, reaches: dict[int, Reach],
        capacity: int,
    ) -> Iterator[tuple[dict[int, Held], Tuples]]:  # fmt: skip
        if level == len(self.order):
            yield blocks, tuples
            return
        stream = self.order[level]
        probe = self.probe(stream, blocks, tuples)
        for block, (at, rows) in reaches[stream].candidates(probe, capacity):
            grown = {number: own[at] for number, own in tuples.items()} | {stream: rows}
            seen = blocks | {stream: block}
            grown = self._refined(level, seen, grown)
            if len(grown[stream]):
                yield from self._grown(level + 1, seen, grown, reaches, capacity)

    def probe(self, stream: int, blocks: dict[int, Held], tuples: Tuples) -> Probe:
        """What the rows of each tuple leave for one more stream."""
        is_float = self.question.is_float
        spans = _spans(self._upper, list(tuples), stream, is_float=is_float)
        return Probe(tuples, blocks, self.root, spans, is_float=is_float)

    def _refined(self, level: int, blocks: dict[int, Held], tuples: Tuples) -> Tuples:
        """Keep the tuples whose rows agree in all that can be told at this level."""
        stream = self.order[level]
        second, rows = blocks[stream].second, tuples[stream]
        mask: Bools | None = None
        if second is not None:
            theirs = blocks[self.root].second
            assert theirs is not None
            mask = theirs[tuples[self.root]] == second[rows]
        here = self._refinements[level]
        if here.systems:
            times = np.zeros(len(rows), np.bool_)
            for system in here.systems:
                times |= _agreeing(
                    system, blocks, tuples, len(rows), is_float=self.question.is_float
                )
            mask = times if mask is None else mask & times
        tuples = _kept(tuples, mask)
        for predicate in here.predicates:
            columns = [blocks[n].columns_at([name], tuples[n])[0] for n, name in predicate.columns]
            tuples = _kept(tuples, predicate.test(columns))
        return tuples


@dataclass(frozen=True, slots=True)
class Refinement:
    """What is decided at a level: one of the systems of windows holds, and all predicates do."""

    systems: tuple[tuple[Between, ...], ...]
    predicates: tuple[Predicate, ...]


def _refinements(
    order: Sequence[int], systems: tuple[tuple[Between, ...], ...],
    predicates: tuple[Predicate, ...],
) -> list[Refinement]:  # fmt: skip
    levels = []
    for level, stream in enumerate(order):
        seen = set(order[: level + 1])
        here: tuple[tuple[Between, ...], ...] = ()
        if len(systems) == 1:
            now = tuple(c for c in systems[0] if stream in (c.a, c.b) and {c.a, c.b} <= seen)
            here = (now,) if now else ()
        elif level == len(order) - 1:  # which of several holds is known at the end
            here = systems
        tests = tuple(p for p in predicates if stream in p.streams and p.streams <= seen)
        levels.append(Refinement(here, tests))
    return levels


def _joining_order(upper: Matrix, root: int, rows: Sequence[int] | None) -> list[int]:
    """Streams by how few rows their interval is expected to hold, given those before them."""
    order, rest = [root], [i for i in range(len(upper)) if i != root]
    while rest:

        def expected(stream: int) -> tuple[float, int]:
            width = min(float(upper[i][stream] + upper[stream][i]) for i in order)
            return width * (rows[stream] if rows else 1), stream

        order.append(min(rest, key=expected))
        rest.remove(order[-1])
    return order


def _spans(upper: Matrix, seen: Sequence[int], stream: int, *, is_float: bool) -> list[Span]:
    """What the rows of some streams leave for one more.

    In a chain only the row before it counts: what others leave follows from that.  Sums of floats
    are rounded, and nothing follows from them.
    """
    left = list(seen)
    for one in seen if not is_float else ():
        through = [
            other
            for other in left
            if other != one
            and upper[one][other] + upper[other][stream] <= upper[one][stream]
            and upper[stream][other] + upper[other][one] <= upper[stream][one]
        ]
        if through:
            left.remove(one)
    return [Span(one, -upper[stream][one], upper[one][stream]) for one in left]


def _limited(bound: float) -> int:
    """A bound in 64 bits; what is beyond them is none, and the given windows decide."""
    return max(min(int(bound), INT64_MAX), INT64_MIN)


def _narrow_floats(
    lows: Int64s, highs: Int64s, block: Held, rows: Int64s, down: float, up: float
) -> None:
    times = block.times[rows]
    np.maximum(lows, shifted(times, down, -np.inf, is_float=True), out=lows)
    np.minimum(highs, shifted(times, up, np.inf, is_float=True), out=highs)


def shifted(times: Int64s, by: float, toward: float, *, is_float: bool) -> Int64s:
    """Times as order keys, moved by a bound: where that is rounded, towards an infinity."""
    if not is_float:
        limits = (INT64_MIN, INT64_MAX)
        # Only the sum is limited: closed windows may be wider than 64 bits.
        moved = [max(min(int(t) + int(by), limits[1]), limits[0]) for t in times]
        return np.array(moved, np.int64)
    values = floats_of_keys(times)
    with np.errstate(over="ignore"):
        values = values + float(by)
        for _ in range(2):  # the sum is rounded
            values = np.nextafter(values, toward)
    return float_key(values)


def _agreeing(
    system: tuple[Between, ...], blocks: dict[int, Held], tuples: Tuples, count: int, *,
    is_float: bool,
) -> Bools:  # fmt: skip
    mask: Bools = np.ones(count, np.bool_)
    for one in system:
        a, b = blocks[one.a], blocks[one.b]
        a_rows, b_rows = tuples[one.a], tuples[one.b]
        if is_float:
            with np.errstate(over="ignore"):
                apart = floats_of_keys(b.times[b_rows]) - floats_of_keys(a.times[a_rows])
            mask &= (apart >= one.lo) & (apart <= one.hi)
        else:
            kernel.agree(mask, a.times, a_rows, b.times, b_rows, int(one.lo), int(one.hi))
    return mask


def _kept(tuples: Tuples, mask: Bools | None) -> Tuples:
    if mask is None or mask.all():
        return tuples
    at = np.flatnonzero(mask)
    return {number: rows[at] for number, rows in tuples.items()}
