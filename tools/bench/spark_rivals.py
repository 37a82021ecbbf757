"""Spark SQL's own answers to the questions of `matwin bench spark`, each as one SQL text.

    as one writes it   the range join: equal keys and a range, or a range alone
    by cells           the bucket trick: a right row is exploded into the cells that it reaches,
                       cells are joined by equality, and what is too far is filtered away
    asof join          Spark's own, for the latest partner before a row
    nearest by         Spark's own, for the nearest partner; tests all pairs

A bestmatch join is a join and a choice among its pairs.  The choice is written with NOT EXISTS, as
the paper does, or with window functions, which two attributes allow: a pair is the best if no pair
that is as near in one attribute is nearer in the other.

Cells are as wide as a window, both ways: a row reaches one or two of them in each attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .spark_data import SparkCase

CELL = 2.0
"""Width of a cell, in tolerances."""


@dataclass(frozen=True, slots=True)
class SqlRival:
    """A way to ask Spark SQL; `since` is the first version that knows it."""

    name: str
    text: Callable[[SparkCase], str]
    since: tuple[int, int] = (3, 0)

    def missing(self, version: str) -> str | None:
        """Why it is left out with this version of Spark."""
        found = tuple(int(part) for part in version.split(".")[:2])
        if found >= self.since:
            return None
        return f"{self.name}: left out, Spark {version} does not know it"


def columns(case: SparkCase) -> str:
    """The columns that our joins give, the key once."""
    own = [*case.on, "id", *(["payload"] if case.payload else [])]
    sides = (("l", "left"), ("r", "right"))
    both = [f"{side}.{name} AS {name}_{word}" for side, word in sides for name in own]
    return ", ".join([*(["l.k"] if case.keys else []), *both])


def _near(case: SparkCase) -> str:
    return " AND ".join(
        f"r.{name} - l.{name} BETWEEN {_literal(lo)} AND {_literal(hi)}"
        for name, (lo, hi) in case.on.items()
    )


def _literal(value: float) -> str:
    """A number in SQL; without its letter a float would be a decimal, which is slower."""
    return f"{value!r}D" if isinstance(value, float) else repr(value)


def _equal(case: SparkCase) -> list[str]:
    return ["l.k = r.k"] if case.keys else []


def _plain_from(case: SparkCase) -> str:
    return f"FROM l JOIN r ON {' AND '.join([*_equal(case), _near(case)])}"


def _cells_from(case: SparkCase) -> str:
    """Left rows in their cell, right rows in every cell that they reach."""
    mine, views, equal = [], [], _equal(case)
    for at, (column, (lo, hi)) in enumerate(case.on.items()):
        width = _literal(CELL * max(-lo, hi))
        mine.append(f"floor({column} / {width}) AS cell{at}")
        first, last = (f"floor(({column} - ({_literal(far)})) / {width})" for far in (hi, lo))
        views.append(f"LATERAL VIEW explode(sequence({first}, {last})) v{at} AS cell{at}")
        equal.append(f"l.cell{at} = r.cell{at}")
    return (
        f"FROM (SELECT *, {', '.join(mine)} FROM l) l JOIN (SELECT * FROM r {' '.join(views)}) r "
        f"ON {' AND '.join(equal)} WHERE {_near(case)}"
    )


def _pairs(pairs_from: Callable[[SparkCase], str]) -> Callable[[SparkCase], str]:
    return lambda case: f"SELECT {columns(case)} {pairs_from(case)}"


def _costs(case: SparkCase) -> str:
    return ", ".join(f"abs(r.{column} - l.{column}) AS {column}_cost" for column in case.on)


def _not_exists(pairs_from: Callable[[SparkCase], str]) -> Callable[[SparkCase], str]:
    def text(case: SparkCase) -> str:
        costs = [f"{column}_cost" for column in case.on]
        as_good = " AND ".join(f"rival.{cost} <= pair.{cost}" for cost in costs)
        better = " OR ".join(f"rival.{cost} < pair.{cost}" for cost in costs)
        return (
            f"WITH pairs AS (SELECT {columns(case)}, {_costs(case)} {pairs_from(case)}) "
            f"SELECT * EXCEPT ({', '.join(costs)}) FROM pairs pair WHERE NOT EXISTS ("
            "SELECT 1 FROM pairs rival WHERE rival.id_left = pair.id_left "
            f"AND {as_good} AND ({better}))"
        )

    return text


def _windowed(pairs_from: Callable[[SparkCase], str]) -> Callable[[SparkCase], str]:
    def text(case: SparkCase) -> str:
        (a, b) = (f"{column}_cost" for column in case.on)
        least = ", ".join(
            f"min({one}) OVER (PARTITION BY id_left ORDER BY {other}) AS {one}_least"
            for one, other in ((a, b), (b, a))
        )
        return (
            f"WITH pairs AS (SELECT {columns(case)}, {_costs(case)} {pairs_from(case)}), "
            f"judged AS (SELECT *, {least} FROM pairs) "
            f"SELECT * EXCEPT ({a}, {b}, {a}_least, {b}_least) FROM judged "
            f"WHERE {a} = {a}_least AND {b} = {b}_least"
        )

    return text


def _asof(case: SparkCase) -> str:
    ((column, (lo, _)),) = case.on.items()
    on = f" ON {_equal(case)[0]}" if case.keys else ""
    near = "" if lo is None else f" WHERE r.{column} - l.{column} >= {lo!r}"
    return (
        f"SELECT {columns(case)} FROM l ASOF JOIN r MATCH_CONDITION (l.{column} >= r.{column}){on}"
        f"{near}"
    )


def _nearest(case: SparkCase) -> str:
    ((column, (lo, hi)),) = case.on.items()
    distance = f"abs(l.{column} - r.{column})"
    return (
        f"SELECT {columns(case)} FROM l INNER JOIN r EXACT NEAREST 1 BY DISTANCE {distance} "
        f"WHERE r.{column} - l.{column} BETWEEN {lo!r} AND {hi!r}"
    )


def _latest(case: SparkCase) -> str:
    """The best of one attribute by a window function over the cells' pairs."""
    pairs = f"SELECT {columns(case)}, {_costs(case)} {_cells_from(case)}"
    return (
        f"SELECT * EXCEPT (t_cost, nth) FROM (SELECT *, row_number() OVER (PARTITION BY id_left "
        f"ORDER BY t_cost) AS nth FROM ({pairs})) WHERE nth = 1"
    )


PLAIN = SqlRival("range join", _pairs(_plain_from))
CELLS = SqlRival("cells, exploded", _pairs(_cells_from))
PLAIN_NOT_EXISTS = SqlRival("range join, NOT EXISTS", _not_exists(_plain_from))
PLAIN_WINDOWED = SqlRival("range join, window functions", _windowed(_plain_from))
CELLS_NOT_EXISTS = SqlRival("cells, NOT EXISTS", _not_exists(_cells_from))
CELLS_WINDOWED = SqlRival("cells, window functions", _windowed(_cells_from))
CELLS_FIRST = SqlRival("cells, row_number", _latest)
ASOF = SqlRival("ASOF JOIN", _asof, (4, 3))
NEAREST = SqlRival("NEAREST BY", _nearest, (4, 2))
