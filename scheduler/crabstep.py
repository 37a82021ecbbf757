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

from typing import NamedTuple

import numpy as np

from matwin.storage.kernel import kernel

from .board import NOBODY, Board, Graph, UInt8s, board_of, evict, load, pair_number
from .reach import Int, Int32s, Int64s

GALLOP, CRABSTEP = 0, 1


class Log(NamedTuple):
    """The moves made so far, and what follows from them."""

    nodes: Int32s
    victims: Int32s
    modes: Int32s
    made: Int64s  # [how many moves]
    partners: Int32s  # room for the pairs of one move
    finished: Int32s  # pages that were done while in a frame, in that order
    queue: Int64s  # [where that list begins, where it ends]
    coming: Int32s  # room for the pages of one sidestep
    is_coming: UInt8s


def crabstep(graph: Graph, frames: int) -> tuple[Int32s, Int32s, Int32s]:
    """The moves: nodes to load, what each replaces, and the mode that each belongs to."""
    return _crabstep(board_of(graph, frames), frames, 2 * graph.pairs)


@kernel(few_rows=0)
def _crabstep(board: Board, frames: Int, moves_max: Int) -> tuple[Int32s, Int32s, Int32s]:
    graph = board.graph
    log = Log(
        np.empty(moves_max, np.int32),
        np.empty(moves_max, np.int32),
        np.empty(moves_max, np.int32),
        np.zeros(1, np.int64),
        np.empty(len(board.slots), np.int32),
        np.empty(len(graph.degree), np.int32),
        np.zeros(2, np.int64),
        np.empty(len(graph.degree), np.int32),
        np.zeros(len(graph.degree), np.uint8),
    )
    column: Int = np.int64(NOBODY)
    for owner in range(len(graph.degree)):
        for k in range(graph.own_starts[owner], graph.own_starts[owner + 1]):
            for partner in range(graph.own[k, 0], graph.own[k, 1]):
                pair = graph.own[k, 2] + partner - graph.own[k, 0]
                if not board.is_done[pair]:
                    _bring_owner(board, log, frames, owner, column)
                    column = owner if graph.left_nodes else NOBODY
                if board.is_done[pair]:
                    continue
                if board.in_use[0] == frames and not _has_finished(board, log):
                    _bring_owner(board, log, frames, owner, _sidestep(board, log, owner))
                victim = _finished(board, log) if board.in_use[0] == frames else NOBODY
                _move(board, log, np.int64(partner), victim, GALLOP)
    count = log.made[0]
    return log.nodes[:count].copy(), log.victims[:count].copy(), log.modes[:count].copy()


@kernel(few_rows=0)
def _bring_owner(board: Board, log: Log, frames: Int, owner: Int, column: Int) -> None:
    """Load the column's page, in place of the one before if there is one to replace."""
    if board.place[owner] >= 0:
        return
    victim = np.int64(column)
    if victim == NOBODY and board.in_use[0] == frames:
        victim = np.int64(_finished(board, log))
        if victim == NOBODY:  # a self-join's next column, among pages that are all in use
            victim = np.int64(board.slots[frames - 1])
    _move(board, log, owner, victim, GALLOP)


@kernel(few_rows=0)
def _sidestep(board: Board, log: Log, owner: Int) -> Int:
    """Stream the following pages past those in frames; the last one streamed."""
    stream = np.int64(owner)
    coming = _coming(board, log, owner)
    coming.sort()
    for at in range(len(coming)):
        node = np.int64(coming[at])
        _move(board, log, node, stream, CRABSTEP)
        stream = node
    return stream


@kernel(few_rows=0)
def _coming(board: Board, log: Log, owner: Int) -> Int32s:
    """The pages that have something to do with one in a frame, but for the column's own."""
    graph, slots, place, is_done = board.graph, board.slots, board.place, board.is_done
    own_starts, own, left_nodes = graph.own_starts, graph.own, graph.left_nodes
    found, is_found, count = log.coming, log.is_coming, 0
    for at in range(board.in_use[0]):
        node = slots[at]
        if node == owner:
            continue
        for k in range(graph.starts[node], graph.starts[node + 1]):
            for partner in range(graph.first[k], graph.limit[k]):
                if place[partner] >= 0 or is_found[partner]:
                    continue
                if not is_done[pair_number(own_starts, own, left_nodes, node, partner)]:
                    is_found[partner] = 1
                    found[count] = partner
                    count += 1
    for at in range(count):
        is_found[found[at]] = 0
    return found[:count]


@kernel(few_rows=0)
def _move(board: Board, log: Log, node: Int, victim: Int, mode: Int) -> None:
    at = log.made[0]
    log.nodes[at], log.victims[at], log.modes[at] = node, victim, mode
    log.made[0] += 1
    if victim >= 0:
        evict(board, victim)
    found = load(board, node, log.partners)
    for at in range(found):
        partner = log.partners[at]
        if board.to_do[partner] == 0 and partner != node:
            log.finished[log.queue[1]] = partner
            log.queue[1] += 1
    if board.to_do[node] == 0:
        log.finished[log.queue[1]] = node
        log.queue[1] += 1


@kernel(few_rows=0)
def _has_finished(board: Board, log: Log) -> bool:
    """Whether a page in a frame is done, forgetting those that have left already."""
    while log.queue[0] < log.queue[1] and board.place[log.finished[log.queue[0]]] < 0:
        log.queue[0] += 1
    return bool(log.queue[0] < log.queue[1])


@kernel(few_rows=0)
def _finished(board: Board, log: Log) -> Int:
    """The page in a frame that was done first, or NOBODY."""
    if not _has_finished(board, log):
        return NOBODY
    log.queue[0] += 1
    return log.finished[log.queue[0] - 1]
