"""The same question asked of DuckDB, and both answers compared as bags of rows.

    join ────────▶ rows ─┐
                         ├─ compare.py ─▶ equal, or what is missing and what is too much
    answer.py ───▶ rows ─┘

Both tables, the eligible pairs and both answers are held in memory, and DuckDB's memory is its
own: no budget bounds a verification.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import matwin
from matwin.outputs import check_outputs
from matwin.sources import Source, source_of

from .answer import answer
from .answers import tell_answer
from .compare import Difference, compare
from .verify_sql import sql_of
from .words import Asked, outputs_of, question_of


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict: how many rows were found, and in what they differ from DuckDB's."""

    rows: int
    rows_expected: int
    difference: Difference

    @property
    def is_equal(self) -> bool:
        """Whether both bags are the same."""
        return not self.difference

    @property
    def missing(self) -> int:
        """Rows that should be there."""
        return self.difference.missing

    @property
    def extra(self) -> int:
        """Rows that should not."""
        return self.difference.extra

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        return {
            "is_equal": self.is_equal, "rows": self.rows, "rows_expected": self.rows_expected,
            "missing": self.missing, "extra": self.extra, "columns": self.difference.columns,
        }  # fmt: skip

    def __str__(self) -> str:
        if self.is_equal:
            return f"equal: DuckDB finds the same rows, {self.rows:,} in all"
        head = f"different: {self.rows:,} rows, and {self.rows_expected:,} by DuckDB"
        return f"{head}\n\n{self.difference}"


def verify(
    left: object, right: object, *, best: bool = True, result: object = None, **arguments: Any
) -> Verification:
    """Run a join, ask DuckDB the same, and compare.

    The arguments are those of `bestmatch_join`, or of `epsilon_join` with ``best=False``.  `result`
    is an answer to check instead of running the join: a table, a reader or a file.

    Everything is read into memory, and DuckDB's own memory is not bounded by ``memory=``.

    >>> import pyarrow as pa
    >>> temp = pa.table({"t": [1, 5], "c": [20.5, 21.0]})
    >>> hum = pa.table({"t": [2, 9], "h": [40, 41]})
    >>> answer = pa.table({"t_left": [1], "c": [20.5], "t_right": [2], "h": [40]})
    >>> print(verify(temp, hum, on={"t": 2}, result=answer))
    equal: DuckDB finds the same rows, 1 in all
    """
    ours, theirs = source_of(left, "left"), source_of(right, "right")
    asked = question_of(ours.schema, theirs.schema, best=best, **arguments)
    rows = table_of(ours), table_of(theirs)
    if result is not None:
        return compared(table_of(source_of(result, "result")), answer(*rows, asked), cast=True)
    # A reader has been read by now; what can be read again is joined as it was given.
    given = (left if ours.is_repeatable else rows[0], right if theirs.is_repeatable else rows[1])
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    return compared(join(*given, **arguments).read_all(), answer(*rows, asked))


def table_of(source: Source) -> pa.Table:
    return pa.Table.from_batches(source.batches(), source.schema)


def compared(found: pa.Table, expected: pa.Table, *, cast: bool = False) -> Verification:
    """The verdict on an answer."""
    return Verification(found.num_rows, expected.num_rows, compare(found, expected, cast=cast))


# ── the command ──────────────────────────────────────────────────────────────────────────────


def run(args: argparse.Namespace) -> int:
    """Print the verdict; 1 if the answers differ."""
    asked = Asked.of(args)
    if args.sql:
        sql = sql_of(asked.question, args.left, args.right)
        print(json.dumps({"sql": sql}) if args.json else sql)
        return 0
    inputs = filter(None, (args.left, args.right, args.result))
    check_outputs(outputs_of(args), inputs, overwrite=args.overwrite)
    verdict = verify(
        asked.left, asked.right, best=asked.question.best, result=args.result,
        **asked.arguments, **asked.options,
    )  # fmt: skip
    tell_answer(args, verdict.as_dict, lambda: str(verdict))
    return 0 if verdict.is_equal else 1
