"""Two tables as bags of rows: what is missing, what is too much, and how often.

    column  ──▶  a code for each value, the same for equal values of both tables
    codes of all columns  ──▶  a code for each row  ──▶  how often here, how often there

NaN equals NaN, -0.0 equals 0.0 and null equals null; the order of rows does not matter.  The codes
are exact (dictionaries, no hashes), and NumPy makes them for whole columns; only lists and rare
types take a step of Python for each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.result import Result
from matwin.storage.columns import Int64s, is_temporal, stored_dtype
from matwin.storage.names import listed
from matwin.text import cut, escaped, table

ROWS_SHOWN = 8
CELL_WIDTH = 28


@dataclass(frozen=True, slots=True)
class Difference:
    """How one bag of rows differs from another.

    `missing` and `extra` count rows with their multiplicity; the examples hold some of them, once
    each, with how often they are missing or too much.  `misplaced` counts rows that are right but
    not where they should stand.  `columns` says in which way the columns differ; then no row has
    been compared.
    """

    missing: int = 0
    extra: int = 0
    missing_examples: pa.Table | None = None
    extra_examples: pa.Table | None = None
    columns: str = ""
    misplaced: int = 0
    misplaced_examples: pa.Table | None = None

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.columns or self.misplaced)

    def __str__(self) -> str:
        if not self:
            return "no difference"
        parts = [f"the columns differ: {self.columns}"] if self.columns else []
        for word, count, rows in (
            ("missing", self.missing, self.missing_examples),
            ("extra", self.extra, self.extra_examples),
            ("out of order", self.misplaced, self.misplaced_examples),
        ):
            if count and rows is not None:
                parts.append(f"{count:,} {word}:\n{shown(rows)}")
        return "\n\n".join(parts)


def compare(
    ours: Result | pa.Table, theirs: pa.Table, *, cast: bool = False,
    weights: Int64s | None = None, places: Int64s | None = None,
) -> Difference:  # fmt: skip
    """How `ours` differs from `theirs`, as bags of rows.

    With `cast` our columns are first brought to their types, as for a file whose format has fewer
    types than Arrow.  `weights` says how often each of our rows counts, -1 being a row withdrawn.
    Where `places`, the ascending places of their rows, are given, our rows stand in their order;
    those of one place in any.
    """
    ours = ours.to_arrow() if isinstance(ours, Result) else ours
    if cast and ours.schema.names == theirs.schema.names:
        ours = _cast(ours, theirs.schema)
    columns = _columns_differ(ours.schema, theirs.schema)
    if columns:
        return Difference(columns=columns)
    codes = row_codes(ours, theirs)
    found, wanted = codes[: ours.num_rows], codes[ours.num_rows :]
    counts = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.add.at(counts, found, 1 if weights is None else weights)
    np.subtract.at(counts, wanted, 1)
    missing, extra = -counts[counts < 0].sum(), counts[counts > 0].sum()
    if missing or extra:
        return Difference(
            int(missing), int(extra),
            _examples(theirs, wanted, -counts), _examples(ours, found, counts),
        )  # fmt: skip
    return Difference() if places is None else _order_differs(ours, found, wanted, places)


def _order_differs(ours: pa.Table, found: Int64s, wanted: Int64s, places: Int64s) -> Difference:
    """Which rows stand elsewhere, both bags being equal.

    The n-th row has to be one of those of the n-th place; which of equal rows it is does not show.
    """
    codes = _combined(np.tile(places, 2), np.concatenate([found, wanted]))
    counts = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.add.at(counts, codes[: len(found)], 1)
    np.subtract.at(counts, codes[len(found) :], 1)
    misplaced = int(counts[counts > 0].sum())
    if not misplaced:
        return Difference()
    examples = _examples(ours, codes[: len(found)], counts)
    return Difference(misplaced=misplaced, misplaced_examples=examples)


def _columns_differ(ours: pa.Schema, theirs: pa.Schema) -> str:
    if ours.names != theirs.names:
        return f"{listed(ours.names)} and {listed(theirs.names)}"
    return ", ".join(
        f"{a.name!r} is {a.type} and should be {b.type}"
        for a, b in zip(ours, theirs, strict=True)
        if a.type != b.type
    )


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        column = rows[field.name]
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            columns.append(column)  # told as a difference of the columns
    return pa.table(columns, schema.names)


def _examples(rows: pa.Table, codes: Int64s, counts: Int64s) -> pa.Table:
    """The first rows whose code counts, once each, with that count."""
    wanted = np.flatnonzero(counts[codes] > 0)
    _, first = np.unique(codes[wanted], return_index=True)
    places = wanted[np.sort(first)[:ROWS_SHOWN]]
    return rows.take(pa.array(places)).append_column(
        _free("times", rows.column_names), pa.array(counts[codes[places]])
    )


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"{name}_"
    return name


# ── codes ────────────────────────────────────────────────────────────────────────────────────


def row_codes(first: pa.Table, second: pa.Table) -> Int64s:
    """A number for each row of both tables, one after the other; equal rows have equal numbers."""
    rows = first.num_rows + second.num_rows
    codes = np.zeros(rows, np.int64)
    for a, b in zip(first.columns, second.columns, strict=True):
        codes = _combined(codes, value_codes(_joined(a, b)))
    return codes


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    chunks = [*first.chunks, *second.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], first.type)


def _combined(first: Int64s, second: Int64s) -> Int64s:
    width = int(second.max(initial=0)) + 1
    if (int(first.max(initial=0)) + 1) * width > 2**62:
        first, second = _dense(first), _dense(second)
        width = int(second.max(initial=0)) + 1
    return _dense(first * width + second)


def _dense(codes: npt.NDArray[np.int64]) -> Int64s:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)


def value_codes(column: pa.Array) -> Int64s:
    """A number for each value, the same for equal values; 0 is null.

    >>> value_codes(pa.array([0.0, None, -0.0, 1.5])).tolist()
    [1, 0, 1, 2]
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = pa.types
    if kind.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if kind.is_struct(column.type):
        codes = _struct_codes(column)
    elif kind.is_map(column.type) or kind.is_list(column.type) or kind.is_large_list(column.type):
        codes = _list_codes(column)
    elif kind.is_fixed_size_list(column.type):
        return value_codes(column.cast(pa.list_(column.type.value_field)))
    else:
        codes = _flat_codes(column)
    if column.null_count == 0:
        return codes + 1
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), codes + 1, 0)


