"""Filtered datasets, scanners and lazy frames: the rows that Arrow and Polars give, in portions."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from test_sources import rows_of

from matwin import csv_file
from matwin.files import Files
from matwin.filtered import Filtered, columns_of
from matwin.scans import Scanned
from matwin.shares import ReadShare
from matwin.sources import source_of
from matwin.spool import Spooled
from matwin.storage.errors import InputError

START = dt.datetime(2024, 5, 1)
COUNT = 3000
TABLE = pa.table({
    "t": pa.array([START + dt.timedelta(seconds=i) for i in range(COUNT)], pa.timestamp("us")),
    "i": [None if i % 7 == 0 else i for i in range(COUNT)],
    "x": [i / 8 for i in range(COUNT)],
    "name": [None if i % 5 == 0 else f"name {i % 11}" for i in range(COUNT)],
    "wide": ["w" * 300] * COUNT,
    "k": [["a", "b", "c"][i * 3 // COUNT] for i in range(COUNT)],
})  # fmt: skip
LITTLE = ReadShare.of(2**20)
"""Portions of 128 KiB, of which a fragment has several."""
FORMATS = ["parquet", "csv", "feather", "json", "orc"]
FILTERS = {
    "numbers": pc.field("i") >= 2990,
    "null": pc.field("i").is_null(),
    "valid or": pc.field("name").is_valid() | (pc.field("x") < 4),
    "times": pc.field("t") > START + dt.timedelta(seconds=1990),
    "partition": pc.field("k") == "b",
    "partition and": (pc.field("k") != "b") & (pc.field("i") - 7 < 20),
    "texts": pc.field("name").isin(["name 3", "name 10"]),
    "expression": (pc.field("x") * 8).cast(pa.int64()) == 12,
    "nobody": pc.field("x") < -1,
    "everybody": pc.scalar(True),
}


def written(folder: Path, format: str) -> ds.Dataset:
    """A dataset in folders k=a … k=c, and one fragment without rows."""
    if format in ("json", "orc"):  # Arrow's datasets are not written so
        for key in "abc":
            place = folder / f"k={key}" / f"0.{format}"
            place.parent.mkdir(parents=True)
            rows = TABLE.filter(pc.field("k") == key).drop_columns("k")
            if format == "orc":
                orc.write_table(rows, str(place))
            else:
                lines = [json.dumps(row, default=str) + "\n" for row in rows.to_pylist()]
                place.write_text("".join(lines))
    else:
        ds.write_dataset(TABLE, folder, format=format, partitioning=["k"],
                         partitioning_flavor="hive", max_rows_per_group=400,
                         min_rows_per_group=400)  # fmt: skip
    if format in ("parquet", "feather"):
        empty = TABLE.drop_columns("k").slice(0, 0)
        ds.write_dataset(empty, folder / "k=a" / "empty", format=format)
    return ds.dataset(folder, format=format, partitioning="hive", schema=TABLE.schema)


@pytest.mark.parametrize("format", FORMATS)
def test_filtered_datasets(tmp_path: Path, format: str) -> None:
    dataset = written(tmp_path / "d", format)
    assert rows_of(source_of(dataset, "left").within(LITTLE)).equals(dataset.to_table())
    for told, condition in FILTERS.items():
        kept = dataset.filter(condition)
        source = source_of(kept, "left").within(LITTLE)
        assert isinstance(source, Scanned if format == "orc" else Filtered)
        for columns in (None, ["x"], ["k", "t"]):
            expected = kept.to_table(columns=columns)
            assert rows_of(source, columns).equals(expected), (told, columns)
        assert all(batch.nbytes <= LITTLE.portion_bytes for batch in source.batches())


def test_a_filter_of_a_filter(tmp_path: Path) -> None:
    dataset = written(tmp_path / "d", "parquet")
    kept = dataset.filter(pc.field("x") > 10).filter(pc.field("k") == "a")
    assert rows_of(source_of(kept, "left")).equals(kept.to_table())


def test_row_groups_that_no_row_passes_are_not_read(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=500)
    source = source_of(ds.dataset(tmp_path).filter(pc.field("x") >= 2600 / 8), "left")
    assert isinstance(source, Filtered)
    assert isinstance(source.source, Files)
    assert [file.groups for file in source.source.files] == [(5,)]
    assert rows_of(source).num_rows == 400


def test_dictionaries_nested_columns_and_other_types(tmp_path: Path) -> None:
    nested = pa.array([{"a": i, "b": str(i)} for i in range(100)])
    table = pa.table({
        "d": pa.array(["u", "v", None, "w"] * 25).dictionary_encode(), "s": nested,
        "ns": pa.array(range(100), pa.timestamp("ns", "UTC")),
        "day": pa.array(range(100), pa.date32()), "n": pa.array(range(100), pa.int16()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    dataset = ds.dataset(tmp_path)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    for condition in (
        pc.field("d") == "v", pc.field("d").is_null(), pc.field("s", "a") > 90,
        pc.field("ns") > moment, pc.field("day") < dt.date(1970, 2, 1), pc.field("n") + 1 > 2**20,
    ):  # fmt: skip
        kept = dataset.filter(condition)
        assert isinstance(source_of(kept, "left"), Filtered)
        wanted = kept.to_table()
        wanted = wanted.set_column(0, "d", wanted["d"].cast(pa.string()))
        assert rows_of(source_of(kept, "left")).equals(wanted), condition


def test_partitions_that_are_dictionaries(tmp_path: Path) -> None:
    written(tmp_path / "d", "parquet")
    hive = ds.HivePartitioning.discover(infer_dictionary=True)
    dataset = ds.dataset(tmp_path / "d", partitioning=hive).filter(pc.field("k") == "c")
    found = rows_of(source_of(dataset, "left"), ["x", "k"])
    assert found.to_pylist() == dataset.to_table(columns=["x", "k"]).to_pylist()
    assert found.num_rows == 1000


def test_a_column_of_the_file_that_a_folder_tells(tmp_path: Path) -> None:
    (tmp_path / "k=9").mkdir()
    pq.write_table(pa.table({"k": [1, 2], "x": [3, 4]}), tmp_path / "k=9" / "a.parquet")
    dataset = ds.dataset(tmp_path, partitioning=ds.partitioning(
        pa.schema([("k", pa.int64())]), flavor="hive"))  # fmt: skip
    for kept in (dataset, dataset.filter(pc.field("k") == 9), dataset.filter(pc.field("k") == 1)):
        assert rows_of(source_of(kept, "left")).equals(kept.to_table())


def test_filters_that_only_arrow_can_put(tmp_path: Path) -> None:
    dataset = written(tmp_path / "d", "parquet")
    kept = dataset.filter(pc.field(2) < 5)
    source = source_of(kept, "left")
    assert isinstance(source, Scanned)
    assert rows_of(source).equals(kept.to_table())


def test_the_columns_of_a_condition() -> None:
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(50)])
    both = (pc.field("c7") > 1) & (pc.field("c49") + pc.field("c7") < 3)
    assert columns_of(both, schema) == ["c7", "c49"]
    assert columns_of(pc.scalar(True), schema) == []
    assert columns_of(pc.field("no") > 1, schema) is None


def test_unions_and_mixed_formats(tmp_path: Path) -> None:
    one, two = written(tmp_path / "p", "parquet"), written(tmp_path / "c", "csv")
    both = ds.dataset([one, two]).filter(pc.field("x") < 5)
    assert isinstance(source_of(both, "left"), Filtered)
    assert rows_of(source_of(both, "left")).equals(both.to_table())
    memory = ds.dataset([one, ds.dataset(TABLE)])
    assert rows_of(source_of(memory, "left")).equals(memory.to_table())


def test_csv_is_read_as_its_format_says(tmp_path: Path) -> None:
    text = "made by hand\n1;none;x\n2;5,5;'y;\nz'\n"
    (tmp_path / "a.csv").write_text(text)
    format = ds.CsvFileFormat(
        pa_csv.ParseOptions(delimiter=";", quote_char="'", newlines_in_values=True),
        read_options=pa_csv.ReadOptions(skip_rows=1, column_names=["a", "b", "c"]),
        convert_options=pa_csv.ConvertOptions(null_values=["none"], decimal_point=","),
    )
    dataset = ds.dataset(tmp_path / "a.csv", format=format)
    expected = dataset.to_table()
    assert expected["b"].to_pylist() == [None, 5.5]
    assert rows_of(source_of(dataset, "left")).equals(expected)
    other = ds.CsvFileFormat(read_options=pa_csv.ReadOptions(encoding="latin-1"))
    (tmp_path / "l.csv").write_bytes("a\né\n".encode("latin-1"))
    latin = ds.dataset(tmp_path / "l.csv", format=other)
    assert rows_of(source_of(latin, "left"))["a"].to_pylist() == ["é"]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_rows_that_are_longer_than_a_block(tmp_path: Path, format: str) -> None:
    long = ["s", "m" * 200_000, "s", "l" * 500_000]
    table = pa.table({"t": [1, 2, 3, 4], "p": long})
    if format == "csv":
        pa_csv.write_csv(table, tmp_path / "a.csv")
    else:
        lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
        (tmp_path / "a.json").write_text("".join(lines))
    dataset = ds.dataset(tmp_path, format=format)
    source = source_of(dataset, "left").within(LITTLE)
    assert rows_of(source).equals(table)
    with pytest.raises(InputError, match="a.csv" if format == "csv" else "a.json"):
        (next(tmp_path.iterdir())).write_text(
            "t,p\n1,2,3\n" if format == "csv" else '{"t": 1, "p": '
        )
        rows_of(source)


def test_scanners_with_expressions(tmp_path: Path) -> None:
    dataset = written(tmp_path / "d", "parquet")
    asked: dict[str, Any] = {
        "columns": {"double": pc.field("x") * 2, "k": pc.field("k")},
        "filter": pc.field("i").is_null() & (pc.field("k") == "a"),
    }
    found = rows_of(source_of(dataset.scanner(**asked), "left"))
    assert found.equals(dataset.to_table(**asked))
    assert found.num_rows > 100


def test_arrow_reads_no_file_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV is read by a thread of Arrow's, which may still be at it when Python ends: whoever had to
    ask Python then aborted the process."""
    given = []

    def noted(read: Any) -> Any:
        def reading(text: Any, *args: Any, **options: Any) -> Any:
            given.append(text)
            return read(text, *args, **options)

        return reading

    for name in ("open_csv", "read_csv"):
        monkeypatch.setattr(csv_file.pa_csv, name, noted(getattr(csv_file.pa_csv, name)))
    pa_csv.write_csv(TABLE, tmp_path / "a.csv")
    rows_of(source_of(str(tmp_path / "a.csv"), "left"))
    rows_of(source_of(ds.dataset(tmp_path / "a.csv", format="csv"), "left"))
    assert len(given) >= 5
    assert all(isinstance(text, pa.NativeFile) for text in given)
    assert not any(isinstance(text, pa.PythonFile) for text in given)


