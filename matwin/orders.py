"""Orders: which of two pairs matches better on one attribute.

A pair is a value of the left row and one of the right row.  An order says which pairs are better:

    min_distance      the smaller |a - b|                                      the default
    youngest          the pair whose younger value is younger: the larger max(a, b)
    subset            the pair whose common elements include the other's       sets, in list columns
    minimize(f)       the smaller f(a, b), a float, or an integer below 2**100; a plain function too
    partial_order(g)  g((a, b), (c, d)) says True: at least as good, False: worse, None: neither

The first, second and fourth turn a pair into a number, and whole columns of pairs are compared by
compiled code.  The other two are black boxes, asked pair by pair.

>>> import matwin
>>> matwin.minimize(lambda a, b: a + b)
minimize(<lambda>)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from matwin.storage.errors import InputError

Values: TypeAlias = "tuple[Any, Any]"


@dataclass(frozen=True, slots=True)
class MinDistance:
    """The smaller distance is better."""

    def __repr__(self) -> str:
        return "min_distance"


@dataclass(frozen=True, slots=True)
class Youngest:
    """The larger of the two values decides, and the larger it is, the better."""

    def __repr__(self) -> str:
        return "youngest"


@dataclass(frozen=True, slots=True)
class Minimize:
    """The smaller value of a function of both values is better."""

    function: Callable[[Any, Any], Any]

    def __repr__(self) -> str:
        return f"minimize({_name(self.function)})"


@dataclass(frozen=True, slots=True)
class Subset:
    """Common elements that include the other pair's are better."""

    def __repr__(self) -> str:
        return "subset"


@dataclass(frozen=True, slots=True)
class PartialOrder:
    """A function of two pairs: True (at least as good), False (worse) or None (neither)."""

    function: Callable[[Values, Values], bool | None]

    def __repr__(self) -> str:
        return f"partial_order({_name(self.function)})"


Order: TypeAlias = MinDistance | Youngest | Minimize | Subset | PartialOrder

min_distance = MinDistance()
youngest = Youngest()
subset = Subset()
_WORDS: dict[str, Order] = {
    "min_distance": min_distance, "youngest": youngest, "subset": subset,
}  # fmt: skip


def minimize(function: Callable[[Any, Any], Any]) -> Minimize:
    """An order by ``function(a, b)``, the smaller the better.

    The function gets Python's own numbers, times as counts of the finer unit of both columns, and
    returns a number: a float that is not NaN, or an integer between -2**100 and 2**100, which is
    compared exactly.  Larger integers are refused; return them as floats.  Where it gives the same,
    the function is called with whole columns or compiled; what it captures from outside is taken as
    it is at each call.
    """
    return Minimize(_callable(function))


def partial_order(function: Callable[[Values, Values], bool | None]) -> PartialOrder:
    """An order by a black box: ``function((a, b), (c, d))`` compares two pairs."""
    return PartialOrder(_callable(function))


def _callable(function: Any) -> Any:
    if not callable(function):
        raise InputError(f"{function!r} is not a function; an order needs one")
    return function


def order_of(given: object, column: str) -> Order:
    """The order that a user means by a word, a function or an order."""
    if isinstance(given, MinDistance | Youngest | Minimize | Subset | PartialOrder):
        return given
    if isinstance(given, str) and given in _WORDS:
        return _WORDS[given]
    if callable(given):
        return Minimize(given)
    raise InputError(
        f"orders: {given!r} for column {column!r} is no order; give one of {', '.join(_WORDS)}, "
        "a function f(a, b) to minimize, or partial_order(g)"
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or repr(function))