def _struct_codes(column: pa.StructArray) -> Int64s:
    codes = np.zeros(len(column), np.int64)
    for part in column.flatten():
        codes = _combined(codes, value_codes(part))
    return codes


def _list_codes(column: pa.ListArray) -> Int64s:
    offsets = np.asarray(column.offsets)
    values = value_codes(_elements(column)) if len(column) else np.zeros(0, np.int64)
    seen: dict[bytes, int] = {}
    found = [
        seen.setdefault(values[start:stop].tobytes(), len(seen))
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    return np.array(found, np.int64)


def _elements(column: pa.ListArray) -> pa.Array:
    if pa.types.is_map(column.type):
        return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    return column.values


def _flat_codes(column: pa.Array) -> Int64s:
    if pa.types.is_floating(column.type):
        column = _same_zeros(column)
    elif is_temporal(column.type):
        column = column.view(pa.from_numpy_dtype(stored_dtype(column.type)))
    try:
        encoded = pc.dictionary_encode(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return _python_codes(column)
    if len(column) == column.null_count:
        return np.zeros(len(column), np.int64)
    codes: Int64s = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _same_zeros(column: pa.Array) -> pa.Array:
    """The bits of the floats, with one zero and one NaN."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    return pa.array(np.where(np.isnan(values), np.nan, values).view(np.int64))


def _python_codes(column: pa.Array) -> Int64s:
    seen: dict[str, int] = {}
    found = [seen.setdefault(repr(value), len(seen)) for value in column]
    return np.array(found, np.int64)


# ── showing ──────────────────────────────────────────────────────────────────────────────────


def shown(rows: pa.Table) -> str:
    """Rows as a table for a terminal."""
    cells = [[_cell(value) for value in column] for column in rows.columns]
    head = [cut(escaped(name), CELL_WIDTH) for name in rows.column_names]
    align = "".join(">" if pa.types.is_primitive(f.type) else "<" for f in rows.schema)
    return table(head, [list(row) for row in zip(*cells, strict=True)], align)


def _cell(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "null"
    try:
        text = str(value.as_py())
    except (ValueError, OverflowError):  # nanoseconds, and years that datetime does not have
        text = f"{value.cast(pa.int64()).as_py()} {value.type}"
    return cut(escaped(text), CELL_WIDTH)
