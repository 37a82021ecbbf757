"""The papers' window joins, tuple by tuple, compiled: what their figures compare.

    backward   a new tuple meets what is kept of the other streams, and every one it meets is tested
               for the window.  Kept is what a new tuple may still need.
                 nested loops: NLW      hash: HW      (BEW in the later paper)
                 dropping only every 10,000 tuples: the adapted ripple join, the adapted XJoin
    forward    mode 1 finds a starting tuple of each stream and the period they span; mode 2 lets in
               new tuples up to the period's end and joins them with all that are in, untested.  It
               ends when the next tuple of every stream is beyond.
                 nested loops: MW      hash      (FEW in the later paper)

    period of mode 2     [max(start_i - width_i), min(start_i + width_i)]

A width for each stream makes the forward join also GCA (all have the largest window) and LCA (each
has the largest of its own windows); what comes out is then refined by the windows themselves.

Windows are limits of differences, t_j - t_i <= limit[i, j], so that directed windows and missing
ones (infinite) are the same code.  Two tables of limits mean that either may hold: a path both
ways.

Results are counted and not built, but hashed, so that algorithms can be compared by what they
found.  `tested` counts tuples looked at.  The heads and tails of the streams' buffers are positions
in the streams' own arrays; the hash tables are chains through them, oldest first, as in the paper.

Left out: the paper's lazy cleaning of buckets when they are probed.  The oldest tuple of a stream
is the first of its bucket, so that dropping it is one step here whatever its bucket.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from .paper_window_data import Floats, Ints, Streams

NOBODY = -1
PURGE_EVERY = 10_000
"""How many tuples the adapted ripple join and XJoin take between two purges."""
BUCKETS = 256
"""Of a stream's hash table: the papers don't say how many; a power of two."""
Words = npt.NDArray[np.uint64]


class Rule(NamedTuple):
    """What is asked, and how it is answered."""

    limits: npt.NDArray[np.float64]  # (alternatives, streams, streams)
    keep: Floats  # (streams, streams): limits closed by shortest paths; who is still needed
    width: Floats  # of each stream, forward
    visit: Ints  # (streams, streams - 1): whom a new tuple of a stream meets, in order
    purge_every: int  # 1 drops with every tuple
    is_hash: bool
    is_refined: bool


class State(NamedTuple):
    """Where a join is.  Positions are those in the streams' arrays."""

    head: Ints  # the oldest tuple kept of each stream
    admitted: Ints  # behind the newest that takes part
    tail: Ints  # behind the newest that has come
    first: Ints  # (streams, buckets): the oldest of a bucket
    last: Ints  # the newest of it
    after: Ints  # the next in the bucket, for every tuple
    chosen: Ints  # a tuple of each stream
    cursor: Ints  # where to go on in each loop
    low: Floats
    high: Floats
    counts: Ints  # results, tuples tested, tuples taken
    mark: Words  # what was found, hashed


def new_state(streams: Streams, is_hash: bool) -> State:
    """Before the first tuple."""
    count, buckets = streams.ways, BUCKETS if is_hash else 1
    return State(
        streams.offset[:-1].copy(), streams.offset[:-1].copy(), streams.offset[:-1].copy(),
        np.full((count, buckets), NOBODY), np.full((count, buckets), NOBODY),
        np.full(streams.rows if is_hash else 1, NOBODY),
        np.zeros(count, np.int64), np.zeros(count, np.int64),
        np.zeros(count), np.zeros(count), np.zeros(3, np.int64), np.zeros(1, np.uint64),
    )  # fmt: skip


# ── backward ─────────────────────────────────────────────────────────────────────────────────


@numba.njit(nogil=True, cache=True)
def backward(streams: Streams, arrivals: Ints, rule: Rule, state: State, done: Ints) -> None:
    """Take some tuples: each is joined when it comes."""
    for stream in arrivals:
        row = state.tail[stream]
        state.tail[stream] += 1
        state.counts[2] += 1
        if state.counts[2] % rule.purge_every == 0:
            _expire(streams, rule, state)
        _extend(streams, stream, row, rule, state, True)
        _admit(streams, stream, rule, state)
        done[row] = state.counts[2] - 1


