"""Joins against DuckDB, on random tables of some thousand rows and on real data.

    tables ──join, in memory, on pages, as streams──▶ rows ─┐
                                                            ├─ the same bag
    tables ──DuckDB (tools/answer.py)──────────────▶ rows ─┘

DuckDB answers a question once; every way to run the join has to agree with that answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import FORMS, campaign

import matwin
from matwin.question import BESTMATCH_HOWS, EPSILON_HOWS
from matwin.report import Report
from matwin.scheduler import MODES
from matwin.tools.answer import answer
from matwin.tools.compare import compare
from matwin.tools.words import question_of

REAL = Path(__file__).parents[3] / "shared" / "data"
SECOND = 1_000_000
TINY: dict[str, Any] = {"memory": 32 * 4096, "page_size": "4KiB"}
"""A budget in which nothing here fits."""
SMALL: dict[str, Any] = {"memory": "1MiB", "page_size": "16KiB", "materialize": "slab"}
MIDDLE: dict[str, Any] = {"memory": "4MiB", "page_size": "64KiB"}

needs_data = pytest.mark.skipif(not REAL.exists(), reason="the real data are not here")


@dataclass(frozen=True)
class Asked:
    """A question, and DuckDB's answer to it."""

    left: pa.Table
    right: pa.Table
    best: bool
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def expected(self) -> pa.Table:
        """What DuckDB finds."""
        question = question_of(
            self.left.schema, self.right.schema, best=self.best, **self.arguments
        )
        return answer(self.left, self.right, question)

    def run(
        self, left: object = None, right: object = None, **options: Any
    ) -> tuple[pa.Table, Report]:
        """The join's rows; the sides may be given in another form."""
        join = matwin.bestmatch_join if self.best else matwin.epsilon_join
        report = Report()
        found = join(
            self.left if left is None else left,
            self.right if right is None else right,
            report=report, **self.arguments, **options,
        ).read_all()  # fmt: skip
        report.check()
        assert report.is_done and report.rows_out == found.num_rows
        return found, report


def check(found: pa.Table, expected: pa.Table) -> None:
    difference = compare(found, expected)
    assert not difference, str(difference)


def shuffled(table: pa.Table) -> pa.Table:
    """The rows in no order, so that they have to be sorted on pages."""
    return table.take(np.random.default_rng(7).permutation(table.num_rows))


