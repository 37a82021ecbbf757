"""The one shuffle of a join: all sides laid over each other, each row sent to its parts.

    left  ─ usable? ─ parts ─┐
                             ├─ union of slots ─ repartitionById ─ sort ─▶ mapInArrow(task)
    right ─ usable? ─ parts ─┘    (slots.py)      one part each     by the order attribute, and
                                                                    by more for ties (order.py)

A row's tag says whose it is and which part it was sent to: part x sides + side.

Rows with a null, NaN or infinity to join by can match nothing.  Where unmatched rows come out they
go to one part, by their hash; elsewhere they are not shuffled at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StructType, VariantType

from matwin.scheduler.layout import ANCHOR, Halo, Layout

from .cut import cast, hash_of, is_finite, parts_of, quoted
from .frames import Frame, spark_type
from .order import sort_keys
from .slots import Slots
from .task import OWN, PART, SORT, TAG

VALUE, HASH, SALT, USABLE = "matwin value", "matwin hash", "matwin salt", "matwin usable"
_PART = "`matwin part`"


@dataclass(frozen=True)
class Route:
    """A side on its way: what divides it, what it is sorted by, and what it must have to match."""

    frame: Frame
    strip: str | None
    order: str | None
    keys: Mapping[str, pa.DataType]
    finite: Mapping[str, pa.DataType]
    keeps_rejected: bool = False

    @property
    def usable(self) -> str:
        """Whether a row can match at all."""
        tests = [is_finite(*column) for column in (*self.finite.items(), *self.keys.items())]
        return " AND ".join(tests) or "TRUE"


@dataclass(frozen=True)
class Order:
    """By which of its columns the rows of a side are ordered, where ties ask for that."""

    side: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Exchange:
    """The sides of a join, and the types in which they are divided and sorted."""

    routes: Mapping[str, Route]
    strip_type: pa.DataType | None
    order_type: pa.DataType | None
    marks_own: bool = False
    """Whether each copy of a row is told if it is the one in its own part."""
    order: Order | None = None
    """What the rows of a side are sorted by beyond the order attribute."""

    @property
    def slots(self) -> Slots:
        """The columns of all sides, laid over each other."""
        schemas = {name: route.frame.frame.schema for name, route in self.routes.items()}
        first = {
            name: [route.order] if route.order is not None else []
            for name, route in self.routes.items()
        }
        return Slots.of(schemas, first)

    @property
    def sort(self) -> str | None:
        """The column that parts are sorted by: the slot of all order attributes, or one more."""
        if self.order_type is None:
            return None
        wanted = spark_type(self.order_type)
        types = [r.frame.fields[r.order or ""].dataType for r in self.routes.values()]
        return "s0" if all(kind == wanted for kind in types) else SORT

    def columns(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """For each side, its columns and what they are called in the exchange."""
        places = self.slots.places
        return tuple(
            tuple((name, f"s{slot}") for name, slot in places[side].items()) for side in self.routes
        )

    def shuffled(self, layout: Layout, halos: Mapping[str, Halo]) -> DataFrame:
        """All rows, one partition for each part, sorted."""
        slots = self.slots
        sent = [
            self._sent(number, name, slots, layout, halos[name])
            for number, name in enumerate(self.routes)
        ]
        union = reduce(DataFrame.union, sent).repartitionById(layout.parts, PART)
        keys = self._sort_keys(slots)
        if keys:
            union = union.sortWithinPartitions(*(F.expr(key) for key in keys))
        return union.drop(PART)

    def _sort_keys(self, slots: Slots) -> list[str]:
        """What parts are sorted by, as SQL."""
        keys = [] if self.sort is None else [self.sort]
        if self.order is not None:
            places = slots.places[self.order.side]
            at = [places[column] for column in self.order.columns]
            keys += sort_keys([(f"s{slot}", slots.types[slot]) for slot in at])
        return list(dict.fromkeys(keys))

    def _sent(self, number: int, name: str, slots: Slots, layout: Layout, halo: Halo) -> DataFrame:
        route = self.routes[name]
        columns = [F.expr(f"CAST({_PART} * {len(self.routes)} + {number} AS INT) AS {TAG}")]
        for slot, kind in enumerate(slots.types):
            column = slots.column_of(name, slot)
            value = F.lit(None).cast(kind) if column is None else F.col(quoted(column))
            columns.append(value.alias(f"s{slot}"))
        if self.sort == SORT:
            assert self.order_type is not None and route.order is not None
            columns.append(F.expr(f"{cast(route.order, self.order_type)} AS {SORT}"))
        if self.marks_own:
            columns.append(F.expr(f"{self._own(route, layout)} AS {OWN}"))
        columns.append(F.expr(f"{_PART} AS {PART}"))
        return self._routed(route, layout, halo).select(*columns)

    def _routed(self, route: Route, layout: Layout, halo: Halo) -> DataFrame:
        """The rows with the number of their part, once for each."""
        first, last = self._parts(layout, halo)
        parts = first if halo.is_anchor else f"sequence({first}, {last})"
        if route.keeps_rejected:
            alone = f"CAST(pmod({quoted(SALT)}, {layout.parts}L) AS INT)"
            parts = _if_usable(parts, alone if halo.is_anchor else f"array({alone})")
        if not halo.is_anchor:
            parts = f"explode({parts})"
        return self._prepared(route, layout).selectExpr("*", f"{parts} AS {_PART}")

    def _own(self, route: Route, layout: Layout) -> str:
        """Whether a copy is the one in the row's own part."""
        home, _ = self._parts(layout, ANCHOR)
        own = f"{_PART} = {home}"
        return _if_usable(own, "TRUE") if route.keeps_rejected else own

    def _parts(self, layout: Layout, halo: Halo) -> tuple[str, str]:
        kind = self.strip_type or pa.int64()
        return parts_of(layout, halo, kind, value=VALUE, hashed=HASH, salt=SALT)

    def _prepared(self, route: Route, layout: Layout) -> DataFrame:
        """The rows to be sent, with the columns that decide where to."""
        frame = route.frame.frame
        extra = {VALUE: "NULL", HASH: "0L", SALT: "0L"}
        if route.strip is not None and self.strip_type is not None:
            extra[VALUE] = cast(route.strip, self.strip_type)
        if layout.uses_keys:
            extra[HASH] = hash_of(route.keys)
        if layout.has_salts or route.keeps_rejected:
            extra[SALT] = f"xxhash64({', '.join(_hashable(frame.schema))})"
        if route.keeps_rejected:
            extra[USABLE] = route.usable
        else:
            frame = frame.filter(route.usable)
        return frame.selectExpr(
            "*", *(f"{value} AS {quoted(name)}" for name, value in extra.items())
        )


def _if_usable(usable: str, otherwise: str) -> str:
    return f"CASE WHEN {quoted(USABLE)} THEN {usable} ELSE {otherwise} END"


def _hashable(schema: StructType) -> list[str]:
    """The columns that Spark can hash."""
    return [quoted(field.name) for field in schema if can_hash(field.dataType)] or ["0"]


def can_hash(kind: DataType) -> bool:
    """Whether Spark has a hash for values of a type."""
    if isinstance(kind, MapType | VariantType):
        return False
    if isinstance(kind, StructType):
        return all(can_hash(field.dataType) for field in kind)
    element = getattr(kind, "elementType", None)
    return element is None or can_hash(element)
