"""A budget works and gives the right rows, or the budget that its error announces does.

Random joins over small pages, so that some hundred rows reach every place that divides a budget:
all hows, keys, one and two dimensions, rows from a few bytes to several pages, tables, readers and
streams.  The reference is the same join with room to spare (which `test_joins.py` holds against a
nested loop).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proofs import tried
from questions import as_bag
from support import campaign

import matwin
from matwin import inner
from matwin.need import widest
from matwin.report import Report
from matwin.storage import BudgetError, Store

LIST = pa.list_(pa.uint8())

PAGE = 4096
SMALLEST = 32 * PAGE
PLENTY = 1 << 28
BEST = ("left", "right", "full", "inner")
ALL = ("inner", "left", "right", "full", "semi", "anti")
WIDTHS = ("none", "none", "same", "some", "wide", "few")
budgets = st.integers(32, 512).map(lambda pages: pages * PAGE) | st.just(SMALLEST)


def texts(random: np.random.Generator, rows: int, width: str) -> list[str]:
    """Texts of one width, of many widths, or a few that take several pages each, or very many."""
    if width == "same":
        return ["z" * 60] * rows
    if width == "few":
        few = random.random(rows) < 0.01
        return ["q" * int(n) for n in np.where(few, random.integers(1, 60 * PAGE, rows), 5)]
    lengths = random.pareto(1.0, rows) * 40
    if width == "wide":
        lengths = np.where(random.random(rows) < 0.03, random.integers(1, 5 * PAGE, rows), lengths)
    return ["q" * int(length) for length in np.minimum(lengths, 6 * PAGE)]


def table(random: np.random.Generator, rows: int, span: int, width: str, order: str) -> pa.Table:
    t = random.integers(0, span, rows)
    columns: dict[str, Any] = {"t": np.sort(t) if order == "sorted" else t}
    columns["x"] = np.round(random.random(rows), 2)
    columns["k"] = random.integers(0, 3, rows)
    if width != "none":
        columns["s"] = pa.array(texts(random, rows, width))
    return pa.table(columns)


def as_source(rows: pa.Table, kind: str, order: str, span: int, batch: int = 200) -> Any:
    if kind == "reader":
        return rows.to_reader(100)
    if kind == "table":
        return rows
    promise = matwin.Sorted() if order == "sorted" else matwin.Lateness(span)
    if kind == "live":
        return matwin.stream(iter(rows.to_batches(batch)), schema=rows.schema, order=promise)
    return matwin.stream(rows, order=promise)


def within(budget: int, found: pa.RecordBatchReader, report: Report) -> Any:
    """The rows of a join; whether it ends or is refused, no more was counted than the budget."""
    try:
        return as_bag(found.read_all())
    finally:
        assert report.peak_bytes <= budget


def works_or_says_what_does(run: Callable[[int], Any], budget: int) -> None:
    """The same rows as with room to spare, in this budget or in the one that the error names."""
    expected = run(PLENTY)
    try:
        found = run(budget)
    except BudgetError as e:
        assert e.smallest_bytes > budget
        assert str(e.smallest_bytes) in str(e)
        found = run(e.smallest_bytes)
    assert found == expected
    tried()


def two_sided(random: np.random.Generator, *, best: bool, how: str) -> Callable[[int], Any]:
    """A join of two sides, as a function of its budget."""
    width, order = str(random.choice(WIDTHS)), str(random.choice(("sorted", "unsorted")))
    most = 800 if width in ("none", "same") else 300
    rows = random.integers(30, most, 2)
    span = int(random.choice((60, rows[0], 10 * rows[0])))
    left, right = (table(random, int(n), span, width, order) for n in rows)
    tolerance = int(random.choice((0, 2, span // 12 + 1)))
    on: dict[str, Any] = {"t": tolerance}
    if random.random() < 0.5:
        on["x"] = float(random.choice((0.01, 0.2)))
    options: dict[str, Any] = {"by": random.choice((None, "k")), "threads": 2}
    if random.random() < 0.6:
        options["materialize"] = str(random.choice(("standard", "slab", "grid")))
    if random.random() < 0.6:
        options["schedule"] = str(random.choice(("gallop", "crabstep", "lookahead")))
    if best and how != "inner" and random.random() < 0.3:
        options["keep_unmatched"] = True
    # What a live stream's widest row will be nobody knows before it comes.
    kinds = ("table", "reader", "stream", "live" if width in ("none", "same") else "stream")
    kind = str(random.choice(kinds))
    join = matwin.bestmatch_join if best else matwin.epsilon_join
    if best and how in ("left", "right") and random.random() < 0.4:
        options["ties"] = str(random.choice(("first", "last")))
    if kind != "live" and how != "inner" and random.random() < 0.4:
        options["ordered"] = True
    if random.random() < 0.7:  # else pages are larger in larger budgets
        options["page_size"] = PAGE

    def run(budget: int) -> Any:
        report = Report()
        sources = [as_source(rows, kind, order, span) for rows in (left, right)]
        found = join(*sources, on=on, how=how, memory=budget, report=report, **options)
        return within(budget, found, report)

    return run


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(15, 1000), deadline=None)
@given(
    seed=st.integers(0, 2**32), budget=budgets, asked=st.sampled_from([(True, h) for h in BEST]
    + [(False, h) for h in ALL] + [(True, "full")] * 4)
)  # fmt: skip
def test_joins_of_two_sides(seed: int, budget: int, asked: tuple[bool, str]) -> None:
    best, how = asked
    works_or_says_what_does(two_sided(np.random.default_rng(seed), best=best, how=how), budget)


@pytest.mark.proof("the same rows at every budget")
@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("schedule", ["auto", "crabstep"])
def test_a_full_join_works_at_every_budget_from_the_smallest_on(order: str, schedule: str) -> None:
    """Left rows that are judged go into a window of the other direction while the walk that judges
    them has the pool: budgets in the middle had no room for both."""
    random = np.random.default_rng(5)
    left, right = (table(random, 1500, 300, "none", order) for _ in range(2))
    pages = np.unique(np.geomspace(32, 600, campaign(5, 30)).astype(int)).tolist()
    bags = []
    for budget in [*pages, PLENTY // PAGE]:
        found = matwin.bestmatch_join(
            *(as_source(rows, "stream", order, 300) for rows in (left, right)),
            on={"t": 30, "x": 0.2}, how="full", memory=budget * PAGE, page_size=PAGE,
            schedule=schedule,
        )  # fmt: skip
        bags.append(as_bag(found.read_all()))
        tried()
    assert all(bag == bags[-1] for bag in bags)


def fixed_windows(random: np.random.Generator) -> Callable[[int], Any]:
    """A join of fixed time windows, as a function of its budget."""
    width, order = str(random.choice(WIDTHS)), str(random.choice(("sorted", "unsorted")))
    rows = random.integers(30, 300, 2)
    left, right = (table(random, int(n), 200, width, order) for n in rows)
    kind = str(random.choice(("table", "reader", "stream")))
    options: dict[str, Any] = {"how": str(random.choice(BEST)), "by": random.choice((None, "k"))}
    if random.random() < 0.5:
        options["materialize"] = str(random.choice(("standard", "slab", "grid")))
        options["schedule"] = str(random.choice(("gallop", "crabstep")))

    def run(budget: int) -> Any:
        report = Report()
        sources = [as_source(rows, kind, order, 200) for rows in (left, right)]
        found = matwin.fixed_window_join(
            *sources, time="t", period=70, every=60, on={"x": 0.1}, memory=budget, page_size=PAGE,
            report=report, **options,
        )  # fmt: skip
        return within(budget, found, report)

    return run


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(4, 300), deadline=None)
@given(seed=st.integers(0, 2**32), budget=budgets)
def test_fixed_windows(seed: int, budget: int) -> None:
    works_or_says_what_does(fixed_windows(np.random.default_rng(seed)), budget)


def test_a_fixed_window_join_takes_its_budget_once_and_does_what_is_asked() -> None:
    """Windows, rows that wait and the join of an evaluation together stay within the budget."""
    random = np.random.default_rng(3)
    left, right = (table(random, 3000, 3000, "same", "sorted") for _ in range(2))
    report = Report()
    asked = {"time": "t", "period": 2000, "every": 2500, "on": {"x": 0.001}, "page_size": PAGE}
    found = matwin.fixed_window_join(
        left, right, memory=2 * SMALLEST, materialize="grid", schedule="crabstep", report=report,
        **asked,
    ).read_all()  # fmt: skip
    assert as_bag(found) == as_bag(matwin.fixed_window_join(left, right, **asked).read_all())
    assert 0 < report.peak_bytes <= report.budget_bytes == 2 * SMALLEST
    assert report.pages_written > 0 and report.pages_read > 0
    assert any("grid" in decision for decision in report.decisions)
    assert any("crabstep" in decision for decision in report.decisions)


def test_a_fixed_window_join_says_what_two_halves_need() -> None:
    rows = pa.table({"t": [1, 2], "x": [0.5, 0.7]})

    def run(budget: int) -> Any:
        return matwin.fixed_window_join(
            rows, rows, time="t", period=1, on={"x": 1.0}, memory=budget, page_size=PAGE
        ).read_all()

    with pytest.raises(BudgetError, match="half of it each") as told:
        run(SMALLEST)
    assert run(told.value.smallest_bytes).num_rows == 3


def window_join(random: np.random.Generator) -> Callable[[int], Any]:
    """A window join of two or three streams, as a function of its budget."""
    width, order = str(random.choice(WIDTHS)), str(random.choice(("sorted", "unsorted")))
    most = 900 if width in ("none", "same") else 250
    names = "abc"[: int(random.integers(2, 4))]
    span = int(random.choice((most, 10 * most)))
    tables = {n: table(random, int(random.integers(20, most)), span, width, order) for n in names}
    kinds = ("table", "reader", "stream", "live" if width in ("none", "same") else "stream")
    kind = str(random.choice(kinds))
    options: dict[str, Any] = {"by": random.choice((None, "k"))}
    if random.random() < 0.5:
        options["materialize"] = str(random.choice(("standard", "slab", "grid")))
    if kind != "live" and random.random() < 0.3:
        options["algorithm"] = "merge"

    def run(budget: int) -> Any:
        report = Report()
        sources = {n: as_source(rows, kind, order, span) for n, rows in tables.items()}
        found = matwin.window_join(
            sources, time="t", windows=span // 300 + 1, memory=budget, page_size=PAGE,
            report=report, **options,
        )  # fmt: skip
        return within(budget, found, report)

    return run


def rounded(one: Any, other: Any) -> bool | None:
    """Pairs by how far apart they are, in tenths."""
    a, b = (round(10 * abs(left - right)) for left, right in (one, other))
    return a <= b


def champions(random: np.random.Generator, form: str) -> Callable[[int], Any]:
    """The best pairs of all, of sources that can be read once, as a function of the budget."""
    width, order = str(random.choice(WIDTHS)), str(random.choice(("sorted", "unsorted")))
    left, right = (table(random, int(n), 300, width, order) for n in random.integers(20, 150, 2))
    kind = str(random.choice(("reader", "live" if width in ("none", "same") else "stream")))
    options: dict[str, Any] = {"emit": "updates" if "updates" in form else "final"}
    if "box" in form:
        options["orders"] = {"x": matwin.partial_order(rounded)}
    on = {"t": int(random.choice((5, 40))), "x": float(random.choice((0.1, 0.5)))}

    def run(budget: int) -> Any:
        report = Report()
        sources = [as_source(rows, kind, order, 300, batch=10) for rows in (left, right)]
        found = matwin.bestmatch_join(
            *sources, on=on, how="inner", memory=budget, page_size=PAGE, report=report, **options
        )
        return (
            settled(within(budget, found, report))
            if "updates" in form
            else within(budget, found, report)
        )

    return run


def settled(bag: Counter[Any]) -> Counter[Any]:
    """What was added and not withdrawn."""
    rows: Counter[Any] = Counter()
    for row, count in bag.items():
        rows[row[:-1]] += count if row[-1] == "added" else -count
    assert all(count >= 0 for count in rows.values())
    return +rows


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(6, 500), deadline=None)
@given(
    seed=st.integers(0, 2**32), budget=budgets, share=st.sampled_from([32, 1000, 10**9]),
    form=st.sampled_from(["updates", "box", "box updates", "final"])
)  # fmt: skip
def test_best_pairs_of_all(seed: int, budget: int, share: int, form: str) -> None:
    """Pairs that are kept go to a file, and are compared by places or with one another, instead of
    refusing a budget by a guess."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inner, "PAIR_SHARE", share)
        works_or_says_what_does(champions(np.random.default_rng(seed), form), budget)


