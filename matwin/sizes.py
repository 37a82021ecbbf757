"""What rows take once their values are plain: dictionaries, views and runs are decoded later."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BINARIES = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip


_DECODED = {
    data_type.id
    for data_type in (
        pa.dictionary(pa.int8(), pa.string()), pa.run_end_encoded(pa.int16(), pa.int8()),
        pa.string_view(), pa.binary_view(),
    )
}  # fmt: skip
FEW_COLUMNS = 100
COLUMN_BYTES = 400
"""What Arrow takes for a column of a batch, however few rows it has: 340 to 540, measured."""


def column_bytes(columns: int) -> int:
    """What the columns of a batch take by themselves, where there are many: a batch of 10,000 takes
    4 MB even if it is empty."""
    return COLUMN_BYTES * max(columns - FEW_COLUMNS, 0)


def plain_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch's rows, decoded."""
    if not any(data_type.id in _DECODED for data_type in batch.schema.types):
        return int(batch.nbytes)
    return sum(map(_column_bytes, batch.columns))


def _column_bytes(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        lengths = _lengths(column.dictionary)
        return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
    if pa.types.is_run_end_encoded(column.type):
        return int(pc.max(_lengths(column.values)).as_py() or 0) * len(column)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return int(pc.sum(_lengths(column)).as_py() or 0)
    return int(column.nbytes)


def _lengths(values: pa.Array) -> pa.Array:
    """The bytes of each value, with its offset."""
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        return _view_lengths(values)
    if any(test(values.type) for test in BINARIES):
        return pc.add(pc.cast(pc.binary_length(values), pa.int64()), 8)
    each = values.nbytes // max(len(values), 1)
    return pa.array(np.full(len(values), each + 8))


def _view_lengths(values: pa.Array) -> pa.Array:
    """A view begins with its length; what null ones say is not to be looked at."""
    views = np.frombuffer(values.buffers()[1], np.int32)[4 * values.offset :][: 4 * len(values) : 4]
    there = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return pa.array(np.where(there, views, 0).astype(np.int64) + 8)
