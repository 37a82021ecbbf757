"""`matwin window-join`: N files or growing streams in, the tuples within their windows out.

    a=A.parquet b=B.parquet ──window_words.py──▶ arguments ──window_join──▶ batches ──▶ file, stdout
    a=- b=grows.jsonl ──────────follow.py──────▶ live streams ──┘              │
                                                                            report ──▶ summary

Rows go to the output and nothing else does; the progress and the summary go to standard error.
With ``--json`` the summary is JSON, on standard output if the rows go to a file.  ``--verify`` asks
DuckDB the same question afterwards; exit code 1 says that the answers differ.  With ``--follow``
rows are written as they come, until the inputs end or Ctrl-C, which is exit code 130.
``--engine spark`` asks the same of Spark (`spark_join.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matwin
from matwin.growing import STDIN
from matwin.jsonl import SUFFIXES
from matwin.outputs import check_outputs
from matwin.report import Report, SideReport
from matwin.sinks import format_of, write
from matwin.sources import Source
from matwin.storage.errors import InputError
from matwin.storage.units import format_size
from matwin.text import escaped

from .follow import Following
from .join import EXACT_FILES, ROWS_SHOWN, is_bar_wanted, said, summary_of
from .live import live_format, write_live
from .progress import Progress
from .spark_words import check_engine, spark_module
from .verify import Verification
from .verify_window import verify_window_join
from .window_question import PlainQuestion
from .window_sources import is_json, sources_of
from .window_sql import question_sql
from .window_words import question_arguments, streams_of
from .words import OPTIONS, outputs_of, usual_format

EXIT_INTERRUPTED = 130
_MORE_OPTIONS = (*OPTIONS, "algorithm", "bounds", "max_delay")


def run(args: argparse.Namespace) -> int:
    """Join, write and sum up; 1 if DuckDB disagrees, 130 after Ctrl-C."""
    if check_engine(args):
        code: int = spark_module("matwin.tools.spark_join").run_window_join(args)
        return code
    files = streams_of(args.streams)
    _check_words(args, files)
    if not (args.sql or args.explain):
        check_outputs(outputs_of(args), files.values(), overwrite=args.overwrite)
    if args.follow and not args.explain:
        return _run_followed(args, files)
    asked = Asked.of(args, files, Following())
    if args.sql:
        print(said("sql", question_sql(asked.question, list(files.values())), args))
        return 0
    if args.explain:
        plan = matwin.explain_window_join(asked.sources, **asked.arguments, **asked.options)
        print(said("explanation", plan, args))
        return 0
    started = time.monotonic()
    report = Report()
    with Progress(is_wanted=is_bar_wanted(args)) as progress:
        reader = asked.run(report=report, progress=_folding(progress))
        write(
            progress.until_read(reader), args.output, format=args.format, max_rows_shown=ROWS_SHOWN,
            overwrite=args.overwrite,
        )  # fmt: skip
    seconds = time.monotonic() - started
    verdict = _verified(asked, args) if args.verify else None
    _tell(args, _summary(report, seconds, verdict), verdict)
    return 0 if verdict is None or verdict.is_equal else 1


def _run_followed(args: argparse.Namespace, files: dict[str, str]) -> int:
    kind = live_format(args.output, args.format)
    started = time.monotonic()
    report = Report()
    is_watched = not _has_file(args) and sys.stdout.isatty()
    with Following() as following:
        try:
            asked = Asked.of(args, files, following)
            with Progress(is_wanted=not args.quiet and not is_watched) as progress:
                reader = asked.run(report=report, progress=_folding(progress))
                write_live(
                    reader, args.output, kind, following.signals.held, overwrite=args.overwrite
                )
        except KeyboardInterrupt:
            return following.signals.code or EXIT_INTERRUPTED
    _tell(args, _summary(report, time.monotonic() - started, None), None)
    return following.signals.code


def _check_words(args: argparse.Namespace, files: dict[str, str]) -> None:
    """Refuse words that don't go together."""
    usual = usual_format(args)
    growing = [name for name, path in files.items() if is_json(path, usual)]
    piped = [name for name, path in files.items() if path == STDIN]
    for word in ("stream_field", "lateness", "late"):
        if getattr(args, word) and not args.follow:
            raise InputError(f"--{word.replace('_', '-')} goes with --follow")
    if args.follow and not growing:
        raise InputError(
            "--follow needs a stream that grows: a=- for standard input, or a file of JSON lines "
            f"({', '.join(SUFFIXES)}, or --input-format jsonl)"
        )
    if not args.follow and len(piped) > 1:
        raise InputError(f"{', '.join(piped)}: only one stream can be standard input")
    for word in ("verify", "sql"):
        if getattr(args, word) and args.follow:
            raise InputError(f"--{word} needs files that are complete; leave out --follow")
        if getattr(args, word) and piped:
            raise InputError(f"--{word} needs files, and {piped[0]!r} is standard input")


