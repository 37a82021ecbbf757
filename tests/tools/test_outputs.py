"""What commands write: never over an input, nor over other files untold, and nothing is left."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matwin
from matwin.outputs import check_outputs, written
from matwin.storage import alive
from matwin.storage.errors import InputError
from matwin.tools.cli import main

TABLE = pa.table({"t": [1, 2, 3], "k": ["a", "b", "c"]})
TRACE = ["--page-size", "4KiB", "--memory", "1MiB"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two inputs and other names for one of them."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(TABLE, name)
    (tmp_path / "link.parquet").symlink_to("a.parquet")
    (tmp_path / "hard.parquet").hardlink_to("a.parquet")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "up").symlink_to("..")
    (tmp_path / "a.jsonl").write_text('{"t": 1, "k": "a"}\n')
    return tmp_path


def state(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


SAME = ["a.parquet", "./a.parquet", "link.parquet", "hard.parquet", "folder/../a.parquet",
        "folder/up/hard.parquet"]  # fmt: skip
JOIN = ["join", "a.parquet", "b.parquet", "--on", "t=1"]
WINDOW = ["window-join", "a=a.parquet", "b=b.parquet", "--time", "t", "--window", "1"]


@pytest.mark.parametrize("given", [[], ["--overwrite"]])
@pytest.mark.parametrize("option", ["-o", "--trace"])
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize(
    "command",
    [JOIN, WINDOW, ["join", "*.parquet", "b.parquet", "--on", "t=1"],
     ["join", "b.parquet", "[al]*.parquet", "--on", "t=1"]],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_an_output_that_names_an_input_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str],
    command: list[str], option: str, name: str, given: list[str],
) -> None:  # fmt: skip
    before = state(place)
    assert main([*command, option, name, *given]) == 2
    err = capsys.readouterr().err
    assert f"{option} {name} is an input" in err and err.count("\n") == 1
    assert state(place) == before


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "a.parquet", "b.parquet", "--on", "t=1", "--trace", "hard.parquet"],
        ["verify", "a.parquet", "a.parquet", "--on", "t=1", "--result", "b.parquet", "--trace",
         "b.parquet"],
        ["window-join", "a=a.jsonl", "b=b.parquet", "--time", "t", "--window", "1", "--follow",
         "-o", "a.jsonl"],
        [*JOIN, "-o", "x.csv", "--trace", "x.csv"],
        [*JOIN, "-o", "folder/up/x.csv", "--trace", "x.csv"],
        ["trace", "html", "a.parquet", "-o", "a.parquet"],
    ],
)  # fmt: skip
def test_other_ways_to_destroy_something(place: Path, words: list[str]) -> None:
    before = state(place)
    assert main([*words, "--overwrite"]) == 2
    assert state(place) == before


@pytest.mark.parametrize("command", [JOIN, WINDOW], ids=lambda words: words[0])
@pytest.mark.parametrize("option", ["-o", "--trace"])
def test_what_is_there_needs_a_word(place: Path, command: list[str], option: str) -> None:
    words = [*command, "--quiet", *TRACE]
    others = ["--trace", "x.trace"] if option == "-o" else ["-o", "x.csv"]
    out = place / ("old.csv" if option == "-o" else "old.trace")
    assert main([*words, option, str(out), *others]) == 0
    out.chmod(0o640)
    before = out.read_bytes()
    assert main([*words, option, str(out)]) == 2
    assert out.read_bytes() == before
    assert main([*words, option, str(out), "--overwrite"]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("out", "word", "says"),
    [
        ("folder", "folder/*.parquet", "is an input"),
        ("folder", "folder", "is an input"),
        ("other", "folder/a.parquet", "is an input"),
        ("folder", "a.parquet", "is there already"),
        ("a.parquet", "*.parquet", "is an input"),
        ("new", "folder", ""),
        ("new/deeper", "s3://rooms/*.parquet", ""),
        ("folder/new.parquet", "table:rooms", ""),
    ],
)
def test_folders_as_spark_writes_them(place: Path, out: str, word: str, says: str) -> None:
    pq.write_table(TABLE, "folder/a.parquet")
    (place / "other").symlink_to("folder")
    for overwrite in (False, True):
        if says and not (overwrite and says == "is there already"):
            with pytest.raises(InputError, match=says):
                check_outputs({"-o": out}, [word], overwrite=overwrite, is_folder=True)
        else:
            check_outputs({"-o": out}, [word], overwrite=overwrite, is_folder=True)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_modes(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with written(tmp_path / "new", overwrite=False) as file:
            file.write(b"x")
        (tmp_path / "old").touch(0o600)
        (tmp_path / "old").chmod(0o604)
        with written(tmp_path / "old", overwrite=True) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o604


def test_a_name_that_was_taken_meanwhile_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="there already"), written(out, overwrite=False) as file:
        file.write(b"ours")
        out.write_text("theirs")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "theirs")]


@pytest.mark.parametrize("join", [matwin.bestmatch_join, matwin.epsilon_join])
def test_a_trace_of_python_replaces_nothing_but_a_trace(place: Path, join: Callable) -> None:  # type: ignore[type-arg]
    before = state(place)
    for name in SAME:
        with pytest.raises(InputError, match="is no trace"):
            join("a.parquet", TABLE, on={"t": 1}, trace=name)
    with pytest.raises(InputError, match="is no trace"):
        matwin.window_join(
            {"a": "a.parquet", "b": TABLE}, time="t", windows=1, trace="hard.parquet"
        )
    assert state(place) == before
    for _ in range(2):
        join("a.parquet", TABLE, on={"t": 1}, trace="run.trace").read_all()
    (place / "run.trace").write_bytes((place / "run.trace").read_bytes()[:1500])  # killed
    join("a.parquet", TABLE, on={"t": 1}, trace="run.trace").read_all()


# ── what is left behind ──────────────────────────────────────────────────────────────────────

DYING = """
import os, signal, sys
from pathlib import Path
from matwin.storage.alive import new_folder
from matwin.outputs import written
with new_folder(Path(sys.argv[1]), "matwin-verify-") as folder:
    (folder / "x").touch()
    with written(Path(sys.argv[1]) / "out", overwrite=True) as file:
        file.write(b"half")
        print(flush=True)
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the middle of writing, which is killed when it is told to."""
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        assert process.stdout and process.stdout.readline() == b"\n"
        yield process
        timer.cancel()


def sweep(folder: Path) -> list[str]:
    alive.sweep(folder, ".matwin-", ".part")
    alive.sweep(folder, "matwin-verify-")
    return sorted(path.name for path in folder.iterdir())


def test_the_next_run_removes_what_the_dead_left(
    tmp_path: Path, dying: subprocess.Popen[bytes]
) -> None:
    living = sorted(path.name for path in tmp_path.iterdir())
    assert len(living) == 2
    assert sweep(tmp_path) == living, "it is still alive"
    dying.communicate()
    assert dying.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == living
    assert sweep(tmp_path) == []


def test_only_what_is_ours_is_swept(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("x")
    code = "0123456789abcdef"
    (tmp_path / f".matwin-{code}.part").symlink_to(target)
    os.mkfifo(tmp_path / f".matwin-{code[::-1]}.part")
    for name in (".matwin-1-abcd.part", f"matwin-{code}.part", f".matwin-{code}.part.csv"):
        (tmp_path / name).touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert sweep(tmp_path) == before
    assert target.read_text() == "x"


def test_a_maker_and_sweepers_at_once(tmp_path: Path) -> None:
    """A sweeper that comes between the making and the locking costs another try, and no more."""
    is_over = False

    def sweeping() -> None:
        while not is_over:
            sweep(tmp_path)

    threads = [threading.Thread(target=sweeping) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for at in range(100):
            with written(tmp_path / "out", overwrite=True) as file:
                file.write(b"%d" % at)
            assert (tmp_path / "out").read_bytes() == b"%d" % at
            with alive.new_folder(tmp_path, "matwin-verify-") as folder:
                (folder / "x").touch()
                assert (folder / "x").exists()
    finally:
        is_over = True
        for thread in threads:
            thread.join()
    assert sweep(tmp_path) == ["out"]
