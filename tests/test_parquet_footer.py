"""Our own reading of Parquet footers tells what pyarrow's does, whoever wrote the file, and refuses
what contradicts itself without a word of Arrow's."""

from __future__ import annotations

import datetime as dt
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from matwin import InputError, epsilon_join
from matwin.file import described_file
from matwin.formats import Parquet
from matwin.kernels import thrift
from matwin.parquet_footer import Damaged, Footer
from matwin.places import Place
from matwin.storage import kernel
from matwin.tools import warm

ROWS = 60


def table() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "t": pa.array([n - 7 for n in numbers], pa.int64()),
            "u": pa.array([n or None for n in numbers], pa.uint32()),
            "f": [n / 7 for n in numbers],
            "text": [f"{n % 5} ü" * (n % 3) for n in numbers],
            "b": [n % 2 == 0 for n in numbers],
            "at": pa.array(numbers, pa.timestamp("us")),
            "day": [dt.date(2024, 1, 1) + dt.timedelta(n) for n in numbers],
            "money": pa.array(numbers, pa.decimal128(12, 2)),
            "list": [[n] * (n % 3) for n in numbers],
            "deep": [[[n], []][: n % 3] for n in numbers],
            "struct": [{"a": n, "b": [str(n)]} for n in numbers],
            "key": pa.array([f"k{n % 4}" for n in numbers]).dictionary_encode(),
            "nothing": pa.nulls(ROWS),
        }
    )


def by_duckdb(rows: pa.Table, path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("rows", rows.drop(["nothing"]))
        connection.execute(f"copy rows to '{path}' (format parquet, row_group_size 20)")


def by_polars(rows: pa.Table, path: Path) -> None:
    polars = pytest.importorskip("polars")
    polars.from_arrow(rows).write_parquet(path, row_group_size=20)


WRITERS: dict[str, Any] = {
    "usual": lambda rows, path: pq.write_table(rows, path),
    "groups": lambda rows, path: pq.write_table(rows, path, row_group_size=7),
    "plain": lambda rows, path: pq.write_table(
        rows, path, use_dictionary=False, compression="none", write_statistics=False
    ),
    "second": lambda rows, path: pq.write_table(
        rows, path, version="2.6", data_page_version="2.0", compression="zstd",
        write_page_index=True, write_page_checksum=True, data_page_size=64,
    ),
    "first": lambda rows, path: pq.write_table(rows, path, version="1.0", store_schema=False),
    "empty": lambda rows, path: pq.write_table(rows.slice(0, 0), path),
    "bare": lambda rows, path: pq.write_table(rows.select([]), path),
    "duckdb": by_duckdb,
    "polars": by_polars,
}  # fmt: skip


def footer_of(data: bytes) -> Footer:
    return Footer.of(lambda place, count: data[place : place + count], len(data))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_it_tells_what_pyarrow_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, compiled: bool
) -> None:
    monkeypatch.setattr(kernel, "PLAIN_SECONDS", 0.0 if compiled else float("inf"))
    monkeypatch.setattr(thrift.read, "_few_rows", 0 if compiled else 2**20)
    path = tmp_path / "x.parquet"
    WRITERS[writer](table(), path)
    found, wanted = footer_of(path.read_bytes()), pq.read_metadata(path)
    assert (found.rows, found.groups) == (wanted.num_rows, wanted.num_row_groups)
    assert list(found.columns) == wanted.schema.to_arrow_schema().names
    assert len(found.leaves) == wanted.num_columns
    for number, leaf in enumerate(found.leaves):
        column = wanted.schema.column(number)
        assert leaf.name == column.path
        assert (leaf.type, leaf.optional, leaf.repeated) == (
            column.physical_type, column.max_definition_level, column.max_repetition_level,
        )  # fmt: skip
    for group in range(found.groups):
        about = wanted.row_group(group)
        assert found.rows_of(group) == about.num_rows
        for number in range(len(found.leaves)):
            chunk, told = found.chunk(group, number), about.column(number)
            starts = [told.data_page_offset, told.dictionary_page_offset or told.data_page_offset]
            assert (chunk.values, chunk.unpacked, chunk.packed, chunk.start) == (
                told.num_values, told.total_uncompressed_size, told.total_compressed_size,
                min(starts),
            )  # fmt: skip
            assert chunk.has_dictionary == any("DICT" in each for each in told.encodings)
            assert chunk.codec == told.compression.replace("LZ4", "LZ4_RAW")


