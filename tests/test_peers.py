"""What other systems' as-of and range joins answer, asked as bestmatch and ε-questions.

    as-of backward        on={"t": (None, 0)}        the last right row at or before
    as-of forward         on={"t": (0, None)}        the first at or after
    as-of nearest         on={"t": None}             the nearest on either side
    without exact ones    on={"t": (None, -1)}
    tolerance, by         the bound; by=
    range join            epsilon_join, a bound each side

The cases are those by which pandas, Polars, DuckDB and kdb+ test themselves; the rows that have to
come out are written out.  One difference is meant: where two right rows are equally good, the
others keep the one that stands last, or the earlier one, and here both stay.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import matwin


def best(left: pa.Table, right: pa.Table, columns: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """The sorted rows of a bestmatch join that keeps unmatched left rows: some columns of them."""
    arguments = {"keep_unmatched": True, **arguments}
    return rows(matwin.bestmatch_join(left, right, **arguments), columns)


def all_pairs(
    left: pa.Table, right: pa.Table, columns: str, **arguments: Any
) -> list[tuple[Any, ...]]:
    """The same for an ε-join."""
    return rows(matwin.epsilon_join(left, right, **arguments), columns)


def rows(reader: pa.RecordBatchReader, columns: str) -> list[tuple[Any, ...]]:
    table = reader.read_all().select(columns.split())
    found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(found, key=lambda row: [(value is None, value) for value in row])


# ── pandas: merge_asof ───────────────────────────────────────────────────────────────────────

ABC = pa.table({"a": [1, 5, 10], "left_val": ["a", "b", "c"]})
PRIMES = pa.table({"a": [1, 2, 3, 6, 7], "right_val": [1, 2, 3, 6, 7]})
ELEVEN = pa.table({"a": [1, 2, 3, 7, 11], "right_val": [1, 2, 3, 7, 11]})


@pytest.mark.parametrize(
    ("right", "tolerance", "expected"),
    [
        (PRIMES, (None, 0), [("a", 1), ("b", 3), ("c", 7)]),  # backward
        (PRIMES, (0, None), [("a", 1), ("b", 6), ("c", None)]),  # forward
        (PRIMES, None, [("a", 1), ("b", 6), ("c", 7)]),  # nearest
        (PRIMES, (None, -1), [("a", None), ("b", 3), ("c", 7)]),  # no exact matches
        (PRIMES, (-1, 0), [("a", 1), ("b", None), ("c", None)]),  # backward, tolerance 1
        (ELEVEN, (0, 1), [("a", 1), ("b", None), ("c", 11)]),  # forward, tolerance 1
        (ELEVEN, 1, [("a", 1), ("b", None), ("c", 11)]),  # nearest, tolerance 1
        (ELEVEN, (1, None), [("a", 2), ("b", 7), ("c", 11)]),  # forward, no exact matches
        (ELEVEN, (1, 1), [("a", 2), ("b", None), ("c", 11)]),  # … and tolerance 1
        (ELEVEN, None, [("a", 1), ("b", 3), ("b", 7), ("c", 11)]),  # nearest: a tie stays
    ],
)
def test_pandas_directions(right: pa.Table, tolerance: Any, expected: list[Any]) -> None:
    assert best(ABC, right, "left_val right_val", on={"a": tolerance}) == expected


def test_pandas_tolerance_of_floats() -> None:
    left = pa.table({"a": [1.1, 3.5, 10.9], "left_val": ["a", "b", "c"]})
    right = pa.table({"a": [1.0, 2.5, 3.3, 7.5, 11.5], "right_val": [1.0, 2.5, 3.3, 7.5, 11.5]})
    found = best(left, right, "left_val right_val", on={"a": 0.5})
    assert found == [("a", 1.0), ("b", 3.3), ("c", None)]


def at(milliseconds: int) -> datetime:
    return datetime(2016, 5, 25, 13, 30) + timedelta(milliseconds=milliseconds)


QUOTES = pa.table(
    {
        "time": [at(t) for t in (23, 23, 30, 41, 48, 49, 72, 75)],
        "ticker": ["GOOG", "MSFT", "MSFT", "MSFT", "GOOG", "AAPL", "GOOG", "MSFT"],
        "bid": [720.50, 51.95, 51.97, 51.99, 720.50, 97.99, 720.50, 52.01],
    }
)
TRADES = pa.table(
    {
        "time": [at(t) for t in (23, 38, 48, 48, 48)],
        "ticker": ["MSFT", "MSFT", "GOOG", "GOOG", "AAPL"],
        "price": [51.95, 51.95, 720.77, 720.92, 98.0],
    }
)


@pytest.mark.parametrize(
    ("tolerance", "bids"),
    [
        # MSFT 23, MSFT 38, AAPL 48 (its quote comes a millisecond later), GOOG 48 twice
        (("-1d", "0s"), [(51.95, 51.95), (51.95, 51.97), (98.0, None), (720.77, 720.50)]),
        (("-2ms", "0s"), [(51.95, 51.95), (51.95, None), (98.0, None), (720.77, 720.50)]),
        (("-10ms", "-1us"), [(51.95, 51.97), (51.95, None), (98.0, None), (720.77, None)]),
        (("0s", "1d"), [(51.95, 51.95), (51.95, 51.99), (98.0, 97.99), (720.77, 720.50)]),
    ],
)
def test_pandas_trades_and_quotes(tolerance: Any, bids: list[Any]) -> None:
    found = best(TRADES, QUOTES, "price bid", on={"time": tolerance}, by="ticker")
    assert found == [*bids, (720.92, bids[-1][1])]


def test_pandas_by_names_that_differ() -> None:
    right = QUOTES.rename_columns(["when", "symbol", "bid"])
    on, by = {("time", "when"): ("-1d", "0s")}, ("ticker", "symbol")
    found = best(TRADES, right, "ticker symbol bid", on=on, by=by)
    assert found == [
        ("AAPL", None, None),
        ("GOOG", "GOOG", 720.5),
        ("GOOG", "GOOG", 720.5),
        ("MSFT", "MSFT", 51.95),
        ("MSFT", "MSFT", 51.97),
    ]


def test_pandas_by_several_keys() -> None:
    left = pa.table({"t": [1, 1, 5], "a": ["x", "x", "y"], "b": [1, 2, 1], "i": [0, 1, 2]})
    right = pa.table(
        {"t": [0, 0, 4, 4], "a": ["x", "y", "y", "x"], "b": [1, 2, 1, 1], "j": [*"pqrs"]}
    )
    found = best(left, right, "i j", on={"t": (None, 0)}, by=["a", "b"])
    assert found == [(0, "p"), (1, None), (2, "r")]


def test_pandas_time_zones() -> None:
    def zoned(times: list[datetime], name: str) -> pa.Array:
        return pa.array(times, pa.timestamp("us", name))

    noon = datetime(2016, 1, 2, 12, tzinfo=UTC)
    left = pa.table({"date": zoned([noon, noon + timedelta(hours=5)], "UTC"), "value1": [1, 2]})
    late = [noon - timedelta(hours=1), noon + timedelta(hours=4)]
    right = pa.table({"date": zoned(late, "America/New_York"), "value2": ["p", "q"]})
    found = best(left, right, "value1 value2", on={"date": ("-1d", "0s")})
    assert found == [(1, "p"), (2, "q")]


def test_pandas_empty_right() -> None:
    found = best(ABC, PRIMES.slice(0, 0), "left_val right_val", on={"a": (None, 0)})
    assert found == [("a", None), ("b", None), ("c", None)]


def test_pandas_timedelta_columns() -> None:
    def spans(hours: list[int]) -> pa.Array:
        return pa.array([timedelta(hours=h) for h in hours], pa.duration("ns"))

    left = pa.table({"d": spans([0, 2, 5]), "i": [0, 1, 2]})
    right = pa.table({"d": spans([1, 3]), "j": ["p", "q"]})
    assert best(left, right, "i j", on={"d": ("-1h", "0s")}) == [(0, None), (1, "p"), (2, None)]


# ── Polars: join_asof ────────────────────────────────────────────────────────────────────────


def second(number: int) -> datetime:
    return datetime(2020, 1, 1, 9, 0, number)


P_TRADES = pa.table(
    {
        "time": [second(s) for s in (1, 1, 3, 6)],
        "stock": ["A", "B", "B", "C"],
        "trade": [101, 299, 301, 500],
    }
)
P_QUOTES = pa.table(
    {
        "time": [second(s) for s in (0, 2, 4, 6)],
        "stock": ["A", "B", "C", "A"],
        "quote": [100, 300, 501, 102],
    }
)


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        (("-2s", "0s"), [(101, 100), (299, None), (301, 300), (500, 501)]),
        (("-1s", "0s"), [(101, 100), (299, None), (301, 300), (500, None)]),
        (("0s", "1s"), [(101, None), (299, 300), (301, None), (500, None)]),
        ("0s", [(101, None), (299, None), (301, None), (500, None)]),
    ],
)
def test_polars_tolerance(tolerance: Any, expected: list[Any]) -> None:
    found = best(P_TRADES, P_QUOTES, "trade quote", on={"time": tolerance}, by="stock")
    assert found == expected


def test_polars_units_that_differ() -> None:
    fine = P_QUOTES.set_column(0, "time", P_QUOTES["time"].cast(pa.timestamp("ns")))
    found = best(P_TRADES, fine, "trade quote", on={"time": ("-2s", "0s")}, by="stock")
    assert found == [(101, 100), (299, None), (301, 300), (500, 501)]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([-1, 1, 2, 4, 6], [-1, 2, 4, 5], [(-1, -1), (1, 2), (2, 2), (4, 4), (6, 5)]),
        ([9, 9, 10, 10], [1, 2, 3, 10], [(9, 10), (9, 10), (10, 10), (10, 10)]),
        ([0], [-1, 1], [(0, -1), (0, 1)]),  # a tie: the other keeps one of the two
        ([5], [3, 3, 7], [(5, 3), (5, 3), (5, 7)]),
        ([1, 2, 3], [2], [(1, 2), (2, 2), (3, 2)]),
    ],
)
def test_polars_nearest(left: list[int], right: list[int], expected: list[Any]) -> None:
    sides = pa.table({"a": left}), pa.table({"b": right})
    assert best(*sides, "a b", on={("a", "b"): None}) == expected


def test_polars_nearest_without_a_tolerance() -> None:
    left = pa.table({"time": [0.9, 2.1, 2.8], "id": [1, 2, 3]})
    right = pa.table({"time": [2.0], "value": [100]})
    assert best(left, right, "id value", on={"time": None}) == [(1, 100), (2, 100), (3, 100)]


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        (3, [(1, 1), (2, 2), (3, 3), (4, 3), (5, 6)]),
        (1, [(1, 1), (2, 2), (3, 3), (4, 3), (5, 6)]),
        (0, [(1, 1), (2, 2), (3, 3), (4, None), (5, None)]),
    ],
)
def test_polars_nearest_with_a_tolerance(tolerance: int, expected: list[Any]) -> None:
    left, right = pa.table({"a": [1, 2, 3, 4, 5]}), pa.table({"b": [1, 2, 3, 6]})
    assert best(left, right, "a b", on={("a", "b"): tolerance}) == expected


def test_polars_sorted_within_groups_only() -> None:
    left = pa.table(
        {"key": [*"aaabbb"], "t": [2.0, 1.0, 3.0, 1.0, 2.0, 3.0], "a": [2, 1, 3, 4, 5, 6]}
    )
    right = pa.table({"key": [*"aaabbb"], "t": [0.9, 1.9, 2.9] * 2, "b": [21, 22, 23, 24, 25, 26]})
    found = best(left, right, "a b", on={"t": (None, 0.0)}, by="key")
    assert found == [(1, 21), (2, 22), (3, 23), (4, 24), (5, 25), (6, 26)]


# ── DuckDB: ASOF JOIN ────────────────────────────────────────────────────────────────────────

EVENTS = pa.table({"begin": [None, 1, 3, 6, 8, 999_999], "value": [-1, 0, 1, 2, 3, 9]})
PROBES = pa.table({"begin": list(range(10))})
SINCE = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (8, 3), (9, 3)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"keep_unmatched": False}, SINCE),
        ({}, [(0, None), *SINCE]),
    ],
)
def test_duckdb_inequality_only(arguments: dict[str, Any], expected: list[Any]) -> None:
    found = best(PROBES, EVENTS, "begin_left value", on={"begin": (None, 0)}, **arguments)
    assert found == expected


def test_duckdb_events_without_a_probe() -> None:
    """DuckDB's right as-of join adds the events that no probe has as its last one; asked in our
    words: the probes that an event is the last one of, and events that come after all probes."""
    found = best(PROBES, EVENTS, "value", on={"begin": (None, 0)}, keep_unmatched=False)
    assert sorted({value for (value,) in found}) == [0, 1, 2, 3]
    alone = all_pairs(EVENTS, PROBES, "value", on={"begin": (0, None)}, how="anti")
    assert alone == [(-1,), (9,)]


def test_duckdb_doubles_by_key() -> None:
    events = pa.table(
        {
            "key": [1, 1, 1, 1, 2, 2, 2],
            "begin": [1.0, 3.0, 6.0, 8.0, 0.0, 7.0, 11.0],
            "value": [0, 1, 2, 3, 10, 20, 30],
        }
    )
    ticks = [(key, float(t)) for key in (1, 2) for t in range(10)]
    probes = pa.table({"key": [k for k, _ in ticks], "ts": [t for _, t in ticks]})
    found = best(probes, events, "key ts value", on={("ts", "begin"): (None, 0.0)}, by="key")
    assert [value for *_, value in found] == [None, 0, 0, 1, 1, 1, 2, 2, 3, 3] + [10] * 7 + [20] * 3


def test_duckdb_nulls_match_nothing() -> None:
    trades = pa.table(
        {"id": [1, 2, 3, 4], "symbol": [None, "A", "A", "A"], "venue": [1, None, 1, 1],
         "ts": [5, 5, None, 5]}
    )  # fmt: skip
    prices = pa.table(
        {"pid": [10, 20, 30], "symbol": [None, "A", "A"], "venue": [1, None, 1], "ts": [3, 3, 3]}
    )
    found = best(trades, prices, "id pid", on={"ts": (None, 0)}, by=["symbol", "venue"])
    assert found == [(1, None), (2, None), (3, None), (4, 30)]


def test_duckdb_infinities() -> None:
    """DuckDB matches -infinity as the earliest moment; here infinities never match."""
    left = pa.table({"t": [float("-inf"), 0.0, float("inf")], "i": [0, 1, 2]})
    right = pa.table({"t": [float("-inf"), -1.0], "j": [0, 1]})
    assert best(left, right, "i j", on={"t": (None, 0.0)}) == [(0, None), (1, 1), (2, None)]


# ── kdb+: aj, wj ─────────────────────────────────────────────────────────────────────────────

TICKS = pa.table(
    {"sym": ["ibm", "msft", "msft", "ge"], "time": [1, 1, 3, 4], "qty": [100, 200, 150, 70]}
)
BIDS = pa.table(
    {"sym": ["ibm", "msft", "msft", "ibm"], "time": [0, 0, 2, 3], "px": [100, 99, 101, 98]}
)


def test_kdb_aj() -> None:
    found = best(TICKS, BIDS, "sym time_left px", on={"time": (None, 0)}, by="sym")
    assert found == [("ge", 4, None), ("ibm", 1, 100), ("msft", 1, 99), ("msft", 3, 101)]


def test_kdb_aj0_keeps_the_time_of_the_quote() -> None:
    found = best(TICKS, BIDS, "sym time_right", on={"time": (None, 0)}, by="sym")
    assert found == [("ge", None), ("ibm", 0), ("msft", 0), ("msft", 2)]


def test_kdb_wj1_takes_what_lies_in_the_window() -> None:
    found = all_pairs(TICKS, BIDS, "sym time_left px", on={"time": (-2, 1)}, by="sym", how="left")
    assert found == [
        ("ge", 4, None), ("ibm", 1, 100), ("msft", 1, 99), ("msft", 1, 101), ("msft", 3, 101),
    ]  # fmt: skip


# ── range joins ──────────────────────────────────────────────────────────────────────────────

STARTS = pa.table({"t": [0, 10, 20, 20], "s": [*"abcd"]})
POINTS = pa.table({"t": [5, 10, 15, 25, 35], "p": [1, 2, 3, 4, 5]})


@pytest.mark.parametrize(
    ("how", "columns", "expected"),
    [
        ("inner", "s p", [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 4), ("d", 4)]),
        ("left", "s p", [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 4), ("d", 4)]),
        ("right", "s p", [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 4), ("d", 4), (None, 5)]),
        ("full", "s p", [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 4), ("d", 4), (None, 5)]),
        ("semi", "s", [("a",), ("b",), ("c",), ("d",)]),
        ("anti", "s", []),
    ],
)
def test_points_in_intervals_of_one_length(how: str, columns: str, expected: list[Any]) -> None:
    found = all_pairs(STARTS, POINTS, columns, on={"t": (0, 10)}, how=how)
    assert found == expected


def test_points_in_boxes() -> None:
    """A spatial join: both axes at once, the corners included."""
    left = pa.table({"x": [0.0, 5.0], "y": [0.0, 5.0], "i": [0, 1]})
    right = pa.table({"x": [1.0, 1.0, 4.0, 6.5], "y": [1.0, -1.5, 6.0, 5.0], "j": [*"pqrs"]})
    assert all_pairs(left, right, "i j", on={"x": 1.0, "y": 1.0}) == [(0, "p"), (1, "r")]


def test_a_table_with_itself() -> None:
    """Events within five of another one before them: ids differ because times do."""
    log = pa.table({"t": [1, 3, 9, 11, 30], "id": [*"abcde"]})
    found = all_pairs(log, log, "id_left id_right", on={"t": (-5, -1)})
    assert found == [("b", "a"), ("d", "c")]


def test_gap_joins() -> None:
    """Between two and three days later, not sooner."""
    days = [datetime(2024, 2, day).date() for day in (27, 28, 29)]
    bought = pa.table({"day": days, "who": [*"abc"]})
    sent = pa.table({"day": [datetime(2024, 3, day).date() for day in (1, 2)], "box": [1, 2]})
    found = all_pairs(bought, sent, "who box", on={"day": ("2d", "3d")})
    assert found == [("a", 1), ("b", 1), ("b", 2), ("c", 2)]
