"""`matwin.spark.window_join`: N streams with a window for each pair, on DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from matwin.operators.wjoin.choose import choose
from matwin.operators.wjoin.cutting import halos_of, is_bounded
from matwin.operators.wjoin.join import window_options
from matwin.operators.wjoin.question import WindowQuestion
from matwin.storage.errors import InputError

from .exchange import Exchange, Route
from .frames import Frame, check_names, session_of
from .options import SparkOptions
from .prepared import Prepared
from .semijoin import shipped
from .sides import check_collation
from .task import MEMORY
from .work import Windows


def window_join(
    streams: Mapping[str, DataFrame],
    *,
    time: object,
    windows: object,
    by: object = None,
    where: object = None,
    algorithm: str = "auto",
    bounds: str = "auto",
    strips: object = None,
    ship: str = "auto",
    **options: Any,
) -> DataFrame:
    """`matwin.window_join` on Spark: DataFrames in, a DataFrame out that is not yet computed.

    `strips`, `ship` and `memory` are those of `matwin.spark.bestmatch_join`.
    """
    prepared = prepare_windows(
        streams, time=time, windows=windows, by=by, where=where, algorithm=algorithm,
        bounds=bounds, strips=strips, ship=ship, **options,
    )  # fmt: skip
    return shipped(prepared)


def prepare_windows(
    streams: object, *, time: object, windows: object, by: object = None, where: object = None,
    algorithm: str = "auto", bounds: str = "auto", strips: object = None, ship: str = "auto",
    **options: Any,
) -> Prepared:  # fmt: skip
    """The join as it is asked for; nothing has been looked at."""
    frames = _frames(streams)
    question = WindowQuestion.of(frames, time=time, windows=windows, by=by, where=where)
    choice = choose(algorithm, bounds, is_keyed=question.is_keyed, is_live=False)
    operator = "matwin.spark.window_join"
    chosen = SparkOptions.of(operator, strips, ship, options)
    window_options(operator, {"memory": MEMORY, **chosen.embedded}, question, choice)
    output = _output_type(question, frames)
    check_names(output.names, session_of(frames), "output")
    for name, keys in zip(frames, question.keys, strict=True):
        for key in keys:
            check_collation(frames[name], key, name)
    exchange = Exchange(
        {name: _route(question, number, frames[name]) for number, name in enumerate(frames)},
        question.time_type if is_bounded(question) else None,
        question.time_type,
    )
    unlimited = {name: value for name, value in options.items() if name != "max_output_rows"}
    arguments: dict[str, Any] = {
        "time": time, "windows": windows, "by": by, "where": where, "algorithm": algorithm,
        "bounds": bounds,
    }  # fmt: skip
    return Prepared(
        operator, frames, exchange, halos_of(question), Windows(), arguments,
        output, chosen,
        {name: _needed(question, number) for number, name in enumerate(frames)},
        lambda narrow: prepare_windows(narrow, **arguments, ship="full", **unlimited),
        partial(_renamed, question), Prepared.frame, question, can_sort=True,
    )  # fmt: skip


def _needed(question: WindowQuestion, number: int) -> tuple[str, ...]:
    """The columns of a stream that decide whether a row matches."""
    found = [*question.keys[number], question.times[number]]
    for predicate in question.predicates:
        found += [column for stream, column in predicate.columns if stream == number]
    return tuple(dict.fromkeys(found))


def _renamed(question: WindowQuestion, stream: str, column: str) -> str:
    number = question.names.index(stream)
    if column in question.keys[number]:
        return question.keys[0][question.keys[number].index(column)]
    return f"{stream}_{column}"


def _frames(streams: object) -> dict[str, Frame]:
    if not isinstance(streams, Mapping):
        raise InputError(
            f"streams is a {type(streams).__name__}; give a mapping, such as "
            "{'a': frame, 'b': frame}"
        )
    if len(streams) < 2:
        raise InputError(f"streams={list(streams)}: a window join needs at least two")
    for name in streams:
        if not isinstance(name, str) or not name:
            raise InputError(f"streams: {name!r} is no name; give text")
    return {name: Frame.of(frame, name) for name, frame in streams.items()}


def _route(question: WindowQuestion, number: int, frame: Frame) -> Route:
    side = question.sides[number]
    time = question.times[number]
    types = dict(zip(question.keys[number], question.key_types, strict=True))
    strip = time if is_bounded(question) else None
    own = frame.schema.field(side.given[0]).type
    return Route(frame, strip, time, types, {time: own})


def _output_type(question: WindowQuestion, frames: Mapping[str, Frame]) -> StructType:
    found = []
    for field, (number, column) in zip(question.schema, question.origins, strict=True):
        origin = frames[question.names[number]].fields[column]
        found.append(StructField(field.name, origin.dataType, field.nullable, origin.metadata))
    return StructType(found)
