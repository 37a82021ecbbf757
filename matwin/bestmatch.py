"""Bestmatch joins: for each row, its best matches in several dimensions.  The file to read first.

    sources ──feeds──▶ driver ──▶ directions ──▶ best pairs ──▶ output batches
    question: which pairs are eligible, which of them dominate others, what comes out

* ``left``: the best right rows of every left row; ``right``: the other way round.
* ``full``: pairs that are best for their left row or for their right row, each once.
* ``inner``: the best pairs of all, with equality keys also across keys.

Ties all stay.  Rows without an eligible partner are absent unless ``keep_unmatched=True``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Unpack

from matwin.storage.errors import InputError
from matwin.storage.units import Tolerance

from .explained import explained
from .full import Union, has_black_boxes
from .hints import explains_words
from .inner import Champions, best_pairs, frontier_of_all, on_frontier
from .joining import Batches, Join, MakeDirections
from .options import JoinOptions, Options, half_of, options_of
from .ordered import in_left_order
from .question import BestHow, By, Question
from .report import Report
from .result import Result
from .sources import Source, two_sources
from .ties import Ties

EMITS = ("final", "updates")


@explains_words
def bestmatch_join(
    left: object,
    right: object,
    *,
    on: Mapping[Any, Tolerance],
    how: BestHow = "left",
    by: By = None,
    orders: Mapping[Any, object] | None = None,
    where: Mapping[Any, Any] | None = None,
    ties: Literal["all", "first", "last"] | Sequence[str] = "all",
    keep_unmatched: bool = False,
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    ordered: bool = False,
    emit: Literal["final", "updates"] = "final",
    **options: Unpack[JoinOptions],
) -> Result:
    """For each row, its best matches in several attributes at once.

    A match is *best* if no other match of the same row is at least as good in every attribute and
    better in one.  With one attribute that is the nearest row; with several there may be more than
    one best match, and all of them come out unless `ties` says otherwise.

    * `left`, `right`: tables, frames, files, queries or streams; see the page on sources.
    * `on`: the attributes, each with its tolerance: ``{"t": "10min", "x": 100}``.  A tolerance is
      an amount (both ways), a pair ``(lo, hi)`` that bounds ``right - left``, `matwin.strict` or
      `matwin.nonzero`, or None for any distance.  A pair of names, ``("t", "start")``, compares
      columns that are called differently.  The first attribute is the one streams are ordered by.
    * `how`: whose best matches: ``"left"`` gives those of every left row, ``"right"`` those of
      every right row, ``"full"`` both, each pair once, and ``"inner"`` the best pairs of all.
    * `by`: columns that must be equal: a name, a pair ``(left, right)``, or a list of either.
    * `orders`: what is better in an attribute: ``"min_distance"`` (the default), ``"youngest"``,
      `matwin.minimize` of a function, `matwin.partial_order`, ``"indifferent"``.
    * `where`: further attributes, with tolerances as in `on`, that a match must satisfy but that
      make none better: ``{"id": matwin.nonzero()}`` excludes a row's match with itself.
    * `ties`: which best matches of a row stay: ``"all"``, the ``"first"`` or ``"last"`` in the
      other side's order, or attributes by priority, such as ``["t", "x"]`` or ``["t", "last"]``.
    * `keep_unmatched`: also give rows without any match, with nulls: with ``how="left"`` that is a
      left outer join.  Without it such rows are left out.
    * `suffixes`: what is added to column names that both sides have.
    * `distances`: add a column ``<attribute>_distance`` for each attribute.
    * `ordered`: give the rows in the order of the left input, those without a left row last.
    * `emit`: with ``how="inner"``, ``"updates"`` gives pairs at once and withdraws them later.
    * further options, such as `memory`: see `matwin.JoinOptions`.

    Without `ordered`, rows come as they are judged, by key and cell, not in an input's order.
    Rows with a null, NaN or infinity in an attribute, or a null in a key, match nothing.

    >>> import matwin, pyarrow as pa
    >>> warm = pa.table({"t": [0, 60], "x": [1.0, 5.0], "celsius": [20.5, 21.0]})
    >>> damp = pa.table({"t": [3, 50, 90], "x": [1.5, 1.0, 5.0], "percent": [40, 41, 45]})
    >>> joined = matwin.bestmatch_join(warm, damp, on={"t": 60, "x": 4.0}).read_all()
    >>> sorted(zip(*(joined[name].to_pylist() for name in ("celsius", "percent"))))
    [(20.5, 40), (20.5, 41), (21.0, 41), (21.0, 45)]
    """
    ours, theirs = two_sources(left, right)
    question = Question.of(
        ours.schema, theirs.schema, on=on, by=by, how=how, best=True, orders=orders, where=where,
        keep_unmatched=keep_unmatched, suffixes=suffixes, distances=distances,
    )  # fmt: skip
    check_emit(emit, how)
    chosen = Ties.of(list(ties) if isinstance(ties, tuple) else ties, question)
    given = options_of("bestmatch_join", options)
    return _started(question, ours, theirs, given, emit, chosen, ordered=ordered)


def check_emit(emit: str, how: str) -> None:
    """Refuse what an answer can't come as."""
    if emit not in EMITS:
        raise InputError(f"emit={emit!r}; choose one of {', '.join(EMITS)}")
    if emit == "updates" and how != "inner":
        raise InputError(
            f"emit='updates' goes with how='inner'; the results of how={how!r} are final"
        )


def _started(
    question: Question, left: Source, right: Source, options: Options, emit: str, ties: Ties,
    *, ordered: bool,
) -> Result:  # fmt: skip
    if question.how == "inner":
        return _inner(question, left, right, options, emit, ordered=ordered)
    numbers = ordered or ties.end is not None or needs_row_numbers(question)
    own = half_of(options) if ordered else options
    join = Join(question, left, right, own, row_numbers=numbers)
    join.ties, join.is_ordered = ties, ordered
    make = directions_of(join)
    keeps = (question.how,) if question.keep_unmatched else ()
    found = (
        Union(join).batches() if question.how == "full" else join.run(make, keeps_rejected=keeps)
    )
    is_whole = question.how == "left" and question.keep_unmatched
    found = in_left_order(join, found, options, is_whole=is_whole)
    return join.result(found, partial(explained, join, make))


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
    question: Question, left: Source, right: Source, options: Options, emit: str, *, ordered: bool
) -> Result:
    own = half_of(options) if ordered else options
    join = Join(question, left, right, own, row_numbers=ordered)
    join.is_ordered = ordered
    explain = partial(explained, join, directions_of(join))
    is_repeatable = left.is_repeatable and right.is_repeatable
    if emit == "final" and is_repeatable and not has_black_boxes(question):
        # A copy: what is made again forgets that it is a half, and asks for a half.
        first = Join(question, left, right, own.untold(), report=Report())
        found = in_left_order(join, _twice(first, join), options, is_whole=False)
        return join.result(found, explain)
    if ordered:
        raise InputError(
            "ordered=True: the best pairs of all are put in order where both inputs can be read "
            "twice and no order is a function of two pairs; sort the result instead"
        )
    champions = Champions(join, emit)
    return join.result(champions.batches(), explain, champions.schema)


def _twice(first: Join, second: Join) -> Generator[Batches]:
    frontier = frontier_of_all(first)
    second.report.pages_read += first.report.pages_read
    second.report.pages_written += first.report.pages_written
    second.report.peak_bytes = max(second.report.peak_bytes, first.report.peak_bytes)
    for decision in first.report.decisions:
        second.report.decide(f"first reading, for the frontier: {decision}")
    yield from on_frontier(second, frontier)
