"""Lookahead: the frames hold any mix of pages, and the whole layout is known in advance.

Three searches, each good where the others are not; the best result counts, polished:

    beam       each load is chosen for the pairs it completes               (`beam.py`)
    groups     the same for groups of pages, when there are many            (`grouped.py`)
    sidestep   crabstep, also with the sides exchanged, or with the pages
               in another order where the layout is no staircase            (`straighten.py`)

The beam is as wide as the time to plan allows: small layouts get a thorough search, large ones
greedy passes, the largest crabstep and groups alone.  What a search costs is estimated beforehand,
from numbers and not by a clock, so that the same layout always gets the same schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .beam import EXPONENT, TIE_BREAK, beam
from .board import NOBODY, Graph, board_of, graph_of
from .crabstep import crabstep
from .grouped import carried_out, grouped
from .polish import polish
from .reach import Int32s, Reach
from .straighten import PAIRS_MAX, is_staircase, straightened

Moves = tuple[Int32s, Int32s]

EFFORT_PER_LOAD = 4e3
EFFORT_LEAST = 2.5e6
EFFORT_MAX = 5e7
"""What may be spent on a beam for each page that has to be read, and on any search at least and at
most.  A unit is a look at one partner of one page in a frame, 20 to 80 ns, so that planning a read
costs about as much as making it, small layouts up to some hundred ms, large ones seconds."""
WIDTH_MAX = 1024
GREEDY_EXPONENTS = (0.1, 0.05, 0.3)
"""One pass is at the mercy of its ties: 2,508 to 2,766 reads on a band of 600 pages with 201
partners each in 64 frames.  The best of three costs little."""
SMALL_SEARCHES = ((0.5, TIE_BREAK), (1.0, 0.0))
"""Exponents and tie-breaks that are better in wide beams, which only small layouts can afford: 47
reads instead of 51 on a band of 14 pages with nine partners each in four frames, and 18 instead of
19 where ten pages all meet each other in four frames."""
SMALL_PAIRS_MAX = 300
GROUP_FRAMES = (8, 12, 16)
WIDE, LARGE_PAIRS = 7, 20_000
"""Where a page meets so many times more pages than there are frames, crabstep is near the optimum
and no search has found less.  Small layouts are searched all the same."""
NEARLY = 1.03
"""So close to one read for each page, a large layout is not searched any further."""
POLISH_EACH_MAX, POLISH_BEST_MAX = 6e6, 3e7
"""Every result is polished while a round costs some 50 ms at most, beyond that the best alone."""


def lookahead(reach: Reach, graph: Graph, frames: int) -> tuple[Moves, str]:
    """The moves, and which search found them."""
    if graph.pairs == 0:
        return (np.empty(0, np.int32), np.empty(0, np.int32)), "looking: nothing meets"
    enough = int((graph.degree > 0).sum())
    enough = int(NEARLY * enough) if graph.pairs > LARGE_PAIRS else enough
    found: list[tuple[Moves, str]] = []
    for moves, name in _searches(reach, graph, frames):
        is_cheap = _polishing(graph, frames, moves) <= POLISH_EACH_MAX
        found.append((polish(graph, frames, *moves) if is_cheap else moves, name))
        if len(found[-1][0][0]) <= enough:
            break
    moves, name = min(found, key=lambda one: len(one[0][0]))
    if _polishing(graph, frames, moves) <= POLISH_BEST_MAX:
        moves = polish(graph, frames, *moves)
    return moves, name


def _polishing(graph: Graph, frames: int, moves: Moves) -> float:
    """What a round of polishing costs: a look at every visit, and one at every frame a load."""
    return 2.0 * graph.pairs + len(moves[0]) * frames


def _searches(reach: Reach, graph: Graph, frames: int) -> Iterator[tuple[Moves, str]]:
    yield from _sidesteps(reach, graph, frames)
    if graph.pairs > LARGE_PAIRS and _partners(graph) > WIDE * frames:
        return
    yield from _greedy_passes(graph, frames)
    for few in GROUP_FRAMES:
        if frames >= 2 * few:
            yield from _in_groups(reach, graph, frames, frames // few)
    yield from _wide_beams(graph, frames)


def _greedy_passes(graph: Graph, frames: int) -> Iterator[tuple[Moves, str]]:
    """One for each exponent, as long as they are affordable."""
    each = _effort(graph, frames)
    for number, exponent in enumerate(GREEDY_EXPONENTS, 1):
        if each <= EFFORT_MAX / number**2:
            yield beam(graph, frames, 1, exponent), "a greedy pass"


def _wide_beams(graph: Graph, frames: int) -> Iterator[tuple[Moves, str]]:
    affordable = EFFORT_LEAST + EFFORT_PER_LOAD * _loads(graph, frames)
    width = int(affordable / (_effort(graph, frames) + _copying(graph, frames)))
    width = min(width, WIDTH_MAX)
    if width > 1:
        is_small = graph.pairs <= SMALL_PAIRS_MAX
        for exponent, tie_break in SMALL_SEARCHES if is_small else [(EXPONENT, TIE_BREAK)]:
            yield beam(graph, frames, width, exponent, tie_break), f"a beam of {width}"


def _in_groups(reach: Reach, graph: Graph, frames: int, size: int) -> Iterator[tuple[Moves, str]]:
    """The best plan for the groups, carried out."""
    coarse = graph_of(grouped(reach, size))
    few = frames // size
    searches = [*_greedy_passes(coarse, few), *_wide_beams(coarse, few)]
    polished = [(polish(coarse, few, *moves), name) for moves, name in searches]
    if polished:
        moves, name = min(polished, key=lambda found: len(found[0][0]))
        board = board_of(graph, frames)
        yield carried_out(board, reach, size, frames, moves), f"{name} over groups of {size}"


def _loads(graph: Graph, frames: int) -> float:
    """About how many pages will be read: each once, and one more for as many pairs as fit."""
    return len(graph.degree) + graph.pairs / max(frames - 1, 1)


def _effort(graph: Graph, frames: int) -> float:
    """What a greedy pass costs: loads, times pages in frames, times partners of each."""
    return _loads(graph, frames) * min(frames, len(graph.degree)) * _partners(graph)


def _partners(graph: Graph) -> float:
    """Partners of a page in a frame: those with many stay there for long, so this is the average
    over the pairs and not over the pages."""
    degree = graph.degree.astype(np.float64)
    return float((degree**2).sum() / max(degree.sum(), 1))


def _copying(graph: Graph, frames: int) -> float:
    """What it costs to carry one more board along."""
    return _loads(graph, frames) * (graph.pairs + 12 * len(graph.degree)) / 100


def _sidesteps(reach: Reach, graph: Graph, frames: int) -> Iterator[tuple[Moves, str]]:
    yield crabstep(graph, frames)[:2], "crabstep, polished"
    if reach.is_self:
        return
    yield _exchanged(reach, graph, frames), "crabstep with the sides exchanged"
    if reach.pairs <= PAIRS_MAX and not is_staircase(reach):
        moved, was = straightened(reach)
        graph = graph_of(moved)
        for moves in (
            crabstep(graph, frames)[:2],
            _exchanged(moved, graph, frames),
        ):
            yield _renamed(moves, was), "crabstep over the pages in another order"


def _exchanged(reach: Reach, graph: Graph, frames: int) -> Moves:
    """Crabstep that holds left pages and streams right ones."""
    lefts, rights = reach.left_pages, reach.right_pages
    back = slice(graph.starts[lefts], None)
    owners = np.repeat(np.arange(rights), np.diff(graph.starts[lefts:]))
    edges = np.stack((graph.first[back], graph.limit[back]), 1).astype(np.int64)
    other = Reach.from_intervals(owners, edges, rights, lefts)
    moves = crabstep(graph_of(other), frames)[:2]
    return _renamed(moves, np.roll(np.arange(lefts + rights, dtype=np.int32), -lefts))


def _renamed(moves: Moves, was: Int32s) -> Moves:
    """The moves of a layout in another order, in terms of the nodes as they were."""
    nodes, victims = moves
    return was[nodes], np.where(victims == NOBODY, NOBODY, was[victims]).astype(np.int32)
