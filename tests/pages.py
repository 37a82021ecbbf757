"""A page of the documentation, run as a reader would run it: its blocks in order, in one folder.

    ```python          runs; all Python blocks of a page share one namespace
    ```sh              runs in bash, in the same folder
    ```text            directly after a block that runs: what the block prints, compared
                       (`...` stands for anything, as in doctests); elsewhere just text

A comment above a block says why it is not run: `<!-- not run: takes minutes -->`.  A page's front
matter may say `run: spark`; such a page needs Java, and is skipped without it.

    python tests/pages.py PAGE             run it here; exit code 1 and a difference where it lies
    python tests/pages.py --write PAGE…    write down what the blocks print; then read the diff
"""

from __future__ import annotations

import contextlib
import difflib
import doctest
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SAMPLE = DOCS / "sample"
LANGUAGES = {"python", "sh"}
OTHER_LANGUAGES = {"text", "sql", "json", "yaml", "ini"}

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n)?"
    r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$(?P<after>\n*)",
    re.M | re.S,
)
FRONT = re.compile(r"\A---\n(.*?)^---\n", re.M | re.S)


@dataclass(slots=True)
class Block:
    """A fenced block; `expected` is the text block right after it, from `start` to `end`."""

    language: str
    text: str
    line: int
    why_not: str | None
    expected: str | None = None
    start: int = 0
    end: int = 0

    @property
    def is_run(self) -> bool:
        return self.language in LANGUAGES and self.why_not is None


def pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def front_matter(text: str) -> dict[str, str]:
    """The lines `name: value` between the dashes that a page may begin with."""
    found = FRONT.match(text)
    lines = found.group(1).splitlines() if found else []
    return {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page, outputs joined to the blocks that print them."""
    blocks: list[Block] = []
    last: re.Match[str] | None = None
    for match in FENCE.finditer(text):
        is_output = (
            match["language"] == "text"
            and last is not None
            and last.end() == match.start()
            and blocks[-1].is_run
            and blocks[-1].expected is None
        )
        if is_output:
            blocks[-1].expected = match["text"]
            blocks[-1].start, blocks[-1].end = match.span("text")
        else:
            line = text.count("\n", 0, match.start("language")) + 1
            blocks.append(Block(match["language"], match["text"], line, match["why"]))
        last = match
    return blocks


def is_as_expected(printed: str, expected: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def run(page: Path) -> list[tuple[Block, str]]:
    """Run a page's blocks in the current folder; what each has printed."""
    space: dict[str, object] = {"__name__": "__main__"}
    printed = []
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.is_run:
            printed.append((block, _trimmed(_run_block(block, page, space))))
    return printed


def _run_block(block: Block, page: Path, space: dict[str, object]) -> str:
    if block.language == "sh":
        return _run_shell(block, page)
    # The line numbers of a traceback are those of the page.
    source = "\n" * block.line + block.text
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, str(page), "exec"), space)
    return output.getvalue()


def _run_shell(block: Block, page: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-c", block.text], env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"
        raise SystemExit(f"{page}:{block.line}: exit code {done.returncode}\n{said}")
    return done.stdout


def _trimmed(text: str) -> str:
    """Without blanks at the ends of lines, which editors remove from pages."""
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def differences(page: Path) -> str:
    """Run a page here; where it prints something else than it says."""
    found = []
    for block, printed in run(page):
        if block.expected is not None and not is_as_expected(printed, block.expected):
            lines = difflib.unified_diff(
                block.expected.splitlines(), printed.splitlines(), "the page", "printed",
                lineterm="",
            )  # fmt: skip
            found.append(f"{page}:{block.line}:\n" + "\n".join(lines))
    return "\n".join(found)


def write(page: Path) -> None:
    """Put down what the blocks print, where the page has a place for it and says otherwise."""
    text = page.read_text(encoding="utf-8")
    for block, printed in reversed(run(page)):
        if block.expected is not None and not is_as_expected(printed, block.expected):
            text = text[: block.start] + printed + text[block.end :]
    page.write_text(text, encoding="utf-8")


def copy_sample(folder: Path) -> None:
    """The sample files, as a reader has them."""
    for file in SAMPLE.iterdir():
        if file.suffix in {".parquet", ".csv"}:
            shutil.copy(file, folder)


def main(words: list[str]) -> int:
    if words[0] != "--write":
        found = differences(Path(words[0]))
        print(found)
        return 1 if found else 0
    for name in words[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            copy_sample(Path(folder))
            write(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
