"""Durations as every kind of object, for columns of every unit, against exact fractions."""

from __future__ import annotations

import contextlib
import math
import pickle
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin.operators.semijoin import semijoin
from matwin.storage.bounds import bound_place
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension
from matwin.storage.units import in_units, nanoseconds, parse_duration

NS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9,
    "ps": Fraction(1, 10**3), "fs": Fraction(1, 10**6), "as": Fraction(1, 10**9),
}  # fmt: skip
TYPES = {
    pa.timestamp("s"): "s", pa.timestamp("ms"): "ms", pa.timestamp("us", "UTC"): "us",
    pa.timestamp("ns"): "ns", pa.date32(): "D", pa.date64(): "ms", pa.time32("s"): "s",
    pa.time32("ms"): "ms", pa.time64("us"): "us", pa.time64("ns"): "ns", pa.duration("s"): "s",
    pa.duration("ms"): "ms", pa.duration("us"): "us", pa.duration("ns"): "ns",
}  # fmt: skip
WRITTEN = {
    "ns": ["ns"], "us": ["us", "µs", "μs"], "ms": ["ms"], "s": ["s", "sec", "secs"],
    "m": ["m", "min", "mins"], "h": ["h", "hour", "hours"], "D": ["d", "day", "days"],
    "W": ["w", "week", "weeks"],
}  # fmt: skip
COUNTS = st.integers(-5, 5) | st.integers(-(10**6), 10**6) | st.integers(-(2**63) + 1, 2**63 - 1)
Given = tuple[Any, Fraction]
"""A duration as it is given, and its nanoseconds."""


@st.composite
def texts(draw: st.DrawFn) -> Given:
    chosen = draw(st.lists(st.sampled_from(list(WRITTEN)), min_size=1, unique=True))
    sign = draw(st.sampled_from(["", "", "-", "+"]))
    total, text = Fraction(0), draw(st.sampled_from(["", " "])) + sign
    for unit in sorted(chosen, key=NS.__getitem__, reverse=True):
        whole, digits = draw(st.integers(0, 10**12)), draw(st.sampled_from(["", "5", "25", "001"]))
        number = f"{whole}.{digits}" if digits else str(whole)
        total += Fraction(number) * NS[unit]
        text += number + draw(st.sampled_from(["", " "])) + draw(st.sampled_from(WRITTEN[unit]))
        text += draw(st.sampled_from(["", " "]))
    return text, -total if sign == "-" else total


def numpy_durations() -> st.SearchStrategy[Given]:
    def made(count: int, unit: str, step: int) -> Given:
        count //= step
        return np.timedelta64(count, (unit, step)), Fraction(count * step * NS[unit])

    return st.builds(made, COUNTS, st.sampled_from(list(NS)), st.sampled_from([1, 1, 7]))


def pandas_durations() -> st.SearchStrategy[Given]:
    def made(count: int, unit: str) -> Given:
        return pd.Timedelta(np.timedelta64(count, unit)), Fraction(count * NS[unit])

    return st.builds(made, st.integers(-(2**53), 2**53), st.sampled_from(["s", "ms", "us", "ns"]))


