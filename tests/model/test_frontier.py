"""Frontiers against a plain loop over the rows, in whatever pieces the rows come."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import amount_of

from matwin.cells import float_cell_start, float_cell_starts
from matwin.frontier import Frontier, frontier_of, key_value, punctuation_key
from matwin.storage.columns import INT64_MAX, INT64_MIN, order_key
from matwin.storage.errors import InputError, OrderError
from matwin.streams import GridOrdered, Lateness, Order, Punctuated, ReadAhead, Sorted

INT = pa.field("t", pa.int64())
UINT = pa.field("t", pa.uint64())
FLOAT = pa.field("t", pa.float64())
TIME = pa.field("t", pa.timestamp("ns"))

INT64S = st.one_of(
    st.integers(-20, 20),
    st.integers(INT64_MIN, INT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, 0, -1]),
)
UINT64S = st.one_of(
    st.integers(0, 20), st.integers(0, 2**64 - 1), st.sampled_from([2**64 - 1, 2**63, 2**63 - 1])
)
FLOATS = st.one_of(
    st.floats(-5, 5),
    st.integers(-30, 30).map(lambda n: n / 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308]),
)
ROWS = {
    "int64": st.tuples(st.just(INT), st.lists(INT64S, max_size=40)),
    "uint64": st.tuples(st.just(UINT), st.lists(UINT64S, max_size=40)),
    "float64": st.tuples(st.just(FLOAT), st.lists(FLOATS, max_size=40)),
    "timestamp[ns]": st.tuples(st.just(TIME), st.lists(INT64S, max_size=40)),
}
ANY_ROWS = st.one_of(*ROWS.values())
WHOLE_ROWS = st.one_of(ROWS["int64"], ROWS["uint64"], ROWS["timestamp[ns]"])
CUTS = st.lists(st.integers(0, 40), max_size=6)


def keys_of(field: pa.Field, values: Sequence[object]) -> np.ndarray:
    if pa.types.is_timestamp(field.type):
        return order_key(pa.array(values, pa.int64()).view(field.type))
    return order_key(pa.array(values, field.type))


def frontier(order: Order | None, field: pa.Field, late: str = "drop", tolerance: object = 1):
    return frontier_of(order, field=field, tolerance=tolerance, late=late, source="left")


def fed(frontier: Frontier, keys: np.ndarray, cuts: Sequence[int]) -> list[bool]:
    """Which rows are in time when the keys come in these pieces."""
    in_time: list[bool] = []
    places = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    for start, end in pairwise(places):
        mask = frontier.admit(keys[start:end])
        assert mask is None or not mask.all(), "all in time is said with None"
        in_time += [True] * (end - start) if mask is None else mask.tolist()
    assert frontier.late_rows == in_time.count(False)
    return in_time


def looped(
    values: Sequence[object], moved: Callable[[list[object]], object | None], is_below: Callable
) -> tuple[list[bool], object | None]:
    """The same row by row: `moved` says how far the stream is complete after these rows."""
    admitted: list[object] = []
    bound, in_time = None, []
    for value in values:
        is_late = bound is not None and is_below(value, bound)
        in_time.append(not is_late)
        if not is_late:
            admitted.append(value)
            reached = moved(admitted)
            if reached is not None and (bound is None or reached > bound):
                bound = reached
    return in_time, bound


def clamped(value: int) -> int:
    return max(min(value, INT64_MAX), INT64_MIN)


def zero(field: pa.Field) -> int:
    """What is taken from a whole number to make it a key."""
    return 2**63 if field == UINT else 0


@given(ANY_ROWS, CUTS)
def test_sorted(rows: tuple[pa.Field, list], cuts: list[int]) -> None:
    field, values = rows
    expected, largest = looped(values, max, lambda value, bound: value < bound)
    end = frontier(Sorted(), field)
    assert fed(end, keys_of(field, values), cuts) == expected
    assert end.value == (INT64_MIN if largest is None else keys_of(field, [largest])[0])


@given(WHOLE_ROWS, CUTS, st.integers(0, 30) | st.integers(0, 2**66))
def test_lateness_of_whole_numbers(
    rows: tuple[pa.Field, list], cuts: list[int], lateness: int
) -> None:
    field, values = rows
    last = INT64_MAX + zero(field)  # has no key after it, and so is never late
    expected, upto = looped(
        values, lambda seen: max(seen) - lateness, lambda v, b: v <= b and v != last
    )
    end = frontier(Lateness(amount_of(lateness, field.type)), field)
    assert fed(end, keys_of(field, values), cuts) == expected
    assert end.value == (INT64_MIN if upto is None else clamped(upto + 1 - zero(field)))


@given(ROWS["float64"], CUTS, st.floats(0, 8) | st.floats(0, 1e308))
def test_lateness_of_floats(rows: tuple[pa.Field, list], cuts: list[int], lateness: float) -> None:
    field, values = rows
    expected, upto = looped(values, lambda seen: max(seen) - lateness, lambda v, b: v <= b)
    end = frontier(Lateness(lateness), field)
    assert fed(end, keys_of(field, values), cuts) == expected
    assert end.value == (INT64_MIN if upto is None else keys_of(field, [upto])[0] + 1)


@given(ANY_ROWS, CUTS, st.integers(1, 12))
def test_read_ahead(rows: tuple[pa.Field, list], cuts: list[int], ahead: int) -> None:
    field, values = rows
    expected, bound = looped(values, read_ahead(ahead), lambda v, b: v < b)
    end = frontier(ReadAhead(ahead), field)
    assert fed(end, keys_of(field, values), cuts) == expected
    assert end.value == (INT64_MIN if bound is None else keys_of(field, [bound])[0])


def read_ahead(ahead: int) -> Callable[[list], object | None]:
    return lambda seen: min(seen[-ahead:]) if len(seen) >= ahead else None


@given(
    st.integers(0, 2**32), st.integers(1, 300), st.sampled_from([1, 10, 100, 10**6]),
    st.lists(st.integers(0, 600), max_size=4),
)  # fmt: skip
@example(0, 5, 10**6, [])
@example(0, 1, 1, [300])
def test_read_ahead_over_long_batches(seed: int, ahead: int, spread: int, cuts: list[int]) -> None:
    """Long enough for arrays: those of the test before go row by row."""
    random = np.random.default_rng(seed)
    keys = np.arange(600) * 10 + random.integers(-spread, spread + 1, 600)
    keys[random.integers(0, 600, 20)] -= random.integers(0, 6000, 20)
    expected, bound = looped(keys.tolist(), read_ahead(ahead), lambda v, b: v < b)
    end = frontier(ReadAhead(ahead), INT)
    assert fed(end, keys, cuts) == expected
    assert end.value == (INT64_MIN if bound is None else bound)


@given(WHOLE_ROWS, CUTS, st.integers(1, 30) | st.integers(1, 2**66))
def test_cells_of_whole_numbers(rows: tuple[pa.Field, list], cuts: list[int], width: int) -> None:
    field, values = rows
    expected, cell = looped(
        values, lambda seen: max(v // width for v in seen), lambda v, b: v // width < b
    )
    end = frontier(GridOrdered(amount_of(width, field.type)), field)
    assert fed(end, keys_of(field, values), cuts) == expected
    assert end.value == (INT64_MIN if cell is None else clamped(cell * width - zero(field)))


WIDTHS = st.one_of(
    st.sampled_from([0.1, 0.3, 1.0, 2.5, 1 / 3, 1e-9, 5e-324, 1e308]),
    st.floats(1e-300, 1e300),
)
BY_FLOAT = [
    lambda y, w: math.floor(y / w),
    lambda y, w: y // w,
    lambda y, w: Fraction(y) // Fraction(w),
]


def cell_or_none(cell: Callable, value: float, width: float) -> object | None:
    try:
        return cell(value, width)
    except OverflowError:
        return None


@given(ROWS["float64"], CUTS, WIDTHS, st.sampled_from([0, 1, 2]))
@example((FLOAT, [1.0, 0.95]), [], 0.1, 1)
@example((FLOAT, [0.0, -5e-324]), [], 1e308, 0)
def test_no_float_in_order_is_late_however_its_cell_is_computed(
    rows: tuple[pa.Field, list], cuts: list[int], width: float, how: int
) -> None:
    field, values = rows
    placed = [(cell_or_none(BY_FLOAT[how], v, width), i, v) for i, v in enumerate(values)]
    in_order = [v for cell, _, v in sorted(p for p in placed if p[0] is not None)]
    end = frontier(GridOrdered(width), field)
    assert all(fed(end, keys_of(field, in_order), cuts))


@given(ROWS["float64"], CUTS, WIDTHS)
def test_a_float_that_is_clearly_in_a_cell_before_is_late(
    rows: tuple[pa.Field, list], cuts: list[int], width: float
) -> None:
    field, values = rows
    in_time = fed(frontier(GridOrdered(width), field), keys_of(field, values), cuts)
    largest = None
    for value, is_in_time in zip(values, in_time, strict=True):
        if largest is not None and math.isfinite(largest / width):
            edge = Fraction(largest) // Fraction(width) * Fraction(width)
            doubt = abs(edge) * Fraction(1, 2**48) + Fraction(5e-324) * 16 * max(1, Fraction(width))
            if value < edge - doubt:
                assert not is_in_time, (value, largest)
        if is_in_time:
            largest = value if largest is None else max(value, largest)


@given(ROWS["float64"], WIDTHS)
def test_a_float_at_a_time_has_the_same_cell_as_many(
    rows: tuple[pa.Field, list], width: float
) -> None:
    keys = keys_of(*rows)
    starts = float_cell_starts(keys, width).tolist()
    assert [float_cell_start(key, width) for key in keys.tolist()] == starts
    assert sorted(starts) == float_cell_starts(np.sort(keys), width).tolist()


@given(ANY_ROWS, CUTS, CUTS, st.integers(0, 4))
def test_how_rows_are_cut_makes_no_difference(
    rows: tuple[pa.Field, list], cuts: list[int], others: list[int], which: int
) -> None:
    field, values = rows
    three = amount_of(3, field.type)
    order = [Sorted(), Lateness(three), ReadAhead(3), GridOrdered(three), None][which]
    keys = keys_of(field, values)
    one, other = frontier(order, field), frontier(order, field)
    assert fed(one, keys, cuts) == fed(other, keys, others)
    assert (one.value, one.late_rows) == (other.value, other.late_rows)


@given(ANY_ROWS, CUTS, st.integers(0, 3))
def test_no_row_in_time_is_below_the_frontier_before_it(
    rows: tuple[pa.Field, list], cuts: list[int], which: int
) -> None:
    field, values = rows
    three = amount_of(3, field.type)
    order = [Sorted(), Lateness(three), ReadAhead(3), GridOrdered(three)][which]
    end, before = frontier(order, field), INT64_MIN
    for key in keys_of(field, values):
        mask = end.admit(np.array([key]))
        assert (mask is None) == (key >= before)
        assert end.value >= before
        before = end.value


def test_punctuations_move_a_punctuated_stream_and_nothing_else_does() -> None:
    end = frontier(Punctuated(), INT)
    assert end.admit(np.array([5, 1, 9])) is None
    assert end.value == INT64_MIN
    end.punctuate(5)
    assert end.value == 6
    assert end.admit(np.array([6, 5, 7])).tolist() == [True, False, True]
    end.punctuate(2)
    assert (end.value, end.late_rows) == (6, 1)
    end.punctuate(INT64_MAX)
    assert end.value == INT64_MAX


@pytest.mark.parametrize("order", [None, Sorted(), Lateness(1), ReadAhead(2), Punctuated()])
def test_the_end_and_no_rows(order: Order | None) -> None:
    end = frontier(order, INT, late="error")
    assert end.admit(np.empty(0, np.int64)) is None
    assert end.value == INT64_MIN
    end.finish()
    assert end.value == INT64_MAX


def test_a_source_without_order_is_complete_at_its_end_only() -> None:
    end = frontier(None, INT, late="error")
    assert end.admit(np.array([5, 1, 9, INT64_MAX, INT64_MIN])) is None
    assert end.value == INT64_MIN


MESSAGES = [
    (Sorted(), INT, [3, 20, 17], "row 102 is late: its 't' is 17 after 20"),
    (Sorted(), UINT, [2**64 - 1, 5], f"its 't' is 5 after {2**64 - 1}"),
    (Sorted(), FLOAT, [0.5, -0.25], "its 't' is -0.25 after 0.5"),
    (
        Sorted(),
        TIME,
        [1, 0],
        "is 1970-01-01 00:00:00.000000000 after 1970-01-01 00:00:00.000000001",
    ),
    (
        Lateness(5),
        INT,
        [20, 16, 15],
        "row 102 is late: its 't' is 15 after 20, in a stream declared",
    ),
    (ReadAhead(2), INT, [5, 9, 4], "its 't' is 4 after 5, in a stream declared ReadAhead(rows=2)"),
    (ReadAhead(2), INT, [*range(500), 4], "row 600 is late: its 't' is 4 after 498"),
    (
        GridOrdered(10),
        INT,
        [25, 21, 19],
        "its 't' is 19 after 25, in a stream declared GridOrdered",
    ),
]


@pytest.mark.parametrize(("order", "field", "values", "text"), MESSAGES)
def test_the_error_names_the_row_and_both_values(
    order: Order, field: pa.Field, values: list, text: str
) -> None:
    end, keys = frontier(order, field, late="error"), keys_of(field, values)
    with pytest.raises(OrderError) as caught:
        end.admit(keys, np.arange(100, 100 + len(keys)))
    assert text in str(caught.value)
    assert str(caught.value).startswith("left: row ")
    assert "late='drop'" in str(caught.value)


def test_rows_count_on_over_batches_where_no_numbers_are_given() -> None:
    end = frontier(Sorted(), INT, late="error")
    end.admit(np.array([1, 2, 3]))
    with pytest.raises(OrderError, match="row 4 is late"):
        end.admit(np.array([3, 2]))


def test_a_punctuation_holds_for_other_orders_too() -> None:
    end = frontier(Sorted(), INT, late="error")
    end.punctuate(9)
    with pytest.raises(OrderError, match="its 't' is 3 after 10"):
        end.admit(np.array([3]))


@pytest.mark.parametrize(
    ("order", "field", "tolerance", "values", "value"),
    [
        (Lateness("5s"), pa.field("t", pa.timestamp("ms")), 0, [7000], 2001),
        (Lateness(dt.timedelta(seconds=5)), pa.field("t", pa.timestamp("us")), 0, [7**9], 35353608),
        (Lateness(np.timedelta64(5, "s")), pa.field("t", pa.timestamp("us")), 0, [7**9], 35353608),
        (Lateness(2.5), INT, 1, [10], 8),
        (GridOrdered(), pa.field("t", pa.timestamp("s")), "10min", [1300], 1200),
        (GridOrdered(), INT, (-10, 0), [14], 10),
        (GridOrdered("1min"), pa.field("t", pa.timestamp("s")), None, [119], 60),
    ],
)  # fmt: skip
def test_amounts_are_in_the_columns_unit(
    order: Order, field: pa.Field, tolerance: object, values: list, value: int
) -> None:
    end = frontier(order, field, tolerance=tolerance)
    end.admit(np.array(values))
    assert end.value == value


@pytest.mark.parametrize(
    ("order", "field", "tolerance"),
    [
        (Lateness("5s"), INT, 1),
        (GridOrdered(), INT, None),
        (Lateness("1ms"), pa.field("t", pa.timestamp("s")), 0),
        (Lateness(5), TIME, 0),
        (GridOrdered(5), TIME, 0),
        (GridOrdered(), TIME, 5),
        (GridOrdered(2.5), INT, 1),
    ],
)
def test_amounts_that_mean_nothing_for_the_column_are_refused(
    order: Order, field: pa.Field, tolerance: object
) -> None:
    with pytest.raises(InputError, match=r"'t'|not a whole number"):
        frontier(order, field, tolerance=tolerance)


@given(ANY_ROWS)
def test_keys_go_back_to_values(rows: tuple[pa.Field, list]) -> None:
    field, values = rows
    if field != TIME:
        assert [key_value(int(key), field) for key in keys_of(field, values)] == values


@pytest.mark.parametrize(
    ("data_type", "key", "text"),
    [
        (pa.timestamp("us", "UTC"), 1, "1970-01-01 00:00:00.000001"),
        (pa.date32(), 1, "1970-01-02"),
        (pa.time32("s"), 61, "00:01:01"),
        (pa.duration("ms"), 5, "5 ms"),
        (pa.date32(), INT64_MAX, "9223372036854775807 date32"),
    ],
)
def test_times_are_shown_as_text(data_type: pa.DataType, key: int, text: str) -> None:
    assert str(key_value(key, pa.field("t", data_type))).startswith(text)


@pytest.mark.parametrize(
    ("upto", "data_type", "key"),
    [
        (5, pa.int64(), 5),
        (5.5, pa.int64(), 5),
        (-5.5, pa.int64(), -6),
        (0, pa.uint64(), INT64_MIN),
        (pa.scalar(7), pa.int64(), 7),
        (np.float64(2.5), pa.int32(), 2),
        (dt.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("ms"), 1000),
        (dt.datetime(1970, 1, 2, 12), pa.date32(), 1),
        (dt.date(1970, 1, 2), pa.date32(), 1),
        (0, pa.timestamp("ms"), 0),
        (np.datetime64("1970-01-01T00:00", "m"), pa.timestamp("ms"), 0),
        (np.datetime64("1970-02", "M"), pa.date32(), 31),
        (pd.Timestamp(1999, unit="ns"), pa.timestamp("ns"), 1999),
        (pd.Timestamp(1999, unit="ns"), pa.timestamp("us"), 1),
        (pd.Timestamp(1999, unit="ns", tz="UTC"), pa.timestamp("us", "CET"), 1),
        (pd.Timedelta("1999ns"), pa.duration("us"), 1),
        (np.timedelta64(3, "h"), pa.duration("s"), 10800),
        (dt.timedelta(seconds=-1.5), pa.duration("s"), -2),
        (dt.time(0, 1), pa.time32("s"), 60),
        (pa.scalar(61_500, pa.time32("ms")), pa.time32("s"), 61),
    ],
)
def test_a_punctuation_covers_what_is_not_above_it(
    upto: object, data_type: pa.DataType, key: int
) -> None:
    assert punctuation_key(upto, pa.field("t", data_type)) == key


@pytest.mark.parametrize(
    ("upto", "data_type", "says"),
    [
        (5, pa.timestamp("s"), "the number 5 does not say its unit; give a value of the column"),
        (np.int64(5), pa.date32(), "does not say its unit"),
        (5.5, pa.duration("s"), "does not say its unit"),
        (dt.timedelta(1), pa.timestamp("s"), "is no bound"),
        (dt.datetime(2020, 1, 1), pa.timestamp("s", "UTC"), "a time zone or neither"),
        (np.datetime64("NaT"), pa.timestamp("s"), "no bound"),
        (True, pa.timestamp("s"), "is no bound"),
        (pa.scalar(None, pa.timestamp("s")), pa.timestamp("s"), "is no bound"),
    ],
)
def test_what_is_no_moment_of_the_column_is_refused(
    upto: object, data_type: pa.DataType, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        punctuation_key(upto, pa.field("t", data_type))


@given(FLOATS | st.integers(-(2**70), 2**70), FLOATS)
def test_a_punctuation_of_floats_covers_exactly_those_not_above_it(
    upto: float | int, value: float
) -> None:
    key = keys_of(FLOAT, [value])[0]
    assert (key <= punctuation_key(upto, FLOAT)) == (value <= upto)