@pytest.mark.parametrize("kind", ["string", "string_view", "dictionary", "runs", "struct", "list"])
def test_the_widest_row_is_found_however_its_values_are_kept(kind: str) -> None:
    """Neither less than it takes, nor what the other rows take as well."""
    texts = ["x" * 100] * 99 + ["y" * 5000, None] + ["z" * 50] * 99
    plain = pa.array(texts, pa.large_string())
    column = {
        "string": lambda: pa.array(texts),
        "string_view": lambda: pa.array(texts, pa.string_view()),
        "dictionary": lambda: pa.array(texts).dictionary_encode(),
        "runs": lambda: pc.run_end_encode(plain),
        "struct": lambda: pa.StructArray.from_arrays([plain], ["s"]),
        "list": lambda: pa.array([None if t is None else list(t.encode()) for t in texts], LIST),
    }[kind]()
    row = widest(pa.record_batch({"t": np.arange(len(texts)), "s": column}))
    assert 5000 <= row <= 5500


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(8, 500), deadline=None)
@given(seed=st.integers(0, 2**32), budget=budgets)
def test_window_joins(seed: int, budget: int) -> None:
    works_or_says_what_does(window_join(np.random.default_rng(seed)), budget)


def same_time(join: str, rows: pa.Table, **options: Any) -> pa.RecordBatchReader:
    """A join of rows with themselves, in which those of the same time meet."""
    if join == "best":
        return matwin.bestmatch_join(rows, rows, on={"t": 0}, **options)
    if join in ("inner", "full"):
        return matwin.epsilon_join(rows, rows, on={"t": 0}, how=join, **options)
    sources, windows = {"a": rows, "b": rows}, {("a", "b"): (0, 0)}
    return matwin.window_join(sources, time="t", windows=windows, algorithm=join, **options)


