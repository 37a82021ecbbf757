"""Random joins, each told twice: as tables and arguments, and as plain numbers for the oracle.

    trial = pairs_trial(seed)      two small tables and a join of them
    trial = fixed_trial(seed)      the same inside a window of fixed time
    trial.sources, trial.on, …     what the product is given
    trial.asked.answer()           what has to come out (`independent.py`)

Values lie where types end and where rounding decides.  Tolerances admit the distance of the last
rows, where these have one, so that most trials find something.  A trial is a function of its seed
alone.  Nothing here imports the product.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
from independent import Attribute, Evaluations, Pairs, Tuples, Window

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400
INT64 = (-(2**63), 2**63 - 1)
LARGEST = 1.7976931348623157e308

# ── columns ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Kind:
    """Types that are compared with each other, and the unit in which that is done.

    `per` is how many of the common unit one of each type's own is; `low` and `high` bound what all
    of them can hold, in the common unit; `unit` is how amounts are written, None for numbers.
    """

    types: tuple[pa.DataType, ...]
    per: tuple[int, ...]
    low: int
    high: int
    unit: str | None = None
    is_float: bool = False


def kind_of(chance: Random, sides: int) -> Kind:
    """Types for so many columns that can be compared with each other."""
    makers = [_whole, _whole, _unsigned, _floats, _floats, _stamps, _days, _durations, _clock]
    return chance.choice(makers)(chance, sides)


def _whole(chance: Random, sides: int) -> Kind:
    types = [chance.choice([pa.int64(), pa.int64(), pa.int8(), pa.int16(), pa.int32(), pa.uint8(),
                            pa.uint16(), pa.uint32()])] * sides  # fmt: skip
    if chance.random() < 0.2:
        types[-1] = chance.choice([pa.int64(), pa.int32(), pa.uint64()])
    widest = [_whole_range(t) for t in types]
    low, high = max(w[0] for w in widest), min(w[1] for w in widest)
    return Kind(tuple(types), (1,) * sides, low, high)


def _whole_range(data_type: pa.DataType) -> tuple[int, int]:
    bits = data_type.bit_width
    if pa.types.is_signed_integer(data_type):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def _unsigned(chance: Random, sides: int) -> Kind:
    return Kind((pa.uint64(),) * sides, (1,) * sides, 0, 2**64 - 1)


def _floats(chance: Random, sides: int) -> Kind:
    """Floats of both widths, now and then with whole numbers, which are compared as floats."""
    floats = [pa.float64(), pa.float64(), pa.float32()]
    types = [chance.choice(floats) for _ in range(sides)]
    if sides > 1 and chance.random() < 0.2:
        types[-1] = chance.choice([pa.int64(), pa.int32(), pa.uint64()])
    return Kind(tuple(types), (1,) * sides, 0, 0, is_float=True)


def _units(chance: Random, sides: int, units: list[str]) -> tuple[list[str], str, list[int]]:
    if chance.random() < 0.5:
        units = [chance.choice(units)]
    chosen = [chance.choice(units) for _ in range(sides)]
    finest = max(chosen, key=PER_SECOND.__getitem__)
    return chosen, finest, [PER_SECOND[finest] // PER_SECOND[unit] for unit in chosen]


def _stamps(chance: Random, sides: int) -> Kind:
    zone = chance.choice([None, "UTC"])
    units, finest, per = _units(chance, sides, [*PER_SECOND])
    return Kind(tuple(pa.timestamp(unit, zone) for unit in units), tuple(per), *INT64, finest)


def _durations(chance: Random, sides: int) -> Kind:
    units, finest, per = _units(chance, sides, [*PER_SECOND])
    return Kind(tuple(map(pa.duration, units)), tuple(per), *INT64, finest)


def _clock(chance: Random, sides: int) -> Kind:
    units, finest, per = _units(chance, sides, [*PER_SECOND])
    types = [pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit) for unit in units]
    return Kind(tuple(types), tuple(per), 0, DAY * PER_SECOND[finest] - 1, finest)


def _days(chance: Random, sides: int) -> Kind:
    if chance.random() < 0.5:
        return Kind((pa.date32(),) * sides, (1,) * sides, -(2**31), 2**31 - 1, "d")
    if chance.random() < 0.3:
        whole = DAY * 1000
        types = [chance.choice([pa.date32(), pa.date64()]) for _ in range(sides - 1)]
        return Kind((pa.date64(), *types), (whole,) * sides, *_days_in("ms"), "ms")
    unit = chance.choice(["s", "ms", "us"])
    types = (pa.timestamp(unit), *(pa.date32() for _ in range(sides - 1)))
    per = (1, *(DAY * PER_SECOND[unit] for _ in range(sides - 1)))
    return Kind(types, per, *_days_in(unit), unit)


def _days_in(unit: str) -> tuple[int, int]:
    """The ends of what a date and a time of this unit can both hold."""
    widest = min(2**31 - 1, (2**63 - 1) // (DAY * PER_SECOND[unit]) - 1)
    return -widest * DAY * PER_SECOND[unit], widest * DAY * PER_SECOND[unit]


ODD_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, LARGEST, -LARGEST, 5e-324, 1e16, 2.0**53]
FLOAT_PLACES = [0.0, 0.0, 0.7, -0.3, 1.7e9, 1.7e15, -1.7e15, 1e16, 2.0**53, 1e300, -LARGEST,
                LARGEST, 5e-324, 1e-310]  # fmt: skip


def float_values(chance: Random, sizes: list[int], kind: Kind) -> list[list[Any]]:
    """Floats around one place, a step or a neighbour apart, and odd ones."""
    place = chance.choice(FLOAT_PLACES)
    step = chance.choice([0.1, 1.0, 1e-3, 1e-9, math.ulp(place), math.ulp(place), 1e300])

    def value(data_type: pa.DataType) -> Any:
        if chance.random() < 0.08:
            found = chance.choice([*ODD_FLOATS, None])
        else:
            steps = chance.randint(-8, 8)
            # 3 * 0.1 is not 0.3: where rounding decides.
            is_divided = step == 0.1 and chance.random() < 0.5
            found = _finite(place + (steps / 10 if is_divided else steps * step))
        return _held(found, data_type)

    return [[value(t) for _ in range(size)] for size, t in zip(sizes, kind.types, strict=True)]


def _held(value: float | None, data_type: pa.DataType) -> float | None:
    """The float as a column of this type holds it."""
    if value is None or data_type == pa.float64():
        return value
    if data_type == pa.float32():
        return _single(value)
    low, high = 0 if data_type == pa.uint64() else -(2**31), 2**31 - 1
    return float(round(max(min(value, high), low))) if value == value else None


def _single(value: float | None) -> float | None:
    """The nearest float of 32 bits."""
    if value is None or math.isnan(value) or math.isinf(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def whole_values(chance: Random, sizes: list[int], kind: Kind) -> list[list[Any]]:
    """Whole numbers around one place, often an end of the type, in the common unit."""
    near = [kind.low, kind.low, kind.high, kind.high, 0, (kind.low + kind.high) // 2,
            chance.randint(kind.low, kind.high)]  # fmt: skip
    place, step = chance.choice(near), chance.choice([1, 1, 1, 3, max(kind.per)])

    def value(per: int) -> Any:
        if chance.random() < 0.05:
            return None
        found = chance.choice(near) if chance.random() < 0.06 else place
        found += chance.randint(-8, 8) * step + chance.choice([0, 0, 0, 1, -1])
        low, high = -(-kind.low // per), kind.high // per
        return max(min(found // per, high), low) * per

    return [[value(per) for _ in range(size)] for size, per in zip(sizes, kind.per, strict=True)]


def values_of(chance: Random, sizes: list[int], kind: Kind) -> list[list[Any]]:
    """A column for each side, in the common unit."""
    return (float_values if kind.is_float else whole_values)(chance, sizes, kind)


def column_of(values: list[Any], data_type: pa.DataType, per: int) -> pa.Array:
    """The column of a side from values in the common unit."""
    if pa.types.is_floating(data_type):
        return pa.array(values, pa.float64()).cast(data_type)
    if any(isinstance(value, float) for value in values):  # whole numbers that meet floats
        return pa.array([None if v is None else int(v) for v in values], data_type)
    own = [None if value is None else value // per for value in values]
    if not pa.types.is_temporal(data_type):
        return pa.array(own, data_type)
    if data_type == pa.date64():  # kept in milliseconds, compared in them
        own = values
    return pa.array(own, pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type)


# ── tolerances ───────────────────────────────────────────────────────────────────────────────────


def _apart(left: Any, right: Any) -> Any:
    """The distance of two values, or nothing where there is none."""
    if left is None or right is None or not math.isfinite(right - left):
        return 0
    return right - left


def limits_of(chance: Random, kind: Kind, left: list[Any], right: list[Any]) -> tuple[Any, Any]:
    """Bounds of a tolerance: symmetric, one-sided, narrow, huge, or without a limit."""
    apart = _apart(left[-1], right[-1]) if left and right else 0
    other = _apart(chance.choice(left), chance.choice(right)) if left and right else 0
    shape = chance.choice(["symmetric", "pair", "pair", "exact", "none", "half", "small", "huge"])
    if shape == "symmetric":
        return -abs(apart), abs(apart)
    if shape == "pair":
        return min(apart, other), max(apart, other)
    if shape == "exact":
        return apart, apart
    if shape == "none":
        return None, None
    if shape == "half":
        return chance.choice([(None, apart), (apart, None)])
    if kind.is_float:
        small = [1e-10, 5e-324, 0.1, 0.3, 1e-4]
        width = chance.choice(small if shape == "small" else [1e308, 1e17])
        if chance.random() < 0.5:
            return -width, width
        return _finite(apart), _finite(apart + width)
    lo = chance.randint(-12, 12) if shape == "small" else chance.choice([-(2**65), 2**62, -(2**63)])
    return lo, lo + chance.choice([0, 1, 2, 8] if shape == "small" else [0, 2**63, 2**64, 2**65])


def _finite(value: float) -> float:
    return max(min(value, LARGEST), -LARGEST)


def written(chance: Random, kind: Kind, lo: Any, hi: Any) -> Any:
    """A tolerance as a user writes it."""
    if lo is None and hi is None:
        return None
    ends = [end if end is None or kind.unit is None else f"{end}{kind.unit}" for end in (lo, hi)]
    if lo is not None and hi is not None and lo == -hi and chance.random() < 0.7:
        return ends[1]
    return ends[0], ends[1]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────

KEYS: list[tuple[list[pa.DataType], list[Any]]] = [
    ([pa.string(), pa.large_string()], ["a", "b", "", "long" * 20, None]),
    ([pa.int64(), pa.int32(), pa.int8()], [0, 7, -1, None]),
    ([pa.int64()], [2**63 - 1, 2**63 - 2, -(2**63), 0, None]),
    ([pa.uint64()], [2**64 - 1, 2**64 - 2, 2**63, 0, None]),
    ([pa.float64()], [0.0, -0.0, 1.5, math.nan, math.inf, LARGEST, None]),
    ([pa.bool_()], [True, False, None]),
    ([pa.binary()], [b"", b"\0", b"\0\0", None]),
]


def keys_of(chance: Random, sizes: list[int]) -> tuple[list[pa.DataType], list[list[Any]]]:
    """A key for each side: types and values, of which the last are equal."""
    types, choices = chance.choice(KEYS)
    last = chance.choice(choices)
    values = [[*(chance.choice(choices) for _ in range(size - 1)), last][:size] for size in sizes]
    return [chance.choice(types) for _ in sizes], values


# ── trials ───────────────────────────────────────────────────────────────────────────────────────

HOWS = {True: ("inner", "left", "right", "full"),
        False: ("inner", "left", "right", "full", "semi", "anti")}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """Tables, the arguments of a join, and what they ask."""

    tables: dict[str, pa.Table]
    order: dict[str, list[Any]]
    """The order attribute of each table, in the common unit."""
    arguments: dict[str, Any]
    asked: Any
    is_best: bool = False
    too_far: bool = False
    """Whether some distance of times does not fit 64 bits, so that it may be refused."""


def _size(chance: Random, most: int) -> int:
    return chance.choice([0, 1, 1, most // 2, *[most] * 12])


def _payload(chance: Random, side: str, rows: int) -> dict[str, pa.Array]:
    """Row numbers, and text that follows from them; wide text makes pages of three rows."""
    filling = "." * chance.choice([0, 0, 1200])
    return {
        f"{side}_id": pa.array(range(rows), pa.int64()),
        f"{side}_text": pa.array([f"{side} {row}{filling}" for row in range(rows)], pa.string()),
    }


def pairs_trial(seed: int, rows_max: int = 14, *, is_best: bool | None = None) -> Trial:
    """A join of two sides."""
    chance = Random(seed)
    sizes = [_size(chance, rows_max), _size(chance, rows_max)]
    is_best = chance.random() < 0.5 if is_best is None else is_best
    how = chance.choice(HOWS[is_best])
    columns: list[dict[str, pa.Array]] = [{}, {}]
    attributes, on, orders, kinds = [], {}, {}, []
    places: dict[str, list[Any]] = {}
    for name in "txy"[: chance.choice([1, 1, 2, 2, 3])]:
        kind = kind_of(chance, 2)
        values = values_of(chance, sizes, kind)
        lo, hi = limits_of(chance, kind, *values)
        on[name] = written(chance, kind, lo, hi)
        is_youngest = is_best and chance.random() < 0.2
        if is_youngest:
            orders[name] = "youngest"
        attributes.append(Attribute(values[0], values[1], lo, hi, is_youngest))
        kinds.append(kind)
        places = places or {"left": values[0], "right": values[1]}
        theirs = f"{name}_other" if chance.random() < 0.2 else name
        if theirs != name:
            on[name, theirs] = on.pop(name)
            orders |= {(name, theirs): orders.pop(name)} if is_youngest else {}
        for side, called in enumerate((name, theirs)):
            columns[side][called] = column_of(values[side], kind.types[side], kind.per[side])
    keys = []
    if chance.random() < 0.4:
        types, drawn = keys_of(chance, sizes)
        keys.append((drawn[0], drawn[1]))
        for side in (0, 1):
            columns[side]["k"] = pa.array(drawn[side], types[side])
    keeps = is_best and how != "inner" and chance.random() < 0.5
    measures = chance.random() < 0.4
    asked = Pairs(
        (sizes[0], sizes[1]), tuple(attributes), tuple(keys), how, is_best, keeps, measures
    )
    arguments: dict[str, Any] = {"on": on, "by": "k" if keys else None, "how": how,
                                 "distances": measures}  # fmt: skip
    if is_best:
        arguments |= {"orders": orders or None, "keep_unmatched": keeps}
    tables = {
        name: pa.table({**columns[side], **_payload(chance, name, sizes[side])})
        for side, name in enumerate(("left", "right"))
    }
    is_far = measures and any(
        kind.unit and not a.is_youngest for kind, a in zip(kinds, attributes, strict=True)
    )
    return Trial(tables, places, arguments, asked, is_best, is_far)


def fixed_trial(seed: int) -> Trial:
    """A fixed window join: a bestmatch join with a time of its own."""
    trial, chance = pairs_trial(seed, rows_max=8, is_best=True), Random(f"times {seed}")
    kind = kind_of(chance, 2)
    times = values_of(chance, [table.num_rows for table in trial.tables.values()], kind)
    period, every = (_length(chance, kind, *times) for _ in range(2))
    made = zip(trial.tables.items(), times, kind.types, kind.per, strict=True)
    tables = {
        name: table.append_column("at", column_of(values, data_type, per))
        for (name, table), values, data_type, per in made
    }
    arguments = {**trial.arguments, "time": "at", "period": _written(kind, period)}
    if chance.random() < 0.4:
        arguments["every"] = _written(kind, every)
    else:
        every = 0
    asked = Evaluations((times[0], times[1]), period, every, trial.asked)
    order = dict(zip(tables, times, strict=True))
    return replace(trial, tables=tables, order=order, arguments=arguments, asked=asked)


def _length(chance: Random, kind: Kind, left: list[Any], right: list[Any]) -> Any:
    """A length of time: often exactly what is between two rows, now and then nothing or much."""
    either = [*left, *right]
    apart = abs(_apart(chance.choice(either), chance.choice(either))) if either else 0
    other = chance.choice([0.0, 0.1, 1e9] if kind.is_float else [0, 1, 10**6])
    return apart if chance.random() < 0.8 else other


def _written(kind: Kind, amount: Any) -> Any:
    return amount if kind.unit is None else f"{amount}{kind.unit}"


def tuples_trial(seed: int) -> Trial:
    """A window join of two to four streams."""
    chance = Random(seed)
    names = "abcd"[: chance.choice([2, 2, 3, 3, 4])]
    sizes = [_size(chance, 8 if len(names) < 4 else 6) for _ in names]
    kind = kind_of(chance, len(names))
    times = values_of(chance, sizes, kind)
    made = zip(times, kind.types, kind.per, strict=True)
    columns = [{"t": column_of(values, data_type, per)} for values, data_type, per in made]
    windows, arguments = _windows(chance, names, kind, times)
    keys: list[list[list[Any]]] = [[] for _ in names]
    if chance.random() < 0.5:
        types, drawn = keys_of(chance, sizes)
        for stream, (data_type, values) in enumerate(zip(types, drawn, strict=True)):
            columns[stream]["k"] = pa.array(values, data_type)
            keys[stream].append(values)
        arguments["by"] = "k"
    near = []
    if chance.random() < 0.3:
        near.append(_near(chance, names, sizes, columns, arguments))
    tables = {
        name: pa.table({**columns[s], **_payload(chance, "row", sizes[s])})
        for s, name in enumerate(names)
    }
    asked = Tuples(tuple(times), tuple(map(tuple, keys)), tuple(windows), tuple(near))
    return Trial(tables, dict(zip(names, times, strict=True)), {"time": "t", **arguments}, asked)


def _windows(
    chance: Random, names: str, kind: Kind, times: list[list[Any]]
) -> tuple[list[Window], dict[str, Any]]:
    """Windows that connect all streams; they all admit one tuple of times, so none contradict."""
    spots = _spots(times, 8e307 if kind.is_float else 2**61)
    pairs = [(chance.randrange(b), b) for b in range(1, len(names))]
    pairs += [pair for pair in [(0, 2), (1, 3)] if pair[1] < len(names) and pair not in pairs]
    windows, given = [], {}
    for a, b in pairs[: chance.choice([len(names) - 1, len(pairs)])]:
        apart = spots[b] - spots[a]
        slack = chance.choice([0.0, 0.1, 1e-9, 1e300] if kind.is_float else [0, 1, 5, 2**40])
        lo, hi = apart - slack, apart + chance.choice([0, 1]) * slack
        if chance.random() < 0.4:
            lo, hi = -max(abs(lo), abs(hi)), max(abs(lo), abs(hi))
        lo, hi = _window_held(lo, hi, kind)
        if lo == hi == 0 or -lo != hi or chance.random() < 0.3:
            ends = [f"{end}{kind.unit}" if kind.unit else end for end in (lo, hi)]
            given[names[a], names[b]] = (ends[0], ends[1])
        else:
            given[names[a], names[b]] = f"{hi}{kind.unit}" if kind.unit else hi
        windows.append(Window(a, b, lo, hi))
    return windows, {"windows": given}


def _spots(times: list[list[Any]], farthest: Any) -> list[Any]:
    """A time of each stream, none so far from the first that no window could hold both."""
    lasts = [column[-1] if column else None for column in times]
    first = next((t for t in lasts if t is not None and abs(t) < math.inf), 0)
    is_near = [t is not None and abs(t - first) < farthest for t in lasts]
    return [t if near else first for t, near in zip(lasts, is_near, strict=True)]


def _window_held(lo: Any, hi: Any, kind: Kind) -> tuple[Any, Any]:
    """The bounds, within what a window may be."""
    widest = LARGEST if kind.is_float else 2**63 - 1
    return max(min(lo, widest), -widest), max(min(hi, widest), -widest)


def _near(
    chance: Random, names: str, sizes: list[int], columns: list[Any], arguments: dict[str, Any]
) -> Any:
    """A tolerance between columns of two streams."""
    a, b = chance.sample(range(len(names)), 2)
    kind = kind_of(chance, 2)
    values = values_of(chance, [sizes[a], sizes[b]], kind)
    lo, hi = limits_of(chance, kind, *values)
    if lo is None or hi is None:
        lo, hi = (0.0, 0.0) if kind.is_float else (0, 0)
    for at, stream in enumerate((a, b)):
        columns[stream]["x"] = column_of(values[at], kind.types[at], kind.per[at])
    arguments["where"] = {(f"{names[a]}.x", f"{names[b]}.x"): written(chance, kind, lo, hi)}
    return a, values[0], b, values[1], lo, hi
