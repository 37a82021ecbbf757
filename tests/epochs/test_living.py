"""Each pair once: the join that lives, and the one that is joined anew, against a plain loop.

Chunks, windows and conditions are those of the definition: a tuple is given in the epoch of its
newest row, if every row's chunk is in its stream's window then.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import as_bag
from support import campaign

import matwin
from matwin import chunks, cut
from matwin.operators.epochs import front

VALUES = st.none() | st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.5, math.nan, math.inf])


@st.composite
def streams(draw: st.DrawFn, count: int) -> dict[str, pa.Table]:
    """Streams of few keys."""
    found = {}
    for name in "abc"[:count]:
        rows = draw(st.integers(0, 14))
        found[name] = pa.table({
            "k": pa.array(draw(st.lists(st.none() | st.integers(0, 2), min_size=rows,
                                        max_size=rows)), pa.int64()),
            "t": pa.array(sorted(draw(st.lists(st.integers(0, 9), min_size=rows,
                                               max_size=rows))), pa.int64()),
            "x": pa.array(draw(st.lists(VALUES, min_size=rows, max_size=rows)), pa.float64()),
            "i": pa.array(range(rows), pa.int64()),
        })  # fmt: skip
    return found


def expected(
    tables: dict[str, pa.Table], size: int, widths: dict[str, int], fits: Any
) -> dict[int, Counter[tuple[int, ...]]]:
    """By epoch, the numbers of the rows of each tuple."""
    found: dict[int, Counter[tuple[int, ...]]] = {}
    rows = {name: table.to_pylist() for name, table in tables.items()}
    for tuple_ in product(*rows.values()):
        numbers = {name: row["i"] // size for name, row in zip(rows, tuple_, strict=True)}
        newest = max(numbers.values())
        if all(newest - numbers[name] < widths[name] for name in rows) and fits(*tuple_):
            found.setdefault(newest + 1, Counter())[tuple(r["i"] for r in tuple_)] += 1
    return found


def same_key(*rows: dict[str, Any]) -> bool:
    return rows[0]["k"] is not None and len({row["k"] for row in rows}) == 1


def near(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Within half of each other in x, which must be a number."""
    values = (a["x"], b["x"])
    return all(v is not None and math.isfinite(v) for v in values) and abs(a["x"] - b["x"]) <= 0.5


def asked(tables: dict[str, pa.Table], join: Any, size: int, state: Any = None) -> Any:
    return matwin.continuous_query(
        join, tables, cut=cut.count(size), keep=4, pairs="new", state=state, memory="32MiB"
    )


def by_epoch(query: Any, columns: list[str]) -> dict[int, Counter[tuple[int, ...]]]:
    found = {}
    for epoch in query:
        bag = as_bag(epoch.result.to_arrow().select(columns))
        if bag:
            found[epoch.id] = bag
    return found


@pytest.mark.parametrize("lives", [True, False])
@given(tables=streams(2), size=st.integers(1, 5), widths=st.tuples(*[st.integers(1, 4)] * 2))
@settings(max_examples=campaign(50, 2000))
def test_two_streams(
    lives: bool, tables: dict[str, pa.Table], size: int, widths: tuple[int, int]
) -> None:
    a, b = (chunks(name, last=width) for name, width in zip("ab", widths, strict=True))
    join = partial(matwin.epsilon_join, a, b, on={"x": 0.5, "t": None}, by="k")
    wanted = expected(tables, size, dict(zip("ab", widths, strict=True)),
                      lambda *rows: same_key(*rows) and near(*rows))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if not lives:
            patch.setattr(front, "living", lambda *_: None)
        found = by_epoch(asked(tables, join, size), ["i_left", "i_right"])
    assert found == wanted


