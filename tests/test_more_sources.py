"""Datasets, lazy frames, rows, folders, JSON lines, standard input and object stores as sources."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sources import TABLE, check, refused, rows_of

import matwin
from matwin.shares import ReadShare
from matwin.sinks import write
from matwin.sources import source_of, two_sources
from matwin.storage.errors import InputError
from matwin.tools.cli import main

# ── datasets ─────────────────────────────────────────────────────────────────────────────────────


def hive(folder: Path, format: str = "parquet") -> pa.Table:
    """Rows in folders k=0 … k=2, as a table in the order of the folders."""
    table = TABLE.append_column("k", pc.bit_wise_and(TABLE["t"], 1))
    ds.write_dataset(table, folder, format=format, partitioning=["k"], partitioning_flavor="hive")
    return table.sort_by([("k", "ascending"), ("t", "ascending")])


@pytest.mark.parametrize("format", ["parquet", "csv", "feather"])
def test_datasets(tmp_path: Path, format: str) -> None:
    expected = hive(tmp_path / "d", format)
    dataset = ds.dataset(tmp_path / "d", format=format, partitioning="hive")
    source = source_of(dataset, "left").within(ReadShare.of(2**20))
    assert source.is_repeatable
    for _ in range(2):
        found = rows_of(source)
        assert found.sort_by([("k", "ascending"), ("t", "ascending")])["t"].equals(expected["t"])
    assert rows_of(source, ["k"]).schema.names == ["k"]
    kept = rows_of(source_of(dataset.filter(pc.field("t") >= 900), "left"), ["t"])
    assert sorted(kept["t"].to_pylist()) == list(range(900, 1000))
    refused_column(source)


def refused_column(source: Any) -> None:
    with pytest.raises(InputError, match="left: column 'no' is not there"):
        source.batches(["no"])


def test_fragments_that_lack_a_column_or_have_another_type(tmp_path: Path) -> None:
    pq.write_table(TABLE.select(["t"]), tmp_path / "a.parquet")
    narrow = TABLE.set_column(0, "t", TABLE["t"].cast(pa.int16())).select(["t", "x"])
    pq.write_table(narrow, tmp_path / "b.parquet")
    dataset = ds.dataset(tmp_path, schema=pa.schema([("x", pa.float64()), ("t", pa.int64())]))
    assert rows_of(source_of(dataset, "left")).equals(dataset.to_table())


def test_datasets_in_memory_and_of_single_row_groups(tmp_path: Path) -> None:
    check(source_of(ds.dataset(TABLE), "left"), TABLE)
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=100)
    whole = ds.dataset(tmp_path / "a.parquet")
    part = next(whole.get_fragments()).subset(row_group_ids=[3, 5])
    some = ds.FileSystemDataset([part], whole.schema, whole.format, whole.filesystem)
    assert rows_of(source_of(some, "left")).equals(some.to_table())


def test_a_scanner_is_read_once() -> None:
    scanner = ds.dataset(TABLE).scanner(columns=["t", "name"], filter=pc.field("t") < 10)
    source = source_of(scanner, "left")
    check(source, TABLE.slice(0, 10).select(["t", "name"]), is_repeatable=False)
    with pytest.raises(InputError, match="same source, which can be read only once"):
        two_sources(scanner, scanner)


def test_a_fragment_that_is_gone(tmp_path: Path) -> None:
    hive(tmp_path / "d")
    dataset = ds.dataset(tmp_path / "d", partitioning="hive")
    for file in (tmp_path / "d" / "k=1").iterdir():
        file.unlink()
    refused(dataset, "k=1", "is not there")


# ── frames and rows ──────────────────────────────────────────────────────────────────────────────


def test_lazy_frames() -> None:
    lazy = pl.from_arrow(TABLE).lazy().filter(pl.col("t") >= 5)
    expected = TABLE.slice(5).cast(pa.schema(
        [("t", pa.int64()), ("x", pa.float64()), ("name", pa.large_string())]
    ))  # fmt: skip
    check(source_of(lazy, "left").within(ReadShare.of(2**20)), expected)


def test_lazy_frames_that_fail() -> None:
    lazy = pl.LazyFrame({"t": ["a"]})
    refused(lazy.select("no"), "columns can't be had")
    refused(lazy.select(pl.col("t").cast(pl.Int64)), "rows can't be had")


def test_lists_of_rows() -> None:
    rows = [{"t": 1, "s": "a"}, {"t": 2.5, "l": ["x", None]}]
    expected = pa.table({"t": [1.0, 2.5], "s": ["a", None], "l": [None, ["x", None]]})
    assert rows_of(source_of(rows, "left")).equals(expected)
    assert source_of(tuple(rows), "left").is_repeatable


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ([{"t": 1}, {"t": None}, {"t": "x"}, {"t": 2}], ["row 2", "'t'", "'x'", "one type"]),
        ([{"t": 1}, {"t": True}], ["row 1", "'t'"]),
        ([{"t": 0.5}, {"t": 2**60 + 1}], ["row 1", "'t'"]),
        ([{"t": 2**70}], ["row 0", "'t'"]),
        ([{1: 2}], ["1", "no text"]),
        ([{}], ["no columns"]),
    ],
)
def test_rows_of_mixed_types(rows: list[Any], texts: list[str]) -> None:
    refused(rows, *texts)


@given(st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(-9, 9), "b": st.text()})))
def test_any_rows_come_back(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return
    found = rows_of(source_of(rows, "left")).to_pylist()
    assert found == [{name: row.get(name) for name in names} for row in rows]


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (None, ["t"]),
        (["x", "y"], ["t"]),
        (pd.Index(["x", "y"], name="k"), ["t", "k"]),
        (pd.RangeIndex(2, name="r"), ["t", "r"]),
        (pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["a", None]), ["t", "a"]),
    ],
)
def test_only_a_named_index_of_pandas_is_a_column(index: Any, names: list[str]) -> None:
    frame = pd.DataFrame({"t": [1, 2]}, index=index)
    source = source_of(frame, "left")
    assert source.schema.names == names
    assert rows_of(source)["t"].to_pylist() == [1, 2]


def test_a_column_that_is_called_like_an_index_stays() -> None:
    frame = pd.DataFrame({"__index_level_0__": [1, 2]})
    assert source_of(frame, "left").schema.names == ["__index_level_0__"]


# ── payload ──────────────────────────────────────────────────────────────────────────────────────

ROWS = 3000


def rich(seed: int) -> pa.Table:
    """Categories, and lists and structs of text, some of them null."""
    return pa.table(
        {
            "t": [i * 7 % ROWS for i in range(ROWS)],
            "k": pa.array([f"key {(i * 7 % ROWS) % 5}" for i in range(ROWS)]).dictionary_encode(),
            "c": pa.array([f"{seed} {i % 11}" for i in range(ROWS)]).dictionary_encode(),
            "l": [[f"a{i}", None, "x" * (i % 70)] if i % 3 else None for i in range(ROWS)],
            "s": [{"a": f"v{i}", "b": [f"{i}"]} if i % 4 else None for i in range(ROWS)],
        }
    )


@pytest.mark.parametrize("options", [{}, {"memory": "1MiB"}, {"materialize": "standard"}])
def test_nested_text_and_categories_are_payload_on_every_way(options: dict[str, Any]) -> None:
    left, right = rich(1), rich(2)
    found = matwin.epsilon_join(left, right, on={"t": 0}, by="k", **options).to_arrow()
    assert found.num_rows == ROWS
    twins = {row["t"]: row for row in right.to_pylist()}
    ours = {row["t"]: row for row in left.to_pylist()}
    for row in found.to_pylist():
        mine = ours[row["t"] if "t" in row else row["t_left"]]
        its = twins[mine["t"]]
        for name in ("c", "l", "s"):
            assert row[name if name in row else f"{name}_left"] == mine[name]
            assert row[f"{name}_right"] == its[name]


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def lines(table: pa.Table) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.ndjson", "a.json", "a.jsonl.gz", "a.json.bz2", "A.JSONL.zst"]
)
def test_json_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}.get(path.suffix, bytes)
    path.write_bytes(pack(lines(TABLE)))
    check(source_of(path, "left").within(ReadShare.of(2**20)), TABLE)


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as packed:
        packed.write(data)
    return out.getvalue().to_pybytes()


def test_json_lines_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"t": 1}\n{"t": "x"}\n')
    refused(path, "a.json", "'t'")
    path.write_text('[{"t": 1}]\n')
    refused(path, "a.json", "line 1", "one object on each line")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(TABLE))[:-9])
    refused(tmp_path / "b.jsonl.gz", "b.jsonl.gz")


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "d" / "deep").mkdir(parents=True)
    pq.write_table(TABLE.slice(0, 400), tmp_path / "d" / "a.parquet")
    feather.write_feather(TABLE.slice(400, 300), tmp_path / "d" / "b.arrow")
    (tmp_path / "d" / "deep" / "c.jsonl").write_bytes(lines(TABLE.slice(700)))
    for name in ("_SUCCESS", ".a.parquet.crc", "_old.parquet", "notes.txt"):
        (tmp_path / "d" / name).write_text("no rows")
    check(source_of(tmp_path / "d", "left"), TABLE)
    check(source_of(f"{tmp_path}/d/", "left"), TABLE)
    check(source_of(f"file://{tmp_path}/d/deep/*.jsonl", "left"), TABLE.slice(700))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_hive_folders(tmp_path: Path, format: str) -> None:
    expected = hive(tmp_path / "d", format)
    source = source_of(tmp_path / "d", "left")
    assert rows_of(source, ["t", "k"]).equals(expected.select(["t", "k"]))
    assert rows_of(source, ["k"]).equals(expected.select(["k"]))
    for column in ("t", "k"):  # a column that the files lack has no statistics
        assert column == "t" or source.row_groups(column) is None


def test_names_of_hive_folders(tmp_path: Path) -> None:
    for folder in ("a=x%2Fy", "a=__HIVE_DEFAULT_PARTITION__", "a=7"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"t": [1]}), tmp_path / folder / "f.parquet")
    found = rows_of(source_of(tmp_path, "left"))
    assert found.schema.field("a").type == pa.string()
    assert sorted(found["a"].to_pylist(), key=str) == ["7", None, "x/y"]
    (tmp_path / "b=1").mkdir()
    pq.write_table(pa.table({"t": [1]}), tmp_path / "b=1" / "f.parquet")
    refused(tmp_path, "is not in all files")


def test_a_files_own_column_stands(tmp_path: Path) -> None:
    (tmp_path / "t=5").mkdir()
    pq.write_table(TABLE, tmp_path / "t=5" / "f.parquet")
    check(source_of(tmp_path, "left"), TABLE)


# ── standard input ───────────────────────────────────────────────────────────────────────────────


def given_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def as_bytes(kind: str) -> bytes:
    out = io.BytesIO()
    if kind.startswith("csv"):
        pa_csv.write_csv(TABLE, out)
    elif kind == "parquet":
        pq.write_table(TABLE, out)
    elif kind.startswith("jsonl"):
        out.write(lines(TABLE))
    else:
        make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with make(out, TABLE.schema) as writer:
            writer.write_table(TABLE)
    data = out.getvalue()
    return gzip.compress(data) if kind.endswith("gz") else data


KINDS = ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet", "stream", "file"]


@pytest.mark.parametrize("kind", KINDS)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    given_input(monkeypatch, as_bytes(kind))
    found = rows_of(source := source_of("-", "left"))
    assert found["t"].equals(TABLE["t"])
    assert rows_of(source).equals(found)
    refused("-", "standard input is empty", "only one side")


# ── object stores ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A server of S3's protocol; what its URIs end in."""
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import FileSystem

    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
             "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    query = (
        f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        "&allow_bucket_creation=true"
    )
    system, _ = FileSystem.from_uri(f"s3://bucket?{query}")
    system.create_dir("bucket")
    yield f"?{query}"
    server.stop()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.jsonl", "a.arrow"])
