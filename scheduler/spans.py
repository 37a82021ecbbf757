"""Reach from spans: which pages overlap in a key and a time, told from their first and last.

      key ▲                     a page of rows in order of key and time spans keys and times;
        9 │    ┌──────┐         what a left page reaches is a span as well: its times, widened by
          │ ┌──┼───┐  │         the window
        5 │ │  └───┼──┘
          │ └──────┘
          └──────────────▶ time

Windows of N streams have another width for each pair of them, so that no one grid tells what meets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .reach import Int64s

PAIRS_AT_A_TIME = 1 << 18


class Spans(NamedTuple):
    """Keys and times of pages, from the first to the last."""

    key_first: Int64s
    key_last: Int64s
    time_first: Int64s
    time_last: Int64s


def overlapping(left: Spans, right: Spans) -> tuple[Int64s, Int64s]:
    """The intervals of right pages that each left page overlaps: its number, and rows of first and
    limit.

    >>> def spans(*rows): return Spans(*np.array(rows).T)
    >>> owners, edges = overlapping(spans((0, 4, 0, 9)), spans((0, 2, 5, 7), (3, 6, 9, 12)))
    >>> owners.tolist(), edges.tolist()
    ([0], [[0, 2]])
    """
    owners, edges = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    at_a_time = max(1, PAIRS_AT_A_TIME // max(len(right.key_first), 1))
    for start in range(0, len(left.key_first), at_a_time):
        some = Spans(*(column[start : start + at_a_time, None] for column in left))
        meets = (
            (right.key_last >= some.key_first) & (right.key_first <= some.key_last)
            & (right.time_last >= some.time_first) & (right.time_first <= some.time_last)
        )  # fmt: skip
        own, changes = np.nonzero(np.diff(meets, prepend=False, append=False, axis=1))
        owners.append(start + own[::2])
        edges.append(changes.reshape(-1, 2))
    return np.concatenate(owners), np.concatenate(edges)
