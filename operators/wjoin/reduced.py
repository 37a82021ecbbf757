"""Rows of the root and only what they can meet: for pages that meet more than the frames hold.

    root rows ──▶ the rows of b within their windows ─┐
              ──▶ the rows of c within their windows ─┴─▶ joined in memory

Every page of the other streams is read once for a lot of root pages, and of each only the rows are
kept that some root row can meet, in key and time.  Where these take more than there is room for,
half of the root's rows go first; a few that meet too much are judged page by page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from matwin.sizes import batch_bytes
from matwin.storage.arrays import arrow

from .block import BYTES_PER_ROW, Block, joined
from .output import Output
from .parts import SORTING_BYTES, OnPage
from .pipeline import Pipeline
from .pipeline import Reach as Candidates
from .reaches import BlockRef, InMemory, MergeReach, merged

PAGES_MAX = 64
"""Root pages that are joined to one block at most."""
FEW_ROWS = 256
"""So many are judged page by page together: fewer would read as many pages for less."""
CAPACITY = 1 << 14
"""Candidates that are looked at together."""


class TooMuch(Exception):
    """What some rows can meet does not fit."""


class Reduced:
    """The tuples of some pages of the root, in so many bytes."""

    def __init__(self, pipeline: Pipeline, lots: Sequence[Sequence[OnPage]], room: int) -> None:
        self._pipeline = pipeline
        self._root = pipeline.root
        self._lots = lots
        self._room = room

    def tuples(self, output: Output) -> Iterator[pa.RecordBatch]:
        """All of them."""
        pages = list(self._lots[self._root])
        while pages:
            with ExitStack() as stack:
                blocks: list[Block] = []
                size = 0
                while pages and (not blocks or size + pages[0].ref.size <= self._room // 4):
                    size += pages[0].ref.size
                    blocks.append(stack.enter_context(pages.pop(0).pinned()))
                    if len(blocks) == PAGES_MAX:
                        break
                for block in joined(blocks):
                    yield from self._of(block, output)

    def _of(self, root: Block, output: Output) -> Iterator[pa.RecordBatch]:
        reaches: dict[int, Candidates]
        others = [i for i in range(len(self._lots)) if i != self._root]
        try:
            met = {i: self._met(root, i) for i in others}
        except TooMuch:
            if len(root) > FEW_ROWS:
                middle = len(root) // 2
                yield from self._of(_slice(root, 0, middle), output)
                yield from self._of(_slice(root, middle, len(root)), output)
                return
            refs: dict[int, Sequence[BlockRef]] = {i: self._lots[i] for i in others}
        else:
            refs = {i: [InMemory(block)] if block else [] for i, block in met.items()}
        if all(refs.values()):
            reaches = {i: MergeReach(own) for i, own in refs.items()}
            rows = np.arange(len(root))
            for seen, found in self._pipeline.run(root, rows, reaches, output.capacity):
                yield from output.batches(seen, found)

    def _met(self, root: Block, stream: int) -> Block | None:
        """The rows of a stream that some of the root's rows can meet, in order."""
        kept: list[pa.RecordBatch] = []
        size = rows = 0
        for batch in self._rows(root, stream):
            kept.append(batch)
            rows += batch.num_rows
            size += batch_bytes(batch)
            # As they came, sorted, and numbers.
            if 2 * size + rows * (BYTES_PER_ROW + SORTING_BYTES) > self._room // len(self._lots):
                raise TooMuch
        if not kept:
            return None
        return self._lots[stream][0].blocks.sorted_page(pa.concat_batches(kept))

    def _rows(self, root: Block, stream: int) -> Iterator[pa.RecordBatch]:
        probe = self._pipeline.probe(stream, {self._root: root}, {self._root: np.arange(len(root))})
        for page, first, limit in MergeReach(self._lots[stream]).reached(probe):
            with page.pinned() as block:
                is_met = np.zeros(len(block), np.bool_)
                for _, rows in merged(block, probe, first, limit, CAPACITY):
                    is_met[rows] = True
                if is_met.any():
                    yield block.rows.take(arrow(np.flatnonzero(is_met)))


def _slice(block: Block, first: int, limit: int) -> Block:
    second = block.second[first:limit] if block.second is not None else None
    rows = block.rows.slice(first, limit - first)
    return Block(rows, block.times[first:limit], block.keys[first:limit], second)
