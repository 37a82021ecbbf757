"""What a join of two sides is asked, read from its own signature.

    join, arguments ──inspect──▶ every argument by name, with its default
                                     │ options (memory, threads, …) don't change what comes out
                                     ▼
                                 Wanted: question · what of ties is kept · order · updates · clock

Each join has a reader here whose parameters are the join's, none of them with a default.  So an
argument that a join gets one day and its reader does not know is an error by its name, and none is
ever left out of a verification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import pyarrow as pa

from matwin.asof import asof_join, asof_question
from matwin.bestmatch import bestmatch_join, check_emit
from matwin.fixed import Clock, fixed_window_join
from matwin.operators.epsilon import epsilon_join
from matwin.options import options_of
from matwin.question import Question
from matwin.storage.errors import InputError
from matwin.ties import Ties

from .verify_sql import Kept


@dataclass(frozen=True, slots=True)
class Timed:
    """How long rows count, and at which times the question is asked anew."""

    question: Question
    """Of one attribute: the time."""
    clock: Clock


@dataclass(frozen=True, slots=True)
class Wanted:
    """A question, and what else a join's arguments say of what comes out."""

    question: Question
    kept: Kept | None = None
    is_ordered: bool = False
    emits_updates: bool = False
    timed: Timed | None = None


def wanted_of(
    join: Callable[..., Any], left: pa.Schema, right: pa.Schema, arguments: Mapping[str, Any]
) -> Wanted:
    """What a join is asked by these arguments."""
    reader = READERS.get(join)
    if reader is None:
        names = ", ".join(f"matwin.{known.__name__}" for known in READERS)
        raise InputError(
            f"join={getattr(join, '__name__', join)!r}: choose one of {names}; "
            "matwin.verify_window_join is for window joins"
        )
    asked = asked_arguments(join, (left, right), arguments)
    return reader(left, right, **asked)


def asked_arguments(
    join: Callable[..., Any], first: tuple[object, ...], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The keyword arguments that say what comes out, with defaults, and none of the options."""
    own = signature(join)
    named = [p for p in own.parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    for parameter in named:
        if parameter.default is Parameter.empty and parameter.name not in arguments:
            raise InputError(f"{parameter.name}= is missing{_EXAMPLES.get(parameter.name, '')}")
    bound = own.bind(*first, **arguments)
    bound.apply_defaults()
    options_of(join.__name__, {n: v for n, v in arguments.items() if n not in own.parameters})
    return {parameter.name: bound.arguments[parameter.name] for parameter in named}


_EXAMPLES = {"on": '; write for example on={"t": "10min", "x": 100}'}


def _bestmatch(
    left: pa.Schema, right: pa.Schema, *, ties: Any, ordered: bool, emit: str, **asked: Any
) -> Wanted:
    question = Question.of(left, right, best=True, **asked)
    check_emit(emit, question.how)
    given = Ties.of(list(ties) if isinstance(ties, tuple) else ties, question)
    return Wanted(
        question, _kept(given, question.how), is_ordered=ordered, emits_updates=emit == "updates"
    )


def _kept(ties: Ties, how: str) -> Kept | None:
    if ties.are_kept:
        return None
    other = "right" if how == "left" else "left"
    return Kept(how, (*(f"c{place}" for place in ties.places), *_end(ties.end, other)))


def _end(end: str | None, other: str) -> tuple[str, ...]:
    return () if end is None else (f"{other}_row" if end == "first" else f"{other}_row DESC",)


def _epsilon(left: pa.Schema, right: pa.Schema, *, ordered: bool, **asked: Any) -> Wanted:
    return Wanted(Question.of(left, right, best=False, **asked), is_ordered=ordered)


def _asof(left: pa.Schema, right: pa.Schema, *, ordered: bool, ties: str, **asked: Any) -> Wanted:
    question = asof_question(left, right, ties=ties, **asked)
    # Of one before and one after that are equally near it is the one before.
    ranks = () if ties == "all" else ("is_after", *_end(ties, "right"))
    kept = Kept("left", ranks, is_nearest=True)
    return Wanted(question, kept, is_ordered=ordered)


def _fixed(
    left: pa.Schema, right: pa.Schema, *, time: Any, period: Any, every: Any, **asked: Any
) -> Wanted:
    question = Question.of(left, right, best=True, **asked)
    timed = Question.of(left, right, on={time: period}, how="inner", best=False)
    return Wanted(question, timed=Timed(timed, Clock.of(timed, every)))


READERS: dict[Callable[..., Any], Callable[..., Wanted]] = {
    bestmatch_join: _bestmatch,
    epsilon_join: _epsilon,
    asof_join: _asof,
    fixed_window_join: _fixed,
}
