"""Corners that once gave wrong rows, wrong errors or too much memory."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from questions import as_bag
from support import call_in_child, peak_begins_anew, resident

import matwin
from matwin import memory
from matwin.kernels import strips

SMALL = {"page_size": "4KiB", "memory": 32 * 4096}


def test_a_function_may_return_integers_and_floats() -> None:
    left = pa.table({"s": [str(i % 50) for i in range(60)], "i": range(60)})
    right = pa.table({"s": [str(i // 200) for i in range(600)], "j": range(600)})
    arguments: dict[str, Any] = {
        "on": {"s": None},
        "orders": {"s": lambda a, b: 2 if a == b else 0.5 + abs(int(a) - int(b))},
    }
    found = matwin.bestmatch_join(left, right, **arguments).read_all()
    paged = matwin.bestmatch_join(left, right, schedule="gallop", **SMALL, **arguments).read_all()
    assert as_bag(found) == as_bag(paged)


def test_integers_that_would_wrap_in_a_function_are_exact() -> None:
    left, right = pa.table({"t": [0]}), pa.table({"t": [3 * 10**9 + 1, 7 * 10**9]})
    for function in (squared, squared_float):
        found = matwin.bestmatch_join(left, right, on={"t": None}, orders={"t": function})
        assert found.read_all()["t_right"].to_pylist() == [3 * 10**9 + 1]


def squared(a: Any, b: Any) -> Any:
    return (a - b) ** 2


def squared_float(a: Any, b: Any) -> Any:
    return float(a - b) ** 2


def test_long_keys_with_the_same_checksum_are_different() -> None:
    """CRC-32 is linear: four bytes at the end give a tail any checksum that is wanted."""
    head, one = "p" * 256, b"first tail, ending with "
    wanted = zlib.crc32(one + b"AAAA")
    other = _with_checksum(b"other tail, ending with ", wanted)
    assert zlib.crc32(other) == wanted and other != one + b"AAAA"
    keys = [(head.encode() + tail) for tail in (one + b"AAAA", other)]
    left = pa.table({"t": [0], "k": pa.array(keys[:1], pa.binary())})
    right = pa.table({"t": [0], "k": pa.array(keys[1:], pa.binary())})
    assert matwin.epsilon_join(left, right, on={"t": 0}, by="k").read_all().num_rows == 0
    assert matwin.epsilon_join(left, left, on={"t": 0}, by="k").read_all().num_rows == 1


def _with_checksum(start: bytes, wanted: int) -> bytes:
    """`start` and four bytes more, with the checksum `wanted`: CRC-32 run backwards."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0xEDB88320 if value & 1 else value >> 1
        table.append(value)
    tops = {value >> 24: index for index, value in enumerate(table)}
    value, picked = wanted ^ 0xFFFFFFFF, []
    for _ in range(4):
        index = tops[value >> 24]
        picked.append(index)
        value = ((value ^ table[index]) << 8) & 0xFFFFFFFF
    state, tail = zlib.crc32(start) ^ 0xFFFFFFFF, bytearray()
    for index in reversed(picked):
        tail.append((state ^ index) & 0xFF)
        state = table[index] ^ (state >> 8)
    return start + bytes(tail)


def test_the_largest_integer_among_sorted_rows_is_no_order() -> None:
    values = np.arange(20_000)
    values[12_000] = 2**63 - 1
    rows = pa.table({"t": values})
    found = matwin.epsilon_join(rows, rows, on={"t": 0}, **SMALL).read_all()
    assert found.num_rows == 20_000


def test_two_stretches_that_fall_by_more_than_64_bits() -> None:
    rows = pa.table({"t": np.concatenate([np.linspace(-100, 100, 9000)] * 2)})
    assert matwin.epsilon_join(rows, rows, on={"t": 0.0}, **SMALL).read_all().num_rows == 36_000


@pytest.mark.parametrize(
    ("left_type", "right_type", "key"),
    [(pa.int32(), pa.int64(), 5 * 10**9), (pa.float32(), pa.float64(), 0.1)],
)
def test_an_unmatched_key_keeps_its_value(left_type: Any, right_type: Any, key: Any) -> None:
    left = pa.table({"t": [0], "k": pa.array([1], left_type)})
    right = pa.table({"t": [0], "k": pa.array([key], right_type)})
    for join, arguments in (
        (matwin.epsilon_join, {"how": "right"}),
        (matwin.bestmatch_join, {"how": "full", "keep_unmatched": True}),
    ):
        found = join(left, right, on={"t": 1}, by="k", **arguments).read_all()
        assert key in found["k"].to_pylist()


