"""Every query that the five papers print, as it stands there: its tree, its plan, its rows.

`papers.txt` holds the queries with what becomes of them; `pytest tests/sql --rewrite` writes it
anew, then read the diff.  Rows are compared with plain SQL as well, run by DuckDB.

What had to be changed, because a PDF does not hold it as text:

* ``\\mathbf{w}_1`` is ``w_1``, ``$t_s$`` is ``t_s``, ``$scf_1$`` is ``scf1``, as elsewhere in the
  same query, and ``packet\\_table`` is ``packet_table``: marks of typesetting.
* The W-join journal paper is there only as words without signs; its four forms are written
  down from these words (`gas`, `obj`, `similar`, four sensors, three stores).
* The path query of Figure 12 is a picture; its clause is written as the text around it says.

What stands in the queries otherwise is read as it is: names with hyphens and sharps, primes,
quotes of a book, a comma before `where`, a bracket too many.  Two queries name a table that is not
there (`Store3 B`, `S1.PacktID`); they are refused, with what was meant.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.dialect import parsed
from matwin.tools.sql.explain import explained
from matwin.tools.sql.session import planned

GOLDEN = Path(__file__).with_name("papers.txt")
random = np.random.default_rng(17)


def table(rows: int, **columns: Any) -> pa.Table:
    made = {
        name: random.integers(*span, rows) if isinstance(span, tuple) else span(rows)
        for name, span in columns.items()
    }
    return pa.table({name.replace("__", "-"): values for name, values in made.items()})


def halves(high: int) -> Any:
    return lambda rows: random.integers(0, high, rows) / 2


def stores() -> dict[str, pa.Table]:
    names = lambda rows: np.array(["tea", "jam", "nut"])[random.integers(0, 3, rows)]  # noqa: E731
    return {f"Store{n}": table(30, ts=(0, 60), ItemNum=(0, 4), ItemName=names) for n in (1, 2, 3)}


def streams(name: str, count: int, key: str) -> dict[str, pa.Table]:
    return {f"{name}{n}": table(25, ts=(0, 50), **{key: (0, 4)}) for n in range(1, count + 1)}


def packets() -> dict[str, Any]:
    made = table(40, pid=(0, 20), t_s=(0, 300), bytes=(1, 9), from__ip=(0, 3), to__ip=(0, 3))
    hosts = pa.table({"ip": [0, 1, 2], "host-id": ["a", "b", "c"]})
    return {"packet_table": made, "packet_stream": made, "Hosts": hosts}


def routers() -> dict[str, Any]:
    make = lambda: table(40, pid=(0, 30), ts=(0, 300), trt=(0, 400), bytes=(1, 9))  # noqa: E731
    return {"RT1": make(), "RT2": make(), "packet_stream": make()}


def points() -> dict[str, Any]:
    return {name: table(12, y1=halves(20), y2=halves(20)) for name in ("R", "S")}


def weather() -> dict[str, Any]:
    times = lambda rows: pa.array(random.integers(0, 3600, rows), pa.timestamp("s"))  # noqa: E731
    make = lambda: table(30, t=times, x=(0, 400), y=(0, 400), v=(0, 40))  # noqa: E731
    return {"Temp": make(), "Hum": make()}


def similar(ours: int, theirs: int) -> bool:
    return abs(ours - theirs) <= 1


def window(a: str, b: str, far: int) -> str:
    return f"abs({a}.ts - {b}.ts) <= {far}"


BMJ_SQL = """
select      *
from        R as r, S as s
where      not exists (
  select    *
  from      R as r', S as s'
  where     abs(r'.y1 - s'.y1) <= abs(r.y1 - s.y1) and
            abs(r'.y2 - s'.y2) <= abs(r.y2 - s.y2) and
            r.y1 <> r'.y1 and r.y2 <> r'.y2 and
            s.y1 <> s'.y1 and s.y2 <> s'.y2);
"""
BMJ_FORM = """
select      *
from        R {side} bestmatch join S
            on R.y1 order1 S.y1, R.y2 order2 S.y2
where      abs(R.y1 - S.y1) <= 3 and abs(R.y2 - S.y2) <= 3
"""


def bmj_plain(*sames: str) -> str:
    """The paper's subquery, with its constraints, and with a proper strict order."""
    near = "abs({0}.y1 - {1}.y1) <= 3 and abs({0}.y2 - {1}.y2) <= 3"
    best = [
        f"""not exists (
            select 1 from r p, s q where {near.format("p", "q")} and {same}
            and abs(p.y1 - q.y1) <= abs(r.y1 - s.y1) and abs(p.y2 - q.y2) <= abs(r.y2 - s.y2)
            and (abs(p.y1 - q.y1) < abs(r.y1 - s.y1) or abs(p.y2 - q.y2) < abs(r.y2 - s.y2)))"""
        for same in sames
    ]
    return f"""
        with r as (select *, row_number() over () as n from "R"),
             s as (select *, row_number() over () as m from "S")
        select r.y1, r.y2, s.y1, s.y2 from r, s
        where {near.format("r", "s")} and ({" or ".join(best)})
    """


