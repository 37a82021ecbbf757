"""Arrow files and streams of every writer are read; those that contradict themselves are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin import InputError
from matwin.sources import source_of

ROWS = 37
numbers = range(ROWS)

TYPES: dict[str, pa.Array] = {
    "int": pa.array(numbers),
    "some": pa.array([n if n % 3 else None for n in numbers], pa.int16()),
    "none": pa.array([None] * ROWS, pa.float64()),
    "null": pa.nulls(ROWS),
    "bool": pa.array([n % 2 == 0 if n % 5 else None for n in numbers]),
    "text": pa.array([f"{n}" * (n % 4) for n in numbers]),
    "large": pa.array([f"{n}" * (n % 4) for n in numbers], pa.large_string()),
    "view": pa.array([f"{n} is more than twelve" * (n % 2) for n in numbers], pa.string_view()),
    "list": pa.array([[n] * (n % 3) if n % 4 else None for n in numbers]),
    "list view": pa.array([[n] * (n % 3) for n in numbers], pa.list_view(pa.int64())),
    "fixed list": pa.array([[n, n] if n % 4 else None for n in numbers], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": n, "b": [str(n)]} if n % 4 else None for n in numbers]),
    "map": pa.array([[(str(n), n)] * (n % 2) for n in numbers], pa.map_(pa.string(), pa.int64())),
    "decimal": pa.array(numbers, pa.decimal128(20, 3)),
    "fixed": pa.array([b"abc" if n % 2 else None for n in numbers], pa.binary(3)),
    "dictionary": pa.array([f"k{n % 3}" for n in numbers]).dictionary_encode(),
    "list of keys": pa.array([["a", "b"][: n % 3] for n in numbers]).cast(
        pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
    "runs": pa.array([n // 5 for n in numbers]).dictionary_encode(),
    "union": pa.UnionArray.from_sparse(
        pa.array([n % 2 for n in numbers], pa.int8()), [pa.array(numbers), pa.nulls(ROWS, "f8")]
    ),
}  # fmt: skip


def with_options(**options: Any) -> Callable[[Path, pa.Table], None]:
    def write(path: Path, rows: pa.Table) -> None:
        make: Any = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with make(str(path), rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            for batch in rows.to_batches(max_chunksize=10):
                writer.write_batch(batch)

    return write


def by_polars(path: Path, rows: pa.Table) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(rows)
    if path.suffix == ".arrow":
        frame.write_ipc(path, compression="zstd", compat_level=polars.CompatLevel.oldest())
    else:
        frame.write_ipc_stream(path, compat_level=polars.CompatLevel.newest())


def from_slices(path: Path, rows: pa.Table) -> None:
    """Buffers that begin in the middle."""
    with_options()(path, pa.concat_tables([rows.slice(0, 3), rows.slice(3, 30), rows.slice(33)]))


def emptied(path: Path, rows: pa.Table) -> None:
    make: Any = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    with make(str(path), rows.schema) as writer:
        for part in (rows.slice(0, 0), rows, rows.slice(0, 0)):
            for batch in part.to_batches() or [pa.RecordBatch.from_pylist([], part.schema)]:
                writer.write_batch(batch)


WRITERS = {
    "plain": with_options(), "lz4": with_options(compression="lz4"),
    "zstd": with_options(compression="zstd"), "old": with_options(use_legacy_format=True),
    "v4": with_options(metadata_version=pa.ipc.MetadataVersion.V4),
    "deltas": with_options(emit_dictionary_deltas=True), "slices": from_slices,
    "empty batches": emptied, "polars": by_polars,
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".arrow", ".arrows"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", TYPES)
def test_what_others_write_is_read(tmp_path: Path, kind: str, writer: str, suffix: str) -> None:
    rows = pa.table({"t": np.arange(ROWS), "x": TYPES[kind]})
    path = tmp_path / f"x{suffix}"
    if (kind, writer) == ("union", "v4"):
        pytest.skip("Arrow itself does not read it back")
    try:
        WRITERS[writer](path, rows)
    except Exception as e:
        pytest.skip(f"it is not written: {e}")
    source = source_of(str(path), "left")
    found = pa.Table.from_batches(list(source.batches()), source.schema)
    assert found.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("suffix", [".arrow", ".arrows"])
@pytest.mark.parametrize("rest", [b"\x00" * 8, b"more", b"\x00" * 100, b"\xff\xff\xff\xff\x00\x00"])
def test_what_follows_the_end_of_a_stream(tmp_path: Path, suffix: str, rest: bytes) -> None:
    """A few zeros fill a line; anything else would be rows that nobody reads."""
    path = tmp_path / f"x{suffix}"
    WRITERS["plain"](path, pa.table({"t": numbers}))
    path.write_bytes(path.read_bytes() + rest)
    if suffix == ".arrows" and rest == b"\x00" * 8:
        assert matwin.epsilon_join(str(path), str(path), on={"t": 0}).to_arrow().num_rows == ROWS
        return
    with pytest.raises(InputError, match=path.name):
        matwin.epsilon_join(str(path), str(path), on={"t": 0}).to_arrow()


@pytest.mark.parametrize("levels", [62, 63, 64, 100, 2000])
@pytest.mark.parametrize("way", ["memory", "pages"])
def test_lists_within_lists(levels: int, way: str) -> None:
    """As deep as Arrow can write them, or refused by name."""
    data_type = pa.int64()
    for _ in range(levels):
        data_type = pa.list_(data_type)
    rows = pa.table({"t": [1, 2], "x": pa.nulls(2, data_type)})
    options: dict[str, Any] = {"memory": "256KiB", "page_size": "4KiB", "materialize": "slab"}

    def joined() -> pa.Table:
        chosen = options if way == "pages" else {}
        return matwin.epsilon_join(rows, rows, on={"t": 0}, **chosen).to_arrow()

    if levels < 64:
        assert joined().num_rows == 2
        return
    with pytest.raises(InputError, match=r"column 'x' is nested more than 63 levels deep"):
        joined()
