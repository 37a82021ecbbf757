"""Standard streams that are closed, full or speak another alphabet: no traceback, never code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

MAIN = "import sys; from matwin.tools.cli import main; sys.exit(main())"
JOIN = ["join", "a.parquet", "a.parquet", "--on", "t=1"]
ROWS = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"t": [1, 9]}), tmp_path / "a.parquet")
    return tmp_path


def run(
    folder: Path, words: list[str], redirected: str = "", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """A command in a shell, with its streams led elsewhere or closed."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirected}', sys.executable, "-c", MAIN, *words],
        cwd=folder, capture_output=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "redirected", "code"),
    [
        (JOIN, ">&-", 2),
        ([*JOIN, "--explain"], ">&-", 2),
        (["--version"], ">&-", 2),
        ([*JOIN, "--format", "ipc"], ">/dev/full", 2),
        ([*JOIN, "--json", "-o", "out.parquet"], ">&-", 2),
        ([*JOIN, "-o", "out.parquet"], ">&-", 0),
        ([*JOIN, "-o", "out.parquet"], "2>&-", 0),
        ([*JOIN, "-o", "out.parquet"], "2>/dev/full", 2),
        ([*JOIN, "-o", "out.parquet"], "<&- >&- 2>&-", 0),
        (["join", "nowhere.parquet", "a.parquet", "--on", "t=1"], "2>/dev/full", 2),
    ],
)
def test_streams_that_are_closed_or_full(
    folder: Path, words: list[str], redirected: str, code: int
) -> None:
    done = run(folder, words, redirected)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert "Traceback" not in said and "Exception ignored" not in said
    if code and "2>" not in redirected:
        assert said.startswith("matwin: error: ") or "\nmatwin: error: " in said
        assert "standard output" in said
    if "out.parquet" in words:
        assert pq.read_table(folder / "out.parquet").num_rows == ROWS


def test_an_alphabet_without_an_epsilon(folder: Path) -> None:
    done = run(folder, [*JOIN, "--pairs", "all", "--explain"], PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"inner \\u03b5-join")


@pytest.mark.parametrize("word", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("command", ["join", "follow"])
def test_a_pipe_by_its_name(folder: Path, command: str, word: str) -> None:
    """Links there lead to names that no file has."""
    words = [*JOIN, "--format", "csv", "-o", word, "--quiet"]
    if command == "follow":
        words = ["window-join", "a=-", "b=a.parquet", "--time", "t", "--window", "1", "--follow",
                 "--format", "csv", "-o", word, "--quiet"]  # fmt: skip
        (folder / "rows").write_text('{"t": 1}\n{"t": 9}\n')
    done = run(folder, words, "< rows" if command == "follow" else "")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == ROWS + 1


@pytest.mark.parametrize("word", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/stderr"])
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_file_that_the_shell_has_opened(folder: Path, word: str, format: str) -> None:
    """It is not there already but by the same command line."""
    led = "2> rows.out" if word == "/dev/stderr" else "> rows.out"
    done = run(folder, [*JOIN, "--format", format, "-o", word, "--quiet"], led)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")
    read = pq.read_table if format == "parquet" else pa_csv.read_csv
    assert read(folder / "rows.out").num_rows == ROWS


def test_what_stands_in_a_file_that_the_shell_has_opened_stays(folder: Path) -> None:
    (folder / "rows.out").write_text("before\n")
    words = [*JOIN, "--format", "csv", "-o", "/dev/fd/3", "--quiet"]
    done = run(folder, words, "3>> rows.out")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (folder / "rows.out").read_text().startswith("before\n")
    assert len((folder / "rows.out").read_text().splitlines()) == ROWS + 2


def test_an_input_that_the_shell_has_opened(folder: Path) -> None:
    (folder / "a.csv").write_text("t\n1\n9\n")
    words = ["join", "a.csv", "a.parquet", "--on", "t=1", "--format", "csv", "-o", "/dev/fd/3"]
    done = run(folder, words, "3>> a.csv")
    assert done.returncode == 2
    assert b"-o /dev/fd/3 is an input, by 'a.csv'" in done.stderr
    assert (folder / "a.csv").read_text() == "t\n1\n9\n"


def test_a_descriptor_that_is_not_open(folder: Path) -> None:
    done = run(folder, [*JOIN, "--format", "csv", "-o", "/dev/fd/77", "--quiet"])
    assert done.returncode == 2
    assert done.stderr.startswith(b"matwin: error: '/dev/fd/77' can't be written")


def test_a_trace_does_not_replace_what_the_shell_has_opened(folder: Path) -> None:
    done = run(folder, [*JOIN, "--trace", "/dev/fd/3", "--quiet"], "3> rows.out")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is no plain file, which a trace needs" in done.stderr


def test_standard_output_led_into_an_input(folder: Path) -> None:
    (folder / "a.csv").write_text("t\n1\n9\n")
    done = run(folder, ["join", "a.csv", "a.parquet", "--on", "t=1"], ">> a.csv")
    assert done.returncode == 2
    assert b"standard output is an input, by 'a.csv'" in done.stderr
    assert (folder / "a.csv").read_text() == "t\n1\n9\n"


@pytest.mark.parametrize("option", ["-o", "--trace"])
def test_no_name_at_all(folder: Path, option: str) -> None:
    done = run(folder, [*JOIN, option, ""])
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"matwin: error: '' is no path; name a file\n"


@pytest.mark.parametrize("word", ["/dev/null", "."])
def test_a_trace_needs_a_plain_file(folder: Path, word: str) -> None:
    """It is refused before a row is written, not when its end can't be."""
    done = run(folder, [*JOIN, "--trace", word])
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


LOST = """
import os, signal
from matwin.tools.signals import Signals

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # here the handler runs, and what it raises has nowhere to go
            pass

with Signals() as signals:
    try:
        one = Last()
        del one
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
print(signals.code)
"""


def test_an_interrupt_that_was_lost_comes_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("143\n", "")
