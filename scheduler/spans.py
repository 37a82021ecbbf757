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
    for at in range(len(left.key_first)):
        meets = (
            (right.key_last >= left.key_first[at]) & (right.key_first <= left.key_last[at])
            & (right.time_last >= left.time_first[at]) & (right.time_first <= left.time_last[at])
        )  # fmt: skip
        changes = np.flatnonzero(np.diff(meets, prepend=False, append=False))
        owners.append(np.full(len(changes) // 2, at))
        edges.append(changes.reshape(-1, 2))
    return np.concatenate(owners), np.concatenate(edges)
