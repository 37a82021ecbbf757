"""Rows brought from the order of one side to that of the other, by way of lanes on pages.

    pairs of numbers, in any order ──▶ lanes by right row  │ 0–999 │ 1000–1999 │ …
    right rows of a lane, in memory ──▶ lanes by left row  │ 0–1499 │ 1500–2999 │ …

Each lane has rows that are near each other, so that whoever takes one finds all that it names in
few blocks; nothing is sorted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.lanes import Lanes
from matwin.storage.ordering import sort_order
from matwin.storage.pool import BufferPool
from matwin.storage.store import Store

from .latest import expanded
from .nearest import Pairs
from .output import BATCH_ROWS
from .side import ROW
from .sizes import bytes_at, cuts

MATE = "matwin mate"
PAIR_BYTES = 16


class PairLanes:
    """Pairs in lanes by their right row."""

    def __init__(self, store: Store, starts: list[int], pairs_max: int) -> None:
        self.lanes = store.lanes("pairs", whole_numbers("left", "right"))
        self.count = 0
        self._starts = np.array(starts, np.int64)
        self._pairs_max = pairs_max
        self._waiting: list[Pairs] = []
        self._rows = 0

    def add(self, found: Pairs) -> None:
        """Take the pairs that have a right row."""
        there = found[1] >= 0
        left, right = found[0][there], found[1][there]
        for start in range(0, len(left), self._pairs_max):
            some = left[start : start + self._pairs_max], right[start : start + self._pairs_max]
            self._waiting.append(some)
            self._rows += len(some[0])
            if self._rows >= self._pairs_max:
                self._put()

    def _put(self) -> None:
        left, right = (np.concatenate(some) for some in zip(*self._waiting, strict=True))
        self.count += len(left)
        self._waiting, self._rows = [], 0
        lane = np.searchsorted(self._starts, right, "right") - 1
        order = _by_lane(lane)
        rows = pa.RecordBatch.from_arrays(
            [arrow(left[order]), arrow(right[order])], schema=self.lanes.schema
        )
        self.lanes.put(rows, _edges(lane, len(self._starts)))

    def finish(self) -> None:
        """Put down what is left."""
        if self._waiting:
            self._put()


class MateLanes:
    """Right rows that match, in lanes by their left row."""

    def __init__(self, store: Store, right: pa.Schema, starts: list[int]) -> None:
        self.starts = np.array(starts, np.int64)
        self.lanes = store.lanes("matches", mates_schema(right))

    def add(
        self,
        rows: pa.RecordBatch,
        at: Int64s,
        left: Int64s,
        right: Int64s,
        pool: BufferPool,
        share: int,
    ) -> None:
        """Take right rows for these left rows, so many bytes at a time."""
        lane = np.searchsorted(self.starts, left, "right") - 1
        order = _by_lane(lane)
        widths = bytes_at(rows, at[order])
        for a, b in cuts(widths, len(at), share, BATCH_ROWS):
            some = order[a:b]
            size = int(widths[a:b].sum() if not isinstance(widths, int) else widths * (b - a))
            with pool.reserve(2 * size):
                columns = rows.take(arrow(at[some])).columns[:-1]
                numbers = [arrow(left[some]), arrow(right[some])]
                part = pa.RecordBatch.from_arrays([*columns, *numbers], schema=self.lanes.schema)
                self.lanes.put(part, _edges(lane[some], len(self.starts)))

    def move(self, piece: pa.RecordBatch, by: str) -> None:
        """Take rows of other such lanes, by their left or their own numbers."""
        lane = np.searchsorted(self.starts, as_numpy(piece.column(by)), "right") - 1
        order = _by_lane(lane)
        self.lanes.put(piece.take(arrow(order)), _edges(lane, len(self.starts)))


@dataclass(frozen=True, slots=True)
class Mates:
    """Right rows, and the left rows that they match."""

    rows: pa.RecordBatch
    left: Int64s
    """The left rows' numbers, ascending; one for each right row."""
    order: Int64s
    """Where each of those lies among the rows: those of one left row by their own numbers."""

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Mates:
        """Rows out of a lane."""
        left, right = (as_numpy(rows.column(name)) for name in (ROW, MATE))
        order = sort_order([left, right]) if len(left) else None
        order = np.arange(len(left)) if order is None else order
        return cls(rows, left[order], order)

    def of_rows(self, numbers: Int64s, *, keeps: bool) -> tuple[Int64s, Int64s]:
        """The places of left rows, and for each of them that of a right row; with `keeps` -1 where
        there is none."""
        first, sizes = self._found(numbers)
        if len(sizes) and (sizes == 1).all():
            return np.arange(len(numbers)), self.order[first[0] : first[-1] + 1]
        out = np.maximum(sizes, 1) if keeps else sizes
        at = np.repeat(np.arange(len(numbers)), out)
        if not len(self.order):
            return at, np.full(len(at), -1)
        places = self.order[np.minimum(expanded(first, out), len(self.order) - 1)]
        places[(sizes == 0)[at]] = -1
        return at, places

    def _found(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Where the matches of each left row begin, and how many there are."""
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:  # without a gap
            low, high = np.searchsorted(self.left, [numbers[0], numbers[-1] + 1]).tolist()
            sizes = np.bincount(self.left[low:high] - numbers[0], minlength=len(numbers))
            return low + np.cumsum(sizes) - sizes, sizes
        first = np.searchsorted(self.left, numbers, "left")
        return first, np.searchsorted(self.left, numbers, "right") - first


def places_of(numbers: Int64s, wanted: Int64s) -> Int64s:
    """Where the wanted numbers lie among ascending ones, which have them all."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:  # without a gap
        found: Int64s = wanted - numbers[0]
        return found
    return np.searchsorted(numbers, wanted)


def _by_lane(lane: Int64s) -> Int64s:
    """The rows in order of their lanes; small numbers are sorted in a third of the time."""
    is_small = len(lane) == 0 or lane.max() < 1 << 16
    order: Int64s = np.argsort(lane.astype(np.uint16) if is_small else lane, kind="stable")
    return order


def _edges(lane: Int64s, lanes: int) -> list[int]:
    return [0, *np.cumsum(np.bincount(lane, minlength=lanes)).tolist()]


def gathered(lanes: Lanes, number: int, rows_max: int) -> Iterator[Pairs]:
    """The pairs of a lane, those of several pieces together."""
    yield from map(_pairs_of, taken_together(lanes, number, rows_max * PAIR_BYTES))


def taken_together(lanes: Lanes, number: int, size_max: int) -> Iterator[list[pa.RecordBatch]]:
    """The pieces of a lane, so many bytes of them together and at most twice as many."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    at_once = max(1, size_max // max(lanes.lane(number).piece_bytes_max, 1))
    for piece in lanes.taken(number, at_once):
        waiting.append(piece)
        size += piece.nbytes
        if size >= size_max:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _pairs_of(pieces: list[pa.RecordBatch]) -> Pairs:
    left, right = (
        np.concatenate([as_numpy(piece.column(at)) for piece in pieces]) for at in (0, 1)
    )
    return left, right


def mates_schema(right: pa.Schema) -> pa.Schema:
    return right.append(pa.field(MATE, pa.int64()))


def whole_numbers(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])
