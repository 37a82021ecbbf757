"""What two-sided joins share: sources and options in, directions to run, output batches out.

    Question, Options ──▶ Join ──▶ feeds, sides, directions ──driver──▶ batches ──▶ reader

A join says which directions it wants and what each makes of the rows it has judged; everything else
is here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.columns import INT64_MAX, Int64s
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.store import Store
from matwin.storage.units import Counts

from .cutting import Cutting, cutting_of
from .directions import Direction, Directions, Means
from .driver import Driver
from .engine import Moved
from .finality import Finality, check_streamable
from .judge import Judge
from .matched import Matched
from .need import Need, OrderedNeed, WalkNeed
from .options import Options
from .output import BATCH_ROWS, Output, taken
from .question import Question
from .report import Report, SideReport
from .result import Result
from .shares import OUTPUT_SHARE
from .side import ROW, SIDES, Side, own_rows
from .sizes import bytes_at, cuts
from .sources import Source, check_trace
from .streams import Stream, is_live
from .ties import ALL

Batches = Iterable[pa.RecordBatch]
MakeDirections = Callable[[Means], Sequence[Direction]]


class Join:
    """A question on two sources."""

    def __init__(
        self, question: Question, left: Source, right: Source, options: Options, *,
        row_numbers: bool = False, report: Report | None = None,
    ) -> None:  # fmt: skip
        self.question = question
        self.options = options
        self.report = report or options.report or Report()
        if self.report.left.rows_in or self.report.right.rows_in:
            raise InputError("report=: it has counted another join already; give a new Report()")
        check_trace(options.trace, (left, right))
        self.sides = {
            name: Side.of(question, name, row_numbers=row_numbers) for name in ("left", "right")
        }
        self.output = Output(question, self.sides)
        self.is_ordered = False
        """Whether output rows have their left rows' numbers, to be put in order by them."""
        self.ties = ALL
        """Which of several best matches stay."""
        self.is_divided = False
        """Whether rows have copies, and only some of what is found belongs to a part."""
        self.batch_bytes = batch_share(options)
        """What a batch of output may take."""
        self._sources = {"left": left, "right": right}
        self._driver: Driver | None = None
        self._is_live = is_live((left, right))

    def direction(
        self,
        means: Means,
        probe: str,
        mode: str,
        finish: Callable[[Matched], Any],
        *,
        wants_unmatched: bool = False,
        with_keys: bool = False,
        sides: dict[str, Side] | None = None,
        after: Direction | None = None,
    ) -> Direction:
        """Judge the rows of `probe`; ``finish`` makes results of what they found.

        `after` is the direction whose judged rows are this one's base.
        """
        judge = Judge(self.question, sides or self.sides, probe, mode, self.ties)
        seen = self.question if probe == "left" else self.question.swapped()
        finality = Finality(seen.order, is_float=bool(pa.types.is_floating(seen.order.type)))
        return Direction(
            judge, finish, finality, means, wants_unmatched=wants_unmatched, with_keys=with_keys,
            after=after,
        )  # fmt: skip

    def run(self, make: MakeDirections, *, keeps_rejected: tuple[str, ...] = ()) -> Generator[Any]:
        """What the directions hand over; rejected rows of the named sides are unmatched rows."""
        for name, source in self._sources.items():
            if isinstance(source, Stream):
                check_streamable(self.question.order, name)
        reports = [self.report.left, self.report.right]
        joining = self.joining(make, keeps_rejected, is_live=self._is_live)
        sources = list(self._sources.values())
        self._driver = Driver(joining, sources, reports, self.options, self.report)
        return self._driver.run()

    def announced(self, error: BudgetError) -> BudgetError:
        """The error of whoever takes the results, with a budget that is enough for all rows."""
        return error if self._driver is None else self._driver.announced(error)

    def joining(
        self, make: MakeDirections, keeps_rejected: tuple[str, ...], *, is_live: bool
    ) -> TwoSided:
        """The join as the driver knows it."""
        return TwoSided(self, make, keeps_rejected, is_live=is_live)

    # ── what judged rows become ──────────────────────────────────────────────────────────────

    def pairs(
        self, probe: str, *, unmatched: bool
    ) -> Callable[[Matched], Iterable[pa.RecordBatch]]:
        """Every pair as an output row, and the unmatched rows where they are wanted."""

        def finish(matched: Matched) -> Iterable[pa.RecordBatch]:
            found = matched.candidates
            batches: Iterable[pa.RecordBatch] = ()
            if len(found):
                batches = self.portions(probe, matched, found.probe, found.base)
            if unmatched and len(matched.unmatched):
                alone = self.alone(probe, matched.probe_rows, matched.unmatched)
                batches = chain(batches, alone)
            return batches

        return finish

    def portions(
        self, probe: str, matched: Matched, probe_at: Int64s, base_at: Int64s
    ) -> Iterable[pa.RecordBatch]:
        """Output rows of pairs, in batches of `batch_bytes`."""
        if self.is_divided:
            probe_at, base_at = self._owned(probe, matched, probe_at, base_at)
        return batches_of(
            self.cuts(matched, probe_at, base_at),
            lambda a, b: self.paired(probe, matched, probe_at[a:b], base_at[a:b]),
        )

    def _owned(
        self, probe: str, matched: Matched, probe_at: Int64s, base_at: Int64s
    ) -> tuple[Int64s, Int64s]:
        """The pairs that belong to this part: those of its own left rows."""
        is_left = probe == "left"
        rows, at = (matched.probe_rows, probe_at) if is_left else (matched.base_rows, base_at)
        own = own_rows(rows)[at]
        return probe_at[own], base_at[own]

    def cuts(self, matched: Matched, probe_at: Int64s, base_at: Int64s) -> list[tuple[int, int]]:
        """Pairs in stretches of `batch_bytes`, however wide the rows with many partners are."""
        widths = bytes_at(matched.probe_rows, probe_at) + bytes_at(matched.base_rows, base_at)
        return cuts(widths, len(probe_at), self.batch_bytes, BATCH_ROWS)

    def paired(
        self, probe: str, matched: Matched, probe_at: Int64s, base_at: Int64s
    ) -> pa.RecordBatch:
        """Output rows of some pairs."""
        left, left_at, right, right_at = (
            (matched.probe_rows, probe_at, matched.base_rows, base_at)
            if probe == "left"
            else (matched.base_rows, base_at, matched.probe_rows, probe_at)
        )
        batch = self.output.pairs(left, left_at, right, right_at)
        return self.with_numbers(batch, left, left_at)

    def alone(self, side: str, rows: pa.RecordBatch, at: Int64s) -> Batches:
        """Rows of one side without a partner."""
        if self.is_divided:
            at = at[own_rows(rows)[at]]
        return batches_of(
            cuts(bytes_at(rows, at), len(at), self.batch_bytes, BATCH_ROWS),
            lambda a, b: self._without_partner(side, rows.take(arrow(at[a:b]))),
        )

    def rejected(self, side: str, rows: pa.RecordBatch) -> Batches:
        """Rows of one side that can match nothing, as they came."""
        return [self._without_partner(side, rows)]

    def _without_partner(self, side: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        batch = self.output.unmatched(side, rows)
        return self.with_numbers(batch, rows if side == "left" else None, None)

    # ── left rows' numbers, where results are put in order ───────────────────────────────────

    @property
    def numbered(self) -> pa.Schema:
        """The output's columns, and the left row's number where that is needed."""
        if not self.is_ordered:
            return self.output.schema
        return self.output.schema.append(pa.field(ROW, pa.int64()))

    def with_numbers(
        self, batch: pa.RecordBatch, left: pa.RecordBatch | None, at: Int64s | slice | None
    ) -> pa.RecordBatch:
        """Output rows with the numbers of their left rows; those without one come last."""
        if not self.is_ordered:
            return batch
        if left is None:
            numbers = arrow(np.full(batch.num_rows, INT64_MAX))
        elif at is None:
            numbers = left.column(ROW)
        else:
            numbers = taken(left.select([ROW]), at).column(0)
        return pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=self.numbered)

    def result(
        self, results: Generator[Batches], explain: Callable[[], str],
        schema: pa.Schema | None = None,
    ) -> Result:  # fmt: skip
        """What the caller gets."""
        schema = schema or self.output.schema
        counted = handed_out(flattened(results), self.report, self.options)
        return Result(schema, counted, self.report, explain)

    @property
    def sources(self) -> tuple[Source, Source]:
        """Left and right."""
        return self._sources["left"], self._sources["right"]


