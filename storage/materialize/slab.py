"""Slab materialization: a sorted run for each stretch of the order attribute.

    order attribute ──▶
    ├── run 0 ──┤├── run 1 ──┤├── run 2 ──┤├ small runs ┤
    dropped whole             live          in memory

A stream that comes in order fills one stretch after the other.  When as many rows have come as can
be sorted in memory, they become a run: written once, dropped whole when the bound has passed its
last row.

Rows are listed as soon as `settle` is called.  Until their run is long enough they are in small
runs whose pages stay in memory; then the small runs become one, so that no half-empty page reaches
the disk.  (A completed step writes them all the same: it has to be whole.)

Whoever reads all runs again and again wants few and long ones: `compact` merges short ones with
their neighbours, `merge_from` those that came last.

Cost: every row is written once, unless runs are merged. Rows out of order are kept right, but a run
lives as long as its last row: the more disorder, the later it is dropped. Rows without an order
value never expire and get runs of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import pyarrow as pa

from ..arrays import arrow
from ..columns import NO_VALUE, Bools, cast_columns
from ..runs import PageRef, RunWriter, Sorted, live_rows, merge_into_one, sort_rows, sort_space
from ..turns import in_turn
from .window import Window

LONG_SHARE, SHORT_SHARE = 4, 16
"""Merged runs are a quarter of the window at most, so that they are dropped soon after their rows
have expired.  A sixteenth is short: its pages have many keys each, and meet many others."""


class SlabWindow(Window):
    """Runs by stretch, oldest first."""

    form = "slab"

    def _begin(self) -> None:
        self._runs: dict[int, list[PageRef]] = {}
        self._small: dict[int, list[PageRef]] = {}
        self._next_run = 0

    def _settle(self) -> None:
        """Make the tail a small run."""
        if self._tail.rows and self._space_with_small() > self._tail.limit:
            self._spill()
        elif self._tail.rows:
            with self._tail.in_order() as rows:
                self._write(rows, self._small, keep=True)
        self._tail.clear()

    @in_turn
    def only_runs(self) -> SlabWindow:
        """All rows will come as runs: it needs no room for sorting."""
        self._pool.set_aside(self._window)
        return self

    @property
    def next_run(self) -> int:
        """The number of the run that comes next."""
        return self._next_run

    @in_turn
    def add_run(self, rows: pa.RecordBatch, *, is_to_merge: bool = False) -> list[PageRef]:
        """Take rows as a run of their own, all of them or none, and say which pages they are.

        A short run is one of the small ones, until there are enough of them; one that is to be
        merged (`merge_from`) is by itself, and makes no others of the small ones.
        """
        self._pool.mark(self._window)  # an error where the window was dropped
        self._check_columns(rows)
        count, size = rows.num_rows, int(pa.ipc.get_record_batch_size(rows))
        if count == 0:
            return []
        if not is_to_merge and self._tail.is_full_for(rows, *self._of_small()):
            self._spill()
        is_short = sort_space(count, size, len(self.grid.names) + 1) <= self._tail.limit
        is_small = is_short and not is_to_merge
        keys = 8 * count * (len(self.grid.names) + 2)
        with self._pool.reserve(keys + 2 * self._pool.file.page_size):
            ordered = sort_rows(cast_columns(rows, self._page_schema), self.grid)
            runs = self._small if is_small else self._runs
            before = self._next_run
            self._write(ordered, runs, keep=is_small)
        return [ref for run in range(before, self._next_run) for ref in runs.get(run, ())]

    @in_turn
    def drop_run(self, refs: Sequence[PageRef]) -> None:
        """Take back what `add_run` has said."""
        self._forget(list(refs))
        self._pool.drop([ref.page_id for ref in refs], "taken back")

    @in_turn
    def compact(self) -> None:
        """Make longer runs of short ones."""
        while short := self._short_runs():
            self._merge(short)

    def _short_runs(self) -> list[int]:
        first, limit = short_runs([sum(r.rows for r in refs) for refs in self._runs.values()])
        return list(self._runs)[first:limit]

    @in_turn
    def merge_from(self, first: int) -> list[PageRef]:
        """Make one run of those numbered from `first` on; its pages."""
        return self._merge([run for run in self._runs if run >= first])

    def _merge(self, numbers: Sequence[int]) -> list[PageRef]:
        """Make one run, in the place of these."""
        runs = [self._runs[run] for run in numbers]
        try:
            merge_into_one(self._pool, self.grid, runs, self._merged_run)
        finally:
            before = list(self._runs)
            at = before.index(numbers[0]) if numbers else 0
            kept = [self._runs[run] for run in before if run not in numbers]
            kept[at:at] = [refs for refs in runs if refs]
            self._runs = {refs[0].run: refs for refs in kept}
            self._by_order.clear()
            self._by_order.update(self._listed())
        return [ref for refs in runs for ref in refs]

    def _merged_run(self) -> RunWriter:
        run, self._next_run = self._next_run, self._next_run + 1
        return self._writer(run, "merge")

    def _spill(self) -> None:
        """The small runs and the tail become a run."""
        small = [ref for run in self._small.values() for ref in run]
        if self._tail.rows or small:
            with self._pool.reserve(self._space_with_small() + 2 * self._pool.file.page_size):
                batches = [portion.batch for portion in self._tail.portions]
                for ref in small:
                    with self._pool.pin(ref.page_id, "slab") as page:
                        batches.append(live_rows(page.batch, ref, self.grid))
                rows = sort_rows(pa.concat_batches(batches), self.grid)
                self._write(rows, self._runs, keep=False)
        self._tail.clear()
        self._forget(small)
        self._pool.drop([ref.page_id for ref in small], "run is long enough")

    def _is_full_for(self, piece: pa.RecordBatch) -> bool:
        """Small runs are sorted with the tail: together they are as large as can be sorted."""
        return self._tail.is_full_for(piece, *self._of_small())

    def _space_with_small(self) -> int:
        return self._tail.sort_space(*self._of_small())

    def _of_small(self) -> tuple[int, int]:
        """How many rows the small runs have, and their bytes."""
        small = [ref for run in self._small.values() for ref in run]
        return sum(ref.rows for ref in small), sum(ref.size for ref in small)

    def _write(self, rows: Sorted, runs: dict[int, list[PageRef]], *, keep: bool) -> None:
        has_order = rows.keys[-1] != NO_VALUE
        if has_order.all() or not has_order.any():
            parts = [rows]
        else:
            parts = [_where(rows, has_order), _where(rows, ~has_order)]
        written: dict[int, list[PageRef]] = {}
        with ExitStack() as stack:
            for run, part in enumerate(parts, self._next_run):
                why = "small run" if keep else "slab"
                writer = stack.enter_context(self._writer(run, why, keep=keep))
                writer.add(part)
                written[run] = writer.finish()
        self._next_run += len(parts)
        for run, refs in written.items():
            if refs:
                runs[run] = refs
            self._by_order.update(refs)

    def _listed(self) -> Iterable[PageRef]:
        for runs in (self._runs, self._small):
            for refs in runs.values():
                yield from refs

    def _forget(self, refs: list[PageRef]) -> None:
        for ref in refs:
            self._by_order.remove(ref)
            runs = self._runs if ref.run in self._runs else self._small
            runs[ref.run].remove(ref)
            if not runs[ref.run]:
                del runs[ref.run]

    def _restore(self, refs: list[PageRef]) -> None:
        for ref in refs:
            self._runs.setdefault(ref.run, []).append(ref)
        self._by_order.update(refs)
        self._next_run = max(self._runs, default=-1) + 1


def short_runs(rows: Sequence[int]) -> tuple[int, int]:
    """Which neighbours, of runs that are listed oldest first, become one; none is ``(0, 0)``.

    A short run is twice as long as the next at least, as the runs of a sort that merges as it goes,
    so that there are few of them and rows are seldom written again.  One that is followed by a long
    run goes into that, if it does not become too long.

    >>> short_runs([100, 4, 2, 1]), short_runs([100, 4, 2, 2]), short_runs([100, 1, 20])
    ((0, 0), (1, 4), (1, 3))
    """
    most, short = sum(rows) / LONG_SHARE, sum(rows) / SHORT_SHARE
    for at in range(len(rows)):
        first, limit = at, at + 1
        together: float = rows[at]
        while True:
            older = rows[first - 1] if first > 0 and limit - first > 1 else most
            newer = rows[limit] if limit < len(rows) else most
            if together < 2 * newer and _joins(together, newer, most, short):
                limit, together = limit + 1, together + newer
            elif older < 2 * together and _joins(older, together, most, short):
                first, together = first - 1, together + older
            else:
                break
        if limit - first > 1:
            return first, limit
    return 0, 0


def _joins(older: float, newer: float, most: float, short: float) -> bool:
    return min(older, newer) <= short and older + newer <= most


def _where(rows: Sorted, mask: Bools) -> Sorted:
    return Sorted(rows.batch.filter(arrow(mask)), [k[mask] for k in rows.keys])