@dataclass(frozen=True)
class Asked:
    """A window join as it was asked for: its sources, arguments and options."""

    sources: dict[str, Source]
    arguments: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, args: argparse.Namespace, files: dict[str, str], following: Following) -> Asked:
        """What the words mean, checked against the columns of all streams."""
        sources = sources_of(args, files, following)
        schemas = {name: source.schema for name, source in sources.items()}
        given = {name: getattr(args, name) for name in _MORE_OPTIONS}
        options = {name: value for name, value in given.items() if value is not None}
        return cls(sources, question_arguments(args, schemas), options)

    @property
    def question(self) -> PlainQuestion:
        """What is asked, for SQL."""
        schemas = {name: source.schema for name, source in self.sources.items()}
        return PlainQuestion.of(schemas, **self.arguments)

    def run(self, **more: Any) -> matwin.Result:
        """Start the join."""
        return matwin.window_join(self.sources, **self.arguments, **self.options, **more)


# ── verification and the summary ─────────────────────────────────────────────────────────────


def _verified(asked: Asked, args: argparse.Namespace) -> Verification:
    """DuckDB's verdict on the written file, or on a second run where a file would lose types."""
    is_exact = _has_file(args) and Path(args.output).suffix.lower() in EXACT_FILES
    is_exact = is_exact and format_of(args.output, args.format) in ("parquet", "ipc")
    untraced = {name: value for name, value in asked.options.items() if name != "trace"}
    return verify_window_join(
        asked.sources, result=args.output if is_exact else None, **asked.arguments, **untraced
    )


def _has_file(args: argparse.Namespace) -> bool:
    return args.output not in (None, "-")


def _folding(progress: Progress) -> Callable[[Report], None] | None:
    """The progress of all streams as that of one side."""
    callback = progress.callback
    return None if callback is None else lambda report: callback(folded(report))


def folded(report: Report) -> Report:
    """The report with the rows of all streams counted on the left."""
    streams = list(report.streams.values())
    expected = [stream.rows_expected for stream in streams]
    known = [rows for rows in expected if rows is not None]
    left = SideReport(
        rows_in=sum(stream.rows_in for stream in streams),
        rows_expected=sum(known) if len(known) == len(expected) else None,
    )
    return replace(report, left=left, right=SideReport(rows_expected=0))


def _summary(report: Report, seconds: float, verdict: Verification | None) -> dict[str, Any]:
    """Everything that `--json` prints."""
    found = summary_of(report, seconds, verdict)
    return {name: value for name, value in found.items() if name not in ("left", "right")}


def _tell(args: argparse.Namespace, summary: dict[str, Any], verdict: Verification | None) -> None:
    if args.json:
        stream = sys.stdout if _has_file(args) else sys.stderr
        print(json.dumps(summary, indent=2), file=stream)
    elif not args.quiet:
        print(shown(summary, is_live=args.follow), file=sys.stderr)
    if verdict is not None and not args.json:
        print(verdict, file=sys.stderr)


def shown(summary: dict[str, Any], *, is_live: bool) -> str:
    """The summary for a person; how soon rows were answered where somebody waited."""
    names = {name: escaped(name) for name in summary["streams"]}
    width = max(6, *map(len, names.values()))
    lines = [
        f"{names[name]:<{width}} {_rows(stream, is_live=is_live)}"
        for name, stream in summary["streams"].items()
    ]
    counted, budget = format_size(summary["peak_bytes"]), format_size(summary["budget_bytes"])
    resident = format_size(summary["peak_resident_bytes"])
    totals = {
        "out": f"{summary['rows_out']:,} rows in {summary['seconds']:.3g} s",
        "pages": f"{summary['pages_read']:,} read, {summary['pages_written']:,} written",
        "memory": f"{counted} counted at most, budget {budget}; the process {resident}",
    }
    lines += [f"{name:<{width}} {text}" for name, text in totals.items()]
    lines += [f"{'chose':<{width}} {escaped(decision)}" for decision in summary["decisions"]]
    return "\n".join(lines)


def _rows(stream: dict[str, Any], *, is_live: bool) -> str:
    text = f"{stream['rows_in']:,} rows in, {stream['used']:,} used"
    if stream["late"]:
        text += f", {stream['late']:,} late"
    if stream["rejected"]:
        text += f", {stream['rejected']:,} rejected (null, NaN or infinite)"
    if is_live and stream["rows_in"]:
        mean, most = stream["response_mean"] * 1000, stream["response_max"] * 1000
        text += f"; answered after {mean:.3g} ms, {most:.3g} ms at most"
    return text
