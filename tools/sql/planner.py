"""From a parsed query to a plan: which tables are read, what we join, what DuckDB's text is.

    1  every table of the query gets a name of ours; its text is replaced by that name
    2  selects are planned from the inside out; the from clause of one with joins of ours becomes
       the name of what they give, its columns are renamed in the rest of the select, and
       conditions that the joins take are replaced by `true`
    3  a second text, in which only tables are replaced, tells the names and types of the result:
       DuckDB calls `avg(b.x)` what it would call it if it ran the query alone

Nothing is read here but schemas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
from sqlglot import exp

from matwin.hints import did_you_mean
from matwin.sources import Source
from matwin.storage.errors import InputError

from .amounts import amount_of
from .binding import items_of, table_of
from .blame import blamed
from .catalog import Catalog
from .conditions import is_steady
from .dialect import BESTMATCH, Parsed, span_of
from .edits import Edits
from .endless import Endless
from .engine import ABS, aggregates
from .errors import Place, place_of, wrong
from .methods import straighten_methods
from .names import Input, Scope
from .needed import names_in, scan_columns
from .nodes import Derived, Note, Part, Plan, Scan, columns_of, inner_parts
from .selects import SelectPlanner
from .statements import blanked
from .streams import StreamSpec, stream_spec
from .target import DUCKDB, PREFIX, Target

_NUMBERED = re.compile(r"(?<![\w#])#\d+")
_NAMES = re.compile(rf"\b{PREFIX}(?:[0-9a-f]{{8}}_)?\d+\b")
_DIVIDED_TIME = re.compile(r"types '(/|//|%)\((TIMESTAMP|DATE|TIME)")
QUOTIENTS = (exp.Div, exp.IntDiv, exp.Mod)
FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row"})
"""Table functions that read nothing; all others are refused."""


class Planner:
    """Plans one query."""

    def __init__(self, query: Parsed, catalog: Catalog, text: str, target: Target = DUCKDB) -> None:
        self.target = target
        self.text, self.tree, self.catalog = text, query.tree, catalog
        straighten_methods(self.tree)
        self.edits, self.naming = Edits(query.text), Edits(query.text)
        for place, new in query.names:
            self.edits.replace(place, new)
            self.naming.replace(place, new)
        self.parts: dict[str, Part] = {}
        self.stand_ins: dict[str, pa.Schema] = {}
        """Tables without rows, which tell names and types."""
        self.labels: dict[str, str] = {}
        """What the query calls them."""
        self.scans: dict[int, str] = {}
        """The part that each table of the query is, by the table's node."""
        self.notes: list[Note] = []
        self.direct: tuple[str, tuple[str, ...]] | None = None
        self._count = 0
        self._inputs: dict[int, Input | None] = {}
        self.unknown: list[tuple[Scope, exp.Column]] = []
        """Names that no input has; an error if DuckDB does not know them either."""
        self._unnamed: dict[int, str] = {}
        """Names for the items of from clauses that have none, by their nodes."""
        self.has_numbers = "#" in text and bool(
            _NUMBERED.search(blanked(text, "string", "name", "comment"))
        )
        """Whether columns are named by their number: ``#2``."""

    # ── the whole ────────────────────────────────────────────────────────────────────────────

    def plan(self) -> Plan:
        """The plan of the query."""
        names = names_in(self.tree)
        for join in self.tree.find_all(exp.Join):
            if join.kind == BESTMATCH and not isinstance(join.parent, exp.Select):
                message = "a bestmatch join in brackets is written as (select * from …)"
                raise wrong(self.text, message, join)
        for pivot in self.tree.find_all(exp.Pivot):
            self._check_pivot(pivot)
        for table in self.tree.find_all(exp.Table):
            self._table(table, names)
        self._name_the_unnamed()
        if self.target.names_result:
            Endless(self.text, self._scan_of, self.cte_of, aggregates()).refuse(self.tree)
        for select in reversed(list(self.tree.find_all(exp.Select))):
            SelectPlanner(self, select).plan()
        sql = self.edits.rendered(span_of(self.tree))
        used = dict(self._used(sql))
        schema = self._described() if self.target.names_result else pa.schema([])
        streams = tuple(spec for part in used.values() for spec in _specs(part))
        return Plan(
            sql, used, schema, self.direct, tuple(self.notes), self._is_rowwise(), streams,
            self.text,
        )  # fmt: skip

    def _scan_of(self, table: exp.Table) -> Scan | None:
        part = self.parts.get(self.scans.get(id(table), ""))
        return part if isinstance(part, Scan) else None

    def _check_pivot(self, pivot: exp.Pivot) -> None:
        """Refuse a pivot whose columns depend on its rows."""
        plain = [one for one in pivot.expressions if not isinstance(one, exp.In)]
        if pivot.args.get("using") and plain and not pivot.args.get("unpivot"):
            on = plain[0]
            message = f"name the values that become columns: on {on.sql()} in ('a', 'b')"
            raise wrong(self.text, message, on)

    def _name_the_unnamed(self) -> None:
        """Give subqueries without a name the one that DuckDB would."""
        for select in self.tree.find_all(exp.Select):
            count = 0
            for item in map(table_of, items_of(select)):
                if item.alias or not _is_query(item):
                    continue
                count += 1
                name = "unnamed_subquery" + (str(count) if count > 1 else "")
                self._unnamed[id(item)] = name
                end = span_of(item).end
                self.edits.replace(Place(end, end), f") AS {self.target.quoted(name)}")

    def alias_of(self, item: exp.Expr) -> str:
        """What the query calls an item of a from clause."""
        if item.alias:
            return str(item.alias)
        if id(item) in self._unnamed:
            return self._unnamed[id(item)]
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Func):
            return self.text[span_of(item).start :].split("(")[0].strip()
        return str(item.alias_or_name)

    def volatile_ctes(self, items: list[exp.Expr]) -> list[exp.CTE]:
        """Common table expressions behind these items that are read elsewhere too, and whose rows
        differ from reading to reading."""
        found: list[exp.CTE] = []
        waiting = [table for item in items for table in item.find_all(exp.Table)]
        while waiting:
            cte = self.cte_of(waiting.pop())
            if cte is None or any(cte is one for one in found):
                continue
            found.append(cte)
            waiting += cte.this.find_all(exp.Table)
        counts = Counter(id(cte) for table in self.tree.find_all(exp.Table)
                         if (cte := self.cte_of(table)) is not None)  # fmt: skip
        return [cte for cte in found if counts[id(cte)] > 1 and not is_steady(cte.this)]

    def _described(self) -> pa.Schema:
        text = self.naming.rendered(span_of(self.tree))
        try:
            found = self.target.describe(text, self.tables_in(text))
            return pa.schema([one.with_name(self.as_given(one.name)) for one in found])
        except InputError:
            raise
        except Exception as error:
            for scope, column in self.unknown:
                raise scope.unknown(column) from None
            raise self.refused(error) from None

    def as_given(self, name: str) -> str:
        """A column's name that is made of its expression, with the query's own tables in it."""
        for ours in dict.fromkeys(_NAMES.findall(name)):
            part = self.parts.get(ours)
            label = part.label if isinstance(part, Scan) else self.labels.get(ours)
            if label is None:
                continue
            for alias in (self.target.quoted(label), label):
                name = re.sub(rf"\b{ours} AS {re.escape(alias)}(?!\w)", ours, name)
            name = re.sub(rf"\b{ours}\b", label.replace("\\", r"\\"), name)
        return name.replace(f"{ABS}(", "abs(")

    def refused(self, error: Exception) -> Exception:
        """What DuckDB has against the query, at its place if that can be found."""
        lines = str(error).split("\n\n")[0].splitlines()
        divided = _DIVIDED_TIME.search(lines[0]) if lines else None
        for one in self.tree.find_all(*QUOTIENTS) if divided else ():
            if isinstance(one.this, exp.Column) and amount_of(one.expression) is not None:
                return self._divided(one, lines[0])
        message = re.sub(r"^(\w+ )?Error: ", "", lines[0]) if lines else type(error).__name__
        message = _NAMES.sub("a table", message)
        hints = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
        said = " ".join([message, *(_NAMES.sub("", hint) for hint in hints)])
        for name in re.findall(r'"([^"]+)"', lines[0] if lines else ""):
            for node in self.tree.find_all(exp.Identifier, exp.Func):
                if node.name.lower() == name.lower() and place_of(node) is not None:
                    return wrong(self.text, said, self._whole(node))
        return wrong(self.text, said, blamed(self.text, lines[0] if lines else ""))

    def _divided(self, node: exp.Expr, said: str) -> Exception:
        """A time by a number, as the papers have it whose times are numbers of seconds."""
        time, number = node.this.sql(), node.expression.sql()
        sign = said.partition("'")[2].partition("(")[0]
        return wrong(
            self.text,
            f"{time} is a time and {number} a number: write epoch({time}) {sign} {number}, which "
            f"counts in seconds, or time_bucket(interval '{number} seconds', {time})",
            node,
        )

    def _whole(self, node: exp.Expr) -> exp.Expr:
        return node.parent if isinstance(node.parent, exp.Column) else node

    def _is_rowwise(self) -> bool:
        """Whether the result of some rows is some rows of the result: one select of a joined part,
        without anything that sees several rows."""
        tree = self.tree
        if not isinstance(tree, exp.Select) or len(list(tree.find_all(exp.Query))) > 1:
            return False
        whole = ("group", "having", "qualify", "distinct", "order", "limit", "offset", "sample")
        if any(tree.args.get(one) for one in whole) or tree.args.get("with_"):
            return False
        if tree.find(exp.AggFunc, exp.Window, exp.Unnest) or not self.target.names_result:
            return False
        # sqlglot does not know all of DuckDB's aggregates, nor those that are called as methods.
        called = {name.lower() for name in re.findall(r"(\w+)\s*\(", self.text)}
        return not called & aggregates()

    def _used(self, text: str) -> Iterator[tuple[str, Part]]:
        """The parts that a text names, and those that they are made of."""
        for name in dict.fromkeys(_NAMES.findall(text)):
            if name not in self.parts:
                continue
            part = self.parts[name]
            yield name, part
            waiting = [part]
            while waiting:
                one = waiting.pop()
                waiting += inner_parts(one)
                if isinstance(one, Derived):
                    yield from self._used(one.sql)

    def tables_in(self, text: str) -> dict[str, pa.Schema]:
        """The tables that a text names, without rows."""
        found = {}
        for name in dict.fromkeys(_NAMES.findall(text)):
            if name in self.stand_ins:
                found[name] = self.stand_ins[name]
            elif name in self.parts:
                found[name] = pa.schema(columns_of(self.parts[name]))
        return found

    def new_name(self) -> str:
        """A name that the query does not have."""
        while True:
            self._count += 1
            name = f"{self.target.prefix}{self._count}"
            if name not in self.text:
                return name

    # ── tables ───────────────────────────────────────────────────────────────────────────────

    def _table(self, table: exp.Table, names: frozenset[str]) -> None:
        """Give a table of the query a name of ours; refuse what is none."""
        inner = table.this
        if isinstance(inner, exp.Func):
            self._function(table, inner)
            return
        if not isinstance(inner, exp.Identifier) or self.cte_of(table) is not None:
            return
        name = ".".join(part.name for part in table.parts)
        source = self._source(table, name)
        self._scan(table, name, source, names, None)

    def _scan(
        self, table: exp.Table, label: str, source: Source, names: frozenset[str],
        spec: StreamSpec | None,
    ) -> None:  # fmt: skip
        alias = table.alias or (table.name if spec is None else "")
        if not table.alias and source.paths and not alias.isidentifier():
            # A file is called by its name, as in DuckDB.
            alias = self._unnamed[id(table)] = PurePath(alias).name.split(".")[0] or alias
        select = table.find_ancestor(exp.Query)
        columns = scan_columns(source.schema, alias, select, names)
        if self.has_numbers:
            columns = tuple(source.schema.names)
        if spec is not None and spec.column is not None and spec.column not in columns:
            columns = (*columns, spec.column)
        name = self.new_name()
        self.parts[name] = Scan(label, source, columns, spec=spec)
        self.scans[id(table)] = name
        text = f"{name} " if table.alias else f"{name} AS {self.target.quoted(alias or label)}"
        if isinstance(table.parent, exp.Summarize | exp.Describe):
            text = name  # which take no alias
        place = _named_place(table)
        for edits in (self.edits, self.naming):
            edits.replace(place, text)

    def _source(self, table: exp.Table, name: str) -> Source:
        is_quoted = any(part.args.get("quoted") for part in table.parts)
        try:
            source = self.catalog.source(name, is_quoted=is_quoted)
        except InputError as error:
            raise wrong(self.text, str(error), _named_place(table)) from error
        if source is None:
            known = self.catalog.names()
            near = did_you_mean(name, known)
            there = f"; there are {', '.join(known[:20])}" if known else ""
            message = (
                f"there is no table {name!r}{near}{there}; give it by keyword, "
                f"matwin.sql(..., {name}=table), register it, or name a file: 'data.parquet'"
            )
            if not name.isidentifier():
                message = f"there is no table or file {name!r}{near}{there}"
            raise wrong(self.text, message, _named_place(table))
        return source

    def _function(self, table: exp.Table, function: exp.Func) -> None:
        name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
        spec = stream_spec(self.text, function)
        if spec is not None:
            if not self.target.has_cuts:
                raise spec.not_cut(table.alias)
            source = self._source_of_stream(spec, function)
            self._scan(table, spec.source, source, names_in(self.tree), spec.checked(source.schema))
        elif name.lower() not in FUNCTIONS:
            message = (
                f"{name}() is not run here: tables are given by name, and files as 'data.parquet'"
            )
            raise wrong(self.text, message, function)

    def _source_of_stream(self, spec: StreamSpec, function: exp.Func) -> Source:
        source = self.catalog.source(spec.source, is_quoted=spec.is_quoted)
        if source is None:
            near = did_you_mean(spec.source, self.catalog.names())
            raise wrong(self.text, f"there is no stream {spec.source!r}{near}", function)
        return source

    # ── common table expressions ─────────────────────────────────────────────────────────────

    def cte_of(self, table: exp.Table) -> exp.CTE | None:
        """The common table expression that a table is."""
        if table.args.get("db"):
            return None
        for cte in self.visible(table):
            if cte.alias.lower() == table.name.lower():
                return cte
        return None

    def visible(self, node: exp.Expr) -> list[exp.CTE]:
        """The common table expressions that can be named at a node, the nearest first."""
        found: list[exp.CTE] = []
        inside: exp.Expr = node
        while inside.parent is not None:
            parent = inside.parent
            clause = parent.args.get("with_") if isinstance(parent, exp.Query) else None
            if clause is not None and clause is not inside:
                found += reversed(clause.expressions)
            if isinstance(parent, exp.With):
                at = next(n for n, one in enumerate(parent.expressions) if one is inside)
                last = at + 1 if parent.args.get("recursive") else at
                found += reversed(parent.expressions[:last])
                inside = parent.parent or parent
                continue
            inside = parent
        return found

    def with_clause(self, node: exp.Expr) -> str:
        """The with clause that a text taken from this node needs."""
        nearest: dict[str, exp.CTE] = {}
        for one in self.visible(node):
            nearest.setdefault(one.alias.lower(), one)
        ctes = list(nearest.values())
        if not ctes:
            return ""
        is_recursive = any(one.parent and one.parent.args.get("recursive") for one in ctes)
        bodies = [self.edits.rendered(span_of(one)) for one in reversed(ctes)]
        return f"WITH {'RECURSIVE ' if is_recursive else ''}{', '.join(bodies)} "

    # ── inputs ───────────────────────────────────────────────────────────────────────────────

    def input_of(self, item: exp.Expr) -> Input | None:
        """An item of a from clause as an input; None where its columns can't be told."""
        if id(item) not in self._inputs:
            self._inputs[id(item)] = self._input(item)
        return self._inputs[id(item)]

    def _input(self, item: exp.Expr) -> Input | None:
        if isinstance(item, exp.Table) and item.args.get("joins"):
            return None  # a join b join c on … on …: joined before it is joined
        if isinstance(item, exp.Subquery) and not item.alias and id(item) not in self._unnamed:
            return None  # joins in brackets, or with a pivot or a sample behind them
        alias = self.alias_of(item)
        scan = self.parts.get(self.scans.get(id(item), ""))
        has_columns = bool(item.args.get("alias") and item.args["alias"].args.get("columns"))
        if isinstance(scan, Scan) and not has_columns and not item.args.get("pivots"):
            return Input(alias or scan.label, scan.source.schema, item)
        text = f"{self.with_clause(item)}SELECT * FROM {self.edits.rendered(span_of(item))}"
        try:
            return Input(alias, self.target.describe(text, self.tables_in(text)), item)
        except InputError:
            raise
        except Exception:  # whatever the target can't describe it runs by itself, and tells why not
            return None


def _is_query(item: exp.Expr) -> bool:
    """Whether an item of a from clause is a query in brackets, and nothing else."""
    if item.args.get("pivots") or item.args.get("sample"):
        return False
    inner = item
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    is_bracketed = isinstance(item, exp.Subquery) and isinstance(inner, exp.Query)
    return is_bracketed or isinstance(item, exp.Values)


def _named_place(table: exp.Table) -> Place:
    """Where a table's name or function stands, without its alias."""
    if isinstance(table.this, exp.Func):
        whole = span_of(table)
        alias = table.args.get("alias")
        after = place_of(alias) if alias is not None else None
        if after is None:
            return whole
        return Place(whole.start, after.start - 1)
    places = [place for part in table.parts if (place := place_of(part)) is not None]
    if not places:
        return span_of(table)
    return Place(min(one.start for one in places), max(one.end for one in places))


def _specs(part: Part) -> Iterator[StreamSpec]:
    """The streams that are cut in a part."""
    if isinstance(part, Scan) and part.spec is not None:
        yield part.spec
    for inner in inner_parts(part):
        yield from _specs(inner)
