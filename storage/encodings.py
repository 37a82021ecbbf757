"""Encoded columns as plain values: dictionaries, runs and views, at any depth.

    dictionary<string>              string                 its values, taken by their numbers
    run_end_encoded<int64>          int64                  runs, written out
    string_view, binary_view        large_string, …        copied together
    list_view<…>, large_list_view   list<…>, large_list    copied together, in order
    list<…>, struct<…>, map<…>      the same, plain inside

Pages, kernels and most of Arrow's own functions take plain values only: it has no way to take,
filter or decode views, runs inside lists, or dictionaries of dictionaries, and its casts of list
views make lists whose last offset is missing (Arrow 26).  So rows are made plain once, where a side
takes them in, and what is plain already is not copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import arrow, as_numpy

_TESTS = pa.types
_SIMPLE = {
    data_type.id
    for data_type in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(),
        pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s"),
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1),
        pa.decimal128(1), pa.null(),
    )
}  # fmt: skip


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type that a column has once its values are plain.

    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string_view())))
    ListType(list<item: large_string>)
    """
    if data_type.id in _SIMPLE:  # most are, and a batch may have thousands of columns
        return data_type
    if _TESTS.is_dictionary(data_type) or _TESTS.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if _TESTS.is_string_view(data_type):
        return pa.large_string()
    if _TESTS.is_binary_view(data_type):
        return pa.large_binary()
    if isinstance(data_type, pa.BaseExtensionType):
        storage = plain_type(data_type.storage_type)
        return data_type if storage == data_type.storage_type else storage
    return _nested(data_type) if data_type.num_fields else data_type


def _nested(data_type: pa.DataType) -> pa.DataType:
    """A type of others, all of them plain."""
    fields = [data_type.field(at) for at in range(data_type.num_fields)]
    plain = [field.with_type(plain_type(field.type)) for field in fields]
    if _TESTS.is_list_view(data_type):
        return pa.list_(plain[0])
    if _TESTS.is_large_list_view(data_type):
        return pa.large_list(plain[0])
    if plain == fields:
        return data_type
    if _TESTS.is_struct(data_type):
        return pa.struct(plain)
    if _TESTS.is_map(data_type):
        key, item = plain[0].type.field(0), plain[0].type.field(1)
        return pa.map_(key, item, keys_sorted=data_type.keys_sorted)
    if _TESTS.is_fixed_size_list(data_type):
        return pa.list_(plain[0], data_type.list_size)
    if _TESTS.is_list(data_type):
        return pa.list_(plain[0])
    return pa.large_list(plain[0]) if _TESTS.is_large_list(data_type) else data_type


def result_type(data_type: pa.DataType) -> pa.DataType:
    """The type that a column has when it comes back: encodings with room for any number of values,
    where Arrow can make them of plain values."""
    plain = plain_type(data_type)
    if not _TESTS.is_nested(plain):
        if _TESTS.is_dictionary(data_type):
            return pa.dictionary(pa.int32(), plain)
        if _TESTS.is_run_end_encoded(data_type):
            return pa.run_end_encoded(pa.int32(), plain)
        if _TESTS.is_string_view(data_type) or _TESTS.is_binary_view(data_type):
            return data_type
    return plain


def is_plain(data_type: pa.DataType) -> bool:
    """Whether a page can hold the type as it is, all the way down."""
    if data_type.id in _SIMPLE:
        return True
    if plain_type(data_type) != data_type:
        return False
    return all(is_plain(data_type.field(i).type) for i in range(data_type.num_fields))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with plain types; itself where it has no others."""
    if all(map(is_plain, schema.types)):
        return schema
    return pa.schema([f.with_type(plain_type(f.type)) for f in schema], schema.metadata)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain values; itself where it has no others."""
    if all(map(is_plain, batch.schema.types)):
        return batch
    columns = [plain_array(column) for column in batch.columns]
    fields = [
        field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


def plain_array(column: pa.Array) -> pa.Array:
    """The column's values, plain; the column itself where they are.

    >>> plain_array(pa.array([["a"], None], pa.list_view(pa.string_view()))).to_pylist()
    [['a'], None]
    """
    kind = column.type
    wanted = plain_type(kind)
    if kind == wanted:
        return column
    if _TESTS.is_dictionary(kind):
        return plain_array(column.dictionary).take(column.indices)
    if _TESTS.is_run_end_encoded(kind):
        return _without_runs(column)
    if isinstance(column, pa.ExtensionArray):
        return plain_array(column.storage)
    if _TESTS.is_list_view(kind) or _TESTS.is_large_list_view(kind):
        return _in_order(column, wanted)
    if _TESTS.is_nested(kind):
        return _plain_inside(column, wanted)
    return column.cast(wanted)


def _without_runs(column: pa.Array) -> pa.Array:
    """Runs written out; of values that Arrow can't repeat, their numbers are repeated."""
    values = plain_array(column.values)
    numbers = arrow(np.arange(len(values), dtype=np.int64))
    runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, numbers)
    return values.take(pc.run_end_decode(runs.slice(column.offset, len(column))))


def _in_order(column: Any, wanted: pa.DataType) -> pa.Array:
    """A list of a list view, whose lists may lie in any order and share elements."""
    lengths = as_numpy(pc.list_value_length(column).fill_null(0)).astype(np.int64)
    kind = pa.ListArray if _TESTS.is_list(wanted) else pa.LargeListArray
    return _list(kind, column, wanted, np.cumsum(lengths), plain_array(column.flatten()))


def _list(kind: Any, column: pa.Array, wanted: pa.DataType, ends: Any, values: pa.Array) -> Any:
    offsets = np.concatenate(([0], ends)).astype(np.int32 if kind is pa.ListArray else np.int64)
    return kind.from_arrays(arrow(offsets), values, type=wanted, mask=_nulls(column))


def _plain_inside(column: Any, wanted: pa.DataType) -> pa.Array:
    if _TESTS.is_struct(wanted):
        fields = [wanted.field(at) for at in range(wanted.num_fields)]
        parts = [plain_array(column.field(at)) for at in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=_nulls(column))
    if _TESTS.is_fixed_size_list(wanted):
        size = wanted.list_size
        values = column.values.slice(column.offset * size, len(column) * size)
        return pa.FixedSizeListArray.from_arrays(
            plain_array(values), type=wanted, mask=_nulls(column)
        )
    offsets = as_numpy(column.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    if _TESTS.is_map(wanted):
        keys, items = (
            plain_array(part.slice(first, last - first)) for part in (column.keys, column.items)
        )
        return pa.MapArray.from_arrays(
            arrow(offsets - offsets[0]), keys, items, type=wanted, mask=_nulls(column)
        )
    kind = pa.ListArray if _TESTS.is_list(wanted) else pa.LargeListArray
    values = plain_array(column.values.slice(first, last - first))
    return _list(kind, column, wanted, offsets[1:] - offsets[0], values)


def _nulls(column: pa.Array) -> pa.Array | None:
    """Where a column is null; None: nowhere."""
    return pc.is_null(column) if column.null_count else None
