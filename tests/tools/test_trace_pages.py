"""The life of pages, as a plain loop tells it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import traces

from matwin.storage import read_trace
from matwin.tools import cli


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["trace", "pages", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def plain(trace: Path) -> dict[tuple[str, int], dict[str, int]]:
    words = {
        "make": "makes", "write": "writes", "read": "reads", "hit": "hits", "evict": "evictions",
        "drop": "drops", "expire": "expiries",
    }  # fmt: skip
    found: dict[tuple[str, int], dict[str, int]] = {}
    for event in read_trace(trace).to_pylist():
        page = (event["window"], event["page"])
        if event["page"] >= 0 and page not in found:
            found[page] = defaultdict(int, first_ns=event["time_ns"])
        if event["page"] >= 0:
            found[page]["last_ns"] = event["time_ns"]
        if event["event"] in words:
            found[page][words[event["event"]]] += 1
        if event["event"] == "visit":
            for other in {page, (event["mate_window"], event["mate_page"])}:
                found[other]["visits"] += 1
    return found


@pytest.mark.parametrize("names", [("readings", "weather"), ("events",)])
def test_every_page_is_counted(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, _ = traces.walked(tmp_path, names=names)
    expected = plain(trace)
    found = asked(capsys, str(trace))
    assert {(row["window"], row["page"]) for row in found} == set(expected)
    for row in found:
        counts = expected[row["window"], row["page"]]
        counts["rereads"] = max(counts["reads"] - 1, 0)
        keys = set(row) - {"window", "page", "bytes"}
        assert {key: row[key] for key in keys} == {key: counts[key] for key in keys}
    again = [row["rereads"] for row in found]
    assert again == sorted(again, reverse=True)
    assert all(0 < row["bytes"] <= 4096 for row in found)


def test_only_one_window_and_only_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = traces.walked(tmp_path)
    assert {row["window"] for row in asked(capsys, str(trace), "--window", "weather")} == {
        "weather"
    }
    assert len(asked(capsys, str(trace), "--limit", "3")) == 3
    cli.main(["trace", "pages", str(trace), "--limit", "2"])
    text = capsys.readouterr().out
    assert "--limit 0 shows all" in text
    cli.main(["trace", "pages", str(trace), "--limit", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 4 + len(plain(trace))


def test_the_life_of_a_page_is_all_its_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, _ = traces.walked(tmp_path)
    told = asked(capsys, str(trace), "--window", "weather", "--page", "3")
    expected = [
        event
        for event in read_trace(trace).to_pylist()
        if (event["window"], event["page"]) == ("weather", 3)
        or (event["mate_window"], event["mate_page"]) == ("weather", 3)
    ]
    for key in ("seq", "time_ns", "event", "frame", "why"):
        assert [row[key] for row in told] == [event[key] for event in expected]
    visits = [row["mate"] for row in told if row["event"] == "visit"]
    assert visits and all(window == "readings" for window, _ in visits)
    assert sum(row["again"] for row in told) == sum(row["event"] == "read" for row in told) - 1
    assert cli.main(["trace", "pages", str(trace), "--window", "weather", "--page", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("page 3 of weather: made once, written once, read ")
    assert len(lines) == 4 + len(told)
    assert cli.main(["trace", "pages", str(trace), "--page", "3"]) == 2
    assert "--window" in capsys.readouterr().err


def test_time_in_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reach = traces.paper_reach()
    trace = traces.scripted(tmp_path / "t", traces.gallop(reach, 4), reach)
    cli.main(["trace", "pages", str(trace), "--window", "readings", "--page", "6"])
    assert "in a frame 100.0% of the time" in capsys.readouterr().out
