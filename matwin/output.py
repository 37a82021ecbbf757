"""Output rows: pairs gathered into batches that own their memory.

    left rows  ──take──▶ left columns  ┐
    right rows ──take──▶ right columns ┼─▶ one record batch, with distances where asked for
    unmatched rows, nulls beside them  ┘

Every batch has the same schema, `Question.schema`, and at most `BATCH_ROWS` rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.columns import Int64s, comparable, is_numeric, stored_dtype
from matwin.storage.errors import InputError

from .attributes import Attribute
from .functions import PairFunction
from .orders import Minimize, Youngest
from .question import Question, distance_type
from .side import Side

BATCH_ROWS = 1 << 16


class Output:
    """How pairs of rows become output rows."""

    def __init__(self, question: Question, sides: dict[str, Side]) -> None:
        self.schema = question.schema
        self._question = question
        self._left, self._right = sides["left"], sides["right"]
        left_names, right_names = question.output_names()
        self._left_columns = list(left_names)
        self._right_columns = list(right_names)
        self._functions = {
            a.name: PairFunction(a.order.function)
            for a in question.measured
            if isinstance(a.order, Minimize)
        }

    def pairs(
        self, left: pa.RecordBatch, left_at: Int64s, right: pa.RecordBatch, right_at: Int64s
    ) -> pa.RecordBatch:
        """A row for each pair of row numbers."""
        ours, theirs = pa.array(left_at), pa.array(right_at)
        columns = [
            _cast(column, field.type)
            for column, field in zip(
                _all_taken(left, self._left_columns, ours), self.schema, strict=False
            )
        ]
        columns += _all_taken(right, self._right_columns, theirs)
        if self._question.distances:
            columns += self._distances(left, ours, right, theirs)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def unmatched(self, side: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A row for each row of one side, with nulls for the other."""
        shared = self._question.shared_keys
        columns: list[pa.Array] = []
        for field, name in zip(self.schema, self._origins(), strict=True):
            origin, column = name
            is_there = origin == side or (column in shared and side == "right")
            if is_there and column is not None:
                columns.append(_cast(rows.column(column), field.type))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _origins(self) -> list[tuple[str, str | None]]:
        origins: list[tuple[str, str | None]] = [("left", name) for name in self._left_columns]
        origins += [("right", name) for name in self._right_columns]
        return origins + [("", None)] * (len(self.schema) - len(origins))

    def _distances(
        self, left: pa.RecordBatch, left_at: pa.Array, right: pa.RecordBatch, right_at: pa.Array
    ) -> list[pa.Array]:
        columns = []
        for at, attribute in enumerate(self._question.attributes):
            if attribute not in self._question.measured:
                continue
            ours = self._left.attributes[at] or attribute.left
            theirs = self._right.attributes[at] or attribute.right
            a, b = _taken(left, ours, left_at), _taken(right, theirs, right_at)
            columns.append(self._distance(attribute, a, b))
        return columns

    def _distance(self, attribute: Attribute, left: pa.Array, right: pa.Array) -> pa.Array:
        if isinstance(attribute.order, Minimize):
            values = self._functions[attribute.name](*map(_numbers, (left, right)))
            return pa.array(values)
        a, b = comparable(left)[0], comparable(right)[0]
        if isinstance(attribute.order, Youngest):
            younger = np.maximum(a, b).astype(stored_dtype(attribute.type))
            return pa.array(younger).cast(attribute.type)
        if a.dtype == np.float64:
            with np.errstate(over="ignore"):  # farther apart than floats go: infinitely
                return pa.array(np.abs(b - a))
        apart = np.where(a > b, a, b).view(np.uint64) - np.where(a > b, b, a).view(np.uint64)
        return _as_distance(apart, attribute)


def _as_distance(apart: Any, attribute: Attribute) -> pa.Array:
    wanted = distance_type(attribute)
    if pa.types.is_integer(wanted):
        return pa.array(apart)
    if len(apart) and int(apart.max()) > 2**63 - 1:
        raise InputError(
            f"a distance in {attribute.name!r} does not fit {wanted}; leave out distances=True, or "
            "cast the column to a coarser unit"
        )
    if pa.types.is_date32(attribute.type):
        apart = apart * np.uint64(86400)
    return pa.array(apart.view(np.int64)).cast(wanted)


def _numbers(column: pa.Array) -> Any:
    if is_numeric(column.type):
        return comparable(column)[0]
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _all_taken(rows: pa.RecordBatch, names: list[str], at: pa.Array) -> list[pa.Array]:
    """Columns at these rows, in one call: one by one takes three times as long where they are
    many."""
    taken: pa.RecordBatch = pc.take(rows.select(names), at, boundscheck=False)
    return taken.columns  # type: ignore[no-any-return]


def _taken(rows: pa.RecordBatch, name: str, at: pa.Array) -> pa.Array:
    return pc.take(rows.column(name), at, boundscheck=False)
