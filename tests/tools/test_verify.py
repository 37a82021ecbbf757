"""Two referees that share no code: DuckDB by generated SQL, and the plain loop of questions.py.

Then the comparison of bags, and the verdict that a user sees.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import KINDS, Case, as_bag, cases, oracle
from support import campaign

from matwin.orders import minimize, subset
from matwin.question import Question
from matwin.storage.errors import InputError, StoreError
from matwin.tools.answer import answer, database_in_memory
from matwin.tools.compare import compare
from matwin.tools.verify import verify
from matwin.tools.verify_sql import quoted, sql_of

# ── the referees ─────────────────────────────────────────────────────────────────────────────


@given(cases(best=True) | cases(best=False))
@settings(max_examples=campaign(60, 3000))
def test_both_referees_agree(case: Case) -> None:
    found = answer(case.left, case.right, case.question)
    assert found.schema.equals(case.question.schema)
    assert as_bag(found) == case.expected


# DuckDB gives a duration back as months, days and nanoseconds; far ones don't fit its INTERVAL.
SAYABLE: dict[str, Any] = {
    "kinds": [kind for kind in KINDS if kind != "duration"],
    "functions": False,
    "black_boxes": False,
}


@given(cases(best=True, **SAYABLE) | cases(best=False, **SAYABLE))
@settings(max_examples=campaign(60, 3000))
def test_the_printed_sql_agrees(case: Case) -> None:
    assert as_bag(run_sql(case)) == case.expected


def run_sql(case: Case) -> pa.Table:
    with duckdb.connect(config={"enable_external_access": "false"}) as database:
        database.register("left", case.left)
        database.register("right", case.right)
        found = database.sql(sql_of(case.question)).to_arrow_table()
    assert found.schema.names == case.question.schema.names
    return found


def ids(left: list[Any], right: list[Any], **arguments: Any) -> list[tuple[int, int]]:
    """Which rows of one column each are paired, by all three ways to ask."""
    sides = [
        pa.table({"t": side, "i": pa.array(range(len(side)), pa.int64())}) for side in (left, right)
    ]
    case = Case(*sides, arguments.pop("best", True), {"how": "left", **arguments})
    rows = oracle(*sides, case.question)
    for found in (answer(*sides, case.question), run_sql(case)):
        assert as_bag(found) == Counter(rows)
    return sorted((row[1], row[3]) for row in rows)


def test_ties_and_mirror_images_all_stay() -> None:
    assert ids([5], [3, 7, 4, 6, 4, 9], on={"t": 3}) == [(0, 2), (0, 3), (0, 4)]


def test_duplicates_keep_their_multiplicity() -> None:
    assert ids([1, 1], [2, 2], on={"t": 1}) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_inner_is_the_best_of_all_pairs() -> None:
    assert ids([0, 10, 20], [2, 11, 25], on={"t": 5}, how="inner") == [(1, 1)]


def test_full_is_best_for_either() -> None:
    assert ids([0, 3], [4], on={"t": 5}, how="full") == [(0, 0), (1, 0)]
    assert ids([0, 3], [4], on={"t": 5}, how="right") == [(1, 0)]


def test_tenths_are_decided_by_the_difference() -> None:
    left, right = [0.2, 0.7], [0.3, 0.8]  # 0.3 - 0.2 < 0.1 < 0.8 - 0.7, as float64 sees it
    assert ids(left, right, on={"t": 0.1}, best=False, how="inner") == [(0, 0)]


def test_the_ends_of_64_bits_do_not_wrap() -> None:
    ends = [-(2**63), 2**63 - 1]
    assert ids(ends, ends, on={"t": 1}) == [(0, 0), (1, 1)]
    assert len(ids(ends, ends, on={"t": 2**64 - 2}, best=False, how="inner")) == 2
    assert len(ids(ends, ends, on={"t": 2**64 - 1}, best=False, how="inner")) == 4


def test_whole_numbers_do_not_pass_through_floats() -> None:
    assert ids([2**53], [2**53 + 1], on={"t": 0}) == []


def test_what_never_matches() -> None:
    odd = [math.nan, math.inf, -math.inf, None, 1.0, -0.0]
    assert ids(odd, [*odd[:5], 0.0], on={"t": None}, best=False, how="inner") == [
        (4, 4), (4, 5), (5, 4), (5, 5),
    ]  # fmt: skip


def test_three_attributes_are_judged_together() -> None:
    left = pa.table({"a": [0], "b": [0], "c": [0]})
    right = pa.table({"a": [1, 2, 1, 2], "b": [2, 1, 2, 2], "c": [1, 2, 2, 2]})
    question = Question.of(
        left.schema, right.schema, on={"a": 9, "b": 9, "c": 9}, how="left", best=True
    )
    found = answer(left, right, question)
    assert as_bag(found.select([3, 4, 5])) == Counter([(1, 2, 1), (2, 1, 2)])


# ── SQL ──────────────────────────────────────────────────────────────────────────────────────


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_any_name_is_one_identifier(name: str) -> None:
    with duckdb.connect() as database:
        assert database.sql(f"SELECT 7 AS {quoted(name)}").columns == [name]


def test_hostile_names_are_names() -> None:
    name = 'x"; DROP TABLE "left'
    left = pa.table({name: [1.0], "#": [1]})
    right = pa.table({name: [1.5], "#": [2]})
    case = Case(left, right, True, {"on": {name: 1.0}, "how": "left", "distances": True})
    assert as_bag(run_sql(case)) == case.expected == Counter([(1.0, 1, 1.5, 2, 0.5)])


def test_distances_of_one_column_against_two_have_both_names() -> None:
    left, right = pa.table({"t": [3]}), pa.table({"start": [1], "end": [7]})
    on = {("t", "start"): 5, ("t", "end"): 5}
    case = Case(left, right, True, {"on": on, "how": "left", "distances": True})
    assert case.question.schema.names[-2:] == ["t_start_distance", "t_end_distance"]
    assert as_bag(run_sql(case)) == case.expected == Counter([(3, 1, 7, 2, 4)])


@pytest.mark.parametrize("order", [minimize(max), subset])
def test_functions_have_no_sql(order: object) -> None:
    data_type = pa.list_(pa.int64()) if order is subset else pa.int64()
    schema = pa.schema([("t", data_type)])
    question = Question.of(
        schema, schema, on={"t": None}, how="left", best=True, orders={"t": order}
    )
    with pytest.raises(InputError, match=r"'t': the order .* has no SQL"):
        sql_of(question)


def test_names_that_duckdb_cannot_tell_apart_have_no_sql() -> None:
    schema = pa.schema([("t", pa.int64()), ("T", pa.int64())])
    question = Question.of(schema, schema, on={"t": 1}, how="left", best=True)
    with pytest.raises(InputError, match="are one name to DuckDB"):
        sql_of(question)


def test_the_database_reaches_no_file(tmp_path: Any) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    with database_in_memory() as database, pytest.raises(duckdb.Error):
        database.sql(f"SELECT * FROM '{file}'").fetchall()


def test_a_database_that_fails_is_no_verdict() -> None:
    with pytest.raises(StoreError, match="DuckDB has no answer"), database_in_memory() as database:
        database.execute("SET memory_limit = '1MB'")
        database.execute("SET max_temp_directory_size = '1KB'")
        database.sql("SELECT list(n) FROM range(10_000_000) AS given(n)").fetchall()


# ── bags ─────────────────────────────────────────────────────────────────────────────────────

MIXED = pa.table(
    {
        "int": pa.array([1, 2, None, 1], pa.int8()),
        "float": pa.array([0.0, math.nan, None, 0.0]),
        "half": pa.array([0.5, None, 1, 0.5], pa.float16()),
        "text": pa.array(["a", "", None, "a"]),
        "bytes": pa.array([b"a", b"", None, b"a"], pa.large_binary()),
        "flag": pa.array([True, False, None, True]),
        "time": pa.array([1, 2, None, 1], pa.int64()).cast(pa.timestamp("ns", "Asia/Tokyo")),
        "day": pa.array([1, 2, None, 1], pa.int32()).cast(pa.date32()),
        "span": pa.array([1, 2, None, 1], pa.int64()).cast(pa.duration("ns")),
        "sum": pa.array([Decimal("1.10"), Decimal("2"), None, Decimal("1.1")], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal(1), Decimal(2), None, Decimal(1)], pa.decimal256(60, 2)),
        "list": pa.array([[1.0, None], [], None, [1.0, None]]),
        "fixed": pa.array([[1, 2], [3, 4], None, [1, 2]], pa.list_(pa.int32(), 2)),
        "struct": pa.array([{"a": [0.0]}, {"a": None}, None, {"a": [-0.0]}]),
        "map": pa.array([[("k", 1)], [], None, [("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "word": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "none": pa.nulls(4),
    }
)


def test_rows_of_every_type_equal_themselves_in_any_order() -> None:
    assert not compare(MIXED.take([3, 2, 1, 0]), MIXED)
    assert not compare(MIXED.take([0, 0, 1, 2]), MIXED)


@pytest.mark.parametrize("name", [n for n in MIXED.column_names if n != "none"])
def test_a_single_other_value_shows(name: str) -> None:
    column = MIXED[name].take(pa.array([0, 1, 2, 1]))
    other = MIXED.set_column(MIXED.schema.get_field_index(name), name, column)
    difference = compare(other, MIXED)
    assert (difference.missing, difference.extra) == (1, 1), name
    assert "1 missing:" in str(difference) and "1 extra:" in str(difference)


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, -0.0, math.nan, None]), st.text(max_size=1))
)


@given(ROWS, ROWS)
def test_differences_are_counted_with_multiplicity(ours: list[Any], theirs: list[Any]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    tables = [
        pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], schema)
        for rows in (ours, theirs)
    ]
    found, wanted = map(as_bag, tables)
    difference = compare(*tables)
    assert difference.missing == (wanted - found).total()
    assert difference.extra == (found - wanted).total()


def test_wide_rows_of_many_values_do_not_collide() -> None:
    many = pa.table({name: list(range(5000)) for name in "abcdefgh"})
    moved = many.set_column(7, "h", pa.array([*range(1, 5000), 0]))
    assert compare(moved, many).missing == 5000


def test_other_columns_are_a_difference() -> None:
    table = pa.table({"a": [1]})
    assert "['b']" in str(compare(pa.table({"b": [1]}), table))
    assert "int32 and should be int64" in str(compare(pa.table({"a": pa.array([1], "i4")}), table))
    assert not compare(pa.table({"a": pa.array([1], pa.int32())}), table, cast=True)


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────

LEFT = pa.table({"t": [1, 5, 9], "a": ["x", "y", "z"]})
RIGHT = pa.table({"t": [2, 4], "b": [1.5, 2.5]})
ANSWER = pa.table({"t_left": [1, 5], "a": ["x", "y"], "t_right": [2, 4], "b": [1.5, 2.5]})


def test_a_right_answer() -> None:
    verdict = verify(LEFT, RIGHT, on={"t": 1}, result=ANSWER)
    assert verdict.is_equal and verdict.rows == 2
    assert str(verdict) == "equal: DuckDB finds the same rows, 2 in all"


def test_a_wrong_answer_is_shown() -> None:
    wrong = pa.concat_tables([ANSWER.slice(0, 1), ANSWER.slice(0, 1)])
    verdict = verify(LEFT, RIGHT, on={"t": 1}, result=wrong)
    assert (verdict.is_equal, verdict.missing, verdict.extra) == (False, 1, 1)
    assert "1 missing:" in str(verdict) and "y" in str(verdict)


def test_readers_are_read_once() -> None:
    sides = (table.to_reader() for table in (LEFT, RIGHT))
    assert verify(*sides, on={"t": 1}, result=ANSWER.to_reader()).is_equal


def test_bad_questions_are_told_before_data_is_read() -> None:
    with pytest.raises(InputError, match="on= is missing"):
        verify(LEFT, RIGHT)
    with pytest.raises(InputError, match="'u' is not there"):
        verify(LEFT, RIGHT, on={"u": 1}, result=ANSWER)
