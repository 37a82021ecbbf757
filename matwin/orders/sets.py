"""`subset`: the pair whose common elements include the other's.  For sets, in list columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.errors import InputError

from .base import BlackBox, Compare, Pair, Values


@dataclass(frozen=True, slots=True)
class Subset(BlackBox):
    """Common elements that include the other pair's are better."""

    def __repr__(self) -> str:
        return "subset"

    def check(self, left: pa.Field, right: pa.Field) -> None:
        """Refuse columns that are no lists."""
        for side, field in (("left", left), ("right", right)):
            if not (pa.types.is_list(field.type) or pa.types.is_large_list(field.type)):
                raise InputError(
                    f"{side}: column {field.name!r} is {field.type}; the order 'subset' needs lists"
                )

    def compare(self, one: Pair, other: Pair) -> bool | None:
        """Whether all that the other has in common is common here; a set is never just worse."""
        (a, b), (c, d) = one, other
        return (_known(a) & set(b)) >= (_known(c) & set(d)) or None

    def boxes(self, left: Values, right: Values) -> Values:
        """The common elements of each pair, found once."""
        common = np.empty(len(left), object)
        try:
            common[:] = [
                frozenset(_known(set(a) & set(b))) for a, b in zip(left, right, strict=True)
            ]
        except TypeError as e:
            raise InputError(
                f"orders: 'subset' needs lists of plain values on both sides: {e}"
            ) from e
        return common

    def comparison(self) -> Compare:
        """One set of common elements beside another."""
        return lambda one, other: one >= other or None


subset = Subset()


def _known(values: Iterable[object]) -> set[object]:
    """Without null and NaN, which equal nothing."""
    return {value for value in values if value is not None and value == value}
