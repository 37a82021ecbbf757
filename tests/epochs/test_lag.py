"""How far a query is behind the clock, where its streams are cut by times."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pyarrow as pa
import pytest

import matwin

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)


@pytest.mark.parametrize(
    ("kind", "width", "near"),
    [
        (pa.timestamp("us"), "60s", 300.0),
        (pa.timestamp("ns", "UTC"), "60s", 300.0),
        (pa.timestamp("s", "Europe/Berlin"), "60s", 300.0),
        (pa.date32(), "1d", None),
    ],
)
def test_the_newest_row_of_all_streams_counts(kind: Any, width: str, near: float | None) -> None:
    moments = [NOW - dt.timedelta(minutes=m) for m in (9, 7, 5)]
    times = pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("us")).cast(
        pa.timestamp("us", "UTC") if getattr(kind, "tz", None) else kind
    )
    later = pa.table({"ts": times.cast(kind)})
    earlier = later.slice(0, 2)
    query = matwin.continuous_query(
        "SELECT count(*) AS n FROM a",
        {"a": later, "b": earlier},
        cut=matwin.cut.every(width, on="ts"),
    )
    assert query.status.lag_seconds is None
    query.run()
    lag = query.status.lag_seconds
    passed = time.time() - NOW.timestamp()
    assert lag is not None
    if near is None:  # since the beginning of the day
        assert 0 <= lag <= 86400 + 600 + passed
    else:
        assert near <= lag <= near + passed + 1


@pytest.mark.parametrize("cut", [matwin.cut.count(2), matwin.cut.every(5, on="n")])
def test_numbers_tell_no_lag(cut: Any) -> None:
    query = matwin.continuous_query("SELECT n FROM a", {"a": pa.table({"n": [1, 2, 9]})}, cut=cut)
    query.run()
    assert query.status.rows_in == 3 and query.status.lag_seconds is None
