"""What engines of window joins have in common: what a portion weighs, and where rows go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.feed import Portion

from .block import BYTES_PER_ROW

Poured = tuple[int, bool, list[pa.RecordBatch]]
"""A stream's number, whether its rows are still to be joined, and batches of them."""


def weight_in_memory(rows: int, size: int) -> int:
    """What a portion takes: itself, a copy, and while it is sorted another."""
    return 3 * (size + rows * 2 * BYTES_PER_ROW)


class StreamsInMemory(ABC):
    """An engine whose windows are in memory."""

    step_bytes: int | None = None
    makes_room = False
    exceeds_offsets = False
    joins_at_once = False
    copies = 3
    """How often a row that comes is in memory."""

    @property
    def is_untouched(self) -> bool:
        """Whether no rows have been joined yet; those that join as rows come have always."""
        return False

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """What the rows take."""

    @abstractmethod
    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Take rows; what is found at once."""

    @abstractmethod
    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """What is final by these frontiers; what nobody can need any more is dropped."""

    def rows_of(self, feed: int) -> list[pa.RecordBatch]:
        """The rows of a stream that have not been joined yet."""
        return []

    def pour(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that have not been joined yet; they are forgotten here."""
        return iter(())

    @property
    @abstractmethod
    def needed_bytes(self) -> int:
        """What the rows take, and what a step and its output take besides."""

    @property
    @abstractmethod
    def counted_bytes(self) -> int:
        """What is counted against the budget at a step."""

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes, copies and arrays included."""
        return self.copies * size + 3 * rows * 2 * BYTES_PER_ROW

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step: as much as now, where every portion is a step."""
        return self.needed_bytes

    @abstractmethod
    def poured(self) -> Iterator[Poured]:
        """All rows, those that have met each other first; they are forgotten here."""
