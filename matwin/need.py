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

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from matwin.storage.encodings import plain_batch
from matwin.storage.errors import BudgetError, MatwinError
from matwin.storage.materialize.tail import smallest_for_row
from matwin.storage.pool import smallest_budget
from matwin.storage.runs import BYTES_PER_ROW_MIN
from matwin.storage.units import format_size

from .judge import Judge
from .paging import FRAMES_TIGHT, bytes_of_pair, rest_min
from .sizes import fixed_bytes, is_encoded, value_bytes

HIDDEN_BYTES = 256
"""Columns and padding that a stored row has and the source's does not."""
APPENDING = 2.5
"""Shares of the tail that a window takes beside it while rows are appended during a walk."""


class Need(ABC):
    """What the rows of a join ask of the budget, so far."""

    def __init__(self, *, budget_bytes: int, page_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._page_bytes = page_bytes
        self.row_bytes = 0
        """What the widest row so far takes."""
        self._rows = 0

    @abstractmethod
    def _smallest(self, ties: int) -> int:
        """The smallest budget, if a row has so many best matches."""

    def see(self, batch: pa.RecordBatch) -> None:
        """Look at rows."""
        self._rows += batch.num_rows
        self.row_bytes = max(self.row_bytes, widest(batch))

    def see_rest(self, items: Iterable[Any]) -> None:
        """Look at rows that nobody will join any more; whatever is wrong with them is no matter."""
        with suppress(MatwinError, pa.ArrowException, OSError):
            for item in items:
                if isinstance(item, pa.RecordBatch):
                    self.see(item)

    @property
    def _row_max(self) -> int:
        """The widest row as it is stored."""
        return self.row_bytes + HIDDEN_BYTES

    def fits_pages(self) -> bool:
        """Whether the rows so far, none of which has too many ties, fit pages in this budget."""
        return self._smallest(0) <= self._budget_bytes

    def announced(self, error: BudgetError, *, has_ties: bool, share: float = 1.0) -> BudgetError:
        """The error with the smallest budget that works for all these rows; pages have a `share` of
        it."""
        ties = self._rows if has_ties or self.fits_pages() else 0
        smallest = int(max(self._smallest(ties), error.smallest_bytes) / share)
        if smallest <= error.smallest_bytes:
            return error
        told = f"for all rows, give at least {format_size(smallest)} ({smallest} bytes)"
        return BudgetError(f"{error}; {told}", smallest_bytes=smallest)


class WalkNeed(Need):
    """A join of two sides: tails of all windows, and a walk over pages of two of them."""

    def __init__(self, judges: Sequence[Judge], *, budget_bytes: int, page_bytes: int) -> None:
        super().__init__(budget_bytes=budget_bytes, page_bytes=page_bytes)
        self._judges = judges

    def _smallest(self, ties: int) -> int:
        page = self._page_bytes
        windows = 2 * len(self._judges)
        each = max(bytes_of_pair(judge) for judge in self._judges)
        row = self._row_max + (ties * each if len(self._judges) > 1 else 0)
        keys = max(len(judge.probe.grid.names) for judge in self._judges) + 1
        tail = smallest_for_row(row, keys, windows)
        block = max(max(j.probe.bytes_per_row(), j.base.bytes_per_row()) for j in self._judges)
        frame = max(page, row) + (page // BYTES_PER_ROW_MIN) * block
        walk = FRAMES_TIGHT * frame + rest_min(each) + 4 * max(page, row)
        # What all tails hold and, during the walk of a full join, what appending takes.
        held = (windows + (APPENDING if windows > 2 else 0)) / (2 * (windows + 1))
        walked = (walk + 4 * ties * each) / (7 / 8 - held)
        return max(smallest_budget(page), tail, int(walked) + 1)


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
