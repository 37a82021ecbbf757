"""`matwin warm`: compile every kernel now, so that no join has to.

Numba keeps what it has compiled on disk, for this machine.  Two processes share the work:

    warm ──┬── judge, skyline, …      joins of two sides
           └── crabstep, merge, …     plans and window joins

Small joins of every kind reach all kernels; a second call finds them compiled and takes seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import matwin
from matwin.scheduler import MODES, plan
from matwin.storage import kernel

from .answers import tell_answer

ROWS = 1500
SMALL: dict[str, Any] = {"memory": "256KiB", "page_size": "4KiB"}


def run(args: argparse.Namespace) -> int:
    """Compile, and say how long it took."""
    start = time.monotonic()
    compiled = warm()
    seconds = time.monotonic() - start
    told = f"compiled {compiled} kernels" if compiled else "all kernels are compiled already"
    tell_answer(
        args,
        lambda: {"compiled": compiled, "seconds": round(seconds, 3)},
        lambda: f"{told} ({seconds:.1f} s)",
        indent=None,
    )
    return 0


def warm() -> int:
    """Compile whatever is not compiled yet; how many kernels that were."""
    # Not forked: threads of this process would be missing in the children.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(_counted, [two_sided, plans_and_windows]))


def _counted(work: Callable[[], None]) -> int:
    kernel.PLAIN_SECONDS = 0.0
    compiled: list[str] = []
    kernel.on_compiling = compiled.append
    work()
    return len(compiled)


def _table() -> pa.Table:
    mixed = np.random.default_rng(9).permutation(ROWS)
    return pa.table({"t": mixed, "x": mixed % 100 / 100, "k": mixed % 5, "id": mixed})


def two_sided() -> None:
    """Best matches and all pairs, in memory and on pages."""
    table = _table()
    for options in ({}, {"materialize": "slab", **SMALL}, SMALL):
        for how in ("inner", "left", "full"):
            for join in (matwin.bestmatch_join, matwin.epsilon_join):
                join(table, table, on={"t": 3, "x": 1.0}, how=how, **options).read_all()
    with TemporaryDirectory() as folder:  # Parquet's footers have a kernel of their own
        path = str(Path(folder) / "table.parquet")
        pq.write_table(table, path)
        matwin.epsilon_join(path, path, on={"t": 3}).read_all()


def plans_and_windows() -> None:
    """Every way to plan page reads, and the window joins."""
    for mode in MODES:
        plan([(0, 2), (1, 3), (0, 3)], frames=2, mode=mode)
    table = _table()
    streams = {"a": table, "b": table, "c": table}
    for options in ({}, {"materialize": "standard", **SMALL}):
        for by in (None, "k"):
            matwin.window_join(streams, time="t", windows=1, by=by, **options).read_all()
    for algorithm in ("backward-hash", "forward-hash", "backward-nested-loop"):
        matwin.window_join(
            streams, time="t", windows=1, by="k", algorithm=algorithm
        ).read_all()  # fmt: skip
