"""Objects: stretches of equal values in several streams, and which of them are one epoch.

    a   1 │ 2 │ 3 │ 5          epoch    1   2   3   4   5
    b   1 │ 3 │ 4 │ 5          a        1   2   3   -   5
                               b        1   -   3   4   5

Streams have the same objects in the same order; one may lack some.  The heads, the next objects of
all streams, say which comes next:

    all alike                            that one, of all streams
    b's head comes later in a            what is before it in a: b lacks it
    neither comes in the other, which    the first stream's: the other lacks it
      ends, goes on with a later object
      that both have, or has AHEAD more
    both come in the other               the nearer; of two as near, a's later one decides

Where every stream declares that its objects rise, the smallest head is next, and nothing is read
ahead.

Invariants: what is chosen depends on the streams' objects alone, not on how far each has been read
(`Wanted` asks for more where it would); an object that a stream was passed over for is late there
when it comes alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.columns import Bools, is_temporal
from matwin.storage.errors import InputError
from matwin.storage.units import unit_nanoseconds

AHEAD = 64
"""A stream that has had so many other objects lacks the one that is looked for."""
PASSED_MAX = 1000
"""Objects that a stream was passed over for, and that are late when they come after all."""
FREE, FIRST, SECOND = 0, 1, -1
"""Of two heads: either may be next, the first is, the second is."""


# ── which object is next: pure ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is known of a stream's objects, from its head on."""

    objects: Sequence[Any]
    is_all: bool
    """Whether no more will come."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The streams that must be read further, by their places."""

    places: frozenset[int]


def in_turn(streams: Sequence[Ahead]) -> frozenset[int] | Wanted:
    """Whose heads are the next object; none where there is no object left.

    >>> sorted(in_turn([Ahead([2, 3], False), Ahead([3], True)]))
    [0]
    """
    unknown = _unknown(streams)
    if unknown:
        return Wanted(unknown)
    there = [i for i, one in enumerate(streams) if one.objects]
    groups = [_alike(streams, there, i) for i in there]
    for i, group in zip(there, groups, strict=True):
        # A group is asked once, by its first.
        found = group[0] == i and _is_first(streams, group, [k for k in there if k not in group])
        if isinstance(found, Wanted):
            return found
        if found:
            return frozenset(group)
    # Streams that contradict each other in a circle: somebody has to be first.
    return frozenset(groups[0] if groups else ())


def _alike(streams: Sequence[Ahead], there: Sequence[int], one: int) -> list[int]:
    """The streams that have the same head; NaN is like nothing."""
    head = streams[one].objects[0]
    return [k for k in there if k == one or _is_same(streams[k].objects[0], head)]


def _is_first(
    streams: Sequence[Ahead], alike: Sequence[int], others: Sequence[int]
) -> bool | Wanted:
    """Whether the head of some streams comes before, or may come before, those of all others."""
    for other in others:
        for one in alike:
            found = _before(streams, one, other)
            if isinstance(found, Wanted):
                return found
            if found == SECOND:
                return False
    return True


def _before(streams: Sequence[Ahead], one: int, other: int) -> int | Wanted:
    """Which of two heads comes before the other.  Both streams are searched equally deep, the
    first always a step before the second, so that it does not matter which has been read further.
    """
    if other < one:
        found = _before(streams, other, one)
        return -found if isinstance(found, int) else found
    a, b = streams[one], streams[other]
    for depth in range(1, AHEAD):
        if depth < len(a.objects):
            at = _place(a.objects[depth], b.objects[:depth])
            if at is not None:
                return FREE if at else FIRST
        elif not a.is_all:
            return Wanted(frozenset({one}))
        if depth < len(b.objects):
            at = _place(b.objects[depth], a.objects[: depth + 1])
            if at is not None:
                return FREE if at else SECOND
        elif not b.is_all:
            return Wanted(frozenset({other}))
        if depth >= len(a.objects) and depth >= len(b.objects):
            break
    return FREE


def rising(streams: Sequence[Ahead]) -> frozenset[int] | Wanted:
    """The same where objects rise in every stream.

    >>> sorted(rising([Ahead([3], False), Ahead([2], False), Ahead([2], False)]))
    [1, 2]
    """
    unknown = _unknown(streams)
    if unknown:
        return Wanted(unknown)
    heads = {i: one.objects[0] for i, one in enumerate(streams) if one.objects}
    least = min(heads.values(), default=None)
    return frozenset(i for i, head in heads.items() if head == least)


def _unknown(streams: Sequence[Ahead]) -> frozenset[int]:
    return frozenset(i for i, one in enumerate(streams) if not one.objects and not one.is_all)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b)


def _place(wanted: Any, among: Sequence[Any]) -> int | None:
    return next((i for i, one in enumerate(among) if _is_same(one, wanted)), None)


# ── what an object is ────────────────────────────────────────────────────────────────────────


def plain(column: pa.Array) -> pa.Array:
    """A column without an encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def kind_of(data_type: pa.DataType) -> str:
    """The values that objects of a type are compared with, in words."""
    kinds = pa.types
    if kinds.is_dictionary(data_type):
        data_type = data_type.value_type
    if kinds.is_timestamp(data_type):
        return "times with a zone" if data_type.tz else "times without a zone"
    named = {
        "numbers": (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
        "text": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        "bytes": (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view,
                  kinds.is_fixed_size_binary),
        "dates": (kinds.is_date,), "times of day": (kinds.is_time,),
        "durations": (kinds.is_duration,),
    }  # fmt: skip
    return next(
        (n for n, tests in named.items() if any(t(data_type) for t in tests)), str(data_type)
    )


def can_rise(data_type: pa.DataType) -> bool:
    """Whether objects of a type have an order that is exact and can be kept."""
    is_numeric = kind_of(data_type) == "numbers" and not pa.types.is_integer(data_type)
    named = ("numbers", "text", "bytes", "dates", "times of day", "durations")
    return not is_numeric and (kind_of(data_type) in named or pa.types.is_timestamp(data_type))


def object_of(value: pa.Scalar) -> Any:
    """A value as it is compared with those of other streams: of any width and unit."""
    if not value.is_valid:
        return None
    if is_temporal(value.type):
        return value.value * unit_nanoseconds(value.type)
    found = value.as_py()
    if isinstance(found, float):
        return int(found) if found.is_integer() else found
    if isinstance(found, Decimal) and found == found.to_integral_value():
        return int(found)
    return found


def kept(value: Any) -> str:
    """An object as text, for a commit."""
    return repr(value)


def taken_back(text: str) -> Any:
    """An object of those that can rise, from its text."""
    return ast.literal_eval(text)


def changes(column: pa.Array) -> Bools:
    """Which rows, from the second on, differ from the row before; null equals null."""
    if len(column) < 2:
        return np.zeros(0, np.bool_)
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    same = pc.equal(before, after).fill_null(False)
    both_null = pc.and_(before.is_null(), after.is_null())
    both: Bools = pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    return ~both


def check_alike(columns: Iterable[tuple[str, pa.Field]]) -> None:
    """Refuse streams whose objects could never be the same."""
    (first, field), *others = columns
    for name, other in others:
        if kind_of(field.type) != kind_of(other.type):
            raise InputError(
                f"{first} is cut by {field.name!r}, which is {field.type}, and {name} by "
                f"{other.name!r}, which is {other.type}: {kind_of(field.type)} and "
                f"{kind_of(other.type)} are never the same object; cast one of them"
            )
