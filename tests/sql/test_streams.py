"""Streams in plain SQL: columns that a query needs, what may never end, times in the paper's own
expressions, streams without a window; and tables beside cut streams, which stay as they were."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import proofs
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import campaign

import matwin

ROWS = pa.table({"t": [1, 2, 4, 4, 9], "k": ["x", "y", "x", None, "z"], "v": [1, 2, 3, 4, 5]})


# ── columns ──────────────────────────────────────────────────────────────────────────────────────

ORDERS: list[Any] = ["sorted", matwin.Lateness(3), matwin.ReadAhead(2), matwin.Punctuated()]
GIVEN = ["table", "batches"]


def declared(rows: pa.Table, order: Any, given_as: str, live: bool | None = None) -> Any:
    if given_as == "table" and not isinstance(order, matwin.Punctuated):
        return matwin.stream(rows, on="t", order=order, live=live)
    items: list[Any] = rows.to_batches(max_chunksize=2)
    if isinstance(order, matwin.Punctuated):
        items.append(matwin.Punctuation(9))
    return matwin.stream(iter(items), on="t", order=order, schema=rows.schema, live=live)


@settings(max_examples=campaign(60, 2_000), deadline=None)
@given(
    st.lists(st.sampled_from(["t", "k", "v", "v + 1", "upper(k)"]), min_size=1, unique=True),
    st.sampled_from(["", "where v > 2", "where k is null", "where t > 2 and v < 5"]),
    st.sampled_from(["", "limit 2"]),
    st.sampled_from(ORDERS), st.sampled_from(GIVEN), st.sampled_from([True, False, None]),
)  # fmt: skip
def test_any_columns_of_an_ordered_stream(
    columns: list[str], where: str, limit: str, order: Any, given_as: str, live: bool | None
) -> None:
    """Also those of a stream that is ordered by another one, which nobody asks for."""
    text = f"select {', '.join(columns)} from a {where} {limit}"
    found = matwin.sql(text, a=declared(ROWS, order, given_as, live)).to_arrow()
    with duckdb.connect(config={"threads": 1}) as plain:
        plain.register("a", ROWS)
        wanted = plain.sql(text).to_arrow_table()
    assert found.column_names == wanted.column_names
    assert [c.to_pylist() for c in found.columns] == [c.to_pylist() for c in wanted.columns]


# ── what may never end ───────────────────────────────────────────────────────────────────────────

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64())])


def endless(taken: list[int] | None = None) -> Any:
    def rows() -> Iterator[pa.RecordBatch]:
        for n in itertools.count():
            if taken is not None:
                taken.append(n)
            yield pa.record_batch([[n], [n % 3]], schema=SCHEMA)

    return matwin.stream(rows(), on="t", schema=SCHEMA)


WAITS = {
    "select count(*) as n from {a}": "count(*)",
    "select k, sum(t) as n from {a} group by k": "group by",
    "select distinct k from {a}": "distinct",
    "select k from {a} order by k": "order by",
    "select k from {a} order by k limit 3": "order by",
    "select k, row_number() over (order by t) as n from {a}": "over (…)",
    "select max(t) - min(t) as n from {a} having count(*) > 3": "having",
    "select count(*) filter (where k = 1) as n from {a}": "an aggregate",
    "select string_agg(k::text, ',') as n from {a}": "an aggregate",
    "select fsum(k) as n from {a}": "an aggregate",
    "select k from {a} union select k from few": "union",
    "select k from {a} except select k from few": "except",
}
PLACES = {
    "a": "a",
    "inner": "(select * from a where t > 0) z",
    "nested": "(select * from (select t, k from a) y) z",
    "all": "(select t, k from a union all select t, k from few) z",
    "joined": "(select x.t, x.k from a x join a2 y on abs(x.t - y.t) <= 1) z",
    "best": "(select x.t, x.k from a x left bestmatch join a2 y on x.t mindist y.t "
            "where abs(x.t - y.t) <= 1) z",
    "window": "(select x.t, x.k from a x, a2 y window (x, y) = 3) z",
}  # fmt: skip


def sources(taken: list[int]) -> dict[str, Any]:
    few = pa.table({"t": [1, 2], "k": [1, 2]})
    return {"a": endless(taken), "a2": endless(taken), "few": few}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", WAITS)
def test_what_waits_for_a_last_row_is_refused(text: str, place: str) -> None:
    """Before a row is read, with the place and what to write."""
    taken: list[int] = []
    with pytest.raises(matwin.InputError) as told:
        matwin.sql(text.format(a=PLACES[place]), **sources(taken))
    message = str(told.value)
    assert "a is a live stream, which may never end" in message
    assert f"and {WAITS[text]}" in message or "an aggregate waits" in message
    assert "stream(a, 'CUT ON t BY 60 SECS') s" in message and "^" in message
    assert not taken


def test_with_clauses_are_looked_through() -> None:
    text = "with b as (select * from a), c as (select k from b) select count(*) from c"
    with pytest.raises(matwin.InputError, match="may never end"):
        matwin.sql(text, a=endless())


@pytest.mark.parametrize(
    "text",
    [
        "select k from a limit 5",
        "select k + 1 as k from a where t > 7 limit 5",
        "select count(*) as n from (select * from a limit 7)",
        "with few as (select * from a limit 7) select k, count(*) from few group by k order by k",
        "select k, (select count(*) from few) as n from a limit 2",
        "select k from a where t in (select t from few) limit 2",
        "select * from (select x.t from a x join a2 y on abs(x.t - y.t) <= 1 limit 3) order by t",
    ],
)
def test_what_ends_by_itself_is_answered(text: str) -> None:
    assert matwin.sql(text, **sources([])).to_arrow().num_rows > 0


def test_rows_of_an_endless_stream_come_as_they_are_read() -> None:
    taken: list[int] = []
    found = iter(matwin.sql("select k from a", a=endless(taken)))
    assert [next(found).to_pylist() for _ in range(3)] == [[{"k": 0}], [{"k": 1}], [{"k": 2}]]
    assert len(taken) < 1000


def test_a_cut_stream_has_an_answer_for_each_chunk() -> None:
    text = "select count(*) as n from stream(a, 'CUT ON t BY 4') s"
    epochs = matwin.sql(text, a=endless()).epochs()  # type: ignore[attr-defined]
    found = [epoch.result.to_arrow().to_pylist() for epoch in itertools.islice(epochs, 3)]
    assert found == [[{"n": 4}]] * 3


def test_a_stream_beside_one_that_is_cut_is_cut_too() -> None:
    text = "select s.k from stream(a, 'CUT ON t BY 4') s join a2 using (k)"
    with pytest.raises(matwin.InputError, match="a2 may never end, and is not cut as a is"):
        matwin.sql(text, a=endless(), a2=endless())


# ── windows ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_stream_without_a_window_is_refused(order: int) -> None:
    """As a window join refuses it: nothing connects it, and its rows would be kept for ever."""
    names = ["a", "b", "c"][order:] + ["a", "b", "c"][:order]
    given = {name: pa.table({"t": [1, 2], "k": [1, 2]}) for name in "abc"}
    with pytest.raises(matwin.InputError, match="nothing connects"):
        matwin.window_join(given, time="t", by="k", windows={("a", "b"): 5}).to_arrow()
    text = f"select a.t from {', '.join(names)} where a.k = b.k and b.k = c.k window (a, b) = 5"
    with pytest.raises(matwin.InputError, match=r"c has no window.*\n.*\n +\^$") as told:
        matwin.sql(text, **given)
    assert "window (b, c) = …" in str(told.value) or "window (a, c) = …" in str(told.value)
    table = text.replace(" c where", " (select * from c) c where")
    if order == 0:
        assert matwin.sql(table, **given).to_arrow().num_rows == 2


# ── times ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sign", ["/", "//", "%"])
@pytest.mark.parametrize(
    "kind", ["timestamp[s]", "timestamp[ms]", "timestamp[ns]", "timestamp[us, tz=UTC]", "date32"]
)
def test_a_time_by_a_number(kind: str, sign: str) -> None:
    """The paper's times are numbers of seconds; what is written for others is what it means."""
    types = {"date32": pa.date32(), "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC")}
    data_type = types.get(kind) or pa.timestamp(kind[10:-1])
    times = pa.table({"ts": pa.array([0, 7], pa.int32() if kind == "date32" else pa.int64())})
    times = times.set_column(0, "ts", times["ts"].cast(data_type))
    place = "stream(a, 'CUT BY 9 ROWS') s"
    plain = f"select floor(ts {sign} 60) as m from a"
    for text in (plain, f"select floor(s.ts{sign}60) as m, count(*) from {place} group by m"):
        with pytest.raises(
            matwin.InputError, match=r"is a time and 60 a number.*\n.*\n +\^"
        ) as told:
            matwin.sql(text, a=times)
        name = "s.ts" if "s.ts" in text else "ts"
        assert f"write epoch({name}) {sign} 60," in str(told.value)
        better = text.replace(f"{name} {sign} 60", f"epoch({name}) {sign} 60")
        better = better.replace(f"{name}{sign}60", f"epoch({name}) {sign} 60")
        assert matwin.sql(better, a=times).to_arrow().num_rows >= 1


