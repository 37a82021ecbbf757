"""`matwin.spark.bestmatch_join` and `epsilon_join`: the joins of two sides on DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from matwin.attributes import Attribute
from matwin.cutting import halos_of
from matwin.full import has_black_boxes
from matwin.question import Question
from matwin.storage.units import Tolerance
from matwin.ties import Ties

from .exchange import Order
from .frames import Frame
from .inner import best_of_all
from .options import SparkOptions
from .order import order_columns
from .prepared import Prepared
from .semijoin import shipped
from .sides import Asking, prepared_of, two_frames
from .work import Bestmatch, Epsilon


def bestmatch_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Mapping[Any, Tolerance],
    how: str = "left",
    by: object = None,
    orders: Mapping[Any, object] | None = None,
    where: Mapping[Any, Any] | None = None,
    ties: object = "all",
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

    Rows of a DataFrame have no order: ``ties="first"`` and ``"last"`` are by the first attribute
    and then by all columns of the other side, ascending.
    """
    prepared = prepare_bestmatch(
        left, right, on=on, how=how, by=by, orders=orders, where=where, ties=ties,
        keep_unmatched=keep_unmatched, suffixes=suffixes, distances=distances, strips=strips,
        ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def epsilon_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Mapping[Any, Tolerance],
    by: object = None,
    where: Mapping[Any, Any] | None = None,
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
        left, right, on=on, by=by, where=where, how=how, suffixes=suffixes, distances=distances,
        strips=strips, ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def prepare_bestmatch(
    left: object, right: object, *, strips: object = None, ship: str = "auto",
    ties: object = "all", **given: Any,
) -> Prepared:  # fmt: skip
    """The join as it is asked for; nothing has been looked at."""
    more = ("how", "by", "orders", "where", "keep_unmatched")
    arguments, options = _divided(given, more, how="left")
    frames = two_frames(left, right)
    question = _question(frames, arguments, best=True)
    ties = list(ties) if isinstance(ties, tuple) else ties
    kept = Ties.of(ties, question)
    order = None if kept.end is None else _order(question, frames, ties)
    chosen = SparkOptions.of("matwin.spark.bestmatch_join", strips, ship, options)
    is_inner = question.how == "inner"
    if is_inner and has_black_boxes(question):
        chosen = replace(chosen, strips=1)  # only whoever sees all pairs can judge them
    strip = _strip_attribute(question)
    return prepared_of(
        "bestmatch_join", frames, question, chosen, arguments,
        _asking_of(question, arguments, options), partial(Bestmatch, ties=ties),
        strip=strip, halos=halos_of(question, strip), order=order,
        finish=best_of_all if is_inner else Prepared.frame,
    )  # fmt: skip


def prepare_epsilon(
    left: object, right: object, *, strips: object = None, ship: str = "auto", **given: Any
) -> Prepared:
    """The join as it is asked for; nothing has been looked at."""
    arguments, options = _divided(given, ("how", "by", "where"), how="inner")
    frames = two_frames(left, right)
    question = _question(frames, arguments, best=False)
    strip = _strip_attribute(question)
    return prepared_of(
        "epsilon_join", frames, question,
        SparkOptions.of("matwin.spark.epsilon_join", strips, ship, options), arguments,
        _asking_of(question, arguments, options), Epsilon,
        strip=strip, halos=halos_of(question, strip),
    )  # fmt: skip


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


def _question(frames: dict[str, Frame], arguments: dict[str, Any], *, best: bool) -> Question:
    return Question.of(frames["left"].schema, frames["right"].schema, best=best, **arguments)


def _order(question: Question, frames: dict[str, Frame], ties: object) -> Order:
    """The order of the side that the matches are of."""
    side = "right" if question.how == "left" else "left"
    return Order(side, order_columns(frames[side], getattr(question.order, side), ties))


def _asking_of(
    question: Question, arguments: dict[str, Any], options: dict[str, Any]
) -> Asking | None:
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
        asked["where"] = arguments.get("where")
    return lambda frames: prepare(frames["left"], frames["right"], ship="full", **asked, **options)


def _strip_attribute(question: Question) -> Attribute | None:
    """The attribute that strips are cut by: the first with a tolerance on both sides."""
    return next((a for a in question.attributes if a.is_number and a.is_limited), None)
