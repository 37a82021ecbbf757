"""Reach from fences against brute force over all cells that the pages may hold."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from independent import is_near
from support import campaign

from matwin.scheduler import Reach, reach_of
from matwin.storage import MemoryPageFile, Store
from matwin.storage.grid import FIRST_CELL, LAST_CELL, NO_CELL, Dimension, Grid, Key
from matwin.storage.layout import Fence, PageId
from matwin.storage.runs import PageRef
from matwin.storage.units import Counts

SIDE = 4  # coordinates from 0 to 3, and no others


def refs(run_lists: list[list[tuple[tuple[int, ...], tuple[int, ...]]]]) -> list[PageRef]:
    numbers = itertools.count()
    return [
        PageRef(PageId(0, next(numbers)), run, 1, 100, Fence(first, last, 0, 0))
        for run, pages in enumerate(run_lists)
        for first, last in pages
    ]


def cells_between(first: tuple[int, ...], last: tuple[int, ...], low: int, high: int) -> list[Any]:
    """All cells of a small lattice between two fences."""
    axis = range(low, high)
    return [cell for cell in itertools.product(*[axis] * len(first)) if first <= cell <= last]


def brute_force(grid: Grid, left: list[PageRef], right: list[PageRef]) -> set[tuple[int, int]]:
    """Every pair of cells, in a lattice wide enough that nothing outside of it matters."""
    low, high = -3, SIDE + 3
    near = [
        [axis.reach(np.array([c]), np.array([c])) for c in range(low, high)] for axis in grid.axes
    ]

    def within(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
        return all(
            near[k][x[k] - low][0][0] <= y[k] <= near[k][x[k] - low][1][0] for k in range(len(x))
        )

    def held(ref: PageRef) -> list[Any]:
        return cells_between(ref.fence.first, ref.fence.last, low, high)

    right_cells = [held(ref) for ref in right]
    return {
        (i, j)
        for i, a in enumerate(left)
        for j, cells in enumerate(right_cells)
        if any(within(x, y) for x in held(a) for y in cells)
    }


def pairs_of(reach: Reach) -> set[tuple[int, int]]:
    return {(i, j) for i, first, limit in reach.triples() for j in range(first, limit)}


@st.composite
def runs(draw: st.DrawFn, width: int) -> list[list[Any]]:
    """Runs of pages with fences in order; neighbours may share a cell."""
    found = []
    for _ in range(draw(st.integers(0, 2))):
        cell = st.tuples(*[st.integers(0, SIDE - 1)] * width)
        cells = sorted(draw(st.lists(cell, min_size=2, max_size=6)))
        found.append([(a, b) for a, b in itertools.pairwise(cells)])
    return found


@st.composite
def axes(draw: st.DrawFn, dimensions: int, keys: int) -> Grid:
    tolerances = st.sampled_from([1, (0, 1), (-1, 0), (1, 3), (-5, 2), (2, 2), None])
    fields = [
        Dimension.of(pa.field(f"d{k}", pa.int64()), draw(tolerances)) for k in range(dimensions)
    ]
    return Grid(tuple(Key(f"k{k}") for k in range(keys)), tuple(fields))


@pytest.mark.parametrize(("dimensions", "keys"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_exact_against_every_cell(dimensions: int, keys: int, data: st.DataObject) -> None:
    grid = data.draw(axes(dimensions, keys))
    left = refs(data.draw(runs(dimensions + keys)))
    right = refs(data.draw(runs(dimensions + keys)))
    assert pairs_of(reach_of(grid, left, right)) == brute_force(grid, left, right)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_long_runs_against_every_cell(dimensions: int) -> None:
    """Long enough that whole blocks of pages are skipped."""
    generator = np.random.default_rng(dimensions)
    grid = Grid((), tuple(Dimension.of(pa.field("d", pa.int64()), 1) for _ in range(dimensions)))
    sides = []
    for length in (30, 150):
        cells = generator.integers(0, SIDE, (length + 1, dimensions)).tolist()
        sides.append(refs([list(itertools.pairwise(sorted(map(tuple, cells))))]))
    reach = reach_of(grid, *sides)
    assert pairs_of(reach) == brute_force(grid, *sides)
    assert 0 < reach.pairs < 30 * 150


@pytest.mark.parametrize("dimensions", [4, 5, 6])
@pytest.mark.parametrize("keys", [0, 1])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_many_dimensions_against_a_search(dimensions: int, keys: int, data: st.DataObject) -> None:
    """Too many cells to list: the oracle searches coordinate by coordinate with backtracking."""
    grid = data.draw(axes(dimensions, keys))
    left = refs(data.draw(runs(dimensions + keys)))
    right = refs(data.draw(runs(dimensions + keys)))
    expected = {
        (i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if search(grid, a.fence, b.fence, (), ())
    }
    assert pairs_of(reach_of(grid, left, right)) == expected


def search(grid: Grid, a: Fence, b: Fence, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether coordinates can be added to x and y so that both stay between their fences."""
    k = len(x)
    if not (a.first[:k] <= x <= a.last[:k] and b.first[:k] <= y <= b.last[:k]):
        return False
    if k == len(grid.axes):
        return True
    for c in range(-2, SIDE + 2):
        down, up = grid.axes[k].reach(np.array([c]), np.array([c]))
        nearby = range(max(int(down[0]), -9), min(int(up[0]), SIDE + 9) + 1)
        if any(search(grid, a, b, (*x, c), (*y, other)) for other in nearby):
            return True
    return False