@pytest.mark.parametrize("writer", WRITERS)
def test_its_ranges_are_those_of_the_rows(tmp_path: Path, writer: str) -> None:
    """Of numbers and times, as they are stored; of nothing else."""
    path = tmp_path / "x.parquet"
    rows = table()
    WRITERS[writer](rows, path)
    found = footer_of(path.read_bytes())
    for name in ("text", "b", "money", "list", "struct", "key", "not there"):
        assert found.ranges(name) is None
    if writer in ("plain", "bare", "empty"):
        assert found.ranges("t") is None
        return
    sizes = [found.rows_of(group) for group in range(found.groups)]
    for name in ("t", "u", "f", "at", "day"):
        told, first = found.ranges(name), 0
        assert told is not None
        for size, each in zip(sizes, told, strict=True):
            stored = rows[name].slice(first, size)
            if name in ("at", "day"):
                stored = stored.cast(pa.int64() if name == "at" else pa.int32())
            values = [value for value in stored.to_pylist() if value is not None]
            assert (each.rows, each.limits) == (size, (min(values), max(values)))
            first += size


def test_ranges_where_all_are_null_infinite_or_large(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "null": pa.array([None, None], pa.int64()),
        "infinite": [1.0, float("inf")],
        "large": pa.array([1, 2**64 - 1], pa.uint64()),
    }
    pq.write_table(pa.table(columns), path)
    found = footer_of(path.read_bytes())
    assert [each.limits for each in found.ranges("null") or []] == [None]
    assert found.ranges("infinite") is None
    assert [each.limits for each in found.ranges("large") or []] == [(1, 2**64 - 1)]


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


def written(rows: pa.Table, **options: Any) -> bytes:
    kept = io.BytesIO()
    pq.write_table(rows, kept, **options)
    return kept.getvalue()


def with_footer(footer: bytes) -> bytes:
    return b"PAR1" + footer + struct.pack("<i", len(footer)) + b"PAR1"


def test_a_bit_that_ends_the_process_in_pyarrow_is_an_error(tmp_path: Path) -> None:
    """The histogram of its levels does not fit the column: pyarrow's `row_group(0).column(0)` is
    `std::terminate`."""
    data = bytearray(written(pa.table({"t": [1, 2, 3]})))
    data[-362] ^= 1
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x\.parquet"):
        described_file(Place(str(path), str(path)), "left", Parquet)


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_dataset_that_arrow_scans_is_looked_at_first(tmp_path: Path, is_filtered: bool) -> None:
    """ORC and Parquet side by side, and Parquet in memory: the file with the damaged byte is named;
    Arrow's own scan of it, with a condition, ends the process."""
    orc = pytest.importorskip("pyarrow.orc")
    data = bytearray(written(pa.table({"t": [1, 2, 3]})))
    data[-362] ^= 1
    (tmp_path / "x.parquet").write_bytes(data)
    orc.write_table(pa.table({"t": [1, 2, 3]}), tmp_path / "y.orc")
    kind, system = ds.ParquetFileFormat(), LocalFileSystem()
    schema = pa.schema([("t", pa.int64())])
    mixed = ds.dataset(
        [
            ds.dataset(tmp_path / "y.orc", format="orc"),
            ds.FileSystemDataset(
                [kind.make_fragment(str(tmp_path / "x.parquet"), system)], schema, kind
            ),
        ]
    )
    held = ds.FileSystemDataset([kind.make_fragment(pa.py_buffer(bytes(data)))], schema, kind)
    for dataset in (mixed, held):
        some = dataset.filter(pc.field("t") > 1) if is_filtered else dataset
        with pytest.raises(InputError, match="left: file"):
            epsilon_join(some, some, on={"t": 0}).to_arrow()


