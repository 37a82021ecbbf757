"""DuckDB's answer to a join's question.

    tables ──Arrow──▶ numbers of rows, codes of keys, 64-bit values          l, r
                          │ DuckDB: eligible ─▶ best ─▶ pairs of row numbers     (sql.py)
    tables ──take────▶ the rows of those pairs

DuckDB sees nothing but numbers: no payload passes through it, so every type that Arrow has can be
verified, and nanoseconds stay nanoseconds.  What an order has no SQL for (a function to minimize,
subset, a partial order) is reckoned here by its meaning in Python, pair by pair, on DuckDB's
eligible pairs; that is for small tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.attributes import Attribute, KeyPair
from matwin.operators.duckdb import first_lines, opened
from matwin.question import Question
from matwin.side import converted
from matwin.storage.columns import Int64s, cast_columns, comparable
from matwin.storage.decimals import decimals
from matwin.storage.errors import InputError, StoreError

from .verify_sql import (
    BOTH_SIDES_SQL,
    NEAREST_SQL,
    Kept,
    best_sql,
    bucket_sql,
    distances_sql,
    eligible_sql,
    has_sql,
    kept_sql,
    pairs_sql,
)


@dataclass(frozen=True, slots=True)
class Groups:
    """A number for each row of both sides; rows of one group are a join of their own."""

    left: Int64s
    right: Int64s


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows in the left input's order, those without a left row last, and the number of each one's
    left row and of its group."""

    rows: pa.Table
    places: Int64s
    groups: Int64s | None = None


def answer(left: pa.Table, right: pa.Table, question: Question) -> pa.Table:
    """DuckDB's answer to the question."""
    return ordered_answer(left, right, question).rows


def ordered_answer(
    left: pa.Table, right: pa.Table, question: Question, kept: Kept | None = None,
    groups: Groups | None = None,
) -> Answer:  # fmt: skip
    """DuckDB's answer, in order; of best pairs those that are kept, and each group by itself."""
    left, right = plain_table(left, question.left), plain_table(right, question.right)
    has_groups = groups is not None
    with database_in_memory() as database:
        widest = _load(database, left, right, question, groups)
        has_buckets = _add_buckets(database, question, widest)
        text = eligible_sql(
            question, kept.columns if kept else (), has_buckets=has_buckets, has_groups=has_groups
        )
        _eligible(database, left, right, question, text)
        if question.best and not _choose(database, left, right, question):
            best = best_sql(question, has_groups=has_groups)
            database.execute(f"CREATE TABLE best AS {best}")
        if kept is not None and kept.is_nearest:
            _keep_nearest(database)
        if kept is not None:
            database.execute(f"CREATE TABLE kept AS {kept_sql(kept)}")
        pairs = _pairs(database, question, "kept" if kept else None)
    return _in_order(left, right, question, pairs, groups)


def _keep_nearest(database: Any) -> None:
    """Leave in `best` those that are exactly the nearest; DuckDB's distances of floats are rounded,
    so that Python has to tell where one before and one after look equally far."""
    database.execute(f"CREATE OR REPLACE TABLE best AS {NEAREST_SQL}")
    farther = []
    for row, own, before, after in database.sql(BOTH_SIDES_SQL).fetchall():
        left, right = Fraction(own) - Fraction(before), Fraction(after) - Fraction(own)
        if left != right:
            farther.append((row, right > left))
    if farther:
        rows, sides = zip(*farther, strict=True)
        found = pa.table({"row": pa.array(rows, pa.int64()), "side": pa.array(sides)})
        create_table(database, "farther", found, ["*"])
        database.execute(
            "DELETE FROM best WHERE (left_row, is_after) IN (SELECT (row, side) FROM farther)"
        )


def _pairs(database: Any, question: Question, chosen: str | None) -> pa.Table:
    """What comes out, as numbers of rows and distances."""
    distances = distances_sql(question) if question.distances else []
    columns = ", ".join(["left_row", "right_row", *distances])
    text = f"SELECT {columns} FROM ({pairs_sql(question, chosen=chosen)}) AS pairs"
    return database.sql(f"{text} ORDER BY left_row NULLS LAST, right_row").to_arrow_table()