def distance(a: float, b: float) -> float:
    return abs(a - b)


ORDERS = {"order1": distance, "order2": distance}
WEATHER = """
select * from Temp left outer bestmatch join Hum
  on Temp.t minAttrDist Hum.t, Temp.x minAttrDist Hum.x, Temp.y minAttrDist Hum.y
where abs(Temp.t - Hum.t) <= interval '10 minutes'
  and abs(Temp.x - Hum.x) <= 100 and abs(Temp.y - Hum.y) <= 100
"""

# name: (the query, its sources, plain SQL with the same rows)
QUERIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "bestmatch: the join by a subquery": (
        BMJ_SQL, points(),
        BMJ_SQL.replace("r'", "rr").replace("s'", "ss").replace(" R ", ' "R" '),
    ),
    "bestmatch: the proposed form": (
        BMJ_FORM.format(side=""), points() | ORDERS, bmj_plain("true"),
    ),
    "bestmatch: left outer": (
        BMJ_FORM.format(side="left outer"), points() | ORDERS, bmj_plain("p.n = r.n"),
    ),
    "bestmatch: right outer": (
        BMJ_FORM.format(side="right outer"), points() | ORDERS, bmj_plain("q.m = s.m"),
    ),
    "bestmatch: full outer": (
        BMJ_FORM.format(side="full outer"), points() | ORDERS,
        bmj_plain("p.n = r.n", "q.m = s.m"),
    ),
    "bestmatch: the weather service": (
        WEATHER, weather(), "",
    ),
    "W-join, form 1, the third store called C": (
        """SELECT A.ItemName
FROM Store1 A, Store2 B, Store3 C
WINDOW = w
WHERE A.ItemNum=B.ItemNum AND B.ItemNum=C.ItemNum""",
        stores() | {"w": 5},
        f"""select A.ItemName from Store1 A, Store2 B, Store3 C where A.ItemNum = B.ItemNum and
        B.ItemNum = C.ItemNum and {window('A', 'B', 5)} and {window('B', 'C', 5)} and
        {window('A', 'C', 5)}""",
    ),
    "W-join, form 2": (
        "SELECT A.ObjID FROM Camera1 A, Camera2 B, Camera3 C WINDOW (A,B)=w_1 AND WINDOW "
        "(B,C)=w_2 AND WINDOW (A,C)=w_3 WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID",
        streams("Camera", 3, "ObjID") | {"w_1": 3, "w_2": 4, "w_3": 5},
        f"""select A.ObjID from Camera1 A, Camera2 B, Camera3 C where A.ObjID = B.ObjID and
        B.ObjID = C.ObjID and {window('A', 'B', 3)} and {window('B', 'C', 4)} and
        {window('A', 'C', 5)}""",
    ),
    "W-join, form 3, its stream called A": (
        """SELECT A.PacktID
FROM Network1 A, Network2 B, Network3 C
WINDOW (A,B)=v1 AND WINDOW (B,C)=v2
WHERE A.PacktID=B.PacktID AND B.PacktID=C.PacktID""",
        streams("Network", 3, "PacktID") | {"v1": 4, "v2": 6},
        f"""select A.PacktID from Network1 A, Network2 B, Network3 C where A.PacktID = B.PacktID
        and B.PacktID = C.PacktID and {window('A', 'B', 4)} and {window('B', 'C', 6)}""",
    ),
    "W-join, a path in both directions (Figure 12)": (
        """SELECT A.ObjID FROM Sensor1 A, Sensor2 B, Sensor3 C, Sensor4 D
WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID AND C.ObjID=D.ObjID
DWINDOW (A,B)=w1 AND DWINDOW (B,C)=w2 AND DWINDOW (C,D)=w3
OR DWINDOW (D,C)=w3 AND DWINDOW (C,B)=w2 AND DWINDOW (B,A)=w1""",
        streams("Sensor", 4, "ObjID") | {"w1": 9, "w2": 12, "w3": 15},
        """select A.ObjID from Sensor1 A, Sensor2 B, Sensor3 C, Sensor4 D where A.ObjID = B.ObjID
        and B.ObjID = C.ObjID and C.ObjID = D.ObjID and (
        (B.ts - A.ts between 0 and 9 and C.ts - B.ts between 0 and 12 and D.ts - C.ts between 0
        and 15) or (A.ts - B.ts between 0 and 9 and B.ts - C.ts between 0 and 12 and C.ts - D.ts
        between 0 and 15))""",
    ),
    "W-join journal: binary": (
        "SELECT A.gas FROM Sensor1 A, Sensor2 B WHERE A.gas=B.gas WINDOW (A,B)=w",
        streams("Sensor", 2, "gas") | {"w": 3},
        f"select A.gas from Sensor1 A, Sensor2 B where A.gas = B.gas and {window('A', 'B', 3)}",
    ),
    "W-join journal: path, by a function of the user's": (
        """SELECT A.obj FROM Camera1 A, Camera2 B, Camera3 C
WHERE similar(A.obj, B.obj) AND similar(B.obj, C.obj) WINDOW (A,B)=w1 AND WINDOW (B,C)=w2""",
        streams("Camera", 3, "obj") | {"w1": 2, "w2": 3, "similar": similar},
        f"""select A.obj from Camera1 A, Camera2 B, Camera3 C where abs(A.obj - B.obj) <= 1 and
        abs(B.obj - C.obj) <= 1 and {window('A', 'B', 2)} and {window('B', 'C', 3)}""",
    ),
    "W-join journal: graph": (
        """SELECT A.gas FROM Sensor1 A, Sensor2 B, Sensor3 C, Sensor4 D
WHERE A.gas=B.gas AND B.gas=C.gas AND C.gas=D.gas
WINDOW (A,B)=w1 AND WINDOW (A,C)=w2 AND WINDOW (B,D)=w3 AND WINDOW (C,D)=w4""",
        streams("Sensor", 4, "gas") | {"w1": 3, "w2": 4, "w3": 5, "w4": 6},
        f"""select A.gas from Sensor1 A, Sensor2 B, Sensor3 C, Sensor4 D where A.gas = B.gas and
        B.gas = C.gas and C.gas = D.gas and {window('A', 'B', 3)} and {window('A', 'C', 4)} and
        {window('B', 'D', 5)} and {window('C', 'D', 6)}""",
    ),
    "W-join journal: uniform clique": (
        """SELECT A.ItemName FROM Store1 A, Store2 B, Store3 C
WHERE A.ItemNum=B.ItemNum AND B.ItemNum=C.ItemNum WINDOW = w""",
        stores() | {"w": 4},
        f"""select A.ItemName from Store1 A, Store2 B, Store3 C where A.ItemNum = B.ItemNum and
        B.ItemNum = C.ItemNum and {window('A', 'B', 4)} and {window('B', 'C', 4)} and
        {window('A', 'C', 4)}""",
    ),
    "epochs, QA: once, over a table": (
        """SELECT

h1.host-id AS from-host, h2.host-id AS to-host, SUM(T.bytes)

FROM packet_table T, Hosts h1, Hosts h2

WHERE h1.ip = T.from-ip AND h2.ip = T.to-ip

GROUP BY from-host, to-host;""",
        packets(),
        """select h1."host-id", h2."host-id", sum(bytes) from packet_table t, Hosts h1, Hosts h2
        where h1.ip = t."from-ip" and h2.ip = t."to-ip" group by all""",
    ),
    "semijoin paper, its join with a window on each stream": (
        "SELECT * FROM S1, S2 WHERE S1.dest = S2.dest WINDOW (S1, S2) = w",
        streams("S", 2, "dest") | {"w": 4},
        f"select * from S1, S2 where S1.dest = S2.dest and {window('S1', 'S2', 4)}",
    ),
}  # fmt: skip

