"""Results in files, pipes and tables: what goes in comes out, whole or not at all."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import needs_root, tmpfs

from matwin import sinks
from matwin.sinks import write
from matwin.storage.errors import InputError, StoreError

TABLE = pa.table(
    {
        "t": pa.array([1, None, 2**62], pa.int64()),
        "x": [0.5, float("nan"), None],
        "name": ["a", None, 'q"uo,te\nd'],
    }
)


def reader(table: pa.Table, rows: int = 2) -> pa.RecordBatchReader:
    """The table as a join would give it, a few rows at a time."""
    batches = table.to_batches(max_chunksize=rows)
    return pa.RecordBatchReader.from_batches(table.schema, iter(batches))


def broken(error: Exception, table: pa.Table = TABLE) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise error

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def read_ipc(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def read_json(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def same(one: pa.Table, two: pa.Table) -> bool:
    """Equal, NaN too."""
    return one.schema.equals(two.schema) and repr(one.to_pylist()) == repr(two.to_pylist())


@pytest.mark.parametrize(
    ("name", "read"),
    [("a.parquet", pq.read_table), ("a.PQ", pq.read_table), ("a.arrow", read_ipc),
     ("a.ipc", read_ipc), ("a.feather", read_ipc)],
)  # fmt: skip
def test_binary_files(tmp_path: Path, name: str, read: Callable[[Path], pa.Table]) -> None:
    path = tmp_path / name
    assert write(reader(TABLE), str(path)) == 3
    assert same(read(path), TABLE)
    assert list(tmp_path.iterdir()) == [path]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert write(reader(TABLE), str(path)) == 3
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["t", "x", "name"], ["1", "0.5", "a"], ["", "nan", ""], [str(2**62), "", 'q"uo,te\nd'],
        ]  # fmt: skip
    assert write(reader(TABLE), str(tmp_path / "a.tsv")) == 3
    assert (tmp_path / "a.tsv").read_text().startswith('"t"\t"x"\t"name"\n1\t0.5\t"a"\n')


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert write(reader(TABLE), str(path)) == 3
    assert read_json(path) == [
        {"t": 1, "x": 0.5, "name": "a"},
        {"t": None, "x": None, "name": None},
        {"t": 2**62, "x": None, "name": 'q"uo,te\nd'},
    ]


RICH = pa.table(
    {
        "ns": pa.array([1, None], pa.timestamp("ns")),
        "zoned": pa.array([0, None], pa.timestamp("s", "Europe/Berlin")),
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "time": pa.array([61, None], pa.time32("s")),
        "took": pa.array([1500, None], pa.duration("ms")),
        "bytes": pa.array([b"\xff\x00", None]),
        "kind": pa.array(["a", None]).dictionary_encode(),
        "view": pa.array(["v", None], pa.string_view()),
        "run": pc.run_end_encode(pa.array([7, 7])),
        "list": pa.array([[1.5, float("nan")], None]),
        "struct": pa.array([{"a": b"\x01", "b": dt.datetime(2024, 1, 1)}, None]),
        "exact": pa.array([Decimal("1.50"), None]),
        "inf": pa.array([float("inf"), float("-inf")]),
        "none": pa.nulls(2),
    }
)


def test_rich_types_as_json(tmp_path: Path) -> None:
    write(reader(RICH), str(tmp_path / "a.json"))
    one, two = read_json(tmp_path / "a.json")
    assert one == {
        "ns": "1970-01-01T00:00:00.000000001", "zoned": "1970-01-01T00:00:00Z",
        "day": "2024-02-29", "time": "00:01:01", "took": "1500ms",
        "bytes": base64.b64encode(b"\xff\x00").decode(), "kind": "a", "view": "v", "run": 7,
        "list": [1.5, None], "struct": {"a": "AQ==", "b": "2024-01-01T00:00:00"},
        "exact": "1.50", "inf": None, "none": None,
    }  # fmt: skip
    assert two == {name: 7 if name == "run" else None for name in RICH.schema.names}


def test_rich_types_as_csv(tmp_path: Path) -> None:
    write(reader(RICH), str(tmp_path / "a.csv"))
    with (tmp_path / "a.csv").open(newline="") as file:
        one, two = csv.DictReader(file)
    assert json.loads(one["list"]) == [1.5, None]
    assert json.loads(one["struct"])["a"] == "AQ=="
    assert (one["took"], one["bytes"], one["run"]) == ("1500ms", "/wA=", "7")
    assert (one["kind"], one["view"], one["exact"], one["inf"]) == ("a", "v", "1.50", "inf")
    assert one["ns"] == "1970-01-01 00:00:00.000000001"
    assert {two[name] for name in RICH.schema.names if name not in ("run", "inf")} == {""}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_rich_types_as_binary(tmp_path: Path, name: str) -> None:
    write(reader(RICH), str(tmp_path / name))
    found = pq.read_table(tmp_path / name) if "parquet" in name else read_ipc(tmp_path / name)
    for column in set(RICH.schema.names) - {"run", "ns", "list"}:
        assert found[column].to_pylist() == RICH[column].to_pylist(), column
    assert found["ns"].cast(pa.int64()).to_pylist() == [1, None]
    assert found["run"].combine_chunks().to_pylist() == [7, 7]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_dictionaries_that_differ_from_batch_to_batch(tmp_path: Path, name: str) -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("kind", kind), ("kinds", pa.list_(kind))])
    batches = [
        pa.RecordBatch.from_pylist([{"kind": w, "kinds": words} for w in words], schema)
        for words in (["a", "b"], ["c"], ["b", "a"])
    ]
    write(pa.RecordBatchReader.from_batches(schema, iter(batches)), str(tmp_path / name))
    found = pq.read_table(tmp_path / name) if "parquet" in name else read_ipc(tmp_path / name)
    assert found["kind"].to_pylist() == ["a", "b", "c", "b", "a"]
    assert found["kinds"].to_pylist()[2:4] == [["c"], ["b", "a"]]


def test_small_batches_become_large_groups(tmp_path: Path) -> None:
    numbers = pa.table({"t": np.arange(3000)})
    write(reader(numbers, rows=1), str(tmp_path / "a.parquet"))
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 1
    write(reader(numbers, rows=1), str(tmp_path / "a.arrow"))
    with pa.OSFile(str(tmp_path / "a.arrow")) as file:
        assert pa.ipc.open_file(file).num_record_batches == 1


def test_at_most_a_group_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "GROUP_ROWS", 100)
    write(reader(pa.table({"t": np.arange(1000)}), rows=30), str(tmp_path / "a.parquet"))
    about = pq.read_metadata(tmp_path / "a.parquet")
    assert [about.row_group(i).num_rows for i in range(about.num_row_groups)] == [120] * 8 + [40]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl", "a.tsv"])
def test_no_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write(reader(TABLE.slice(0, 0)), str(path)) == 0
    if name.endswith("parquet"):
        assert pq.read_table(path).equals(TABLE.slice(0, 0))
    elif name.endswith("csv"):
        assert path.read_text() == '"t","x","name"\n'


# ── files that appear when they are complete ─────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("error", [KeyError("mine"), StoreError("a page"), ValueError("bad")])
def test_an_error_of_the_join_passes_and_leaves_what_was_there(
    tmp_path: Path, name: str, error: Exception
) -> None:
    path = tmp_path / name
    path.write_text("before")
    with pytest.raises(type(error)) as caught:
        write(broken(error), str(path), overwrite=True)
    assert caught.value is error or str(caught.value) == str(error)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_is_taken_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        assert not path.exists()

    write(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), str(path))
    assert path.exists()


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "sub" / "real.csv")
    write(reader(TABLE), str(tmp_path / "link.csv"))
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "sub" / "real.csv").read_text().startswith('"t"')


def test_a_device_is_written_and_not_replaced() -> None:
    assert write(reader(TABLE), "/dev/null", format="parquet") == 3
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("kind", ["csv", "parquet", "ipc", "jsonl", "table"])
def test_a_full_device(kind: str) -> None:
    with pytest.raises(StoreError, match="the disk is full"):
        write(reader(TABLE), "/dev/full", format=kind)


@needs_root
@pytest.mark.fault
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.jsonl"])
def test_a_full_disk_leaves_no_part(tmp_path: Path, name: str) -> None:
    noise = pa.table({"x": np.random.default_rng(5).random(400_000)})
    with tmpfs(tmp_path / "small", 2**20) as folder:
        with pytest.raises(StoreError, match="the disk is full"):
            write(reader(noise, rows=10_000), str(folder / name))
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ("missing/a.csv", "its folder is not there"),
        ("", "suffix"),
        ("a.xlsx", "the suffix of"),
        ("a", "has no suffix that says its format"),
        ("nul\0.csv", "null"),
        ("folder.csv", "is a folder"),
        ("file/a.csv", "can't be written"),
    ],
)
def test_bad_names(tmp_path: Path, out: str, text: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises((InputError, StoreError), match=text):
        write(reader(TABLE), f"{tmp_path}/{out}" if out else out)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="may not be written"):
        write(reader(TABLE), str(tmp_path / "a.csv"))


def test_formats_that_are_not_known_or_do_not_hold_the_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the format 'xml' is none of"):
        write(reader(TABLE), str(tmp_path / "a.csv"), format="xml")
    odd = pa.table({"d": pa.array([pa.MonthDayNano([1, 2, 3])])})
    with pytest.raises(InputError, match="can't hold these rows"):
        write(reader(odd), str(tmp_path / "a.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_the_given_format_wins_over_the_suffix(tmp_path: Path) -> None:
    write(reader(TABLE), str(tmp_path / "a.csv"), format="JSON")
    assert len(read_json(tmp_path / "a.csv")) == 3


# ── standard output ──────────────────────────────────────────────────────────────────────────────

CHILD = """
import pyarrow as pa, sys
from matwin.sinks import write
table = pa.table({"t": [1, 2, 3], "name": ["a", None, "c"]})
write(table.to_reader(), None if sys.argv[1] == "none" else "-", format=sys.argv[2] or None)
"""


def piped(out: str, format: str) -> bytes:
    command = [sys.executable, "-c", CHILD, out, format]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_pipes() -> None:
    expected = {"t": [1, 2, 3], "name": ["a", None, "c"]}
    assert piped("none", "") == piped("-", "csv") == b'"t","name"\n1,"a"\n2,\n3,"c"\n'
    assert pq.read_table(io.BytesIO(piped("-", "parquet"))).to_pydict() == expected
    assert pa.ipc.open_stream(piped("-", "arrow")).read_all().to_pydict() == expected
    assert json.loads(piped("-", "jsonl").splitlines()[1]) == {"t": 2, "name": None}


def test_live_rows_leave_at_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in TABLE.to_batches(max_chunksize=1):
            yield batch
            seen.append(capfdbinary.readouterr().out)

    write(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), "-", format="jsonl")
    assert [json.loads(part)["t"] for part in seen] == [1, None, 2**62]


def test_binary_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(InputError, match="not for a terminal"):
        write(reader(TABLE), None, format="parquet")


def test_a_terminal_gets_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    numbers = pa.table({"t": np.arange(5000), "name": ["x"] * 5000})
    assert write(reader(numbers, rows=7), None, format=None, max_rows_shown=3) == 5000
    assert capsys.readouterr().out.splitlines() == [
        "t  name", "───────", "0  x", "1  x", "2  x", "… and 4,997 more rows",
    ]  # fmt: skip


def shown(table: pa.Table, capsys: pytest.CaptureFixture[str], rows: int = 20) -> list[str]:
    write(reader(table), "-", format="table", max_rows_shown=rows)
    return capsys.readouterr().out.splitlines()


def test_tables_are_bounded_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"bad\x1b[2J": ["x" * 500, "line\nbreak\x07", None], "n": [1, 22, 333]})
    lines = shown(table, capsys)
    assert lines[0].startswith("bad\\x1b[2J")
    assert "line\\nbreak\\x07" in lines[3]
    assert "null" in lines[4]
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines}) == 1, "numbers end in one column"


def test_tables_of_few_rows(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"t": [1, 2]})
    assert shown(table.slice(0, 0), capsys)[-1] == "no rows"
    assert shown(table, capsys)[-1] == "2"
    assert shown(table, capsys, rows=1)[-1] == "… and 1 more row"
    assert shown(RICH, capsys)[0].startswith("ns ")


@given(st.lists(st.tuples(st.text(), st.floats(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_any_text_and_number_comes_back_from_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float, int]]
) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = [pa.string(), pa.float64(), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    table = pa.table(arrays, names=["text", "x", "n"])
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    write(reader(table), str(path), overwrite=True)
    lines = path.read_bytes().decode().split("\n")[:-1]
    found = [tuple(json.loads(line).values()) for line in lines]
    assert found == [(s, x if np.isfinite(x) else None, n) for s, x, n in rows]


# ── compressed text ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".lz4"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_compressed_text_is_the_same_text(tmp_path: Path, kind: str, suffix: str) -> None:
    table = pa.table({"t": range(5000), "s": [f"text {i}" for i in range(5000)]})
    plain, packed = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}{suffix}"
    assert write(table.to_reader(), str(plain)) == write(table.to_reader(), str(packed)) == 5000
    with pa.input_stream(str(packed), compression="detect") as file:
        assert file.read() == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size


def test_binary_formats_are_not_compressed_again(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only text"):
        write(pa.table({"t": [1]}).to_reader(), str(tmp_path / "a.parquet.gz"))
    assert list(tmp_path.iterdir()) == []


def test_compressed_text_of_a_failing_join_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"t": [1]})
        raise KeyError("mine")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("t", pa.int64())]), failing())
    with pytest.raises(KeyError, match="mine"):
        write(reader, str(tmp_path / "a.csv.gz"))
    assert list(tmp_path.iterdir()) == []