# ── lazy frames ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def scans(tmp_path: Path) -> dict[str, pl.LazyFrame]:
    for number in range(2):
        pq.write_table(TABLE, tmp_path / f"{number}.parquet", row_group_size=500)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE, 700)
    path = tmp_path / "0.parquet"
    plain = pl.scan_parquet(path)
    return {
        "plain": plain, "plain columns": plain.select("x", "t"), "plain ipc":
        pl.scan_ipc(tmp_path / "a.arrow"), "plain list":
        pl.scan_parquet([path, tmp_path / "1.parquet"]),
        "filter": plain.filter(pl.col("x") < 9), "first": pl.scan_parquet(path, n_rows=9),
        "number": pl.scan_parquet(path, row_index_name="n"), "head": plain.head(5),
        "names": plain.rename({"x": "y"}), "values": plain.select(x=pl.col("x") * 2),
        "sorted": plain.sort("x", descending=True), "unique": plain.select("k").unique().sort("k"),
        "other name": plain.select(pl.col("x").alias("t")), "same twice": pl.concat([plain, plain]),
        "paths": pl.scan_parquet(path, include_file_paths="file"),
        "all": pl.scan_parquet(tmp_path / "*.parquet"),
        "group": plain.group_by("k").agg(pl.len()).sort("k"),
    }  # fmt: skip


def test_lazy_frames_are_read_by_us_only_where_they_are_files(
    scans: dict[str, pl.LazyFrame],
) -> None:
    for told, lazy in scans.items():
        source = source_of(lazy, "left").within(LITTLE)
        assert isinstance(source, Files if told.startswith("plain") else Spooled), told
        expected = lazy.collect().to_arrow()
        assert rows_of(source).equals(expected), told
        last = expected.schema.names[-1:]
        assert rows_of(source, last).equals(expected.select(last)), told


def test_lazy_frames_of_types_that_polars_reads_in_its_own_way(tmp_path: Path) -> None:
    table = pa.table({"d": pa.array(["a", "b", "a"]).dictionary_encode(), "l": [[1], [], None]})
    pq.write_table(table, tmp_path / "a.parquet")
    for lazy in (pl.scan_parquet(tmp_path / "a.parquet"), pl.scan_parquet(tmp_path)):
        source = source_of(lazy, "left")
        assert isinstance(source, Spooled)
        assert rows_of(source).to_pylist() == table.to_pylist()
