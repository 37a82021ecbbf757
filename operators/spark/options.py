"""The options of a join on Spark: those of the embedded joins, and how the work is divided.

What belongs to one process has no meaning here and is refused by name: a trace, a progress
function, a report, a delay of live results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.keys import float_of_key
from matwin.options import options_of
from matwin.scheduler.layout import Number
from matwin.storage.bounds import bound_key
from matwin.storage.columns import is_temporal
from matwin.storage.errors import InputError

from .task import MEMORY

SHIPS = ("auto", "full", "partial")
_REFUSED = {
    "trace": "a trace belongs to one process; trace the embedded join on a part of the data",
    "progress": "Spark shows the progress of its tasks itself",
    "report": "Spark's metrics have the counts, and matwin.spark.explain what is expected",
    "max_delay": "it is for live streams, and DataFrames are finite",
    "emit": "results of a batch are final",
    "ordered": "rows of a DataFrame have no order; sort the result with orderBy",
}


@dataclass(frozen=True)
class SparkOptions:
    """How a join on Spark runs; none of it changes the result."""

    strips: int | tuple[object, ...] | None
    ship: str
    embedded: dict[str, Any]
    """What every task gives to the embedded join."""
    budget_bytes: int
    """The memory of a task."""

    @classmethod
    def of(cls, operator: str, strips: object, ship: object, given: dict[str, Any]) -> SparkOptions:
        """The options of the arguments, checked before any job runs."""
        for name, why in _REFUSED.items():
            if given.get(name) not in (None, False):
                raise InputError(f"{operator}({name}=...): {why}")
        embedded = {name: value for name, value in given.items() if name not in _REFUSED}
        task = options_of(operator, {**embedded, "memory": embedded.get("memory") or MEMORY})
        if ship not in SHIPS:
            raise InputError(f"ship={ship!r}; choose one of {', '.join(SHIPS)}")
        return cls(_strips(strips), str(ship), embedded, task.budget_bytes)

    def bounds(self, arrow: pa.DataType | None, column: str) -> tuple[Number, ...] | None:
        """The bounds of the strips, where they were given."""
        if not isinstance(self.strips, tuple):
            return None
        if arrow is None:
            raise InputError(
                "strips: this join has no attribute with a tolerance on both sides to cut strips "
                "by; give their number, or leave them out"
            )
        for bound in self.strips:
            if not is_temporal(arrow) and not isinstance(bound, int | float | Decimal | np.number):
                raise InputError(
                    f"strips: {bound!r} is no bound for column {column!r}, which is {arrow}"
                )
        keys = [bound_key(bound, arrow, column) for bound in self.strips]
        if any(a >= b for a, b in pairwise(keys)):
            raise InputError(f"strips={list(self.strips)}: bounds must ascend")
        is_float = pa.types.is_floating(arrow)
        return tuple(float_of_key(key) if is_float else key for key in keys)


def _strips(given: object) -> int | tuple[object, ...] | None:
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= 100_000:
            raise InputError(f"strips={given}: give a number from 1 to 100000")
        return given
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return tuple(given)
    raise InputError(
        f"strips={given!r}: give their number, or a list of bounds, values of the order attribute"
    )
