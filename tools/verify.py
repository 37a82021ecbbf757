"""The same question asked of DuckDB, and both answers compared as bags of rows.

    join ────────▶ rows ─┐
                         ├─ compare.py ─▶ equal, or what is missing and what is too much
    answer.py ───▶ rows ─┘

Both tables, the eligible pairs and both answers are held in memory: no budget bounds a
verification.  DuckDB takes a quarter of what is free, and puts down what does not fit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import matwin
from matwin.inner import CHANGE
from matwin.outputs import check_outputs
from matwin.sources import Source, source_of
from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .answer import Answer, ordered_answer
from .answers import tell_answer
from .compare import Difference, compare
from .referee import Rows, rows_of
from .timed_answer import timed_answer
from .verify_question import Wanted, wanted_of
from .verify_sql import sql_of
from .words import Asked, outputs_of

_FILES_NAMED = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict: how many rows were found, and in what they differ from DuckDB's."""

    rows: int
    rows_expected: int
    difference: Difference
    read_by_matwin: tuple[str, ...] = ()
    """Files that DuckDB has not read itself: a row that our reader loses is missed by neither."""

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

    @property
    def misplaced(self) -> int:
        """Right rows that stand elsewhere than ``ordered=True`` says."""
        return self.difference.misplaced

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        return {
            "is_equal": self.is_equal, "rows": self.rows, "rows_expected": self.rows_expected,
            "missing": self.missing, "extra": self.extra, "misplaced": self.misplaced,
            "columns": self.difference.columns, "read_by_matwin": list(self.read_by_matwin),
        }  # fmt: skip

    def __str__(self) -> str:
        if self.is_equal:
            return f"equal: DuckDB finds the same rows, {self.rows:,} in all{self._reading}"
        head = f"different: {self.rows:,} rows, and {self.rows_expected:,} by DuckDB"
        return f"{head}{self._reading}\n\n{self.difference}"

    @property
    def _reading(self) -> str:
        """What DuckDB has not read, in words."""
        if not (files := self.read_by_matwin):
            return ""
        more = len(files) - _FILES_NAMED
        names = ", ".join(files[:_FILES_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        were = "was" if len(files) == 1 else "were"
        return f"; {names} {were} read by MatWin, and not by DuckDB"


def verify(
    left: object, right: object, *, join: Callable[..., matwin.Result] | None = None,
    best: bool = True, result: object = None, **arguments: Any,
) -> Verification:  # fmt: skip
    """Run a join, ask DuckDB the same, and compare.

    * `join`: which one: `matwin.bestmatch_join` (the default), `matwin.epsilon_join` (also said by
      ``best=False``), `matwin.asof_join` or `matwin.fixed_window_join`.
    * `result`: an answer to check instead of running the join: a table, a reader or a file.
    * all other arguments are the join's own, and each of them counts: the rows, which of ties is
      kept and, with ``ordered=True``, the order of rows.

    Everything is read into memory, and DuckDB takes a quarter of what is free besides, whatever
    ``memory=`` says.

    >>> import pyarrow as pa
    >>> temp = pa.table({"t": [1, 5], "c": [20.5, 21.0]})
    >>> hum = pa.table({"t": [2, 9], "h": [40, 41]})
    >>> answer = pa.table({"t_left": [1], "c": [20.5], "t_right": [2], "h": [40]})
    >>> print(verify(temp, hum, on={"t": 2}, result=answer))
    equal: DuckDB finds the same rows, 1 in all
    """
    if join is None:
        join = matwin.bestmatch_join if best else matwin.epsilon_join
    ours, theirs = verifiable(left, "left"), verifiable(right, "right")
    wanted = wanted_of(join, ours.schema, theirs.schema, arguments)
    read = [rows_of(ours), rows_of(theirs)]
    rows = read[0].table, read[1].table
    expected = _expected(*rows, wanted)
    if result is not None:
        read.append(rows_of(source_of(result, "result")))
        return told(_judged(read[2].table, expected, wanted, cast=True), read)
    # A reader has been read by now; what can be read again is joined as it was given.
    given = (left if ours.is_repeatable else rows[0], right if theirs.is_repeatable else rows[1])
    return told(_judged(join(*given, **arguments).read_all(), expected, wanted), read)


def told(verdict: Verification, read: Iterable[Rows]) -> Verification:
    """The verdict with the files that DuckDB has not read."""
    files = dict.fromkeys(path for rows in read for path in rows.own)
    return replace(verdict, read_by_matwin=tuple(files))


def verifiable(data: object, name: str) -> Source:
    """A source whose rows are the same whenever they come."""
    source = source_of(data, name)
    if isinstance(source, Stream) and source.late == "drop":
        raise InputError(
            f"stream {name!r} drops rows that come late, and DuckDB can't know which; verify it "
            'with late="error"'
        )
    return source


def _expected(left: pa.Table, right: pa.Table, wanted: Wanted) -> Answer:
    if wanted.timed is not None:
        return timed_answer(left, right, wanted.question, wanted.timed)
    return ordered_answer(left, right, wanted.question, wanted.kept)


def _judged(
    found: pa.Table, expected: Answer, wanted: Wanted, *, cast: bool = False
) -> Verification:
    """The verdict on the answer of a join of two sides."""
    places = expected.places if wanted.is_ordered else None
    if wanted.emits_updates:
        return _of_updates(found, expected.rows, cast=cast)
    return compared(found, expected.rows, cast=cast, places=places)


def _of_updates(found: pa.Table, expected: pa.Table, *, cast: bool) -> Verification:
    """The verdict on what is left when all that was withdrawn is gone."""
    if found.column_names[-1:] != [CHANGE]:
        columns = f"the last one is {found.column_names[-1:]} and should be {CHANGE!r}"
        return Verification(found.num_rows, expected.num_rows, Difference(columns=columns))
    changes = found[CHANGE].to_pylist()
    weights = np.array([{"added": 1, "withdrawn": -1}.get(c, 0) for c in changes], np.int64)
    difference = compare(found.drop_columns([CHANGE]), expected, cast=cast, weights=weights)
    return Verification(int(weights.sum()), expected.num_rows, difference)


def compared(
    found: pa.Table, expected: pa.Table, *, cast: bool = False, places: Int64s | None = None
) -> Verification:
    """The verdict on an answer."""
    difference = compare(found, expected, cast=cast, places=places)
    return Verification(found.num_rows, expected.num_rows, difference)


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
        asked.left, asked.right, join=asked.join, result=args.result,
        **asked.arguments, **asked.options,
    )  # fmt: skip
    tell_answer(args, verdict.as_dict, lambda: str(verdict))
    return 0 if verdict.is_equal else 1
