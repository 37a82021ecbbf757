"""`matwin.spark.bestmatch_join` and `epsilon_join`: the joins of two sides on DataFrames.

Which side is the anchor, so that each match is owned by one part: `matwin.cutting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from matwin.attributes import Attribute
from matwin.cutting import halos_of
from matwin.full import has_black_boxes
from matwin.question import Question
from matwin.storage.errors import InputError
from matwin.storage.units import Tolerance

from .cut import quoted
from .exchange import Exchange, Route
from .frames import Frame, check_names, output_type, session_of
from .inner import best_of_all
from .options import SparkOptions
from .prepared import Prepared, helper_names
from .semijoin import shipped
from .work import Bestmatch, Epsilon


def bestmatch_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Mapping[Any, Tolerance],
    how: str = "left",
    by: object = None,
    orders: Mapping[Any, object] | None = None,
    keep_unmatched: bool = False,
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    strips: object = None,
    ship: str = "auto",
    **options: Any,
) -> DataFrame:
    """`matwin.bestmatch_join` on Spark: DataFrames in, a DataFrame out that is not yet computed.

    `strips` is their number or their bounds (None: chosen from the data, which a job of the call
    looks at); `ship` says whether rows are shuffled whole (``"full"``), or first without their
    payload and whole only where they match (``"partial"``).  That reads the sources twice, as
    ``how="inner"`` does: what may differ then is pinned first, by a job of the call.  `memory` is
    the budget of one task, 128 MiB unless it is given; `max_output_rows` a limit for each task.
    """
    prepared = prepare_bestmatch(
        left, right, on=on, how=how, by=by, orders=orders, keep_unmatched=keep_unmatched,
        suffixes=suffixes, distances=distances, strips=strips, ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def epsilon_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Mapping[Any, Tolerance],
    by: object = None,
    how: str = "inner",
    suffixes: tuple[str, str] = ("_left", "_right"),
    distances: bool = False,
    strips: object = None,
    ship: str = "auto",
    **options: Any,
) -> DataFrame:
    """`matwin.epsilon_join` on Spark: DataFrames in, a DataFrame out that is not yet computed.

    Arguments and options are those of `matwin.spark.bestmatch_join`.
    """
    prepared = prepare_epsilon(
        left, right, on=on, by=by, how=how, suffixes=suffixes, distances=distances, strips=strips,
        ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def prepare_bestmatch(
    left: object, right: object, *, strips: object = None, ship: str = "auto", **given: Any
) -> Prepared:
    """The join as it is asked for; nothing has been looked at."""
    arguments, options = _divided(given, ("how", "by", "orders", "keep_unmatched"), how="left")
    return _prepared("bestmatch_join", left, right, strips, ship, arguments, options, best=True)


def prepare_epsilon(
    left: object, right: object, *, strips: object = None, ship: str = "auto", **given: Any
) -> Prepared:
    """The join as it is asked for; nothing has been looked at."""
    arguments, options = _divided(given, ("how", "by"), how="inner")
    return _prepared("epsilon_join", left, right, strips, ship, arguments, options, best=False)


def _divided(
    given: dict[str, Any], more: tuple[str, ...], how: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is asked, and how it is to be done."""
    names = ("on", "suffixes", "distances", *more)
    asked = {name: given[name] for name in names if name in given}
    if "on" not in asked:
        raise TypeError('on= is missing; write for example on={"t": "10min", "x": 100}')
    asked.setdefault("how", how)
    return asked, {name: value for name, value in given.items() if name not in names}


