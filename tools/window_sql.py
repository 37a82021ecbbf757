"""A window join's question in DuckDB's SQL.

    windows={("a", "b"): "5s", ("b", "c"): (0, "3s")}, by="obj"

    a_rows, b_rows, c_rows      the rows that can match: time, keys and tolerances as numbers
        │
    FROM a_rows
    JOIN b_rows ON key, window (a, b)           one given window leads to each next stream
    JOIN c_rows ON key, window (b, c)
    WHERE the other windows, the tolerances     for a path both ways: one direction OR the other

`question_sql` is all of it, to be read and run by a person.  `tuples_sql` is what the verifier
runs, on tables that hold nothing but numbers, step by step with buckets of time.

The windows are those of the arguments.  What follows from them, which the operator works with, is
not used here.  Integers and times are compared as HUGEINT and floats as DOUBLE, as in `sql.py`.

Left out: functions in `where`.  They have no SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from matwin.storage.columns import is_numeric
from matwin.storage.errors import InputError

from .verify_sql import check_alike, fit_sql, indented, number_sql, quoted, value_sql
from .window_question import Near, PlainQuestion

_WIDEST = 2**65
"""No difference of two 64-bit numbers is larger, so larger bounds mean the same."""


@dataclass(frozen=True, slots=True)
class Band:
    """``lo <= b - a <= hi`` as SQL."""

    lo: int | float
    hi: int | float
    is_float: bool

    def within(self, a: str, b: str) -> str:
        """The condition, as it is meant."""
        lo, hi = self._bounds()
        return f"{b} - {a} BETWEEN {lo} AND {hi}"

    def joined(self, a: str, b: str) -> str:
        """The condition in the form that DuckDB has an algorithm for; wider with floats."""
        first, last = self.ends(a)
        return f"{b} BETWEEN {first} AND {last}"

    def ends(self, a: str) -> tuple[str, str]:
        """Between which values `b` may be; for floats a little more, since sums are rounded."""
        lo, hi = self._bounds()
        if not self.is_float:
            return f"{a} + ({lo})", f"{a} + ({hi})"
        slack = f"(abs({a}) + greatest(abs({lo}), abs({hi}))) * 1e-15"
        return f"{a} + ({lo}) - {slack}", f"{a} + ({hi}) + {slack}"

    def buckets(self, a: str, b: str, largest: float) -> tuple[str, str] | None:
        """The one or two buckets that `a` reaches, as a list, and the bucket of `b`.

        Without them DuckDB tests the band on every pair of rows with the same key.  `largest` is
        the largest number among the values; None if the buckets would lie beyond the floats.
        """
        width = self._width(largest)
        if width is None:
            return None
        first, last = self.ends(a)
        if self.is_float:
            first, last, own = (f"floor(({v}) / {number_sql(width)})" for v in (first, last, b))
        else:
            first, last, own = (f"({value}) // {width}" for value in (first, last, b))
        return f"CASE WHEN {first} = {last} THEN [{first}] ELSE [{first}, {last}] END", own

    def _width(self, largest: float) -> int | float | None:
        if not self.is_float:
            return min(max(int(self.hi) - int(self.lo), 1), 2**66)
        bound = max(abs(self.lo), abs(self.hi))
        width = max(2.0 * (self.hi - self.lo), (largest + bound) * 1e-14, 1e-300)
        return width if width < 1e300 and largest + bound < 1e300 else None

    def _bounds(self) -> tuple[str, str]:
        if self.is_float:
            return number_sql(self.lo), number_sql(self.hi)
        lo, hi = (max(min(int(bound), _WIDEST), -_WIDEST) for bound in (self.lo, self.hi))
        return str(lo), str(hi)


@dataclass(frozen=True, slots=True)
class Step:
    """A stream that joins the ones before it, by a window with one of them."""

    stream: int
    partner: int
    band: Band


def steps_of(question: PlainQuestion) -> list[Step]:
    """An order in which every stream but the first has a given window with one before it."""
    pairs = hulls(question)
    done, found = {0}, []
    while len(done) < len(question.names):
        a, b, band = next(p for p in pairs if (p[0] in done) != (p[1] in done))
        if b in done:
            a, b, band = b, a, Band(-band.hi, -band.lo, band.is_float)
        found.append(Step(b, a, band))
        done.add(b)
    return found


def hulls(question: PlainQuestion) -> list[tuple[int, int, Band]]:
    """For each given window the differences that some alternative admits."""
    is_float = pa.types.is_floating(question.time_type)
    return [
        (
            same[0].a, same[0].b,
            Band(min(one.lo for one in same), max(one.hi for one in same), is_float),
        )
        for same in zip(*question.alternatives, strict=True)
    ]  # fmt: skip


def alternatives_sql(question: PlainQuestion, times: Sequence[str]) -> str:
    """That one of the alternatives holds."""
    is_float = pa.types.is_floating(question.time_type)
    systems = [
        "\n  AND ".join(
            Band(one.lo, one.hi, is_float).within(times[one.a], times[one.b]) for one in system
        )
        for system in question.alternatives
    ]
    if len(systems) == 1:
        return systems[0]
    return "(" + "\n  OR ".join(f"({system})" for system in systems) + ")"


# ── for a person ─────────────────────────────────────────────────────────────────────────────


def question_sql(question: PlainQuestion, tables: Sequence[str] | None = None) -> str:
    """The question as one statement over tables, views or files of these names."""
    _check_sayable(question)
    places = list(tables or question.names)
    rows = _row_names(question, places)
    mark = _mark(question)
    parts = [
        f"{name} AS (\n{indented(_rows_sql(question, number, quoted(places[number]), mark))}\n)"
        for number, name in enumerate(rows)
    ]
    columns = [
        f"{rows[column.stream]}.{quoted(column.name)} AS {quoted(shown)}"
        for column, shown in question.output()
    ]
    return (
        "WITH\n" + ",\n".join(parts) + "\nSELECT\n  " + ",\n  ".join(columns)
        + f"\nFROM {rows[0]}\n" + "\n".join(_joins_sql(question, rows, mark))
        + "\nWHERE " + "\n  AND ".join(_tests_sql(question, rows, mark))
    )  # fmt: skip


def _check_sayable(question: PlainQuestion) -> None:
    for condition in question.conditions:
        raise InputError(
            f"where: the function {condition.name!r} has no SQL; verify the join instead, "
            "which can ask Python"
        )
    for stream, schema in zip(question.names, question.schemas, strict=True):
        check_alike(schema, f"stream {stream!r}: ")


def _row_names(question: PlainQuestion, tables: Sequence[str]) -> list[str]:
    """A name for the rows of each stream, unlike the tables'; DuckDB ignores case."""
    taken = {table.lower() for table in tables}
    found = []
    for name in question.names:
        rows = f"{name}_rows"
        while rows.lower() in taken:
            rows += "_"
        taken.add(rows.lower())
        found.append(quoted(rows))
    return found


