"""A beam search over boards: each load is chosen for the pairs it completes.

The whole layout is known, so every board has a *potential*: what is still to do, in page reads.
The next move is the one that lowers it most.

    potential = Σ over pages not in a frame   1 + weight(pairs to do)      (0 for a finished page)
              + Σ over pages in a frame           weight(pairs to do)

    weight(k) = (k / (frames - 1)) ** 0.1

The weight hardly grows from one pair to many, so that the last pair of a page counts much more
than one of many. That keeps pages from being left nearly done, which is what makes a greedy
planner read everything twice: with a weight linear in k the search read 1.2 to 1.4 times the
pages on bands of 24 to 30 pages. Among moves that are as good, the page leaves that the best next
loads would meet least; without this the greedy search (a beam of 1) read 1.3 times the pages on a
band of 300.

States that have the same pages in frames and the same pairs done are one state; a mark, the
exclusive or of a hash of each, tells.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

from .board import NOBODY, Graph, UInt8s, pair_number
from .reach import Int, Int32s, Int64s

EXPONENT = 0.1
TIE_BREAK = 0.001
MOVES_PER_STATE = 12
Floats: TypeAlias = npt.NDArray[np.float64]
Real: TypeAlias = Any
UInt64s: TypeAlias = npt.NDArray[np.uint64]


class States(NamedTuple):
    """The boards of a beam, a row each."""

    is_done: UInt8s  # for each pair
    to_do: Int32s  # for each node
    place: Int32s  # the frame of each node, or NOBODY
    slots: Int32s  # the node in each frame
    in_use: Int64s  # how many frames are
    left: Int64s  # pairs to do in all
    fresh: Int64s  # in the order of degrees, where to look for a page to begin with
    potential: Floats
    mark: UInt64s


class Moves(NamedTuple):
    """Possible moves: from which state, what to load, what to evict, and what that leads to."""

    state: Int32s
    node: Int32s
    victim: Int32s
    potential: Floats
    rank: Floats
    mark: UInt64s


class Partners(NamedTuple):
    """The pages that meet one in a frame: how many pairs that makes and what it is worth."""

    seen: Int32s
    pairs: Int32s
    worth: Floats
    mark: UInt64s


def beam(
    graph: Graph, frames: int, width: int, exponent: float = EXPONENT, tie_break: float = TIE_BREAK
) -> tuple[Int32s, Int32s]:
    """The moves that a beam of this width finds: nodes to load, and what each replaces."""
    frames = min(frames, len(graph.degree))
    degrees = np.arange(int(graph.degree.max(initial=0)) + 1)
    weight = (degrees / max(frames - 1, 1)) ** exponent
    order = np.argsort(graph.degree, kind="stable").astype(np.int32)
    return _beam(graph, frames, width, weight, order, tie_break)


@kernel(few_rows=0)
def _beam(
    graph: Graph, frames: Int, width: Int, weight: Floats, order: Int32s, tie_break: Real
) -> tuple[Int32s, Int32s]:
    nodes, pairs = len(graph.degree), graph.pairs
    here = _states(graph, frames, width)
    there = _states(graph, frames, width) if width > 1 else here
    partners = _partners(nodes)
    per_state = min(width, MOVES_PER_STATE)
    moves = _moves(width * per_state)
    # State before, node, victim.  A load completes a pair, or begins what has no pair in frames.
    history = np.empty((pairs + nodes, 3, width), np.int32)
    steps, alive, found = 0, 1, NOBODY if pairs else 0
    while found == NOBODY:
        count = np.int64(0)
        for state in range(alive):
            count = _propose(
                graph,
                here,
                state,
                frames,
                weight,
                order,
                tie_break,
                partners,
                moves,
                count,
                per_state,
            )
        chosen = _best(moves, count, width)
        alive = len(chosen)
        for to in range(alive):
            move = chosen[to]
            if width > 1:
                _copy(here, moves.state[move], there, to)
            _apply(graph, there, to, moves, move)
            history[steps, 0, to] = moves.state[move]
            history[steps, 1, to] = moves.node[move]
            history[steps, 2, to] = moves.victim[move]
            if there.left[to] == 0 and found == NOBODY:
                found = to
        here, there = there, here
        steps += 1
    loads = np.empty(steps, np.int32)
    victims = np.empty(steps, np.int32)
    for step in range(steps - 1, -1, -1):
        loads[step], victims[step] = history[step, 1, found], history[step, 2, found]
        found = history[step, 0, found]
    return loads, victims


@kernel(few_rows=0)
def _states(graph: Graph, frames: Int, width: Int) -> States:
    nodes = len(graph.degree)
    states = States(
        np.zeros((width, graph.pairs), np.uint8),
        np.zeros((width, nodes), np.int32),
        np.full((width, nodes), NOBODY, np.int32),
        np.zeros((width, frames), np.int32),
        np.zeros(width, np.int64),
        np.full(width, graph.pairs, np.int64),
        np.zeros(width, np.int64),
        np.zeros(width),
        np.zeros(width, np.uint64),
    )
    for node in range(nodes):
        states.to_do[0, node] = graph.degree[node]
    return states


@kernel(few_rows=0)
def _moves(capacity: Int) -> Moves:
    return Moves(
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity, np.uint64),
    )


@kernel(few_rows=0)
def _partners(nodes: Int) -> Partners:
    return Partners(
        np.empty(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes),
        np.zeros(nodes, np.uint64),
    )


@kernel(few_rows=0)
def _copy(source: States, state: Int, target: States, to: Int) -> None:
    for pair in range(source.is_done.shape[1]):
        target.is_done[to, pair] = source.is_done[state, pair]
    for node in range(source.to_do.shape[1]):
        target.to_do[to, node] = source.to_do[state, node]
        target.place[to, node] = source.place[state, node]
    for slot in range(source.slots.shape[1]):
        target.slots[to, slot] = source.slots[state, slot]
    target.in_use[to] = source.in_use[state]
    target.left[to] = source.left[state]
    target.fresh[to] = source.fresh[state]
    target.mark[to] = source.mark[state]


@kernel(few_rows=0)
def _propose(
    graph: Graph,
    states: States,
    state: Int,
    frames: Int,
    weight: Floats,
    order: Int32s,
    tie_break: Real,
    partners: Partners,
    moves: Moves,
    start: Int,
    room: Int,
) -> Int:
    """The best moves of one state, put into `moves` from `start` on; where they end."""
    to_do, potential = states.to_do[state], states.potential[state]
    slots, is_done = states.slots[state], states.is_done[state]
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    seen = _gather(graph, states, state, weight, partners)
    victim = np.int64(_finished(states, state) if states.in_use[state] == frames else NOBODY)
    if seen == 0:
        node = np.int64(_fresh(states, state, order))
        _put(moves, start, states, state, node, victim, 0.0, potential, np.uint64(0))
        return start + 1
    must_choose = states.in_use[state] == frames and victim == NOBODY
    use = _uses(graph, states, state, partners) * tie_break if must_choose else np.zeros(0)
    count = start
    for at in range(seen):
        node = np.int64(partners.seen[at])
        pairs, worth, mark = partners.pairs[node], partners.worth[node], partners.mark[node]
        gain = worth + weight[to_do[node]] - weight[to_do[node] - pairs]
        if must_choose and count - start == room and potential - gain >= moves.rank[start]:
            continue  # not even the best victim would do
        if not must_choose:
            gain += 1.0
            count = _offer(moves, start, count, room, states, state, node, victim, gain, 0.0, mark)
        for slot in range(len(use)):
            leaving = np.int64(slots[slot])
            pairs_then, gain, mark_then = pairs, worth, mark
            pair = pair_number(own_starts, own, left_nodes, node, leaving)
            if pair >= 0 and not is_done[pair]:
                gain -= weight[to_do[leaving]] - weight[to_do[leaving] - 1]
                pairs_then -= 1
                mark_then ^= _hash(pair)
            gain += weight[to_do[node]] - weight[to_do[node] - pairs_then]
            if pairs_then:
                count = _offer(
                    moves, start, count, room, states, state, node, leaving, gain, use[slot],
                    mark_then,
                )  # fmt: skip
    for at in range(seen):
        node = partners.seen[at]
        partners.pairs[node], partners.worth[node] = 0, 0.0
        partners.mark[node] = np.uint64(0)
    return count


@kernel(few_rows=0)
def _gather(graph: Graph, states: States, state: Int, weight: Floats, partners: Partners) -> Int:
    """Find the pages that meet one in a frame; how many there are."""
    to_do, place, is_done = states.to_do[state], states.place[state], states.is_done[state]
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    first, limit, slots = graph.first, graph.limit, states.slots[state]
    found, found_pairs, found_worth, found_mark = partners
    seen = 0
    for slot in range(states.in_use[state]):
        node = np.int64(slots[slot])
        if to_do[node] == 0:
            continue
        worth = weight[to_do[node]] - weight[to_do[node] - 1]
        for k in range(graph.starts[node], graph.starts[node + 1]):
            for partner in range(first[k], limit[k]):
                if place[partner] >= 0 or to_do[partner] == 0:
                    continue
                pair = pair_number(own_starts, own, left_nodes, node, partner)
                if is_done[pair]:
                    continue
                if found_pairs[partner] == 0:
                    found[seen] = partner
                    seen += 1
                found_pairs[partner] += 1
                found_worth[partner] += worth
                found_mark[partner] ^= _hash(pair)
    return seen


@kernel(few_rows=0)
def _uses(graph: Graph, states: States, state: Int, partners: Partners) -> Floats:
    """For each frame, how much the next loads would make of its page; at most 1."""
    is_done, slots, pairs = states.is_done[state], states.slots[state], partners.pairs
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    first, limit = graph.first, graph.limit
    use = np.zeros(states.in_use[state])
    for slot in range(len(use)):
        node = np.int64(slots[slot])
        for k in range(graph.starts[node], graph.starts[node + 1]):
            for partner in range(first[k], limit[k]):
                if (
                    pairs[partner]
                    and not is_done[pair_number(own_starts, own, left_nodes, node, partner)]
                ):
                    use[slot] += pairs[partner]
    most: Floats = use / use.max()
    return most


@kernel(few_rows=0)
def _finished(states: States, state: Int) -> Int:
    """A page in a frame that is done, or NOBODY."""
    for slot in range(states.in_use[state]):
        if states.to_do[state, states.slots[state, slot]] == 0:
            return int(states.slots[state, slot])
    return NOBODY


@kernel(few_rows=0)
def _fresh(states: States, state: Int, order: Int32s) -> Int:
    """Where to begin: with a page that meets few."""
    to_do = states.to_do[state]
    while to_do[order[states.fresh[state]]] == 0:
        states.fresh[state] += 1
    return order[states.fresh[state]]


@kernel(few_rows=0)
def _offer(
    moves: Moves,
    start: Int,
    count: Int,
    room: Int,
    states: States,
    state: Int,
    node: Int,
    victim: Int,
    gain: Real,
    use: Real,
    mark: Int,
) -> Int:
    """Keep a move if it is among the best of its state; the place of the worst comes first."""
    rank = states.potential[state] - gain + use
    if count - start < room:
        _put(moves, count, states, state, node, victim, gain, rank, mark)
        count += 1
    elif rank < moves.rank[start]:
        _put(moves, start, states, state, node, victim, gain, rank, mark)
    else:
        return count
    if count - start == room:
        _worst_first(moves, start, count)
    return count


@kernel(few_rows=0)
def _worst_first(moves: Moves, start: Int, count: Int) -> None:
    worst = start
    for at in range(start + 1, count):
        if moves.rank[at] > moves.rank[worst]:
            worst = at
    _swap(moves.state, start, worst)
    _swap(moves.node, start, worst)
    _swap(moves.victim, start, worst)
    _swap(moves.potential, start, worst)
    _swap(moves.rank, start, worst)
    _swap(moves.mark, start, worst)


@kernel(few_rows=0)
def _swap(values: npt.NDArray[Any], one: Int, other: Int) -> None:
    values[one], values[other] = values[other], values[one]


@kernel(few_rows=0)
def _put(
    moves: Moves,
    at: Int,
    states: States,
    state: Int,
    node: Int,
    victim: Int,
    gain: Real,
    rank: Real,
    mark: Int,
) -> None:
    moves.state[at], moves.node[at], moves.victim[at] = state, node, victim
    moves.potential[at], moves.rank[at] = states.potential[state] - gain, rank
    mark ^= states.mark[state] ^ _hash(-2 - node)
    if victim >= 0:
        mark ^= _hash(-2 - victim)
    moves.mark[at] = mark


@kernel(few_rows=0)
def _hash(number: Int) -> Int:
    """splitmix64."""
    x = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel(few_rows=0)
def _best(moves: Moves, count: Int, width: Int) -> Int64s:
    """The best moves that lead to different states, the best first."""
    order = np.arange(count)
    gap = count
    while gap > 1:  # a shell sort: NumPy's own takes seconds to compile
        gap = gap // 2
        for at in range(gap, count):
            move, to = order[at], at
            while to >= gap and moves.rank[order[to - gap]] > moves.rank[move]:
                order[to] = order[to - gap]
                to -= gap
            order[to] = move
    found = 0
    for move in order:
        if found == width:
            break
        is_new = True
        for at in range(found):
            is_new = is_new and moves.mark[order[at]] != moves.mark[move]
        if is_new:
            order[found] = move
            found += 1
    return order[:found]


@kernel(few_rows=0)
def _apply(graph: Graph, states: States, state: Int, moves: Moves, move: Int) -> None:
    """Make a move on a board."""
    node, victim = moves.node[move], moves.victim[move]
    place, slots, to_do = states.place[state], states.slots[state], states.to_do[state]
    is_done = states.is_done[state]
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    if victim >= 0:
        states.in_use[state] -= 1
        last = slots[states.in_use[state]]
        slots[place[victim]], place[last] = last, place[victim]
        place[victim] = NOBODY
    slots[states.in_use[state]] = node
    place[node] = states.in_use[state]
    states.in_use[state] += 1
    for slot in range(states.in_use[state]):
        pair = pair_number(own_starts, own, left_nodes, node, slots[slot])
        if pair >= 0 and not is_done[pair]:
            is_done[pair] = 1
            states.left[state] -= 1
            to_do[node] -= 1
            if slots[slot] != node:
                to_do[slots[slot]] -= 1
    states.potential[state] = moves.potential[move]
    states.mark[state] = moves.mark[move]
