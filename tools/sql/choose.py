"""Which join a bestmatch, as-of or range join becomes: tolerances, keys, and what fits.  Pure.

    bestmatch    must be ours; conditions between its sides say which pairs are candidates
    asof         ours where it is equalities and one inequality, inner or left
    range        ours where a bounded distance says exactly what DuckDB would compute; for outer
                 joins all of the ON clause must be taken

A bestmatch join's candidates are the pairs that satisfy the distances and equalities between its
two sides, as in the paper, whose constraints stand in the where clause of the query and of the
subquery.  All other conditions are SQL's: they filter what the join has found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from matwin.hints import did_you_mean
from matwin.storage.errors import InputError

from .amounts import Amount, Range, admits_nothing, tolerance
from .catalog import Catalog
from .conditions import (
    Condition,
    between,
    compared_as,
    is_alike,
    is_comparable,
    is_key,
    is_plain_key,
)
from .dialect import Term
from .errors import Place, wrong
from .names import Scope
from .nodes import Attribute
from .recognise import Distance, Ref
from .tree import Branch, Leaf, Operand

Pair = tuple[Ref, Ref]
Ranges = tuple[dict[Pair, Range], list[Pair], list[Condition], str | None]
"""Distances, keys, the conditions that they are, and why there are no more."""
HOWS = {None: "inner", "": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
KEEPS = {"inner": (), "full": (), "left": (0,), "right": (1,)}
"""Through which side of a bestmatch join a filter may go: best for each left row means that left
rows don't matter to each other, and so on."""
RANGE_KEEPS = {"inner": (0, 1), "left": (0,), "right": (1,), "full": (), "semi": (0,), "anti": (0,)}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a join is made of: attributes, further distances, and keys."""

    on: tuple[Attribute, ...]
    where: tuple[Attribute, ...]
    keys: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class AsofData:
    """What an as-of join is made of."""

    on: Pair
    direction: str
    is_strict: bool
    keys: tuple[Pair, ...]


class Chooser:
    """Chooses the joins of one select."""

    def __init__(
        self, text: str, scope: Scope, catalog: Catalog, where: list[Condition],
        render: Callable[[Place], str],
    ) -> None:  # fmt: skip
        self.text, self.scope, self.catalog, self.where = text, scope, catalog, where
        self.render = render

    # ── bestmatch ────────────────────────────────────────────────────────────────────────────

    def bestmatch(self, join: exp.Join, left: Operand, right: Leaf, *, stays: bool) -> Branch:
        """The bestmatch join of a join clause; `stays`: its conditions are asked again after a
        later join, which may bring rows without a partner."""
        how = HOWS[join.side or None]
        other = right.inputs[0].alias
        terms = [self._term(term, left, other) for term in join.args["on"].expressions]
        keys = [self._using(name, left, other) for name in join.args.get("using") or ()]
        limits: dict[Pair, Range] = {}
        named = {ref for ours, theirs, _, _ in terms for ref in (ours, theirs)}
        for one, found in between(self.where, left.aliases, other):
            self._take(one, found, limits, keys, named)
            one.stays = stays
        on = tuple(
            self._attribute(ours, theirs, limits.pop((ours, theirs), None), name, order, join)
            for ours, theirs, name, order in terms
        )
        rest = [self._attribute(*pair, limits[pair], "", None, join) for pair in limits]
        data = Conditions(on, tuple(rest), tuple(keys))
        self._check_on(on, join)
        return Branch("bestmatch", [left, right], KEEPS[how], (how, data), join)

    def _check_on(self, on: tuple[Attribute, ...], join: exp.Join) -> None:
        pairs = [(one.left, one.right) for one in on]
        for number, pair in enumerate(pairs):
            if pair in pairs[:number]:
                term = join.args["on"].expressions[number]
                raise wrong(self.text, "this attribute stands there twice", term)

    def _take(
        self, one: Condition, found: Distance, limits: dict[Pair, Range],
        keys: list[Pair], named: set[Ref],
    ) -> None:  # fmt: skip
        """Make a condition between the sides a key or a tolerance."""
        fields = self.scope.field(found.left), self.scope.field(found.right)
        pair = (found.left, found.right)
        self._check_units(one, found)
        is_number = is_comparable(found.limits, *fields)
        used = named | {ref for attribute in limits for ref in attribute}
        if found.is_key and is_key(*fields) and not (is_number and set(pair) & used):
            keys.append(pair)
            one.outcome = "key"
        elif is_number:
            met = limits[pair].meet(found.limits) if pair in limits else found.limits
            common = compared_as(*fields)
            assert common is not None
            if admits_nothing(met, common):
                alone = admits_nothing(found.limits, common)
                why = "" if alone else ": this contradicts another condition on the same columns"
                raise wrong(self.text, f"nothing is so near{why}", one.node)
            limits[pair] = met
            one.outcome = "tolerance"

    def _check_units(self, one: Condition, found: Distance) -> None:
        """Refuse lengths of time between numbers, and numbers between times."""
        common = compared_as(self.scope.field(found.left), self.scope.field(found.right))
        if common is None or found.limits.is_time is None or pa.types.is_date(common):
            return
        name, is_clock = f"{found.left[0]}.{found.left[1]}", pa.types.is_temporal(common)
        if found.limits.is_time and not is_clock:
            message = f"{name} is {common}, a number without a unit of time; write a number"
            raise wrong(self.text, message, one.place)
        if is_clock and not found.limits.is_time:
            message = f"{name} is {common}; write a length of time: interval '5 minutes'"
            raise wrong(self.text, message, one.place)

    def _term(self, term: Term, left: Operand, other: str) -> tuple[Ref, Ref, str, Any]:
        name = term.args["order"].name if term.args.get("order") else "mindist"
        order = self.catalog.order(name)
        if order is None:
            known = self.catalog.orders()
            near = did_you_mean(name, known)
            message = (
                f"there is no order {name!r}{near}; there are {', '.join(known)}, and what is "
                f"given by keyword: matwin.sql(..., {name}=function)"
            )
            raise wrong(self.text, message, term.args["order"])
        if term.expression is None:
            pair = self._both(term.this, left, other)
        else:
            pair = self._side(term.this), self._side(term.expression)
        ours, theirs = pair if pair[1][0] == other else (pair[1], pair[0])
        if theirs[0] != other or ours[0] not in left.aliases:
            raise wrong(self.text, f"one of these must be a column of {other}, the other of what "
                        "stands before it", term)  # fmt: skip
        return ours, theirs, name, order

    def _side(self, column: exp.Expr) -> Ref:
        if not isinstance(column, exp.Column):
            message = "a join attribute is a column; compute it in a subquery"
            raise wrong(self.text, message, column)
        found = self.scope.resolve(column)
        if found is None:
            raise self.scope.unknown(column)
        if self.scope.length(column) < len(column.parts):
            message = "a join attribute is a whole column; select the field in a subquery"
            raise wrong(self.text, message, column)
        return found

    def _both(self, column: exp.Expr, left: Operand, other: str) -> Pair:
        """A name that both sides have."""
        if not isinstance(column, exp.Column) or column.table:
            message = "say what it is near to: R.t mindist S.t"
            raise wrong(self.text, message, column)
        found = []
        for aliases in (left.aliases, [other]):
            having = [
                one for one in self.scope.inputs
                if one.alias in aliases and column.name.lower() in one.names
            ]  # fmt: skip
            if len(having) != 1:
                problem = "several tables have" if having else "no table has"
                side = "left" if aliases is not None and other not in aliases else "right"
                raise wrong(self.text, f"{problem} {column.name!r} on the {side}", column)
            found.append((having[0].alias, having[0].names[column.name.lower()]))
        return found[0], found[1]

    def _using(self, name: exp.Expr, left: Operand, other: str) -> Pair:
        return self._both(exp.Column(this=name), left, other)

    def _attribute(
        self, left: Ref, right: Ref, limits: Range | None, name: str, order: Any, at: exp.Expr
    ) -> Attribute:
        found = None
        if limits is not None:
            common = compared_as(self.scope.field(left), self.scope.field(right))
            assert common is not None
            try:
                found = tolerance(limits, common)
            except InputError as error:
                raise wrong(self.text, str(error), at) from None
        return Attribute(left, right, limits, found, name, order)

    # ── as-of ────────────────────────────────────────────────────────────────────────────────

    def asof(self, join: exp.Join, left: Operand, right: Leaf, on: list[Condition]) -> Branch | str:
        """The as-of join of a join clause; text says why DuckDB runs it."""
        how = HOWS.get(join.side or None, "")
        if how not in ("inner", "left") or (join.kind or "INNER") not in ("INNER", "OUTER"):
            return "only inner and left as-of joins are ours"
        other = right.inputs[0].alias
        keys: list[Pair] = []
        order: Distance | None = None
        if join.args.get("using"):
            pairs = [self._using(name, left, other) for name in join.args["using"]]
            keys, last = pairs[:-1], pairs[-1]
            order = Distance(last[0], last[1], _not_after())
        elif not all(any(one is c for c, _ in between(on, left.aliases, other)) for one in on):
            return "its condition is not equalities and one inequality of two columns"
        for _, found in [] if order is not None else between(on, left.aliases, other):
            if found.is_key:
                keys.append((found.left, found.right))
            elif order is not None:
                return "it has more than one inequality"
            else:
                order = found
        return self._asof_of(join, [left, right], how, keys, order)

    def _asof_of(
        self, join: exp.Join, sides: list[Operand], how: str, keys: list[Pair],
        order: Distance | None,
    ) -> Branch | str:  # fmt: skip
        if order is None or order.limits.is_bounded or order.is_shifted:
            return "it has no inequality of two columns"
        fields = [self.scope.field(ref) for ref in (order.left, order.right)]
        if compared_as(*fields) is None or not is_alike(order, *fields):
            return f"{fields[0].type} and {fields[1].type} are no order attributes of ours"
        if not all(is_plain_key(*map(self.scope.field, pair)) for pair in keys):
            return "its equalities are not of a type that a key can have"
        named = [ref for pair in keys for ref in pair]
        if {order.left, order.right} & set(named) or len(set(named)) < len(named):
            return "it names a column twice"
        is_backward = order.limits.hi is not None
        is_strict = order.limits.is_open[1 if is_backward else 0]
        direction = "backward" if is_backward else "forward"
        data = AsofData((order.left, order.right), direction, is_strict, tuple(keys))
        return Branch("asof", sides, (0,), (how, data), join)

    # ── ranges ───────────────────────────────────────────────────────────────────────────────

    def near(
        self, join: exp.Join, left: Operand, right: Leaf, on: list[Condition], *, stays: bool
    ) -> Branch | str | None:
        """The ε-join of a join clause or a comma; None where there is no distance at all, text
        says why DuckDB runs one that has.  `stays`: conditions of the where clause can't be taken,
        because a later join may bring rows without a partner."""
        how = range_how(join)
        if how is None:
            return None
        other = right.inputs[0].alias
        pool = [*on, *self.where] if how == "inner" and not stays else on
        limits, keys, used, why = self._ranges(pool, left, other)
        if not any(one.is_bounded for one in limits.values()):
            return why
        if how != "inner":
            taken = {id(one) for one in used}
            rest = [one for one in on if id(one) not in taken]
            reason = self._outer_rest(how, rest, left, other)
            if reason is not None:
                return reason
            for one in rest:
                leaf = (left if how == "right" else right).takes_filter(one.aliases)
                assert leaf is not None
                self.push(one, leaf)
        return self._near_of(join, left, right, how, limits, keys, used)

    def _near_of(
        self, join: exp.Join, left: Operand, right: Leaf, how: str,
        limits: dict[Pair, Range], keys: list[Pair],
        used: list[Condition],
    ) -> Branch:  # fmt: skip
        pairs = sorted(limits, key=lambda pair: not limits[pair].is_bounded)
        on = tuple(self._attribute(*pair, limits[pair], "", None, join) for pair in pairs)
        for one in used:
            one.outcome = "key" if one.distance is not None and one.distance.is_key else "tolerance"
        data = Conditions(on, (), tuple(keys))
        return Branch("range", [left, right], RANGE_KEEPS[how], (how, data), join)

    def _ranges(self, pool: list[Condition], left: Operand, other: str) -> Ranges:
        limits: dict[Pair, Range] = {}
        keys: list[Pair] = []
        used: list[Condition] = []
        why = None
        found = sorted(between(pool, left.aliases, other), key=lambda both: both[1].is_key)
        for one, distance in found:
            fields = self.scope.field(distance.left), self.scope.field(distance.right)
            pair = (distance.left, distance.right)
            self._check_units(one, distance)
            if distance.is_key:
                named = {ref for both in [*limits, *keys] for ref in both}
                if is_plain_key(*fields) and not set(pair) & named:
                    keys.append(pair)
                    used.append(one)
            elif not (is_comparable(distance.limits, *fields) and is_alike(distance, *fields)):
                why = _unlike(distance, *fields)
            else:
                met = limits[pair].meet(distance.limits) if pair in limits else distance.limits
                common = compared_as(*fields)
                if common is None or met.is_mixed or admits_nothing(met, common):
                    return {}, [], [], "nothing is so near"
                limits[pair] = met
                used.append(one)
        return self._bounded(limits, keys, used, why)

    def _bounded(
        self, limits: dict[Pair, Range], keys: list[Pair],
        used: list[Condition], why: str | None,
    ) -> Ranges:  # fmt: skip
        """Without the half-open distances of floats: NaN is larger than all numbers in DuckDB."""
        for pair in [*limits]:
            common = compared_as(*(self.scope.field(ref) for ref in pair))
            if not limits[pair].is_bounded and str(common) == "double":
                del limits[pair]
                used = [
                    one for one in used
                    if one.distance is None
                    or {one.distance.left, one.distance.right} != set(pair)
                ]  # fmt: skip
                why = "one end of a distance of floats is open"
        return limits, keys, used, why

    def _outer_rest(self, how: str, rest: list[Condition], left: Operand, other: str) -> str | None:
        """Why the rest of an ON clause can't go below an outer join."""
        wanted = {"left": [other], "semi": [other], "anti": [other], "right": left.aliases}
        for one in rest:
            is_below = (
                how in wanted and bool(one.aliases) and one.is_movable
                and one.aliases <= set(wanted[how])
                and (how != "right" or left.takes_filter(one.aliases) is not None)
            )  # fmt: skip
            if not is_below:
                return "its condition has a part that is neither a distance nor a key"
        return None

    def push(self, one: Condition, leaf: Leaf) -> None:
        """Make a condition a filter below the join."""
        leaf.filters.append((self.render(one.place), one.refs))
        one.outcome = "below"


def range_how(join: exp.Join) -> str | None:
    """What an ε-join calls this kind of join; None where it has no such join."""
    if join.args.get("using") or join.method:
        return None
    kind, side = (join.kind or "").upper(), (join.side or "").upper()
    if kind in ("SEMI", "ANTI"):
        return kind.lower() if not side or side == "LEFT" else None
    if kind not in ("", "INNER", "OUTER", "CROSS"):
        return None
    return HOWS.get(side or None)


def _not_after() -> Range:
    return Range(None, Amount(Fraction(0)))


def _unlike(distance: Distance, left: Any, right: Any) -> str:
    if str(left.type) == str(right.type) == "double":
        return (
            "floats are rounded in a sum with a constant; write a.x - b.x between -5 and 5, or "
            "abs(a.x - b.x) <= 5"
        )
    return f"{left.type} and {right.type} can't be compared exactly as here"
