"""A join in a child process with a tenth of the memory: its time, its peak and its page traffic.

    parent ── the case, as JSON ──▶ child: imports, warms up, makes the tables
                                           forgets its peak so far, joins, reads its peak again
           ◀── what it found, as JSON ──

A fresh process, because the allocators of one that has worked keep memory for reuse and would hide
what the join needs.  The tables are in memory before the join starts; what counts is what comes on
top of them.  A tenth of a small table is less than 256 KiB pages can work in, so pages are smaller
there, as the error of too small a budget advises.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from matwin.report import Report
from matwin.storage.errors import InputError
from matwin.storage.pool import smallest_budget

from .joins import Case, timed, warm

PAGE_SIZES = (262_144, 131_072, 65_536, 32_768, 16_384, 8_192, 4_096)
SHARE = 10
ROOM = 2
"""A walk needs this many times what storage alone does."""
BEYOND_BYTES = 150_000_000
"""What the process may take above its budget: libraries, compiled code, allocators."""


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
    def is_a_tenth(self) -> bool:
        """Whether so little memory could be given at all."""
        return self.budget_bytes * SHARE <= self.data_bytes + SHARE


def in_a_tenth(case: Case, repeat: int, scratch: str | None = None) -> Tenth:
    """Run the case in a child process with a tenth of its input's bytes as memory."""
    told = json.dumps({"case": asdict(case), "repeat": repeat, "scratch": scratch})
    done = subprocess.run(
        [sys.executable, "-m", "matwin.tools.bench.tenth", told], capture_output=True, text=True
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InputError(f"{case.name} with a tenth of the memory: the child process: {last[0]}")
    return Tenth(**json.loads(done.stdout))


def child(case: Case, repeat: int, scratch: str | None) -> Tenth:
    """In the child: join in a tenth, and look at the process."""
    left, right = case.tables()
    data_bytes = left.nbytes + right.nbytes
    budget, page = budget_of(data_bytes)
    options = {"memory": budget, "page_size": page, "scratch": scratch}
    warm(case, **options, materialize="standard")
    warm(case)
    reports: list[Report] = []

    def join() -> int:
        reports.append(Report())
        return case.run(left, right, **options, report=reports[-1])

    pa.default_memory_pool().release_unused()
    before = _forget_peak()
    found = timed(join, repeat)
    peak = _status("VmHWM") - before
    last = reports[-1]
    return Tenth(
        data_bytes, budget, page, found.seconds, found.rows_out, peak,
        last.pages_read, last.pages_written, last.steps, last.decisions,
    )  # fmt: skip


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
    print(json.dumps(asdict(child(Case(**told["case"]), told["repeat"], told["scratch"]))))
