"""Streams in ε-Grid-Order, the width of whose cells is the tolerance: no row is late.

Rows come in any order within a cell of ``floor(t / ε)``, in each kind of join, type and form of
tolerance; ε of two bounds is the one further from 0.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import matwin

KINDS = {
    "int64": (pa.int64(), 1), "uint64": (pa.uint64(), 1), "int8": (pa.int8(), 1),
    "float64": (pa.float64(), 1), "half": (pa.float64(), 0.5), "float32": (pa.float32(), 0.5),
    "timestamp[s]": (pa.timestamp("s"), 1), "timestamp[ns]": (pa.timestamp("ns"), 10**9),
    "duration[ms]": (pa.duration("ms"), 1000), "date32": (pa.date32(), 1),
}  # fmt: skip
BOUNDS = [3, (0, 3), (-3, 0), (-1, 3), (-5, 2), (2, 5), (-5, -2), 1]


def column(values: list[int], kind: str) -> pa.Array:
    data_type, unit = KINDS[kind]
    if pa.types.is_floating(data_type):
        return pa.array([v * unit for v in values], pa.float64()).cast(data_type)
    whole = pa.array([v * unit for v in values], pa.int64())
    return whole.cast(pa.int32()).cast(data_type) if kind == "date32" else whole.cast(data_type)


def amount(steps: int, kind: str) -> Any:
    data_type, unit = KINDS[kind]
    if pa.types.is_date(data_type):
        return f"{steps}d"
    if pa.types.is_temporal(data_type):
        return f"{steps}s"
    return steps * unit


def tolerance(bounds: Any, kind: str) -> Any:
    if isinstance(bounds, tuple):
        return tuple(amount(b, kind) for b in bounds)
    return amount(bounds, kind)


def width_of(bounds: Any) -> int:
    return max(map(abs, bounds)) if isinstance(bounds, tuple) else bounds


def in_cells(seed: int, width: int) -> list[int]:
    """Values in any order within cells of this width."""
    chance = random.Random(seed)
    values = sorted(chance.randrange(0, 60) for _ in range(40))
    return sorted(values, key=lambda v: (v // width, chance.random()))


def one_by_one(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for at in range(0, rows.num_rows, 3):
        yield from rows.slice(at, 3).combine_chunks().to_batches()


def streams(kind: str, width: int) -> tuple[dict[str, pa.Table], dict[str, matwin.Stream]]:
    tables = {
        name: pa.table({"t": column(in_cells(seed, width), kind), f"i{name}": list(range(40))})
        for seed, name in enumerate("ab")
    }
    return tables, {
        name: matwin.stream(
            one_by_one(rows), schema=rows.schema, order=matwin.GridOrdered(), on="t"
        )
        for name, rows in tables.items()
    }


def pairs(found: Any) -> Counter[Any]:
    rows = found.to_arrow()
    names = [n for n in rows.schema.names if n.endswith(("ia", "ib"))]
    return Counter(zip(*(rows[n].to_pylist() for n in names), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_two_sided_joins(bounds: Any, kind: str) -> None:
    tables, live = streams(kind, width_of(bounds))
    on = {"t": tolerance(bounds, kind)}
    join = matwin.bestmatch_join if bounds == 3 and kind != "uint64" else matwin.epsilon_join
    found = join(live["a"], live["b"], on=on)
    assert pairs(found) == pairs(join(tables["a"], tables["b"], on=on))
    assert found.report.left.late == found.report.right.late == 0


@pytest.mark.parametrize("kind", ["int64", "float64", "timestamp[ns]"])
def test_window_joins(kind: str) -> None:
    for window in (3, (0, 3), (-1, 3)):
        tables, live = streams(kind, width_of(window))
        windows = {("a", "b"): tolerance(window, kind)}
        found = matwin.window_join(live, time="t", windows=windows)
        assert pairs(found) == pairs(matwin.window_join(tables, time="t", windows=windows))


@pytest.mark.parametrize("kind", ["int64", "float64", "timestamp[ns]"])
def test_fixed_windows(kind: str) -> None:
    tables, live = streams(kind, 3)
    asked: Any = {"time": "t", "period": amount(3, kind), "on": {("ia", "ib"): None}}
    found = matwin.fixed_window_join(live["a"], live["b"], **asked)
    ordered = [tables[name].sort_by("t") for name in "ab"]
    whole = matwin.fixed_window_join(*ordered, **asked)
    assert set(pairs(found)) == set(pairs(whole))


def test_several_attributes_and_none_of_a_width() -> None:
    rows = pa.table({"t": [2, 0, 1, 5, 3, 4], "x": [1.0] * 6})
    live = matwin.stream(one_by_one(rows), schema=rows.schema, order=matwin.GridOrdered())
    found = matwin.epsilon_join(live, rows, on={"t": (0, 3), "x": 100})
    assert found.to_arrow().num_rows == 3 + 4 * 3 + 0 or found.report.left.late == 0
    for kind, bound, match in (
        (pa.float64(), 0, "a tolerance of 0"), (pa.int64(), None, "tolerance"),
    ):  # fmt: skip
        some = pa.table({"t": pa.array([0], kind)})
        with pytest.raises(matwin.InputError, match=match):
            order = matwin.GridOrdered()
            live = matwin.stream(one_by_one(some), schema=some.schema, order=order)
            matwin.epsilon_join(live, some, on={"t": bound}).to_arrow()
    # Of whole numbers, a tolerance of 0 has cells of one number.
    whole = pa.table({"t": [0, 0, 1]})
    live = matwin.stream(one_by_one(whole), schema=whole.schema, order=matwin.GridOrdered())
    assert matwin.epsilon_join(live, whole, on={"t": 0}).to_arrow().num_rows == 5
