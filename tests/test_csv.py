"""CSV's fields as values, by every way that CSV comes in and goes out, beside other readers."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from growth import there
from hypothesis import example, given, settings
from hypothesis import strategies as st

import matwin
from matwin.csv_values import Values, ways
from matwin.records import BOM, Records, blocks
from matwin.shares import ReadShare
from matwin.sources import source_of
from matwin.tools.cli import main

Row = tuple[str | None, ...]

FIELDS = st.one_of(
    st.none(),
    st.sampled_from(["", " ", "NA", "null", "nan", "7", '"', "a,b", "a\tb", "a\nb", "a\r\nb", "ö"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)


def tables(columns: int) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*[FIELDS] * columns), max_size=12)


def csv_text(
    rows: list[Row], delimiter: str = ",", end: str = "\n", *, quotes_all: bool = False
) -> bytes:
    """Rows as a careful writer has them: null is nothing, and an empty text is quoted."""

    def field(value: str | None) -> str:
        if value is None:
            return ""
        is_plain = value and not {*value} & {delimiter, '"', "\n", "\r"}
        return value if is_plain and not quotes_all else '"' + value.replace('"', '""') + '"'

    names = [f"c{i}" for i in range(len(rows[0]) if rows else 2)]
    lines = [names, *[[field(value) for value in row] for row in rows]]
    return "".join(delimiter.join(line) + end for line in lines).encode()


def listed(batches: Any) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def schema_of(rows: list[Row]) -> pa.Schema:
    return pa.schema([(f"c{i}", pa.string()) for i in range(len(rows[0]) if rows else 2)])


def by_file(path: Path, schema: pa.Schema) -> list[Row]:
    from matwin.files import files_source

    return listed(files_source(str(path), "left", schema).within(ReadShare.of(2**20)).batches())


def by_tail(path: Path, schema: pa.Schema) -> list[Row]:
    return listed(matwin.tail(path, schema=schema, once=True).batches())


def by_folder(path: Path, schema: pa.Schema) -> list[Row]:
    return listed(matwin.tail(f"{path.parent}/x.*", schema=schema, once=True).batches())


def by_polars(path: Path, schema: pa.Schema) -> list[Row]:
    separator = "\t" if path.suffix == ".tsv" else ","
    types = dict.fromkeys(schema.names, pl.String)
    return pl.read_csv(path, separator=separator, schema=types).rows()


def by_duckdb(path: Path, schema: pa.Schema) -> list[Row]:
    options = "header=true, all_varchar=true, allow_quoted_nulls=false, quote='\"', escape='\"'"
    separator = "\t" if path.suffix == ".tsv" else ","
    asked = f"SELECT * FROM read_csv(?, {options}, delim='{separator}', auto_detect=false, "
    types = ", ".join(f"'{name}': 'VARCHAR'" for name in schema.names)
    found = duckdb.connect().execute(f"{asked}columns={{{types}}})", [str(path)])
    return found.fetchall()  # type: ignore[no-any-return]


WAYS = {"file": by_file, "tail": by_tail, "folder": by_folder}
PEERS = {"polars": by_polars, "duckdb": by_duckdb}


@pytest.mark.parametrize("columns", [1, 2, 3])
@settings(max_examples=40, deadline=None)
@example(rows=[("",) * 3, (None,) * 3, ("a",) * 3], suffix=".csv", end="\n", quotes_all=False)
@given(
    rows=tables(3), suffix=st.sampled_from([".csv", ".tsv", ".csv.gz"]),
    end=st.sampled_from(["\n", "\r\n"]), quotes_all=st.booleans(),
)  # fmt: skip
def test_null_and_the_empty_text_stay_apart(
    columns: int, rows: list[Row], suffix: str, end: str, quotes_all: bool
) -> None:
    """By every way, and as Polars reads it."""
    rows = [row[:columns] for row in rows]
    text = csv_text(rows, "\t" if suffix == ".tsv" else ",", end, quotes_all=quotes_all)
    schema = schema_of(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"x{suffix}")
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
        for name, way in WAYS.items():
            if name == "file" or not suffix.endswith(".gz"):
                assert way(path, schema) == rows, name
        if rows and not suffix.endswith(".gz"):
            assert by_polars(path, schema) == rows


PLAIN = st.one_of(st.none(), st.sampled_from(["", " ", "NA", "null", "a,b", "a\nb", 'a"b', "ö"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=8), st.integers(1, 2))
def test_duckdb_reads_the_same(rows: list[Row], columns: int) -> None:
    rows = [row[:columns] for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.csv")
        path.write_bytes(csv_text(rows))
        assert by_file(path, schema_of(rows)) == by_duckdb(path, schema_of(rows)) == rows


def test_types_that_are_told_by_the_values() -> None:
    """An empty field of text is null, words for null stay texts, and numbers have them."""
    text = 'k,i,x,b,t,none,quoted\na,1,1.5,true,2024-01-01,,""\n,NA,nan,NA,NULL,,""\n"",,,,,,""\n'
    text += '"NA","","","","",,""\nnan,null,NA,,,,""\n'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.csv")
        path.write_text(text)
        found = pa.Table.from_batches(source_of(path, "left").batches()).to_pydict()
    assert str(found.pop("x")) == str([1.5, float("nan"), None, None, None])
    assert str(found.pop("t")[0]) == "2024-01-01"
    assert found == {
        "k": ["a", None, "", "NA", "nan"], "i": [1, None, None, None, None],
        "b": [True, None, None, None, None], "none": [None] * 5, "quoted": [""] * 5,
    }  # fmt: skip


NUMBERS = {
    pa.string(): ["", '""', "NA", "nan", "7"],
    pa.int64(): ["", '""', "NA", "nan", "7", " 8 "],
    pa.float64(): ["", '""', "NA", "nan", "7", "inf"],
    pa.timestamp("s"): ["", '""', "NULL", "2024-01-01 00:00:00"],
    pa.bool_(): ["", '""', "n/a", "true", "0"],
}
MEANT = {"": None, '""': None, "NA": None, "NULL": None, "n/a": None}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(list(NUMBERS)), min_size=2, max_size=5),
    st.lists(st.integers(0, 59), min_size=1, max_size=8), st.integers(1, 8),
)  # fmt: skip
def test_a_field_means_the_same_whatever_stands_beside_it(
    types: list[pa.DataType], picks: list[int], portion: int
) -> None:
    """In any company, and however the records are divided into readings."""
    schema = pa.schema([(f"c{i}", t) for i, t in enumerate(types)])
    rows = [
        [NUMBERS[t][pick % len(NUMBERS[t])] for t in types[:-1]] + [NUMBERS[types[-1]][-1]]
        for pick in picks
    ]
    together = Values(",", schema, schema.names)
    parts = [rows[at : at + portion] for at in range(0, len(rows), portion)]
    found = [
        together.table("".join(",".join(row) + "\n" for row in part).encode(), schema.names)
        for part in parts
    ]
    for at, field in enumerate(schema):
        alone = Values(",", pa.schema([field]), [field.name])
        column = "".join(row[at] + "\n" for row in rows).encode()
        expected = alone.table(column, [field.name])[field.name].to_pylist()
        assert str([v for part in found for v in part[field.name].to_pylist()]) == str(expected)
        for row, value in zip(rows, expected, strict=True):
            if not pa.types.is_string(field.type) and row[at] in MEANT:
                assert value is None


def test_what_is_read_at_once() -> None:
    schema = pa.schema([("k", pa.string()), ("i", pa.int64()), ("x", pa.float64())])
    assert [len(way) for way in ways(schema, ["i"])] == [1]
    assert [len(way) for way in ways(schema, ["k"])] == [1]
    assert [len(way) for way in ways(schema, ["k", "i", "x"])] == [1, 1, 3]
    codes = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("i", pa.int64())])
    assert [len(way) for way in ways(codes, ["k", "i"])] == [1, 2]


# ── where records end ────────────────────────────────────────────────────────────────────────────


class Pieces:
    """Gives these pieces one after the other, and what has no room later."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)

    def readinto(self, room: memoryview) -> int:
        piece = self._pieces.pop(0) if self._pieces else b""
        if len(piece) > len(room):
            self._pieces.insert(0, piece[len(room) :])
        count = min(len(piece), len(room))
        room[:count] = piece[:count]
        return count