@numba.njit(nogil=True, cache=True)
def _expire(streams: Streams, rule: Rule, state: State) -> None:
    """Drop what is too old for the next tuple of every other stream, whatever it is."""
    for stream in range(len(state.head)):
        bound = np.inf
        for other in range(len(state.head)):
            if other != stream:
                newest = state.tail[other] - 1
                is_empty = newest < streams.offset[other]
                time = -np.inf if is_empty else streams.times[newest]
                bound = min(bound, time - rule.keep[stream, other])
        while (
            state.head[stream] < state.admitted[stream]
            and streams.times[state.head[stream]] < bound
        ):
            _drop(streams, stream, rule, state)


# ── forward ──────────────────────────────────────────────────────────────────────────────────


@numba.njit(nogil=True, cache=True)
def forward(streams: Streams, arrivals: Ints, rule: Rule, state: State, done: Ints) -> None:
    """Take some tuples: each is joined when the period has come to it."""
    for stream in arrivals:
        state.tail[stream] += 1
        state.counts[2] += 1
        while _first_mode(streams, rule, state):
            if not _second_mode(streams, rule, state, done):
                break


@numba.njit(nogil=True, cache=True)
def _first_mode(streams: Streams, rule: Rule, state: State) -> bool:
    """Move the starting tuples on until all are within reach of each other; False if one has not
    come yet."""
    count = len(state.head)
    is_moving = True
    while is_moving:
        is_moving = False
        low = -np.inf
        for stream in range(count):
            if state.head[stream] == state.tail[stream]:
                return False
            low = max(low, streams.times[state.head[stream]] - rule.width[stream])
        for stream in range(count):
            while state.head[stream] < state.tail[stream] and (
                streams.times[state.head[stream]] < low
            ):
                _drop(streams, stream, rule, state)
                is_moving = True
    return True


@numba.njit(nogil=True, cache=True)
def _second_mode(streams: Streams, rule: Rule, state: State, done: Ints) -> bool:
    """Let in what the period holds; False if more of it may come."""
    count = len(state.head)
    bound, oldest = np.inf, 0
    for stream in range(count):
        limit = streams.times[state.head[stream]] + rule.width[stream]
        if limit < bound:
            bound, oldest = limit, stream
    is_over = True
    for stream in range(count):
        row = state.admitted[stream]
        while row < state.tail[stream] and streams.times[row] <= bound:
            _extend(streams, stream, row, rule, state, False)
            _admit(streams, stream, rule, state)
            done[row] = state.counts[2] - 1
            row += 1
        if row == state.tail[stream] and row < streams.offset[stream + 1]:
            is_over = False
    if is_over:
        _drop(streams, oldest, rule, state)
    return is_over


# ── buffers ──────────────────────────────────────────────────────────────────────────────────


@numba.njit(nogil=True, cache=True)
def _admit(streams: Streams, stream: int, rule: Rule, state: State) -> None:
    row = state.admitted[stream]
    state.admitted[stream] += 1
    if rule.is_hash:
        bucket = streams.keys[row] & (state.first.shape[1] - 1)
        if state.first[stream, bucket] == NOBODY:
            state.first[stream, bucket] = row
        else:
            state.after[state.last[stream, bucket]] = row
        state.last[stream, bucket] = row


@numba.njit(nogil=True, cache=True)
def _drop(streams: Streams, stream: int, rule: Rule, state: State) -> None:
    row = state.head[stream]
    state.head[stream] += 1
    if row == state.admitted[stream]:  # it never took part
        state.admitted[stream] += 1
    elif rule.is_hash:
        bucket = streams.keys[row] & (state.first.shape[1] - 1)
        state.first[stream, bucket] = state.after[row]


# ── a new tuple ──────────────────────────────────────────────────────────────────────────────


