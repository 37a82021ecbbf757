"""Decimals to join by, exactly: every width and number of digits, every way to write a tolerance,
every join and way of execution, beside a plain loop over Python's own decimals, and DuckDB."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

import matwin
from matwin.storage.decimals import decimals, first_misfit, integers

CASES = settings(max_examples=campaign(60, 5_000), deadline=None)
TYPES = {
    "decimal32": (pa.decimal32, 9), "decimal64": (pa.decimal64, 18),
    "decimal128": (pa.decimal128, 38), "decimal256": (pa.decimal256, 76),
}  # fmt: skip


@st.composite
def columns(draw: st.DrawFn, kinds: tuple[str, ...] = (*TYPES, "int64", "int8")) -> pa.Array:
    """A few values near each other, some twice, some null."""
    kind = draw(st.sampled_from(kinds))
    wide = [draw(st.one_of(st.none(), *[st.integers(-30, 30)] * 6)) for _ in range(draw(SIZES))]
    if kind not in TYPES:
        return pa.array(wide, getattr(pa, kind)())
    make, precision = TYPES[kind]
    digits = draw(st.integers(-1, 4))
    with localcontext() as context:
        context.prec = 80
        numbers = [None if n is None else Decimal(n).scaleb(-digits) for n in wide]
        return pa.array(numbers, make(precision, digits))


SIZES = st.integers(0, 9)


@st.composite
def sides(draw: st.DrawFn, kinds: tuple[str, ...] = (*TYPES, "int64", "int8")) -> Any:
    """Two tables; the first has decimals."""
    found = []
    for name, mine in (("left", tuple(TYPES)), ("right", kinds)):
        values = draw(columns(mine))
        keys = [draw(st.integers(0, 1)) for _ in range(len(values))]
        names = {"d": values, "k": pa.array(keys, pa.int64()), name: np.arange(len(values))}
        found.append(pa.table(names))
    return found


@st.composite
def tolerances(draw: st.DrawFn) -> tuple[Any, Fraction, Fraction]:
    """A tolerance as users write it, and its two ends."""
    one = Decimal(draw(st.integers(0, 4000))).scaleb(-draw(st.integers(0, 4)))
    other = Decimal(draw(st.integers(-400, 400))).scaleb(-draw(st.integers(0, 3)))
    written = draw(st.sampled_from([Decimal, str, float, "pair"]))
    if written == "pair":
        lo, hi = min(-one, other), max(-one, other)
        return (str(lo), hi), Fraction(lo), Fraction(hi)
    shown = str(one) if written is str else written(one)
    return shown, -Fraction(one), Fraction(one)


def both_ends(tolerance: Any) -> Any:
    """The same as a pair, which may be empty where a single amount may not."""
    if isinstance(tolerance, tuple):
        return tolerance
    return (f"-{tolerance}" if isinstance(tolerance, str) else -tolerance), tolerance


def admits(left: pa.Table, right: pa.Table, lo: Fraction, hi: Fraction) -> bool:
    """Whether some difference of two values of these types is within; no others are asked for."""
    digits = max(getattr(one["d"].type, "scale", 0) for one in (left, right))
    unit = Fraction(10) ** digits
    return math.ceil(lo * unit) <= math.floor(hi * unit)


WAYS: dict[str, dict[str, Any]] = {
    "memory": {},
    "pages": {"memory": "1MiB", "page_size": "4KiB", "schedule": "gallop"},
    "slab": {"memory": "1MiB", "page_size": "4KiB", "materialize": "slab"},
}


def eligible(left: pa.Table, right: pa.Table, lo: Fraction, hi: Fraction, by: Any) -> Any:
    """Pairs of row numbers and their distances, by a plain loop."""
    found = []
    ours, theirs = left["d"].to_pylist(), right["d"].to_pylist()
    keys = left["k"].to_pylist(), right["k"].to_pylist()
    for i, a in enumerate(ours):
        for j, b in enumerate(theirs):
            if a is None or b is None or (by and keys[0][i] != keys[1][j]):
                continue
            if lo <= Fraction(b) - Fraction(a) <= hi:
                found.append((i, j, abs(Fraction(b) - Fraction(a))))
    return found


def pairs_of(found: pa.Table, name: str = "d_distance") -> Any:
    rows = zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True)
    far = found[name].to_pylist() if name in found.column_names else []
    if far:
        assert pa.types.is_decimal(found[name].type)
        return sorted((*pair, Fraction(one)) for pair, one in zip(rows, far, strict=True))
    return sorted(rows)


@pytest.mark.proof("decimals: every join beside a plain loop")
@CASES
@given(sides(), tolerances(), st.sampled_from(list(WAYS)), st.sampled_from([None, "k"]))
def test_epsilon_joins(tables: Any, tolerance: Any, way: str, by: Any) -> None:
    left, right = tables
    given_as, lo, hi = tolerance
    assume(admits(left, right, lo, hi))
    found = matwin.epsilon_join(
        left, right, on={"d": given_as}, by=by, distances=True, **WAYS[way]
    ).to_arrow()
    tried()
    assert pairs_of(found) == sorted(eligible(left, right, lo, hi, by))
    assert found["d_left"].type == left["d"].type


@pytest.mark.proof("decimals: every join beside a plain loop")
@CASES
@given(sides(), tolerances(), st.sampled_from(list(WAYS)), st.sampled_from(["left", "right"]))
def test_bestmatch_joins(tables: Any, tolerance: Any, way: str, how: Any) -> None:
    left, right = tables
    given_as, lo, hi = tolerance
    assume(admits(left, right, lo, hi))
    found = matwin.bestmatch_join(
        left, right, on={"d": given_as}, how=how, distances=True, **WAYS[way]
    ).to_arrow()
    everything, at = eligible(left, right, lo, hi, None), ("left", "right").index(how)
    least: dict[int, Fraction] = {}
    for pair in everything:
        least[pair[at]] = min(pair[2], least.get(pair[at], pair[2]))
    tried()
    assert pairs_of(found) == sorted(one for one in everything if one[2] == least[one[at]])


@pytest.mark.proof("decimals: every join beside a plain loop")
@CASES
@given(
    sides(), st.sampled_from(["backward", "forward", "nearest"]), st.booleans(),
    st.sampled_from([None, "0.5", 2, Decimal("1.25")]), st.sampled_from(list(WAYS)),
)  # fmt: skip
def test_asof_joins(tables: Any, direction: Any, exact: bool, tolerance: Any, way: str) -> None:
    left, right = tables
    if tolerance is not None and not exact:
        digits = max(getattr(one["d"].type, "scale", 0) for one in (left, right))
        assume(Fraction(Decimal(str(tolerance))) * Fraction(10) ** digits >= 1)
    found = matwin.asof_join(
        left,
        right.drop_columns("k"),
        on="d",
        direction=direction,
        allow_exact_matches=exact,
        tolerance=tolerance,
        ties="all",
        **WAYS[way],
    ).to_arrow()
    far = Fraction(10**9) if tolerance is None else Fraction(Decimal(str(tolerance)))
    lo = -far if direction != "forward" else Fraction(0)
    hi = far if direction != "backward" else Fraction(0)
    some = [p for p in eligible(left, right, lo, hi, None) if exact or p[2]]
    least: dict[int, Fraction] = {}
    for row, _, apart in some:
        least[row] = min(apart, least.get(row, apart))
    wanted = [(i, j) for i, j, apart in some if apart == least[i]]
    wanted += [(i, None) for i in range(left.num_rows) if i not in least]
    tried()
    rows = list(zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True))
    assert sorted(map(str, rows)) == sorted(map(str, wanted))


@pytest.mark.proof("decimals: every join beside a plain loop")
@CASES
@given(sides(), tolerances(), st.sampled_from(list(WAYS)), st.booleans())
def test_window_joins(tables: Any, tolerance: Any, way: str, as_where: bool) -> None:
    """As the time, and as a predicate."""
    left, right = tables
    given_as, lo, hi = tolerance
    assume(admits(left, right, lo, hi))
    if as_where:
        windows: Any = {"time": {"l": "left", "r": "right"}, "windows": 1000,
                        "where": {("l.d", "r.d"): given_as}}  # fmt: skip
    else:
        windows = {"time": "d", "windows": {("l", "r"): both_ends(given_as)}}
    found = matwin.window_join({"l": left, "r": right}, **windows, **WAYS[way]).to_arrow()
    tried()
    rows = sorted(zip(found["l_left"].to_pylist(), found["r_right"].to_pylist(), strict=True))
    assert rows == sorted((i, j) for i, j, _ in eligible(left, right, lo, hi, None))


@settings(CASES, max_examples=campaign(25, 2_000))
@given(sides(), tolerances(), st.booleans(), st.sampled_from(["min_distance", "youngest"]))
def test_duckdb_agrees(tables: Any, tolerance: Any, best: bool, order: str) -> None:
    left, right = tables
    assume(admits(left, right, *tolerance[1:]))
    orders = {"d": order} if best else {}
    verdict = matwin.verify(
        left, right, best=best, on={"d": tolerance[0]}, distances=True,
        **({"orders": orders} if best else {}),
    )  # fmt: skip
    assert verdict.is_equal, verdict


def test_a_sum_of_costs_is_exact() -> None:
    """Of counts, where floats could not tell one from the other."""
    far = Decimal("45035996273704960.01")
    left = pa.table({"d": pa.array([far], pa.decimal128(20, 2))})
    costs = [Decimal("0.01"), Decimal("0.03"), Decimal("0.02")]
    right = pa.table({"d": pa.array(costs, pa.decimal128(9, 2)), "n": [0, 1, 2]})
    orders = {"d": lambda a, b: a - b}
    found = matwin.bestmatch_join(left, right, on={"d": None}, orders=orders).to_arrow()
    assert found["n"].to_pylist() == [1]
    text = "select n from l left bestmatch join r on l.d mincost r.d"
    assert matwin.sql(text, l=left, r=right).to_arrow()["n"].to_pylist() == [0]


@pytest.mark.parametrize("row", [0, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_does_not_fit_is_refused_by_row(side: str, row: int) -> None:
    """Also what fits by itself, and not with the digits of the other side."""
    values = [Decimal("1.5"), None, Decimal("2"), Decimal("7")]
    values[row] = Decimal(2**63) / 100
    wide = pa.table({"d": pa.array(values, pa.decimal128(30, 2))})
    fine = pa.table({"d": pa.array([Decimal("0.001")], pa.decimal128(9, 3))})
    sides = {side: wide, {"left": "right", "right": "left"}[side]: fine}
    with pytest.raises(matwin.InputError, match=f"{side}: column 'd', row {row}: the value"):
        matwin.epsilon_join(**sides, on={"d": 1}).to_arrow()
    assert matwin.epsilon_join(fine, fine, on={"d": 1}).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [("5min", "is not a tolerance"), (float("nan"), "is not a tolerance"), (True, "tolerance"),
     (Decimal("Infinity"), "is not a tolerance"), ("-1", "is negative"), (("2", "1"), "nothing")],
)  # fmt: skip
def test_tolerances_that_are_none(tolerance: Any, said: str) -> None:
    rows = pa.table({"d": pa.array([Decimal("1.5")], pa.decimal128(9, 2))})
    with pytest.raises(matwin.InputError, match=said):
        matwin.epsilon_join(rows, rows, on={"d": tolerance})


def test_floats_and_decimals_are_not_compared() -> None:
    rows = pa.table({"d": pa.array([Decimal("1.5")], pa.decimal128(9, 2)), "x": [1.5]})
    with pytest.raises(matwin.InputError, match="cast one of them"):
        matwin.epsilon_join(rows, rows, on={("d", "x"): 1})


@pytest.mark.parametrize("order", [matwin.Lateness(Decimal("0.5")), matwin.Lateness(0.5),
                                   matwin.Punctuated()])  # fmt: skip
def test_streams_ordered_by_decimals(order: Any) -> None:
    """Lateness and punctuations are amounts and values of the column; errors show its values."""
    values = [Decimal("1.00"), Decimal("1.50"), Decimal("1.25"), Decimal("4.00")]
    rows = pa.table({"d": pa.array(values, pa.decimal128(9, 2)), "n": [0, 1, 2, 3]})
    items: list[Any] = rows.to_batches(max_chunksize=1)
    if isinstance(order, matwin.Punctuated):
        items.insert(3, matwin.Punctuation(Decimal("1.5")))
    stream = matwin.stream(items, on="d", order=order, schema=rows.schema)
    found = matwin.epsilon_join(stream, rows, on={"d": "0.25"}).to_arrow()
    assert found.num_rows == 8
    late = matwin.stream(rows, on="d", order=matwin.Lateness("0.1" and Decimal("0.1")))
    with pytest.raises(matwin.InputError, match=r"'d' is 1\.25 after 1\.\d+"):
        matwin.epsilon_join(late, rows, on={"d": "0.25"}).to_arrow()


@CASES
@given(columns(), st.integers(-1, 30))
def test_counts(column: pa.Array, digits: int) -> None:
    """There and back, and what does not fit."""
    own = column.type.scale if pa.types.is_decimal(column.type) else 0
    assume(digits >= own)
    counts, fits = integers(column, digits)
    wrong = []
    for at, value in enumerate(column.to_pylist()):
        count = None if value is None else Fraction(value) * Fraction(10) ** digits
        fit = count is not None and abs(count) < 2**63
        assert bool(fits[at]) == fit
        assert int(counts[at]) == (count if fit else 0)
        if count is not None and not fit:
            wrong.append(at)
    assert first_misfit(column, digits) == (wrong[0] if wrong else None)
    if digits <= 30:
        again = decimals(counts, digits).to_pylist()
        shown = [Fraction(one) * Fraction(10) ** digits for one in again]
        assert shown == [int(one) for one in counts]
