"""Finite inputs on pages, joined key range by key range.

    runs of a     ├──── k 0..9 ────┤├── 9..17 ──┤      every run is sorted by key and time
                  ├── 0..7 ──┤├───── 8..18 ─────┤
    runs of b     ├─────── 0..12 ───────┤├ 13.. ┤
                  ─────────┼──────────┼──────────      cuts: what lies between two fits the memory
                     first     second     third

Nothing is merged: a range takes from every run the pages that it overlaps, of those the rows that
are its own, and is joined in memory as if it were all there is.  A page is read once for each range
that it overlaps.  Sorting the runs into one first would write and read everything once more, or
several times where there are many runs.

How much a range holds is reckoned from the pages' fences.  One that turns out too large is cut
again, at the middle of its keys.  A single key that is too large is sorted by time on pages of its
own and joined page by page, which fits any budget.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s
from matwin.storage.store import Store

from .block import BYTES_PER_ROW, Blocks
from .output import Output
from .paged import page_by_page
from .parts import SORTING_BYTES, MemoryPart, OnPage, PagedPart, needed_bytes
from .question import WindowQuestion
from .slabs import stepped

RANGE_SHARE = 0.6
"""How full a range should be: fences do not tell it exactly."""
FRAMES = 4
ROW_BYTES = BYTES_PER_ROW + SORTING_BYTES // 2
"""What a row takes beside itself when one of two streams is being sorted."""


@dataclass(frozen=True, slots=True)
class Range:
    """Keys from `first` to `last`, both included."""

    first: int
    last: int

    def halves(self, middle: int) -> tuple[Range, Range]:
        """The keys below `middle`, and those from there on."""
        return Range(self.first, middle - 1), Range(middle, self.last)


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one stream, and the keys they hold as arrays."""

    pages: Sequence[OnPage]
    firsts: Int64s
    lasts: Int64s

    @classmethod
    def of(cls, pages: Sequence[OnPage]) -> Pages:
        """Pages with their keys."""
        return cls(pages, *_spans(pages))


class TooLarge(Exception):
    """A range does not fit; `middle` is a key to cut it at."""

    def __init__(self, middle: int) -> None:
        super().__init__(middle)
        self.middle = middle


