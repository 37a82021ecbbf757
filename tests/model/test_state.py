"""State between two steps: another engine goes on with it, and nobody can tell.

    rows in portions, steps in between ──▶ one engine ─────────────────────▶ what it finds
                                           one engine ──state()─┐
                                                                ▼ written and read
                                                      another ──restore()──▶ finds the same

Engines are driven by hand, without a driver: whenever a state is taken, not when it suits.  On
pages the state and the store are committed together, and the other engine opens the store again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import Case, Row, as_bag, cases, plain_values
from support import campaign
from wcases import questions
from wquestions import Asked, simple

from matwin.bestmatch import directions_of, needs_row_numbers
from matwin.feed import Portion
from matwin.finality import DONE
from matwin.fixed import Clock, Evaluation, FixedWindowJoining
from matwin.joining import Join, TwoSided
from matwin.operators.epsilon import _directions, _keeps_rejected
from matwin.operators.wjoin import paged
from matwin.operators.wjoin.join import asked as asked_of
from matwin.operators.wjoin.joining import WindowJoining
from matwin.options import Options, half_of, options_of
from matwin.question import Question
from matwin.report import Report
from matwin.sizes import batch_bytes
from matwin.sources import two_sources
from matwin.state import Kept, State
from matwin.storage.columns import INT64_MIN
from matwin.storage.store import Store

ALGORITHMS = (
    "merge", "backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash"
)  # fmt: skip
FORMS = ("slab", "grid", "standard")
SMALL: dict[str, Any] = {"page_size": "4KiB", "memory": 32 * 4096, "threads": 1}


# ── joins ────────────────────────────────────────────────────────────────────────────────────


def two_sided(case: Case, options: Options, *, is_live: bool) -> TwoSided:
    """A bestmatch or ε-join as the driver gets it."""
    question, sources = case.question, two_sources(case.left, case.right)
    join = Join(question, *sources, options, row_numbers=needs_row_numbers(question))
    if case.best:
        keeps: tuple[str, ...] = (question.how,) if question.keep_unmatched else ()
        keeps = ("left", "right") if keeps == ("full",) else keeps
        return TwoSided(join, directions_of(join), keeps, is_live)
    return TwoSided(join, partial(_directions, join), _keeps_rejected(question.how), is_live)


def windowed(asked: Asked, algorithm: str, options: Options, *, is_live: bool) -> WindowJoining:
    """A window join as the driver gets it."""
    arguments = {"where": None, **asked.arguments}
    question, _, choice = asked_of(asked.streams, bounds="auto", algorithm=algorithm, **arguments)
    return WindowJoining(question, choice, options, Report(), is_live=is_live)


def fixed(left: pa.Table, right: pa.Table, how: str, options: Options) -> FixedWindowJoining:
    """A fixed window join as the driver gets it."""
    arguments: dict[str, Any] = {"on": {"x": 1}, "how": how}
    question = Question.of(left.schema, right.schema, best=True, **arguments)
    timed = Question.of(left.schema, right.schema, on={"t": 3}, how="inner", best=False)
    clock = Clock.of(timed, None)
    evaluation = Evaluation(clock, question, arguments, half_of(options), Report())
    return FixedWindowJoining(timed, evaluation, options)


# ── scripts ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Action:
    """A portion of a feed, or a step by these frontiers."""

    feed: int
    portion: Portion | None
    frontiers: Sequence[int] = ()


@st.composite
def scripts(draw: st.DrawFn, joining: Any, tables: Sequence[pa.Table]) -> list[Action]:
    """All rows of all feeds in portions, more or less in order, steps in between and at the end.

    The frontiers are as far as they can be: whatever may be judged or dropped is.
    """
    chance = random.Random(draw(st.integers(0, 999)))
    jitter = draw(st.sampled_from([0, 0, 2, 99]))
    lots = [_portions(joining.sides[i], table, chance, jitter) for i, table in enumerate(tables)]
    silent = draw(st.integers(0, 3))  # so many steps nothing is known of any order
    actions: list[Action] = []
    while any(lots):
        feed = chance.choice([i for i, lot in enumerate(lots) if lot])
        actions.append(Action(feed, lots[feed].pop(0)))
        if any(lots) and chance.random() < 0.5:
            silent -= 1
            known = [INT64_MIN] * len(lots) if silent >= 0 else [_frontier(lot) for lot in lots]
            actions.append(Action(-1, None, known))
    return [*actions, Action(-1, None, [DONE] * len(lots))]


def _portions(side: Any, table: pa.Table, chance: random.Random, jitter: int) -> list[Portion]:
    """A table's rows in the order of time, each up to so many places away from its own."""
    if table.num_rows == 0:
        return []
    all_rows = whole(side, table)
    rows, rejected = all_rows.rows, all_rows.rejected
    order = np.argsort(all_rows.keys, kind="stable")
    places = [at + chance.uniform(0, jitter) for at in range(len(order))]
    rows = rows.take(pa.array(order[np.argsort(places, kind="stable")]))
    found, first = [], 0
    while first < rows.num_rows or rejected is not None:
        part = rows.slice(first, chance.choice([1, 1, 2, 5]))
        found.append(Portion(part, side.order_keys(part), rejected, batch_bytes(part)))
        first, rejected = first + part.num_rows, None
    return found


