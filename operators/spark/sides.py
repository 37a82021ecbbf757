"""What the joins of two sides share on Spark: a question on two frames, as what is prepared.

Which side is the anchor, so that each match is owned by one part: `matwin.cutting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from matwin.attributes import Attribute
from matwin.cutting import Halos
from matwin.question import Question
from matwin.storage.errors import InputError

from .cut import quoted
from .exchange import Exchange, Order, Route
from .frames import Frame, check_names, output_type, session_of
from .options import SparkOptions
from .prepared import Prepared, helper_names
from .task import Work

Asking = Callable[[Mapping[str, DataFrame]], Prepared]


def two_frames(left: object, right: object) -> dict[str, Frame]:
    """Both sides by name."""
    return {"left": Frame.of(left, "left"), "right": Frame.of(right, "right")}


def prepared_of(
    operator: str, frames: dict[str, Frame], question: Question, options: SparkOptions,
    arguments: dict[str, Any], asking: Asking | None, work: Callable[..., Work], *,
    strip: Attribute | None, halos: Halos, order: Order | None = None,
    finish: Callable[[Prepared], DataFrame] = Prepared.frame,
) -> Prepared:  # fmt: skip
    """The join as it is asked for; nothing has been looked at.

    `work` is given the columns that mark a row's own copy, or None.
    """
    for key in question.keys:
        for side in frames:
            check_collation(frames[side], getattr(key, side), side)
    needed = {side: _needed(question, side) for side in frames}
    if not question.has_right:  # nobody wants its other columns
        columns = [F.col(quoted(column)) for column in needed["right"]]
        frames["right"] = Frame.of(frames["right"].frame.select(*columns), "right")
    output = output_type(question, frames)
    check_names(output.names, session_of(frames), "output")
    exchange = Exchange(
        {side: _route(question, side, frames[side], strip) for side in frames},
        strip.type if strip else None,
        question.order.type if _is_streamed(question) else None,
        marks_own=question.how == "full",
        order=order,
    )
    own = helper_names("own", frames, question.suffixes) if exchange.marks_own else None
    names = dict(zip(("left", "right"), question.output_names(), strict=True))
    return Prepared(
        f"matwin.spark.{operator}", frames, exchange, halos, work(own), arguments, output, options,
        needed, asking, lambda side, column: names[side].get(column, column), finish, question,
        may_salt=question.how != "full",
    )  # fmt: skip


def _needed(question: Question, side: str) -> tuple[str, ...]:
    """The columns that decide whether a row matches."""
    found = [getattr(one, side) for one in (*question.keys, *question.attributes)]
    return tuple(dict.fromkeys(found))


def _is_streamed(question: Question) -> bool:
    """Whether sorted rows are of use: what has no limit on both sides is final at the end only."""
    return question.order.is_number and question.order.is_limited


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


def check_collation(frame: Frame, column: str, name: str) -> None:
    """Refuse a key that Spark would compare by other rules than its bytes."""
    kind = frame.fields[column].dataType
    if getattr(kind, "collation", "UTF8_BINARY") not in (None, "UTF8_BINARY"):
        raise InputError(
            f"{name}: column {column!r} is {kind.simpleString()}; keys are compared by their "
            "bytes, so give one with the collation UTF8_BINARY, such as lower(...) of it"
        )
