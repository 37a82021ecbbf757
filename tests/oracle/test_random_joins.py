"""Random joins against an oracle that shares no code with the product.

    seed ─ trials.py ─▶ tables, arguments ─▶ the product, by a route of the seed's choice ┐ the
                    └─▶ plain numbers ─────▶ independent.py: loops over all pairs ────────┘ same bag

A route is a source for each table (a table, a declared or a live stream), a budget, a form of
pages, a schedule, an algorithm, threads, and thresholds so low that a few rows reach every kernel.

A failure names its seed; ``check_pairs(seed)``, ``check_fixed(seed)`` or ``check_tuples(seed)`` is
that trial again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from proofs import tried
from support import campaign
from trials import Trial, fixed_trial, pairs_trial, tuples_trial

import matwin
from matwin import joining, memory
from matwin.kernels import strips
from matwin.operators.wjoin import output as wjoin_output
from matwin.report import Report

SMALL: dict[str, Any] = {"page_size": "4KiB", "memory": 32 * 4096}
FORMS = ("standard", "grid", "slab")
SCHEDULES = ("auto", "gallop", "crabstep", "lookahead")
ALGORITHMS = (
    "auto", "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip
BOUNDS = ("auto", "global", "local", "graph")
LOW = ((memory, "FEW_PAIRS", 0), (strips, "FEW_ROWS", 0), (memory, "PIECE_ROWS_MIN", 2),
       (memory, "PIECE_ROWS_MAX", 3), (memory, "MANY_PAIRS", 1), (joining, "BATCH_ROWS", 2),
       (wjoin_output, "FEW_ROWS", 2))  # fmt: skip
"""Thresholds that choose a way, and values with which a few rows are many."""


def routed(chance: Random) -> dict[str, Any]:
    """Options of a join that decide where its rows live."""
    options: dict[str, Any] = {"threads": chance.choice([1, 2])}
    if chance.random() < 0.5:
        options |= {**SMALL, "materialize": chance.choice(FORMS), "max_delay": "0s"}
    return options


@contextmanager
def lowered(chance: Random) -> Iterator[None]:
    """Some of the thresholds, so low that a few rows are many."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in LOW:
            if chance.random() < 0.6:
                patch.setattr(module, name, value)
        yield


def source(chance: Random, trial: Trial, name: str, *, may_stream: bool) -> Any:
    """A table in one of the forms that a source may have."""
    table = trial.tables[name]
    form = chance.choice(["table", "table", "batches", "sorted", "stream", "live", "ahead"])
    if form in ("table", "batches") or not may_stream:
        batches = table.to_batches(max_chunksize=chance.randint(1, 5))
        return table if form == "table" or not batches else batches
    if form == "ahead":
        return matwin.stream(table, order=matwin.ReadAhead(table.num_rows + 1))
    order = trial.order[name]
    places = sorted(
        range(len(order)), key=lambda row: (not _has_place(order[row]), order[row] or 0)
    )
    ordered = table.take(pa.array(places, pa.int64()))
    if form == "sorted":
        return ordered
    if form == "stream":
        return matwin.stream(ordered)
    return matwin.stream(_pieces(ordered, chance.randint(1, 5)), schema=table.schema)


def _has_place(value: Any) -> bool:
    return value is not None and value == value


def _pieces(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches(max_chunksize=rows)


def check_pairs(seed: int, budget: int = 0) -> bool:
    """One join of two sides; whether it found anything.

    The best of all pairs of streams have to fit the budget: a larger one is taken where it is
    advised.
    """
    trial, chance = pairs_trial(seed), Random(f"route {seed}")
    expected = trial.asked.answer()
    limits = trial.asked.attributes[0]
    may_stream = limits.lo is not None and limits.hi is not None
    sources = [source(chance, trial, side, may_stream=may_stream) for side in ("left", "right")]
    join = matwin.bestmatch_join if trial.is_best else matwin.epsilon_join
    report = Report()
    options = routed(chance)
    if "materialize" in options:
        options["schedule"] = chance.choice(SCHEDULES)
        options["memory"] = max(budget, options["memory"])
    with lowered(chance):
        try:
            found = join(*sources, report=report, **options, **trial.arguments).read_all()
        except matwin.InputError as e:
            assert trial.too_far and "does not fit duration" in str(e), (seed, e)
            return False
        except matwin.BudgetError as e:
            assert trial.is_best and e.smallest_bytes > options["memory"], (seed, e)
            return check_pairs(seed, e.smallest_bytes)
    report.check()
    assert _pairs(found, trial) == expected, seed
    _check_text(found, ("left", "right"))
    return bool(expected)


def _pairs(found: pa.Table, trial: Trial) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*_pair_columns(found, trial), strict=True))


def _pair_columns(found: pa.Table, trial: Trial) -> list[list[Any]]:
    sides = ("left", "right") if "right_id" in found.column_names else ("left",)
    columns = [found[f"{side}_id"].to_pylist() for side in sides]
    if len(sides) == 2 and trial.arguments["distances"]:
        columns += [_distances(found, trial, names) for names in trial.arguments["on"]]
    return columns


