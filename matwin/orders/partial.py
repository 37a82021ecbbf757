"""`partial_order(g)`: a function of the user's compares two pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .base import BlackBox, Pair, called, name_of


@dataclass(frozen=True, slots=True)
class PartialOrder(BlackBox):
    """A function of two pairs: True (at least as good), False (worse) or None (neither)."""

    function: Callable[[Pair, Pair], bool | None]

    def __repr__(self) -> str:
        return f"partial_order({name_of(self.function)})"

    @property
    def compare(self) -> Callable[[Pair, Pair], bool | None]:
        """The function itself, so that messages have its name."""
        return self.function


def partial_order(function: Callable[[Pair, Pair], bool | None]) -> PartialOrder:
    """An order by a black box: ``function((a, b), (c, d))`` compares two pairs."""
    return PartialOrder(called(function))
