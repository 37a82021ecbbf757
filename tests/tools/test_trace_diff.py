"""Two traces side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import traces

from matwin.tools import cli


def asked(capsys: pytest.CaptureFixture[str], a: Path, b: Path) -> Any:
    assert cli.main(["trace", "diff", str(a), str(b), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def figures(tmp_path: Path) -> tuple[Path, Path]:
    reach = traces.paper_reach()
    return (
        traces.scripted(tmp_path / "a", traces.gallop(reach, 4), reach),
        traces.scripted(tmp_path / "b", traces.crabstep(reach, 4), reach, mode="crabstep"),
    )


def test_a_trace_and_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    assert not any(asked(capsys, trace, trace).values())
    assert cli.main(["trace", "diff", str(trace), str(trace)]) == 0
    assert capsys.readouterr().out == f"{trace} and {trace}: no difference\n"


def test_gallop_and_crabstep(
    figures: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, *figures)
    assert found["totals"]["reads"] == {"a": 30, "b": 21}
    assert found["totals"]["rereads"] == {"a": 16, "b": 7}
    assert "visits" not in found["totals"]
    assert found["modes"] == {"gallop": {"a": 1, "b": None}, "crabstep": {"a": None, "b": 1}}
    assert found["plans"][0]["differs"]["page_reads"] == {"a": 30, "b": 21}
    assert sum(page["a"] - page["b"] for page in found["pages"]) == 9
    changes = [abs(page["a"] - page["b"]) for page in found["pages"]]
    assert changes == sorted(changes, reverse=True) and min(changes) > 0
    assert cli.main(["trace", "diff", *map(str, figures)]) == 0
    text = capsys.readouterr().out
    assert "reads" in text and "-9" in text and "0.70×" in text


def test_the_other_way_round(
    figures: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = asked(capsys, *figures), asked(capsys, *figures[::-1])
    assert {key: (pair["a"], pair["b"]) for key, pair in a["totals"].items()} == {
        key: (pair["b"], pair["a"]) for key, pair in b["totals"].items()
    }


def test_other_windows_settings_and_plans(
    figures: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [("read", "a\x1b", 3, 0, 9, 0, ""), ("complete", "", -1, -1, 0, 1, "step 1")]
    other = traces.written(tmp_path / "c", events, {"page_size": "8192"})
    found = asked(capsys, figures[0], other)
    assert found["settings"]["page_size"] == {"a": 4096, "b": 8192}
    assert found["settings"]["budget_bytes"] == {"a": 131072, "b": None}
    assert found["windows"]["a\x1b"]["reads"] == {"a": None, "b": 1}
    assert found["plans"][0]["differs"]["mode"] == {"a": "gallop", "b": None}
    assert {"window": "a\x1b", "page": 3, "a": 0, "b": 1} in found["pages"]
    assert cli.main(["trace", "diff", str(figures[0]), str(other)]) == 0
    assert "\x1b" not in capsys.readouterr().out
