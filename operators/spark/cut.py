"""A layout as Spark expressions: which parts a row belongs to.

    x >= b2 ?  ├─ x >= b3 ? 3 : 2          a tree of comparisons for each group, its leaves are the
               └─ x >= b1 ? 1 : 0          numbers of strips; no arithmetic on the rows' values

Thresholds are literals in the type of the comparison, moved by the tolerance here, where whole
numbers have no limits.  Nothing overflows, and no time zone comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from .frames import spark_type
from .layout import Group, Layout, Number, Reach, Thresholds

DAY = 86_400_000_000


def literal(value: Number, arrow: pa.DataType) -> Column:
    """A value of the comparison's type, given as its number."""
    tests = pa.types
    if tests.is_floating(arrow):
        return F.lit(float(value))
    if tests.is_integer(arrow):
        return F.lit(int(value)).cast("long")
    if tests.is_date(arrow):
        return F.date_from_unix_date(F.lit(max(-(2**31), min(int(value), 2**31 - 1))))
    if tests.is_timestamp(arrow) and arrow.tz is not None:
        return F.timestamp_micros(F.lit(int(value)).cast("long"))
    if tests.is_timestamp(arrow):
        return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + _interval(int(value))
    if tests.is_duration(arrow):
        return _interval(int(value))
    return F.expr("TIME '00:00:00'") + _interval(max(0, min(int(value) // 1000, DAY - 1)))


def _interval(micros: int) -> Column:
    """So many microseconds; days and the rest have the same sign, so that neither overflows."""
    sign = -1 if micros < 0 else 1
    days, rest = divmod(abs(micros), DAY)
    text = f"{'-' if micros < 0 else ''}{rest // 10**6}.{rest % 10**6:06}"
    seconds = F.lit(text).cast("decimal(18,6)")
    return F.make_dt_interval(F.lit(sign * days), F.lit(0), F.lit(0), seconds)


def _tree(
    value: Column, edges: Sequence[Column], below: int, leaf: Callable[[int], Column]
) -> Column:
    if not edges:
        return leaf(below)
    middle = len(edges) // 2
    return F.when(
        value >= edges[middle], _tree(value, edges[middle + 1 :], below + middle + 1, leaf)
    ).otherwise(_tree(value, edges[:middle], below, leaf))


def parts_of(
    layout: Layout, reach: Reach, value: Column, hashed: Column, salt: Column, arrow: pa.DataType
) -> tuple[Column, Column]:
    """The first and the last part of a row."""
    if layout.shared is not None:
        return _parts_of_group(layout.shared, reach, value, salt, arrow)
    first = last = F.pmod(hashed, F.lit(layout.cold).cast("long")).cast("int")
    for key, group in layout.hot:
        begin, end = _parts_of_group(group, reach, value, salt, arrow)
        is_hot = hashed == F.lit(key).cast("long")
        first, last = F.when(is_hot, begin).otherwise(first), F.when(is_hot, end).otherwise(last)
    return first, last


def _parts_of_group(
    group: Group, reach: Reach, value: Column, salt: Column, arrow: pa.DataType
) -> tuple[Column, Column]:
    begins, ends = group.thresholds(reach)
    starts = group.starts
    if reach.is_anchor:
        part = _leaves(value, begins, arrow, lambda strip: _salted(group, strip, salt))
        return part, part
    return (
        _leaves(value, begins, arrow, lambda strip: F.lit(starts[strip])),
        _leaves(value, ends, arrow, lambda strip: F.lit(starts[strip + 1] - 1)),
    )


def _leaves(
    value: Column, thresholds: Thresholds, arrow: pa.DataType, leaf: Callable[[int], Column]
) -> Column:
    edges = [literal(edge, arrow) for edge in thresholds.values]
    return _tree(value, edges, thresholds.always, leaf)


def _salted(group: Group, strip: int, salt: Column) -> Column:
    start, salts = group.starts[strip], group.salts[strip]
    if salts == 1:
        return F.lit(start)
    return (F.lit(start) + F.pmod(salt, F.lit(salts).cast("long"))).cast("int")


def is_finite(column: Column, arrow: pa.DataType) -> Column:
    """Whether the value is there, and is a number where it should be one."""
    there = column.isNotNull()
    if pa.types.is_floating(arrow):
        value = column.cast("double")
        limit = F.lit(float("inf"))
        there = there & ~F.isnan(value) & (value != limit) & (value != -limit)
    return there


def key_column(column: Column, arrow: pa.DataType) -> Column:
    """A key so that equal ones of different types have the same hash, -0.0 and 0.0 too."""
    if pa.types.is_floating(arrow):
        value = column.cast("double")
        return F.when(value == 0.0, F.lit(0.0)).otherwise(value)
    if pa.types.is_integer(arrow) or pa.types.is_temporal(arrow):
        return column.cast(spark_type(arrow))
    return column


def hash_of(keys: Mapping[str, pa.DataType]) -> Column:
    """One number for a row's keys."""
    if not keys:
        return F.lit(0).cast("long")
    return F.xxhash64(*(key_column(F.col(quoted(name)), kind) for name, kind in keys.items()))


def quoted(name: str) -> str:
    """A column's name as Spark takes it whatever it contains."""
    return "`" + name.replace("`", "``") + "`"
