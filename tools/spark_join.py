"""`matwin join`, `matwin asof` and `matwin window-join` with ``--engine spark``.

    LEFT, RIGHT ──files.read──▶ DataFrames ──the same words──▶ prepared join ──▶ folder, table, pipe
                                                                   │
                                             rows, parts, bytes shuffled ──▶ summary

With ``-o`` the rows are written by the executors into a folder; nothing passes through this
process.  Without it a terminal gets the first rows and the number of all, and a pipe gets all rows,
through this process's memory.  Only this module and the benchmark import `matwin.spark`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from matwin.growing import STDIN
from matwin.outputs import check_outputs
from matwin.sinks import Shown, format_of, to_stdout, write
from matwin.spark import Meter, explain
from matwin.spark.asof import prepare_asof
from matwin.spark.files import (
    check_target,
    first_rows,
    local_path,
    read,
    written,
    written_format,
)
from matwin.spark.frames import arrow_schema
from matwin.spark.prepared import Prepared
from matwin.spark.semijoin import shipped
from matwin.spark.session import conf_of, failures_told, started
from matwin.spark.two_sided import prepare_bestmatch, prepare_epsilon
from matwin.spark.windows import prepare_windows
from matwin.storage.errors import InputError
from matwin.storage.units import format_size
from matwin.text import escaped

from .arguments import MASTER
from .asof import asof_arguments
from .window_words import question_arguments, streams_of
from .words import OPTIONS, arguments_of

ROWS_SHOWN = 20
_WINDOW_OPTIONS = ("algorithm", "bounds")


def run_join(args: argparse.Namespace) -> int:
    """`matwin join` on Spark."""
    paths = {"left": args.left, "right": args.right}
    is_best = args.pairs == "best"

    def prepare(frames: dict[str, Any], **options: Any) -> Prepared:
        left, right = frames.values()
        arguments = _arguments(args, frames)
        make = prepare_bestmatch if is_best else prepare_epsilon
        return make(left, right, **arguments, **options)

    def explained(frames: dict[str, Any], **options: Any) -> str:
        join = "bestmatch_join" if is_best else "epsilon_join"
        return explain(join, *frames.values(), **_arguments(args, frames), **options)

    return _run(args, paths, OPTIONS, prepare, explained)


def _arguments(args: argparse.Namespace, frames: dict[str, Any]) -> dict[str, Any]:
    left, right = (arrow_schema(frame.schema, name) for name, frame in frames.items())
    return arguments_of(args, left, right)


def run_asof(args: argparse.Namespace) -> int:
    """`matwin asof` on Spark."""

    def arguments(frames: dict[str, Any]) -> dict[str, Any]:
        schemas = (arrow_schema(frame.schema, name) for name, frame in frames.items())
        return asof_arguments(args, *schemas) | {"order_by": args.order_by}

    def prepare(frames: dict[str, Any], **options: Any) -> Prepared:
        left, right = frames.values()
        return prepare_asof(left, right, **arguments(frames), **options)

    def explained(frames: dict[str, Any], **options: Any) -> str:
        return explain("asof_join", *frames.values(), **arguments(frames), **options)

    return _run(args, {"left": args.left, "right": args.right}, OPTIONS, prepare, explained)


def run_window_join(args: argparse.Namespace) -> int:
    """`matwin window-join` on Spark."""

    def arguments(frames: dict[str, Any]) -> dict[str, Any]:
        schemas = {name: arrow_schema(frame.schema, name) for name, frame in frames.items()}
        return question_arguments(args, schemas)

    def prepare(frames: dict[str, Any], **options: Any) -> Prepared:
        return prepare_windows(frames, **arguments(frames), **options)

    def explained(frames: dict[str, Any], **options: Any) -> str:
        return explain("window_join", frames, **arguments(frames), **options)

    names = (*OPTIONS, *_WINDOW_OPTIONS)
    return _run(args, streams_of(args.streams), names, prepare, explained)


def _run(
    args: argparse.Namespace, paths: dict[str, str], names: tuple[str, ...],
    prepare: Callable[..., Prepared], explained: Callable[..., str],
) -> int:  # fmt: skip
    _check_words(args, paths)
    given = {name: getattr(args, name) for name in (*names, "strips", "ship")}
    options = {name: value for name, value in given.items() if value is not None}
    shows = sys.stderr.isatty() and not args.quiet
    conf = conf_of(args.conf or [])
    with (
        failures_told(),
        started(args.master or MASTER, conf, shows_progress=shows) as session,
    ):
        frames = {n: read(session, path, n, args.input_format) for n, path in paths.items()}
        if args.explain:
            print(explained(frames, **options))
            return 0
        if _has_folder(args) and args.overwrite:
            check_target(frames.values(), args.output)
        began = time.monotonic()
        with metered(session) as meter:
            prepared = prepare(frames, **options)
            rows = _put(shipped(prepared), args)
        summary = {
            "engine": "spark", "rows_out": rows, "seconds": round(time.monotonic() - began, 3),
            "parts": prepared.plan.parts, "divided": prepared.plan.reason,
            "shuffle_bytes": None if meter is None else meter.shuffle_bytes,
        }  # fmt: skip
    _tell(args, summary)
    return 0


def _check_words(args: argparse.Namespace, paths: dict[str, str]) -> None:
    """Refuse what can be refused before Spark is started, which takes seconds."""
    for name, path in paths.items():
        if path == STDIN:
            raise InputError(f"{name}: Spark can't read standard input; name a file or table:NAME")
    if _has_folder(args):
        written_format(args.output, args.format)
        if not args.explain:
            out = {"-o": local_path(args.output)}
            words = map(local_path, paths.values())
            check_outputs(out, words, overwrite=args.overwrite, is_folder=True)
    else:
        if args.overwrite:
            raise InputError("--overwrite goes with -o")
        format_of(None, args.format)


@contextmanager
def metered(session: Any) -> Iterator[Meter | None]:
    """What counts the bytes shuffled; None where the session does not tell them."""
    try:
        meter = Meter(session)
    except InputError:
        yield None
        return
    with meter:
        yield meter


# ── output ───────────────────────────────────────────────────────────────────────────────────


def _has_folder(args: argparse.Namespace) -> bool:
    return args.output not in (None, "-")


def _put(frame: Any, args: argparse.Namespace) -> int:
    """Write the rows where they are wanted; how many there were."""
    if _has_folder(args):
        kind = written_format(args.output, args.format)
        return written(frame, args.output, kind, overwrites=args.overwrite)
    kind = format_of(None, args.format)
    if kind != "table":
        return write(frame.toArrow().to_reader(), None, format=kind)
    table, rows = first_rows(frame, ROWS_SHOWN)
    with to_stdout(kind) as file:
        shown_table = Shown(file, table.schema, True, ROWS_SHOWN)
        for batch in table.to_batches():
            shown_table.add(batch)
        shown_table.finish(rows)
    return rows


def _tell(args: argparse.Namespace, summary: dict[str, Any]) -> None:
    if args.json:
        stream = sys.stdout if _has_folder(args) else sys.stderr
        print(json.dumps(summary, indent=2), file=stream)
    elif not args.quiet:
        print(shown(summary), file=sys.stderr)


def shown(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    lines = [
        f"out    {summary['rows_out']:,} rows in {summary['seconds']:.3g} s",
        f"parts  {summary['parts']:,}: {escaped(summary['divided'])}",
    ]
    if summary["shuffle_bytes"] is not None:
        lines.append(f"ship   {format_size(summary['shuffle_bytes'])} shuffled")
    return "\n".join(lines)
