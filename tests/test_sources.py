"""Whatever a user has, as record batches; and what can't be read, as an error that says so."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import call_in_child

import matwin
from matwin.csv_file import CSV_SAMPLE_BYTES
from matwin.shares import ReadShare
from matwin.sources import ROWS_PER_BATCH, Source, source_of
from matwin.storage.encodings import plain_batch, plain_schema
from matwin.storage.errors import BudgetError, InputError, StoreError

TABLE = pa.table(
    {
        "t": pa.array(range(1000), pa.int64()),
        "x": np.arange(1000) / 8,
        "name": [None if i % 7 == 0 else f"row {i}" for i in range(1000)],
    }
)
RICH = TABLE.append_column("kind", TABLE["name"].dictionary_encode()).append_column(
    "view", TABLE["name"].cast(pa.string_view())
)


def rows_of(source: Source, columns: list[str] | None = None) -> pa.Table:
    """All rows; every batch has the schema that is promised, and rows."""
    fields = [source.schema.field(name) for name in columns or source.schema.names]
    batches = list(source.batches(columns))
    for batch in batches:
        assert batch.num_rows > 0
        assert batch.schema.equals(pa.schema(fields))
        batch.validate(full=True)
    return pa.Table.from_batches(batches, pa.schema(fields))


def check(source: Source, table: pa.Table, *, is_repeatable: bool = True) -> None:
    """The source holds the table's rows, plain, whole and column by column."""
    batches = [plain_batch(batch) for batch in table.to_batches()]
    table = pa.Table.from_batches(batches, plain_schema(table.schema))
    assert source.schema.equals(table.schema)
    assert source.is_repeatable == is_repeatable
    assert rows_of(source).equals(table)
    if is_repeatable:
        assert rows_of(source).equals(table)
        assert rows_of(source, ["name", "t"]).equals(table.select(["name", "t"]))
    else:
        with pytest.raises(InputError, match="left can be read only once"):
            source.batches()


def refused(data: object, *texts: str) -> None:
    """Reading the source is an `InputError` that has these texts in it."""
    with pytest.raises(InputError) as caught:
        rows_of(source_of(data, "left"))
    for text in ("left", *texts):
        assert text in str(caught.value), str(caught.value)


# ── in memory ────────────────────────────────────────────────────────────────────────────────────


def test_tables_and_batches() -> None:
    source = source_of(RICH, "left")
    check(source, RICH)
    assert (source.rows_hint, source.bytes_hint) == (1000, RICH.nbytes)
    check(source_of(TABLE.to_batches()[0], "left"), TABLE)
    chunked = pa.concat_tables([TABLE.slice(0, 300), TABLE.slice(300, 0), TABLE.slice(300)])
    check(source_of(chunked, "left"), TABLE)


def test_long_tables_come_in_bounded_batches() -> None:
    numbers = pa.table({"t": np.arange(3 * ROWS_PER_BATCH + 5)})
    lengths = [batch.num_rows for batch in source_of(numbers, "left").batches()]
    assert lengths == [ROWS_PER_BATCH] * 3 + [5]


def test_readers_and_foreign_streams_are_read_once() -> None:
    check(source_of(TABLE.to_reader(), "left"), TABLE, is_repeatable=False)
    check(source_of(Foreign(TABLE), "left"), TABLE, is_repeatable=False)
    assert rows_of(source_of(TABLE.to_reader(), "left"), ["x"]).equals(TABLE.select(["x"]))


class Foreign:
    """Some library's frame."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ForeignBatch:
    """Some library's batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


def test_foreign_batches() -> None:
    check(source_of(ForeignBatch(), "left"), TABLE)


def test_iterables_of_batches() -> None:
    batches = TABLE.to_batches(max_chunksize=300)
    check(source_of(batches, "left"), TABLE)
    check(source_of(tuple(batches), "left"), TABLE)
    check(source_of(iter(batches), "left"), TABLE, is_repeatable=False)
    check(source_of([TABLE.slice(0, 0), TABLE], "left"), TABLE)


def test_a_source_is_itself() -> None:
    source = source_of(TABLE, "left")
    assert source_of(source, "right") is source


def test_no_rows_keep_their_columns(tmp_path: Path) -> None:
    empty = RICH.slice(0, 0)
    pq.write_table(empty, tmp_path / "empty.parquet")
    for data in (empty, empty.to_reader(), [empty], str(tmp_path / "empty.parquet")):
        source = source_of(data, "left")
        assert source.schema.equals(plain_schema(RICH.schema))
        assert list(source.batches()) == []


