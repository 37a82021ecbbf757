"""From clauses of several joins, and the names around them: DuckDB's rows for the same text.

What stands after a join of ours decides what it may take: a right or full join brings rows without
a partner, which a condition of the where clause has to remove, USING makes one column of two, semi
joins hide a table.  The queries are drawn, because no list of them would be long enough.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import proofs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin
from matwin.tools.sql import engine
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.run import joins_of, running
from matwin.tools.sql.session import planned

CASES = settings(max_examples=campaign(60, 10_000), deadline=None)

A = {"t": [1, 2, 9, None], "k": [1, 1, 2, 2], "v": [5, 6, 7, 8], "l": [[1, 2], [3], [4], []]}
B = {"t": [1, 3, 30], "k": [1, 1, 2], "w": [9, 6, 7], "n": ["p", "q", "r"]}
C = {"t": [1, 3, 50], "k": [1, 2, 3], "u": [9, 6, 7], "s": [{"x": 1}, {"x": 2}, {"x": 3}]}
TABLES = {"a": pa.table(A), "b": pa.table(B), "c": pa.table(C)}
R = "abs(a.t - b.t) <= 1"
TIMES = (
    "(select timestamp '2020-01-01' + to_minutes(80 * i::int) as ts, "
    "date '2020-01-01' + i::int as d, i from range(4) r(i))"
)

QUERIES = [
    # Outer joins after ours, and commas before them.
    f"select a.v, b.w, c.u from a join b on a.k = b.k right join c on c.t = b.t where {R}",
    f"select a.v, b.w, c.u from a join b on {R} and a.v <> b.w right join c on abs(b.t - c.t) <= 0",
    f"select a.v, b.w, c.u from a join b on {R} and a.v <> b.w full join c on abs(b.t - c.t) <= 1",
    "select a.v, b.w, c.u from a, b right join c on abs(b.t - c.t) <= 0",
    f"select a.v, b.w, c.u from a, b full join c on c.t = b.t where {R}",
    "select a.v, c.u from a join b join c on abs(b.t - c.t) <= 2 on abs(a.t - b.t) <= 1",
    "select a.v from a left join b join c on abs(b.t - c.t) <= 2 on abs(a.t - b.t) <= 1",
    # Merged columns.
    "select k, u from (select k, t from a) a right join (select k, u from c) c using (k) "
    "left join (select t from b) b on abs(b.t - u) <= 1",
    "select * from (select k, t from a) a full join (select k, u from c) c using (k) "
    "left join (select t as tb from b) b on abs(tb - k) <= 1",
    "select * from (select k, t from a) a natural join (select k, u from c) c join "
    "(select t from b) b on abs(a.t - b.t) <= 1",
    f"select * from a join c using (k) join b on {R}",
    f"select count(k), sum(k) from a join c using (k) join b on {R}",
    "select k, u from (select k, t from a) a join (select t from b) b on abs(a.t - b.t) <= 1 "
    "join (select k, u from c) c using (k)",
    "select * from (select k, t from a) a join (select t as y from b) b on abs(a.t - b.y) <= 1 "
    "right join (select k, u from c) c using (k)",
    "select * from (select k, t from a) a join (select t as y from b) b on abs(a.t - b.y) <= 1 "
    "natural left join (select k, u from c) c",
    f"select * exclude (l) from a join b on {R} join c on c.t = a.t",
    "select a.v, b.y, c.u, k from (select k, t, v from a) a join (select t as y from b) b on "
    "abs(a.t - b.y) <= 1 asof join (select k, t::float as t, u from c) c using (k, t)",
    "select v, u from (select k, t, v from a) a join (select t as y from b) b on "
    "abs(a.t - b.y) <= 1 semi join (select k from c) c using (k), (select u from c)",
    "select count(*) from c right join a on a.t between c.t - 3 and c.t + 3 "
    "right join (select k, t as y from b) b on b.k = a.k right join (select k as k2, t from c) d "
    "on abs(d.t - b.y) <= 1",
    "select u, w, -k as x from (select v as z from a) p join a on abs(p.z - a.t) <= 4 "
    "right join c r using (k) join b on abs(p.z - b.w) <= 3",
    f"select a.* exclude (l) from a join b on {R} order by t, k",
    "select columns('t|k|v') from (select t, v from a) a right join (select t, k from b) b "
    "using (t) left join (select t as y from c) c on abs(a.t - c.y) <= 0",
    "select columns(a.*) from (select t, v from a) a right join (select t, k from b) b "
    "using (t) left join (select t as y from c) c on abs(a.t - c.y) <= 0",
    # A join sees what stands behind the last comma before it.
    "select count(d.k), sum(v) from c, (select t, k from b) b semi join c e on abs(b.t - e.t) < 3 "
    "natural join (select k, v from a) d",
    "select a.k as n from c, a left join b using (k) where abs(c.t - a.t) <= 1",
    # Semi and anti joins hide their right side.
    f"select * from a semi join b on {R}",
    f"select t from a semi join b on {R}",
    f"select * exclude (l) from a anti join b on {R} order by 1",
    "select a.v from a anti join (select * from b where w > 1000) b on abs(a.t - b.t) <= 1",
    f"select a.v, c.u from a semi join c on a.k = c.k join b on {R}, c",
    # Names of the select list.
    f"select -a.v as v, rank() over (order by v) as r from a join b on {R}",
    f"select v as w, w as v from a join b on {R} order by v + 0 limit 1",
    f"select -a.v as v from a join b on {R} order by (v)",
    f"select -a.v as v, count(*) as n from a join b on {R} group by all having v < 0",
    f"select a.k, sum(w)::int as w from a join b on {R} group by a.k having w > 10",
    f"select a.k, sum(w)::int as w from a join b on {R} group by a.k order by sum(w)",
    f"select a.k, list(w order by w) as w from a join b on {R} group by a.k",
    f"select a.v as b from a join b on {R} order by b",
    f"select [v + 1 for v in a.l] as z, [t for t in a.l if t > 1] from a join b on {R}",
    f"select #3 from a join b on {R}",
    # Inner queries.
    "select a.v from (select t, v, s from a, (select s from c limit 1)) a join (select t from b) b "
    "on abs(a.t - b.t) <= 1 where exists (select 1 from c where s.x = 3)",
    "select -a.v as v, (select max(u) from (select * from c where k = a.k) where u < v + 5) as z "
    "from (select t, k, v from a) a join (select t from b) b on abs(a.t - b.t) <= 1",
    f"select (select max(u) as a from c where c.k = a.k) as z from a join b on {R}",
    f"select a.v, (select count(*) from c join b y on abs(y.t - c.t) <= 1 and c.k = a.k) as z "
    f"from a join b on {R}",
    f"select v from (select (a.v) from a join b on {R})",
    f"select \"max(a.v)\" from (select max(a.v) from a join b on {R})",
    f"select max(a.v) from a join b on {R} union all by name select 1 as \"max(a.v)\"",
    f"with q as (select a.t from a join b on {R}) select x.t from q x join q y on "
    "abs(x.t - y.t) <= 1",
    "with q as materialized (select random() as r, t from a) select count(*) as n from q x "
    "join q y on abs(x.t - y.t) <= 0 and x.r = y.r",
    "select a.v, b.w from a left join (select * from b where w > 1000) b on abs(a.t - b.t) <= 1",
    f"select a.v from a join c on a.t = c.t join b on {R}",
    "select l.* from a, lateral (select a.*) l",
    f"select q.* from a join b on {R}, lateral (select b.*) q",
    f"select q.* from a join b on {R}, lateral (select c.* replace (c.u + a.t as u) from c "
    "join b d on abs(c.t - d.t) <= 1 where c.k = a.k) q",
    "with q as (select t from a) select * from (with q as (select t + 1 as t from b) "
    "select x.t, c.u from q x join c on abs(x.t - c.t) <= 1) s",
    "select columns('^[tk]$') from (select t, k from a) a join (select t as y from b) b on "
    "abs(a.t - y) <= 2 natural join (select k from c) c",
    "select columns('^[tk]$') from (select t, k from a) a natural join (select k from c) c join "
    "(select t as y from b) b on abs(a.t - y) <= 2",
    # Tables without a name.
    "select t from (select t from a) tablesample 100%",
    "select a.t from ((a join b on abs(a.t - b.t) <= 2))",
    f"select (select max(z) from (select a.t as z)) from a join b on {R}",
    "select v, count(*) from (select t, v from a) join (select t as tb from b) "
    "on abs(t - tb) <= 1 group by all",
    "select * from (select t, v from a) join b on abs(v - w) <= 1",
    "select col0 from (values (1), (2)) join a on abs(col0 - a.t) <= 0",
    "select * exclude (l) from range(5) join a on abs(range - a.t) <= 0",
    "select g.range from range(5) g join a on abs(g.range - a.t) <= 0",
    # Lengths that no column has exactly.
    f"select x.i, y.i from {TIMES} x join {TIMES} y on x.ts between y.ts - interval 1.5 hours and "
    "y.ts + interval 1.5 hours",
    f"select x.i, y.i from {TIMES} x join {TIMES} y on x.d between y.d - interval 36 hours and y.d",
    f"select x.i, y.i from {TIMES} x join {TIMES} y on abs(x.d - y.d) < 1.5",
    "select a.v, b.w from a left join b on b.t > a.t and b.t < a.t + 1",
    "select a.v from a join b on abs(a.t - b.t) <= 1.5",
    "select a.v, x.big from a join (select 18446744073709551615::ubigint as big) x "
    "on abs(a.t - x.big) <= 5",
    # Methods, and names that look like those of joined columns.
    f"select a.v, b.n.upper() as z from a join b on {R} where b.n.lower().contains('p')",
    'select a."b.t", "a.b".t as z from (select t, v as "b.t" from a) a join (select t from b) '
    '"a.b" on abs(a.t - "a.b".t) <= 1',
]  # fmt: skip


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(repr(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True))


def same(query: str, **tables: pa.Table) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(f"select * from (\n{query}\n)").to_arrow_table()
    found = matwin.sql(query, **tables).to_arrow()
    proofs.tried()
    assert [one.lower() for one in found.column_names] == [
        one.lower() for one in expected.column_names
    ]
    assert bag(found) == bag(expected), query


def test_most_of_these_joins_are_ours() -> None:
    """Or nothing would be compared with DuckDB but DuckDB."""
    ours = [any(joins_of(planned(one, Catalog(TABLES)))) for one in QUERIES]
    assert sum(ours) > 0.6 * len(QUERIES)


@pytest.mark.parametrize("query", QUERIES)
def test_the_same_text_gives_the_same_rows_and_names(query: str) -> None:
    same(query, **TABLES)


# ── drawn ────────────────────────────────────────────────────────────────────────────────────────

JOINS = ["join", "left join", "right join", "full join", "semi join", "anti join", "asof join", ","]


@st.composite
def tables(draw: st.DrawFn) -> dict[str, pa.Table]:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    made = {}
    for name in "abcd":
        size = draw(st.integers(0, 7))
        # Different times, so that an as-of join has one answer.
        times = rng.permutation(12)[:size].astype(object)
        times[rng.random(size) < 0.1] = None
        made[name] = pa.table({
            "t": pa.array(times.tolist(), pa.int64()),
            "k": pa.array([None if one == 3 else int(one) for one in rng.integers(0, 4, size)],
                          pa.int64()),
            f"{name}v": pa.array(rng.integers(0, 9, size), pa.int64()),
        })  # fmt: skip
    return made


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A from clause of three or four tables with any joins between them."""
    names = list("abcd")[: draw(st.integers(2, 4))]
    text, hidden, group = names[0], set[str](), [names[0]]
    for name in names[1:]:
        join = draw(st.sampled_from(JOINS))
        seen = [one for one in group if one not in hidden]
        other = draw(st.sampled_from(seen))
        near = f"abs({other}.t - {name}.t) <= {draw(st.integers(0, 3))}"
        more = draw(st.sampled_from(["", f" and {other}.k = {name}.k",
                                     f" and {other}.{other}v < {name}.{name}v",
                                     f" and {name}.{name}v > 2"]))  # fmt: skip
        if join == ",":
            text, group = f"{text}, {name}", [name]
            continue
        if join == "asof join":
            text = f"{text} asof join {name} on {other}.t >= {name}.t"
        else:
            text = f"{text} {join} {name} on {near}{more}"
        group.append(name)
        if join in ("semi join", "anti join"):
            hidden.add(name)
    shown = [one for one in names if one not in hidden]
    conditions = []
    for first, second in pairwise(shown):
        condition = draw(st.sampled_from(
            ["", f"abs({first}.t - {second}.t) < 4", f"{first}.k = {second}.k",
             f"{second}.{second}v > 3", f"{first}.t is not null"]
        ))  # fmt: skip
        conditions += [condition] if condition else []
    where = f" where {' and '.join(conditions)}" if conditions else ""
    if draw(st.booleans()):
        return f"select * from {text}{where}"
    values = ", ".join(f"{one}.{one}v" for one in shown)
    return f"select {values}, {shown[0]}.t as x from {text}{where}"


