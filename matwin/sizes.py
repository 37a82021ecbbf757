"""What rows take once their values are plain: dictionaries, views and runs are decoded later."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import Int64s, physical
from matwin.storage.encodings import is_plain

BINARIES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip
LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view,
)  # fmt: skip
OFFSET = 8
_LARGE = {
    data_type.id
    for data_type in (pa.large_string(), pa.large_binary(), pa.large_list(pa.int8()))
}  # fmt: skip
_FIXED = {
    data_type.id
    for data_type in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64(),
        pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s"),
    )
}  # fmt: skip
FEW_COLUMNS = 100
COLUMN_BYTES = 400
"""What Arrow takes for a column of a batch, however few rows it has: 340 to 540, measured."""


def column_bytes(columns: int) -> int:
    """What the columns of a batch take by themselves, where there are many: a batch of 10,000 takes
    4 MB even if it is empty."""
    return COLUMN_BYTES * max(columns - FEW_COLUMNS, 0)


def batch_bytes(rows: pa.RecordBatch) -> int:
    """The bytes of rows whose values are plain, and of their columns."""
    return int(rows.nbytes) + column_bytes(rows.num_columns)


def fixed_bytes(schema: pa.Schema) -> tuple[int, list[int]]:
    """What a row takes in all columns whose values are of one size, and which columns are not so.

    The types say it: a look at each column costs ten times as much, for every portion.
    """
    bits, others = 0, []
    for at, data_type in enumerate(schema.types):
        if data_type.id in _FIXED:
            bits += data_type.bit_width + 1  # whether it is null
        else:
            others.append(at)
    return -(-bits // 8), others


def has_whole_bytes(data_type: pa.DataType) -> bool:
    """Whether all values of a type take the same number of whole bytes, of which an integer has as
    many."""
    return data_type.id in _FIXED and data_type.bit_width % 8 == 0


def plain_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch's rows, decoded."""
    if not is_encoded(batch):
        return int(batch.nbytes)
    return sum(map(_column_bytes, batch.columns))


def is_encoded(batch: pa.RecordBatch) -> bool:
    """Whether a column's values are elsewhere than in it, or parts of them are."""
    return not all(is_plain(data_type) for data_type in batch.schema.types)


def _column_bytes(column: pa.Array) -> int:
    if is_plain(column.type):
        return int(column.nbytes)
    found = value_bytes(column)
    return found * len(column) if isinstance(found, int) else int(found.sum())


def value_bytes(column: pa.Array) -> Int64s | int:
    """The bytes of each value once it is plain, with its offset; a single number where all take as
    much.  Lists are reckoned at the average of what is in them, runs at the longest."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        own = value_bytes(column.dictionary)
        if isinstance(own, int) or len(own) == 0:
            return own if isinstance(own, int) else OFFSET
        decoded: Int64s = own[_numbers(column.indices)]
        return decoded
    if pa.types.is_run_end_encoded(kind):
        return int(np.max(value_bytes(column.values), initial=0))
    if pa.types.is_struct(kind):
        return sum(map(value_bytes, column.flatten()))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _view_lengths(column) + OFFSET
    if any(test(kind) for test in BINARIES):
        return _numbers(pc.binary_length(column)) + OFFSET
    if any(test(kind) for test in LISTS):
        return _mean_bytes(column.values) * _numbers(pc.list_value_length(column)) + OFFSET
    if pa.types.is_map(kind) and not is_plain(kind):
        pair = _mean_bytes(column.keys) + _mean_bytes(column.items)
        return pair * np.diff(as_numpy(column.offsets)).astype(np.int64) + OFFSET
    if pa.types.is_fixed_size_list(kind) and not is_plain(kind):
        return int(kind.list_size) * _mean_bytes(column.values)
    if isinstance(column, pa.ExtensionArray):
        return value_bytes(column.storage)
    return int(-(-column.nbytes // max(len(column), 1)))


def _mean_bytes(values: pa.Array) -> int:
    """What one of the elements of lists takes."""
    return -(-_column_bytes(values) // max(len(values), 1))


def _numbers(lengths: pa.Array) -> Int64s:
    found, there = physical(lengths)
    return (found if there is None else np.where(there, found, 0)).astype(np.int64)


def _view_lengths(values: pa.Array) -> Int64s:
    """A view begins with its length; what null ones say is not to be looked at."""
    views = np.frombuffer(values.buffers()[1], np.int32)[4 * values.offset :][: 4 * len(values) : 4]
    there = as_numpy(pc.is_valid(values))
    found: Int64s = np.where(there, views, 0).astype(np.int64)
    return found


def bytes_at(rows: pa.RecordBatch, at: Int64s) -> Int64s | int:
    """The bytes of each of these rows, whose values are plain; a single number where all take as
    much.  Looks at the rows that are asked for alone."""
    if len(at) == 0:
        return 0
    fixed, others = fixed_bytes(rows.schema)
    return fixed + sum(_bytes_at(rows.column(number), at) for number in others)


def _bytes_at(column: pa.Array, at: Int64s) -> Int64s | int:
    kind, each = column.type, 1
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = -(-column.values.nbytes // max(len(column.values), 1))
    elif not any(test(kind) for test in BINARIES):
        return int(-(-column.nbytes // max(len(column), 1)))
    is_large = kind.id in _LARGE
    offsets: npt.NDArray[Any] = np.frombuffer(
        column.buffers()[1], np.int64 if is_large else np.int32
    )[column.offset :]
    lengths: Int64s = (offsets[at + 1] - offsets[at]).astype(np.int64)
    return each * lengths + OFFSET


def cuts(widths: Int64s | int, count: int, share: int, rows_max: int) -> list[tuple[int, int]]:
    """So many rows in stretches that take a share each, a single row at the least.

    >>> cuts(np.array([1, 1, 9, 1, 1]), 5, share=4, rows_max=100)
    [(0, 2), (2, 3), (3, 5)]
    """
    if isinstance(widths, int):
        rows_max = max(1, min(rows_max, share // max(widths, 1)))
        return [(start, min(start + rows_max, count)) for start in range(0, count, rows_max)]
    ends, found, start = np.cumsum(widths), [], 0
    while start < count:
        before = int(ends[start - 1]) if start else 0
        limit = int(np.searchsorted(ends, before + share, "right"))
        found.append((start, min(max(limit, start + 1), start + rows_max)))
        start = found[-1][1]
    return found


PIECE_BYTES, WAYS_MIN = 1 << 15, 8
"""A piece costs 60 us, as much as moving 32 KB once more; so rows are divided into as many lots at
a time as leave pieces larger than that, but not into so few that little memory moves them often."""


def fan_out(put_bytes: int) -> int:
    """Into how many lots so many bytes are divided at most."""
    return max(WAYS_MIN, put_bytes // PIECE_BYTES)


def ways_of(lots: int, most: int) -> int:
    """Into how many lots rows are divided at a time, so that there are so many in the end: as few
    times as `most` allows, and each time alike.

    >>> ways_of(30, 32), ways_of(200, 32)
    (30, 15)
    """
    levels, reach = 1, most
    while reach < lots:
        levels, reach = levels + 1, reach * most
    ways = 1
    while ways**levels < lots:
        ways += 1
    return ways
