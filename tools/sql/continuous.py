"""Continuous queries: a plan with stream functions, run epoch by epoch.

    STREAM_get_packets(rt1, 'CUT ON ts BY 60 SECS', 'BLOCK') s1,
    STREAM_get_packets(rt2, 'CUT ON ts BY 60 SECS', 'BLOCK', 12) s2
        │
        └──▶ matwin.continuous_query(the plan, {rt1, rt2}, cut=every 60 s, keep={rt1: 1, rt2: 12})
                 each epoch: s1 is the last chunk of rt1, s2 the last 12 of rt2, and the plan runs

All streams are cut alike, as there is one epoch for all of them.  The rows of the result are those
of the epochs, one after the other; `EpochResult.epochs` gives them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from matwin.operators.epochs.continuous import ContinuousQuery, Epoch
from matwin.operators.epochs.cut import Cut, count, every, on_change
from matwin.operators.epochs.query import Windows
from matwin.options import JoinOptions
from matwin.report import Report
from matwin.result import Result
from matwin.storage.errors import InputError

from ..continuous import continuous_query
from .amounts import shown_time
from .nodes import Derived, Part, Plan, Scan, Windowed
from .run import Runner, result_schema, scans_of
from .statics import Statics
from .streams import StreamSpec

OPTIONS = (
    "memory", "page_size", "scratch", "trace", "state", "sink", "sink_from", "idle_after",
)  # fmt: skip


class EpochResult(Result):
    """The rows of all epochs in turn."""

    def __init__(
        self, schema: pa.Schema, query: ContinuousQuery, explain: Any, report: Report | None = None
    ) -> None:
        super().__init__(schema, self._of_epochs(), report or Report(), explain)
        self._query = query

    def epochs(self) -> Iterator[Epoch]:
        """The epochs, each with its `id`, `bounds` and `result`, when it is complete."""
        return iter(self._query)

    def _of_epochs(self) -> Iterator[pa.RecordBatch]:
        for epoch in self.epochs():
            self.report.rows_out += epoch.report.rows_out
            yield from epoch.result


class EpochSql:
    """A plan as the query of `matwin.continuous_query`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._statics: Statics | None = None
        self._runner: Runner | None = None
        """Of the last epoch."""

    def check(self, windows: Windows) -> None:
        """Nothing is left to check: the plan knows its streams."""

    def told(self) -> dict[str, str]:
        """What is asked, in words."""
        streams = [f"{spec.source}: {spec.shown}, keep {spec.keep}" for spec in self._plan.streams]
        return {"sql": self._plan.sql, "streams": "; ".join(streams)}

    def run(self, windows: Windows) -> Result:
        """The result of an epoch, over the chunks that it sees."""
        if self._statics is None:
            self._statics = Statics()
            self._statics.read(scans_of(self._plan), windows.memory, windows.scratch)
        statics = self._statics
        parts = {name: _seen(part, windows, statics) for name, part in self._plan.parts.items()}
        plan = replace(self._plan, parts=parts)
        schema, report = result_schema(plan), Report()
        options = JoinOptions(memory=windows.memory, scratch=windows.scratch)
        # One database for all epochs: to open one takes longer than a small epoch.
        own = self._runner.own if self._runner is not None else None
        self._runner = runner = Runner(plan, options, report, own=own, is_lent=True)
        return Result(schema, runner.rows(schema), report, self._explained)

    def _explained(self) -> str:
        return self.told()["streams"]

    def close(self) -> None:
        """The query is over."""
        if self._statics is not None:
            self._statics.close()
        if self._runner is not None and self._runner.own is not None:
            self._runner.own.close()


def _seen(part: Part, windows: Windows, statics: Statics) -> Part:
    """A part that reads the chunks of an epoch where it reads a stream, and the rows that a table
    had at the beginning."""
    match part:
        case Scan() if part.spec is not None:
            return replace(part, source=windows.last(part.label, part.spec.keep).source)
        case Scan():
            return replace(part, source=statics.of(part))
        case Derived():
            return part
        case Windowed():
            streams = tuple((name, _seen(one, windows, statics)) for name, one in part.streams)
            return replace(part, streams=streams)
    left, right = (_seen(one, windows, statics) for one in (part.left, part.right))
    return replace(part, left=left, right=right)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan with stream functions asks of a continuous query."""

    query: EpochSql
    sources: dict[str, Any]
    cut: Cut
    keep: dict[str, int]


def asked_of(plan: Plan) -> Asked:
    """The streams of a plan, their cut, and how many chunks are kept of each."""
    sources = {scan.label: scan.source for scan in scans_of(plan) if scan.spec is not None}
    keep: dict[str, int] = {}
    for spec in plan.streams:
        keep[spec.source] = max(spec.keep, keep.get(spec.source, 1))
    return Asked(EpochSql(plan), sources, _cut(plan.streams), keep)


def epochs_of(plan: Plan, options: Mapping[str, Any], explain: Any) -> EpochResult:
    """The result of a plan whose streams are cut."""
    given = {name: value for name, value in options.items() if name not in ("report", "progress")}
    for name in given:
        if name not in OPTIONS:
            raise InputError(f"a query over cut streams takes no {name}; {', '.join(OPTIONS)}")
    asked = asked_of(plan)
    query = continuous_query(asked.query, asked.sources, cut=asked.cut, keep=asked.keep, **given)
    return EpochResult(result_schema(plan), query, explain, options.get("report"))


def _cut(specs: tuple[StreamSpec, ...]) -> Cut:
    """The one cut of all streams."""
    first = specs[0]
    columns: dict[str, str] = {}
    for spec in specs:
        is_alike = (spec.kind, spec.width, spec.is_time) == (first.kind, first.width, first.is_time)
        column = columns.setdefault(spec.source, spec.column or "")
        if not is_alike or column != (spec.column or ""):
            other = first if not is_alike else next(s for s in specs if s.source == spec.source)
            raise spec.wrong(
                f"{other.source} is {other.shown} and {spec.source} {spec.shown}: all streams of a "
                "query are cut alike"
            )
    if first.kind == "count":
        return count(int(first.width))
    if first.kind == "on_change":
        return on_change(columns)
    if first.is_time:
        return every(shown_time(first.width), on=columns)
    width = int(first.width) if first.width.denominator == 1 else float(first.width)
    return every(width, on=columns)
