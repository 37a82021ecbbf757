"""`minimize(f)`: the pair with the smaller f(a, b), a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .base import Measure, called, name_of


@dataclass(frozen=True, slots=True)
class Minimize(Measure):
    """The smaller value of a function of both values is better."""

    function: Callable[[Any, Any], Any]

    def __repr__(self) -> str:
        return f"minimize({name_of(self.function)})"

    @property
    def cost(self) -> Callable[[Any, Any], Any]:
        """The function itself: by its code it is known whether it can be compiled."""
        return self.function


def minimize(function: Callable[[Any, Any], Any]) -> Minimize:
    """An order by ``function(a, b)``, the smaller the better.

    The function gets Python's own numbers, times as counts of the finer unit of both columns, and
    returns a number: an integer or a float, but not NaN.  Where it gives the same, it is called
    with whole columns or compiled; what it captures from outside is taken as it is at each call.
    """
    return Minimize(called(function))
