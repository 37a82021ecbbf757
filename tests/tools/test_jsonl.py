"""JSON lines as columns: types from the lines or declared, and nothing changed on the way."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import as_bag

from matwin.files import files_source
from matwin.jsonl import Line, Reading, declared_schema, line_of, schema_of
from matwin.sinks import write
from matwin.storage.errors import InputError
from matwin.tools.cli import main

HOSTILE = {
    "deep": '{"t": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deeper than is kept": '{"t": 1, "x": ' + "[" * 64 + "]" * 64 + "}",
    "deep objects": '{"x":' * 100_000 + "1" + "}" * 100_000,
    "half a pair": '{"t": 1, "x": "\\ud800"}',
    "half a pair in a name": '{"t": 1, "\\udfff": 1}',
    "half a pair inside": '{"t": 1, "x": [{"a": ["\\ud83d x"]}]}',
    "a number of 5000 digits": '{"t": ' + "9" * 5000 + "}",
    "a large number": '{"t": 99999999999999999999999}',
    "a zero byte": '{"t": 1, "x": "\0"}',
    "bytes": b'{"t": 1, "x": "\xff"}',
    "a line without end": b'{"t": 1, "x": "' + b"x" * (5 * 2**20),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("more", [[], ["--schema", "a=t:int64,x:string"]])
def test_hostile_lines_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, more: list[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    other = tmp_path / "b.jsonl"
    other.write_text('{"t": 1}\n')
    words = [f"a={path}", f"b={other}", "--time", "t", "--window", "1", *more]
    assert main(["window-join", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("matwin: error: a: ") and err.count("\n") == 1
    assert "line 1" in err or "column 't'" in err
    assert len(err) < 1000


def test_whole_pairs_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": "\\ud83d\\ude00", "l": ' + "[" * 63 + "]" * 63 + "}\n")
    source = files_source(str(tmp_path / "a.jsonl"), "a", None)
    assert next(source.batches()).column("x").to_pylist() == ["\U0001f600"]


def lines(*rows: dict[str, Any]) -> list[Line]:
    return [Line(number, row) for number, row in enumerate(rows, start=1)]


def file_of(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ── types ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, -(2**63)], pa.int64()),
        ([1, 0.5], pa.float64()),
        ([True, None], pa.bool_()),
        (["a", "2024-01-01"], pa.string()),
        ([None], pa.string()),
        (["2024-01-01", "2024-12-31"], pa.date32()),
        (["2024-01-01T10:00", "2024-01-01 10:00:00.5"], pa.timestamp("us")),
        (["2024-01-01T10:00:00.123456789"], pa.timestamp("ns")),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00+02:00"], pa.timestamp("us", "UTC")),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], pa.string()),
        ([[1, 2], []], pa.list_(pa.int64())),
        ([{"a": 1}], pa.struct([("a", pa.int64())])),
    ],
)
def test_types_come_from_the_lines(values: list[Any], expected: pa.DataType) -> None:
    rows = lines(*({"x": value} for value in values))
    schema = schema_of(rows, "a")
    assert schema.field("x").type == expected
    assert Reading("a", schema, False).batch(rows).num_rows == len(values)


@pytest.mark.parametrize("values", [[1, "a"], [True, 1], [[1], 1]])
def test_values_of_no_one_type_are_an_error(values: list[Any]) -> None:
    with pytest.raises(InputError, match="a: column 'x' has values of no one type"):
        schema_of(lines(*({"x": value} for value in values)), "a")


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1, 10**30])
def test_whole_numbers_beyond_64_bits(value: int) -> None:
    rows = lines({"x": 1}, {"x": None}, {"x": value})
    with pytest.raises(InputError) as caught:
        schema_of(rows, "left: file 'a'")
    said = str(caught.value)
    assert said.startswith(f"left: file 'a': line 3: column 'x' is {value}, which does not fit 64")
    for word in ("decimal(38, 0)", *(["uint64"] if value == 2**63 else [])):
        declared = Reading("a", declared_schema(f"x:{word}", "--schema"), True)
        assert declared.batch(rows).column(0).to_pylist() == [1, None, value]


def test_declared_types() -> None:
    text = "t:timestamp[us, tz=Europe/Berlin],a:b:int64,d:decimal(9, 2),s:duration[ms],z:string"
    schema = declared_schema(text, "--schema")
    assert schema.names == ["t", "a:b", "d", "s", "z"]
    assert schema.field("t").type == pa.timestamp("us", "Europe/Berlin")
    assert schema.field("d").type == pa.decimal128(9, 2)


@pytest.mark.parametrize("text", ["t", "t:", ":int64", "t:int63", "t:int64,t:int64", "", "t:[us]"])
def test_bad_declarations(text: str) -> None:
    with pytest.raises(InputError, match="--schema"):
        declared_schema(text, "--schema")


# ── values ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("timestamp[ms]", "2024-01-01T00:00:00.5", dt.datetime(2024, 1, 1, 0, 0, 0, 500_000)),
        ("timestamp[s]", 1704067200, dt.datetime(2024, 1, 1)),
        ("date32", "2024-01-01", dt.date(2024, 1, 1)),
        ("date32", 19723, dt.date(2024, 1, 1)),
        ("time64[us]", "10:00:00.25", dt.time(10, 0, 0, 250_000)),
        ("time32[s]", 36000, dt.time(10)),
        ("duration[ms]", "1500ms", dt.timedelta(milliseconds=1500)),
        ("duration[s]", 90, dt.timedelta(seconds=90)),
        ("binary", "/wA=", b"\xff\x00"),
        ("decimal(9, 2)", "1.10", Decimal("1.10")),
        ("double", 3, 3.0),
        ("int8", -3, -3),
        ("string", "3", "3"),
        ("bool", True, True),
    ],
)
def test_values_of_declared_types(word: str, value: Any, expected: Any) -> None:
    reading = Reading("a", declared_schema(f"x:{word}", "--schema"), True)
    assert reading.batch(lines({"x": value}, {}))["x"].to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("int64", 1.5), ("int64", "1"), ("int64", True), ("int8", 300), ("double", 2**53 + 1),
        ("double", "1"), ("string", 1), ("bool", 1), ("timestamp[s]", "2024-01-01T00:00:00.5"),
        ("timestamp[us]", "2024-01-01T00:00:00Z"), ("timestamp[us, tz=UTC]", "2024-01-01T00:00:00"),
        ("timestamp[us]", 1.5), ("timestamp[us]", "soon"), ("date32", "2024-13-01"),
        ("time32[s]", "10:00:00.5"), ("duration[s]", "1500ms"), ("duration[s]", "long"),
        ("binary", "?"), ("decimal(9, 2)", "1.234"), ("decimal(9, 2)", "much"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named(word: str, value: Any) -> None:
    reading = Reading("a", declared_schema(f"x:{word}", "--schema"), True)
    with pytest.raises(InputError, match=r"a: line 2: column 'x' is .*; declare its type"):
        reading.batch(lines({}, {"x": value}))


def test_moments_as_text_and_as_counts_in_one_batch() -> None:
    reading = Reading("a", declared_schema("x:timestamp[s]", "--schema"), True)
    found = reading.batch(lines({"x": 0}, {"x": "1970-01-01T00:00:01"}))
    assert found["x"].cast(pa.int64()).to_pylist() == [0, 1]


def test_other_names() -> None:
    schema = pa.schema([("x", pa.int64())])
    rows = lines({"x": 1}, {"x": 2, "y": 3})
    assert Reading("a", schema, True).batch(rows).schema.names == ["x"]
    with pytest.raises(InputError, match="a: line 2 has a column 'y'"):
        Reading("a", schema, False).batch(rows)


@pytest.mark.parametrize("text", [b"{", b"[1]", b"1", b'{"a": \xff}', b"{}{}", b"no"])
def test_bad_lines(text: bytes) -> None:
    with pytest.raises(InputError, match="a: line 7 is no JSON"):
        line_of(text, 7, "a")
    assert line_of(b" \r", 7, "a") is None


VALUES = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "text": st.none() | st.text(),
        "t": st.none() | st.integers(-(2**50), 2**50),
        "raw": st.none() | st.binary(),
        "took": st.none() | st.integers(-(2**50), 2**50),
    }
)
SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("text", pa.string()),
     ("t", pa.timestamp("us", "UTC")), ("raw", pa.binary()), ("took", pa.duration("us"))]
)  # fmt: skip


@given(st.lists(VALUES, max_size=5))
def test_what_we_write_we_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    write(table.to_reader(), str(path), overwrite=True)
    source = files_source(str(path), "a", SCHEMA)
    assert pa.Table.from_batches(source.batches(), SCHEMA).equals(table)


# ── files ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_read_again_and_by_columns(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.jsonl", *({"t": i, "k": str(i)} for i in range(200_000)))
    source = files_source(str(path), "a", None)
    for _ in range(2):
        batches = list(source.batches(["k"]))
        assert max(batch.num_rows for batch in batches) <= 65536
        table = pa.Table.from_batches(batches)
        assert table.column_names == ["k"] and table["k"][199_999].as_py() == "199999"
    with pytest.raises(InputError, match="'z' is not there"):
        source.batches(["z"])


def test_files_that_say_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        files_source(str(tmp_path / "nowhere.jsonl"), "a", None)
    empty = file_of(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match="has no line to tell its columns"):
        files_source(str(empty), "a", None)
    assert list(files_source(str(empty), "a", SCHEMA).batches()) == []


def test_the_command_joins_files_of_json_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a = file_of(tmp_path / "a.jsonl", {"t": "2024-01-01T00:00:03Z", "k": 1}, {"t": None, "k": 1})
    b = file_of(tmp_path / "b.jsonl", {"t": "2024-01-01T01:00:01+01:00", "k": 1})
    words = [f"a={a}", f"b={b}", "--time", "t", "--window", "5s", "--by", "k", "--verify"]
    assert main(["window-join", *words, "--format", "csv"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[1] == "1,2024-01-01 00:00:03.000000Z,2024-01-01 00:00:01.000000Z"
    assert "1 rejected" in err and "equal: DuckDB finds the same rows, 1 in all" in err


def test_the_command_reads_standard_input_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"t": [1, 2], "k": ["x", "y"]}), tmp_path / "b.parquet")
    rows = file_of(tmp_path / "rows", {"t": 2, "k": "x"}, {"t": 0, "k": "y"}, {"t": 9, "k": "x"})
    out = tmp_path / "out.parquet"
    with rows.open("rb") as given_rows:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given_rows))
        words = ["a=-", f"b={tmp_path}/b.parquet", "--time", "t", "--window", "2", "--by", "k"]
        assert main(["window-join", *words, "-o", str(out), "--overwrite"]) == 0
    assert as_bag(pq.read_table(out)) == {("x", 2, 1): 1, ("y", 0, 2): 1}
