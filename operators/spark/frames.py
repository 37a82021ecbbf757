"""DataFrames as sources: what may be joined, and their columns in the types of Arrow and of Spark.

    DataFrame ──schema──▶ Arrow schema ──▶ the embedded question, with all of its checks
    question  ──▶ output columns ──▶ Spark fields: those of the inputs, by their origin

Nothing here runs a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from matwin.attributes import Attribute
from matwin.question import Question
from matwin.reading import Source
from matwin.storage.errors import InputError

ZONE = "UTC"
"""Instants are carried in UTC; what a session shows them in is no part of them."""


@dataclass(frozen=True)
class Frame(Source):
    """A DataFrame where the embedded joins expect a source.  It has columns and no batches."""

    frame: DataFrame

    @classmethod
    def of(cls, given: object, name: str) -> Frame:
        """The source that a DataFrame is; `name` is what errors call it."""
        if not isinstance(given, DataFrame):
            raise InputError(
                f"{name}: a {type(given).__name__} is no Spark DataFrame; matwin.spark joins those "
                "alone, and the joins of matwin itself everything else"
            )
        if given.isStreaming:
            raise InputError(
                f"{name}: it is a streaming DataFrame, and this join is for batches; read the "
                "source with spark.read, or call the join in foreachBatch"
            )
        check_names(given.columns, given.sparkSession, name)
        return cls(name, arrow_schema(given.schema, name), True, None, None, given)

    @property
    def fields(self) -> dict[str, StructField]:
        """The columns in Spark's types."""
        return {field.name: field for field in self.frame.schema}

    def batches(self, columns: Any = None) -> Any:
        raise AssertionError("a DataFrame is read by Spark")


def check_names(columns: Sequence[str], session: SparkSession, name: str) -> None:
    """Refuse names that Spark reads otherwise or can't tell apart; it looks at their case only
    where it is told to."""
    is_exact = session.conf.get("spark.sql.caseSensitive", "false") == "true"
    seen: dict[str, str] = {}
    for column in columns:
        if "${" in column:
            raise InputError(
                f"{name}: Spark's SQL would take a part of the column name {column!r} for a "
                "variable; rename it with withColumnRenamed"
            )
        folded = column if is_exact else column.lower()
        if folded in seen:
            raise InputError(
                f"{name}: Spark can't tell the columns {seen[folded]!r} and {column!r} apart; "
                "rename one of them"
            )
        seen[folded] = column


def arrow_schema(schema: StructType, name: str) -> pa.Schema:
    """The columns as Arrow has them; an error names the one it has no type for."""
    fields = []
    for field in schema:
        try:
            arrow = to_arrow_type(field.dataType, timezone=ZONE)
        except (PySparkException, ValueError) as e:
            raise InputError(
                f"{name}: column {field.name!r} is {field.dataType.simpleString()}, which Arrow "
                "can't carry; cast it, or drop it before the join"
            ) from e
        fields.append(pa.field(field.name, arrow, field.nullable))
    return pa.schema(fields)


def session_of(frames: Mapping[str, Frame]) -> SparkSession:
    """The session that runs a join: the first frame's.  Frames of other sessions of the same
    application are welcome, as in `foreachBatch`."""
    return next(iter(frames.values())).frame.sparkSession


def spark_type(arrow: pa.DataType) -> DataType:
    """The Spark type in which columns of a common Arrow type are compared."""
    tests = pa.types
    if tests.is_integer(arrow):
        return LongType()
    if tests.is_floating(arrow):
        return DoubleType()
    if tests.is_timestamp(arrow):
        return TimestampType() if arrow.tz is not None else TimestampNTZType()
    if tests.is_date(arrow):
        return DateType()
    if tests.is_duration(arrow):
        return DayTimeIntervalType()
    if tests.is_time(arrow):
        return TimeType()
    if tests.is_decimal(arrow):
        return DecimalType(38, arrow.scale)
    raise InputError(f"columns of {arrow} can't divide the work")


def output_type(question: Question, frames: Mapping[str, Frame]) -> StructType:
    """The columns that come out of a join of two sides, in Spark's types."""
    names = dict(zip(("left", "right"), question.output_names(), strict=True))
    found: list[StructField] = []
    nullable = {field.name: field.nullable for field in question.schema}
    shared = {key.left: key for key in question.keys if key.left == key.right}
    for side in ("left", "right"):
        for name, field in frames[side].fields.items():
            if name not in names[side]:
                continue
            out = names[side][name]
            kind = field.dataType
            if side == "left" and name in shared and question.may_lack[0]:
                kind = _either(field.dataType, frames["right"].fields[name].dataType, shared[name])
            found.append(StructField(out, kind, nullable[out], field.metadata))
    if question.distances:
        for name, attribute in zip(question.distance_names(), question.measured, strict=True):
            found.append(StructField(name, distance_spark(attribute), True))
    return StructType(found)


def _either(left: DataType, right: DataType, key: Any) -> DataType:
    """What a key column is that may hold a value of either side."""
    return left if left == right else spark_type(key.type)


def distance_spark(attribute: Attribute) -> DataType:
    """The type of a distance: a long wherever every distance within the tolerance is one."""
    arrow = attribute.distance_type
    if arrow == pa.uint64():
        widest = 2**64 if attribute.lo is None else max(abs(attribute.lo), abs(attribute.hi or 0))
        return LongType() if widest < 2**63 else DecimalType(20, 0)
    assert arrow is not None
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    return spark_type(arrow)
