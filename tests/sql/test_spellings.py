"""Queries as people write them: each is another spelling of one that is plain."""

from __future__ import annotations

import pyarrow as pa
import pytest

import matwin

TEMP = pa.table({"t_s": [1, 5, 9], "x": [1.0, 2.0, 3.0], "k": [1, 1, 2]})
HUM = pa.table({"t_s": [2, 5, 8], "x": [1.5, 2.0, 2.5], "k": [1, 1, 1]})
WORDS = pa.table({"map": [1, 2], "insert": [3, 4], "install": [5, 6], "cube": [7, 7],
                  "rollup": [8, 8], "values": [9, 9]})  # fmt: skip
THREE = "select a.t_s, b.t_s as u, c.t_s as v from temp a, hum b, temp c "
WINDOWS = THREE + "where a.k = b.k and b.k = c.k window (a, b) = 3 and window (b, c) = 4"
BEST = "select temp.t_s, hum.t_s as u from temp bestmatch join hum on temp.t_s mindist hum.t_s"
SPELLINGS = [
    (THREE + "where a.k = b.k and b.k = c.k and window (a, b) = 3 and window (b, c) = 4", WINDOWS),
    (THREE + "where a.k = b.k and window (a, b) = 3 and b.k = c.k AND WINDOW (b, c) = 4", WINDOWS),
    (THREE + "where (window (a, b) = 3 and window (b, c) = 4) and a.k = b.k and b.k = c.k",
     WINDOWS),
    (THREE + "where a.k = b.k and b.k = c.k and window (a, b) = 3 window (b, c) = 4", WINDOWS),
    (THREE + "where a.k = b.k and b.k = c.k window (a, b) = 3, window (b, c) = 4", WINDOWS),
    (THREE + "where window (a, b) = 3 and window (b, c) = 4",
     THREE + "window (a, b) = 3 and window (b, c) = 4"),
    # The dollars of LaTeX, around names and lengths, also where a name comes twice.
    (THREE + "where a.k = b.k and b.k = c.k window (a, b) = $w_1$ and window (b, c) = $w_2$ and "
     "window (a, c) = $w_1$", WINDOWS + " and window (a, c) = 3"),
    ("select $s.t_s$, floor($s.t_s/2$) as h from temp $s$", "select t_s, floor(t_s/2) as h "
     "from temp"),
    ("select $scf_1.x$ from (select * from temp) $scf_1$", "select x from temp"),
    ("select count(*) as n from stream(temp, 'CUT ON $t_s$ BY 3') s_1",
     "select count(*) as n from stream(temp, 'CUT ON t_s BY 3') s_1"),
    ("select $$‘a;$b’$$ as a, $my_tag$ ‘c’ $d$ $my_tag$ as b",
     "select '‘a;$b’' as a, ' ‘c’ $d$ ' as b"),
    # Bestmatch joins.
    (BEST.replace("bestmatch", "inner bestmatch"), BEST),
    (BEST.replace("temp.t_s mindist hum.t_s", "(temp.t_s mindist hum.t_s)"), BEST),
    ("select temp.t_s, hum.t_s as u from temp bestmatch join hum on t_s limit 5", BEST),
    ("select temp.t_s, hum.t_s as u from temp bestmatch join hum on t_s offset 0", BEST),
    # Queries that are no plain select.
    ("(select x from temp)", "select x from temp"),
    ("((select 1 as a) union (select 2)) order by 1", "select unnest([1, 2]) as a"),
    ("table temp", "select * from temp"),
    ("with a as (table temp) select * from a union all table temp",
     "select * from temp union all select * from temp"),
    ("values (1, 'a'), (2, 'b')", "select * from (values (1, 'a'), (2, 'b')) v"),
    (f"({BEST})", BEST),
    ("\ufeffselect 1 as a", "select 1 as a"),
    # Names that begin something else elsewhere.
    ("select map, insert, install, cube, rollup, values from words where map = 1 group by map, "
     "insert, install, cube, rollup, values",
     'select "map", "insert", "install", "cube", "rollup", "values" from words limit 1'),
    ("select map(['a'], [1]) as a, map {'b': 2} as b", "select map(['a'], [1]) as a, "
     "map(['b'], [2]) as b"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "plain"), SPELLINGS, ids=[one[0][-60:] for one in SPELLINGS])
def test_another_spelling_means_the_same(query: str, plain: str) -> None:
    sources = {"temp": TEMP, "hum": HUM, "words": WORDS, "w_1": 3, "w_2": 4}
    found, wanted = (matwin.sql(text, **sources).to_arrow() for text in (query, plain))
    assert found.schema.names == wanted.schema.names
    assert found.to_pylist() == wanted.to_pylist()
    assert found.num_rows, "a query without rows proves nothing"


def test_windows_among_conditions_are_explained_as_windows() -> None:
    query = THREE + "where a.k = b.k and window (a, b) = 3 and window (b, c) = 4"
    said = matwin.sql(query, temp=TEMP, hum=HUM).explain()
    assert "window a, b ±3\n" in said
    assert "window (" not in said.split("conditions\n")[1]
