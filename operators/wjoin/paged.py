"""Live windows on pages: rows gather in memory until they pay for reading the windows.

    rows gather, half of the budget ──▶ runs of pages, until they are an eighth of the windows
                                    ──step──▶ one run, walked with every page that it can meet

A step reads every page that its new rows can meet, so it waits until they pay for that, or until
`max_delay` says that they must not wait longer, or until nobody has anything to say.  What pays is
a share of the windows, not of the memory: with a tenth of the windows as memory, steps of half of
it read every old row for one new row in fifty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.feed import Portion
from matwin.shares import STEP_SHARE, WAIT_SHARE
from matwin.state import State, kept, put_back
from matwin.storage.store import Store

from .block import Blocks
from .needed import needed_from
from .parts import Gathering, MemoryPart, PagedPart
from .streams import NEW, in_role, weight_in_memory
from .walked import Step


class LivePages:
    """Old rows on pages, new ones in memory until a step pays."""

    makes_room = True
    needed_bytes = 0  # a store counts its own

    def __init__(
        self, step: Step, blocks: Sequence[Blocks], store: Store, *, materialize: str,
        arrivals: Sequence[str],
    ) -> None:  # fmt: skip
        self._step = step
        self._pool = store.pool
        self._windows = [
            PagedPart(b, store, name, materialize=materialize, arrival=arrival)
            for b, name, arrival in zip(blocks, step.question.names, arrivals, strict=True)
        ]
        self._new = [MemoryPart(b) for b in blocks]
        self._gathering = Gathering(self._new, store.pool)

    @property
    def step_bytes(self) -> int | None:
        """A step is due once as much has gathered as pays for reading the windows."""
        return 0 if self._gathering.size > self._pool.budget_bytes // STEP_SHARE else None

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes while it gathers."""
        return weight_in_memory(rows, size)

    @property
    def reason(self) -> str:
        """What the windows are, and why."""
        window = self._windows[0].window
        return f"{window.form} windows, joined as rows come: {window.reason}"

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Keep rows for the next step."""
        self.take_new(stream, portion.rows, portion.size)
        return iter(())

    def take_new(self, stream: int, rows: pa.RecordBatch, size: int) -> None:
        """Rows that are still to meet all others."""
        if self._gathering.size == 0:  # what gathers leaves no room to merge old rows into windows
            for window in self._windows:
                window.window.settle()
        self._new[stream].append(rows, size)
        self._gathering.count()
        if self._is_full and not self._pays():
            self._put_down()

    @property
    def _is_full(self) -> bool:
        return self._gathering.size > self._pool.budget_bytes // STEP_SHARE

    def _pays(self) -> bool:
        """Whether so many rows are new that they pay for reading the old ones: each of these is
        read for every other stream."""
        on_pages = sum(window.rows_waiting for window in self._windows)
        new = on_pages + sum(part.rows for part in self._new)
        read = (len(self._windows) - 1) * sum(window.rows for window in self._windows)
        return new * WAIT_SHARE >= read

    def _put_down(self) -> None:
        """New rows wait on pages, and leave the memory to those that come."""
        for window, part in zip(self._windows, self._new, strict=True):
            window.put_down(part.sorted_rows())
            self._forget(part)

    def _forget(self, part: MemoryPart) -> None:
        part.clear()
        self._gathering.count()

    def state(self) -> State:
        """Rows that gather, and the windows in the store."""
        states = [part.state for part in self._windows]
        names = [name for own, _ in states for name in own]
        marks = {mark: run for _, own in states for mark, run in own.items()}
        return State(kept(in_role(NEW, self._new)), names, marks)

    def restore(self, state: State) -> None:
        """Gather the same rows; those in the store are there already."""
        put_back(in_role(NEW, self._new), state)
        for window in self._windows:
            window.restore(state.marks)
        self._gathering.count()

    def take_old(self, stream: int, rows: pa.RecordBatch) -> None:
        """Rows whose tuples with one another have been found."""
        self._windows[stream].append(rows)

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row; then drop what no later row can meet."""
        step = self._step
        step.report.steps += 1
        if any(window.rows_waiting for window in self._windows):
            self._put_down()  # before: runs are merged in what is free
        old, new = [], []
        for window, part in zip(self._windows, self._new, strict=True):
            before, own = window.staged(part.sorted_rows())
            old.append(before)
            new.append(own)
            self._forget(part)
        yield from step.tuples(old, new)
        upper = step.question.constraints.bounds(step.bounds)
        needed = needed_from(frontiers, upper, is_float=step.question.is_float)
        for window, bound in zip(self._windows, needed, strict=True):
            window.settle()
            window.drop_below(bound)
            window.compact()