def whole(side: Any, table: pa.Table) -> Portion:
    """A table's rows as they are."""
    rows, rejected, _ = side.prepare(table.combine_chunks().to_batches()[0], 0)
    return Portion(rows, side.order_keys(rows), rejected, batch_bytes(rows))


def _frontier(lot: list[Portion]) -> int:
    return min((int(p.keys.min()) for p in lot if len(p.keys)), default=DONE)


def played(joining: Any, engine: Any, actions: Sequence[Action]) -> Counter[Row]:
    """What an engine finds."""
    results: list[Any] = []
    for action in actions:
        if action.portion is None:
            results += engine.advance(action.frontiers)
            continue
        results += engine.take(action.feed, action.portion)
        if action.portion.rejected is not None:
            results += joining.rejected(action.feed, action.portion.rejected)
    return as_bag(row for batch in map(_batches, results) for row in batch)


def _batches(result: Any) -> list[Row]:
    """The rows of a result, which is a batch, or several, or has them."""
    result = getattr(result, "batches", result)
    batches = [result] if isinstance(result, pa.RecordBatch) else result
    return [row for batch in batches for row in _rows(batch)]


def _rows(batch: pa.RecordBatch) -> list[Row]:
    columns = pa.Table.from_batches([batch]).columns
    return list(zip(*map(plain_values, columns), strict=True))


# ── states ───────────────────────────────────────────────────────────────────────────────────


def plain(state: State) -> Any:
    """A state as what can be compared: where a batch ends means nothing."""
    rows: dict[tuple[int, str], list[Row]] = {}
    for feed, role, batch in state.kept:
        rows.setdefault((feed, role), []).extend(_rows(batch))
    return rows, list(state.windows), dict(state.marks)


def written_and_read(state: State) -> State:
    """What a commit would keep: bytes of Arrow, and plain values."""
    lots = [(feed, role, _bytes(rows)) for feed, role, rows in state.kept]
    words = json.dumps([list(state.windows), dict(state.marks)])
    windows, marks = json.loads(words)
    batches = [Kept(feed, role, pa.ipc.open_stream(lot).read_next_batch())
               for feed, role, lot in lots]  # fmt: skip
    return State(batches, windows, marks)


