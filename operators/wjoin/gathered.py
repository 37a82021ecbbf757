"""Finite inputs whose windows neither fit nor divide: written to pages as they come, walked at the
end, when every page is read about once.  Steps would read the windows again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pyarrow as pa

from matwin.feed import Portion
from matwin.finality import DONE
from matwin.state import State
from matwin.storage.store import Store

from .block import Blocks
from .parts import PagedPart
from .streams import weight_in_memory
from .walked import Step


class GatheredPages:
    """All rows on pages: old ones, which have met each other in memory, and new ones."""

    step_bytes: int | None = None
    makes_room = True
    needed_bytes = 0  # a store counts its own
    reason = "inputs are finite: one walk at the end"

    def __init__(
        self, step: Step, blocks: Sequence[Blocks], store: Store, *, materialize: str
    ) -> None:
        self._step = step
        self._blocks = blocks
        self._store = store
        self._form = materialize
        self._parts: dict[tuple[int, bool], PagedPart] = {}
        self._is_walked = False

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes while it is written."""
        return weight_in_memory(rows, size)

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Write rows."""
        self.take_new(stream, portion.rows, portion.size)
        return iter(())

    def take_new(self, stream: int, rows: pa.RecordBatch, size: int) -> None:
        """Rows that are still to meet all others."""
        self._part(stream, is_new=True).append(rows)

    def take_old(self, stream: int, rows: pa.RecordBatch) -> None:
        """Rows whose tuples with one another have been found.  They have been sorted for that: they
        are runs, and take nothing of what sorting may."""
        self._part(stream, is_new=False).put_down(rows)

    def state(self) -> State:
        """The windows in the store."""
        return State((), sorted(part.window.name for part in self._parts.values()))

    def restore(self, state: State) -> None:
        """Open the same windows again."""
        for stream, is_new in product(range(len(self._blocks)), (False, True)):
            if self._name(stream, is_new=is_new) in state.windows:
                self._part(stream, is_new=is_new)

    def _part(self, stream: int, *, is_new: bool) -> PagedPart:
        """The part, made when it is first needed: windows share what sorting may take."""
        if (stream, is_new) not in self._parts:
            self._parts[stream, is_new] = PagedPart(
                self._blocks[stream], self._store, self._name(stream, is_new=is_new),
                materialize=self._form if is_new else "slab", arrival="unsorted",
                has_only_runs=not is_new,
            )  # fmt: skip
        return self._parts[stream, is_new]

    def _name(self, stream: int, *, is_new: bool) -> str:
        return self._step.question.names[stream] + ("" if is_new else " before")

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row, at the end, and once."""
        if self._is_walked or min(frontiers) < DONE:
            return
        self._is_walked = True
        self._step.report.steps += 1
        old, new = (
            [
                self._parts[i, is_new].pages() if (i, is_new) in self._parts else []
                for i in range(len(self._blocks))
            ]
            for is_new in (False, True)
        )
        yield from self._step.tuples(old, new)