def _in_order(
    left: pa.Table, right: pa.Table, question: Question, pairs: pa.Table, groups: Groups | None
) -> Answer:
    rows = _rows(left, right, question, pairs)
    ours, theirs = (
        pairs[name].cast(pa.int64()).fill_null(-1).to_numpy() for name in ("left_row", "right_row")
    )
    places = np.where(ours < 0, left.num_rows, ours)
    if groups is None:
        return Answer(rows, places)
    found = np.append(groups.right, -1)[theirs]
    return Answer(rows, places, np.where(ours < 0, found, np.append(groups.left, -1)[ours]))


@contextmanager
def database_in_memory(reads: Sequence[str] = ()) -> Iterator[Any]:
    """A database of DuckDB's that knows what it is given and the files that it `reads`."""
    with opened(threads=None, reads=reads) as database:
        try:
            yield database.connection
        except Exception as error:
            if not database.is_foreign(error):
                raise
            told = database.shortage(error, "the verification")
            reason = first_lines(error).splitlines()[0]
            raise told or StoreError(f"DuckDB has no answer to compare with: {reason}") from error


def plain_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([cast_columns(b, schema) for b in table.to_batches()], schema)


def _load(
    database: Any,
    left: pa.Table,
    right: pa.Table,
    question: Question,
    groups: Groups | None,
) -> list[float]:
    """Make `left_rows` and `right_rows`, and `l` and `r` of the rows that can match.

    The largest number of each attribute, of either sign, is told.
    """
    widest = [0.0] * len(question.attributes)
    keys = [_key_codes(left, right, key) for key in question.keys]
    for at, (side, table) in enumerate((("left", left), ("right", right))):
        rows = pa.array(np.arange(table.num_rows))
        create_table(database, f"{side}_rows", pa.table({"#": rows}), ['"#"'])
        columns = {f"{side}_row": rows}
        if groups is not None:
            columns[f"{side[0]}g"] = pa.array(getattr(groups, side))
        columns |= {f"{side[0]}k{number}": codes[at] for number, codes in enumerate(keys)}
        is_fit = np.ones(table.num_rows, np.bool_)
        for number, attribute in enumerate(question.attributes):
            values, valid = _values(table, getattr(attribute, side), attribute)
            is_fit &= valid
            if values is not None:
                columns[f"{side[0]}{number}"] = pa.array(values)
        for column in columns.values():
            is_fit &= np.asarray(column.is_valid())
        fit = pa.table(columns).filter(pa.array(is_fit))
        for number in range(len(widest)):
            widest[number] = max(widest[number], largest_of(fit, f"{side[0]}{number}"))
        wide = [f"{n}::HUGEINT AS {n}" if _is_value(n, fit) else n for n in fit.column_names]
        create_table(database, side[0], fit, wide)
    return widest


def largest_of(rows: pa.Table, name: str) -> float:
    if name not in rows.column_names or not rows.num_rows:
        return 0.0
    ends = pc.min_max(rows[name]).as_py()
    return max(abs(float(ends["min"])), abs(float(ends["max"])))


def _add_buckets(database: Any, question: Question, widest: list[float]) -> bool:
    """Give `l` and `r` buckets of the first attribute with a tolerance, if there can be any."""
    near = [(at, a) for at, a in enumerate(question.attributes) if a.is_constrained]
    width = _bucket_width(near[0][1], widest[near[0][0]]) if near else None
    if width is None:
        return False
    left, right = bucket_sql(near[0][1], near[0][0], width)
    for name, bucket in (("l", f"unnest({left}) AS lb"), ("r", f"{right} AS rb")):
        database.execute(f"CREATE TABLE bucketed AS SELECT *, {bucket} FROM {name}")
        database.execute(f"DROP TABLE {name}")
        database.execute(f"ALTER TABLE bucketed RENAME TO {name}")
    return True


