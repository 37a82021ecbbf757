"""Tasks that fail, die or run twice: the result is right, no row is doubled, nothing stays on disk.

    pytest ── driver JVM ──┬── executor JVM ── daemon ── Python worker    "I am here"
                           └── executor JVM ── daemon ── Python worker          ▲
           kill -9 of a worker or its executor ─────────────────────────────────┘

A user's function brings the fault about, so it happens in the middle of a join and at no moment of
luck: the first worker that has pages in its scratch file leaves a note with its process id and
waits.  Only processes are killed that descend from this one.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sparks import frame, needs_campaign, needs_spark, new_session, prepare, same
from support import call_in_child

import matwin

pytestmark = [
    needs_spark, pytest.mark.spark, pytest.mark.fault,
]  # fmt: skip

ROWS = 20_000
PATIENCE_SECONDS = 300
ASKED = {"on": {"t": ROWS // 4, "x": 0.0005}, "how": "left", "keep_unmatched": True}
SMALL = {"memory": "2MiB", "page_size": "64KiB", "strips": [ROWS // 2]}


def rows(seed: int) -> pa.Table:
    """Rows whose windows are wider than the budget of a task, so that it writes pages."""
    random = np.random.default_rng(seed)
    ids = np.arange(ROWS)
    text = np.char.add(f"row {seed} " + "." * 100, ids.astype(str))
    return pa.table({"t": random.integers(0, ROWS, ROWS), "x": random.random(ROWS), "id": text})


@pytest.fixture(scope="module")
def expected() -> pa.Table:
    return matwin.bestmatch_join(rows(1), rows(2), **ASKED).read_all()


def asked(spark: Any, function: Callable[[Any, Any], Any], ship: str = "full") -> Any:
    """The join, with a function that judges as the default does and may do more."""
    from pyspark import cloudpickle

    # Executors can't import this file.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    sides = [frame(spark, rows(seed), 2) for seed in (1, 2)]
    return matwin.spark.bestmatch_join(*sides, **ASKED, **SMALL, orders={"x": function}, ship=ship)


# ── what happens in the tasks ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Notes:
    """Files by which tasks and test tell each other how far they are."""

    folder: Path

    def take(self) -> bool:
        """Whether the caller is the first of all tasks with pages on disk."""
        if (self.folder / "taken").exists() or not pages_of(os.getpid()):
            return False
        try:
            (self.folder / "taken").touch(exist_ok=False)
        except FileExistsError:
            return False
        draft = self.folder / "draft"
        draft.write_text(str(os.getpid()))
        draft.rename(self.folder / "here")
        return True

    def is_taken_by(self, pid: int) -> bool:
        here = self.folder / "here"
        return here.exists() and here.read_text() == str(pid)

    def worker(self) -> int:
        """The process that has come first; waits for it."""
        wait_for(lambda: (self.folder / "here").exists())
        return int((self.folder / "here").read_text())

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def was_let_go(self) -> bool:
        return (self.folder / "go").exists()


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, "nothing has happened for too long"
        time.sleep(0.02)


def pages_of(pid: int) -> list[str]:
    """The page files that a process has open; all of them deleted already."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if "data.mdb" in line})


def attempt() -> int | None:
    """Which attempt of its task this is; None on the driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.attemptNumber()


def distance_but(act: Callable[[], None]) -> Callable[[Any, Any], Any]:
    """The distance of two values; in executors something else happens first."""

    def distance(a: Any, b: Any) -> Any:
        if attempt() is not None:
            act()
        return abs(a - b)

    return distance


def waiting(notes: Notes) -> Callable[[], None]:
    """The first task waits, to be killed or let go; a second attempt of a task lets it go."""

    def act() -> None:
        if notes.take():
            wait_for(notes.was_let_go)  # until it is killed, or another attempt has come
        elif attempt():
            notes.let_go()

    return act


def raising(notes: Notes) -> Callable[[], None]:
    """The first worker fails for good; a second attempt of a task lets us know."""

    def act() -> None:
        if notes.take() or notes.is_taken_by(os.getpid()):
            raise ValueError("this worker always goes wrong")
        if attempt():
            notes.let_go()

    return act


def broken() -> None:
    raise ValueError("it always goes wrong")


# ── processes and folders ────────────────────────────────────────────────────────────────────────


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ancestors(pid: int) -> list[int]:
    """The processes between this one and a descendant of it, the descendant first."""
    found = [pid]
    while found[-1] != os.getpid():
        assert found[-1] > 1, f"process {pid} is not one of ours"
        found.append(parent(found[-1]))
    return found[:-1]


def executor_of(worker: int) -> int:
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ancestors(worker)}
    (executor,) = (pid for pid, name in names.items() if b"CoarseGrainedExecutorBackend" in name)
    return executor


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def left_in(*folders: Path) -> list[str]:
    """What MatWin has left in some folders: its scratch folders, files of pages."""
    return [
        str(path)
        for folder in folders
        for name in ("matwin-*", "data.mdb", "lock.mdb")
        for path in folder.rglob(name)
        if not path.name.startswith("matwin-spark-")  # the tests' own
    ]


def home() -> Path:
    """The folder that holds Spark's local and work folders."""
    return Path(os.environ["SPARK_HOME"])


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    made = Notes(tmp_path)
    yield made
    made.let_go()


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """However a test has ended, and while the application runs on."""
    yield
    if "spark" in request.fixturenames:
        assert left_in(home() / "local", home() / "work") == []


