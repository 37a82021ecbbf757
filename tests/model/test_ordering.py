"""Sorting and searching against Python's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matwin.storage.bounds import bound_key
from matwin.storage.columns import float_key, order_key
from matwin.storage.ordering import count_upto, group_starts, is_sorted, sort_order

INT = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
ROWS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[INT] * width), min_size=1, max_size=60)
)


def columns(rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)]


@given(ROWS)
def test_sort_order_is_pythons_stable_sort(rows: list[tuple[int, ...]]) -> None:
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    order = sort_order(columns(rows))
    assert (list(range(len(rows))) if order is None else order.tolist()) == expected
    assert is_sorted(columns(rows)) == (rows == sorted(rows))


@given(ROWS)
def test_count_upto_and_groups(rows: list[tuple[int, ...]]) -> None:
    rows.sort()
    for bound in rows:
        assert count_upto(columns(rows), bound) == sum(row <= bound for row in rows)
    begins = [i for i, row in enumerate(rows) if i == 0 or rows[i - 1] != row]
    assert group_starts(columns(rows)).tolist() == begins


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_float_keys_compare_like_floats(values: list[float]) -> None:
    keys = float_key(np.array(values)).tolist()
    for a, key_a in zip(values, keys, strict=True):
        for b, key_b in zip(values, keys, strict=True):
            assert (a < b) == (key_a < key_b)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.floats(-1e19, 1e19))
def test_fractional_bounds_on_integers_are_exact(values: list[int], bound: float) -> None:
    import pyarrow as pa

    from matwin.storage import InputError

    try:
        key = bound_key(bound, pa.int64(), "t")
    except InputError:
        assert bound > 2**63 - 1
        return
    assert [k < key for k in order_key(pa.array(values, pa.int64())).tolist()] == [
        value < bound for value in values
    ]


@given(st.lists(st.floats(), min_size=1), st.integers(-(2**1100), 2**1100))
def test_integer_bounds_on_floats_are_exact(values: list[float], bound: int) -> None:
    import pyarrow as pa

    key = bound_key(bound, pa.float64(), "t")
    keys = order_key(pa.array(values, pa.float64())).tolist()
    assert [k < key for k in keys] == [value < bound for value in values]