@pytest.mark.proof("SQL: from clauses of several joins equal DuckDB's own")
@CASES
@given(queries(), tables())
def test_any_from_clause(query: str, given_tables: dict[str, pa.Table]) -> None:
    same(query, **given_tables)


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────


def test_a_bestmatch_join_is_filtered_again_after_a_right_join() -> None:
    found = matwin.sql(
        f"select a.v from a left bestmatch join b on a.t mindist b.t right join c on c.t = b.t "
        f"where {R}",
        **TABLES,
    )
    assert sorted(found.to_arrow()["v"].to_pylist()) == [5, 6, 6]


@pytest.mark.parametrize(
    "query",
    [
        f"select * from c, a full bestmatch join b on a.t mindist b.t where {R}",
        f"select k from a full join c using (k) left bestmatch join b on a.t mindist b.t where {R}",
        "with q as (select random() as r, t from a) select x.r from q x left bestmatch join q y "
        "on x.t mindist y.t where abs(x.t - y.t) < 2",
        f"select a.v from a join b on {R} and a.v <> b.w bestmatch join c on b.t mindist c.t",
    ],
)
def test_what_could_not_be_right_is_refused(query: str) -> None:
    with pytest.raises(matwin.InputError, match="line 1, column"):
        matwin.sql(query, **TABLES)


