"""The columns of several frames laid over each other, so that one shuffle carries all of them.

    left   t long   k int   x double   name string            slot   left   right
    right  t long   k int   y double   z double               0      t      t
                                                              1      k      k
    a row of the union: tag, slot 0, slot 1, …                2      x      y
    the tag says whose row it is                              3      name   -
                                                              4      -      z

Columns of the same type share a slot.  A union of all columns would have a null for every column of
the other sides; Spark writes those into every Arrow batch, which doubled the time of the exchange.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class Slots:
    """For each side, the slot of each of its columns."""

    types: tuple[DataType, ...]
    places: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, schemas: Mapping[str, StructType], first: Mapping[str, Sequence[str]]) -> Slots:
        """The columns named in `first` get their slots before the others, in this order."""
        types: list[DataType] = []
        places: dict[str, dict[str, int]] = {}
        for side, schema in schemas.items():
            named = {field.name: field.dataType for field in schema}
            rest = [name for name in named if name not in first[side]]
            free = list(range(len(types)))
            mine: dict[str, int] = {}
            for name in [*first[side], *rest]:
                slot = next((s for s in free if types[s] == named[name]), None)
                if slot is None:
                    slot = len(types)
                    types.append(named[name])
                else:
                    free.remove(slot)
                mine[name] = slot
            places[side] = {name: mine[name] for name in named}
        return cls(tuple(types), places)

    def column_of(self, side: str, slot: int) -> str | None:
        """The side's column in a slot."""
        return next((name for name, place in self.places[side].items() if place == slot), None)