# ── tables beside cut streams ────────────────────────────────────────────────────────────────────

EVENTS = pa.table({"ts": [1, 2, 61, 62, 121, 181], "k": [1, 2, 1, 2, 1, 3]})
JOINS = {
    "duckdb": "select s.ts, p.price from {s} s left join {p} p using (k)",
    "twice": "select s.ts, p.price + q.price as price from {s} s join {p} p using (k) "
             "join {p} q on q.k = p.k",
    "best": "select s.ts, p.price from {s} s left bestmatch join {p} p on s.ts mindist p.k",
    "near": "select s.ts, p.price from {s} s join {p} p on abs(s.ts - p.k) <= 100",
    "inner": "select s.ts, p.price from {s} s left bestmatch join "
             "(select * from {p} where k < 9) p on s.ts mindist p.k",
    "in": "select s.ts, s.k as price from {s} s where s.k in (select k from {p})",
}  # fmt: skip


def prices(shift: int, rows: int) -> pa.Table:
    numbers = list(range(rows))
    return pa.table({"k": numbers, "price": [10 * n + shift for n in numbers]})


def write(rows: pa.Table, path: Path) -> None:
    """Put a file in the place of another, at once."""
    new = path.with_name("new" + path.suffix)
    pq.write_table(rows, new) if path.suffix == ".parquet" else pa_csv.write_csv(rows, new)
    new.replace(path)