@given(tables=streams(3), size=st.integers(1, 5), widths=st.tuples(*[st.integers(1, 4)] * 3))
@settings(max_examples=campaign(30, 1000))
def test_three_streams(
    tables: dict[str, pa.Table], size: int, widths: tuple[int, int, int]
) -> None:
    given_widths = dict(zip("abc", widths, strict=True))
    join = partial(
        matwin.window_join, {n: chunks(n, last=w) for n, w in given_widths.items()}, time="t",
        windows={("a", "b"): 2, ("b", "c"): matwin.then(3)}, by="k",
    )  # fmt: skip

    def fits(a: Any, b: Any, c: Any) -> bool:
        return same_key(a, b, c) and abs(a["t"] - b["t"]) <= 2 and 0 <= c["t"] - b["t"] <= 3

    found = by_epoch(asked(tables, join, size), ["a_i", "b_i", "c_i"])
    assert found == expected(tables, size, given_widths, fits)


@given(tables=streams(1), size=st.integers(1, 5), widths=st.tuples(*[st.integers(1, 4)] * 2))
@settings(max_examples=campaign(30, 1000))
def test_a_stream_with_itself(
    tables: dict[str, pa.Table], size: int, widths: tuple[int, int]
) -> None:
    first, second = (chunks("a", last=width) for width in widths)
    join = partial(matwin.epsilon_join, first, second, on={"t": 2}, by="k")
    twice = {"one": tables["a"], "other": tables["a"]}
    wanted = expected(twice, size, dict(zip(twice, widths, strict=True)),
                      lambda p, q: same_key(p, q) and abs(p["t"] - q["t"]) <= 2)  # fmt: skip
    assert by_epoch(asked(tables, join, size), ["i_left", "i_right"]) == wanted


@given(tables=streams(2), size=st.integers(1, 4), stops=st.sets(st.integers(1, 12)))
@settings(max_examples=campaign(25, 500))
def test_a_restart_finds_no_pair_twice(
    tables: dict[str, pa.Table], size: int, stops: set[int]
) -> None:
    join = partial(matwin.epsilon_join, chunks("a", last=2), chunks("b"), on={"t": 4}, by="k")
    wanted = expected(tables, size, {"a": 2, "b": 4},
                      lambda p, q: same_key(p, q) and abs(p["t"] - q["t"]) <= 4)  # fmt: skip
    found: dict[int, Counter[tuple[int, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        done = False
        while not done:
            query = asked(tables, join, size, folder)
            for epoch in query:
                bag = as_bag(epoch.result.to_arrow().select(["i_left", "i_right"]))
                assert found.setdefault(epoch.id, bag) == bag
                if epoch.id in stops and not epoch.is_replayed:
                    stops = stops - {epoch.id}
                    break
            else:
                done = True
            query.close()
    assert {number: bag for number, bag in found.items() if bag} == wanted


def test_what_outgrows_the_memory_goes_to_pages() -> None:
    rows = 40_000
    tables = {
        name: pa.table({"k": [(i * step) % 5_000 for i in range(rows)], "t": range(rows)})
        for name, step in (("a", 7), ("b", 11))
    }
    join = partial(matwin.epsilon_join, chunks("a"), chunks("b"), on={"t": 15_000}, by="k")
    query = matwin.continuous_query(
        join, tables, cut=cut.count(5_000), keep=4, pairs="new", memory="3MiB"
    )
    found = sum(epoch.report.rows_out for epoch in query)
    number = {name: pa.array([i // 5_000 for i in range(rows)]) for name in tables}
    numbered = {name: t.append_column("c", number[name]) for name, t in tables.items()}
    whole = matwin.epsilon_join(
        numbered["a"], numbered["b"], on={"c": 3, "t": 15_000}, by="k"
    ).to_arrow()
    assert found == whole.num_rows > 0


@pytest.mark.parametrize(
    ("query", "more", "says"),
    [
        ("select * from a", {"pairs": "new"}, "pairs='new' is for a join of ours"),
        ("select * from a", {"pairs": "neww"}, "choose 'all' or 'new'"),
        (lambda windows: windows["a"], {"pairs": "new"}, "pairs='new' is for a join of ours"),
        (lambda windows: windows["a"], {"windows": {"b": chunks("a")}}, "gives names for SQL"),
    ],
)
def test_words_that_a_query_has_no_use_for(query: Any, more: dict[str, Any], says: str) -> None:
    with pytest.raises(matwin.InputError, match=says):
        matwin.continuous_query(query, {"a": pa.table({"t": [1]})}, cut=cut.count(1), **more)
