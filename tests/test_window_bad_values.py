"""Odd values in window joins: what matches, what never does, what is counted, and who is named.

Nulls and NaN, the ends of 64 bits, times of several units and zones, keys, functions that fail,
rows without end and streams that break their word: with every way to run a join.
"""

from __future__ import annotations

import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bad_input import INF, ODD, PAGES, ids, unread
from support import amount_of

import matwin
from matwin import InputError, OrderError
from matwin.report import Report

WAYS: dict[str, dict[str, Any]] = {
    "merge": {},
    "pages": PAGES,
    "backward": {"algorithm": "backward-nested-loop"},
    "forward": {"algorithm": "forward-nested-loop"},
    "global": {"algorithm": "backward-nested-loop", "bounds": "global"},
}
each_way = pytest.mark.parametrize("options", WAYS.values(), ids=list(WAYS))
KEYED: dict[str, dict[str, Any]] = {
    **WAYS, "hash": {"algorithm": "backward-hash"}, "forward hash": {"algorithm": "forward-hash"}
}  # fmt: skip
each_keyed_way = pytest.mark.parametrize("options", KEYED.values(), ids=list(KEYED))


def joined(*streams: Any, **arguments: Any) -> pa.Table:
    """These streams, called a, b, c, …"""
    tables = [s if isinstance(s, pa.Table) else ids(s) for s in streams]
    given = {"time": "t", "windows": 1, **arguments}
    return matwin.window_join(dict(zip("abcde", tables, strict=False)), **given).read_all()


def tuples(*streams: Any, **arguments: Any) -> list[tuple[int, ...]]:
    """Row numbers of what is found."""
    found = joined(*streams, **arguments)
    names = "abcde"[: len(streams)]
    return sorted(zip(*(found[f"{name}_i"].to_pylist() for name in names), strict=True))


def times(counts: list[int | None], unit: str, zone: str | None = None) -> pa.Array:
    return pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))


# ── values ───────────────────────────────────────────────────────────────────────────────────

ZEROS = [(i, j, k) for i in (0, 5) for j in (0, 5) for k in (0, 5)]


@each_way
@pytest.mark.parametrize("windows", [1e300, 0.5, {("a", "b"): (0, 0), ("b", "c"): (0, 0)}])
def test_nan_null_and_infinities_never_match(windows: Any, options: dict[str, Any]) -> None:
    """0.0 and -0.0 are the same moment; the other four rows are rejected."""
    report = Report()
    assert tuples(ODD, ODD, ODD, windows=windows, report=report, **options) == ZEROS
    for counts in report.streams.values():
        assert (counts.rows_in, counts.used, counts.late, counts.rejected) == (6, 2, 0, 4)
    report.check()


@each_keyed_way
def test_keys_with_odd_floats(options: dict[str, Any]) -> None:
    """Null, NaN and infinite keys are rejected, and -0.0 is 0.0."""
    table = pa.table({"t": [0] * 6, "k": ODD, "i": range(6)})
    report = Report()
    assert tuples(table, table, table, by="k", report=report, **options) == ZEROS
    for counts in report.streams.values():
        assert (counts.rows_in, counts.used, counts.rejected) == (6, 2, 4)


@each_keyed_way
def test_one_null_of_two_keys_is_enough(options: dict[str, Any]) -> None:
    table = pa.table(
        {"t": [0] * 4, "k": ["x", None, "x", None], "l": [1, 1, None, None], "i": range(4)}
    )
    report = Report()
    assert tuples(table, table, by=["k", "l"], report=report, **options) == [(0, 0)]
    assert report.streams["b"].rejected == 3


