"""Bad input is one clear line and exit code 2, whatever the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import traces
from hypothesis import given, settings
from hypothesis import strategies as st

from matwin.storage.trace import SCHEMA
from matwin.tools import cli

COMMANDS = {
    "summary": [],
    "pages": [],
    "dump": ["--window", "w", "--page", "0"],
    "matrix": [],
    "replay": [],
    "perfetto": [],
}
LAYOUT = {
    "mode": "auto", "frames": 4, "page_reads": 3, "explain": "", "left": [0, 1], "right": [0],
    "is_self": False, "reach": [[0, 0, 1], [1, 0, 1]],
}  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["trace", *words]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1 and streams.err.startswith("matwin: error: ")
    return streams.err


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reach = traces.paper_reach()
    folder = tmp_path_factory.mktemp("bad")
    return traces.scripted(folder / "good.trace", traces.gallop(reach, 4), reach)


def bad_files(folder: Path, trace: Path) -> dict[str, Path]:
    data = trace.read_bytes()
    for name, content in {
        "missing": None, "empty": b"", "cut": data[:-40], "short": data[: len(data) // 2],
        "text": b"no trace\n" * 100,
    }.items():  # fmt: skip
        if content is not None:
            (folder / name).write_bytes(content)
    with pa.ipc.new_file(str(folder / "foreign"), pa.schema([("a", pa.int64())])):
        pass
    newer = SCHEMA.with_metadata({"matwin.trace": "99"})
    with pa.ipc.new_file(str(folder / "newer"), newer):
        pass
    columns = pa.schema([("a", pa.int64())]).with_metadata({"matwin.trace": "2"})
    with pa.ipc.new_file(str(folder / "columns"), columns):
        pass
    (folder / "folder").mkdir()
    names = "missing empty cut short text foreign newer columns folder"
    return {name: folder / name for name in names.split()}


@pytest.mark.parametrize("command", [*COMMANDS, "diff"])
def test_files_that_are_no_traces(
    command: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, path in bad_files(tmp_path, trace).items():
        if command == "diff":
            assert name in refused(capsys, "diff", str(trace), str(path))
            refused(capsys, "diff", str(path), str(trace))
        else:
            error = refused(capsys, command, str(path), *COMMANDS[command])
            assert name in error
            assert "99" in error or name != "newer"


WRONG_WORDS: list[tuple[list[str], str]] = [
    (["replay", "--frames", "0"], "at least 2"),
    (["replay", "--frames", "-3"], "at least 2"),
    (["replay", "--frames", "1"], "at least 2"),
    (["replay", "--frames", "four"], "four"),
    (["replay", "--frames", ""], "--frames"),
    (["replay", "--frames", "9..4"], "larger"),
    (["replay", "--frames", "4,,5"], "--frames"),
    (["replay", "--frames", "99999999999999999999"], "at most"),
    (["replay", "--mode", "trot"], "gallop"),
    (["replay", "--replacement", "clock"], "lru"),
    (["replay", "--plan", "1"], "plans 0 to 0"),
    (["replay", "--plan", "-1"], "plans 0 to 0"),
    (["matrix", "--plan", "7"], "plans 0 to 0"),
    (["matrix", "--upto", "-1"], "begins at event 0"),
    (["matrix", "--width", "3"], "at least"),
    (["pages", "--window", "no\x1bne"], "no\\x1bne"),
    (["pages", "--page", "77"], "no page 77"),
    (["pages", "--window", "weather", "--page", "-4"], "no page -4"),
    (["pages", "--limit", "-1"], "--limit"),
    (["dump", "--window", "weather", "--page", "0"], "scratch"),
]


@pytest.mark.parametrize(("words", "hint"), WRONG_WORDS, ids=lambda value: ascii(value))
def test_words_that_make_no_sense(
    words: list[str], hint: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, words[0], str(trace), *words[1:])
    assert hint in error and "\x1b" not in error


def test_a_trace_without_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(traces.written(tmp_path / "t", [("read", "w", 0, 0, 1, 0, "")]))
    for words in (["matrix"], ["replay", "--plan", "0"], ["replay", "--mode", "auto"]):
        assert "no plan" in refused(capsys, words[0], path, *words[1:])
    empty = str(traces.written(tmp_path / "e", []))
    assert "neither" in refused(capsys, "replay", empty)


BAD_LAYOUTS: list[str] = [
    "", "nonsense", "[]", "3", "null", '"text"', "{", "[" * 100_000, "1" * 5000,
    *(
        json.dumps({**LAYOUT, key: value})
        for key, value in [
            ("left", 3), ("left", "pages"), ("left", [0, "1"]), ("left", [0, 0]),
            ("left", [0, -1]), ("left", [[0], [1]]), ("left", [0, 2**70]), ("left", [0.5, 1.5]),
            ("left", [None, 1]), ("left", {"0": 1}), ("left", [True, False]), ("right", [2**63]),
            ("right", None), ("reach", [[0, 0]]), ("reach", [[0, 0, 2]]), ("reach", [[0, -1, 1]]),
            ("reach", [[2, 0, 1]]), ("reach", [[-1, 0, 1]]), ("reach", [[0, 1, 0]]),
            ("reach", [0, 0, 1]), ("reach", "all"), ("reach", [[0, 0, 1], [1]]),
            ("frames", -1), ("frames", "4"), ("frames", 10**30), ("frames", 2**53 - 1),
            ("page_reads", None), ("page_reads", 1.5), ("frames", True),
            ("right_windows", 3), ("right_windows", "v"), ("right_windows", {"v": 1}),
            ("right_windows", ["v", 1]), ("right_windows", [["v"]]), ("right_windows", [["v", -1]]),
            ("right_windows", [["v", 2]]), ("right_windows", [["v", 0]]),
            ("right_windows", [[1, 1]]), ("right_windows", [["v", True]]),
            ("right_windows", [["v", 2**53 - 1], ["u", 2**53 - 1]]),
            ("right_windows", [["v", 0]] * 257 + [["v", 1]]), ("right_windows", [["v", 1, 1]]),
            ("right_windows", [["v", 0.5], ["u", 0.5]]), ("right_windows", None),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("layout", BAD_LAYOUTS, ids=lambda text: text[:60])
def test_plans_that_make_no_sense(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        ("read", "w", 0, 0, 1, 0, ""),
        ("plan", "w", -1, -1, 0, 0, layout, ("v", -1)),
    ]
    path = str(traces.written(tmp_path / "t", events))
    for words in (["summary"], ["matrix"], ["replay"]):
        error = refused(capsys, words[0], path)
        assert f"{path}, event 1" in error


def test_plans_that_leave_things_out_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts: list[dict[str, Any]] = [
        {},
        {**LAYOUT, "mode": 5, "explain": [1], "is_self": "yes"},
        {**LAYOUT, "mode": "\x1b[2J\n", "explain": "\x07"},
        {**LAYOUT, "is_self": True, "reach": [[0, 0, 2]]},
        {**LAYOUT, "frames": 0, "page_reads": 2**52},
    ]
    for number, layout in enumerate(layouts):
        events = [
            ("plan", "w", -1, -1, 0, 0, json.dumps(layout), ("v", -1)),
            ("walked", "w", -1, -1, 0, 0, "\x1b", ("v", -1)),
            ("visited", "w", 5, -1, 0, 0, "", ("q", 3)),
        ]
        path = str(traces.written(tmp_path / str(number), events))
        for command in ("summary", "matrix", "replay"):
            assert cli.main(["trace", command, path]) == 0
            assert all(c.isprintable() or c == "\n" for c in capsys.readouterr().out)


def test_more_pairs_than_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A layout of a few hundred kilobytes may claim more pairs than anybody has time for."""
    pages = list(range(60_000))
    reach = [[i, 0, len(pages)] for i in pages]
    layout = {**LAYOUT, "left": pages, "right": pages, "reach": reach}
    events = [("plan", "w", -1, -1, 0, 0, json.dumps(layout), ("v", -1))]
    path = str(traces.written(tmp_path / "t", events))
    assert "3,600,000,000 pairs" in refused(capsys, "replay", path)
    for command in ("summary", "matrix"):
        assert cli.main(["trace", command, path]) == 0
        assert "3,600,000,000" in capsys.readouterr().out


