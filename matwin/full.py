"""Full bestmatch: pairs that are best for their left row or for their right row, each once.

    left → right: best pairs ──▶ all of them come out
         │
         └─▶ left rows that have been judged, each with a note of its best pairs
                   │
    right → left:  ▼ best pairs ──▶ those come out that the left row has not noted

A note holds the distances of the row's best pairs, one for each place on its frontier, so that any
number of ties takes no room: a pair is best for its left row exactly when its distances are noted.
Orders that are black boxes have no distances; there the numbers of the right rows are noted.

The right direction's base is therefore fed by the left direction, and complete as far as that has
judged.  Nothing is kept but the windows themselves.  The price on live streams: a pair that is best
for its right row only leaves when its left row has been judged too, up to twice the tolerance later
than with ``how="right"``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.columns import Int64s, physical

from .candidates import Candidates
from .directions import Direction, Means
from .joining import Batches, Join
from .kernels.mates import distinct, is_noted
from .matched import Matched
from .question import Question
from .side import NOTES, ROW


@dataclass(frozen=True, slots=True)
class Judged:
    """Output rows of the left direction, and the left rows with their notes."""

    batches: Batches
    rows: pa.RecordBatch


def has_black_boxes(question: Question) -> bool:
    """Whether an order has no number for a pair."""
    return len(question.black_boxes) > 0


class Union:
    """Best pairs of both directions, each once."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self._noting = join.sides["left"].with_notes()
        self._names = [name for name in self._noting.stored.names if name != NOTES]
        self._notes_numbers = has_black_boxes(join.question)

    def batches(self) -> Generator[Batches]:
        """Output rows."""
        keeps = self._join.question.keep_unmatched
        for result in self._join.run(
            self.directions, keeps_rejected=("left", "right") if keeps else ()
        ):
            yield result.batches if isinstance(result, Judged) else result

    def directions(self, means: Means) -> list[Direction]:
        """Both, of which the left one hands its rows on to the right one."""
        keeps = self._join.question.keep_unmatched
        left = self._join.direction(
            means, "left", "best", self._left_judged, wants_unmatched=keeps, with_keys=True
        )
        right = self._join.direction(
            means, "right", "best", self._right_judged(keeps), wants_unmatched=keeps,
            with_keys=True, sides={**self._join.sides, "left": self._noting}, after=left,
        )  # fmt: skip
        left.hand_on = lambda judged: self._hand_on(judged.rows, right)
        return [left, right]

    def _hand_on(self, rows: pa.RecordBatch, right: Direction) -> None:
        """Give judged left rows to the right direction."""
        right.windows.append("left", rows, self._noting.order_keys(rows), rows.nbytes)

    # ── left → right ─────────────────────────────────────────────────────────────────────────

    def _left_judged(self, matched: Matched) -> Judged:
        finish = self._join.pairs("left", unmatched=self._join.question.keep_unmatched)
        found = matched.candidates
        vectors = self._vectors(found, matched.base_rows, found.base)
        judged, starts, vectors = distinct(found.probe, vectors)
        offsets = starts * vectors.shape[1]
        notes = pa.LargeListArray.from_arrays(arrow(offsets), arrow(vectors.ravel()))
        return Judged(finish(matched), self._with_notes(matched.probe_rows, judged, notes))

    def _with_notes(self, rows: pa.RecordBatch, at: Int64s, notes: pa.Array) -> pa.RecordBatch:
        judged = rows.take(arrow(at))
        return judged.select(self._names).append_column(self._noting.stored.field(NOTES), notes)

    # ── right → left ─────────────────────────────────────────────────────────────────────────

    def _right_judged(self, keeps: bool) -> Callable[[Matched], Batches]:
        def finish(matched: Matched) -> Batches:
            found = matched.candidates
            batches: Batches = ()
            if len(found):
                vectors = self._vectors(found, matched.probe_rows, found.probe)
                notes = matched.base_rows.column(NOTES)
                offsets = np.frombuffer(notes.buffers()[1], np.int64)[notes.offset :]
                noted = physical(notes.values)[0]
                fresh = np.flatnonzero(~is_noted(offsets, noted, found.base, vectors))
                if len(fresh):
                    batches = self._join.portions(
                        "right", matched, found.probe[fresh], found.base[fresh]
                    )
            if keeps:
                alone = self._join.alone("right", matched.probe_rows, matched.unmatched)
                batches = chain(batches, alone)
            return batches

        return finish

    def _vectors(self, found: Candidates, right: pa.RecordBatch, at: Int64s) -> Int64s:
        """What tells a row's best pairs: their distances, or the numbers of their right rows."""
        if not self._notes_numbers:
            return np.ascontiguousarray(found.keys)
        if len(found) == 0:
            return np.empty((0, 1), np.int64)
        return physical(right.column(ROW))[0][at].reshape(-1, 1)
