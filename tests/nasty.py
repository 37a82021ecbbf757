"""Sources that are hard to read in little memory, made fast and small on disk, and joins over them.

    source   a way to hold `n` rows `t` = 0 … n-1 with a wide payload: a file, a query, a generator
    join     each row meets its twin of the other side, so that n rows come out

Everything runs by name in a child process (`run`), so that a control group can limit it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

MB = 10**6

# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


def texts(count: int, width: int, *, distinct: bool) -> pa.Array:
    """So many texts of `width` bytes, all the same or all different."""
    if not distinct:
        return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * width]).cast(
            pa.large_string() if count * width > 2**31 - 1 else pa.string()
        )
    return pa.array([f"{i:09}" + "x" * (width - 9) for i in range(count)])


def portions(rows: int, width: int, *, distinct: bool, size: int = 16 * MB) -> Iterator[pa.Table]:
    """The rows in tables of about `size` bytes."""
    step = max(1, size // width)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        ids = np.arange(first, first + count)
        yield pa.table({"t": ids, "p": texts(count, width, distinct=distinct)})


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def parquet(path: Path, rows: int, width: int, **options: Any) -> None:
    """One row group, whatever its size."""
    distinct = options.pop("distinct", False)
    whole = pa.concat_tables(portions(rows, width, distinct=distinct))
    pq.write_table(whole, path, row_group_size=rows, **options)


def parquet_columns(path: Path, rows: int, width: int) -> None:
    """As many columns of 8 bytes as a row of `width` bytes has."""
    ids = np.arange(rows)
    columns = {f"c{i}": ids for i in range(width // 8 - 1)}
    pq.write_table(pa.table({"t": ids, **columns}), path, row_group_size=rows)


def parquet_lists(path: Path, rows: int, width: int) -> None:
    """A list in each row."""
    count = width // 8
    lists = pa.ListArray.from_arrays(
        np.arange(0, rows * count + 1, count, np.int32), np.zeros(rows * count, np.int64)
    )
    pq.write_table(pa.table({"t": np.arange(rows), "p": lists}), path, row_group_size=rows)


def parquet_late(path: Path, rows: int, width: int) -> None:
    """Narrow rows first, so that whoever measures the first ones is mistaken in the others."""
    whole = pa.concat_tables(portions(rows, width, distinct=False)).combine_chunks()
    few = pa.table({"t": np.arange(-20_000, 0), "p": pa.array(["s"] * 20_000)})
    pq.write_table(pa.concat_tables([few, whole]), path, row_group_size=rows + 20_000)


def orc(path: Path, rows: int, width: int) -> None:
    """Stripes of 64 MB, unpacked."""
    from pyarrow.orc import ORCWriter

    with ORCWriter(str(path)) as writer:
        for table in portions(rows, width, distinct=True):
            writer.write(table)


def csv(path: Path, rows: int, width: int) -> None:
    """Lines of `width` bytes."""
    with (
        pa.CompressedOutputStream(path, "gzip") if path.suffix == ".gz" else path.open("wb") as file
    ):
        for number, table in enumerate(portions(rows, width, distinct=False, size=4 * MB)):
            pa_csv.write_csv(table, file, pa_csv.WriteOptions(include_header=number == 0))


def csv_columns(path: Path, rows: int, width: int) -> None:
    """Many columns of few digits."""
    count = width // 4
    head = ",".join(["t", *(f"c{i}" for i in range(count))])
    rest = ",123" * count
    with path.open("w") as file:
        file.write(head + "\n")
        file.writelines(f"{i}{rest}\n" for i in range(rows))


def json_lines(path: Path, rows: int, width: int) -> None:
    """An object a line."""
    with path.open("w") as file:
        file.writelines(json.dumps({"t": i, "p": "x" * width}) + "\n" for i in range(rows))


def ipc(path: Path, rows: int, width: int, *, is_stream: bool, compression: str | None) -> None:
    """One batch, whatever its size."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    table = pa.concat_tables(portions(rows, width, distinct=False)).combine_chunks()
    make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with make(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def _ipc(is_stream: bool, compression: str | None) -> Callable[[Path, int, int], None]:
    return lambda path, rows, width: ipc(
        path, rows, width, is_stream=is_stream, compression=compression
    )


FILES: dict[str, tuple[str, Callable[[Path, int, int], None]]] = {
    "parquet": ("x.parquet", parquet),
    "parquet distinct": ("x.parquet", lambda *a: parquet(*a, distinct=True, compression="zstd")),
    "parquet plain": (
        "x.parquet", lambda *a: parquet(*a, distinct=True, compression="zstd", use_dictionary=False)
    ),
    "dataset": ("x.parquet", parquet),
    "dataset filter": ("x.parquet", parquet),
    "dataset csv": ("x.csv", csv),
    "dataset ipc": ("x.arrow", _ipc(False, "lz4")),
    "dataset json": ("x.json", json_lines),
    "dataset orc": ("x.orc", orc),
    "lazy parquet": ("x.parquet", lambda *a: parquet(*a, distinct=True, use_dictionary=False)),
    "lazy ipc": ("x.arrow", _ipc(False, "lz4")),
    "parquet columns": ("x.parquet", parquet_columns),
    "parquet lists": ("x.parquet", parquet_lists),
    "parquet late": ("x.parquet", parquet_late),
    "csv": ("x.csv", csv),
    "csv.gz": ("x.csv.gz", csv),
    "csv columns": ("x.csv", csv_columns),
    "jsonl": ("x.jsonl", json_lines),
    "ipc file": ("x.arrow", _ipc(False, None)),
    "ipc file lz4": ("x.arrow", _ipc(False, "lz4")),
    "ipc file zstd": ("x.arrow", _ipc(False, "zstd")),
    "ipc stream": ("x.arrows", _ipc(True, None)),
    "ipc stream lz4": ("x.arrows", _ipc(True, "lz4")),
    "ipc stream zstd": ("x.arrows", _ipc(True, "zstd")),
}  # fmt: skip


def written(kind: str, folder: str, rows: int, width: int) -> str:
    """The path of a file of this kind; runs in a child, for it may take much memory."""
    name, write = FILES[kind]
    path = Path(folder) / name
    write(path, rows, width)
    return str(path)


# ── other sources ────────────────────────────────────────────────────────────────────────────────


def _batches(rows: int, width: int) -> Iterator[pa.RecordBatch]:
    """A row at a time."""
    payload = pa.array(["x" * width])
    for i in range(rows):
        yield pa.record_batch({"t": pa.array([i]), "p": pa.concat_arrays([payload])})


def _query(rows: int, width: int) -> Any:
    import duckdb

    database = duckdb.connect()
    database.execute("SET memory_limit='100MB'; SET threads=1")
    return database.sql(f"select i as t, repeat('x', {width}) as p from range({rows}) r(i)")


def _schema() -> pa.Schema:
    return pa.schema([("t", pa.int64()), ("p", pa.string())])


def _stream(rows: int, width: int) -> Any:
    import matwin

    return matwin.stream(_batches(rows, width), schema=_schema())


def _dicts(rows: int, width: int) -> Any:
    import matwin

    items = ({"t": i, "p": f"{i:09}" + "x" * (width - 9)} for i in range(rows))
    return matwin.stream(items, schema=_schema())


def _reader(rows: int, width: int) -> Any:
    return pa.RecordBatchReader.from_batches(
        _schema(),
        (b for table in portions(rows, width, distinct=False) for b in table.to_batches()),
    )


def _pandas(rows: int, width: int) -> Any:
    # Children that are measured do without pandas; this one is about it.
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "Without"]
    import pandas

    return pandas.DataFrame({"t": np.arange(rows), "p": ["x" * width] * rows})