def test_a_mistake_in_duckdb_does_not_break_later_queries() -> None:
    lengths = pa.table({"d": pa.array([1, 2, 3], pa.duration("us")), "x": [1, 2, 3]})
    with suppress(matwin.InputError):  # DuckDB 2.0 has such a mistake; a later one may not
        matwin.sql("select a.x from a asof join b on a.d >= b.d", a=lengths, b=lengths).to_arrow()
    assert matwin.sql("select 1 as one").to_arrow().to_pydict() == {"one": [1]}
    before = engine._shared(os.getpid())
    engine.forget_if_broken(duckdb.InternalException("INTERNAL Error: broken"))
    assert engine._shared(os.getpid()) is not before
    assert matwin.sql("select 1 as one").to_arrow().to_pydict() == {"one": [1]}


def test_a_limit_of_rows_is_one_of_the_result() -> None:
    pairs = f"select a.v, b.w from a join b on {R}"
    for query in (pairs, f"{pairs} order by 1, 2", "select v from a"):
        with pytest.raises(matwin.InputError, match="more than max_output_rows=2 rows"):
            matwin.sql(query, {"max_output_rows": 2}, **TABLES).to_arrow()
    found = matwin.sql(f"{pairs} order by 1, 2 limit 2", {"max_output_rows": 2}, **TABLES)
    assert found.to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("query", "said", "below"),
    [
        ("select nofunc(a.t) from a", "nofunc does not exist", "nofunc"),
        ("select t::nope from a", "nope does not exist", "nope"),
        ("select sum(n) from b", "argument types 'sum", "sum"),
        (f"select a.v from a join b on {R} where nofunc(a.k)", "nofunc does not exist", "nofunc"),
        ("select 1 from a left bestmatch join b on a.s.x mindist b.t", "a has no column", "a.s"),
        ("select 1 from c left bestmatch join b on c.s.x mindist b.t", "a whole column", "c.s.x"),
        ("select 1 from a join b on abs(a.t.u - b.t) <= 2", "extract field 'u'", "a.t.u"),
        ("select 'abc'::int from a", "Could not convert string 'abc'", "'abc'"),
        ("select 1 from a join b on abs(a.t - b.t) <= interval 5 minutes",
         "a.t is int64, a number without a unit of time", "abs(a.t - b.t) <= interval 5 minutes"),
        ("select 1 from a left bestmatch join b on t where abs(a.t - b.t) <= -1",
         "nothing is so near", "abs(a.t - b.t) <= -1"),
        ("select * from (pivot a on k using sum(v))", "name the values", "k"),
    ],
)  # fmt: skip
def test_what_duckdb_does_not_take_is_pointed_at(query: str, said: str, below: str) -> None:
    with pytest.raises(matwin.InputError) as caught:
        matwin.sql(query, **TABLES).to_arrow()
    message, line, carets = str(caught.value).splitlines()
    assert said in message
    assert line[carets.index("^") :].startswith(below)
    assert "__matwin" not in message