def _bucket_width(attribute: Attribute, largest: float) -> int | float | None:
    """So wide that no row reaches more than two buckets, whatever is lost to rounding."""
    assert attribute.lo is not None and attribute.hi is not None
    if not pa.types.is_floating(attribute.type):
        return min(max(int(attribute.hi) - int(attribute.lo), 1), 2**66)
    bound = max(abs(attribute.lo), abs(attribute.hi))
    width = max(2.0 * (attribute.hi - attribute.lo), (largest + bound) * 1e-14, 1e-300)
    return width if width < 1e300 and largest + bound < 1e300 else None


def create_table(database: Any, name: str, rows: pa.Table, columns: list[str]) -> None:
    database.register("given", rows)
    database.execute(f"CREATE TABLE {name} AS SELECT {', '.join(columns)} FROM given")
    database.unregister("given")


def _is_value(name: str, rows: pa.Table) -> bool:
    return name[1:].isdigit() and pa.types.is_integer(rows.schema.field(name).type)


def _values(
    table: pa.Table, column: str, attribute: Attribute
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.bool_]]:
    """What is compared, if it is a number, and which rows have something to compare."""
    found = table[column].combine_chunks()
    if not attribute.is_number:
        valid = np.asarray(found.is_valid())
        if pa.types.is_floating(found.type):
            valid &= np.asarray(pc.is_finite(found).fill_null(False))
        return None, valid
    values, is_there = comparable(as_common(found, column, attribute.type))
    valid = np.ones(len(values), np.bool_) if is_there is None else is_there
    if values.dtype == np.float64:
        valid = valid & np.isfinite(values)
        values = values + 0.0
    return values, valid


def as_common(column: pa.Array, name: str, common: pa.DataType) -> pa.Array:
    """A column as numbers that DuckDB compares: decimals are counts of their last digit."""
    try:
        return converted(column, common)
    except pa.ArrowInvalid as e:
        raise InputError(f"column {name!r} can't be compared as {common}: {e}") from e


def _key_codes(left: pa.Table, right: pa.Table, key: KeyPair) -> tuple[pa.Array, pa.Array]:
    """Numbers for the values of a key, the same for equal values; null for what never matches."""
    chunks = [
        as_common(table[name].combine_chunks(), name, key.type)
        for table, name in ((left, key.left), (right, key.right))
    ]
    codes = codes_of(pa.concat_arrays(chunks))
    return codes[: left.num_rows], codes[left.num_rows :]


