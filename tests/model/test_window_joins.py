"""Every window join against a plain nested loop: all algorithms, bounds, budgets and sources.

The same rows must come out in memory and on pages, from tables in any order, sorted ones, batches
and declared streams, with one thread and with two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign
from wcases import questions
from wquestions import Asked, simple

import matwin
from matwin import ways
from matwin.report import Report
from matwin.storage.columns import order_key

ALGORITHMS = (
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip
BOUNDS = ("auto", "global", "local", "graph")
SMALL: dict[str, Any] = {"page_size": "4KiB", "memory": 32 * 4096}
PAGES = {**SMALL, "materialize": "slab", "max_delay": "0s"}
"""Whoever names a form of materialization gets pages, however few the rows."""


def joined(asked: Asked, sources: dict[str, Any] | None = None, **options: Any) -> pa.Table:
    """The join's rows; sources may be given in another form.  Whatever is counted adds up."""
    report = Report()
    sources = asked.streams if sources is None else sources
    found = matwin.window_join(sources, report=report, **asked.arguments, **options).read_all()
    assert found.column_names == asked.names
    assert report.is_done and report.rows_out == found.num_rows
    assert report.peak_bytes <= report.budget_bytes
    report.check()
    for name, table in asked.streams.items():
        counts = report.streams[name]
        assert (counts.rows_in, counts.late) == (table.num_rows, 0), name
        assert counts.rejected == asked.rejected(name), name
        assert counts.rows_in == counts.used + counts.rejected, name
    return found


def fits(asked: Asked, algorithm: str) -> bool:
    return bool(asked.keys) or not algorithm.endswith("hash")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(asked=questions())
@settings(max_examples=campaign(30, 3000))
def test_every_algorithm_and_bounds(algorithm: str, asked: Asked) -> None:
    if not fits(asked, algorithm):
        with pytest.raises(matwin.InputError, match="by="):
            joined(asked, algorithm=algorithm)
        return
    expected = asked.expected
    for bounds in BOUNDS:
        found = joined(asked, algorithm=algorithm, bounds=bounds, threads=1)
        assert as_bag(found) == expected, bounds


@given(questions(), st.sampled_from(["auto", "merge"]), st.sampled_from(BOUNDS), st.data())
@settings(max_examples=campaign(40, 5000))
def test_on_pages(asked: Asked, algorithm: str, bounds: str, data: st.DataObject) -> None:
    """The smallest budget, every form of materialization."""
    options = {
        "materialize": data.draw(st.sampled_from(["slab", "grid", "standard"])),
        "threads": data.draw(st.sampled_from([1, 2])),
    }
    found = joined(asked, algorithm=algorithm, bounds=bounds, **options, **SMALL)
    assert as_bag(found) == asked.expected


# ── sources ──────────────────────────────────────────────────────────────────────────────────


def in_order(table: pa.Table, name: str) -> pa.Table:
    """The rows by their time; those without one anywhere."""
    keys = order_key(table[name].combine_chunks())
    return table.take(pa.array(keys.argsort(kind="stable")))


def pieces(table: pa.Table, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    at = piece = 0
    while at < table.num_rows:
        size = sizes[piece % len(sizes)]
        yield from table.slice(at, size).combine_chunks().to_batches()
        at, piece = at + size, piece + 1


def source(form: str, table: pa.Table, time: str, sizes: list[int]) -> Any:
    ordered = in_order(table, time)
    match form:
        case "sorted table":
            return ordered
        case "batches":
            return list(pieces(table, sizes)) or table
        case "reader":
            return table.to_reader(max_chunksize=sizes[0])
        case "declared":
            return matwin.stream(ordered)
        case "lateness":
            return matwin.stream(table, order=matwin.ReadAhead(20))
        case "live":
            return matwin.stream(pieces(ordered, sizes), schema=table.schema)
        case "live with pauses":
            paused = (item for batch in pieces(ordered, sizes) for item in (None, batch, None))
            return matwin.stream(paused, schema=table.schema)
    return table


FORMS = ("table", "sorted table", "batches", "reader", "declared", "lateness")
LIVE = ("live", "live with pauses")


@given(questions(), st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=4))
@settings(max_examples=campaign(80, 5000))
def test_sources(asked: Asked, data: st.DataObject, sizes: list[int]) -> None:
    """Each stream comes in a form of its own; finite ones, and live ones beside them."""
    forms = FORMS + LIVE if data.draw(st.booleans()) else FORMS
    chosen = {name: data.draw(st.sampled_from(forms), label=name) for name in asked.streams}
    algorithm = data.draw(st.sampled_from(ALGORITHMS))
    is_live = any(form in LIVE for form in chosen.values())
    if not fits(asked, algorithm) or (is_live and algorithm == "merge"):
        algorithm = "auto"
    sources = {
        name: source(chosen[name], table, asked.time[name], sizes)
        for name, table in asked.streams.items()
    }
    options = data.draw(st.sampled_from([{}, {"threads": 1}, PAGES]))
    if options is PAGES and algorithm != "merge":
        algorithm = "auto"
    assert as_bag(joined(asked, sources, algorithm=algorithm, **options)) == asked.expected


