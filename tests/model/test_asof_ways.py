"""As-of joins: every option by every way of execution, rows and order, against a plain loop.

Few rows and small shares, so that a portion is some rows, groups and waiting rows go to pages, runs
are merged in several passes, and the matches of a few left rows do not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nearest import expected
from proofs import tried
from support import campaign

import matwin
from matwin import events, memory, merging, sizes
from matwin.shares import MergeShares
from matwin.storage import lanes

SMALL = {"memory": "128KiB", "page_size": "4KiB"}
TINY = MergeShares(
    run=1000, merge=1000, pile=4000, pairs=2000, rows=60, mates=60, gather=200, batch=300
)
DIRECTIONS = ("backward", "forward", "nearest")
TIES = ("last", "first", "all")
KINDS = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.uint64())


def tables(seed: int, kind: pa.DataType = KINDS[0]) -> tuple[pa.Table, pa.Table]:
    """Rows of few keys and times, with nulls, a hot time and texts of all lengths."""
    random = np.random.default_rng(seed)

    def table(name: str) -> pa.Table:
        rows = int(random.integers(0, 120))
        span = int(random.choice((2, 30, 1000)))
        times = random.integers(0, span, rows)
        times[random.random(rows) < random.choice((0, 0.5))] = span // 2
        is_null = random.random(rows) < random.choice((0, 0.2))
        values = times * 0.1 if pa.types.is_floating(kind) else times
        keys = random.choice(list("abc"), rows)
        return pa.table({
            "t": pa.array(values, mask=is_null).cast(kind),
            "k": pa.array(keys, pa.string(), mask=random.random(rows) < 0.1),
            "text": ["q" * int(n) for n in random.integers(0, 40, rows) ** 2 // 8],
            name: np.arange(rows),
        })  # fmt: skip

    return table("a"), table("b")


def asked_of(seed: int, kind: pa.DataType) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    far = [None, 0, 3, 40][int(random.integers(4))]
    if far is not None and pa.types.is_floating(kind):
        far *= 0.1
    is_exact = bool(random.random() < 0.6)
    if far is not None and pa.types.is_timestamp(kind):
        far = f"{far}us"
    return {
        "on": "t", "by": [None, "k"][int(random.integers(2))], "tolerance": far,
        "direction": str(random.choice(DIRECTIONS)), "ties": str(random.choice(TIES)),
        "allow_exact_matches": is_exact, "how": str(random.choice(("left", "inner"))),
    }  # fmt: skip


def wanted(left: pa.Table, right: pa.Table, asked: dict[str, Any]) -> list[Any]:
    counted = dict(asked)
    if isinstance(far := asked["tolerance"], str):
        counted["tolerance"] = int(far[:-2])
    plain = [t.set_column(0, "t", as_numbers(t["t"])) for t in (left, right)]
    return expected(*plain, counted)


def as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def found(left: Any, right: Any, asked: dict[str, Any], **options: Any) -> list[Any]:
    report = matwin.Report()
    table = matwin.asof_join(left, right, report=report, **asked, **options).to_arrow()
    assert report.peak_bytes <= report.budget_bytes
    report.check()
    texts = list(zip(table["text"].to_pylist(), table["text_right"].to_pylist(), strict=True))
    rows = list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
    assert len(set(zip(rows, texts, strict=True))) == len(set(rows))
    return rows


def in_order(table: pa.Table, order: str) -> pa.Table:
    return table.sort_by("t") if order == "sorted" else table


def renumbered(table: pa.Table, name: str) -> pa.Table:
    return table.set_column(3, name, pa.array(np.arange(table.num_rows)))


@pytest.mark.proof("as-of options by ways")
@pytest.mark.parametrize("way", ["memory", "few", "merge", "merge in pieces", "full"])
@settings(max_examples=campaign(40, 4000), deadline=None)
@given(seed=st.integers(0, 2**32), order=st.sampled_from(["sorted", "any"]),
       kind=st.sampled_from(KINDS), ordered=st.booleans())  # fmt: skip
def test_finite(way: str, seed: int, order: str, kind: pa.DataType, ordered: bool) -> None:
    left, right = (in_order(t, order) for t in tables(seed, kind))
    left, right = renumbered(left, "a"), renumbered(right, "b")
    asked = asked_of(seed + 1, kind)
    options: dict[str, Any] = {"memory": {}, "few": {}, "full": {"memory": "128KiB"}}.get(
        way, {**SMALL, "schedule": "gallop"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FEW_PAIRS", 0 if way == "memory" else 10**9)
        if way == "merge in pieces":
            patch.setattr(merging, "SHARES", TINY)
            patch.setattr(sizes, "WAYS_MIN", 2)
            patch.setattr(events, "CHUNK_BYTES_MIN", 64)
            patch.setattr(events, "FAN_IN", 3)
            patch.setattr(events, "FAN_IN_MAX", 0)
        rows = found(left, right, asked, ordered=ordered, **options)
    expect = wanted(left, right, asked)
    assert rows == expect if ordered else Counter(rows) == Counter(expect)
    tried()


def stream(table: pa.Table, batch: int, *, is_live: bool, lateness: int | None) -> Any:
    pieces: Iterator[pa.RecordBatch] = iter(table.to_batches(max_chunksize=batch))
    order = matwin.Sorted() if lateness is None else matwin.Lateness(lateness)
    given = pieces if is_live else table
    return matwin.stream(given, schema=table.schema, on="t", order=order)


@pytest.mark.proof("as-of options by ways")
@pytest.mark.parametrize("way", ["memory", "merge", "merge in pieces"])
@pytest.mark.parametrize("is_live", [True, False])
@settings(max_examples=campaign(25, 2000), deadline=None)
@given(seed=st.integers(0, 2**32), late=st.booleans(), batch=st.sampled_from([1, 7, 50]))
@example(seed=5310601, late=True, batch=1)  # matches of one left row in several pieces
def test_streams(way: str, is_live: bool, seed: int, late: bool, batch: int) -> None:
    left, right = (in_order(t.drop_null(), "any" if late else "sorted") for t in tables(seed))
    left, right = renumbered(left, "a"), renumbered(right, "b")
    asked = asked_of(seed + 1, KINDS[0])
    asked["tolerance"] = asked["tolerance"] or 5
    options: dict[str, Any] = {} if way == "memory" else {**SMALL, "materialize": "slab"}
    with pytest.MonkeyPatch.context() as patch:
        if way == "merge in pieces":
            patch.setattr(merging, "SHARES", TINY)
            patch.setattr(sizes, "WAYS_MIN", 2)
            patch.setattr(events, "CHUNK_BYTES_MIN", 64)
            patch.setattr(events, "FAN_IN", 3)
            patch.setattr(events, "FAN_IN_MAX", 0)
        sides = [
            stream(t, batch, is_live=is_live, lateness=1000 if late else None)
            for t in (left, right)
        ]
        rows = found(*sides, asked, **options)
    expect = wanted(left, right, asked)
    assert Counter(rows) == Counter(expect)
    if not is_live or not late:
        assert rows == expect
    else:
        # A step is in the order in which rows came; what leaves later is later.
        numbers = np.array([number for number, _ in rows], np.int64)
        times = np.asarray(left["t"])[numbers]
        for begin in (np.flatnonzero(np.diff(numbers) < 0) + 1).tolist():
            assert times[:begin].max() < times[begin:].min()
    tried()


def test_pieces_grow_as_a_sort_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the rows in the same memory are not sixteen times the pieces."""
    noted: list[int] = []
    note = lanes.Lane.add

    def add(lane: lanes.Lane, page: int, start: int, body: pa.Buffer) -> None:
        noted.append(body.size)
        note(lane, page, start, body)

    monkeypatch.setattr(lanes.Lane, "add", add)

    def pieces(rows: int) -> int:
        noted.clear()
        sides = [
            pa.table({"t": np.random.default_rng(seed).integers(0, 10 * rows, rows)})
            for seed in (1, 2)
        ]
        asked = {"on": "t", "memory": "512KiB", "page_size": "16KiB"}
        assert matwin.asof_join(*sides, **asked).to_arrow().num_rows == rows
        return len(noted)

    assert pieces(160_000) <= 7 * pieces(40_000)