def _mark(question: PlainQuestion) -> str:
    """How the names of our own columns begin, and no other does."""
    mark = "#"
    while any(name.startswith(mark) for schema in question.schemas for name in schema.names):
        mark += "#"
    return mark


def _rows_sql(question: PlainQuestion, number: int, table: str, mark: str) -> str:
    """The rows of one stream that can match, and what is compared as numbers."""
    schema = question.schemas[number]
    time = schema.field(question.times[number])
    columns = [f"{value_sql(time, question.time_type)} AS {quoted(mark + 't')}"]
    tests = [fit_sql(time)]
    for at, key in enumerate(question.keys):
        field = schema.field(key.columns[number])
        value = value_sql(field, key.type) if is_numeric(key.type) else quoted(field.name)
        columns.append(f"{value} AS {quoted(f'{mark}k{at}')}")
        tests.append(fit_sql(field))
    for at, near in enumerate(question.near):
        for column in (near.a, near.b):
            if column.stream == number:
                field = schema.field(column.name)
                columns.append(f"{value_sql(field, near.type)} AS {quoted(f'{mark}x{at}')}")
                tests.append(fit_sql(field))
    return f"SELECT *, {', '.join(columns)}\nFROM {table}\nWHERE {' AND '.join(tests)}"


def _joins_sql(question: PlainQuestion, rows: list[str], mark: str) -> Iterator[str]:
    for step in steps_of(question):
        ours, theirs = rows[step.partner], rows[step.stream]
        tests = [
            f"{theirs}.{quoted(f'{mark}k{at}')} = {ours}.{quoted(f'{mark}k{at}')}"
            for at in range(len(question.keys))
        ]
        time = quoted(f"{mark}t")
        tests.append(step.band.joined(f"{ours}.{time}", f"{theirs}.{time}"))
        yield f"JOIN {theirs}\n  ON " + "\n  AND ".join(tests)