@pytest.mark.parametrize("data", [None, 5, b"bytes", {"t": [1]}, object(), pa.array([1, 2])])
def test_what_is_no_source(data: object) -> None:
    refused(data)


def test_iterables_without_columns_are_refused() -> None:
    refused([], "schema=")
    refused(iter([]), "schema=")
    refused(iter([{"t": 1}]), "schema=")
    refused([TABLE, "what"], "batch 1 is a str")


def test_batches_of_other_columns_are_refused() -> None:
    refused([TABLE, TABLE.drop_columns(["x"])], "batch 1 lacks column 'x'")
    refused([TABLE, TABLE, TABLE.append_column("y", TABLE["x"])], "batch 2 has column 'y'")
    other = TABLE.set_column(0, "t", TABLE["t"].cast(pa.int32()))
    refused(iter([TABLE, other]), "batch 1", "'t' is int32", "int64")


def test_columns_in_another_order_are_put_in_order() -> None:
    turned = TABLE.select(["name", "x", "t"])
    expected = pa.concat_tables([TABLE, TABLE])
    assert rows_of(source_of([TABLE, turned], "left")).equals(expected)


def test_a_generators_own_error_passes() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        rows_of(source_of(failing(), "left"))


def test_our_own_errors_pass_through_a_reader() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise StoreError("the disk of another join")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, failing())
    with pytest.raises(StoreError, match="of another join"):
        rows_of(source_of(reader, "left"))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    double = pa.Table.from_arrays([TABLE["t"], TABLE["x"]], ["t", "t"])
    pq.write_table(double, tmp_path / "double.parquet")
    (tmp_path / "double.csv").write_text("t,t\n1,2\n")
    for data in (double, double.to_reader(), [double]):
        refused(data, "column 't' is there twice")
    for name in ("double.parquet", "double.csv"):
        refused(tmp_path / name, "column 't' is there twice", name)


def test_a_column_that_is_not_there() -> None:
    for data in (TABLE, TABLE.to_reader(), [TABLE]):
        with pytest.raises(InputError, match="left: column 'y' is not there"):
            source_of(data, "left").batches(["t", "y"])


def malformed() -> list[pa.Array]:
    """Columns whose buffers would lead a reader astray; their outer shape is right."""
    wild = [np.array(offsets, np.int32) for offsets in ([0, 10**6, 9], [0, -(10**6), 9], [0, 8, 2])]
    strings = [text_array(offsets, b"some data") for offsets in wild]
    bytes_ = text_array(np.array([0, 2], np.int32), b"\xff\xfe")
    kinds = pa.DictionaryArray.from_arrays(pa.array([0, 10**6]), pa.array(["a"]), safe=False)
    return [*strings, bytes_, kinds]


def text_array(offsets: np.ndarray, data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize("which", range(5))
def test_malformed_buffers_are_refused_before_use(which: int) -> None:
    column = malformed()[which]
    fields = pa.schema([("c", column.type)])
    table = pa.Table.from_arrays([column], schema=fields)
    refused(table, "malformed")
    refused(iter([table]), "malformed")
    refused(Foreign(table), "malformed")


def test_malformed_arrow_files_are_refused(tmp_path: Path) -> None:
    for number, column in enumerate(malformed()):
        batch = pa.record_batch([column], names=["c"])
        path = tmp_path / f"bad{number}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        refused(path, "malformed", path.name)


# ── DuckDB ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("whole_bytes", [2**30, 0])
def test_relations_of_one_connection_are_read_side_by_side(whole_bytes: int) -> None:
    """In memory, and with all but the first batch in a file."""
    share = ReadShare(2**20, whole_bytes, whole_bytes)
    connection = duckdb.connect()
    query = "select range as t, 'row ' || range as name from range(300000)"
    left, right = (
        source_of(connection.sql(query), name).within(share) for name in ("left", "right")
    )
    pairs = zip(left.batches(), right.batches(), left.batches(["t"]), strict=True)
    rows = 0
    for one, two, three in pairs:
        assert one.equals(two)
        assert one.select(["t"]).equals(three)
        assert 0 < one.num_rows <= ROWS_PER_BATCH
        rows += one.num_rows
    assert rows == 300_000


def test_a_failing_query_is_an_error_of_the_source() -> None:
    refused(duckdb.sql("select cast('x' || range as int) as t from range(10)"), "Could not convert")


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def written(folder: Path, name: str, table: pa.Table = TABLE) -> Path:
    """The table as a file of the format that the name says."""
    path = folder / name
    if name.endswith((".parquet", ".pq")):
        pq.write_table(table, path, row_group_size=300)
    elif name.endswith(".tsv"):
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter="\t"))
    elif name.endswith(".csv"):
        pa_csv.write_csv(table, path)
    elif name.endswith(".gz"):
        plain = written(folder, name.removesuffix(".gz"), table)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    elif name.endswith(".feather"):
        feather.write_feather(table, path, chunksize=300)
    else:
        make = pa.ipc.new_stream if name == "stream.arrow" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    return path