def _distances(found: pa.Table, trial: Trial, names: Any) -> list[Any]:
    """Distances as counts of the unit in which the columns are compared."""
    ours, theirs = (names, names) if isinstance(names, str) else names
    column = found[f"{ours}_distance"]
    counts = _counts(column)
    if not pa.types.is_temporal(column.type):
        return counts
    types = {trial.tables["left"][ours].type, trial.tables["right"][theirs].type}
    day = 86_400 if types == {pa.date32()} and pa.types.is_duration(column.type) else 1
    return [None if count is None else count // day for count in counts]


def _counts(column: pa.ChunkedArray) -> list[Any]:
    """Numbers as they are, times as counts of their unit."""
    if not pa.types.is_temporal(column.type):
        return column.to_pylist()
    stored = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return pa.chunked_array([c.view(stored) for c in column.chunks], stored).to_pylist()


def check_fixed(seed: int, budget: int = 0) -> bool:
    """One fixed window join; whether it found anything.

    It needs more than other joins do: a larger budget is taken where it is advised.
    """
    trial, chance = fixed_trial(seed), Random(f"route {seed}")
    expected = trial.asked.answer()
    sources = [source(chance, trial, side, may_stream=True) for side in ("left", "right")]
    options = routed(chance)
    if "materialize" in options:
        options["schedule"] = chance.choice(SCHEDULES)
        options["memory"] = max(budget, options["memory"])
    with lowered(chance):
        try:
            found = matwin.fixed_window_join(*sources, **options, **trial.arguments).read_all()
        except matwin.InputError as e:
            assert trial.too_far and "does not fit duration" in str(e), (seed, e)
            return False
        except matwin.BudgetError as e:
            assert e.smallest_bytes > options["memory"], (seed, e)
            return check_fixed(seed, e.smallest_bytes)
    rows = Counter(zip(_counts(found["evaluated_at"]), *_pair_columns(found, trial), strict=True))
    assert rows == expected, seed
    _check_text(found, ("left", "right"))
    return bool(expected)


def _check_text(found: pa.Table, sides: tuple[str, ...]) -> None:
    """The other columns are those of the row that the number names."""
    for side in sides:
        if f"{side}_id" in found.column_names:
            ids, texts = found[f"{side}_id"].to_pylist(), found[f"{side}_text"].to_pylist()
            for row, text in zip(ids, texts, strict=True):
                assert (row is None) == (text is None)
                assert row is None or text.rstrip(".").endswith(f" {row}")


def check_tuples(seed: int) -> bool:
    """One window join; whether it found anything."""
    trial, chance = tuples_trial(seed), Random(f"route {seed}")
    expected = trial.asked.answer()
    sources = {name: source(chance, trial, name, may_stream=True) for name in trial.tables}
    is_live = any(getattr(one, "is_live", False) for one in sources.values())
    names = [name for name in ALGORITHMS if not (name == "merge" and is_live)]
    if "by" not in trial.arguments:
        names = [name for name in names if "hash" not in name]
    options = {"algorithm": chance.choice(names), "bounds": chance.choice(BOUNDS), **routed(chance)}
    with lowered(chance):
        try:
            found = matwin.window_join(sources, **options, **trial.arguments).read_all()
        except matwin.InputError as refused:  # an algorithm by name has its windows in memory
            assert "has its windows in memory" in str(refused), seed
            options["algorithm"] = "auto"
            chance = Random(f"route {seed}")  # sources that can be read once are made anew
            sources = {name: source(chance, trial, name, may_stream=True) for name in trial.tables}
            found = matwin.window_join(sources, **options, **trial.arguments).read_all()
    columns = [found[f"{name}_row_id"].to_pylist() for name in trial.tables]
    assert Counter(zip(*columns, strict=True)) == expected, seed
    _check_text(found, tuple(f"{name}_row" for name in trial.tables))
    return bool(expected)


@pytest.mark.proof("random joins against an independent oracle")
@pytest.mark.parametrize("part", range(4))
def test_random_joins_of_two_sides(part: int) -> None:
    found = 0
    for seed in range(part, campaign(400, 16_000), 4):
        found += check_pairs(seed)
        tried()
    assert found > campaign(400, 16_000) // 4 // 4, "too few of these trials match anything"


@pytest.mark.proof("random joins against an independent oracle")
@pytest.mark.parametrize("part", range(2))
def test_random_fixed_window_joins(part: int) -> None:
    found = 0
    for seed in range(part, campaign(100, 4_000), 2):
        found += check_fixed(seed)
        tried()
    assert found > campaign(100, 4_000) // 2 // 4, "too few of these trials match anything"


@pytest.mark.proof("random joins against an independent oracle")
@pytest.mark.parametrize("part", range(2))
def test_random_window_joins(part: int) -> None:
    found = 0
    for seed in range(part, campaign(200, 8_000), 2):
        found += check_tuples(seed)
        tried()
    assert found > campaign(200, 8_000) // 2 // 4, "too few of these trials match anything"
