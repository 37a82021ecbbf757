"""Conditions of a select, one by one, and what may become of each.  Pure.

    where a.k = b.k and abs(a.t - b.t) <= 5 and a.x > 3 and f(a, b)
          └ key       └ tolerance             └ below     └ after

* Between two inputs a condition may be a key or a tolerance of their join.
* Of one input it may go below the join, where the join's meaning allows that.
* What is left is a filter on the joined rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from matwin.attributes import common_type, keys_of
from matwin.storage.columns import is_measurable
from matwin.storage.decimals import digits_of
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError

from .amounts import UNITS, Range
from .dialect import span_of
from .errors import Place
from .recognise import Distance, Ref, conjuncts, distance_of

DIGITS_MAX = 18
"""Numbers of so many digits fit 64 bits."""
Owner = Callable[[exp.Column], Ref | None]
VOLATILE = frozenset(
    {"random", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval",
     "now", "rand", "error"}
)  # fmt: skip
"""Functions that a filter may not be moved with: they differ from call to call, or fail."""


@dataclass(slots=True)
class Condition:
    """One condition: the inputs it speaks of, the distance it states, what became of it."""

    node: exp.Expr
    place: Place
    refs: frozenset[Ref]
    distance: Distance | None
    is_movable: bool
    is_own: bool
    """Whether it speaks of this select's tables only."""
    outcome: str | None = None
    """What it has become: None is a filter on the joined rows."""
    stays: bool = False
    """Whether it filters the joined rows all the same."""

    @property
    def is_after(self) -> bool:
        """Whether it is a filter on the joined rows."""
        return self.outcome is None or self.stays

    @property
    def aliases(self) -> frozenset[str]:
        """The inputs that it speaks of."""
        return frozenset(alias for alias, _ in self.refs)


def conditions_of(
    clause: exp.Expr | None, owner: Owner, whole: Owner
) -> list[Condition]:  # fmt: skip
    """The conditions of a clause; `owner` tells the column of an input that a name is, `whole`
    only where no field within it is meant."""
    return [_condition(one, owner, whole) for one in conjuncts(clause)]


def _condition(node: exp.Expr, owner: Owner, whole: Owner) -> Condition:
    refs = [owner(column) for column in node.find_all(exp.Column)]
    known = frozenset(ref for ref in refs if ref is not None)
    is_movable = None not in refs and _is_movable(node)
    distance = distance_of(node, whole)
    return Condition(node, span_of(node), known, distance, is_movable, None not in refs)


def _is_movable(node: exp.Expr) -> bool:
    if node.find(exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter):
        return False
    return is_steady(node)


def is_steady(node: exp.Expr) -> bool:
    """Whether an expression or a query gives the same each time."""
    if node.find(exp.Rand, exp.TableSample):
        return False
    names = {one.name.lower() for one in node.find_all(exp.Anonymous)}
    names |= {
        one.sql_name().lower()
        for one in node.find_all(exp.Func)
        if not isinstance(one, exp.Anonymous)
    }
    return not names & VOLATILE


def between(
    conditions: Iterable[Condition], left: Iterable[str], right: str
) -> Iterator[tuple[Condition, Distance]]:
    """The distances between these inputs, as `right - left`."""
    lefts = set(left)
    for one in conditions:
        if one.outcome is not None or one.distance is None:
            continue
        found = one.distance.towards(right)
        if found.right[0] == right and found.left[0] in lefts:
            yield one, found


def is_comparable(limits: Range, left: pa.Field, right: pa.Field) -> bool:
    """Whether a range of differences makes sense for two columns."""
    common = compared_as(left, right)
    if common is None or limits.is_mixed:
        return False
    if limits.is_time is None:
        return True
    if limits.is_time:
        return bool(pa.types.is_temporal(common))
    return not pa.types.is_temporal(common) or bool(pa.types.is_date(common))


def compared_as(left: pa.Field, right: pa.Field) -> pa.DataType | None:
    """The type in which two columns have a distance; None where they have none."""
    ours, theirs = (one.with_type(plain_type(one.type)) for one in (left, right))
    if not (is_measurable(ours.type) and is_measurable(theirs.type)):
        return None
    try:
        return common_type(ours, theirs)
    except InputError:
        return None


def is_key(left: pa.Field, right: pa.Field) -> bool:
    """Whether two columns can be an equality key."""
    try:
        keys_of(pa.schema([left]), pa.schema([right]), (left.name, right.name))
    except InputError:
        return False
    return True


def is_alike(distance: Distance, left: pa.Field, right: pa.Field) -> bool:
    """Whether a tolerance says exactly what DuckDB would compute of the condition.

    Floats are rounded in a sum with a constant and in 32 bits, and a day is not always 24 hours
    where there are time zones.
    """
    ours, theirs = plain_type(left.type), plain_type(right.type)
    tests = pa.types
    if tests.is_integer(ours) and tests.is_integer(theirs):
        return not _mixes_signs(ours, theirs)
    if tests.is_decimal(ours) or tests.is_decimal(theirs):
        return _fit_together(ours, theirs)
    if ours == theirs == pa.float64():
        return not distance.is_shifted
    if tests.is_timestamp(ours) and tests.is_timestamp(theirs):
        return not (distance.is_shifted and ours.tz is not None and _is_days(distance.limits))
    return bool(tests.is_date32(ours) and tests.is_date32(theirs))


def _fit_together(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether all values of two types of decimals fit 64 bits with as many digits as either has;
    those that don't are refused, which DuckDB would not do."""
    types = [left, right]
    if not all(pa.types.is_decimal(one) or pa.types.is_integer(one) for one in types):
        return False
    digits = max(map(digits_of, types))
    return all(_whole_digits(one) + digits <= DIGITS_MAX for one in types)


def _whole_digits(data_type: pa.DataType) -> int:
    if pa.types.is_decimal(data_type):
        return int(data_type.precision - data_type.scale)
    return len(str(2**data_type.bit_width))


def _mixes_signs(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values may not fit 64 bits together, which DuckDB has more than."""
    types = [left, right]
    return pa.uint64() in types and any(pa.types.is_signed_integer(one) for one in types)


def _is_days(limits: Range) -> bool:
    ends = [end for end in (limits.lo, limits.hi) if end is not None]
    return any(abs(end.value) >= UNITS["day"] for end in ends)


def is_plain_key(left: pa.Field, right: pa.Field) -> bool:
    """Whether equality of two columns means the same to a join and to DuckDB: NaN equals NaN only
    there."""
    ours, theirs = plain_type(left.type), plain_type(right.type)
    floats = [pa.types.is_floating(one) for one in (ours, theirs)]
    return not any(floats) and not _mixes_signs(ours, theirs) and is_key(left, right)
