"""A query in, a `Result` out.

text ──▶ parsed ──▶ plan (pure; schemas only) ──▶ Result, which runs while it is read
"""

from __future__ import annotations

from collections.abc import Mapping

from matwin.options import JoinOptions, options_of
from matwin.report import Report
from matwin.result import Result
from matwin.storage.errors import InputError

from .catalog import Catalog
from .continuous import epochs_of
from .dialect import parsed
from .explain import explained
from .nodes import Plan
from .planner import Planner
from .refusals import refuse
from .run import Runner, result_schema


def planned(text: str, catalog: Catalog) -> Plan:
    """The plan of a query; no row is read."""
    if not isinstance(text, str):
        raise InputError(f"the query is a {type(text).__name__}; give text")
    query = parsed(text, catalog.columns)
    refuse(query, text)
    return Planner(query, catalog, text).plan()


def run(text: str, catalog: Catalog, options: JoinOptions | None = None) -> Result:
    """The result of a query."""
    return started(planned(text, catalog), options)


def started(plan: Plan, options: JoinOptions | None = None) -> Result:
    """The result of a plan."""
    if plan.streams:
        return epochs_of(plan, options or {}, lambda: explained(plan))
    given = _checked(options)
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