@each_way
def test_the_ends_of_64_bits(options: dict[str, Any]) -> None:
    low, high = -(2**63), 2**63 - 1
    ends = [low, high]
    assert tuples(ends, ends, ends, **options) == [(0, 0, 0), (1, 1, 1)]
    assert len(tuples(ends, ends, windows=2**63 - 1, **options)) == 2
    middle = [0, -1]
    chain = {("a", "b"): 2**63 - 1, ("b", "c"): 2**63 - 1}
    # -1 is 2^63 - 1 from the lowest, and 0 as far from the highest
    assert tuples(ends, middle, ends, windows=chain, **options) == [(0, 1, 0), (1, 0, 1)]
    wide = {("a", "b"): (1, 2**63 - 1), ("b", "c"): (1, 2**63 - 1)}
    assert tuples([low], [-1], [2**63 - 2], windows=wide, **options) == [(0, 0, 0)]


@each_way
@pytest.mark.parametrize(
    ("moment", "data_type", "limits"),
    [
        (-(2**63), pa.int64(), (-2, -2)),
        (2**63 - 1, pa.int64(), (1, 2)),
        (0, pa.uint64(), (-2, -1)),
        (2**64 - 1, pa.uint64(), (1, 1)),
        (-(2**63), pa.timestamp("ns"), ("-2ns", "-2ns")),
    ],
)
def test_a_window_beyond_the_end_admits_nothing(
    moment: int, data_type: pa.DataType, limits: tuple[Any, Any], options: dict[str, Any]
) -> None:
    whole = pa.uint64() if data_type == pa.uint64() else pa.int64()
    one = ids(pa.array([moment], whole).cast(data_type))
    windows = {("b", "c"): limits, ("a", "b"): amount_of(1, data_type)}
    assert tuples(one, one, one, windows=windows, **options) == []


@each_way
def test_whole_numbers_do_not_pass_through_floats(options: dict[str, Any]) -> None:
    same = {("a", "b"): (0, 0)}
    assert tuples([2**53, 2**53 + 1], [2**53 + 1], windows=same, **options) == [(1, 0)]
    nanos = [1_700_000_000_000_000_001]
    later = times([nanos[0] + 1], "ns")
    assert tuples(times(nanos, "ns"), later, windows=same, **options) == []
    assert tuples(times(nanos, "ns"), later, windows="1ns", **options) == [(0, 0)]


@pytest.mark.parametrize(
    ("stream", "values", "message"),
    [
        ("b", [None, 2**53 + 1], "^b: column 't', row 1: the value does not fit double"),
        ("c", [0, -(2**53) - 1], "^c: column 't', row 1: the value does not fit double"),
    ],
)
def test_numbers_that_would_be_rounded(stream: str, values: Any, message: str) -> None:
    streams = {"a": ids([1.0]), "b": ids([1]), "c": ids([1]), stream: ids(values)}
    with pytest.raises(InputError, match=message):
        matwin.window_join(streams, time="t", windows=1).read_all()


# ── times ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("odd", ["a", "b", "c"])
def test_aware_and_naive_never_mix(odd: str) -> None:
    streams = {name: unread(ids(times([0], "us"))) for name in "abc"}
    streams[odd] = unread(ids(times([0], "us", "UTC")))
    with pytest.raises(InputError, match=r"'t' is timestamp.*time zone") as told:
        matwin.window_join(streams, time="t", windows="1s")
    other = "a" if odd != "a" else "b"
    assert f"{odd} 't'" in str(told.value) and f"{other} 't'" in str(told.value)


@each_way
def test_zones_compare_as_instants(options: dict[str, Any]) -> None:
    moments = [0, 3_600_000_000]
    zones = ("Asia/Tokyo", "America/New_York", "UTC")
    streams = [ids(times(moments, "us", zone)) for zone in zones]
    found = joined(*streams, windows="1s", **options)
    assert [found[f"{name}_t"].type.tz for name in "abc"] == list(zones)
    assert sorted(found["a_i"].to_pylist()) == [0, 1]