def test_a_report_counts_one_join() -> None:
    rows, report = pa.table({"t": [1]}), matwin.Report()
    matwin.epsilon_join(rows, rows, on={"t": 0}, report=report).read_all()
    with pytest.raises(matwin.InputError, match="counted another join"):
        matwin.epsilon_join(rows, rows, on={"t": 0}, report=report)


def test_our_own_column_names_are_reserved() -> None:
    rows = pa.table({"t": [1], "matwin row": [2]})
    with pytest.raises(matwin.InputError, match=r"left: column 'matwin row'.* rename"):
        matwin.epsilon_join(rows, rows, on={"t": 0})


def test_one_side_of_a_tolerance_may_be_open() -> None:
    left, right = pa.table({"t": [1, 5]}), pa.table({"t": [2, 0, -9]})
    found = matwin.bestmatch_join(left, right, on={"t": (None, 0)}).read_all()
    assert found["t_right"].to_pylist() == [0, 2]
    with pytest.raises(matwin.InputError, match="on both sides"):
        matwin.bestmatch_join(matwin.stream(left), right, on={"t": (None, 0)}).read_all()


# ── memory that was not counted ──────────────────────────────────────────────────────────────


def peak_of(case: str) -> int:
    """Bytes that a join adds to the resident memory at its peak."""
    rows = pa.table({"t": [0, 1], "x": pa.array(["a", "b"])})
    for options in ({}, {"materialize": "slab", "memory": "16MiB"}):
        matwin.epsilon_join(rows, rows, on={"t": 0}, **options).read_all()
    left, right, arguments = CASES[case]()
    peak_begins_anew()
    start = resident("VmRSS")
    for batch in matwin.epsilon_join(left, right, memory="16MiB", **arguments):
        del batch
    return resident("VmHWM") - start


def _dictionaries() -> tuple[Any, Any, dict[str, Any]]:
    texts = pa.array([str(i) * 1000 for i in range(50)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(60_000) % 50), texts)
    rows = pa.table({"t": np.arange(60_000), "name": column})
    return rows, rows, {"on": {"t": 0}}


def _wide_rows_with_many_partners() -> tuple[Any, Any, dict[str, Any]]:
    left = pa.table({"t": np.zeros(8, np.int64), "text": ["x" * 100_000] * 8})
    return left, pa.table({"t": np.zeros(2000, np.int64)}), {"on": {"t": 1}}


def _one_large_batch() -> tuple[Any, Any, dict[str, Any]]:
    rows = 3_000_000
    t = pa.array(np.arange(rows), mask=np.arange(rows) % 100 == 0)
    batch = pa.record_batch({"t": t, "v": np.arange(rows)})
    return [batch], pa.table({"t": [5]}), {"on": {"t": 0}}


CASES = {
    "dictionaries": _dictionaries,
    "wide rows with many partners": _wide_rows_with_many_partners,
    "one large batch": _one_large_batch,
}


@pytest.mark.disk
@pytest.mark.parametrize("case", CASES)
def test_memory_stays_near_the_budget(case: str) -> None:
    assert call_in_child(peak_of, case) <= 16 * 2**20 + 75 * 10**6


# ── the nearest of many ──────────────────────────────────────────────────────────────────────

LEAST, MOST = -(2**63), 2**63 - 1


def nearest_pairs(
    left: Sequence[int], right: Sequence[int], lo: int, hi: int, keys: int
) -> list[tuple[int, int]]:
    """The pairs of row numbers, by a plain loop; a row's key is its number modulo `keys`."""
    found = []
    for i, here in enumerate(left):
        gaps = {
            j: abs(there - here)
            for j, there in enumerate(right)
            if lo <= there - here <= hi and i % keys == j % keys
        }
        found += [(i, j) for j, gap in gaps.items() if gap == min(gaps.values())]
    return sorted(found)


