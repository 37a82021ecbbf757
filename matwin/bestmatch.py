"""Bestmatch joins: for each row, its best matches in several dimensions.  The file to read first.

    sources ──feeds──▶ driver ──▶ directions ──▶ best pairs ──▶ output batches
    question: which pairs are eligible, which of them dominate others, what comes out

* ``left``: the best right rows of every left row; ``right``: the other way round.
* ``full``: pairs that are best for their left row or for their right row, each once.
* ``inner``: the best pairs of all, with equality keys also across keys.

Ties all stay.  Rows without an eligible partner are absent unless ``keep_unmatched=True``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.units import Tolerance

from .full import Union, has_black_boxes
from .inner import Champions, best_pairs, frontier_of_all, on_frontier
from .joining import Batches, Join, MakeDirections
from .options import Options, options_of
from .question import Question
from .report import Report
from .sources import Source, two_sources

EMITS = ("final", "updates")


def bestmatch_join(
    left: object,
    right: object,
    *,
    on: Mapping[Any, Tolerance],
    how: str = "left",
    by: object = None,
    orders: Mapping[Any, object] | None = None,
    keep_unmatched: bool = False,
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    emit: str = "final",
    **options: Any,
) -> pa.RecordBatchReader:
    """For each row, its best matches in all attributes.

    `on` gives each attribute its tolerance; the first is the order attribute.  The other options
    are those of `Options`: memory, page_size, materialize, schedule, scratch, trace, threads,
    progress, report, max_output_rows, max_delay.

    >>> import matwin
    >>> warm = pa.table({"t": [0, 60], "x": [1.0, 5.0], "celsius": [20.5, 21.0]})
    >>> damp = pa.table({"t": [3, 50, 90], "x": [1.5, 1.0, 5.0], "percent": [40, 41, 45]})
    >>> joined = matwin.bestmatch_join(warm, damp, on={"t": 60, "x": 4.0}).read_all()
    >>> sorted(zip(*(joined[name].to_pylist() for name in ("celsius", "percent"))))
    [(20.5, 40), (20.5, 41), (21.0, 41), (21.0, 45)]
    """
    ours, theirs = two_sources(left, right)
    question = Question.of(
        ours.schema, theirs.schema, on=on, by=by, how=how, best=True, orders=orders,
        keep_unmatched=keep_unmatched, suffixes=suffixes, distances=distances,
    )  # fmt: skip
    _check_emit(emit, how)
    return _started(question, ours, theirs, options_of("bestmatch_join", options), emit)


def _check_emit(emit: str, how: str) -> None:
    if emit not in EMITS:
        raise InputError(f"emit={emit!r}; choose one of {', '.join(EMITS)}")
    if emit == "updates" and how != "inner":
        raise InputError(
            f"emit='updates' goes with how='inner'; the results of how={how!r} are final"
        )


def _started(
    question: Question, left: Source, right: Source, options: Options, emit: str
) -> pa.RecordBatchReader:
    if question.how == "inner":
        return _inner(question, left, right, options, emit)
    join = Join(question, left, right, options, row_numbers=needs_row_numbers(question))
    if question.how == "full":
        return join.reader(Union(join).batches())
    keeps = (question.how,) if question.keep_unmatched else ()
    return join.reader(join.run(directions_of(join), keeps_rejected=keeps))


def needs_row_numbers(question: Question) -> bool:
    """Whether pairs are told apart by the numbers of their rows."""
    return question.how == "full" and has_black_boxes(question)


def directions_of(join: Join) -> MakeDirections:
    """The directions of a bestmatch join, which hand over output rows."""
    probe, keeps = join.question.how, join.question.keep_unmatched
    if probe == "full":
        return Union(join).directions
    if probe == "inner":
        return best_pairs(join, join.pairs("left", unmatched=False))
    finish = join.pairs(probe, unmatched=keeps)
    return lambda means: [join.direction(means, probe, "best", finish, wants_unmatched=keeps)]


def _inner(
    question: Question, left: Source, right: Source, options: Options, emit: str
) -> pa.RecordBatchReader:
    join = Join(question, left, right, options)
    is_repeatable = left.is_repeatable and right.is_repeatable
    if emit == "final" and is_repeatable and not has_black_boxes(question):
        untold = replace(options, progress=None, trace=None)
        first = Join(question, left, right, untold, report=Report())
        return join.reader(_twice(first, join))
    champions = Champions(join, emit)
    return join.reader(champions.batches(), champions.schema)


def _twice(first: Join, second: Join) -> Generator[Batches]:
    frontier = frontier_of_all(first)
    second.report.pages_read += first.report.pages_read
    second.report.pages_written += first.report.pages_written
    second.report.peak_bytes = max(second.report.peak_bytes, first.report.peak_bytes)
    for decision in first.report.decisions:
        second.report.decide(f"first reading, for the frontier: {decision}")
    yield from on_frontier(second, frontier)