def test_a_value_of_the_data_is_not_looked_for_in_the_query() -> None:
    with pytest.raises(matwin.InputError, match=r"^DuckDB: Conversion Error"):
        matwin.sql("select n || 'p', n::int as i from b order by i", **TABLES).to_arrow()


def test_lengths_of_time_have_an_absolute_value_everywhere() -> None:
    times = pa.table({"ts": pa.array([0, 4_000_000, 9_000_000], pa.timestamp("us")), "i": range(3)})
    found = matwin.sql(
        "select a.i, b.i as j, abs(a.ts - b.ts) as far from a left bestmatch join b "
        "on a.i mincost b.i where a.i - b.i between -1 and 1 and abs(b.ts - a.ts) < interval 1 day "
        "and (abs(a.ts - b.ts) > interval 3 seconds or a.i = 0)",
        a=times,
        b=times,
    ).to_arrow()
    pairs = zip(found["i"].to_pylist(), found["j"].to_pylist(), strict=True)
    assert sorted(pairs) == [(0, 0), (1, 0), (2, 1)]


def live(rows: int, step: int, is_live: bool = True) -> Any:
    batches = (
        pa.record_batch({"t": np.arange(at, at + step), "w": np.ones(step), "n": ["x"] * step})
        for at in range(0, rows, step)
    )
    return matwin.stream(batches, on="t", live=is_live)


