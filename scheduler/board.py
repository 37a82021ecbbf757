"""The board: the pair matrix as plain arrays, and what is on it while pages come and go.

Every planner plays the same game.  Pages of both sides are *nodes*, numbered through: left page i
is node i, right page j is node ``left_pages + j``; in a self-join page i is node i on either side.
A move loads one node, after evicting another where all frames are taken.  Each pair of nodes within
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

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

from .reach import Int, Int32s, Int64s, Reach

UInt8s: TypeAlias = npt.NDArray[np.uint8]
NOBODY = -1


class Graph(NamedTuple):
    """Who meets whom.  Owned pairs by owner, and all partners by node, both as intervals."""

    own_starts: Int64s
    own: Int64s  # rows of first and limit, and the number of the interval's first pair
    starts: Int64s
    first: Int32s
    limit: Int32s
    degree: Int64s
    pairs: int  # in a self-join, two pages are one pair
    left_nodes: int  # 0 in a self-join: the smaller node owns


class Board(NamedTuple):
    """The graph with frames on it."""

    graph: Graph
    slots: Int32s  # the node in each frame, the first `in_use` of them count
    place: Int32s  # the frame of each node, or NOBODY
    in_use: Int64s  # [how many frames are in use]
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
    table = np.stack((own[1], own[2], np.cumsum(lengths) - lengths), 1).astype(np.int64)
    sums = np.concatenate(([0], np.cumsum(all_[2] - all_[1], dtype=np.int64)))
    degree = sums[all_[0][1:]] - sums[all_[0][:-1]]
    return Graph(own[0], table, *all_, degree, int(lengths.sum()), left_nodes)


@kernel(few_rows=0)
def transposed(
    starts: Int64s, first: Int32s, limit: Int32s, rights: Int
) -> tuple[Int64s, Int32s, Int32s]:
    """For each right page the intervals of left pages that meet it."""
    last = np.empty(rights, np.int32)
    back, at = np.zeros(rights + 1, np.int64), np.empty(rights, np.int64)
    for right in range(rights):
        last[right] = -2
    for left in range(len(starts) - 1):
        for k in range(starts[left], starts[left + 1]):
            for right in range(first[k], limit[k]):
                if last[right] != left - 1:
                    back[right + 1] += 1
                last[right] = left
    for right in range(rights):
        at[right] = back[right] - 1
        back[right + 1] += back[right]
        last[right] = -2
    back_first = np.empty(back[-1], np.int32)
    back_limit = np.empty(back[-1], np.int32)
    for left in range(len(starts) - 1):
        for k in range(starts[left], starts[left + 1]):
            for right in range(first[k], limit[k]):
                if last[right] != left - 1:
                    at[right] += 1
                    back_first[at[right]] = left
                back_limit[at[right]] = left + 1
                last[right] = left
    return back, back_first, back_limit


def frames_usable(graph: Graph, frames: int) -> int:
    """No more frames than there are pages: what is beyond them only costs memory."""
    return min(frames, max(len(graph.degree), 2))


def board_of(graph: Graph, frames: int) -> Board:
    """An empty board."""
    nodes = len(graph.degree)
    return Board(
        graph,
        np.full(min(frames, nodes) + 1, NOBODY, np.int32),
        np.full(nodes, NOBODY, np.int32),
        np.zeros(1, np.int64),
        np.zeros(graph.pairs, np.uint8),
        graph.degree.copy(),
    )


@kernel(few_rows=0)
def pair_number(own_starts: Int64s, own: Int64s, left_nodes: Int, one: Int, other: Int) -> Int:
    """The number of a pair of nodes, or NOBODY when they are not within reach.

    Takes a graph's parts and not the graph: a tuple of arrays costs 100 ns a call.
    """
    is_owner = one < left_nodes if left_nodes else one <= other
    owner, partner = (one, other) if is_owner else (other, one)
    low, high = own_starts[owner], own_starts[owner + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if own[middle, 0] <= partner:
            low = middle
        else:
            high = middle
    if low == high or not own[low, 0] <= partner < own[low, 1]:
        return NOBODY
    return own[low, 2] + partner - own[low, 0]


@kernel(few_rows=0)
def evict(board: Board, node: Int) -> None:
    """Take a node out of its frame."""
    at = board.place[node]
    board.in_use[0] -= 1
    moved = board.slots[board.in_use[0]]
    board.slots[at] = moved
    board.place[moved] = at
    board.place[node] = NOBODY


@kernel(few_rows=0)
def load(board: Board, node: Int, partners: Int32s) -> Int:
    """Put a node into a frame and mark the pairs that this completes.

    The partners go into `partners`; returns how many there are.
    """
    graph, slots, place = board.graph, board.slots, board.place
    is_done, to_do = board.is_done, board.to_do
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    count = board.in_use[0]
    slots[count], place[node] = node, count
    count += 1
    board.in_use[0] = count
    found = 0
    if graph.degree[node] < count:
        for k in range(graph.starts[node], graph.starts[node + 1]):
            for partner in range(graph.first[k], graph.limit[k]):
                if place[partner] >= 0:
                    pair = pair_number(own_starts, own, left_nodes, node, partner)
                    found = _mark(is_done, to_do, pair, node, partner, partners, found)
    else:
        for at in range(count):
            pair = pair_number(own_starts, own, left_nodes, node, slots[at])
            found = _mark(is_done, to_do, pair, node, slots[at], partners, found)
    return found


@kernel(few_rows=0)
def _mark(
    is_done: UInt8s, to_do: Int64s, pair: Int, node: Int, partner: Int, partners: Int32s, found: Int
) -> Int:
    if pair < 0 or is_done[pair]:
        return found
    is_done[pair] = 1
    to_do[node] -= 1
    if partner != node:
        to_do[partner] -= 1
    partners[found] = partner
    return found + 1


@kernel(few_rows=0)
def only_for_room(nodes: Int32s, victims: Int32s, frames: Int) -> Int32s:
    """When each page really has to leave: as late as the frames allow, in the same order.

    Gallop gives up a left page when its column is done, frame or no frame.  As long as there is
    room it may stay, and a new page that fits need not be written.
    """
    leaving = np.empty(len(nodes), np.int32)
    waiting = np.empty(len(nodes), np.int32)
    begin = end = in_use = 0
    for move in range(len(nodes)):
        if victims[move] >= 0:
            waiting[end] = victims[move]
            end += 1
        leaving[move] = NOBODY
        if in_use == frames:
            leaving[move] = waiting[begin]
            begin += 1
        else:
            in_use += 1
    return leaving


@kernel(few_rows=0)
def replay(
    board: Board, nodes: Int32s, victims: Int32s, start: Int, room: Int
) -> tuple[Int, Int64s, Int32s, Int32s]:
    """Make moves from `start` on, until about `room` visits have come together.

    Returns the move to go on with, where each move's visits end, and the owners and partners of the
    visited pairs.
    """
    ends = np.empty(min(len(nodes) - start, room), np.int64)
    owners = np.empty(room + len(board.slots), np.int32)
    partners = np.empty(room + len(board.slots), np.int32)
    used = made = 0
    while start + made < len(nodes) and used < room and made < room:
        node = nodes[start + made]
        if victims[start + made] >= 0:
            evict(board, victims[start + made])
        found = load(board, node, partners[used:])
        partners[used : used + found].sort()
        for at in range(used, used + found):
            other = partners[at]
            is_owner = node < board.graph.left_nodes if board.graph.left_nodes else node <= other
            owners[at], partners[at] = (node, other) if is_owner else (other, node)
        used += found
        ends[made] = used
        made += 1
    return start + made, ends[:made], owners[:used], partners[:used]


@kernel(few_rows=0)
def replay_in_order(
    board: Board, nodes: Int32s, victims: Int32s, start: Int, room: Int, cursor: Int64s
) -> tuple[Int, Int64s, Int32s, Int32s]:
    """The same for moves whose visits go column by column; the cursor is the place of the next
    pair: its owner, interval and partner."""
    graph, place, slots, count = board.graph, board.place, board.slots, board.in_use
    ends = np.empty(min(len(nodes) - start, room), np.int64)
    owners = np.empty(2 * room + len(place), np.int32)
    partners = np.empty(2 * room + len(place), np.int32)
    used = made = 0
    while start + made < len(nodes) and used < room and made < room:
        if victims[start + made] >= 0:
            evict(board, victims[start + made])
        slots[count[0]], place[nodes[start + made]] = nodes[start + made], count[0]
        count[0] += 1
        while cursor[1] < len(graph.own) and used < len(owners):
            owner, k, partner = cursor[0], cursor[1], cursor[2]
            if k == graph.own_starts[owner + 1]:
                cursor[0] += 1
            elif partner == graph.own[k, 1]:
                cursor[1] += 1
                cursor[2] = graph.own[min(k + 1, len(graph.own) - 1), 0]
            elif place[owner] >= 0 and place[partner] >= 0:
                owners[used], partners[used] = owner, partner
                used += 1
                cursor[2] += 1
            else:
                break
        ends[made] = used
        made += 1
    return start + made, ends[:made], owners[:used], partners[:used]