@each_way
def test_units_are_brought_to_the_finest(options: dict[str, Any]) -> None:
    streams = (
        times([1, 2, None], "s"),
        times([1_001, 2_000], "ms"),
        times([10**9, 2 * 10**9 + 1], "ns"),
    )
    assert tuples(*streams, windows="1ns", **options) == [(1, 1, 1)]
    assert tuples(*streams, windows="1ms", **options) == [(0, 0, 0), (1, 1, 1)]
    assert tuples(*streams, windows=np.timedelta64(1, "ms"), **options) == [(0, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize("stream", ["a", "b"])
def test_a_time_that_does_not_fit_the_finer_unit(stream: str) -> None:
    streams = {name: ids(times([1], "ns")) for name in "abc"}
    streams[stream] = ids(times([1, None, 2**60, 5], "s"))
    message = (
        rf"^{stream}: column 't', row 2: the value does not fit timestamp\[ns\].*cast or filter"
    )
    with pytest.raises(InputError, match=message):
        matwin.window_join(streams, time="t", windows="1s").read_all()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], times([1], "us")),
        ([1.5], pa.array([date(2020, 1, 1)])),
        (times([1], "us", "UTC"), pa.array([date(2020, 1, 1)])),
        (pa.array([timedelta(1)]), times([1], "us")),
    ],
)
def test_what_can_not_be_compared(one: Any, other: Any) -> None:
    streams = {"a": unread(ids(one)), "b": unread(ids(one)), "c": unread(ids(other))}
    with pytest.raises(InputError, match=r"a 't' is .* and c 't' is .*cast one of them"):
        matwin.window_join(streams, time="t", windows=1)


# ── functions ────────────────────────────────────────────────────────────────────────────────

LEFT = pa.table({"t": [1, 2, 3], "x": [1, 2, 3], "s": ["p", "q", "rr"], "i": [0, 1, 2]})


def failing(a: Any, b: Any) -> Any:
    if a == 2:
        raise KeyError("boom")
    return True


def dividing(a: Any, b: Any) -> Any:
    return 1 // (a - 2) < 5


def texting(a: Any, b: Any) -> Any:
    return "near" if a == 2 else True


def listing(a: Any, b: Any) -> Any:
    return [True, False]


def shapeless(a: Any, b: Any) -> Any:
    return np.zeros(7)


@each_way
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (failing, "fails for a.x=2, b.x=.*KeyError: 'boom'"),
        (dividing, "fails for a.x=2, b.x=.*ZeroDivisionError"),
        (texting, "returns .*near"),
        (listing, "returns"),
        (shapeless, "returns"),
    ],
)
def test_functions_that_fail(
    function: Any, says: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"'{function.__name__}' {says}") as told:
        joined(LEFT, LEFT, LEFT, where={("a.x", "b.x"): function}, scratch=tmp_path, **options)
    assert "a.x" in str(told.value) and "b.x" in str(told.value)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def none_or_nan(a: Any, b: Any) -> Any:
    return None if a == 1 else math.nan if a == 2 else True


def same_length(a: Any, b: Any) -> Any:
    """On whole columns it would run as well, and mean something else."""
    return len(a) == len(b) and a != b


@each_way
def test_null_and_nan_are_not_true(options: dict[str, Any]) -> None:
    found = tuples(LEFT, LEFT, where={("a.x", "b.x"): none_or_nan}, **options)
    assert found == [(2, 1), (2, 2)]


@each_way
def test_functions_of_text(options: dict[str, Any]) -> None:
    found = tuples(LEFT, LEFT, where={("a.s", "b.s"): same_length}, **options)
    assert found == [(0, 1), (1, 0)]


def equal(a: Any, b: Any) -> Any:
    return a == b


@each_way
@pytest.mark.parametrize("data_type", [pa.int64(), pa.uint64()])
def test_functions_get_whole_numbers_whole(data_type: Any, options: dict[str, Any]) -> None:
    numbers = pa.array([2**53, 2**53 + 1], data_type)
    table = pa.table({"t": [0, 0], "x": numbers, "i": [0, 1]})
    found = tuples(table, table, where={("a.x", "b.x"): equal}, **options)
    assert found == [(0, 0), (1, 1)]


@each_way
def test_tolerances_at_the_ends_of_64_bits(options: dict[str, Any]) -> None:
    table = pa.table({"t": [0, 0], "x": [-(2**63), 2**63 - 1], "i": [0, 1]})
    assert tuples(table, table, where={("a.x", "b.x"): 1}, **options) == [(0, 0), (1, 1)]
    assert tuples(table, table, where={("a.x", "b.x"): (1, 2**65)}, **options) == [(0, 1)]


