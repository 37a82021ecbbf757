"""The pair matrix as text: the paper's figures 7 and 8, and larger ones reduced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

from matwin.scheduler import Reach
from matwin.text import Ink
from matwin.tools import cli
from matwin.tools.trace.events import Events
from matwin.tools.trace.matrix import block_pairs, draw
from matwin.tools.trace.walks import walk_number

GALLOP = """\
plan 0, event 0: readings (7 pages) × weather (7 pages), gallop in 4 frames
29 of 29 pairs visited, 30 pages read, 16 of them again; 30 reads were planned

       0      1      2      3      4      5      6
0  ▨▩  1  ▨   4  ▨▩² 8
1  ▩   2      5  ▩²  9  ▨▩³13
2  ▩   3      6  ▩² 10  ▩³ 14  ▨▩⁴18
3         ▩   7  ▩² 11  ▩³ 15  ▩⁴ 19  ▨▩⁵23
4                ▩  12  ▩² 16  ▩³ 20  ▩⁴ 24  ▨  27
5                       ▩  17  ▩² 21  ▩³ 25     28
6                              ▩  22  ▩² 26     29

columns: left pages   rows: right pages   number: order of the visits
▨ left page read for this visit   ▩ right page read for it   ▩² read for the second time
· within reach, not visited

mode    event  visits  read  again  because
─────────────────────────────────────────────
gallop      1    1–29    30     16  asked for
"""
CRABSTEP = """\
       0      1      2      3      4      5      6
0  ▨▩  1  ▨   4  ▨   7
1  ▩   2      5      8  ▨  10
2  ▩   3      6      9     11  ▨  12
3         ▨²▩13  ▨² 14  ▨² 16  ▨² 19  ▨  22
4                ▩  15     17     20     23  ▨  25
5                       ▩  18     21     24     26
6                              ▨³▩27  ▨² 28  ▨² 29
"""
SINGLE = """\
   0
0  ▣▨◆
1  ▩■◆◆
2  ▩■◆◆◆
3   ▩◆◆◆◆
4    ▩◆◆◆▨
5     ▩◆◆■
6      ▩◆■
"""
BLOCKS = """\
    0         20
 0  ▓█▓
 4   ▒██▓
 8     ▒██▓
12       ▒██▓
16         ▒██▓
20           ▒██▓
24             ▒██▒
28               ▒░
"""


def paper(folder: Path, name: str, pages: int = 7) -> Path:
    reach = traces.paper_reach(pages)
    loads = {"gallop": traces.gallop, "crabstep": traces.crabstep}[name](reach, 4)
    return traces.scripted(folder / name, loads, reach, mode=name)


def drawn(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    given = words if "--width" in words else (*words, "--width", "100")
    assert cli.main(["trace", "matrix", *given]) == 0
    return capsys.readouterr().out


def test_figure_7(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn(capsys, str(paper(tmp_path, "gallop"))) == GALLOP


def test_figure_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = drawn(capsys, str(paper(tmp_path, "crabstep")))
    assert "21 pages read, 7 of them again" in text
    assert text.split("\n\n")[1] + "\n" == CRABSTEP


def test_up_to_an_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(paper(tmp_path, "crabstep"))
    events = Events.open(path)
    twelfth = events.places_of("visited")[11]
    text = drawn(capsys, path, "--upto", str(events.seq[twelfth]))
    picture = text.split("\n\n")[1]
    assert "12 of 29 pairs visited up to event" in text
    assert picture.count("·") == 17
    assert "in frames: left 4; right 0 1 2" in text


def test_one_character_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = drawn(capsys, str(paper(tmp_path, "gallop")), "--width", "40")
    assert text.split("\n\n")[1] + "\n" == SINGLE
    assert "one character a pair" in text


def test_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = drawn(capsys, str(paper(tmp_path, "gallop", 30)), "--width", "22")
    assert text.split("\n\n")[1] + "\n" == BLOCKS
    assert "a character is 2 left × 4 right pages" in text


def test_a_real_walk_draws_every_visit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, names in enumerate([("readings", "weather"), ("events",)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        trace, counters = traces.walked(folder, names=names)
        events = Events.open(trace)
        drawing = draw(events, walk_number(events, 0), len(events))
        assert len(drawing.columns) == 29
        assert len(drawing.load_places) == counters["reads"]
        for at in np.flatnonzero(drawing.load_visits >= 0):
            visit = drawing.load_visits[at]
            assert drawing.load_places[at] < drawing.visit_places[visit]
            row = drawing.rows[visit] + (0 if len(names) == 1 else drawing.walk.left_count)
            assert drawing.load_nodes[at] in (drawing.columns[visit], row)
        assert "29 of 29 pairs visited" in drawn(capsys, str(trace), "--width", "120")


def test_colour_only_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(paper(tmp_path, "gallop"))
    monkeypatch.setattr(Ink, "for_stdout", classmethod(lambda cls: cls(True)))
    painted = drawn(capsys, path)
    assert "\x1b[38;5;208m▩²\x1b[0m" in painted
    plain = GALLOP.split("\n\n")[1]
    bare = painted.split("\n\n")[1]
    for code in ("\x1b[38;5;208m", "\x1b[38;5;33m", "\x1b[0m"):
        bare = bare.replace(code, "")
    assert bare == plain
    for width in ("40", "20"):
        assert "\x1b[" in drawn(capsys, path, "--width", width)


def test_no_colour_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Ink.for_stdout().is_on
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Ink.for_stdout().is_on
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Ink.for_stdout().is_on


def test_layouts_with_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, layout in enumerate(
        [{}, {"left": [1], "right": []}, {"left": [1], "right": [2], "frames": 2}]
    ):
        events = [
            ("plan", "a", -1, -1, 0, 0, json.dumps(layout), ("b", -1)),
            ("read", "a", 1, 0, 1, 0, ""),
        ]
        path = traces.written(tmp_path / str(number), events)
        assert "0 of 0 pairs" in drawn(capsys, str(path))
        drawn(capsys, str(path), "--upto", "0")
        drawn(capsys, str(path), "--upto", "99", "--width", "20")


@given(st.data())
def test_pairs_in_blocks(data: st.DataObject) -> None:
    lefts, rights = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    edge = st.integers(0, rights)
    intervals = [
        data.draw(st.lists(st.tuples(edge, edge).map(sorted), max_size=3)) for _ in range(lefts)
    ]
    reach = Reach.of([[tuple(pair) for pair in own] for own in intervals], right_pages=rights)
    across, down = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    shape = (-(-rights // down), -(-lefts // across))
    expected = np.zeros(shape, np.int64)
    for left in range(lefts):
        for first, limit in reach.intervals(left):
            for right in range(first, limit):
                expected[right // down, left // across] += 1
    assert np.array_equal(block_pairs(reach, across, down, shape), expected)
