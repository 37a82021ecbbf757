"""The page of a trace as a file: its columns, its policy, and how it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import traces
from browser import HOSTILE, written

from matwin.outputs import write_pieces
from matwin.tools import cli
from matwin.tools.trace.events import Events
from matwin.tools.trace.packed import NARROW, array_block, json_block, pack, unpack
from matwin.tools.trace.summary import summarize
from matwin.tools.trace.walks import walks


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a real walk on a real store."""
    return traces.walked(tmp_path_factory.mktemp("walk"))[0]


@pytest.mark.parametrize("name", HOSTILE)
def test_packed_columns_come_back(name: str, tmp_path: Path) -> None:
    events = Events.open(traces.walked(tmp_path, names=(name, "right"))[0])
    packed = pack(events, summarize(events))
    found = {block.name: unpack(block) for block in packed.blocks}
    table = events.table
    for column in ("seq", "time_ns", "frame", "bytes", "epoch"):
        assert np.array_equal(found[column], table[column].to_numpy())
    assert [packed.kinds[code] for code in found["event"]] == table["event"].to_pylist()
    for key, window, page in (("key", "window", "page"), ("mate", "mate_window", "mate_page")):
        names = [packed.windows[at] for at in found["key_window"][found[key]]]
        assert names == table[window].to_pylist()
        assert np.array_equal(found["key_page"][found[key]], table[page].to_numpy())
    is_plan = [kind == "plan" for kind in table["event"].to_pylist()]
    whys = [found["reasons"][code] for code in found["why"]]
    expected = [
        json.loads(why)["explain"] if planned else why
        for why, planned in zip(table["why"].to_pylist(), is_plan, strict=True)
    ]
    assert whys == expected
    assert found["summary"] == json.loads(json.dumps(summarize(events)))


def test_layouts_come_with_the_pages_keys(walk: Path) -> None:
    events = Events.open(walk)
    packed = pack(events, summarize(events))
    found = {block.name: unpack(block) for block in packed.blocks}
    (told,), (layout,) = walks(events), found["walks"]
    for side, name, pages in (
        ("left", told.left, told.left_pages),
        ("right", told.right, told.right_pages),
    ):
        keys = np.array(layout[side])
        assert np.array_equal(found["key_page"][keys], pages)
        assert {packed.windows[at] for at in found["key_window"][keys]} == {name}
    assert layout["reach"] == [place for triple in told.triples for place in triple]
    assert (layout["start"], layout["end"]) == (told.start, told.end)


def test_events_come_with_their_walk_where_walks_overlap(walk: Path, tmp_path: Path) -> None:
    events = Events.open(walk)
    assert "owner" not in {block.name for block in pack(events, summarize(events)).blocks}
    events = Events.open(traces.overlapping(tmp_path / "t"))
    found = {block.name: unpack(block) for block in pack(events, summarize(events)).blocks}
    places = events.places_of("visit", "visited", "fetch", "read", "mode")
    expected = [int(events.names[at] in "cd") for at in events.window[places]]
    assert found["owner"][places].tolist() == expected


@pytest.mark.parametrize("name", ["page", "time_ns"])
def test_numbers_take_the_narrowest_type_that_holds_them(name: str) -> None:
    for dtype in NARROW:
        limits = np.iinfo(dtype)
        values = np.array([limits.max, limits.min, 0])
        assert np.array_equal(unpack(array_block(name, values)), values)
    assert array_block("page", np.array([0, 255])).dtype == "uint8"
    assert array_block("page", np.array([-1, 255])).dtype == "int16"
    wide = np.array([0, 2**33, 2**53 - 1])
    assert array_block(name, wide).dtype == "float64"
    assert np.array_equal(unpack(array_block(name, wide)), wide)
    assert unpack(array_block(name, np.zeros(0, np.int64))).tolist() == []
    assert unpack(json_block("x", {"a": ["\ud800", "<"]})) == {"a": ["\ud800", "<"]}


def test_the_policy_names_the_script_and_the_style_that_are_there(walk: Path) -> None:
    text = written(walk).read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert f"script-src 'sha256-{digest(script)}'" in policy
    assert f"style-src 'sha256-{digest(style)}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"\bon\w+\s*=\s*[\"']|style\s*=\s*[\"']|javascript:", text)


def test_the_page_names_no_other_place(walk: Path) -> None:
    text = written(walk).read_text(encoding="utf-8")
    assert "http:" not in text and "https:" not in text
    assert not re.search(r"\b(src|href)\s*=", text)
    assert "innerHTML" not in text and "eval(" not in text


def test_names_end_no_element(tmp_path: Path) -> None:
    trace = traces.walked(tmp_path, names=HOSTILE)[0]
    named = tmp_path / "<img src=x onerror=alert(1)>.trace"
    trace.rename(named)
    text = written(named).read_text(encoding="utf-8")
    blocks = len(pack(Events.open(named), {}).blocks)
    assert text.count("</script>") == text.count("<script") == blocks + 2
    assert "<img" not in text
    assert not {"\u2028", "\u202e"} & set(text)


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_it_says_where_it_wrote(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["trace", "html", str(walk), "--overwrite"]) == 0
    assert str(walk.with_suffix(".html")) in capsys.readouterr().out
    output = written(walk, tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert output.stat().st_size == walk.with_suffix(".html").stat().st_size


def test_what_can_not_be_written_is_one_line(
    walk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    for output in (tmp_path / "nowhere" / "x.html", tmp_path / "folder", walk):
        assert cli.main(["trace", "html", str(walk), "-o", str(output)]) == 2
        streams = capsys.readouterr()
        assert streams.out == "" and streams.err.count("\n") == 1
        assert str(output) in streams.err
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
    assert Events.open(walk)


def test_a_page_that_fails_half_way_leaves_the_old_one(walk: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    output.write_text("old")

    def pieces() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pieces(output, pieces(), overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert output.read_text() == "old"


@pytest.mark.parametrize("content", [None, b"", b"no trace\n" * 100])
def test_bad_traces_are_refused(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "bad.trace"
    if content is not None:
        trace.write_bytes(content)
    assert cli.main(["trace", "html", str(trace)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "bad.trace" in error
    assert not trace.with_suffix(".html").exists()
