"""`matwin.spark.sql`: the same forms over Spark's tables and views, the rest by Spark SQL.

    spark.table(name), DataFrames by keyword ──▶ the same planner ──▶ matwin.spark's joins
                                                                 └──▶ spark.sql over temporary views

No row is read here but what the joins' look at the data takes.  Left out: files in quotes,
streams that are cut into chunks, and what Spark SQL has no words for: as-of joins of other forms
than ours, DuckDB's own functions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from matwin.sources import Source
from matwin.storage.errors import InputError

from .arguments import (
    asof_arguments,
    best_arguments,
    near_arguments,
    window_arguments,
    window_columns,
)
from .catalog import Catalog
from .dialect import parsed
from .errors import SqlError
from .nodes import Asof, Best, Derived, Near, Part, Plan, Scan, Windowed
from .planner import Planner
from .target import PREFIX, Target


def spark_quoted(name: str) -> str:
    """A name as Spark SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass
class SparkCatalog(Catalog):
    """Spark's tables and views, and DataFrames by name."""

    session: Any = None
    make: Callable[[Any, str], Source] = field(default=lambda frame, name: frame)

    def _source(self, name: str, *, is_quoted: bool) -> Source | None:
        for value, _ in self._values(name):
            if hasattr(value, "sparkSession"):
                return self.make(value, name)
        try:
            return self.make(self.session.table(name), name)
        except InputError:
            raise
        except Exception:  # it is not there; Spark has many ways of saying so
            return None

    def names(self) -> list[str]:
        """All names of tables that can be listed."""
        return [*self.given, *(one.name for one in self.session.catalog.listTables())]


def run_on_spark(
    spark: Any, text: str, options: Mapping[str, Any] | None, frames: Mapping[str, object]
) -> Any:
    """The DataFrame of a query."""
    from matwin.spark.frames import Frame

    catalog = SparkCatalog(frames, session=spark, make=Frame.of)
    run = _Run(spark, dict(options or {}))
    target = Target(
        run.describe,
        spark_quoted,
        "abs",
        run.prefix,
        names_result=False,
        has_asof=False,
        has_cuts=False,
    )
    planner = Planner(parsed(text, catalog.columns), catalog, text, target)
    run.planner = planner
    try:
        plan = planner.plan()
        return run.result(plan)
    finally:
        run.forget()


class _Run:
    """The frames of one query."""

    def __init__(self, spark: Any, options: dict[str, Any]) -> None:
        self.spark, self.options = spark, options
        self.prefix = f"{PREFIX}{uuid.uuid4().hex[:8]}_"
        self.planner: Planner
        self._views: dict[str, Any] = {}

    def describe(self, text: str, tables: Mapping[str, pa.Schema]) -> pa.Schema:
        """The columns of a text, as Spark has them."""
        from matwin.spark.frames import arrow_schema

        for name in tables:
            self._view(name, self.planner.parts[name])
        return arrow_schema(self.spark.sql(text).schema, "the query")

    def result(self, plan: Plan) -> Any:
        """The DataFrame of a plan."""
        for name, part in plan.parts.items():
            if name in plan.sql:
                self._view(name, part)
        return self._sql(plan.sql)

    def _sql(self, text: str) -> Any:
        try:
            return self.spark.sql(text)
        except Exception as error:
            if type(error).__name__ not in ("AnalysisException", "ParseException"):
                raise
            for scope, column in self.planner.unknown:
                raise scope.unknown(column) from None
            message = str(error).splitlines()[0].replace(self.prefix, "table ")
            raise SqlError(f"Spark: {message}") from error

    def _view(self, name: str, part: Part) -> None:
        if name not in self._views:
            frame = self._frame(part)
            frame.createOrReplaceTempView(name)
            self._views[name] = frame

    def forget(self) -> None:
        """Drop the views; over Connect a frame finds them by name when it runs, so they stay."""
        if type(self.spark).__module__.startswith("pyspark.sql.connect"):
            return
        for name in self._views:
            self.spark.catalog.dropTempView(name)

    def _frame(self, part: Part) -> Any:
        import matwin.spark as joins

        match part:
            case Scan():
                return self._scanned(part)
            case Derived():
                for name, other in self.planner.parts.items():
                    if name in part.sql:
                        self._view(name, other)
                return self._sql(part.sql)
            case Windowed():
                return self._windowed(part, joins)
        left, right = self._frame(part.left), self._frame(part.right)
        match part:
            case Best():
                return joins.bestmatch_join(left, right, **best_arguments(part), **self.options)
            case Near():
                return joins.epsilon_join(left, right, **near_arguments(part), **self.options)
            case Asof():
                return joins.asof_join(left, right, **asof_arguments(part), **self.options)

    def _scanned(self, part: Scan) -> Any:
        frame = part.source.frame  # type: ignore[attr-defined]
        if part.alias is None:
            return frame.selectExpr(*map(spark_quoted, part.columns))
        frame = frame.alias(part.alias)
        for condition in part.filters:
            frame = frame.where(condition)
        kept = part.columns if part.kept is None else part.kept
        return frame.selectExpr(
            *(f"{spark_quoted(name)} AS {spark_quoted(f'{part.alias}.{name}')}" for name in kept)
        )

    def _windowed(self, part: Windowed, joins: Any) -> Any:
        streams = {name: self._frame(one) for name, one in part.streams}
        found = joins.window_join(streams, **window_arguments(part), **self.options)
        return found.selectExpr(
            *(f"{spark_quoted(theirs)} AS {spark_quoted(ours)}"
              for ours, theirs in window_columns(part).items())
        )  # fmt: skip