def python_durations() -> st.SearchStrategy[Given]:
    return st.timedeltas().map(lambda d: (d, Fraction(d // timedelta(microseconds=1) * 1000)))


def arrow_durations() -> st.SearchStrategy[Given]:
    return st.tuples(COUNTS, st.sampled_from(["s", "ms", "us", "ns"])).map(
        lambda t: (pa.scalar(t[0], pa.duration(t[1])), Fraction(t[0] * NS[t[1]]))
    )


DURATIONS = st.one_of(
    texts(), numpy_durations(), pandas_durations(), python_durations(), arrow_durations()
)


@pytest.mark.proof("tolerances as time objects")
@settings(max_examples=campaign(400, 20_000))
@given(DURATIONS, st.sampled_from(list(TYPES)))
def test_a_duration_is_exact_or_refused(duration: Given, data_type: pa.DataType) -> None:
    given_, length = duration
    exact, field = length / NS[TYPES[data_type]], pa.field("t", data_type)
    tried()
    if exact.denominator != 1:
        with pytest.raises(InputError, match=r"'t': .* is not a whole number of"):
            in_units(given_, field, rounding=math.floor)
        return
    assert in_units(given_, field, rounding=math.floor) == exact
    if exact >= 0:
        bound = Dimension.of(field, given_)
        assert (bound.lo, bound.hi) == (-exact, exact)
        assert Dimension.of(field, (given_, given_)).lo == exact


BAD_TEXTS = [
    "", " ", "5", "s", "1h-30min", "5mss", "1h+30min", "--5s", "5 s 5", "30min1h", "5s5s",
    "1h1hour", "1e3s", ".5s", "5.s", "1_000s", "٥s", "5S", "5M", "1y", "1 month", "1:30", "1,5s",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a duration; write text such as '10min'.*largest"):
        parse_duration(text, "s")


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        (np.timedelta64("NaT", "s"), "NaT"),
        (np.timedelta64(5), "no unit"),
        (np.timedelta64(5, "M"), "no fixed length"),
        (np.timedelta64(5, "Y"), "no fixed length"),
        (pa.scalar(None, pa.duration("s")), "null"),
        (pd.NaT, "not a tolerance"),
        (True, "not a tolerance"),
        (np.True_, "not a tolerance"),
        (5, "the number 5 does not say its unit; write text such as"),
        (5.0, "does not say its unit"),
        (np.int64(5), "does not say its unit"),
        (np.float32(5), "does not say its unit"),
        (-5, "does not say its unit"),
        (2**2000, "does not say its unit"),
        (math.inf, "finite"),
    ],
)
@pytest.mark.parametrize("data_type", list(TYPES), ids=str)
def test_what_does_not_say_how_long_is_refused(
    given_: Any, says: str, data_type: pa.DataType
) -> None:
    with pytest.raises(InputError, match=f"column 't'.*{says}"):
        in_units(given_, pa.field("t", data_type), rounding=math.floor)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, np.int8(0), "0s", timedelta(), np.timedelta64(0)])
@pytest.mark.parametrize("data_type", list(TYPES), ids=str)
def test_nothing_needs_no_unit(zero: Any, data_type: pa.DataType) -> None:
    assert Dimension.of(pa.field("t", data_type), zero).hi == 0


# ── every place where a duration is given ────────────────────────────────────────────────────


def moments(counts: list[int], data_type: pa.DataType) -> pa.Table:
    stored = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.table({"t": pa.array(counts, stored).view(data_type), "k": [0] * len(counts)})


def each_place(table: pa.Table, amount: Any) -> dict[str, Any]:
    """Every join that takes an amount of time, by where it takes it."""
    twice = {"a": table, "b": table}
    on: dict[Any, Any] = {"t": 0}
    k: dict[Any, Any] = {"k": None}

    def streamed(order: Any) -> Any:
        return matwin.epsilon_join(matwin.stream(table, order=order), table, on=on)

    def fixed(**more: Any) -> Any:
        return matwin.fixed_window_join(table, table, time="t", on=k, **more)

    return {
        "epsilon": lambda: matwin.epsilon_join(table, table, on={"t": amount}),
        "one side": lambda: matwin.epsilon_join(table, table, on={"t": (None, amount)}),
        "best": lambda: matwin.bestmatch_join(table, table, on={"t": (0, amount)}),
        "lateness": lambda: streamed(matwin.Lateness(amount)),
        "grid": lambda: streamed(matwin.GridOrdered(amount)),
        "windows": lambda: matwin.window_join(twice, time="t", windows=amount),
        "then": lambda: matwin.window_join(
            twice, time="t", windows={("a", "b"): matwin.then(amount)}
        ),
        "path": lambda: matwin.window_join(
            twice, time="t", windows=matwin.path(["a", "b"], windows=[amount])
        ),
        "where": lambda: matwin.window_join(
            twice, time="k", windows=1, where={("a.t", "b.t"): amount}
        ),
        "period": lambda: fixed(period=amount),
        "every": lambda: fixed(period=0, every=amount),
        "semijoin": lambda: semijoin(table, table, time="t", by="k", window=amount),
    }


