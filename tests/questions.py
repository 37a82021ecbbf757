"""The referee: small tables with every trap in them, and joins of them as a plain nested loop.

    case = cases(best=True)            tables and arguments of a join, drawn by Hypothesis
    rows = oracle(left, right, question)      what has to come out, pair by pair, in Python
    as_bag(found) == as_bag(rows)             rows with their multiplicity, in any order

Nothing here is fast or clever.  Numbers and times are compared as Python's integers and floats:
``lo <= right - left <= hi``.  A value is shown as a number where it can be (times as counts of
their unit), so that rows are tuples that can be counted.

A row can be eligible only when none of its keys and none of its join attributes is null, NaN or
infinite.  Functions and black-box orders get numbers (times as counts), and Python's
own values for what is not a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from matwin.attributes import Attribute
from matwin.bounds import Strict, nonzero, strict
from matwin.orders import (
    Indifferent,
    MinDistance,
    Minimize,
    PartialOrder,
    Subset,
    Youngest,
    minimize,
    partial_order,
    subset,
    youngest,
)
from matwin.question import BESTMATCH_HOWS, EPSILON_HOWS, Question
from matwin.result import Result

Row = tuple[Any, ...]
Pair = tuple[int, int]
NAN = ("NaN",)
"""What stands for NaN, which would not equal itself."""

# ── the oracle ───────────────────────────────────────────────────────────────────────────────


def oracle(left: pa.Table, right: pa.Table, question: Question, ties: Any = "all") -> list[Row]:
    """The rows that have to come out, as tuples in the order of the question's schema."""
    values = [_values(left, right, attribute) for attribute in question.attributes]
    eligible = _eligible(left, right, question, values)
    chosen = _best(eligible, values, question) if question.best else eligible
    chosen = _without_ties(chosen, values, question, ties)
    lines = _lines(left.num_rows, right.num_rows, eligible, chosen, question)
    shown = _shown(left, right, question)
    return [_row(i, j, shown, question, values) for i, j in lines]


def _values(left: pa.Table, right: pa.Table, attribute: Attribute) -> tuple[list[Any], list[Any]]:
    """Both columns of an attribute as what is compared; None for what can never match."""
    columns = left[attribute.left], right[attribute.right]
    if attribute.is_number:
        columns = tuple(c.cast(attribute.type) for c in map(_decoded, columns))
    lists = [plain_values(column) for column in columns]
    return tuple([None if _is_unfit(v) else v for v in values] for values in lists)


def _is_unfit(value: Any) -> bool:
    return value is None or value == NAN or (isinstance(value, float) and math.isinf(value))


def _eligible(
    left: pa.Table, right: pa.Table, question: Question, values: list[tuple[list[Any], list[Any]]]
) -> list[Pair]:
    keys = [
        [plain_values(_decoded(c).cast(key.type)) for c in (left[key.left], right[key.right])]
        for key in question.keys
    ]
    return [
        (i, j)
        for i in range(left.num_rows)
        for j in range(right.num_rows)
        if all(ours[i] == theirs[j] and not _is_unfit(ours[i]) for ours, theirs in keys)
        and all(
            _is_near(ours[i], theirs[j], attribute)
            for attribute, (ours, theirs) in zip(question.attributes, values, strict=True)
        )
    ]


def _is_near(left: Any, right: Any, attribute: Attribute) -> bool:
    if left is None or right is None or (attribute.is_nonzero and left == right):
        return False
    return attribute.lo is None or bool(attribute.lo <= right - left <= attribute.hi)


