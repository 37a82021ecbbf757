"""`indifferent`: every pair is as good as every other; the attribute only says who is eligible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from matwin.storage.columns import Int64s

from .base import Keys, Measure, Values


@dataclass(frozen=True, slots=True)
class Indifferent(Measure):
    """No pair is better than another."""

    kernel: ClassVar[str | None] = "indifferent"
    is_refined: ClassVar[bool] = False
    is_shown: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "indifferent"

    def cost(self, left: Any, right: Any) -> Any:
        """The same for all."""
        return 0

    def keys(self) -> Keys:
        """The same for all."""
        return _keys

    def cost_sql(self, left: str, right: str) -> str:
        """The same for all."""
        return "0"


indifferent = Indifferent()


def _keys(left: Values, right: Values) -> tuple[Int64s]:
    return (np.zeros(len(left), np.int64),)
