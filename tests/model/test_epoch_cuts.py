"""Streams cut into chunks, against a plain loop over single values that shares no code with it.

    values, batches ──continuous_query──▶ epochs: which rows of each stream
    values          ──a loop───────────▶ the same, whatever the batches were

The loop knows what each declared order promises, what a range is, and nothing else: no keys, no
frontiers, no arrays.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proofs import tried
from support import amount_of

import matwin
from matwin.operators.epochs import align, capture, objects
from matwin.storage.errors import InputError, OrderError

EMPTY = pa.table({"nothing": pa.array([], pa.int64())})
Epochs = list[dict[str, list[int]]]

# ── the loop ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Told:
    """A stream in plain words: values in order of arrival (None and NaN are no values), and how
    often something is punctuated before a row."""

    values: list[Any]
    order: tuple[str, Any] = ("sorted", None)
    punctuations: dict[int, Any] = field(default_factory=dict)
    never_late: Any = None
    """The last value of 64 bits: no promise can be said to cover it, because none comes after."""


def usable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def in_time(told: Told) -> tuple[list[int], int]:
    """The rows that keep the promise, and how many don't."""
    kind, amount = told.order
    taken: list[Any] = []
    rows, late = [], 0
    complete: Any = None  # values below this are complete
    for row, value in enumerate(told.values):
        upto = told.punctuations.get(row)
        if upto is not None:
            complete = ("upto", upto) if complete is None else ("upto", max(upto, complete[1]))
        if not usable(value):
            continue
        if value != told.never_late and is_late(kind, amount, taken, complete, value):
            late += 1
        else:
            taken.append(value)
            rows.append(row)
    return rows, late


def is_late(kind: str, amount: Any, taken: list[Any], complete: Any, value: Any) -> bool:
    if kind == "punctuated":
        return complete is not None and value <= complete[1]
    if not taken:
        return False
    if kind == "sorted":
        return value < max(taken)
    if kind == "lateness":
        return value <= max(taken) - amount
    if kind == "grid":
        return value // amount < max(taken) // amount
    windows = [taken[i : i + amount] for i in range(len(taken) - amount + 1)]
    return any(value < min(window) for window in windows)


def plain_every(
    streams: dict[str, Told], width: Any, origin: Any
) -> tuple[Epochs, dict[str, int], int]:
    """The rows of each stream in each epoch, the late ones, and the number of the first range."""
    chunks: dict[str, dict[int, list[int]]] = {}
    late = {}
    for name, told in streams.items():
        rows, late[name] = in_time(told)
        found = chunks[name] = {}
        for row in rows:
            found.setdefault(range_of(told.values[row], width, origin), []).append(row)
    numbers = [n for found in chunks.values() for n in found]
    if not numbers:
        return [], late, 0
    # What is said to be complete is an epoch, with or without rows.
    said = [range_of(after(upto, told), width, origin) - 1
            for told in streams.values() for upto in told.punctuations.values()
            if in_time(told)[0]]  # fmt: skip
    # (Where no row of its own is in time, it has been read to its end before the first epoch.)
    epochs = [
        {name: found.get(n, []) for name, found in chunks.items()}
        for n in range(min(numbers), max([*numbers, *said]) + 1)
    ]
    return epochs, late, min(numbers)


def after(value: Any, told: Told) -> Any:
    """The first value that a punctuation up to another one does not cover."""
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return value if value == told.never_late else value + 1


