"""A trace of a million events passes without a step of Python for each of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import traces

from matwin.storage import read_trace
from matwin.tools import cli

EVENTS = 1_000_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return traces.large(tmp_path_factory.mktemp("large") / "large.trace", EVENTS)


def calls_of(work: Callable[[], int]) -> int:
    """How many calls of functions, Python's and C's, the work takes."""
    count = 0

    def look(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(look)
    try:
        assert work() == 0
    finally:
        sys.setprofile(None)
    return count


COMMANDS = [
    ["summary"],
    ["summary", "--json"],
    ["pages"],
    ["pages", "--window", "weather", "--page", "400"],
    ["replay", "--frames", "8,400", "--mode", "crabstep"],
    ["matrix"],
    ["perfetto", "--overwrite"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_python_for_single_events(
    words: list[str], trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["trace", words[0], str(trace), *words[1:]]
    assert cli.main(line) == 0  # what compiles, compiles now
    assert calls_of(lambda: cli.main(line)) < EVENTS // 4
    assert capsys.readouterr().out


def test_counts_of_a_million(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = Counter(
        {r["values"]: r["counts"] for r in read_trace(trace)["event"].value_counts().to_pylist()}
    )
    assert cli.main(["trace", "summary", str(trace), "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    found = {"read": totals["reads"], "hit": totals["hits"], "evict": totals["evictions"]}
    assert found == {kind: kinds[kind] for kind in found}
    assert totals["rereads"] == totals["reads"] - totals["pages_read_distinct"]
