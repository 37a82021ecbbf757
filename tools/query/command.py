"""`matwin query`: a continuous query from a job file, run until it is told to stop.

    job.toml ──job.py──▶ Job ──sources.py──▶ streams ──continuous_query──▶ epochs
                                                                        │
         sink, or standard output ◀── output.py ────────────────────────┤
         a line on the terminal, a page ◀── told.py, server.py ─────────┘

The first Ctrl-C or SIGTERM lets the epoch under way end: rows of an unfinished chunk are left for
the next start where every source can be read again, and are an epoch of their own otherwise.  The
second breaks off; what is committed stays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import matwin
from matwin.operators.epochs.continuous import ContinuousQuery, Epoch
from matwin.storage.errors import InputError, MatwinError
from matwin.storage.units import parse_size, shown
from matwin.streams import Stream

from .board import Board
from .job import Job, Where, explained, read_job
from .output import Lines, Rows, Silent
from .server import Address, StatusServer
from .sources import Feeding, opened, table_of
from .told import StatusLine, epoch_json, summary

EXIT_INTERRUPTED = 130
OVERRIDES = ("state", "sink", "sink_from", "memory", "trace")


def run(args: argparse.Namespace) -> int:
    """Run the job; 128 + n after signal n."""
    address = None if args.status is None else Address.of(args.status)
    if args.json and args.format:
        raise InputError("--format says how rows are written, and --json has them in its lines")
    if args.memory is not None:
        with Where("--memory").told():
            parse_size(args.memory)
    if args.sink_from not in (None, "here"):
        raise InputError(f"--sink-from {shown(args.sink_from)}: write --sink-from here")
    job = read_job(args.job)
    options = _options(args, job)
    if args.format and options["sink"] is not None:
        raise InputError(
            f"--format is for standard output, and results go to {options['sink']}; leave it out"
        )
    feeding = Feeding()
    with feeding:
        try:
            _run(args, job, options, address, feeding)
        except KeyboardInterrupt:
            return feeding.signals.code or EXIT_INTERRUPTED
        except MatwinError as e:
            raise explained(job.where, e) from e
        return feeding.signals.code


def _options(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in OVERRIDES}
    found = job.options | {name: value for name, value in given.items() if value is not None}
    found["sink"] = None if found.get("sink") == "-" else found.get("sink")
    return found


def _run(
    args: argparse.Namespace, job: Job, options: dict[str, Any], address: Address | None,
    feeding: Feeding,
) -> None:  # fmt: skip
    started = time.monotonic()
    streams = opened(job, is_once=args.once)
    tables = {name: table_of(name, path, job) for name, path in job.tables.items()}
    is_watched = options["sink"] is None and sys.stdout.isatty()
    with ExitStack() as stack:
        line = stack.enter_context(StatusLine(is_wanted=not args.quiet and not is_watched))
        asked = _asked(job, streams, tables)
        query = stack.enter_context(
            matwin.continuous_query(
                **asked,
                pairs=job.pairs,
                progress=line if line.is_on else None,
                unfinished="keep" if args.once and options.get("state") else "emit",
                **options,
            )
        )
        feeding.signals.when_first = query.stop
        feeding.is_running = True
        if feeding.signals.number:
            query.stop()
        board = Board(args.job, query.status, str(asked["cut"]), options)
        if address is not None:
            server = stack.enter_context(StatusServer(address, board))
            if not args.quiet:
                print(f"status page: {server.url}", file=sys.stderr, flush=True)
        epochs, last = _followed(args, query, options, board, feeding)
        board.is_done = True
    if not args.quiet and not args.json:
        seconds = time.monotonic() - started
        told = summary(query.status, epochs, last, seconds, options.get("state"))
        print(told, file=sys.stderr)


def _asked(job: Job, streams: dict[str, Stream], tables: dict[str, Any]) -> dict[str, Any]:
    """What is asked of which streams; a query with STREAM_… in it says itself how they are cut."""
    if job.cut is not None:
        return {"query": job.query, "sources": streams, "cut": job.cut, "tables": tables,
                "windows": job.windows}  # fmt: skip
    from ..sql.catalog import Catalog
    from ..sql.continuous import asked_of
    from ..sql.session import planned

    with job.where.of("query").told():
        asked = asked_of(planned(job.query, Catalog({**streams, **tables})))
    return {"query": asked.query, "sources": asked.sources, "cut": asked.cut, "keep": asked.keep}


def _followed(
    args: argparse.Namespace, query: ContinuousQuery, options: dict[str, Any], board: Board,
    feeding: Feeding,
) -> tuple[int, Epoch | None]:  # fmt: skip
    """Hand on the epochs as they come; how many, and the last."""
    output = _output(args, options, feeding)
    count, last = 0, None
    try:
        for epoch in query:
            about = epoch_json(epoch, query.status)
            output.take(epoch, about, _seen(board, epoch))
            board.add(about)
            count, last = count + 1, epoch
    finally:
        output.close()
    return count, last


def _output(
    args: argparse.Namespace, options: dict[str, Any], feeding: Feeding
) -> Rows | Lines | Silent:
    is_stdout = options["sink"] is None
    if args.json:
        return Lines(feeding.signals.held, has_rows=is_stdout)
    return Rows(args.format or "csv", feeding.signals.held) if is_stdout else Silent()


def _seen(board: Board, epoch: Epoch) -> Callable[[Any], None]:
    return lambda batch: board.show(epoch.id, str(epoch.bounds), batch)
