"""Slots: the blocks of the pages that a walk holds, side by side in one set of arrays.

    slot    0         1         2         3
    arrays │ page 7 ░│ page 2  │ page 9 ░│ page 4  │     ░ room of pages with fewer rows
           └ piece ┘         └ piece ┘               one kernel call with pages 7 and 9

A page's block is made when the page is first met and stays until the walk lets the page go, so a
visit computes and copies nothing.  Pages of any runs are judged in one call: a piece for each of
them, where concatenating would copy them again for every set of pages that come together.

Both sides share the slots, because their blocks have the same columns: a walk holds no more pages
than it has frames, whatever sides they are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matwin.storage.columns import Int64s
from matwin.storage.frame import Pinned

from .block import Block, Blocks, offsets
from .judge import Judge, Offsets


@dataclass(frozen=True, slots=True)
class Placed:
    """A page's block, and where it begins; a probe page's reach beside it."""

    start: int
    block: Block
    reach: Offsets | None


class Slots:
    """Room for the blocks of so many pages of so many rows."""

    def __init__(self, judge: Judge, slots: int, rows: int) -> None:
        self._judge = judge
        self._rows = rows
        self._pages: list[Pinned | None] = [None] * slots
        self._next = 0
        axes = len(judge.base.grid.axes)
        integers, floats = len(judge.terms.int_bounds), len(judge.terms.float_bounds)
        self._all = Block(
            np.empty((slots * rows, axes), np.int64), np.empty(slots * rows, np.int64),
            np.empty((slots * rows, integers), np.int64), np.empty((slots * rows, floats)),
            np.empty(slots * rows * judge.base.ties.columns, np.int64),
        )  # fmt: skip

    def probe(self, page: Pinned) -> Placed:
        """The block of a probe page."""
        return self._placed(page, self._judge.probe, is_probe=True)

    def base(self, pages: Sequence[Pinned]) -> tuple[Block, Int64s]:
        """Base pages as one block, and where each of them begins in it.  The pages are put in the
        order of their slots first: see `in_order`."""
        placed = [self._base(page) for page in pages]
        starts = np.array([one.start for one in placed])
        rows = np.array([one.block.rows for one in placed])
        first, limit = int(starts[0]), int(starts[-1] + rows[-1])
        starts -= first
        one = self._stretch(first, limit)
        pieces = np.column_stack((starts, starts + rows))
        return replace(one, pieces=pieces), starts

    def in_order(self, pages: Sequence[Pinned]) -> list[int]:
        """The places of base pages in the order of their slots."""
        return sorted(range(len(pages)), key=lambda at: self._base(pages[at]).start)

    def _base(self, page: Pinned) -> Placed:
        return self._placed(page, self._judge.base, is_probe=False)

    def _placed(self, page: Pinned, blocks: Blocks, *, is_probe: bool) -> Placed:
        if page.block is None:
            made = blocks.of(page.batch)
            start = self._free(page) * self._rows
            block = self._stretch(start, start + made.rows)
            for name in ("cells", "order", "ints", "floats"):
                getattr(block, name)[:] = getattr(made, name)
            if not is_probe:
                block.ranks[:] = made.ranks
            reach = offsets(blocks, block, block) if is_probe else None
            page.block = Placed(start, block, reach)
        placed: Placed = page.block
        return placed

    def _free(self, page: Pinned) -> int:
        """A slot whose page has been let go; who came first mostly leaves first."""
        while (held := self._pages[self._next]) is not None and held.is_held:
            self._next = (self._next + 1) % len(self._pages)
        self._pages[self._next] = page
        return self._next

    def _stretch(self, start: int, limit: int) -> Block:
        own = self._all
        return Block(
            own.cells[start:limit], own.order[start:limit], own.ints[start:limit],
            own.floats[start:limit], own.ranks[start:limit],
        )  # fmt: skip