@given(lots=st.integers(1, 10**6), most=st.integers(2, 100))
def test_lots_are_reached_in_as_few_divisions_as_there_can_be(lots: int, most: int) -> None:
    ways, reach, levels = sizes.ways_of(lots, most), 1, 0
    assert 1 <= ways <= most
    while reach < lots:
        reach, levels = reach * ways, levels + 1
    assert most ** max(levels - 1, 0) < lots or levels <= 1


def wide(rows: int, width: int, seed: int) -> pa.Table:
    times = np.random.default_rng(seed).integers(0, 100, rows)
    return pa.table({"t": times, "s": ["q" * width] * rows, f"id{seed}": np.arange(rows)})


CASES: dict[str, tuple[pa.Table, pa.Table, dict[str, Any]]] = {
    "rows of 9 kB": (wide(40, 9000, 1), wide(40, 9000, 2), {}),
    "all matches": (
        wide(40, 9000, 1), wide(40, 9000, 2), {"ties": "all", "direction": "nearest"}
    ),
    "as they are found": (wide(20, 30_000, 1), wide(20, 30_000, 2), {"ordered": False}),
    "pages": (wide(20, 30_000, 1), wide(20, 3, 2), {"schedule": "gallop", "how": "inner"}),
    "narrow to wide": (wide(300, 1, 1), wide(9, 30_000, 2), {}),
    "many columns": (
        pa.table({"t": [3, 4], **{f"a{n}": [1.0, 2.0] for n in range(300)}}),
        pa.table({"t": [3, 4], **{f"b{n}": [1.0, 2.0] for n in range(300)}}),
        {"trace": "trace.arrow"},
    ),
}  # fmt: skip


@pytest.mark.proof("announced budgets work")
@pytest.mark.parametrize("name", CASES)
def test_the_budget_that_is_announced_works_and_is_the_smallest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    left, right, options = CASES[name]

    def run(budget: int) -> pa.Table | int:
        report = matwin.Report()
        try:
            asked = {"memory": budget, "report": report, **options}
            return matwin.asof_join(left, right, on="t", **asked).to_arrow()
        except matwin.BudgetError as e:
            assert e.smallest_bytes > budget
            return e.smallest_bytes
        finally:
            assert report.peak_bytes <= max(report.budget_bytes, budget)
            tried()

    def works(budget: int) -> bool:
        return not isinstance(run(budget), int)

    expect = run(1 << 28)
    announced = run(1 << 17)
    enough = announced if isinstance(announced, int) else 1 << 17
    assert run(enough) == expect
    assert all(works(budget) for budget in np.geomspace(enough, 1 << 23, 5).astype(int).tolist())
    low, high = 1 << 16, enough
    while high - low > high // 20:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    assert enough <= 1.25 * high
    if name == "rows of 9 kB":
        assert enough < 1 << 20
