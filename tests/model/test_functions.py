"""Odd functions to minimize: the same rows on every way as a plain loop over single pairs.

A function means what it returns for two of Python's own numbers.  Whatever is done to be faster
(columns in the place of values, Numba, NumPy arrays), and wherever the join runs, nothing else may
come out; and where the loop fails for a pair, every way is a named error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin import InputError, compiled, functions
from matwin.candidates import key_columns, plain_keys, refined_columns
from matwin.functions import PairFunction, split, split_whole
from matwin.question import Question

BIG = 2**53
LIMIT = 3


def helper(a: Any, b: Any) -> Any:
    return a - b if a > b else 2 * (b - a)


def distance(a: Any, b: Any) -> Any:
    return abs(a - b)


def sorts(a: Any, b: Any) -> Any:
    """Runs on arrays, and sorts them instead of the pair."""
    return np.sort([a, b])[0]


def branches(a: Any, b: Any) -> Any:
    if a > b:
        return a - b
    return 3 * (b - a)


def delegates(a: Any, b: Any) -> Any:
    return helper(a, b)


def imports(a: Any, b: Any) -> Any:
    import math

    return math.floor(abs(a - b) / 2)


def opens(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        return min(a, b)


def raises(a: Any, b: Any) -> Any:
    if a == LIMIT:
        raise KeyError(a)
    return abs(a - b)


def none(a: Any, b: Any) -> Any:
    return None if a == LIMIT else abs(a - b)


def nan(a: Any, b: Any) -> Any:
    return math.nan if a == LIMIT else abs(a - b)


def text(a: Any, b: Any) -> Any:
    return "near" if a == LIMIT else abs(a - b)


def truth(a: Any, b: Any) -> Any:
    return a > b


def truths(a: Any, b: Any) -> Any:
    """Python's True + True is 2, NumPy's is True."""
    return (a > b) + (a > 2) + (b > 2)


def beyond(a: Any, b: Any) -> Any:
    """Whole numbers that no float tells apart."""
    return BIG + abs(a - b)


def beyond_branching(a: Any, b: Any) -> Any:
    return BIG + a if a > b else BIG + 2 * b


def beyond_or_float(a: Any, b: Any) -> Any:
    return float(BIG) if a == b else BIG + abs(a - b)


def squares(a: Any, b: Any) -> Any:
    """Beyond 64 bits, and back."""
    return (a - b) ** 2 * 2**62 // 2**60


def wraps(a: Any, b: Any) -> Any:
    """Beyond 64 bits inside, and small at the end."""
    return (a * 0x9E3779B97F4A7C15 + b * 0x7F4A7C15) % 1000 if a != b else 1


def scalars(a: Any, b: Any) -> Any:
    return np.float32(a) if a > b else np.int16(b)


def nowhere(a: Any, b: Any) -> Any:
    """An array without dimensions for each pair."""
    return np.where(np.asarray(a) > b, a, b)


def where(a: Any, b: Any) -> Any:
    return np.where(a > b, a - b, 2 * (b - a))


def divides(a: Any, b: Any) -> Any:
    return a / (b - LIMIT)


def typed(a: Any, b: Any) -> Any:
    return abs(a - b) if isinstance(a, int | float) else 0


def swallows(a: Any, b: Any) -> Any:
    try:
        return math.sqrt(abs(a - b))
    except TypeError:
        return 0.0


def constant(a: Any, b: Any) -> Any:
    return 7


def wants_arrays(a: Any, b: Any) -> Any:
    return np.abs(a.astype(float) - b.astype(float))


def looks_up(a: Any, b: Any) -> Any:
    return {1: 5, 2: 0}.get(a, b)


ZOO: list[Callable[[Any, Any], Any]] = [
    distance, sorts, branches, delegates, imports, opens, raises, none, nan, text, truth, truths,
    beyond, beyond_branching, beyond_or_float, squares, wraps, scalars, nowhere, where, divides,
    typed, swallows, constant, wants_arrays, looks_up, max, np.hypot, math.hypot,
    lambda a, b: a * b,
]  # fmt: skip
COMPILED = [branches, beyond_branching, wraps, raises]
"""Few, because each costs Numba a second."""

# ── the loop ─────────────────────────────────────────────────────────────────────────────────


def value_of(function: Any, a: Any, b: Any) -> Any:
    """What a function returns for a pair; a ValueError where that is no number."""
    if function is wants_arrays:
        return float(abs(a - b))
    value = function(a, b)
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if not isinstance(value, int | float) or value != value:
        raise ValueError(value)
    return value


def looped(function: Any, left: list[Any], right: list[Any], how: str) -> Counter[Any] | None:
    """The best pairs, by place; None where the function fails."""
    if any(isinstance(value, float) for value in [*left, *right]):  # what both are compared as
        left, right = [float(value) for value in left], [float(value) for value in right]
    try:
        values = {
            (i, j): value_of(function, a, b)
            for i, a in enumerate(left)
            for j, b in enumerate(right)
        }
    except Exception:
        return None
    groups: dict[Any, list[tuple[int, int]]] = {}
    for pair in values:
        groups.setdefault(pair[0] if how == "left" else 0, []).append(pair)
    found: Counter[Any] = Counter()
    for pairs in groups.values():
        least = min(values[pair] for pair in pairs)
        found.update(pair for pair in pairs if values[pair] == least)
    return found


# ── the ways ─────────────────────────────────────────────────────────────────────────────────


def pairs_of(table: pa.Table) -> Counter[Any]:
    return Counter(zip(table["i"].to_pylist(), table["j"].to_pylist(), strict=True))


def asked(function: Any, how: str) -> dict[str, Any]:
    return {"on": {"t": 1000}, "orders": {"t": function}, "how": how}


def by_table(left: pa.Table, right: pa.Table, function: Any, how: str) -> Counter[Any]:
    return pairs_of(matwin.bestmatch_join(left, right, **asked(function, how)).read_all())


def by_stream(left: pa.Table, right: pa.Table, function: Any, how: str) -> Counter[Any]:
    streams = [
        matwin.stream(table.sort_by("t").to_reader(max_chunksize=1)) for table in (left, right)
    ]
    return pairs_of(matwin.bestmatch_join(*streams, **asked(function, how)).read_all())


def by_pages(left: pa.Table, right: pa.Table, function: Any, how: str) -> Counter[Any]:
    pages = {"page_size": "4KiB", "memory": 32 * 4096, "materialize": "standard"}
    found = matwin.bestmatch_join(left, right, **asked(function, how), **pages)
    return pairs_of(found.read_all())


def by_fixed_window(left: pa.Table, right: pa.Table, function: Any, how: str) -> Counter[Any]:
    sides = [table.append_column("z", pa.array([0] * len(table))) for table in (left, right)]
    question = {**asked(function, how), "on": {"t": None}}
    return pairs_of(matwin.fixed_window_join(*sides, time="z", period=1, **question).read_all())


def by_parts(left: pa.Table, right: pa.Table, function: Any, how: str) -> Counter[Any]:
    """The two stages of Spark, on two parts, with a function that was sent."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    from matwin.spark.inner import Frontier, PartFrontier, Scored
    from matwin.spark.work import Bestmatch

    half = len(left) // 2
    parts = [left.slice(0, half), left.slice(half)]

    def done(work: Any) -> list[pa.RecordBatch]:
        batches = []
        for part in parts:
            sent = cloudpickle.loads(cloudpickle.dumps(asked(function, how)))
            sides = {"left": part, "right": right}
            streams = {
                name: matwin.stream(table.sort_by("t"), name=name) for name, table in sides.items()
            }
            batches += list(work(streams, sent, {}))
        return batches

    if how == "left":
        return sum((pairs_of(pa.Table.from_batches([b])) for b in done(Bestmatch())), Counter())
    question = Question.of(left.schema, right.schema, best=True, **asked(function, how))
    names = tuple(f"score {n}" for n in range(key_columns(question)))
    frontier = Frontier(names, refined_columns(question)).run(done(PartFrontier()))
    best = {tuple(row.values()) for batch in frontier for row in batch.to_pylist()}
    found: Counter[Any] = Counter()
    for batch in done(Scored()):
        for row in batch.to_pylist():
            found[row["i"], row["j"]] += tuple(row[name] for name in names) in best
    return +found


