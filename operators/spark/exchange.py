"""The one shuffle of a join: all sides laid over each other, each row sent to its parts.

    left  ─ usable? ─ parts ─┐
                             ├─ union of slots ─ repartitionById ─ sort ─▶ mapInArrow(task)
    right ─ usable? ─ parts ─┘    (slots.py)      one part each     by the order attribute

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

VALUE, HASH, USABLE = "matwin value", "matwin hash", "matwin usable"


@dataclass(frozen=True)
class Route:
    """A side on its way: what divides it, what it is sorted by, and what it must have to match."""

    frame: Frame
    strip: str | None
    order: str | None
    keys: Mapping[str, pa.DataType]
    finite: Mapping[str, pa.DataType]
    present: tuple[str, ...] = ()
    keeps_rejected: bool = False

    @property
    def usable(self) -> Column:
        """Whether a row can match at all."""
        tests = [is_finite(F.col(quoted(name)), kind) for name, kind in self.finite.items()]
        tests += [_is_key(F.col(quoted(name)), kind) for name, kind in self.keys.items()]
        tests += [F.col(quoted(name)).isNotNull() for name in self.present]
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
        frame = self._routed(route, layout, reach)
        columns = [F.lit(number).cast("byte").alias(TAG)]
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
        return frame.select(*columns, F.col(quoted(PARTS)).alias(PART))

    def _routed(self, route: Route, layout: Layout, reach: Reach) -> DataFrame:
        """The rows with the number of their part, once for each."""
        value, kind = F.lit(None), self.strip_type or pa.int64()
        if route.strip is not None:
            value = F.col(quoted(route.strip)).cast(spark_type(kind))
        hashed = hash_of(route.keys) if layout.uses_keys else F.lit(0).cast("long")
        frame = route.frame.frame
        if not route.keeps_rejected:
            frame = frame.filter(route.usable)
        extra = {VALUE: value, HASH: hashed}
        if route.keeps_rejected:
            extra[USABLE] = route.usable
        frame = frame.withColumns(extra)
        salt = F.xxhash64(*_hashable(route.frame.frame.schema))
        first, last = parts_of(layout, reach, F.col(quoted(VALUE)), F.col(quoted(HASH)), salt, kind)
        alone = F.pmod(salt, F.lit(layout.parts).cast("long")).cast("int")
        if reach.is_anchor:
            part = first if not route.keeps_rejected else _if_usable(first, alone)
            return self._owned(frame.withColumn(PARTS, part), F.lit(True))
        parts = F.sequence(first, last)
        if route.keeps_rejected:
            parts = _if_usable(parts, F.array(alone))
        home = parts_of(layout, ANCHOR, F.col(quoted(VALUE)), F.col(quoted(HASH)), salt, kind)[0]
        own = F.col(quoted(PARTS)) == home
        if route.keeps_rejected:
            own = _if_usable(own, F.lit(True))
        return self._owned(frame.withColumn(PARTS, F.explode(parts)), own)

    def _owned(self, frame: DataFrame, own: Column) -> DataFrame:
        return frame.withColumn(OWN_HERE, own) if self.marks_own else frame


PARTS, OWN_HERE = "matwin part", "matwin own"


def _if_usable(usable: Column, otherwise: Column) -> Column:
    return F.when(F.col(quoted(USABLE)), usable).otherwise(otherwise)


def _hashable(schema: StructType) -> list[Column]:
    """The columns that Spark can hash."""
    found = [F.col(quoted(field.name)) for field in schema if _can_hash(field.dataType)]
    return found or [F.lit(0)]


def _can_hash(kind: DataType) -> bool:
    if isinstance(kind, MapType | VariantType):
        return False
    if isinstance(kind, StructType):
        return all(_can_hash(field.dataType) for field in kind)
    element = getattr(kind, "elementType", None)
    return element is None or _can_hash(element)