def _best(
    eligible: list[Pair], values: list[tuple[list[Any], list[Any]]], question: Question
) -> list[Pair]:
    def is_best(pair: Pair, rivals: Iterable[Pair]) -> bool:
        return not any(dominates(rival, pair) for rival in rivals)

    def dominates(rival: Pair, pair: Pair) -> bool:
        return is_as_good(rival, pair) and not is_as_good(pair, rival)

    def is_as_good(one: Pair, other: Pair) -> bool:
        return all(
            _is_as_good(attribute, values_of(one, columns), values_of(other, columns))
            for attribute, columns in compared
        )

    def values_of(pair: Pair, columns: tuple[list[Any], list[Any]]) -> tuple[Any, Any]:
        return columns[0][pair[0]], columns[1][pair[1]]

    compared = list(zip(question.attributes, values, strict=True))
    best = []
    for pair in eligible:
        of_left = [rival for rival in eligible if rival[0] == pair[0]]
        of_right = [rival for rival in eligible if rival[1] == pair[1]]
        if (
            (question.how == "inner" and is_best(pair, eligible))
            or (question.how in ("left", "full") and is_best(pair, of_left))
            or (question.how in ("right", "full") and is_best(pair, of_right))
        ):
            best.append(pair)
    return best


def _without_ties(
    chosen: list[Pair], values: list[tuple[list[Any], list[Any]]], question: Question, ties: Any
) -> list[Pair]:
    """Of each row's best pairs those that `ties` keeps: one attribute after the other, then an
    end of the other side's order."""
    probe = 0 if question.how == "left" else 1
    names = [attribute.name for attribute in question.attributes]
    for word in [ties] if isinstance(ties, str) else ties:
        if word == "all":
            continue

        def is_beaten(pair: Pair, word: str = word, rivals: list[Pair] = chosen) -> bool:
            own = [rival for rival in rivals if rival[probe] == pair[probe]]
            if word in ("first", "last"):
                end = (min if word == "first" else max)(rival[1 - probe] for rival in own)
                return pair[1 - probe] != end
            at = names.index(word)
            (lefts, rights), attribute = values[at], question.attributes[at]
            mine = lefts[pair[0]], rights[pair[1]]
            return any(not _is_as_good(attribute, mine, (lefts[i], rights[j])) for i, j in own)

        chosen = [pair for pair in chosen if not is_beaten(pair)]
    return chosen


