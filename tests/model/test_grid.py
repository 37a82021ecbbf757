"""Cells and reach against the predicate itself, one pair at a time."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matwin.storage import Dimension, Grid, InputError, Key
from matwin.storage.columns import physical
from matwin.storage.float_cells import SEAM, ends, float_cells
from matwin.storage.grid import LAST_CELL, NO_CELL
from matwin.storage.units import Counts

INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-50, 50),
    st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 0, -1]),
)
UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 50), st.just(2**64 - 1))
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
EPSILON = st.one_of(st.floats(0, 1e308), st.sampled_from([0.1, 0.3, 1.0, 1e-300, 5e-324]))


def cell(dimension: Dimension, value: object, data_type: pa.DataType) -> int:
    return int(dimension.cells(pa.array([value], data_type))[0])


def is_within_reach(dimension: Dimension, left: int, right: int) -> bool:
    first, last = dimension.reach(np.array([left]), np.array([left]))
    return bool(first[0] <= right <= last[0])


def check(left: object, right: object, lo: object, hi: object, data_type: pa.DataType) -> None:
    dimension = Dimension.of(pa.field("y", data_type), (lo, hi))
    cells = cell(dimension, left, data_type), cell(dimension, right, data_type)
    assert is_within_reach(dimension, *cells), (dimension, cells)
    assert is_within_reach(dimension.swapped(), *reversed(cells)), (dimension, cells)


@given(INT64, st.integers(0, 2**64), st.integers(-(2**64), 2**64), st.integers(0, 2**64))
def test_no_accepted_pair_of_integers_is_out_of_reach(
    left: int, up: int, lo: int, span: int
) -> None:
    right = left + lo + up % (span + 1)
    if -(2**63) <= right < 2**63:
        check(left, right, lo, lo + span, pa.int64())


@given(UINT64, st.integers(0, 2**64), st.integers(-(2**64), 2**64), st.integers(0, 2**64))
@example(2**64 - 1, 0, 0, 0)
def test_no_accepted_pair_of_unsigned_integers_is_out_of_reach(
    left: int, up: int, lo: int, span: int
) -> None:
    right = left + lo + up % (span + 1)
    if 0 <= right < 2**64:
        check(left, right, lo, lo + span, pa.uint64())


@given(FLOAT, FLOAT, EPSILON)
def test_no_accepted_pair_of_floats_is_out_of_reach(
    left: float, right: float, epsilon: float
) -> None:
    if abs(left - right) <= epsilon:
        check(left, right, -epsilon, epsilon, pa.float64())


@given(
    st.integers(-(2**40), 2**40) | st.integers(2**50, 2**54),
    st.sampled_from([0.1, 0.3, 0.7, 1e-9, 1 / 3, 2.5]),
    st.integers(-2, 2),
    st.integers(-2, 2),
    st.sampled_from([-1.0, 1.0]),
)
def test_floats_exactly_epsilon_apart_are_within_reach(
    count: int, epsilon: float, near_left: int, near_right: int, side: float
) -> None:
    left = nudged(count * epsilon, near_left)
    right = nudged(left + side * epsilon, near_right)
    if abs(left - right) <= epsilon:
        check(left, right, -epsilon, epsilon, pa.float64())


def nudged(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.inf if steps > 0 else -math.inf)
    return value


@given(FLOAT, FLOAT, FLOAT, st.floats(0, 1e307))
def test_no_accepted_pair_of_an_asymmetric_float_tolerance_is_out_of_reach(
    left: float, right: float, lo: float, span: float
) -> None:
    hi = lo + span
    if math.isfinite(hi) and lo <= right - left <= hi:
        check(left, right, lo, hi, pa.float64())


def test_one_cell_on_each_side_suffices_for_a_symmetric_tolerance() -> None:
    for data_type, epsilon in [(pa.int64(), 7), (pa.float64(), 0.1), (pa.float32(), 3.0)]:
        dimension = Dimension.of(pa.field("y", data_type), epsilon)
        first, last = dimension.reach(np.array([5, -1000]), np.array([5, -1000]))
        assert first.tolist() == [4, -1001]
        assert last.tolist() == [6, -999]


@given(st.lists(FLOAT, min_size=2), EPSILON)
def test_cells_of_floats_are_monotone(values: list[float], epsilon: float) -> None:
    dimension = Dimension.of(pa.field("y", pa.float64()), epsilon)
    cells = dimension.cells(pa.array(sorted(values), pa.float64()))
    assert (np.diff(cells.astype(object)) >= 0).all()


@given(st.lists(INT64, min_size=2), st.integers(0, 2**64))
def test_cells_of_integers_are_floor_divisions(values: list[int], epsilon: int) -> None:
    dimension = Dimension.of(pa.field("y", pa.int64()), epsilon)
    width = min(max(epsilon, 1), 2**63 - 1)
    expected = [min(value // width, LAST_CELL) for value in values]
    assert dimension.cells(pa.array(values, pa.int64())).tolist() == expected
    unsigned = pa.array([value + 2**63 for value in values], pa.uint64())
    assert dimension.cells(unsigned).tolist() == expected


def test_null_nan_and_infinities_have_a_place() -> None:
    near = Dimension.of(pa.field("y", pa.float64()), 1.0)
    cells = near.cells(pa.array([None, math.nan, -math.inf, -1e300, 0.0, 1e300, math.inf])).tolist()
    assert cells[:2] == [NO_CELL, NO_CELL]
    assert cells[2:] == sorted(cells[2:]) and len(set(cells[2:])) == 5 and cells[-1] < LAST_CELL
    assert not is_within_reach(near, 3, NO_CELL)


# ── the ends of every type, and tolerances of every shape ────────────────────────────────────────

UNITS = ("s", "ms", "us", "ns")
TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), *map(pa.timestamp, UNITS), *map(pa.duration, UNITS),
]  # fmt: skip
WIDTHS = st.one_of(st.integers(0, 3), st.integers(0, 2**64), st.just(2**63), st.none())
LIMITS = st.one_of(
    st.integers(-3, 3), st.integers(-(2**65), 2**65), st.sampled_from([2**63, -(2**63), 2**64 - 1])
)


NO_LIMIT = st.just(-(2**70))


def limits_of(data_type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number that a column of whole numbers or times can hold."""
    numbers = np.iinfo(physical(pa.array([], data_type))[0].dtype)
    return int(numbers.min), int(numbers.max)


