"""A window join in a child process with a tenth of the memory; see `tenth.py` for why a child.

parent ── the case, as JSON ──▶ child: warms up, makes the tables, joins, reads its peak
       ◀── what it found, as JSON ──
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pyarrow as pa

from matwin.report import Report
from matwin.storage.errors import InputError

from .joins import timed
from .tenth import Tenth, _forget_peak, _status, budget_of
from .window_cases import WindowCase, warm


def in_a_tenth(case: WindowCase, repeat: int, scratch: str | None = None) -> Tenth:
    """Run the case in a child process with a tenth of its input's bytes as memory."""
    told = json.dumps({"case": asdict(case), "repeat": repeat, "scratch": scratch})
    done = subprocess.run(
        [sys.executable, "-m", "matwin.tools.bench.window_tenth", told],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InputError(f"{case.name} with a tenth of the memory: the child process: {last[0]}")
    return Tenth(**json.loads(done.stdout))


def child(case: WindowCase, repeat: int, scratch: str | None) -> Tenth:
    """In the child: join in a tenth, and look at the process."""
    tables = case.sources()
    data_bytes = sum(table.nbytes for table in tables)
    budget, page = budget_of(data_bytes)
    options = {"memory": budget, "page_size": page, "scratch": scratch}
    warm(case, **options)
    warm(case)
    reports: list[Report] = []

    def join() -> int:
        reports.append(Report())
        return case.run(*tables, **options, report=reports[-1])

    pa.default_memory_pool().release_unused()
    before = _forget_peak()
    found = timed(join, repeat)
    peak = _status("VmHWM") - before
    last = reports[-1]
    return Tenth(
        data_bytes, budget, page, found.seconds, found.rows_out, peak,
        last.pages_read, last.pages_written, last.steps, last.decisions,
    )  # fmt: skip


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    print(json.dumps(asdict(child(WindowCase(**told["case"]), told["repeat"], told["scratch"]))))
