"""What the documents say is run: docstring examples, and the blocks of README and of every page.

A page is run by itself, in a process and a folder of its own with the sample files (`pages.py`).
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import browser
import pages
import pytest
from sparks import DRIVER_JAVA

import matwin
from matwin.tools.cli import COMMANDS

SECONDS_MAX = 300
PACKAGES = (
    "kernels", "orders", "storage", "storage.materialize", "scheduler", "operators",
    "operators.epochs", "operators.wjoin", "operators.wjoin.kernels", "spark", "tools",
    "tools.bench", "tools.query", "tools.state", "tools.trace",
)  # fmt: skip


def modules() -> list[str]:
    front = Path(importlib.import_module("matwin").__file__ or "").parent
    found = ["matwin", *(f"matwin.{m.name}" for m in pkgutil.iter_modules([str(front)]))]
    for package in PACKAGES:
        module = importlib.import_module(f"matwin.{package}")
        found.append(module.__name__)
        found += [f"{module.__name__}.{m.name}" for m in pkgutil.iter_modules(module.__path__)]
    return sorted(set(found))


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    tests = [t for n in modules() for t in finder.find(importlib.import_module(n)) if t.examples]
    assert len(tests) >= 12


def test_every_module_says_what_it_is_for() -> None:
    silent = [name for name in modules() if not importlib.import_module(name).__doc__]
    assert silent == []


def pages_that(*, need_spark: bool) -> list[str]:
    """Pages with blocks to run, as paths from the root."""
    found = []
    for page in pages.pages():
        text = page.read_text(encoding="utf-8")
        is_run = any(block.is_run for block in pages.blocks_of(text))
        if is_run and (pages.front_matter(text).get("run") == "spark") == need_spark:
            found.append(str(page.relative_to(pages.ROOT)))
    return found


def run_page(name: str, folder: Path) -> None:
    pages.copy_sample(folder)
    # With nothing of Spark's set: a reader has not set it either.
    known = {key: value for key, value in os.environ.items() if "SPARK" not in key}
    done = subprocess.run(
        [sys.executable, pages.__file__, str(pages.ROOT / name)], cwd=folder,
        env=known | DRIVER_JAVA, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("name", pages_that(need_spark=False))
def test_a_page_runs_and_prints_what_it_says(name: str, tmp_path: Path) -> None:
    run_page(name, tmp_path)


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not here")
@pytest.mark.parametrize("name", pages_that(need_spark=True))
def test_a_page_runs_on_spark(name: str, tmp_path: Path) -> None:
    run_page(name, tmp_path)


def test_pages_with_blocks_are_found() -> None:
    plain, on_spark = pages_that(need_spark=False), pages_that(need_spark=True)
    assert {"README.md", "docs/tutorial.md", "docs/bestmatch.md", "docs/streams.md"} <= set(plain)
    assert on_spark == ["docs/SPARK.md", "docs/coming-from/spark.md"]


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_every_block_has_a_language_and_runs_or_says_why_not(page: Path) -> None:
    blocks = pages.blocks_of(page.read_text(encoding="utf-8"))
    unknown = [
        (block.line, block.language) for block in blocks
        if block.language not in pages.LANGUAGES | pages.OTHER_LANGUAGES
    ]  # fmt: skip
    assert unknown == []
    assert [block.line for block in blocks if block.why_not and not block.why_not.strip()] == []


def test_pages_name_only_commands_that_exist() -> None:
    known = {" ".join(words) for words in COMMANDS}
    groups = {word for words in COMMANDS if len(words) > 1 for word in words[:1]}
    for page in pages.pages():
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:^|`|\| *)matwin ((?:bench |state |trace )?[a-z][\w-]*)", text, re.M)
        assert set(named) - groups <= known, page


# ── the runner itself: a page that lies is found out ─────────────────────────────────────────

PAGE = """---
run: spark
---

```python
x = 1
print("one", x)
```

```text
{expected}
```

<!-- not run: it would fail -->
```sh
exit 1
```

```sh
echo two
```
"""


def test_a_page_is_taken_apart() -> None:
    text = PAGE.format(expected="one 1")
    first, second, third = pages.blocks_of(text)
    assert pages.front_matter(text) == {"run": "spark"}
    assert (first.language, first.expected, first.line) == ("python", "one 1\n", 5)
    assert (second.is_run, second.why_not) == (False, "it would fail")
    assert (third.is_run, third.expected) == (True, None)


@pytest.mark.parametrize(
    ("expected", "is_right"), [("one 1", True), ("one ...", True), ("one", False)]
)
def test_what_a_page_says_is_compared(expected: str, is_right: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(expected=expected))
    assert (pages.differences(page) == "") == is_right
    pages.write(page)
    assert pages.differences(page) == ""


@pytest.mark.parametrize("block", ["```python\n1 / 0\n```\n", "```sh\nfalse\necho on\n```\n"])
def test_a_block_that_fails_fails_its_page(block: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises((ZeroDivisionError, SystemExit)):
        pages.run(page)


# ── the site ─────────────────────────────────────────────────────────────────────────────────


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", pages.DOCS / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_pages_have_every_public_name() -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    text = dict(hooks().api_pages())
    shown = set(re.findall(r"^## (\w+)$", "".join(text.values()), re.M))
    modules = {"cut", "scheduler", "spark", "storage"}
    assert set(matwin.__all__) - modules <= shown
    assert {f"api/{name}.md" for name in modules} <= set(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link or an anchor that leads nowhere is an error."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=pages.ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    names = {page.relative_to(pages.DOCS).with_suffix(".html") for page in pages.pages()[1:]}
    names = {Path("sample/index.html") if n.name == "README.html" else n for n in names}
    assert [str(name) for name in names if not (site / name).exists()] == []
    assert (site / "index.html").exists() and (site / "sample" / "flights.parquet").exists()


def test_the_site_asks_no_other_host(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]* src=.?https?:|<link[^>]*stylesheet[^>]*https?:"
    )
    asking = [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())]
    assert asking == []


def test_the_site_is_searched_without_a_server(site: Path) -> None:
    with browser.chromium() as chromium:
        page = chromium.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.wait_for_selector("[data-md-component=search-query]", state="visible")
        page.wait_for_load_state("load")
        page.locator("[data-md-component=search-query]").press_sequentially("crabstep")
        page.wait_for_selector(".md-search-result__item", timeout=30_000)
        found = page.locator(".md-search-result__item h1").all_inner_texts()
    assert "The storage engine" in found
    assert [url for url in asked if url.startswith("http")] == []
