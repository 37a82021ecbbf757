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

from matwin.storage.columns import Int64s, comparable, is_numeric

from .orders.base import Distances
from .question import Question
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
        self._distances_of = self._measures() if question.distances else []

    def _measures(self) -> list[tuple[str, str, Distances]]:
        """The columns that a distance is of, and what makes it of them."""
        found = []
        for at, attribute in enumerate(self._question.attributes):
            measure = attribute.order.measure
            if measure is not None:
                ours = self._left.attributes[at] or attribute.left
                theirs = self._right.attributes[at] or attribute.right
                field = pa.field(attribute.name, attribute.type)
                found.append((ours, theirs, measure.distances(field)))
        return found

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
        for name, other, distances in self._distances_of:
            a, b = _taken(left, name, ours), _taken(right, other, theirs)
            columns.append(distances(_values(a), _values(b)))
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


def _values(column: pa.Array) -> Any:
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