@pytest.mark.parametrize("memory", ["256MiB", "1MiB"])
@pytest.mark.parametrize("given_as", ["parquet", "csv", "reader", "generator", "polars", "table"])
@pytest.mark.parametrize("name", JOINS)
def test_a_table_stays_as_it_was(name: str, given_as: str, memory: str, tmp_path: Path) -> None:
    """Whatever becomes of its file between two epochs, and if it can be read once only; in memory,
    and put down where it is larger than its share of 1 MiB."""
    table = prices(0, 10_000 if memory == "1MiB" and name in ("duckdb", "in") else 9)
    path = tmp_path / f"p.{given_as}"
    given: Any = table
    if given_as in ("parquet", "csv"):
        write(table, path)
        given = path
    elif given_as == "reader":
        given = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))
    elif given_as == "generator":
        given = (batch for batch in table.to_batches(max_chunksize=4))
    elif given_as == "polars":
        given = pytest.importorskip("polars").from_arrow(table)
    cut = "stream(events, 'CUT ON ts BY 60')"
    options: Any = {"memory": memory, "scratch": tmp_path}
    result: Any = matwin.sql(JOINS[name].format(s=cut, p="p"), options, events=EVENTS, p=given)
    found: list[Any] = []
    for number, epoch in enumerate(result.epochs()):
        found += epoch.result.to_arrow().to_pylist()
        if given_as in ("parquet", "csv"):
            write(prices(1_000 * (number + 1), 3 + number), path)
    proofs.tried()
    with duckdb.connect(config={"threads": 1}) as plain:
        plain.register("p", table)
        wanted: list[Any] = []
        for at in range(0, 240, 60):
            here = EVENTS.filter(
                (pa.compute.field("ts") >= at) & (pa.compute.field("ts") < at + 60)
            )
            text = JOINS[name].format(s="(select * from events)", p="p")
            if "bestmatch" in text:
                wanted += matwin.sql(text, events=here, p=table).to_arrow().to_pylist()
                continue
            plain.register("events", here)
            wanted += plain.sql(text).to_arrow_table().to_pylist()
    assert Counter(map(str, found)) == Counter(map(str, wanted))
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("matwin")]
