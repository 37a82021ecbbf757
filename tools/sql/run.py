"""A plan, run: our joins give streams, which DuckDB reads as tables.

    sources ─▶ views ─▶ joins ─▶ registered in a cursor ─▶ DuckDB ─▶ batches ─▶ Result

Each table of DuckDB's text is opened anew whenever DuckDB scans it, so that a query that needs it
twice gets its rows twice, or the error of a source that can be read once.  Nothing runs before
the first batch is asked for.

Where a query is the joined rows and nothing else, DuckDB is not asked.  Live joins with a rest that
looks at single rows are handed to DuckDB batch by batch: it would otherwise collect rows first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from matwin.asof import asof_join
from matwin.bestmatch import bestmatch_join
from matwin.operators.duckdb import (
    EDGE_SHARE,
    SHARE,
    VECTOR_ROWS,
    Database,
    portions,
    share_alone,
    share_beside_joins,
)
from matwin.operators.epsilon import epsilon_join
from matwin.operators.wjoin.join import window_join
from matwin.options import JoinOptions, Options, options_of
from matwin.report import Report
from matwin.result import Result
from matwin.shares import ReadShare
from matwin.sources import Source
from matwin.storage.errors import InputError, MatwinError
from matwin.streams import Stream, is_live

from .arguments import (
    asof_arguments,
    best_arguments,
    near_arguments,
    window_arguments,
    window_columns,
)
from .blame import blamed
from .engine import database, forget_if_broken, shared_database
from .errors import wrong
from .nodes import Asof, Best, Derived, Near, Part, Plan, Scan, Windowed, columns_of, inner_parts
from .views import view_of


@dataclass
class Runner:
    """Runs one plan."""

    plan: Plan
    options: JoinOptions
    report: Report
    failures: list[BaseException] = field(default_factory=list)
    """What went wrong in our own code while DuckDB was reading from it."""
    _has_told: bool = False
    own: Database | None = None
    """This query's database, where it has one."""
    is_lent: bool = False
    """Whether that goes on to somebody else, who closes it."""

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    def source(self, part: Part) -> object:
        """A part as a join's input."""
        if isinstance(part, Scan):
            return view_of(part)
        if isinstance(part, Derived):
            rows = self.duckdb(part.sql, part.schema)
            return pa.RecordBatchReader.from_batches(part.schema, rows)
        return self.joined(part)

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """A part's rows."""
        found = self.source(part)
        if isinstance(found, Source | Stream):
            found = found.within(self._read_share)
        if isinstance(found, Source):
            return found.batches()
        return iter(found)  # type: ignore[call-overload, no-any-return]

    def joined(self, part: Part) -> Result:
        """A join, not yet started."""
        options = self._options(part)
        match part:
            case Best():
                left, right = self.source(part.left), self.source(part.right)
                return bestmatch_join(left, right, **best_arguments(part), **options)
            case Near():
                left, right = self.source(part.left), self.source(part.right)
                return epsilon_join(left, right, **near_arguments(part), **options)
            case Asof():
                left, right = self.source(part.left), self.source(part.right)
                return asof_join(
                    left, right, ordered=False, suffixes=("", "_right"), **asof_arguments(part),
                    **options,
                )  # fmt: skip
            case Windowed():
                return self._windowed(part, options)
        raise AssertionError(part)

    def _windowed(self, part: Windowed, options: Any) -> Result:
        streams = {name: self.source(one) for name, one in part.streams}
        found = window_join(streams, **window_arguments(part), **options)
        names = window_columns(part)
        fields = [found.schema.field(theirs).with_name(ours) for ours, theirs in names.items()]
        schema = pa.schema(fields)

        def renamed() -> Iterator[pa.RecordBatch]:
            for batch in found:
                columns = [batch.column(theirs) for theirs in names.values()]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return Result(schema, renamed(), found.report, found.explain)

    def _options(self, part: Part) -> Any:
        """The options of a join; only the outermost one tells what it does, the first time."""
        given = {name: value for name, value in self.options.items() if name != "max_output_rows"}
        if part is self._outermost and not self._has_told:
            given["report"], self._has_told = self.report, True
        else:
            for name in ("trace", "progress", "report"):
                given.pop(name, None)
        if given.get("memory") is not None:
            budget = self._checked.budget_bytes
            left = share_beside_joins(budget)[1] if self._asks_duckdb else budget
            given["memory"] = left // max(1, self._joins)
        return given

    @property
    def _asks_duckdb(self) -> bool:
        return self.plan.direct is None or any(
            isinstance(one, Derived) for one in parts_of(self.plan)
        )

    @property
    def _checked(self) -> Options:
        return options_of("sql", {"memory": self.options.get("memory")})

    @property
    def _joins(self) -> int:
        """How many joins of ours may run at once."""
        return running(self.plan, self.plan.sql)

    @property
    def _read_share(self) -> ReadShare:
        sources = max(1, sum(1 for _ in scans_of(self.plan)))
        return ReadShare.of(self._checked.budget_bytes, sources, self.options.get("scratch"))

    @property
    def _outermost(self) -> Part | None:
        return next(joins_of(self.plan), None)

    @property
    def is_live(self) -> bool:
        """Whether rows should leave as soon as they are found."""
        return is_live(part.source for part in scans_of(self.plan))

    # ── DuckDB ───────────────────────────────────────────────────────────────────────────────

    def rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The result."""
        limit, count = self.options.get("max_output_rows"), 0
        try:
            for batch in self._rows(schema):
                count += batch.num_rows
                if limit is not None and count > limit:
                    raise InputError(
                        f"the query has more than max_output_rows={limit} rows; narrow it, add a "
                        "limit clause, or raise the limit"
                    )
                yield batch
        finally:
            if self.own is not None:
                self.report.budget_bytes = self._checked.budget_bytes
                self.own.count(self.report)
                if not self.is_lent:
                    self.own.close()

    def _rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self.plan.direct is not None:
            return self._direct(*self.plan.direct, schema)
        if self.plan.is_rowwise and self.is_live and len(self.plan.parts) == 1:
            return self._by_batches(schema)
        return self.duckdb(self.plan.sql, schema)

    def _direct(
        self, name: str, columns: tuple[str, ...], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.batches(self.plan.parts[name]):
            arrays = [batch.column(column) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _by_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        ((name, part),) = self.plan.parts.items()
        with self._asked() as asked:
            for batch in self.batches(part):
                asked.register(name, pa.Table.from_batches([batch]))
                for made in asked.sql(self.plan.sql).to_arrow_table().to_batches():
                    yield fitted(made, schema)

    def duckdb(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of a query of DuckDB's, a batch at a time."""
        with self._asked() as asked:
            for name, part in self.plan.parts.items():
                if name in sql:
                    asked.register(name, Reopened(self, part))
            reader = asked.sql(sql).to_arrow_reader(VECTOR_ROWS)
            try:
                for batch in portions(reader, self._checked.budget_bytes // EDGE_SHARE):
                    self._sample()
                    yield fitted(batch, schema)
            finally:
                reader.close()

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """A cursor, whose errors are told as ours."""
        asked = self._database().cursor()
        try:
            yield asked
        except MatwinError:
            raise
        except Exception as error:
            raise self._cause(error) from error
        finally:
            asked.close()

    def _cause(self, error: Exception) -> BaseException:
        """Our own error, where DuckDB only tells that reading failed."""
        if self.failures:
            return self.failures[-1]
        database = self._database()
        if database.is_foreign(error):
            forget_if_broken(error)
            shortage = database.shortage(error)
            if shortage is not None:
                return shortage
            said = str(error).splitlines()[0]
            return wrong(self.plan.text, f"DuckDB: {said}", blamed(self.plan.text, said))
        return error

    def _database(self) -> Database:
        """The process's, or one of this query's where it has a budget or a folder of its own."""
        memory, scratch = self.options.get("memory"), self.options.get("scratch")
        if memory is None and scratch is None:
            return shared_database()
        if self.own is None:
            budget = self._checked.budget_bytes
            if self._joins:
                self.own = database(share_beside_joins(budget)[0], scratch, SHARE)
            else:
                self.own = database(share_alone(budget), scratch)
        return self.own

    def _sample(self) -> None:
        if self.own is not None:
            self.own.sample()


@dataclass(frozen=True)
class Reopened:
    """A part as a table of DuckDB's: whoever scans it starts it anew."""

    runner: Runner
    part: Part

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema(columns_of(self.part))

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        schema = self.schema
        batches = self._guarded(lambda: self.runner.batches(self.part), schema)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    def _guarded(
        self, make: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in make():
                self.runner._sample()
                yield fitted(batch, schema)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.runner.failures.append(error)
            raise


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch under a schema of as many columns."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == wanted.type else column.cast(wanted.type)
        for column, wanted in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def joins_of(plan: Plan) -> Iterator[Part]:
    """The joins of ours in a plan, outermost first."""
    waiting: list[Part] = [
        part for part in plan.parts.values() if not isinstance(part, Scan | Derived)
    ]
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, Scan | Derived):
            yield part
        waiting += inner_parts(part)


def running(plan: Plan, sql: str) -> int:
    """How many joins may run at once for a text: each time that one is named, it runs anew."""
    named = {name: len(re.findall(rf"(?<!AS )\b{name}\b(?!\.)", sql)) for name in plan.parts}
    return sum(n * _running(plan, plan.parts[name]) for name, n in named.items() if n)


def _running(plan: Plan, part: Part) -> int:
    if isinstance(part, Derived):
        return running(plan, part.sql)
    return int(not isinstance(part, Scan)) + sum(_running(plan, one) for one in inner_parts(part))


def scans_of(plan: Plan) -> Iterator[Scan]:
    """Everything that a plan reads."""
    return (part for part in parts_of(plan) if isinstance(part, Scan))


def parts_of(plan: Plan) -> Iterator[Part]:
    """The parts of a plan, and theirs."""
    waiting = list(plan.parts.values())
    while waiting:
        part = waiting.pop()
        yield part
        waiting += inner_parts(part)


def result_schema(plan: Plan) -> pa.Schema:
    """The columns of the result: those of the join itself where DuckDB has nothing to do."""
    if plan.direct is None:
        return plan.schema
    name, columns = plan.direct
    fields: Mapping[str, pa.Field] = {one.name: one for one in columns_of(plan.parts[name])}
    return pa.schema(
        [
            fields[column].with_name(called).with_nullable(True)
            for column, called in zip(columns, plan.schema.names, strict=True)
        ]
    )
