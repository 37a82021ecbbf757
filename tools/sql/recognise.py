"""Conditions that are distances: pure.

    abs(a.t - b.t) <= 5             -5 <= b.t - a.t <= 5
    5 > abs(b.t - a.t)              -5 <  b.t - a.t <  5
    b.t between a.t - 5 and a.t     -5 <= b.t - a.t <= 0
    a.t <= b.t + interval 1 hour    -1h <= b.t - a.t
    a.k = b.k                       an equality: a key

A condition is taken apart as a sum: each side of the comparison is columns, once each, plus or
minus, and constants.  It is a distance if exactly two columns are left, of two tables and with
opposite signs.  What is not of this form is None here, and stays a filter.

Where a sum of a column and a constant is compared (`a.t <= b.t + 5`), floats would be rounded
before they are compared, and not in the same way as the difference that the joins compute:
`is_shifted` says so, and the planner decides what to make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from .amounts import Amount, Range, amount_of

Ref = tuple[str, str]
"""A column: the alias of its table, and its name there."""
Resolve = Callable[[exp.Column], Ref | None]

Kind = type[exp.Expr]
_MIRROR: dict[Kind, Kind] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_NEGATED: dict[Kind, Kind] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}


@dataclass(frozen=True, slots=True)
class Distance:
    """``limits`` on ``right - left``; an equality where `is_key`."""

    left: Ref
    right: Ref
    limits: Range
    is_key: bool = False
    is_shifted: bool = False

    def swapped(self) -> Distance:
        """The same with the columns exchanged."""
        limits = self.limits.swapped()
        return Distance(self.right, self.left, limits, self.is_key, self.is_shifted)

    def towards(self, right: str) -> Distance:
        """The same with the column of this table on the right."""
        return self if self.right[0] == right else self.swapped()


@dataclass(slots=True)
class _Sum:
    columns: dict[Ref, int] = field(default_factory=dict)
    constants: list[Amount] = field(default_factory=list)

    def add(self, other: _Sum, sign: int) -> None:
        for ref, count in other.columns.items():
            self.columns[ref] = self.columns.get(ref, 0) + sign * count
        self.constants += [one if sign > 0 else -one for one in other.constants]

    def constant(self) -> Amount | None:
        """The sum of the constants; None where numbers and times are mixed."""
        kinds = {one.is_time for one in self.constants if one.value}
        if len(kinds) > 1:
            return None
        return Amount(sum((one.value for one in self.constants), Fraction(0)), True in kinds)


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions that all must hold."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    elif condition is not None:
        yield condition


def distance_of(condition: exp.Expr, resolve: Resolve) -> Distance | None:
    """The distance that a condition states; None where it states something else."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.Not):
        return _negated(condition.this, resolve)
    if isinstance(condition, exp.Between):
        return _between(condition, resolve)
    if type(condition) in _MIRROR:
        return _compared(type(condition), condition.this, condition.expression, resolve)
    return None


def _negated(condition: exp.Expr, resolve: Resolve) -> Distance | None:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    negated = _NEGATED.get(type(condition))
    if negated is None:
        return None
    return _compared(negated, condition.this, condition.expression, resolve)


def _between(node: exp.Between, resolve: Resolve) -> Distance | None:
    if node.args.get("symmetric"):
        return None
    low = _compared(exp.GTE, node.this, node.args["low"], resolve)
    high = _compared(exp.LTE, node.this, node.args["high"], resolve)
    if isinstance(_bare(node.this), exp.Abs):
        return _abs_between(node, high, resolve)
    if low is None or high is None or {low.left, low.right} != {high.left, high.right}:
        return None
    high = high if high.right == low.right else high.swapped()
    is_shifted = low.is_shifted or high.is_shifted
    return Distance(low.left, low.right, low.limits.meet(high.limits), False, is_shifted)


