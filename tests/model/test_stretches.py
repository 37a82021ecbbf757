"""What the rows of a tuple leave for one more stream: by intervals and by places, the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matwin.operators.wjoin.block import Block
from matwin.operators.wjoin.kernels import expand
from matwin.operators.wjoin.pipeline import Probe, Span, _spans
from matwin.operators.wjoin.reaches import InMemory, MergeReach, merged

FIRST, LAST = -(2**63), 2**63 - 1
TIMES = st.one_of(
    st.integers(0, 30), st.sampled_from([FIRST, FIRST + 1, LAST - 1, LAST]), st.integers(0, 500)
)
ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 2, LAST]), TIMES), min_size=1, max_size=60)
BOUNDS = st.tuples(st.integers(-8, 8), st.integers(-8, 40)).map(sorted)


def block_of(rows: list[tuple[int, int]]) -> Block:
    keys, times = (np.array(values, np.int64) for values in zip(*sorted(rows), strict=True))
    return Block(pa.record_batch({"t": times}), times, keys, None)


def numbered(portions: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[int, int]]:
    return [pair for a, b in portions for pair in zip(a.tolist(), b.tolist(), strict=True)]


@given(ROWS, ROWS, st.integers(0, 8), st.booleans())
def test_a_stretch_is_what_has_the_key_and_a_time_within(
    own: list[tuple[int, int]], others: list[tuple[int, int]], width: int, is_sorted: bool
) -> None:
    block = block_of(others)
    own = sorted(own) if is_sorted else own
    keys, times = (np.array(values, np.int64) for values in zip(*own, strict=True))
    lows = np.where(times < FIRST + width, FIRST, times - width)
    highs = np.where(times > LAST - width, LAST, times + width)
    highs[times == 7] = FIRST  # an empty one
    begins, ends = np.empty_like(lows), np.empty_like(lows)
    expand.stretches(block.keys, block.times, keys, lows, highs, begins, ends)
    for i, key in enumerate(keys):
        is_in = (block.keys == key) & (block.times >= lows[i]) & (block.times <= highs[i])
        assert list(range(begins[i], ends[i])) == np.flatnonzero(is_in).tolist()


@given(ROWS, ROWS, ROWS, BOUNDS, BOUNDS, st.integers(1, 20), st.randoms())
def test_places_find_what_intervals_find(
    a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]],
    from_a: list[int], from_b: list[int], capacity: int, chance,
) -> None:  # fmt: skip
    """Tuples of rows with one key, in any order, each perhaps more than once."""
    blocks = {0: block_of(a), 1: block_of(b)}
    pairs = [(i, j) for i, one in enumerate(blocks[0].keys)
             for j, other in enumerate(blocks[1].keys) if one == other]  # fmt: skip
    if chance.random() < 0.5:
        chance.shuffle(pairs)
    pairs = pairs[: chance.randint(0, len(pairs))] * 2
    tuples = {n: np.array([pair[n] for pair in pairs], np.int64) for n in (0, 1)}
    spans = [Span(0, *from_a), Span(1, *from_b)]
    other = block_of(c)
    reach = MergeReach([InMemory(other)])

    def found(probe: Probe) -> list[tuple[int, int]]:
        portions = [found for _, found in reach.candidates(probe, capacity)]
        return numbered(portions)

    def probe() -> Probe:
        return Probe(tuples, dict(blocks), 0, spans, is_float=False)

    wanted = [
        (at, row)
        for at, (i, j) in enumerate(pairs)
        for row, (key, time) in enumerate(numbered([(other.keys, other.times)]))
        if key == blocks[0].keys[i]
        and from_a[0] <= time - int(blocks[0].times[i]) <= from_a[1]
        and from_b[0] <= time - int(blocks[1].times[j]) <= from_b[1]
    ]
    assert found(probe()) == wanted
    by_interval = [
        found
        for ref, first, limit in reach.reached(probe())
        for found in merged(ref.block, probe(), first, limit, capacity)
    ]
    assert numbered(by_interval) == wanted


@pytest.mark.parametrize("count", [1, 40])
def test_places_are_for_rows_that_are_in_many_tuples(count: int) -> None:
    """Two rows that lie far apart, in one tuple each, are looked for by themselves."""
    block = block_of([(0, time) for time in range(40)])
    tuples = {0: np.array([0, 39] * count), 1: np.array([0, 39] * count)}
    spans = [Span(0, -3, 3), Span(1, -3, 3)]
    probe = Probe(tuples, {0: block, 1: block}, 0, spans, is_float=False)
    assert (probe.places_in(block) is not None) == (2 * count >= 40)


def test_in_a_chain_only_the_row_before_counts() -> None:
    chain = [[abs(i - j) * 5 for j in range(4)] for i in range(4)]
    clique = [[0 if i == j else 5 for j in range(4)] for i in range(4)]
    assert [span.stream for span in _spans(chain, [0, 1, 2], 3, is_float=False)] == [2]
    assert [span.stream for span in _spans(chain, [1, 0, 2], 3, is_float=False)] == [2]
    assert [span.stream for span in _spans(clique, [0, 1, 2], 3, is_float=False)] == [0, 1, 2]
    assert [span.stream for span in _spans(chain, [0, 1, 2], 3, is_float=True)] == [0, 1, 2]


def test_of_rows_at_the_same_time_one_counts() -> None:
    """Each follows from the other, and one of them has to be asked."""
    same = [[0, 0, 5], [0, 0, 5], [5, 5, 0]]
    assert len(_spans(same, [0, 1], 2, is_float=False)) == 1