@pytest.mark.parametrize("total", ["sum(b.w)", "fsum(b.w)", "b.w.sum()", "count_star()"])
def test_aggregates_over_streams_see_all_rows(total: str) -> None:
    """Of streams that are said to end; those that may not are refused, whatever the aggregate."""
    text = (
        f"select {total} as x from a bestmatch join b on a.t mindist b.t where abs(a.t - b.t) < 1"
    )
    ends = {name: live(60_000, 2_000, False) for name in "ab"}
    assert matwin.sql(text, {"memory": "32MiB"}, **ends).to_arrow()["x"].to_pylist() == [60_000]
    with pytest.raises(matwin.InputError, match="which may never end, and an aggregate waits"):
        matwin.sql(text, a=live(100, 50), b=live(100, 50))


def test_errors_over_live_streams_are_ours() -> None:
    text = "select a.n::int from a bestmatch join b on a.t mindist b.t where abs(a.t - b.t) < 1"
    with pytest.raises(matwin.InputError, match=r"^DuckDB: Conversion Error") as caught:
        matwin.sql(text, a=live(100, 50), b=live(100, 50)).to_arrow()
    assert "__matwin" not in str(caught.value)


def test_a_failing_filter_is_named() -> None:
    with pytest.raises(matwin.InputError, match=r"at b\.n::int > 3: Conversion Error"):
        matwin.sql(f"select a.v from a join b on {R} where b.n::int > 3", **TABLES).to_arrow()


def test_files_are_called_by_their_names(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        pq.write_table(TABLES[name], f"{name}.parquet")
    text = "select a.v, b.w from 'a.parquet' join 'b.parquet' on abs(a.t - b.t) <= 1"
    assert matwin.sql(text).to_arrow().num_rows == 3


def test_joins_that_run_twice_share_the_budget() -> None:
    text = (
        f"with q as (select a.t from a join b on {R}) "
        "select x.t from q x join q y on abs(x.t - y.t) <= 1"
    )
    plan = planned(text, Catalog(TABLES))
    assert running(plan, plan.sql) >= 3