PIECES = st.lists(
    st.sampled_from(["a", '"', '""', ",", "\n", "\r\n", ' "', 'x"y', '"a\nb"', ',"', '",']),
    max_size=24,
)


@settings(max_examples=300, deadline=None)
@given(PIECES, st.lists(st.integers(0, 60), max_size=5), st.integers(1, 130))
def test_records_end_where_arrow_sees_their_end(
    parts: list[str], cuts: list[int], block_bytes: int
) -> None:
    """Cut anywhere, quotes in the middle of fields included."""
    data = ("h,i\n" + "".join(parts)).encode()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    found = blocks(Pieces(pieces), Records(","), block_bytes, lambda size: None)
    texts = [bytes(text) for text in found]
    assert b"".join(texts) == data
    parse = pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    texts_only = pa_csv.ConvertOptions(column_types={"h": pa.string(), "i": pa.string()})

    def read(text: bytes) -> list[Any]:
        options = pa_csv.ReadOptions(column_names=["h", "i"], use_threads=False)
        table = pa_csv.read_csv(pa.BufferReader(text), options, parse, texts_only)
        return [tuple(row.values()) for row in table.to_pylist()]

    assert [row for text in texts for row in read(text)] == read(data)


def test_a_byte_order_mark_and_old_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text in (
        b'"k","v"\n"a\nb",1\n,2\n',
        b'"k","v"\r"a\nb",1\r,2\r',
        b'\n\r\n"k","v"\n"a\nb",1\n,2',
    ):
        for mark in (b"", BOM):
            path.write_bytes(mark + text)
            if text[0] != ord("\n") or not mark:
                assert listed(source_of(path, "left").batches()) == [("a\nb", 1), (None, 2)]


