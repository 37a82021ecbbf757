"""The board: the pair matrix as plain arrays, and what is on it while pages come and go.

Every planner plays the same game.  Pages of both sides are *nodes*, numbered through: left page i is
node i, right page j is node ``left_pages + j``; in a self-join page i is node i on either side.  A
move loads one node, after evicting another where all frames are taken.  Each pair of nodes within
reach is visited in the move that first brings both into frames:

    move           frames          visited
    load L0        L0
    load R0        L0 R0           L0·R0
    load R1        L0 R0 R1        L0·R1
    evict L0,
    load L1        R0 R1 L1        L1·R0  L1·R1

So the moves alone are the whole schedule, and 20 million pairs need not be listed to plan them.

A pair has one *owner*, its left node or, in a self-join, its smaller node.  Pairs are numbered by
owner, interval by interval, which makes "is this pair done?" one array access.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from .reach import Int32s, Int64s, Reach

UInt8s = npt.NDArray[np.uint8]
NOBODY = -1


class Graph(NamedTuple):
    """Who meets whom.  Owned pairs by owner, and all partners by node, both as intervals."""

    own_starts: Int64s
    own_first: Int32s
    own_limit: Int32s
    own_base: Int64s  # number of each interval's first pair
    starts: Int64s
    first: Int32s
    limit: Int32s
    degree: Int64s
    left_nodes: int  # 0 in a self-join: the smaller node owns


class Board(NamedTuple):
    """The graph with frames on it."""

    graph: Graph
    slots: Int32s  # the node in each frame, the first `count` are in use
    place: Int32s  # the frame of each node, or NOBODY
    count: Int64s  # [frames in use]
    is_done: UInt8s  # for each pair
    to_do: Int64s  # pairs not yet visited, for each node


def graph_of(reach: Reach) -> Graph:
    """The arrays of a reach."""
    if reach.is_self:
        return _self_graph(reach)
    lefts, rights = reach.left_pages, reach.right_pages
    first, limit = reach.first + np.int32(lefts), reach.limit + np.int32(lefts)
    back_starts, back_first, back_limit = transposed(reach.starts, reach.first, reach.limit, rights)
    starts = np.concatenate((reach.starts, reach.starts[-1] + back_starts[1:]))
    own_starts = np.concatenate((reach.starts, np.full(rights, reach.starts[-1])))
    return _graph(
        (own_starts, first, limit),
        (starts, np.concatenate((first, back_first)), np.concatenate((limit, back_limit))),
        lefts,
    )


def _self_graph(reach: Reach) -> Graph:
    there = (reach.starts, reach.first, reach.limit)
    back = transposed(*there, reach.left_pages)
    nodes = np.arange(reach.left_pages)
    owners = np.concatenate((reach.owners, np.repeat(nodes, np.diff(back[0]))))
    edges = np.stack((np.concatenate((there[1], back[1])), np.concatenate((there[2], back[2]))), 1)
    both = Reach.from_intervals(owners, edges.astype(np.int64), len(nodes), len(nodes))
    upper = np.stack((np.maximum(both.first, both.owners), both.limit), 1)
    upper[:, 0] = np.minimum(upper[:, 0], upper[:, 1])
    own = Reach.from_intervals(both.owners, upper.astype(np.int64), len(nodes), len(nodes))
    return _graph((own.starts, own.first, own.limit), (both.starts, both.first, both.limit), 0)


def _graph(
    own: tuple[Int64s, Int32s, Int32s], all_: tuple[Int64s, Int32s, Int32s], left_nodes: int
) -> Graph:
    lengths = (own[2] - own[1]).astype(np.int64)
    base = np.cumsum(lengths) - lengths
    sums = np.concatenate(([0], np.cumsum(all_[2] - all_[1], dtype=np.int64)))
    degree = sums[all_[0][1:]] - sums[all_[0][:-1]]
    return Graph(*own, base, *all_, degree, left_nodes)


@njit(cache=True, nogil=True)
def transposed(
    starts: Int64s, first: Int32s, limit: Int32s, rights: int
) -> tuple[Int64s, Int32s, Int32s]:
    """For each right page the intervals of left pages that meet it."""
    last = np.full(rights, -2, np.int32)
    counts = np.zeros(rights + 1, np.int64)
    for left in range(len(starts) - 1):
        for k in range(starts[left], starts[left + 1]):
            for right in range(first[k], limit[k]):
                if last[right] != left - 1:
                    counts[right + 1] += 1
                last[right] = left
    back = np.cumsum(counts)
    at = back[:-1].copy() - 1
    back_first = np.empty(back[-1], np.int32)
    back_limit = np.empty(back[-1], np.int32)
    last[:] = -2
    for left in range(len(starts) - 1):
        for k in range(starts[left], starts[left + 1]):
            for right in range(first[k], limit[k]):
                if last[right] != left - 1:
                    at[right] += 1
                    back_first[at[right]] = left
                back_limit[at[right]] = left + 1
                last[right] = left
    return back, back_first, back_limit


def board_of(graph: Graph, frames: int) -> Board:
    """An empty board."""
    nodes = len(graph.degree)
    pairs = int((graph.own_limit - graph.own_first).sum(dtype=np.int64))
    return Board(
        graph,
        np.full(min(frames, nodes) + 1, NOBODY, np.int32),
        np.full(nodes, NOBODY, np.int32),
        np.zeros(1, np.int64),
        np.zeros(pairs, np.uint8),
        graph.degree.copy(),
    )


@njit(cache=True, nogil=True)
def pair_number(graph: Graph, one: int, other: int) -> int:
    """The number of a pair of nodes, or NOBODY when they are not within reach."""
    is_owner = one < graph.left_nodes if graph.left_nodes else one <= other
    owner, partner = (one, other) if is_owner else (other, one)
    low, high = graph.own_starts[owner], graph.own_starts[owner + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if graph.own_first[middle] <= partner:
            low = middle
        else:
            high = middle
    if low == high or not graph.own_first[low] <= partner < graph.own_limit[low]:
        return NOBODY
    return graph.own_base[low] + partner - graph.own_first[low]


@njit(cache=True, nogil=True)
def evict(board: Board, node: int) -> None:
    """Take a node out of its frame."""
    at = board.place[node]
    board.count[0] -= 1
    moved = board.slots[board.count[0]]
    board.slots[at] = moved
    board.place[moved] = at
    board.place[node] = NOBODY


@njit(cache=True, nogil=True)
def load(board: Board, node: int, partners: Int32s) -> int:
    """Put a node into a frame and mark the pairs that this completes.

    The partners go into `partners`; returns how many there are.
    """
    graph = board.graph
    board.slots[board.count[0]] = node
    board.place[node] = board.count[0]
    board.count[0] += 1
    found = 0
    if graph.degree[node] < board.count[0]:
        for k in range(graph.starts[node], graph.starts[node + 1]):
            for partner in range(graph.first[k], graph.limit[k]):
                if board.place[partner] >= 0:
                    found = _mark(board, node, partner, partners, found)
    else:
        for at in range(board.count[0]):
            found = _mark(board, node, board.slots[at], partners, found)
    return found


@njit(cache=True, nogil=True)
def _mark(board: Board, node: int, partner: int, partners: Int32s, found: int) -> int:
    pair = pair_number(board.graph, node, partner)
    if pair < 0 or board.is_done[pair]:
        return found
    board.is_done[pair] = 1
    board.to_do[node] -= 1
    if partner != node:
        board.to_do[partner] -= 1
    partners[found] = partner
    return found + 1


@njit(cache=True, nogil=True)
def replay(
    board: Board, nodes: Int32s, victims: Int32s, start: int, room: int
) -> tuple[int, Int64s, Int32s]:
    """Make moves from `start` on, until about `room` visits have come together.

    Returns the move to go on with, where each move's visits end, and the visited partners of each
    move's node, ascending.
    """
    ends = np.empty(min(len(nodes) - start, room), np.int64)
    visits = np.empty(room + len(board.slots), np.int32)
    used = made = 0
    while start + made < len(nodes) and used < room and made < room:
        if victims[start + made] >= 0:
            evict(board, victims[start + made])
        found = load(board, nodes[start + made], visits[used:])
        visits[used : used + found].sort()
        used += found
        ends[made] = used
        made += 1
    return start + made, ends[:made], visits[:used]