CONTINUOUS: dict[str, tuple[str, dict[str, Any]]] = {
    "epochs, QB": (
        """SELECT

floor( S.t_s/60) AS minute, h1.host-id AS from-host, h2.host-id AS to-host, SUM(S.bytes)

FROM STREAM_get_packets(packet_stream, ‘CUT ON t_s BY 60 SECS’)) S, Hosts h1, Hosts h2

WHERE h1.ip = S.from-ip AND h2.ip = S.to-ip

GROUP BY minute, from-host, to-host;""",
        packets(),
    ),
    "epochs, Qc": (
        """SELECT floor(S1.ts / 60) AS minute, AVG(S2.trt - S1.trt)
FROM STREAM_get_packets (RT1, 'CUT ON ts BY 60 SECS',
    'BLOCK') S1, STREAM_get_packets (RT2, 'CUT ON ts BY 60
    SECS', 'BLOCK') S2,
WHERE S1.pid = S2.pid GROUP BY minute;""",
        routers(),
    ),
    "epochs, Qd": (
        """SELECT floor(ts/60) AS minute, AVG(S.bytes)
FROM STREAM_get_packets(packet_stream, 'CUT ON ts BY 60
    SECS') S,
GROUP BY minute;""",
        routers(),
    ),
    "epochs, duplicate calls": (
        """SELECT DISTINCT *
FROM STREAM_get_cdrs (CDRS, 'CUT ON t_s BY 5 SECS',
  'BLOCK', 1) scf1, STREAM_get_cdrs (CDRS, 'CUT ON t_s BY 5
SECS', 'BLOCK', 12)) scf2,
WHERE scf1.caller# = scf2.caller# AND scf1.callee# = scf2.callee#
AND ((scf1.ts > scf2.ts AND scf1.ts - scf2.ts < 0.2) OR (scf2.ts >
scf1.ts AND scf2.ts - scf1.ts < 0.2))""",
        {
            "CDRS": pa.table(
                {"caller#": [1, 1, 2], "callee#": [5, 5, 6], "ts": [0.0, 0.1, 3.0],
                 "t_s": [0.0, 0.1, 3.0]}
            )
        },
    ),
}  # fmt: skip


