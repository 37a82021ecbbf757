"""`matwin sql`: queries from the command line, a file or a pipe; or the prompt.

-c QUERY, FILE, standard input ──▶ plan ──▶ rows to -o or standard output, a summary to stderr
nothing of these, on a terminal ──▶ prompt.py

Several queries run one after the other; the first that goes wrong ends the command.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from matwin.outputs import check_outputs
from matwin.report import Report
from matwin.sinks import format_of, write
from matwin.storage.errors import InputError

from ..join import ROWS_SHOWN, is_bar_wanted, said, summary_of, tell_summary
from ..progress import Progress
from ..usage import tell
from ..words import options_given, outputs_of
from .catalog import Catalog
from .errors import SqlError
from .explain import explained
from .nodes import Plan
from .run import scans_of
from .session import planned, started
from .statements import statements


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
    for query in _queries(text, args):
        plan = planned(query, catalog)
        if args.explain:
            print(said("explanation", explained(plan), args))
        else:
            _write(plan, args)
    return 0


def _queries(text: str, args: argparse.Namespace) -> list[str]:
    """The queries of a text; what holds the rows of one takes no others."""
    found = statements(text)
    for one in found:
        if one.is_command:
            line = one.text.strip().split()[0]
            raise InputError(f"{line} is a command of the prompt, which `matwin sql` alone starts")
    files = [option for option, file in outputs_of(args).items() if file not in (None, "-")]
    is_binary = args.format is not None and format_of(None, args.format) in ("parquet", "ipc")
    if len(found) > 1 and not args.explain and (files or is_binary):
        option = files[0] if files else f"--format {args.format}"
        raise InputError(
            f"{option} is for one query, and here are {len(found)}; run them one by one"
        )
    return [one.text for one in found] or [text]


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
        return Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file or 'standard input'}: the query is not UTF-8 text") from None
    except OSError as error:
        hint = "; a query itself is given with -c" if " " in str(file) else ""
        raise InputError(f"{file}: {error.strerror}{hint}") from None


def _write(plan: Plan, args: argparse.Namespace) -> None:
    check_outputs(outputs_of(args), inputs_of(plan), overwrite=args.overwrite)
    begun = time.monotonic()
    report = Report()
    with Progress(is_wanted=is_bar_wanted(args)) as progress:
        given: Any = {**options_given(args), "report": report, "progress": progress.callback}
        found = progress.until_read(started(plan, given))
        rows = write(
            found, args.output, format=args.format, max_rows_shown=ROWS_SHOWN,
            overwrite=args.overwrite,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    report.is_done = True  # also where no join has run
    if args.json:
        tell_summary(args, {**summary_of(report, seconds, None), "rows_out": rows}, None)
    elif not args.quiet:
        print(f"out    {counted_rows(rows)} in {seconds:.3g} s", file=sys.stderr)
        for decision in report.decisions:
            print(f"chose  {decision}", file=sys.stderr)


def counted_rows(rows: int) -> str:
    """How many rows there are."""
    return f"{rows:,} row{'s' if rows != 1 else ''}"


def inputs_of(plan: Plan) -> list[str]:
    """The files that a plan reads."""
    return list(dict.fromkeys(path for scan in scans_of(plan) for path in scan.source.paths))
