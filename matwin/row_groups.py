"""What a file says of a column, row group by row group: its least and greatest value.  Pure.

    ranges        0───3   3──5   6────9     ascend: may be sorted, the rows must be looked at
                  0───5   3──7              descend: is surely not sorted, no row is looked at
                  0────────9  1───────9     alike: some row groups stand for all of them

Whoever wrote the file may have written nonsense.  So statistics choose the way, as a sample does,
and nothing is left out because of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Number = int | float
ALIKE = 0.9
"""Row groups are alike if each has so much of the range of all."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group's values of one column."""

    rows: int
    limits: tuple[Number, Number] | None
    """The least and the greatest; None where all are null."""


def descend(groups: Sequence[RowGroup]) -> bool:
    """Whether a row group begins below the end of one before it.

    >>> descend([RowGroup(9, (0, 3)), RowGroup(9, None), RowGroup(9, (3, 5))])
    False
    >>> descend([RowGroup(9, (0, 5)), RowGroup(9, (3, 7))])
    True
    """
    highest: Number | None = None
    for low, high in _limits(groups):
        if highest is not None and low < highest:
            return True
        highest = high if highest is None else max(highest, high)
    return False


def are_alike(groups: Sequence[RowGroup]) -> bool:
    """Whether each of them has nearly all of the range of all.

    >>> are_alike([RowGroup(9, (0, 99)), RowGroup(9, (2, 100))])
    True
    >>> are_alike([RowGroup(9, (0, 50)), RowGroup(9, (50, 100))])
    False
    """
    limits = list(_limits(groups))
    if len(limits) < len(groups) or not limits:
        return False
    whole = max(high for _, high in limits) - min(low for low, _ in limits)
    return all(high - low >= ALIKE * whole for low, high in limits)


def _limits(groups: Sequence[RowGroup]) -> Iterator[tuple[Number, Number]]:
    return (group.limits for group in groups if group.limits is not None)
