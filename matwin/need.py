"""The smallest budget in which a join works, from what its rows are: pure but for a look at rows.

A budget that is too small is found out by the row that does not fit.  The next one may be larger,
so whoever announces a budget by that row alone announces the next error.  A join therefore keeps an
eye on its widest row and, when it must give up, looks through what it has not read yet:

    widest row, windows ──▶ the tail can sort it                          ┐
    rows a page, arrays ──▶ two frames and a page ahead fit beside tails  ├─▶ the largest of these
    all rows            ──▶ where ties are the matter, all rows tie       ┘

Streams that are live have no end to look through: there it is the widest row so far.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.encodings import plain_batch
from matwin.storage.errors import BudgetError, MatwinError
from matwin.storage.materialize.tail import smallest_for_row
from matwin.storage.pool import smallest_budget
from matwin.storage.runs import BYTES_PER_ROW_MIN
from matwin.storage.units import format_size

from .judge import Judge
from .options import Options, page_within
from .paging import FRAMES_TIGHT, bytes_of_pair, rest_min
from .sizes import BINARIES, OFFSET, fixed_bytes, is_encoded, value_bytes

MOVING = 1.125
"""What a page of wide rows takes while they are put down or moved to another window, beside what
sorting them takes: with 150 columns 1.05, and with 300, of two sides' matches, 1.12."""
SORTING = 1.125
"""What merging sorted rows takes beside sorting them, of which a page is held while one is made."""
NARROW_MAX = 1 << 62
HIDDEN_BYTES = 256
"""Columns and padding that a stored row has and the source's does not."""
APPENDING = 2.5
"""Shares of the tail that a window takes beside it while rows are appended during a walk."""


