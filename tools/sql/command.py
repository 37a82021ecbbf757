"""`matwin sql`: one query from the command line, a file or a pipe; or the prompt.

-c QUERY, FILE, standard input ──▶ plan ──▶ rows to -o or standard output, a summary to stderr
nothing of these, on a terminal ──▶ prompt.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from matwin.outputs import check_outputs
from matwin.report import Report
from matwin.sinks import write
from matwin.storage.errors import InputError

from ..join import ROWS_SHOWN, said, summary_of, tell_summary
from ..progress import Progress
from ..usage import tell
from ..words import options_given, outputs_of
from .catalog import Catalog
from .errors import SqlError
from .explain import explained
from .nodes import Plan
from .run import scans_of
from .session import planned, started


def run(args: argparse.Namespace) -> int:
    """Run a query, or the prompt; an error in the query is told with its place below."""
    try:
        return _run(args)
    except SqlError as error:
        message, _, excerpt = str(error).partition("\n")
        code = tell(message)
        if excerpt:
            print(excerpt, file=sys.stderr)
        return code


def _run(args: argparse.Namespace) -> int:
    tables, file = _words(args.words)
    catalog = Catalog(tables)
    if args.command is not None and file is not None:
        raise InputError(f"-c and {file!r} are two queries; give one, and tables as NAME=FILE")
    text = args.command if args.command is not None else _read(file)
    if text is None:
        from .prompt import prompt

        return prompt(catalog, options_given(args))
    plan = planned(text, catalog)
    if args.explain:
        print(said("explanation", explained(plan), args))
        return 0
    return _written(plan, args)


def _words(words: list[str]) -> tuple[dict[str, object], str | None]:
    """Tables by name, and the file with the query."""
    tables: dict[str, object] = {}
    files = []
    for word in words:
        name, sign, path = word.partition("=")
        if sign and name.isidentifier():
            if name in tables:
                raise InputError(f"{word!r}: {name} is given twice")
            if not path:
                raise InputError(f"{word!r}: name a file for {name}")
            tables[name] = path
        else:
            files.append(word)
    if len(files) > 1:
        raise InputError(
            f"{files[1]!r}: one file with a query; tables are given as NAME={files[1]}"
        )
    return tables, files[0] if files else None


def _read(file: str | None) -> str | None:
    """The query of a file or of standard input; None where somebody sits at a terminal."""
    if file is None and sys.stdin.isatty():
        return None
    try:
        if file is None or file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file or 'standard input'}: the query is not UTF-8 text") from None
    except OSError as error:
        hint = "; a query itself is given with -c" if " " in str(file) else ""
        raise InputError(f"{file}: {error.strerror}{hint}") from None


def _written(plan: Plan, args: argparse.Namespace) -> int:
    check_outputs(outputs_of(args), inputs_of(plan), overwrite=args.overwrite)
    begun = time.monotonic()
    report = Report()
    with Progress(is_wanted=not args.quiet) as progress:
        given: Any = {**options_given(args), "report": report, "progress": progress.callback}
        found = started(plan, given)
        rows = write(
            found, args.output, format=args.format, max_rows_shown=ROWS_SHOWN,
            overwrite=args.overwrite,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    if args.json:
        tell_summary(args, {**summary_of(report, seconds, None), "rows_out": rows}, None)
    elif not args.quiet:
        print(f"out    {rows:,} rows in {seconds:.3g} s", file=sys.stderr)
        for decision in report.decisions:
            print(f"chose  {decision}", file=sys.stderr)
    return 0


def inputs_of(plan: Plan) -> list[str]:
    """The files that a plan reads."""
    return list(dict.fromkeys(path for scan in scans_of(plan) for path in scan.source.paths))
