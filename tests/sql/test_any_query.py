"""Queries of any shape around joins of ours: DuckDB's rows and names for the same text, or both
refuse it.

Tables share names of columns, select lists give names that columns have, clauses use either: most
of what is drawn is ambiguous, and DuckDB says so; we must say so too, as an error of the query.
Times are different within a table, so that an as-of join has one answer.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import proofs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.run import joins_of
from matwin.tools.sql.session import planned

CASES = settings(max_examples=campaign(80, 10_000), deadline=None)
COLUMNS = {"a": "tkv", "b": "tkw", "c": "yku", "d": "tzv"}
TIMES = "tyz"
JOINS = [
    "join", "left join", "right join", "full join", "semi join", "anti join", "cross join", ",",
    "asof join", "asof left join", "natural join", "join using", "left join using",
    "right join using",
]  # fmt: skip
NAMES = "tkvwuxn"
Tables = dict[str, pa.Table]
Visible = list[tuple[str, str]]
"""Tables by the names that the query gives them, and their columns."""


def tables(chance: Random) -> Tables:
    def values(column: str, size: int) -> list[Any]:
        if column in TIMES:
            return chance.sample(range(12), size)
        return [chance.choice([None, *range(8)]) for _ in range(size)]

    made = {}
    for name, columns in COLUMNS.items():
        size = chance.randrange(6)
        made[name] = pa.table({c: pa.array(values(c, size), pa.int64()) for c in columns})
    return made


def condition(chance: Random, one: tuple[str, str], other: tuple[str, str]) -> str:
    """A distance between two tables, perhaps with more."""
    (left, ours), (right, theirs) = one, other
    x = chance.choice([c for c in ours if c in TIMES] or ours)
    y = chance.choice([c for c in theirs if c in TIMES] or theirs)
    near = chance.choice([
        f"abs({left}.{x} - {right}.{y}) <= {chance.randrange(4)}",
        f"{right}.{y} between {left}.{x} - {chance.randrange(3)} and {left}.{x} + 2",
        f"{left}.{x} - {right}.{y} < 3 and {right}.{y} <= {left}.{x} + 1",
    ])  # fmt: skip
    more = chance.choice([
        "", "", f" and {left}.{ours[1]} = {right}.{theirs[1]}",
        f" and {left}.{ours[2]} <> {right}.{theirs[2]}", f" and {right}.{theirs[2]} > 1",
        f" and {left}.{ours[2]} > 1",
    ])  # fmt: skip
    return near + more


def from_clause(chance: Random) -> tuple[str, Visible]:
    text, visible = "", Visible()
    names = chance.sample(list(COLUMNS), chance.choice([2, 2, 2, 3, 3, 4]))
    for number, name in enumerate(names):
        columns = COLUMNS[name]
        alias = name if chance.random() < 0.7 else f"p{number}"
        table = name
        if chance.random() < 0.2:
            table = f"(select * from {name} where {columns[2]} is distinct from 3)"
        item = table if table == alias else f"{table} {alias}"
        if not number:
            text, visible = item, [(alias, columns)]
            continue
        join, other = chance.choice(JOINS), chance.choice(visible)
        text += joined(chance, join, item, other, (alias, columns))
        if join not in ("semi join", "anti join"):
            visible.append((alias, columns))
    return text, visible


def joined(
    chance: Random, join: str, item: str, other: tuple[str, str], one: tuple[str, str]
) -> str:
    if join == ",":
        return f", {item}"
    if join in ("cross join", "natural join"):
        return f" {join} {item}"
    if join.endswith("using"):
        return f" {join.removesuffix('using')} {item} using ({chance.choice(one[1][:2])})"
    if join.startswith("asof"):
        ours, theirs = (next(c for c in columns if c in TIMES) for _, columns in (other, one))
        return f" {join} {item} on {other[0]}.{ours} >= {one[0]}.{theirs}"
    return f" {join} {item} on {condition(chance, other, one)}"


def column(chance: Random, visible: Visible) -> str:
    alias, columns = chance.choice(visible)
    name = chance.choice(columns)
    return name if chance.random() < 0.4 else f"{alias}.{name}"


def expression(chance: Random, visible: Visible) -> str:
    x, y = column(chance, visible), column(chance, visible)
    return chance.choice([x, x, f"-{x}", f"{x} + {y}", f"coalesce({x}, 0)", f"({x})"])


def select_list(chance: Random, visible: Visible, *, groups: bool) -> str:
    first = visible[0][0]
    if not groups and chance.random() < 0.25:
        everything = ", ".join(f"{alias}.{c}" for alias, columns in visible for c in columns)
        return chance.choice([
            "*", f"{first}.*", "* exclude (k)", "columns('t|k|v')", first, "count(*)",
            f"row_number() over (order by {column(chance, visible)}, {everything}) as rn",
        ])  # fmt: skip
    found = []
    for _ in range(chance.randrange(1, 4)):
        one = expression(chance, visible)
        if groups and chance.random() < 0.6:
            one = f"{chance.choice(['sum', 'max', 'count'])}({column(chance, visible)})"
        found.append(one + (f" as {chance.choice(NAMES)}" if chance.random() < 0.5 else ""))
    return ", ".join(found)


def filter_of(chance: Random, visible: Visible) -> str:
    x, y = column(chance, visible), column(chance, visible)
    return chance.choice([
        f"{x} > 1", f"{x} = {y}", f"abs({x} - {y}) <= 2", f"({x} is null or {y} < 5)",
        f"{x} in (select k from b)", f"exists (select 1 from c c9 where c9.k = {x})",
        f"{chance.choice(NAMES)} < 6",
    ])  # fmt: skip


def query(chance: Random) -> str:
    text, visible = from_clause(chance)
    groups = chance.random() < 0.3
    distinct = "distinct " if chance.random() < 0.1 else ""
    found = f"select {distinct}{select_list(chance, visible, groups=groups)} from {text}"
    filters = [filter_of(chance, visible) for _ in range(chance.choice([0, 0, 1, 2]))]
    if filters:
        found += f" where {' and '.join(filters)}"
    if groups:
        having = f"max({column(chance, visible)})" if chance.random() < 0.3 else None
        having = having or chance.choice(NAMES)
        found += " group by all" + (f" having {having} > 1" if chance.random() < 0.7 else "")
    if chance.random() < 0.2:
        found += f" order by {chance.choice(NAMES)}"
    if chance.random() < 0.2:
        found = chance.choice([
            f"select * from ({found})", f"select count(*) from ({found}) z9",
            f"with q0 as ({found}) select * from q0 union all select * from q0",
        ])  # fmt: skip
    return found


def answer(table: pa.Table) -> tuple[list[str], Counter[str]]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return [name.lower() for name in table.column_names], Counter(map(repr, rows))


def expected(text: str, given_tables: Tables) -> Any:
    """DuckDB's answer, or why it refuses."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in given_tables.items():
            connection.register(name, table)
        try:
            return answer(connection.sql(f"select * from ({text})").to_arrow_table())
        except duckdb.Error as error:
            return str(error)


@pytest.mark.proof("SQL: any query gives DuckDB's rows and names")
@CASES
@given(st.randoms(use_true_random=False))
def test_any_query(chance: Random) -> None:
    proofs.tried()
    text, given_tables = query(chance), tables(chance)
    wanted = expected(text, given_tables)
    try:
        found = answer(matwin.sql(text, **given_tables).to_arrow())
    except matwin.InputError:
        assert isinstance(wanted, str), text
        return
    if isinstance(wanted, str):  # a name that DuckDB finds ambiguous may be clear to us
        assert "mbiguous" in wanted, f"{text}: {wanted}"
        return
    assert found == wanted, text


def test_enough_is_drawn_that_is_ours() -> None:
    chance = Random(7)
    answered = ours = 0
    for _ in range(60):
        text, given_tables = query(chance), tables(chance)
        if not isinstance(expected(text, given_tables), str):
            answered += 1
            ours += any(joins_of(planned(text, Catalog(given_tables))))
    assert answered > 15
    assert ours > answered / 3