def crowd(kind: str, rows: int, seed: int) -> list[int]:
    chance = np.random.default_rng(seed)
    if kind == "edges":
        drawn = chance.integers(0, 40, rows)
        return [LEAST + int(n) if n % 2 else MOST - int(n) for n in drawn]
    span = {"ties": 25, "dense": 300, "sparse": 10**6}[kind]
    return chance.integers(-span, span, rows).tolist()


@pytest.mark.parametrize("on_pages", [False, True])
@pytest.mark.parametrize("keys", [1, 3])
@pytest.mark.parametrize(
    "lo, hi", [(-(10**5), 10**5), (-200, 0), (3, 150), (-40, -2), (0, 0), (-MOST, MOST)], ids=str
)
@pytest.mark.parametrize("kind", ["ties", "dense", "sparse", "edges"])
def test_the_nearest_of_many(kind: str, lo: int, hi: int, keys: int, on_pages: bool) -> None:
    """More rows within reach than are looked at one by one."""
    values = crowd(kind, 150, 1), crowd(kind, 170, 2)
    tables = [
        pa.table({
            "t": pa.array(side, pa.int64()), "id": range(len(side)),
            "k": [f"key {n % keys}" for n in range(len(side))],
        })
        for side in values
    ]  # fmt: skip
    options: dict[str, Any] = {"schedule": "gallop", **SMALL} if on_pages else {}
    for how in ("left", "right"):
        joined = matwin.bestmatch_join(
            *tables, on={"t": (lo, hi)}, by="k", how=how, **options
        ).read_all()
        found = sorted(
            zip(joined["id_left"].to_pylist(), joined["id_right"].to_pylist(), strict=True)
        )
        if how == "left":
            assert found == nearest_pairs(*values, lo, hi, keys)
        else:
            swapped = nearest_pairs(values[1], values[0], -hi, -lo, keys)
            assert found == sorted((i, j) for j, i in swapped)


TENS = np.arange(40) * 10
FAR_APART = {
    "uint64": (pa.array(TENS.astype(np.uint64) + np.uint64(2**63 + 1000)), 1, (1, 2)),
    "int64": (pa.array(2**63 - 2 - TENS), 1, (1, 2)),
    "floats": (pa.array(1.7e15 + TENS), 1.0, (1.0, 1.0001)),
    "negative floats": (pa.array(-1.7e15 - TENS), 1.0, (1.0, 1.0001)),
    "unix seconds": (pa.array(1.7e9 + TENS), 0.0, 1e-10),
}


@pytest.mark.parametrize("options", [{}, {"materialize": "slab", **SMALL}], ids=["memory", "pages"])
@pytest.mark.parametrize("kind", FAR_APART)
def test_matches_far_from_zero(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "FEW_PAIRS", 0)
    monkeypatch.setattr(strips, "FEW_ROWS", 0)
    column, apart, tolerance = FAR_APART[kind]
    left = pa.table({"u": column, "t": range(40)})
    right = pa.table({"u": pc.add(column, pa.scalar(apart, column.type)), "t": range(40)})
    found = matwin.epsilon_join(left, right, on={"u": tolerance, "t": 0}, **options).read_all()
    assert sorted(found["t_left"].to_pylist()) == list(range(40))


@pytest.mark.parametrize("options", [{}, {"materialize": "slab", **SMALL}], ids=["memory", "pages"])
def test_floats_farther_apart_than_the_largest(options: dict[str, Any]) -> None:
    left = pa.table({"x": [-1.7e308, 1.0]})
    right = pa.table({"x": [1.7e308, math.inf, math.nan, None]})
    for on, rows in [((0, None), 2), ((None, 0), 0), ((None, None), 2), (None, 2), (1.79e308, 1)]:
        found = matwin.epsilon_join(left, right, on={"x": on}, **options).read_all()
        assert found.num_rows == rows, on


@pytest.mark.filterwarnings("error")
def test_distances_beyond_floats_beside_a_function() -> None:
    left = pa.table({"t": [0.0, 1.0], "x": [0.0, 1.7e308]})
    right = pa.table({"t": [0.0, 0.0], "x": [-1.7e308, 0.0]})
    asked: dict[str, Any] = {"on": {"t": None, "x": None}, "orders": {"t": lambda a, b: a + b}}
    found = matwin.bestmatch_join(left, right, how="inner", **asked).read_all()
    assert found.to_pylist() == [{"t_left": 0, "x_left": 0, "t_right": 0, "x_right": 0}]


