"""What the documents say is run: docstring examples and the README's Python."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sparks import DRIVER_JAVA

from matwin.tools import cli

README = Path(__file__).parent.parent / "README.md"
PACKAGES = (
    "kernels", "orders", "storage", "storage.materialize", "scheduler", "operators",
    "operators.wjoin", "operators.wjoin.kernels", "spark", "tools", "tools.bench", "tools.trace",
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


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for block in readme_blocks() if "pyspark" not in block]
    assert blocks
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)


def test_the_readmes_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the tables of its own examples, as files."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in [block for block in readme_blocks() if "pyspark" not in block]:
        exec(compile(block, "README.md", "exec"), space)
    tables = {name: space[name] for name in ("temperature", "humidity")} | space["cameras"]
    for name, table in tables.items():
        pq.write_table(table, f"{name}.parquet")
    ran = [shlex.split(command)[1:] for command in readme_commands() if "spark" not in command]
    assert {words[0] for words in ran} == {"join", "window-join", "trace"}
    for words in ran:
        assert cli.main(words) == 0, words


def readme_commands() -> list[str]:
    """The commands that stand in lines of their own, and those in the text that name files."""
    text = README.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    (matwin [a-z-]+ .*)$", text, re.M)
    return lines + re.findall(r"`(matwin trace \w+ \w+\.trace[^`]*)`", text)


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not here")
def test_the_readme_runs_on_spark(tmp_path: Path) -> None:
    """Copied as it stands into a file of its own, with nothing of Spark's or ours set."""
    (block,) = [block for block in readme_blocks() if "pyspark" in block]
    (tmp_path / "example.py").write_text(block)
    known = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=known | DRIVER_JAVA, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "replication factor" in done.stdout
    assert (tmp_path / "near.parquet").is_dir()


def test_the_readme_names_only_commands_that_exist() -> None:
    from matwin.tools.cli import COMMANDS

    known = {" ".join(words) for words in COMMANDS}
    named = set(re.findall(r"`matwin ((?:bench |trace )?[\w-]+)", README.read_text()))
    assert named <= known
