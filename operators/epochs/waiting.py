"""Rows that have been read and whose chunk is not open yet.

    put ──▶ chunk 7: piece, piece     chunk 8: piece …     in memory
            once these are too many, all that comes is put down until nothing waits there:
            chunk 9: ▒▒▒▒  chunk 10: ▒▒▒▒                  on disk, in order

Only chunks that follow each other as the rows do are put down (`InTurn`): they are taken in the
order in which they came, so that what is on disk is written once and read once, front to back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict

from matwin.spill import BatchSpill
from matwin.storage.columns import Int64s

from .cutter import Piece


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of one chunk, in memory or put down (None), and their numbers as ranges."""

    rows: pa.RecordBatch | None
    count: int
    ranges: list[tuple[int, int]]


class Waiting:
    """The rows of one stream that wait, by chunk."""

    def __init__(self, name: str, schema: pa.Schema, limit: int | None, scratch: str | Path | None):
        """At most `limit` bytes wait in memory, and what one batch has besides; None: all do."""
        self._name, self._schema, self._limit, self._scratch = name, schema, limit, scratch
        # Sorted, because a batch may have rows of very many small chunks.
        self._chunks: SortedDict[int, deque[Kept]] = SortedDict()
        self.rows = self.held_bytes = 0
        self._down: BatchSpill | None = None
        self._reader: Iterator[pa.RecordBatch] = iter(())
        self._pieces_down = 0

    def put(self, piece: Piece) -> None:
        """Rows that have come."""
        rows: pa.RecordBatch | None = piece.rows
        if self._limit is not None and (self._pieces_down or self.held_bytes > self._limit):
            self._put_down(piece.rows)
            rows = None
        else:
            self.held_bytes += piece.rows.nbytes
        kept = Kept(rows, piece.rows.num_rows, _ranges(piece.numbers))
        self._chunks.setdefault(piece.chunk, deque()).append(kept)
        self.rows += kept.count

    def _put_down(self, rows: pa.RecordBatch) -> None:
        if self._down is None:
            self._down = BatchSpill(self._name, self._scratch, self._schema)
        self._down.write(rows)
        if not self._pieces_down:
            self._reader = iter(self._down)
        self._pieces_down += 1

    @property
    def first(self) -> int | None:
        """The number of the first chunk of which rows wait."""
        return self._chunks.peekitem(0)[0] if self._chunks else None

    def take(self, chunk: int) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk, which wait no longer."""
        pieces = self._chunks.pop(chunk, None)
        while pieces:
            yield self._taken(pieces.popleft())

    def _taken(self, kept: Kept) -> pa.RecordBatch:
        self.rows -= kept.count
        if kept.rows is not None:
            self.held_bytes -= kept.rows.nbytes
            return kept.rows
        rows = next(self._reader)
        self._pieces_down -= 1
        if not self._pieces_down:
            self.close()
        return rows

    def ranges(self) -> list[tuple[int, int]]:
        """The numbers of all rows that wait, as ranges."""
        return [each for pieces in self._chunks.values() for kept in pieces for each in kept.ranges]

    def close(self) -> None:
        """Give the space back."""
        if self._down is not None:
            self._down.close()
            self._down = None


def _ranges(numbers: Int64s) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, ends not included."""
    if not len(numbers):
        return []
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(int(numbers[0]), int(numbers[-1]) + 1)]
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1))
    ends = np.append(starts[1:], len(numbers)) - 1
    return [(int(numbers[a]), int(numbers[b]) + 1) for a, b in zip(starts, ends, strict=True)]