def _is_as_good(attribute: Attribute, one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    match attribute.order:
        case MinDistance():
            return bool(abs(one[1] - one[0]) <= abs(other[1] - other[0]))
        case Indifferent():
            return True
        case Youngest():
            return bool(max(one) >= max(other))
        case Minimize(function):
            return bool(function(*one) <= function(*other))
        case Subset():
            return _common(one) >= _common(other)
        case PartialOrder(function):
            return function(one, other) is True
    raise AssertionError(attribute.order)


def _common(pair: tuple[Any, Any]) -> set[Any]:
    return (set(pair[0]) & set(pair[1])) - {None, NAN}


def _lines(
    lefts: int, rights: int, eligible: list[Pair], chosen: list[Pair], question: Question
) -> list[tuple[int | None, int | None]]:
    """Which left and which right row make each output row."""
    matched_left = {i for i, _ in eligible}
    matched_right = {j for _, j in eligible}
    lonely_left = [(i, None) for i in range(lefts) if i not in matched_left]
    lonely_right = [(None, j) for j in range(rights) if j not in matched_right]
    if not question.best and question.how == "semi":
        return [(i, None) for i in sorted(matched_left)]
    if not question.best and question.how == "anti":
        return lonely_left
    lacks_left, lacks_right = question.may_lack
    return [*chosen, *(lonely_left if lacks_right else []), *(lonely_right if lacks_left else [])]


def _shown(left: pa.Table, right: pa.Table, question: Question) -> tuple[Any, Any, Any]:
    keys = {
        name: plain_values(_decoded(right[name]).cast(question.left.field(name).type))
        for name in question.shared_keys
        if question.has_right
    }
    lefts = {name: plain_values(left[name]) for name in left.column_names}
    return lefts, {name: plain_values(right[name]) for name in right.column_names}, keys


def _row(i: int | None, j: int | None, shown: Any, question: Question, values: Any) -> Row:
    lefts, rights, keys = shown
    row = []
    for name, column in lefts.items():
        if i is not None:
            row.append(column[i])
        else:
            row.append(keys[name][j] if name in question.shared_keys else None)
    for name in question.output_names()[1]:
        row.append(None if j is None else rights[name][j])
    if question.distances:
        for attribute, (ours, theirs) in zip(question.attributes, values, strict=True):
            if attribute in question.measured:
                is_pair = i is not None and j is not None
                row.append(_distance(attribute, ours[i], theirs[j]) if is_pair else None)
    return tuple(row)


def _distance(attribute: Attribute, left: Any, right: Any) -> Any:
    match attribute.order:
        case Youngest():
            return max(left, right)
        case Minimize(function):
            return float(function(left, right))
    days = 86_400 if pa.types.is_date32(attribute.type) else 1
    return abs(right - left) * days


# ── bags ─────────────────────────────────────────────────────────────────────────────────────


def as_bag(rows: pa.Table | pa.RecordBatchReader | Result | Iterable[Row]) -> Counter[Row]:
    """Rows and how often each occurs; NaN equals NaN, -0.0 equals 0.0, null equals null."""
    if isinstance(rows, pa.RecordBatchReader | Result):
        rows = rows.read_all()
    if isinstance(rows, pa.Table):
        columns = [plain_values(column) for column in rows.columns]
        rows = zip(*columns, strict=True) if columns else [()] * rows.num_rows
    return Counter(rows)


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Python's, comparable and hashable; times as counts of their unit."""
    column = _decoded(column)
    data_type = column.type
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(data_type):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    is_plain = not pa.types.is_floating(data_type) and not pa.types.is_nested(data_type)
    return values if is_plain else [_plain(value) for value in values]


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        return pa.chunked_array(
            [pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type
        )
    return column


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict):
        return tuple((name, _plain(v)) for name, v in value.items())
    return value


# ── tables ───────────────────────────────────────────────────────────────────────────────────

INT_EDGES = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1, 2**53, 2**53 + 1]
INTS = st.integers(-4, 4)
UINT_EDGES = [2**64 - 1, 2**64 - 3, 2**63, 2**63 - 1]
FAR_TIMES = [-(2**61), 2**61, 2**61 + 1]  # whose differences are still 64-bit durations
# Tenths are where rounding decides: 0.3 - 0.2 is a little less than 0.1, 0.8 - 0.7 a little more.
FLOATS = st.integers(-8, 8).map(lambda n: n * 0.1) | st.integers(-8, 8).map(lambda n: n / 10)
ODD_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, 1e16]

KINDS: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "int16": pa.int16(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "float32": pa.float32(),
    "timestamp": pa.timestamp("ns"),
    "zoned": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "duration": pa.duration("ms"),
    "time": pa.time64("us"),
}
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", None]),
    "int": (pa.int64(), [0, 7, 2**63 - 1, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, math.nan, math.inf, None]),
    "bool": (pa.bool_(), [True, False, None]),
}
NAMES = ("t", "x", "y", "z")