def test_objects_are_written_and_read(store: str, name: str) -> None:
    uri = f"s3://bucket/round/{name}{store}"
    assert write(TABLE.to_reader(), uri) == TABLE.num_rows
    source = source_of(uri, "left").within(ReadShare.of(2**20))
    assert source.paths == ()
    assert rows_of(source)["t"].equals(TABLE["t"])
    assert rows_of(source, ["x"])["x"].equals(TABLE["x"])
    with pytest.raises(InputError, match="is there already"):
        write(TABLE.to_reader(), uri)
    assert write(TABLE.slice(1).to_reader(), uri, overwrite=True) == TABLE.num_rows - 1


def test_patterns_and_folders_of_objects(store: str) -> None:
    for k in (0, 1):
        write(TABLE.slice(500 * k, 500).to_reader(), f"s3://bucket/many/k={k}/x.parquet{store}")
    check(source_of(f"s3://bucket/many/*/x*.parquet{store}", "left"), TABLE)
    folder = rows_of(source_of(f"s3://bucket/many{store}", "left"))
    assert folder["k"].to_pylist() == [0] * 500 + [1] * 500
    refused(f"s3://bucket/many/*.csv{store}", "no file matches 's3://bucket/many/*.csv'")


def test_a_join_of_objects(store: str) -> None:
    write(TABLE.to_reader(), f"s3://bucket/join/a.parquet{store}")
    uri = f"s3://bucket/join/a.parquet{store}"
    out = f"s3://bucket/join/out.csv.gz{store}"
    matwin.epsilon_join(uri, uri, on={"t": 0}).write(out)
    assert rows_of(source_of(out, "left")).num_rows == TABLE.num_rows


