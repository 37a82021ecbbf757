"""What every join shares: sources and options in, directions to run, output batches out.

    Question, Options ──▶ Join ──▶ feeds, sides, directions ──loop──▶ batches ──▶ reader

A join says which directions it wants and what each makes of the rows it has judged; everything else
is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError

from .feed import Feed
from .finality import Finality
from .judge import Judge
from .loop import OUTPUT_SHARE, Direction, Loop
from .matched import Matched
from .options import Options
from .output import BATCH_ROWS, Output
from .question import Question
from .report import Report
from .side import Side
from .sources import Source

Batches = list[pa.RecordBatch]


class Join:
    """A question on two sources."""

    def __init__(
        self, question: Question, left: Source, right: Source, options: Options, *,
        row_numbers: bool = False, report: Report | None = None,
    ) -> None:  # fmt: skip
        self.question = question
        self.options = options
        self.report = report or options.report or Report()
        self.sides = {
            name: Side.of(question, name, row_numbers=row_numbers) for name in ("left", "right")
        }
        self.output = Output(question, self.sides)
        self._sources = {"left": left, "right": right}

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
            threads=self.options.workers, after=after,
            output_bytes=self.options.budget_bytes // OUTPUT_SHARE,
        )  # fmt: skip

    def run(
        self, directions: list[Direction], *, keeps_rejected: tuple[str, ...] = ()
    ) -> Iterator[Any]:
        """What the directions hand over; rejected rows of the named sides are unmatched rows."""

        def rejected(side: str, rows: pa.RecordBatch) -> Iterator[Batches]:
            if side in keeps_rejected:
                yield [self.output.unmatched(side, rows)]

        feeds = {
            name: Feed(source, self.sides[name], self.question.order, getattr(self.report, name))
            for name, source in self._sources.items()
        }
        return Loop(feeds, directions, self.options, self.report).run(rejected)

    # ── what judged rows become ──────────────────────────────────────────────────────────────

    def pairs(self, probe: str, *, unmatched: bool) -> Callable[[Matched], Batches]:
        """Every pair as an output row, and the unmatched rows where they are wanted."""

        def finish(matched: Matched) -> Batches:
            found = matched.candidates
            batches = [
                self.paired(
                    probe, matched, found.probe[at : at + BATCH_ROWS], found.base[at:][:BATCH_ROWS]
                )
                for at in range(0, len(found), BATCH_ROWS)
            ]
            if unmatched and len(matched.unmatched):
                batches += self.alone(probe, matched.probe_rows, matched.unmatched)
            return batches

        return finish

    def paired(
        self, probe: str, matched: Matched, probe_at: Int64s, base_at: Int64s
    ) -> pa.RecordBatch:
        """Output rows of some pairs."""
        if probe == "left":
            return self.output.pairs(matched.probe_rows, probe_at, matched.base_rows, base_at)
        return self.output.pairs(matched.base_rows, base_at, matched.probe_rows, probe_at)

    def alone(self, side: str, rows: pa.RecordBatch, at: Int64s) -> Batches:
        """Rows of one side without a partner."""
        return [
            self.output.unmatched(side, rows.take(pa.array(at[start : start + BATCH_ROWS])))
            for start in range(0, len(at), BATCH_ROWS)
        ]

    def reader(self, results: Iterator[Batches], schema: pa.Schema | None = None) -> Any:
        """The results as a reader."""
        schema = schema or self.output.schema
        return pa.RecordBatchReader.from_batches(schema, self._counted(results))

    def _counted(self, results: Iterator[Batches]) -> Iterator[pa.RecordBatch]:
        limit = self.options.max_output_rows
        for batches in results:
            for batch in batches:
                self.report.rows_out += batch.num_rows
                if limit is not None and self.report.rows_out > limit:
                    raise InputError(
                        f"the join has more than max_output_rows={limit} rows after "
                        f"{self.report.left.rows_in} left and {self.report.right.rows_in} right "
                        "rows; narrow the tolerances, or raise the limit"
                    )
                if batch.num_rows:
                    yield batch
