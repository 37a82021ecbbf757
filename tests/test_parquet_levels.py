"""Whether a column may have nulls is said by the schema of a Parquet file, and by its pages: a flip
of the one is refused, and no valid file is, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matwin
from matwin.parquet_footer import Damaged, Footer
from matwin.parquet_levels import contradicts
from matwin.parquet_pages import DATA_PAGE, Page, pages

CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
MAX = 2**26
SIZES = (1, 40, 3000)


def rows(count: int, has_nulls: bool = False) -> pa.Table:
    numbers = range(count)
    columns = {
        "t": pa.array([n // 2 for n in numbers], pa.int64()),
        "i": pa.array(numbers, pa.int32()),
        "x": [None if has_nulls and n % 5 == 0 else n / 7 for n in numbers],
        "key": [f"key {n % 4}" for n in numbers],
        "text": [f"value number {n}" for n in numbers],
        "b": [n % 3 == 0 for n in numbers],
        "money": pa.array(numbers, pa.decimal128(12, 2)),
        "one": [1] * count,
    }
    made = pa.table(columns)
    kept = [field.with_nullable(has_nulls) for field in made.schema]
    return made.cast(pa.schema(kept))


def by_duckdb(version: str, codec: str) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute("create table made as select * from given")
            options = f"format parquet, parquet_version {version}, codec {codec}"
            # Of its own tables' columns without nulls DuckDB says so, and nothing of Arrow's.
            name = "given" if table.schema.field("t").nullable else "made"
            connection.execute(f"copy {name} to '{path}' ({options})")

    return write


def by_polars(table: pa.Table, path: Path) -> None:
    pytest.importorskip("polars").from_arrow(table).write_parquet(path)


def by_arrow(**options: Any) -> Callable[[pa.Table, Path], None]:
    return lambda table, path: pq.write_table(table, path, **options)


DELTAS = {
    "t": "DELTA_BINARY_PACKED", "i": "DELTA_BINARY_PACKED", "key": "DELTA_BYTE_ARRAY",
    "text": "DELTA_LENGTH_BYTE_ARRAY", "x": "BYTE_STREAM_SPLIT", "b": "RLE",
}  # fmt: skip
WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    **{codec: by_arrow(compression=codec) for codec in CODECS},
    "plain": by_arrow(use_dictionary=False),
    "bare": by_arrow(store_schema=False, write_statistics=False),
    "deltas": by_arrow(use_dictionary=False, column_encoding=DELTAS),
    "second": by_arrow(data_page_version="2.0", data_page_size=64),
    "first": by_arrow(version="1.0", data_page_size=64),
    "duckdb": by_duckdb("v1", "snappy"),
    "duckdb 2": by_duckdb("v2", "zstd"),
    "duckdb lz4": by_duckdb("v1", "lz4_raw"),
    "polars": by_polars,
}
FLIPPED = [writer for writer in WRITERS if writer not in ("gzip", "brotli", "lz4", "first")]


def joined(path: Path) -> list[str]:
    found = matwin.epsilon_join(str(path), str(path), on={"t": 0}, memory="32MiB").to_arrow()
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_valid_files_are_read(tmp_path: Path, writer: str, has_nulls: bool, count: int) -> None:
    path = tmp_path / "x.parquet"
    given = rows(count, has_nulls)
    WRITERS[writer](given, path)
    found = matwin.sql(f"select * from '{path}'", memory="32MiB").to_arrow()
    assert found.to_pylist() == pq.read_table(path).to_pylist()
    assert found.num_rows == count
    read_at = reader(path.read_bytes())
    footer = Footer.of(read_at, path.stat().st_size)
    for number, leaf in enumerate(footer.leaves):  # those that the footer alone clears as well
        chunk = footer.chunk(0, number)
        each = pages(read_at, chunk.start, chunk.packed)
        assert not contradicts(read_at, each, chunk.codec, leaf.bits, leaf.optional > 0, MAX)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda place, count: data[place : place + count]


def levels(data: bytes) -> list[tuple[Any, int, int]]:
    """The columns of a file, and whether they have nulls or lists."""
    leaves = Footer.of(reader(data), len(data)).leaves
    return [(leaf.path, leaf.optional, leaf.repeated) for leaf in leaves]


def flips(data: bytes) -> Iterator[bytes]:
    """The file with one bit flipped that says whether a column has nulls or lists."""
    told = levels(data)
    for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        for bit in range(3):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                found = levels(bytes(changed))
            except Damaged:
                continue
            if found != told and [each[0] for each in found] == [each[0] for each in told]:
                yield bytes(changed)


@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("writer", FLIPPED)
def test_a_flip_is_refused_or_changes_nothing(tmp_path: Path, writer: str, has_nulls: bool) -> None:
    path = tmp_path / "x.parquet"
    WRITERS[writer](rows(40, has_nulls), path)
    wanted, tried = joined(path), 0
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        tried += 1
        try:
            assert joined(path) == wanted
        except matwin.MatwinError as e:
            assert str(path) in str(e) or "'t' is list" in str(e)
    assert tried > 5


def test_the_error_says_which_column_and_what(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    by_duckdb("v1", "snappy")(rows(40, True), path)
    told = []
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        with pytest.raises(matwin.InputError) as e:
            joined(path)
        told.append(str(e.value))
    assert any("column 't' may not have nulls, and its pages are written" in each for each in told)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(1, 300), st.sampled_from((0, 2, 3, 5, 6, 7, 8, 9, 77)))
def test_any_page_has_an_answer(data: bytes, values: int, encoding: int) -> None:
    """Whatever the bytes are: one way at most is contradicted."""
    page = Page(DATA_PAGE, 0, len(data), len(data), values, encoding, 0)
    for width in (0, 1, 32, 64):
        both = [
            contradicts(reader(data), iter([page]), "UNCOMPRESSED", width, has_levels, MAX)
            for has_levels in (False, True)
        ]
        assert both != [True, True]


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=70), st.booleans())
def test_numbers_that_look_like_levels_are_numbers(values: list[int], is_packed: bool) -> None:
    """Required columns whose first value is a length of levels, and the next ones are levels."""
    n = len(values) + 2
    data = np.array([2, (n << 1) | 256, *values], "<i4").tobytes()
    page = Page(DATA_PAGE, 0, len(data), len(data), n, 0, 0)
    assert not contradicts(reader(data), iter([page]), "UNCOMPRESSED", 32, False, MAX)
