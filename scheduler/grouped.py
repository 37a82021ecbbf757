"""Groups: plan for groups of neighbouring pages, then for the pages in them.

With hundreds of frames a choice of one page hardly matters, but there are many to make. Pages are
therefore taken in groups, planned as if each group were a page and each group of frames a frame,
and the group moves are then carried out page by page:

    pages   0 1 2 | 3 4 5 | 6 7 8         12 frames: 4 groups of 3
    groups    A   |   B   |   C           load C for A:  6 for 0, 7 for 1, 8 for 2

Pages of a group that are done already are not loaded, and frames that the division leaves over keep
pages a little longer.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

from .board import NOBODY, Board, UInt8s, evict, load
from .reach import Int, Int32s, Int64s, Reach


def grouped(reach: Reach, size: int) -> Reach:
    """The reach of groups of `size` pages.

    >>> grouped(Reach.of([(0, 2), (0, 3), (1, 4), (2, 4)]), 2).triples()
    [(0, 0, 2), (1, 0, 2)]
    """
    edges = np.stack((reach.first // size, -(-reach.limit // size)), 1).astype(np.int64)
    lefts, rights = -(-reach.left_pages // size), -(-reach.right_pages // size)
    return Reach.from_intervals(reach.owners // size, edges, lefts, rights, is_self=reach.is_self)


def carried_out(
    board: Board, reach: Reach, size: int, frames: int, moves: tuple[Int32s, Int32s]
) -> tuple[Int32s, Int32s]:
    """The pages' moves that carry out the groups' moves on an empty board."""
    lefts = reach.left_pages
    groups = np.concatenate((
        np.arange(lefts) // size,
        np.arange(0 if reach.is_self else reach.right_pages) // size + -(-lefts // size),
    )).astype(np.int32)  # fmt: skip
    starts = np.searchsorted(groups, np.arange(int(groups[-1]) + 2)).astype(np.int64)
    return _carried_out(board, groups, starts, frames, *moves)


@kernel(few_rows=0)
def _carried_out(
    board: Board, groups: Int32s, starts: Int64s, frames: Int, loads: Int32s, victims: Int32s
) -> tuple[Int32s, Int32s]:
    total = 0
    for move in range(len(loads)):
        total += starts[loads[move] + 1] - starts[loads[move]]
    nodes = np.empty(total, np.int32)
    leaving = np.empty(total, np.int32)
    partners = np.empty(len(board.slots), np.int32)
    is_here = np.zeros(len(starts) - 1, np.uint8)
    made = 0
    for move in range(len(loads)):
        if victims[move] >= 0:
            is_here[victims[move]] = 0
        is_here[loads[move]] = 1
        for node in range(starts[loads[move]], starts[loads[move] + 1]):
            if board.to_do[node] == 0 or board.place[node] >= 0:
                continue
            victim = NOBODY
            if board.in_use[0] == frames:
                victim = _dispensable(board, groups, is_here)
                evict(board, victim)
            load(board, node, partners)
            nodes[made], leaving[made] = node, victim
            made += 1
    return nodes[:made].copy(), leaving[:made].copy()


@kernel(few_rows=0)
def _dispensable(board: Board, groups: Int32s, is_here: UInt8s) -> Int:
    """A page that is done, or else one whose group has left."""
    gone = NOBODY
    for at in range(board.in_use[0]):
        node = board.slots[at]
        if board.to_do[node] == 0:
            return node
        if not is_here[groups[node]]:
            gone = node
    return gone
