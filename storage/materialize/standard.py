"""Standard materialization: sorted runs, merged with the old window.

    tail full ──▶ run      tail full ──▶ run      settle: tail ──▶ run
                                                    │
    old window + runs ──────────merge──────────────▶ new window, one run

Cost of a step: every live page is read and written, the new rows' pages included; rows that the
tail could not hold are written once more as runs.  In return the window is one run of full pages,
the best layout there is for a walk over pairs of pages.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..runs import PageRef, merge_into_one
from .window import Window


class StandardWindow(Window):
    """One sorted run, rewritten in every step that brings rows."""

    form = "standard"

    def _begin(self) -> None:
        self._merged: list[PageRef] = []
        self._fresh: list[list[PageRef]] = []

    def _settle(self) -> None:
        """Merge what has come with the window."""
        self._spill()
        if not self._fresh:
            return
        runs = [run for run in (self._merged, *self._fresh) if run]
        try:
            merge_into_one(self._pool, self.grid, runs, lambda: self._writer(0, "merge"))
        finally:
            self._merged, self._fresh = (runs[0], []) if len(runs) == 1 else ([], runs)
            self._by_order.clear()
            self._by_order.update(ref for run in runs for ref in run)

    def _spill(self) -> None:
        if self._tail.rows:
            with self._tail.in_order() as rows, self._writer(0, "run") as writer:
                writer.add(rows)
                refs = writer.finish()
            self._fresh.append(refs)
            self._by_order.update(refs)
        self._tail.clear()

    def _listed(self) -> Iterable[PageRef]:
        yield from self._merged
        for number, run in enumerate(self._fresh, 1):
            for ref in run:
                ref.run = number
                yield ref

    def _forget(self, refs: list[PageRef]) -> None:
        gone = {ref.page_id for ref in refs}
        for ref in refs:
            self._by_order.remove(ref)
        self._merged = [ref for ref in self._merged if ref.page_id not in gone]
        self._fresh = [[r for r in run if r.page_id not in gone] for run in self._fresh]

    def _restore(self, refs: list[PageRef]) -> None:
        self._merged = refs
        self._by_order.update(refs)
