"""Straighten: a layout with its pages in another order, so that it is more of a staircase.

Runs that cover the same stretch, or intervals in no order, make a matrix whose pairs are spread
out. Crabstep holds pages that stand beside each other and streams all that meet one of them; the
more partners those have in common, the fewer it streams.

        before              after
      ■ · ■ · ·           ■ ■ · · ·        each side in turn is put in the order of its partners'
      · ■ · ■ ■           ■ ■ ■ · ·        mean place, three times
      ■ · ■ ■ ·           · ■ ■ ■ ■

Only the planner sees the new order: its moves are translated back.
"""

from __future__ import annotations

import numpy as np

from .reach import Int32s, Int64s, Reach

ROUNDS = 3
PAIRS_MAX = 1_000_000
"""The pairs are listed one by one."""


def is_staircase(reach: Reach) -> bool:
    """Whether every page has one interval at most, and they only ascend.

    >>> is_staircase(Reach.of([(0, 2), (1, 2), (1, 4)])), is_staircase(Reach.of([(1, 2), (0, 2)]))
    (True, False)
    """
    is_single = bool((np.diff(reach.starts) <= 1).all())
    ascends = (np.diff(reach.first) >= 0).all() and (np.diff(reach.limit) >= 0).all()
    return is_single and bool(ascends)


def straightened(reach: Reach) -> tuple[Reach, Int32s]:
    """The layout in another order, and for each of its nodes the node it was."""
    lengths = (reach.limit - reach.first).astype(np.int64)
    lefts = np.repeat(reach.owners, lengths)
    ends = np.cumsum(lengths)
    rights = np.arange(len(lefts)) - np.repeat(ends - lengths - reach.first, lengths)
    right_place = np.arange(reach.right_pages)
    for _ in range(ROUNDS):
        left_place = _by_mean(lefts, right_place[rights], reach.left_pages)
        right_place = _by_mean(rights, left_place[lefts], reach.right_pages)
    places = right_place[rights]
    moved = Reach.from_intervals(
        left_place[lefts], np.stack((places, places + 1), 1), reach.left_pages, reach.right_pages
    )
    was = np.concatenate((np.argsort(left_place), np.argsort(right_place) + reach.left_pages))
    return moved, was.astype(np.int32)


def _by_mean(pages: Int64s, partners: Int64s, count: int) -> Int64s:
    """The place of each page when they are ordered by the mean of their partners' places."""
    sums = np.bincount(pages, partners, count)
    means = sums / np.maximum(np.bincount(pages, minlength=count), 1)
    place = np.empty(count, np.int64)
    place[np.argsort(means, kind="stable")] = np.arange(count)
    return place
