"""Chains of a hash window: jumps tell the truth, and lead anywhere in a few steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matwin.operators.wjoin.kernels import expand


def linked(times: list[int], keys: list[int]) -> tuple[np.ndarray, np.ndarray]:
    nodes = np.zeros((len(times), expand.COLUMNS_LINKED), np.int64)
    nodes[:, expand.TIME], nodes[:, expand.KEY] = times, keys
    table = np.full(64, -1, np.int64)
    expand.link(table, nodes, 0, 0, len(times), 32)
    return table, nodes


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=60))
def test_a_jump_knows_the_least_time_that_it_passes(rows: list[tuple[int, int]]) -> None:
    _, nodes = linked([time for time, _ in rows], [key for _, key in rows])
    for at, (_, key) in enumerate(rows):
        jump = int(nodes[at, expand.JUMP])
        passed = [time for time, own in rows[max(jump, -1) + 1 : at + 1] if own == key]
        assert nodes[at, expand.LEAST] == min(passed)
        assert jump < at and (jump < 0 or rows[jump][1] == key)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(0, 20), st.integers(0, 20), st.integers(0, 59), st.integers(1, 5),
)  # fmt: skip
def test_a_chain_finds_what_a_scan_finds(
    rows: list[tuple[int, int]], low: int, high: int, oldest: int, room: int
) -> None:
    table, nodes = linked([time for time, _ in rows], [key for _, key in rows])
    keys, lows, highs = (np.array([value], np.int64) for value in (1, low, high))
    found, tuple_, place = [], 0, -1
    while tuple_ < 1:
        out = np.empty(room, np.int64), np.empty(room, np.int64)
        filled, tuple_, place = expand.chain(
            table, nodes, 0, oldest, keys, lows, highs, tuple_, 1, place, *out
        )
        found += out[1][:filled].tolist()
    wanted = [i for i, (t, k) in enumerate(rows) if i >= oldest and k == 1 and low <= t <= high]
    assert sorted(found) == wanted


def test_any_place_of_a_hot_keys_chain_is_a_few_jumps_away() -> None:
    """One key, times ascending: without jumps the oldest row is as far as the chain is long."""
    rows = 1 << 14
    _, nodes = linked(list(range(rows)), [7] * rows)
    for high in range(0, rows, 97):
        place, steps = rows - 1, 0
        while nodes[place, expand.TIME] > high:
            is_past = nodes[place, expand.LEAST] > high
            place = int(nodes[place, expand.JUMP if is_past else expand.BEFORE])
            steps += 1
        assert place == high
        assert steps <= 3 * 14
