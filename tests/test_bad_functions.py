"""A user's functions that fail, and rows without end: named errors, flat memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bad_input import (
    LEFT,
    PAGES,
    RIGHT,
    each_join,
    each_place,
    id_pairs,
    ids,
    pairs,
)
from support import call_in_child, memory_limit

import matwin
from matwin import InputError
from matwin.report import Report

# ── a user's functions ───────────────────────────────────────────────────────────────────────


def failing(a: Any, b: Any) -> Any:
    if a == 2:
        raise KeyError("boom")
    return abs(a - b)


def seldom_nan(a: Any, b: Any) -> Any:
    return math.nan if a == 2 else 1.0


def seldom_none(a: Any, b: Any) -> Any:
    return None if a == 2 else 1.0


def seldom_text(a: Any, b: Any) -> Any:
    return "near" if a == 2 else 1.0


def dividing(a: Any, b: Any) -> Any:
    return b / (a - 2)


def shapeless(a: Any, b: Any) -> Any:
    return np.zeros(7)


def listing(a: Any, b: Any) -> Any:
    return [a, b]


@each_place
@pytest.mark.parametrize("how", ["left", "right", "full", "inner"])
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (failing, "fails for left 2 and right .: KeyError: 'boom'"),
        (seldom_nan, "returns NaN for left 2 and right "),
        (seldom_none, "(returns None for|fails for) left 2 and right "),
        (seldom_text, "returns 'near' for left 2 and right "),
        (dividing, "fails for left 2 and right .: ZeroDivisionError"),
        (shapeless, "returns array"),
        (listing, r"returns \[1, 1\] for left 1 and right 1"),
    ],
)
def test_functions_that_fail(
    function: Any, says: str, how: str, options: dict[str, Any], tmp_path: Path
) -> None:
    reader = matwin.bestmatch_join(
        LEFT, RIGHT, on={"t": 9}, orders={"t": function}, how=how, scratch=tmp_path, **options
    )
    with pytest.raises(InputError, match=f"'{function.__name__}' {says}"):
        reader.read_all()
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_functions_of_text_that_fail() -> None:
    on = {"t": 9, "k": None}
    with pytest.raises(InputError, match=r"'listing' returns \['a', 'a'\] for left 'a'"):
        matwin.bestmatch_join(LEFT, RIGHT, on=on, orders={"k": listing}).read_all()


@pytest.mark.parametrize("make", [matwin.minimize, matwin.partial_order])
def test_what_is_no_function(make: Any) -> None:
    with pytest.raises(InputError, match="5 is not a function"):
        make(5)


def breaking(one: Any, other: Any) -> Any:
    raise KeyError("boom")


def chatty(one: Any, other: Any) -> Any:
    return "yes"


def numeric(one: Any, other: Any) -> Any:
    return 1


def many(one: Any, other: Any) -> Any:
    return np.array([True, False])


def refusing(one: Any, other: Any) -> Any:
    return False


@each_place
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (breaking, r"'breaking' fails for \(1, 1\) and \(1, 2\): KeyError: 'boom'"),
        (chatty, r"'chatty' returns 'yes' for \(1, 1\) and \(1, 2\); .*True, False or None"),
        (numeric, "'numeric' returns 1 for"),
        (many, "'many' returns array"),
        (refusing, r"'refusing' says that \(1, 1\) is worse than \(1, 2\) and the other way"),
    ],
)
def test_partial_orders_that_are_none(function: Any, says: str, options: dict[str, Any]) -> None:
    orders = {"t": matwin.partial_order(function)}
    with pytest.raises(InputError, match=says):
        matwin.bestmatch_join(LEFT, RIGHT, on={"t": 9}, orders=orders, **options).read_all()


def square(a: Any, b: Any) -> Any:
    return (a - b) ** 2


def float_square(a: Any, b: Any) -> Any:
    return float(a - b) ** 2


@pytest.mark.parametrize("function", [square, float_square])
def test_whole_numbers_beyond_64_bits_are_exact(function: Any) -> None:
    """Squares of nanoseconds: three seconds are the last that fit."""
    right = [3 * 10**9 + 1, 4 * 10**9 + 7, 7 * 10**9]
    arguments: dict[str, Any] = {"on": {"t": None}, "orders": {"t": function}}
    assert id_pairs(matwin.bestmatch_join, [0], right, **arguments) == [(0, 0)]


def cubes(a: Any, b: Any) -> Any:
    return (a - b) ** 40


def test_whole_numbers_beyond_all_reason_are_told() -> None:
    left, right = ids([0]), ids([3 * 10**9])
    with pytest.raises(InputError, match=r"'cubes' returns \d+, beyond 2\*\*100, for left 0 and"):
        matwin.bestmatch_join(left, right, on={"t": None}, orders={"t": cubes}).read_all()


# ── many rows ────────────────────────────────────────────────────────────────────────────────


@each_join
@pytest.mark.parametrize(
    "times",
    [
        np.tile(np.linspace(-100, 100, 40_000), 2),
        np.repeat([2**62 + 7, -(2**62) - 7], 40_000),
    ],
    ids=["floats", "ints"],
)
def test_two_sorted_stretches_are_not_sorted(join: Any, times: Any) -> None:
    """A fall so deep that its difference wraps around is still a fall."""
    right = pa.table({"t": np.unique(times)[::-1]})
    reader = join(pa.table({"t": times}), right, on={"t": 0}, page_size="16KiB", memory="1MiB")
    assert reader.read_all().num_rows == 80_000


@each_join
def test_nothing_matches(join: Any) -> None:
    for how in ("inner", "left", "right", "full"):
        report = Report()
        found = join(ids([1]), ids([9]), on={"t": 1}, report=report, how=how).read_all()
        assert report.is_done and report.left.used == report.right.used == 1
        assert report.rows_out == found.num_rows


@each_join
@each_place
def test_all_times_equal(join: Any, options: dict[str, Any]) -> None:
    left, right = ids([7] * 60), ids([7] * 50)
    found = pairs(join(left, right, on={"t": 0}, **options), "i_left", "i_right")
    assert found == [(i, j) for i in range(60) for j in range(50)]


@each_join
@each_place
def test_one_key_has_nearly_all_rows(join: Any, options: dict[str, Any]) -> None:
    t = np.arange(4000)
    keys = np.where(t % 10 == 3, t, 0)
    table = pa.table({"t": t, "k": keys, "i": t})
    report = Report()
    reader = join(table, table, on={"t": (-1, -1)}, by="k", report=report, **options)
    expected = [(i, i - 1) for i in range(1, 4000) if keys[i] == keys[i - 1]]
    assert pairs(reader, "i_left", "i_right") == expected


@pytest.mark.parametrize("options", [{}, {**PAGES, "memory": "2MiB"}], ids=["memory", "pages"])
@each_join
def test_a_huge_reach_stops_at_the_limit(join: Any, options: dict[str, Any]) -> None:
    rows = pa.table({"t": np.arange(3000)})
    orders = {"orders": {"t": nothing}} if join is matwin.bestmatch_join else {}
    reader = join(rows, rows, on={"t": 2**62}, max_output_rows=100_000, **orders, **options)
    message = "more than max_output_rows=100000 rows after 3000 left and 3000 right rows; narrow"
    got = 0
    with pytest.raises(InputError, match=message):
        for batch in reader:
            got += batch.num_rows
    assert got <= 100_000


def nothing(a: Any, b: Any) -> Any:
    """An order by which all pairs are equally good."""
    return 0


@each_join
def test_the_limit_itself_is_allowed(join: Any) -> None:
    rows = ids([1] * 10)
    assert join(rows, rows, on={"t": 0}, max_output_rows=100).read_all().num_rows == 100
    with pytest.raises(InputError, match="max_output_rows=99"):
        join(rows, rows, on={"t": 0}, max_output_rows=99).read_all()


def explode(best: bool, options: dict[str, Any]) -> str:
    """In a child process: hundreds of millions of pairs, until the limit."""
    rows = pa.table({"t": np.zeros(20_000, np.int64), "v": np.arange(20_000)})
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    try:
        for _ in join(rows, rows, on={"t": 1}, max_output_rows=15_000_000, **options):
            pass
    except InputError as e:
        return str(e)
    return "no error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "options"),
    [(True, {}), (False, {}), (False, {"materialize": "slab", "memory": "64MiB"})],
)
def test_memory_stays_flat_while_the_output_explodes(best: bool, options: dict[str, Any]) -> None:
    with memory_limit(400 << 20) as group:
        options = {"memory": "64MiB", **options}
        told = call_in_child(explode, best, options, before=group.enter)
    assert "max_output_rows=15000000" in told