# ── many rows ────────────────────────────────────────────────────────────────────────────────


@each_way
def test_all_times_equal(options: dict[str, Any]) -> None:
    found = tuples([7] * 20, [7] * 15, [7] * 10, **options)
    assert found == [(i, j, k) for i in range(20) for j in range(15) for k in range(10)]


@each_keyed_way
def test_one_key_has_nearly_all_rows(options: dict[str, Any]) -> None:
    t = np.arange(1500)
    keys = np.where(t % 10 == 3, t, 0)
    table = pa.table({"t": t, "k": keys, "i": t})
    windows = {("a", "b"): (1, 1), ("b", "c"): (1, 1)}
    found = tuples(table, table, table, windows=windows, by="k", **options)
    assert found == [
        (i, i + 1, i + 2) for i in range(1498) if keys[i] == keys[i + 1] == keys[i + 2]
    ]


@each_way
def test_a_huge_window_stops_at_the_limit(options: dict[str, Any]) -> None:
    rows = pa.table({"t": np.arange(300)})
    reader = matwin.window_join(
        {"a": rows, "b": rows, "c": rows}, time="t", windows=2**62, max_output_rows=100_000,
        **{**options, **({"memory": "2MiB"} if "memory" in options else {})},
    )  # fmt: skip
    got = 0
    with pytest.raises(InputError, match=r"more than max_output_rows=100000 rows.*narrow"):
        for batch in reader:
            got += batch.num_rows
    assert got <= 100_000


def test_the_limit_itself_is_allowed() -> None:
    assert len(tuples([1] * 10, [1] * 10, max_output_rows=100)) == 100
    with pytest.raises(InputError, match="max_output_rows=99"):
        tuples([1] * 10, [1] * 10, max_output_rows=99)


# ── streams that break their word ────────────────────────────────────────────────────────────

TANGLED = pa.table({"t": [5, 7, 1, 9, 8], "i": range(5)})
EVERY = pa.table({"t": list(range(12)), "i": list(range(12))})


@each_way
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_stream_that_is_not_sorted(name: str, options: dict[str, Any]) -> None:
    streams = {"a": EVERY, "b": EVERY, "c": EVERY, name: matwin.stream(TANGLED)}
    message = rf"^{name}: row 2 is late: its 't' is 1 after 7, .*Lateness.*late='drop'"
    with pytest.raises(OrderError, match=message):
        matwin.window_join(streams, time="t", windows=1, **options).read_all()


@each_way
def test_late_rows_are_dropped_and_counted(options: dict[str, Any]) -> None:
    report = Report()
    streams = {"a": EVERY, "b": matwin.stream(TANGLED, late="drop"), "c": EVERY}
    windows = {("a", "b"): (0, 0), ("b", "c"): (0, 0)}
    found = matwin.window_join(streams, time="t", windows=windows, report=report, **options)
    assert sorted(found.read_all()["b_i"].to_pylist()) == [0, 1, 3]
    counts = report.streams["b"]
    assert (counts.rows_in, counts.used, counts.late, counts.rejected) == (5, 3, 2, 0)
    report.check()


def test_a_stream_goes_by_its_own_name() -> None:
    streams = {"a": EVERY, "b": matwin.stream(TANGLED, name="barometer")}
    with pytest.raises(OrderError, match=r"^barometer: row 2 is late"):
        matwin.window_join(streams, time="t", windows=1).read_all()


def test_a_stream_ordered_by_another_column() -> None:
    table = pa.table({"t": [1], "x": [1]})
    with pytest.raises(InputError, match=r"^b: the stream is ordered by 'x'.*'t'"):
        matwin.window_join({"a": table, "b": matwin.stream(table, on="x")}, time="t", windows=1)


def test_infinite_tolerances_of_predicates_are_refused() -> None:
    with pytest.raises(InputError, match="finite"):
        joined(LEFT, LEFT, where={("a.x", "b.x"): INF})
