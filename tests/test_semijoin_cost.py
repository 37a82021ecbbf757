"""The semijoin paper's cost model: its formulas by hand, its limits, and the operator beside it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.operators.semijoin_cost import (
    Processing,
    Statistics,
    match_probability,
    smj_cost,
    smj_steady_transmission,
    smj_transmission,
    spj_cost,
    spj_transmission,
    steady_requests,
)
from matwin.operators.semijoin_link import Link
from matwin.operators.semijoin_nodes import SemiJoin
from matwin.operators.semijoin_window import Last, Row
from matwin.storage.errors import InputError

PAPER = Statistics(
    rate_1=500, rate_2=500, full_bytes=100, partial_bytes=10, latency=0.005,
    bytes_per_second=1000, distinct=10_000, window_1=500, window_2=500,
)  # fmt: skip
settings_of = st.builds(
    Statistics, st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e4),
    st.floats(0, 1), st.floats(1, 1e9), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e5),
)  # fmt: skip


# ── formulas ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("distinct", "window", "expected"),
    [(2, 1, 0.5), (2, 2, 0.75), (1, 5, 1.0), (1, 0, 0.0), (0, 3, 1.0), (7, 0, 0.0), (4, 1e9, 1.0)],
)
def test_the_chance_of_a_match(distinct: float, window: float, expected: float) -> None:
    assert match_probability(distinct, window) == pytest.approx(expected)


def test_the_chance_of_a_match_by_drawing() -> None:
    chance = np.random.default_rng(1)
    has = (chance.integers(0, 40, (20_000, 25)) == 7).any(axis=1).mean()
    assert match_probability(40, 25) == pytest.approx(has, abs=0.01)


def test_formulas_by_hand() -> None:
    assert spj_transmission(PAPER) == pytest.approx(500 * (0.005 + 0.1))
    p = 1 - 0.9999**500
    by_hand = 500 * (0.015 + p * (0.015 + 0.105)) + 500 * (1 - p) * p * (0.015 + 0.005 + 0.005)
    assert smj_transmission(PAPER) == pytest.approx(by_hand)


def test_the_paper_s_limits() -> None:
    """p ≈ 0: λ1 (d_P - d_F) / λ12; p ≈ 1: 2 λ1 (l + d_P / λ12)."""
    rare, sure = replace(PAPER, distinct=1e12), replace(PAPER, distinct=1)
    for smj in (smj_transmission, smj_steady_transmission):
        assert smj(rare) - spj_transmission(rare) == pytest.approx(500 * (10 - 100) / 1000)
        assert smj(sure) - spj_transmission(sure) == pytest.approx(2 * 500 * 0.015)


@given(settings_of)
def test_costs_are_never_negative(s: Statistics) -> None:
    steps = Processing(1e-6, 2e-6, 1e-6, 1e-6)
    for cost, transmission in ((spj_cost, spj_transmission), (smj_cost, smj_transmission)):
        assert cost(s, steps) >= transmission(s) >= 0
    for resend in (True, False):
        requests, shipped = steady_requests(s, resend=resend)
        assert 0 <= requests <= 1
        assert shipped >= 0
    few, many = (smj_steady_transmission(s, resend=resend) for resend in (False, True))
    assert few <= many * (1 + 1e-9)


def test_processing_counts_steps() -> None:
    """A second's tuples at nodes that never match: probes and updates alone."""
    rare = replace(PAPER, distinct=1e15)
    steps = Processing(probe_first=1e-3, probe_all=1e-2, update=1e-1, replace=1.0)
    assert spj_cost(rare, steps) - spj_transmission(rare) == pytest.approx(1000 * 0.11)
    expected = 500 * (0.1 + 0.001 + 0.1) + 500 * (0.001 + 0.1)
    assert smj_cost(rare, steps) - smj_transmission(rare) == pytest.approx(expected)
    sure = replace(PAPER, distinct=1)
    expected = 500 * (0.1 + 0.001 + 0.001 + 0.01 + 0.1) + 500 * (0.001 + 0.01 + 0.1)
    assert smj_cost(sure, steps) - smj_transmission(sure) == pytest.approx(expected)


# ── beside the operator ──────────────────────────────────────────────────────────────────────


def counted(s: Statistics, rows: int, resend: bool) -> tuple[float, float, float]:
    """Of a run: requests for one for each s1; requests for all, and tuples in their replies, for
    each s2.  Stream 2 has as many tuples as the rates say."""
    chance = np.random.default_rng(3)
    share = s.rate_1 / (s.rate_1 + s.rate_2)
    is_first = (np.diff(np.floor(np.arange(rows + 1) * share)) > 0).tolist()
    keys = chance.integers(0, int(s.distinct), rows).tolist()
    link = Link()
    join = SemiJoin(Last(int(s.window_1), int(s.window_2)), link, resend=resend)
    warm, before = rows // 4, (0, 0, 0)
    for number, (first, key) in enumerate(zip(is_first, keys, strict=True)):
        if number == warm:
            before = _asked(link)
        node = join.node_1 if first else join.node_2
        node.insert((Row(number, number, key, number, 1, 1),))
        link.settle()
    one, every, replied = (now - then for now, then in zip(_asked(link), before, strict=True))
    firsts = sum(is_first[warm:])
    seconds = rows - warm - firsts
    return one / firsts, every / seconds, (replied - one) / seconds


def _asked(link: Link) -> tuple[int, int, int]:
    kinds = ("ask one", "ask all")
    one, every = (link.count(kind=kind).messages for kind in kinds)
    return one, every, link.count(kind="reply").tuples


@pytest.mark.parametrize("resend", [True, False])
@pytest.mark.parametrize(
    ("distinct", "window_1", "window_2", "rate_2"),
    [(100, 30, 30, 500), (100, 100, 100, 500), (50, 100, 20, 500), (60, 40, 60, 125)],
)
def test_the_operator_does_what_the_steady_mean_says(
    distinct: int, window_1: int, window_2: int, rate_2: float, resend: bool
) -> None:
    s = replace(PAPER, distinct=distinct, window_1=window_1, window_2=window_2, rate_2=rate_2)
    one, requests, shipped = counted(s, 40_000, resend)
    expected = steady_requests(s, resend=resend)
    assert one == pytest.approx(s.p_2, rel=0.05)
    assert (requests, shipped) == (
        pytest.approx(expected[0], rel=0.08),
        pytest.approx(expected[1], rel=0.08),
    )


# ── bad values ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", [field.name for field in fields(Statistics)])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_bad_statistics(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        replace(PAPER, **{field: value})


def test_a_link_that_carries_nothing() -> None:
    with pytest.raises(InputError, match="bytes_per_second=0"):
        replace(PAPER, bytes_per_second=0)