# ── the tests ────────────────────────────────────────────────────────────────────────────────────


def killed(spark: Any, notes: Notes, choose: Callable[[int], int], ship: str = "full") -> pa.Table:
    """The result of a join one of whose processes is killed while it runs."""
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(asked(spark, distance_but(waiting(notes)), ship).toArrow)
        try:
            worker = notes.worker()
            assert pages_of(worker), "no page has been written"
            victim = choose(worker)
            assert victim in ancestors(worker)
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: not is_alive(worker))
        finally:
            notes.let_go()
        return result.result(timeout=PATIENCE_SECONDS)


def test_a_killed_worker(spark: Any, notes: Notes, expected: pa.Table) -> None:
    assert same(killed(spark, notes, lambda worker: worker), expected) > ROWS


@pytest.mark.parametrize("ship", ["full", "partial"])
def test_a_killed_executor(spark: Any, notes: Notes, expected: pa.Table, ship: str) -> None:
    assert same(killed(spark, notes, executor_of, ship), expected) > ROWS


def test_pages_are_in_the_executors_own_folder(spark: Any, notes: Notes) -> None:
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(asked(spark, distance_but(waiting(notes))).count)
        try:
            files = pages_of(notes.worker())
        finally:
            notes.let_go()
        assert result.result(timeout=PATIENCE_SECONDS) > ROWS
    assert files
    assert all(file.startswith(str(home() / "local")) for file in files), files


def test_a_task_that_fails_once(spark: Any, notes: Notes, expected: pa.Table) -> None:
    found = asked(spark, distance_but(raising(notes))).toArrow()
    assert notes.was_let_go(), "there was no second attempt"
    assert same(found, expected) > ROWS


def test_an_error_says_which_join_which_strip_and_why(spark: Any) -> None:
    with pytest.raises(Exception, match=r"matwin\.spark\.bestmatch_join") as caught:
        asked(spark, distance_but(broken)).toArrow()
    told = str(caught.value)
    assert re.search(r"TaskError: matwin\.spark\.bestmatch_join, strip \d of 2 \(.*?\): ", told)
    assert "ValueError: it always goes wrong" in told


# ── an application of its own ────────────────────────────────────────────────────────────────────


@contextmanager
def two_hosts(base: Path) -> Iterator[str]:
    """The address of a cluster with workers on two hosts: Spark runs no second attempt of a task
    on the host of the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    port = address.partition(":")[2]
    master = ["master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
    commands = [master] + [
        ["worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
         "--work-dir", str(base / f"work {host}"), f"spark://{address}"]
        for host in ("127.0.0.1", "127.0.0.2")
    ]  # fmt: skip
    program = str(home() / "bin" / "spark-class")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen([program, f"org.apache.spark.deploy.{name}", *words], **quiet)
        for name, *words in commands
    ]
    try:
        yield f"spark://{address}"
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def application(folder: str) -> dict[str, Any]:
    """Run a join whose first task waits for its own second attempt."""
    base = Path(folder)
    (base / "temp").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(base / "temp")
    os.environ["SPARK_LOCAL_DIRS"] = str(base / "local")
    notes = Notes(base)
    prepare()
    with two_hosts(base) as address:
        spark = new_session(
            address, spark__driver__host="127.0.0.1", spark__executor__memory="1g",
            spark__speculation="true", spark__speculation__interval="50ms",
            spark__speculation__minTaskRuntime="50ms", spark__speculation__quantile="0.5",
            spark__speculation__multiplier="1.1",
        )  # fmt: skip
        asked(spark, distance_but(waiting(notes))).write.parquet(str(base / "out.parquet"))
        left = left_in(base / "temp", base / "local")
        spark.stop()
    return {"was_let_go": notes.was_let_go(), "left": left}


@needs_campaign
def test_second_attempts_beside_the_first_and_the_end(tmp_path: Path, expected: pa.Table) -> None:
    """Speculative execution: two attempts of a task go on at once, each with a file to write."""
    told = call_in_child(application, str(tmp_path))
    assert told["was_let_go"], "there was no second attempt"
    assert told["left"] == []
    assert same(pq.read_table(tmp_path / "out.parquet"), expected) > ROWS
    assert left_in(tmp_path / "temp", tmp_path / "local") == []
