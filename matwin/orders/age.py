"""`youngest`: the pair whose younger value is younger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s, float_key, stored_dtype
from matwin.storage.decimals import decimals, shown_type

from .base import Distances, Keys, Measure, Values

TOP_BIT = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Youngest(Measure):
    """The larger of the two values decides, and the larger it is, the better."""

    needs_numbers: ClassVar[bool] = True
    kernel: ClassVar[str | None] = "youngest"
    is_refined: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "youngest"

    def cost(self, left: Any, right: Any) -> Any:
        """Less, the younger the younger one is."""
        return -max(left, right)

    def keys(self) -> Keys:
        """Numbers that descend as the younger of both values grows."""
        return _keys

    def distance_type(self, data_type: pa.DataType) -> pa.DataType:
        """It shows the younger value as it is."""
        return shown_type(data_type.scale) if pa.types.is_decimal(data_type) else data_type

    def distances(self, field: pa.Field) -> Distances:
        """The younger values."""
        if pa.types.is_decimal(field.type):
            return lambda left, right: decimals(np.maximum(left, right), field.type.scale)
        dtype = stored_dtype(field.type)

        def younger(left: Values, right: Values) -> pa.Array:
            return pa.array(np.maximum(left, right).astype(dtype)).cast(field.type)

        return younger

    def cost_sql(self, left: str, right: str) -> str:
        """Less, the younger the younger one is."""
        return f"0 - greatest({left}, {right})"

    def distance_sql(self, cost: str, data_type: pa.DataType) -> str:
        """The younger value."""
        if pa.types.is_floating(data_type):
            return f"0 - {cost}"
        return f"(0 - {cost})::{'UBIGINT' if data_type == pa.uint64() else 'BIGINT'}"


youngest = Youngest()


def _keys(left: Values, right: Values) -> tuple[Int64s]:
    younger = np.maximum(left, right)
    if younger.dtype == np.float64:
        return (~float_key(younger),)
    return (~((younger ^ TOP_BIT).view(np.int64) if younger.dtype == np.uint64 else younger),)
