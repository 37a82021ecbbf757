"""A join in a child process, with a tenth of the memory: its time, its peak and its page traffic.

    parent ── the case, as JSON ──▶ child: imports, warms up, makes the tables
                                           forgets its peak so far, joins, reads its peak again
           ◀── what it found, as JSON ──

A fresh process, because the allocators of one that has worked keep memory for reuse and would hide
what the join needs.  The tables are in memory before the join starts; what counts is what comes on
top of them.  A tenth of a small table is less than 256 KiB pages can work in, so pages are smaller
there, as the error of too small a budget advises.

A `Setting` can ask for other memory, for files in place of the tables, for one of the four ways, or
for DuckDB with the same limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin import ways
from matwin.report import Report
from matwin.storage.errors import InputError
from matwin.storage.pool import smallest_budget

from . import rivals, window_rivals
from .joins import Case, timed, warm
from .window_cases import WindowCase

Work = Callable[[Report], int]
CASES = {kind.__name__: kind for kind in (Case, WindowCase)}
MARKS = {"slabs": "slab by slab", "parts": "parts: ", "walk": "pages"}
"""What decisions say of the ways beyond memory."""
PAGE_SIZES = (262_144, 131_072, 65_536, 32_768, 16_384, 8_192, 4_096)
SHARE = 10
ROOM = 2
"""A walk needs this many times what storage alone does."""
OUT_OF_MEMORY = "DuckDB is out of memory"
ROOMY = 16
"""So many times the data is a limit that no join comes near."""
BEYOND_BYTES = 150_000_000
"""What the process may take above its budget: libraries, compiled code, allocators."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a child runs its case."""

    repeat: int = 1
    scratch: str | None = None
    memory: int | None = None
    """Bytes; None is a tenth of the data."""
    is_roomy: bool = False
    """Everything fits the memory."""
    way: str | None = None
    """The only way to be taken, if it can be."""
    is_duckdb: bool = False
    """DuckDB by cells in our place."""
    paths: tuple[str, ...] = ()
    """Files to be joined in place of the case's own tables."""

    def budget(self, data_bytes: int) -> tuple[int, int]:
        """Memory and the size of a page."""
        if self.is_roomy:
            return budget_of(max(SHARE * ROOMY * data_bytes, SHARE << 30))
        return budget_of(data_bytes if self.memory is None else SHARE * self.memory)


@dataclass(frozen=True, slots=True)
class Tenth:
    """What a join with little memory did."""

    data_bytes: int
    budget_bytes: int
    page_bytes: int
    seconds: float
    rows_out: int
    peak_bytes: int
    pages_read: int
    pages_written: int
    steps: int
    decisions: list[str]

    @property
    def way(self) -> str:
        """Which of the four ways was taken; parts that have to be walked are both.

        >>> Tenth(9, 9, 9, 1.0, 9, 9, 9, 9, 1, ["merge: finite", "parts: 9 of them"]).way
        'parts'
        """
        told = "|".join(self.decisions)
        taken = [way for way, mark in MARKS.items() if mark in told]
        return " + ".join(taken) or "memory"

    @property
    def is_a_tenth(self) -> bool:
        """Whether so little memory could be given at all."""
        return self.budget_bytes * SHARE <= self.data_bytes + SHARE


def in_a_tenth(case: Case, repeat: int, scratch: str | None = None) -> Tenth:
    """Run the case in a child process with a tenth of its input's bytes as memory."""
    return in_child(case, Setting(repeat, scratch))


def in_child(case: Case, setting: Setting, seconds: float | None = None) -> Tenth:
    """Run the case in a child process; `TimeoutError` if it takes longer than `seconds`."""
    told = {"kind": type(case).__name__, "case": asdict(case), "setting": asdict(setting)}
    words = [sys.executable, "-m", "matwin.tools.bench.tenth", json.dumps(told)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as e:
        raise TimeoutError(f"{case.name}: cut after {seconds:g} s") from e
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        memory = "a tenth of the memory" if setting.memory is None else f"{setting.memory:,} bytes"
        raise InputError(f"{case.name} with {memory}: the child process: {last[0]}")
    return Tenth(**json.loads(done.stdout))


def child(case: Case, setting: Setting) -> Tenth:
    """In the child: join in what memory there is, and look at the process."""
    sources: tuple[Any, ...] = setting.paths or case.sources()
    data_bytes = sum(_size(source) for source in sources)
    budget, page = setting.budget(data_bytes)
    options = {"memory": budget, "page_size": page, "scratch": setting.scratch}
    work = (_of_duckdb if setting.is_duckdb else _ours)(case, sources, options)
    ways.FORCED = setting.way
    reports: list[Report] = []

    def join() -> int:
        reports.append(Report())
        return work(reports[-1])

    pa.default_memory_pool().release_unused()
    before = _forget_peak()
    found = timed(join, setting.repeat)
    peak = _status("VmHWM") - before
    report = reports[-1]
    return Tenth(
        data_bytes, budget, page, found.seconds, found.rows_out, peak,
        report.pages_read, report.pages_written, report.steps, report.decisions,
    )  # fmt: skip


def _ours(case: Case, sources: Sequence[Any], options: dict[str, Any]) -> Work:
    """Our join, when all that it can need has been compiled."""
    warm(case, **options, materialize="standard")
    warm(case)
    return lambda report: case.run(*sources, **options, report=report)


def _of_duckdb(case: Case, sources: Sequence[Any], options: dict[str, Any]) -> Work:
    rival = window_rivals.DUCKDB_CELLS if isinstance(case, WindowCase) else rivals.DUCKDB_CELLS
    rivals.limit(options["memory"], options["scratch"])

    def join(_: Report) -> int:
        try:
            return rival.run(case, *sources)
        except rivals.OutOfMemory:
            raise MemoryError(OUT_OF_MEMORY) from None  # one line, where DuckDB gives advice

    return join


def _size(source: Any) -> int:
    return Path(source).stat().st_size if isinstance(source, str) else int(source.nbytes)


def budget_of(data_bytes: int) -> tuple[int, int]:
    """A tenth of the data, and the largest pages that leave room for a walk in it; for tiny data
    the least memory that there can be.

    >>> budget_of(48_000_000), budget_of(4_800_000_000), budget_of(100)
    ((4800000, 65536), (480000000, 262144), (262144, 4096))
    """
    budget = data_bytes // SHARE
    for page in PAGE_SIZES:
        if ROOM * smallest_budget(page) <= budget:
            return budget, page
    return max(budget, ROOM * smallest_budget(PAGE_SIZES[-1])), PAGE_SIZES[-1]


def _forget_peak() -> int:
    """Make the peak what is resident now, where the kernel allows it; what is resident now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise InputError(f"the kernel does not tell {field}; measure on Linux")


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    told_case = CASES[told["kind"]](**told["case"])
    print(json.dumps(asdict(child(told_case, Setting(**told["setting"])))))
