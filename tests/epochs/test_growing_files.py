"""`matwin.tail` of a file: however it grows and is rotated, every row comes once."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from growth import (
    SCHEMA,
    Rows,
    append,
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
from matwin import jsonl, rotation
from matwin.inbox import Bell, Inbox
from matwin.storage.errors import BudgetError, InputError

FORMATS = ["jsonl", "csv", "tsv", "arrow"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as found:
        yield Path(found)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


# ── growth ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 20), st.lists(st.integers(0, 10_000), max_size=12))
def test_rows_are_the_same_however_they_are_written(
    format: str, count: int, cuts: list[int]
) -> None:
    rows = some_rows(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"log.{format}")
        path.touch()
        source = matwin.tail(path, schema=SCHEMA)
        items, found = source.items(), []
        for piece in pieces_of(written(rows, format), cuts):
            append(path, piece)
            found += there(items)
        assert found == rows
        assert listed(matwin.tail(path, schema=SCHEMA, once=True).batches()) == rows


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 12),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from(["none", "rename", "truncate"]),
    st.booleans(),
)
def test_a_restart_at_every_row_gives_the_same_rows(
    format: str, count: int, cuts: list[int], kind: str, by_date: bool
) -> None:
    rows = some_rows(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"log.{format}")
        path.touch()
        source: Any = matwin.tail(path, schema=SCHEMA)
        items, found = source.items_from(None), []
        for piece in pieces_of(written(rows, format), cuts):
            append(path, piece)
            found += there(items)
        if kind != "none":
            later = some_rows(count, first=100)
            rotate(path, kind, "-20240501" if by_date else ".1")
            append(path, written(later, format))
            found += there(items)
            rows = rows + later
        assert found == rows
        for row in range(len(rows) + 1):
            mark, skip = begun_again(source.mark(row))
            again: Any = matwin.tail(path, schema=SCHEMA, once=True)
            rest = listed(again.items_from(mark))
            assert rest[skip:] == rows[row:]
            assert skip <= row


def rotate(path: Path, kind: str, suffix: str = ".1") -> None:
    """As logrotate does it, both ways."""
    old = path.with_name(path.name + suffix)
    if kind == "rename":
        path.rename(old)
        path.touch()
    else:
        shutil.copy(path, old)
        os.truncate(path, 0)


@pytest.mark.parametrize("kind", ["rename", "truncate"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_rotated_file_is_finished_first(folder: Path, format: str, kind: str) -> None:
    path = folder / f"log.{format}"
    path.write_bytes(written(some_rows(3), format))
    items = matwin.tail(path).items()
    assert there(items) == some_rows(3)
    append(path, written(some_rows(2, first=3), format, is_new=False))
    rotate(path, kind)
    if kind == "rename":  # its writer has not changed to the new file yet
        append(folder / f"log.{format}.1", written(some_rows(1, first=5), format, is_new=False))
        assert there(items) == some_rows(3, first=3)
    append(path, written(some_rows(2, first=6), format))
    before = some_rows(2, first=3) if kind == "truncate" else []
    assert there(items) == before + some_rows(2, first=6)


def test_a_last_line_without_a_newline_counts_when_its_file_is_finished(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n{"t": 2}')
    source: Any = matwin.tail(path)
    items = source.items_from(None)
    assert there(items) == [{"t": 1}]
    rotate(path, "rename")
    assert there(items) == []
    append(path, b'{"t": 3}\n')
    assert there(items) == [{"t": 2}, {"t": 3}]
    mark, skip = source.mark(2)
    source.drain()
    assert listed(source.items_from(mark))[skip:] == [{"t": 3}]


def test_rotations_while_nobody_reads_are_read_in_their_order(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 0}\n')
    source: Any = matwin.tail(path)
    assert there(source.items_from(None)) == [{"t": 0}]
    mark, skip = begun_again(source.mark(0))
    for number in range(1, 12):
        for old in range(number, 0, -1):
            before = path.with_name(f"log.jsonl.{old - 1}") if old > 1 else path
            before.rename(path.with_name(f"log.jsonl.{old}"))
        path.write_bytes(b'{"t": %d}\n' % number)
    again: Any = matwin.tail(path, once=True)
    assert [row["t"] for row in listed(again.items_from(mark))[skip:]] == list(range(12))


def test_a_file_that_was_truncated_and_has_grown_again_is_recognised(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n{"t": 2}\n')
    items = matwin.tail(path).items()
    assert there(items) == [{"t": 1}, {"t": 2}]
    os.truncate(path, 0)
    append(path, b'{"t": 7}\n{"t": 8}\n{"t": 9}\n')  # longer than it was
    assert there(items) == [{"t": 7}, {"t": 8}, {"t": 9}]


def test_a_line_that_was_cut_by_truncation_is_an_error(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n{"t": ')
    items = matwin.tail(path).items()
    assert there(items) == [{"t": 1}]
    os.truncate(path, 0)
    with pytest.raises(InputError, match=r"log\.jsonl.*truncated in the middle of line 2.*no copy"):
        there(items)


def test_without_rotation_a_removed_file_has_ended(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n{"t": 2}')
    items = matwin.tail(path, rotated=False).items()
    assert there(items) == [{"t": 1}]
    path.unlink()
    assert listed(items) == [{"t": 2}]


def test_without_rotation_a_shorter_file_is_an_error(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n')
    items = matwin.tail(path, rotated=False).items()
    there(items)
    os.truncate(path, 0)
    with pytest.raises(InputError, match="has become shorter"):
        there(items)


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_from_the_end(folder: Path, format: str) -> None:
    path = folder / f"log.{format}"
    data = written([{"t": 1, "x": 1.0, "k": "a"}, {"t": 2, "x": 2.0, "k": "b"}], format)
    path.write_bytes(data[:-3])  # in the middle of the last line
    items = matwin.tail(path, schema=SCHEMA, from_end=True).items()
    assert there(items) == []
    append(path, data[-3:])
    assert [row["t"] for row in there(items)] == [2]


def test_from_the_oldest_rotated_file(folder: Path) -> None:
    path = folder / "log.jsonl"
    for name, number in ((".3.gz", 1), (".2", 2), (".1", 3), ("", 4)):
        path.with_name(path.name + name).write_bytes(b'{"t": %d}\n' % number)
    (folder / "log.jsonl.bak").write_bytes(b"somebody's copy")
    found = listed(matwin.tail(path, from_oldest=True, once=True).batches())
    assert [row["t"] for row in found] == [2, 3, 4]
    with pytest.raises(InputError, match="from_oldest= goes with rotated=True"):
        matwin.tail(path, from_oldest=True, from_end=True)


def test_a_file_that_is_not_there_yet_is_waited_for(folder: Path) -> None:
    path = folder / "log.jsonl"
    items = matwin.tail(path, schema=SCHEMA).items()
    assert there(items) == []
    path.write_bytes(written(some_rows(2), "jsonl"))
    assert there(items) == some_rows(2)


def test_draining_ends_it(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n')
    source = matwin.tail(path)
    items = source.items()
    assert there(items) == [{"t": 1}]
    append(path, b'{"t": 2}\n{"t"')
    matwin.stream(source).drain()
    assert listed(items) == [{"t": 2}]


def test_a_closed_inbox_lets_go_of_the_file(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n')
    inbox = Inbox(matwin.tail(path).items(), Bell(), "log", 2**20)
    inbox.start()
    assert next(inbox).to_pylist() == [{"t": 1}]
    thread = inbox._thread
    assert isinstance(thread, threading.Thread)
    inbox.close()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert path not in _open_files()


def _open_files() -> set[Path]:
    links = list(Path("/proc/self/fd").iterdir())
    return {link.readlink() for link in links if link.is_symlink()}


def test_dictionaries_come_through_growth_rotation_and_restarts(folder: Path) -> None:
    path = folder / "log.arrow"
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"k": pa.array(texts).cast(kind)})
        for texts in (["a", "b"], ["b", "c"], ["a"])
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    path.write_bytes(b"")
    source: Any = matwin.tail(path, schema=batches[0].schema)
    items, rows = source.items_from(None), listed(batches)
    found: Rows = []
    for piece in pieces_of(data, list(range(0, len(data), 37))):
        append(path, piece)
        found += there(items)
    rotate(path, "rename")
    append(path, data)
    assert found + there(items) == rows + rows
    for row in range(2 * len(rows) + 1):
        mark, skip = begun_again(source.mark(row))
        again: Any = matwin.tail(path, once=True)
        assert listed(again.items_from(mark))[skip:] == (rows + rows)[row:]


# ── what can't be read ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("format", "more", "message"),
    [
        ("jsonl", b"{no}\n", r"log\.jsonl'.*line 4 is no JSON"),
        ("jsonl", b"\n[1]\n", r"line 5 is no JSON object"),
        ("jsonl", b'{"t": 1.5}\n', r"line 4: column 't' is 1\.5 and no int64"),
        ("jsonl", b'{"t": 1, "new": 2}\n', r"line 4 has a column 'new'"),
        ("jsonl", b'{"k": "\xff"}\n', r"line 4 is no JSON.*utf-8"),
        ("csv", b"1,2\n", r"log\.csv'.*line 5: Expected 3 columns, got 2"),
        ("csv", b"\n\nx,1,a\n", r"line 7: column 't': .*int64: invalid value 'x'"),
        ("csv", b'1,1,"a\nb"\n2,y,a\n', r"line 7: column 'x': .*double: invalid value 'y'"),
        ("csv", b"1,1,\xff\n", r"line 5: column 'k': .*invalid UTF8"),
        ("arrow", b"\x01garbage and more of it", r"log\.arrow'.*at byte \d+ is no Arrow stream"),
        ("arrow", b"\xff\xff\xff\xff\x10\0\0\0" + b"\x7f" * 16, r"at byte \d+ is no Arrow stream"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, format: str, more: bytes, message: str) -> None:
    path = folder / f"log.{format}"
    rows = [{"t": i, "x": i / 4, "k": "a"} for i in range(3)]
    path.write_bytes(written(rows, format))
    items = matwin.tail(path).items()
    assert there(items) == rows
    append(path, more)
    with pytest.raises(InputError, match=message):
        there(items)


def test_columns_of_a_subset_are_named_rightly(folder: Path) -> None:
    path = folder / "log.csv"
    path.write_bytes(b"a,b,c\n1,2,3\n1,2,x\n")
    schema = pa.schema([("c", pa.int64()), ("a", pa.int64())])
    with pytest.raises(InputError, match="line 3: column 'c'"):
        listed(matwin.tail(path, schema=schema, once=True).batches())
    path.write_bytes(b"a,b,c\n1,2,3\n")
    assert listed(matwin.tail(path, schema=schema, once=True).batches()) == [{"c": 3, "a": 1}]


@pytest.mark.parametrize(
    ("format", "new", "message"),
    [
        ("csv", b"t,x\n1,2\n", "line 1 has no column 'k'"),
        ("csv", b"t,x,k,n\n1,2,a,b\n", "line 1 has a column 'n'"),
        ("csv", b"t,t,k\n", "column 't' is there twice"),
        ("arrow", None, "column 't' is string, and int64 in the source"),
    ],
)
def test_another_schema_after_rotation_is_named(
    folder: Path, format: str, new: bytes | None, message: str
) -> None:
    path = folder / f"log.{format}"
    path.write_bytes(written(some_rows(1), format))
    items = matwin.tail(path).items()
    assert there(items) == some_rows(1)
    rotate(path, "rename")
    if new is None:
        sink, other = pa.BufferOutputStream(), SCHEMA.set(0, pa.field("t", pa.string()))
        with pa.ipc.new_stream(sink, other):
            pass
        new = sink.getvalue().to_pybytes()
    append(path, new)
    with pytest.raises(InputError, match=message):
        there(items)


def test_a_line_without_end_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LINE_BYTES_MAX", 1000)
    for format in ("jsonl", "csv"):
        path = folder / f"log.{format}"
        path.write_bytes(written(some_rows(1), format) + b"1" * 2000)
        with pytest.raises(InputError, match=r"line \d is longer than 1000 bytes"):
            listed(matwin.tail(path, schema=SCHEMA, once=True).batches())


def test_a_message_beyond_the_budget_is_refused(folder: Path) -> None:
    path = folder / "log.arrow"
    sink = pa.BufferOutputStream()
    rows = pa.record_batch({"t": pa.array(range(10_000))})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    path.write_bytes(sink.getvalue().to_pybytes())
    source = matwin.tail(path, once=True)
    small = source.within(type(source.share)(2**16, 2**16, 2**16))
    with pytest.raises(BudgetError, match=r"message at byte .* takes 78"):
        listed(small.batches())


@pytest.mark.parametrize("how", ["replaced", "gone", "cut", "compressed"])
def test_a_mark_of_another_file_is_named(folder: Path, how: str) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n{"t": 2}\n')
    source: Any = matwin.tail(path)
    there(source.items_from(None))
    mark, _ = begun_again(source.mark(2))
    path.unlink()
    if how == "replaced":
        path.write_bytes(b'{"t": 5}\n{"t": 6}\n{"t": 7}\n')
    elif how == "cut":
        path.write_bytes(b'{"t": 1}\n')
        mark["inode"] = list(rotation.inode_of(path) or ())
        mark["head"], mark["crc"] = 0, 0
    elif how == "compressed":
        (folder / "log.jsonl.1.gz").write_bytes(b"")
        path.write_bytes(b"")
    again: Any = matwin.tail(path, schema=source.schema, once=True)
    words = {
        "replaced": "is another file than before: reading was at byte 18 of file number",
        "gone": "is not there, and reading was at byte 18",
        "cut": "has 9 bytes now, and reading was at byte 18",
        "compressed": "is another file than before",
    }
    with pytest.raises(InputError, match=words[how]):
        listed(again.items_from(mark))


def test_a_compressed_file_in_between_is_named(folder: Path) -> None:
    path = folder / "log.jsonl"
    path.write_bytes(b'{"t": 1}\n')
    source: Any = matwin.tail(path)
    there(source.items_from(None))
    mark, _ = source.mark(1)
    path.rename(folder / "log.jsonl.2")
    (folder / "log.jsonl.1.gz").write_bytes(b"...")
    path.write_bytes(b'{"t": 3}\n')
    again: Any = matwin.tail(path, once=True)
    with pytest.raises(InputError, match=r"after 'log.jsonl.2' comes 'log.jsonl.1.gz'"):
        listed(again.items_from(mark))


@pytest.mark.parametrize(
    ("name", "data", "options", "message"),
    [
        ("no.jsonl", None, {}, "is not there; give schema="),
        ("log.jsonl", b'{"t"', {}, "has no row yet to tell its columns"),
        ("log.csv", b"a,b\n", {}, "has no row yet to tell its columns"),
        ("log.log", b"", {}, "suffix does not tell a format"),
        ("log.parquet", b"", {}, "suffix does not tell a format"),
        ("log.log", b"", {"format": "parquet"}, "format='parquet' does not grow"),
        ("log.jsonl", b"", {"schema": "t"}, "schema is a str"),
        ("log.arrow", b"ARROW1\0\0 and more", {}, "it is an Arrow file"),
    ],
)
def test_what_cannot_be_tailed_is_refused_at_once(
    folder: Path, name: str, data: bytes | None, options: dict[str, Any], message: str
) -> None:
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        matwin.tail(folder / name, **options)