@dataclass(slots=True)
class Partitions:
    """Old and new rows of every stream, as runs in a store."""

    question: WindowQuestion
    blocks: Sequence[Blocks]
    output: Output
    store: Store
    bounds: str
    threads: int
    old: Sequence[Pages]
    new: Sequence[Pages]

    @property
    def pages(self) -> list[OnPage]:
        """All pages."""
        return [page for part in (*self.old, *self.new) for page in part.pages]

    def ranges(self) -> list[Range]:
        """Ranges of keys whose rows should fit the memory."""
        masses = [1.5 * page.ref.size + ROW_BYTES * page.rows for page in self.pages]
        return _ranges([page.key_range for page in self.pages], masses, RANGE_SHARE * self._room())

    def reads(self, ranges: Sequence[Range]) -> int:
        """How many page reads these ranges take."""
        firsts, lasts = _spans(self.pages)
        starts = np.array([r.first for r in ranges], np.int64)
        met = np.searchsorted(starts, lasts, "right") - np.searchsorted(starts, firsts, "right") + 1
        return int(met.sum())

    def joined(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row, range by range."""
        room = self._room()
        todo = list(ranges[::-1])
        while todo:
            keys = todo.pop()
            try:
                with self.store.pool.reserve(room + self.output.share_bytes):
                    yield from self._step(*self._loaded(keys, room))
            except TooLarge as e:
                if keys.first == keys.last:
                    yield from self._hot(keys)
                else:
                    todo += keys.halves(e.middle)[::-1]

    def _room(self) -> int:
        """What the rows of a range may take: all but what is written, output and a few frames."""
        pool = self.store.pool
        page_bytes = max([page.ref.size for page in self.pages], default=0)
        rest = pool.budget_bytes - pool.write_space - pool.held_bytes - self.output.share_bytes
        return rest - FRAMES * max(page_bytes, pool.file.page_size)

    def _loaded(self, keys: Range, room: int) -> tuple[list[MemoryPart], list[MemoryPart]]:
        """The rows of a range in memory, or `TooLarge`."""
        old, new = ([MemoryPart(b) for b in self.blocks] for _ in range(2))
        for parts, refs in ((old, self.old), (new, self.new)):
            for part, pages in zip(parts, refs, strict=True):
                for page in _within(pages, keys):
                    rows = page.rows_between(keys.first, keys.last)
                    part.append(rows, rows.nbytes)
                    if needed_bytes((*old, *new)) > room:
                        raise TooLarge(self._middle(keys, (*old, *new)))
        return old, new

    def _step(self, old: list[MemoryPart], new: list[MemoryPart]) -> Iterator[pa.RecordBatch]:
        counts = [o.rows + n.rows for o, n in zip(old, new, strict=True)]
        if all(counts):
            yield from stepped(
                self.question, [part.refs() for part in old], [part.refs() for part in new], counts,
                self.bounds, self.output, self.threads,
            )  # fmt: skip

    def _middle(self, keys: Range, parts: Sequence[MemoryPart]) -> int:
        """A key that halves what has been loaded, above the range's first."""
        blocks = (ref.block.keys for part in parts for ref in part.refs())
        found: Int64s = np.sort(np.concatenate(list(blocks)))
        middle = int(found[len(found) // 2])
        if middle == keys.first:  # the first key alone is half of it
            above = found[found > middle]
            middle = int(above[0]) if len(above) else keys.first + 1
        return middle

    def _hot(self, keys: Range) -> Iterator[pa.RecordBatch]:
        """The tuples of one key: its rows by time, on pages of their own, joined page by page."""
        with (
            self._sorted_by_time(keys, self.old) as old,
            self._sorted_by_time(keys, self.new) as new,
        ):
            yield from page_by_page(
                self.question, old, new, self.output, self.store.pool, self.bounds
            )

    @contextmanager
    def _sorted_by_time(self, keys: Range, refs: Sequence[Pages]) -> Iterator[list[PagedPart]]:
        names = [f"hot {next(_numbers)}" for _ in self.blocks]
        try:
            parts = []
            for blocks, name, pages in zip(self.blocks, names, refs, strict=True):
                part = PagedPart(
                    blocks, self.store, name, materialize="standard", arrival="unsorted"
                )
                parts.append(part)
                for page in _within(pages, keys):
                    rows = page.rows_between(keys.first, keys.last)
                    part.append(rows.select(blocks.side.stored.names))
            yield parts
        finally:
            for name in names[: len(parts)]:
                self.store.drop(name)


_numbers = itertools.count()


def _spans(pages: Sequence[OnPage]) -> tuple[Int64s, Int64s]:
    """The first and the last key of each page."""
    spans = np.array([page.key_range for page in pages], np.int64).reshape(-1, 2)
    return spans[:, 0], spans[:, 1]


def _within(pages: Pages, keys: Range) -> Iterator[OnPage]:
    """The pages that may hold rows of a range."""
    met = (pages.firsts <= keys.last) & (pages.lasts >= keys.first)
    return (pages.pages[number] for number in np.flatnonzero(met).tolist())


def _ranges(
    spans: Sequence[tuple[int, int]], masses: Sequence[float], target: float
) -> list[Range]:
    """Ranges of keys that hold about `target` each, if what a span holds is spread evenly."""
    if not spans:
        return []
    firsts = np.array([first for first, _ in spans], np.float64)
    ends = np.array([last for _, last in spans], np.float64) + 1.0
    widths = np.maximum(ends - firsts, 1.0)
    ends = firsts + widths
    density = np.asarray(masses, np.float64) / widths
    points = np.unique(np.concatenate((firsts, ends)))
    change = np.zeros(len(points))
    np.add.at(change, np.searchsorted(points, firsts), density)
    np.add.at(change, np.searchsorted(points, ends), -density)
    held = np.concatenate(([0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(points))))
    count = max(1, int(np.ceil(held[-1] / target)))
    cuts = np.interp(np.linspace(0, held[-1], count + 1)[1:-1], held, points)
    inner = sorted({int(cut) for cut in cuts if INT64_MIN < cut < 2.0**63})
    edges = [INT64_MIN, *inner, INT64_MAX + 1]
    return [Range(first, end - 1) for first, end in itertools.pairwise(edges)]
