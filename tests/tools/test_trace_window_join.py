"""The trace of a three-way window join: one matrix, with the pages of both other streams."""

from __future__ import annotations

from pathlib import Path

import browser as browsers
import numpy as np
import pyarrow as pa
import pytest
from browser import written

import matwin
from matwin.tools import cli
from matwin.tools.trace.events import Events
from matwin.tools.trace.packed import pack, unpack
from matwin.tools.trace.summary import summarize
from matwin.tools.trace.walks import Walked, walks


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A join of pages of 4 KiB."""
    path = tmp_path_factory.mktemp("window") / "run.trace"
    chance = np.random.default_rng(1)
    tables = {
        name: pa.table({"t": chance.integers(0, 4000, rows), "k": chance.integers(0, 50, rows)})
        for name, rows in (("door", 3000), ("lift", 1500), ("desk", 1000))
    }
    found = matwin.window_join(
        tables, time="t", by="k", windows={("door", "lift"): 5, ("lift", "desk"): 5},
        memory=48 * 4096, page_size=4096, trace=path,
    )  # fmt: skip
    assert found.read_all().num_rows > 0
    return path


def the_walk(trace: Path) -> tuple[Events, Walked]:
    events = Events.open(trace)
    (walk,) = walks(events)
    return events, walk


def right_names(walk: Walked) -> list[str]:
    """The window of each right page."""
    return [name for name, count in walk.right_windows for _ in range(count)]


def test_the_walk_has_the_pages_of_both_other_windows(trace: Path) -> None:
    events, walk = the_walk(trace)
    assert walk.left == "door"
    assert [name for name, _ in walk.right_windows] == ["lift", "desk"]
    assert all(count > 1 for _, count in walk.right_windows)
    places, columns, rows = walk.visits(events)
    pairs = set(zip(columns.tolist(), rows.tolist(), strict=True))
    assert len(pairs) == len(places) == walk.reach.pairs
    assert pairs == {(i, j) for i, first, limit in walk.triples for j in range(first, limit)}
    reads = walk.uses(events, "read")[1]
    assert len(reads) <= walk.page_reads
    assert (reads >= walk.left_count).any() or walk.page_reads == walk.pages_needed


def test_the_matrix_names_both_windows(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "matrix", str(trace)]) == 0
    text = capsys.readouterr().out
    assert "door" in text and "× lift, desk" in text
    walk = the_walk(trace)[1]
    pages = zip(right_names(walk), walk.right_pages.tolist(), strict=True)
    lines = [" ".join(line.split()[:2]) for line in text.splitlines()[4:]]
    assert lines[: walk.right_count] == [f"{name} {number}" for name, number in pages]


@pytest.mark.parametrize("words", [["replay"], ["summary"], ["summary", "--json"]])
def test_the_other_commands_read_it(
    words: list[str], trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["trace", words[0], str(trace), *words[1:]]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("door", "lift", "desk"))


def test_a_layout_names_each_page_by_its_own_window(trace: Path) -> None:
    events, walk = the_walk(trace)
    packed = pack(events, summarize(events))
    found = {block.name: unpack(block) for block in packed.blocks}
    (layout,) = found["walks"]
    assert layout["rights"] == ["lift", "desk"]
    names = [packed.windows[at] for at in found["key_window"][layout["right"]]]
    assert names == right_names(walk)
    assert np.array_equal(found["key_page"][layout["right"]], walk.right_pages)


def test_the_page_shows_the_matrix(trace: Path) -> None:
    events, walk = the_walk(trace)
    _, columns, rows = walk.visits(events)
    with browsers.chromium() as browser, browsers.opened(browser, written(trace)) as page:
        facts = page.text_content("#walk-facts")
        assert f"{walk.left_count} × {walk.right_count} pages" in facts
        told = page.text_content("#log-window")
        assert all(name in told for name in ("door", "lift", "desk"))
        assert int(page.get_attribute("body", "data-visited")) == walk.reach.pairs
        cell, left, top = map(float, page.get_attribute("#matrix", "data-view").split())
        for name, row in (("lift", 0), ("desk", walk.right_count - 1)):
            column = columns[rows == row][0]
            spot = {"x": left + cell * (column + 0.5), "y": top + cell * (row + 0.5)}
            page.hover("#matrix", position=spot)
            tip = page.text_content("#tip")
            assert f"{name} {walk.right_pages[row]}" in tip
            assert f"door {walk.left_pages[column]}" in tip
