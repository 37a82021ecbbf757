"""The trace of a continuous query: its epochs are marked wherever it is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import traces
from browser import at_cursor, chromium, opened, seek, written

import matwin
from matwin.tools.cli import main
from matwin.tools.trace.epochs import epochs
from matwin.tools.trace.events import Events
from matwin.tools.trace.summary import summarize

EPOCHS = 6


def run(folder: Path, *, state: bool, name: str = "epochs.trace") -> Path:
    trace = folder / name
    rows = pa.table({"t": list(range(60)), "k": [t % 7 for t in range(60)]})
    query = matwin.continuous_query(
        "SELECT k, count(*) AS n FROM a GROUP BY k", {"a": rows}, keep=2,
        cut=matwin.cut.every(10, on="t"), state=folder / "state" if state else None, trace=trace,
    )  # fmt: skip
    assert query.run().epoch == EPOCHS
    return trace


@pytest.mark.parametrize("state", [False, True])
def test_epochs_reach_from_commit_to_commit(tmp_path: Path, state: bool) -> None:
    events = Events.open(run(tmp_path, state=state))
    found = epochs(events)
    assert [each["epoch"] for each in found] == [1, 2, 3, 4, 5, 6]
    assert [each["makes"] for each in found] == [1] * 6
    assert [each["expiries"] for each in found] == [0, 0, 1, 1, 1, 1]
    ends = [each["end"] for each in found]
    assert [each["start"] for each in found] == [0, *(end + 1 for end in ends[:-1])]
    kinds = events.table["event"].to_pylist()
    assert all(kinds[end] == "complete" for end in ends)
    assert summarize(events)["complete_steps"] == 6 + state  # the last result was taken: a step


def test_epochs_go_on_after_a_restart(tmp_path: Path) -> None:
    run(tmp_path, state=True)
    rows = pa.table({"t": list(range(80)), "k": [t % 7 for t in range(80)]})
    query = matwin.continuous_query(
        "SELECT k, count(*) AS n FROM a GROUP BY k", {"a": rows}, keep=2,
        cut=matwin.cut.every(10, on="t"), state=tmp_path / "state", trace=tmp_path / "more.trace",
    )  # fmt: skip
    query.run()
    assert [each["epoch"] for each in epochs(Events.open(tmp_path / "more.trace"))] == [7, 8]


def test_other_traces_have_none(tmp_path: Path) -> None:
    assert summarize(Events.open(traces.walked(tmp_path)[0]))["epochs"] == []


def test_every_command_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(run(tmp_path, state=True))
    assert main(["trace", "summary", trace]) == 0
    text = capsys.readouterr().out
    assert "epoch  events  made" in text and f"\n{EPOCHS:>5}  " in text
    assert main(["trace", "summary", trace, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["epochs"]) == EPOCHS
    for words in (
        ["pages", trace], ["replay", trace], ["diff", trace, trace],
        ["dump", trace, "--window", "a", "--page", "5"],
    ):  # fmt: skip
        assert main(["trace", *words]) == 0, words
    capsys.readouterr()
    assert main(["trace", "matrix", trace]) == 2
    assert "has no plan" in capsys.readouterr().err


def test_perfetto_has_a_track_of_epochs(tmp_path: Path) -> None:
    trace = run(tmp_path, state=False)
    out = tmp_path / "out.json"
    assert main(["trace", "perfetto", str(trace), "-o", str(out)]) == 0
    told: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    slices = [e for e in told if e.get("cat") == "epoch"]
    assert [e["name"] for e in slices] == [f"epoch {n}" for n in range(1, EPOCHS + 1)]
    ends = [e["ts"] + e["dur"] for e in slices]
    assert all(end <= later["ts"] + 1e-3 for end, later in zip(ends, slices[1:], strict=False))


def test_the_page_shows_the_epoch_of_each_event(tmp_path: Path) -> None:
    trace = run(tmp_path, state=True)
    found = epochs(Events.open(trace))
    with chromium() as browser, opened(browser, written(trace)) as page:
        for each in (found[0], found[3]):
            for at in (each["start"], each["end"]):
                seek(page, at)
                at_cursor(page, at)
                shown = page.locator("#now").all_text_contents()
                assert f"epoch{each['epoch']}" in "".join(shown).replace(" ", "")
        box = page.locator("#timeline").bounding_box()
        place = found[3]["start"] + 1
        x = box["width"] * place / len(Events.open(trace))
        page.mouse.move(box["x"] + x, box["y"] + 12)
        assert page.text_content("#tip-title") == "epoch 4"
