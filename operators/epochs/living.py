"""Pairs that are new, found by a join that lives: what a row costs does not grow with the window.

    rows as they come ──▶ the window join's engine, its time the number of the chunk ──▶ new tuples
    cut               ──▶ a step: chunks that leave their windows are dropped there, too

A tuple is new in the epoch of its newest row, and all its rows are in their windows then:

    newest - chunk of s < chunks that s has in the query          for every stream s
    ⇔  chunk of r - chunk of s <= width of s - 1                  for every pair r, s

That is a window join over chunk numbers.  The join's own windows and tolerances are further
predicates on two streams' columns.  The engine is the one of live streams: in memory, rows are
found along their key's chain; when they no longer fit, it goes to pages.

After a restart the engine is filled from the chunks that are kept, and what it finds meanwhile was
found before.

Left out, and joined anew in every epoch instead (`query.Bound`): joins without keys, whose rows
only a sort brings together; tables; distances, and bounds that leave values out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.driver import Driver
from matwin.operators.epsilon import epsilon_join
from matwin.operators.wjoin.join import asked, window_join, window_options
from matwin.operators.wjoin.joining import WindowJoining
from matwin.operators.wjoin.question import WindowQuestion
from matwin.question import Question
from matwin.report import Report, StreamReport
from matwin.storage.columns import cast_columns
from matwin.storage.units import Counts
from matwin.streams import Punctuated, Punctuation, stream

from .chunks import ChunkWindow
from .query import OPTIONS, Bound, Chunks, Rows, Windows, width_of

SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Plan:
    """A window join over chunk numbers that finds what another join finds."""

    chunks: Sequence[Chunks]
    names: Sequence[str]
    """How the streams are called, one for each of the chunks."""
    schemas: Sequence[pa.Schema]
    number: str
    """The column with the chunk's number."""
    by: object
    where: Sequence[Mapping[Any, Any]]
    schema: pa.Schema
    """The columns of the result, and where each comes from."""
    origins: Sequence[str]
    required: Sequence[Sequence[str]]
    """Columns of each stream without a value of which a row matches nothing."""