def nonsense() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    yield "no end", b"\x15\x02"
    yield "a list of 2**60 structs", b"\x19\xfc" + b"\xff" * 8 + b"\x0f"
    yield "a list of 2**31 booleans", b"\x19\xf1\xff\xff\xff\xff\x07"
    yield "a text of 2**63 bytes", b"\x18" + b"\xff" * 9 + b"\x01"
    yield "a number without end", b"\x15" + b"\xff" * 1000
    yield "structs within structs", b"\x1c" * 100_000
    yield "lists within lists", b"\x19" + b"\x19" * 100_000
    yield "a map of 2**40", b"\x1b" + b"\xff" * 5 + b"\x01\x88"
    yield "an unknown type", b"\x1e"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("what", "footer"), list(nonsense()))
def test_nonsense_is_damage(
    monkeypatch: pytest.MonkeyPatch, what: str, footer: bytes, compiled: bool
) -> None:
    monkeypatch.setattr(kernel, "PLAIN_SECONDS", 0.0 if compiled else float("inf"))
    monkeypatch.setattr(thrift.read, "_few_rows", 0 if compiled else 2**20)
    with pytest.raises(Damaged, match="makes no sense"):
        footer_of(with_footer(footer))


@given(st.binary(max_size=200))
def test_any_bytes_are_damage_or_a_footer(data: bytes) -> None:
    for whole in (data, with_footer(data)):
        with pytest.raises(Damaged):
            footer_of(whole)


@given(st.data())
def test_any_change_of_a_footer_is_damage_or_another_footer(data: st.DataObject) -> None:
    """What is read of it is of the same shape, and compiled code reads what Python reads."""
    whole = written(table().select(["t", "text", "list"]), row_group_size=20)
    length = int.from_bytes(whole[-8:-4], "little")
    footer = bytearray(whole[-8 - length : -8])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, length - 1))
        footer[at] = data.draw(st.integers(0, 255))
    changed = whole[: -8 - length] + bytes(footer) + whole[-8:]
    told = []
    stack = np.empty((thrift.DEPTH_MAX, thrift.FRAME), np.int64)
    for run in (thrift.read.py_func, thrift.read.dispatcher):
        from matwin.parquet_layout import SPEC, WIDTH

        records = np.zeros((length, WIDTH), np.int64)
        with np.errstate(over="ignore"):
            kernel._state.is_plain = run is thrift.read.py_func
            end, used = run(np.frombuffer(bytes(footer), np.uint8), SPEC, records, stack)
            kernel._state.is_plain = False
        told.append((int(end), int(used), records.tobytes()))
    assert told[0] == told[1]
    try:
        found = footer_of(changed)
    except Damaged:
        return
    assert [found.rows_of(group) for group in range(found.groups)] == [20, 20, 20]
    assert found.has_sound_statistics in (True, False)
    assert found.ranges("t") is None or len(found.ranges("t") or []) == 3


def test_a_schema_that_is_too_deep_is_refused() -> None:
    """Arrow would call itself for every level, until the stack ends."""
    names = b"".join(b"\x35\x00\x18\x01a\x15\x02\x00" for _ in range(10_000))
    root = b"\x48\x01r\x15\x02\x00"
    leaf = b"\x15\x02\x25\x00\x18\x01a\x00"
    count = 10_002
    size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
    footer = b"\x15\x02\x19\xfc" + size + root + names + leaf + b"\x16\x00\x19\x0c\x00"
    with pytest.raises(Damaged, match="nested more than 256 levels"):
        footer_of(with_footer(footer))


def test_warm_compiles_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file's footer, long or short, no join should have to."""
    read: list[str] = []
    plain = kernel.Kernel.__call__

    def told(self: Any, *args: Any, **options: Any) -> Any:
        read.append(self.__name__ + "." + self.__module__)
        return plain(self, *args, **options)

    monkeypatch.setattr(kernel, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(kernel.Kernel, "__call__", told)
    warm.two_sided()
    assert "read.matwin.kernels.thrift" in read
