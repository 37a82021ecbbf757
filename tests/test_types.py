"""What type checkers see of the public surface: misspelt choices and options are errors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOOD = """
import matwin
import pyarrow as pa

a = pa.table({"t": [1]})
one: matwin.Result = matwin.bestmatch_join(a, a, on={"t": 1}, how="left", ties="last", memory=1)
two: matwin.Result = matwin.epsilon_join(a, a, on={"t": 1}, how="semi", threads=2)
three: matwin.Result = matwin.asof_join(a, a, on="t", direction="nearest", by=["k", ("x", "y")])
four: matwin.Result = matwin.window_join({"a": a, "b": a}, time="t", windows=1, algorithm="merge")
options: matwin.JoinOptions = {"memory": 2**30, "schedule": "gallop"}
five: matwin.Result = matwin.fixed_window_join(a, a, time="t", period=1, on={"t": 1}, **options)
table: pa.Table = one.to_arrow()
rows: int = two.write("out.parquet", overwrite=True)
"""
BAD = [
    'matwin.bestmatch_join(a, a, on={"t": 1}, how="lefft")',
    'matwin.bestmatch_join(a, a, on={"t": 1}, memmory="1GiB")',
    'matwin.bestmatch_join(a, a, on={"t": 1}, emit="update")',
    'matwin.epsilon_join(a, a, on={"t": 1}, how="outer")',
    'matwin.epsilon_join(a, a, on={"t": 1}, thread=2)',
    'matwin.asof_join(a, a, on="t", direction="backwards")',
    'matwin.asof_join(a, a, on="t", ties="any")',
    'matwin.window_join({"a": a}, time="t", windows=1, algorithm="hash")',
    'matwin.window_join({"a": a}, time="t", windows=1, bounds="locale")',
    'matwin.fixed_window_join(a, a, time="t", period=1, on={"t": 1}, schedule="galop")',
    'matwin.stream([], late="dropp")',
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed: neither checker follows an editable install."""
    folder = tmp_path_factory.mktemp("installed")
    mapped = {
        "matwin": "matwin", "storage": "matwin/storage", "scheduler": "matwin/scheduler",
        "operators": "matwin/operators", "tools": "matwin/tools", "operators/spark": "matwin/spark",
    }  # fmt: skip
    skipped = shutil.ignore_patterns("__pycache__", "spark")
    for source, target in mapped.items():
        shutil.copytree(ROOT / source, folder / target, ignore=skipped, dirs_exist_ok=True)
    return folder


def written(folder: Path, name: str, lines: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(lines)
    return path


def bad_lines() -> str:
    head = 'import matwin\nimport pyarrow as pa\na = pa.table({"t": [1]})\n'
    return head + "\n".join(BAD) + "\n"


def errors_at(text: str) -> set[int]:
    return {int(line) for line in re.findall(r"\.py:(\d+)(?::\d+)?\s*[:-]\s*error", text)}


def run(words: list[str], folder: Path) -> str:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_misspelt_words_are_errors(checker: str, installed: Path) -> None:
    good, bad = written(installed, "good", GOOD), written(installed, "bad", bad_lines())
    if checker == "mypy":
        words = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent",
                 "--ignore-missing-imports", "--no-warn-unused-ignores"]  # fmt: skip
    else:
        words = [str(Path(sys.executable).parent / "pyright"), "--pythonpath", sys.executable]
        if not Path(words[0]).exists() or subprocess.run([words[0], "--version"]).returncode:
            pytest.skip("pyright does not run here: it needs Node")
    assert not errors_at(run([*words, good.name], installed)), run([*words, good.name], installed)
    text = run([*words, bad.name], installed)
    assert errors_at(text) == set(range(4, 4 + len(BAD))), text
