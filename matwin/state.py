"""What an engine holds between two steps, as plain data: batches of rows, each with a role.

    engine ──state()──▶ State ──a commit keeps it──▶ State ──restore()──▶ another engine like it

An engine says once where its rows are: a *holder* for the rows of a feed in a role, such as those
that have been joined with each other and those that still wait.  Its state, another engine's rows
made of it, and rows that go elsewhere all follow from that.

    (feed, role, holder)  ──▶ batches()    they stay: its state
                          ◀── put_back()   rows that a holder like it had
                          ──▶ popped()     they are forgotten: on to parts or pages

Rows on pages are no part of it but by the names of their windows, because a store's commit keeps
those.  What a row takes is not kept either: it is measured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa


class Holder(Protocol):
    """Rows of one feed in one role, in memory."""

    def batches(self) -> list[pa.RecordBatch]:
        """The rows, not copied."""

    def popped(self) -> Iterator[pa.RecordBatch]:
        """The rows, forgotten as they are handed out."""

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take rows of another holder, in its order."""


class Held(NamedTuple):
    """Where the rows of a feed in a role are."""

    feed: int
    role: str
    holder: Holder


class Kept(NamedTuple):
    """Rows of a feed, and what they are to the engine."""

    feed: int
    role: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class State:
    """Everything that an engine holds between two steps.

    Storable: Arrow batches, and beside them whole numbers (of more than 64 bits, as frontiers are)
    and texts.  The batches of a feed and role keep their order; where one ends means nothing.
    """

    kept: Sequence[Kept] = ()
    windows: Sequence[str] = ()
    """The windows in a store that the engine goes on with."""
    marks: Mapping[str, int] = field(default_factory=dict)

    def rows_of(self, feed: int) -> list[pa.RecordBatch]:
        """All rows of a feed."""
        return [kept.rows for kept in self.kept if kept.feed == feed]


def kept(holders: Sequence[Held]) -> list[Kept]:
    """The rows of all holders."""
    return [Kept(feed, role, rows) for feed, role, holder in holders for rows in holder.batches()]


def popped(holders: Sequence[Held]) -> Iterator[Kept]:
    """The rows of all holders, forgotten as they are handed out."""
    for feed, role, holder in holders:
        for rows in holder.popped():
            yield Kept(feed, role, rows)


def put_back(holders: Sequence[Held], state: State) -> None:
    """Give the rows of a state to holders that have none."""
    by_role = {(feed, role): holder for feed, role, holder in holders}
    assert not any(holder.batches() for holder in by_role.values()), "restored twice"
    for feed, role, rows in state.kept:
        by_role[feed, role].put_back(rows)
