"""From chosen joins to parts of a plan, checked as the joins would check them.

A leaf becomes a scan of a source, or a query of DuckDB's where it is anything else; it reads the
columns that the join, its filters and the rest of the select need, and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from matwin.operators.wjoin.question import WindowQuestion
from matwin.question import Question
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .arguments import asof_arguments, best_arguments, near_arguments, window_arguments
from .choose import AsofData, Conditions
from .dialect import span_of
from .errors import wrong
from .names import Scope
from .needed import narrowest
from .nodes import Asof, Best, Derived, Near, Part, Scan, Windowed, columns_of, joined_name
from .recognise import Ref
from .tree import Branch, Leaf, Operand
from .windows import WindowData

if TYPE_CHECKING:
    from .planner import Planner


class Emitter:
    """Makes the parts of one select."""

    def __init__(self, planner: Planner, scope: Scope, needed: set[Ref]) -> None:
        self.planner, self.scope, self.text = planner, scope, planner.text
        self.needed = set(needed)

    def part(self, operand: Operand) -> Part:
        """The part of a leaf or a join."""
        self._need(operand)
        return self._part(operand)

    def _part(self, operand: Operand) -> Part:
        return self._leaf(operand) if isinstance(operand, Leaf) else self._branch(operand)

    def _need(self, operand: Operand) -> None:
        """Note the columns that joins compare."""
        if isinstance(operand, Leaf):
            return
        for child in operand.children:
            self._need(child)
        data = operand.data if operand.kind == "window" else operand.data[1]
        if isinstance(data, AsofData):
            self.needed |= {*data.on, *(ref for pair in data.keys for ref in pair)}
        elif isinstance(data, Conditions):
            for one in (*data.on, *data.where):
                self.needed |= {one.left, one.right}
            self.needed |= {ref for pair in data.keys for ref in pair}
        elif isinstance(data, WindowData):
            names = [leaf.inputs[0].alias for leaf in operand.leaves()]
            self.needed |= set(zip(names, data.times, strict=True))
            self.needed |= {ref for key in data.keys for ref in key}
            self.needed |= {ref for one in data.near for ref in (one.left, one.right)}
            self.needed |= {ref for refs, _, _ in data.functions for ref in refs}

    # ── leaves ───────────────────────────────────────────────────────────────────────────────

    def _leaf(self, leaf: Leaf) -> Scan | Derived:
        planner = self.planner
        scan = planner.parts.get(planner.scans.get(id(leaf.items[0]), ""))
        filters = tuple(text for text, _ in leaf.filters)
        if len(leaf.items) == 1 and isinstance(scan, Scan) and _is_plain(leaf.items[0]):
            one = leaf.inputs[0]
            kept = self._columns(one.alias, one.schema) or (narrowest(one.schema),)
            of_filters = {name for _, refs in leaf.filters for _, name in refs}
            read = tuple(n for n in one.schema.names if n in of_filters or n in kept)
            return Scan(scan.label, scan.source, read, one.alias, filters, kept, scan.spec)
        return self._derived(leaf, filters)

    def _columns(self, alias: str, schema: pa.Schema) -> tuple[str, ...]:
        return tuple(name for name in schema.names if (alias, name) in self.needed)

    def _derived(self, leaf: Leaf, filters: tuple[str, ...]) -> Derived:
        planner = self.planner
        places = [span_of(item) for item in leaf.items]
        fields, wanted = [], []
        quoted = planner.target.quoted
        for one in leaf.inputs:
            if one.is_hidden and len(leaf.inputs) > 1:
                continue
            for name in self._columns(one.alias, one.schema):
                called = joined_name((one.alias, name))
                fields.append(one.field(name).with_name(called).with_nullable(True))
                wanted.append(f"{quoted(one.alias)}.{quoted(name)} AS {quoted(called)}")
        if not wanted:  # only the number of rows counts
            fields, wanted = [pa.field("__matwin", pa.int32())], [f"1 AS {quoted('__matwin')}"]
        where = f" WHERE {' AND '.join(f'({one})' for one in filters)}" if filters else ""
        prefix = planner.with_clause(leaf.items[0])
        body = " ".join(planner.edits.rendered(place) for place in places)
        sql = f"{prefix}SELECT {', '.join(wanted)} FROM {body}{where}"
        shown = " ".join(
            word for place in places for word in self.text[place.start : place.end + 1].split()
        )
        return Derived(sql, pa.schema(fields), shown, filters)

    # ── joins ────────────────────────────────────────────────────────────────────────────────

    def _branch(self, branch: Branch) -> Part:
        parts = [self._part(child) for child in branch.children]
        try:
            return self._joined(branch, parts)
        except InputError as error:
            if type(error) is not InputError:
                raise
            raise wrong(self.text, str(error), _at(branch.at)) from error

    def _joined(self, branch: Branch, parts: list[Part]) -> Part:
        match branch.kind:
            case "bestmatch":
                return self._best(branch, *parts)
            case "range":
                return self._near(branch, *parts)
            case "asof":
                return self._asof(branch, *parts)
        return self._windowed(branch, parts)

    def _best(self, branch: Branch, left: Part, right: Part) -> Best:
        how, data = branch.data
        part = Best(left, right, how, data.on, data.where, data.keys)
        self._check_bounded(part, branch)
        arguments = best_arguments(part)
        Question.of(_schema(left), _schema(right), best=True, **arguments)
        return part

    def _check_bounded(self, part: Best, branch: Branch) -> None:
        """Refuse an order attribute without an end where a stream has no end either."""
        first = part.on[0]
        if first.limits is not None and first.limits.is_bounded:
            return
        for leaf in branch.leaves():
            scan = self.planner.parts.get(self.planner.scans.get(id(leaf.items[0]), ""))
            if isinstance(scan, Scan) and isinstance(scan.source, Stream):
                ours, theirs = joined_name(first.left), joined_name(first.right)
                message = (
                    f"{scan.label} is a stream, and nothing says how far apart {ours} and {theirs} "
                    f"may be, so that all its rows would have to be kept; add to the where clause: "
                    f"abs({ours} - {theirs}) <= …"
                )
                raise wrong(self.text, message, branch.at.args["on"].expressions[0])

    def _near(self, branch: Branch, left: Part, right: Part) -> Near:
        how, data = branch.data
        part = Near(left, right, how, data.on, data.keys)
        Question.of(_schema(left), _schema(right), best=False, **near_arguments(part))
        return part

    def _asof(self, branch: Branch, left: Part, right: Part) -> Asof:
        how, data = branch.data
        part = Asof(left, right, how, data.on, data.direction, data.is_strict, data.keys)
        given = asof_arguments(part)
        Question.of(_schema(left), _schema(right), on={given["on"]: None}, by=given["by"],
                    how="left", best=True)  # fmt: skip
        return part

    def _windowed(self, branch: Branch, parts: list[Part]) -> Windowed:
        data = branch.data
        names = [leaf.inputs[0].alias for leaf in branch.leaves()]
        part = Windowed(
            tuple(zip(names, parts, strict=True)), data.times, data.windows, data.shown, data.keys,
            data.near, data.functions,
        )  # fmt: skip
        empty: dict[str, Any] = {name: _Schema(_schema(one)) for name, one in part.streams}
        WindowQuestion.of(empty, **window_arguments(part))
        return part


class _Schema:
    """What a window join's question asks of a source."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema


def _schema(part: Part) -> pa.Schema:
    return pa.schema(columns_of(part))


def _is_plain(item: exp.Expr) -> bool:
    """Whether a table is read as it is."""
    alias = item.args.get("alias")
    has_columns = alias is not None and bool(alias.args.get("columns"))
    return not (has_columns or item.args.get("pivots") or item.args.get("sample"))


def _at(node: exp.Expr) -> exp.Expr:
    """The part of a join clause that says what is joined by."""
    on = node.args.get("on")
    return on if isinstance(on, exp.Expr) else node
