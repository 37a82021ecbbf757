"""Every form against the plain SQL it stands for, run by DuckDB alone on the same rows.

    bestmatch     a `not exists` over the same candidates, as in the paper, then the other filters
    range, as-of  the same text
    windows       conditions on each pair of times

Tables are small and full of ties, nulls and equal keys, so that every rule has something to decide.
The forms of a distance are drawn as well: reversed, strict, one-sided, between, shifted.
"""

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import proofs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin

CASES = settings(max_examples=campaign(60, 10_000), deadline=None)

KINDS = {
    "i": pa.int64(), "f": pa.float64(), "ts": pa.timestamp("us"), "d": pa.date32(),
    "m": pa.decimal128(9, 2),
}  # fmt: skip
COLUMNS = {"rid": pa.int64(), "k": pa.int64(), "s": pa.string(), "v": pa.int64(), **KINDS}


def value(kind: str, number: int | None) -> Any:
    """A value of a column: small numbers in every type."""
    if number is None:
        return None
    if kind == "f":
        return number / 2
    if kind == "ts":
        return number * 500_000
    if kind == "m":
        return Decimal(number) / 4
    return f"s{number % 3}" if kind == "s" else number


@st.composite
def tables(draw: st.DrawFn, name: str) -> pa.Table:
    size = draw(st.integers(0, 9))
    numbers = st.one_of(st.none(), *[st.integers(-4, 8)] * 6)
    columns: dict[str, Any] = {"rid": list(range(size))}
    for kind in KINDS:
        columns[kind] = [value(kind, draw(numbers)) for _ in range(size)]
    columns["k"] = [draw(st.one_of(st.none(), *[st.integers(0, 2)] * 5)) for _ in range(size)]
    columns["s"] = [value("s", draw(numbers)) for _ in range(size)]
    columns["v"] = [draw(st.integers(0, 9)) for _ in range(size)]
    arrays = {kind: pa.array(columns[kind], COLUMNS[kind]) for kind in COLUMNS}
    return pa.table(arrays)


def amount(kind: str, number: int) -> str:
    """A length as it is written for a column of this kind."""
    if kind == "ts":
        return f"interval '{number * 500} milliseconds'" if number >= 0 else (
            f"-interval '{-number * 500} milliseconds'"
        )  # fmt: skip
    return str({"f": number / 2, "m": Decimal(number) / 4}.get(kind, number))


@st.composite
def distances(
    draw: st.DrawFn, kind: str, a: str = "a", b: str = "b", shifted: bool = True
) -> tuple[str, str]:
    """A bounded distance between two columns as we take it, and as DuckDB does."""
    x, y = draw(st.sampled_from([(f"{a}.{kind}", f"{b}.{kind}"), (f"{b}.{kind}", f"{a}.{kind}")]))
    lo, hi = sorted([draw(st.integers(-4, 4)), draw(st.integers(-4, 4))])
    far = draw(st.integers(0, 5))
    lt = draw(st.sampled_from(["<", "<="]))
    gt = lt.replace("<", ">")
    # DuckDB has no abs of an interval, and no negative literal of one.
    plain = {"ts": f"epoch_us({x}) - epoch_us({y})", "d": f"({x} - {y})"}.get(kind, f"{x} - {y}")
    unit: Any = {"ts": 500_000, "f": 0.5, "m": Decimal("0.25")}.get(kind, 1)
    forms = [
        (f"abs({x} - {y}) {lt} {amount(kind, far)}", f"abs({plain}) {lt} {far * unit}"),
        (f"{amount(kind, far)} {gt} abs({x} - {y})", f"abs({plain}) {lt} {far * unit}"),
        (f"not (abs({x} - {y}) > {amount(kind, far)})", f"abs({plain}) <= {far * unit}"),
        (
            f"{x} - {y} between {amount(kind, lo)} and {amount(kind, hi)}",
            f"{plain} between {lo * unit} and {hi * unit}",
        ),
    ]
    if shifted and kind in ("i", "ts", "d", "m"):
        forms += [
            (
                f"{x} between {y} - {amount(kind, far)} and {y} + {amount(kind, hi)}",
                f"{plain} between {-far * unit} and {hi * unit}",
            ),
            (
                f"{x} {lt} {y} + {amount(kind, far)} and {x} + {amount(kind, far)} >= {y}",
                f"{plain} {lt} {far * unit} and {plain} >= {-far * unit}",
            ),
        ]
    return draw(st.sampled_from(forms))


