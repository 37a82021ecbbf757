"""Orders: which of two pairs matches better on one attribute.

A pair is a value of the left row and one of the right row.  An order says which pairs are better:

    min_distance      the smaller |a - b|                                      the default
    youngest          the pair whose younger value is younger: the larger max(a, b)
    indifferent       none is better: the attribute only says who is eligible
    subset            the pair whose common elements include the other's       sets, in list columns
    minimize(f)       the smaller f(a, b), a float, or an integer below 2**100; a plain function too
    partial_order(g)  g((a, b), (c, d)) says True: at least as good, False: worse, None: neither

All but `subset` and `partial_order` turn a pair into a number, and whole columns of pairs are
compared by compiled code.  These two are black boxes, asked pair by pair.  Each has a file of its
own here; `base.py` says what an order is to the joins, and how a new one is made.

>>> import matwin
>>> matwin.minimize(lambda a, b: a + b)
minimize(<lambda>)
"""

from __future__ import annotations

from matwin.storage.errors import InputError

from .age import Youngest, youngest
from .base import BlackBox, Measure, Order
from .distance import MinDistance, min_distance
from .function import Minimize, minimize
from .indifferent import Indifferent, indifferent
from .partial import PartialOrder, partial_order
from .sets import Subset, subset

__all__ = [
    "BlackBox", "Indifferent", "Measure", "MinDistance", "Minimize", "Order", "PartialOrder",
    "Subset", "Youngest", "indifferent", "min_distance", "minimize", "order_of", "partial_order",
    "subset", "youngest",
]  # fmt: skip

_WORDS: dict[str, Order] = {
    repr(order): order for order in (min_distance, youngest, subset, indifferent)
}


def order_of(given: object, column: str) -> Order:
    """The order that a user means by a word, a function or an order."""
    if isinstance(given, Order):
        return given
    if isinstance(given, str) and given in _WORDS:
        return _WORDS[given]
    if callable(given):
        return Minimize(given)
    raise InputError(
        f"orders: {given!r} for column {column!r} is no order; give one of {', '.join(_WORDS)}, "
        "a function f(a, b) to minimize, or partial_order(g)"
    )