@pytest.mark.parametrize("join", ["inner", "best", "auto"])
def test_sorted_rows_that_are_too_wide_for_pages_go_slab_by_slab(join: str) -> None:
    """A few fit the memory, and no more are within reach: no reason to refuse, and least of all
    after rows have been given.  (Half the budget after a step was the end of it.)"""
    rows = pa.table({"t": np.arange(60), "s": ["w" * (SMALLEST // 10)] * 60})
    report = Report()
    found = same_time(join, rows, memory=SMALLEST, page_size=PAGE, report=report).read_all()
    assert found.num_rows == 60
    assert 0 < report.peak_bytes <= SMALLEST
    assert report.pages_written == 0


def test_a_live_stream_that_is_ahead_waits_where_its_rows_fit_neither_memory_nor_pages() -> None:
    """The other one speaks late, not before the first is far ahead, if anybody lets it."""
    is_ahead = threading.Event()
    wide = pa.table({"t": np.arange(40), "s": ["w" * (SMALLEST // 10)] * 40})

    def first() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(wide.to_batches(1)):
            if number == 20:
                is_ahead.set()
            yield batch

    def second() -> Iterator[pa.RecordBatch]:
        is_ahead.wait(0.5)
        yield from wide.to_batches(1)

    sources = {
        n: matwin.stream(make(), schema=wide.schema) for n, make in (("a", first), ("b", second))
    }
    found = matwin.window_join(
        sources, time="t", windows={("a", "b"): (0, 0)}, memory=SMALLEST, page_size=PAGE
    ).read_all()
    assert found.num_rows == 40


@pytest.mark.parametrize("form", ["auto", "slab"])
@pytest.mark.parametrize("join", ["inner", "full", "best", "auto", "backward-nested-loop"])
def test_a_wide_row_with_many_partners_comes_out_in_small_batches(join: str, form: str) -> None:
    """All rows meet each other and one is 400 times as wide as the others: what a batch takes is
    not what rows take on average."""
    budget, wide = 1 << 21, 40_000
    rows = pa.table(
        {"t": np.zeros(300, np.int64), "s": ["w" * (wide if i == 7 else 100) for i in range(300)]}
    )
    if (join, form) == ("backward-nested-loop", "slab"):
        pytest.skip("refused: the algorithm has no pages")
    options = {"memory": budget, "page_size": PAGE, "materialize": form}
    sizes = [batch.nbytes for batch in same_time(join, rows, **options)]
    assert sum(sizes) > 300 * 2 * wide
    assert max(sizes) <= budget // 8


def store_steps(random: np.random.Generator) -> Callable[[int], Any]:
    """Windows of a store that take rows, expire and are scanned, as a function of its budget."""
    forms = random.choice(("standard", "slab", "grid"), int(random.integers(1, 4))).tolist()
    # One width: a store knows the rows that it is given, not those to come.
    rows = table(random, int(random.integers(50, 900)), 500, "none", "unsorted")
    wide = ["w" * int(random.choice((1, 100, 3 * PAGE)))] * rows.num_rows
    rows = rows.append_column("w", pa.array(wide)).slice(0, 60 if len(wide[0]) > PAGE else None)

    def run(budget: int) -> Any:
        with Store(memory=budget, page_size=PAGE) as store:
            windows = [
                store.window(f"w{i}", rows.schema, on={"t": 5, "x": 0.1}, materialize=form)
                for i, form in enumerate(forms)
            ]
            for batch in rows.to_batches(max_chunksize=200):
                for window in windows:
                    window.append(batch)
                    window.expire(50)
                    window.settle()
            return [as_bag(pa.Table.from_batches(w.scan(), schema=rows.schema)) for w in windows]

    return run


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(8, 500), deadline=None)
@given(seed=st.integers(0, 2**32), budget=budgets)
def test_stores(seed: int, budget: int) -> None:
    works_or_says_what_does(store_steps(np.random.default_rng(seed)), budget)


# ── how much is announced ────────────────────────────────────────────────────────────────────


def shapes(shape: str) -> pa.Table:
    """Forty rows of 9 kB: one text, or three hundred numbers."""
    t = np.random.default_rng(1).permutation(40)
    if shape == "wide":
        return pa.table({"t": t, "s": ["x" * 9000] * 40})
    return pa.table({"t": t, **{f"c{number}": t % 9 for number in range(300)}})


ASKED: dict[str, Callable[..., matwin.Result]] = {
    "inner": lambda x, **o: matwin.epsilon_join(x, x, on={"t": 1}, **o),
    "semi": lambda x, **o: matwin.epsilon_join(x, x, on={"t": 1}, how="semi", **o),
    "best": lambda x, **o: matwin.bestmatch_join(x, x, on={"t": 1}, **o),
    "ties": lambda x, **o: matwin.bestmatch_join(x, x, on={"t": 1}, ties="last", **o),
    "full": lambda x, **o: matwin.bestmatch_join(x, x, on={"t": 1}, how="full", **o),
    "overall": lambda x, **o: matwin.bestmatch_join(x, x, on={"t": 1}, how="inner", **o),
    "ordered": lambda x, **o: matwin.bestmatch_join(x, x, on={"t": 1}, ordered=True, **o),
    "ordered pairs": lambda x, **o: matwin.epsilon_join(x, x, on={"t": 1}, ordered=True, **o),
    "fixed": lambda x, **o: matwin.fixed_window_join(x, x, time="t", period=2, on={"t": 1}, **o),
    "window": lambda x, **o: matwin.window_join({"a": x, "b": x}, time="t", windows=1, **o),
    "merge": lambda x, **o: windows_of(2, x, algorithm="merge", **o),
    "three streams": lambda x, **o: windows_of(3, x, **o),
    "four streams": lambda x, **o: windows_of(4, x, materialize="grid", **o),
}


def windows_of(streams: int, x: pa.Table, **options: Any) -> matwin.Result:
    return matwin.window_join(dict.fromkeys("abcd"[:streams], x), time="t", windows=1, **options)


@pytest.mark.parametrize("shape", ["wide", "columns"])
@pytest.mark.parametrize("name", ASKED)
def test_what_is_announced_works_at_once_and_little_less_does_not(name: str, shape: str) -> None:
    rows = shapes(shape)
    with pytest.raises(BudgetError) as told:
        ASKED[name](rows, memory=SMALLEST).read_all()
    smallest = told.value.smallest_bytes
    assert str(smallest) in str(told.value)
    report = Report()
    found = ASKED[name](rows, memory=smallest, report=report).read_all()
    assert as_bag(found) == as_bag(ASKED[name](rows).read_all())
    assert 0 < report.peak_bytes <= smallest
    assert smallest < 1 << 20 or shape != "wide"
    for part in (1.25, 1.5):
        with pytest.raises(BudgetError):
            ASKED[name](rows, memory=int(smallest / part)).read_all()


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("by", [None, "k"])
def test_a_window_join_of_one_hot_key_works_in_what_is_announced(
    streams: int, by: str | None
) -> None:
    """A step over pages needs no windows beside those of the streams, also where every row meets
    every other one."""
    rows = pa.table({"t": [0] * 8, "k": [1] * 8, "s": ["x" * 9000] * 8}).slice(0, 12 // streams)
    rows = pa.concat_tables(
        [rows, rows.set_column(0, "t", pa.array(np.arange(100, 140)[: len(rows)]))]
    )
    sources = dict.fromkeys("abcd"[:streams], rows)
    asked: dict[str, Any] = {"time": "t", "windows": 1, "by": by, "materialize": "slab"}
    with pytest.raises(BudgetError) as told:
        matwin.window_join(sources, memory=SMALLEST, page_size=PAGE, **asked).read_all()
    smallest = told.value.smallest_bytes
    found = matwin.window_join(sources, memory=smallest, page_size=PAGE, **asked).read_all()
    assert as_bag(found) == as_bag(matwin.window_join(sources, **asked).read_all())


def test_rows_that_have_met_in_memory_take_nothing_of_what_sorting_may() -> None:
    """Sorted rows are joined slab by slab until a stretch that meets too much comes: the windows of
    old rows, which are sorted, are runs."""
    n = 400
    t = np.concatenate([np.arange(n), np.full(60, n), n + np.arange(100)])
    rows = pa.table({"t": t, "s": ["x" * 1000] * len(t)})
    report, options = Report(), {"time": "t", "windows": 1}
    found = matwin.window_join(
        {"a": rows, "b": rows}, memory=SMALLEST, page_size=PAGE, report=report, **options
    ).read_all()
    assert any("one walk at the end" in decision for decision in report.decisions)
    assert report.steps > 1
    assert as_bag(found) == as_bag(matwin.window_join({"a": rows, "b": rows}, **options).read_all())


SHAPES = st.tuples(
    st.sampled_from([1, 2, 40, 150, 400]), st.sampled_from([0, 100, 3000, 20_000]),
    st.sampled_from([5, 40, 200]), st.sampled_from([1, 3]),
)  # fmt: skip


@pytest.mark.proof("announced budgets work")
@settings(max_examples=campaign(8, 400), deadline=None)
@given(shape=SHAPES, ordered=st.booleans(), asked=st.sampled_from(
    [("best", h) for h in BEST] + [("all", h) for h in ALL] + [("window", "")])
)  # fmt: skip
def test_what_is_announced_works_at_once_whatever_the_rows_are_like(
    shape: tuple[int, int, int, int], ordered: bool, asked: tuple[str, str]
) -> None:
    """Few or very many columns, narrow or wide, with ties or without."""
    columns, width, count, ties = shape
    t = np.random.default_rng(columns + width).permutation(count) // ties
    extra = {f"c{number}": t % 9 for number in range(columns)}
    x = pa.table({"t": t, "s": ["x" * width] * count, **extra})
    join, how = asked
    options: dict[str, Any] = {"on": {"t": 1}, "how": how}
    if how not in ("", "inner", "full") and ordered:
        options["ordered"] = True

    def run(budget: int) -> Any:
        report = Report()
        if join == "window":
            found = windows_of(2, x, memory=budget, report=report)
        else:
            of = matwin.bestmatch_join if join == "best" else matwin.epsilon_join
            found = of(x, x, memory=budget, report=report, **options)
        return within(budget, found, report)

    works_or_says_what_does(run, SMALLEST)


@pytest.mark.parametrize("how", ["left", "full"])
def test_ties_of_an_ordered_join_are_announced_with_the_half_that_orders(how: str) -> None:
    """Each half of the budget has to be enough: a join that asked for its own half asked for what
    it had been given."""
    left = pa.table({"t": np.zeros(2, np.int64), "x": [0, 0]})
    right = pa.table({"t": np.zeros(6000, np.int64), "x": np.zeros(6000, np.int64)})
    on, budget = {"t": 1, "x": 1}, 1 << 19

    def run(memory: int) -> Any:
        report = Report()
        found = matwin.bestmatch_join(
            left, right, on=on, how=how, ordered=True, memory=memory, page_size=PAGE,
            report=report,
        )  # fmt: skip
        return within(memory, found, report)

    with pytest.raises(BudgetError, match="half of it each") as told:
        run(budget)
    assert told.value.smallest_bytes > budget
    assert sum(run(told.value.smallest_bytes).values()) >= 12_000


def test_halves_that_are_too_small_are_refused_before_they_are_taken_twice() -> None:
    rows = pa.table({"t": np.arange(10)})
    with pytest.raises(BudgetError, match="half of it each") as told:
        matwin.epsilon_join(rows, rows, on={"t": 1}, ordered=True, memory=SMALLEST).read_all()
    smallest = told.value.smallest_bytes
    assert 2 * SMALLEST <= smallest <= 2.5 * SMALLEST
    found = matwin.epsilon_join(rows, rows, on={"t": 1}, ordered=True, memory=smallest)
    assert found.to_arrow()["t_left"].to_pylist() == sorted([*range(10)] * 3)[1:-1]