FILTERS = ["a.v > 4", "b.v > 4", "a.v + b.v > 8", "b.s = 's1'", "a.s is null", "a.v < 8 or b.v < 3",
           "a.k in (0, 1)", "b.k is distinct from a.k"]  # fmt: skip


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def plain(sql: str, **tables: pa.Table) -> Counter[Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return bag(connection.sql(sql).to_arrow_table())


def same(ours: str, theirs: str, **tables: pa.Table) -> None:
    proofs.tried()
    assert bag(matwin.sql(ours, **tables).to_arrow()) == plain(theirs, **tables), ours


# ── bestmatch ────────────────────────────────────────────────────────────────────────────────────


def distance_sql(kind: str, a: str, b: str) -> str:
    if kind == "ts":
        return f"abs(epoch_us({a}.ts) - epoch_us({b}.ts))"
    return f"abs({a}.{kind} - {b}.{kind})"


def best_sql(how: str, kinds: list[str], eligible: str, after: str) -> str:
    """The paper's expansion: candidates that no other candidate of the same row dominates."""
    d = ", ".join(f"{distance_sql(kind, 'a', 'b')} as d{n}" for n, kind in enumerate(kinds))
    here = " and ".join(f"a.{kind} is not null and b.{kind} is not null" for kind in kinds)
    better = " and ".join(f"o.d{n} <= p.d{n}" for n in range(len(kinds)))
    strictly = " or ".join(f"o.d{n} < p.d{n}" for n in range(len(kinds)))
    dominated = "exists (select 1 from c o where {same} and " + f"{better} and ({strictly}))"
    left, right = dominated.format(same="o.ar = p.ar"), dominated.format(same="o.br = p.br")
    kept = {
        "left": f"not {left}", "right": f"not {right}", "full": f"(not {left} or not {right})",
        "inner": f"not {dominated.format(same='true')}",
    }[how]  # fmt: skip
    return f"""
        with c as materialized (
            select a.rid as ar, b.rid as br, {d} from a, b where {here} and {eligible}
        )
        select a.rid, b.rid, a.v + b.v as w from c p, a, b
        where p.ar = a.rid and p.br = b.rid and {kept} and {after}
    """


@st.composite
def bestmatches(draw: st.DrawFn) -> tuple[str, str]:
    how = draw(st.sampled_from(["left", "right", "full", "inner"]))
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=2, unique=True))
    terms = [
        draw(
            st.sampled_from(
                [
                    f"a.{one} mindist b.{one}",
                    f"a.{one} b.{one}",
                    f"b.{one} minAttrDist a.{one}",
                    one,
                ]
            )
        )
        for one in kinds
    ]
    ours, eligible, using = [], ["true"], ""
    for kind in kinds:
        if draw(st.booleans()):
            mine, theirs = draw(distances(kind))
            ours.append(mine)
            eligible.append(theirs)
    if draw(st.booleans()):
        key = draw(st.sampled_from(["k", "s"]))
        said = draw(st.sampled_from([f"a.{key} = b.{key}", f"b.{key} = a.{key}", "using"]))
        using = f"using ({key})" if said == "using" else ""
        ours += [said] if not using else []
        eligible.append(f"a.{key} = b.{key}")
    after = draw(st.lists(st.sampled_from(FILTERS), max_size=2))
    ours += after
    ours = draw(st.permutations(ours))
    side = {"inner": "", "left": "left", "right": "right outer", "full": "full outer"}[how]
    where = f"where {' and '.join(f'({one})' for one in ours)}" if ours else ""
    text = (
        f"select a.rid, b.rid, a.v + b.v as w from a {side} bestmatch join b "
        f"on {', '.join(terms)} {using} {where}"
    )
    conditions = " and ".join(f"({one})" for one in after) or "true"
    return text, best_sql(how, kinds, " and ".join(f"({one})" for one in eligible), conditions)


