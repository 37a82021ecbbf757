"""The referee of window joins: small streams with every trap in them, and a plain nested loop.

    asked = draw(questions())             streams and arguments, with their meaning beside them
    asked.expected                        what has to come out, N-tuple by N-tuple, in Python
    as_bag(found) == asked.expected       rows with their multiplicity, in any order

A strategy draws the meaning first (``lo <= t_b - t_a <= hi`` in the finest unit of the times) and
then a way to write it (a number, text, a timedelta, `then`, a path), so that nothing here reads the
arguments as the join does.  Times are compared as Python's integers and floats.  A row whose time
or key is null, NaN or infinite is in no tuple; neither is a null or NaN that a predicate looks at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pyarrow as pa
from questions import NAN, Row, as_bag, plain_values

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400

# ── what is asked ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Bound:
    """``lo <= t_b - t_a <= hi``."""

    a: str
    b: str
    lo: int | float
    hi: int | float


@dataclass(frozen=True)
class Predicate:
    """A predicate: what the values of these columns (stream, column) satisfy; and in SQL."""

    columns: tuple[tuple[str, str], ...]
    holds: Callable[..., bool]
    sql: str


@dataclass(frozen=True)
class Asked:
    """A window join: what it means, and the arguments that say so.

    A tuple satisfies all bounds of one of `routes`.
    """

    streams: dict[str, pa.Table]
    time: dict[str, str]
    routes: tuple[tuple[Bound, ...], ...]
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tests: tuple[Predicate, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def expected(self) -> Counter[Row]:
        """What has to come out."""
        return as_bag(rows_of(self, tuples_of(self)))

    @property
    def names(self) -> list[str]:
        """The output's columns."""
        return [*self.keys.get(first_of(self.streams), ()), *(f"{s}_{c}" for s, c in _shown(self))]

    def rejected(self, name: str) -> int:
        """How many of a stream's rows can't be in any tuple."""
        return sum(not is_fit for is_fit in _fit_rows(self, name))


def first_of(names: Any) -> Any:
    return next(iter(names))


def written(windows: Any, unit: str) -> Any:
    """Windows in numbers as a user writes them for times of this unit; "" is none."""
    if isinstance(windows, dict):
        return {pair: written(window, unit) for pair, window in windows.items()}
    if isinstance(windows, tuple):
        return tuple(written(limit, unit) for limit in windows)
    return f"{windows}{unit}" if unit else windows


def simple(
    streams: dict[str, pa.Table], windows: Any, by: Any = None, time: str = "t", unit: str = ""
) -> Asked:
    """A question in numbers: a window, or pairs with a number or (lo, hi); `unit` is the times'."""
    pairs = (
        windows if isinstance(windows, dict) else dict.fromkeys(combinations(streams, 2), windows)
    )
    limits = {p: w if isinstance(w, tuple) else (-w, w) for p, w in pairs.items()}
    route = tuple(Bound(*pair, *limit) for pair, limit in limits.items())
    keys = dict.fromkeys(streams, (by,) if isinstance(by, str) else tuple(by)) if by else {}
    arguments = {"time": time, "windows": written(windows, unit), "by": by}
    return Asked(streams, dict.fromkeys(streams, time), (route,), keys, (), arguments)


# ── the oracle ───────────────────────────────────────────────────────────────────────────────


def tuples_of(asked: Asked) -> list[tuple[int, ...]]:
    """Row numbers, one of each stream, of every tuple that qualifies."""
    times, keys = times_of(asked), {name: _keys(asked, name) for name in asked.streams}
    fit = {name: _fit_rows(asked, name) for name in asked.streams}
    values = {
        test: [plain_values(asked.streams[s][c]) for s, c in test.columns] for test in asked.tests
    }

    def tried(names: list[str], chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        if not names:
            yield dict(chosen)
            return
        name, *later = names
        for row in range(asked.streams[name].num_rows):
            chosen[name] = row
            if fit[name][row] and qualifies(chosen):
                yield from tried(later, chosen)
        del chosen[name]

    def qualifies(chosen: dict[str, int]) -> bool:
        """Nothing that these rows alone decide speaks against them."""
        return (
            len({keys[name][row] for name, row in chosen.items()}) == 1
            and any(all(is_near(bound, chosen) for bound in route) for route in asked.routes)
            and all(holds(test, chosen) for test in asked.tests)
        )

    def is_near(bound: Bound, chosen: dict[str, int]) -> bool:
        if bound.a not in chosen or bound.b not in chosen:
            return True
        apart = times[bound.b][chosen[bound.b]] - times[bound.a][chosen[bound.a]]
        return bool(bound.lo <= apart <= bound.hi)

    def holds(test: Predicate, chosen: dict[str, int]) -> bool:
        if any(stream not in chosen for stream, _ in test.columns):
            return True
        pairs = zip(test.columns, values[test], strict=True)
        arguments = [column[chosen[stream]] for (stream, _), column in pairs]
        if any(value is None or value == NAN for value in arguments):
            return False
        return bool(test.holds(*arguments))

    if not asked.streams or any(not table.num_rows for table in asked.streams.values()):
        return []
    return [tuple(chosen.values()) for chosen in tried(list(asked.streams), {})]


def rows_of(asked: Asked, tuples: list[tuple[int, ...]]) -> list[Row]:
    """The output rows of these tuples: the first stream's keys, then all other columns."""
    places = {name: at for at, name in enumerate(asked.streams)}
    first = first_of(asked.streams)
    columns = [(0, plain_values(asked.streams[first][key])) for key in asked.keys.get(first, ())]
    columns += [(places[s], plain_values(asked.streams[s][c])) for s, c in _shown(asked)]
    return [tuple(values[chosen[at]] for at, values in columns) for chosen in tuples]


def _shown(asked: Asked) -> list[tuple[str, str]]:
    return [
        (name, column)
        for name, table in asked.streams.items()
        for column in table.column_names
        if column not in asked.keys.get(name, ())
    ]


def times_of(asked: Asked) -> dict[str, list[Any]]:
    """Each stream's times in one unit, the finest of all; None for what never matches."""
    columns = {name: asked.streams[name][column] for name, column in asked.time.items()}
    finest = max(_units_per_day(column.type) for column in columns.values())
    is_float = any(pa.types.is_floating(column.type) for column in columns.values())
    times = {}
    for name, column in columns.items():
        factor = finest // _units_per_day(column.type)
        values = [None if _is_unfit(v) else v * factor for v in plain_values(column)]
        times[name] = [None if v is None else float(v) for v in values] if is_float else values
    return times


def _units_per_day(data_type: pa.DataType) -> int:
    unit = getattr(data_type, "unit", None)
    return DAY * PER_SECOND[unit] if unit else 1


def _is_unfit(value: Any) -> bool:
    return value is None or value == NAN or (isinstance(value, float) and math.isinf(value))


def _keys(asked: Asked, name: str) -> list[tuple[Any, ...]]:
    columns = [plain_values(asked.streams[name][key]) for key in asked.keys.get(name, ())]
    return list(zip(*columns, strict=True)) if columns else [()] * asked.streams[name].num_rows


def _fit_rows(asked: Asked, name: str) -> list[bool]:
    times = times_of(asked)[name]
    return [
        time is not None and not any(map(_is_unfit, key))
        for time, key in zip(times, _keys(asked, name), strict=True)
    ]
