"""Options × ways of execution: whatever is asked for, in whatever way it is run.

    seed ─ crossed.py ─▶ a join with all its options ─ routes.py ─▶ memory · slabs · parts · pages
                    │                                               by each form and schedule · live
                    └─▶ plain loops ─▶ the same bag, and the order  streams of each order

A rule that holds for whole rows, such as `ties=`, was once applied to pieces of them, on pages only
and in memory never: no test had paired the option with the way.  Here every option meets every way.

A failure names its seed; ``routes.run(seed, file)`` is that case again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import routes
from proofs import tried
from support import campaign

PARTS = 4


@pytest.mark.proof("options × ways of execution")
@pytest.mark.parametrize("part", range(PARTS))
def test_options_by_ways(part: int, tmp_path: Path) -> None:
    cases, found = campaign(320, 20_000), 0
    met: Counter[tuple[str, str]] = Counter()
    told: Counter[str] = Counter()
    for seed in range(part, cases, PARTS):
        asked, way, report = routes.run(seed, tmp_path / "trace.arrow")
        found += bool(asked.expected)
        met[asked.join, way.name] += 1
        told.update({decision.split(":")[0] for decision in report.decisions})
        tried()
    assert found > cases // PARTS // 2, "too few of these cases match anything"
    joins = {"bestmatch_join", "asof_join", "epsilon_join", "window_join"}
    assert {join for join, _ in met} == joins
    assert {way for _, way in met} == set(routes.WAYS)
    assert {"pages", "memory", "parts", "live", "schedule"} <= set(told), "a way was never taken"
