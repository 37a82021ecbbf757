"""Window joins of real streams, against DuckDB."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from wquestions import Asked, simple
from wreferee import (
    ALGORITHMS,
    SECOND,
    Ids,
    answer,
    answer_by_id,
    check,
    live,
    numbered,
    pieces,
    shuffled,
)

import matwin

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not REAL.exists(), reason="the real data are not here")


@cache
def real(name: str) -> pa.Table:
    return pq.read_table(REAL / f"{name}.parquet")


@cache
def room() -> Asked:
    """Temperature, humidity and the next temperature reading, in the same room."""
    warm, wet = (
        numbered(real(f"room_climate/{n}").slice(0, 5_000)) for n in ("temperature", "humidity")
    )
    warm = warm.select(["t", "location", "node", "temperature", "id"])
    streams = {"warm": warm, "wet": wet, "later": warm}
    windows = {
        ("warm", "wet"): 2 * SECOND,
        ("wet", "later"): (0, 3 * SECOND),
        ("warm", "later"): (1, 4 * SECOND),
    }
    return simple(streams, windows, "location")


CALM = 1_521_911_950 * SECOND
"""Before the burst of odd packets, which has a hundred million matches."""
CLIENT = ["t", "id_orig_h", "uid"]
LOOKUPS = {("ssl", "dns"): (-10 * SECOND, 0), ("weird", "dns"): 10 * SECOND}


@cache
def log(name: str) -> pa.Table:
    table = real(f"zeek_wrccdc/{name}")
    return numbered(table.filter(pc.less(table["t"], CALM)).select(CLIENT))


@cache
def logs() -> Asked:
    """The same client looks up a name, does something odd and opens a connection."""
    return simple({name: log(name) for name in ("dns", "weird", "ssl")}, LOOKUPS, "id_orig_h")


@cache
def bikes() -> Asked:
    """Four streams: a bike comes, another one leaves, twice, at one station within minutes."""
    came, left = (
        numbered(real(f"bikeshare14/{n}").slice(0, 9_000).select(["t", "station", "bike_id"]))
        for n in ("arrivals", "departures")
    )
    minute = 60 * SECOND
    windows = {
        ("came", "left"): (0, 5 * minute), ("left", "back"): (0, 10 * minute),
        ("back", "gone"): (0, 5 * minute), ("came", "gone"): (minute, 15 * minute),
    }  # fmt: skip
    return simple({"came": came, "left": left, "back": came, "gone": left}, windows, "station")


REAL_QUESTIONS = {"room": room, "logs": logs, "bikes": bikes}


@cache
def expected_real(name: str) -> Ids:
    expected = answer(REAL_QUESTIONS[name]())
    assert len(expected) > 1_000
    return expected


@needs_data
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", REAL_QUESTIONS)
def test_real_streams(name: str, algorithm: str) -> None:
    asked, expected = REAL_QUESTIONS[name](), expected_real(name)
    check(asked, expected, algorithm=algorithm)
    if algorithm != "merge":
        check(asked, expected, live(asked, 1_000), algorithm=algorithm)


@needs_data
@pytest.mark.parametrize("name", REAL_QUESTIONS)
def test_real_streams_in_no_order_and_little_memory(name: str) -> None:
    asked, expected = REAL_QUESTIONS[name](), expected_real(name)
    tables = {stream: shuffled(table) for stream, table in asked.streams.items()}
    report = check(asked, expected, tables, memory="1MiB", page_size="16KiB")
    assert report.peak_bytes <= report.budget_bytes
    assert report.pages_written > 0


def on_time(table: pa.Table, lateness: int) -> pa.Table:
    """The rows that are not late, row by row: late is at or below (largest so far - lateness)."""
    largest, kept = -(2**63), []
    for row, t in enumerate(table["t"].to_pylist()):
        if t > largest - lateness:
            kept.append(row)
            largest = max(largest, t)
    return table.take(kept)


@needs_data
@pytest.mark.parametrize("algorithm", ["auto", "backward-nested-loop", "forward-hash"])
@pytest.mark.parametrize("lateness", [5, 900])
def test_logs_in_the_order_they_were_written(lateness: int, algorithm: str) -> None:
    """Real disorder: what comes too late is dropped and counted, the rest is joined."""
    written = {name: log(f"{name}_raw_order") for name in ("ssl", "dns")}
    written["weird"] = log("weird")
    kept = {name: on_time(table, lateness * SECOND) for name, table in written.items()}
    expected = answer_by_id(simple(kept, LOOKUPS, "id_orig_h"))
    sources = {
        name: matwin.stream(
            pieces(table, 500), schema=table.schema, late="drop",
            order=matwin.Lateness(lateness * SECOND),
        )
        for name, table in written.items()
    }  # fmt: skip
    report = check(simple(written, LOOKUPS, "id_orig_h"), expected, sources, algorithm=algorithm)
    for name, table in written.items():
        counts = report.streams[name]
        assert (counts.rows_in, counts.used) == (table.num_rows, kept[name].num_rows)
    assert (report.streams["ssl"].late > 0) == (lateness < 900)
