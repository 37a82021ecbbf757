"""A real browser for tests: the system's Chromium, driven by playwright, and what it must not do.

A `Watch` hears everything that a good page never does: errors, dialogs, requests, and words from
the content policy.  Playwright's `wait_for_function` compiles text inside the page, which our pages
forbid; wait for selectors instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from matwin.tools import cli

SCREENSHOTS = Path(__file__).resolve().parents[1] / "build" / "trace-screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!-- \"'`&lt; \u2028\u202e${alert(1)}</title>",
)
# Told as console errors where a handler of the page's own would not hear them.
LISTEN = """
    addEventListener("securitypolicyviolation", (event) =>
        console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
"""


def written(trace: Path, output: Path | None = None) -> Path:
    """The page of a trace, written by the command."""
    output = output or trace.with_suffix(".html")
    assert cli.main(["trace", "html", str(trace), "-o", str(output), "--overwrite"]) == 0
    return output


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with a profile of its own; skips where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here; tools/setup.sh dev installs one where it may")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """What a page did that it should not have."""

    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        """Hear everything from now on."""
        page.on("console", lambda message: self._hear_console(message))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self._refuse(dialog))
        page.on("request", lambda request: self.requests.append(request.url))
        page.add_init_script(LISTEN)

    def _hear_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _refuse(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check(self, file: Path) -> None:
        """Nothing went wrong, and nothing but the file was asked for."""
        assert self.faults == []
        assert self.requests == [file.as_uri()]


@contextmanager
def opened(
    browser: Any, file: Path, *, state: str = "ready", fragment: str = "", **options: Any
) -> Iterator[Any]:
    """The page of a file, once it says that it is ready; checked for faults when it is left."""
    options = {"viewport": {"width": 1440, "height": 1000}, **options}
    context = browser.new_context(**options)
    watch = Watch()
    try:
        page = context.new_page()
        watch.listen(page)
        page.goto(file.as_uri() + fragment, timeout=120_000)
        settled = "body:not([data-state=loading])"
        page.wait_for_selector(settled, state="attached", timeout=120_000)
        found = page.get_attribute("body", "data-state")
        assert found == state, (page.text_content("#loading-text"), watch.faults)
        yield page
        watch.check(file)
    finally:
        context.close()


# ── what tests do with the page of a trace ───────────────────────────────────────────────────────


def cursor(page: Any) -> int:
    return int(page.get_attribute("body", "data-cursor"))


def seek(page: Any, at: int) -> None:
    """Move the scrubber, as a pointer would, and wait for the page to follow."""
    page.locator("#scrubber").evaluate(
        "(scrubber, at) => { scrubber.value = at; scrubber.dispatchEvent(new Event('input')); }", at
    )
    at_cursor(page, at)


def at_cursor(page: Any, at: int) -> None:
    page.wait_for_selector(f'body[data-cursor="{at}"]')


def frames_pass(page: Any, count: int = 5) -> None:
    page.evaluate(
        """async (count) => {
            for (let at = 0; at < count; at++) await new Promise(requestAnimationFrame);
        }""",
        count,
    )


def screenshot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