def _bytes(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def taken(engine: Any) -> State:
    """The engine's state, which copies no rows and is the same when it is taken again."""
    before = pa.total_allocated_bytes()
    state: State = engine.state()
    assert pa.total_allocated_bytes() == before
    assert plain(engine.state()) == plain(state)
    return state


def check_in_memory(
    make: Callable[[], Any], tables: Sequence[pa.Table], data: st.DataObject
) -> Counter[Row]:
    """Stop an engine anywhere, go on with another; all that comes out."""
    joining, other = make(), make()
    actions = data.draw(scripts(joining, tables))
    cut = data.draw(st.integers(0, len(actions)))
    whole, engine, restored = joining.in_memory(), joining.in_memory(), other.in_memory()
    before = played(joining, whole, actions[:cut])
    assert played(joining, engine, actions[:cut]) == before
    state = taken(engine)
    restored.restore(written_and_read(state))
    assert plain(restored.state()) == plain(state)
    assert restored.is_untouched == engine.is_untouched
    after = played(joining, whole, actions[cut:])
    assert played(other, restored, actions[cut:]) == after
    assert played(joining, engine, actions[cut:]) == after, "taking a state has changed it"
    return before + after


# ── in memory ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("best", [True, False])
@given(st.data(), st.booleans())
@settings(max_examples=campaign(200, 5000))
def test_two_sided(best: bool, data: st.DataObject, is_live: bool) -> None:
    case = data.draw(cases(best=best, unconstrained_order=not is_live))
    options = options_of("epsilon_join", {"threads": 1})
    make = partial(two_sided, case, options, is_live=is_live)
    found = check_in_memory(make, [case.left, case.right], data)
    if case.arguments["how"] != "inner" or not best:  # the best of all are found behind the engine
        assert found == case.expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(st.data(), st.booleans())
@settings(max_examples=campaign(40, 3000))
def test_window_joins(algorithm: str, data: st.DataObject, is_live: bool) -> None:
    fits = {True: lambda a: True, False: lambda a: bool(a.keys)}[not algorithm.endswith("hash")]
    asked = data.draw(questions().filter(lambda a: len(a.streams) < 4 and fits(a)))
    options = options_of("window_join", {"threads": 1})
    make = partial(windowed, asked, algorithm, options, is_live=is_live)
    assert check_in_memory(make, list(asked.streams.values()), data) == asked.expected


@pytest.mark.parametrize("algorithm", ["backward-nested-loop", "backward-hash"])
def test_rows_out_of_order_with_dropped_ones_among_them(algorithm: str) -> None:
    """Rows lie as they came, and a dropped one may lie behind one that is still needed."""
    times = {"a": [20, 0, 12, 21, 22], "b": [30]}
    tables = {name: pa.table({"k": [1] * len(t), "t": t}) for name, t in times.items()}
    asked, options = simple(tables, 10, by="k"), options_of("window_join", {"threads": 1})
    joining = windowed(asked, algorithm, options, is_live=True)
    a, b = (whole(side, tables[side.name]) for side in joining.sides)
    engine, restored = joining.in_memory(), joining.in_memory()
    played(joining, engine, [Action(0, a), Action(-1, None, [20, 11])])  # drops that of 0
    restored.restore(taken(engine))
    assert plain(restored.state()) == plain(engine.state())
    rest = [Action(1, b), Action(-1, None, [DONE, DONE])]
    assert played(joining, restored, rest) == asked.expected


# ── on pages ─────────────────────────────────────────────────────────────────────────────────


def check_on_pages(
    make: Callable[[], Any], tables: Sequence[pa.Table], data: st.DataObject
) -> Counter[Row]:
    """The same with a store, which is committed with the state and opened again."""
    joining, other = make(), make()
    actions = data.draw(scripts(joining, tables))
    cut = data.draw(st.integers(0, len(actions)))
    store = {key: SMALL[key] for key in ("page_size", "memory")}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with Store(**store) as scratch:
            whole = on_pages(joining, scratch)
            before = played(joining, whole, actions[:cut])
            after = played(joining, whole, actions[cut:])
        with Store(path, **store) as kept:
            engine = on_pages(joining, kept)
            assert played(joining, engine, actions[:cut]) == before
            state = taken(engine)
            kept.commit()
            played(joining, engine, actions[cut:])  # after the commit: it is gone
        with Store(path, **store) as kept:
            restored = on_pages(other, kept)
            restored.restore(written_and_read(state))
            assert plain(restored.state()) == plain(state)
            assert played(other, restored, actions[cut:]) == after
            kept.check()
    return before + after


def on_pages(joining: Any, store: Store) -> Any:
    """An engine without rows of its own."""
    moved = joining.on_pages(joining.in_memory(), store, ["unsorted"] * len(joining.sides), "")
    assert list(moved.results) == []
    return moved.engine


@pytest.mark.parametrize("best", [True, False])
@given(st.data(), st.sampled_from(FORMS))
@settings(max_examples=campaign(30, 2000))
def test_two_sided_on_pages(best: bool, data: st.DataObject, form: str) -> None:
    case = data.draw(cases(best=best, unconstrained_order=False))
    options = options_of("epsilon_join", {**SMALL, "materialize": form})
    make = partial(two_sided, case, options, is_live=True)
    found = check_on_pages(make, [case.left, case.right], data)
    if case.arguments["how"] != "inner" or not best:
        assert found == case.expected


@given(questions().filter(lambda a: len(a.streams) < 4), st.data(), st.booleans(),
       st.sampled_from(FORMS))  # fmt: skip
@settings(max_examples=campaign(40, 2000))
def test_window_joins_on_pages(asked: Asked, data: st.DataObject, is_live: bool, form: str) -> None:
    options = options_of("window_join", {**SMALL, "materialize": form})
    make = partial(windowed, asked, "merge", options, is_live=is_live)
    assert check_on_pages(make, list(asked.streams.values()), data) == asked.expected


@given(questions().filter(lambda a: len(a.streams) < 4), st.data(), st.sampled_from(FORMS))
@settings(max_examples=campaign(40, 2000))
def test_rows_that_wait_on_pages(asked: Asked, data: st.DataObject, form: str) -> None:
    """Every portion is put down as a run, and no step is due by itself."""
    options = options_of("window_join", {**SMALL, "materialize": form})
    make = partial(windowed, asked, "merge", options, is_live=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged, "STEP_SHARE", 10**9)
        patch.setattr(paged, "WAIT_SHARE", -1)
        assert check_on_pages(make, list(asked.streams.values()), data) == asked.expected


@given(st.data(), st.sampled_from(["left", "right", "full", "inner"]))
@settings(max_examples=campaign(15, 500))
def test_fixed_windows(data: st.DataObject, how: str) -> None:
    rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=8)
    left, right = (_table(data.draw(rows)) for _ in range(2))
    options = options_of("fixed_window_join", {**SMALL, "memory": 64 * 4096})
    check_on_pages(partial(fixed, left, right, how, options), [left, right], data)


def _table(rows: list[tuple[int, int]]) -> pa.Table:
    times, spots = zip(*rows, strict=True)
    return pa.table({"t": pa.array(times, pa.int64()), "x": pa.array(spots, pa.int64())})
