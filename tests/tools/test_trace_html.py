"""The page of a trace in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser as browsers
import million
import numpy as np
import pyarrow as pa
import pytest
import traces
from browser import HOSTILE, at_cursor, cursor, frames_pass, screenshot, seek, written

from matwin.storage import Store, smallest_budget
from matwin.tools import cli
from matwin.tools.trace import html as command
from matwin.tools.trace.events import Events
from matwin.tools.trace.summary import summarize
from matwin.tools.trace.walks import walks

# One browser for all: with several workers, all of this file goes to one of them.


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a real walk on a real store."""
    return traces.walked(tmp_path_factory.mktemp("walk"))[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.chromium() as found:
        yield found


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────


def visited(page: Any) -> int:
    return int(page.get_attribute("body", "data-visited"))


def test_the_numbers_are_those_of_the_summary(
    browser: Any, walk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(walk)
    capsys.readouterr()
    assert cli.main(["trace", "summary", str(walk), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    with browsers.opened(browser, file) as page:
        tiles = page.locator("[data-total]")
        told = {
            tile.get_attribute("data-total"): float(tile.get_attribute("data-value"))
            for tile in tiles.all()
        }
        expected = {**summary["totals"], "stretches": len(summary["modes"])}
        assert told == {name: pytest.approx(expected[name]) for name in told}
        for name in ("reads", "rereads", "hits", "bytes_read", "bytes_written", "visits"):
            assert name in told
        assert page.locator("[data-total=reads]").text_content() == f"{expected['reads']:,}"
        assert page.get_attribute("#check", "data-differences") == "0"
        assert page.text_content("#trace-name") == walk.name
        facts = page.text_content("#facts")
        assert all(text in facts for text in ("readings, weather", "4 KiB", "256 KiB"))


def test_a_summary_that_does_not_fit_the_events_is_told(
    browser: Any, walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(events: Events) -> dict[str, Any]:
        summary = summarize(events)
        summary["totals"]["rereads"] += 1
        return summary

    monkeypatch.setattr(command, "summarize", wrong)
    with browsers.opened(browser, written(walk, tmp_path / "wrong.html")) as page:
        assert page.get_attribute("#check", "data-differences") == "1"
        assert "rereads" in page.text_content("#check")


def test_the_scrubber_moves_the_matrix(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    visits = events.places_of("visit").tolist()
    with browsers.opened(browser, written(walk)) as page:
        matrix = page.locator("#matrix")
        assert visited(page) == len(visits)
        end = matrix.screenshot()
        for number in (1, len(visits) // 2):
            seek(page, visits[number - 1])
            assert visited(page) == number
            assert page.text_content("#visited") == f"{number} of {len(visits)} pairs visited"
        middle = matrix.screenshot()
        assert middle != end
        lanes = page.locator("#lanes-head").screenshot()
        seek(page, 0)
        assert visited(page) == 0
        assert matrix.screenshot() not in (middle, end)
        assert page.locator("#lanes-head").screenshot() != lanes
        assert page.get_attribute("#scrubber", "aria-valuetext").startswith("event 0")
        box = page.locator("#scrubber").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector('body:not([data-cursor="0"])')
        assert abs(cursor(page) - len(events) / 2) < len(events) / 10


def test_the_badge_agrees_with_the_plan(browser: Any, walk: Path) -> None:
    """A plan of crabstep gallops at times; the badge then says both, and never another mode."""
    events = Events.open(walk)
    (told,) = walks(events)
    seen = set()
    with browsers.opened(browser, written(walk)) as page:
        assert told.mode in page.locator("#walk option").first.text_content()
        for place in [told.start, *events.places_of("mode").tolist()]:
            seek(page, place)
            mode = told.mode if place == told.start else events.why(place).split(":")[0]
            expected = mode if mode == told.mode else f"{told.mode} plan, now {mode}"
            badges = page.locator(".mode-badge").all_text_contents()
            assert badges == [expected] * len(badges)
            seen.add(expected)
        seek(page, told.start - 1)
        assert page.locator(".mode-badge").first.text_content() == "no mode"
    assert len(seen) > 1


def test_keys_step_by_event_and_by_load(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    loads = events.places_of("read").tolist()
    rereads = np.flatnonzero(events.is_reread).tolist()
    with browsers.opened(browser, written(walk)) as page:
        page.keyboard.press("Home")
        at_cursor(page, 0)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        at_cursor(page, 2)
        page.keyboard.press("ArrowLeft")
        at_cursor(page, 1)
        for load in loads[:3]:
            page.keyboard.press("Shift+ArrowRight")
            at_cursor(page, load)
            assert page.text_content("#now-title").startswith("read ")
        page.keyboard.press("Shift+ArrowLeft")
        at_cursor(page, loads[1])
        page.click("#next-load")
        at_cursor(page, loads[2])
        page.click("#previous")
        at_cursor(page, loads[2] - 1)
        page.keyboard.press("r")
        at_cursor(page, rereads[0])
        assert "2nd read" in page.text_content("#now-lines")
        page.focus("#scrubber")
        page.keyboard.press("ArrowRight")
        at_cursor(page, rereads[0] + 1)
        page.keyboard.press("End")
        at_cursor(page, len(events) - 1)


def test_play_runs_and_pause_stops(browser: Any, walk: Path) -> None:
    with browsers.opened(browser, written(walk)) as page:
        page.select_option("#speed", "25")
        page.keyboard.press("Home")
        at_cursor(page, 0)
        page.keyboard.press("Space")
        page.wait_for_selector('#play[aria-label="Pause"]')
        page.wait_for_selector('body:not([data-cursor="0"])')
        page.click("#play")
        page.wait_for_selector('#play[aria-label="Play"]')
        frames_pass(page)
        stopped = cursor(page)
        frames_pass(page)
        assert cursor(page) == stopped
        page.select_option("#speed", "500000")
        page.click("#play")
        page.wait_for_selector('#play[aria-label="Play"]')
        frames_pass(page)
        (told,) = walks(Events.open(walk))
        assert cursor(page) >= told.end - 1


def test_hover_tells_the_reason_of_a_load(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    (told,) = walks(events)
    places, columns, rows = told.visits(events)
    with browsers.opened(browser, written(walk)) as page:
        cell, left, top = map(float, page.get_attribute("#matrix", "data-view").split())
        loads = events.places_of("read")
        first = loads[events.window[loads] == events.window[told.start]][0]
        at = np.flatnonzero((places > first) & (events.page[places] == events.page[first]))[0]
        spot = {"x": left + cell * (columns[at] + 0.5), "y": top + cell * (rows[at] + 0.5)}
        page.hover("#matrix", position=spot)
        tip = page.text_content("#tip")
        assert events.why(first) in tip
        assert f"event {events.seq[first]}" in tip
        assert "1st read" in tip
        page.hover("#matrix", position={"x": left + cell * 6.5, "y": top + cell * 0.5})
        assert "out of reach" in page.text_content("#tip")
        page.locator("#matrix").click(position=spot)
        at_cursor(page, int(places[at]))
        width = page.locator("#timeline").bounding_box()["width"]
        share = (loads[-1] + 0.5 - told.start) / (told.end - told.start)
        page.hover("#timeline", position={"x": width * share, "y": 80})
        assert events.why(loads[-1]) in page.text_content("#tip")
        lane_of_frame_0 = {
            "x": width * (first + 1.5 - told.start) / (told.end - told.start),
            "y": 6,
        }
        page.hover("#lanes", position=lane_of_frame_0)
        assert events.frame[first] == 0  # the lowest free number, for the first load
        assert f"{told.left} {events.page[first]} in frame 0" in page.text_content("#tip")
        assert events.why(first) in page.text_content("#tip")


def test_the_log_shows_only_the_rows_in_sight(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    with browsers.opened(browser, written(walk)) as page:
        assert page.locator(".log-row").count() < 60
        page.select_option("#log-kind", "loads")
        assert page.text_content("#log-count") == f"{events.of_kind('read').sum()} events"
        assert {
            row.get_attribute("data-kind") for row in page.locator(".log-row:visible").all()
        } == {"read"}
        page.fill("#log-page", "3")
        count = int((events.of_kind("read") & (events.page == 3)).sum())
        assert page.text_content("#log-count") == f"{count} event{'s' if count != 1 else ''}"
        row = page.locator(".log-row:visible").first
        place = int(row.get_attribute("data-at"))
        row.click()
        at_cursor(page, place)


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    trace = traces.walked(tmp_path, names=HOSTILE)[0]
    named = tmp_path / "<img src=x onerror=alert(1)>.trace"
    trace.rename(named)
    with browsers.opened(browser, written(named)) as page:
        assert page.text_content("#trace-name") == named.name
        assert named.name in page.title()
        facts = page.text_content("#facts")
        assert HOSTILE[0] in facts
        assert HOSTILE[1].replace("\u2028", "\\u2028").replace("\u202e", "\\u202e") in facts
        box = page.locator("#matrix").bounding_box()
        for share in (0.2, 0.3, 0.5):
            page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] * share)
        for key in ("Home", "Shift+ArrowRight", "Shift+ArrowRight", "End"):
            page.keyboard.press(key)
            frames_pass(page, 2)
        assert page.locator("img, iframe, object, embed, link, a").count() == 0
        screenshot(page, "hostile")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light(browser: Any, walk: Path, scheme: str) -> None:
    with browsers.opened(browser, written(walk), color_scheme=scheme) as page:
        assert is_dark(page) == (scheme == "dark")
        before = page.locator("#matrix").screenshot()
        screenshot(page, f"small-{scheme}")
        page.click("#theme")
        frames_pass(page)
        assert is_dark(page) == (scheme == "light")
        assert page.locator("#matrix").screenshot() != before


def is_dark(page: Any) -> bool:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128


def test_zoom_and_the_clock(browser: Any, walk: Path) -> None:
    with browsers.opened(browser, written(walk)) as page:
        ticks, lanes = page.locator("#ticks"), page.locator("#lanes")
        pictures = [(ticks.screenshot(), lanes.screenshot())]
        for act in ("#axis-time", "#axis-in", "#axis-all"):
            page.click(act)
            frames_pass(page, 3)
            pictures.append((ticks.screenshot(), lanes.screenshot()))
        assert len({picture for pair in pictures for picture in pair}) == 2 * len(pictures)
        fitted = page.get_attribute("#matrix", "data-view")
        page.focus("#matrix")
        page.keyboard.press("-")
        page.mouse.move(300, 600)
        frames_pass(page, 3)
        assert page.get_attribute("#matrix", "data-view") != fitted
        page.keyboard.press("0")
        frames_pass(page, 3)
        assert page.get_attribute("#matrix", "data-view") == fitted


def test_a_trace_without_walk(browser: Any, tmp_path: Path) -> None:
    trace = tmp_path / "storage.trace"
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
    with Store(memory=smallest_budget(4096), page_size=4096, trace=trace) as store:
        for form in ("standard", "grid", "slab"):
            window = store.window(form, schema, on={"t": 500, "x": 0.5}, materialize=form)
            for step in range(6):
                t = np.arange(step * 1000, (step + 1) * 1000)
                window.append(pa.record_batch([t, t % 7 / 7], schema=schema))
                window.expire(below=step * 1000 - 2000)
                store.commit()
                sum(batch.num_rows for batch in window.scan())
    with browsers.opened(browser, written(trace)) as page:
        assert not page.locator("#matrix").is_visible()
        assert page.get_attribute("#check", "data-differences") == "0"
        assert int(page.get_attribute("[data-total=expiries]", "data-value")) > 0
        before = page.locator("#lanes").screenshot()
        page.keyboard.press("Home")
        at_cursor(page, 0)
        page.click("#axis-in")
        frames_pass(page, 3)
        assert page.locator("#lanes").screenshot() != before
        screenshot(page, "storage-only")


def test_a_self_join_and_several_walks(browser: Any, tmp_path: Path) -> None:
    trace = traces.walked(tmp_path, names=("alone",))[0]
    with browsers.opened(browser, written(trace)) as page:
        assert "with itself" in page.text_content("#walk-facts")
        assert visited(page) == int(Events.open(trace).of_kind("visit").sum())
    reach = traces.paper_reach()
    one = traces.scripted(tmp_path / "one.trace", traces.gallop(reach, 4), reach)
    table = Events.open(one).table
    two = tmp_path / "two.trace"
    with pa.ipc.new_file(str(two), table.schema) as writer:
        writer.write_table(pa.concat_tables([table, table]).unify_dictionaries().combine_chunks())
    with browsers.opened(browser, written(two)) as page:
        assert page.locator("#walk option").count() == 2
        page.select_option("#walk", "1")
        page.wait_for_selector(f'body[data-cursor="{2 * len(table) - 3}"]')
        assert visited(page) == 29


def test_walks_that_overlap(browser: Any, tmp_path: Path) -> None:
    trace = traces.overlapping(tmp_path / "two.trace")
    with browsers.opened(browser, written(trace)) as page:
        for number, (visits, reads) in enumerate([(2, 3), (3, 4)]):
            page.select_option("#walk", str(number))
            frames_pass(page, 3)
            assert visited(page) == visits
            facts = page.text_content("#walk-facts")
            assert f"{reads} made" in facts and "told apart" not in facts


def test_traces_with_next_to_nothing(browser: Any, tmp_path: Path) -> None:
    empty = traces.written(tmp_path / "empty.trace", [])
    with browsers.opened(browser, written(empty), state="empty") as page:
        assert "without events" in page.text_content("#loading-text")
    one = traces.written(tmp_path / "one.trace", [("hit", "w", 1, 1, 1, 1, "")])
    with browsers.opened(browser, written(one)) as page:
        assert page.get_attribute("[data-total=hits]", "data-value") == "1"
    layout = {"mode": "auto", "frames": 4, "page_reads": 0, "left": [], "right": [], "reach": []}
    nothing = ("plan", "a", -1, -1, 0, 0, json.dumps(layout), ("b", -1))
    planned = traces.written(tmp_path / "planned.trace", [nothing])
    with browsers.opened(browser, written(planned)) as page:
        assert page.text_content("#visited") == "0 of 0 pairs visited"


# ── a million events ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_million_events(browser: Any, tmp_path: Path) -> None:
    trace = million.walked(tmp_path / "million.trace")
    file = written(trace)
    events = Events.open(trace)
    visits = events.places_of("visit")
    assert len(events) >= 1_000_000
    assert file.stat().st_size < 40 * 2**20
    with browsers.opened(browser, file) as page:
        assert page.get_attribute("#check", "data-differences") == "0"
        assert visited(page) == len(visits)
        for share in (0.9, 0.1, 0.5):
            at = int(len(events) * share)
            seek(page, at)
            assert visited(page) == int(np.searchsorted(visits, at, side="right"))
        page.click("#matrix-in")
        page.keyboard.press("Shift+ArrowRight")
        page.wait_for_selector(f'body:not([data-cursor="{at}"])')
        assert page.text_content("#now-title").startswith("read ")
        assert page.evaluate("document.querySelectorAll('*').length") < 2000
        screenshot(page, "million")
