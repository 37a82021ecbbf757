"""As-of joins as a plain loop: which right rows a left row finds, distances compared exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def matches(time: Any, key: Any, right: list[Row], asked: dict[str, Any]) -> list[int]:
    """The right rows of one left row, by their numbers."""
    if not _counts(time) or (asked["by"] and key is None):
        return []
    far = asked["tolerance"]
    far = int(far[:-2]) if isinstance(far, str) else far
    good: list[tuple[Any, bool, int]] = []
    for number, (other, its) in enumerate(right):
        if not _counts(other) or (asked["by"] and its != key):
            continue
        apart = other - time
        if far is not None and abs(apart) > far:
            continue
        if other == time and not asked["allow_exact_matches"]:
            continue
        if (asked["direction"] == "backward" and other > time) or (
            asked["direction"] == "forward" and other < time
        ):
            continue
        good.append((abs(Fraction(other) - Fraction(time)), other > time, number))
    if not good:
        return []
    if asked["ties"] == "all":
        return [number for apart, _, number in good if apart == min(good)[0]]
    best = min(good)[:2]
    same = [number for *found, number in good if tuple(found) == best]
    return [same[0] if asked["ties"] == "first" else same[-1]]


def _counts(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def expected(
    left: pa.Table, right: pa.Table, asked: dict[str, Any]
) -> list[tuple[int, int | None]]:
    theirs = list(zip(_numbers(right["t"]), right["k"].to_pylist(), strict=True))
    found: list[Row] = []
    for number, (time, key) in enumerate(
        zip(_numbers(left["t"]), left["k"].to_pylist(), strict=True)
    ):
        mates: list[Any] = matches(time, key, theirs, asked)
        if not mates and asked["how"] == "left":
            mates = [None]
        found += [(number, mate) for mate in mates]
    return found


def _numbers(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
