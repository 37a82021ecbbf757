"""Queries that a DuckDB user would write around our joins: the same text gives the same rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.run import joins_of
from matwin.tools.sql.session import planned

rng = np.random.default_rng(9)


def rows(payload: str) -> pa.Table:
    size = 60
    return pa.table({
        "t": rng.integers(0, 100, size), "K": rng.integers(0, 4, size),
        "ts": pa.array(rng.integers(0, 10**8, size), pa.timestamp("us")),
        payload: rng.integers(0, 20, size),
        "s": pa.array([{"x": int(n), "y": "ab"[n % 2]} for n in rng.integers(0, 9, size)]),
        "l": pa.array([[int(n), 1] for n in rng.integers(0, 9, size)]),
        "select": rng.integers(0, 3, size),
    })  # fmt: skip


TABLES = {"a": rows("v"), "b": rows("w"), "c": rows("u")}
ON = "a.k = b.k and abs(a.t - b.t) <= 3"
QUERIES = [
    f"SELECT A.T, B.T FROM A JOIN B ON {ON}",
    f"select a.v as x, x + 1 as y from a join b on {ON}",
    f"select a.k, count(*) from a join b on {ON} group by 1 order by 2 desc, 1 limit 2 offset 1",
    f"select a.k, list(b.w order by b.w) from a join b on {ON} group by all",
    f"select * from (select a.v, b.w from a join b on {ON}) q where q.v > q.w",
    f"select a.v from a join b on {ON} where a.v in (select w from b where k = 1)",
    f"select a.v from a join b on {ON} where exists (from c where c.k = a.k and c.u = b.w)",
    f"select a.v from a join b on {ON} where not exists (from c where c.t = b.t)",
    f"select a.v, c.u from a join b on {ON} join c on c.t = b.t",
    f"select a.v, c.u from a join b on {ON} left join c on c.t = b.t and c.u > 9",
    f"select count(*) from a join b on {ON} right join c on c.t = b.t where a.v > 5",
    f"select count(*), sum(a.v) from a join b on {ON} full join c on c.t = b.t",
    f"select a.v from a join b on {ON} union select u from c union all select w from b",
    f"(select a.v from a join b on {ON}) except select u from c",
    f"select a.s.x, b.s.y, a.s from a join b on {ON}",
    f"select a.l[1], list_transform(b.l, lambda z: z + 1) from a join b on {ON}",
    f"select a.\"select\", b.\"select\" + 1 as \"from\" from a join b on {ON}",
    f"select a.v, sum(b.w) over (partition by a.k order by a.t, b.t, a.v, b.w rows 1 preceding) "
    f"from a join b on {ON}",
    f"select a.k, a.v, b.w from a join b on {ON} qualify rank() over (partition by a.k order by "
    "a.v, b.w) = 1",
    f"select sum(a.v) over w from a join b on {ON} window w as (partition by a.k)",
    f"select case when a.v > b.w then 'more' else 'less' end as c, count(*) from a join b on {ON} "
    "group by c",
    f"select distinct on (a.k) a.k from a join b on {ON} order by a.k",
    f"select a.* exclude (s, l), b.* exclude (s, l) from a join b on {ON}",
    f"select a.* replace (a.v * 2 as v) from a join b on {ON}",
    f"select count(*) from a join b on {ON} where a.ts > timestamp '1970-01-01 00:00:30'",
    f"select max(a.ts - b.ts) from a join b on {ON}",
    "select count(*) from a join b on a.ts between b.ts - interval 5 seconds and b.ts + interval "
    "'5 seconds' and a.k <> b.k",
    "select a.t, b.t from a asof join b using (k, t)",
    "select * exclude (s, l, s_1, l_1) from (select * from a asof left join b on a.k = b.k and "
    "a.ts >= b.ts)",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select a.v, n "
    "from a join r on abs(a.t - r.n) <= 1",
    "select a.v, g.n from a join range(10) g(n) on abs(a.t - g.n) < 2",
    "select a.v, x.n from a join (values (1), (50)) x(n) on a.t - x.n between -5 and 5",
    "select a.v, q.m from a join (select k, max(t) as m from b group by k) q on abs(a.t - q.m) < 9 "
    "and q.k = a.k",
    "with q as (select * from a where v > 4), p as (select * from q where k > 0) select p.v, b.w "
    "from p join b on abs(p.t - b.t) <= 2",
    "select count(*) from a, b, c where abs(a.t - b.t) <= 1 and abs(b.t - c.t) <= 1",
    "select count(*) from a, c, b where a.k = b.k and abs(b.t - c.t) <= 1 and c.u > a.v",
    "select count(*) from a join b on abs(a.t - b.t) <= 1 join c on abs(b.t - c.t) < 2 and c.k=a.k",
    "select x.v, y.v from a x join a y on abs(x.t - y.t) <= 1 and x.k = y.k where x.v < y.v",
    "select (select count(*) from a x, b y where abs(x.t - y.t) < 2 and x.k = c.k) as n, u from c",
    "select c.u from c where c.t in (select x.t from a x, b y where abs(x.t - y.t) < 2)",
    "select a.v, z.n from a join b on abs(a.t - b.t) < 2, lateral (select a.v + b.w as n) z",
    "select unnest([a.v, b.w]) as n from a join b on abs(a.t - b.t) < 2",
    "select a.k % 2 as even, avg(b.w) from a join b on abs(a.t - b.t) < 2 group by even",
    "select a.v -- the left one\n , b.w /* the right one */ from a join b on abs(a.t - b.t) < 2",
    "select a.t from a semi join b on abs(a.t - b.t) < 1 and b.w > 3",
    "select a.t from a anti join b on a.k = b.k and abs(a.t - b.t) < 3",
    "from a join b on abs(a.t - b.t) < 2 select a.v, b.w where a.v > b.w",
    "select count(*) from a left join b on abs(a.t - b.t) < 2 and a.v > 3",
    "select count(*) from a join b on abs(a.t - b.t) < 2 or a.k = b.k",
    "select count(*) from a join b on abs(a.t - b.t) < a.v",
    "select count(*) from a cross join b where abs(a.t - b.t) < 2",
    "select count(*) from a positional join b",
    "select k, t, count(*) from a natural join b group by all",
    "select t, v from a where t > 50 order by v, t limit 3",
    "select 1 as one, 'two' as two, null as three",
    "select a.v + random() * 0 as v from a join b on abs(a.t - b.t) < 2 where random() >= 0",
    "select grouping(a.k), a.k, count(*) from a join b on abs(a.t - b.t) < 2 group by rollup (a.k)",
    "select count(distinct a.v), string_agg(distinct b.k::varchar, ',' order by b.k::varchar) "
    "from a join b on abs(a.t - b.t) < 2",
    "select a.v from a join b on abs(a.t - b.t) < 2 where a.v between 3 and 9 and not b.w = 4",
    "select coalesce(b.w, -1) from a left join b on a.k = b.k and a.t - b.t between 1 and 2",
    "select a.v, b.w from a full join b on a.k = b.k and a.t = b.t + 1",
    # Several columns by one expression, and whole rows.
    f"select columns(*) from a join b on {ON}",
    f"select columns('t.*') from a left join b on {ON}",
    f"select min(columns('^[tv]$')), count(*) from a join b on {ON}",
    f"select columns(lambda c: c in ('t', 'w')) + 1 from a left join b on {ON}",
    f"select columns(['t', 'v']) from a join b on {ON}",
    f"select columns('(t).*') as 'old_\\1' from a join b on {ON}",
    f"select columns(* exclude (s, l, v)) from a join b on {ON}",
    f"select columns(* rename (v as q)) from a join b on {ON}",
    f"select a.v, columns(b.*) from a join b on {ON} order by columns(a.*)",
    f"select coalesce(*columns(['w', 'v'])) as n, a.v from a left join b on {ON}",
    f"select a.v from a left join b on {ON} where columns(['v', 'w', 't']) > 3 and a.v < 15",
    f"select v from (select max(columns('v|w')) from a join b on {ON} group by a.k) where w > 9",
    f"select sum(columns('v')) over (order by columns('v')) from a join b on {ON}",
    f"select * like 't%' from a join b on {ON}",
    f"select * not like 't%' from a join b on {ON}",
    f"select a.* ilike 'T' from a join b on {ON}",
    f"select * exclude (v) similar to '.' from a join b on {ON}",
    f"select columns('u|v') from a join b on {ON} join c on c.t = a.t",
    "select columns('t|k') from a join b using (k) where abs(a.t - b.t) < 2",
    f"select a, b.w from a join b on {ON}",
    f"select b, b is null as none from a left join b on {ON}",
    f"select q.v, q.s.x from (select a as q from a join b on {ON}) where q.v > 3",
    f"select unnest(b) from a join b on {ON}",
    f"select count(b.*), count(a.*), count(*), count(b) from a left join b on {ON}",
    f"select max(a), a.k from a join b on {ON} group by a.k",
    f"select a.v from a join b on {ON} where a.s = (select max(a.s) from c a)",
    f"select a.v, (select count(*) from c a where a.t = b.t) from a join b on {ON}",
    f"select a.v, (select count(*) from c where c.t = b.t) from a join b on {ON}",
    "select columns(a.*) from a semi join b on abs(a.t - b.t) < 1",
]  # fmt: skip


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(repr(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_most_of_these_joins_are_ours() -> None:
    """Or nothing would be compared with DuckDB but DuckDB."""
    ours = [any(joins_of(planned(one, Catalog(TABLES)))) for one in QUERIES]
    assert sum(ours) > 0.8 * len(QUERIES)


@pytest.mark.parametrize("query", QUERIES)
def test_the_same_text_gives_the_same_rows_and_names(query: str) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        # DuckDB names columns twice where we can't, as soon as they are a table of Arrow's.
        expected = connection.sql(f"select * from (\n{query.rstrip(';')}\n)").to_arrow_table()
    found = matwin.sql(query, **TABLES).to_arrow()
    assert [name.lower() for name in found.schema.names] == [
        name.lower() for name in expected.schema.names
    ]
    assert bag(found) == bag(expected)
