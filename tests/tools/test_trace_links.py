"""The page of a trace in a real browser: its width, its explanations, and links to a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser as browsers
import numpy as np
import pytest
import traces
from browser import at_cursor, cursor, screenshot, seek, written

from matwin.tools.trace.events import Events
from matwin.tools.trace.frames import frames_in_use
from matwin.tools.trace.summary import summarize
from matwin.tools.trace.walks import walks


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a real walk on a real store."""
    return traces.walked(tmp_path_factory.mktemp("walk"))[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.chromium() as found:
        yield found


@pytest.mark.parametrize("width", [768, 1180, 1280, 1366, 1600, 1899, 1900, 1920])
def test_nothing_is_wider_than_the_window(browser: Any, walk: Path, width: int) -> None:
    size = {"width": width, "height": 900}
    with browsers.opened(browser, written(walk), viewport=size) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for boxes in ("#tiles .tile-value", "#tiles dt", "#log-space", ".log-time", ".log-seq"):
            assert page.locator(boxes).evaluate_all(
                "(boxes) => boxes.every((box) => box.scrollWidth <= box.clientWidth)"
            ), boxes
        for name in ("#play", "#copy-link", "#position", "#log-page", "#axis-all", "#theme"):
            box = page.locator(name).bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        bar = page.locator(".transport").bounding_box()
        assert bar["height"] < (60 if width > 1000 else 100)
        screenshot(page, f"width-{width}")


# ── explanations ─────────────────────────────────────────────────────────────────────────────────


def test_the_numbers_of_frames_fit_each_other(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    (told,) = walks(events)
    most = summarize(events)["totals"]["frames_peak"]
    places, counts = frames_in_use(events)
    with browsers.opened(browser, written(walk)) as page:
        for at in (told.start, told.start + 40, len(events) - 1):
            seek(page, at)
            now = counts[np.searchsorted(places, at, side="right") - 1]
            expected = f"{now} in use now, {most} at most in this trace, "
            expected += f"{told.frames} planned for this walk"
            assert page.text_content("#frames-now") == expected
            assert f"{now} in use: " in page.text_content("#now-lines")
        assert f"planned for {told.frames} frames" in page.text_content("#walk-facts")
        assert f"most frames in use?{most}" in page.text_content("#facts")


def test_words_are_explained_to_a_finger(browser: Any, walk: Path) -> None:
    with browsers.opened(browser, written(walk), has_touch=True) as page:
        assert page.locator("#help").is_hidden()
        buttons = page.locator("[data-help]")
        topics = {button.get_attribute("data-help") for button in buttons.all()}
        assert topics == {"frames", "rate", "mode", "plan", "moment"}
        for button in buttons.all():
            page.keyboard.press("Escape")  # it may cover the next one
            assert page.locator("#help").is_hidden()
            button.tap()
            assert button.get_attribute("aria-expanded") == "true"
            assert page.locator('[data-help][aria-expanded="true"]').count() == 1
            box = page.locator("#help").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 1440
        page.tap("#trace-name")
        assert page.locator("#help").is_hidden()


def test_words_are_explained_to_a_keyboard(browser: Any, walk: Path) -> None:
    reads = int(Events.open(walk).of_kind("read").sum())
    with browsers.opened(browser, written(walk)) as page:
        page.focus("[data-help=rate]")
        page.keyboard.press("Enter")
        assert f"0 hits and {reads} reads so far" in page.text_content("#help")
        page.keyboard.press("Home")
        at_cursor(page, 0)
        assert "0 hits and 0 reads so far" in page.text_content("#help")
        page.keyboard.press("Space")
        assert page.locator("#help").is_hidden()
        assert cursor(page) == 0  # Space pressed the button and did not play


# ── links to a moment ────────────────────────────────────────────────────────────────────────────


def test_a_link_opens_its_moment(browser: Any, walk: Path) -> None:
    events = Events.open(walk)
    (told,) = walks(events)
    for place in (told.start, told.start + 17, 0, len(events) - 1):
        with browsers.opened(browser, written(walk), fragment=f"#t={events.seq[place]}") as page:
            assert cursor(page) == place
            assert page.text_content("#position").startswith(f"event {events.seq[place]} ")


@pytest.mark.parametrize("fragment", ["#t=", "#t=-1", "#t=99999", "#t=1e1", "#x", "#t=%3Cimg%3E"])
def test_a_link_to_nothing_opens_the_page_as_usual(browser: Any, walk: Path, fragment: str) -> None:
    events = Events.open(walk)
    (told,) = walks(events)
    with browsers.opened(browser, written(walk), fragment=fragment) as page:
        assert cursor(page) == told.visits(events)[0][-1]


def test_a_link_opens_its_walk(browser: Any, tmp_path: Path) -> None:
    trace = traces.overlapping(tmp_path / "two.trace")
    events = Events.open(trace)
    first, second = walks(events)
    for walk, place in ((first, first.start), (second, second.end - 1)):
        with browsers.opened(browser, written(trace), fragment=f"#t={events.seq[place]}") as page:
            assert cursor(page) == place
            assert page.locator("#walk").input_value() == str(walk.number)


def test_back_and_forward_go_through_the_jumps(browser: Any, walk: Path) -> None:
    last = len(Events.open(walk)) - 1
    with browsers.opened(browser, written(walk), fragment="#t=60") as page:
        page.keyboard.press("ArrowRight")
        at_cursor(page, 61)
        page.keyboard.press("Home")
        at_cursor(page, 0)
        page.keyboard.press("End")
        at_cursor(page, last)
        for place in (0, 61):
            page.evaluate("history.back()")
            at_cursor(page, place)
        for place in (0, last):
            page.evaluate("history.forward()")
            at_cursor(page, place)
        page.evaluate("location.hash = 't=70'")
        at_cursor(page, 70)
        page.evaluate("history.back()")
        at_cursor(page, last)


def test_back_returns_to_the_walk_before(browser: Any, tmp_path: Path) -> None:
    trace = traces.overlapping(tmp_path / "two.trace")
    with browsers.opened(browser, written(trace)) as page:
        before = cursor(page)
        page.keyboard.press("Home")
        at_cursor(page, 0)
        page.select_option("#walk", "1")
        page.wait_for_selector('body:not([data-cursor="0"])')
        page.evaluate("history.back()")
        at_cursor(page, 0)
        assert page.locator("#walk").input_value() == "0"
        page.evaluate("history.back()")
        at_cursor(page, before)


def test_the_address_follows_steps_and_can_be_copied(browser: Any, walk: Path) -> None:
    file = written(walk)
    permissions = ["clipboard-read", "clipboard-write"]
    with browsers.opened(browser, file, permissions=permissions) as page:
        entries = page.evaluate("history.length")
        seek(page, 33)
        page.wait_for_url(f"{file.as_uri()}#t=33")
        assert page.evaluate("history.length") == entries
        page.click("#copy-link")
        page.wait_for_selector("#copy-link-text:text('Link copied')")
        assert page.evaluate("navigator.clipboard.readText()") == f"{file.as_uri()}#t=33"
        page.wait_for_selector("#copy-link-text:text('Copy link')")
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject('no'); }")
        page.keyboard.press("l")
        page.wait_for_selector("#copy-link-text:text('See address bar')")
