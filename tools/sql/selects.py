"""One select with joins of ours: what they are, and how the rest of the select is rewritten.

select a.x, avg(b.y) from temp a bestmatch join hum b on … where abs(…) <= 5 and b.y > 3 …
  items     temp a; bestmatch join hum b
  chosen    Branch(bestmatch, [Leaf a, Leaf b])         `choose.py`, `windows.py`
  pushed    conditions on one leaf, where that means the same
  emitted   a part of the plan, called __matwin_3
  edited    select __matwin_3."a.x" AS "x", avg(__matwin_3."b.y")
            from __matwin_3 where true and __matwin_3."b.y" > 3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from .binding import Binding, is_comma, items_of
from .choose import Chooser
from .conditions import Condition, conditions_of
from .dialect import BESTMATCH, WINDOWS, Windows
from .emit import Emitter
from .errors import Place, wrong
from .names import Declined, Input, Scope
from .nodes import Note, Scan
from .recognise import Ref
from .rewrite import Rewriter, is_left_out, is_of_star, left_out_of, star_of
from .spread import Spread
from .tree import Branch, Leaf, Operand
from .windows import WindowChooser

if TYPE_CHECKING:
    from .planner import Planner

COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


@dataclass(slots=True)
class Chosen:
    """Joins of ours, how many items of the from clause they are, and what is left of ON clauses."""

    operand: Operand
    taken: list[exp.Expr]
    rest: list[exp.Expr]
    residue: list[Condition] = field(default_factory=list)


class SelectPlanner:
    """Plans the joins of one select."""

    def __init__(self, planner: Planner, select: exp.Select) -> None:
        self.planner, self.select, self.text = planner, select, planner.text
        self.names: Binding
        self.where: list[Condition] = []
        self.on: list[Condition] = []
        self.spread = Spread(self)

    @property
    def items(self) -> list[exp.Expr]:
        """The from clause."""
        return self.names.items

    @property
    def inputs(self) -> list[Input | None]:
        """The tables of the from clause, as far as they are known."""
        return self.names.inputs

    @property
    def scope(self) -> Scope:
        """The tables and what they have."""
        return self.names.scope

    def plan(self) -> None:
        """Plan the joins, if there are any for us."""
        if not self._is_ours():
            return
        try:
            self._plan()
        except Declined as declined:
            if self._must_be_ours():
                message = f"beside a join of MatWin's this can't be followed: {declined.why}"
                raise wrong(self.text, message, declined.at or self.select) from None
            self.planner.notes.append(Note("duckdb", "join", declined.why))

    def _plan(self) -> None:
        self.names = Binding(self.planner, self.select)
        windows = self.select.args.get(WINDOWS)
        clause = self.select.args.get("where")
        self.where = conditions_of(
            clause.this if clause else None, self.names.owner, self.names.whole
        )
        chosen = self._windowed(windows) if windows else self._chain()
        self._edit_lengths()
        if isinstance(chosen.operand, Leaf):
            return
        self._check(chosen)
        self._push_down(chosen)
        needed = self._needed(chosen)
        part = Emitter(self.planner, self.scope, needed).part(chosen.operand)
        name = self.planner.new_name()
        self.planner.parts[name] = part
        Rewriter(self, chosen, name).edit()
        self._tell(chosen)

    def _must_be_ours(self) -> bool:
        """Whether DuckDB could not run it."""
        joins = [item for item in items_of(self.select) if isinstance(item, exp.Join)]
        return bool(self.select.args.get(WINDOWS)) or any(one.kind == BESTMATCH for one in joins)

    def _check(self, chosen: Chosen) -> None:
        """Decline what would not mean the same."""
        if self.planner.has_numbers:
            raise Declined("a column is named by its number", self.select)
        self._check_outer()
        for one in chosen.residue:
            if one.is_after and not one.is_own:
                raise Declined("a join's condition speaks of an outer query", one.node)
        for leaf in chosen.operand.leaves():
            for cte in self.planner.volatile_ctes(leaf.items):
                why = f"{cte.alias} is read several times and has other rows each time"
                raise Declined(why, cte)

    def _check_outer(self) -> None:
        """Decline what is written anew while a query around, or within, has yet to change it."""
        for star in self.select.find_all(exp.Star):
            column = star.parent
            is_inner = star.find_ancestor(exp.Select) is not self.select
            if is_inner and isinstance(column, exp.Column) and self.scope.input_of(column.table):
                raise Declined("an inner query has a star of a table that is joined here", column)
        for projection in self.select.expressions:
            whole = star_of(projection)
            if projection.find(exp.Columns) or (whole is not None and whole.args.get("replace")):
                for column in projection.find_all(exp.Column):
                    if not is_of_star(column) and self.names.is_outer(column):
                        raise Declined("several columns with one of an outer query", column)

    def _is_ours(self) -> bool:
        """Whether there may be a join for us."""
        joins = [item for item in items_of(self.select) if isinstance(item, exp.Join)]
        if self._must_be_ours():
            return True
        clauses = [self.select.args.get("where"), *(join.args.get("on") for join in joins)]
        compares = any(one.find(*COMPARISONS) for one in clauses if one is not None)
        return bool(joins) and (compares or any(join.method == "ASOF" for join in joins))

    # ── choice ───────────────────────────────────────────────────────────────────────────────

    def _chain(self) -> Chosen:
        """Joins from left to right, as far as they are for us."""
        render = self.planner.naming.rendered
        chooser = Chooser(self.text, self.scope, self.planner.catalog, self.where, render)
        self._check_commas()
        items, inputs = self._ordered()
        first = inputs[0]
        if first is None:
            self._refuse_unknown(items)
            return Chosen(Leaf([], []), [], items)
        operand: Operand = Leaf([first], [items[0]])
        chosen = Chosen(operand, [items[0]], [])
        for number, join in enumerate(items[1:], 1):
            assert isinstance(join, exp.Join)
            given = inputs[number]
            stays = not all(map(keeps_left, items[number + 1 :]))
            if chosen.residue and not keeps_left(join):
                # What is left of an ON clause is asked after all of our joins: not after this one.
                self._refuse_unknown(items[number:])
                break
            made, residue = self._one(chooser, join, operand, given, stays=stays)
            if made is not None:
                chosen = Chosen(
                    made, items[: number + 1], items[number + 1 :],
                    [*chosen.residue, *residue],
                )  # fmt: skip
                operand = made
            elif isinstance(operand, Branch) or given is None:
                self._refuse_unknown(items[number:])
                break
            else:
                operand = self._with(operand, join, given)
        if not isinstance(chosen.operand, Branch):
            chosen = Chosen(operand, [], items)
        self._refuse_asof(chosen.rest)
        return chosen

    def _ordered(self) -> tuple[list[exp.Expr], list[Input | None]]:
        """The items in an order in which each is connected with those before it, if all of them
        are joined by commas: DuckDB would choose its own order too."""
        items, inputs = self.items, self.inputs
        if len(items) < 3 or None in inputs or not all(map(_is_product, items[1:])):
            return items, inputs
        order, waiting = [0], list(range(1, len(items)))
        while waiting:
            there = {one.alias for n in order if (one := inputs[n]) is not None}
            following = min(waiting, key=lambda n: (self._connection(n, there), n))
            waiting.remove(following)
            order.append(following)
        return [items[n] for n in order], [inputs[n] for n in order]

    def _connection(self, number: int, there: set[str]) -> int:
        """0 where a distance connects an item with others, 1 for any condition, 2 for none."""
        given = self.inputs[number]
        assert given is not None
        ranks = [
            int(one.distance is None or one.distance.is_key)
            for one in self.where
            if given.alias in one.aliases
            and one.aliases <= there | {given.alias} and len(one.aliases) > 1
        ]  # fmt: skip
        return min(ranks, default=2)

    def _check_commas(self) -> None:
        """Decline where a comma stands before a join that brings rows without a partner: the join
        comes first, and `a, b right join c` has no such rows of `a`."""
        behind, seen = False, set[str]()
        for item, given in zip(self.items, self.inputs, strict=True):
            behind = behind or is_comma(item)
            seen = set() if is_comma(item) else seen
            seen |= {given.alias} if given is not None else set()
            if item.args.get("method") == "ASOF":
                self._check_seen(item, seen)
            if behind and not keeps_left(item):
                what = "bestmatch" if item.args.get("kind") == BESTMATCH else "outer"
                why = f"begin with this {what} join, and cross join what stands before the comma"
                raise Declined(why, item)
            if item.args.get("method") == "POSITIONAL":
                raise Declined("rows are joined by their position", item)

    def _check_seen(self, join: exp.Expr, seen: set[str]) -> None:
        """Decline an as-of join by columns that it does not see: those before a comma."""
        on = join.args.get("on")
        for column in on.find_all(exp.Column) if on is not None else ():
            ref = self.names.owner(column)
            if ref is not None and ref[0] not in seen:
                raise Declined("an as-of join speaks of a table before a comma", column)

    def _one(
        self, chooser: Chooser, join: exp.Join, left: Operand, given: Input | None, *, stays: bool
    ) -> tuple[Branch | None, list[Condition]]:
        """The join of ours that a join clause is, and what is left of its ON clause."""
        if given is None:
            return None, []
        right = Leaf([given], [join.this])
        if join.kind == BESTMATCH:
            return chooser.bestmatch(join, left, right, stays=stays), []
        on = conditions_of(join.args.get("on"), self.names.owner, self.names.whole)
        self.on += on
        made: Branch | str | None
        if join.method == "ASOF":
            made = chooser.asof(join, left, right, on)
        else:
            made = chooser.near(join, left, right, on, stays=stays)
        if isinstance(made, str):
            kind = "as-of join" if join.method == "ASOF" else "range join"
            self.planner.notes.append(Note("duckdb", f"{kind} with {given.alias}", made))
        if not isinstance(made, Branch):
            return None, []
        residue = [one for one in on if one.outcome is None and made.kind == "range"]
        return made, residue

    def _with(self, operand: Leaf, join: exp.Join, given: Input) -> Leaf:
        """Another table that DuckDB joins first."""
        is_inner = not join.side and (join.kind or "INNER") in ("INNER", "CROSS")
        is_outer = operand.is_outer or not is_inner or bool(join.method)
        return Leaf([*operand.inputs, given], [*operand.items, join], [], is_outer)

    def _edit_lengths(self) -> None:
        """Let DuckDB understand the distance of two times in conditions that are left to it."""
        planner = self.planner
        for node in self.select.find_all(exp.Abs):
            if self._is_length(node.this):
                place = Place(node.meta["start"], node.meta["end"])
                planner.edits.replace(place, planner.target.abs_name)
                planner.naming.replace(place, planner.target.abs_name)

    def _is_length(self, node: exp.Expr) -> bool:
        """Whether it is the difference of two times."""
        while isinstance(node, exp.Paren):
            node = node.this
        sides = (node.this, node.expression) if isinstance(node, exp.Sub) else ()
        refs = [self.names.whole(one) for one in sides if isinstance(one, exp.Column)]
        return len(refs) == 2 and all(
            ref is not None and pa.types.is_timestamp(self.scope.field(ref).type) for ref in refs
        )

    def _refuse_unknown(self, items: list[exp.Expr]) -> None:
        """Refuse a bestmatch join that can't be reached."""
        for item in items:
            if isinstance(item, exp.Join) and item.kind == BESTMATCH:
                message = (
                    "what stands before this bestmatch join can't be its left side; put it in a "
                    "subquery: from (select … ) a bestmatch join …"
                )
                raise wrong(self.text, message, item)

    def _refuse_asof(self, items: list[exp.Expr]) -> None:
        """Refuse an as-of join that is left to an engine without one."""
        for item in items if not self.planner.target.has_asof else ():
            if isinstance(item, exp.Join) and item.method == "ASOF":
                called = f"as-of join with {item.this.alias_or_name}"
                why = next((one.why for one in self.planner.notes if one.text == called),
                           "another join stands between it and those of MatWin")  # fmt: skip
                raise wrong(self.text, f"this {called} can't be run here: {why}", item)

    def _windowed(self, windows: Windows) -> Chosen:
        """The window join of the select."""
        sources: dict[str, object] = {}
        for one in self.scope.inputs:
            part = self.planner.parts.get(self.planner.scans.get(id(one.item), ""))
            sources[one.alias] = part.source if isinstance(part, Scan) else None
        chooser = WindowChooser(self.text, self.scope, self.planner.catalog, windows, sources)
        names = chooser.streams()
        self._check_connected(names, sources)
        taken = [item for item, one in zip(self.items, self.inputs, strict=True)
                 if one is not None and one.alias in names]  # fmt: skip
        on: list[Condition] = []
        for item in self.items:
            if isinstance(item, exp.Join):
                self._check_plain(item)
                if item in taken:
                    on += conditions_of(item.args.get("on"), self.names.owner, self.names.whole)
        self.on = on
        leaves = [Leaf([one], [one.item]) for one in self.scope.inputs if one.alias in names]
        branch = chooser.branch(leaves, [*self.where, *on])
        rest = [item for item in self.items if not any(item is one for one in taken)]
        return Chosen(branch, taken, rest, [one for one in on if one.outcome is None])

    def _check_connected(self, names: list[str], sources: Mapping[str, object]) -> None:
        """Refuse a stream without a window, as a window join does: its rows would be kept for
        ever."""
        for one in self.scope.inputs:
            if one.alias not in names and sources[one.alias] is not None:
                message = (
                    f"{one.alias} has no window, so its rows would have to be kept for ever; write "
                    f"window ({names[-1]}, {one.alias}) = … as well, or put a table that does not "
                    f"change in brackets: (select * from …) {one.alias}"
                )
                raise wrong(self.text, message, one.item)

    def _check_plain(self, join: exp.Join) -> None:
        if join.side or join.method or join.kind not in ("", None, "INNER", "CROSS"):
            message = "streams with windows are joined by commas, or by inner joins"
            raise wrong(self.text, message, join)
        if join.args.get("using"):
            message = "write the keys as conditions here: where a.k = b.k"
            raise wrong(self.text, message, join)

    # ── below and after ──────────────────────────────────────────────────────────────────────

    def _push_down(self, chosen: Chosen) -> None:
        """Let filters go below the joins where that means the same."""
        if any(
            isinstance(item, exp.Join) and item.side in ("RIGHT", "FULL") for item in chosen.rest
        ):
            return  # rows without a partner come later, and must be filtered then
        render = self.planner.naming.rendered
        chooser = Chooser(self.text, self.scope, self.planner.catalog, self.where, render)
        for one in [*self.where, *chosen.residue]:
            if one.outcome is None and one.is_movable:
                leaf = chosen.operand.takes_filter(one.aliases)
                if leaf is not None:
                    chooser.push(one, leaf)

    def _needed(self, chosen: Chosen) -> set[Ref]:
        """The columns that the rest of the select needs."""
        found = set(self.spread.refs(chosen))
        for one in self.scope.merged:
            inputs = (self.scope.input_of(alias) for alias in one.aliases)
            found |= {(table.alias, table.names[one.name]) for table in inputs if table is not None}
        for column in self.columns(chosen):
            ref = self.names.owner(column)
            if ref is not None:
                found.add(ref)
        for projection in self.select.expressions:
            left_out = left_out_of(star_of(projection))
            found |= {
                ref for ref in self.scope.star(self.starred(projection))
                if not is_left_out(left_out, *ref)
            }  # fmt: skip
        return found

    def columns(self, chosen: Chosen) -> Iterator[exp.Column]:
        """The names outside of what the joins have taken."""
        gone = {id(item) for item in chosen.taken}
        conditions = [*self.where, *chosen.residue]
        gone |= {id(one.node) for one in conditions if not one.is_after}
        kept = {id(one.node) for one in chosen.residue if one.outcome is None}
        windows = self.select.args.get(WINDOWS)
        for column in self.select.find_all(exp.Column):
            if is_of_star(column):
                continue
            node: exp.Expr | None = column
            while node is not None and node is not self.select:
                if id(node) in kept:
                    yield column
                    break
                if id(node) in gone or node is windows:
                    break
                node = node.parent
            else:
                yield column

    def starred(self, projection: exp.Expr) -> list[Input]:
        """The inputs whose columns a star stands for."""
        star = star_of(projection)
        if star is None:
            return []
        table = projection.table if isinstance(projection, exp.Column) else ""
        if not table:
            return self.scope.visible
        found = self.scope.input_of(table)
        return [] if found is None or found.is_hidden else [found]

    def _tell(self, chosen: Chosen) -> None:
        for one in [*self.where, *chosen.residue]:
            text = " ".join(self.text[one.place.start : one.place.end + 1].split())
            self.planner.notes.append(Note(one.outcome or "after", text))


def _is_product(item: exp.Expr) -> bool:
    """Whether an item is joined by a comma, or by a cross join."""
    return is_comma(item) or item.args.get("kind") == "CROSS"


def keeps_left(item: exp.Expr) -> bool:
    """Whether a filter on what stands before a join means the same before and after it."""
    side = (item.args.get("side") or "").upper()
    if item.args.get("kind") == BESTMATCH:
        return side == "LEFT"
    return side not in ("RIGHT", "FULL")