def _prepared(
    operator: str, left: object, right: object, strips: object, ship: str,
    arguments: dict[str, Any], options: dict[str, Any], *, best: bool,
) -> Prepared:  # fmt: skip
    frames = {"left": Frame.of(left, "left"), "right": Frame.of(right, "right")}
    question = Question.of(frames["left"].schema, frames["right"].schema, best=best, **arguments)
    chosen = SparkOptions.of(f"matwin.spark.{operator}", strips, ship, options)
    _check_collations(question, frames)
    needed = {side: _needed(question, side) for side in frames}
    if not question.has_right:  # nobody wants its other columns
        columns = [F.col(quoted(column)) for column in needed["right"]]
        frames["right"] = Frame.of(frames["right"].frame.select(*columns), "right")
    if best and question.how == "inner" and has_black_boxes(question):
        chosen = replace(chosen, strips=1)  # only whoever sees all pairs can judge them
    output = output_type(question, frames)
    check_names(output.names, session_of(frames), "output")
    attribute = _strip_attribute(question)
    exchange = Exchange(
        {side: _route(question, side, frames[side], attribute) for side in frames},
        attribute.type if attribute else None,
        question.order.type if _is_streamed(question) else None,
        marks_own=question.how == "full",
    )
    own = helper_names("own", frames, question.suffixes) if exchange.marks_own else None
    names = dict(zip(("left", "right"), question.output_names(), strict=True))
    return Prepared(
        f"matwin.spark.{operator}", frames, exchange, halos_of(question, attribute),
        (Bestmatch if best else Epsilon)(own), arguments, output, chosen,
        needed, _asking_of(question, arguments, options),
        lambda side, column: names[side].get(column, column),
        best_of_all if best and question.how == "inner" else Prepared.frame,
        question, may_salt=question.how != "full",
    )  # fmt: skip


def _needed(question: Question, side: str) -> tuple[str, ...]:
    """The columns that decide whether a row matches."""
    found = [getattr(one, side) for one in (*question.keys, *question.attributes)]
    return tuple(dict.fromkeys(found))


def _is_streamed(question: Question) -> bool:
    """Whether sorted rows are of use: what has no limit on both sides is final at the end only."""
    return question.order.is_number and question.order.is_limited


def _asking_of(
    question: Question, arguments: dict[str, Any], options: dict[str, Any]
) -> Callable[[Mapping[str, DataFrame]], Prepared] | None:
    """Which rows match?  A black box may be no order at all: then all within the tolerances."""
    prepare, asked = prepare_bestmatch, {**arguments, "distances": False}
    options = {name: value for name, value in options.items() if name != "max_output_rows"}
    if question.best and not has_black_boxes(question):
        asked["keep_unmatched"] = False
    else:
        prepare = prepare_epsilon
        limits = {name: limit for name, limit in arguments["on"].items() if limit is not None}
        if not limits:
            return None
        asked = {"on": limits, "by": arguments.get("by"), "how": "inner"}
    return lambda frames: prepare(frames["left"], frames["right"], ship="full", **asked, **options)


def _strip_attribute(question: Question) -> Attribute | None:
    """The attribute that strips are cut by: the first with a tolerance on both sides."""
    return next((a for a in question.attributes if a.is_number and a.is_limited), None)


def _route(question: Question, side: str, frame: Frame, strip: Attribute | None) -> Route:
    order = question.order
    finite: dict[str, pa.DataType] = {
        getattr(a, side): frame.schema.field(getattr(a, side)).type for a in question.attributes
    }
    return Route(
        frame, getattr(strip, side) if strip else None,
        getattr(order, side) if _is_streamed(question) else None,
        {getattr(key, side): key.type for key in question.keys}, finite,
        keeps_rejected=_keeps(question, side),
    )  # fmt: skip


def _keeps(question: Question, side: str) -> bool:
    """Whether rows of a side come out though they match nothing."""
    if question.best:
        return question.keep_unmatched and question.how in (side, "full")
    return question.how in (side, "full") or (side == "left" and question.how == "anti")


def _check_collations(question: Question, frames: Mapping[str, Frame]) -> None:
    for key in question.keys:
        for side in ("left", "right"):
            check_collation(frames[side], getattr(key, side), side)


def check_collation(frame: Frame, column: str, name: str) -> None:
    """Refuse a key that Spark would compare by other rules than its bytes."""
    kind = frame.fields[column].dataType
    if getattr(kind, "collation", "UTF8_BINARY") not in (None, "UTF8_BINARY"):
        raise InputError(
            f"{name}: column {column!r} is {kind.simpleString()}; keys are compared by their "
            "bytes, so give one with the collation UTF8_BINARY, such as lower(...) of it"
        )
