"""What the tests of bad input share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import matwin

INF = math.inf
PAGES: dict[str, Any] = {"materialize": "slab", "page_size": "4KiB", "memory": 32 * 4096}
JOINS = (matwin.bestmatch_join, matwin.epsilon_join)

each_join = pytest.mark.parametrize("join", JOINS, ids=["bestmatch", "epsilon"])
each_place = pytest.mark.parametrize("options", [{}, PAGES], ids=["memory", "pages"])

LEFT = pa.table({"t": [1, 2, 3], "x": [0.0, 1.0, 2.0], "k": ["a", "b", "a"]})
RIGHT = pa.table({"t": [1, 2, 4], "x": [0.5, -0.0, 2.0], "k": ["a", "b", "b"], "v": [1, 2, 3]})

ODD = [0.0, math.nan, INF, -INF, None, -0.0]


def never() -> Iterator[pa.RecordBatch]:
    """A source that must not be read."""
    raise AssertionError("data was read before the arguments were checked")
    yield


def unread(table: pa.Table) -> Any:
    return matwin.stream(never(), schema=table.schema, live=False)


def pairs(reader: pa.RecordBatchReader, left: str, right: str) -> list[tuple[Any, Any]]:
    table = reader.read_all()
    found = zip(table[left].to_pylist(), table[right].to_pylist(), strict=True)
    return sorted(found, key=lambda pair: [(v is None, v) for v in pair])


def ids(values: Any) -> pa.Table:
    """A table of one join attribute, its rows numbered."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.table({"t": column, "i": pa.array(range(len(column)), pa.int64())})


def id_pairs(join: Any, left: Any, right: Any, **arguments: Any) -> list[tuple[Any, Any]]:
    return pairs(join(ids(left), ids(right), **arguments), "i_left", "i_right")