@pytest.mark.parametrize("name", ["out.parquet", "out.csv.gz", "out.jsonl", "out.arrow"])
@pytest.mark.parametrize("command", ["join", "asof", "window-join"])
def test_objects_on_the_command_line(
    store: str, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(TABLE.to_reader(), f"s3://bucket/cli/a.parquet{store}", overwrite=True)
    uri, out = f"s3://bucket/cli/a.parquet{store}", f"s3://bucket/cli/{command}/{name}{store}"
    words = {
        "join": [uri, uri, "--on", "t=0", "--pairs", "all"],
        "asof": [uri, uri, "--on", "t"],
        "window-join": [f"a={uri}", f"b={uri}", "--time", "t", "--window", "a,b=0..0"],
    }
    asked = [command, *words[command], "-o", out]
    assert main([*asked, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows_out"] == TABLE.num_rows and told.err == ""
    assert rows_of(source_of(out, "left")).num_rows == TABLE.num_rows
    assert main([*asked, "-q"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*asked, "-q", "--overwrite"]) == 0
    assert main([*asked[:-1], uri, "-q", "--overwrite"]) == 2
    told = capsys.readouterr()
    assert "is an input" in told.err and "secret" not in told.err


def test_a_bucket_that_is_not_there_on_the_command_line(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    closed = store.replace("&allow_bucket_creation=true", "")
    for words in ([path, f"s3://nobody/a.parquet{closed}"], [path, path]):
        asked = ["join", *words, "--on", "t=0", "-o", f"s3://nobody/o.csv{closed}", "-q"]
        assert main(asked) == 2
        told = capsys.readouterr()
        assert told.err.startswith("matwin: error: ") and told.err.count("\n") == 1
        assert "s3://nobody/" in told.err and "Traceback" not in told.err


def test_a_join_that_fails_leaves_no_object(store: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise KeyError("mine")

    uri = f"s3://bucket/half/a.csv{store}"
    with pytest.raises(KeyError, match="mine"):
        write(pa.RecordBatchReader.from_batches(TABLE.schema, failing()), uri)
    refused(uri, "s3://bucket/half/a.csv", "is not there")


def test_what_is_no_store(store: str) -> None:
    refused("nosuch://b/a.csv", "nosuch://b/a.csv", "no file system")
    refused(f"s3://k:secret@bucket/none.csv{store}", "s3://bucket/none.csv")
    with pytest.raises(InputError) as caught:
        source_of(f"s3://k:secret@bucket/none.csv{store}", "left")
    assert "secret" not in str(caught.value)