NAMES = ["a.parquet", "b.pq", "c.csv", "d.tsv", "e.csv.gz", "f.arrow", "stream.arrow", "g.ipc",
         "h.feather", "I.PARQUET"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_files(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name.lower()).rename(tmp_path / name)
    check(source_of(path, "left"), TABLE)
    check(source_of(str(path), "left"), TABLE)


@pytest.mark.parametrize("name", ["a.parquet", "f.arrow", "stream.arrow", "h.feather"])
def test_rich_types_in_files(tmp_path: Path, name: str) -> None:
    check(source_of(written(tmp_path, name, RICH), "left"), RICH)


def test_hints_of_files(tmp_path: Path) -> None:
    parquet = source_of(written(tmp_path, "a.parquet"), "left")
    about = pq.read_metadata(tmp_path / "a.parquet")
    groups = [about.row_group(i).total_byte_size for i in range(about.num_row_groups)]
    assert (parquet.rows_hint, parquet.bytes_hint) == (1000, sum(groups))
    text = written(tmp_path, "c.csv")
    assert source_of(text, "left").bytes_hint == text.stat().st_size
    assert source_of(written(tmp_path, "e.csv.gz"), "left").bytes_hint is None
    both = source_of([tmp_path / "a.parquet", tmp_path / "a.parquet"], "left")
    assert both.rows_hint == 2000


@pytest.mark.parametrize("width", [300_000, 1_000_000])
def test_wide_rows_of_csv_in_a_small_budget(tmp_path: Path, width: int) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("t,p\n" + "".join(f"{i},{'x' * width}\n" for i in range(12)))
    found = matwin.window_join(
        {"a": str(path), "b": str(path)}, time="t", windows={("a", "b"): (0, 0)}, memory="8MiB"
    )
    assert sum(batch.num_rows for batch in found) == 12


def test_lists_and_patterns(tmp_path: Path) -> None:
    for day in (2, 1, 3):
        written(tmp_path, f"day{day}.parquet", TABLE.slice(day * 100, 100))
    (tmp_path / "day9.parquet").mkdir()
    expected = TABLE.slice(100, 300)
    check(source_of(f"{tmp_path}/day?.parquet", "left"), expected)
    check(source_of(tmp_path / "*.parquet", "left"), expected)
    paths = [tmp_path / f"day{day}.parquet" for day in (1, 2, 3)]
    check(source_of(paths, "left"), expected)
    check(source_of([str(paths[0]), str(tmp_path / "day[23].parquet")], "left"), expected)
    odd = written(tmp_path, "what[1].parquet")
    check(source_of(odd, "left"), TABLE)


def test_large_row_groups_come_in_bounded_batches(tmp_path: Path) -> None:
    numbers = pa.table({"t": np.arange(200_000), "name": ["some text"] * 200_000})
    pq.write_table(numbers, tmp_path / "a.parquet", row_group_size=200_000)
    written(tmp_path, "c.csv", numbers)
    with pa.OSFile(str(tmp_path / "f.arrow"), "wb") as f, pa.ipc.new_file(f, numbers.schema) as w:
        w.write_table(numbers)
    for name in ("a.parquet", "c.csv", "f.arrow"):
        source = source_of(tmp_path / name, "left")
        assert max(batch.num_rows for batch in source.batches()) <= ROWS_PER_BATCH
        assert rows_of(source).equals(numbers)


def test_types_of_a_list_are_unified(tmp_path: Path) -> None:
    seconds = pa.array([1, 1], pa.timestamp("s"))
    small = pa.table({"t": pa.array([1, 2], pa.int32()), "when": seconds})
    large = pa.table({"when": pa.array([5], pa.timestamp("ns")), "t": pa.array([2**40])})
    paths = [written(tmp_path, "a.parquet", small), written(tmp_path, "b.arrow", large)]
    both = rows_of(source_of(paths, "left"))
    assert both["t"].to_pylist() == [1, 2, 2**40]
    assert both["when"].cast(pa.int64()).to_pylist() == [10**9, 10**9, 5]


def test_what_can_not_be_unified_names_the_file(tmp_path: Path) -> None:
    first = written(tmp_path, "a.parquet", pa.table({"t": [1.5]}))
    refused([first, written(tmp_path, "b.parquet", pa.table({"t": ["x"]}))], "b.parquet", "Field t")
    refused([first, written(tmp_path, "c.parquet", pa.table({"u": [1.5]}))], "c.parquet", "'t'")
    refused(
        [first, written(tmp_path, "d.parquet", pa.table({"t": [2**53 + 1]}))], "d.parquet", "'t'"
    )
    aware = pa.table({"t": pa.array([1], pa.timestamp("s", "UTC"))})
    naive = written(tmp_path, "e.parquet", pa.table({"t": pa.array([1], pa.timestamp("s"))}))
    refused([naive, written(tmp_path, "f.parquet", aware)], "f.parquet")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing.parquet", "is not there"),
        ("*.csv", "no file matches"),
        ("sub", "has no file of a known format"),
        ("notes.txt", "its suffix is none of"),
        ("a.parquet.gz", "its suffix is none of"),
        ("nul\0byte.csv", "null"),
        ("nul\0*.csv", "no"),
        ("x" * 5000 + ".csv", "too long"),
        ("pipe.csv", "not a regular file"),
        ("empty.csv", "Empty CSV"),
        ("empty.parquet", "is the file whole"),
        ("empty.arrow", "is the file whole"),
        ("text.parquet", "is the file whole"),
        ("text.arrow", "is the file whole"),
        ("broken.csv.gz", "is the file whole"),
    ],
)
def test_bad_paths_and_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for file in ("notes.txt", "a.parquet.gz", "text.parquet", "text.arrow", "broken.csv.gz"):
        (tmp_path / file).write_text("this is text")
    for file in ("empty.csv", "empty.parquet", "empty.arrow"):
        (tmp_path / file).touch()
    refused(f"{tmp_path}/sub/{name}" if "*" in name else f"{tmp_path}/{name}", text)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a.parquet")
    path.chmod(0)
    refused(path, "a.parquet", "ermission")