PLACES = list(each_place(moments([0], pa.date32()), "1d"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("data_type", [pa.timestamp("us"), pa.date32(), pa.duration("s")], ids=str)
def test_a_bare_number_is_refused_everywhere(place: str, data_type: pa.DataType) -> None:
    with pytest.raises(InputError, match=r"t'.* 5 does not say its unit; write text such as"):
        each_place(moments([0, 5], data_type), 5)[place]().read_all()


LARGE = [
    pa.scalar(2**62, pa.duration("s")), pa.scalar(-(2**63) + 1, pa.duration("s")),
    pa.scalar(2**63 - 1, pa.duration("ns")), np.timedelta64(2**62, "s"), timedelta.max,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("amount", LARGE, ids=lambda amount: type(amount).__name__)
def test_durations_that_no_clock_holds_are_taken_or_refused(place: str, amount: Any) -> None:
    """Python's durations end after 2.7 million years, and Arrow's do not."""
    for data_type in (pa.timestamp("s"), pa.timestamp("ns"), pa.int64()):
        with contextlib.suppress(InputError):
            each_place(moments([0, 5], data_type), amount)[place]().read_all()


@pytest.mark.parametrize("amount", [one for one in LARGE if nanoseconds(one) > 0])
def test_large_durations_as_lateness_and_width(amount: Any) -> None:
    order = matwin.Lateness(amount)
    again = pickle.loads(pickle.dumps(order))
    assert nanoseconds(again.lateness) == nanoseconds(order.lateness) and repr(order)
    for data_type in (pa.timestamp("s"), pa.timestamp("ns")):
        table = moments([0, 5], data_type)
        with contextlib.suppress(InputError):
            cut = matwin.cut.every(amount, on="t")
            found = matwin.continuous_query(lambda a: a, {"a": table}, cut=cut)
            assert [epoch.result.to_arrow().num_rows for epoch in found] == [2]


@pytest.mark.parametrize("place", PLACES)
def test_all_ways_to_write_a_duration_are_one(place: str) -> None:
    """Two milliseconds on a column of microseconds: 2,000 of them and not one more."""
    table = moments([0, 1_999, 4_000, 4_001], pa.timestamp("us"))
    ways = ["2ms", "2000us", timedelta(milliseconds=2), np.timedelta64(2, "ms")]
    ways += [np.timedelta64(2_000_000, "ns"), pd.Timedelta("2ms"), pa.scalar(2, pa.duration("ms"))]
    found = [each_place(table, way)[place]().read_all() for way in ways]
    assert all(other.equals(found[0]) for other in found[1:])
    assert found[0].num_rows > 0


BEYOND = pa.scalar(-(2**62), pa.duration("s"))
"""Arrow can hold it, Python can't: its text is an OverflowError."""


@pytest.mark.parametrize("place", [place for place in PLACES if place not in ("one side", "where")])
def test_what_python_can_not_hold_is_refused_in_words(place: str) -> None:
    with pytest.raises(InputError, match="4611686018427387904"):
        each_place(moments([0, 5], pa.timestamp("s")), BEYOND)[place]().read_all()


def test_a_bound_that_python_can_not_hold_is_refused_in_words() -> None:
    far = pa.scalar(2**62, pa.timestamp("s", "UTC"))
    with pytest.raises(InputError, match="has a time zone"):
        bound_place(far, pa.timestamp("s"), "t")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("other", [pa.timestamp("ns"), pa.timestamp("s"), pa.date32()], ids=str)
@pytest.mark.parametrize("order", [matwin.Lateness("5s"), matwin.GridOrdered("5s")])
def test_a_promise_counts_the_same_whatever_the_other_side_has(
    order: Any, unit: str, other: pa.DataType
) -> None:
    """Rows 4 s late are in time and 5 s late are not, in whatever unit both sides are compared."""
    factor = 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    seconds = [0, 10, 14, 12, 11, 9, 3, 20] if isinstance(order, matwin.Lateness) else [0, 7, 5, 4]
    kept = [0, 10, 14, 12, 11, 20] if isinstance(order, matwin.Lateness) else [0, 7, 5]
    ours = moments([n * factor for n in seconds], pa.timestamp(unit))
    theirs = moments([0], other)
    stream = matwin.stream(ours, order=order, late="drop")
    report = matwin.Report()
    found = matwin.epsilon_join(stream, theirs, on={"t": "1d"}, report=report).read_all()
    counts = found["t_left"].cast(pa.int64()).to_pylist()
    assert sorted(count // factor for count in counts) == sorted(kept)
    assert report.left.late == len(seconds) - len(kept)


# ── lengths beyond what clocks and Python's own durations hold ───────────────────────────────

FAR: list[Any] = [
    *(pa.scalar(count, pa.duration(unit)) for unit in ("s", "ms", "us", "ns")
      for count in (2**62, -(2**62), 2**63 - 1, -(2**63), None)),
    np.timedelta64(2**62, "s"), np.timedelta64("NaT"), timedelta.max, timedelta.min,
    "9" * 29 + "w", "9" * 400 + "s",
]  # fmt: skip
TIMES = pa.table({"t": pa.array([1, 2], pa.timestamp("ms")), "x": [1, 5]})
PLACES: dict[str, Any] = {
    "on": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"t": d}),
    "pair": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"t": (None, d)}),
    "strict": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"t": matwin.strict(d)}),
    "nonzero": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"t": matwin.nonzero(d)}),
    "numbers": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"x": d}),
    "where": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"x": 3}, where={"t": d}),
    "tolerance": lambda d: matwin.asof_join(TIMES, TIMES, on="t", tolerance=d),
    "open": lambda d: matwin.asof_join(
        TIMES, TIMES, on="t", tolerance=d, direction="nearest", allow_exact_matches=False
    ),
    "window": lambda d: matwin.window_join({"a": TIMES, "b": TIMES}, time="t", windows=d),
    "then": lambda d: matwin.window_join(
        {"a": TIMES, "b": TIMES}, time="t", windows={("a", "b"): matwin.then(d)}
    ),
    "window where": lambda d: matwin.window_join(
        {"a": TIMES, "b": TIMES}, time="t", windows="1s", where={("a.t", "b.t"): d}
    ),
    "period": lambda d: matwin.fixed_window_join(
        TIMES, TIMES, time="t", period=d, every=d, on={"x": 3}
    ),
    "max_delay": lambda d: matwin.epsilon_join(TIMES, TIMES, on={"t": "1s"}, max_delay=d),
    "lateness": lambda d: matwin.epsilon_join(
        matwin.stream(TIMES, order=matwin.Lateness(d)), TIMES, on={"t": "1s"}
    ),
    "grid": lambda d: matwin.epsilon_join(
        matwin.stream(TIMES, order=matwin.GridOrdered(d)), TIMES, on={"t": "1s"}
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_length_is_too_much_for_a_message(place: str) -> None:
    for length in FAR:
        try:
            PLACES[place](length).to_arrow()
        except matwin.MatwinError as error:
            assert str(error)


@pytest.mark.parametrize("length", FAR)
def test_no_length_is_too_much_for_a_cut(length: Any) -> None:
    try:
        assert matwin.cut.every(length, on="t")
    except InputError as error:
        assert str(error)


def test_an_as_of_tolerance_is_in_the_finer_unit_of_both_sides() -> None:
    left = pa.table({"t": pa.array([1, 2], pa.timestamp("s"))})
    right = pa.table({"t": pa.array([900, 1400], pa.timestamp("ms"))})
    for one, other, wanted in ((left, right, [900, None]), (right, left, [None, 1000])):
        found = matwin.asof_join(one, other, on="t", tolerance="500ms")
        times = found.to_arrow()["t_right"].cast(pa.timestamp("ms")).cast(pa.int64())
        assert times.to_pylist() == wanted
