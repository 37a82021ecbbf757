"""The benchmark of as-of joins: all find the same, it prints ratios, and notices who differs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from matwin.tools import cli
from matwin.tools.bench import asof
from matwin.tools.bench.measures import Disagreement


@pytest.mark.parametrize("case", list(asof.cases(2_000, 1)), ids=lambda case: case.name)
def test_all_find_the_same_rows(case: asof.Case) -> None:
    tables = case.tables()
    mine = asof.ours(case, *tables).select(["t", "k", "v", "w"])
    columns = [(name, "ascending") for name in mine.column_names]
    for rival in asof.RIVALS.values():
        theirs = rival(case, *tables).select(mine.column_names).cast(mine.schema)
        assert theirs.sort_by(columns).equals(mine.sort_by(columns))


def test_sorted_cases_are_sorted() -> None:
    for case in asof.cases(500, 0):
        times = case.tables()[0]["t"].to_pylist()
        assert (times == sorted(times)) is case.is_sorted


def test_the_command_prints_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "asof", "--quick", "--repeat", "1"]) == 0
    out = capsys.readouterr().out
    assert "numbers, sorted" in out
    assert "texts, in any order" in out
    assert out.count("×") == 8
    assert cli.main(["bench", "asof", "--quick", "--repeat", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_the_merge_is_measured_beside_memory_and_a_copy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["bench", "asof", "--merge", "--rows", "20000", "--repeat", "1"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.count("×") == 4 and "a tolerance" in out
    assert cli.main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4 and all(row["merge"] > 0 for row in rows)


def test_a_rival_that_finds_other_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(case: asof.Case, left: pa.Table, right: pa.Table) -> Any:
        return left.append_column("w", pa.nulls(left.num_rows, pa.float64()))

    monkeypatch.setitem(asof.RIVALS, asof.DUCKDB, nobody)
    with pytest.raises(Disagreement, match="DuckDB"):
        asof.measure(asof.Case(100, True, False), 1, [asof.DUCKDB])