@pytest.mark.parametrize("width", [1, 300_000])
def test_rows_and_columns_are_named_in_errors_of_later_blocks(tmp_path: Path, width: int) -> None:
    path = tmp_path / "x.csv"
    path.write_text("t,p\n" + "".join(f"{i},{'x' * width}\n" for i in range(50)) + "50,a,b\n")
    with pytest.raises(matwin.InputError, match=r"x.csv.*Row #52: Expected 2 columns, got 3"):
        listed(source_of(path, "left").within(ReadShare.of(2**20)).batches())


# ── joins and writers ────────────────────────────────────────────────────────────────────────────

LEFT, RIGHT = 't,k\n1,a\n2,\n3,""\n', 't,k\n1,a\n2,\n3,""\n'


def test_rows_without_a_key_match_nothing(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(LEFT)
    files = (str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
    asked: dict[str, Any] = {"on": {"t": 0}, "by": "k"}
    found = matwin.epsilon_join(*files, **asked).read_all().to_pylist()
    assert [row["k"] for row in found] == ["a", ""]
    assert matwin.verify(*files, best=False, **asked).is_equal
    windows = {"time": "t", "windows": {("a", "b"): (0, 0)}, "by": "k"}
    rows = matwin.window_join({"a": files[0], "b": files[1]}, **windows).read_all()
    assert rows["k"].to_pylist() == ["a", ""]
    text = f"select count(*) as n, count(k) as keys from '{files[0]}'"
    assert matwin.sql(text).read_all().to_pylist() == [{"n": 3, "keys": 2}]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz"])
@pytest.mark.parametrize("columns", [1, 3])
@settings(max_examples=25, deadline=None)
@given(rows=tables(2))
def test_what_is_written_reads_back_equal(name: str, columns: int, rows: list[Row]) -> None:
    table = pa.table({"t": range(len(rows)), "c0": [row[0] for row in rows],
                      "c1": [row[1] for row in rows]},
                     schema=pa.schema([("t", pa.int64()), ("c0", pa.string()),
                                       ("c1", pa.string())]))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        names = table.column_names if columns == 3 else ["c0"]
        from matwin.sinks import write

        write(table.select(names).to_reader(), str(path))
        schema = table.select(names).schema
        assert by_file(path, schema) == [tuple(r.values()) for r in table.select(names).to_pylist()]
        if name == "x.csv" and rows:
            types = {n: pl.Int64 if n == "t" else pl.String for n in names}
            found = pl.read_csv(path, schema=types).rows()
            assert found == by_file(path, schema)


ROWS = 't,k\n1,a\n2,\n3,""\n4,NA\n'
MEANING = [(1, "a"), (2, None), (3, ""), (4, "NA")]
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string())])


def told_by(format: str) -> bytes:
    return ROWS.replace(",", "\t").encode() if format == "tsv" else ROWS.encode()


@pytest.mark.parametrize("format", ["csv", "tsv"])
@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_peers(format: str, schema: pa.Schema | None) -> None:
    source = matwin.listen(":0", schema=SCHEMA, format=format)
    items, found = source.items(), []
    with socket.create_connection(source.address) as peer:
        for byte in told_by(format):
            peer.sendall(bytes([byte]))
        while len(found) < 4:
            found += there(items)
    assert [tuple(row.values()) for row in found] == MEANING


def test_growing_files_tell_their_columns(tmp_path: Path) -> None:
    for format in ("csv", "tsv"):
        (tmp_path / f"x.{format}").write_bytes(told_by(format))
        assert listed(matwin.tail(tmp_path / f"x.{format}", once=True).batches()) == MEANING


def test_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard input, both writers, and a job."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "one.csv").write_text("t,v\n1,x\n2,x\n3,x\n4,x\n")
    words = ["join", "-", str(tmp_path / "one.csv"), "--on", "t=0", "--quiet", "--format", "csv"]
    command = [str(Path(sys.executable).parent / "matwin"), *words]
    done = subprocess.run(command, input=ROWS.encode(), capture_output=True, check=False)
    assert b',"a",' in done.stdout and b",,2" in done.stdout and b',"",' in done.stdout, done
    (tmp_path / "job.toml").write_text(
        f'[sources]\na = "{tmp_path / "a.csv"}"\n[cut]\nevery = 10\non = "t"\n[query]\n'
        'sql = "SELECT t, k FROM a ORDER BY t"\n'
    )
    assert main(["query", str(tmp_path / "job.toml"), "--once", "-q"]) == 0
    out = capfd.readouterr().out
    assert out.splitlines()[1:] == ['1,1,"a"', "1,2,", '1,3,""', '1,4,"NA"']
