"""`matwin.sql`: a query in, a `Result` out.

text ──▶ parsed ──▶ plan (pure; schemas only) ──▶ Result, which runs while it is read
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType

from matwin.options import JoinOptions, options_of
from matwin.report import Report
from matwin.result import Result
from matwin.storage.errors import InputError

from .catalog import Catalog
from .continuous import check_runnable
from .dialect import parsed
from .explain import explained
from .nodes import Plan
from .planner import Planner
from .run import Runner, result_schema


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
    frame = sys._getframe(1)
    return run(text, Catalog(sources, lambda: _variables(frame)), options)


def _variables(frame: FrameType) -> Iterator[Mapping[str, object]]:
    yield frame.f_locals
    yield frame.f_globals


def planned(text: str, catalog: Catalog) -> Plan:
    """The plan of a query; no row is read."""
    if not isinstance(text, str):
        raise InputError(f"the query is a {type(text).__name__}; give text")
    return Planner(parsed(text, catalog.columns), catalog, text).plan()


def run(text: str, catalog: Catalog, options: JoinOptions | None = None) -> Result:
    """The result of a query."""
    given = _checked(options)
    plan = planned(text, catalog)
    check_runnable(plan)
    report = given.get("report") or Report()
    schema = result_schema(plan)
    runner = Runner(plan, given, report)
    return Result(schema, runner.rows(schema), report, lambda: explained(plan))


def _checked(options: object) -> JoinOptions:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InputError(
            f"options is a {type(options).__name__}; give a dict, such as {{'memory': '512MiB'}}"
        )
    options_of("sql", dict(options))
    return JoinOptions(**options)  # type: ignore[typeddict-item]
