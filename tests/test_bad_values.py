"""Odd values, times and streams: what matches, what never does, what is late.

The table of bad input, in memory and on pages.  A message names the source, the column, the row and
the remedy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from bad_input import (
    INF,
    LEFT,
    ODD,
    PAGES,
    RIGHT,
    each_join,
    each_place,
    id_pairs,
    ids,
    pairs,
    unread,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign

import matwin
from matwin import InputError, OrderError
from matwin.report import Report

# ── values ───────────────────────────────────────────────────────────────────────────────────

ALONE = [1, 2, 3, 4]  # what of ODD matches nothing
ZEROS = [(0, 0), (0, 5), (5, 0), (5, 5)]


@each_place
@pytest.mark.parametrize("tolerance", [0, 1e300, None])
def test_nan_null_and_infinities_never_match(tolerance: Any, options: dict[str, Any]) -> None:
    report = Report()
    on = {"t": tolerance}
    found = id_pairs(matwin.epsilon_join, ODD, ODD, on=on, report=report, **options)
    assert found == ZEROS
    assert (report.left.used, report.left.rejected, report.right.rejected) == (2, 4, 4)
    report.check()


@each_place
@pytest.mark.parametrize(
    ("how", "lonely"),
    [
        ("left", [(i, None) for i in ALONE]),
        ("right", [(None, i) for i in ALONE]),
        ("full", [(i, None) for i in ALONE] + [(None, i) for i in ALONE]),
    ],
)
def test_what_never_matches_is_kept(how: str, lonely: list[Any], options: dict[str, Any]) -> None:
    for join, more in (
        (matwin.bestmatch_join, {"keep_unmatched": True}),
        (matwin.epsilon_join, {}),
    ):
        found = id_pairs(join, ODD, ODD, on={"t": 0}, how=how, **more, **options)
        assert Counter(found) == Counter(ZEROS + lonely)
    dropped = id_pairs(matwin.bestmatch_join, ODD, ODD, on={"t": 0}, how=how, **options)
    assert dropped == ZEROS


def test_what_never_matches_has_no_partner() -> None:
    def alone(how: str) -> list[int]:
        reader = matwin.epsilon_join(ids(ODD), ids(ODD), on={"t": 1}, how=how)
        return sorted(reader.read_all()["i"].to_pylist())

    assert alone("anti") == ALONE
    assert alone("semi") == [0, 5]


@each_join
@each_place
def test_keys_with_odd_floats(join: Any, options: dict[str, Any]) -> None:
    table = pa.table({"t": [0] * 6, "k": ODD, "i": range(6)})
    found = pairs(join(table, table, on={"t": 0}, by="k", **options), "i_left", "i_right")
    assert found == [(0, 0), (0, 5), (5, 0), (5, 5)]  # nothing, not even itself, equals infinity


@each_join
@each_place
def test_the_ends_of_64_bits(join: Any, options: dict[str, Any]) -> None:
    ends = [-(2**63), 2**63 - 1]
    assert id_pairs(join, ends, ends, on={"t": 1}, **options) == [(0, 0), (1, 1)]
    far = id_pairs(matwin.epsilon_join, ends, ends, on={"t": 2**64 - 1}, **options)
    assert len(far) == 4
    assert id_pairs(join, ends, ends, on={"t": (2**64 - 1, 2**64)}, **options) == [(0, 1)]
    unsigned = pa.array([0, 2**64 - 1], pa.uint64())
    assert id_pairs(join, unsigned, unsigned, on={"t": 1}, **options) == [(0, 0), (1, 1)]


@each_join
def test_the_ends_of_64_bits_as_streams(join: Any) -> None:
    ends = ids([-(2**63), -(2**63), 0, 2**63 - 2, 2**63 - 1])
    reader = join(matwin.stream(ends), matwin.stream(ends), on={"t": (1, 1)})
    assert pairs(reader, "i_left", "i_right") == [(3, 4)]


@each_join
def test_whole_numbers_do_not_pass_through_floats(join: Any) -> None:
    assert id_pairs(join, [2**53, 2**53 + 1], [2**53 + 1], on={"t": 0}) == [(1, 0)]
    nanos = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    later = pa.array([1_700_000_000_000_000_002], pa.timestamp("ns"))
    assert id_pairs(join, nanos, later, on={"t": 0}) == []
    assert id_pairs(join, nanos, later, on={"t": "1ns"}) == [(0, 0)]


@each_join
@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([2**53 + 1], [1.0], "left: column 't', row 1: the value does not fit double"),
        ([1], pa.array([0, 2**63], pa.uint64()), "right: column 't', row 2: .* not fit int64"),
    ],
)
def test_numbers_that_would_be_rounded(join: Any, left: Any, right: Any, message: str) -> None:
    def padded(values: Any) -> pa.Array:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return pa.concat_arrays([array.slice(0, 1).cast(array.type).filter([False]),
                                 pa.array([None], array.type), array])  # fmt: skip

    with pytest.raises(InputError, match=message):
        join(ids(padded(left)), ids(padded(right)), on={"t": 1}).read_all()


# ── times ────────────────────────────────────────────────────────────────────────────────────


def times(counts: list[int | None], unit: str, zone: str | None = None) -> pa.Array:
    return pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))


@each_join
def test_aware_and_naive_never_mix(join: Any) -> None:
    naive, aware = ids(times([0], "us")), ids(times([0], "us", "UTC"))
    for sides in ((naive, aware), (aware, naive)):
        with pytest.raises(InputError, match=r"'t' is timestamp.*give both a time zone or neither"):
            join(*map(unread, sides), on={"t": "1s"})


@each_join
def test_zones_compare_as_instants(join: Any) -> None:
    moments = [0, 3_600_000_000]
    left, right = times(moments, "us", "Asia/Tokyo"), times(moments, "us", "America/New_York")
    assert id_pairs(join, left, right, on={"t": 0}) == [(0, 0), (1, 1)]
    table = join(ids(left), ids(right), on={"t": 0}).read_all()
    assert table["t_left"].type.tz == "Asia/Tokyo"
    assert table["t_right"].type.tz == "America/New_York"


@each_join
@each_place
def test_units_are_brought_to_the_finer_one(join: Any, options: dict[str, Any]) -> None:
    left = times([1, 2, None], "s")
    right = times([10**9 + 1, 2 * 10**9], "ns")
    assert id_pairs(join, left, right, on={"t": 0}, **options) == [(1, 1)]
    assert id_pairs(join, right, left, on={"t": "1ns"}, **options) == [(0, 0), (1, 1)]


@each_join
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_time_that_does_not_fit_the_finer_unit(join: Any, side: str) -> None:
    tables = {"left": ids(times([1], "ns")), "right": ids(times([1], "ns"))}
    tables[side] = ids(times([1, None, 2**60, 5], "s"))
    message = rf"{side}: column 't', row 2: the value does not fit timestamp\[ns\].*cast or filter"
    with pytest.raises(InputError, match=message):
        join(tables["left"], tables["right"], on={"t": 0}).read_all()


@each_join
def test_what_can_not_be_compared(join: Any) -> None:
    for left, right in (
        ([1], times([1], "us")),
        ([1.5], pa.array([date(2020, 1, 1)])),
        (times([1], "us", "UTC"), pa.array([date(2020, 1, 1)])),
        (pa.array([timedelta(1)]), times([1], "us")),
    ):
        with pytest.raises(InputError, match="can't be compared; cast one of them"):
            join(unread(ids(left)), unread(ids(right)), on={"t": 0})


# ── streams ──────────────────────────────────────────────────────────────────────────────────

TANGLED = pa.table({"t": [5, 7, 1, 9, 8], "v": [*"abcde"]})
EVERY = pa.table({"t": list(range(12)), "w": list(range(12))})


@each_join
@each_place
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_stream_that_is_not_sorted(join: Any, side: str, options: dict[str, Any]) -> None:
    sides = {"left": EVERY, "right": EVERY, side: matwin.stream(TANGLED)}
    message = f"^{side}: row 2 is late: its 't' is 1 after 7, .*Lateness.*late='drop'"
    with pytest.raises(OrderError, match=message):
        join(*sides.values(), on={"t": 1}, **options).read_all()


@each_join
def test_a_stream_goes_by_its_own_name(join: Any) -> None:
    with pytest.raises(OrderError, match=r"^barometer: row 2 is late"):
        join(EVERY, matwin.stream(TANGLED, name="barometer"), on={"t": 1}).read_all()


@each_join
def test_late_rows_are_named_by_their_number_among_all(join: Any) -> None:
    """Rows without a value count too, and so do those of earlier batches."""
    batches = [{"t": 1.0}, {"t": None}, {"t": 4.0}, {"t": math.nan}, {"t": 2.0}]
    live = matwin.stream(iter(batches), schema=pa.schema([("t", pa.float64())]))
    with pytest.raises(OrderError, match=r"row 4 is late: its 't' is 2.0 after 4.0"):
        join(live, pa.table({"t": [1.0]}), on={"t": 1}).read_all()


@each_join
@each_place
def test_late_rows_are_dropped_and_counted(join: Any, options: dict[str, Any]) -> None:
    report = Report()
    reader = join(matwin.stream(TANGLED, late="drop"), EVERY, on={"t": 0}, report=report, **options)
    assert pairs(reader, "v", "w") == [("a", 5), ("b", 7), ("d", 9)]
    side = report.left
    assert (side.rows_in, side.used, side.late, side.rejected) == (5, 3, 2, 0)
    report.check()


ROWS = st.lists(st.none() | st.integers(0, 20) | st.just(math.nan), max_size=30)
ORDERS = st.sampled_from(
    [matwin.Sorted(), matwin.Lateness(0), matwin.Lateness(3), matwin.ReadAhead(2),
     matwin.GridOrdered(4)]
)  # fmt: skip


@each_join
@given(left=ROWS, right=ROWS, order=ORDERS, sizes=st.integers(1, 7), paged=st.booleans())
@settings(max_examples=campaign(60, 2000))
def test_no_row_is_lost(
    join: Any, left: list[Any], right: list[Any], order: Any, sizes: int, paged: bool
) -> None:
    """Rows in = used + late + rejected, and the join is that of the used rows."""
    tables = [ids(pa.array(rows, pa.float64())) for rows in (left, right)]
    report = Report()
    live = [
        matwin.stream(table.to_batches(max_chunksize=sizes), order=order, late="drop",
                      schema=table.schema)
        for table in tables
    ]  # fmt: skip
    options = {**PAGES, "max_delay": "0s"} if paged else {}
    found = join(*live, on={"t": 2}, report=report, **options).read_all()
    report.check()
    used = []
    for side, table in zip((report.left, report.right), tables, strict=True):
        kept = in_time(table, order)
        assert (side.rows_in, side.used) == (table.num_rows, kept.num_rows)
        assert side.rejected == sum(v is None or v != v for v in table["t"].to_pylist())
        used.append(kept)
    assert as_bag(found) == as_bag(join(*used, on={"t": 2}).read_all())


def in_time(table: pa.Table, order: Any) -> pa.Table:
    """The rows that keep the promise, by a plain reading of what it says."""
    kept: list[int] = []
    seen: list[float] = []
    complete = -INF  # everything below has come …
    for row, t in enumerate(table["t"].to_pylist()):
        if t is None or t != t or t < complete:
            continue
        kept.append(row)
        seen.append(t)
        match order:
            case matwin.Sorted():
                complete = max(complete, t)
            case matwin.Lateness(lateness):
                complete = max(complete, math.nextafter(t - lateness, INF))  # … or is equal
            case matwin.ReadAhead(rows):
                complete = max(complete, min(seen[-rows:])) if len(seen) >= rows else complete
            case matwin.GridOrdered(width):
                complete = max(complete, t // width * width)
    return table.take(pa.array(kept, pa.int64()))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: matwin.stream(LEFT, on="z"), "column 'z' is not there"),
        (lambda: matwin.stream(LEFT, order="rising"), "order='rising' is not an order"),
        (lambda: matwin.stream(LEFT, late="ignore"), "late='ignore'"),
        (lambda: matwin.stream(LEFT, order=matwin.Punctuated()), "only an iterable"),
        (lambda: matwin.stream(LEFT, schema=RIGHT.schema), "its columns are"),
        (lambda: matwin.stream(matwin.stream(LEFT)), "a stream already"),
        (lambda: matwin.stream(5), "is no source"),
        (lambda: matwin.Lateness(-1), "negative"),
        (lambda: matwin.Lateness(math.nan), "finite"),
        (lambda: matwin.Lateness(INF), "finite"),
        (lambda: matwin.Lateness("late"), "'late' is not a duration"),
        (lambda: matwin.ReadAhead(0), "at least one row"),
        (lambda: matwin.GridOrdered(0), "wider than nothing"),
    ],
)
def test_bad_promises(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()


@each_join
def test_a_stream_ordered_by_another_column(join: Any) -> None:
    with pytest.raises(
        InputError, match=r"left: the stream is ordered by 'x'.*'t'; name 'x' first"
    ):
        join(matwin.stream(LEFT, on="x"), RIGHT, on={"t": 1})
