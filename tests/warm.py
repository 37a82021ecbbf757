"""Compile kernels before the tests start, each once and two at a time.

Numba keeps what it has compiled on disk, so a second run finds everything there.  On a fresh
checkout, though, both workers of pytest, their children and Spark's executors would need the same
kernels in the first minute, and each would compile them for itself:

    tests/warm.py ──┬── judge, merge, …       joins of two sides
                    └── crabstep, beam, …     plans and window joins
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

import matwin
from matwin.scheduler import MODES, plan

ROWS = 3000
MIXED = np.random.default_rng(9).permutation(ROWS)
TABLE = pa.table({"t": MIXED, "x": MIXED % 100 / 100, "k": MIXED % 5, "id": MIXED})
SMALL: dict[str, Any] = {"memory": "256KiB", "page_size": "4KiB"}


def two_sided() -> None:
    """Best matches and all pairs, in memory and on pages."""
    for options in ({}, {"materialize": "slab", **SMALL}, SMALL):
        for how in ("inner", "left", "full"):
            for join in (matwin.bestmatch_join, matwin.epsilon_join):
                join(TABLE, TABLE, on={"t": 3, "x": 1.0}, how=how, **options).read_all()


def plans_and_windows() -> None:
    """Every way to plan page reads, and the window joins."""
    for mode in MODES:
        plan([(0, 2), (1, 3), (0, 3)], frames=2, mode=mode)
    streams = {"a": TABLE, "b": TABLE, "c": TABLE}
    for options in ({}, {"materialize": "standard", **SMALL}):
        for by in (None, "k"):
            matwin.window_join(streams, time="t", windows=1, by=by, **options).read_all()


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        for work in [pool.submit(two_sided), pool.submit(plans_and_windows)]:
            work.result()
