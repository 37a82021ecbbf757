"""The order of a side's rows, where ties ask for the first or the last of them.

The rows of a DataFrame have no order, and Spark brings them in another one each time.  So an order
is made of their values, all ascending, nulls first:

    the column that is joined on ─▶ the columns of order_by= ─▶ all columns, as they stand

It is Spark's own order of values: false before true, texts by their bytes, NaN after all numbers,
arrays and structs element by element.  Beyond that a zero with a sign comes before one without.
Rows that are equal in all of it are equal, so whichever comes out, the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DoubleType,
    FloatType,
    NullType,
    SpatialType,
    StringType,
    StructType,
    VariantType,
)

from matwin.hints import did_you_mean
from matwin.storage.errors import InputError
from matwin.storage.names import listed

from .frames import Frame


def order_columns(
    frame: Frame, on: str, ties: object, order_by: object = None, *, may_name: bool = False
) -> tuple[str, ...]:
    """The columns of a side that its rows are ordered by, the most important first.

    `may_name`: whether the join has `order_by`.
    """
    named = _named(frame, order_by)
    remedy = "name columns that tell rows apart in order_by=" if may_name else "cast it to text"
    if not named:
        for name, field in frame.fields.items():
            if not can_order(field.dataType):
                raise InputError(
                    f"{frame.name}: column {name!r} is {field.dataType.simpleString()}, which has "
                    f"no order, so ties={ties!r} could be any of several rows; take ties='all', "
                    f"drop the column, or {remedy}"
                )
    rest = [name for name, field in frame.fields.items() if can_order(field.dataType)]
    return tuple(dict.fromkeys([on, *named, *rest]))


def _named(frame: Frame, order_by: object) -> list[str]:
    names = [order_by] if isinstance(order_by, str) else order_by
    if names is None:
        return []
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InputError(f"order_by={order_by!r}: give a column's name, or a list of names")
    for name in names:
        if name not in frame.fields:
            columns = list(frame.fields)
            raise InputError(
                f"order_by={order_by!r}: {frame.name} has no column {name!r}"
                f"{did_you_mean(name, columns)}; the columns are {listed(columns)}"
            )
        kind = frame.fields[name].dataType
        if not can_order(kind):
            raise InputError(
                f"order_by={order_by!r}: column {name!r} is {kind.simpleString()}, which has no "
                "order; name another"
            )
    return list(names)


def can_order(kind: DataType) -> bool:
    """Whether Spark has an order for values of a type."""
    if isinstance(kind, ArrayType):
        return can_order(kind.elementType)
    if isinstance(kind, StructType):
        return all(can_order(field.dataType) for field in kind)
    return isinstance(kind, AtomicType | NullType) and not isinstance(
        kind, VariantType | SpatialType
    )


def sort_keys(columns: Sequence[tuple[str, DataType]]) -> Iterator[str]:
    """What to sort columns by, given their names in Spark's SQL and their types."""
    for name, kind in columns:
        is_plain = getattr(kind, "collation", "UTF8_BINARY") in (None, "UTF8_BINARY")
        yield (
            name if is_plain or not isinstance(kind, StringType) else f"{name} COLLATE UTF8_BINARY"
        )
    for name, kind in columns:
        if isinstance(kind, DoubleType | FloatType):
            yield f"CAST({name} AS STRING)"  # -0.0 equals 0.0, but it is another row