@pytest.mark.proof("SQL: bestmatch joins equal their plain expansion")
@CASES
@given(bestmatches(), tables("a"), tables("b"))
def test_bestmatch_joins(query: tuple[str, str], a: pa.Table, b: pa.Table) -> None:
    try:
        same(*query, a=a, b=b)
    except matwin.InputError as error:
        assert "nothing is so near" in str(error)


# ── ranges ───────────────────────────────────────────────────────────────────────────────────────


@st.composite
def ranges(draw: st.DrawFn) -> tuple[str, str]:
    kind = draw(st.sampled_from(list(KINDS)))
    mine, theirs = draw(distances(kind))
    more = draw(st.lists(st.sampled_from(FILTERS), max_size=2))
    keys = draw(st.lists(st.sampled_from(["a.k = b.k", "b.s = a.s"]), max_size=2, unique=True))
    how = draw(
        st.sampled_from(
            [",", "join", "left join", "right join", "full join", "semi join", "anti join"]
        )
    )
    columns = "a.rid, a.v" if how in ("semi join", "anti join") else "a.rid, b.rid, a.v + b.v as w"
    found = []
    for distance in (mine, theirs):
        on = " and ".join([distance, *keys])
        if how == ",":
            where = " and ".join(f"({one})" for one in [on, *more])
            found.append(f"select {columns} from a, b where {where}")
        elif how in ("semi join", "anti join"):
            found.append(f"select {columns} from a {how} b on {on} and b.v > 3")
        else:
            where = f"where {' and '.join(f'({one})' for one in more)}" if more else ""
            found.append(f"select {columns} from a {how} b on {on} {where}")
    return found[0], found[1]


@pytest.mark.proof("SQL: range joins equal DuckDB's own")
@CASES
@given(ranges(), tables("a"), tables("b"))
def test_range_joins(query: tuple[str, str], a: pa.Table, b: pa.Table) -> None:
    same(*query, a=a, b=b)


# ── as-of ────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def asofs(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(list(KINDS)))
    sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
    order = draw(st.sampled_from([f"a.{kind} {sign} b.{kind}", f"b.{kind} {sign} a.{kind}"]))
    key = draw(st.sampled_from(["", "a.k = b.k and ", "b.s = a.s and "]))
    how = draw(st.sampled_from(["asof join", "asof left join"]))
    where = draw(st.sampled_from(["", "where a.v > 3", f"where b.{kind} is not null"]))
    # DuckDB takes any of several rows of the same time, so that only the time can be compared.
    return f"select a.rid, b.{kind} from a {how} b on {key}{order} {where}"


@pytest.mark.proof("SQL: as-of joins equal DuckDB's own")
@CASES
@given(asofs(), tables("a"), tables("b"))
def test_asof_joins(query: str, a: pa.Table, b: pa.Table) -> None:
    same(query, query, a=a, b=b)


