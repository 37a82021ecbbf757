"""Full bestmatch: pairs that are best for their left row or for their right row, each once.

    left → right: best pairs ─┐
                              ├─▶ twins: pairs that both directions find; the second one is dropped
    right → left: best pairs ─┘

A pair is known by the numbers of its rows.  What one direction has found waits in a sorted array
until the other finds it too, or has judged the row with which it would have.  When the arrays
outgrow an eighth of the budget, all further pairs are sorted by their numbers in a store, together
with those that wait; twins meet there, and the rest comes out at the end.  A live stream can't wait
for the end, and gets an error that says how much memory it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.columns import Int64s, physical
from matwin.storage.errors import BudgetError
from matwin.storage.pool import smallest_budget
from matwin.storage.store import Store
from matwin.storage.units import format_size

from .joining import Batches, Join
from .loop import Direction
from .matched import Matched
from .options import Options
from .side import ROW

LEFT, RIGHT, IS_OUT = "matwin left", "matwin right", "matwin is out"
BYTES_PER_PAIR = 64
SORT_PAGE_BYTES = 1 << 16
NUMBER_BITS = np.uint64(32)
NUMBER_MASK = np.uint64((1 << 32) - 1)
OTHER = {"left": "right", "right": "left"}


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs by their rows' numbers, the base rows' order keys, and the output rows."""

    probe: str
    left: Int64s
    right: Int64s
    base_order: Int64s
    rows: pa.RecordBatch
    alone: Batches


