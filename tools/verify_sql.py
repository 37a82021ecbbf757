"""A join's question in DuckDB's SQL.

    left_rows, right_rows     the tables, each row with its number
        │
        l, r                  the rows that can match: numbers of rows, keys, what is compared
        │
     eligible                 pairs within reach, and what each costs on every attribute
        │
       best                   pairs that no other pair of the same row (or of all) dominates
        │
       kept                   of a row's best pairs the first in an order, where not all stay
        │
      pairs                   and the rows without a partner, where they are asked for

`sql_of` writes all of it, to be read and run by a person.  The verifier makes `l` and `r` itself,
from Arrow, and runs the rest; so a column that DuckDB can't hold never reaches it.

Integers and times are compared as HUGEINT, in which no difference of two 64-bit numbers wraps, and
floats as DOUBLE.  What a pair costs is the order's own SQL, and a smaller cost is better.  With one
or two attributes window functions find the best, in n log n; with more it takes NOT EXISTS.

Left out: orders that have no SQL, which are Python functions and `subset`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from matwin.attributes import Attribute
from matwin.orders import indifferent
from matwin.question import Question
from matwin.storage.columns import is_numeric
from matwin.storage.errors import InputError
from matwin.storage.names import listed

_WIDEST = 2**65
"""No difference of two 64-bit numbers is larger, so larger bounds mean the same."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Of the best pairs of each row of a side those that stay: the first by these ranks, SQL over
    the columns of `eligible`; all of them where there are none.

    With `is_nearest` only those stay that are exactly the nearest: distances of floats are rounded,
    so that several values may be equally far.
    """

    side: str
    ranks: tuple[str, ...]
    is_nearest: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """What `eligible` needs for it, beside the costs."""
        return (*_NEARNESS, "l0", "r0") if self.is_nearest else ()


_NEARNESS = ("r0 > l0 AS is_after", "CASE WHEN r0 > l0 THEN r0 ELSE -r0 END AS nearness")


_NAME_OR_BREAK = re.compile(r'("(?:[^"]|"")*")|\n')


def quoted(name: str) -> str:
    """A name as an SQL identifier, whatever is in it.

    >>> print(quoted('say "t"'))
    "say ""t\"""
    """
    if not name or "\0" in name:
        problem = "has a zero byte" if name else "is empty"
        raise InputError(f"the name {name!r} {problem}, which SQL can't say; rename it")
    return '"' + name.replace('"', '""') + '"'


def sql_of(question: Question, left: str = "left", right: str = "right") -> str:
    """The question as one statement over two tables, views or files of these names.

    Distances of times come out as counts of the attribute's unit.
    """
    _check_sayable(question)
    row = _unused("#", {*question.left.names, *question.right.names})
    parts = [
        ("left_rows", f"SELECT row_number() OVER () AS {row}, * FROM {quoted(left)}"),
        ("right_rows", f"SELECT row_number() OVER () AS {row}, * FROM {quoted(right)}"),
        ("l", _side_sql(question, "left", row)),
        ("r", _side_sql(question, "right", row)),
        ("eligible", eligible_sql(question)),
    ]
    if question.best:
        parts.append(("best", best_sql(question)))
    parts.append(("pairs", pairs_sql(question, row)))
    steps = ",\n".join(
        f"{name} AS {_materialized(name)}(\n{indented(text)}\n)" for name, text in parts
    )
    return f"WITH\n{steps}\n{_output_sql(question, row)}"


def _materialized(name: str) -> str:
    return "MATERIALIZED " if name.endswith("_rows") or name == "eligible" else ""


def indented(text: str) -> str:
    """The lines two places to the right; line breaks inside a name stay as they are."""
    return "  " + _NAME_OR_BREAK.sub(lambda found: found[1] or "\n  ", text)


def _unused(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "#"
    return quoted(name)


def _check_sayable(question: Question) -> None:
    for attribute in question.attributes:
        if not has_sql(attribute):
            raise InputError(
                f"column {attribute.name!r}: the order {attribute.order!r} has no SQL; "
                "verify the join instead, which can ask Python"
            )
    for schema in (question.left, question.right):
        check_alike(schema)


def check_alike(schema: pa.Schema, where: str = "") -> None:
    """Refuse names that differ only in case."""
    times = Counter(name.lower() for name in schema.names)
    alike = [name for name in schema.names if times[name.lower()] > 1]
    if alike:
        raise InputError(
            f"{where}columns {listed(alike)} are one name to DuckDB; rename them to get SQL"
        )


def has_sql(attribute: Attribute) -> bool:
    """Whether DuckDB can reckon its order by itself."""
    return _cost_sql(attribute, 0) is not None


# ── what is compared ─────────────────────────────────────────────────────────────────────────


def _side_sql(question: Question, side: str, row: str) -> str:
    """The rows of one side that can match, as numbers."""
    schema: pa.Schema = getattr(question, side)
    columns, tests = [f"{row} AS {side}_row"], []
    for at, key in enumerate(question.keys):
        field = schema.field(getattr(key, side))
        value = value_sql(field, key.type) if is_numeric(key.type) else quoted(field.name)
        columns.append(f"{value} AS {side[0]}k{at}")
        tests.append(fit_sql(field))
    for at, attribute in enumerate(question.attributes):
        field = schema.field(getattr(attribute, side))
        columns.append(f"{value_sql(field, attribute.type)} AS {side[0]}{at}")
        tests.append(fit_sql(field))
    return f"SELECT {', '.join(columns)}\nFROM {side}_rows\nWHERE {' AND '.join(tests)}"


def fit_sql(field: pa.Field) -> str:
    """That a value can match at all; the test of a null float is not true either."""
    name = quoted(field.name)
    return f"isfinite({name})" if pa.types.is_floating(field.type) else f"{name} IS NOT NULL"


def value_sql(field: pa.Field, common: pa.DataType) -> str:
    name, tests = quoted(field.name), pa.types
    if tests.is_floating(common):
        return f"{name}::DOUBLE"
    if tests.is_integer(common):
        return f"{name}::HUGEINT"
    if tests.is_decimal(common):
        # As text, because a product of decimals may need more digits than DuckDB has.
        return f"replace({name}::DECIMAL(38, {common.scale})::VARCHAR, '.', '')::HUGEINT"
    if tests.is_date32(common):
        return f"({name} - DATE '1970-01-01')::HUGEINT"
    unit = "ms" if tests.is_date64(common) else common.unit
    if unit == "ns":
        return f"epoch_ns({name})::HUGEINT"
    micros = {"us": "", "ms": " // 1000", "s": " // 1000000"}[unit]
    return f"epoch_us({name})::HUGEINT{micros}"


# ── pairs ────────────────────────────────────────────────────────────────────────────────────


def eligible_sql(
    question: Question, more: Iterable[str] = (), *, has_buckets: bool = False,
    has_groups: bool = False,
) -> str:  # fmt: skip
    """Pairs of `l` and `r` within reach; a column ``c0``, ``c1``, … for each cost that has SQL.

    With groups, ``lg`` and ``rg``, only rows of one group meet.
    """
    costs = [
        f"{_cost_sql(attribute, at)} AS c{at}"
        for at, attribute in enumerate(question.attributes)
        if has_sql(attribute)
    ]
    joined = [f"lk{at} = rk{at}" for at in range(len(question.keys))]
    joined += ["lb = rb"] * has_buckets + ["lg = rg"] * has_groups
    near = [(at, a) for at, a in enumerate(question.attributes) if a.is_constrained]
    # One band only: given several, DuckDB's band join pairs their ends badly (41 s instead of 0.6
    # for two bands of 100,000 rows a side, DuckDB 2.0).
    joined += [_band_sql(attribute, at) for at, attribute in near[:1]]
    is_exact = bool(near) and not pa.types.is_floating(near[0][1].type)
    tests = [_within_sql(attribute, at) for at, attribute in near[is_exact:]]
    tests += [f"r{at} <> l{at}" for at, a in enumerate(question.attributes) if a.is_nonzero]
    columns = ["left_row", "right_row", *["lg AS g"] * has_groups, *costs, *more]
    text = f"SELECT {', '.join(columns)}\nFROM l JOIN r\n  ON "
    text += "\n  AND ".join(joined or ["true"])
    return text + ("\nWHERE " + "\n  AND ".join(tests) if tests else "")


def _within_sql(attribute: Attribute, at: int) -> str:
    lo, hi = _bounds(attribute)
    return f"r{at} - l{at} BETWEEN {lo} AND {hi}"


def _band_sql(attribute: Attribute, at: int) -> str:
    """The condition once more, in the form that DuckDB has an algorithm for.

    For floats ``l + hi`` rounds differently from ``r - l``, so that the band is a little wider.
    """
    return "r{} BETWEEN {} AND {}".format(at, *_ends_sql(attribute, at))


def _ends_sql(attribute: Attribute, at: int) -> tuple[str, str]:
    lo, hi = _bounds(attribute)
    if not pa.types.is_floating(attribute.type):
        return f"l{at} + ({lo})", f"l{at} + ({hi})"
    slack = f"(abs(l{at}) + greatest(abs({lo}), abs({hi}))) * 1e-15"
    return f"l{at} + ({lo}) - {slack}", f"l{at} + ({hi}) + {slack}"


def bucket_sql(attribute: Attribute, at: int, width: int | float) -> tuple[str, str]:
    """The one or two buckets that a left row reaches, as a list, and the bucket of a right row.

    Buckets are one more equality key.  Without them, DuckDB tests the band on every pair of rows
    with the same key: 330 s for 540,000 rows a side in three rooms.  Rounding toward zero, or to a
    float, is monotone, and so no pair is lost.
    """
    if pa.types.is_floating(attribute.type):
        first, last, own = (
            f"floor(({value}) / {number_sql(width)})"
            for value in (*_ends_sql(attribute, at), f"r{at}")
        )
    else:
        ends = *_ends_sql(attribute, at), f"r{at}"
        first, last, own = (f"({value}) // {width}" for value in ends)
    return f"CASE WHEN {first} = {last} THEN [{first}] ELSE [{first}, {last}] END", own


def _bounds(attribute: Attribute) -> tuple[str, str]:
    assert attribute.lo is not None and attribute.hi is not None
    if pa.types.is_floating(attribute.type):
        return number_sql(attribute.lo), number_sql(attribute.hi)
    lo, hi = (max(min(int(bound), _WIDEST), -_WIDEST) for bound in (attribute.lo, attribute.hi))
    return str(lo), str(hi)


def number_sql(value: int | float) -> str:
    """A float as a DOUBLE literal; 0.1 alone would be a DECIMAL."""
    text = repr(float(value))
    if math.isinf(value):
        return f"'{text}'::DOUBLE"
    return text if "e" in text else f"{text}e0"


def _cost_sql(attribute: Attribute, at: int) -> str | None:
    measure = attribute.order.measure
    return None if measure is None else measure.cost_sql(f"l{at}", f"r{at}")


def best_sql(question: Question, *, has_groups: bool = False) -> str:
    """The eligible pairs that are best in the question's sense."""
    if question.how == "full":
        halves = [_best_of_sql(question, f"{side}_row") for side in ("left", "right")]
        return "\nUNION\n".join(halves)
    whole = "g" if has_groups else None
    return _best_of_sql(question, whole if question.how == "inner" else f"{question.how}_row")


