"""Reach: which pages can meet, as intervals of right pages for each left page.

          left pages ▶                     a left page may have several intervals: one for
          0   1   2   3                    each run of the right side that it meets
      0   ■   ■
      1   ■   ■   ■                        intervals   page 0: [0, 3)   page 2: [1, 4)
      2   ■   ■   ■   ■                                page 1: [0, 3)   page 3: [2, 4)
      3           ■   ■
      ▲ right pages

In a self-join both sides are the same pages; a page in a frame then serves as left and as right.

Invariants: the intervals of a left page ascend, have gaps between them and are not empty; their
limits are at most the number of right pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.columns import INT64_MAX
from matwin.storage.errors import InputError

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = Any
"""A whole number in compiled code, where int, int32 and int64 mix."""

PAGES_MAX = 2**30
"""Pages of both sides together: page numbers fit 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """Intervals `first` to `limit` of right pages; those of left page i are the places
    ``starts[i]`` to ``starts[i + 1]`` of both arrays."""

    left_pages: int
    right_pages: int
    starts: Int64s
    first: Int32s
    limit: Int32s
    is_self: bool = False

    @classmethod
    def of(
        cls,
        intervals: Sequence[Any] | npt.NDArray[Any],
        *,
        right_pages: int | None = None,
        is_self: bool = False,
    ) -> Reach:
        """The reach of left pages from one ``(first, limit)`` each, or a list of such.

        >>> Reach.of([(0, 2), (0, 3), [(0, 1), (2, 3)]]).pairs
        7
        """
        if not isinstance(intervals, Sequence | np.ndarray) or isinstance(intervals, str):
            raise InputError(
                f"reach is {type(intervals).__name__}; give an entry for each left page"
            )
        if is_self and right_pages not in (None, len(intervals)):
            raise InputError(f"right_pages={right_pages}: a self-join has {len(intervals)} pages")
        if right_pages is not None:
            whole_number(right_pages, "right_pages")
        owners, edges = _flat(intervals)
        pages = len(intervals) if is_self else right_pages
        return cls.from_intervals(owners, edges, len(intervals), pages, is_self=is_self)

    @classmethod
    def from_intervals(
        cls,
        owners: Int64s,
        edges: Int64s,
        left_pages: int,
        right_pages: int | None = None,
        *,
        is_self: bool = False,
    ) -> Reach:
        """The reach from rows ``(first, limit)`` of `edges`, each for the left page in `owners`;
        in any order, and they may overlap."""
        if right_pages is None:
            right_pages = int(edges[:, 1].max(initial=0))
        _check(owners, edges, left_pages, right_pages)
        keep = edges[:, 0] < edges[:, 1]
        owners, first, limit = _merged(owners[keep], edges[keep, 0], edges[keep, 1])
        starts = np.searchsorted(owners, np.arange(left_pages + 1))
        return cls(
            left_pages, right_pages, starts, first.astype(np.int32), limit.astype(np.int32), is_self
        )

    @property
    def pairs(self) -> int:
        """How many pairs of pages there are to visit."""
        return int((self.limit.astype(np.int64) - self.first).sum())

    @property
    def owners(self) -> Int64s:
        """The left page of each interval."""
        return np.repeat(np.arange(self.left_pages), np.diff(self.starts))

    def intervals(self, left: int) -> list[tuple[int, int]]:
        """The right pages that a left page meets.

        >>> Reach.of([[(2, 4), (0, 1)], (0, 3)]).intervals(0)
        [(0, 1), (2, 4)]
        """
        own = slice(self.starts[left], self.starts[left + 1])
        return list(zip(self.first[own].tolist(), self.limit[own].tolist(), strict=True))

    def triples(self) -> list[tuple[int, int, int]]:
        """Every interval as ``(left, first, limit)``."""
        columns = (self.owners.tolist(), self.first.tolist(), self.limit.tolist())
        return list(zip(*columns, strict=True))


def _flat(intervals: Sequence[Any] | npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """Left page and edges of every interval that the caller gave."""
    if isinstance(intervals, np.ndarray):
        if intervals.ndim != 2 or intervals.shape[1] != 2 or intervals.dtype.kind not in "iu":
            raise InputError(
                f"reach is an array of {intervals.dtype} with shape {intervals.shape}; "
                "give whole numbers with one row (first, limit) for each left page"
            )
        return np.arange(len(intervals)), _edges(np.minimum(intervals, INT64_MAX))
    owners, edges = [], []
    for left, entry in enumerate(intervals):
        for interval in [entry] if _is_pair(entry) else entry:
            if not _is_pair(interval):
                raise InputError(f"reach of left page {left}: {interval!r} is no (first, limit)")
            owners.append(left)
            edges.append(tuple(interval))
    return np.array(owners, np.int64), _edges(edges)


def _edges(edges: Any) -> Int64s:
    try:
        return np.array(edges, np.int64).reshape(-1, 2)
    except OverflowError as e:
        raise InputError("reach: an interval is far out of range; page numbers are small") from e


def whole_number(value: Any, name: str) -> None:
    """Raise `InputError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name}={value!r}: a whole number is needed")


def _is_pair(entry: Any) -> bool:
    """Whether this is one interval; anything else should be a list of them."""
    if not isinstance(entry, Sequence | np.ndarray) or isinstance(entry, str):
        raise InputError(f"reach: {entry!r} is neither (first, limit) nor a list of them")
    return len(entry) == 2 and all(
        isinstance(edge, int | np.integer) and not isinstance(edge, bool) for edge in entry
    )


def _check(owners: Int64s, edges: Int64s, left_pages: int, right_pages: int) -> None:
    if right_pages < 0 or left_pages + right_pages > PAGES_MAX:
        raise InputError(f"{left_pages} and {right_pages} pages: at most {PAGES_MAX} in all")
    first, limit = edges[:, 0], edges[:, 1]
    wrong = np.flatnonzero((first < 0) | (first > limit) | (limit > right_pages))
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"reach of left page {owners[at]}: ({first[at]}, {limit[at]}) is out of range; "
            f"an interval runs from 0 <= first to first <= limit <= {right_pages} right pages"
        )


def _merged(owners: Int64s, first: Int64s, limit: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """In order, with intervals joined that touch or overlap."""
    order = np.lexsort((first, owners))
    owners, first, limit = owners[order], first[order], limit[order]
    if len(owners) == 0:
        return owners, first, limit
    # A running maximum within each left page: lift every page above the one before.
    lift = owners * np.int64(PAGES_MAX)
    highest = np.maximum.accumulate(limit + lift)
    begins = np.concatenate(([True], (first + lift)[1:] > highest[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return owners[begins], first[begins], (highest - lift)[ends]
