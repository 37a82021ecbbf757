"""What judging hands over: pairs of row numbers, the rows they name, and who found nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s

from .candidates import Candidates

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Matched:
    """Candidates by their places in `probe_rows` and `base_rows`; `unmatched` are the judged probe
    rows without any."""

    probe_rows: pa.RecordBatch
    base_rows: pa.RecordBatch
    candidates: Candidates
    unmatched: Int64s
    stretch: Stretch | None = None
    """What there is in place of both in an as-of join."""

    def places(self, rows: Int64s) -> Int64s | slice:
        """Ascending probe rows, as a slice where output may share their memory."""
        if self.stretch is None or not self.stretch.is_shared or len(rows) == 0:
            return rows
        if self.stretch.rows is not None:
            return rows
        first, last = int(rows[0]), int(rows[-1])
        return slice(first, last + 1) if last - first == len(rows) - 1 else rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """Probe rows from `first` on, which stay where they lie, with the base row of each or a
    negative number."""

    first: int
    mates: Int64s
    is_shared: bool
    """Whether output may share their memory: nothing is read after them that would need it."""
    rows: Int64s | None = None
    """The probe row of each mate, ascending; None: they are one after the other."""


Finish = Callable[[Matched], Result]


def unmatched_rows(
    order: Int64s, orders: tuple[int, int], first: int, limit: int, hits: Int64s
) -> Int64s:
    """The rows from `first` to `limit` that were judged and are not among `hits`."""
    part = order[first:limit]
    lonely = (part >= orders[0]) & (part <= orders[1])
    lonely[hits - first] = False
    return np.flatnonzero(lonely) + first
