"""As many rows as a Parquet file says, by every way of reading it, or an error that names it.

Arrow ends a column at a data page without values; its own writer writes them for lists in row
groups of one row, if data pages are tiny.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import matwin
from matwin import InputError, parquet
from matwin.parquet_footer import Footer
from matwin.parquet_pages import pages
from matwin.sources import source_of

ROWS = 23
chance = random.Random(1)

COLUMNS: dict[str, pa.Array] = {
    "some": pa.array([[n] * chance.choice((0, 1, 2, 5)) for n in range(ROWS)]),
    "texts": pa.array([[f"text {n}"] * (n % 3) for n in range(ROWS)]),
    "empty": pa.array([[] for n in range(ROWS)], pa.list_(pa.int64())),
    "nulls": pa.array([[n] if n % 3 else None for n in range(ROWS)]),
    "deep": pa.array([[[n], [n, n]] * chance.choice((0, 1, 2)) for n in range(ROWS)]),
    "struct": pa.array([{"a": [n] * chance.choice((0, 3)), "b": str(n)} for n in range(ROWS)]),
    "map": pa.array([[(str(n), n)] * (n % 2) for n in range(ROWS)], pa.map_(pa.string(), "int64")),
    "flat": pa.array([n or None for n in range(ROWS)]),
}


def from_folder(path: Path, columns: list[str]) -> pa.Table:
    return rows_of(str(path.parent), columns)


def from_dataset(path: Path, columns: list[str]) -> pa.Table:
    return rows_of(ds.dataset(path), columns)


def from_filtered(path: Path, columns: list[str]) -> pa.Table:
    return rows_of(ds.dataset(path).filter(pc.field("t") >= 0), columns)


def from_union(path: Path, columns: list[str]) -> pa.Table:
    return rows_of(ds.dataset([ds.dataset(path)]), columns)


def from_column_groups(path: Path, columns: list[str]) -> pa.Table:
    """Columns one after the other, put down in slices, as where they don't fit side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet.Reader, "_is_little", lambda *_: False)
        patch.setattr(parquet, "COLUMNS_MAX", 1)
        return rows_of(str(path), columns)


def from_small_portions(path: Path, columns: list[str]) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BATCH_ROWS", 2)
        return rows_of(str(path), columns)


def from_sql(path: Path, columns: list[str]) -> pa.Table:
    return matwin.sql(f"select {', '.join(columns)} from '{path}' order by t").to_arrow()


def rows_of(data: Any, columns: list[str]) -> pa.Table:
    source = source_of(data, "left")
    schema = pa.schema([source.schema.field(name) for name in columns])
    return pa.Table.from_batches(list(source.batches(columns)), schema)


WAYS: dict[str, Callable[[Path, list[str]], pa.Table]] = {
    "file": lambda path, columns: rows_of(str(path), columns),
    "list": lambda path, columns: rows_of([str(path)], columns),
    "pattern": lambda path, columns: rows_of(str(path.with_name("*.parquet")), columns),
    "uri": lambda path, columns: rows_of(path.as_uri(), columns),
    "folder": from_folder,
    "dataset": from_dataset,
    "filtered dataset": from_filtered,
    "union of datasets": from_union,
    "column groups": from_column_groups,
    "small portions": from_small_portions,
    "sql": from_sql,
}
LAYOUTS = list(product((1, 2, ROWS), (1, 64), ("1.0", "2.0"), (1, 1024)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_lists_in_small_row_groups_and_tiny_pages(tmp_path: Path, way: str, kind: str) -> None:
    rows = pa.table({"x": COLUMNS[kind], "t": range(ROWS)})
    path = tmp_path / "x.parquet"
    chosen = LAYOUTS if way == "file" else LAYOUTS[:5]
    for group, page, version, batch in chosen:
        pq.write_table(
            rows, path, row_group_size=group, data_page_size=page, data_page_version=version,
            write_batch_size=batch,
        )  # fmt: skip
        for columns in (["x"], ["x", "t"], ["t"]):
            if way == "sql" and kind == "map":
                continue
            found = WAYS[way](path, columns)
            assert found.to_pydict() == rows.select(columns).to_pydict(), (group, page, version)


def test_a_join_of_such_a_file(tmp_path: Path) -> None:
    """On pages, where it loses no row either."""
    path = str(tmp_path / "x.parquet")
    rows = pa.table({"t": range(100), "x": [[n] for n in range(100)]})
    pq.write_table(rows, path, row_group_size=1, data_page_size=1, write_batch_size=1)
    report = matwin.Report()
    found = matwin.epsilon_join(
        path, path, on={"t": 0}, memory="256KiB", page_size="4KiB", report=report
    ).read_all()
    assert sorted(found["x_left"].to_pylist()) == [[n] for n in range(100)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_fewer_rows_than_the_footer_says(tmp_path: Path, way: str, version: str) -> None:
    """A page header that claims fewer values than there are: Arrow gives fewer rows."""
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"t": range(9)}), path, use_dictionary=False, compression="none",
        data_page_version=version,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    chunk = Footer.of(lambda at, count: bytes(data[at : at + count]), len(data)).chunk(0, 0)
    page = next(pages(lambda at, count: bytes(data[at : at + count]), chunk.start, chunk.packed))
    told = data.index(2 * 9, page.header)  # nine values, as Thrift writes it
    data[told] = 2 * 8
    if version == "2.0":
        data[data.index(2 * 9, told)] = 2 * 8  # and rows
    path.write_bytes(data)
    with pytest.raises(InputError, match="row group 0 has 9 rows by the footer") as error:
        WAYS[way](path, ["t"])
    assert "x.parquet" in str(error.value)
    assert "copy the file anew" in str(error.value)