def _best_of_sql(question: Question, group: str | None) -> str:
    # What makes no pair better, as all of `where=`, would only make the statement slower.
    costs = [f"c{at}" for at, a in enumerate(question.attributes) if a.order != indifferent]
    if not costs:
        return "SELECT * FROM eligible"
    if len(costs) > 2:
        return _not_dominated_sql(costs, group)
    # No pair has a smaller cost among those at least as good on the other attribute.
    parts = [f"PARTITION BY {group}"] if group else []
    tests = []
    for cost in costs:
        others = [f"ORDER BY {other}" for other in costs if other != cost]
        tests.append(f"{cost} = min({cost}) OVER ({' '.join(parts + others)})")
    return "SELECT * FROM eligible\nQUALIFY " + "\n  AND ".join(tests)


def _not_dominated_sql(costs: list[str], group: str | None) -> str:
    as_good = [f"rival.{cost} <= pair.{cost}" for cost in costs]
    better = [f"rival.{cost} < pair.{cost}" for cost in costs]
    if group:
        rivals, as_good = "eligible", [f"rival.{group} = pair.{group}", *as_good]
    else:
        rivals = f"(SELECT DISTINCT {', '.join(costs)} FROM eligible)"
    return (
        "SELECT * FROM eligible AS pair WHERE NOT EXISTS (\n"
        f"  FROM {rivals} AS rival\n"
        f"  WHERE {' AND '.join(as_good)}\n"
        f"    AND ({' OR '.join(better)})\n)"
    )


