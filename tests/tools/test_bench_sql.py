"""The benchmark of SQL: both ways give the same rows, and it prints ratios."""

from __future__ import annotations

import json

import pytest

from matwin.tools import cli
from matwin.tools.bench import sql


def test_the_command_prints_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "sql", "--rows", "2000", "--repeat", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("×") == len(sql.CASES)
    assert cli.main(["bench", "sql", "--rows", "2000", "--repeat", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == [case.name for case in sql.CASES]
    assert all(row["ratio"] > 0 for row in found)