@numba.njit(nogil=True, cache=True)
def _extend(
    streams: Streams, stream: int, row: int, rule: Rule, state: State, is_tested: bool
) -> None:
    """Join a new tuple with what is kept of all other streams, one loop inside the other."""
    deepest = len(state.head) - 2
    key = streams.keys[row]
    state.chosen[stream] = row
    depth = 0
    _enter(streams, stream, depth, key, rule, state, is_tested)
    while depth >= 0:
        other = rule.visit[stream, depth]
        at, limit = state.cursor[depth], state.admitted[other]
        if rule.is_hash:
            found = _next_chained(
                streams, at, key, state.low[depth], state.high[depth], state, is_tested
            )
        elif is_tested:
            found = _next_near(streams, at, limit, key, state.low[depth], state.high[depth], state)
        else:
            found = _next_equal(streams, at, limit, key, state)
        if found == NOBODY:
            depth -= 1
            continue
        state.cursor[depth] = state.after[found] if rule.is_hash else found + 1
        state.chosen[other] = found
        if depth < deepest:
            depth += 1
            _enter(streams, stream, depth, key, rule, state, is_tested)
        elif not rule.is_refined or _is_within(streams, rule, state):
            state.counts[0] += 1
            state.mark[0] += _hash(state.chosen)


@numba.njit(nogil=True, cache=True)
def _enter(
    streams: Streams, stream: int, depth: int, key: int, rule: Rule, state: State, is_tested: bool
) -> None:
    """Begin a loop: where its stream's tuples are, and when they may be."""
    other = rule.visit[stream, depth]
    if rule.is_hash:
        state.cursor[depth] = state.first[other, key & (state.first.shape[1] - 1)]
    else:
        state.cursor[depth] = state.head[other]
    if is_tested:
        low, high = _bounds(streams, stream, other, rule, state)
        for level in range(depth):
            one, two = _bounds(streams, rule.visit[stream, level], other, rule, state)
            low, high = max(low, one), min(high, two)
        state.low[depth], state.high[depth] = low, high


@numba.njit(nogil=True, cache=True)
def _bounds(streams: Streams, of: int, other: int, rule: Rule, state: State) -> tuple[float, float]:
    """When a tuple of another stream may be, for one that is chosen."""
    time = streams.times[state.chosen[of]]
    return time - rule.limits[0, other, of], time + rule.limits[0, of, other]


@numba.njit(nogil=True, cache=True)
def _next_near(
    streams: Streams, row: int, limit: int, key: int, low: float, high: float, state: State
) -> int:
    start = row
    while row < limit:
        time = streams.times[row]
        if time >= low and time <= high and streams.keys[row] == key:
            state.counts[1] += row + 1 - start
            return row
        row += 1
    state.counts[1] += max(limit - start, 0)
    return NOBODY


@numba.njit(nogil=True, cache=True)
def _next_equal(streams: Streams, row: int, limit: int, key: int, state: State) -> int:
    start = row
    while row < limit:
        if streams.keys[row] == key:
            state.counts[1] += row + 1 - start
            return row
        row += 1
    state.counts[1] += max(limit - start, 0)
    return NOBODY


@numba.njit(nogil=True, cache=True)
def _next_chained(
    streams: Streams, row: int, key: int, low: float, high: float, state: State, is_tested: bool
) -> int:
    while row != NOBODY:
        state.counts[1] += 1
        if streams.keys[row] == key:
            if not is_tested:
                return row
            time = streams.times[row]
            if time >= low and time <= high:
                return row
        row = state.after[row]
    return NOBODY


@numba.njit(nogil=True, cache=True)
def _is_within(streams: Streams, rule: Rule, state: State) -> bool:
    """The refinement: every pair within its window, in one of the alternatives."""
    count = len(state.head)
    for number in range(len(rule.limits)):
        is_good = True
        for one in range(count):
            for other in range(count):
                gap = streams.times[state.chosen[other]] - streams.times[state.chosen[one]]
                if gap > rule.limits[number, one, other]:
                    is_good = False
        if is_good:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def _hash(chosen: Ints) -> np.uint64:
    mixed = np.uint64(14695981039346656037)
    for row in chosen:
        mixed = (mixed ^ np.uint64(row)) * np.uint64(1099511628211)
    return mixed ^ (mixed >> np.uint64(29))
