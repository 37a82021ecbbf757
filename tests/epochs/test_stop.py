"""A query that is stopped: rows that nobody could read again are epochs of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import matwin

SCHEMA = pa.schema([("t", pa.int64())])
SQL = "SELECT t FROM a"


def ids(epochs: list[Any]) -> list[tuple[int, list[int], bool]]:
    return [(e.id, e.result.to_arrow()["t"].to_pylist(), e.is_partial) for e in epochs]


@pytest.mark.parametrize("stop_after", [1, 2])
def test_rows_that_wait_are_not_lost(stop_after: int) -> None:
    def items() -> Iterator[Any]:
        yield [{"t": t} for t in (1, 2, 11, 12, 41)]
        while True:
            yield None

    source = matwin.stream(items(), schema=SCHEMA)
    with matwin.continuous_query(SQL, {"a": source}, cut=matwin.cut.every(10, on="t")) as query:
        found = []
        for epoch in query:
            found.append(epoch)
            if len(found) == stop_after:
                query.stop()
    told = ids(found)
    assert [t for _, rows, _ in told for t in rows] == [1, 2, 11, 12, 41]
    assert [number for number, _, _ in told] == [1, 2, 3, 4, 5]
    assert told[-1] == (5, [41], True) and told[0] == (1, [1, 2], False)


def test_rows_that_can_be_read_again_are_left(tmp_path: Any) -> None:
    table = pa.table({"t": [1, 2, 11, 12, 41]})
    cut = matwin.cut.every(10, on="t")
    with matwin.continuous_query(SQL, {"a": table}, cut=cut, state=tmp_path / "s") as query:
        first = next(iter(query))
        query.stop()
    assert ids([first]) == [(1, [1, 2], False)]
    again = list(matwin.continuous_query(SQL, {"a": table}, cut=cut, state=tmp_path / "s"))
    fresh = [epoch for epoch in again if not epoch.is_replayed]
    assert [row for _, rows, _ in ids(fresh) for row in rows] == [11, 12, 41]
