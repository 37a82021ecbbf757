"""The one shuffle of a join: all sides laid over each other, each row sent to its parts.

    left  ─ usable? ─ parts ─┐
                             ├─ union of slots ─ repartitionById ─ sort ─▶ mapInArrow(task)
    right ─ usable? ─ parts ─┘    (slots.py)      one part each     by the order attribute

A row's tag says whose it is and which part it was sent to: part x sides + side.

Rows with a null, NaN or infinity to join by can match nothing.  Where unmatched rows come out they
go to one part, by their hash; elsewhere they are not shuffled at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StructType, VariantType

from .cut import hash_of, is_finite, parts_of, quoted
from .frames import Frame, spark_type
from .layout import ANCHOR, Layout, Reach
from .slots import Slots
from .task import OWN, PART, SORT, TAG

VALUE, HASH, SALT, USABLE = "matwin value", "matwin hash", "matwin salt", "matwin usable"
PARTS, OWN_HERE = "matwin part", "matwin own"


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
    def usable(self) -> Column:
        """Whether a row can match at all."""
        tests = [is_finite(F.col(quoted(name)), kind) for name, kind in self.finite.items()]
        tests += [_is_key(F.col(quoted(name)), kind) for name, kind in self.keys.items()]
        return reduce(lambda a, b: a & b, tests, F.lit(True))


def _is_key(column: Column, kind: pa.DataType) -> Column:
    """Whether a key can be equal to another: not null, not NaN."""
    there = column.isNotNull()
    return there & ~F.isnan(column.cast("double")) if pa.types.is_floating(kind) else there


@dataclass(frozen=True)
class Exchange:
    """The sides of a join, and the types in which they are divided and sorted."""

    routes: Mapping[str, Route]
    strip_type: pa.DataType | None
    order_type: pa.DataType | None
    marks_own: bool = False
    """Whether each copy of a row is told if it is the one in its own part."""

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

    def shuffled(self, layout: Layout, reaches: Mapping[str, Reach]) -> DataFrame:
        """All rows, one partition for each part, sorted."""
        slots = self.slots
        sent = [
            self._sent(number, name, slots, layout, reaches[name])
            for number, name in enumerate(self.routes)
        ]
        union = reduce(DataFrame.union, sent).repartitionById(layout.parts, PART)
        if self.sort is not None:
            union = union.sortWithinPartitions(self.sort)
        return union.drop(PART)

    def _sent(
        self, number: int, name: str, slots: Slots, layout: Layout, reach: Reach
    ) -> DataFrame:
        route = self.routes[name]
        part = F.col(quoted(PARTS))
        columns = [(part * len(self.routes) + number).cast("int").alias(TAG)]
        for slot, kind in enumerate(slots.types):
            column = slots.column_of(name, slot)
            value = F.lit(None).cast(kind) if column is None else F.col(quoted(column))
            columns.append(value.alias(f"s{slot}"))
        if self.sort == SORT:
            assert self.order_type is not None and route.order is not None
            value = F.col(quoted(route.order)).cast(spark_type(self.order_type))
            columns.append(value.alias(SORT))
        if self.marks_own:
            columns.append(F.col(quoted(OWN_HERE)).alias(OWN))
        return self._routed(route, layout, reach).select(*columns, part.alias(PART))

    def _routed(self, route: Route, layout: Layout, reach: Reach) -> DataFrame:
        """The rows with the number of their part, once for each."""
        frame, kind = self._prepared(route, layout), self.strip_type or pa.int64()
        names = {"value": VALUE, "hashed": HASH, "salt": SALT}
        first, last = parts_of(layout, reach, kind, **names)
        alone = F.pmod(F.col(quoted(SALT)), F.lit(layout.parts).cast("long")).cast("int")
        if reach.is_anchor:
            part = _if_usable(first, alone) if route.keeps_rejected else first
            return frame.withColumn(PARTS, part)
        parts = F.sequence(first, last)
        if route.keeps_rejected:
            parts = _if_usable(parts, F.array(alone))
        copies = frame.withColumn(PARTS, F.explode(parts))
        if not self.marks_own:
            return copies
        home, _ = parts_of(layout, ANCHOR, kind, **names)
        own = F.col(quoted(PARTS)) == home
        return copies.withColumn(
            OWN_HERE, _if_usable(own, F.lit(True)) if route.keeps_rejected else own
        )

    def _prepared(self, route: Route, layout: Layout) -> DataFrame:
        """The rows to be sent, with the columns that decide where to."""
        frame = route.frame.frame
        extra = {VALUE: F.lit(None), HASH: F.lit(0).cast("long"), SALT: F.lit(0).cast("long")}
        if route.strip is not None and self.strip_type is not None:
            extra[VALUE] = F.col(quoted(route.strip)).cast(spark_type(self.strip_type))
        if layout.uses_keys:
            extra[HASH] = hash_of(route.keys)
        if layout.has_salts or route.keeps_rejected:
            extra[SALT] = F.xxhash64(*_hashable(frame.schema))
        if route.keeps_rejected:
            return frame.withColumns({**extra, USABLE: route.usable})
        return frame.filter(route.usable).withColumns(extra)


def _if_usable(usable: Column, otherwise: Column) -> Column:
    return F.when(F.col(quoted(USABLE)), usable).otherwise(otherwise)


def _hashable(schema: StructType) -> list[Column]:
    """The columns that Spark can hash."""
    found = [F.col(quoted(field.name)) for field in schema if can_hash(field.dataType)]
    return found or [F.lit(0)]


def can_hash(kind: DataType) -> bool:
    """Whether Spark has a hash for values of a type."""
    if isinstance(kind, MapType | VariantType):
        return False
    if isinstance(kind, StructType):
        return all(can_hash(field.dataType) for field in kind)
    element = getattr(kind, "elementType", None)
    return element is None or can_hash(element)