def test_a_page_between_others_is_left_out() -> None:
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
    grid = Grid.of(schema, {"t": 1, "x": 1})
    left = refs([[((5, 5), (5, 5))]])
    right = refs([[((t, x), (t, x)) for t in range(4, 7) for x in range(11)]])
    reach = reach_of(grid, left, right)
    assert reach.intervals(0) == [(4, 7), (15, 18), (26, 29)]


def test_missing_values_meet_nothing_and_far_ends_meet_everything_beyond() -> None:
    schema = pa.schema([("t", pa.int64()), ("room", pa.string())])
    grid = Grid.of(schema, {"t": 10}, by="room")
    nulls = ((NO_CELL, 3), (NO_CELL, 9))
    half = ((7, 3), (7, NO_CELL))
    assert pairs_of(reach_of(grid, refs([[nulls]]), refs([[nulls, nulls]]))) == set()
    assert pairs_of(reach_of(grid, refs([[half]]), refs([[half, nulls]]))) == {(0, 0)}
    only_null_times = ((7, NO_CELL), (7, NO_CELL))
    assert pairs_of(reach_of(grid, refs([[only_null_times]]), refs([[half]]))) == set()
    ends = refs([[((0, FIRST_CELL), (0, FIRST_CELL)), ((0, LAST_CELL), (0, LAST_CELL))]])
    assert pairs_of(reach_of(grid, ends, ends)) == {(0, 0), (1, 1)}


def test_no_pages() -> None:
    grid = Grid.of(pa.schema([("t", pa.int64())]), {"t": 1})
    assert reach_of(grid, [], []).pairs == 0
    some = refs([[((1,), (2,))]])
    assert reach_of(grid, some, []).pairs == 0
    assert reach_of(grid, [], some).pairs == 0
    assert reach_of(grid, some).is_self


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_pair_of_rows_is_outside_the_reach(form: str, seed: int) -> None:
    """Real windows, real rows: what the predicate accepts lies in pages that meet."""
    generator = np.random.default_rng(seed)
    schema = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.int64())])
    by = "k" if seed % 2 else None
    with Store(memory=256 * 4096, file=MemoryPageFile(page_size=4096)) as store:
        windows = []
        for name in ("left", "right"):
            window = store.window(
                name, schema, on={"t": (-20, 35), "x": 0.1}, by=by, materialize=form
            )
            for start in (0, 300):
                t = generator.integers(start, start + 400, 800)
                columns = [t, generator.random(800), generator.integers(0, 3, 800)]
                window.append(pa.record_batch(columns, schema=schema))
            windows.append(window)
        sides = [window.pages() for window in windows]
        met = pairs_of(reach_of(windows[0].grid, *sides))
        left, right = ([columns_of(store, ref) for ref in side] for side in sides)
    needed = pages_of_pairs(left, right, has_key=by is not None)
    assert needed <= met
    assert len(met) < len(sides[0]) * len(sides[1])


