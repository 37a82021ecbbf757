"""`matwin.tail` of a folder: complete files, in the order of their names, each row once."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from growth import (
    SCHEMA,
    begun_again,
    impatient,  # noqa: F401  (a fixture)
    listed,
    some_rows,
    there,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import matwin
from matwin.storage.errors import InputError

FORMATS = ["parquet", "csv", "tsv", "jsonl", "arrow", "jsonl.gz"]


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    """A file, written under another name first."""
    part = path.with_name(path.name + ".part")
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), part, row_group_size=2)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(part, SCHEMA) as file:
            file.write_table(pa.Table.from_pylist(rows, SCHEMA), max_chunksize=2)
    elif path.suffix == ".gz":
        part.write_bytes(gzip.compress(written(rows, "jsonl")))
    else:
        part.write_bytes(written(rows, path.suffix[1:]))
    part.rename(path)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_rows_are_those_of_the_files_and_a_restart_goes_on_anywhere(
    format: str, counts: list[int], looks: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as found:
        folder = Path(found)
        source: Any = matwin.tail(folder / f"*.{format}", schema=SCHEMA)
        items, rows, seen = source.items_from(None), [], []
        for number, count in enumerate(counts):
            new = some_rows(count, first=len(rows))
            put(folder / f"{number:03}.{format}", new)
            rows += new
            if looks[number]:
                seen += there(items)
        source.drain()  # for it does not look all the time
        assert seen + listed(items) == rows
        for row in range(len(rows) + 1):
            mark, skip = begun_again(source.mark(row))
            again: Any = matwin.tail(folder, schema=SCHEMA, once=True)
            assert listed(again.items_from(mark))[skip:] == rows[row:]


def test_only_complete_files_are_taken(tmp_path: Path) -> None:
    put(tmp_path / "1.jsonl", some_rows(1))
    for name in (".2.jsonl", "_2.jsonl", "2.jsonl.tmp", "2.jsonl.part", "notes.txt"):
        (tmp_path / name).write_text("half of")
    (tmp_path / "3.jsonl").mkdir()
    assert listed(matwin.tail(tmp_path, once=True).batches()) == some_rows(1)


def test_types_are_those_of_the_first_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int64())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([3], pa.int8())}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": pa.array([0.5])}), tmp_path / "3.parquet")
    items = matwin.tail(tmp_path).items()
    assert next(items).schema == next(items).schema == pa.schema([("a", pa.int64())])
    with pytest.raises(InputError, match=r"3\.parquet'.*column 'a' is double here and int64"):
        next(items)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"t": [1]}, r"2\.parquet' lacks column 'x'"),
        ({"t": [1], "x": [1.0], "k": ["a"], "n": [1]}, r"2\.parquet' has a column 'n'"),
    ],
)
def test_other_columns_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    put(tmp_path / "1.parquet", some_rows(1))
    source = matwin.tail(tmp_path)
    items = source.items()
    there(items)
    pq.write_table(pa.table(columns), tmp_path / "2.parquet")
    source.drain()
    with pytest.raises(InputError, match=message):
        there(items)


def test_a_file_that_comes_too_late_is_named(tmp_path: Path) -> None:
    put(tmp_path / "2.jsonl", some_rows(1))
    source = matwin.tail(tmp_path)
    items = source.items()
    assert there(items) == some_rows(1)
    put(tmp_path / "1.jsonl", some_rows(1))
    source.drain()
    with pytest.raises(InputError, match=r"1\.jsonl' has appeared after '2\.jsonl' was read"):
        there(items)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"1\.parquet'.*is the file whole"):
        matwin.tail(tmp_path)


@pytest.mark.parametrize("how", ["vanished", "shrank", "replaced"])
def test_a_file_that_changed_since_is_named(tmp_path: Path, how: str) -> None:
    path = tmp_path / "1.jsonl"
    put(path, some_rows(5))
    source: Any = matwin.tail(tmp_path)
    there(source.items_from(None))
    mark, skip = begun_again(source.mark(2))
    assert (mark["file"], mark["at"] + skip) == ("1.jsonl", 2)
    path.unlink()
    if how != "vanished":
        put(path, some_rows(1 if how == "shrank" else 9))
    again: Any = matwin.tail(tmp_path, schema=SCHEMA, once=True)
    words = (
        "is not there, and reading was at row 0" if how == "vanished" else r"has \d+ bytes and had"
    )
    with pytest.raises(InputError, match=words):
        listed(again.items_from(mark))


def test_files_that_were_read_to_their_end_may_go(tmp_path: Path) -> None:
    put(tmp_path / "1.jsonl", some_rows(2))
    source: Any = matwin.tail(tmp_path)
    there(source.items_from(None))
    mark, skip = begun_again(source.mark(2))
    (tmp_path / "1.jsonl").unlink()
    put(tmp_path / "2.jsonl", some_rows(1, first=2))
    again: Any = matwin.tail(tmp_path, schema=SCHEMA, once=True)
    assert listed(again.items_from(mark))[skip:] == some_rows(1, first=2)


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no complete file yet"):
        matwin.tail(tmp_path)
    with pytest.raises(InputError, match=r"folder .*'.*no' is not there"):
        matwin.tail(tmp_path / "no" / "*.csv")
    with pytest.raises(InputError, match="from_end=, from_oldest= and rotated= are for a file"):
        matwin.tail(tmp_path, from_end=True)
    with pytest.raises(InputError, match="format='xml'"):
        matwin.tail(tmp_path, format="xml")
    (tmp_path / "a.dat").write_bytes(written(some_rows(2), "csv"))
    with pytest.raises(InputError, match="suffix tells no format"):
        matwin.tail(tmp_path / "*.dat")
    found = matwin.tail(tmp_path / "*.dat", format="csv", once=True)
    assert listed(found.batches()) == some_rows(2)