def _polars(rows: int, width: int) -> Any:
    import polars

    return polars.DataFrame({"t": np.arange(rows), "p": ["x" * width] * rows})


MADE: dict[str, Callable[[int, int], Any]] = {
    "duckdb": _query, "generator": _batches, "stream": _stream, "dicts": _dicts, "reader": _reader,
}  # fmt: skip
FRAMES: dict[str, Callable[[int, int], Any]] = {"pandas": _pandas, "polars": _polars}
"""What holds all its rows in memory by itself."""

# ── joins ────────────────────────────────────────────────────────────────────────────────────────


def _epsilon(how: str) -> Callable[..., Any]:
    def join(left: Any, right: Any, **options: Any) -> Any:
        import matwin

        return matwin.epsilon_join(left, right, on={"t": 0}, how=how, **options)

    return join


def _best(how: str) -> Callable[..., Any]:
    def join(left: Any, right: Any, **options: Any) -> Any:
        import matwin

        return matwin.bestmatch_join(left, right, on={"t": 0}, how=how, **options)

    return join


def _window(left: Any, right: Any, **options: Any) -> Any:
    import matwin

    return matwin.window_join(
        {"a": left, "b": right}, time="t", windows={("a", "b"): (0, 0)}, **options
    )


def _only_left(left: Any, right: Any, **options: Any) -> Any:
    """A wide side against a narrow one."""
    import matwin

    narrow = pa.table({"t": np.arange(10)})
    return matwin.epsilon_join(left, narrow, on={"t": 0}, how="left", **options)


