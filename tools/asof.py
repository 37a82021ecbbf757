"""`matwin asof`: each left row with the nearest right row before it, after it, or either.

    LEFT, RIGHT ──words.py──▶ arguments ──asof_join──▶ batches ──sinks.py──▶ file or standard output

Rows, progress and summary go where those of `matwin join` go, and ``--verify`` asks DuckDB the same
afterwards.  ``--engine spark`` asks the same of Spark (`spark_join.py`).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import pyarrow as pa

import matwin
from matwin.outputs import check_outputs
from matwin.report import Report
from matwin.sinks import write
from matwin.storage.errors import InputError

from .join import ROWS_SHOWN, is_bar_wanted, said, summary_of, tell_summary, verified
from .progress import Progress
from .spark_words import check_engine, spark_module
from .words import (
    by_of,
    inputs_of,
    names_of,
    options_given,
    outputs_of,
    split,
    suffixes_of,
    tolerance_of,
)

_ON = "write for example --on t or --on t:ts"


def run(args: argparse.Namespace) -> int:
    """Join, write and sum up; 1 if DuckDB disagrees."""
    if check_engine(args):
        code: int = spark_module("matwin.tools.spark_join").run_asof(args)
        return code
    left, right = inputs_of(args)
    arguments = asof_arguments(args, left.schema, right.schema) | options_given(args)
    if args.explain:
        print(said("explanation", matwin.asof_join(left, right, **arguments).explain(), args))
        return 0
    check_outputs(outputs_of(args), (args.left, args.right), overwrite=args.overwrite)
    started = time.monotonic()
    report = Report()
    with Progress(is_wanted=is_bar_wanted(args)) as progress:
        found = matwin.asof_join(
            left, right, report=report, progress=progress.callback, **arguments
        )  # fmt: skip
        write(
            progress.until_read(found), args.output, format=args.format, max_rows_shown=ROWS_SHOWN,
            overwrite=args.overwrite,
        )  # fmt: skip
    seconds = time.monotonic() - started
    verdict = None
    if args.verify:
        verdict = verified((left, right), matwin.asof_join, arguments, args)
    tell_summary(args, summary_of(report, seconds, verdict), verdict)
    return 0 if verdict is None or verdict.is_equal else 1


def asof_arguments(args: argparse.Namespace, left: pa.Schema, right: pa.Schema) -> dict[str, Any]:
    """The words as keyword arguments of the join."""
    on = names_of(_one_on(args.on, left), "--on", _ON)
    found: dict[str, Any] = {
        "on": on,
        "by": by_of(args.by, left),
        "direction": args.direction,
        "ties": args.ties,
        "how": args.how,
        "allow_exact_matches": not args.no_exact_matches,
    }
    if args.tolerance is not None:
        found["tolerance"] = tolerance_of(args.tolerance, on, left, right)
    if args.suffixes is not None:
        found["suffixes"] = suffixes_of(args.suffixes)
    return found


def _one_on(texts: list[str], schema: pa.Schema) -> str:
    """The one column; what `matwin join` would take is refused."""
    text = texts[0]
    if len(texts) > 1 or ("," in text and text not in schema.names):
        raise InputError(
            f"--on {' --on '.join(texts)}: an as-of join has one column to be near in; those that "
            "must be equal go to --by, and `matwin join` is near in several"
        )
    name, limit = split(text, "=")
    if limit is not None:
        raise InputError(
            f"--on {text!r}: an as-of join has its limit apart; write --on {name} --tolerance "
            f"{limit or '5min'}"
        )
    return text
