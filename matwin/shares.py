"""What each may take of a join's memory, and why, in one place.

    budget ─▶ divided by the sources ─▶ portion  rows that are handed over at once
                                     ─▶ whole    what is open while rows are read: pages, buffers
                                     ─▶ single   the same, where one column is read by itself
    scratch ─▶ where a source puts down what it can't hold

Portions are counted by whoever takes them.  What is open is not: it is small (2 MB for a usual
Parquet file) and bounded by these figures, whatever the file is like.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matwin.storage.errors import BudgetError
from matwin.storage.units import format_size

PORTION_SHARE = 16
"""A loop takes portions of a sixteenth of the budget and counts what it makes of them, three times
as much, so a portion is read in one piece or two."""
PORTION_BYTES_MIN, PORTION_BYTES_MAX = 2**17, 2**23
OUTPUT_SHARE = 8
"""Output that is under way may take an eighth of the budget."""
STEP_SHARE = 2
"""A step over pages pays once half the budget has come: the more, the seldomer they are read."""
WAIT_SHARE = 8
"""Live windows on pages: a step pays once the new rows are an eighth of the old ones, which it
reads all.  A window is then about eight runs."""
MATCH_SHARE = 32
"""Base rows of pairs that a walk has found are gathered a thirty-second at a time: what is handed
over together is a batch, and the frames need the rest."""
PAIR_SHARE = 32
"""Pairs that an inner bestmatch keeps for its second reading before they go to scratch: with the
copies that new ones cost, they are within the eighth for output, of which there is none then."""
PARTIAL_ROOM, PARTIAL_ROOM_ALL = 1 / 4, 1 / 16
"""Of what a walk has room for, partial results: bestmatch keeps pairs until a page is finished, an
ε-join hands them over at once."""
FOUND_ROOM, FOUND_ROOM_ALL = 1 / 8, 1 / 4
"""Of the same, pairs that workers have found and the batch that is made of them."""
TIGHT_PARTIAL, TIGHT_FOUND = 1 / 2, 1 / 3
"""Both, of what two frames leave, where there is room for no more."""
HALF = 2
"""A fixed window join is a join of joins: half for its windows, half for each evaluation."""
CHUNK_SHARE = 4
"""A continuous query: a quarter for the pages of its chunks, which are written and read in order;
the rest for the join, which holds rows of all chunks where it lives from epoch to epoch."""
FRESH_SHARE = 32
"""Rows of a chunk that are not on pages yet: long runs, and little that a cut has to write."""
RESULT_SHARE = 16
"""An epoch's result that stays in memory until it is taken; a larger one is put down."""
GATHER_SHARE = 0.28
"""Rows that gather before they are put down in parts: the more, the larger are the pages.  Two and
a half times as much counts, for a copy and numbers."""
PART_ROOM = 0.8
"""What the parts under way may take; the rest is for frames, and for what is written."""
WALK_ROOM = 0.75
"""What walking a part may take while the lanes of the others are there."""


@dataclass(frozen=True, slots=True)
class MergeShares:
    """An as-of join on pages: what it takes at each of its three stages, one after the other, with
    room for a few of the widest rows and pages beside them."""

    run: int = 8
    """Numbers that are sorted at a time, which takes four times as much."""
    merge: int = 16
    """Numbers of all runs that are merged at a time: five times as much, sorted and once more."""
    passing: int = 4
    """What the pass makes of those that leave, in such parts."""
    pile: int = 128
    """Rows of a group, and rows that wait for the next one, in memory: five of these."""
    pairs: int = 32
    """Pairs that gather before they are put down."""
    rows: int = 8
    """Right rows that are there at a time, twice."""
    mates: int = 5
    """Rows that have been brought to left rows and are there at a time, twice."""
    gather: int = 12
    """Rows that are brought to left rows at a time."""
    batch: int = 32
    """A batch of output."""


MERGE_SHARES = MergeShares()
WHOLE_SHARE = 8
WHOLE_BYTES_MIN = 2**25
"""Parquet's pages are of 1 MiB by default, one of each column is open at a time, and a file with
thirty columns should not need to be read column by column, however small the budget."""
SINGLE_BYTES_MIN = 2**26
"""One column at a time is the last resort, and one source does it at a time."""


@dataclass(frozen=True, slots=True)
class ReadShare:
    """How many bytes a source may take."""

    portion_bytes: int
    """Rows that are handed over at once; a single row may be larger."""
    whole_bytes: int
    """Pages, dictionaries and buffers that are decoded as a whole, all columns together."""
    single_bytes: int
    """The same, of a single column."""
    sources: int = 1
    """How many sources share the budget."""
    scratch: str | Path | None = None
    """The folder for what is put down; None is the system's."""

    @classmethod
    def of(
        cls, budget_bytes: int, sources: int = 1, scratch: str | Path | None = None
    ) -> ReadShare:
        """The share of one source of several.

        >>> ReadShare.of(2**27, sources=2).portion_bytes >> 20
        4
        """
        each = budget_bytes // sources
        portion = max(PORTION_BYTES_MIN, min(each // PORTION_SHARE, PORTION_BYTES_MAX))
        whole = max(WHOLE_BYTES_MIN, each // WHOLE_SHARE)
        return cls(portion, whole, max(SINGLE_BYTES_MIN, each // WHOLE_SHARE), sources, scratch)

    def refusal(self, what: str, size: int, remedy: str) -> BudgetError:
        """The error about something of `size` bytes that can only be read whole."""
        smallest = size * WHOLE_SHARE * self.sources
        return BudgetError(
            f"{what}; {remedy}, or give memory={format_size(smallest).replace(' ', '')!r}",
            smallest_bytes=smallest,
        )


ROOMY = ReadShare.of(2**28)
"""What a source takes that nobody has told how much it may."""