def _fixed(left: Any, right: Any, **options: Any) -> Any:
    """A join for every row, so few rows will do."""
    import matwin

    return matwin.fixed_window_join(left, right, time="t", period=0, on={"t": 0}, **options)


JOINS: dict[str, Callable[..., Any]] = {
    "epsilon": _epsilon("inner"), "best left": _best("left"), "best full": _best("full"),
    "window": _window, "narrow": _only_left,
}  # fmt: skip
MORE_JOINS: dict[str, Callable[..., Any]] = {
    "epsilon left": _epsilon("left"), "epsilon full": _epsilon("full"),
    "best inner": _best("inner"), "fixed": _fixed,
}  # fmt: skip


def run(kind: str, join: str, path: str, rows: int, width: int, memory: int) -> dict[str, Any]:
    """Join a source with its like; how many rows came out, or why not, and what it took."""
    import matwin
    from matwin.storage.errors import MatwinError

    warm = pa.table({"t": np.arange(100)})
    joined = {**JOINS, **MORE_JOINS}[join]
    joined(warm, warm, memory=memory).read_all()
    Path("/proc/self/clear_refs").write_text("5")
    start, report = resident("VmRSS"), matwin.Report()
    found, error, smallest = 0, "", 0
    try:
        left, right = (_source(kind, path, rows, width) for _ in range(2))
        for batch in joined(left, right, memory=memory, report=report):
            found += batch.num_rows
    except MatwinError as e:
        error, smallest = f"{type(e).__name__}: {e}", getattr(e, "smallest_bytes", 0)
    return {
        "rows": found, "error": error, "smallest": smallest, "start": start // MB,
        "grown": (resident("VmHWM") - start) // MB, "counted": report.peak_bytes // MB,
        "over": report.peak_bytes - memory, "process": getattr(report, "process_bytes", 0) // MB,
    }  # fmt: skip


def read(kind: str, path: str, rows: int, width: int, memory: int) -> dict[str, Any]:
    """Go through a source alone."""
    from matwin.shares import ReadShare
    from matwin.sources import source_of

    Path("/proc/self/clear_refs").write_text("5")
    start, found, largest = resident("VmRSS"), 0, 0
    source = source_of(_source(kind, path, rows, width), "left")
    source = source.within(ReadShare.of(memory, sources=2))
    for batch in source.batches():
        found += batch.num_rows
        largest = max(largest, batch.nbytes)
    return {
        "rows": found, "grown": (resident("VmHWM") - start) // MB, "largest": largest // 1024,
        "start": start // MB,
    }  # fmt: skip


def _source(kind: str, path: str, rows: int, width: int) -> Any:
    if kind not in FILES:
        return {**MADE, **FRAMES}[kind](rows, width)
    if kind.startswith("dataset"):
        return _dataset(kind, path)
    return _lazy(kind, path) if kind.startswith("lazy") else path


def _dataset(kind: str, path: str) -> Any:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    dataset = ds.dataset(path, format=Path(path).suffix[1:])
    return dataset.filter(pc.field("t") >= 0) if kind == "dataset filter" else dataset


def _lazy(kind: str, path: str) -> Any:
    import polars as pl

    return pl.scan_ipc(path) if kind == "lazy ipc" else pl.scan_parquet(path)


def resident(name: str) -> int:
    """One of the process's figures."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))
