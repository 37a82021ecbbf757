"""A window join as the driver knows it: its feeds, and the engines that its algorithm takes.

    in memory   merge                      `Slabs`
                backward, forward          `Backward`, `Forward`; finite inputs wait: `Untouched`
    in parts    the same, one for a part
    on pages    live streams               `LivePages`: steps over windows
                finite inputs              `GatheredPages`: everything at the end

Where `auto` has chosen, all algorithms share the engines on pages, because there a step must pay
for the pages it reads; one that was asked for by name is refused there, with the reason.
What an engine in memory has joined already is old on pages, what has waited is new: nothing is lost
or found twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.cutting import Cutting
from matwin.engine import Moved
from matwin.need import Need
from matwin.options import Options
from matwin.report import Report
from matwin.shares import OUTPUT_SHARE, PORTION_SHARE
from matwin.side import Side
from matwin.storage.columns import INT64_MIN
from matwin.storage.store import Store
from matwin.storage.units import Counts

from .block import Blocks
from .choose import Choice
from .cutting import cutting_of
from .evaluate import Backward, Forward
from .gathered import GatheredPages
from .need import StreamsNeed
from .output import Output
from .paged import LivePages
from .question import WindowQuestion
from .slabs import Slabs
from .streams import OLD, StreamsInMemory, weight_in_memory
from .untouched import Untouched
from .walked import Step


class WindowJoining:
    """One window join."""

    def __init__(
        self, question: WindowQuestion, choice: Choice, options: Options, report: Report, *,
        is_live: bool,
    ) -> None:  # fmt: skip
        self._question = question
        self._choice = choice
        self._options = options
        self._report = report
        self._is_live = is_live
        self._blocks = [Blocks(side) for side in question.sides]
        threads = options.workers if choice.algorithm == "merge" else 1
        self._output = Output(question, options.budget_bytes, threads)
        self.sides: Sequence[Side] = question.sides
        self.tolerances: Sequence[Counts | None] = [
            _as_given(s.grid.order.limits, question) for s in question.sides
        ]
        self.decision = choice.reason
        self.need: Need = StreamsNeed(question, options, is_live=is_live)

    beyond = "walk"

    def in_memory(self) -> StreamsInMemory:
        """The engine of the algorithm, without rows."""
        engine = self._engine(self._output, self._options.workers, keeps_rows=False)
        if self._is_live or isinstance(engine, Slabs):
            return engine
        upper = self._question.constraints.bounds(self._choice.bounds)
        return Untouched(engine, self._blocks, upper, is_float=self._question.is_float)

    def in_part(self, output_bytes: int) -> StreamsInMemory:
        """The same for one part, on one thread."""
        output = Output(self._question, output_bytes * OUTPUT_SHARE, 1)
        return self._engine(output, 1, keeps_rows=True)

    def _engine(
        self, output: Output, threads: int, *, keeps_rows: bool
    ) -> Slabs | Backward | Forward:
        choice, common = self._choice, (self._question, self._blocks, output)
        if choice.algorithm == "merge":
            budget = self._options.budget_bytes
            return Slabs(
                *common, bounds=choice.bounds, threads=threads, budget_bytes=budget,
                report=self._report, keeps_rows=keeps_rows,
            )  # fmt: skip
        evaluation = Forward if choice.is_forward else Backward
        return evaluation(*common, bounds=choice.bounds, is_hash=choice.is_hash)

    @property
    def is_faster_in_parts(self) -> bool:
        """Without keys, rows are sorted by time and met in one pass through the memory."""
        return self._question.is_keyed

    @property
    def needs_memory(self) -> bool:
        """An algorithm that was asked for by name runs in memory, if only part by part."""
        return self._choice.needs_memory

    @property
    def cutting(self) -> Cutting:
        """How the join may be divided."""
        return cutting_of(self._question)

    def on_pages(
        self, engine: StreamsInMemory, store: Store, arrivals: Sequence[str], why: str
    ) -> Moved:
        """The rows of an engine in memory, on pages."""
        if self._choice.needs_memory:
            raise self._choice.refusal(self._options.budget_bytes, why)
        paged: LivePages | GatheredPages
        form = self._options.materialize
        step = Step(
            self._question, self._choice.bounds, self._options.schedule, self._output, store.pool,
            self._report,
        )  # fmt: skip
        if self._is_live:
            paged = LivePages(step, self._blocks, store, materialize=form, arrivals=arrivals)
        else:
            paged = GatheredPages(step, self._blocks, store, materialize=form)
        self._output.divide(1)
        decision = self._choice.on_pages(why, paged.reason)
        return Moved(paged, decision, self._poured(engine, paged))

    def _poured(
        self, engine: StreamsInMemory, paged: LivePages | GatheredPages
    ) -> Iterator[pa.RecordBatch]:
        """Move the rows; those that have waited may be too many for one step."""
        nothing_known = [INT64_MIN] * len(self.sides)  # rows that wait are still to come
        for stream, role, rows in engine.pour():
            for part in self._parts_of(rows):
                if role == OLD:
                    paged.take_old(stream, part)
                    continue
                paged.take_new(stream, part, part.nbytes)
                if paged.step_bytes is not None:
                    yield from paged.advance(nothing_known)

    def _parts_of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch in parts that take a sixteenth of the budget."""
        share = self._options.budget_bytes // PORTION_SHARE
        weight = weight_in_memory(batch.num_rows, batch.nbytes)
        size = max(1, share * batch.num_rows // max(weight, 1))
        return (batch.slice(first, size) for first in range(0, batch.num_rows, size))

    def rejected(self, feed: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Nothing comes out of rows that match nothing."""
        return iter(())


def _as_given(limits: Counts | None, question: WindowQuestion) -> Counts | None:
    """A stream's reach, without the room for rounding that windows of floats have: it may be the
    width of the stream's cells, which are those of somebody else."""
    if limits is None or limits.hi is None or not isinstance(limits.hi, float):
        return limits
    windows = [one for system in question.constraints.alternatives for one in system]
    given = (abs(bound) for one in windows for bound in (one.lo, one.hi))
    near = [width for width in given if math.isclose(width, limits.hi, rel_tol=1e-9)]
    return Counts(-near[0], near[0]) if near else limits