def batch_share(options: Options) -> int:
    """What a batch may take where several are under way: a quarter of the output's share."""
    return options.budget_bytes // OUTPUT_SHARE // 4


def batches_of(
    cuts: list[tuple[int, int]], made: Callable[[int, int], pa.RecordBatch]
) -> Iterable[pa.RecordBatch]:
    """The batches of all stretches.  The first is made at once, by whoever judged; the others,
    which there are only where rows are wide or have very many partners, when they are asked for."""
    if not cuts:
        return ()
    return chain([made(*cuts[0])], (made(*cut) for cut in cuts[1:]))


@dataclass
class TwoSided:
    """A two-sided join as the driver knows it."""

    join: Join
    make: MakeDirections
    keeps_rejected: tuple[str, ...]
    is_live: bool

    def __post_init__(self) -> None:
        options = self.join.options
        judges = [d.judge for d in self.make(self._means)]
        need = OrderedNeed if self.join.is_ordered else WalkNeed
        self.need: Need = need(judges, options)
        self.sides: Sequence[Side] = [self.join.sides[name] for name in SIDES]
        self.tolerances: Sequence[Counts | None] = [self.join.question.order.limits] * 2
        live = "live: judged with every batch while the windows fit memory"
        self.decision = live if self.is_live else ""

    @property
    def _means(self) -> Means:
        return Means.of(self.join.options, is_live=self.is_live)

    @property
    def is_faster_in_parts(self) -> bool:
        """Rows of one attribute are sorted and met in one pass through the memory; for others the
        memory is looked at here and there."""
        question = self.join.question
        return len(question.attributes) + len(question.keys) > 1

    needs_memory = False
    beyond = "walk"

    def in_memory(self) -> Directions:
        """All directions, without rows."""
        join = self.join
        made = self.make(self._means)
        return Directions(made, join.options, join.report, is_live=self.is_live)

    @property
    def cutting(self) -> Cutting:
        """How the join may be divided."""
        return cutting_of(self.join.question, self.join.sides)

    def in_part(self, output_bytes: int) -> Directions:
        """All directions for one part, without rows."""
        join = self.join
        join.is_divided = join.question.how == "full"
        join.batch_bytes = output_bytes // 2
        made = self.make(Means(1, output_bytes, is_live=False, keeps_rows=True))
        return Directions(made, join.options, join.report, is_live=False)

    def on_pages(
        self, engine: Directions, store: Store, arrivals: Sequence[str], why: str
    ) -> Moved:
        """The same directions, their windows on pages."""
        self.join.batch_bytes = batch_share(self.join.options)
        return engine.moved_to(store, arrivals, why)

    def rejected(self, feed: int, rows: pa.RecordBatch) -> Iterator[Batches]:
        """Unmatched rows, where they are wanted."""
        if SIDES[feed] in self.keeps_rejected:
            yield self.join.rejected(SIDES[feed], rows)


def flattened(results: Generator[Batches]) -> Generator[pa.RecordBatch]:
    """The batches of all results, one by one."""
    with closing(results):
        for batches in results:
            yield from batches


def handed_out(
    batches: Generator[pa.RecordBatch], report: Report, options: Options
) -> Iterator[pa.RecordBatch]:
    """All batches that have rows, counted."""
    with closing(batches):  # also when somebody keeps the exception and its frames
        for batch in batches:
            report.rows_out += batch.num_rows
            check_rows_out(report, options)
            if batch.num_rows:
                yield batch


def check_rows_out(report: Report, options: Options) -> None:
    """Raise `InputError` when more rows have come out than `max_output_rows` allows."""
    limit = options.max_output_rows
    if limit is not None and report.rows_out > limit:
        sides: Mapping[str, SideReport] = report.streams
        sides = sides or {"left": report.left, "right": report.right}
        read = " and ".join(f"{side.rows_in} {name}" for name, side in sides.items())
        raise InputError(
            f"the join has more than max_output_rows={limit} rows after {read} rows; narrow the "
            "tolerances, or raise the limit"
        )
