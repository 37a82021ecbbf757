"""Which of the four ways is the cheapest, by the cost model; pure."""

from __future__ import annotations

import numpy as np
import pytest

from matwin.cost import Estimate, Work, cheapest, estimates
from matwin.paging import Shares, open_pages, planned
from matwin.scheduler import Reach
from matwin.scheduler.division import Plan, Sample, expected
from matwin.scheduler.layout import ANCHOR, Halo, Layout

MIB = 2**20


def plan(parts: int, reach: float) -> Plan:
    """Strips of a span of 100 with halos."""
    values = np.linspace(0, 100, 10_001)
    side = Sample(values, np.zeros(len(values), np.int64), np.full(len(values), 100.0))
    bounds = tuple(100 * n / parts for n in range(1, parts))
    halos = {"left": ANCHOR, "right": Halo(-reach, reach)}
    return expected(Layout.of_strips(bounds), halos, {"left": side, "right": side}, 2, "strips")


def found(budget: int, division: Plan | None, **known: bool | None) -> list[Estimate]:
    work = Work(2e6, 1e8, 5e8, budget, 2**18, known.pop("is_sorted", None), **known)  # type: ignore[arg-type]
    return estimates(work, division, budget / 4)


@pytest.mark.parametrize(
    ("budget", "is_sorted", "reach", "way"),
    [
        (2**30, None, 0.1, "memory"),
        (2**30, True, 0.1, "memory"),
        (10 * MIB, True, 0.1, "slabs"),
        (10 * MIB, False, 0.1, "parts"),
        (10 * MIB, False, 60.0, "walk"),
    ],
)
def test_the_cheapest(budget: int, is_sorted: bool | None, reach: float, way: str) -> None:
    assert cheapest(found(budget, plan(100, reach), is_sorted=is_sorted)).way == way


def test_what_nothing_divides_is_walked() -> None:
    assert cheapest(found(10 * MIB, None, is_sorted=False)).way == "walk"


def test_live_inputs_have_no_parts() -> None:
    ways = found(10 * MIB, plan(100, 0.1), is_sorted=False, is_live=True)
    assert cheapest(ways).way == "walk"
    assert [one.why for one in ways if one.way == "parts"] == ["live inputs have no end"]


def test_small_pages_cost(budget: int = 10 * MIB) -> None:
    """The same division costs more in a smaller budget: rows come to their parts in more pieces."""
    few, many = (found(size, plan(100, 0.1))[2].seconds for size in (budget, budget // 8))
    assert many > 1.5 * few


@pytest.mark.parametrize(
    ("room", "mode", "reads"),
    [(12, "gallop", 8668), (24, "crabstep", 1514), (200, "lookahead", 1157)],
)
def test_schedules_by_what_they_may_keep_open(room: int, mode: str, reads: int) -> None:
    """Windows of 21 pages in 12 frames, and room for the partial results of so many pages."""
    pages = 400
    band = Reach.of([(max(i - 10, 0), min(i + 11, pages)) for i in range(pages)])
    shares = Shares(12, partial_bytes=room, reserved_bytes=0, capacity=1, partial_page_bytes=1)
    schedule = planned(band, shares, "auto", is_best=True)
    assert (schedule.mode, schedule.page_reads) == (mode, reads)
    assert open_pages(schedule) <= room