def catalog(sources: dict[str, Any]) -> Catalog:
    return Catalog(sources)


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return sorted(rows, key=repr)


def told(name: str, query: str, sources: dict[str, Any], *, runs: bool) -> str:
    """A query's section of the golden file."""
    names = catalog(sources)
    tree = parsed(query, names.columns).tree
    plan = explained(planned(query, names))
    shown = [f"# {name}", query.strip("\n"), "--- tree", repr(tree), "--- plan", plan]
    if runs:
        found = matwin.sql(query, **sources).to_arrow()
        rows = rows_of(found)
        shown += ["--- rows", ", ".join(found.schema.names), f"{len(rows)} rows"]
        shown += [" ".join(map(str, row)) for row in rows[:5]]
    return "\n".join(line.rstrip() for line in "\n".join(shown).splitlines()) + "\n"


def test_trees_plans_and_rows_are_as_they_were(request: pytest.FixtureRequest) -> None:
    sections = [told(name, *given[:2], runs=True) for name, given in QUERIES.items()]
    sections += [told(name, *given, runs=False) for name, given in CONTINUOUS.items()]
    now = "\n".join(sections)
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(now, encoding="utf-8")
    assert now == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name, given in QUERIES.items() if given[2]])
def test_rows_are_those_of_plain_sql(name: str) -> None:
    query, sources, plain = QUERIES[name]
    with duckdb.connect() as connection:
        for table_name, given in sources.items():
            if isinstance(given, pa.Table):
                connection.register(table_name, given)
        expected = Counter(rows_of(connection.sql(plain).to_arrow_table()))
    found = Counter(rows_of(matwin.sql(query, **sources).to_arrow()))
    assert found == expected
    assert found, "a query without rows proves nothing"


def test_the_weather_service_gets_what_the_join_gives() -> None:
    sources = weather()
    found = matwin.sql(WEATHER, **sources).to_arrow()
    on = {"t": "10min", "x": 100, "y": 100}
    direct = matwin.bestmatch_join(sources["Temp"], sources["Hum"], on=on, how="left").to_arrow()
    assert found.num_rows
    assert rows_of(found) == rows_of(direct)


@pytest.mark.parametrize(
    ("query", "sources", "message"),
    [
        (
            "SELECT A.ItemName\nFROM Store1 A, Store2 B, Store3 B\nWINDOW = w\n"
            "WHERE A.ItemNum=B.ItemNum AND B.ItemNum=C.ItemNum",
            stores() | {"w": 5},
            "line 2, column 26: B is the name of two tables; give one of them another: the query "
            "also speaks of C, did you mean Store3 C?",
        ),
        (
            "SELECT S1.PacktID\nFROM Network1 A, Network2 B, Network3 C\n"
            "WINDOW (A,B)=v1 AND WINDOW (B,C)=v2\n"
            "WHERE A.PacktID=B.PacktID AND B.PacktID=C.PacktID",
            streams("Network", 3, "PacktID") | {"v1": 1, "v2": 2},
            "line 1, column 8: there is no table 'S1' in this from clause; there are A, B, C",
        ),
    ],
)
def test_slips_of_the_papers_are_refused_with_what_was_meant(
    query: str, sources: dict[str, Any], message: str
) -> None:
    with pytest.raises(matwin.InputError) as caught:
        matwin.sql(query, **sources)
    assert str(caught.value).startswith(message)
