"""A layout as Spark expressions: which parts a row belongs to.

    x >= b2 ?  ├─ x >= b3 ? 3 : 2          a tree of comparisons for each group, its leaves are the
               └─ x >= b1 ? 1 : 0          numbers of strips; no arithmetic on the rows' values

Thresholds are literals in the type of the comparison, moved by the tolerance here, where whole
numbers have no limits.  Nothing overflows, and no time zone comes in.

Expressions are written as SQL text: Spark parses a thousand strips in the time in which Python
could talk to it about twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from matwin.scheduler.layout import INT64, Group, Halo, Layout, Limits, Number, Thresholds

from .frames import spark_type

DAY = 86_400_000_000
LONG_MIN = -(2**63)


def limits_of(arrow: pa.DataType) -> Limits:
    """The least and the largest number that a value of a type can be."""
    if pa.types.is_date(arrow):
        return -(2**31), 2**31 - 1
    if pa.types.is_time(arrow):
        return 0, 1000 * DAY - 1
    return INT64


def literal(value: Number, arrow: pa.DataType) -> str:
    """A value of the comparison's type, given as its number, which is within the limits."""
    tests = pa.types
    if tests.is_floating(arrow):
        return f"CAST('{float(value)!r}' AS DOUBLE)"
    if tests.is_integer(arrow):
        return _long(int(value))
    if tests.is_decimal(arrow):
        shown = f"{Decimal(int(value)).scaleb(-arrow.scale):f}"
        return f"CAST('{shown}' AS {spark_type(arrow).simpleString()})"
    if tests.is_date(arrow):
        return f"date_from_unix_date({int(value)})"
    if tests.is_timestamp(arrow) and arrow.tz is not None:
        return f"timestamp_micros({_long(int(value))})"
    if tests.is_timestamp(arrow):
        return f"(TIMESTAMP_NTZ '1970-01-01 00:00:00' + {_interval(int(value))})"
    if tests.is_duration(arrow):
        return _interval(int(value))
    return f"(TIME '00:00:00' + {_interval(-(-int(value) // 1000))})"


def _long(value: int) -> str:
    return f"{value}L" if value > LONG_MIN else f"({LONG_MIN + 1}L - 1L)"


def _interval(micros: int) -> str:
    """So many microseconds; days and the rest have the same sign, so that neither overflows."""
    sign = "-" if micros < 0 else ""
    days, rest = divmod(abs(micros), DAY)
    seconds = f"CAST('{sign}{rest // 10**6}.{rest % 10**6:06}' AS DECIMAL(18,6))"
    return f"make_dt_interval({sign}{days}, 0, 0, {seconds})"


def _tree(value: str, edges: Sequence[str], below: int, leaf: Callable[[int], str]) -> str:
    if not edges:
        return leaf(below)
    middle = len(edges) // 2
    above = _tree(value, edges[middle + 1 :], below + middle + 1, leaf)
    under = _tree(value, edges[:middle], below, leaf)
    return f"CASE WHEN {value} >= {edges[middle]} THEN {above} ELSE {under} END"


def parts_of(
    layout: Layout, halo: Halo, arrow: pa.DataType, *, value: str, hashed: str, salt: str
) -> tuple[str, str]:
    """The first and the last part of a row; its value, hash and salt are columns of these names."""
    names = quoted(value), quoted(salt)
    if layout.shared is not None:
        return _parts_of_group(layout.shared, halo, arrow, *names)
    cold = f"CAST(pmod({quoted(hashed)}, {layout.cold}L) AS INT)"
    groups = [(key, _parts_of_group(group, halo, arrow, *names)) for key, group in layout.hot]
    first, last = (
        _by_key(quoted(hashed), {key: ends[end] for key, ends in groups}, cold) for end in (0, 1)
    )
    return first, last


def _by_key(hashed: str, hot: Mapping[int, str], cold: str) -> str:
    if not hot:
        return cold
    cases = " ".join(f"WHEN {_long(key)} THEN {part}" for key, part in hot.items())
    return f"CASE {hashed} {cases} ELSE {cold} END"


def _parts_of_group(
    group: Group, halo: Halo, arrow: pa.DataType, value: str, salt: str
) -> tuple[str, str]:
    begins, ends = group.thresholds(halo, limits_of(arrow))
    starts = group.starts
    if halo.is_anchor:
        part = _leaves(value, begins, arrow, lambda strip: _salted(group, strip, salt))
        return part, part
    return (
        _leaves(value, begins, arrow, lambda strip: str(starts[strip])),
        _leaves(value, ends, arrow, lambda strip: str(starts[strip + 1] - 1)),
    )


def _leaves(
    value: str, thresholds: Thresholds, arrow: pa.DataType, leaf: Callable[[int], str]
) -> str:
    edges = [literal(edge, arrow) for edge in thresholds.values]
    return _tree(value, edges, thresholds.always, leaf)


def _salted(group: Group, strip: int, salt: str) -> str:
    start, salts = group.starts[strip], group.salts[strip]
    return str(start) if salts == 1 else f"CAST({start}L + pmod({salt}, {salts}L) AS INT)"


def is_finite(name: str, arrow: pa.DataType) -> str:
    """Whether a column's value is there, and is a number where it should be one."""
    there = f"{quoted(name)} IS NOT NULL"
    if not pa.types.is_floating(arrow):
        return there
    value = cast(name, pa.float64())
    return f"{there} AND NOT isnan({value}) AND abs({value}) <> CAST('Infinity' AS DOUBLE)"


def cast(name: str, arrow: pa.DataType) -> str:
    """A column in the type of a comparison."""
    return cast_sql(quoted(name), arrow)


def cast_sql(value: str, arrow: pa.DataType) -> str:
    """A value in the type of a comparison; a decimal with too many digits is null here, and refused
    with its row where it is joined."""
    call = "try_cast" if pa.types.is_decimal(arrow) else "CAST"
    return f"{call}({value} AS {spark_type(arrow).simpleString()})"


def hash_of(keys: Mapping[str, pa.DataType]) -> str:
    """One number for a row's keys."""
    return f"xxhash64({', '.join(_key(*key) for key in keys.items())})" if keys else "0L"


def _key(name: str, arrow: pa.DataType) -> str:
    """A key so that equal ones of different types have the same hash, -0.0 and 0.0 too."""
    if pa.types.is_floating(arrow):
        value = cast(name, pa.float64())
        return f"CASE WHEN {value} = 0D THEN 0D ELSE {value} END"
    if pa.types.is_integer(arrow) or pa.types.is_temporal(arrow):
        return cast(name, arrow)
    return quoted(name)


def quoted(name: str) -> str:
    """A column's name as Spark takes it whatever it contains."""
    return "`" + name.replace("`", "``") + "`"
