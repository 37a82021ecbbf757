"""`matwin.sql`: the front door, which loads nothing until it is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from matwin.extras import needed

if TYPE_CHECKING:
    from matwin.options import JoinOptions
    from matwin.result import Result


def sql(text: str, options: JoinOptions | None = None, /, **sources: object) -> Result:
    """Run a query: DuckDB's SQL with the papers' joins in it.

    * `text`: one select.  Tables are keyword arguments, names given to `matwin.register`, files
      (``from 'trips/*.parquet'``), or variables where the call stands.
    * `options`: those that every join takes, as a dict: ``{"memory": "512MiB"}``.
    * `sources`: tables, files and streams by name; also orders and functions that the query uses,
      and lengths of windows.

    >>> import matwin, pyarrow as pa
    >>> temp = pa.table({"t": [0, 60], "celsius": [20.5, 21.0]})
    >>> hum = pa.table({"t": [3, 50, 90], "percent": [40, 41, 45]})
    >>> found = matwin.sql('''
    ...     select celsius, percent from temp left outer bestmatch join hum on temp.t mindist hum.t
    ...     where abs(temp.t - hum.t) <= 20
    ... ''', temp=temp, hum=hum)
    >>> found.to_arrow().to_pylist()
    [{'celsius': 20.5, 'percent': 40}, {'celsius': 21.0, 'percent': 41}]
    """
    for library in ("sqlglot", "duckdb"):
        needed(library)
    from .catalog import Catalog
    from .session import run

    frame = sys._getframe(1)
    return run(text, Catalog(sources, lambda: _variables(frame)), options)


def spark_sql(
    spark: Any, text: str, options: Mapping[str, Any] | None = None, /, **frames: object
) -> Any:
    """Run a query with the papers' joins over Spark's tables and views; also `matwin.spark.sql`.

    * `spark`: the session.
    * `text`: one select; its rest is Spark's SQL.
    * `options`: those of the joins on Spark, as a dict.
    * `frames`: DataFrames, orders, functions and lengths of windows by name.

    Returns a DataFrame that is not yet computed.
    """
    needed("sqlglot")
    from .spark import run_on_spark

    return run_on_spark(spark, text, options, frames)


def _variables(frame: FrameType) -> Iterator[Mapping[str, object]]:
    yield frame.f_locals
    yield frame.f_globals
