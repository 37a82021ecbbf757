"""Slab materialization: a sorted run for each stretch of the order attribute.

    order attribute ──▶
    ├── run 0 ──┤├── run 1 ──┤├── run 2 ──┤├ small runs ┤
    dropped whole             live          in memory

A stream that comes in order fills one stretch after the other.  When as many rows have come as can
be sorted in memory, they become a run: written once, never merged, dropped whole when the bound has
passed its last row.

Rows are listed as soon as `settle` is called.  Until their run is long enough they are in small
runs whose pages stay in memory; then the small runs become one, so that no half-empty page reaches
the disk.  (A completed step writes them all the same: it has to be whole.)

Cost: every row is written once.  Rows out of order are kept right, but a run lives as long as its
last row: the more disorder, the later it is dropped.  Rows without an order value never expire and
get runs of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import pyarrow as pa

from ..columns import NO_VALUE, Bools, cast_columns
from ..runs import PageRef, Sorted, live_rows, sort_rows, sort_space
from ..turns import in_turn
from .window import Window


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

    @in_turn
    def add_run(self, rows: pa.RecordBatch) -> list[PageRef]:
        """Take rows as a run of their own, all of them or none, and say which pages they are.

        A short run is one of the small ones, until there are enough of them.
        """
        self._pool.mark(self._window)  # an error where the window was dropped
        self._check_columns(rows)
        count, size = rows.num_rows, int(pa.ipc.get_record_batch_size(rows))
        if count == 0:
            return []
        if self._tail.is_full_for(rows, *self._of_small()):
            self._spill()
        is_small = sort_space(count, size, len(self.grid.names) + 1) <= self._tail.limit
        keys = 8 * count * (len(self.grid.names) + 2)
        with self._pool.reserve(keys + 2 * self._pool.file.page_size):
            ordered = sort_rows(cast_columns(rows, self._page_schema), self.grid)
            runs = self._small if is_small else self._runs
            before = self._next_run
            self._write(ordered, runs, keep=is_small)
        return [ref for run in range(before, self._next_run) for ref in runs.get(run, ())]

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


def _where(rows: Sorted, mask: Bools) -> Sorted:
    return Sorted(rows.batch.filter(pa.array(mask)), [k[mask] for k in rows.keys])
