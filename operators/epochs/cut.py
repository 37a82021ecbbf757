"""How a stream is cut into chunks: by count, by range of a column, or when a value changes.

    rows      09:58:50  09:59:10 │ 10:00:02  10:00:40 │             │ 10:02:30
    every 60s       epoch 1      │      epoch 2       │  epoch 3    │  epoch 4
                                                        (no rows)

A cut is a plain value: what the user writes, what a commit keeps, what is compared on a restart.
How rows are divided by it is `cutter.py`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from matwin.storage.errors import InputError
from matwin.storage.units import HOW_TO_WRITE, Duration, is_duration, nanoseconds, shown

__all__ = ["count", "every", "on_change"]

On = str | Mapping[str, str]
"""A column's name, the same in every stream or one for each."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many rows to a chunk."""

    rows: int

    def __str__(self) -> str:
        return f"count({self.rows})"


@dataclass(frozen=True, slots=True)
class Every:
    """A range of a column to a chunk; ranges without rows are chunks, too."""

    width: Duration | int | float
    columns: On
    align: Literal["round", "first"]

    def __str__(self) -> str:
        return f"every({shown(self.width)}, on={_named(self.columns)}, align={self.align!r})"


@dataclass(frozen=True, slots=True)
class OnChange:
    """A new chunk whenever a column has another value than in the row before."""

    columns: On

    def __str__(self) -> str:
        return f"on_change({_named(self.columns)})"


Cut = Count | Every | OnChange


def count(rows: int) -> Count:
    """A chunk is so many rows.

    >>> str(count(10_000))
    'count(10000)'
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise InputError(f"cut.count({shown(rows)}): give a whole number of rows, 1 or more")
    return Count(int(rows))


def every(
    width: Duration | int | float, *, on: On, align: Literal["round", "first"] = "round"
) -> Every:
    """A chunk is a range of the column `on`: ``"60s"`` of a time, or a number of a number.

    Ranges begin at round values (``"60s"`` at full minutes), or with ``align="first"`` at the first
    row of the first stream.  `on` is a mapping of stream to column where the names differ.

    >>> str(every("60s", on="ts"))
    "every('60s', on='ts', align='round')"
    """
    if align not in ("round", "first"):
        raise InputError(f"cut.every: align={align!r}; choose 'round' or 'first'")
    amount: Any = nanoseconds(width) if is_duration(width) else width
    is_number = isinstance(amount, int | float | Fraction | np.integer | np.floating)
    if isinstance(amount, bool) or not is_number or not _is_finite(amount) or amount <= 0:
        raise InputError(
            f"cut.every({shown(width)}): give a number above 0 for a column of numbers; for times "
            f"{HOW_TO_WRITE}"
        )
    return Every(width, _columns(on, "every"), align)


def _is_finite(amount: Any) -> bool:
    """Whether a number is; a whole one may be larger than floats are."""
    return not isinstance(amount, float | np.floating) or math.isfinite(amount)


def on_change(on: On) -> OnChange:
    """A chunk is an object: a stretch of rows with the same value in the column `on`.

    An epoch is one object of all streams; a stream that lacks it has an empty chunk.

    >>> str(on_change("graph_id"))
    "on_change('graph_id')"
    """
    return OnChange(_columns(on, "on_change"))


def column_of(cut: Every | OnChange, stream: str) -> str:
    """The column by which a stream is cut."""
    if isinstance(cut.columns, str):
        return cut.columns
    if stream not in cut.columns:
        raise InputError(
            f"{stream}: the cut names no column for it; it has columns for "
            f"{', '.join(map(repr, cut.columns))}"
        )
    return cut.columns[stream]


def _columns(on: object, what: str) -> On:
    if isinstance(on, str) and on:
        return on
    named = dict(on) if isinstance(on, Mapping) else {}
    if named and all(isinstance(word, str) and word for pair in named.items() for word in pair):
        return MappingProxyType(named)
    raise InputError(
        f"cut.{what}: on={shown(on)}; give a column's name, or a mapping of stream to column"
    )


def _named(on: On) -> str:
    return repr(on) if isinstance(on, str) else repr(dict(on))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an epoch covers, for people: a range of values, row numbers, or the value they share."""

    low: object = None
    high: object = None
    value: object = field(default=None)

    def __str__(self) -> str:
        if self.low is None and self.high is None:
            return str(self.value)
        return f"{self.low} … {self.high}"