@pytest.mark.parametrize("form", ["standard", "grid", "slab"])
def test_pages_with_rows_at_the_ends_of_their_types_meet(form: str) -> None:
    """Every type, values at its ends, tolerances of every shape; a page has about three rows."""
    for seed in range(campaign(60, 5000)):
        chance = random.Random(f"{form} {seed}")
        kind = trials.kind_of(chance, 1)
        kind = replace(kind, types=kind.types * 2, per=kind.per * 2)
        values = trials.values_of(chance, [14, 14], kind)
        lo, hi = trials.limits_of(chance, kind, *values)
        farthest = math.inf if kind.is_float else 2**70
        limits = Counts(-farthest if lo is None else lo, farthest if hi is None else hi)
        columns = [trials.column_of(side, kind.types[0], kind.per[0]) for side in values]
        met, placed = pages_that_meet(columns, limits, form)
        for i, j in itertools.product(range(14), repeat=2):
            if is_near(values[0][i], values[1][j], lo, hi):
                assert (placed[0][i], placed[1][j]) in met, seed


def pages_that_meet(
    columns: list[pa.Array], limits: Counts, form: str
) -> tuple[set[tuple[int, int]], list[dict[int, int]]]:
    """Which pages meet, and the page of each row."""
    filling = pa.array(["." * 1200] * len(columns[0]))
    with Store(memory=128 * 4096, file=MemoryPageFile(page_size=4096)) as store:
        sides, placed, grid = [], [], None
        for name, column in zip(("left", "right"), columns, strict=True):
            ids = pa.array(range(len(column)))
            rows = pa.record_batch([column, ids, filling], names=["t", "id", "text"])
            window = store.window(name, rows.schema, on={"t": limits}, materialize=form)
            window.append(rows)
            pages, grid = window.pages(), window.grid
            sides.append(pages)
            placed.append({})
            for number, ref in enumerate(pages):
                with store.pool.pin(ref.page_id) as page:
                    placed[-1] |= dict.fromkeys(page.batch.column("id").to_pylist(), number)
        assert grid is not None
        return pairs_of(reach_of(grid, *sides)), placed


def columns_of(store: Store, ref: PageRef) -> dict[str, Any]:
    with store.pool.pin(ref.page_id) as page:
        return {name: page.values(name).copy() for name in ("t", "x", "k")}


def pages_of_pairs(
    left: list[dict[str, Any]], right: list[dict[str, Any]], *, has_key: bool
) -> set[tuple[int, int]]:
    """The pages of every pair of rows that the predicate accepts."""
    (a, a_page), (b, b_page) = joined(left), joined(right)
    dt = b["t"][None, :] - a["t"][:, None]
    good = (dt >= -20) & (dt <= 35) & (abs(b["x"][None, :] - a["x"][:, None]) <= 0.1)
    if has_key:
        good &= b["k"][None, :] == a["k"][:, None]
    i, j = np.nonzero(good)
    return set(zip(a_page[i].tolist(), b_page[j].tolist(), strict=True))


def joined(pages: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """All rows, and the page of each."""
    columns = {name: np.concatenate([page[name] for page in pages]) for name in pages[0]}
    return columns, np.repeat(np.arange(len(pages)), [len(page["t"]) for page in pages])
