"""What engines of window joins have in common: what a portion weighs, where rows are and go.

role      rows
old       have met each other, and wait for what comes
waiting   are not final yet: they have met nobody
new       came after the last step: they have met nobody
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from matwin.feed import Portion
from matwin.state import Held, Holder, Kept, State, kept, popped, put_back

from .block import BYTES_PER_ROW

OLD, WAITING, NEW = "old", "waiting", "new"


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

    @property
    @abstractmethod
    def holders(self) -> list[Held]:
        """Where the rows are, those that have met each other first."""

    def state(self) -> State:
        """All rows: nothing else is kept between two steps."""
        return State(kept(self.holders))

    def restore(self, state: State) -> None:
        """Take the rows of another engine."""
        put_back(self.holders, state)

    def rows_of(self, feed: int) -> list[pa.RecordBatch]:
        """The rows of a stream."""
        return self.state().rows_of(feed)

    def pour(self) -> Iterator[Kept]:
        """All rows, those that have met each other first; they are forgotten here."""
        return popped(self.holders)

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


def in_role(role: str, holders: Sequence[Holder]) -> list[Held]:
    """The holders of all streams in a role."""
    return [Held(stream, role, holder) for stream, holder in enumerate(holders)]