class Need(ABC):
    """What the rows of a join ask of the budget, so far."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._widest: dict[int, int] = {}
        self._narrowest = NARROW_MAX
        self._rows = 0

    @abstractmethod
    def _smallest(self, ties: int, page: int) -> int:
        """The smallest budget with pages of this size, if a row has so many best matches."""

    @property
    def _beside(self) -> int:
        """What another share of the same size needs."""
        return 0

    @property
    def row_bytes(self) -> int:
        """What the widest row so far takes."""
        return max(self._widest.values(), default=0)

    @property
    def pair_bytes(self) -> int:
        """What the widest rows so far take together, one of each feed."""
        return sum(self._widest.values())

    def see(self, batch: pa.RecordBatch, feed: int) -> None:
        """Look at rows of a feed."""
        self._rows += batch.num_rows
        self._widest[feed] = max(self._widest.get(feed, 0), widest(batch))
        self._narrowest = min(self._narrowest, narrowest(batch))

    def see_rest(self, items: Iterable[Any], feed: int) -> None:
        """Look at rows that nobody will join any more; whatever is wrong with them is no matter."""
        with suppress(MatwinError, pa.ArrowException, OSError):
            for item in items:
                if isinstance(item, pa.RecordBatch):
                    self.see(item, feed)

    @property
    def _row_max(self) -> int:
        """The widest row as it is stored."""
        return self.row_bytes + HIDDEN_BYTES

    def _rows_of(self, page: int) -> int:
        """How many rows a page may have."""
        return max(page // max(BYTES_PER_ROW_MIN, self._narrowest), 1)

    def fits_pages(self) -> bool:
        """Whether the rows so far, none of which has too many ties, fit pages in this budget."""
        return self._smallest(0, self._options.page_bytes) <= self._options.budget_bytes

    def announced(
        self, error: BudgetError, *, has_ties: bool, share_at: Callable[[int], float]
    ) -> BudgetError:
        """The error with the smallest budget that works for all these rows; `share_at` tells which
        part of a budget pages have."""
        if error.is_for_all:
            return error
        ties = self._rows if has_ties or self.fits_pages() else 0
        shares = self._options.share
        smallest = shares * self._least(ties, error.smallest_bytes, share_at)
        told = f"for all rows, give at least {format_size(smallest)} ({smallest} bytes)"
        if shares > 1:
            told += "; the join and what comes before or after it have half of it each"
        words = f"{error}; {told}" if smallest > error.smallest_bytes else str(error)
        return BudgetError(words, smallest_bytes=smallest, is_for_all=True)

    def _least(self, ties: int, known: int, share_at: Callable[[int], float]) -> int:
        """The least budget that is enough with pages of the size that it has itself."""
        budget, before = max(known, self._options.budget_bytes), 0
        while budget > before:  # a larger budget may have larger pages, which need more
            before = budget
            share = share_at(budget)
            page = page_within(int(budget * share), self._options.page_at(budget))
            needed = max(self._smallest(ties, page), known)
            budget = max(budget, math.ceil(needed / share), self._beside)
        return budget


class WalkNeed(Need):
    """A join of two sides: tails of all windows, and a walk over pages of two of them."""

    def __init__(self, judges: Sequence[Judge], options: Options) -> None:
        super().__init__(options)
        self._judges = judges

    def _smallest(self, ties: int, page: int) -> int:
        windows = 2 * len(self._judges)
        each = max(bytes_of_pair(judge) for judge in self._judges)
        row = self._row_max + (ties * each if len(self._judges) > 1 else 0)
        keys = max(len(judge.probe.grid.names) for judge in self._judges) + 1
        tail = int(smallest_for_row(row, keys, windows) * MOVING)
        block = max(max(j.probe.bytes_per_row(), j.base.bytes_per_row()) for j in self._judges)
        frame = max(page, row) + self._rows_of(page) * block
        walk = FRAMES_TIGHT * frame + rest_min(each) + 4 * max(page, row)
        # What all tails hold and, during the walk of a full join, what appending takes.
        held = (windows + (APPENDING if windows > 2 else 0)) / (2 * (windows + 1))
        walked = (walk + 4 * ties * each) / (7 / 8 - held)
        return max(smallest_budget(page), tail, int(walked) + 1)


class OrderedNeed(WalkNeed):
    """A join in a half of the budget, whose results are sorted by their left rows in the other."""

    @property
    def _beside(self) -> int:
        # On pages results are whole rows of both sides, sorted by a number.
        row = self.pair_bytes + self._row_max - self.row_bytes
        return int(SORTING * smallest_for_row(row, 2, 1))


def narrowest(batch: pa.RecordBatch) -> int:
    """The bytes that each row has at least, by its numbers and plain texts."""
    if batch.num_rows == 0:
        return NARROW_MAX
    fixed, others = fixed_bytes(batch.schema)
    fixed -= -(-batch.num_columns // 8)  # nothing is said of nulls where there are none
    columns = [batch.column(at) for at in others]
    texts = [c for c in columns if any(test(c.type) for test in BINARIES)]
    lengths: Int64s | int = sum(value_bytes(column) - OFFSET for column in texts)
    shortest: int = lengths if isinstance(lengths, int) else int(lengths.min())
    return max(int(fixed), 0) + shortest


def widest(batch: pa.RecordBatch) -> int:
    """The bytes of the widest row, its values plain, as a message of its own."""
    if batch.num_rows == 0:
        return 0
    _, others = fixed_bytes(batch.schema)
    sizes = [value_bytes(batch.column(number)) for number in others]
    lengths = sum(sizes)
    row = batch.slice(0 if isinstance(lengths, int) else int(lengths.argmax()), 1)
    longest = 0  # of runs, whose row is not known
    if is_encoded(row):
        is_run = [pa.types.is_run_end_encoded(row.schema.types[number]) for number in others]
        runs = [size for size, run in zip(sizes, is_run, strict=True) if run]
        longest = sum(size for size in runs if isinstance(size, int))
        row = plain_batch(row)
    return int(pa.ipc.get_record_batch_size(row)) + longest
