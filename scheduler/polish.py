"""Polish: the same visits with fewer reads.

A schedule fixes an order of visits.  For a fixed order the best choice of who leaves is known: the
page that is needed furthest in the future (Belady 1966).  So the visits are taken as they are, each
load is made only when a visit needs it, and evictions are chosen anew:

    visits   L0·R0   L1·R0   L1·R1   L0·R1          three frames
    before   L0 R0 · L1 · R1<L0 · L0<R0              reads L0 twice
    after    L0 R0 · L1 · R1<R0 ·                    R0 is needed no more, L0 is

Pairs that now meet earlier than they did are visited earlier, which frees pages sooner; so it is
repeated while it helps.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

from .board import NOBODY, Board, Graph, board_of, evict, load
from .reach import Int, Int32s, Int64s

ROUNDS_MAX = 8


def polish(graph: Graph, frames: int, nodes: Int32s, victims: Int32s) -> tuple[Int32s, Int32s]:
    """Moves for the same pairs, at most as many as before."""
    for _ in range(ROUNDS_MAX):
        better = _polished(board_of(graph, frames), frames, nodes, victims)
        if len(better[0]) >= len(nodes):
            break
        nodes, victims = better
    return nodes, victims


@kernel(few_rows=0)
def _polished(board: Board, frames: Int, nodes: Int32s, victims: Int32s) -> tuple[Int32s, Int32s]:
    """One round."""
    pages, starts = _needed(board, nodes, victims)
    following = _following(pages, len(board.place))
    loads = np.empty(len(nodes), np.int32)
    leaving = np.empty(len(nodes), np.int32)
    resident = np.full(frames, NOBODY, np.int32)
    next_use = np.zeros(len(board.place), np.int64)
    place = np.full(len(board.place), NOBODY, np.int32)
    count = moves = 0
    for move in range(len(starts) - 1):
        for at in range(starts[move], starts[move + 1]):
            next_use[pages[at]] = -1  # needed now: it can't leave
        for at in range(starts[move], starts[move + 1]):
            node = pages[at]
            if place[node] != NOBODY:
                continue
            if moves == len(loads):  # no better than it was
                return loads, leaving
            victim, slot = NOBODY, count
            if count == frames:
                slot = _furthest(resident, next_use)
                victim = resident[slot]
                place[victim] = NOBODY
            else:
                count += 1
            resident[slot], place[node] = node, slot
            loads[moves], leaving[moves] = node, victim
            moves += 1
        for at in range(starts[move], starts[move + 1]):
            next_use[pages[at]] = following[at]
    return loads[:moves], leaving[:moves]


@kernel(few_rows=0)
def _needed(board: Board, nodes: Int32s, victims: Int32s) -> tuple[Int32s, Int64s]:
    """The pages that each move's visits need, one move after the other."""
    partners = np.empty(len(board.slots), np.int32)
    pages = np.empty(len(board.is_done) + len(nodes), np.int32)
    starts = np.zeros(len(nodes) + 1, np.int64)
    used = 0
    for move in range(len(nodes)):
        if victims[move] >= 0:
            evict(board, victims[move])
        found = load(board, nodes[move], partners)
        for at in range(found):
            if partners[at] != nodes[move]:
                pages[used] = partners[at]
                used += 1
        if found:
            pages[used] = nodes[move]
            used += 1
        starts[move + 1] = used
    return pages[:used], starts


@kernel(few_rows=0)
def _following(pages: Int32s, total: Int) -> Int64s:
    """Where each page is needed next; beyond the end for never."""
    following = np.empty(len(pages), np.int64)
    coming = np.full(total, len(pages) + 1, np.int64)
    for at in range(len(pages) - 1, -1, -1):
        following[at] = coming[pages[at]]
        coming[pages[at]] = at
    return following


@kernel(few_rows=0)
def _furthest(resident: Int32s, next_use: Int64s) -> Int:
    best = 0
    for slot in range(1, len(resident)):
        if next_use[resident[slot]] > next_use[resident[best]]:
            best = slot
    return best
