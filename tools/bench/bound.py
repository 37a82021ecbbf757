"""What no schedule can beat: three lower bounds on page reads, and the largest of them.

A layout is a graph.  Its nodes are pages, its edges are pairs of two pages: in a two-sided join
every edge has a left and a right end; in a self-join two pages are one edge, however often they
meet, and a page that meets itself is an edge to nowhere that takes no more than reading it.

    F   frames, at most as many as pages          P   edges
    N   reads of a schedule                       D   the most edges at one page

**pages**  A page that meets any is read at least once.

**pairs**  A read completes pairs only between the page that it brings and the others in frames.
The first F reads bring at most F pages, and among those there are at most ⌊F²/4⌋ edges in a
two-sided join and F·(F − 1)/2 in a self-join.  Each later read completes at most F − 1 pairs, and
at most as many as its page has.  Of N reads, one for each of n pages is its first and the other
N − n are not, so with c = min(F − 1, degree) for each page

    P  ≤  edges among F pages + Σ c without the F smallest + (N − n)·(F − 1)

as it is best to have the smallest among the first F reads.  N is at least the first number, from n
on, that fits.

**turns**  Two-sided joins only.  To complete many pairs with every read of a left page, many right
pages must be held; but none of them serves more than D reads, and when they are exchanged, those
that are held already gain nothing.  Let read t complete β(t) pairs, so that Σ β = P.  Consider what
a page in a frame, between one read of it and its eviction, gets out of being there:

    f   reads of the other side that complete a pair with it            Σ f = P,  f ≤ D
    s   reads of its own side, its own among them                       s ≥ 1

1.  Σ (s + f) ≤ F·N − F·(F − 1)/2.  Every read finds at most F pages in frames, itself included, and
    the k-th at most k; each of them counts it in s or in f, or in neither.
2.  2·D·Σ (s − 1) ≥ Σ β·(β − 1).  Take a read t that completes β pairs: its β partners are all of
    one side and came one after the other, so up to t the last of them has seen no other read of its
    own side, the one before it one, and so on: β·(β − 1)/2 together.  Summed over all t, each stay
    appears f times with at most s − 1, so Σ β·(β − 1)/2 ≤ Σ f·(s − 1) ≤ D·Σ (s − 1).
3.  Σ β² ≥ P²/N, whatever the β are.  Together, with Σ s = N + Σ (s − 1):

    P + N + (P²/N − P) / (2·D)  ≤  F·N − F·(F − 1)/2

With N taken to the right, the left side falls with N and the right side grows, so N is at least the
first number that fits.  In a self-join there are no sides and 2 does not hold: a page that
comes can meet all that are held.

None of the three is always reached: the best schedules that are known of the small layouts in
`layouts.py` need up to 1.3 times as many reads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from matwin.scheduler import Reach
from matwin.scheduler.board import Graph, graph_of
from matwin.scheduler.reach import Int64s


class Bound(NamedTuple):
    """The three bounds."""

    pages: int
    pairs: int
    turns: int

    @property
    def reads(self) -> int:
        """The largest: no schedule reads fewer pages."""
        return max(self)

    @property
    def name(self) -> str:
        """Which of them is the largest; the simplest of equals."""
        return self._fields[self.index(self.reads)]


def bound_of(reach: Reach, frames: int) -> Bound:
    """The bounds for a layout in so many frames.

    >>> bound_of(Reach.of([(max(i - 2, 0), min(i + 3, 7)) for i in range(7)]), 4)
    Bound(pages=14, pairs=14, turns=13)
    """
    graph = graph_of(reach)
    pages = int((graph.degree > 0).sum())
    degree = _degrees(reach, graph)
    edges = int(degree.sum()) // 2
    frames = min(frames, pages)
    if edges == 0:
        return Bound(pages, pages, 0)
    pairs = _pairs_bound(degree, edges, pages, frames, is_self=reach.is_self)
    turns = 0 if reach.is_self else _turns_bound(int(degree.max()), edges, frames)
    return Bound(pages, pairs, turns)


def _degrees(reach: Reach, graph: Graph) -> Int64s:
    """How many others each page meets."""
    if not reach.is_self:
        return graph.degree
    meets_itself = np.zeros(len(graph.degree), np.int64)
    owners = reach.owners
    is_within = (reach.first <= owners) & (owners < reach.limit)
    meets_itself[owners[is_within]] = 1
    return graph.degree - meets_itself


def _pairs_bound(degree: Int64s, edges: int, pages: int, frames: int, *, is_self: bool) -> int:
    among = frames * (frames - 1) // 2 if is_self else frames * frames // 4
    worth = np.sort(np.minimum(degree, frames - 1))[len(degree) - pages :]
    missing = edges - among - int(worth[frames:].sum())
    return pages + max(-(-missing // (frames - 1)), 0)


def _turns_bound(most: int, edges: int, frames: int) -> int:
    low, high = frames, 2 * edges  # two reads for each pair always do
    while low < high:
        reads = (low + high) // 2
        room = (frames - 1) * reads - frames * (frames - 1) // 2 - edges
        if 2 * most * room * reads >= edges * edges - edges * reads:
            high = reads
        else:
            low = reads + 1
    return low
