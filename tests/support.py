"""What the tests of faults and of the disk share: rows, child processes, and what only root can do.

Rows are a pure function of their id, so that a handful of ids says exactly which rows a window has
to hold, and a lost, doubled or altered row shows.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

FORMS = ("standard", "grid", "slab")
Cases = TypeVar("Cases")

# ── rows ─────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = pa.schema(
    [("id", pa.int64()), ("t", pa.int64()), ("x", pa.float64()), ("name", pa.string())]
)
ON = {"t": 100, "x": 0.5}
ROWS_PER_TICK = 4


def rows(ids: Sequence[int] | range | np.ndarray) -> pa.RecordBatch:
    """The rows with these ids: `t` ascends with the id, `x` scatters, some names are null."""
    numbers = np.asarray(ids, np.int64)
    texts = pc.binary_join_element_wise("row", pa.array(numbers).cast(pa.string()), " ")
    names = pc.if_else(pa.array(numbers % 11 == 0), pa.scalar(None, pa.string()), texts)
    scattered = (numbers * 7919) % 1009 / 1009
    columns = [numbers, numbers // ROWS_PER_TICK, scattered, names]
    return pa.record_batch([pa.array(c) for c in columns], schema=SCHEMA)


def ids_in(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """The ids of all rows, in order; an `AssertionError` where a row is not what its id says."""
    table = pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks().sort_by("id")
    ids = table["id"].to_numpy()
    assert table.equals(pa.Table.from_batches([rows(ids)])), "a row has other values than it had"
    return [int(i) for i in ids]


def amount_of(count: int, data_type: pa.DataType) -> Any:
    """A count of a type's own unit as a user has to write it: times by text."""
    unit = {"date32[day]": "d", "date64[ms]": "ms"}.get(str(data_type))
    unit = unit or getattr(data_type, "unit", None)
    return count if unit is None else f"{count}{unit}"


# ── child processes ──────────────────────────────────────────────────────────────────────────────

# Arrow imports pandas by itself where it is installed, 40 MB that are not ours to measure.  Spark
# Connect needs pandas, so it is here; children that are measured do without, as most users would.
_CALL = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

if "spark" not in sys.argv[1]:
    sys.meta_path.insert(0, Without())
import json, support
value = support.loaded(sys.argv[1], sys.argv[2])(*json.load(sys.stdin))
print(json.dumps(value), flush=True)
"""
_PR_SET_PDEATHSIG = 1
CASES_PER_CHILD = 500


def run_child(
    code: str,
    *arguments: object,
    before: Callable[[], None] | None = None,
    words: str = "",
    timeout: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a new process; it may import this module, and dies with us.

    `before` runs in the new process before Python starts; `words` come to it as standard input.
    """
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        input=words,
        text=True,
        timeout=timeout,
        preexec_fn=lambda: _prepare(before),
        check=False,
    )


def _prepare(before: Callable[[], None] | None) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if before:
        before()


def call_in_child(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a test module's function, called in a new process; JSON goes in and out."""
    file, name = inspect.getfile(function), function.__name__
    child = run_child(_CALL, file, name, words=json.dumps(arguments), **options)
    assert child.returncode == 0, f"exit code {child.returncode}\n{child.stderr[-4000:]}"
    return json.loads(child.stdout.splitlines()[-1])


def loaded(file: str, name: str) -> Callable[..., Any]:
    """A function from a file of tests."""
    if file == __file__:
        return globals()[name]  # type: ignore[no-any-return]
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Fate:
    """How a process ended: by which signal (0: none), with which value or which error."""

    signal: int
    value: Any = None
    error: str = ""


def in_fork(function: Callable[..., Any], *arguments: Any) -> Fate:
    """Run the function in a fork of this process, which should have one thread only."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        try:
            answer = {"value": function(*arguments)}
        except BaseException as e:
            where = traceback.format_exc() if isinstance(e, AssertionError) else ""
            answer = {"error": f"{type(e).__name__}: {e}{where}"}
        with os.fdopen(sender, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return Fate(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, **json.loads(answer or "{}"))


def each_in_fork(function: Callable[..., Any], cases: Sequence[Sequence[Any]]) -> list[Fate]:
    """Call the function once for each case, each in a process of its own.

    One child pays for the imports; its forks cost milliseconds.  Many cases take several children,
    so that each ends in time.
    """
    file, name = inspect.getfile(function), function.__name__
    fates = []
    for first in range(0, len(cases), CASES_PER_CHILD):
        some = cases[first : first + CASES_PER_CHILD]
        fates += call_in_child(_fork_each, file, name, some)
    return [Fate(*fate) for fate in fates]


def _fork_each(file: str, name: str, cases: list[list[Any]]) -> list[tuple[int, Any, str]]:
    function = loaded(file, name)
    fates = [in_fork(function, *case) for case in cases]
    return [(fate.signal, fate.value, fate.error) for fate in fates]


def campaign(usual: Cases, many: Cases) -> Cases:
    """How many cases to try, or which: `many` when a long run was asked for."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "campaign" else usual


def drawn_seed() -> int:
    """A new seed in every run; one and the same where a gate judges, as for Hypothesis."""
    return 20 if os.environ.get("CI") else int.from_bytes(os.urandom(3))


def resident(name: str) -> int:
    """Bytes of this process that are in memory now (`VmRSS`), or were at the peak (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def peak_begins_anew() -> None:
    """From now on the peak is that of what follows."""
    Path("/proc/self/clear_refs").write_text("5")


def forget(path: Path) -> None:
    """Make the kernel forget what it has of a file, so that the next read comes from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


# ── what only root can do ────────────────────────────────────────────────────────────────────────

_CGROUPS = Path("/sys/fs/cgroup/memory")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextmanager
def strace(*options: str) -> Iterator[None]:
    """This process under strace."""
    command = ["strace", "-f", "-p", str(os.getpid()), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr
        first = tracer.stderr.readline()
        assert "attached" in first, first
        try:
            yield
        finally:
            tracer.terminate()


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """A small disk of its own."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("tmpfs can't be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group with a memory limit."""

    folder: Path

    def enter(self) -> None:
        """Put this process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def read(self, name: str) -> int:
        """One of the group's numbers."""
        return int((self.folder / name).read_text())


@contextmanager
def memory_limit(size: int) -> Iterator[MemoryGroup]:
    """A control group (version 1) whose processes share `size` bytes, swap included."""
    group = MemoryGroup(_CGROUPS / f"matwin-test-{uuid.uuid4().hex}")
    if not (_CGROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("there are no memory control groups of version 1 here")
    try:
        group.folder.mkdir()
    except OSError as e:
        pytest.skip(f"no memory control group can be made here: {e.strerror}")
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (group.folder / name).exists():
                (group.folder / name).write_text(str(size))
        yield group
    finally:
        group.folder.rmdir()