def _abs_between(node: exp.Between, high: Distance | None, resolve: Resolve) -> Distance | None:
    """``abs(a - b) between 0 and c``: nothing is nearer than 0."""
    low = amount_of(node.args["low"])
    return high if low is not None and low.value <= 0 else None


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _compared(kind: Kind, left: exp.Expr, right: exp.Expr, resolve: Resolve) -> Distance | None:
    left, right = _bare(left), _bare(right)
    if isinstance(right, exp.Abs):
        left, right, kind = right, left, _MIRROR[kind]
    if isinstance(left, exp.Abs):
        return _absolute(kind, left, right, resolve)
    whole = _Sum()
    for side, sign in ((left, 1), (right, -1)):
        part = _sum(side, resolve)
        if part is None:
            return None
        whole.add(part, sign)
    is_key = kind is exp.EQ and isinstance(left, exp.Column) and isinstance(right, exp.Column)
    is_shifted = any(
        isinstance(side, exp.Add | exp.Sub) and not _is_difference(side) for side in (left, right)
    )
    return _of_sum(kind, whole, is_key=is_key, is_shifted=is_shifted)


def _is_difference(node: exp.Expr) -> bool:
    """Whether it is one column minus another, and nothing else."""
    return (
        isinstance(node, exp.Sub)
        and isinstance(_bare(node.this), exp.Column)
        and isinstance(_bare(node.expression), exp.Column)
    )


def _of_sum(kind: Kind, whole: _Sum, *, is_key: bool, is_shifted: bool) -> Distance | None:
    """``columns + constant`` compared with 0."""
    pair, constant = _pair(whole), whole.constant()
    if pair is None or constant is None:
        return None
    right, left = pair  # right - left + constant, compared with 0
    end = -constant
    ranges: dict[Kind, Range] = {
        exp.EQ: Range(end, end),
        exp.LTE: Range(None, end),
        exp.LT: Range(None, end, (False, True)),
        exp.GTE: Range(end, None),
        exp.GT: Range(end, None, (True, False)),
    }
    return Distance(left, right, ranges[kind], is_key, is_shifted)


def _absolute(kind: Kind, node: exp.Abs, other: exp.Expr, resolve: Resolve) -> Distance | None:
    inner, end = _sum(_bare(node.this), resolve), amount_of(other)
    if inner is None or end is None or kind not in (exp.LT, exp.LTE, exp.EQ):
        return None
    pair, constant = _pair(inner), inner.constant()
    if pair is None or constant is None or (kind is exp.EQ and end.value):
        return None
    if constant.value and end.value and constant.is_time != end.is_time:
        return None
    is_open = kind is exp.LT
    is_time = end.is_time or constant.is_time
    lo = Amount(-end.value - constant.value, is_time)
    hi = Amount(end.value - constant.value, is_time)
    is_shifted = not _is_difference(_bare(node.this))
    return Distance(pair[1], pair[0], Range(lo, hi, (is_open, is_open)), False, is_shifted)


def _pair(whole: _Sum) -> tuple[Ref, Ref] | None:
    """The column with +1 and the one with -1, if they are all, of two tables."""
    left = {ref: count for ref, count in whole.columns.items() if count}
    if sorted(left.values()) != [-1, 1]:
        return None
    plus, minus = sorted(left, key=lambda ref: -left[ref])
    return (plus, minus) if plus[0] != minus[0] else None


def _sum(node: exp.Expr, resolve: Resolve) -> _Sum | None:
    """An expression as a sum of columns and constants."""
    node = _bare(node)
    if isinstance(node, exp.Column):
        ref = resolve(node)
        return None if ref is None else _Sum({ref: 1})
    constant = amount_of(node)
    if constant is not None:
        return _Sum(constants=[constant])
    if isinstance(node, exp.Neg):
        inner = _sum(node.this, resolve)
        return None if inner is None else _combined(_Sum(), inner, -1)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _sum(node.this, resolve), _sum(node.expression, resolve)
        if left is None or right is None:
            return None
        return _combined(left, right, -1 if isinstance(node, exp.Sub) else 1)
    return None


def _combined(left: _Sum, right: _Sum, sign: int) -> _Sum:
    left.add(right, sign)
    return left
