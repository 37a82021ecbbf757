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
    returns a number: a float that is not NaN, or an integer between -2**100 and 2**100, which is
    compared exactly.  Larger integers are refused; return them as floats.  Where it gives the same,
    the function is called with whole columns or compiled; what it captures from outside is taken as
    it is at each call.
    """
    return Minimize(called(function))