@st.composite
def two_whole_numbers(draw: st.DrawFn, least: int, greatest: int) -> tuple[int, int]:
    """Numbers at the ends and around zero, near each other more often than not."""
    near_ends = st.integers(0, 4).flatmap(lambda n: st.sampled_from([least + n, greatest - n]))
    anywhere = st.integers(least, greatest) | st.integers(0, 9)
    left = draw(near_ends | anywhere)
    right = draw(near_ends | anywhere | st.integers(left - 4, left + 4))
    return left, max(min(right, greatest), least)


@given(st.sampled_from(TYPES), st.data())
def test_whole_numbers_and_times_at_the_ends_of_their_type(
    data_type: pa.DataType, data: st.DataObject
) -> None:
    left, right = data.draw(two_whole_numbers(*limits_of(data_type)))
    lo, span = data.draw(LIMITS | st.just(right - left) | NO_LIMIT), data.draw(WIDTHS)
    hi = 2**70 if span is None else lo + span
    stored = pa.int32() if physical(pa.array([], data_type))[0].itemsize == 4 else pa.int64()
    stored = stored if pa.types.is_temporal(data_type) else data_type
    column = pa.array([left, right], stored).view(data_type)
    if lo <= right - left <= hi:
        check_column(column, Dimension.of(pa.field("y", data_type), Counts(lo, hi)))


def check_column(column: pa.Array, dimension: Dimension) -> None:
    """Two values that the predicate accepts are within reach of each other, by every way to ask."""
    cells = dimension.cells(column)
    left, right = cells.tolist()
    if is_least_first(column):
        assert left <= right
    assert max(left, right) <= LAST_CELL
    for seen, (one, other) in ((dimension, cells), (dimension.swapped(), cells[::-1])):
        assert is_within_reach(seen, int(one), int(other)), (seen, left, right)
        down, up = seen.steps(np.array([one]))
        held = max(min(int(one) + down, LAST_CELL), -(2**63)), max(int(one) + up, -(2**63))
        assert held[0] <= other <= held[1] or seen.lo is None or one >= LAST_CELL, (seen, left)


