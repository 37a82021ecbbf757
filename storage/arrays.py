"""Arrays of NumPy as Arrow's and back, by their buffers.

`pa.array`, `to_numpy` and `pa.scalar` import pandas, where it is installed, to see whether it has
to do with their argument: 0.2 s and 45 MB that a join has no use for.  Here no value is looked at.
Whatever is not a plain column of numbers goes Arrow's own way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TYPES = {
    np.dtype(name): getattr(pa, name)()
    for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
        "float64",
    )
}  # fmt: skip
_DTYPES = {data_type: dtype for dtype, data_type in _TYPES.items()}
_BOOL = np.dtype(bool)


def arrow(values: npt.NDArray[Any]) -> pa.Array:
    """What `pa.array` makes of an array.

    >>> arrow(np.array([True, False])).to_pylist(), arrow(np.arange(6)[::2]).to_pylist()
    ([True, False], [0, 2, 4])
    """
    if values.ndim == 1:
        if values.dtype == _BOOL:
            bits = np.packbits(values, bitorder="little")
            return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)], 0)
        data_type = _TYPES.get(values.dtype)
        if data_type is not None:
            held = pa.py_buffer(np.ascontiguousarray(values))
            return pa.Array.from_buffers(data_type, len(values), [None, held], 0)
    return pa.array(values)


def arrow_or_null(values: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """The same with nulls.

    >>> arrow_or_null(np.array([7, 8]), np.array([False, True])).to_pylist()
    [7, None]
    """
    if not is_null.any():
        return arrow(values)
    bits = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    held = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [bits, held])


def as_numpy(column: pa.Array) -> npt.NDArray[Any]:
    """What ``to_numpy(zero_copy_only=False)`` makes of a column.

    >>> as_numpy(pa.array([True, False, True])[1:]).tolist(), as_numpy(pa.array([1, 2])).tolist()
    ([False, True], [1, 2])
    """
    start, end = column.offset, column.offset + len(column)
    if column.null_count == 0 and isinstance(column, pa.Array):
        if column.type == pa.bool_():
            bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
            return np.unpackbits(bits, bitorder="little", count=end)[start:].view(_BOOL)
        dtype = _DTYPES.get(column.type)
        if dtype is not None:
            held = column.buffers()[1]
            return np.frombuffer(held if held is not None else b"", dtype)[start:end]
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches one after the other; columns that were cut out of one are one again without a copy.

    >>> whole = pa.record_batch({"t": [1, 2, 3]})
    >>> one_batch([whole[:1], whole[1:]]).column(0).buffers()[1] == whole.column(0).buffers()[1]
    True
    """
    first = batches[0]
    columns = [
        _one_column([batch.column(at) for batch in batches]) for at in range(first.num_columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)


def _one_column(parts: list[pa.Array]) -> pa.Array:
    first, end = parts[0], parts[0].offset
    if not pa.types.is_primitive(first.type):
        return pa.concat_arrays(parts)
    places = _places(first)
    for part in parts:
        if part.offset != end or _places(part) != places:
            return pa.concat_arrays(parts)
        end += len(part)
    rows = end - first.offset
    return pa.Array.from_buffers(first.type, rows, first.buffers(), offset=first.offset)


def _places(column: pa.Array) -> list[tuple[int, int]]:
    """Which buffers they are: at one address there may be views of several sizes."""
    return [
        (0, 0) if buffer is None else (buffer.address, buffer.size) for buffer in column.buffers()
    ]
