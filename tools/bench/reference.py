"""A reference: a plain, wide beam search for few page reads, on layouts of up to 64 pages.

It shares nothing with the planner but the layout.  A board is a few bit masks: which pages are in
frames, and for each page the partners that it has still to meet.

    level 0         the empty board
    level k + 1     every board of level k, with every page that may come and every one that may go;
                    of those boards that differ, the `width` with the lowest score

    score           pairs to do / (frames - 1)  +  weight × pages not done
                                                +  another × those of them that are in no frame

A page that is done leaves before any other, as nothing can be lost by it.  Each level is one more
read, so the first board with nothing to do has the count.  What it finds is the cost of a schedule
that exists, hence never below the optimum; how far above, nobody knows, but it is the optimum on
all layouts that are small enough to try everything (`tests/tools/test_bench_schedule.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from matwin.scheduler import Reach
from matwin.storage.errors import InputError
from matwin.storage.kernel import kernel

PAGES_MAX = 64
WIDTH = 4_000
WEIGHTS = ((0, 2), (0, 4), (4, 0), (2, 2))
"""In quarters: of a page that is not done, and of one that is in no frame either.  None is the best
on all layouts, so all are tried: on bands of 14 pages they differ by up to a tenth."""
NOBODY = -1

Masks = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


class Boards(NamedTuple):
    """The boards of one level."""

    in_frames: Masks  # a bit for each page
    to_do: Masks  # a row for each board, a mask of partners for each page
    mark: Masks  # equal for equal boards


class Moves(NamedTuple):
    """What may come next: on which board, what comes, what goes, and what that leads to."""

    board: Ints
    page: Ints
    victim: Ints
    score: Ints
    mark: Masks


def reference_reads(reach: Reach, frames: int, width: int = WIDTH) -> int:
    """The fewest page reads that the search finds.

    >>> reference_reads(Reach.of([(max(i - 2, 0), min(i + 3, 7)) for i in range(7)]), 4)
    16
    """
    partners, alone = partners_of(reach)
    reads = 2 * sum(int(mask).bit_count() for mask in partners) + 1
    for weights in WEIGHTS:
        reads = min(reads, _search(partners, min(frames, len(partners)), width, weights, reads))
    return reads + alone


def partners_of(reach: Reach) -> tuple[Masks, int]:
    """For each page a mask of those that it meets; and how many meet nobody but themselves, which
    takes one read whenever there is a frame."""
    lefts = reach.left_pages
    pages = lefts if reach.is_self else lefts + reach.right_pages
    if pages > PAGES_MAX:
        raise InputError(f"{pages} pages: the reference search takes at most {PAGES_MAX}")
    offset = 0 if reach.is_self else lefts
    masks = [0] * pages
    for left, first, limit in reach.triples():
        for right in range(first + offset, limit + offset):
            masks[left] |= 1 << right
            masks[right] |= 1 << left
    alone = sum(mask == 1 << page for page, mask in enumerate(masks))
    others = [mask & ~(1 << page) for page, mask in enumerate(masks)]
    return np.array(others, np.uint64), alone


@kernel(few_rows=0)
def _search(partners: Masks, frames: int, width: int, weights: tuple[int, int], limit: int) -> int:
    """The reads that a beam of this width needs, or `limit` if it needs as many."""
    pages = len(partners)
    boards = _boards(width, pages)
    others = _boards(width, pages)
    boards.to_do[0] = partners
    moves = _moves(width * pages * max(frames, 1))
    alive, reads = 1, 0
    while not _is_done(boards, alive):
        reads += 1
        if reads >= limit:
            return limit
        count = 0
        for board in range(alive):
            count = _expand(boards, board, frames, weights, moves, count)
        chosen = _best(moves, count, width)
        for to in range(len(chosen)):
            _make(boards, moves, chosen[to], others, to)
        alive = len(chosen)
        boards, others = others, boards
    return reads


@kernel(few_rows=0)
def _boards(width: int, pages: int) -> Boards:
    return Boards(
        np.zeros(width, np.uint64), np.zeros((width, pages), np.uint64), np.zeros(width, np.uint64)
    )


@kernel(few_rows=0)
def _moves(room: int) -> Moves:
    return Moves(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.uint64),
    )


@kernel(few_rows=0)
def _is_done(boards: Boards, alive: int) -> bool:
    for board in range(alive):  # noqa: SIM110  (Numba has no generators)
        if not boards.to_do[board].any():
            return True
    return False


@kernel(few_rows=0)
def _expand(
    boards: Boards, board: int, frames: int, weights: tuple[int, int], moves: Moves, count: int
) -> int:
    """Every move from a board, put into `moves` from `count` on; where they end."""
    here, to_do = boards.in_frames[board], boards.to_do[board]
    ends, unfinished, absent, finished = 0, 0, 0, NOBODY
    for page in range(len(to_do)):
        ends += _bits(to_do[page])
        unfinished += int(to_do[page] != 0)
        absent += int(to_do[page] != 0 and not _has(here, page))
        if to_do[page] == 0 and _has(here, page):
            finished = page
    is_full = _bits(here) == frames
    for page in range(len(to_do)):
        if _has(here, page) or to_do[page] == 0:
            continue
        for victim in range(NOBODY, len(to_do)):
            if not is_full:
                if victim != NOBODY:
                    break
            elif finished != NOBODY:
                if victim != finished:
                    continue
            elif victim == NOBODY or not _has(here, victim):
                continue
            stays = here if victim == NOBODY else here & ~_bit(victim)
            met = to_do[page] & stays
            pairs = ends // 2 - _bits(met)
            not_done = unfinished - _finishing(to_do, page, met)
            in_no_frame = absent - 1 + int(victim != NOBODY and victim != finished)
            weighed = weights[0] * not_done + weights[1] * in_no_frame
            moves.board[count], moves.page[count], moves.victim[count] = board, page, victim
            moves.score[count] = 4 * pairs + (frames - 1) * weighed
            moves.mark[count] = _mark_after(boards.mark[board], page, victim, met)
            count += 1
    return count


@kernel(few_rows=0)
def _finishing(to_do: Masks, page: int, met: np.uint64) -> int:
    """How many pages are done when a page meets these."""
    count = int(to_do[page] == met)
    while met:
        count += int(to_do[_lowest(met)] == _bit(page))
        met &= met - np.uint64(1)
    return count


@kernel(few_rows=0)
def _mark_after(mark: np.uint64, page: int, victim: int, met: np.uint64) -> np.uint64:
    mark ^= _hash(page, page)
    if victim != NOBODY:
        mark ^= _hash(victim, victim)
    while met:
        other = _lowest(met)
        mark ^= _hash(min(page, other), max(page, other))
        met &= met - np.uint64(1)
    return mark


@kernel(few_rows=0)
def _best(moves: Moves, count: int, width: int) -> Ints:
    """The moves with the lowest scores that lead to different boards."""
    order = _by_score(moves.score[:count])
    room = 1
    while room < 4 * width:
        room *= 2
    table = np.full(room, -1, np.int64)
    chosen = np.empty(width, np.int64)
    found = 0
    for move in order:
        at = np.int64(moves.mark[move] & np.uint64(room - 1))
        while table[at] >= 0 and moves.mark[table[at]] != moves.mark[move]:
            at = (at + 1) & (room - 1)
        if table[at] < 0:
            table[at] = move
            chosen[found] = move
            found += 1
            if found == width:
                break
    return chosen[:found]


@kernel(few_rows=0)
def _by_score(score: Ints) -> Ints:
    """The places of the scores in ascending order; equal ones as they come."""
    starts = np.zeros(score.max() + 2, np.int64)
    for value in score:
        starts[value + 1] += 1
    starts = np.cumsum(starts)
    order = np.empty(len(score), np.int64)
    for at in range(len(score)):
        order[starts[score[at]]] = at
        starts[score[at]] += 1
    return order


@kernel(few_rows=0)
def _make(boards: Boards, moves: Moves, move: int, others: Boards, to: int) -> None:
    """Put what a move leads to in place `to` of the other boards."""
    board, page, victim = moves.board[move], moves.page[move], moves.victim[move]
    here = boards.in_frames[board]
    if victim != NOBODY:
        here &= ~_bit(victim)
    met = boards.to_do[board, page] & here
    for other in range(boards.to_do.shape[1]):
        left = boards.to_do[board, other]
        others.to_do[to, other] = left & ~_bit(page) if _has(met, other) else left
    others.to_do[to, page] &= ~met
    others.in_frames[to] = here | _bit(page)
    others.mark[to] = moves.mark[move]


@kernel(few_rows=0)
def _bit(page: int) -> np.uint64:
    return np.uint64(1) << np.uint64(page)


@kernel(few_rows=0)
def _has(mask: np.uint64, page: int) -> bool:
    return bool((mask >> np.uint64(page)) & np.uint64(1))


@kernel(few_rows=0)
def _lowest(mask: np.uint64) -> int:
    """The place of the lowest bit."""
    return _bits((mask & (~mask + np.uint64(1))) - np.uint64(1))


@kernel(few_rows=0)
def _bits(mask: np.uint64) -> int:
    """How many bits are set."""
    mask -= (mask >> np.uint64(1)) & np.uint64(0x5555555555555555)
    low = np.uint64(0x3333333333333333)
    mask = (mask & low) + ((mask >> np.uint64(2)) & low)
    mask = (mask + (mask >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((mask * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel(few_rows=0)
def _hash(one: int, other: int) -> np.uint64:
    """Well mixed bits for a pair of pages."""
    mixed = np.uint64(one * 64 + other + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))
