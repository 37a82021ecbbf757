"""Which of the four ways is the cheapest, by the cost model; pure."""

from __future__ import annotations

import numpy as np
import pytest

from matwin.cost import Estimate, Work, cheapest, estimates
from matwin.paging import Shares, open_pages, planned, put_down
from matwin.scheduler import Reach
from matwin.scheduler import plan as plan_pages
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


def band(pages: int, width: int) -> Reach:
    return Reach.of([(max(i - width, 0), min(i + width + 1, pages)) for i in range(pages)])


def shares_of(frames: int, room: int, size: int) -> Shares:
    """Room for the partial results of so many pages, each of which takes `size` pages."""
    return Shares(frames, room * size, 0, 1, partial_page_bytes=size, page_bytes=1)


@pytest.mark.parametrize(
    ("room", "size", "mode", "reads"),
    [(1, 20, "gallop", 8668), (1, 1, "crabstep", 1514), (24, 20, "crabstep", 1514),
     (200, 1, "lookahead", 1157)],
)  # fmt: skip
def test_schedules_by_what_they_keep_open(room: int, size: int, mode: str, reads: int) -> None:
    """Windows of 21 pages in 12 frames: what does not fit is put down, and that costs."""
    schedule = planned(band(400, 10), shares_of(12, room, size), "auto", is_best=True)
    assert (schedule.mode, schedule.page_reads) == (mode, reads)


@pytest.mark.parametrize("mode", ["gallop", "crabstep", "lookahead"])
def test_what_there_is_room_for_is_not_put_down(mode: str) -> None:
    schedule = plan_pages(band(60, 6), frames=6, mode=mode)
    kept = open_pages(schedule)
    assert put_down(schedule, kept) == 0
    assert (put_down(schedule, kept - 1) > 0) == (kept > 1)
    rooms = [put_down(schedule, room) for room in range(kept + 1)]
    assert rooms == sorted(rooms, reverse=True)


def test_the_papers_setting_is_read_sixteen_times() -> None:
    """Seven pages a side, each meets its neighbours up to two away, four frames."""
    paper = band(7, 2)
    assert planned(paper, shares_of(4, 4, 1), "auto", is_best=True).page_reads == 16
    assert planned(paper, shares_of(4, 1, 1), "auto", is_best=True).page_reads == 16
    assert planned(paper, shares_of(4, 1, 9), "auto", is_best=True).mode == "gallop"
