"""What is compared: join attributes and equality keys, each with one type for both sides.

    left column   right column          compared as
    int32         int64                 int64, exactly
    timestamp[s]  timestamp[ns]         timestamp[ns]: the finer unit, never with loss
    float32       float64               float64
    int64         float64               float64, an error beyond 2^53
    decimal(9,2)  decimal(38,4)         counts of the fourth digit in 64 bits, an error beyond
    decimal       int32                 the same
    aware         naive                 never: an error

The output keeps the columns as they came; only the comparison sees the common type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from matwin.storage.columns import is_measurable, is_numeric
from matwin.storage.decimals import compared_type, digits_of
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension, Key
from matwin.storage.names import listed
from matwin.storage.units import Counts, Tolerance

from .bounds import FLOAT_LIMIT, INT_LIMIT, bare_tolerance
from .hints import did_you_mean
from .orders import Order, indifferent, min_distance, order_of

UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A join attribute: ``lo <= right - left <= hi`` (both None: unconstrained), and its order.

    `type` is what both sides are compared as; `is_number` is False for values without a distance,
    which only a function or a black-box order understands.
    """

    left: str
    right: str
    type: pa.DataType
    is_number: bool
    lo: int | float | None
    hi: int | float | None
    order: Order
    is_nonzero: bool = False
    """Whether equal values are out."""

    @property
    def name(self) -> str:
        """What the attribute is called: its name on the left."""
        return self.left

    @property
    def is_constrained(self) -> bool:
        """Whether it has a tolerance."""
        return self.lo is not None

    @property
    def limits(self) -> Counts | None:
        """Its tolerance in the unit of the comparison."""
        return None if self.lo is None or self.hi is None else Counts(self.lo, self.hi)

    @property
    def reach(self) -> tuple[int | float, int | float]:
        """Its tolerance, infinite where it has no limit."""
        limit = FLOAT_LIMIT if pa.types.is_floating(self.type) else INT_LIMIT
        lo = -math.inf if self.lo is None or self.lo <= -limit else self.lo
        return lo, math.inf if self.hi is None or self.hi >= limit else self.hi

    @property
    def is_limited(self) -> bool:
        """Whether it has a tolerance on both sides."""
        lo, hi = self.reach
        return lo > -math.inf and hi < math.inf

    @property
    def is_measured(self) -> bool:
        """Whether it gets a distance column."""
        return self.order.measure is not None and self.order.measure.is_shown

    @property
    def distance_type(self) -> pa.DataType | None:
        """The type of its distance column; None: its order has no distance."""
        measure = self.order.measure
        return None if measure is None else measure.distance_type(self.type)

    def swapped(self) -> Attribute:
        """The same attribute with the sides exchanged."""
        lo = None if self.hi is None else -self.hi
        hi = None if self.lo is None else -self.lo
        return replace(self, left=self.right, right=self.left, lo=lo, hi=hi)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An equality key."""

    left: str
    right: str
    type: pa.DataType

    def swapped(self) -> KeyPair:
        """The same key with the sides exchanged."""
        return replace(self, left=self.right, right=self.left)


def attributes_of(
    left: pa.Schema,
    right: pa.Schema,
    on: Mapping[Any, Tolerance],
    orders: Mapping[Any, object] | None = None,
) -> tuple[Attribute, ...]:
    """The join attributes, in the order in which they were given."""
    _check_on(on)
    if orders is not None and not isinstance(orders, Mapping):
        raise InputError(f'orders={orders!r}: write for example orders={{"t": "youngest"}}')
    orders = dict(orders or {})
    found = []
    for names, tolerance in on.items():
        pair = _pair(names, "on")
        order = order_of(orders.pop(names, min_distance), pair[0])
        found.append(_attribute(left, right, pair, tolerance, order))
    if orders:
        raise InputError(f"orders= names {list(orders)}, which on= does not; it has {list(on)}")
    return tuple(found)


def _check_on(on: object) -> None:
    if isinstance(on, str):
        raise InputError(f"on={on!r}: say how far apart, such as on={{{on!r}: '10min'}}, or None")
    if not isinstance(on, Mapping) or not on:
        raise InputError('on= names no column; write for example on={"t": "10min", "x": 100}')


def filters_of(
    left: pa.Schema, right: pa.Schema, where: Mapping[Any, Any] | None
) -> tuple[Attribute, ...]:
    """Attributes that only say which pairs are eligible."""
    if not where:
        return ()
    if not isinstance(where, Mapping):
        raise InputError(f'where={where!r}: write for example where={{"id": matwin.nonzero()}}')
    return tuple(
        _attribute(left, right, _pair(names, "where"), tolerance, indifferent)
        for names, tolerance in where.items()
    )


def keys_of(left: pa.Schema, right: pa.Schema, by: object) -> tuple[KeyPair, ...]:
    """The equality keys: a name, a pair of names, or a list of either."""
    if by is None:
        return ()
    names = [by] if isinstance(by, str | tuple) else by
    if not isinstance(names, Sequence):
        raise InputError(f"by={by!r}: give a column's name, or a list of names or pairs of names")
    return tuple(_key(left, right, _pair(name, "by")) for name in names)


def _pair(names: object, where: str) -> tuple[str, str]:
    if isinstance(names, str):
        return names, names
    if isinstance(names, tuple) and len(names) == 2 and all(isinstance(n, str) for n in names):
        return names
    raise InputError(f"{where}={names!r}: give a column's name, or a pair (left name, right name)")


def _field(schema: pa.Schema, name: str, side: str) -> pa.Field:
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        missing = f"is not there{did_you_mean(name, schema.names)}"
        problem = "stands there twice" if places else missing
        raise InputError(
            f"{side}: column {name!r} {problem}; the columns are {listed(schema.names)}"
        )
    field = schema.field(places[0])
    return field.with_type(plain_type(field.type))


def _attribute(
    left: pa.Schema, right: pa.Schema, names: tuple[str, str], tolerance: Tolerance, order: Order
) -> Attribute:
    ours, theirs = known(_field(left, names[0], "left"), _field(right, names[1], "right"))
    order.check(ours, theirs)
    if not _has_distance(ours, theirs, tolerance, order):
        if tolerance is not None:
            wrong, side = (theirs, "right") if is_measurable(ours.type) else (ours, "left")
            raise InputError(
                f"{side}: column {wrong.name!r} is {wrong.type}; a join attribute with a tolerance "
                "must be a number, a time, a date or a duration"
            )
        if order.needs_numbers:
            raise InputError(
                f"column {names[0]!r} is {ours.type} and {theirs.type}: {order!r} needs numbers or "
                "times; give another order in orders="
            )
        return Attribute(*names, ours.type, False, None, None, order)
    common = common_type(ours, theirs)
    field = pa.field(names[0], common)
    bare, is_nonzero = bare_tolerance(tolerance, field)
    bound = Dimension.of(field, bare)
    return Attribute(*names, common, True, bound.lo, bound.hi, order, is_nonzero)


def _has_distance(ours: pa.Field, theirs: pa.Field, tolerance: Tolerance, order: Order) -> bool:
    """Whether both are compared as numbers.  Decimals that only a black box looks at stay what
    they are."""
    if not (is_measurable(ours.type) and is_measurable(theirs.type)):
        return False
    is_plain = is_numeric(ours.type) and is_numeric(theirs.type)
    return is_plain or tolerance is not None or order.black_box is None


def _key(left: pa.Schema, right: pa.Schema, names: tuple[str, str]) -> KeyPair:
    ours, theirs = known(_field(left, names[0], "left"), _field(right, names[1], "right"))
    Key.of(ours)
    Key.of(theirs)
    if is_numeric(ours.type) and is_numeric(theirs.type):
        return KeyPair(*names, common_type(ours, theirs))
    if _family(ours.type) != _family(theirs.type):
        raise InputError(
            f"by: left {ours.name!r} is {ours.type} and right {theirs.name!r} is {theirs.type}; "
            "cast one of them"
        )
    return KeyPair(*names, ours.type)


def known(*fields: pa.Field) -> tuple[pa.Field, ...]:
    """The fields, those without a type in the type of the first that has one.

    Arrow has no type for a column of nothing but nulls, such as a frame's without rows: it matches
    nothing, and goes with everything.

    >>> [str(field.type) for field in known(pa.field("k", pa.null()), pa.field("k", pa.int8()))]
    ['int8', 'int8']
    """
    types = [field.type for field in fields if not pa.types.is_null(field.type)]
    return tuple(
        field.with_type(types[0]) if types and pa.types.is_null(field.type) else field
        for field in fields
    )


def _family(data_type: pa.DataType) -> str:
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "text"
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return "bytes"
    return str(data_type)


def common_type(left: pa.Field, right: pa.Field) -> pa.DataType:
    """The type in which two columns are compared without loss."""
    a, b = left.type, right.type
    tests = pa.types
    if tests.is_decimal(a) or tests.is_decimal(b):
        if not all(tests.is_decimal(one) or tests.is_integer(one) for one in (a, b)):
            raise _incomparable(left, right)
        return compared_type(max(digits_of(a), digits_of(b)))
    if tests.is_floating(a) or tests.is_floating(b):
        if _is_time(a) or _is_time(b):
            raise _incomparable(left, right)
        return pa.float64()
    if tests.is_integer(a) and tests.is_integer(b):
        return pa.uint64() if a == b == pa.uint64() else pa.int64()
    if tests.is_timestamp(a) and tests.is_timestamp(b):
        if (a.tz is None) != (b.tz is None):
            raise InputError(
                f"left {left.name!r} is {a} and right {right.name!r} is {b}: one has a time zone "
                "and the other has none; give both a time zone or neither"
            )
        return pa.timestamp(_finer(a, b), a.tz)
    if tests.is_duration(a) and tests.is_duration(b):
        return pa.duration(_finer(a, b))
    if tests.is_time(a) and tests.is_time(b):
        unit = _finer(a, b)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if tests.is_date(a) and tests.is_date(b):
        return a if a == b else pa.date64()
    times = [t for t in (a, b) if tests.is_timestamp(t)]
    if times and (tests.is_date(a) or tests.is_date(b)) and times[0].tz is None:
        return times[0]
    raise _incomparable(left, right)


def _is_time(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(data_type))


def _finer(a: pa.DataType, b: pa.DataType) -> str:
    return UNITS[max(UNITS.index(a.unit), UNITS.index(b.unit))]


def _incomparable(left: pa.Field, right: pa.Field) -> InputError:
    return InputError(
        f"left {left.name!r} is {left.type} and right {right.name!r} is {right.type}: "
        "they can't be compared; cast one of them"
    )
