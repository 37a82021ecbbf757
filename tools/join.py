"""`matwin join`: two files in, the pairs of a bestmatch join or an ε-join out.

    LEFT, RIGHT ──words.py──▶ question ──join──▶ batches ──sinks.py──▶ file or standard output
                                          │
                                       report ──▶ progress while it runs, a summary when it ends

Rows go to the output and nothing else does; the progress and the summary go to standard error.
With ``--json`` the summary is JSON, on standard output if the rows go to a file.  ``--verify`` asks
DuckDB the same question afterwards; exit code 1 says that the answers differ.  ``--engine spark``
asks the same of Spark (`spark_join.py`).
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matwin
from matwin.outputs import check_outputs
from matwin.report import Report, SideReport
from matwin.sinks import format_of, write
from matwin.sources import Source
from matwin.storage.units import format_size
from matwin.text import escaped

from .progress import Progress
from .spark_words import check_engine, spark_module
from .verify import Verification, verify
from .verify_sql import sql_of
from .words import Asked, outputs_of

ROWS_SHOWN = 20
EXACT_FILES = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
"""Files that keep every value as it is, so that they can be verified instead of a second run."""


def run(args: argparse.Namespace) -> int:
    """Join, write and sum up; 1 if DuckDB disagrees."""
    if check_engine(args):
        code: int = spark_module("matwin.tools.spark_join").run_join(args)
        return code
    asked = Asked.of(args)
    if args.sql:
        print(said("sql", sql_of(asked.question, args.left, args.right), args))
        return 0
    if args.explain:
        print(said("explanation", explained(asked), args))
        return 0
    check_outputs(outputs_of(args), (args.left, args.right), overwrite=args.overwrite)
    started = time.monotonic()
    report = _joined(asked, args)
    seconds = time.monotonic() - started
    given = asked.arguments | asked.options
    sides = asked.left, asked.right
    verdict = verified(sides, asked.join, given, args) if args.verify else None
    tell_summary(args, summary_of(report, seconds, verdict), verdict)
    return 0 if verdict is None or verdict.is_equal else 1


def said(name: str, text: str, args: argparse.Namespace) -> str:
    """A text that is the answer, as JSON where that is wanted."""
    return json.dumps({name: text}) if args.json else text


def explained(asked: Asked) -> str:
    """What the join would do, and why."""
    text: str = matwin.explain_join(
        asked.left, asked.right, best=asked.question.best, **asked.arguments, **asked.options
    )
    return text


def _joined(asked: Asked, args: argparse.Namespace) -> Report:
    report = Report()
    with Progress(is_wanted=is_bar_wanted(args)) as progress:
        reader = asked.run(report=report, progress=progress.callback)
        write(
            progress.until_read(reader), args.output, format=args.format, max_rows_shown=ROWS_SHOWN,
            overwrite=args.overwrite,
        )  # fmt: skip
    return report


def is_bar_wanted(args: argparse.Namespace) -> bool:
    """Whether there is room for a bar: rows that stream over the same terminal leave none."""
    streams = not _has_file(args) and sys.stdout.isatty()
    return not args.quiet and not (streams and format_of(args.output, args.format) != "table")


def verified(
    sides: tuple[Source, Source], join: Callable[..., matwin.Result], given: dict[str, Any],
    args: argparse.Namespace,
) -> Verification:  # fmt: skip
    """DuckDB's verdict on the written file, or on a second run where a file would lose types."""
    is_exact = _has_file(args) and Path(args.output).suffix.lower() in EXACT_FILES
    is_exact = is_exact and format_of(args.output, args.format) in ("parquet", "ipc")
    # The trace belongs to the first run.
    untraced = {name: value for name, value in given.items() if name != "trace"}
    return verify(*sides, join=join, result=args.output if is_exact else None, **untraced)


def _has_file(args: argparse.Namespace) -> bool:
    return args.output not in (None, "-")


# ── the summary ──────────────────────────────────────────────────────────────────────────────


def summary_of(report: Report, seconds: float, verdict: Verification | None) -> dict[str, Any]:
    """Everything that `--json` prints."""
    return {
        **report.as_dict(),
        "seconds": round(seconds, 3),
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "verification": verdict.as_dict() if verdict else None,
    }


def tell_summary(
    args: argparse.Namespace, summary: dict[str, Any], verdict: Verification | None
) -> None:
    """Print the summary where the rows don't go."""
    if args.json:
        stream = sys.stdout if _has_file(args) else sys.stderr
        print(json.dumps(summary, indent=2), file=stream)
    elif not args.quiet:
        print(shown(summary), file=sys.stderr)
    if verdict is not None and not args.json:
        print(verdict, file=sys.stderr)


def shown(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    lines = [_side(side, SideReport(**summary[side])) for side in ("left", "right")]
    lines.append(f"out    {summary['rows_out']:,} rows in {summary['seconds']:.3g} s")
    lines.append(f"pages  {summary['pages_read']:,} read, {summary['pages_written']:,} written")
    counted, budget = format_size(summary["peak_bytes"]), format_size(summary["budget_bytes"])
    resident = format_size(summary["peak_resident_bytes"])
    lines.append(f"memory {counted} counted at most, budget {budget}; the process {resident}")
    lines += [f"chose  {escaped(decision)}" for decision in summary["decisions"]]
    return "\n".join(lines)


def _side(name: str, side: SideReport) -> str:
    text = f"{name:<6} {side.rows_in:,} rows in, {side.used:,} used"
    if side.late:
        text += f", {side.late:,} late"
    if side.rejected:
        text += f", {side.rejected:,} rejected (null, NaN or infinite)"
    return text
