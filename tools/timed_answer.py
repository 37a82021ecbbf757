"""DuckDB's answer to a fixed window join: its question asked anew at every time at which rows come.

    times      1    4    9             every distinct time of either side, spaced by `every`
    rows       those in t - period … t, once for each time t that they count at
                   │
    DuckDB     one question of all of them; rows of one time are a group

A row stands there once for each time that it counts at, which is for small tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.fixed import EVALUATED_AT
from matwin.question import Question
from matwin.storage.columns import Int64s, comparable
from matwin.storage.decimals import decimals

from .answer import Answer, Groups, as_common, ordered_answer
from .verify_question import Timed

Times = npt.NDArray[Any]


def timed_answer(left: pa.Table, right: pa.Table, question: Question, timed: Timed) -> Answer:
    """The answer at each time, with a column of the times first."""
    order = timed.question.order
    columns = [
        as_common(table[name].combine_chunks(), name, order.type)
        for table, name in ((left, order.left), (right, order.right))
    ]
    times, are_there = zip(*map(_times, columns), strict=True)
    everywhere = np.concatenate(times), np.concatenate(are_there)
    when = list(_evaluated(*everywhere, timed))
    counting = [at for at, _ in when]
    indices, groups = zip(
        *(
            _members(own, there, counting, timed)
            for own, there in zip(times, are_there, strict=True)
        ),
        strict=True,
    )
    answer = ordered_answer(
        left.take(pa.array(indices[0])), right.take(pa.array(indices[1])), question,
        groups=Groups(*groups),
    )  # fmt: skip
    assert answer.groups is not None
    places = np.array([place for _, place in when], np.int64)[answer.groups]
    shown = pa.concat_arrays(columns).take(pa.array(places))
    if pa.types.is_decimal(order.type):
        shown = decimals(np.asarray(shown), order.type.scale)
    field = pa.field(EVALUATED_AT, shown.type, nullable=False)
    schema = pa.schema([field, *answer.rows.schema])
    return Answer(pa.table([shown, *answer.rows.columns], schema=schema), answer.places)


def _times(column: pa.Array) -> tuple[Times, npt.NDArray[np.bool_]]:
    """Times as numbers, and which rows have one."""
    values, valid = comparable(column)
    is_there = np.ones(len(values), np.bool_) if valid is None else valid
    if values.dtype == np.float64:
        is_there = is_there & np.isfinite(values)
        values = values + 0.0
    return values, is_there


def _evaluated(times: Times, are_there: npt.NDArray[np.bool_], timed: Timed) -> Iterator[Any]:
    """The times of evaluations as Python's numbers, and where each stands."""
    places = np.flatnonzero(are_there)
    distinct, first = np.unique(times[places], return_index=True)
    last = None
    for at, place in zip(distinct.tolist(), places[first].tolist(), strict=True):
        if last is None or at - last >= timed.clock.every:
            yield at, place
            last = at


def _members(
    times: Times, are_there: npt.NDArray[np.bool_], when: list[Any], timed: Timed
) -> tuple[Int64s, Int64s]:
    """The rows that count at each time, one time after the other, and the time's number."""
    found, period = [np.empty(0, np.int64)], timed.clock.period
    for at in when:
        counts = are_there & (times <= at)
        if times.dtype == np.float64:
            counts &= at - times <= period
        else:
            counts &= times >= max(at - int(period), int(np.iinfo(times.dtype).min))
        found.append(np.flatnonzero(counts))
    numbers = np.repeat(np.arange(len(found)) - 1, [len(rows) for rows in found])
    return np.concatenate(found), numbers