def kept_sql(kept: Kept) -> str:
    """Of each row's best pairs those that stay."""
    if not kept.ranks:
        return "SELECT * FROM best"
    order = f"PARTITION BY {kept.side}_row ORDER BY {', '.join(kept.ranks)}"
    return f"SELECT * FROM best QUALIFY rank() OVER ({order}) = 1"


NEAREST_SQL = (
    "SELECT * FROM best\nQUALIFY nearness = min(nearness) OVER (PARTITION BY left_row, is_after)"
)
"""Of the pairs whose rounded distances are the least, on each side the nearest value's."""
BOTH_SIDES_SQL = (
    "SELECT left_row, any_value(l0), max(r0) FILTER (NOT is_after), min(r0) FILTER (is_after)\n"
    "FROM best GROUP BY left_row HAVING count(DISTINCT is_after) = 2"
)
"""The rows for which there is one before and one after, and these values."""


def pairs_sql(question: Question, row: str = '"#"', *, chosen: str | None = None) -> str:
    """What comes out, as numbers of rows and costs; NULL where a row has no partner."""
    costs = [f"c{at}" for at in range(len(question.attributes))]
    nothing = "".join(f", NULL AS {cost}" for cost in costs)
    lonely = {
        side: f"SELECT {columns}{nothing}\nFROM {side}_rows\n"
        f"WHERE {row} NOT IN (SELECT {side}_row FROM eligible)"
        for side, columns in (
            ("left", f"{row} AS left_row, NULL AS right_row"),
            ("right", f"NULL AS left_row, {row} AS right_row"),
        )
    }
    if not question.has_right:
        if question.how == "anti":
            return lonely["left"]
        return f"SELECT DISTINCT left_row, NULL AS right_row{nothing} FROM eligible"
    chosen = chosen or ("best" if question.best else "eligible")
    lacks_left, lacks_right = question.may_lack
    parts = [f"SELECT {', '.join(['left_row', 'right_row', *costs])} FROM {chosen}"]
    parts += [lonely["left"]] * lacks_right + [lonely["right"]] * lacks_left
    return "\nUNION ALL\n".join(parts)


