"""Whatever a file holds, and however little its reader may take: the same rows, in portions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from support import campaign

from matwin import places, spill
from matwin.parquet_pages import pages
from matwin.shares import ReadShare
from matwin.sizes import plain_bytes
from matwin.sources import source_of
from matwin.storage.errors import BudgetError, InputError

PORTION = 2**9
LITTLE = ReadShare(PORTION, whole_bytes=2**16, single_bytes=2**18)

numbers = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.just("wide " * 60)
VALUES: dict[pa.DataType, Any] = {
    pa.int32(): numbers,
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(30, 2): st.decimals(-1000, 1000, places=2),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.string_view(): texts,
    pa.list_(pa.string()): st.lists(texts | st.none(), max_size=3),
    pa.large_list(pa.int32()): st.lists(numbers, max_size=20),
    pa.list_(pa.int32(), 2): st.lists(numbers, min_size=2, max_size=2),
    pa.struct([("a", pa.string()), ("b", pa.bool_())]): st.fixed_dictionaries(
        {"a": texts | st.none(), "b": st.booleans()}
    ),
    pa.map_(pa.string(), pa.int32()): st.lists(st.tuples(texts, numbers), max_size=2),
    pa.null(): st.none(),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some columns of any type, with nulls, whose rows repeat."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 60))
    columns = {"t": pa.array(np.arange(rows))}
    for number, kind in enumerate(kinds):
        few = draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=5))
        drawn = draw(st.integers(0, 2**32))
        at = np.random.default_rng(drawn).integers(0, len(few), rows)
        columns[f"c{number}"] = pa.array([few[i] for i in at], kind)
    table = pa.table(columns)
    return table.slice(draw(st.integers(0, 9)))  # buffers that begin in the middle of a byte


def check(path: Path, table: pa.Table, share: ReadShare, columns: list[str]) -> None:
    """The file's rows are the table's; what can be cut is cut."""
    tried()
    source = source_of(path, "left").within(share)
    batches = list(source.batches(columns))
    for batch in batches:
        assert batch.num_rows == 1 or plain_bytes(batch) <= share.portion_bytes
    found = pa.Table.from_batches(batches, source.schema.empty_table().select(columns).schema)
    assert found.to_pylist() == table.select(columns).to_pylist()


@pytest.mark.proof("readers: any columns in small portions")
@settings(max_examples=campaign(25, 2000), deadline=None)
@given(
    tables(), st.sampled_from([None, "lz4", "zstd"]), st.booleans(), st.integers(0, 2**32)
)  # fmt: skip
def test_arrow_files(table: pa.Table, codec: str | None, is_stream: bool, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.arrow"
        make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with make(str(path), table.schema, options=options) as writer:
            writer.write_table(table.combine_chunks())
            writer.write_table(table.slice(0, 1))
        both = pa.concat_tables([table, table.slice(0, 1)])
        check(path, both, LITTLE, chosen(table, seed))


def chosen(table: pa.Table, seed: int) -> list[str]:
    """Some of the columns, in any order."""
    names = np.random.default_rng(seed).permutation(table.schema.names).tolist()
    return names[: 1 + seed % len(names)]


@pytest.mark.proof("readers: any columns in small portions")
@settings(max_examples=campaign(25, 2000), deadline=None)
@given(
    tables().filter(lambda table: table.num_rows),
    st.sampled_from(["none", "snappy", "zstd", "lz4"]),
    st.booleans(), st.sampled_from([2**13, 2**16, 2**22]), st.integers(0, 2**32),
)  # fmt: skip
def test_parquet_files(
    table: pa.Table, codec: str, dictionary: bool, whole_bytes: int, seed: int
) -> None:
    """With little to hold at once, columns are read in groups."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        pq.write_table(
            table, path, compression=codec, use_dictionary=dictionary, row_group_size=40,
            data_page_size=2**10, write_batch_size=10,
            data_page_version="2.0" if seed % 2 else "1.0",
        )  # fmt: skip
        share = ReadShare(PORTION, whole_bytes, single_bytes=2**22)
        check(path, pq.read_table(path), share, chosen(table, seed))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip"])
