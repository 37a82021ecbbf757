"""Page bytes, and FORMAT.md as their twin."""

from __future__ import annotations

import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.storage import CorruptPage, Grid, InputError, LmdbPageFile, PageId, Store
from matwin.storage.layout import (
    HEADER,
    VERSION,
    check_page,
    decode_page,
    encode_page,
    page_bytes,
    rows_that_fit,
    schema_mark,
)
from matwin.storage.records import COMPLETE, OWNER, SEALED
from matwin.storage.records import FORMAT as FORMAT_RECORD
from matwin.storage.runs import sort_rows
from matwin.storage.trace import EVENTS, SCHEMA

FORMAT = (Path(__file__).parent.parent / "docs" / "FORMAT.md").read_text()
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


def documented(heading: str) -> struct.Struct:
    """The header a section's table describes."""
    section = FORMAT.split(heading, 1)[1]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", section.split("\n#", 1)[0], re.M)
    at, code = 0, "<"
    for offset, size, kind in rows:
        assert int(offset) == at, (heading, offset)
        code += f"{size}s" if kind == "bytes" else CODES[kind]
        at += int(size)
    return struct.Struct(code)


def test_headers_are_as_documented() -> None:
    assert documented("## A page").format == HEADER.format
    assert documented("### Format record").format == FORMAT_RECORD.format
    assert documented("### Complete record").format == COMPLETE.format
    assert documented("### Owner's record").format == OWNER.format
    assert documented("### Sealed record").format == SEALED.format


def test_the_trace_is_as_documented() -> None:
    table = FORMAT.split("## A trace", 1)[1]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == SCHEMA.names
    assert ", ".join(EVENTS) in table


def test_a_page_byte_by_byte() -> None:
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    grid = Grid.of(schema, {"t": 10, "x": None})
    rows = sort_rows(pa.record_batch([[25, 5, 7], [1.0, math.nan, 2.0]], schema=schema), grid)
    page, _ = encode_page(PageId(3, 9), rows.batch, rows.keys, schema_mark(schema))
    data = page.to_pybytes()
    start = 64 * math.ceil((64 + 4 * 8 + 2 * 3) / 64)
    none = 2**63 - 1
    assert data[:8] == b"MATWINPG"
    assert struct.unpack_from("<I", data, 8)[0] == zlib.crc32(data[12:])
    assert struct.unpack_from("<HHQI", data, 12) == (VERSION, 2, 9, 3)
    assert struct.unpack_from("<IIIII", data, 28) == (
        schema_mark(schema), 3, 3, start, len(data),
    )  # fmt: skip
    assert struct.unpack_from("<qq", data, 48) == (5, 25)
    assert struct.unpack_from("<4q", data, 64) == (0, 0, 2, 0)
    assert struct.unpack_from("<3H", data, 96) == (1, 1, 1)
    assert data[102:start] == bytes(start - 102)
    batch = pa.ipc.read_record_batch(pa.py_buffer(data[start:]), schema)
    assert batch["t"].to_pylist() == [7, 5, 25]  # x is NaN in cell (0, none): after (0, 0)
    assert [int(k[1]) for k in rows.keys] == [0, none, 5]


def numeric_page(rows: int = 100) -> tuple[pa.Buffer, pa.Schema]:
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("n", pa.int16())])
    t = np.arange(rows)
    batch = pa.record_batch([t, t / 7, t.astype(np.int16)], schema=schema)
    return encode_page(PageId(0, 0), batch, [t // 10, t], schema_mark(schema))[0], schema


def test_numeric_columns_are_views_of_the_page() -> None:
    page, schema = numeric_page()
    decoded = decode_page(page, schema, schema_mark(schema))
    for column in decoded.batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                assert page.address <= buffer.address
                assert buffer.address + buffer.size <= page.address + page.size
                assert buffer.address % 8 == page.address % 8
    assert decoded.starts.tolist() == list(range(0, 100, 10))


def test_a_cell_of_many_rows_takes_several_entries() -> None:
    schema = pa.schema([("t", pa.int8())])
    zeros = np.zeros(150_000, np.int64)
    batch = pa.record_batch([pa.array(zeros, pa.int8())], schema=schema)
    page, fence = encode_page(PageId(0, 0), batch, [zeros, zeros], schema_mark(schema))
    decoded = decode_page(page, schema, schema_mark(schema))
    assert decoded.directory.tolist() == [65_535, 65_535, 18_930]
    assert decoded.starts.tolist() == [0, 65_535, 131_070]
    assert fence.first == fence.last == (0,)


@given(st.data())
def test_every_flipped_bit_is_noticed(data: st.DataObject) -> None:
    page, _ = numeric_page(30)
    damaged = bytearray(page)
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    check_page(page, PageId(0, 0), "here")
    with pytest.raises(CorruptPage, match="here"):
        check_page(damaged, PageId(0, 0), "here")


def test_a_page_in_anothers_place_is_noticed() -> None:
    page, schema = numeric_page()
    with pytest.raises(CorruptPage, match="page 7 of window 0 holds page 0 of window 0"):
        check_page(page, PageId(0, 7), "here")
    with pytest.raises(CorruptPage, match="other columns"):
        decode_page(page, schema, schema_mark(schema) ^ 1)
    with pytest.raises(CorruptPage, match="cut off"):
        check_page(page.to_pybytes()[:20], PageId(0, 0), "here")
    newer = bytearray(page)
    struct.pack_into("<H", newer, 12, VERSION + 1)
    with pytest.raises(CorruptPage, match=f"version {VERSION + 1}"):
        check_page(newer, PageId(0, 0), "here")


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(1, 100))
def test_pages_are_filled_as_well_as_can_be(lengths: list[int], guess: int) -> None:
    capacity = 4080
    batch = pa.record_batch({"t": range(len(lengths)), "text": ["x" * n for n in lengths]})
    keys = [np.arange(len(lengths)), np.arange(len(lengths))]
    fits = rows_that_fit(batch, keys, capacity, guess)

    def size(rows: int) -> int:
        return page_bytes(batch.slice(0, rows), [k[:rows] for k in keys])

    assert fits == 1 or size(fits) <= capacity
    assert fits == len(lengths) or size(fits + 1) > capacity or capacity - size(fits) < 64


def test_page_bytes_is_exact() -> None:
    page, schema = numeric_page(77)
    t = np.arange(77)
    batch = pa.record_batch([t, t / 7, t.astype(np.int16)], schema=schema)
    assert page_bytes(batch, [t // 10, t]) == page.size


def test_a_file_of_a_newer_version_or_another_page_size(tmp_path: Path) -> None:
    LmdbPageFile(tmp_path / "file", page_size=8192).close()
    with pytest.raises(InputError, match="page_size=8192"):
        LmdbPageFile(tmp_path / "file", page_size=4096)


def test_columns_no_page_can_hold() -> None:
    nested = pa.schema(
        [("t", pa.int64()), ("a", pa.sparse_union([pa.field("v", pa.string_view())]))]
    )
    twice = pa.schema([("t", pa.int64()), ("a", pa.int8()), ("a", pa.int8())])
    with Store(memory="8MiB") as store:
        with pytest.raises(InputError, match="'a'"):
            store.window("w", nested, on={"t": 1})
        with pytest.raises(InputError, match="'a'"):
            store.window("w", twice, on={"t": 1})