def union_options(options: Options) -> Options:
    """The options of the directions, which leave room to pairs that wait and to the sort."""
    share = max(options.budget_bytes * 5 // 8, smallest_budget(options.page_bytes))
    return replace(options, memory=min(share, options.budget_bytes))


class Union:
    """Best pairs of both directions, each once."""

    def __init__(self, join: Join, budget_bytes: int, *, is_live: bool) -> None:
        self._join = join
        self._budget_bytes = budget_bytes
        self._is_live = is_live
        self._waiting = {"left": _Waiting(), "right": _Waiting()}

    def batches(self) -> Iterator[Batches]:
        """Output rows."""
        keeps = self._join.question.keep_unmatched
        directions = {
            probe: self._join.direction(probe, "best", self._finish(probe), wants_unmatched=keeps)
            for probe in ("left", "right")
        }
        found = self._join.run(
            list(directions.values()), keeps_rejected=("left", "right") if keeps else ()
        )
        for result in found:
            if isinstance(result, list):  # rejected rows
                yield result
                continue
            yield result.alone
            yield [self._fresh(result, directions)]
            if self._is_full():
                yield from self._sorted_out(found)
                return

    def _finish(self, probe: str) -> Callable[[Matched], Found]:
        base = self._join.sides[OTHER[probe]]

        def finish(matched: Matched) -> Found:
            found = matched.candidates
            mine = _numbers(matched.probe_rows)[found.probe]
            theirs = _numbers(matched.base_rows)[found.base]
            left, right = (mine, theirs) if probe == "left" else (theirs, mine)
            order = base.order_keys(matched.base_rows)[found.base]
            rows = self._join.paired(probe, matched, found.probe, found.base)
            alone = self._join.alone(probe, matched.probe_rows, matched.unmatched)
            keeps = self._join.question.keep_unmatched
            return Found(probe, left, right, order, rows, alone if keeps else [])

        return finish

    def _fresh(self, found: Found, directions: dict[str, Direction]) -> pa.RecordBatch:
        """The rows of pairs that the other direction has not found."""
        mine, theirs = self._waiting[found.probe], self._waiting[OTHER[found.probe]]
        pairs = _packed(found.left, found.right)
        is_twin = theirs.take_out(pairs)
        other = directions[OTHER[found.probe]]
        mine.add(pairs[~is_twin], found.base_order[~is_twin], other.judgements)
        mine.forget(other.judged_upto, other.judgements)
        return found.rows.filter(pa.array(~is_twin)) if is_twin.any() else found.rows

    def _is_full(self) -> bool:
        pairs = sum(waiting.count for waiting in self._waiting.values())
        if pairs * BYTES_PER_PAIR <= self._budget_bytes // 8:
            return False
        if self._is_live:
            smallest = 16 * pairs * BYTES_PER_PAIR
            raise BudgetError(
                f"{pairs} pairs wait for their twins, more than an eighth of the budget holds; "
                f"give at least {format_size(smallest)} ({smallest} bytes)",
                smallest_bytes=smallest,
            )
        return True

    # ── more pairs than can wait ─────────────────────────────────────────────────────────────

    def _sorted_out(self, found: Iterator[Any]) -> Iterator[Batches]:
        """Everything else through a sort by row numbers."""
        fields = [pa.field(f.name, f.type) for f in self._join.output.schema]
        numbers = [pa.field(name, pa.int64()) for name in (LEFT, RIGHT, IS_OUT)]
        schema = pa.schema([*numbers, *fields])
        budget = max(self._budget_bytes // 4, smallest_budget(SORT_PAGE_BYTES))
        alone: list[pa.RecordBatch] = []
        with Store(
            memory=budget, page_size=SORT_PAGE_BYTES, scratch=self._join.options.scratch
        ) as store:
            rows = chain(self._waiting_rows(schema), self._later_rows(found, schema, alone))
            on = {LEFT: 0, RIGHT: 0}
            with store.sort(rows, schema, on=on) as ordered:
                yield alone
                yield from self._without_twins(ordered.batches())

    def _waiting_rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Pairs that have been handed over already: only their numbers."""
        for waiting in self._waiting.values():
            left, right = _unpacked(waiting.pairs)
            nothing = [pa.nulls(len(left), field.type) for field in schema][3:]
            numbers = [left, right, np.ones(len(left), np.int64)]
            yield pa.RecordBatch.from_arrays([*map(pa.array, numbers), *nothing], schema=schema)
            waiting.clear()

    def _later_rows(
        self, found: Iterator[Any], schema: pa.Schema, alone: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for result in found:
            if isinstance(result, list):
                alone += result
                continue
            alone += result.alone
            # As packed and unpacked, so that they compare with those that waited.
            left, right = _unpacked(_packed(result.left, result.right))
            numbers = [left, right, np.zeros(len(left), np.int64)]
            yield pa.RecordBatch.from_arrays(
                [*map(pa.array, numbers), *result.rows.columns], schema=schema
            )

    def _without_twins(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Batches]:
        """Sorted rows, one for each pair, none for pairs that were handed over before."""
        before: pa.RecordBatch | None = None
        for batch in batches:
            rows = batch if before is None else pa.concat_batches([before, batch])
            left, right = physical(rows.column(LEFT))[0], physical(rows.column(RIGHT))[0]
            starts = np.flatnonzero((np.diff(left) != 0) | (np.diff(right) != 0)) + 1
            complete = int(starts[-1]) if len(starts) else 0
            yield [self._firsts(rows.slice(0, complete))]
            before = rows.slice(complete)
        if before is not None:
            yield [self._firsts(before)]

    def _firsts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        left, right = physical(rows.column(LEFT))[0], physical(rows.column(RIGHT))[0]
        begins = np.ones(rows.num_rows, np.bool_)
        begins[1:] = (np.diff(left) != 0) | (np.diff(right) != 0)
        groups = np.cumsum(begins) - 1
        is_out = np.zeros(int(begins.sum()), np.bool_)
        is_out[groups[physical(rows.column(IS_OUT))[0] == 1]] = True
        kept = pa.array(begins & ~is_out[groups])
        columns = [rows.column(name).filter(kept) for name in self._join.output.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._join.output.schema)


class _Waiting:
    """Pairs that one direction has found, ascending, with the order keys of their base rows and
    how often the other direction had judged before."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.pairs = np.empty(0, np.uint64)
        self.orders = np.empty(0, np.int64)
        self.stamps = np.empty(0, np.int64)

    @property
    def count(self) -> int:
        """How many."""
        return len(self.pairs)

    def add(self, pairs: npt.NDArray[np.uint64], orders: Int64s, stamp: int) -> None:
        """Take pairs that are not there."""
        self.pairs = np.concatenate([self.pairs, pairs])
        self.orders = np.concatenate([self.orders, orders])
        self.stamps = np.concatenate([self.stamps, np.full(len(pairs), stamp)])
        self._keep(np.argsort(self.pairs, kind="stable"))

    def take_out(self, pairs: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of the pairs are there; they leave."""
        at = np.searchsorted(self.pairs, pairs)
        there = at < len(self.pairs)
        there[there] = self.pairs[at[there]] == pairs[there]
        if there.any():
            self._keep(np.delete(np.arange(len(self.pairs)), at[there]))
        return there

    def forget(self, judged_upto: int, judgements: int) -> None:
        """Drop pairs whose base row the other direction has judged since: no twin can come."""
        is_open = (self.orders > judged_upto) | (self.stamps >= judgements)
        if not is_open.all():
            self._keep(np.flatnonzero(is_open))

    def _keep(self, at: Int64s) -> None:
        self.pairs, self.orders, self.stamps = self.pairs[at], self.orders[at], self.stamps[at]


def _numbers(rows: pa.RecordBatch) -> Int64s:
    return physical(rows.column(ROW))[0]


def _packed(left: Int64s, right: Int64s) -> npt.NDArray[np.uint64]:
    """One number for a pair.  Numbers repeat after 2^32 rows, far outside of any pair's window."""
    lower = left.view(np.uint64) & NUMBER_MASK
    return (lower << NUMBER_BITS) | (right.view(np.uint64) & NUMBER_MASK)


def _unpacked(pairs: npt.NDArray[np.uint64]) -> tuple[Int64s, Int64s]:
    return (pairs >> NUMBER_BITS).view(np.int64), (pairs & NUMBER_MASK).view(np.int64)