def test_how_a_parquet_file_is_packed_does_not_make_portions_smaller(
    tmp_path: Path, codec: str
) -> None:
    table = pa.table({"s": [f"word {i % 500}" for i in range(4000)]})
    pq.write_table(table, tmp_path / "a.parquet", compression=codec)
    source = source_of(tmp_path / "a.parquet", "left")
    share = ReadShare(2**14, whole_bytes=2**20, single_bytes=2**20)
    assert len(list(source.within(share).batches())) < 20


def test_a_page_header_with_a_number_that_does_not_end_is_refused() -> None:
    header = bytes([0x15, *[0x80] * 20, 0, 0])  # field 1, a number of 20 bytes, the end
    with pytest.raises(ValueError, match="makes no sense"):
        list(pages(lambda place, count: header[place : place + count], 0, len(header)))


@pytest.mark.parametrize(
    "header",
    [
        bytes([0x15, 0, 0x15, 2, 0x13, 5, 0]),  # the page's size is a byte, not a number
        bytes([0x15, 0, 0x15, 2, 0x15, 2, 0x25, 4, 0]),  # what the page is about is a number
        bytes([0x15, 0, 0x15, 2, 0x15, 2, 0x2C, 0x13, 5, 0, 0]),  # its count of values is a byte
    ],
    ids=["size", "about", "values"],
)
def test_a_page_header_with_something_else_for_a_number_is_refused(header: bytes) -> None:
    data = header + bytes(64)
    with pytest.raises(ValueError, match="makes no sense"):
        list(pages(lambda place, size: data[place : place + size], 0, len(data)))


def test_views_that_look_anywhere_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a column that was sorted: each portion looks at places all over the data."""
    rows, width = 400, 64
    views = np.zeros((rows, 4), np.int32)
    views[:, 0], views[:, 3] = width, np.random.default_rng(1).permutation(rows) * width
    data = b"".join(b"%064d" % i for i in range(rows))
    views[:, 1] = np.frombuffer(b"0000", np.int32)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    table = pa.table({"s": pa.Array.from_buffers(pa.string_view(), rows, buffers)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    read: list[int] = []

    def counted(descriptor: int, place: int, count: int) -> bytes:
        read.append(count)
        return spill.read_at(descriptor, place, count)

    monkeypatch.setattr(places, "read_at", counted)
    check(tmp_path / "a.arrow", table, LITTLE, ["s"])
    assert sum(read) < 3 * (tmp_path / "a.arrow").stat().st_size


def test_a_parquet_page_that_is_too_large_is_refused_by_its_size(tmp_path: Path) -> None:
    wide = pa.table({"t": [1, 2], "p": ["x" * 200_000, "y" * 200_000]})
    pq.write_table(wide, tmp_path / "a.parquet")
    source = source_of(tmp_path / "a.parquet", "left")
    with pytest.raises(BudgetError, match=r"a\.parquet.*column 'p'.*MiB.*smaller pages") as caught:
        list(source.within(LITTLE).batches())
    roomy = ReadShare.of(caught.value.smallest_bytes)
    assert sum(batch.num_rows for batch in source.within(roomy).batches()) == 2
    assert sum(batch.num_rows for batch in source.within(LITTLE).batches(["t"])) == 2


def test_an_arrow_batch_with_dictionaries_is_refused_by_its_size(tmp_path: Path) -> None:
    table = pa.table({"t": np.arange(50_000), "k": pa.array(["x"] * 50_000).dictionary_encode()})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    source = source_of(tmp_path / "a.arrow", "left")
    with pytest.raises(BudgetError, match=r"a\.arrow.*KiB.*smaller batches"):
        list(source.within(LITTLE).batches())
    assert sum(batch.num_rows for batch in source.batches()) == 50_000


@pytest.mark.parametrize("is_stream", [True, False])
def test_an_arrow_file_that_is_cut_while_it_is_read_is_an_error(
    tmp_path: Path, is_stream: bool
) -> None:
    """A mapped file would be a SIGBUS."""
    path = tmp_path / "a.arrow"
    table = pa.table({"t": np.arange(2**20)})
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table)
    batches = source_of(path, "left").within(LITTLE).batches()
    next(batches)
    with path.open("r+b") as file:
        file.truncate(2**19)
    with pytest.raises(InputError, match=r"a\.arrow.*is the file whole"):
        list(batches)