def range_of(value: Any, width: Any, origin: Any) -> int:
    if isinstance(value, float):
        return math.floor((value - origin) / width)
    return int((value - origin) // width)


def plain_count(sizes: dict[str, int], rows: int) -> Epochs:
    most = max((-(-size // rows) for size in sizes.values()), default=0)
    return [
        {n: list(range(min(k * rows, s), min(k * rows + rows, s))) for n, s in sizes.items()}
        for k in range(most)
    ]


Visits = list[tuple[Any, list[int]]]
"""Stretches of equal values: the value, and its rows."""


def visits_of(values: list[Any]) -> Visits:
    found: Visits = []
    for row, value in enumerate(values):
        if row == 0 or not same(values[row - 1], value):
            found.append((value, []))
        found[-1][1].append(row)
    return found


def plain_on_change(
    streams: dict[str, list[Any]], is_rising: bool = False
) -> tuple[Epochs, dict[str, int]]:
    """The rows of each stream in the epoch of each object, and the late rows; from whole lists."""
    ahead = {name: visits_of(values) for name, values in streams.items()}
    passed: dict[str, list[Any]] = {name: [] for name in streams}
    late = dict.fromkeys(streams, 0)
    epochs: Epochs = []
    upto: list[Any] = []
    while any(ahead.values()):
        there = [name for name in streams if ahead[name]]
        if is_rising:
            chosen = min(ahead[name][0][0] for name in there)
        else:
            chosen = next((ahead[n][0][0] for n in there if may_be_next(n, ahead)),
                          ahead[there[0]][0][0])  # fmt: skip
        members = [n for n in there if same(ahead[n][0][0], chosen)] or there[:1]
        if not is_rising:
            is_late = len(streams) > 1 and all(within(chosen, passed[n]) for n in members)
        else:
            is_late = bool(upto) and chosen <= upto[-1]
        taken = {n: ahead[n].pop(0)[1] if n in members else [] for n in streams}
        if is_late:
            for name in members:
                late[name] += len(taken[name])
            continue
        for name in streams:
            passed[name] = [v for v in passed[name] if not same(v, chosen)]
            passed[name] += [chosen] if name not in members else []
        upto.append(chosen)
        epochs.append(taken)
    return epochs, late


def within(value: Any, among: list[Any]) -> bool:
    return any(same(value, other) for other in among)


def may_be_next(name: str, ahead: dict[str, Visits]) -> bool:
    """Whether no other stream's next object comes before this one's, nor before the same object
    of another."""
    mine = ahead[name][0][0]
    alike = [n for n in ahead if n == name or (ahead[n] and same(ahead[n][0][0], mine))]
    others = [n for n in ahead if ahead[n] and n not in alike]
    return not any(is_behind(n, other, ahead) for n in alike for other in others)


def is_behind(name: str, other: str, ahead: dict[str, Visits]) -> bool:
    """Whether the other's next object comes first: by the nearest object that both have."""
    names = list(ahead)
    first, second = sorted((name, other), key=names.index)
    a = [v for v, _ in ahead[first]][: objects.AHEAD]
    b = [v for v, _ in ahead[second]][: objects.AHEAD]
    common = [(max(i, j), i <= j, min(i, j), i, j)
              for i, x in enumerate(a) for j, y in enumerate(b) if same(x, y)]  # fmt: skip
    if not common:
        return False
    *_, i, j = min(common)
    return (j == 0 and name == second) or (i == 0 and name == first)


def same(a: Any, b: Any) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and a == b)


# ── the product ──────────────────────────────────────────────────────────────────────────────────


@dataclass
class Ran:
    epochs: Epochs
    bounds: list[Any]
    late: dict[str, int]
    rejected: dict[str, int]


def run(sources: dict[str, Any], **asked: Any) -> Ran:
    """What each epoch had in its newest chunks."""
    seen: Epochs = []

    def look(windows: Any) -> pa.Table:
        assert windows.epoch == len(seen) + 1
        seen.append({n: windows.newest(n).to_arrow()["id"].to_pylist() for n in sources})
        return EMPTY

    query = matwin.continuous_query(look, sources, memory="1MiB", **asked)
    bounds, reports = [], []
    for epoch in query:
        bounds.append(epoch.bounds)
        reports.append(epoch.report)
        assert epoch.report.rows == {name: len(rows) for name, rows in seen[-1].items()}
    for counts in ([r.late for r in reports], [r.rejected for r in reports]):
        for before, behind in pairwise(counts):
            assert all(before[name] <= behind[name] for name in sources)
    return Ran(seen, bounds, query.status.late, query.status.rejected)


def items(rows: pa.RecordBatch, places: list[int], between: dict[int, Any]) -> Iterator[Any]:
    """The rows in batches, cut at these places, with something between rows."""
    stops = sorted({0, *(p for p in places if p <= rows.num_rows), *between, rows.num_rows})
    for start, stop in zip(stops, [*stops[1:], None], strict=True):
        if start in between:
            yield between[start]
        if stop is not None and stop > start:
            yield rows.slice(start, stop - start)


# ── ranges ───────────────────────────────────────────────────────────────────────────────────────

WHOLE = [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
TIMES = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.timestamp("us", "UTC"),
    pa.date32(), pa.date64(), *(pa.duration(unit) for unit in ("s", "ns")),
    pa.time32("ms"), pa.time64("ns"),
]  # fmt: skip
FLOATS = [pa.float32(), pa.float64()]
DAY_MS = 86_400_000


def ends_of(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_time(kind):
        return 0, 86_400 * {"ms": 1000, "ns": 10**9}[kind.unit] - 1
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


@st.composite
def whole_column(draw: Any, kind: pa.DataType, place: int, width: int, rows: int) -> list[Any]:
    low, high = ends_of(kind)
    unit = DAY_MS if kind == pa.date64() else 1  # which holds whole days
    near = st.integers(-6, 6).map(lambda k: place + k * width)
    value = st.builds(
        lambda a, b: min(max((a + b) // unit, -(-low // unit)), high // unit) * unit,
        near, st.integers(-2, 2),
    )  # fmt: skip
    return draw(st.lists(st.one_of(value, value, value, st.none()), min_size=rows, max_size=rows))


@st.composite
def float_column(draw: Any, kind: pa.DataType, place: float, width: float, rows: int) -> list[Any]:
    # Far from zero, -0.0 would be a million of empty ranges away.
    odd = st.sampled_from([None, math.nan, math.inf, -math.inf, *([] if place else [-0.0])])
    near = st.integers(-12, 12).map(lambda k: place + k * width / 2)
    found = draw(st.lists(st.one_of(near, near, near, odd), min_size=rows, max_size=rows))
    # as the column holds it
    return pa.array(found, pa.float64()).cast(kind).cast(pa.float64()).to_pylist()


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array(values, pa.float64()).cast(kind)
    if not pa.types.is_temporal(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


@st.composite
def promised(draw: Any, values: list[Any], width: Any, last: Any) -> Told:
    """The values in an order that keeps a promise more or less."""
    kind = draw(st.sampled_from(["sorted", "lateness", "read ahead", "punctuated", "grid"]))
    is_float = any(isinstance(v, float) for v in values)
    if kind == "grid" and is_float:
        kind = "sorted"
    amount = {
        "sorted": None, "punctuated": None, "read ahead": draw(st.integers(1, 4)),
        "lateness": width * draw(st.integers(0, 3)), "grid": draw(st.integers(1, 2)) * width,
    }[kind]  # fmt: skip
    if draw(st.integers(0, 3)):  # mostly in order
        numbers = sorted(v for v in values if usable(v))
        values = [numbers.pop(0) if usable(v) else v for v in values]
    told = Told(values, (kind, amount), never_late=None if is_float else last)
    if kind == "punctuated":
        usual = [v for v in values if usable(v)]
        for row in draw(st.lists(st.integers(0, len(values)), max_size=3)):
            if usual:
                told.punctuations[row] = draw(st.sampled_from(usual))
    return told


def order_of(told: Told, kind: pa.DataType) -> matwin.Order:
    name, amount = told.order
    match name:
        case "lateness":
            return matwin.Lateness(amount_of(amount, kind))
        case "read ahead":
            return matwin.ReadAhead(amount)
        case "punctuated":
            return matwin.Punctuated()
        case "grid":
            return matwin.GridOrdered(amount_of(amount, kind))
    return matwin.Sorted()


def said(upto: Any, kind: pa.DataType) -> matwin.Punctuation:
    if pa.types.is_temporal(kind):
        return matwin.Punctuation(column([upto], kind)[0])
    return matwin.Punctuation(upto)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from([*WHOLE, *TIMES, *FLOATS]))
    is_float = pa.types.is_floating(kind)
    if is_float:
        width: Any = draw(st.sampled_from([0.1, 0.5, 1.0, 2.5, 1e-3]))
        place: Any = draw(st.sampled_from([0.0, 1.0, -7.3, 1e6, 123.4]))
    else:
        low, high = ends_of(kind)
        width = draw(st.sampled_from([1, 2, 3, 7, 60, 1000])) * (
            DAY_MS if kind == pa.date64() else 1
        )
        place = draw(st.sampled_from([low, high, 0, (low + high) // 2, low + width, high - width]))
    make = float_column if is_float else whole_column
    streams = {}
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        values = draw(make(kind, place, width, draw(st.integers(0, 10))))
        last = ends_of(kind)[1] if kind.bit_width == 64 and not is_float else None
        last = None if pa.types.is_time(kind) else last  # a day ends long before 64 bits do
        streams[name] = draw(promised(values, width, last))
    return {
        "kind": kind, "width": width, "streams": streams,
        "align": draw(st.sampled_from(["round", "first"])),
        "late": draw(st.sampled_from(["drop", "drop", "error"])),
        "places": draw(st.lists(st.integers(0, 10), max_size=6)),
        "is_live": draw(st.booleans()),
    }  # fmt: skip


def source_of(told: Told, case: dict[str, Any]) -> matwin.Stream:
    kind = case["kind"]
    rows = pa.record_batch({"v": column(told.values, kind), "id": list(range(len(told.values)))})
    between = {row: said(upto, kind) for row, upto in told.punctuations.items()}
    return matwin.stream(
        items(rows, case["places"], between), schema=rows.schema, on="v",
        order=order_of(told, kind), late=case["late"], live=case["is_live"],
    )  # fmt: skip


def origin_of(case: dict[str, Any]) -> Any:
    zero = 0.0 if pa.types.is_floating(case["kind"]) else 0
    if case["align"] == "round":
        return zero
    firsts = (v for told in case["streams"].values() for v in told.values if usable(v))
    return next(firsts, zero)


@pytest.mark.proof("epochs: cuts against a plain loop")
@given(case=cases())
def test_ranges(case: dict[str, Any]) -> None:
    tried()
    streams, width, origin = case["streams"], case["width"], origin_of(case)
    expected, late, first = plain_every(streams, width, origin)
    sources = {name: source_of(told, case) for name, told in streams.items()}
    cut = matwin.cut.every(amount_of(width, case["kind"]), on="v", align=case["align"])
    if case["late"] == "error" and any(late.values()):
        with pytest.raises(OrderError, match="late"):
            run(sources, cut=cut)
        return
    ran = run(sources, cut=cut)
    assert ran.epochs == expected
    assert ran.late == late
    assert ran.rejected == {
        name: sum(not usable(v) for v in told.values) for name, told in streams.items()
    }
    if not pa.types.is_temporal(case["kind"]):
        bounds = [(first + k) * width + origin for k in range(len(expected) + 1)]
        assert [(b.low, b.high) for b in ran.bounds] == list(pairwise(bounds))


def test_a_first_row_at_one_end_and_another_at_the_other() -> None:
    for kind, first, other in (
        (pa.int64(), 2**63 - 1, -(2**63)), (pa.uint64(), 2**64 - 1, 0),
        (pa.uint64(), 0, 2**64 - 1), (pa.int64(), -(2**63), 2**63 - 1),
    ):  # fmt: skip
        sources = {
            "a": pa.table({"v": pa.array([first], kind), "id": [0]}),
            "b": pa.table({"v": pa.array([other], kind), "id": [0]}),
        }
        with pytest.raises(InputError, match=r"cut by a wider range"):
            run(sources, cut=matwin.cut.every(1, on="v", align="first"))
        wide = matwin.cut.every(2**62 + 1, on="v", align="first")
        a, b = Told([first]), Told([other])
        expected, *_ = plain_every({"a": a, "b": b}, 2**62 + 1, first)
        assert run(sources, cut=wide).epochs == expected


def test_unsigned_ranges_begin_with_the_first_row() -> None:
    values = [2**63 + 5, 2**63 + 6, 2**64 - 1, 2**64 - 1]
    rows = pa.table({"v": pa.array(values, pa.uint64()), "id": range(4)})
    cut = matwin.cut.every(2**62, on="v", align="first")
    ran = run({"a": rows}, cut=cut)
    assert ran.epochs == [{"a": [0, 1]}, {"a": [2, 3]}]
    assert [b.low for b in ran.bounds] == [2**63 + 5, 2**63 + 5 + 2**62]


def test_the_first_chunk_waits_for_what_may_come_before_it() -> None:
    """Batches are an accident: the second row is in time, and of an earlier range."""
    schema = pa.schema([("v", pa.int64()), ("id", pa.int64())])
    for batches in ([[50, 20, 130]], [[50], [20], [130]]):
        numbers = iter(range(3))
        rows = [[{"v": v, "id": next(numbers)} for v in batch] for batch in batches]
        source = matwin.stream(iter(rows), schema=schema, order=matwin.Lateness(100))
        ran = run({"a": source}, cut=matwin.cut.every(100, on="v"))
        assert ran.epochs == [{"a": [0, 1]}, {"a": [2]}]


def test_a_wrong_value_far_away_is_no_million_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "EMPTY_MAX", 10)
    rows = pa.table({"v": [1, 14, 15], "id": [0, 1, 2]})
    with pytest.raises(InputError, match=r"a: .*empty ranges later"):
        run({"a": rows}, cut=matwin.cut.every(1, on="v"))
    assert len(run({"a": rows.slice(1)}, cut=matwin.cut.every(1, on="v")).epochs) == 2


def test_floats_whose_ranges_cannot_be_told_apart() -> None:
    rows = pa.table({"v": [0.0, 1e300], "id": [0, 1]})
    with pytest.raises(InputError, match=r"a: row 1: its 'v' is 1e\+300"):
        run({"a": rows}, cut=matwin.cut.every(1e-9, on="v"))


@pytest.mark.parametrize(
    ("kind", "last", "width"),
    [(pa.float64(), 1e300, 1e-300), (pa.int64(), 2**63 - 1, 1), (pa.uint64(), 2**64 - 1, 3)],
)
def test_a_punctuation_that_means_the_end(kind: pa.DataType, last: Any, width: Any) -> None:
    """What comes after it is read before a million of empty ranges are epochs."""
    rows = pa.record_batch({"v": pa.array([0], kind), "id": [0]})
    said_all = [rows, matwin.Punctuation(last)]
    source = matwin.stream(iter(said_all), schema=rows.schema, order=matwin.Punctuated())
    assert run({"a": source}, cut=matwin.cut.every(width, on="v")).epochs == [{"a": [0]}]


# ── counts and changes ───────────────────────────────────────────────────────────────────────────

PLACES = st.lists(st.integers(0, 30), max_size=8)


def live_source(rows: pa.RecordBatch, places: list[int], is_live: bool) -> matwin.Stream:
    pieces = [None, *items(rows, places, {}), None]
    return matwin.stream(iter(pieces), schema=rows.schema, live=is_live)


@pytest.mark.proof("epochs: cuts against a plain loop")
@given(
    sizes=st.dictionaries(st.sampled_from("abc"), st.integers(0, 25), min_size=1),
    rows=st.integers(1, 9), places=PLACES, is_live=st.booleans(),
)  # fmt: skip
def test_counts(sizes: dict[str, int], rows: int, places: list[int], is_live: bool) -> None:
    tried()
    sources = {
        name: live_source(pa.record_batch({"id": pa.array(range(n), pa.int64())}), places, is_live)
        for name, n in sizes.items()
    }
    ran = run(sources, cut=matwin.cut.count(rows))
    assert ran.epochs == plain_count(sizes, rows)
    assert [(b.low, b.high) for b in ran.bounds] == [
        (k * rows, k * rows + rows) for k in range(len(ran.epochs))
    ]


KINDS = {
    "text": (pa.string(), st.sampled_from(["x", "y", ""])),
    "whole": (pa.int64(), st.integers(0, 2)),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5])),
    "bool": (pa.bool_(), st.booleans()),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "y"])),
    "bytes": (pa.binary(), st.sampled_from([b"a", b"b"])),
    "time": (pa.timestamp("ns"), st.integers(0, 2)),
}


@st.composite
def changing(draw: Any) -> dict[str, Any]:
    """Streams of the same objects, of which each lacks some, has some late, or others."""
    kind, value = KINDS[draw(st.sampled_from([*KINDS]))]
    objects_of = draw(st.lists(st.one_of(st.none(), value), max_size=8))
    streams = {}
    for name in draw(st.sampled_from(["a", "ab", "ab", "abc"])):
        parts = [v for v in objects_of if draw(st.integers(0, 3))]
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            parts.insert(draw(st.integers(0, len(parts))), draw(st.one_of(st.none(), value)))
        streams[name] = [v for v in parts for _ in range(draw(st.integers(1, 3)))]
    return {
        "kind": kind, "streams": streams, "late": draw(st.sampled_from(["drop", "drop", "error"])),
        "places": draw(PLACES), "is_live": draw(st.booleans()), "is_rising": draw(st.booleans()),
    }  # fmt: skip


def changing_source(name: str, case: dict[str, Any], on: str | None) -> matwin.Stream:
    values, kind = case["streams"][name], case["kind"]
    plain = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
    rows = pa.record_batch({
        "v": plain.cast(kind), "id": pa.array(range(len(values)), pa.int64())
    })  # fmt: skip
    pieces = [None, *items(rows, case["places"], {}), None]
    return matwin.stream(
        iter(pieces), schema=rows.schema, live=case["is_live"], late=case["late"], on=on
    )


@pytest.mark.proof("epochs: cuts against a plain loop")
@given(case=changing())
def test_changes(case: dict[str, Any]) -> None:
    """Objects are brought together, whatever the batches were and whoever was read first."""
    tried()
    expected, late = plain_on_change(case["streams"])
    sources = {name: changing_source(name, case, None) for name in case["streams"]}
    if case["late"] == "error" and any(late.values()):
        with pytest.raises(OrderError, match="late"):
            run(sources, cut=matwin.cut.on_change("v"))
        return
    ran = run(sources, cut=matwin.cut.on_change("v"))
    assert ran.epochs == expected
    assert ran.late == late


@pytest.mark.proof("epochs: cuts against a plain loop")
@given(case=changing())
def test_rising_objects(case: dict[str, Any]) -> None:
    """Where objects are declared to rise, the least comes first, and null is none."""
    tried()
    kind = case["kind"]
    if not objects.can_rise(kind):
        return
    streams = case["streams"]
    for name, values in streams.items():
        if case["is_rising"]:
            streams[name] = sorted(v for v in values if v is not None)
    usual = {n: [(r, v) for r, v in enumerate(vs) if v is not None] for n, vs in streams.items()}
    epochs, late = plain_on_change({n: [v for _, v in vs] for n, vs in usual.items()}, True)
    expected = [{n: [usual[n][k][0] for k in rows] for n, rows in e.items()} for e in epochs]
    sources = {name: changing_source(name, case, "v") for name in streams}
    if case["late"] == "error" and any(late.values()):
        with pytest.raises(OrderError, match="late"):
            run(sources, cut=matwin.cut.on_change("v"))
        return
    ran = run(sources, cut=matwin.cut.on_change("v"))
    assert ran.epochs == expected
    assert ran.late == late
    assert ran.rejected == {n: sum(v is None for v in vs) for n, vs in streams.items()}


def both(a: list[Any], b: list[Any], **options: Any) -> list[tuple[Any, Any]]:
    """The objects of both streams in each epoch."""

    def rows(values: list[Any], name: str) -> matwin.Stream:
        return matwin.stream(
            pa.table({"v": values, "id": range(len(values))}), name=name, **options
        )

    ran = run({"a": rows(a, "a"), "b": rows(b, "b")}, cut=matwin.cut.on_change("v"))
    return [(a[e["a"][0]] if e["a"] else None, b[e["b"][0]] if e["b"] else None)
            for e in ran.epochs]  # fmt: skip


def test_an_object_that_one_stream_lacks() -> None:
    assert both([1, 2, 3], [1, 3]) == [(1, 1), (2, None), (3, 3)]
    assert both([1, 3], [1, 2, 3]) == [(1, 1), (None, 2), (3, 3)]
    assert both(["x", "y", "z"], ["x", "z"]) == [("x", "x"), ("y", None), ("z", "z")]
    assert both([1, 2, 5], [1, 4, 5]) == [(1, 1), (2, None), (None, 4), (5, 5)]


def test_visits_to_the_same_object() -> None:
    assert both([1, 2, 1], [1, 2, 1]) == [(1, 1), (2, 2), (1, 1)]
    assert both([1, 2, 1, 2], [2, 1, 2]) == [(1, None), (2, 2), (1, 1), (2, 2)]


def test_an_object_that_is_late() -> None:
    with pytest.raises(OrderError, match=r"b: row 2 is late: its 'v' is 2"):
        both([1, 2, 3], [1, 3, 2])
    assert both([1, 2, 3], [1, 3, 2], late="drop") == [(1, 1), (2, None), (3, 3)]


def test_rising_objects_wait_for_nobody() -> None:
    """Two streams that have nothing in common, and never end: nothing is read ahead."""

    def endless(first: int) -> Iterator[Any]:
        for number in range(first, 10**9, 2):
            taken[first] = number
            yield {"v": number, "id": number}

    taken: dict[int, int] = {}
    sources = {name: matwin.stream(endless(first), schema=SCHEMA, on="v", live=False)
               for first, name in enumerate("ab")}  # fmt: skip
    with matwin.continuous_query(
        lambda windows: EMPTY, sources, cut=matwin.cut.on_change("v")
    ) as query:
        assert [epoch.bounds.value for epoch, _ in zip(query, range(100), strict=False)] == list(
            range(100)
        )
    assert max(taken.values()) < 110


def test_objects_that_two_streams_do_not_share_are_looked_for_so_far() -> None:
    """Without a declared order: AHEAD objects, then they are missing."""
    odd, even = list(range(1, 400, 2)), list(range(0, 400, 2))
    found = both(odd, even)
    assert sorted(a for a, _ in found if a is not None) == odd
    assert sorted(b for _, b in found if b is not None) == even


@given(case=changing())
def test_what_is_read_ahead_is_put_down(case: dict[str, Any]) -> None:
    expected, late = plain_on_change(case["streams"])
    sources = {name: changing_source(name, {**case, "late": "drop"}, None)
               for name in case["streams"]}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "HELD_PORTIONS", 0)
        ran = run(sources, cut=matwin.cut.on_change("v"))
    assert (ran.epochs, ran.late) == (expected, late)


def test_large_objects_that_two_streams_do_not_share_stay_on_disk() -> None:
    """Eight objects of 1 MB wait for one that both have, in a query of 1 MiB."""

    def endless(numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for _ in range(16):
                yield pa.record_batch({"v": [number] * 4096, "id": range(4096)})

    held = []
    objects_of = {"a": [*range(8), 99], "b": [*range(10, 18), 99]}
    sources = {n: matwin.stream(endless(found), live=False) for n, found in objects_of.items()}
    query = matwin.continuous_query(
        lambda windows: EMPTY, sources, cut=matwin.cut.on_change("v"), memory="1MiB",
        progress=lambda _: held.append(
            max(c._waiting.held_bytes for c in query._captures.values())
        ),
    )  # fmt: skip
    assert [epoch.bounds.value for epoch in query] == [*range(8), *range(10, 18), 99]
    assert max(held) < 1.2e6


@pytest.mark.parametrize(
    ("a", "b"),
    [(pa.int8(), pa.uint64()), (pa.int64(), pa.float32()), (pa.date32(), pa.date64()),
     (pa.timestamp("s"), pa.timestamp("ns")), (pa.duration("ms"), pa.duration("us")),
     (pa.string(), pa.dictionary(pa.int8(), pa.large_string())), (pa.binary(), pa.large_binary()),
     (pa.decimal128(25, 2), pa.int32())],
)  # fmt: skip
def test_objects_of_other_widths_and_units(a: pa.DataType, b: pa.DataType) -> None:
    def rows(values: list[int], kind: pa.DataType) -> pa.Table:
        plain: Any = pa.array(values, pa.int64())
        if pa.types.is_temporal(kind):  # seconds, or days
            seconds = [v * 86_400 for v in values]
            plain = pa.array(seconds, pa.duration("s") if pa.types.is_duration(kind)
                             else pa.timestamp("s"))  # fmt: skip
        elif objects.kind_of(kind) != "numbers":
            plain = plain.cast(pa.string())
        if pa.types.is_dictionary(kind):
            plain = plain.cast(kind.value_type).dictionary_encode()
        return pa.table({"v": plain.cast(kind), "id": range(len(values))})

    ran = run({"a": rows([1, 2, 3], a), "b": rows([1, 3], b)}, cut=matwin.cut.on_change("v"))
    assert ran.epochs == [{"a": [0], "b": [0]}, {"a": [1], "b": []}, {"a": [2], "b": [1]}]


@pytest.mark.parametrize(
    ("a", "b"),
    [(pa.int64(), pa.string()), (pa.timestamp("s"), pa.timestamp("s", "UTC")),
     (pa.date32(), pa.timestamp("s")), (pa.string(), pa.binary()), (pa.bool_(), pa.int8())],
)  # fmt: skip
def test_objects_that_are_never_the_same(a: pa.DataType, b: pa.DataType) -> None:
    sources = {n: pa.table({"v": pa.array([], kind)}) for n, kind in (("a", a), ("b", b))}
    with pytest.raises(InputError, match=r"are never the same object; cast one of them"):
        matwin.continuous_query(lambda _: EMPTY, sources, cut=matwin.cut.on_change("v"))


def test_nan_is_another_object_each_time() -> None:
    rows = pa.table({"v": [math.nan, math.nan, 1.0], "id": [0, 1, 2]})
    assert len(run({"a": rows}, cut=matwin.cut.on_change("v")).epochs) == 3


# ── silence ──────────────────────────────────────────────────────────────────────────────────────

SCHEMA = pa.schema([("v", pa.int64()), ("id", pa.int64())])


class Silent:
    """Says some items, then nothing until it is released."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self.is_released = items, False

    def __iter__(self) -> Iterator[Any]:
        yield from self.items
        while not self.is_released:
            time.sleep(0.001)
            yield None

    def stream(self, **options: Any) -> matwin.Stream:
        return matwin.stream(iter(self), schema=SCHEMA, **options)


def row(v: int, number: int) -> dict[str, int]:
    return {"v": v, "id": number}


@pytest.mark.parametrize("cut", [matwin.cut.every(10, on="v"), matwin.cut.count(1)])
def test_a_silent_stream_keeps_nobody_waiting_for_ever(cut: Any) -> None:
    silent = Silent([row(5, 0)])
    talking = [row(3, 0), row(12, 1), row(25, 2)]
    seen = []

    def look(windows: Any) -> pa.Table:
        seen.append([windows.newest(n).to_arrow()["id"].to_pylist() for n in "ab"])
        return EMPTY

    query = matwin.continuous_query(
        look, {"a": talking_stream(talking), "b": silent.stream()}, cut=cut, idle_after="20ms"
    )
    for epoch in query:
        if epoch.id == 2:
            silent.is_released = True
    assert seen == [[[0], [0]], [[1], []], [[2], []]]


def talking_stream(rows: list[Any]) -> matwin.Stream:
    return matwin.stream(iter(rows), schema=SCHEMA)


def test_who_was_silent_too_long_is_late() -> None:
    def late_row() -> Iterator[Any]:
        yield row(5, 0)
        while not is_closed:
            time.sleep(0.001)
            yield None
        yield row(13, 1)
        yield row(31, 2)

    for late in ("error", "drop"):
        is_closed: list[int] = []
        stream = matwin.stream(late_row(), schema=SCHEMA, late=late)
        query = matwin.continuous_query(
            lambda windows: windows.newest("b").to_arrow(),
            {"a": talking_stream([row(3, 0), row(12, 1), row(25, 2)]), "b": stream},
            cut=matwin.cut.every(10, on="v"), idle_after="20ms",
        )  # fmt: skip
        found = []
        try:
            for epoch in query:
                found.append(epoch.result.to_arrow()["id"].to_pylist())
                if epoch.id == 2:
                    is_closed.append(1)
        except OrderError as e:
            assert late == "error"
            assert "b: row 1 is late" in str(e) and "idle_after" in str(e)
        else:
            assert found == [[0], [], [], [2]]
            assert query.status.late == {"a": 0, "b": 1}


def test_an_object_that_goes_on_after_a_silence_is_late() -> None:
    """Its epoch was over for the others; alone, it is another visit."""

    def silent_for_a_while() -> Iterator[Any]:
        yield row(1, 0)
        while not is_closed:
            time.sleep(0.001)
            yield None
        yield row(1, 1)
        yield row(3, 2)

    talking = [row(1, 0), row(2, 1), row(3, 2)]
    for others, expected in (
        ({"a": talking_stream(talking)}, [[0], [], [2]]), ({}, [[0], [1], [2]]),
    ):  # fmt: skip
        is_closed: list[int] = []
        query = matwin.continuous_query(
            lambda windows: windows.newest("b").to_arrow(),
            {**others, "b": matwin.stream(silent_for_a_while(), schema=SCHEMA, late="drop")},
            cut=matwin.cut.on_change("v"), idle_after="20ms",
        )  # fmt: skip
        found = []
        for epoch in query:
            found.append(epoch.result.to_arrow()["id"].to_pylist())
            is_closed.append(1)
        assert found == expected
        assert query.status.late["b"] == bool(others)


def test_a_silent_first_stream_does_not_keep_its_beginning_to_itself() -> None:
    """Ranges begin with the first row of the first stream; unless that has none to say."""
    silent = Silent([])
    query = matwin.continuous_query(
        lambda windows: windows.newest("b").to_arrow(),
        {"a": silent.stream(), "b": talking_stream([row(3, 0), row(12, 1), row(25, 2)])},
        cut=matwin.cut.every(10, on="v", align="first"), idle_after="20ms",
    )  # fmt: skip
    found = []
    for epoch in query:
        found.append(epoch.result.to_arrow()["id"].to_pylist())
        silent.is_released = True
    assert found == [[0, 1], [], [2]] or found == [[0, 1], [2]]


def test_without_idle_after_a_silent_stream_is_waited_for() -> None:
    silent = Silent([row(5, 0)])
    query = matwin.continuous_query(
        lambda windows: windows.newest("a").to_arrow(),
        {"a": talking_stream([row(3, 0), row(12, 1)]), "b": silent.stream()},
        cut=matwin.cut.every(10, on="v"),
        progress=lambda status: None,
    )  # fmt: skip
    epochs = iter(query)
    released = threading.Timer(0.15, lambda: setattr(silent, "is_released", True))
    released.start()
    began = time.monotonic()
    assert next(epochs).id == 1
    assert time.monotonic() - began > 0.1
    assert [e.id for e in epochs] == [2]
