"""Verification starts from what DuckDB reads of a file, and not from what our reader says."""

from __future__ import annotations

import bz2
import gzip
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matwin
from matwin.csv_file import Csv
from matwin.formats import JsonLines, Parquet
from matwin.shares import ReadShare
from matwin.sinks import write
from matwin.sources import source_of
from matwin.storage.errors import StoreError
from matwin.tools import referee

TEXTS = st.one_of(st.none(), st.sampled_from(["", "NA", "nan", " ", "7", 'q"', "a,b", "a\nb", "ö"]))
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1) | st.none(),
        st.floats(allow_nan=True) | st.none(), TEXTS, st.booleans() | st.none(),
    ), min_size=1, max_size=8,
)  # fmt: skip
FIRST = (1, 0.5, "text", True)
"""A row that says the types."""
NAMES = ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.jsonl", "a.arrow"]


def was_asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that DuckDB is asked for from here on."""
    asked: list[str] = []
    read = referee._read

    def noted(database: Any, text: str, path: str) -> pa.Table:
        asked.append(Path(path).name)
        return read(database, text, path)

    monkeypatch.setattr(referee, "_read", noted)
    return asked


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(rows=ROWS)
def test_duckdb_reads_what_our_readers_read(name: str, rows: list[tuple[Any, ...]]) -> None:
    columns = list(zip(FIRST, *rows, strict=True))
    table = pa.table(dict(zip("ixkb", columns, strict=True)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, name)
        write(table.to_reader(), str(path))
        source, asked = source_of(str(path), "left"), was_asked(patch)
        ours = pa.Table.from_batches(source.batches(), source.schema)
        assert str(referee.table_of(source).to_pydict()) == str(ours.to_pydict())
        assert asked == ([] if name == "a.arrow" else [name])
        if ".csv" in name or ".tsv" in name:
            assert str(ours["k"].to_pylist()) == str(table["k"].to_pylist())


def test_lists_of_files_and_folders_with_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for year in (2024, 2025):
        (tmp_path / f"year={year}").mkdir()
        (tmp_path / f"year={year}" / "a.csv").write_text(f"k,v\n,{year}\n")
    pq.write_table(pa.table({"k": ["x"], "v": [0.5], "year": [1]}), tmp_path / "b.parquet")
    asked = was_asked(monkeypatch)
    source = source_of(str(tmp_path), "left")
    expected = pa.Table.from_batches(source.batches(), source.schema)
    assert referee.table_of(source).equals(expected)
    assert sorted(asked) == ["a.csv", "a.csv", "b.parquet"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_reader_that_loses_a_row_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Both the join and the answer it was compared with came from it before."""
    path, one = str(tmp_path / f"a.{kind}"), str(tmp_path / "one.arrow")
    write(pa.table({"t": range(9), "k": ["a"] * 9}).to_reader(), path)
    feather.write_feather(pa.table({"t": range(9), "n": range(9)}), one)
    asked: dict[str, Any] = {"on": {"t": 0}}
    assert matwin.verify(path, one, best=False, **asked).is_equal
    reader = {"csv": Csv, "parquet": Parquet, "jsonl": JsonLines}[kind]
    batches = reader.batches

    def losing(self: Any, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, columns, share):
            yield batch.slice(1)

    monkeypatch.setattr(reader, "batches", losing)
    assert matwin.verify(path, one, best=False, **asked).missing == 1
    windows: dict[str, Any] = {"time": "t", "windows": 1}
    seen = matwin.verify_window_join({"a": path, "b": one}, **windows)
    assert not seen.is_equal and seen.missing > 0


def test_what_duckdb_cannot_read_is_read_by_us(tmp_path: Path) -> None:
    moment = pa.table({"t": pa.array([1, 2], pa.timestamp("ns", "UTC")), "n": [1, 2]})
    pq.write_table(moment, tmp_path / "a.parquet")
    (tmp_path / "b.csv.bz2").write_bytes(bz2.compress(b"t,k\n1,\n"))
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"t,k\n1,\n"))
    assert referee.table_of(source_of(str(tmp_path / "a.parquet"), "left")).equals(moment)
    for name in ("b.csv.bz2", "c.csv.gz"):
        found = referee.table_of(source_of(str(tmp_path / name), "left"))
        assert found.to_pylist() == [{"t": 1, "k": None}]
    (tmp_path / "broken.csv").write_text("t,k\n1,2,3\n")
    with pytest.raises(matwin.InputError, match=r"broken\.csv"):
        matwin.verify(str(tmp_path / "broken.csv"), str(tmp_path / "c.csv.gz"), on={"t": 0})


def test_the_verdict_says_who_has_read_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, where DuckDB could not or failed; in windows and of a result as well."""
    table = pa.table({"t": [1, 2], "n": [1, 2]})
    packed, plain, arrow = (str(tmp_path / name) for name in ("a.csv.bz2", "b.csv", "c.arrow"))
    Path(packed).write_bytes(bz2.compress(b"t,n\n1,1\n2,2\n"))
    write(table.to_reader(), plain)
    write(table.to_reader(), arrow)

    def told(*sides: Any, **more: Any) -> tuple[str, Any]:
        verdict = matwin.verify(*sides, on={"t": 0}, **more)
        assert verdict.is_equal
        return str(verdict), verdict.as_dict()["read_by_matwin"]

    equal = "equal: DuckDB finds the same rows, 2 in all"
    assert told(plain, table) == (equal, [])
    assert told(packed, plain) == (
        f"{equal}; {packed} was read by MatWin, and not by DuckDB",
        [packed],
    )
    both = f"{equal}; {packed}, {arrow} were read by MatWin, and not by DuckDB"
    assert told(packed, arrow) == (both, [packed, arrow])
    assert told(packed, packed)[1] == [packed]
    windows: dict[str, Any] = {"time": "t", "windows": 1}
    seen = matwin.verify_window_join({"a": packed, "b": plain}, **windows)
    assert seen.is_equal and seen.read_by_matwin == (packed,)
    result = str(tmp_path / "r.arrow")
    write(matwin.bestmatch_join(plain, plain, on={"t": 0}), result)
    assert told(plain, plain, result=result)[1] == [result]

    def failing(database: Any, text: str, path: str) -> pa.Table:
        raise StoreError("no memory")

    monkeypatch.setattr(referee, "_read", failing)
    assert told(plain, table)[1] == [plain]
    one = pa.table({"t": [1], "n": [1]})
    wrong = matwin.verify(
        plain, table, on={"t": 0}, result=matwin.bestmatch_join(one, one, on={"t": 0})
    )
    assert str(wrong).startswith("different: 1 rows, and 2 by DuckDB; ") and plain in str(wrong)
    files = [str(tmp_path / f"{i}.arrow") for i in range(5)]
    for file in files:
        write(one.to_reader(), file)
    more = str(matwin.verify(files, one, on={"t": 0}))
    assert more.endswith(f"{files[2]} and 2 more were read by MatWin, and not by DuckDB")
