"""Layouts to plan: shapes of pair matrices that joins make, and the grid of them to measure.

    band            staircase       in no order     slab windows    all with all

    ■ ■ · · · ·     ■ ■ · · · ·     · · ■ ■ · ·     ■ ■ · ■ · ·     ■ ■ ■ ■ ■ ■
    ■ ■ ■ · · ·     ■ ■ ■ ■ · ·     ■ ■ ■ · · ·     ■ ■ ■ ■ ■ ·     ■ ■ ■ ■ ■ ■
    · ■ ■ ■ · ·     · ■ ■ ■ · ·     · · · · ■ ■     · ■ ■ · ■ ■     ■ ■ ■ ■ ■ ■
    · · ■ ■ ■ ·     · · · ■ ■ ■     · ■ · · · ·     ■ ■ · ■ ■ ·     ■ ■ ■ ■ ■ ■
    · · · ■ ■ ■     · · · · ■ ■     · · ■ ■ ■ ■     · ■ ■ · ■ ■     ■ ■ ■ ■ ■ ■

A band is a window join of two even streams, a staircase one of uneven streams.  Intervals in no
order come from pages that were sorted by something else.  A slab window has several runs that cover
the same stretch, so a page meets an interval of each.  Everything random comes from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from matwin.scheduler import Reach

Random = np.random.Generator

PAPER = "the paper's example"
FRAMES_SERIES = "one band, more and more frames"
PAIRS_SERIES = "bands with more and more pairs"


@dataclass(frozen=True, slots=True)
class Case:
    """A layout, how many frames it gets, and under which heading it is shown."""

    group: str
    layout: str
    reach: Reach
    frames: int
    is_small: bool = False
    """Whether a reference search can be afforded."""
    is_quick: bool = False
    """Whether it is measured also when there is little time."""


# ── shapes ───────────────────────────────────────────────────────────────────────────────────


def band(pages: int, width: int, *, is_self: bool = False) -> Reach:
    """Each page meets those up to `width` away.

    >>> band(4, 1).triples()
    [(0, 0, 2), (1, 0, 3), (2, 1, 4), (3, 2, 4)]
    """
    page = np.arange(pages)
    edges = np.stack((np.maximum(page - width, 0), np.minimum(page + width + 1, pages)), 1)
    return Reach.from_intervals(page, edges, pages, pages, is_self=is_self)


def staircase(
    random: Random, lefts: int, rights: int, width: float, *, is_self: bool = False
) -> Reach:
    """Each page meets up to about `width` on either side of its place; both edges only ascend."""
    place = np.sort(random.uniform(0, rights, lefts))
    first = np.floor(place - random.uniform(0, width, lefts)).clip(0, rights - 1)
    limit = np.ceil(place + random.uniform(0, width, lefts)).clip(1, rights)
    first, limit = np.maximum.accumulate(first), np.maximum.accumulate(limit)
    edges = np.stack((first, np.maximum(limit, first + 1)), 1).astype(np.int64)
    return Reach.from_intervals(np.arange(lefts), edges, lefts, rights, is_self=is_self)


def scattered(
    random: Random, lefts: int, rights: int, length: int, *, is_self: bool = False
) -> Reach:
    """Each left page meets an interval of 1 to `length` pages anywhere."""
    lengths = random.integers(1, length + 1, lefts)
    first = random.integers(0, rights - lengths + 1)
    edges = np.stack((first, first + lengths), 1)
    return Reach.from_intervals(np.arange(lefts), edges, lefts, rights, is_self=is_self)


def slabs(
    random: Random,
    left_runs: int,
    right_runs: int,
    pages: int,
    reach: float,
    *,
    is_self: bool = False,
) -> Reach:
    """Runs of `pages` pages, each beginning about half a run after the one before; pages meet that
    are at most `reach` pages apart, in every run."""
    left = _runs(random, left_runs, pages)
    right = left if is_self else _runs(random, right_runs, pages)
    owners, edges = [], []
    for run in range(len(right) // pages):
        starts = right[run * pages : (run + 1) * pages]
        first = np.searchsorted(starts, left - reach - 1, "right")
        limit = np.searchsorted(starts, left + reach + 1, "left")
        owners.append(np.arange(len(left)))
        edges.append(np.stack((first, np.maximum(limit, first)), 1) + run * pages)
    return Reach.from_intervals(
        np.concatenate(owners), np.concatenate(edges), len(left), len(right), is_self=is_self
    )


def _runs(random: Random, runs: int, pages: int) -> npt.NDArray[np.float64]:
    """Where each page begins, run after run."""
    begins = np.arange(runs) * pages / 2 + random.uniform(0, 1, runs)
    return (begins[:, None] + np.arange(pages)).ravel()


# ── the grid ─────────────────────────────────────────────────────────────────────────────────


def grid(seed: int = 0, *, is_quick: bool = False) -> list[Case]:
    """All that is measured; with `is_quick`, a part of it that takes seconds."""
    random = np.random.default_rng(seed)
    parts = (
        _bands(),
        _random(random, "staircases", staircase),
        _random(random, "intervals in no order", scattered),
        _slab_windows(random),
        _self_joins(random),
        _unequal(random),
        _series(is_quick),
    )
    paper = Case(PAPER, "±2", band(7, 2), 4, is_small=True, is_quick=True)
    return [case for case in chain([paper], *parts) if case.is_quick or not is_quick]


def _bands() -> Iterator[Case]:
    for pages, width, frames, is_quick in (
        (14, 1, 3, True), (14, 2, 4, True), (12, 3, 6, True), (14, 4, 4, True), (10, 9, 4, True),
        (14, 2, 3, False), (14, 4, 3, False), (14, 4, 6, False), (14, 6, 3, False),
        (14, 6, 5, False), (14, 13, 6, False),
    ):  # fmt: skip
        yield _band(pages, width, frames, is_small=True, is_quick=is_quick)
    for pages, width, frames in (
        (100, 2, 4), (100, 5, 11), (100, 25, 10),
        (1_000, 5, 3), (1_000, 30, 61), (1_000, 200, 50), (1_000, 999, 100),
        (10_000, 20, 16), (10_000, 250, 501), (10_000, 500, 100), (10_000, 1_056, 2_000),
        (10_000, 1_000, 4_000),
    ):  # fmt: skip
        yield _band(pages, width, frames, is_quick=pages == 100)


def _band(
    pages: int,
    width: int,
    frames: int,
    group: str = "bands",
    *,
    is_small: bool = False,
    is_quick: bool = False,
) -> Case:
    name = f"±{width:,}" if width < pages - 1 else "all with all"
    return Case(group, name, band(pages, width), frames, is_small, is_quick)


def _random(random: Random, group: str, shape: Callable[..., Reach]) -> Iterator[Case]:
    for number in range(1, 11):
        lefts, rights = (int(pages) for pages in random.integers(8, 15, 2))
        width, frames = int(random.integers(2, 7)), int(random.integers(3, 7))
        reach = shape(random, lefts, rights, width)
        name = f"no. {number}, up to {width} wide"
        yield Case(group, name, reach, frames, is_small=True, is_quick=number <= 3)
    for pages, width, frames in (
        (100, 10, 8), (1_000, 20, 50), (1_000, 100, 50), (10_000, 100, 64), (10_000, 400, 2_000),
    ):  # fmt: skip
        reach = shape(random, pages, pages, width)
        yield Case(group, f"up to {width} wide", reach, frames, is_quick=pages == 100)


def _slab_windows(random: Random) -> Iterator[Case]:
    for left_runs, right_runs, pages, width, frames in (
        (2, 2, 5, 1.5, 4), (3, 3, 4, 1.0, 4), (2, 3, 4, 1.5, 3), (2, 2, 7, 2.0, 5),
        (3, 2, 4, 2.5, 6), (3, 3, 4, 2.0, 5),
        (5, 5, 20, 3.0, 12), (10, 10, 50, 5.0, 40), (10, 10, 100, 20.0, 100),
        (20, 20, 500, 30.0, 500),
    ):  # fmt: skip
        name = f"{left_runs} and {right_runs} runs of {pages}, ±{width:g}"
        reach = slabs(random, left_runs, right_runs, pages, width)
        is_quick = (left_runs, right_runs, pages) in ((2, 2, 5), (3, 3, 4), (5, 5, 20))
        yield Case("slab windows", name, reach, frames, pages <= 7, is_quick)


def _self_joins(random: Random) -> Iterator[Case]:
    def case(name: str, reach: Reach, frames: int) -> Case:
        pages = reach.left_pages
        return Case("self-joins", name, reach, frames, pages <= 14, pages in (14, 100))

    for pages, width, frames in ((14, 3, 4), (14, 6, 4), (12, 4, 3)):
        yield case(f"±{width}", band(pages, width, is_self=True), frames)
    yield case("all with all", band(10, 9, is_self=True), 4)
    yield case("up to 4 wide", staircase(random, 13, 13, 4, is_self=True), 4)
    yield case("in no order, up to 4 wide", scattered(random, 12, 12, 4, is_self=True), 5)
    yield case("3 runs of 4, ±1.5", slabs(random, 3, 3, 4, 1.5, is_self=True), 4)
    yield case("±10", band(100, 10, is_self=True), 8)
    yield case("±100", band(1_000, 100, is_self=True), 50)
    yield case("in no order, up to 20 wide", scattered(random, 1_000, 1_000, 20, is_self=True), 100)
    yield case("10 runs of 100, ±10", slabs(random, 10, 10, 100, 10.0, is_self=True), 64)
    yield case("±500", band(10_000, 500, is_self=True), 300)


def _unequal(random: Random) -> Iterator[Case]:
    for lefts, rights, width, frames, is_quick in (
        (8, 14, 5, 4, True), (5, 14, 6, 3, False), (14, 8, 3, 5, False),
        (30, 300, 20, 12, True), (100, 10_000, 300, 40, False), (10_000, 500, 20, 64, False),
    ):  # fmt: skip
        reach = staircase(random, lefts, rights, width)
        name = f"staircase, up to {width} wide"
        yield Case("unequal page counts", name, reach, frames, rights <= 14, is_quick)
    whole = Reach.of([(0, 14)] * 5)
    yield Case("unequal page counts", "all with all", whole, 4, is_small=True)
    whole = Reach.of([(0, 1_000)] * 50)
    yield Case("unequal page counts", "all with all", whole, 20)


def _series(is_quick: bool) -> Iterator[Case]:
    pages, width = (100, 10) if is_quick else (1_000, 50)
    enough = 2 * width + 2  # all that a page meets fits: more frames change nothing
    for frames in (3, 4, 6, 8, 12, 16, 22, 32, 48, 64, 80, 96, 102, 144, 192):
        if frames < 2 * enough:
            yield _band(pages, width, frames, FRAMES_SERIES, is_quick=True)
    for pages, width, frames in (
        (100, 10, 3), (200, 20, 4), (500, 52, 10), (1_000, 105, 20), (2_000, 211, 40),
        (5_000, 528, 100), (10_000, 1_056, 200),
    ):  # fmt: skip
        yield _band(pages, width, frames, PAIRS_SERIES, is_quick=pages <= 200)
