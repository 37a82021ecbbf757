"""What a query can get wrong: a pointed message each, and nothing is run outside its sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.tools.sql.errors import SqlError

temp_rows = pa.table({"t": [1, 5, 9], "x": [1.0, 2.0, 3.0], "room": ["a", "b", "a"]})
hum_rows = pa.table(
    {"t": [2, 5, 8], "x": [1.5, 2.0, 2.5], "room": ["a", "b", "b"], "pct": [1, 2, 3]}
)
log_rows = pa.table({"at": pa.array([1, 2], pa.timestamp("s")), "n": [1, 2]})
BEST = "select * from temp bestmatch join hum on {on} {where}"

# query, what the message says, and the stretch that the carets stand below
WRONG: list[tuple[str, str, str | None]] = [
    ("select * from nowhere", "there is no table 'nowhere'", "nowhere"),
    ("select * from tmp", "(did you mean 'temp'?)", "tmp"),
    ("select * from 'nowhere.parquet'", "nowhere.parquet", "'nowhere.parquet'"),
    ("select * from main.temp", "there is no table or file 'main.temp'", "main.temp"),
    ("select temp.tt from temp, hum where abs(temp.t - hum.t) < 3", "temp has no column 'tt'",
     "temp.tt"),
    ("select a.t from temp, hum where abs(temp.t - hum.t) < 3", "there is no table 'a'", "a.t"),
    ("select t from temp, hum where abs(temp.t - hum.t) < 3", "'t' is ambiguous: 2 tables have it; "
     "write temp.t or hum.t", "t"),
    ("select zzz from temp, hum where abs(temp.t - hum.t) < 3", "no table here has a column 'zzz'",
     "zzz"),
    ("select zzz from temp", "zzz", "zzz"),
    ("select nofunc(t) from temp", "nofunc", None),
    ("select t + from temp", "can't be read as SQL", None),
    ("select * from temp where (t > 3", "can't be read as SQL", None),
    ("select 'abc from temp", "can't be read as SQL", None),
    (BEST.format(on="temp.t nearest hum.t", where=""), "there is no order 'nearest'", "nearest"),
    (BEST.format(on="temp.t mindst hum.t", where=""), "did you mean 'mindist'?", "mindst"),
    (BEST.format(on="temp.t mindist temp.x", where=""), "one of these must be a column of hum",
     "temp.t mindist temp.x"),
    ("select columns('zz') from temp join hum on abs(temp.t - hum.t) < 1", "no column here is "
     "meant by this", "columns('zz')"),
    ("select distinct on (columns('v')) temp.t from temp join hum on abs(temp.t - hum.t) < 1",
     "name the columns here", "columns('v')"),
    ("select * from (temp bestmatch join hum on t) q", "in brackets is written as", None),
    (BEST.format(on="pct", where=""), "no table has 'pct' on the left", "pct"),
    (BEST.format(on="temp.t mindist hum.t, temp.t mindist hum.t", where=""), "stands there twice",
     "temp.t mindist hum.t"),
    (BEST.format(on="temp.room mindist hum.room", where=""), "needs numbers or times", None),
    (BEST.format(on="temp.t mindist hum.t",
                 where="where abs(temp.t - hum.t) < 2 and temp.t - hum.t > 5"),
     "contradicts another condition", "temp.t - hum.t > 5"),
    (BEST.format(on="temp.t mindist", where=""), "has a column 'mindist'", "mindist"),
    ("select * from temp bestmatch join hum", "says what is near", None),
    ("select * from temp, hum, temp where abs(temp.t - hum.t) < 3", "temp is the name of two",
     "temp"),
    ("select temp.t from temp, hum window (temp, hum) = 'soon'", "length is a text such as '5s'",
     "'soon'"),
    ("select temp.t from temp, hum window (temp, hum) = w", "'w' stands for no length", "w"),
    ("select temp.t from temp, hum window (temp, zoo) = 5", "there is no table 'zoo'", "zoo"),
    ("select temp.t from temp, hum window (temp, temp) = 5", "window with itself",
     "window (temp, temp) = 5"),
    ("select temp.t from temp, hum window (temp, hum) = 5 and window (hum, temp) = 3",
     "have a window already", None),
    ("select temp.t from temp, hum window = 5 and window (hum, temp) = 3", "for every pair", None),
    ("select temp.t from temp, hum window (temp, hum) = -5", "the tolerance -5 is negative", None),
    ("select temp.t from temp, hum dwindow = 5", "needs its streams", None),
    ("select a.t from temp a, hum b, temp c window (a, b) = 5 or window (b, c) = 3",
     "a path and its reverse", None),
    ("select a.t from temp a, hum b, temp c dwindow (a, b) = (3, 5) and dwindow (b, c) = 1",
     "then((3, 5)) takes one duration", None),
    ("select a.t from temp a, hum b, temp c window (a, b) = (5, 6) and window (b, c) = (5, 6) and "
     "window (a, c) = 3", "contradict each other along", None),
    ("select a.t from temp a, hum b, temp c, hum d window (a, b) = 5 and window (c, d) = 3",
     "nothing connects", None),
    ("select a.t from temp a, log b window (a, b) = 5", "they can't be compared", None),
    ("select a.n from log a, log b window (a, b) = 5", "does not say its unit", None),
    ("select a.room from (select room from temp) a, hum b window (a, b) = 5",
     "which column holds the time of a", None),
    ("select * from stream(temp, 'CUT ON t BY 5 PARSECS') s", "'PARSECS' is no unit of time", None),
    ("select * from stream(temp, 'CUT') s", "this is no cut", None),
    ("select * from stream(temp, 'CUT ON tt BY 5') s", "no column 'tt' to cut on", None),
    ("select * from stream(nowhere, 'CUT ON t BY 5') s", "there is no stream 'nowhere'", None),
    ("select * from stream(temp, 'CUT ON t BY 5', 'BLOCK', 0) s", "at least 1", None),
    ("select * from stream(temp, 'CUT ON t BY 5', 'SLAB') s", "third argument is 'BLOCK'", None),
    ("select * from stream(temp, 'CUT ON tt BY 5') s", "no column 'tt' to cut on",
     "'CUT ON tt BY 5'"),
    ("select * from stream(temp, 'CUT ON room BY 5') s", "cut on a number or a time",
     "'CUT ON room BY 5'"),
    ("select * from stream(temp, 'CUT ON t BY 5') a, stream(temp, 'CUT BY 2 ROWS') b",
     "temp is cut on t by 5 and temp cut by 2 rows: all streams of a query are cut alike",
     "'CUT BY 2 ROWS'"),
    ("select temp.t from temp, hum window (temp, hum) = null", "a window's length is a text", None),
    ("select temp.t from temp, hum where temp.t = 1 or window (temp, hum) = 3",
     "windows stand in a clause of their own", "window (temp, hum) = 3"),
    ("select temp.t from temp join hum on window (temp, hum) = 3",
     "windows stand in a clause of their own", "window (temp, hum) = 3"),
    ("select a.t from temp a, hum b, temp c window (a, b) = 3 where true window (b, c) = 4",
     "all windows stand together", "window"),
    ("select a.t from temp a, hum b window (a, b) = 3 and a.t = 4",
     "other conditions stand in the where clause", "a"),
    (BEST.format(on="temp.t mindist hum.t and temp.x mindist hum.x", where=""),
     "attributes are separated by commas", "and"),
    (BEST.format(on="temp.t = hum.t", where=""), "a bestmatch join is on attributes", "="),
    (BEST.format(on="temp.t + 1 mindist hum.t", where=""), "comes from a subquery", "+"),
    ("select * from temp bestmatch hum on t", "is written as R bestmatch join S", "hum"),
    ("select count(*) from temp where t >;", "something is missing after '>'", ">"),
    ("select t + from temp", "something is missing before 'from'", "from"),
    ("select * from;", "a table is missing after 'from'", "from"),
    ("select count(* from temp", ") is missing before 'from'", "from"),
    ("selct * from temp", "(did you mean 'select'?)", "selct"),
    ("-- form\nselect * form temp", "'form' is not expected here (did you mean 'from'?)", "form"),
    ("select * from temp wher t > 3", "(did you mean 'where'?)", "wher"),
    ("foo;", "a query begins with select, with or from, not with 'foo'", "foo"),
    ("explain select 1", "not EXPLAIN; .explain at the prompt", "explain"),
    ("show tables", "not SHOW; .tables at the prompt", "show"),
    ("describe temp", "not DESCRIBE; .schema at the prompt", "describe"),
    ("summarize temp", "in a query it is from (summarize a)", "summarize"),
    ("select;", "name what is selected", "select"),
    ("select * from temp where t > ?", "there are no parameters here", "t > ?"),
    ("select $1 from temp", "there are no parameters here", "$1"),
    ("select temp.t from temp join hum", "say how the two are joined", "join hum"),
    ("select temp.t from temp left join hum where true", "say how the two are joined",
     "left join hum"),
    ("select 1, 'abc from temp", "the string that begins here has no end", "'"),
    ("select 1 /* abc", "the comment that begins here has no end", "/"),
    ("select 1; select 2", "one query at a time", "select 2"),
    ("", "there is no query", None),
    (";", "there is no query", None),
    ("-- nothing", "there is no query", None),
]  # fmt: skip


def test_carets_stand_below_wide_signs_and_tabs() -> None:
    _, line, carets = refusal("select\t'日本語日本語' as x, tt from temp").splitlines()
    assert line == "  select '日本語日本語' as x, tt from temp"
    assert carets == " " * 30 + "^^"


def test_messages_are_those_of_sql(capfd: pytest.CaptureFixture[str]) -> None:
    said = refusal("select temp.t from temp, hum window (temp, hum) = -5")
    assert "is negative" in said and "command line" not in said
    said = refusal("select * from gone", gone=None)
    assert "gone is None; give a table" in said
    refusal("explain select 1")
    assert capfd.readouterr().err == ""  # sqlglot's logger has nothing to say


def refusal(query: str, **sources: Any) -> str:
    with pytest.raises(matwin.InputError) as caught:
        matwin.sql(query, temp=temp_rows, hum=hum_rows, log=log_rows, **sources)
    return str(caught.value)


@pytest.mark.parametrize(("query", "message", "below"), WRONG, ids=[one[0][:60] for one in WRONG])
def test_messages_point_at_what_is_wrong(query: str, message: str, below: str | None) -> None:
    said = refusal(query)
    assert message in said
    if below is not None:
        head, line, carets = said.splitlines()
        start = carets.index("^")
        assert line[start : carets.rindex("^") + 1] == below
        assert re.match(r"line \d+, column \d+: ", head)


FOREIGN = [
    "attach 'x.db'", "copy temp to 'x.csv'", "copy (select 1) to 'x.csv'", "install httpfs",
    "load httpfs", "pragma version", "set memory_limit = '1GB'", "create table x as select 1",
    "drop table temp", "insert into temp values (1)", "update temp set t = 1", "delete from temp",
    "export database 'x'", "import database 'x'", "call pragma_version()", "use x", "checkpoint",
    "explain select 1", "describe temp", "show tables", "summarize temp", "detach x", "vacuum",
    "begin", "select * from read_csv('{file}')", "select * from read_parquet('{file}')",
    "select * from read_text('{file}')", "select * from read_blob('{file}')",
    "select * from glob('{folder}/*')", "select * from parquet_metadata('{file}')",
    "select * from query('select 1')", "select * from query_table('temp')",
    "select * from duckdb_settings()", "select * from pragma_version()",
    "select * from information_schema.tables", "select * from sqlite_master",
    "select * from pg_catalog.pg_tables", "select * from duckdb_tables",
    "with x as (select * from read_csv('{file}')) select * from x",
    "select (select count(*) from read_csv('{file}'))",
    "select t from temp where exists (from read_text('{file}'))",
    "select a.t from temp a, (select * from read_csv('{file}')) b where abs(a.t - b.t) < 3",
    "select getenv('HOME')", "select current_setting('nothing')",
    "select * from secret", "select * from TEMP_SECRET",
]  # fmt: skip
secret = "not a table"


@pytest.mark.parametrize("query", FOREIGN)
def test_nothing_outside_the_sources_is_reached(query: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("t,word\n1,hidden\n")
    before = sorted(tmp_path.iterdir())
    said = refusal(query.format(file=file, folder=tmp_path))
    assert "hidden" not in said
    assert sorted(tmp_path.iterdir()) == before


HOSTILE = [
    'a"b', "a'b", "a;drop table x", "a.b", "a b", "ä→ℝ", "select", "a\nb", "a--b", "/*", "*/", "%s",
    "{0}", "\\", "__matwin_1", "rowid", "true", "1a", " ", "a\u202eb", "$1", "?", "😀",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_carried_faithfully(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    a = pa.table({"t": [1, 5], name: [3, 4]})
    b = pa.table({"t": [2, 5], name: [7, 8]})
    query = f"""
        select a.{quoted}, b.{quoted} + 1 as other from {quoted} a join b
        on abs(a.t - b.t) <= 1 where a.{quoted} > 0 and b.{quoted} + a.{quoted} > 0 order by other
    """
    found = matwin.sql(query, **{name: a, "b": b}).to_arrow()
    assert found.schema.names == [name, "other"]
    assert found.to_pydict() == {name: [3, 4], "other": [8, 9]}
    everything = matwin.sql(
        f"select * from {quoted} left bestmatch join b on t", **{name: a, "b": b}
    )
    assert everything.to_arrow().num_rows == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_strings_stay_strings(name: str) -> None:
    text = "'" + name.replace("'", "''") + "'"
    a = pa.table({"t": [1, 5], "s": [name, "other"]})
    found = matwin.sql(
        f"select a.t, {text} as said from a join a b on abs(a.t - b.t) <= 1 where a.s = {text}", a=a
    )
    assert found.to_arrow().to_pylist() == [{"t": 1, "said": name}]


def test_a_stream_needs_an_end_to_its_order_attribute() -> None:
    stream = matwin.stream(temp_rows, on="t")
    said = refusal("select * from s left bestmatch join hum on s.t mindist hum.t", s=stream)
    assert "s is a stream, and nothing says how far apart s.t and hum.t may be" in said
    assert "abs(s.t - hum.t) <= …" in said
    found = matwin.sql(
        "select s.t, hum.t as u from s left bestmatch join hum on s.t mindist hum.t "
        "where abs(s.t - hum.t) <= 1", s=stream, hum=hum_rows,
    )  # fmt: skip
    assert sorted(found.to_arrow().to_pylist(), key=str) == [
        {"t": 1, "u": 2}, {"t": 5, "u": 5}, {"t": 9, "u": 8},
    ]  # fmt: skip


def test_what_can_be_read_once_is_not_read_twice_in_silence() -> None:
    reader = temp_rows.to_reader()
    with pytest.raises(matwin.InputError, match="can be read only once"):
        matwin.sql("select count(*) from r a join r b on a.t = b.t", r=reader).to_arrow()


def test_deep_and_long_queries_are_refused_in_order() -> None:
    deep = "select " + "(" * 5000 + "1" + ")" * 5000
    assert "brackets within each other" in refusal(deep)
    assert "characters" in refusal("select " + "1 + " * 400_000 + "1")
    assert "NUL" in refusal("select 'a\0b'")


def test_an_error_while_rows_are_read_is_our_own(tmp_path: Path) -> None:
    def rows() -> Any:
        yield temp_rows.to_batches()[0]
        raise ValueError("the cable is cut")

    source = matwin.stream(rows(), on="t", schema=temp_rows.schema, live=False)
    query = "select count(*) from s join hum on abs(s.t - hum.t) <= 1 where hum.pct + s.t > 0"
    with pytest.raises(ValueError, match="the cable is cut"):
        matwin.sql(query, s=source, hum=hum_rows).to_arrow()


def test_division_and_casts_that_fail_are_told(tmp_path: Path) -> None:
    result = matwin.sql("select room::int from temp", temp=temp_rows)
    with pytest.raises(matwin.InputError, match="Could not convert string"):
        result.to_arrow()


def test_errors_have_line_and_column() -> None:
    with pytest.raises(SqlError) as caught:
        matwin.sql(
            "select *\nfrom temp\nbestmatch join hum on temp.q mindist hum.t",
            temp=temp_rows,
            hum=hum_rows,
        )
    assert (caught.value.line, caught.value.column) == (3, 23)


def test_options_are_checked() -> None:
    with pytest.raises(matwin.InputError, match="give a dict"):
        matwin.sql("select 1", "256MiB")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        matwin.sql("select 1", {"memry": 1})  # type: ignore[typeddict-unknown-key]


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    from matwin.tools import cli

    file = tmp_path / "in.parquet"
    pq.write_table(temp_rows, file)
    before = file.read_bytes()
    query = f"select * from '{file}'"
    assert cli.main(["sql", "-q", "--overwrite", "-c", query, "-o", str(file)]) == 2
    assert file.read_bytes() == before
