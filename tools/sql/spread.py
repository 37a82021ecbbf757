"""Expressions that stand for several columns, or for a whole row, beside a join of ours.

    select columns('t.*') + 1      m."a.t" + 1 AS "t", m."b.t2" + 1 AS "t2"
    select * like 't%'             m."a.t" AS "t", m."b.t2" AS "t2"
    where columns(*) > 3           m."a.t" > 3 AND m."b.t2" > 3
    coalesce(*columns(a.*))        coalesce(m."a.t", m."a.x")
    count(b.*)                     count(CASE WHEN m."b.t" IS NOT NULL OR … THEN 1 END)
    select b                       {'t': m."b.t", 'x': m."b.x"}

Which columns are meant DuckDB tells, because patterns and lambdas are its own: it is asked about
tables without rows, in which no two columns have the same type, so that types tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from .binding import chained
from .dialect import SPAN, span_of
from .edits import Edits
from .errors import Place, place_of, wrong
from .names import Input
from .nodes import joined_name
from .recognise import Ref

if TYPE_CHECKING:
    from .selects import Chosen, SelectPlanner


class Spread:
    """What stands for several columns in one select."""

    def __init__(self, of: SelectPlanner) -> None:
        self.of, self.planner, self.select, self.text = of, of.planner, of.select, of.text
        self.name, self.ours = "", set[str]()
        """What our joins give, and the tables in it; known when texts are written."""
        self._meant: dict[int, list[Ref]] = {}

    # ── what is meant ────────────────────────────────────────────────────────────────────────

    def refs(self, chosen: Chosen) -> Iterator[Ref]:
        """The columns that are needed."""
        for node in self._patterns():
            yield from self.meant(node)
        for node in self._counted():
            yield from self._all_of(node.table)
        for column in self.of.columns(chosen):
            whole = self.of.names.row_of(column)
            if whole is not None:
                yield from self._all_of(whole.alias)

    def _patterns(self) -> Iterator[exp.Expr]:
        """`columns(…)` anywhere, and stars with a pattern, which are projections."""
        for node in self.select.find_all(exp.Columns):
            if node.find_ancestor(exp.Select) is self.select:
                yield node
        yield from filter(is_pattern, self.select.expressions)

    def _counted(self) -> Iterator[exp.Column]:
        """The tables in `count(b.*)`."""
        for star in self.select.find_all(exp.Star):
            column = star.parent
            if (
                isinstance(column, exp.Column) and isinstance(column.parent, exp.Count)
                and column.find_ancestor(exp.Select) is self.select
            ):  # fmt: skip
                yield column

    def _all_of(self, alias: str) -> list[Ref]:
        found = self.of.scope.input_of(alias)
        return [] if found is None else [(found.alias, name) for name in found.schema.names]

    def meant(self, node: exp.Expr) -> list[Ref]:
        """The columns that a pattern stands for."""
        if id(node) not in self._meant:
            self._meant[id(node)] = self._asked(node) if self.planner.target.names_result else []
        return self._meant[id(node)]

    def _asked(self, node: exp.Expr) -> list[Ref]:
        place = span_of(node)
        pattern = self.text[place.start : place.end + 1]
        if node.args.get("unpack"):
            pattern = pattern.removeprefix("*")
        refs = [(one.alias, name) for _, one in self._visible() for name in one.schema.names]
        tags = [pa.struct([pa.field(f"c{number}", pa.int8())]) for number in range(len(refs))]
        types = dict(zip(refs, tags, strict=True))
        try:
            found = self._described(pattern, types)
        except Exception:  # that it means nothing is told with the whole query
            return []
        meant = {tag: ref for ref, tag in types.items()}
        named = [meant[one.type] for one in found if one.type in meant]
        is_qualified = any(one.table for one in node.find_all(exp.Column))
        return named if is_qualified else [self._shown(ref) for ref in named]

    def _shown(self, ref: Ref) -> Ref:
        """The column whose values a merged one has."""
        merged = self.of.scope.merged_of(*ref)
        shown = self.of.scope.input_of(merged.shown) if merged is not None else None
        return ref if shown is None else (shown.alias, shown.names[ref[1].lower()])

    def _visible(self) -> list[tuple[exp.Expr, Input]]:
        """The items of the from clause whose columns can be named, and their tables."""
        both = zip(self.of.items, self.of.inputs, strict=True)
        return [(item, one) for item, one in both
                if one is not None and item.args.get("kind") not in ("SEMI", "ANTI")]  # fmt: skip

    def _described(self, projection: str, types: Mapping[Ref, pa.DataType]) -> pa.Schema:
        """The columns of a projection of the tables, in which columns have these types."""
        pieces, tables = [], {}
        for item, one in self._visible():
            name = self.planner.new_name()
            tables[name] = pa.schema(
                [field.with_type(types.get((one.alias, field.name), field.type))
                 for field in one.schema]
            )  # fmt: skip
            pieces.append((item, f"{name} AS {self._quoted(one.alias)}"))
        text = f"SELECT {projection} {chained(pieces, self._quoted)}"
        return self.planner.target.describe(text, {**self.planner.tables_in(text), **tables})

    # ── text ─────────────────────────────────────────────────────────────────────────────────

    def edit(self) -> None:
        """Write the columns out; all other edits of the select have been made."""
        for column in self._counted():
            self._edit_counted(column)
        waiting = {id(node): node for node in self._patterns()}
        for unit, between in self._units():
            nodes = [node for node in waiting.values() if _is_within(node, unit)]
            if nodes:
                self._edit_unit(unit, between, nodes)
            for node in nodes:
                del waiting[id(node)]
        for node in waiting.values():
            raise wrong(
                self.text, "beside a join of MatWin's, name the columns here", span_of(node)
            )

    def _units(self) -> Iterator[tuple[exp.Expr, str]]:
        """What is written once for each column, and what stands between."""
        for projection in self.select.expressions:
            yield projection, ", "
        for condition in self.of.where:
            yield condition.node, " AND "
        order = self.select.args.get("order")
        for one in order.expressions if order is not None else ():
            yield one, ", "

    def _edit_unit(self, unit: exp.Expr, between: str, nodes: list[exp.Expr]) -> None:
        body = unit.this if isinstance(unit, exp.Alias) else unit
        refs = self.meant(nodes[0])
        if not refs or SPAN not in unit.meta or SPAN not in body.meta:
            raise wrong(self.text, "no column here is meant by this", span_of(nodes[0]))
        spread = [node for node in nodes if not node.args.get("unpack")]
        texts = [self._body(body, nodes, ref) for ref in (refs if spread else refs[:1])]
        if any(unit is one for one in self.select.expressions):
            names = self._names(unit)
            texts = [
                f"{one} AS {self._quoted(name)}" for one, name in zip(texts, names, strict=True)
            ]
        elif between == " AND ":
            texts = [f"({one})" for one in texts]
        self.planner.edits.replace(span_of(unit), between.join(texts))

    def _body(self, body: exp.Expr, nodes: list[exp.Expr], ref: Ref) -> str:
        """An expression for one of the columns."""
        edits = Edits(self.planner.edits.text, list(self.planner.edits.made))
        for node in nodes:
            many = self.meant(node) if node.args.get("unpack") else [ref]
            edits.replace(span_of(node), ", ".join(map(self.column, many)))
        return edits.rendered(span_of(body))

    def _names(self, unit: exp.Expr) -> list[str]:
        """What DuckDB would call the columns, whatever we have written for them."""
        try:
            return list(self._described(self.planner.naming.rendered(span_of(unit)), {}).names)
        except Exception as error:
            raise self.planner.refused(error) from None

    def _edit_counted(self, column: exp.Column) -> None:
        refs = self._all_of(column.table)
        first, last = place_of(column.args["table"]), place_of(column.this)
        if first is None or last is None or not refs or refs[0][0] not in self.ours:
            return
        there = " OR ".join(f"{self.column(ref)} IS NOT NULL" for ref in refs)
        text = f"CASE WHEN {there} THEN 1 END"
        self.planner.edits.replace(Place(first.start, last.end), text)

    def row(self, whole: Input) -> str:
        """A whole row."""
        fields = (
            "'{}': {}".format(column.replace("'", "''"), self.column((whole.alias, column)))
            for column in whole.schema.names
        )
        return "{" + ", ".join(fields) + "}"

    def column(self, ref: Ref) -> str:
        """A column of what is joined, or of another table."""
        if ref[0] in self.ours:
            return f"{self.name}.{self._quoted(joined_name(ref))}"
        return f"{self._quoted(ref[0])}.{self._quoted(ref[1])}"

    def _quoted(self, name: str) -> str:
        return self.planner.target.quoted(name)


def is_pattern(projection: exp.Expr) -> bool:
    """Whether it is a star with a pattern: ``* like 't%'``."""
    node: exp.Expr = projection
    while isinstance(node, exp.Not | exp.Paren):
        node = node.this
    kinds = (exp.Like, exp.ILike, exp.Glob, exp.SimilarTo, exp.RegexpLike)
    if isinstance(node, kinds):
        node = node.this
        return isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star)
    star = node.this if isinstance(node, exp.Column) else node
    return isinstance(star, exp.Star) and bool(star.args.get("ilike"))


def _is_within(node: exp.Expr, unit: exp.Expr) -> bool:
    while node is not unit:
        if node.parent is None:
            return False
        node = node.parent
    return True
