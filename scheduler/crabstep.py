"""Crabstep: gallop that steps sideways instead of thrashing.

When a right page is needed, no frame is free and all loaded right pages are still needed, those are
pinned and the following left pages stream past them.  Then they are finished, the frames are free,
and the walk goes on where it broke off:

          L1  L2  L3  L4  L5          frames for three right pages
      R1   1   4   7                  (L2, R4) has no frame: R1 R2 R3 stay,
      R2   2   5   8  10              L3 L4 L5 stream past them (7 … 12),
      R3   3   6   9  11  12          and (L2, R4) begins anew
      R4      ▲13

A right page that is not needed any more leaves at once when a frame is wanted, the one finished
longest ago first.  Seven pages a side, each meeting its neighbours up to two away, in four frames:
gallop reads 30 pages, crabstep 21.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .board import NOBODY, Board, Graph, board_of, evict, load, pair_number
from .reach import Int32s, Int64s

GALLOP, CRABSTEP = 0, 1


def crabstep(graph: Graph, pairs: int, frames: int) -> tuple[Int32s, Int32s, Int32s]:
    """The moves: nodes to load, what each replaces, and the mode that each belongs to."""
    board = board_of(graph, frames)
    nodes, victims, modes, count = _crabstep(board, frames, 2 * pairs + 1)
    return nodes[:count].copy(), victims[:count].copy(), modes[:count].copy()


@njit(cache=True, nogil=True)
def _crabstep(board: Board, frames: int, moves_max: int) -> tuple[Int32s, Int32s, Int32s, int]:
    graph = board.graph
    total = len(graph.degree)
    nodes = np.empty(moves_max, np.int32)
    victims = np.empty(moves_max, np.int32)
    modes = np.empty(moves_max, np.int32)
    partners = np.empty(len(board.slots), np.int32)
    finished = np.empty(total, np.int32)  # resident pages that are done, oldest first
    queue = np.zeros(2, np.int64)  # where that list begins and ends
    is_self = graph.left_nodes == 0
    moves, column = 0, NOBODY
    for owner in range(total):
        for k in range(graph.own_starts[owner], graph.own_starts[owner + 1]):
            for partner in range(graph.own_first[k], graph.own_limit[k]):
                pair = graph.own_base[k] + partner - graph.own_first[k]
                if board.is_done[pair]:
                    continue
                is_stuck = (
                    board.place[partner] < 0
                    and board.place[owner] >= 0
                    and board.count[0] == frames
                    and not _has_finished(board, finished, queue)
                )
                if is_stuck:
                    stream = owner
                    for node in range(owner + 1, _streaming_limit(board, owner)):
                        if board.place[node] < 0 and _meets_any(board, node, owner):
                            nodes[moves], victims[moves], modes[moves] = node, stream, CRABSTEP
                            _move(board, node, stream, partners, finished, queue)
                            moves, stream = moves + 1, node
                    column = stream
                for node in (np.int64(owner), np.int64(partner)):
                    if board.place[node] >= 0 or board.is_done[pair]:
                        continue
                    victim = NOBODY
                    if node == owner and not is_self:
                        victim = column
                    elif board.count[0] == frames:
                        victim = _finished(board, finished, queue)
                        if victim == NOBODY:  # a self-join's next column, among pages in use
                            victim = board.slots[frames - 1]
                    nodes[moves], victims[moves], modes[moves] = node, victim, GALLOP
                    _move(board, node, victim, partners, finished, queue)
                    moves += 1
                    if node == owner:
                        column = owner
    return nodes, victims, modes, moves


@njit(cache=True, nogil=True)
def _move(
    board: Board, node: int, victim: int, partners: Int32s, finished: Int32s, queue: Int64s
) -> None:
    if victim >= 0:
        evict(board, victim)
    found = load(board, node, partners)
    for at in range(found):
        if board.to_do[partners[at]] == 0 and partners[at] != node:
            finished[queue[1]] = partners[at]
            queue[1] += 1
    if board.to_do[node] == 0:
        finished[queue[1]] = node
        queue[1] += 1


@njit(cache=True, nogil=True)
def _has_finished(board: Board, finished: Int32s, queue: Int64s) -> bool:
    """Whether a resident page is done, forgetting those that have left already."""
    while queue[0] < queue[1] and board.place[finished[queue[0]]] < 0:
        queue[0] += 1
    return queue[0] < queue[1]


@njit(cache=True, nogil=True)
def _finished(board: Board, finished: Int32s, queue: Int64s) -> int:
    if not _has_finished(board, finished, queue):
        return NOBODY
    queue[0] += 1
    return finished[queue[0] - 1]


@njit(cache=True, nogil=True)
def _streaming_limit(board: Board, owner: int) -> int:
    """One more than the last node that could meet a pinned page."""
    graph = board.graph
    limit = 0
    for at in range(board.count[0]):
        node = board.slots[at]
        last = graph.starts[node + 1] - 1
        if node != owner and last >= graph.starts[node]:
            limit = max(limit, graph.limit[last])
    return limit


@njit(cache=True, nogil=True)
def _meets_any(board: Board, node: int, owner: int) -> bool:
    """Whether the node has something to do with a page in a frame, but for the column's own."""
    for at in range(board.count[0]):
        other = board.slots[at]
        if other != owner:
            pair = pair_number(board.graph, node, other)
            if pair >= 0 and not board.is_done[pair]:
                return True
    return False