def test_more_frames_than_anybody_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = json.dumps({**LAYOUT, "frames": 2**53 - 1})
    events = [("plan", "w", -1, -1, 0, 0, layout, ("v", -1))]
    path = str(traces.written(tmp_path / "t", events))
    error = refused(capsys, "replay", path)
    assert "event 0" in error and "9,007,199,254,740,991" in error and "'frames'" in error


@settings(max_examples=60)
@given(st.data())
def test_damaged_bytes_end_in_words(data: st.DataObject) -> None:
    """Whatever byte is changed, a command succeeds or says in one line what is wrong."""
    good = _GOOD.read_bytes()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    _BAD.write_bytes(bad)
    for command in ("summary", "pages", "matrix"):
        assert cli.main(["trace", command, str(_BAD)]) in (0, 2)


_GOOD = _BAD = Path()


@pytest.fixture(autouse=True, scope="module")
def _damaged(tmp_path_factory: pytest.TempPathFactory) -> None:
    global _GOOD, _BAD
    folder = tmp_path_factory.mktemp("damaged")
    reach = traces.paper_reach()
    _GOOD = traces.scripted(folder / "good", traces.gallop(reach, 4), reach)
    _BAD = folder / "bad"


@pytest.mark.filterwarnings("error")
def test_numbers_at_the_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = 40
    random = np.random.default_rng(3)
    ends = np.array([-(2**63), -1, 0, 1, 2**63 - 1])
    kinds = ("read", "hit", "make", "write", "evict", "visit", "visited", "fetch", "expire", "?")
    rows = [
        {
            "seq": int(random.choice(ends)), "time_ns": int(random.choice(ends)),
            "event": str(random.choice(kinds)), "window": "w", "page": int(random.choice(ends)),
            "frame": int(random.choice([-(2**31), -1, 0, 2**31 - 1])),
            "bytes": int(random.choice(ends)), "epoch": int(random.choice(ends)),
            "mate_window": "w", "mate_page": int(random.choice(ends)), "why": None,
        }
        for _ in range(count)
    ]  # fmt: skip
    rows[3] |= {"event": "plan", "why": json.dumps(LAYOUT)}
    schema = SCHEMA.with_metadata({"matwin.trace": "2"})
    with pa.ipc.new_file(str(tmp_path / "t"), schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    for command in ("summary", "pages", "matrix", "replay", "perfetto"):
        assert cli.main(["trace", command, str(tmp_path / "t")]) == 0, command
        assert capsys.readouterr().out
    largest = str(2**63 - 1)
    assert cli.main(["trace", "pages", str(tmp_path / "t"), "--page", largest]) == 0
    assert cli.main(["trace", "diff", str(tmp_path / "t"), str(tmp_path / "t")]) == 0