@pytest.mark.parametrize("name", ["a.parquet", "f.arrow", "e.csv.gz", "h.feather"])
def test_truncated_files(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    refused(path, name)


def test_csv_values_that_do_not_fit_name_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"{i},name {i}\n" for i in range(CSV_SAMPLE_BYTES // 12))
    path.write_text(f"t,name\n{rows}x,y\n")
    assert path.stat().st_size > CSV_SAMPLE_BYTES
    refused(path, "a.csv", "column 't'", "invalid value 'x'", "Parquet")
    assert source_of(path, "left").schema.field("name").type == pa.string()
    path.write_text("t,name\n1,2\n1\n")
    refused(path, "a.csv", "Expected 2 columns, got 1")


def test_csv_details(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('t,"a, ""b""",none\n1,"two\nlines",\n2,,\n')
    table = rows_of(source_of(path, "left"))
    assert table.to_pydict() == {"t": [1, 2], 'a, "b"': ["two\nlines", None], "none": [None] * 2}
    path.write_text("t,name\n")
    assert source_of(path, "left").schema.types == [pa.string(), pa.string()]


def test_csv_rows_that_are_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    sizes = [*[1] * 30_000, 140_000, *[1] * 100, 250_000, 1, 900_000, 1_000_000, 4_000_000, 1]
    path.write_text("t,p\n" + "".join(f"{i},{'x' * n}\n" for i, n in enumerate(sizes)))
    rows = rows_of(source_of(path, "left").within(ReadShare.of(2**23, 2)))
    assert rows["t"].to_pylist() == list(range(len(sizes)))
    assert [len(text) for text in rows["p"].to_pylist()] == sizes


@pytest.mark.parametrize(("size", "told"), [(5_000_000, "4.768 MiB"), (6_000_000, "5.722 MiB")])
def test_csv_rows_that_are_too_long_are_refused_with_a_budget_that_works(
    tmp_path: Path, size: int, told: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text('t,p\n1,"a\n' + "x" * size + '"\n2,b\n')
    source = source_of(path, "left")
    with pytest.raises(BudgetError, match=f"a row takes {told}") as caught:
        rows_of(source.within(ReadShare.of(2**23, 2)))
    assert rows_of(source.within(ReadShare.of(caught.value.smallest_bytes, 2))).num_rows == 2


def test_csv_headers_that_are_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    names = [f"column {i}" for i in range(10_000)]
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * 10_000) + "\n")
    rows = rows_of(source_of(path, "left").within(ReadShare.of(2**23, 2)))
    assert rows.shape == (1, 10_000)


@pytest.mark.parametrize("kind", ["parquet", "ipc", "duckdb"])
def test_what_a_source_puts_down_goes_to_the_scratch_folder(tmp_path: Path, kind: str) -> None:
    """A folder that is not there says where it went."""
    table = pa.table({f"c{i}": np.arange(30_000) for i in range(600)})
    if kind == "parquet":
        pq.write_table(table.slice(0, 2), tmp_path / "a.parquet")
        data: Any = tmp_path / "a.parquet"
    elif kind == "ipc":
        feather.write_feather(table.select(range(10)), tmp_path / "a.arrow", compression="lz4")
        data = tmp_path / "a.arrow"
    else:
        data = duckdb.sql("select i, i + 1 as j from range(1_000_000) r(i)")
    share = ReadShare.of(2**20, 2, scratch=tmp_path / "gone")
    with pytest.raises(StoreError, match=f"can't be kept in {tmp_path / 'gone'}"):
        rows_of(source_of(data, "left").within(share))


def test_quoted_line_breaks_at_the_edges_of_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,name\n" + '1,"a\nb\nc"\n' * 400_000)
    names = rows_of(source_of(path, "left"))["name"]
    assert names.unique().to_pylist() == ["a\nb\nc"]
    assert len(names) == 400_000


def test_empty_csv_columns_take_their_type_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x,y\n1,,\n")
    (tmp_path / "b.csv").write_text("t,x,y\n2,2.5,\n")
    table = rows_of(source_of(f"{tmp_path}/*.csv", "left"))
    assert table.to_pydict() == {"t": [1, 2], "x": [None, 2.5], "y": [None, None]}


def test_hostile_column_names(tmp_path: Path) -> None:
    names = ["a.b", "a", "", "../x", "q'\"", "new\nline", "ε"]
    columns = [pa.array([{"b": 7}]) if name == "a" else pa.array([1]) for name in names]
    table = pa.Table.from_arrays(columns, names)
    for file in ("a.parquet", "b.arrow"):
        source = source_of(written(tmp_path, file, table), "left")
        assert rows_of(source).equals(table)
        for name in names:
            assert rows_of(source, [name]).equals(table.select([name]))


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


def damaged(folder: str, name: str, seed: int, count: int) -> dict[str, int]:
    """How often a file with one changed byte was refused, and read as something."""
    # Without dictionaries, Arrow files are read by our own code.
    table = RICH.drop_columns("kind") if name.startswith("cut") else RICH
    whole = written(Path(folder), name, table).read_bytes()
    path = Path(folder) / name
    random = np.random.default_rng(seed)
    fates = {"refused": 0, "read": 0}
    for _ in range(count):
        place = int(random.integers(len(whole)))
        value = bytes([whole[place] ^ int(random.integers(1, 256))])
        path.write_bytes(whole[:place] + value + whole[place + 1 :])
        try:
            table = rows_of(source_of(path, "left").within(ReadShare(2**10, 2**25, 2**26)))
            json.dumps(table.slice(0, 50).to_pydict())
            fates["read"] += 1
        except (InputError, BudgetError) as e:
            assert name in str(e)
            fates["refused"] += 1
    return fates


@pytest.mark.fault
@pytest.mark.parametrize(
    "name", ["a.parquet", "f.arrow", "stream.arrow", "h.feather", "cut.arrow", "cut stream.arrow"]
)
def test_changed_bytes_are_refused_or_read_and_never_crash(tmp_path: Path, name: str) -> None:
    """In a process of its own, whose death would show."""
    fates = call_in_child(damaged, str(tmp_path), name, 5, 200)
    assert sum(fates.values()) == 200
    assert fates["refused"] > 0


@given(st.binary(max_size=200), st.sampled_from(["parquet", "arrow", "csv", "csv.gz"]))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    path.write_bytes(data)
    try:
        rows_of(source_of(path, "left"))
    except InputError as e:
        assert path.name in str(e)


def test_files_can_be_read_by_several_threads(tmp_path: Path) -> None:
    source = source_of(written(tmp_path, "a.parquet"), "left")
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(rows_of(source).equals(TABLE)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