def pieces(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """The table as something that comes piece by piece, and only once."""
    yield from table.combine_chunks().to_batches(max_chunksize=rows)


# ── random tables ────────────────────────────────────────────────────────────────────────────

TOLERANCES: dict[str, tuple[Any, ...]] = {
    "tenths": (0.1, 0.3, 0.7, (-0.3, 0.0), (0.1, 0.3)),
    "ints": (0, 1, 3, (-4, -1), (0, 5)),
    "nanos": ("300ns", ("-1us", "0s"), 0, ("-7ns", "900ns")),
    "floats": (0.25, (-0.5, 0.125)),
    "days": ("1d", ("-3d", "0d")),
}
NOON_2024 = 1_704_110_400_000_000_000
KEYS = {"few": 3, "many": 200}


def column_of(kind: str, rows: int, span: float, random: np.random.Generator) -> pa.Array:
    """A join attribute: values on exact boundaries, some of them missing."""
    steps = random.integers(0, max(int(span * 10), 1), rows)
    missing = random.random(rows) < 0.01
    match kind:
        case "tenths":
            values = np.where(random.random(rows) < 0.5, steps * 0.1, steps / 10)
            values[random.random(rows) < 0.003] = np.nan
            values[random.random(rows) < 0.003] = -np.inf
            return pa.array(values, mask=missing)
        case "ints":
            return pa.array(steps // 10 - int(span) // 2, mask=missing)
        case "nanos":
            counts = NOON_2024 + steps * 30 + random.integers(0, 2, rows)
            return pa.array(counts, pa.int64(), mask=missing).cast(pa.timestamp("ns"))
        case "floats":
            return pa.array(random.random(rows) * span - span / 2, mask=missing)
        case "days":
            return pa.array((steps // 10).astype(np.int32), mask=missing).cast(pa.date32())
    raise AssertionError(kind)


def random_question(best: bool, how: str, attributes: int, seed: int) -> Asked:
    """Tables in which a row has about ten candidates, and a question with `attributes` of them."""
    random = np.random.default_rng([seed, attributes, best, *how.encode()])
    # DuckDB compares all pairs with all distinct costs where there are three of them and no row
    # to group by, so that question gets few rows, and values that repeat.
    is_slow = how == "inner" and best and attributes == 3
    rows = random.integers(2_000, 2_500 if is_slow else campaign(3_500, 20_000), 2)
    kinds = random.choice(list(TOLERANCES)[: 3 if is_slow else None], attributes).tolist()
    key = random.choice(["", "few", "many"])
    others = 8.0 ** (attributes - 1)
    first = max(rows.max() * attributes / 4 / others / KEYS.get(key, 1), 60.0)
    spans = [first, 8.0, 8.0]
    tables = []
    for count in rows.tolist():
        columns = {
            name: column_of(kind, count, span, random)
            for name, kind, span in zip("txy", kinds, spans, strict=False)
        }
        if key:
            names = random.integers(0, KEYS[key], count)
            columns["k"] = pa.array([None if n == 0 else f"key {n}" for n in names.tolist()])
        columns["id"] = pa.array(np.arange(count))
        tables.append(pa.table(columns))
    arguments: dict[str, Any] = {
        "on": {
            name: TOLERANCES[kind][random.integers(len(TOLERANCES[kind]))]
            for name, kind in zip("txy", kinds, strict=False)
        },
        "by": "k" if key else None, "how": how, "distances": bool(random.integers(2)),
    }  # fmt: skip
    if best:
        arguments["keep_unmatched"] = how != "inner" and bool(random.integers(2))
        if random.integers(3) == 0:
            arguments["orders"] = {"txy"[attributes - 1]: "youngest"}
    return Asked(*tables, best, arguments)


HOWS = [(True, how) for how in BESTMATCH_HOWS] + [(False, how) for how in EPSILON_HOWS]


@pytest.mark.parametrize("attributes", [1, 2, 3])
@pytest.mark.parametrize(("best", "how"), HOWS)
def test_random_tables(best: bool, how: str, attributes: int) -> None:
    for seed in range(campaign(1, 40)):
        asked = random_question(best, how, attributes, seed)
        expected = asked.expected
        assert expected.num_rows > 0 or seed > 0
        check(asked.run()[0], expected)
        found, report = asked.run(**TINY)
        check(found, expected)
        assert report.pages_written > 0
        left, right = (table.sort_by("t") for table in (asked.left, asked.right))
        check(asked.run(matwin.stream(left), matwin.stream(right), **SMALL)[0], expected)
        live = [
            matwin.stream(pieces(table, 300), schema=table.schema, on="t")
            for table in (left, right)
        ]
        check(asked.run(*live)[0], expected)


# ── real tables ──────────────────────────────────────────────────────────────────────────────


@cache
def real(name: str) -> pa.Table:
    return pq.read_table(REAL / f"{name}.parquet")


NEAR: dict[str, Any] = {"on": {"t": 4 * SECOND, "x": 1.8, "y": 1.8}, "by": "location"}
# A sensor measures both at once and is its own best match.  Only readings before it are a question
# with several candidates.
BEFORE: dict[str, Any] = {**NEAR, "on": {**NEAR["on"], "t": (-4 * SECOND, -1)}}
SLICE = 4_000


def readings(arguments: dict[str, Any], rows: int | None = None) -> Asked:
    """The paper's question: each temperature with its best humidities nearby."""
    sides = (real(f"room_climate/{name}").slice(0, rows) for name in ("temperature", "humidity"))
    return Asked(*sides, True, arguments)


@cache
def expected_readings(rows: int) -> pa.Table:
    expected = readings(BEFORE, rows).expected
    assert expected.num_rows > rows / 2
    return expected


@needs_data
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_readings_on_pages(form: str, mode: str) -> None:
    rows = SLICE
    found, report = readings(BEFORE, rows).run(
        memory="512KiB", page_size="8KiB", materialize=form, schedule=mode
    )
    check(found, expected_readings(rows))
    assert report.pages_written > 0 and report.pairs_visited == report.pairs_planned > 0


@needs_data
@pytest.mark.parametrize("rows", [50, 1000])
def test_readings_as_streams(rows: int) -> None:
    asked = readings(BEFORE, SLICE)
    live = [
        matwin.stream(pieces(table, rows), schema=table.schema)
        for table in (asked.left, asked.right)
    ]
    check(asked.run(*live)[0], expected_readings(SLICE))


@needs_data
@pytest.mark.parametrize("how", BESTMATCH_HOWS)
def test_readings_and_their_own_sensor(how: str) -> None:
    asked = readings({**NEAR, "how": how}, SLICE)
    check(asked.run()[0], asked.expected)


@needs_data
@pytest.mark.slow
def test_all_readings() -> None:
    asked = readings(NEAR)
    found, _ = asked.run()
    assert found.num_rows == 540_386  # each with its own, and 22 ties
    slabs, _ = asked.run(memory="32MiB")
    check(slabs, found)
    paged, report = asked.run(shuffled(asked.left), shuffled(asked.right), memory="32MiB")
    assert report.pages_written > 0
    check(paged, found)
    check(found, asked.expected)


CLIENT: dict[str, Any] = {"on": {"t": (-10 * SECOND, 0)}, "by": "id_orig_h"}
NAMED: dict[str, Any] = {**CLIENT, "by": ["id_orig_h", ("server_name", "query")]}
"""The connection names the server that was looked up; many have no name."""


@needs_data
@pytest.mark.parametrize(
    ("best", "arguments"),
    [
        (True, {**CLIENT, "distances": True}),
        (True, {**CLIENT, "how": "full", "keep_unmatched": True}),
        (True, {**NAMED, "keep_unmatched": True}),
        (True, {**CLIENT, "on": {**CLIENT["on"], "id_orig_p": 500}, "orders": {"t": "youngest"}}),
        (True, {"on": {"t": SECOND // 100, "id_orig_p": None}, "how": "inner"}),
        (False, CLIENT),
        (False, {**NAMED, "how": "full"}),
        (False, {**CLIENT, "how": "semi"}),
        (False, {**NAMED, "how": "anti"}),
    ],
)
def test_lookups_before_a_connection(best: bool, arguments: dict[str, Any]) -> None:
    sides = (real(f"zeek_wrccdc/{name}").slice(0, 15_000) for name in ("ssl", "dns"))
    asked = Asked(*sides, best, arguments)
    expected = asked.expected
    assert expected.num_rows > 0
    check(asked.run()[0], expected)
    found, report = asked.run(shuffled(asked.left), shuffled(asked.right), **MIDDLE)
    check(found, expected)
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
@pytest.mark.parametrize(("best", "lateness"), [(True, 5), (True, 60), (True, 900), (False, 60)])
def test_logs_in_the_order_they_were_written(best: bool, lateness: int) -> None:
    written = [real(f"zeek_wrccdc/{name}_raw_order") for name in ("ssl", "dns")]
    kept = [on_time(table, lateness * SECOND) for table in written]
    asked = Asked(*kept, best, CLIENT)
    live = [
        matwin.stream(
            pieces(table, 2000), schema=table.schema, late="drop",
            order=matwin.Lateness(lateness * SECOND),
        )
        for table in written
    ]  # fmt: skip
    found, report = asked.run(*live)
    check(found, asked.expected)
    for side, before, after in zip((report.left, report.right), written, kept, strict=True):
        assert (side.rows_in, side.used) == (before.num_rows, after.num_rows)
        assert (side.late > 0) == (lateness < 900)


RETURNED: dict[str, Any] = {"on": {"t": (0, 1800 * SECOND)}, "by": "station"}


@needs_data
@pytest.mark.parametrize(
    ("best", "arguments"),
    [
        (True, RETURNED),
        (True, {"on": {"t": (0, 7 * 86_400 * SECOND)}, "by": ["station", "bike_id"]}),
        (False, {**RETURNED, "by": ["station", "bike_id"], "how": "full"}),
    ],
)
def test_departures_after_an_arrival(best: bool, arguments: dict[str, Any]) -> None:
    sides = (real(f"bikeshare14/{name}").slice(0, 60_000) for name in ("arrivals", "departures"))
    asked = Asked(*sides, best, arguments)
    expected = asked.expected
    check(asked.run()[0], expected)
    check(asked.run(threads=1, **MIDDLE)[0], expected)
    found, report = asked.run(shuffled(asked.left), shuffled(asked.right), **MIDDLE)
    check(found, expected)
    assert report.pages_written > 0
