"""What may be dropped: a row that no row to come can meet.

    stream j: every later row is at or after its frontier F_j

    a row of i with time t can still be part of a new tuple through a later row of j while
        F_j <= t + upper[i][j]
    so rows of i are needed from   min over j of  F_j - upper[i][j]

A row is dropped when it is too old for *every* other stream: being too old for one of them is not
enough, because a late row of a third may still complete a tuple with rows that are there already.
A stream that has ended needs nothing any more; one that has said nothing yet needs everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matwin.finality import DONE, SAFETY
from matwin.keys import float_of_key
from matwin.storage.columns import INT64_MAX, INT64_MIN, float_key

from .constraints import Matrix


def needed_from(frontiers: Sequence[int], upper: Matrix, *, is_float: bool) -> list[int]:
    """For each stream the first order key that is still needed; `DONE` where none is."""
    streams = range(len(frontiers))
    return [
        min(_shifted(frontiers[j], upper[i][j], is_float) for j in streams if j != i)
        for i in streams
    ]


def _shifted(frontier: int, by: float, is_float: bool) -> int:
    """The frontier less a window, never later than that."""
    if frontier in (DONE, INT64_MIN):
        return frontier
    if not is_float:
        return max(min(frontier - int(by), INT64_MAX), INT64_MIN)
    value = float_of_key(frontier)
    with np.errstate(over="ignore"):
        safe = np.float64(value - by - (SAFETY * abs(value) + SAFETY * abs(by)))
    return int(float_key(np.array([safe]))[0])
