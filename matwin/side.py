"""One side of a join: its rows as they are stored, and which of them can match at all.

    source batch ──prepare──▶ usable rows, plain, with hidden columns where the comparison needs
                              another type than the column has
                     └──────▶ rejected rows: a null, NaN or infinity to join by

Invariants: no row is lost between the two; every usable row has a value for every key and
attribute, in the type both sides are compared in; the user's columns are carried as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import (
    Bools,
    Int64s,
    cast_columns,
    compared_dtype,
    key_code,
    order_key,
    physical,
)
from matwin.storage.decimals import first_misfit, integers
from matwin.storage.encodings import plain_array
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension, Grid, Key
from matwin.storage.units import Counts

from .attributes import Attribute
from .question import Question

SIDES = ("left", "right")
ROW = "matwin row"
NOTES = "matwin notes"
ONE = "matwin one"
OWN = "matwin own"


@dataclass(frozen=True, slots=True)
class Hidden:
    """A column in the type of the comparison, made from one of another type."""

    name: str
    origin: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a question: its columns in store, and its grid."""

    name: str
    schema: pa.Schema
    stored: pa.Schema
    grid: Grid
    attributes: tuple[str | None, ...]
    """The stored column of each attribute; None where it is no number."""
    given: tuple[str, ...]
    """The user's column of each attribute."""
    keys: tuple[str, ...]
    hidden: tuple[Hidden, ...]
    has_row_numbers: bool
    marks_own: bool = False
    """Whether a copy of a row knows if it is in its own part."""

    @classmethod
    def of(cls, question: Question, name: str, *, row_numbers: bool = False) -> Side:
        """The `name` side (``"left"`` or ``"right"``) of a question."""
        schema: pa.Schema = getattr(question, name)
        hidden: list[Hidden] = []
        keys = [_stored(schema, getattr(pair, name), pair.type, hidden) for pair in question.keys]
        numbers = [a for a in question.attributes if a.is_number]
        columns: dict[int, str] = {}
        for a in numbers:
            stored = _stored(schema, getattr(a, name), a.type, hidden, taken=columns.values())
            columns[id(a)] = stored
        dimensions = [_dimension(columns[id(a)], a) for a in numbers]
        fields = [*schema, *(pa.field(h.name, compared_dtype(h.type)) for h in hidden)]
        if not dimensions:
            fields.append(pa.field(ONE, pa.int64()))
            dimensions = [Dimension(ONE, None, None, 0)]
        if row_numbers:
            fields.append(pa.field(ROW, pa.int64()))
        if question.how == "full":
            fields.append(pa.field(OWN, pa.int8()))
        return cls(
            name, schema, pa.schema(fields), Grid(tuple(map(Key, keys)), tuple(dimensions)),
            tuple(columns.get(id(a)) for a in question.attributes),
            tuple(getattr(a, name) for a in question.attributes),
            tuple(keys), tuple(hidden), row_numbers, question.how == "full",
        )  # fmt: skip

    @classmethod
    def of_stream(
        cls, name: str, schema: pa.Schema, *, time: tuple[str, pa.DataType], width: int | float,
        keys: list[tuple[str, pa.DataType]],
    ) -> Side:  # fmt: skip
        """A stream of a window join, ordered by its time; `width` is that of its window."""
        hidden: list[Hidden] = []
        stored = [_stored(schema, key, key_type, hidden) for key, key_type in keys]
        column = _stored(schema, *time, hidden)
        dimension = Dimension.of(pa.field(column, time[1]), Counts(-width, width))
        return cls(
            name, schema,
            pa.schema([*schema, *(pa.field(h.name, compared_dtype(h.type)) for h in hidden)]),
            Grid(tuple(map(Key, stored)), (dimension,)), (column,), (time[0],), tuple(stored),
            tuple(hidden), False,
        )  # fmt: skip

    def with_notes(self) -> Side:
        """The side with a column more: a list of numbers for each row."""
        stored = self.stored.append(pa.field(NOTES, pa.large_list(pa.int64())))
        return replace(self, stored=stored)

    @property
    def order_field(self) -> pa.Field:
        """The stored column of the order attribute, with the type in which it is compared."""
        stored = self.stored.field(self.grid.order.name)
        types = {h.name: h.type for h in self.hidden}
        return stored.with_type(types.get(stored.name, stored.type))

    def prepare(
        self, batch: pa.RecordBatch, first_row: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None, Int64s | None]:
        """The usable rows as stored, the rejected ones as they came (None: there are none), and
        the usable rows' numbers where some were rejected."""
        is_plain = batch.schema.equals(self.schema)
        plain = batch if is_plain else cast_columns(batch, self.schema)
        usable = self._usable(plain)
        if usable is None:
            return self._stored_rows(plain, first_row, None), None, None
        kept = np.flatnonzero(usable)
        rows = plain.filter(arrow(usable))
        rejected = plain.filter(arrow(~usable))
        if self.has_row_numbers:  # whoever puts results in order needs theirs too
            numbers = arrow(np.flatnonzero(~usable) + first_row)
            rejected = rejected.append_column(pa.field(ROW, pa.int64()), numbers)
        return self._stored_rows(rows, first_row, kept), rejected, kept + first_row

    def rejected(self, rows: pa.RecordBatch) -> int:
        """How many rows can match nothing."""
        usable = self._usable(rows)
        return 0 if usable is None else int(len(usable) - np.count_nonzero(usable))

    def _usable(self, batch: pa.RecordBatch) -> Bools | None:
        """Which rows have a value for everything; None when all have."""
        names = {*self.given, *(h.origin for h in self.hidden)}
        names |= {key for key in self.keys if key in self.schema.names}
        mask: Bools | None = None
        for name in sorted(names):
            valid = _has_value(batch.column(name))
            if valid is not None:
                mask = valid if mask is None else mask & valid
        return mask

    def _stored_rows(
        self, rows: pa.RecordBatch, first_row: int, kept: Int64s | None
    ) -> pa.RecordBatch:
        if len(self.stored) == len(self.schema):
            return rows
        columns = list(rows.columns)
        for h in self.hidden:
            columns.append(self._converted(rows.column(h.origin), h, first_row, kept))
        if ONE in self.stored.names:
            columns.append(arrow(np.zeros(rows.num_rows, np.int64)))
        if self.has_row_numbers:
            # One array, made once: two took 13 ms of an as-of join of 1M rows a side, one takes 6.
            last = first_row + rows.num_rows
            numbers = np.arange(first_row, last) if kept is None else kept + first_row
            columns.append(arrow(numbers))
        if self.marks_own:
            columns.append(arrow(np.ones(rows.num_rows, np.int8)))
        return pa.RecordBatch.from_arrays(columns, schema=self.stored)

    def _converted(
        self, column: pa.Array, h: Hidden, first_row: int, kept: Int64s | None
    ) -> pa.Array:
        try:
            return converted(column, h.type)
        except pa.ArrowInvalid as e:
            at = _first_failure(column, h.type)
            row = first_row + (at if kept is None else int(kept[at]))
            raise InputError(
                f"{self.name}: column {h.origin!r}, row {row}: the value does not fit {h.type}, "
                f"in which both sides are compared ({e}); cast or filter it first"
            ) from e

    def origin(self, stored: str) -> str:
        """The user's column that a stored one is made of."""
        return next((h.origin for h in self.hidden if h.name == stored), stored)

    def some_stored(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Stored columns of rows that have only some of the user's; rows without a value in one of
        them are left out."""
        types = {h.name: h.type for h in self.hidden}
        columns = [rows.column(self.origin(name)) for name in names]
        plain = [plain_array(column) for column in columns]
        masks = [mask for column in plain if (mask := _has_value(column)) is not None]
        usable = None if not masks else arrow(np.logical_and.reduce(masks))
        found = []
        for name, column in zip(names, plain, strict=True):
            column = column if usable is None else column.filter(usable)
            found.append(converted(column, types[name]) if name in types else column)
        return pa.RecordBatch.from_arrays(found, names=list(names))

    def order_keys(self, rows: pa.RecordBatch) -> Int64s:
        """The order attribute of stored rows as order keys."""
        return order_key(rows.column(self.grid.order.name))

    def exact_keys(self, rows: pa.RecordBatch) -> list[Int64s]:
        """Numbers that are equal where the equality keys are.

        A cell is the key's first hash; this is a second one, so that two different texts would
        have to agree in 128 bits to be taken for equal.  Numbers are exact.
        """
        return [key_code(rows.column(key), key, salt=1) for key in self.keys]


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column as what is stored where both sides are compared as a type; `pa.ArrowInvalid` for a
    value that does not fit."""
    if not pa.types.is_decimal(wanted):
        return column.cast(wanted)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    counts, fits = integers(column, wanted.scale)
    at = first_misfit(column, wanted.scale)
    if at is not None:
        raise pa.ArrowInvalid(f"{column[at]} with {wanted.scale} digits is beyond 64 bits")
    return pa.array(counts, mask=~fits) if column.null_count else arrow(counts)


def own_rows(rows: pa.RecordBatch) -> Bools:
    """Which rows are in their own part."""
    own: Bools = physical(rows.column(OWN))[0] != 0
    return own


def _stored(
    schema: pa.Schema, name: str, wanted: pa.DataType, hidden: list[Hidden],
    taken: Collection[str] = (),
) -> str:  # fmt: skip
    """The column that holds the values in the wanted type: itself, or a hidden one.

    A column that is compared a second time is stored a second time.
    """
    if not _needs_cast(schema.field(name).type, wanted) and name not in taken:
        return name
    own = f"matwin {name}"
    while own in (h.name for h in hidden):
        own += "'"
    hidden.append(Hidden(own, name, wanted))
    return own


def _needs_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the numbers of a column are not those of the common type."""
    tests = pa.types
    if tests.is_null(found):
        return not tests.is_null(wanted)
    if tests.is_decimal(wanted):
        return True
    if tests.is_floating(found) or not pa.types.is_primitive(found):
        return False
    if tests.is_integer(found) and tests.is_integer(wanted):
        return bool((found == pa.uint64()) != (wanted == pa.uint64()))
    if tests.is_timestamp(found) and tests.is_timestamp(wanted):
        return bool(found.unit != wanted.unit)
    return bool(found != wanted)


def _dimension(column: str, attribute: Attribute) -> Dimension:
    return Dimension.of(pa.field(column, attribute.type), attribute.limits)


def _has_value(column: pa.Array) -> Bools | None:
    """Where a column is not null, NaN or infinite; None: everywhere."""
    if pa.types.is_floating(column.type):
        values, valid = physical(column)
        good = np.isfinite(values)
        good = good if valid is None else good & valid
        return None if good.all() else good
    if column.null_count == 0:
        return None
    there: Bools = as_numpy(pc.is_valid(column))
    return there


def _first_failure(column: pa.Array, wanted: pa.DataType) -> int:
    """The first value that can't be cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            converted(column.slice(low, middle - low), wanted)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
