"""`matwin bench start`: every join runs in a process of its own, and what is printed adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matwin.storage import native
from matwin.tools import cli
from matwin.tools.bench import start


def test_all_joins_and_what_they_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {name: start.JOINS[name] for name in ("as-of", "window")}
    monkeypatch.setattr(start, "JOINS", quick)
    assert cli.main(["bench", "start", "--quick", "--repeat", "1", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert quick.keys() < rows.keys()
    for row in rows.values():
        assert row["warm"]["rows_out"] > row["few"]["rows_out"]
        assert row["warm"]["cpu_seconds"] > 0 and row["warm"]["resident_mib"] > 10
    for name in quick:
        cold, warm = rows[name]["cold"], rows[name]["warm"]
        assert cold["rows_out"] == warm["rows_out"]
        if native.is_possible():  # no Numba and no LLVM in the second process
            assert warm["resident_mib"] < cold["resident_mib"] - 50
            assert warm["cpu_seconds"] < cold["cpu_seconds"]


def test_the_table_has_a_line_for_each() -> None:
    one = start.Start(0.5, 100.0, 7)
    lines = start.text([start.Row("ours", one, one, one), start.Row("theirs", None, one, one)])
    assert [line.split()[0] for line in lines.splitlines()[2:]] == ["ours", "theirs"]
    assert "–" in lines.splitlines()[3]


def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(start.MatwinError, match="a process failed"):
        start.first_join("import no_such_module", [tmp_path / "a", tmp_path / "b"], tmp_path)
