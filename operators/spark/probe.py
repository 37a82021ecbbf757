"""Can the executors run this package?  Asked once for each session, before its first join.

The question starts the executors' Python and has it import the operators, which the join would have
to do anyway.  An executor that can't is named here, with the remedy, and not by a failing job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession

from .errors import explained
from .ship import sent

_fit: WeakSet[SparkSession] = WeakSet()


@dataclass(frozen=True)
class Probe:
    """A task that has arrived, and says so."""

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One row."""
        for _ in batches:
            pass
        yield pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], names=["one"])


def check_executors(session: SparkSession, operator: str) -> None:
    """Raise `InputError` where an executor lacks the package."""
    if session in _fit:
        return
    with explained(operator):
        session.range(64).mapInArrow(sent(Probe()), "one int").collect()
    _fit.add(session)
