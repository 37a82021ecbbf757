"""Survivors: the best pairs of finished probe pages, until their base rows are gathered.

               base pages, a chunk of frames at a time
    probe    ┌────────┬────────┬────────┐     a page that is finished while the pages it meets are
    pages    │ ■ ■    │  ■     │      ■ │     gone puts its pairs down, by base page; after the walk
             │   ■ ■  │ ■      │ ■ ■    │     the base pages of a chunk are held while the probe
             └────────┴────────┴────────┘     pages that have pairs there pass by

Reading the base rows for each probe page by itself reads nearly every page that it met once more.
By chunks it is each base page once, and each probe page once a chunk: 2,295 reads of the whole join
instead of 42,501 (lookahead, 98 pages a side that all meet, in 4 MiB).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .candidates import Candidates
from .pairfile import PairFile, Run

ROW_BITS = 32
"""A base row is a number: its page's, and below these bits its own on the page."""


class _Lot(NamedTuple):
    page: int
    run: Run
    ends: int  # where the places are at which each chunk of the run begins


class Survivors:
    """Pairs by probe page and chunk of base pages."""

    def __init__(self, pages: int, chunk_pages: int, scratch: str | Path | None) -> None:
        self._chunk_pages = chunk_pages
        self._chunks = -(-pages // chunk_pages)
        self._file = PairFile("best pairs", scratch)
        self._lots: list[_Lot] = []

    def add(self, page: int, found: Candidates) -> None:
        """The best pairs of some rows of a probe page."""
        found = found.take(np.lexsort((found.probe, found.base >> ROW_BITS)))
        chunks = (found.base >> ROW_BITS) // self._chunk_pages
        ends = np.searchsorted(chunks, np.arange(self._chunks + 1))
        run = self._file.write(found)
        self._lots.append(_Lot(page, run, self._file.write_numbers(ends)))

    def chunks(self) -> Iterator[Iterator[tuple[int, Candidates]]]:
        """For each chunk of base pages the probe pages that have pairs there, and the pairs."""
        for chunk in range(self._chunks):
            yield self._of(chunk)

    def _of(self, chunk: int) -> Iterator[tuple[int, Candidates]]:
        for page, run, ends in self._lots:
            first, limit = self._file.numbers(ends + 8 * chunk, 2).tolist()
            if first < limit:
                yield page, self._file.read(run, first, limit)

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