# ── windows ──────────────────────────────────────────────────────────────────────────────────────


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, str]:
    kind = draw(st.sampled_from(["i", "ts", "f", "m"]))
    names = ["a", "b", "c"][: draw(st.integers(2, 3))]
    unit: Any = {"ts": 500_000, "f": 0.5, "m": Decimal("0.25")}.get(kind, 1)

    def apart(x: str, y: str) -> str:
        return (
            f"epoch_us({y}.ts) - epoch_us({x}.ts)" if kind == "ts" else f"{y}.{kind} - {x}.{kind}"
        )

    ours, theirs = [], []
    if draw(st.booleans()):
        far = draw(st.integers(1, 5))
        ours.append(f"window ({names[0]}.{kind}, {names[1]}.{kind}) = {amount(kind, far)}")
        theirs.append(f"abs({apart(names[0], names[1])}) <= {far * unit}")
        if len(names) == 3:
            far = draw(st.integers(1, 5))
            ours.append(f"dwindow (b.{kind}, c.{kind}) = {amount(kind, far)}")
            theirs.append(f"{apart('b', 'c')} between 0 and {far * unit}")
    else:
        way = [f"dwindow ({x}.{kind}, {y}.{kind}) = {amount(kind, 4)}"
               for x, y in pairwise(names)]  # fmt: skip
        back = [f"dwindow ({y}.{kind}, {x}.{kind}) = {amount(kind, 4)}"
                for x, y in pairwise(names)]  # fmt: skip
        ours.append(f"{' and '.join(way)} or {' and '.join(reversed(back))}")
        both = [
            " and ".join(f"{apart(x, y)} between {lo} and {hi}" for x, y in pairwise(names))
            for lo, hi in ((0, 4 * unit), (-4 * unit, 0))
        ]
        theirs.append(f"(({both[0]}) or ({both[1]}))")
    conditions = []
    if draw(st.booleans()):
        key = draw(st.sampled_from(["k", "s"]))
        conditions += [f"{x}.{key} = {y}.{key}" for x, y in pairwise(names)]
    if draw(st.booleans()):
        conditions.append("a.v > 3")
    if draw(st.booleans()):
        conditions.append("abs(a.v - b.v) < 5")
    if draw(st.booleans()):
        conditions.append("a.s = b.s")
    tables_ = ", ".join(names)
    rids = ", ".join(f"{name}.rid" for name in names)
    where = f"where {' and '.join(conditions)}" if conditions else ""
    clause = " and ".join(ours)
    order = draw(st.sampled_from([f"{where} {clause}", f"{clause} {where}"]))
    expected = " and ".join([*theirs, *conditions])
    return f"select {rids} from {tables_} {order}", f"select {rids} from {tables_} where {expected}"


@pytest.mark.proof("SQL: window joins equal conditions on every pair")
@CASES
@given(windows(), tables("a"), tables("b"), tables("c"))
def test_window_joins(query: tuple[str, str], a: pa.Table, b: pa.Table, c: pa.Table) -> None:
    same(*query, a=a, b=b, c=c)


# ── queries around them ──────────────────────────────────────────────────────────────────────────

AROUND = [
    "select a.k, count(*) as n, sum(b.v) as total from {join} group by a.k",
    "select distinct a.k, b.k as other from {join}",
    "select a.k, max(a.v - b.v) from {join} group by 1 having count(*) > 1",
    "select rid, w from (select a.rid, a.v + b.v as w from {join}) where w > 6",
    "with j as (select a.rid as x, b.rid as y from {join}) select x, count(*) from j group by x "
    "union all select y, count(*) from j group by y",
    "select count(*) from {join} where a.v > (select avg(v) from b)",
    "select a.rid, (select count(*) from b z where z.k = a.k) from {join}",
    "select a.rid, row_number() over (partition by a.rid order by b.rid) as n from {join}",
    "select a.rid, z.v from {join} join b z on z.rid = a.rid where z.v < 8",
    "select count(*) filter (where b.v > 3), min(a.s), count(b.s) from {join}",
]


@CASES
@given(st.sampled_from(AROUND), distances("i"), tables("a"), tables("b"))
def test_queries_around_a_join(
    around: str, distance: tuple[str, str], a: pa.Table, b: pa.Table
) -> None:
    mine, theirs = (around.format(join=f"a join b on {one} and a.k = b.k") for one in distance)
    same(mine, theirs, a=a, b=b)