# ── what comes out ───────────────────────────────────────────────────────────────────────────


def _output_sql(question: Question, row: str) -> str:
    lefts, rights = question.output_names()
    lacks_left, _ = question.may_lack
    columns = []
    for name, shown in lefts.items():
        value = f"left_rows.{quoted(name)}"
        if lacks_left and name in question.shared_keys:
            value = f"coalesce({value}, right_rows.{quoted(name)})"
        columns.append(f"{value} AS {quoted(shown)}")
    columns += [f"right_rows.{quoted(name)} AS {quoted(shown)}" for name, shown in rights.items()]
    if question.distances:
        columns += [
            f"{distance} AS {quoted(name)}"
            for name, distance in zip(
                question.distance_names(), distances_sql(question), strict=True
            )
        ]
    text = f"SELECT\n  {(',' + chr(10) + '  ').join(columns)}\nFROM pairs\n"
    # With their tables' names: the user's columns may be called left_row or c0 as well.
    text += f"LEFT JOIN left_rows ON left_rows.{row} = pairs.left_row"
    right = f"\nLEFT JOIN right_rows ON right_rows.{row} = pairs.right_row"
    return text + (right if rights else "")


def distances_sql(question: Question) -> list[str]:
    """The distances of `pairs`, one for each attribute that is measured."""
    return [
        attribute.order.measure.distance_sql(f"pairs.c{at}", attribute.type)
        for at, attribute in enumerate(question.attributes)
        if attribute.order.measure and attribute.is_measured
    ]