def is_least_first(column: pa.Array) -> bool:
    values = physical(column)[0].tolist()
    return bool(values[0] <= values[1])


FAR = st.one_of(
    st.sampled_from([1.7e9, 1.7e15, 1e16, 2.0**53, 1e18, 1e300, 1.7e308, 5e-324, 1e-310, 0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
NARROW = st.sampled_from([5e-324, 1e-300, 1e-16, 1e-10, 1e-9, 1e-4, 0.1, 1.0, 1e16, 1e300, 1.7e308])


@st.composite
def two_floats(draw: st.DrawFn, *, is_single: bool) -> tuple[float, float]:
    """Floats far from zero, close to it, and neighbours of each other."""
    left = draw(FAR) * draw(st.sampled_from([1, -1]))
    right = draw(st.sampled_from([left, -left])) if draw(st.booleans()) else draw(FAR)
    values = [left, nudged(right, draw(st.integers(-5, 5)))]
    if is_single:
        with np.errstate(over="ignore"):
            values = [float(np.float32(value)) for value in values]
    return values[0], values[1]


@st.composite
def float_limits(draw: st.DrawFn, apart: float) -> Counts:
    """A tolerance that admits a distance: without limit, narrow, one-sided, or to the last bit."""
    below, above = draw(NARROW | st.just(0.0)), draw(NARROW | st.just(0.0))
    farthest = max(abs(apart), below, above)
    lo = draw(st.sampled_from([-math.inf, apart - below, nudged(apart, -1), -farthest, apart]))
    hi = draw(st.sampled_from([math.inf, apart + above, nudged(apart, 1), farthest, apart]))
    lo = lo if lo < math.inf else 1.7e308  # as far apart as that is a difference of infinity
    return Counts(lo, hi if hi > -math.inf else -1.7e308)


@given(st.sampled_from([pa.float32(), pa.float64()]), st.data())
def test_floats_near_and_far_with_tolerances_of_every_shape(
    data_type: pa.DataType, data: st.DataObject
) -> None:
    left, right = data.draw(two_floats(is_single=data_type == pa.float32()))
    if math.isinf(left) or math.isinf(right):
        return
    limits = data.draw(float_limits(right - left))
    column = pa.array([left, right], pa.float64()).cast(data_type)
    check_column(column, Dimension.of(pa.field("y", data_type), limits))


@given(FAR, st.integers(-5, 5), NARROW)
def test_the_ends_of_a_float_cell_enclose_its_values(near: float, by: int, width: float) -> None:
    value = np.array([nudged(near, by)])
    if not np.isinf(value[0]):
        for values in (value, -value):
            least, greatest = ends(float_cells(values, width), width)
            assert least[0] <= values[0] <= greatest[0]
            assert np.isfinite(least[0]) and np.isfinite(greatest[0])


@given(NARROW, st.integers(-20, 20))
def test_cells_are_monotone_across_the_seam(width: float, by: int) -> None:
    seam = min(SEAM * width, 1.7e308)
    values = np.array(sorted(nudged(seam, by + n) for n in range(-3, 4)))
    cells = float_cells(values, width)
    assert (np.diff(cells) >= 0).all()
    assert (np.diff(float_cells(-values[::-1], width)) >= 0).all()


@pytest.mark.parametrize(("start", "step", "epsilon"), [(1.7e9, 1e-3, 1e-10), (1.7e15, 10, 1e-4)])
def test_rows_far_from_zero_lie_in_cells_of_their_own(
    start: float, step: float, epsilon: float
) -> None:
    """All of them in one cell would be tested with each other: 400 million pairs for 20,000."""
    values = start + np.arange(20_000) * step
    near = Dimension.of(pa.field("y", pa.float64()), epsilon)
    cells = near.cells(pa.array(values))
    assert len(np.unique(cells)) == len(values)
    down, up = near.steps(cells)
    assert -3 <= down <= 0 <= up <= 3
    assert near.cells(pa.array(-values)).tolist() == [-c for c in cells.tolist()]


def test_zero_epsilon_is_an_exact_match() -> None:
    exact = Dimension.of(pa.field("y", pa.float64()), 0.0)
    a, b, c = exact.cells(pa.array([0.0, -0.0, 5e-324])).tolist()
    assert a == b != c
    assert not is_within_reach(exact, a, c)


@pytest.mark.parametrize(
    ("data_type", "tolerance", "width"),
    [
        (pa.timestamp("ns"), "10min", 600 * 10**9),
        (pa.timestamp("s", tz="Europe/Berlin"), "1h30min", 5400),
        (pa.duration("us"), dt.timedelta(milliseconds=1), 1000),
        (pa.date32(), "2d", 2),
        (pa.date64(), "1d", 86_400_000),
        (pa.int16(), 2.9, 2),
        (pa.uint8(), 3, 3),
    ],
)
def test_tolerances_in_the_columns_unit(
    data_type: pa.DataType, tolerance: object, width: int
) -> None:
    assert Dimension.of(pa.field("y", data_type), tolerance).width == width  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data_type", "tolerance", "message"),
    [
        (pa.int64(), -1, "negative"),
        (pa.float64(), math.nan, "finite"),
        (pa.float64(), math.inf, "finite"),
        (pa.int64(), "10min", "time column"),
        (pa.timestamp("s"), "5ms", "whole number"),
        (pa.timestamp("s"), "soon", "duration"),
        (pa.string(), 1, "number"),
        (pa.int64(), (3, 1), "admits nothing"),
        (pa.int64(), True, "not a tolerance"),
    ],
)
def test_bad_tolerances_name_the_column(
    data_type: pa.DataType, tolerance: object, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Dimension.of(pa.field("depth", data_type), tolerance)  # type: ignore[arg-type]
    assert "depth" in str(caught.value) or message == "duration" or message == "whole number"


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1))
def test_equal_keys_share_a_cell_and_others_do_not(values: list[str | None]) -> None:
    cells = Key("k").cells(pa.array(values, pa.string())).tolist()
    together = dict(zip(values, cells, strict=True))
    assert [together[value] for value in values] == cells
    assert len(set(cells)) == len(set(values))
    assert all((value is None) == (c == NO_CELL) for value, c in zip(values, cells, strict=True))


def test_every_byte_of_a_key_counts() -> None:
    base = "abcdefghijklmnopqrstuvwxyz0123456789"
    keys = {base[:length] for length in range(len(base))}
    keys |= {key[:at] + "#" + key[at + 1 :] for key in keys for at in range(len(key))}
    cells = Key("k").cells(pa.array(sorted(keys)))
    assert len(set(cells.tolist())) == len(keys)


def test_keys_are_equal_across_types_and_slices() -> None:
    texts = pa.array(["", "a", "ab" * 20, "room 7"])
    plain = Key("k").cells(texts)
    assert Key("k").cells(texts.cast(pa.large_string())).tolist() == plain.tolist()
    assert Key("k").cells(texts.slice(2)).tolist() == plain[2:].tolist()
    assert Key("k").cells(pa.array([0.0, -0.0])).tolist()[0] == Key("k").cells(pa.array([-0.0]))[0]
    numbers = [-(2**31), 0, 2**31 - 1]
    assert (
        Key("k").cells(pa.array(numbers, pa.int32())).tolist()
        == Key("k").cells(pa.array(numbers, pa.int64())).tolist()
    )


def test_grid_puts_keys_first_and_refuses_strangers() -> None:
    schema = pa.schema([("t", pa.int64()), ("x", pa.float32()), ("room", pa.string())])
    assert Grid.of(schema, {"t": 1, "x": None}, by=["room"]).names == ("room", "t", "x")
    for on, by in [({"y": 1}, None), ({}, None), ({"t": 1}, "t"), ({"t": 1}, "nowhere")]:
        with pytest.raises(InputError):
            Grid.of(schema, on, by)  # type: ignore[arg-type]