def numbers(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a join attribute, as numbers: mostly near each other, now and then at the edges."""
    tests = pa.types
    if tests.is_floating(data_type):
        odd = st.sampled_from(ODD_FLOATS)
        near = FLOATS
    elif data_type == pa.uint64():
        odd, near = st.sampled_from(UINT_EDGES), st.integers(0, 12)
    elif data_type == pa.int64():
        odd, near = st.sampled_from(INT_EDGES), INTS
    elif tests.is_timestamp(data_type) or tests.is_duration(data_type):
        odd, near = st.sampled_from(FAR_TIMES), INTS
    elif tests.is_time(data_type):
        odd = near = st.integers(0, 12)
    else:
        odd = near = INTS
    return st.one_of(near, near, near, near, near, near, odd, st.none())


def column_of(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Numbers as a column; times are counts of their unit."""
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return pa.array(values, pa.int32()).cast(data_type)
    if pa.types.is_temporal(data_type):
        return pa.array(values, pa.int64()).cast(data_type)
    if data_type == pa.float32():
        return pa.array(values, pa.float64()).cast(data_type)
    return pa.array(values, data_type)


def _sizes(most: int) -> list[int]:
    """Numbers of rows to choose from: seldom none, since an empty table finds few mistakes."""
    return [most // 2, 3 * most // 4, most] * 4 + [1, 0]


@st.composite
def left_right_tables(
    draw: st.DrawFn,
    *types: pa.DataType | tuple[pa.DataType, pa.DataType],
    key: str | None = None,
    rows_max: int = 8,
) -> tuple[pa.Table, pa.Table]:
    """Two tables with join attributes `t`, `x`, … of these types, and payload.

    A pair of types gives each side its own.  `key` is one of `KEYS` and makes a column `k`.  Both
    tables have `id` (a number for each row, or few of them so that rows repeat) and `name`; the
    left has `tags`, a list, the right `raw`, bytes.
    """
    tables = []
    for side in (0, 1):
        rows = draw(st.sampled_from(_sizes(rows_max)))

        def drawn(values: st.SearchStrategy[Any], rows: int = rows) -> list[Any]:
            return draw(st.lists(values, min_size=rows, max_size=rows))

        columns: dict[str, pa.Array] = {}
        for name, given in zip(NAMES, types, strict=False):
            data_type = given[side] if isinstance(given, tuple) else given
            columns[name] = column_of(drawn(numbers(data_type)), data_type)
        if key:
            data_type, choices = KEYS[key]
            columns["k"] = pa.array(drawn(st.sampled_from(choices)), data_type)
        is_unique = draw(st.booleans())
        columns["id"] = pa.array(list(range(rows)) if is_unique else drawn(st.integers(0, 1)))
        columns["id"] = columns["id"].cast(pa.int64())
        columns["name"] = pa.array(drawn(st.sampled_from(["p", "q", None])), pa.string())
        if side == 0:
            lists = st.sampled_from([[], [1], [1, 2], [2, None], None])
            columns["tags"] = pa.array(drawn(lists), pa.list_(pa.int32()))
        else:
            columns["raw"] = pa.array(drawn(st.sampled_from([b"\0", b"", None])), pa.binary())
        tables.append(pa.table(columns))
    return tables[0], tables[1]


# ── questions ────────────────────────────────────────────────────────────────────────────────


def tolerances(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Tolerances as a user may write them for a column of this type."""
    if pa.types.is_floating(data_type):
        usual = [0.0, 0.1, 0.3, 1, (-0.2, 0.0), (0.1, 0.3), 1e308, 1e16]
        odd = [strict(0.1), strict(-0.2, 0.0), strict(None, 0), nonzero(0.3), nonzero((0, 0.2))]
        return st.sampled_from([*usual, 1e-10, (0.1, 0.1000001), (0, None), (None, -0.1), *odd])
    if pa.types.is_date32(data_type):
        return st.sampled_from(["1d", "3d", 0, ("-2d", "0d"), strict("2d"), nonzero("2d")])
    if pa.types.is_temporal(data_type):
        unit = data_type.unit
        one, five = f"1{unit}", np.timedelta64(5, unit)
        few = [one, pa.scalar(3, pa.duration(unit)), (f"-2{unit}", 0), (one, five)]
        few += [strict(one), strict(f"-2{unit}", one), nonzero(one)]
        return st.sampled_from(["0s", *few, np.timedelta64(1, "s"), ("-1h", "0s")])
    usual = [0, 1, 3, 2.5, (-2, 0), (1, 5), (-5, -1), 2**63, 2**65]
    odd = [strict(1), strict(2.5), strict(-3, 1), strict(0, None), nonzero(2), nonzero((-3, 0))]
    return st.sampled_from([*usual, (1, 2), (-10, -2), (0, None), (None, -1), *odd])


def has_two_limits(tolerance: Any) -> bool:
    """Whether a tolerance ends on both sides, as that of a stream must."""
    if isinstance(tolerance, Strict):
        return tolerance.lo is not None and tolerance.hi is not None
    return not isinstance(tolerance, tuple) or None not in tolerance


FILTERS = [nonzero(), nonzero(1), 0, (0, None), strict(0, None), strict(1)]
"""What `where` may demand of both rows' `id`."""


@dataclass(frozen=True)
class Case:
    """Two tables and the arguments of a join."""

    left: pa.Table
    right: pa.Table
    best: bool
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> Question:
        """What the arguments mean."""
        asked = {name: value for name, value in self.arguments.items() if name != "ties"}
        return Question.of(self.left.schema, self.right.schema, best=self.best, **asked)

    @property
    def expected(self) -> Counter[Row]:
        """What has to come out."""
        return as_bag(
            oracle(self.left, self.right, self.question, self.arguments.get("ties", "all"))
        )


def total(a: Any, b: Any) -> Any:
    """A cost of two costs, to be minimized."""
    return a * 0.5 + b * 0.25


def nearer_same_side(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool | None:
    """A partial order: pairs that differ in the sign of their difference can't be compared."""
    ahead, behind = one[1] - one[0], other[1] - other[0]
    if (ahead < 0) != (behind < 0):
        return None
    return bool(abs(ahead) <= abs(behind))


NUMERIC_ORDERS: list[Any] = ["min_distance", youngest, minimize(total)]
BLACK_BOXES: list[Any] = [partial_order(nearer_same_side)]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    best: bool = True,
    kinds: Sequence[str] = tuple(KINDS),
    attributes_max: int = 3,
    functions: bool = True,
    black_boxes: bool = True,
    unconstrained_order: bool = True,
    rows_max: int = 8,
    ties: bool = False,
) -> Case:
    """A join of two small tables: one to three attributes, now and then keys, orders and filters,
    a column of one side against two of the other, and with `ties` one match of several."""
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=attributes_max))
    types = [KINDS[kind] for kind in chosen]
    key = draw(st.none() | st.sampled_from(sorted(KEYS)))
    left, right = draw(left_right_tables(*types, key=key, rows_max=rows_max))
    on: dict[Any, Any] = {}
    orders: dict[Any, Any] = {}
    for at, (name, data_type) in enumerate(zip(NAMES, types, strict=False)):
        limit = tolerances(data_type)
        is_stream = at == 0 and not unconstrained_order
        if at == 1 and types[0] == data_type and draw(st.booleans()):
            name = draw(st.sampled_from([("t", "x"), ("x", "t")]))
        on[name] = draw(limit.filter(has_two_limits) if is_stream else limit | st.none())
        choices = NUMERIC_ORDERS[: 3 if functions else 2] + (BLACK_BOXES if black_boxes else [])
        if best and draw(st.integers(0, 2)) == 0:
            orders[name] = draw(st.sampled_from(choices))
    if best and black_boxes and draw(st.integers(0, 5)) == 0:
        left, right = draw(_with_sets(left)), draw(_with_sets(right))
        on["s"], orders["s"] = None, subset
    arguments: dict[str, Any] = {
        "on": on,
        "by": "k" if key else None,
        "how": draw(st.sampled_from(BESTMATCH_HOWS if best else EPSILON_HOWS)),
        "distances": draw(st.booleans()),
    }
    if draw(st.integers(0, 3)) == 0:
        arguments["where"] = {"id": draw(st.sampled_from(FILTERS))}
    if best:
        arguments["orders"] = orders or None
        arguments["keep_unmatched"] = arguments["how"] != "inner" and draw(st.booleans())
    if ties and best and arguments["how"] in ("left", "right"):
        arguments["ties"] = draw(
            st.sampled_from(["all", "first", "last", *_priorities(on, orders)])
        )
    return Case(left, right, best, arguments)


def _priorities(on: dict[Any, Any], orders: dict[Any, Any]) -> list[Any]:
    """Lists of attributes for `ties`, of those that have a distance."""
    named = [name for name in on if isinstance(name, str)]
    good = [name for name in named if orders.get(name) not in (*BLACK_BOXES, subset)]
    if not good or len(named) < len(on):
        return []
    return [good[:1], good[::-1], [*good, "last"], [good[-1], "first"]]


@st.composite
def _with_sets(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    sets = st.sampled_from([None, [], ["a"], ["a", "b"], ["b", "c"], ["c", "a", "a"]])
    rows = draw(st.lists(sets, min_size=table.num_rows, max_size=table.num_rows))
    return table.append_column("s", pa.array(rows, pa.list_(pa.string())))