def codes_of(values: pa.Array) -> pa.Array:
    """The same number for equal values of a key; null for those that never match."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # -0.0 + 0.0 is 0.0
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    return pc.dictionary_encode(values).indices


# ── what Python is asked for ─────────────────────────────────────────────────────────────────


def _eligible(
    database: Any,
    left: pa.Table,
    right: pa.Table,
    question: Question,
    text: str,
) -> None:
    """Make `eligible` by its SQL, with the costs that only Python knows; a black box has none."""
    unsaid = [(at, a) for at, a in enumerate(question.attributes) if not has_sql(a)]
    if all(a.order.measure is None for _, a in unsaid):
        wide = ", ".join(["*", *(f"NULL AS c{at}" for at, _ in unsaid)])
        database.execute(f"CREATE TABLE eligible AS SELECT {wide} FROM ({text})")
        return
    pairs = database.sql(text).to_arrow_table()
    for at, attribute in unsaid:
        pairs = pairs.append_column(f"c{at}", _costs(left, right, attribute, pairs))
    create_table(database, "eligible", pairs, ["*"])


def _costs(left: pa.Table, right: pa.Table, attribute: Attribute, pairs: pa.Table) -> pa.Array:
    measure = attribute.order.measure
    if measure is None:
        return pa.nulls(len(pairs))
    return _numbers(list(map(measure.cost, *_pair_values(left, right, attribute, pairs))))


def _numbers(values: list[Any]) -> pa.Array:
    is_whole = all(isinstance(value, int) for value in values)
    return pa.array(values, pa.int64() if is_whole else pa.float64())


def _pair_values(
    left: pa.Table, right: pa.Table, attribute: Attribute, pairs: pa.Table
) -> tuple[list[Any], list[Any]]:
    """An attribute's values for each pair, as Python's."""
    found = []
    for table, side in ((left, "left"), (right, "right")):
        name = getattr(attribute, side)
        values, _ = _values(table, name, attribute)
        listed = table[name].to_pylist() if values is None else values.tolist()
        found.append([listed[row] for row in pairs[f"{side}_row"].to_pylist()])
    return found[0], found[1]


def _choose(database: Any, left: pa.Table, right: pa.Table, question: Question) -> bool:
    """Make `best` in Python where an order is a black box; whether it was."""
    if not question.black_boxes:
        return False
    pairs = database.sql("SELECT * FROM eligible").to_arrow_table()
    tests = [
        _as_good(attribute, number, left, right, pairs)
        for number, attribute in enumerate(question.attributes)
    ]

    def dominates(one: int, other: int) -> bool:
        return all(test(one, other) for test in tests) and not all(
            test(other, one) for test in tests
        )

    best: set[int] = set()
    for group in _groups(question.how, pairs):
        best |= {p for p in group if not any(dominates(rival, p) for rival in group)}
    create_table(database, "best", pairs.take(pa.array(sorted(best), pa.int64())), ["*"])
    return True


def _groups(how: str, pairs: pa.Table) -> list[list[int]]:
    """The pairs that compete with each other, as places in `pairs`."""
    groups: dict[tuple[str, int], list[int]] = {}
    if how == "inner":
        whole = pairs["g"].to_pylist() if "g" in pairs.column_names else [0] * pairs.num_rows
        for place, group in enumerate(whole):
            groups.setdefault((how, group), []).append(place)
    for side in ("left", "right"):
        if how in (side, "full"):
            for place, row in enumerate(pairs[f"{side}_row"].to_pylist()):
                groups.setdefault((side, row), []).append(place)
    return list(groups.values())


def _as_good(
    attribute: Attribute, number: int, left: pa.Table, right: pa.Table, pairs: pa.Table
) -> Callable[[int, int], bool]:
    """Whether one pair is at least as good as another on an attribute."""
    box = attribute.order.black_box
    if box is None:
        costs = pairs[f"c{number}"].to_pylist()
        return lambda one, other: bool(costs[one] <= costs[other])
    values = list(zip(*_pair_values(left, right, attribute, pairs), strict=True))
    return lambda one, other: box.compare(values[one], values[other]) is True


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


def _rows(left: pa.Table, right: pa.Table, question: Question, pairs: pa.Table) -> pa.Table:
    """The output rows of pairs of row numbers and distances."""
    ours = left.take(pairs["left_row"].cast(pa.int64()))
    columns = {name: ours[name] for name in question.output_names()[0]}
    theirs = right.take(pairs["right_row"].cast(pa.int64()))
    if question.may_lack[0]:
        for name in question.shared_keys:
            # Either side's value, in the type that the result has for both.
            wanted = question.schema.field(question.output_names()[0][name]).type
            columns[name] = pc.coalesce(columns[name].cast(wanted), theirs[name].cast(wanted))
    listed = [*columns.values(), *(theirs[name] for name in question.output_names()[1])]
    measured = question.measured if question.distances else ()
    for attribute, counts in zip(measured, pairs.columns[2:], strict=True):
        listed.append(_distance(counts, attribute.distance_type))
    return pa.table(listed, schema=question.schema)


def _distance(counts: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(wanted):
        shown = [decimals(np.asarray(one), wanted.scale) for one in counts.chunks]
        return pa.chunked_array(shown, wanted)
    if pa.types.is_date32(wanted) or pa.types.is_time32(wanted):
        counts = counts.cast(pa.int32())
    return counts.cast(wanted)
