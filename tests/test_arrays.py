"""Arrays by their buffers are what Arrow makes of them: of every type, with nulls, cut anywhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.storage.arrays import arrow, arrow_or_null, as_numpy, one_batch

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64", "M8[us]", "U3",
)  # fmt: skip
TYPES: tuple[Any, ...] = (
    pa.int64(), pa.int8(), pa.bool_(), pa.float64(), pa.timestamp("us"), pa.string(),
    pa.list_(pa.int8()), pa.null(), pa.dictionary(pa.int32(), pa.string()),
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@given(numbers=st.lists(st.integers(0, 99), max_size=30), step=st.sampled_from([1, 2, -1]))
def test_there_and_back(dtype: str, numbers: list[int], step: int) -> None:
    values = np.array(numbers, np.int64).astype(dtype)[::step]
    made = arrow(values)
    made.validate(full=True)
    assert made.equals(pa.array(values))
    if dtype not in ("M8[us]", "U3"):
        cut = made[len(numbers) // 3 :]
        back = as_numpy(cut)
        assert back.dtype == values.dtype
        assert back.tolist() == cut.to_pylist()


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=30))
def test_nulls(pairs: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in pairs], np.int64)
    is_null = np.array([null for _, null in pairs], bool)
    made = arrow_or_null(values, is_null)
    made.validate(full=True)
    assert made.equals(pa.array(values, mask=is_null))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@given(data=st.data())
def test_pieces_become_one(data_type: pa.DataType, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.none() | st.integers(0, 1), max_size=30))
    if pa.types.is_list(data_type):
        column = pa.array([n if n is None else [n, 7] for n in numbers], data_type)
    elif pa.types.is_null(data_type):
        column = pa.nulls(len(numbers))
    elif pa.types.is_dictionary(data_type):
        column = pa.array(numbers, pa.int8()).cast(pa.string()).dictionary_encode()
    else:
        column = pa.array(numbers, pa.int64()).cast(data_type)
    whole = pa.record_batch([column], ["c"])
    ends = sorted(data.draw(st.lists(st.integers(0, len(numbers)), max_size=4)))
    cuts = [0, *ends, len(numbers)]
    if data.draw(st.booleans()):  # a gap, or not from the start
        del cuts[0]
    pieces = [whole[a:b] for a, b in pairwise(cuts)] or [whole]
    if data.draw(st.booleans()):
        pieces = pieces[::-1]
    made = one_batch(pieces)
    made.validate(full=True)
    assert made.to_pylist() == [row for piece in pieces for row in piece.to_pylist()]


def test_views_of_several_sizes_at_one_address() -> None:
    held = pa.py_buffer(np.arange(8))
    short = pa.Array.from_buffers(pa.int64(), 4, [None, held.slice(0, 32)])
    rest = pa.Array.from_buffers(pa.int64(), 4, [None, held], offset=4)
    made = one_batch([pa.record_batch([part], ["c"]) for part in (short, rest)])
    made.validate(full=True)
    assert made.column(0).to_pylist() == list(range(8))
