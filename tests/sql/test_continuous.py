"""Queries over cut streams: their plans, and epoch by epoch what plain SQL gives for the chunks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.tools.cli import main
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.session import planned

PACKETS = pa.table(
    {"ts": [1, 30, 61, 62, 130], "pid": [1, 2, 1, 3, 2], "trt": [2, 35, 64, 70, 150]}
)
LATER = pa.table({"ts": [2, 31, 65, 70, 131], "pid": [1, 2, 2, 3, 2], "trt": [9, 39, 70, 79, 160]})


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("STREAM_x(p, 'CUT ON ts BY 60 SECS')", ("every", "ts", Fraction(60), False, 1)),
        ("STREAM_x(p, 'CUT ON TS BY 60 SECS', 'BLOCK')", ("every", "ts", Fraction(60), True, 1)),
        ("stream(p, 'cut on ts by 1 min', 'block', 12)", ("every", "ts", Fraction(60), True, 12)),
        ("stream(p, 'CUT BY 100 ROWS')", ("count", None, Fraction(100), False, 1)),
        ("stream(p, 'CUT ON CHANGE OF pid')", ("on_change", "pid", Fraction(0), False, 1)),
        ("stream(p, 'CUT ON pid')", ("on_change", "pid", Fraction(0), False, 1)),
        ("stream(p, 'CUT ON ts BY 2.5')", ("every", "ts", Fraction(5, 2), False, 1)),
    ],
)
def test_stream_functions_say_where_to_cut(call: str, wanted: tuple[Any, ...]) -> None:
    (spec,) = planned(f"select * from {call} s", Catalog({"p": PACKETS})).streams
    assert (spec.kind, spec.column, spec.width, spec.block, spec.keep) == wanted
    assert spec.source == "p"


def test_seconds_are_a_time_on_a_column_of_times() -> None:
    times = PACKETS.set_column(0, "ts", PACKETS["ts"].cast(pa.timestamp("s")))
    query = "select * from stream(p, 'CUT ON ts BY 60 SECS') s"
    (spec,) = planned(query, Catalog({"p": times})).streams
    assert (spec.width, spec.is_time) == (60 * 10**9, True)


def test_the_command_gives_the_epochs_in_turn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(PACKETS, tmp_path / "p.parquet")
    query = "select count(*) as n from stream(p, 'CUT ON ts BY 60 SECS') s"
    words = ["sql", "-c", query, f"p={tmp_path / 'p.parquet'}", "--format", "csv"]
    assert main(words) == 0
    out, told = capfd.readouterr()
    assert out.split() == ['"n"', "2", "2", "1"]
    assert "3 rows" in told
    assert main([*words, "-q", "--memory", "64MiB"]) == 0
    assert main([*words, "--threads", "2"]) == 2
    assert "takes no threads" in capfd.readouterr().err


def plain(query: str, **tables: pa.Table) -> Counter[Any]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return Counter(connection.sql(query).fetchall())


def chunk(table: pa.Table, low: int, high: int) -> pa.Table:
    times = table["ts"].to_numpy()
    return table.filter(pa.array((times >= low) & (times < high)))


@pytest.mark.parametrize("kept", [1, 2])
def test_every_epoch_is_the_query_over_its_chunks(kept: int) -> None:
    text = """
        SELECT floor(S1.ts / 60) AS minute, AVG(S2.trt - S1.trt)
        FROM {0} S1, {1} S2, WHERE S1.pid = S2.pid GROUP BY minute;
    """
    ours = text.format(
        "STREAM_get_packets (RT1, 'CUT ON ts BY 60 SECS', 'BLOCK')",
        f"STREAM_get_packets (RT2, 'CUT ON ts BY 60 SECS', 'BLOCK', {kept})",
    )
    result: Any = matwin.sql(ours, RT1=PACKETS, RT2=LATER)
    epochs = list(result.epochs())
    assert len(epochs) == 3
    for number, epoch in enumerate(epochs):
        low = number * 60
        found = epoch.result.to_arrow()
        rows = Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))
        seen = {
            "x": chunk(PACKETS, low, low + 60),
            "y": chunk(LATER, low - 60 * (kept - 1), low + 60),
        }
        assert rows == plain(text.format("x", "y").rstrip().rstrip(";"), **seen)


def test_joins_of_ours_run_inside_an_epoch() -> None:
    query = """
        select a.pid, b.pid as other from stream(p, 'CUT ON ts BY 60', 'BLOCK') a
        join stream(p, 'CUT ON ts BY 60', 'BLOCK', 2) b on abs(a.ts - b.ts) <= 31 where a.ts > b.ts
    """
    result: Any = matwin.sql(query, p=PACKETS)
    assert "ε-join" in result.explain()
    assert result.to_arrow().to_pylist() == [
        {"pid": 2, "other": 1}, {"pid": 1, "other": 2}, {"pid": 3, "other": 1},
    ]  # fmt: skip


def test_streams_that_are_cut_differently_are_refused() -> None:
    query = "select 1 from stream(p, 'CUT ON ts BY 60') a, stream(q, 'CUT ON ts BY 30') b"
    with pytest.raises(matwin.InputError, match="all streams of a query are cut alike"):
        matwin.sql(query, p=PACKETS, q=LATER)


def test_objects_are_brought_together() -> None:
    """One stream lacks an object: its chunk is empty, and what follows stays aligned."""

    def seen(objects: list[int]) -> pa.Table:
        return pa.table({"obj": objects, "id": range(len(objects))})

    query = "select {} from stream(a, 'CUT ON obj') a {} join stream(b, 'CUT ON obj') b using (obj)"
    a, b = seen([1, 1, 2, 3]), seen([1, 3, 3])
    both: Any = matwin.sql(query.format("obj, a.id x, b.id y", ""), a=a, b=b)
    rows = [sorted(e.result.to_arrow().to_pylist(), key=str) for e in both.epochs()]
    assert [[(r["obj"], r["x"], r["y"]) for r in found] for found in rows] == [
        [(1, 0, 0), (1, 1, 0)], [], [(3, 3, 1), (3, 3, 2)],
    ]  # fmt: skip
    left: Any = matwin.sql(query.format("a.obj, b.id y", "left"), a=a, b=b)
    assert [e.report.rows_out for e in left.epochs()] == [2, 1, 2]