def _tests_sql(question: PlainQuestion, rows: list[str], mark: str) -> list[str]:
    found = [alternatives_sql(question, [f"{name}.{quoted(f'{mark}t')}" for name in rows])]
    for at, near in enumerate(question.near):
        value = quoted(f"{mark}x{at}")
        values = (f"{rows[near.a.stream]}.{value}", f"{rows[near.b.stream]}.{value}")
        found += _near_tests(near, *values)
    return found


def _near_tests(near: Near, a: str, b: str) -> list[str]:
    """That two values are as near as they have to be."""
    band = Band(near.lo, near.hi, pa.types.is_floating(near.type))
    return [band.within(a, b), *[f"{b} <> {a}"] * near.is_nonzero]


# ── for the verifier ─────────────────────────────────────────────────────────────────────────


def tuples_sql(question: PlainQuestion, largest: float) -> str:
    """The numbers of the rows of each tuple, ``r0``, ``r1``, …, without functions.

    Stream i is a table ``s<i>`` of `row`, `t`, ``k<n>`` for each key and ``x<n>`` for each
    tolerance that it has a column in; nothing in it is null.  `largest` is the largest time.
    """
    keys = [f"k{at}" for at in range(len(question.keys))]
    first = [f"row AS r0, t AS t0{''.join(f', {k}' for k in keys)}", *_near_columns(question, 0)]
    parts = [f"j0 AS (SELECT {', '.join(first)} FROM s0)"]
    done = [0]
    for number, step in enumerate(steps_of(question), start=1):
        text = _step_sql(question, step, f"j{number - 1}", done, largest)
        parts.append(f"j{number} AS (\n{indented(text)}\n)")
        done.append(step.stream)
    rows = ", ".join(f"r{at}" for at in range(len(question.names)))
    times = [f"t{at}" for at in range(len(question.names))]
    return (
        "WITH\n" + ",\n".join(parts)
        + f"\nSELECT {rows} FROM j{len(done) - 1}\nWHERE {alternatives_sql(question, times)}"
    )  # fmt: skip


def _near_columns(question: PlainQuestion, stream: int, alias: str = "") -> list[str]:
    return [
        f"{alias}x{at} AS x{at}_{stream}"
        for at, near in enumerate(question.near)
        if stream in (near.a.stream, near.b.stream)
    ]


def _step_sql(
    question: PlainQuestion, step: Step, before: str, done: list[int], largest: float
) -> str:
    """One more stream beside the tuples so far, and what can be tested by now."""
    ours = f"t{step.partner}"
    columns = [f"s.row AS r{step.stream}", f"s.t AS t{step.stream}"]
    columns += _near_columns(question, step.stream, "s.")
    tests = [f"s.k{at} = j.k{at}" for at in range(len(question.keys))]
    tests.append(step.band.joined(f"j.{ours}", "s.t"))
    buckets = step.band.buckets(ours, "s.t", largest)
    if buckets is None:
        start = f"SELECT j.*, {', '.join(columns)}\nFROM {before} AS j"
    else:
        tests.append(f"{buckets[1]} = j.b")
        start = (
            f"SELECT j.* EXCLUDE (b), {', '.join(columns)}\n"
            f"FROM (SELECT *, unnest({buckets[0]}) AS b FROM {before}) AS j"
        )
    text = f"{start}\nJOIN s{step.stream} AS s\n  ON " + "\n  AND ".join(tests)
    known = _known_tests(question, step.stream, done)
    return text + ("\nWHERE " + "\n  AND ".join(known) if known else "")


def _known_tests(question: PlainQuestion, stream: int, done: list[int]) -> list[str]:
    """The windows and tolerances between the new stream and those before it."""

    def is_known(a: int, b: int) -> bool:
        return (a == stream and b in done) or (b == stream and a in done)

    def time(number: int) -> str:
        return "s.t" if number == stream else f"j.t{number}"

    found = [band.within(time(a), time(b)) for a, b, band in hulls(question) if is_known(a, b)]
    for at, near in enumerate(question.near):
        a, b = near.a.stream, near.b.stream
        if is_known(a, b):
            values = [f"s.x{at}" if number == stream else f"j.x{at}_{number}" for number in (a, b)]
            found += _near_tests(near, *values)
    return found
