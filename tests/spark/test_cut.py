"""Spark finds the same parts of a row as the layout does, for every type of attribute.

All types and layouts are asked in one job; each is then held against NumPy.  Times are around the
hours that the session's zone has twice or not at all.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sparks import ZONE, cluster, frame, needs_spark

pytest.importorskip("pyspark", reason="matwin.spark can't be imported without pyspark")


from matwin.scheduler.layout import ANCHOR, INT64, Group, Halo, Layout

pytestmark = [needs_spark, pytest.mark.spark]
INT_MIN, INT_MAX = INT64

HOUR = 3_600 * 10**6
SPRING = 1_710_054_000 * 10**6  # 2024-03-10 07:00 UTC: New York goes from 2:00 to 3:00
AUTUMN = 1_730_613_600 * 10**6  # 2024-11-03 06:00 UTC: New York has 1:00 to 2:00 twice
INSTANTS = [base + n * HOUR // 4 for base in (SPRING, AUTUMN) for n in range(-9, 9)]
LONGS = [INT_MIN, INT_MIN + 1, INT_MIN + 9, -7, -1, 0, 1, 7, INT_MAX - 9, INT_MAX - 1, INT_MAX]
DAY = 24 * HOUR
FIRST_DAYS = [INT_MIN + n * DAY // 4 for n in range(12)]
LAST_DAYS = [INT_MAX - n * DAY // 4 for n in range(12)]
FLOATS = [
    -1.7976931348623157e308, -1e16, -1.5, -0.1, -5e-324, -0.0, 0.0, 5e-324, 0.1, 0.2, 0.3,
    0.1 + 0.2, 0.7, 1.0, 1.5, 2.0**53, 1e16, 1.7976931348623157e308,
]  # fmt: skip

VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    # the type, values, and limits that thresholds are moved by
    "byte": (pa.int8(), [-128, -1, 0, 1, 127], [0, 1, 200, 2**40]),
    "int": (pa.int32(), [-(2**31), -5, 0, 5, 2**31 - 1], [0, 1, 2**33]),
    "long": (pa.int64(), LONGS, [0, 1, 9, 2**62, 2**64]),
    "float": (pa.float32(), [float(np.float32(x)) for x in FLOATS[1:-1]], [0.0, 0.1, 1e16]),
    "double": (pa.float64(), FLOATS, [0.0, 0.1, 0.3, 1e300, 1.7976931348623157e308]),
    "timestamp": (pa.timestamp("us", "UTC"), INSTANTS, [0, 1, HOUR, 30 * DAY, 2**64]),
    "timestamp_ntz": (pa.timestamp("us"), INSTANTS, [0, 1, HOUR, 30 * DAY, 2**64]),
    "late timestamp": (pa.timestamp("us", "UTC"), FIRST_DAYS + LAST_DAYS, [0, 1, 3 * HOUR]),
    "late timestamp_ntz": (pa.timestamp("us"), FIRST_DAYS + LAST_DAYS, [0, 1, 3 * HOUR]),
    "date": (pa.date32(), [-719_162, -1, 0, 1, 19_000, 2_932_896], [0, 1, 400, 2**40]),
    "interval": (pa.duration("us"), [-DAY, -1, 0, 1, HOUR, DAY], [0, 1, HOUR, 2**64]),
    "long interval": (pa.duration("us"), FIRST_DAYS + LAST_DAYS, [0, 1, 3 * HOUR]),
}
ROWS = max(len(values) for _, values, _ in VALUES.values())


def numbers_of(name: str) -> Any:
    """A column's values as numbers, repeated until all columns are equally long."""
    kind, values, _ = VALUES[name]
    dtype = np.float64 if pa.types.is_floating(kind) else np.int64
    return np.resize(np.array(values, dtype), ROWS)


def table() -> pa.Table:
    columns: dict[str, Any] = {
        "hash": pa.array(np.arange(ROWS) % 4 - 1),
        "salt": pa.array(np.arange(ROWS) * 7 - 50),
    }
    for name, (kind, _, _) in VALUES.items():
        numbers = numbers_of(name)
        if pa.types.is_temporal(kind):
            width = pa.int32() if kind.bit_width == 32 else pa.int64()
            columns[name] = pa.array(numbers).cast(width).view(kind)
        else:
            columns[name] = pa.array(numbers).cast(kind)
    return pa.table(columns)


def cases(name: str) -> list[tuple[Layout, Halo]]:
    """Layouts whose bounds are values of the column, their thresholds moved by every limit."""
    _, values, limits = VALUES[name]
    ascending = sorted(set(values))
    bounds = tuple(ascending[1 :: max(2, len(ascending) // 6)])
    plain = Layout.of_strips(bounds)
    halos = [ANCHOR, *(Halo(-limit, limit) for limit in limits)]
    found = [(plain, halo) for halo in halos]
    seen = Layout(shared=plain.shared.having_seen(np.array(ascending[2::3])))
    found += [(seen, Halo(*ends)) for ends in ((-inf, 0), (0, inf), (-inf, inf))]
    if name in ("long", "double"):
        salted = Layout.of_strips(bounds[:2], (1, 3, 2))
        keyed = Layout.of_keys(3, [(1, Group(0, bounds[1:3], (2, 1, 3))), (-1, Group(0))])
        one_way = [Halo(0, limits[1]), Halo(-limits[2], -limits[1]), ANCHOR]
        found += [(layout, halo) for layout in (plain, salted, keyed) for halo in one_way]
    return found


@cache
def found() -> pa.Table:
    """First and last part of each row, for all columns and cases."""
    from pyspark.sql import functions as F

    from matwin.spark.cut import parts_of
    from matwin.spark.frames import arrow_schema, spark_type

    rows = frame(cluster(), table()).coalesce(1)
    types = arrow_schema(rows.schema, "rows")
    columns = []
    for name in VALUES:
        kind = pa.float64() if name == "float" else types.field(name).type
        rows = rows.withColumn(f"{name} value", F.col(f"`{name}`").cast(spark_type(kind)))
        for number, (layout, halo) in enumerate(cases(name)):
            ends = parts_of(layout, halo, kind, value=f"{name} value", hashed="hash", salt="salt")
            for end, part in zip(("first", "last"), ends, strict=True):
                columns.append(F.expr(part).alias(f"{name} {number} {end}"))
    return rows.select("hash", "salt", *columns).toArrow()


@pytest.mark.parametrize("name", VALUES)
def test_parts_are_those_of_the_layout(name: str) -> None:
    assert cluster().conf.get("spark.sql.session.timeZone") == ZONE
    spark_found = found()
    hashes, salts = (spark_found[column].to_numpy() for column in ("hash", "salt"))
    values = numbers_of(name)
    for number, (layout, halo) in enumerate(cases(name)):
        first, last = layout.parts_of(values, hashes, salts, halo)
        for end, expected in (("first", first), ("last", last)):
            got = spark_found[f"{name} {number} {end}"].to_numpy()
            wrong = np.flatnonzero(got != expected)
            assert not len(wrong), (
                f"{end} part of {values[wrong[0]]} with {halo} in {layout}: "
                f"{got[wrong[0]]}, not {expected[wrong[0]]}"
            )
