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

from matwin.storage.arrays import arrow
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

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The left and the right columns that come out."""
        return self._left_columns, self._right_columns

    def _measures(self) -> list[tuple[str, str, Distances]]:
        """The columns that a distance is of, and what makes it of them."""
        found = []
        for at, attribute in enumerate(self._question.attributes):
            measure = attribute.order.measure
            if measure is not None and attribute.is_measured:
                ours = self._left.attributes[at] or attribute.left
                theirs = self._right.attributes[at] or attribute.right
                field = pa.field(attribute.name, attribute.type)
                found.append((ours, theirs, measure.distances(field)))
        return found

    def pairs(
        self, left: pa.RecordBatch, left_at: Int64s | slice, right: pa.RecordBatch,
        right_at: Int64s | pa.Array,
    ) -> pa.RecordBatch:  # fmt: skip
        """A row for each pair of row numbers; a null in place of a right one is nobody.  A slice
        of the left rows shares their memory."""
        columns = [
            _cast(column, field.type)
            for column, field in zip(
                taken(left.select(self._left_columns), left_at).columns, self.schema, strict=False
            )
        ]
        columns += taken(right.select(self._right_columns), right_at).columns
        for name, other, distances in self._distances_of:
            a = taken(left.select([name]), left_at).column(0)
            b = taken(right.select([other]), right_at).column(0)
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


def taken(rows: pa.RecordBatch, at: Int64s | slice | pa.Array) -> pa.RecordBatch:
    """These of the rows, all columns in one call: one by one takes three times as long where they
    are many."""
    if isinstance(at, slice):
        return rows.slice(at.start, at.stop - at.start)
    at = at if isinstance(at, pa.Array) else arrow(at)
    return pc.take(rows, at, boundscheck=False)
