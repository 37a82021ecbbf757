"""What a join returns: every form of its rows, and what it says when there are none left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin

LEFT = pa.table({"t": [10, 20, 30], "price": [1.5, 1.6, 1.7]})
RIGHT = pa.table({"t": [8, 12, 19], "bid": ["a", "<b>", None]})
EXPECTED = {"t_left": [10, 20], "price": [1.5, 1.6], "t_right": [8, 19], "bid": ["a", None]}


def result(**options: Any) -> matwin.Result:
    return matwin.epsilon_join(LEFT, RIGHT, on={"t": (-2, 0)}, **options)


def test_all_forms_have_the_same_rows(tmp_path: Path) -> None:
    table = result().to_arrow()
    assert table.to_pydict() == EXPECTED and table.schema == result().schema
    assert result().read_all().equals(table)
    assert pa.Table.from_batches(result()).equals(table)
    assert pa.table(result()).equals(table)  # the Arrow C stream
    assert result().to_reader().read_all().equals(table)
    assert pl.DataFrame(result()).to_dict(as_series=False) == EXPECTED
    assert result().to_polars().to_dict(as_series=False) == EXPECTED
    frame = result().to_pandas()
    assert frame["t_left"].tolist() == EXPECTED["t_left"] and len(frame) == 2
    with duckdb.connect() as connection:
        relation = result().to_duckdb(connection)
        assert relation.order("t_left").fetchall() == [(10, 1.5, 8, "a"), (20, 1.6, 19, None)]
    path = tmp_path / "out.parquet"
    assert result().write(path) == 2
    assert pq.read_table(path).equals(table)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "arrow", "parquet"])
def test_files_are_not_replaced_unasked(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_text("mine")
    with pytest.raises(matwin.InputError, match="is there already; give overwrite=True"):
        result().write(path)
    assert path.read_text() == "mine"
    assert result().write(str(path), overwrite=True) == 2
    assert path.read_bytes() != b"mine"
    with pytest.raises(matwin.InputError, match="suffix"):
        result().write(tmp_path / "out.xyz")
    assert result().write(tmp_path / "out.xyz", format="csv") == 2


READS: dict[str, Any] = {
    "iteration": list,
    "to_arrow": lambda r: r.to_arrow(),
    "to_pandas": lambda r: r.to_pandas(),
    "to_polars": lambda r: r.to_polars(),
    "stream": pa.table,
}


@pytest.mark.parametrize("first", READS)
@pytest.mark.parametrize("second", READS)
def test_a_second_read_says_so(first: str, second: str) -> None:
    found = result()
    READS[first](found)
    with pytest.raises(matwin.InputError, match="have been read already"):
        READS[second](found)


def test_reading_goes_on_where_it_stopped() -> None:
    many = pa.table({"t": list(range(200_000))})
    found = matwin.epsilon_join(many, many, on={"t": 0})
    first = found.read_next_batch()
    rest = found.to_arrow()
    assert 0 < first.num_rows < 200_000
    assert first.num_rows + rest.num_rows == 200_000
    with pytest.raises(StopIteration):
        found.read_next_batch()


def test_repr_runs_nothing() -> None:
    report = matwin.Report()
    found = result(report=report)
    assert repr(found) == "<matwin.Result: t_left, price, t_right, bid; not read yet>"
    assert report.left.rows_in == 0 and found.report is report
    found.to_arrow()
    assert "2 rows, all read" in repr(found)
    assert report.is_done and report.rows_out == 2


def test_a_notebook_shows_the_first_rows_and_takes_none() -> None:
    found = result()
    shown = found._repr_html_()
    assert "<th>t_left</th>" in shown and "all 2 rows" in shown
    assert found._repr_html_() == shown
    assert found.to_arrow().to_pydict() == EXPECTED
    assert "all read" in found._repr_html_()
    many = pa.table({"t": list(range(1000)), "name": ["<b>"] * 1000})
    found = matwin.epsilon_join(many, many, on={"t": 0})
    shown = found._repr_html_()
    assert shown.count("<tr>") == 11 and "the first 10 rows" in shown
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    assert found.to_arrow().num_rows == 1000


def test_closing() -> None:
    with result() as found:
        pass
    assert "closed" in repr(found)
    with pytest.raises(matwin.InputError, match="closed"):
        found.to_arrow()


def test_every_join_returns_one() -> None:
    best = matwin.bestmatch_join(LEFT, RIGHT, on={"t": 5})
    window = matwin.window_join({"a": LEFT, "b": RIGHT}, time="t", windows=5)
    fixed = matwin.fixed_window_join(LEFT, RIGHT, time="t", period=5, on={"t": 5})
    for each in (best, window, fixed):
        assert isinstance(each, matwin.Result)
        text = each.explain()
        assert "join" in text and "memory" in text
        assert each.to_arrow().schema == each.schema


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(matwin.InputError, match="pip install polars"):
        result().to_polars()
