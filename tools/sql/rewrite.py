"""The text of a select whose joins are ours: tables, columns and conditions replaced.

    select a.x, avg(b.y)          select __matwin_3."a.x" AS "x", avg(__matwin_3."b.y")
    from temp a … join hum b …    FROM __matwin_3
    where abs(…) <= 5 and …       where true and …

Two texts are edited: the one that is run, and the one that tells names and types, in which the
joined tables are tables without rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from .binding import chained, table_of
from .dialect import SPAN, WINDOWS, span_of
from .errors import Place, place_of, wrong
from .names import Input
from .nodes import joined_name

if TYPE_CHECKING:
    from .selects import Chosen, SelectPlanner

CLAUSES = (
    "group", "having", "qualify", "distinct", "order", "limit", "offset", "sample", "with_",
    "windows", "laterals", "kind", "hint", "operation_modifiers",
)  # fmt: skip


class Rewriter:
    """Rewrites one select."""

    def __init__(self, of: SelectPlanner, chosen: Chosen, name: str) -> None:
        self.of, self.chosen, self.name = of, chosen, name
        self.planner, self.select, self.text = of.planner, of.select, of.text
        self.items, self.inputs, self.scope, self.where = of.items, of.inputs, of.scope, of.where
        self.ours = {alias for leaf in chosen.operand.leaves() for alias in leaf.aliases}
        """The tables that are joined."""
        of.spread.name, of.spread.ours = name, self.ours

    def edit(self) -> None:
        """Replace what the joins have taken, and rename columns."""
        planner, select = self.planner, self.select
        for column in self.of.columns(self.chosen):
            self._rename(column)
        self._edit_stars()
        for one in self.where:
            if not one.is_after:
                planner.edits.replace(one.place, "true")
                if one.outcome != "below":  # which DuckDB is to judge before anything runs
                    planner.naming.replace(one.place, "true")
        windows = select.args.get(WINDOWS)
        if windows is not None:
            planner.edits.replace(span_of(windows), "")
            planner.naming.replace(span_of(windows), "")
        self._edit_later()
        place = self._from_place()
        implied = self._implied_select()
        self.of.spread.edit()
        naming_from = self._naming_from()
        self._name_expressions(naming_from)
        planner.naming.replace(place, implied[1] + naming_from)
        planner.edits.replace(place, implied[0] + self._from())
        self._note_direct()

    def _rename(self, column: exp.Column) -> None:
        ref, whole = self.of.names.owner(column), self.of.names.row_of(column)
        if whole is not None and whole.alias in self.ours:
            self._rename_row(column, whole)
        if ref is None or (ref[0] not in self.ours and column.table):
            return
        length = self.scope.length(column)
        places = [place_of(part) for part in column.parts[:length]]
        first, last = places[0], places[-1]
        assert first is not None and last is not None
        text = self.of.spread.column(ref)
        is_bare = any(column is one for one in self.select.expressions)
        if is_bare and length == len(column.parts):
            text += f" AS {self.planner.target.quoted(ref[1])}"
        self.planner.edits.replace(Place(first.start, last.end), text)

    def _rename_row(self, column: exp.Column, whole: Input) -> None:
        place = place_of(column)
        assert place is not None
        if not self.planner.target.names_result:
            message = f"{whole.alias} is a whole row; beside a join of MatWin's, name its columns"
            raise wrong(self.text, message, column)
        text = self.of.spread.row(whole)
        if any(column is one for one in self.select.expressions):
            text += f" AS {self.planner.target.quoted(column.name)}"
        self.planner.edits.replace(place, text)

    def _edit_stars(self) -> None:
        for projection in self.select.expressions:
            star = star_of(projection)
            if star is not None and SPAN in projection.meta:
                table = projection.table if isinstance(projection, exp.Column) else ""
                found = self.scope.input_of(table) if table else None
                if not table or (found is not None and found.alias in self.ours):
                    text = self._expanded(projection, star)
                    self.planner.edits.replace(span_of(projection), text)

    def _expanded(self, projection: exp.Expr, star: exp.Star) -> str:
        """The columns that a star stands for."""
        left_out = left_out_of(star)
        renamed = {one.this.name.lower(): one.alias for one in star.args.get("rename") or ()}
        replaced = {one.alias.lower(): one.this for one in star.args.get("replace") or ()}
        pieces = []
        for ref in self.scope.star(self.of.starred(projection)):
            if is_left_out(left_out, *ref):
                continue
            low = ref[1].lower()
            text = self.of.spread.column(ref)
            if low in replaced:
                text = self.planner.edits.rendered(span_of(replaced[low]))
            pieces.append(f"{text} AS {self.planner.target.quoted(renamed.get(low, ref[1]))}")
        return ", ".join(pieces) or "NULL"

    def _name_expressions(self, naming_from: str) -> None:
        """Let columns be called what DuckDB calls them, where somebody may: `max(a.v)`."""
        is_last = self.select is self.planner.tree and not self.select.args.get("order")
        if is_last or not self.planner.target.names_result:
            return
        for one in self.select.expressions:
            if isinstance(one, exp.Alias | exp.Column) or one.find(exp.Star, exp.Columns):
                continue
            if SPAN not in one.meta:
                continue
            text = f"SELECT {self.planner.naming.rendered(span_of(one))} {naming_from}"
            try:
                found = self.planner.target.describe(text, self.planner.tables_in(text))
            except Exception:  # it speaks of an outer query; nobody names a scalar's column
                continue
            if len(found) == 1:
                name = self.planner.target.quoted(self.planner.as_given(found.names[0]))
                new = f"{self.planner.edits.rendered(span_of(one))} AS {name}"
                self.planner.edits.replace(span_of(one), new)

    def _implied_select(self) -> tuple[str, str]:
        """The select list of a query that begins with `from` and has none."""
        for projection in self.select.expressions:
            star = star_of(projection)
            if star is not None and SPAN not in projection.meta:
                return f"SELECT {self._expanded(projection, star)} ", ""
        return "", ""

    def _from_place(self) -> Place:
        start = span_of(self.select.args["from_"]).start
        last = self.chosen.taken if self._is_prefix() else self.items
        return Place(start, max(span_of(item).end for item in last))

    def _is_prefix(self) -> bool:
        """Whether what is taken are the first items."""
        firsts = zip(self.chosen.taken, self.items, strict=False)
        return all(taken is item for taken, item in firsts)

    def _from(self) -> str:
        left = [one for one in self.chosen.residue if one.outcome is None]
        text = f"FROM {self.name}"
        if left:
            conditions = " AND ".join(f"({self.planner.edits.rendered(one.place)})" for one in left)
            text = f"FROM (SELECT * FROM {self.name} WHERE {conditions}) AS {self.name}"
        return text + self._others()

    def _naming_from(self) -> str:
        """Tables without rows in the place of what is joined, all in their order: that of a star's
        columns."""
        planner, pieces = self.planner, []
        taken = {id(item) for item in self.chosen.taken}
        for item, one in zip(self.items, self.inputs, strict=True):
            if id(item) not in taken:
                if self._is_prefix():
                    break
                table = table_of(item)
                pieces.append((table, planner.naming.rendered(span_of(table))))
            elif one is not None and item.args.get("kind") not in ("SEMI", "ANTI"):
                stand_in = planner.new_name()
                planner.stand_ins[stand_in] = one.schema
                planner.labels[stand_in] = one.alias
                named = f"{stand_in} AS {planner.target.quoted(one.alias)}"
                pieces.append((item, named))
        return chained(pieces, planner.target.quoted)

    def _others(self) -> str:
        """Tables that stood among those that we join."""
        render = self.planner.edits.rendered
        if self._is_prefix():
            return ""
        pieces = []
        for item in self.chosen.rest:
            on = item.args.get("on") if isinstance(item, exp.Join) else None
            clause = f" ON {render(span_of(on))}" if on is not None else " ON true"
            pieces.append(f" JOIN {render(span_of(table_of(item)))}{clause}")
        return "".join(pieces)

    def _edit_later(self) -> None:
        """Write out what USING and NATURAL mean in later joins: our columns have other names."""
        for item in self.chosen.rest:
            is_natural = isinstance(item, exp.Join) and item.method == "NATURAL"
            if not isinstance(item, exp.Join) or not (is_natural or item.args.get("using")):
                continue
            other = self.planner.input_of(item.this)
            assert other is not None  # or the select would have been declined
            is_asof = item.method == "ASOF"
            words = f"{'ASOF' if is_asof else ''} {item.side or ''} {item.kind or ''}"
            pairs = [self._pair(name, other) for name in self._merged_into(item, other)]
            signs = ["="] * len(pairs)
            if is_asof:  # the last one is the time
                signs[-1] = ">="
            both = zip(pairs, signs, strict=True)
            on = " AND ".join(f"{ours} {sign} {theirs}" for (ours, theirs), sign in both)
            table = self.planner.edits.rendered(span_of(item.this))
            self.planner.edits.replace(span_of(item), f"{words} JOIN {table} ON {on or 'true'} ")

    def _merged_into(self, item: exp.Join, other: Input) -> list[str]:
        keys = [key.name.lower() for key in item.args.get("using") or ()]
        return keys or [one.name for one in self.scope.merged if other.alias in one.aliases]

    def _pair(self, name: str, other: Input) -> tuple[str, str]:
        """The two columns that a merged one stands for."""
        found = self.scope.merged_of(other.alias, name)
        having = (one for one in self.scope.visible if name in one.names and one is not other)
        before = next(having, None) if found is None else self.scope.input_of(found.aliases[0])
        if before is None or name not in other.names:
            raise wrong(self.text, f"both sides of this join must have {name!r}", other.item)
        column = self.of.spread.column
        ours, theirs = (before.alias, before.names[name]), (other.alias, other.names[name])
        return column(ours), column(theirs)

    def _note_direct(self) -> None:
        """Note where the joined rows are the result already."""
        select = self.select
        is_whole = select is self.planner.tree and not self.chosen.rest
        left = [one for one in [*self.where, *self.chosen.residue] if one.is_after]
        if not is_whole or left or any(select.args.get(one) for one in CLAUSES):
            return
        found: list[str] = []
        for projection in select.expressions:
            star = star_of(projection)
            bare = projection.this if isinstance(projection, exp.Alias) else projection
            if star is not None:
                if any(star.args.get(one) for one in ("except_", "rename", "replace")):
                    return
                found += map(joined_name, self.scope.star(self.of.starred(projection)))
                continue
            ref = self.of.names.owner(bare) if isinstance(bare, exp.Column) else None
            if ref is None or self.scope.length(bare) != len(bare.parts):
                return
            found.append(joined_name(ref))
        self.planner.direct = (self.name, tuple(found))


def star_of(projection: exp.Expr) -> exp.Star | None:
    """The star that a projection is, unless it has a pattern."""
    star = projection.this if isinstance(projection, exp.Column) else projection
    return star if isinstance(star, exp.Star) and not star.args.get("ilike") else None


def left_out_of(star: exp.Star | None) -> set[tuple[str, str]]:
    """The columns that a star leaves out: their table, if it is named, and their name."""
    given = (star.args.get("except_") if star is not None else None) or ()
    return {
        (one.table.lower() if isinstance(one, exp.Column) else "", one.name.lower())
        for one in given
    }


def is_left_out(left_out: set[tuple[str, str]], alias: str, name: str) -> bool:
    return bool({("", name.lower()), (alias.lower(), name.lower())} & left_out)


def is_of_star(column: exp.Column) -> bool:
    """Whether a name stands in EXCLUDE or RENAME, and is no value."""
    node: exp.Expr = column
    while node.parent is not None and not isinstance(node, exp.Select):
        if isinstance(node.parent, exp.Star):
            return node.arg_key in ("except_", "rename")
        node = node.parent
    return False
