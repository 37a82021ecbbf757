"""`min_distance`: the pair whose values are closer to each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.columns import Int64s
from matwin.storage.decimals import decimals, shown_type
from matwin.storage.errors import InputError

from .base import Distances, Keys, Measure, Values


@dataclass(frozen=True, slots=True)
class MinDistance(Measure):
    """The smaller distance is better."""

    needs_numbers: ClassVar[bool] = True
    kernel: ClassVar[str | None] = "distance"
    is_refined: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "min_distance"

    def cost(self, left: Any, right: Any) -> Any:
        """The distance."""
        return abs(right - left)

    def keys(self) -> Keys:
        """Distances by their bits, as the kernel makes them."""
        return _keys

    def distance_type(self, data_type: pa.DataType) -> pa.DataType:
        """No distance of two values is beyond it, but for times."""
        if pa.types.is_floating(data_type):
            return pa.float64()
        if pa.types.is_integer(data_type):
            return pa.uint64()
        if pa.types.is_decimal(data_type):
            return shown_type(data_type.scale)
        unit = getattr(data_type, "unit", "ms")
        return pa.duration("s" if pa.types.is_date32(data_type) else unit)

    def distances(self, field: pa.Field) -> Distances:
        """Numbers, or durations of times."""
        return partial(_distances, field, self.distance_type(field.type))

    def cost_sql(self, left: str, right: str) -> str:
        """The distance."""
        return f"abs({right} - {left})"

    def distance_sql(self, cost: str, data_type: pa.DataType) -> str:
        """The distance in the unit of its type."""
        if pa.types.is_floating(data_type):
            return cost
        days = " * 86400" if pa.types.is_date32(data_type) else ""
        is_count = pa.types.is_integer(data_type) or pa.types.is_decimal(data_type)
        return f"({cost}{days})::{'UBIGINT' if is_count else 'BIGINT'}"


min_distance = MinDistance()


def _keys(left: Values, right: Values) -> tuple[Int64s]:
    if left.dtype == np.float64:
        return (_floats_apart(left, right).view(np.int64),)
    return (_apart(left, right).view(np.int64) ^ np.int64(-(2**63)),)


def _distances(field: pa.Field, wanted: pa.DataType, left: Values, right: Values) -> pa.Array:
    if left.dtype == np.float64:
        return arrow(_floats_apart(left, right))
    apart = _apart(left, right)
    if pa.types.is_integer(wanted):
        return arrow(apart)
    if pa.types.is_decimal(wanted):
        return decimals(apart, wanted.scale)
    if len(apart) and int(apart.max()) > 2**63 - 1:
        raise InputError(
            f"a distance in {field.name!r} does not fit {wanted}; leave out distances=True, or "
            "cast the column to a coarser unit"
        )
    if pa.types.is_date32(field.type):
        apart = apart * np.uint64(86400)
    return arrow(apart.view(np.int64)).cast(wanted)


def _floats_apart(left: Values, right: Values) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore"):  # farther apart than floats go: infinitely
        apart: npt.NDArray[np.float64] = np.abs(right - left)
    return apart


def _apart(left: Values, right: Values) -> npt.NDArray[np.uint64]:
    """Distances of 64-bit integers, all of which are unsigned ones."""
    larger, smaller = np.where(left > right, left, right), np.where(left > right, right, left)
    apart: npt.NDArray[np.uint64] = larger.view(np.uint64) - smaller.view(np.uint64)
    return apart
