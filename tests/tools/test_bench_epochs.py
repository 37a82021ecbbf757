"""The benchmark of continuous queries: all find the same, and whoever differs is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from matwin.tools import cli
from matwin.tools.bench import epochs
from matwin.tools.bench.measures import Disagreement


def test_the_command_prints_three_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "epochs", "--quick", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["what"] for one in told["figure_6"]} == {
        epochs.LIVING, epochs.JOINED, epochs.ONE_TIME
    }  # fmt: skip
    assert len({one["found"] for one in told["figure_6"] if one["chunk"] == 500}) == 1
    assert sorted({one["window"] for one in told["growth"]}) == [1000, 4000, 16000]
    assert all(one["found"] > 0 for one in told["growth"])


def test_who_finds_other_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(flow: epochs.Flow, tables: Any) -> epochs.Rate:
        return epochs.Rate("DuckDB by hand", flow.window, 1.0, 0)

    monkeypatch.setattr(epochs, "duckdb_chunks", nothing)
    with pytest.raises(Disagreement, match="DuckDB"):
        epochs.growth(100, (2,), 0)
