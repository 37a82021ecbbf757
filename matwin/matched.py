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


Finish = Callable[[Matched], Result]


def unmatched_rows(
    order: Int64s, orders: tuple[int, int], first: int, limit: int, hits: Int64s
) -> Int64s:
    """The rows from `first` to `limit` that were judged and are not among `hits`."""
    part = order[first:limit]
    lonely = (part >= orders[0]) & (part <= orders[1])
    lonely[hits - first] = False
    return np.flatnonzero(lonely) + first
