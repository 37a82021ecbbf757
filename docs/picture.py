"""Takes the picture of the trace inspector that README shows.

    python docs/picture.py          writes docs/trace.png; needs Chromium and playwright (make test)

The trace is that of docs/trace.md: its first blocks make it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZE = {"width": 1280, "height": 900}


def write_page(folder: Path) -> Path:
    """The inspector's page of the trace that docs/trace.md makes."""
    shutil.copy(HERE / "sample" / "flights.parquet", folder)
    command = [sys.executable, HERE.parent / "tests" / "pages.py", HERE / "trace.md"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "run.html"


def take(page: Path, picture: Path) -> None:
    """A picture of the page, three quarters through the trace: in the middle of the walk."""
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE)
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-state=ready]", state="attached")
        scrubber = tab.locator("#scrubber")
        scrubber.fill(str(int(scrubber.get_attribute("max") or 0) * 3 // 4))
        tab.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        take(write_page(Path(name)), HERE / "trace.png")
