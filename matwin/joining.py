"""What every join shares: sources and options in, directions to run, output batches out.

    Question, Options ──▶ Join ──▶ feeds, sides, directions ──loop──▶ batches ──▶ reader

A join says which directions it wants and what each makes of the rows it has judged; everything else
is here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError

from .feed import Feed
from .finality import Finality, check_streamable
from .judge import Judge
from .loop import OUTPUT_SHARE, Direction, Loop
from .matched import Matched
from .options import Options
from .output import BATCH_ROWS, Output
from .question import Question
from .report import Report, SideReport
from .shares import ReadShare
from .side import Side
from .sizes import bytes_at, cuts
from .sources import Source
from .streams import Stream

Batches = Iterable[pa.RecordBatch]


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
        self.sides = {
            name: Side.of(question, name, row_numbers=row_numbers) for name in ("left", "right")
        }
        self.output = Output(question, self.sides)
        share = ReadShare.of(options.budget_bytes, 2, options.scratch)
        self._sources = {"left": left.within(share), "right": right.within(share)}
        self._is_live = any(isinstance(s, Stream) and s.is_live for s in (left, right))

    def direction(
        self,
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
        judge = Judge(self.question, sides or self.sides, probe, mode)
        seen = self.question if probe == "left" else self.question.swapped()
        finality = Finality(seen.order, is_float=bool(pa.types.is_floating(seen.order.type)))
        return Direction(
            judge, finish, finality, wants_unmatched=wants_unmatched, with_keys=with_keys,
            threads=self.options.workers, after=after, is_live=self._is_live,
            output_bytes=self.options.budget_bytes // OUTPUT_SHARE,
        )  # fmt: skip

    def run(
        self, directions: list[Direction], *, keeps_rejected: tuple[str, ...] = ()
    ) -> Generator[Any]:
        """What the directions hand over; rejected rows of the named sides are unmatched rows."""

        def rejected(side: str, rows: pa.RecordBatch) -> Iterator[Batches]:
            if side in keeps_rejected:
                yield [self.output.unmatched(side, rows)]

        order = self.question.order
        feeds = {}
        for name, source in self._sources.items():
            if isinstance(source, Stream):
                check_streamable(order, name)
            feeds[name] = Feed(source, self.sides[name], getattr(self.report, name), order.limits)
        return Loop(feeds, directions, self.options, self.report).run(rejected)

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
        """Output rows of pairs, in batches that take a quarter of the output's share."""
        return _batches(
            self.cuts(matched, probe_at, base_at),
            lambda a, b: self.paired(probe, matched, probe_at[a:b], base_at[a:b]),
        )

    def cuts(self, matched: Matched, probe_at: Int64s, base_at: Int64s) -> list[tuple[int, int]]:
        """Pairs in stretches that take a quarter of the output's share, however wide the rows are
        that have many partners."""
        widths = bytes_at(matched.probe_rows, probe_at) + bytes_at(matched.base_rows, base_at)
        return cuts(widths, len(probe_at), self._batch_bytes, BATCH_ROWS)

    @property
    def _batch_bytes(self) -> int:
        return self.options.budget_bytes // OUTPUT_SHARE // 4

    def paired(
        self, probe: str, matched: Matched, probe_at: Int64s, base_at: Int64s
    ) -> pa.RecordBatch:
        """Output rows of some pairs."""
        if probe == "left":
            return self.output.pairs(matched.probe_rows, probe_at, matched.base_rows, base_at)
        return self.output.pairs(matched.base_rows, base_at, matched.probe_rows, probe_at)

    def alone(self, side: str, rows: pa.RecordBatch, at: Int64s) -> Batches:
        """Rows of one side without a partner."""
        return _batches(
            cuts(bytes_at(rows, at), len(at), self._batch_bytes, BATCH_ROWS),
            lambda a, b: self.output.unmatched(side, rows.take(pa.array(at[a:b]))),
        )

    def reader(
        self, results: Generator[Batches], schema: pa.Schema | None = None
    ) -> pa.RecordBatchReader:
        """The results as a reader."""
        schema = schema or self.output.schema
        return pa.RecordBatchReader.from_batches(schema, self._counted(results))

    def _counted(self, results: Generator[Batches]) -> Iterator[pa.RecordBatch]:
        with closing(results):  # also when somebody keeps the exception and its frames
            for batches in results:
                for batch in batches:
                    self.report.rows_out += batch.num_rows
                    check_rows_out(self.report, self.options)
                    if batch.num_rows:
                        yield batch


def _batches(
    cuts: list[tuple[int, int]], made: Callable[[int, int], pa.RecordBatch]
) -> Iterable[pa.RecordBatch]:
    """The batches of all stretches.  The first is made at once, by whoever judged; the others,
    which there are only where rows are wide or have very many partners, when they are asked for."""
    if not cuts:
        return ()
    return chain([made(*cuts[0])], (made(*cut) for cut in cuts[1:]))


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
