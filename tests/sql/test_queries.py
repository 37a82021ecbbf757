"""`matwin.sql` as a whole: where tables come from, what is read, how rows leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.tools import cli
from matwin.tools.sql.catalog import Catalog
from matwin.tools.sql.run import scans_of
from matwin.tools.sql.session import planned

TEMP = pa.table({"t": [1, 5, 9], "celsius": [20, 21, 22], "note": ["x", "y", "z"]})
HUM = pa.table({"t": [2, 5, 8], "percent": [40, 50, 60], "note": ["u", "v", "w"]})
NEAR = "select celsius, percent from {a} join {b} on abs({a}.t - {b}.t) <= 1 order by celsius"
PAIRS = {"celsius": [20, 21, 22], "percent": [40, 50, 60]}
module_table = TEMP


def test_tables_by_keyword_register_variable_and_file(tmp_path: Path) -> None:
    assert matwin.sql(NEAR.format(a="a", b="b"), a=TEMP, b=HUM).to_arrow().to_pydict() == PAIRS
    local_table = HUM
    assert local_table is HUM
    found = matwin.sql(NEAR.format(a="module_table", b="local_table"))
    assert found.to_arrow().to_pydict() == PAIRS
    matwin.register("Warm", TEMP)
    try:
        found = matwin.sql(NEAR.format(a="warm", b="hum"), hum=HUM)
        assert found.to_arrow().to_pydict() == PAIRS
    finally:
        matwin.unregister("warm")
    with pytest.raises(matwin.InputError, match="nothing has this name"):
        matwin.unregister("warm")
    for number in range(3):
        pq.write_table(TEMP.slice(number, 1), tmp_path / f"temp-{number}.parquet")
    query = f"select sum(celsius) as s from '{tmp_path}/temp-*.parquet'"
    assert matwin.sql(query).to_arrow().to_pydict() == {"s": [63]}


def test_a_keyword_hides_a_name_and_a_name_hides_a_variable() -> None:
    temp = pa.table({"n": [1]})
    assert temp.num_rows
    assert matwin.sql("select n from temp").to_arrow()["n"].to_pylist() == [1]
    matwin.register("temp", pa.table({"n": [2]}))
    try:
        assert matwin.sql("select n from temp").to_arrow()["n"].to_pylist() == [2]
        given = matwin.sql("select n from temp", temp=pa.table({"n": [3]}))
        assert given.to_arrow()["n"].to_pylist() == [3]
    finally:
        matwin.unregister("temp")


@pytest.mark.parametrize(
    "make",
    [
        lambda given: given, lambda given: given.to_pandas(), lambda given: given.to_reader(),
        lambda given: given.to_batches(), lambda given: given.to_pylist(),
    ],
)  # fmt: skip
def test_anything_that_a_join_takes_is_a_table(make: Any) -> None:
    found = matwin.sql(NEAR.format(a="a", b="b"), a=make(TEMP), b=make(HUM))
    assert found.to_arrow().to_pydict() == PAIRS
    assert matwin.sql("select count(*) as n from a", a=make(TEMP)).to_arrow()["n"][0].as_py() == 3


def read_columns(query: str, **tables: Any) -> dict[str, tuple[str, ...]]:
    """The columns that are read of each table."""
    return {
        scan.alias or scan.label: scan.columns for scan in scans_of(planned(query, Catalog(tables)))
    }


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (NEAR.format(a="a", b="b"), {"a": ("t", "celsius"), "b": ("t", "percent")}),
        ("select count(*) from a", {"a": ("t",)}),
        ("select max(celsius) from a where t > 3", {"a": ("t", "celsius")}),
        ("select * from a", {"a": ("t", "celsius", "note")}),
        ("select b.* from a join b on abs(a.t - b.t) < 2",
         {"a": ("t",), "b": ("t", "percent", "note")}),
        ("select * exclude (note) from a, b where abs(a.t - b.t) < 2",
         {"a": ("t", "celsius"), "b": ("t", "percent")}),
        ("select celsius from a left bestmatch join b on a.t mindist b.t where a.note = 'x'",
         {"a": ("t", "celsius", "note"), "b": ("t",)}),
    ],
)  # fmt: skip
def test_columns_that_are_not_needed_are_not_read(
    query: str, columns: dict[str, tuple[str, ...]]
) -> None:
    assert read_columns(query, a=TEMP, b=HUM) == columns


def test_files_are_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matwin.files import Files

    pq.write_table(TEMP, tmp_path / "a.parquet")
    seen: list[Any] = []
    real = Files.batches
    monkeypatch.setattr(
        Files, "batches",
        lambda self, columns=None: seen.append(tuple(columns or ())) or real(self, columns),
    )  # fmt: skip
    query = f"select a.celsius from '{tmp_path}/a.parquet' a join b on abs(a.t - b.t) <= 1"
    assert matwin.sql(query, b=HUM).to_arrow().num_rows == 3
    assert seen and all(set(columns) <= {"t", "celsius"} and columns for columns in seen)


def test_nothing_runs_before_the_first_row_is_asked_for() -> None:
    taken = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in TEMP.to_batches(max_chunksize=1):
            taken.append(batch)
            yield batch

    source = matwin.stream(rows(), on="t", schema=TEMP.schema, live=False)
    result = matwin.sql(NEAR.format(a="s", b="b"), s=source, b=HUM)
    assert result.schema.names == ["celsius", "percent"]
    assert "ε-join" in result.explain()
    assert not taken
    assert result.to_arrow().num_rows == 3


@pytest.mark.parametrize("select", ["s.celsius, b.percent", "s.celsius + b.percent as both"])
def test_rows_of_a_live_stream_leave_as_they_come(select: str) -> None:
    taken = []

    def rows() -> Iterator[pa.RecordBatch]:
        for t in range(1000):
            taken.append(t)
            yield pa.record_batch({"t": [t], "celsius": [t], "note": ["x"]})

    schema = pa.schema([("t", pa.int64()), ("celsius", pa.int64()), ("note", pa.string())])
    source = matwin.stream(rows(), on="t", schema=schema)
    other = matwin.stream(
        (pa.record_batch({"t": [t], "percent": [t]}) for t in range(1000)), on="t",
        schema=pa.schema([("t", pa.int64()), ("percent", pa.int64())]),
    )  # fmt: skip
    query = f"select {select} from s join b on abs(s.t - b.t) <= 1 where s.celsius >= 0"
    result = matwin.sql(query, s=source, b=other)
    next(iter(result))
    assert len(taken) < 900
    result.close()


def test_results_stream_out_of_duckdb() -> None:
    big = pa.table({"t": np.arange(400_000), "v": np.arange(400_000)})
    result = matwin.sql("select a.v + b.v as s from a join b on abs(a.t - b.t) <= 1", a=big, b=big)
    batches = iter(result)
    first = next(batches)
    assert 0 < first.num_rows < 400_000
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 1_199_998


def test_a_budget_is_shared_with_duckdb(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    big = pa.table({"t": rng.integers(0, 10**6, 200_000), "v": rng.random(200_000)})
    query = (
        "select a.v, b.v as w from a join b on abs(a.t - b.t) <= 1 order by a.v, b.v desc limit 5"
    )
    whole = matwin.sql(query, a=big, b=big).to_arrow()
    report = matwin.Report()
    options: matwin.JoinOptions = {"memory": "64MiB", "scratch": tmp_path, "report": report}
    assert matwin.sql(query, options, a=big, b=big).to_arrow().equals(whole)
    assert report.budget_bytes == 64 * 2**20
    assert report.peak_bytes <= report.budget_bytes
    assert report.rows_out > 200_000


def test_the_report_is_the_join_s_own() -> None:
    result = matwin.sql(NEAR.format(a="a", b="b"), a=TEMP, b=HUM)
    result.to_arrow()
    assert (result.report.left.rows_in, result.report.right.rows_in) == (3, 3)


def test_orders_and_functions_by_keyword() -> None:
    parts = pa.table({"cost": [3, 1], "name": ["dear", "cheap"]})
    more = pa.table({"cost": [5, 2], "name": ["gold", "tin"]})
    query = "select a.name, b.name as other from a bestmatch join b on a.cost {order} b.cost"
    by_sum = matwin.sql(query.format(order="mincost"), a=parts, b=more).to_arrow().to_pylist()
    assert by_sum == [{"name": "cheap", "other": "tin"}]
    given = matwin.sql(query.format(order="dearest"), a=parts, b=more,
                       dearest=lambda ours, theirs: -(ours + theirs))  # fmt: skip
    assert given.to_arrow().to_pylist() == [{"name": "dear", "other": "gold"}]


def test_joins_of_joins() -> None:
    query = """
        select x.celsius, y.percent, z.percent as next from temp x
        left bestmatch join hum y on x.t mindist y.t
        left bestmatch join hum z on y.t mindist z.t
        where abs(x.t - y.t) <= 1 and z.t - y.t between 1 and 4 order by 1
    """
    found = matwin.sql(query, temp=TEMP, hum=HUM).to_arrow().to_pylist()
    assert found == [
        {"celsius": 20, "percent": 40, "next": 50}, {"celsius": 21, "percent": 50, "next": 60},
    ]  # fmt: skip


def test_what_duckdb_joins_first_can_be_a_left_side() -> None:
    query = """
        select x.celsius, r.name, y.percent from temp x join rooms r on r.note = x.note
        left bestmatch join hum y on x.t mindist y.t where abs(x.t - y.t) <= 1 and r.name <> 'attic'
    """
    rooms = pa.table({"note": ["x", "y"], "name": ["hall", "attic"]})
    found = matwin.sql(query, temp=TEMP, hum=HUM, rooms=rooms).to_arrow().to_pylist()
    assert found == [{"celsius": 20, "name": "hall", "percent": 40}]


def test_types_are_kept_where_only_the_join_works() -> None:
    coded = TEMP.set_column(2, "note", TEMP["note"].dictionary_encode())
    times = coded.set_column(0, "t", coded["t"].cast(pa.timestamp("s")))
    found = matwin.sql(
        "select a.note, a.t from a join b on abs(a.t - b.t) <= interval 1 second", a=times, b=times
    )
    assert found.schema.types == [pa.string(), pa.timestamp("s")]  # of the dictionary its values
    assert found.to_arrow().num_rows == 3


def test_names_of_results_are_duckdb_s() -> None:
    query = """
        select avg(b.percent), a.celsius + 1, a.t, b.t from a join b on abs(a.t - b.t) < 2
        group by all
    """
    names = matwin.sql(query, a=TEMP, b=HUM).schema.names
    assert names == ['avg(b."percent")', "(a.celsius + 1)", "t", "t_1"]


def test_text_that_sqlglot_would_change_stays(tmp_path: Path) -> None:
    query = """
        select a.at + interval '1 day 02:00' as later, 7 // 2 as half
        from a join b on abs(a.t - b.t) <= 0 order by 1
    """
    given = pa.table({"t": [1, 2], "note": ["x", "xy"], "at": pa.array([0, 0], pa.timestamp("us"))})
    found = matwin.sql(query, a=given, b=given).to_arrow().to_pydict()
    assert str(found["later"][0]) == "1970-01-02 02:00:00"
    assert found["half"] == [3, 3]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(TEMP, tmp_path / "a.parquet")
    query = tmp_path / "query.sql"
    query.write_text("select t, celsius from a where t > 1 order by t;")
    words = ["sql", "-q", str(query), f"a={tmp_path / 'a.parquet'}"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == '"t","celsius"\n5,21\n9,22\n'
    out = tmp_path / "out.parquet"
    assert cli.main([*words, "-o", str(out)]) == 0
    assert pq.read_table(out).to_pydict() == {"t": [5, 9], "celsius": [21, 22]}
    assert cli.main([*words, "-o", str(out)]) == 2  # it is there already
    assert cli.main(["sql", "-q", "-c", "select 1 as one", "--explain"]) == 0
    assert "after, by DuckDB" in capsys.readouterr().out
    assert cli.main(["sql", "-c", "select nope from 'a.parquet'", "a=b", "c"]) == 2
    assert cli.main(["sql", str(tmp_path / "missing.sql")]) == 2


def test_a_mistake_on_the_command_line_has_its_caret(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sql", "-c", "select x\nfrom nowhere"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("matwin: error: line 2, column 6: there is no table 'nowhere'")
    assert told[1:] == ["  from nowhere", "       ^^^^^^^"]


def test_tables_joined_by_commas_are_joined_where_they_connect() -> None:
    keys = pa.table({"k": [1, 2], "note": ["x", "y"]})
    query = """
        select temp.celsius, keys.k, hum.percent from keys, hum, temp
        where keys.note = temp.note and abs(temp.t - hum.t) <= 1 and hum.percent > 0 -- all of them
        order by 1; -- the end
    """
    result = matwin.sql(query, temp=TEMP, hum=HUM, keys=keys)
    plan = result.explain()
    assert "query, run by DuckDB before: keys , temp; below: keys.note = temp.note" in plan
    assert result.to_arrow().to_pydict() == {
        "celsius": [20, 21], "k": [1, 2], "percent": [40, 50],
    }  # fmt: skip


def test_other_tables_stay_beside_a_join_in_the_middle() -> None:
    keys = pa.table({"k": [1, 2], "note": ["x", "y"]})
    query = """
        select * from temp, keys, hum
        where keys.note = temp.note and abs(temp.t - hum.t) <= 1 order by celsius
    """
    result = matwin.sql(query, temp=TEMP, hum=HUM, keys=keys)
    assert "ε-join" in result.explain()
    assert result.schema.names == [
        "t",
        "celsius",
        "note",
        "k",
        "note_1",
        "t_1",
        "percent",
        "note_2",
    ]
    assert result.to_arrow()["percent"].to_pylist() == [40, 50]


@pytest.mark.parametrize("library", ["sqlglot", "duckdb"])
def test_a_missing_library_is_told_with_its_extra(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        matwin.InputError, match=rf"{library} is missing here: pip install 'matwin\["
    ):
        matwin.sql("select 1")


def test_an_equality_on_an_attribute_is_a_tolerance_of_nothing() -> None:
    query = """
        select a.t from a left bestmatch join b on a.t mindist b.t, a.celsius mindist b.percent
        where a.t = b.t and a.note <> b.note
    """
    result = matwin.sql(query, a=TEMP, b=HUM)
    assert "a.t mindist b.t: ±0" in result.explain()
    assert result.to_arrow()["t"].to_pylist() == [5]
