"""Page reads and partial results of bestmatch joins in each mode, counted; `auto` is near the best.

The planner reckons what is put down; here the pool and the file say what it was.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import matwin
from matwin.partials import Partials

PAGE = 16 * 1024
pytestmark = [pytest.mark.disk, pytest.mark.xdist_group("schedules")]  # counted once

MODES = ("gallop", "crabstep", "lookahead")
NEAR = 1.1


def rows(seed: int, *, ties: int) -> pa.Table:
    random = np.random.default_rng(seed)
    t = random.integers(0, 20_000 // ties, 20_000) * ties
    return pa.table({"t": t, "x": random.random(20_000) * 1000, "id": np.arange(20_000)})


def transfers(mode: str, on: dict[str, Any], ties: int, memory: int, form: str) -> float:
    """Pages read, and pages of partial results put down and read back."""
    down: list[int] = []
    close = Partials.close

    def noted(self: Partials) -> None:
        down.append(self.put_down_bytes)
        close(self)

    report = matwin.Report()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partials, "close", noted)
        matwin.bestmatch_join(
            rows(1, ties=ties), rows(2, ties=ties), on=on, memory=memory, page_size=PAGE,
            materialize=form, schedule=mode, report=report,
        ).read_all()  # fmt: skip
    assert report.pairs_visited == report.pairs_planned
    return report.pages_read + sum(down) / PAGE


LAYOUTS = {
    "all meet, two attributes": ({"t": 20_000, "x": 0.5}, 1, 64 * PAGE, "slab"),
    "all meet, one attribute": ({"t": 20_000}, 1, 64 * PAGE, "slab"),
    "narrow": ({"t": 50, "x": 50.0}, 1, 64 * PAGE, "slab"),
    "many ties": ({"t": 100}, 50, 64 * PAGE, "slab"),
    "sorted as a whole": ({"t": 6_000, "x": 1.0}, 1, 48 * PAGE, "standard"),
}


@cache
def counted(layout: str) -> dict[str, float]:
    return {mode: transfers(mode, *LAYOUTS[layout]) for mode in (*MODES, "auto")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_auto_is_near_the_best_of_the_modes(layout: str) -> None:
    found = counted(layout)
    assert found["auto"] <= NEAR * min(found[mode] for mode in MODES), found


def test_each_mode_wins_somewhere() -> None:
    """Else a choice would be no choice."""
    found = [counted(layout) for layout in LAYOUTS]
    assert {min(MODES, key=lambda mode: one[mode]) for one in found} == set(MODES)