class Living:
    """A join of ours that gives each tuple once."""

    takes_arrivals = True

    def __init__(self, bound: Bound, plan: Plan) -> None:
        self._bound, self._plan = bound, plan
        self._queues: list[deque[Any]] = [deque() for _ in plan.chunks]
        self._driver: Driver | None = None

    def check(self, windows: Windows) -> None:
        """As the join itself."""
        self._bound.check(windows)

    def told(self) -> dict[str, str]:
        """As the join itself."""
        return self._bound.told()

    def run(self, windows: Windows) -> Rows:
        """The tuples that are new, as their rows come."""
        return _Found(self._plan.schema, self._results(windows))

    def close(self) -> None:
        """Give the engine's memory back."""
        if self._driver is not None:
            self._driver.close()

    def _results(self, windows: Windows) -> Iterator[pa.RecordBatch]:
        driver = self._driver or self._filled(windows)
        for name, rows in windows.arrivals:
            self._queue(windows.epoch, name, rows)
            yield from self._shaped(driver.round(is_over=False))
        yield from self._shaped(self._ended(driver, windows.epoch))

    def _ended(self, driver: Driver, epoch: int) -> Iterator[Any]:
        for queue in self._queues:
            queue.append(Punctuation(epoch))
        return driver.round(is_over=True)

    def _filled(self, windows: Windows) -> Driver:
        """A driver that knows the chunks that are kept."""
        self._driver = driver = self._made(windows)
        streams = {c.name: windows.window(c.name) for c in self._plan.chunks}
        for epoch in sorted({e for w in streams.values() for e in w.epochs(skip=1)}):
            for name, window in streams.items():
                for rows in window.scan([epoch]) if epoch in window.epochs() else ():
                    self._queue(epoch, name, rows)
                    deque(driver.round(is_over=False), maxlen=0)
            deque(self._ended(driver, epoch), maxlen=0)
        return driver

    def _made(self, windows: Windows) -> Driver:
        plan = self._plan
        streams = {
            name: stream(_Told(queue), order=Punctuated(), schema=_numbered(schema, plan.number),
                         name=name)
            for name, queue, schema in zip(plan.names, self._queues, plan.schemas, strict=True)
        }  # fmt: skip
        question, sources, choice = asked(
            streams, time=plan.number, windows=_widths(plan, windows), by=plan.by,
            where=list(plan.where), algorithm="auto", bounds="auto",
        )  # fmt: skip
        given = {k: v for k, v in self._bound.join.keywords.items() if k in OPTIONS}
        options = window_options("window_join", {"memory": windows.memory, **given}, question,
                                 choice)  # fmt: skip
        report = Report()
        joining = WindowJoining(question, choice, options, report, is_live=True)
        reports = [report.streams.setdefault(n, StreamReport()) for n in question.names]
        return Driver(
            joining, list(sources.values()), reports, options, report, is_told=True
        )  # fmt: skip

    def _queue(self, epoch: int, name: str, rows: pa.RecordBatch) -> None:
        """Give rows to every place of their stream."""
        for at, wanted in enumerate(self._plan.chunks):
            if wanted.name == name:
                self._queues[at].append(self._prepared(at, epoch, rows))

    def _prepared(self, at: int, epoch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = cast_columns(rows, self._plan.schemas[at])
        for column in self._plan.required[at]:
            values = rows.column(column)
            good = values.is_valid()
            if pa.types.is_floating(values.type):
                good = pc.and_kleene(good, pc.is_finite(values)).fill_null(False)
            rows = rows if pc.all(good).as_py() in (True, None) else rows.filter(good)
        number = pa.array(np.full(rows.num_rows, epoch, np.int64))
        return pa.RecordBatch.from_arrays(
            [*rows.columns, number], schema=_numbered(rows.schema, self._plan.number)
        )

    def _shaped(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Tuples with the columns that the join itself would give."""
        schema = self._plan.schema
        for batch in found:
            columns = [batch.column(name) for name in self._plan.origins]
            shaped = [c if c.type == f.type else c.cast(f.type)
                      for c, f in zip(columns, schema, strict=True)]  # fmt: skip
            yield pa.RecordBatch.from_arrays(shaped, schema=schema)


@dataclass(frozen=True, slots=True)
class _Found:
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches


class _Told(Iterator[Any]):
    """What has been queued, and None where that is all for now."""

    def __init__(self, queue: deque[Any]) -> None:
        self._queue = queue

    def __next__(self) -> Any:
        return self._queue.popleft() if self._queue else None


def _numbered(schema: pa.Schema, number: str) -> pa.Schema:
    return schema.append(pa.field(number, pa.int64()))


def _widths(plan: Plan, windows: Windows) -> dict[tuple[str, str], tuple[int, int]]:
    """For every pair of streams, how far apart in chunks their rows may be."""
    widths = [width_of(wanted, windows) for wanted in plan.chunks]
    return {
        (plan.names[r], plan.names[s]): (1 - widths[s], widths[r] - 1)
        for r in range(len(widths))
        for s in range(r + 1, len(widths))
    }


# ── plans ────────────────────────────────────────────────────────────────────────────────────


def living(bound: Bound, windows: Windows) -> Living | None:
    """The same join as one that lives; None where it is better joined anew, or can't live."""
    if bound.pairs != "new" or not all(windows.is_stream(c.name) for c in bound.chunks):
        return None
    plan = None
    if bound.join.func is window_join:
        plan = _of_windows(bound.join, windows)
    elif bound.join.func is epsilon_join:
        plan = _of_sides(bound.join, windows)
    return None if plan is None else Living(bound, plan)


def _window(wanted: Chunks, windows: Windows) -> ChunkWindow:
    return windows.window(wanted.name)


def _free(name: str, schemas: Sequence[pa.Schema]) -> str:
    """A name that no stream has for a column."""
    taken = {column for schema in schemas for column in schema.names}
    while name in taken:
        name += "_"
    return name


def _of_windows(join: partial[Any], windows: Windows) -> Plan | None:
    """A window join: its windows become predicates on its times."""
    if not join.args or not isinstance(join.args[0], Mapping) or join.keywords.get("by") is None:
        return None
    if join.keywords.get("algorithm", "auto") != "auto":
        return None
    streams: Mapping[str, Chunks] = join.args[0]
    if not all(isinstance(c, Chunks) for c in streams.values()):
        return None
    given = {k: v for k, v in join.keywords.items() if k in ("time", "windows", "by", "where")}
    sources = {name: windows.source(c) for name, c in streams.items()}
    question = WindowQuestion.of(sources, **{"where": None, **given})
    if len(question.constraints.alternatives) != 1:
        return None
    schemas = [_window(c, windows).result_schema for c in streams.values()]
    own = [
        {(f"{a}.{question.times[one.a]}", f"{b}.{question.times[one.b]}"): Counts(one.lo, one.hi)}
        for one in question.constraints.alternatives[0]
        for a, b in [(question.names[one.a], question.names[one.b])]
    ]
    more = given.get("where")
    wheres = [] if more is None else list(more) if isinstance(more, list | tuple) else [more]
    return Plan(
        list(streams.values()), question.names, schemas, _free("chunk", schemas), given["by"],
        [*wheres, *own], question.schema, question.schema.names, [[] for _ in schemas],
    )  # fmt: skip


def _of_sides(join: partial[Any], windows: Windows) -> Plan | None:
    """An ε-join: its tolerances become predicates, its columns are called as ever."""
    allowed = {"on", "by", "how", "suffixes", *OPTIONS}
    if len(join.args) != 2 or not set(join.keywords) <= allowed or not join.keywords.get("by"):
        return None
    if not all(isinstance(c, Chunks) for c in join.args):
        return None
    schemas = [_window(c, windows).result_schema for c in join.args]
    given = {k: v for k, v in join.keywords.items() if k not in OPTIONS}
    question = Question.of(*schemas, best=False, **{"how": "inner", **given})
    if any(a.is_nonzero for a in question.attributes) or not _keys_fit(question):
        return None
    where = [
        {(f"left.{a.left}", f"right.{a.right}"): Counts(a.lo, a.hi)}
        for a in question.attributes
        if a.lo is not None and a.hi is not None
    ]
    required = [[getattr(a, side) for a in question.attributes] for side in SIDES]
    by = [(key.left, key.right) for key in question.keys]
    return Plan(
        list(join.args), SIDES, schemas, _free("chunk", schemas), by, where, question.schema,
        _origins(question), required,
    )  # fmt: skip


def _keys_fit(question: Question) -> bool:
    """Whether the left key's value is the right one's as well, to the last bit."""
    lefts = [question.left.field(key.left).type for key in question.keys]
    rights = [question.right.field(key.right).type for key in question.keys]
    return lefts == rights and not any(pa.types.is_floating(t) for t in lefts)


def _origins(question: Question) -> list[str]:
    """Where each column of the result stands in the window join's."""
    lefts, rights = question.output_names()
    ours = {key.left: key.left for key in question.keys}
    theirs = {key.right: key.left for key in question.keys}
    return [ours.get(name, f"left_{name}") for name in lefts] + [
        theirs.get(name, f"right_{name}") for name in rights
    ]
