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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.columns import Int64s
from matwin.storage.errors import BudgetError, MatwinError
from matwin.storage.materialize.tail import smallest_for_row
from matwin.storage.pool import smallest_budget
from matwin.storage.runs import BYTES_PER_ROW_MIN
from matwin.storage.units import format_size

from .judge import Judge
from .paging import FRAMES_TIGHT, bytes_of_pair, rest_min
from .sizes import BINARIES

HIDDEN_BYTES = 256
"""Columns and padding that a stored row has and the source's does not."""
APPENDING = 2.5
"""Shares of the tail that a window takes beside it while rows are appended during a walk."""


class Need(ABC):
    """What the rows of a join ask of the budget, so far."""

    def __init__(self, *, budget_bytes: int, page_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._page_bytes = page_bytes
        self._row_bytes = 0
        self._rows = 0

    @abstractmethod
    def _smallest(self, ties: int) -> int:
        """The smallest budget, if a row has so many best matches."""

    def see(self, batch: pa.RecordBatch) -> None:
        """Look at rows."""
        self._rows += batch.num_rows
        self._row_bytes = max(self._row_bytes, widest(batch))

    def see_rest(self, items: Iterable[Any]) -> None:
        """Look at rows that nobody will join any more; whatever is wrong with them is no matter."""
        with suppress(MatwinError, pa.ArrowException, OSError):
            for item in items:
                if isinstance(item, pa.RecordBatch):
                    self.see(item)

    @property
    def _row_max(self) -> int:
        """The widest row as it is stored."""
        return self._row_bytes + HIDDEN_BYTES

    def announced(self, error: BudgetError, *, has_ties: bool) -> BudgetError:
        """The error with the smallest budget that works for all these rows."""
        ties = self._rows if has_ties or self._smallest(0) <= self._budget_bytes else 0
        smallest = max(self._smallest(ties), error.smallest_bytes)
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
    lengths: Int64s = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        lengths += _lengths(column)
    at = int(lengths.argmax())
    is_plain = not any(pa.types.is_dictionary(field.type) for field in batch.schema)
    decoded = 0 if is_plain else int(lengths[at])
    return int(pa.ipc.get_record_batch_size(batch.slice(at, 1))) + decoded


def _lengths(column: pa.Array) -> Int64s | int:
    """The bytes of each value beyond what all have; lists are reckoned at their values' average."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        own = _lengths(column.dictionary)
        if isinstance(own, int) or len(own) == 0:
            return own
        decoded: Int64s = own[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return decoded
    if pa.types.is_struct(kind):
        return sum(map(_lengths, column.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each: int = -(-column.values.nbytes // max(len(column.values), 1))
        return each * _numbers(pc.list_value_length(column))
    if any(test(kind) for test in BINARIES):
        return _numbers(pc.binary_length(column))
    return 0


def _numbers(lengths: pa.Array) -> Int64s:
    found: Int64s = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found
