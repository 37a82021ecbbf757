"""The names of one select: its tables, and what every name in it means.

    select -a.v as v, sum(w) from a join b using (k) … having v < 0 order by v, v + 1
            └ a.v         └ b.w          └ merged          └ alias      └ alias └ a.v

The rules are DuckDB's.  A bare name means a column before it means a name of the select list, but
not as a whole term of ORDER BY, nor in HAVING if it is neither grouped by nor aggregated.  Names of
an inner query, of a lambda or of a list comprehension are not ours.

`Declined` is raised where something can't be followed: DuckDB then runs the select as it stands,
unless only we could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from .dialect import BESTMATCH
from .names import Declined, Input, Merged, Scope, check_aliases
from .recognise import Ref

if TYPE_CHECKING:
    from .planner import Planner


def items_of(select: exp.Select) -> list[exp.Expr]:
    """The from clause: its first item, then its joins."""
    clause = select.args.get("from_")
    if clause is None:
        return []
    return [clause.this, *(select.args.get("joins") or [])]


def table_of(item: exp.Expr) -> exp.Expr:
    """What is joined by an item of a from clause."""
    return item.this if isinstance(item, exp.Join) else item


def is_comma(item: exp.Expr) -> bool:
    """Whether an item is joined by a comma."""
    given = ("on", "using", "side", "method", "kind")
    return isinstance(item, exp.Join) and not any(item.args.get(one) for one in given)


def chained(pieces: Iterable[tuple[exp.Expr, str]], quoted: Callable[[str], str]) -> str:
    """A from clause of tables without rows: items with the names that stand for them, joined so
    that a star has the same columns as in the query."""
    text = ""
    for item, named in pieces:
        keys = ", ".join(quoted(key.name) for key in item.args.get("using") or ())
        if not text:
            text = f"FROM {named}"
        elif is_comma(item):
            text += f", {named}"
        elif (item.args.get("method") or "").upper() == "NATURAL":
            text += f" NATURAL JOIN {named}"
        else:
            text += f" JOIN {named} USING ({keys})" if keys else f" CROSS JOIN {named}"
    return text


class Binding:
    """What the names of one select mean."""

    def __init__(self, planner: Planner, select: exp.Select) -> None:
        self.planner, self.select, self.text = planner, select, planner.text
        self.items = items_of(select)
        self.inputs: list[Input | None] = [self._input(item) for item in self.items]
        known = [one for one in self.inputs if one is not None]
        visible = [one for one in known if not one.is_hidden]
        check_aliases(self.text, visible, select.find_all(exp.Column))
        if len({one.alias.lower() for one in known}) < len(known):
            raise Declined("a table that a semi join hides has the name of another")
        self._check_stars()
        self.scope = Scope(self.text, tuple(known), self._merged(), self._aliases())
        self._owners: dict[int, Ref | None] = {}

    def _input(self, item: exp.Expr) -> Input | None:
        found = self.planner.input_of(table_of(item))
        if found is None or item.args.get("kind") not in ("SEMI", "ANTI"):
            return found
        return Input(found.alias, found.schema, found.item, is_hidden=True)

    def _check_stars(self) -> None:
        if None in self.inputs:
            for star in self.select.find_all(exp.Star):
                if star.parent is self.select or isinstance(star.parent, exp.Columns):
                    raise Declined("the columns of a star are not known", star)

    def _aliases(self) -> frozenset[str]:
        named = (exp.Alias, exp.Column)
        return frozenset(
            one.alias_or_name.lower()
            for one in self.select.expressions
            if isinstance(one, named) and (one.alias or one.args.get("table"))
        )

    def _merged(self) -> tuple[Merged, ...]:
        """The columns that USING and NATURAL make one of."""
        found: list[Merged] = []
        first = 0
        for number, item in enumerate(self.items):
            right = self.inputs[number]
            first = number if is_comma(item) else first
            is_natural = (item.args.get("method") or "").upper() == "NATURAL"
            if not (is_natural or item.args.get("using")):
                continue
            if right is None:
                raise Declined("the columns that USING or NATURAL merge are not known", item)
            # A join sees what stands behind the last comma before it.
            seen = self.inputs[first:number]
            before = [one for one in seen if one is not None and not one.is_hidden]
            names = [key.name.lower() for key in item.args.get("using") or ()]
            if is_natural:
                names = [name for name in right.names if any(name in one.names for one in before)]
            if right.is_hidden:
                raise Declined("write the condition of this semi join: on a.k = b.k", item)
            side = (item.args.get("side") or "").upper()
            # A full bestmatch join has no rows without a partner: both values are there, and equal.
            if side == "FULL" and item.args.get("kind") != BESTMATCH:
                raise Declined("a full join merges columns by USING or NATURAL", item)
            for name in names:
                self._merge(found, name, before, right, is_right=side == "RIGHT")
        return tuple(found)

    def _merge(
        self, found: list[Merged], name: str, before: list[Input], right: Input, *, is_right: bool
    ) -> None:
        aliases = [one.alias for one in before if name in one.names]
        if not aliases or name not in right.names:
            return  # which is told where the join is read
        earlier = [one for one in found if one.name == name]
        if len(earlier) > 1 or (not earlier and len(aliases) > 1):
            raise Declined(f"{name!r} could be of several tables", right.item)
        old = earlier[0] if earlier else Merged(name, (aliases[0],), aliases[0])
        if old.shown != old.aliases[0]:
            raise Declined(f"{name!r} is merged again after a right join", right.item)
        if set(aliases) - set(old.aliases):
            raise Declined(f"{name!r} could be of several tables", right.item)
        if old in found:
            found.remove(old)
        shown = right.alias if is_right else old.shown
        found.append(Merged(name, (*old.aliases, right.alias), shown))

    # ── names ────────────────────────────────────────────────────────────────────────────────

    def owner(self, column: exp.Column) -> Ref | None:
        """The column of this select's inputs that a name means."""
        if id(column) not in self._owners:
            self._owners[id(column)] = self._owner(column)
        return self._owners[id(column)]

    def _owner(self, column: exp.Column) -> Ref | None:
        if isinstance(column.this, exp.Star) or self._is_foreign(column):
            return None
        is_alias = not column.table and column.name.lower() in self.scope.aliases
        if is_alias and self._prefers_alias(column):
            return None
        if self._is_term(column) and len(self.scope.having(column.name.lower())) > 1:
            return None  # perhaps one of the columns that a star of the select list stands for
        found = self.scope.resolve(column, self._own(column))
        if found is None and not is_alias:
            self.planner.unknown.append((self.scope, column))
        return found

    def whole(self, column: exp.Column) -> Ref | None:
        """The same, but nothing where a field within the column is meant."""
        found = self.owner(column)
        return found if self.scope.length(column) == len(column.parts) else None

    def is_outer(self, column: exp.Column) -> bool:
        """Whether a name is of a query around this one, as far as can be told."""
        if isinstance(column.this, exp.Star) or self.owner(column) is not None:
            return False
        is_alias = not column.table and column.name.lower() in self.scope.aliases
        return not is_alias and self.row_of(column) is None and not self._is_foreign(column)

    def row_of(self, column: exp.Column) -> Input | None:
        """The input whose whole row a name means."""
        if len(column.parts) > 1 or self.owner(column) is not None:
            return None
        if column.name.lower() in self.scope.aliases or self._is_foreign(column):
            return None
        found = self.scope.input_of(column.name)
        return None if found is None or found.is_hidden else found

    def _around(self, column: exp.Column) -> Iterator[exp.Expr]:
        """The expressions around a name, within this select."""
        node = column.parent
        while node is not None and node is not self.select:
            yield node
            node = node.parent

    def _is_foreign(self, column: exp.Column) -> bool:
        """Whether a name is of an inner query, or a variable of a list comprehension."""
        inside: exp.Expr = column
        for node in self._around(column):
            if isinstance(node, exp.Select) and self._has(node, column):
                return True
            if isinstance(node, exp.Comprehension) and inside is not node.args.get("iterator"):
                variables = (node.args.get("expression"), node.args.get("position"))
                first = column.parts[0].name.lower()
                if any(one is not None and one.name.lower() == first for one in variables):
                    return True
            inside = node
        return False

    def _own(self, column: exp.Column) -> Input | None:
        """The hidden table in whose condition a name stands."""
        joins = {id(item): one for item, one in zip(self.items, self.inputs, strict=True)}
        return next((one for node in self._around(column) if (one := joins.get(id(node)))), None)

    def _prefers_alias(self, column: exp.Column) -> bool:
        """Whether a name that is also one of the select list means that."""
        if self._is_term(column):
            return True
        around = list(self._around(column))
        if not any(isinstance(node, exp.Having) for node in around):
            return False
        is_aggregated = any(isinstance(node, exp.AggFunc) for node in around)
        return not is_aggregated and not self._groups(column)

    def _is_term(self, column: exp.Column) -> bool:
        """Whether a bare name is a whole term of the select's ORDER BY."""
        whole: exp.Expr = column
        while isinstance(whole.parent, exp.Paren):
            whole = whole.parent
        term = whole.parent
        if column.table or not isinstance(term, exp.Ordered):
            return False
        return isinstance(term.parent, exp.Order) and term.parent.parent is self.select

    def _groups(self, column: exp.Column) -> bool:
        """Whether the select is grouped by the column of this name."""
        clause = self.select.args.get("group")
        terms = clause.expressions if clause is not None else []
        return any(
            isinstance(one, exp.Column) and one.name.lower() == column.name.lower() for one in terms
        )

    def _has(self, select: exp.Select, column: exp.Column) -> bool:
        """Whether an inner select has something of this name itself."""
        first, is_bare = column.parts[0].name.lower(), len(column.parts) == 1
        for item in items_of(select):
            table = table_of(item)
            if self.planner.alias_of(table).lower() == first:
                return True
            types = self._types(table)
            if types is None:
                if is_bare:
                    return True
            elif first in types and (is_bare or _has_fields(types[first])):
                return True
        return is_bare and any(one.alias.lower() == first for one in select.expressions)

    def _types(self, table: exp.Expr) -> dict[str, pa.DataType | None] | None:
        """The columns of a table of an inner query, as far as they can be told."""
        found = self.planner.input_of(table)
        if found is not None:
            return {one.name.lower(): one.type for one in found.schema}
        query = table.this if isinstance(table, exp.Subquery) else None
        if not isinstance(query, exp.Select):
            return None
        types: dict[str, pa.DataType | None] = {}
        for one in query.expressions:
            if not one.find(exp.Star, exp.Columns):
                types[one.alias_or_name.lower()] = None
                continue
            for item in items_of(query):
                inner = self._types(table_of(item))
                if inner is None:
                    return None
                types.update(inner)
        return types


def _has_fields(data_type: pa.DataType | None) -> bool:
    return data_type is None or pa.types.is_nested(data_type)