WAYS = [by_table, by_stream, by_pages, by_fixed_window, by_parts]


@contextmanager
def thresholds(sample: int, compile_after: int | None) -> Iterator[None]:
    """Small data on every way of calling; None: nothing is compiled, which saves a second each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "SAMPLE", sample)
        patch.setattr(functions, "COMPILE_AFTER", compile_after)
        if compile_after is None:
            patch.setattr(functions, "COMPILE_AFTER", 0)
            patch.setattr(functions, "compiled", lambda *_: None)
        yield


def check(function: Any, way: Any, how: str, left: list[Any], right: list[Any]) -> None:
    expected = looped(function, left, right, how)
    sides = (
        pa.table({"t": left, "i": range(len(left))}),
        pa.table({"t": right, "j": range(len(right))}),
    )
    tried()
    if expected is None:
        with pytest.raises(InputError, match="the order function"):
            way(*sides, function, how)
        return
    assert way(*sides, function, how) == expected


VALUES = st.integers(0, 6) | st.integers(-(2**40), 2**40)
COLUMNS = st.lists(VALUES, min_size=2, max_size=6) | st.lists(
    VALUES.map(lambda n: n / 2), min_size=2, max_size=6
)


@pytest.mark.proof("order functions against single pairs")
@settings(max_examples=campaign(150, 10_000))
@given(
    st.sampled_from(ZOO), st.sampled_from(WAYS), st.sampled_from(["left", "inner"]),
    COLUMNS, COLUMNS, st.sampled_from([1, 2, 8]),
)  # fmt: skip
def test_odd_functions(
    function: Any, way: Any, how: str, left: list[Any], right: list[Any], sample: int
) -> None:
    with thresholds(sample, compile_after=None):
        check(function, way, how, near(left), near(right))


def near(values: list[Any]) -> list[Any]:
    """Values that are all within the tolerance of a stream."""
    return [value % 1000 for value in values]


@pytest.mark.proof("order functions against single pairs")
@settings(max_examples=campaign(40, 3_000), deadline=None)
@given(
    st.sampled_from(COMPILED), st.sampled_from(WAYS), st.sampled_from(["left", "inner"]),
    st.lists(st.integers(0, 999), min_size=2, max_size=6),
    st.lists(st.integers(0, 999), min_size=2, max_size=6), st.sampled_from([1, 3]),
)  # fmt: skip
def test_odd_functions_compiled(
    function: Any, way: Any, how: str, left: list[Any], right: list[Any], sample: int
) -> None:
    with thresholds(sample, compile_after=0):
        check(function, way, how, left, right)


# ── numbers ──────────────────────────────────────────────────────────────────────────────────

NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(-(2**99), 2**99), st.floats(allow_nan=False),
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3).map(lambda n: BIG + n),
    st.sampled_from([2**63 - 1, -(2**63), 2**63, float(2**63), math.inf]),
)  # fmt: skip


@given(st.lists(NUMBERS, min_size=1, max_size=12))
def test_two_keys_order_as_the_numbers_do(values: list[int | float]) -> None:
    numbers = np.empty(len(values), object)
    numbers[:] = values
    keys, rests = PairFunction(lambda a, b: a).keys(numbers, numbers)
    ranks = plain_keys(np.column_stack([keys, rests]), (0,))[:, 0].tolist()
    for one, rank in zip(values, ranks, strict=True):
        for other, other_rank in zip(values, ranks, strict=True):
            assert (one < other) == (rank < other_rank)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(BIG - 3, BIG + 3), max_size=20))
def test_whole_numbers_split_as_one_at_a_time(values: list[int]) -> None:
    floats, rests = split_whole(np.array(values, np.int64))
    assert list(zip(floats.tolist(), rests.tolist(), strict=True)) == [split(v) for v in values]


def roots(a: Any, b: Any) -> Any:
    return abs(a - b) ** 0.5 + a**2


def waves(a: Any, b: Any) -> Any:
    return math.sin(a) * math.exp(-b) if a > b else math.log1p(abs(b))


def waves_of_numpy(a: Any, b: Any) -> Any:
    return np.sin(a) + np.power(b, 0.3)


def quotients(a: Any, b: Any) -> Any:
    return (a // 0.7) / (1 + abs(b) % 0.3)


def wraps_under_a_root(a: Any, b: Any) -> Any:
    return math.sqrt((a - b) * (a - b)) if a > b else math.sqrt((b - a) * (b - a))


def shifts_out(a: Any, b: Any) -> Any:
    return (a - b) << 30 if a > b else (b - a) << 30


def is_whole_or_not(a: Any, b: Any) -> Any:
    return a - b if a > b else 0.5


@pytest.mark.parametrize(
    ("function", "odd"),
    [
        (wraps_under_a_root, (4_400_000_000, 3_100_000_000)),
        (shifts_out, (2**34 + 1, 2**34)),
        (is_whole_or_not, (BIG + 2, BIG + 1)),
    ],
)
def test_few_rows_beyond_the_machines_numbers_are_right(
    function: Any, odd: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of the rows does not have them, and compiled code only wraps or rounds there."""
    monkeypatch.setattr(functions, "COMPILE_AFTER", 0)
    rows = 100
    a, b = np.zeros(rows, np.int64), np.ones(rows, np.int64)
    a[40], a[41] = odd
    floats, rests = PairFunction(function).keys(a, b)
    single = [split(function(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert floats.tolist() == [int(functions.float_key(np.array([f]))[0]) for f, _ in single]
    assert rests.tolist() == [rest for _, rest in single]


@pytest.mark.parametrize(
    "function", [roots, waves, waves_of_numpy, quotients, np.hypot, math.hypot, branches, where]
)
def test_how_many_pairs_come_at_once_does_not_show(function: Any) -> None:
    """To the last bit: one direction of a full join, or one task, must find the other's pairs."""
    random = np.random.default_rng(7)
    a, b = random.normal(0, 9, 300), np.abs(random.normal(0, 9, 300))
    with thresholds(8, compile_after=100):
        together = PairFunction(function).keys(a, b)[0].tolist()
        cut = PairFunction(function)
        apart = [cut.keys(a[at : at + n], b[at : at + n])[0].tolist() for at, n in pieces(300)]
    assert [key for keys in apart for key in keys] == together


def pieces(rows: int) -> Iterator[tuple[int, int]]:
    at = 0
    for n in (1, 1, 2, 5, 9, 30, 1, 100, 3, rows):
        yield at, min(n, rows - at)
        at += min(n, rows - at)


# ── what is kept ─────────────────────────────────────────────────────────────────────────────


def scaled(factor: Any) -> Any:
    def cost(a: Any, b: Any) -> Any:
        return factor * (a - b) if a > b else b - a

    return cost


def loops_made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    real = compiled._compiled

    def counted(function: Any, columns: Any) -> Any:
        made.append(function)
        return real(function, columns)

    monkeypatch.setattr(compiled, "_compiled", counted)
    compiled._loops.clear()
    return made


def test_a_function_is_compiled_once_for_all_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loops_made(monkeypatch)
    n = 12
    rows = pa.table({"t": range(n), "c": [i * 7 % 13 for i in range(n)]})
    arguments: dict[str, Any] = {"time": "t", "period": 5, "on": {"c": None}}
    with thresholds(1, compile_after=0):
        for _ in range(2):
            matwin.fixed_window_join(rows, rows, **arguments, orders={"c": scaled(3)}).read_all()
    assert len(made) == 2  # for integers, and for floats that tell when they wrap


GLOBAL = 2


def captures(a: Any, b: Any) -> Any:
    return GLOBAL * (a - b) if a > b else b - a


def test_what_a_function_captures_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.array([5, 1, 9]), np.array([4, 8, 2])
    factor = 2

    def cost(a: Any, b: Any) -> Any:
        return factor * (a - b) if a > b else b - a

    kept, outer = PairFunction(cost), PairFunction(captures)
    with thresholds(1, compile_after=0):
        assert kept(a, b).tolist() == outer(a, b).tolist() == [2, 7, 14]
        factor = 10
        monkeypatch.setitem(globals(), "GLOBAL", 10)
        assert kept(a, b).tolist() == outer(a, b).tolist() == [10, 7, 70]
        # The same code with other values, and other types of the same value.
        assert PairFunction(scaled(2))(a, b).tolist() == [2, 7, 14]
        assert PairFunction(scaled(0.5))(a, b).tolist() == [0.5, 7, 3.5]
        assert PairFunction(scaled(True))(a, b).tolist() == [1, 7, 7]


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "KEPT", 3)
    monkeypatch.setattr(compiled, "_compiled", lambda function, columns: None)
    compiled._loops.clear()
    columns = [np.array([1, 2]), np.array([3, 4])]
    for factor in range(9):
        compiled.compiled(scaled(factor), columns, {})
    assert len(compiled._loops) == 3


def test_a_function_that_was_sent_is_the_same_function() -> None:
    """What a worker has compiled serves all its tasks, each of which gets its own copy."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    one = scaled(3)
    other = cloudpickle.loads(cloudpickle.dumps(one))
    assert one is not other
    assert compiled._identity(one, ()) == compiled._identity(other, ())
    assert compiled._identity(one, ()) != compiled._identity(scaled(4), ())


@pytest.mark.parametrize("types", [(pa.timestamp("s"), pa.timestamp("ms")),
                                   (pa.date32(), pa.timestamp("s"))], ids=str)  # fmt: skip
def test_both_values_are_in_one_unit(types: tuple[pa.DataType, pa.DataType]) -> None:
    seen: set[Any] = set()

    def noted(a: Any, b: Any) -> Any:
        seen.add((a, b))
        return abs(a - b)

    day = {"s": 86_400, "ms": 86_400_000}
    columns = [
        pa.array([1], pa.int32()).view(t) if pa.types.is_date(t) else pa.array([day[t.unit]], t)
        for t in types
    ]
    left, right = (pa.table({"t": column}) for column in columns)
    found = matwin.bestmatch_join(left, right, on={"t": "1h"}, orders={"t": noted}).read_all()
    assert found.num_rows == 1
    assert seen == {(day[types[1].unit],) * 2}


TABLE = np.arange(100_000.0)


def looks_into(a: Any, b: Any) -> Any:
    return TABLE[int(a)] if a > b else TABLE[int(b)]


def test_what_has_no_value_to_compare_belongs_to_one_join(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loops_made(monkeypatch)
    a, b = np.array([5, 1, 9]), np.array([4, 8, 2])
    with thresholds(1, compile_after=0):
        one, other = PairFunction(looks_into), PairFunction(looks_into)
        for function in (one, one, other):
            assert function(a, b).tolist() == [5, 8, 9]
    assert len(made) == 2 * 2  # for integers, and for floats to compare with
    assert not compiled._loops


def test_a_place_outside_of_a_captured_array_is_an_error() -> None:
    rows = 100
    a, b = np.zeros(rows, np.int64), np.ones(rows, np.int64)
    a[40] = 10**12  # which crashed the process, or read what was there
    with thresholds(8, compile_after=0), pytest.raises(InputError, match="IndexError"):
        PairFunction(looks_into)(a, b)


def test_that_a_function_can_not_be_compiled_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loops_made(monkeypatch)
    a, b = np.array([5, 1, 9]), np.array([4, 8, 2])
    with thresholds(1, compile_after=0):
        for _ in range(3):
            assert PairFunction(delegates)(a, b).tolist() == [1, 14, 7]
    assert len(made) == 1


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_a_function_of_arrays_must_not_mix_rows(rows: int) -> None:
    def mixes(a: Any, b: Any) -> Any:
        return a.astype(float) - b.astype(float).mean()

    a = np.arange(rows)
    if rows == 1:
        assert PairFunction(mixes)(a, a).tolist() == [0.0]
        return
    with pytest.raises(InputError, match="'mixes' returns something else among other rows"):
        PairFunction(mixes)(a, a)


# ── where ────────────────────────────────────────────────────────────────────────────────────


def is_true(function: Any, a: Any, b: Any) -> bool:
    value = wants_arrays(np.array([a]), np.array([b])) if function is wants_arrays else None
    value = function(a, b) if value is None else value
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if not (value is None or isinstance(value, int | float)):
        raise ValueError(value)
    return bool(value) and value == value


@pytest.mark.proof("order functions against single pairs")
@settings(max_examples=campaign(100, 5_000), deadline=None)
@given(st.sampled_from(ZOO), COLUMNS, COLUMNS, st.sampled_from([1, 2, 8]))
def test_odd_functions_as_predicates(
    function: Any, left: list[Any], right: list[Any], sample: int
) -> None:
    tried()
    try:
        expected = {
            (i, j)
            for i, a in enumerate(left)
            for j, b in enumerate(right)
            if is_true(function, a, b)
        }
    except Exception:
        expected = None
    streams = {
        name: pa.table({"t": [0] * len(values), "v": values, "i": range(len(values))})
        for name, values in (("a", left), ("b", right))
    }
    with thresholds(sample, compile_after=None):
        reader = matwin.window_join(streams, time="t", windows=1, where={("a.v", "b.v"): function})
        if expected is None:
            with pytest.raises(InputError, match="where: the function"):
                reader.read_all()
            return
        found = reader.read_all()
    assert set(zip(found["a_i"].to_pylist(), found["b_i"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)


TIMES = {
    pa.timestamp("s"): 10**9, pa.timestamp("ms"): 10**6, pa.timestamp("us", "UTC"): 10**3,
    pa.timestamp("ns"): 1, pa.date32(): 86_400 * 10**9, pa.date64(): 10**6, pa.time32("s"): 10**9,
    pa.time64("us"): 10**3, pa.duration("s"): 10**9, pa.duration("ns"): 1,
}  # fmt: skip


@pytest.mark.parametrize("one", list(TIMES), ids=str)
@pytest.mark.parametrize("other", list(TIMES), ids=str)
def test_functions_get_times_in_one_unit(one: pa.DataType, other: pa.DataType) -> None:
    """The finer of the two, whatever they are: the same moment is the same number."""
    finer = min(TIMES[one], TIMES[other])
    seen: set[tuple[int, int]] = set()

    def noted(a: Any, b: Any) -> Any:
        seen.add((a, b))
        return a == b

    moment = (
        86_400 * 10**9 if TIMES[one] == 10**6 * 86_400_000 or pa.date64() in (one, other) else 0
    )
    streams = {}
    for name, data_type in (("a", one), ("b", other)):
        stored = pa.int32() if data_type.bit_width == 32 else pa.int64()
        later = moment if not pa.types.is_time(data_type) else 0
        column = pa.array([later // TIMES[data_type]], stored).view(data_type)
        streams[name] = pa.table({"t": [0], "v": column})
    where: Any = {("a.v", "b.v"): noted}
    matwin.window_join(streams, time="t", windows=1, where=where).read_all()
    wanted = tuple(
        0 if pa.types.is_time(data_type) else moment // finer for data_type in (one, other)
    )
    assert seen == {wanted}
    assert matwin.verify_window_join(streams, time="t", windows=1, where=where).is_equal