@given(questions(), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
@settings(max_examples=campaign(40, 5000))
def test_live(asked: Asked, sizes: list[int], data: st.DataObject) -> None:
    """All streams live, each algorithm, in memory and on pages."""
    options = data.draw(st.sampled_from([{}, {"threads": 1}, PAGES]))
    names = [name for name in ALGORITHMS if name != "merge" and fits(asked, name)]
    names = ["auto"] if options is PAGES else names
    expected = asked.expected
    for algorithm in names:
        sources = {
            name: source("live", table, asked.time[name], sizes)
            for name, table in asked.streams.items()
        }
        bounds = data.draw(st.sampled_from(BOUNDS))
        found = joined(asked, sources, algorithm=algorithm, bounds=bounds, **options)
        assert as_bag(found) == expected, algorithm


# ── budgets ──────────────────────────────────────────────────────────────────────────────────


def streams(
    rows: int, seed: int, *, is_sorted: bool = False, span: int = 40
) -> dict[str, pa.Table]:
    """Three streams with about one row in `span` steps of time for each of three keys."""
    chance = np.random.default_rng(seed)
    made = {}
    for name in "abc":
        t = chance.integers(0, rows * span // 3, rows)
        columns = {
            "t": np.sort(t) if is_sorted else t,
            "k": pa.array(chance.choice(["red", "green", "blue", None], rows).tolist()),
            "name": pa.array([f"row {i}" for i in chance.integers(0, rows, rows)]),
        }
        made[name] = pa.table(columns)
    return made


WINDOWS = {("a", "b"): 40, ("b", "c"): (0, 60), ("a", "c"): (-20, 80)}


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_small_budgets_give_the_same_rows(algorithm: str, is_sorted: bool) -> None:
    asked = simple(streams(2000, 1, is_sorted=is_sorted), WINDOWS, "k")
    expected = as_bag(joined(asked, memory="256MiB"))
    assert expected.total() > 300
    for threads in (1, 2):
        found = joined(asked, algorithm=algorithm, threads=threads, **SMALL)
        assert as_bag(found) == expected


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS[2:]])
def test_windows_that_do_not_fit_go_to_pages(algorithm: str, is_live: bool) -> None:
    """All rows are within reach of each other; what is found is thinned out by keys."""
    tables = streams(2500, 2, is_sorted=True)
    tables = {
        n: t.set_column(1, "k", pa.array(np.arange(2500) * 7 % 1250)) for n, t in tables.items()
    }
    asked = simple(tables, 10**6, "k")
    expected = as_bag(joined(asked, memory="256MiB"))
    assert expected.total() == 1250 * 8
    sources = {
        name: source("live" if is_live else "table", table, "t", [200])
        for name, table in tables.items()
    }
    report = Report()
    small = SMALL if is_live or algorithm == "auto" else {**SMALL, "memory": 2 * SMALL["memory"]}
    found = matwin.window_join(
        sources, **asked.arguments, algorithm=algorithm, report=report, **small
    )
    if is_live and algorithm != "auto":
        with pytest.raises(matwin.InputError, match=f"{algorithm}.*more memory.*'auto'"):
            found.read_all()
        return
    assert as_bag(found) == expected
    assert is_live or algorithm == "auto" or any("parts" in d for d in report.decisions)
    assert report.pages_written > 0
    assert report.peak_bytes <= small["memory"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_walked_is_no_place_for_an_algorithm_that_is_named(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever makes a join walk, who names an algorithm that has no pages is told so."""
    monkeypatch.setattr(ways, "FORCED", "walk")
    asked = simple(streams(300, 3), WINDOWS, "k")
    if algorithm in ("auto", "merge"):
        assert as_bag(joined(asked, algorithm=algorithm, **SMALL)) == asked.expected
        return
    with pytest.raises(matwin.InputError, match=f"{algorithm}.*more memory.*'auto'"):
        joined(asked, algorithm=algorithm, **SMALL)


def test_what_fits_is_not_written() -> None:
    report = Report()
    asked = simple(streams(3000, 3), WINDOWS, "k")
    matwin.window_join(asked.streams, **asked.arguments, report=report, memory="64MiB").read_all()
    assert (report.pages_written, report.pages_read) == (0, 0)


@pytest.mark.parametrize("options", [{}, SMALL, PAGES])
def test_the_same_input_gives_the_same_bytes(options: dict[str, Any]) -> None:
    asked = simple(streams(1000, 4), WINDOWS, "k")
    runs = [joined(asked, threads=2, **options) for _ in range(2)]
    assert runs[0].equals(runs[1])


def test_explaining_reads_no_row() -> None:
    def unread() -> Iterator[pa.RecordBatch]:
        pytest.fail("a row was read")
        yield

    table = streams(1, 5)["a"]
    sources = {
        name: matwin.stream(unread(), schema=table.schema) for name in ("first", "second", "third")
    }
    windows = {("first", "second"): 5, ("second", "third"): matwin.then(3)}
    text = matwin.explain_window_join(sources, time="t", windows=windows, by="k")
    assert all(name in text for name in sources)
    assert "-5 <= third.t - first.t <= 8" in text  # what follows from both
