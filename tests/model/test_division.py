"""Layouts, plans and slots, without Spark: no eligible pair is separated, none is found twice.

What is eligible is asked of the embedded join, whose floats round as they round everywhere.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bad_input import id_pairs
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="matwin.spark can't be imported without pyspark")

from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructType

import matwin
from matwin.scheduler.division import (
    LARGEST_PART,
    TASK_ROWS,
    Asked,
    Plan,
    Sample,
    expected,
    plan_of,
)
from matwin.scheduler.layout import ANCHOR, INT64, Group, Halo, Layout
from matwin.spark.slots import Slots

# ── no pair is lost, none is doubled ─────────────────────────────────────────────────────────

INT_MIN, INT_MAX = INT64
EDGES = [INT_MIN, INT_MIN + 1, -1, 0, 1, INT_MAX - 1, INT_MAX]
ODD = [
    0.0, -0.0, 5e-324, -5e-324, 0.1, 0.2, 0.3, 0.1 + 0.2, 0.7, 1.0, -1.0, 1e16, 1e16 + 2, 2.0**53,
    1e300, -1e300, 1.7e308, -1.7e308, 1.7976931348623157e308,
]  # fmt: skip
ints = st.one_of(
    st.integers(-20, 20),
    st.sampled_from(EDGES),
    st.integers(INT_MAX - 40, INT_MAX),
    st.integers(INT_MIN, INT_MIN + 40),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
floats = st.one_of(st.sampled_from(ODD), st.integers(-30, 30).map(lambda n: n / 10), finite)


@st.composite
def halos(draw: Any, numbers: Any) -> tuple[Any, Any]:
    """``(lo, hi)`` around zero, on one side of it only, or one point."""
    lo, hi = sorted([draw(numbers), draw(numbers)])
    return draw(st.sampled_from([(lo, hi), (-abs(hi), abs(hi)), (0, abs(hi)), (hi, hi)]))


@st.composite
def groups(draw: Any, numbers: Any) -> Group:
    bounds = tuple(sorted(draw(st.sets(numbers, max_size=5))))
    salts = draw(st.lists(st.integers(1, 3), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    return Group(0, bounds, tuple(salts))


@st.composite
def layouts(draw: Any, numbers: Any) -> Layout:
    if draw(st.booleans()):
        group = draw(groups(numbers))
        return Layout.of_strips(group.bounds, group.salts)
    hot = draw(st.dictionaries(st.integers(-3, 3), groups(numbers), max_size=3))
    return Layout.of_keys(draw(st.integers(1, 4)), list(hot.items()))


@st.composite
def near(draw: Any, numbers: Any, anchors: Sequence[Any], halo: tuple[Any, Any]) -> Any:
    """A value that is likely to be within reach of an anchor, or just out of it."""
    moved = draw(st.sampled_from(anchors)) + draw(st.sampled_from(halo))
    if isinstance(moved, float):
        steps = [moved, math.nextafter(moved, math.inf), math.nextafter(moved, -math.inf)]
        return draw(
            st.one_of(numbers, st.sampled_from([s for s in steps if math.isfinite(s)] or [0.0]))
        )
    clipped = max(INT_MIN, min(moved + draw(st.integers(-1, 1)), INT_MAX))
    return draw(st.one_of(numbers, st.just(clipped)))


@st.composite
def cases(draw: Any, numbers: Any, dtype: Any) -> Any:
    """A layout, a halo, and rows of both sides: their values, and what their keys hash to."""
    layout, halo = draw(layouts(numbers)), draw(halos(numbers))
    anchors = draw(st.lists(numbers, min_size=1, max_size=8))
    others = draw(st.lists(near(numbers, anchors, halo), min_size=1, max_size=8))
    sides = []
    for values in (anchors, others):
        hashes = draw(st.lists(st.integers(-4, 4), min_size=len(values), max_size=len(values)))
        sides.append((np.array(values, dtype), np.array(hashes, np.int64)))
    return layout, halo, *sides, draw(st.integers(0, 2**40))


def check_pairs(case: Any) -> None:
    layout, (lo, hi), (anchors, hashes), (others, other_hashes), salt = case
    salts = np.arange(len(anchors)) + salt
    part, last = layout.parts_of(anchors, hashes, salts, ANCHOR)
    assert np.array_equal(part, last), "an anchor row is in one part"
    halo = Halo(lo, hi)
    first, last = layout.parts_of(others, other_hashes, np.zeros(len(others), int), halo)
    for parts in (part, first, last):
        assert ((parts >= 0) & (parts < layout.parts)).all()
    for a, b in id_pairs(
        matwin.epsilon_join, anchors.tolist(), others.tolist(), on={"t": (lo, hi)}
    ):
        if not layout.uses_keys or hashes[a] == other_hashes[b]:
            assert first[b] <= part[a] <= last[b], f"{anchors[a]!r} and {others[b]!r} are separated"


@given(cases(ints, np.int64))
def test_whole_numbers_meet_in_one_part(case: Any) -> None:
    check_pairs(case)


@given(cases(floats, np.float64))
@example((
    Layout.of_strips([0.3, 0.6, 0.9]), (-0.1, 0.1), (np.array([0.3, 0.6, 0.9]), np.zeros(3, int)),
    (np.array([0.2, 0.4, 0.5, 0.7, 0.8, 1.0]), np.zeros(6, int)), 0,
))  # fmt: skip
@example((  # the sum of bound and limit is beyond all floats
    Layout.of_strips([-1.7e308, -1.6e308, 0.0]), (-1e308, -1e308),
    (np.array([-1.7e308, -1.0, 1e308, 0.5e308]), np.zeros(4, int)),
    (np.array([-1e308, 0.0, -0.5e308, -1.7e308]), np.zeros(4, int)), 0,
))  # fmt: skip
def test_floats_meet_in_one_part(case: Any) -> None:
    check_pairs(case)


# ── open halos: the nearest row beyond a bound is there ──────────────────────────────────────

OPEN = [(-math.inf, 0), (0, math.inf), (-math.inf, math.inf), (-math.inf, 5), (-5, math.inf)]


@st.composite
def open_cases(draw: Any, numbers: Any, dtype: Any) -> Any:
    """Strips of one key, rows of both sides, and which of the others were seen."""
    group = draw(groups(numbers))
    anchors = np.array(draw(st.lists(numbers, min_size=1, max_size=8)), dtype)
    others = np.array(draw(st.lists(numbers, min_size=1, max_size=12)), dtype)
    seen = draw(st.lists(st.booleans(), min_size=len(others), max_size=len(others)))
    return group, draw(st.sampled_from(OPEN)), anchors, others, np.array(seen)


@pytest.mark.parametrize("compared", [(operator.le, operator.ge), (operator.lt, operator.gt)])
@given(case=st.one_of(open_cases(ints, np.int64), open_cases(floats, np.float64)))
def test_the_nearest_row_is_in_the_part(compared: Any, case: Any) -> None:
    group, (lo, hi), anchors, others, seen = case
    layout = Layout(shared=group.having_seen(others[seen]))
    part, _ = layout.parts_of(anchors, np.zeros(len(anchors), int), np.arange(len(anchors)), ANCHOR)
    none = np.zeros(len(others), int)
    first, last = layout.parts_of(others, none, none, Halo(lo, hi))
    assert ((first >= 0) & (last < layout.parts) & (first <= last)).all()
    for mine, here in zip(anchors.tolist(), part.tolist(), strict=True):
        before, after = ([t for t in others.tolist() if near(t, mine)] for near in compared)
        nearest = [max(before)] if before and lo == -math.inf else []
        nearest += [min(after)] if after and hi == math.inf else []
        for at in np.flatnonzero(np.isin(others, nearest)):
            assert first[at] <= here <= last[at], f"{mine} has lost {others[at]}"


def test_of_an_open_halo_little_goes_along() -> None:
    """Rows between the last one seen and the bound, and no others."""
    others = np.arange(1000)
    layout = Layout(shared=Group(0, (300, 600), (1, 1, 1)).having_seen(others[::10]))
    none = np.zeros(len(others), int)
    first, last = layout.parts_of(others, none, none, Halo(-math.inf, 0))
    assert np.flatnonzero(first != last).tolist() == [*range(290, 300), *range(590, 600)]
    first, last = layout.parts_of(others, none, none, Halo(0, math.inf))
    assert np.flatnonzero(first != last).tolist() == [300, 600]


@pytest.mark.parametrize("has_keys", [False, True])
def test_open_halos_are_planned_by_one_key(has_keys: bool) -> None:
    """Buckets of keys, and strips for one key alone: of all rows where there are no keys."""
    rng = np.random.default_rng(4)
    hashes = np.where(rng.random(4000) < 0.6, 7, rng.integers(100, 2000, 4000))
    weights = np.full(4000, 1000.0)
    samples = {
        side: Sample(rng.integers(0, 10**6, 4000), hashes, weights) for side in ("left", "right")
    }
    halos = {"left": ANCHOR, "right": Halo(-math.inf, 0)}
    asked = Asked((halos,), True, has_keys, True, 4, largest=500_000)
    plan = plan_of(samples, asked)
    assert plan.layout.has_seen
    assert plan.layout.uses_keys == has_keys
    if has_keys:
        assert [key for key, _ in plan.layout.hot] == [7]
    assert plan.total.max() < 1.3 * 500_000
    assert plan.replication < 1.01


@given(cases(ints, np.int64))
def test_rows_in_parts_are_counted(case: Any) -> None:
    layout, (lo, hi), (anchors, hashes), (others, other_hashes), _ = case
    weights = np.arange(1, len(others) + 1).astype(float)
    halo = Halo(lo, hi)
    first, last = layout.parts_of(others, other_hashes, np.zeros(len(others), int), halo)
    counted = [weights[(first <= p) & (p <= last)].sum() for p in range(layout.parts)]
    assert np.allclose(layout.loads(others, other_hashes, weights, halo), counted)
    ones = np.ones(len(anchors))
    loads = layout.loads(anchors, hashes, ones, ANCHOR)
    assert math.isclose(loads.sum(), len(anchors)), "each anchor row is counted once"
    evenly = np.zeros(layout.parts)
    for salt in range(6):  # a multiple of each number of salts
        part, _ = layout.parts_of(anchors, hashes, np.full(len(anchors), salt), ANCHOR)
        np.add.at(evenly, part, 1 / 6)
    assert np.allclose(loads, evenly)


@given(layouts(ints))
def test_parts_have_names_of_their_own(layout: Layout) -> None:
    names = {layout.name(part) for part in range(layout.parts)}
    assert len(names) == layout.parts


# ── plans ────────────────────────────────────────────────────────────────────────────────────

SLOTS = 8


def side(values: Any, hashes: Any = 0, weight: float = 1.0) -> Sample:
    """A sample whose rows stand for so many."""
    values = np.asarray(values)
    return Sample(values, np.full(len(values), 0) + hashes, np.full(len(values), weight))


def asked(halo: Halo, **changed: Any) -> Asked:
    usual: dict[str, Any] = {
        "may_strip": True, "has_keys": False, "may_salt": True, "slots": SLOTS,
    }  # fmt: skip
    return Asked(({"left": ANCHOR, "right": halo},), **{**usual, **changed})


def heaviest(plan: Plan) -> float:
    """The share of all rows that the largest part has."""
    return float(plan.total.max() / sum(plan.rows.values()))


def uniform(rows: int = 10_000, span: int = 10**9, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, span, rows)


@given(
    left=st.lists(st.integers(-50, 50), max_size=40),
    right=st.lists(st.integers(-50, 50), max_size=40),
    halo=halos(st.integers(-9, 9)),
    keys=st.integers(1, 4),
    weight=st.sampled_from([1.0, 1e5]),
    has_keys=st.booleans(),
    may_strip=st.booleans(),
    may_salt=st.booleans(),
    strips=st.sampled_from([None, 1, 3, 7]),
)
def test_every_plan_covers(
    left: list[int], right: list[int], halo: Any, keys: int, weight: float, **allowed: Any
) -> None:
    values = [np.array(column, np.int64) for column in (left, right)]
    hashes = [column % keys for column in values]
    samples = {
        name: side(v, h, weight)
        for name, v, h in zip(("left", "right"), values, hashes, strict=True)
    }
    plan = plan_of(samples, asked(Halo(*halo), **allowed))
    if not allowed["may_strip"]:
        groups = [g for g in (plan.layout.shared, *(g for _, g in plan.layout.hot)) if g]
        assert all(not group.bounds for group in groups)
    if not allowed["has_keys"]:
        assert not plan.layout.uses_keys
    parts = plan.layout.parts
    part, _ = plan.layout.parts_of(values[0], hashes[0], np.arange(len(left)), ANCHOR)
    first, last = plan.layout.parts_of(values[1], hashes[1], np.zeros(len(right), int), Halo(*halo))
    assert part.size == 0 or (part.min() >= 0 and part.max() < parts)
    gaps = values[1][None, :] - values[0][:, None]
    near = (halo[0] <= gaps) & (gaps <= halo[1])
    if allowed["has_keys"]:
        near &= hashes[0][:, None] == hashes[1][None, :]
    meet = (first[None, :] <= part[:, None]) & (part[:, None] <= last[None, :])
    assert (meet | ~near).all()


def test_few_rows_are_one_task() -> None:
    samples = {"left": side(uniform(500)), "right": side(uniform(500, seed=1))}
    plan = plan_of(samples, asked(Halo(-5, 5), has_keys=True))
    assert plan.parts == 1
    assert plan.cost < 2 * TASK_ROWS
    assert "one task" in plan.reason


def test_no_rows_at_all() -> None:
    nothing = side(np.zeros(0, np.int64))
    for allowed in ({}, {"has_keys": True}, {"strips": 5}, {"strips": 5, "has_keys": True}):
        plan = plan_of({"left": nothing, "right": nothing}, asked(Halo(-5, 5), **allowed))
        assert plan.parts >= 1
        assert plan.replication == 1.0


def test_many_rows_use_all_slots() -> None:
    samples = {n: side(uniform(seed=i), weight=1000) for i, n in enumerate(("left", "right"))}
    plan = plan_of(samples, asked(Halo(-5, 5)))
    assert plan.parts >= SLOTS
    assert heaviest(plan) < 1.5 / plan.parts
    assert plan.replication == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_tasks_come_in_whole_waves(slots: int) -> None:
    samples = {n: side(uniform(seed=i), weight=500) for i, n in enumerate(("left", "right"))}
    plan = plan_of(samples, asked(Halo(-5, 5), slots=slots))
    assert plan.parts % slots == 0
    assert plan.total.max() < 1.2 * LARGEST_PART


def test_parts_are_cut_so_that_tasks_can_sort_them() -> None:
    samples = {n: side(uniform(seed=i), weight=500) for i, n in enumerate(("left", "right"))}
    plan = plan_of(samples, asked(Halo(-5, 5), slots=2, unsorted_rows=1.5e6))
    assert not plan.is_sorted
    assert plan.parts == 12
    assert plan_of(samples, asked(Halo(-5, 5), slots=2, unsorted_rows=1e4)).is_sorted
    assert plan_of(samples, asked(Halo(-5, 5), slots=2)).is_sorted


@pytest.mark.parametrize("may_strip", [True, False])
def test_a_key_with_most_of_the_rows_is_divided(may_strip: bool) -> None:
    rng = np.random.default_rng(1)
    samples = {}
    for seed, name in enumerate(("left", "right")):
        hashes = np.where(rng.random(10_000) < 0.9, 77, rng.integers(100, 1000, 10_000))
        samples[name] = side(uniform(seed=seed), hashes, 1000.0 if name == "left" else 10.0)
    plan = plan_of(samples, asked(Halo(-5, 5), has_keys=True, may_strip=may_strip))
    assert heaviest(plan) < 0.25
    if not may_strip:
        (hot,) = [group for key, group in plan.layout.hot if key == 77]
        assert hot.parts >= 4
        assert hot.has_salts


def test_an_instant_with_most_of_the_rows_is_divided_by_salts() -> None:
    values = uniform()
    values[:9_000] = 500
    samples = {"left": side(values, weight=1000), "right": side(uniform(seed=1), weight=10)}
    plan = plan_of(samples, asked(Halo(-5, 5)))
    assert plan.layout.shared is not None
    assert plan.layout.shared.has_salts
    assert heaviest(plan) < 0.25
    plain = plan_of(samples, asked(Halo(-5, 5), may_salt=False))
    assert plain.layout.shared is not None
    assert not plain.layout.shared.has_salts


@pytest.mark.parametrize("lo, hi", [(-3, 3), (0, 10), (4, 9), (-20, 0)])
def test_replication_is_what_the_docs_say(lo: int, hi: int) -> None:
    width, strips = 50, 400
    bounds = [width * n for n in range(1, strips)]
    samples = {"left": side([0]), "right": side(uniform(200_000, width * strips))}
    halo = {"left": ANCHOR, "right": Halo(lo, hi)}
    plan = expected(Layout.of_strips(bounds), halo, samples, SLOTS, "")
    assert plan.replication == pytest.approx(1 + (hi - lo) / width, rel=0.02)


def test_a_number_of_strips_is_kept_to() -> None:
    samples = {n: side(uniform(seed=i)) for i, n in enumerate(("left", "right"))}
    assert plan_of(samples, asked(Halo(-5, 5), strips=13)).parts == 13


def test_the_cheaper_side_is_the_anchor() -> None:
    samples = {"left": side(uniform(), weight=1e4), "right": side(uniform(seed=1), weight=10)}
    wide = 10**8
    either = (
        {"left": ANCHOR, "right": Halo(-wide, wide)},
        {"left": Halo(-wide, wide), "right": ANCHOR},
    )
    plan = plan_of(samples, Asked(either, True, False, True, SLOTS))
    assert plan.halos["left"].is_anchor, "the larger side is not copied"


# ── slots ────────────────────────────────────────────────────────────────────────────────────

KINDS: list[DataType] = [LongType(), DoubleType(), StringType(), ArrayType(LongType())]


@st.composite
def schemas(draw: Any) -> tuple[dict[str, StructType], dict[str, list[str]]]:
    found, first = {}, {}
    for name in ("left", "right", "third")[: draw(st.integers(2, 3))]:
        schema = StructType().add("t", KINDS[draw(st.integers(0, 1))])
        for number, kind in enumerate(draw(st.lists(st.sampled_from(KINDS), max_size=6))):
            schema = schema.add(f"c{number}", kind)
        places = draw(st.permutations(range(len(schema))))
        found[name] = StructType([schema[i] for i in places])
        first[name] = draw(st.sampled_from([["t"], []]))
    return found, first


@given(schemas())
def test_columns_never_share_a_slot_within_a_side(given_: Any) -> None:
    found, first = given_
    slots = Slots.of(found, first)
    for name, schema in found.items():
        places = slots.places[name]
        assert list(places) == schema.names
        assert len(set(places.values())) == len(places)
        for field in schema:
            assert slots.types[places[field.name]] == field.dataType
            assert slots.column_of(name, places[field.name]) == field.name
        unused = set(range(len(slots.types))) - set(places.values())
        assert all(slots.column_of(name, slot) is None for slot in unused)
    if all(first.values()) and len({s["t"].dataType for s in found.values()}) == 1:
        assert {places["t"] for places in slots.places.values()} == {0}, "order attributes meet"
    for kind in KINDS:
        most = max(sum(f.dataType == kind for f in s) for s in found.values())
        assert slots.types.count(kind) == most, "no more slots than the widest side needs"