@pytest.mark.parametrize("how", ["inner", "left", "full", "anti"])
def test_a_live_stream_up_to_the_last_whole_number(how: str) -> None:
    """Everything is final once the other side's frontier, less the tolerance, is past 64 bits."""
    values = [2**63 - 12, 2**63 - 5, 2**63 - 3, 2**63 - 1]
    rows = [pa.record_batch({"t": pa.array([value], pa.int64())}) for value in values]
    left, right = (matwin.stream(iter(rows), schema=rows[0].schema) for _ in range(2))
    found = matwin.epsilon_join(
        left, right, on={"t": (-10, -2)}, how=how, materialize="slab", max_delay="0s", **SMALL
    )
    assert found.read_all().num_rows == {"inner": 5, "left": 6, "full": 7, "anti": 1}[how]


@pytest.mark.parametrize("options", [{}, {"materialize": "standard"}], ids=["memory", "pages"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_infinite_keys_match_nothing(kind: Any, options: dict[str, Any]) -> None:
    """Not even each other: they are rejected like null and NaN, and come out alone."""
    keys = [float("inf"), float("-inf"), float("nan"), None, 1.0]
    table = pa.table({"t": [1] * 5, "k": pa.array(keys, kind), "id": range(5)})
    for how, rows in (("inner", 1), ("left", 5), ("full", 9), ("anti", 4)):
        report = matwin.Report()
        asked: dict[str, Any] = {"on": {"t": 0}, "by": "k", "how": how}
        found = matwin.epsilon_join(table, table, **asked, report=report, **options).read_all()
        assert found.num_rows == rows
        assert (report.left.used, report.left.rejected, report.right.rejected) == (1, 4, 4)
        assert matwin.verify(table, table, best=False, **asked).is_equal
    report = matwin.Report()
    windows: dict[str, Any] = {"time": "t", "windows": {("a", "b"): (0, 0)}, "by": "k"}
    streams = {"a": table, "b": table}
    assert matwin.window_join(streams, **windows, report=report, **options).read_all().num_rows == 1
    assert report.streams["a"].rejected == 4
    assert matwin.verify_window_join(streams, **windows).is_equal


@pytest.mark.parametrize(
    ("at", "old", "period"),
    [(0.7, -8.0, 8.7), (6e300, -9.000000000000001e300, 1.5e301), (1.0, 1e-300, 1.0),
     (1.7976931348623157e308, -5e-324, 1.7976931348623157e308)],
)  # fmt: skip
def test_a_fixed_window_measures_floats_by_their_difference(
    at: float, old: float, period: float
) -> None:
    """A row that is exactly as old as the period counts, however `at - period` is rounded."""
    left, right = pa.table({"t": [at], "x": [1]}), pa.table({"t": [old], "x": [1]})
    for length, rows in ((period, 1), (math.nextafter(period, 0), 0)):
        found = matwin.fixed_window_join(left, right, time="t", period=length, on={"x": 0})
        assert found.read_all().num_rows == rows


@pytest.mark.parametrize(
    ("last", "at", "every"), [(-8.0, 0.7, 8.7), (0.1, 0.3, 0.3 - 0.1), (1.0, 1e300, 1e300)]
)
def test_evaluations_are_spaced_by_the_difference_of_floats(
    last: float, at: float, every: float
) -> None:
    """One that is exactly `every` after another is due, however `last + every` is rounded."""
    rows = pa.table({"t": [last, at], "x": [1, 1]})
    for length, times in ((every, [last, at]), (math.nextafter(every, math.inf), [last])):
        found = matwin.fixed_window_join(rows, rows, time="t", period=0, every=length, on={"x": 0})
        assert found.read_all()["evaluated_at"].to_pylist() == times


@pytest.mark.parametrize("name", ["period", "every"])
def test_a_length_of_time_is_no_pair(name: str) -> None:
    table = pa.table({"t": [1], "x": [1]})
    lengths: dict[str, Any] = {"period": 2, name: (-1, 2)}
    with pytest.raises(matwin.InputError, match=f"{name}=.*give one length"):
        matwin.fixed_window_join(table, table, time="t", on={"x": 0}, **lengths)
