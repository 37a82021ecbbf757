"""What the driver asks of a join: engines, and whoever makes them.

    feeds ──portions──▶ take ─┐
                              ├─▶ an engine holds rows between two steps, and hands results over
    frontiers ────────▶ advance ┘

An *engine* is one way of holding a join's rows: in memory, on pages, in parts.  It knows nothing of
sources, of other engines or of when to step.  What it holds between two steps is its *state*, with
which another one goes on after it.  A *joining* makes the engines of one join; one that begins in
memory may be *divisible*, too.

Invariants: what `take` and `advance` yield is handed over exactly once; `needed_bytes` bounds what
the rows take and what the next step takes on top of them; after `advance` with every frontier at
`DONE` nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from matwin.storage.store import Store
from matwin.storage.units import Counts

from .cutting import Cutting
from .feed import Portion
from .need import Need
from .side import Side
from .state import Kept, State


class Engine(Protocol):
    """Rows of a join between two steps."""

    @property
    def step_bytes(self) -> int | None:
        """A step pays once so many bytes have come: 0 is with every portion, None only when the
        memory is full and at the end."""

    @property
    def makes_room(self) -> bool:
        """Whether it stays within the budget by itself: its rows are not in memory only."""

    @property
    def needed_bytes(self) -> int:
        """What the rows take, and what a step and its output take besides."""

    def weight(self, rows: int, size: int) -> int:
        """What a portion of so many rows and bytes takes when it has been taken."""

    def take(self, feed: int, portion: Portion) -> Iterator[Any]:
        """Take rows; results that are there at once."""

    def advance(self, frontiers: Sequence[int]) -> Iterator[Any]:
        """Results that are final by these frontiers; what nobody can need any more is dropped."""


class Restorable(Engine, Protocol):
    """An engine that another one can go on for: every one but `Parts`, which only gathers finite
    inputs and writes them where no commit keeps them.

    A state is plain data, so that it can be written with a commit: Arrow batches with a feed's
    number and a role, names of windows in a store, and whole numbers with a name.
    """

    def state(self) -> State:
        """Everything that it holds, between two steps: when all results of the last call are
        handed over.  Nothing is forgotten, and no rows are copied."""

    def restore(self, state: State) -> None:
        """Go on where another engine of the same joining was; this one has no rows yet.

        One on pages is made with the store that was committed with the state: the rows of its
        windows are there when these are opened.
        """


class MemoryEngine(Restorable, Protocol):
    """An engine whose rows are in memory, and can go elsewhere."""

    @property
    def joins_at_once(self) -> bool:
        """Whether rows are joined when they are taken, which must fit the memory then."""

    @property
    def is_untouched(self) -> bool:
        """Whether no rows have been joined yet, so that all of them can be divided."""

    @property
    def held_bytes(self) -> int:
        """What the rows take."""

    @property
    def counted_bytes(self) -> int:
        """What is counted against the budget at a step."""

    def rows_of(self, feed: int) -> list[pa.RecordBatch]:
        """The rows of a feed, each once, while they are untouched."""

    def pour(self) -> Iterator[Kept]:
        """The same of all feeds; they are forgotten as they are handed out."""

    @property
    def exceeds_offsets(self) -> bool:
        """Whether a feed has more bytes than a column's 32-bit offsets can tell."""

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step."""


class Moved(NamedTuple):
    """A join that goes on elsewhere: the engine, what was done and why, and results on the way."""

    engine: Engine
    decision: str
    results: Iterator[Any]


class Joining(Protocol):
    """One join: what its feeds are, and its engines."""

    @property
    def sides(self) -> Sequence[Side]:
        """What is read of each feed."""

    @property
    def tolerances(self) -> Sequence[Counts | None]:
        """The reach of each feed's order attribute."""

    @property
    def need(self) -> Need:
        """What its rows ask of the budget."""

    @property
    def decision(self) -> str:
        """What is done while everything is in memory; empty where only the end tells."""

    @property
    def needs_memory(self) -> bool:
        """Whether pages are no way out: rows stay in memory while there is room for another
        portion, and parts are taken whatever they cost."""

    def in_memory(self) -> MemoryEngine | None:
        """An engine without rows; None where all rows go to a store from the first on."""

    def on_pages(self, engine: Any, store: Store, arrivals: Sequence[str], why: str) -> Moved:
        """The rows of an engine in memory, on pages of a store."""

    def rejected(self, feed: int, rows: pa.RecordBatch) -> Iterator[Any]:
        """What becomes of rows that can match nothing."""


class Divisible(Joining, Protocol):
    """A join that begins in memory, and how it may be divided from there."""

    @property
    def beyond(self) -> str:
        """What `on_pages` does, in a word: a walk or a merge."""

    @property
    def cutting(self) -> Cutting:
        """The ways of dividing it into parts."""

    @property
    def is_faster_in_parts(self) -> bool:
        """Whether parts that fit the cache save more than dividing costs, where rows are many."""

    def in_memory(self) -> MemoryEngine:
        """An engine without rows."""

    def in_part(self, output_bytes: int) -> MemoryEngine:
        """An engine for one part, on one thread, without rows."""
