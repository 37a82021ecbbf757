"""Gallop: column by column, the least recently used right page leaves.

One frame holds the left page; the others hold right pages:

      frames │ L │ R R R │        L2 meets R0 … R4, four frames:
             └─▲─┴─▲─────┘        R0 R1 R2 are there, R3 replaces R0, R4 replaces R1,
               │   oldest goes    and L3 has to read R1 again: thrashing
               the column

Optimal while everything that a left page meets fits the frames; beyond that, nearly every right
page is read again for every left page.  A left page is finished before the next one comes, which is
worth something to an operator that keeps partial results for it.

In a self-join the column's page keeps a frame and any page, former columns too, may fill the rest.
"""

from __future__ import annotations

import numpy as np

from matwin.storage.kernel import kernel

from .board import NOBODY, Graph
from .reach import Int, Int32s


def gallop(graph: Graph, frames: int) -> tuple[Int32s, Int32s]:
    """The moves: nodes to load, and the node that each replaces or NOBODY."""
    nodes, victims, count = _gallop(graph, frames, 2 * graph.pairs)
    return nodes[:count].copy(), victims[:count].copy()


@kernel(few_rows=0)
def _gallop(graph: Graph, frames: Int, moves_max: Int) -> tuple[Int32s, Int32s, int]:
    nodes = np.empty(moves_max, np.int32)
    victims = np.empty(moves_max, np.int32)
    total = len(graph.degree)
    # Resident partner pages from the oldest use to the newest, in a ring through the node `total`.
    older = np.full(total + 1, NOBODY, np.int32)
    newer = np.full(total + 1, NOBODY, np.int32)
    older[total] = newer[total] = total
    is_self = graph.left_nodes == 0
    moves, resident, column = 0, 0, NOBODY
    for owner in range(total):
        if graph.own_starts[owner] == graph.own_starts[owner + 1]:
            continue
        victim = NOBODY
        if is_self and newer[owner] != NOBODY:
            _unlink(older, newer, owner)
        else:
            if not is_self:
                victim, column = column, owner
            elif resident == frames:
                victim = _oldest(older, newer)
                resident -= 1
            nodes[moves], victims[moves] = owner, victim
            moves, resident = moves + 1, resident + int(victim < 0 or is_self)
        for k in range(graph.own_starts[owner], graph.own_starts[owner + 1]):
            for partner in range(graph.own[k, 0], graph.own[k, 1]):
                if partner == owner:
                    continue
                if newer[partner] != NOBODY:
                    _unlink(older, newer, partner)
                else:
                    victim = NOBODY
                    if resident == frames:
                        victim = _oldest(older, newer)
                        resident -= 1
                    nodes[moves], victims[moves] = partner, victim
                    moves, resident = moves + 1, resident + 1
                _link(older, newer, partner)
        if is_self:
            _link(older, newer, owner)
    return nodes, victims, moves


@kernel(few_rows=0)
def _link(older: Int32s, newer: Int32s, node: Int) -> None:
    """The node becomes the newest."""
    end = len(newer) - 1
    older[node], newer[node] = older[end], end
    newer[older[end]] = node
    older[end] = node


@kernel(few_rows=0)
def _unlink(older: Int32s, newer: Int32s, node: Int) -> None:
    newer[older[node]], older[newer[node]] = newer[node], older[node]
    newer[node] = older[node] = NOBODY


@kernel(few_rows=0)
def _oldest(older: Int32s, newer: Int32s) -> Int:
    """The oldest leaves; the column's own page is not in the ring."""
    node = newer[len(newer) - 1]
    _unlink(older, newer, node)
    return node
