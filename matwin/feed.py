"""A feed: one side's source, read a batch at a time, with its frontier.

    source ──▶ batch ──prepare──▶ usable rows ──frontier──▶ in time ──▶ the windows
                          │                        └──────▶ late: an error, or dropped and counted
                          └─▶ rejected: counted, and kept for the output where unmatched rows are

Invariant: rows in = used + late + rejected, after every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.storage.arrays import arrow
from matwin.storage.columns import Int64s, order_key
from matwin.storage.errors import InputError
from matwin.storage.units import Counts

from .finality import DONE
from .frontier import frontier_of, punctuation_key
from .report import SideReport, visitors_of
from .row_groups import descend
from .side import Side
from .sizes import column_bytes, plain_bytes
from .sources import Source
from .streams import Punctuation, Sorted, Stream

Items = Iterator[Any]
"""Batches, `Punctuation`s, and None where a stream has nothing to say now."""
_END = object()


def items_of(source: Source) -> Items:
    """What a source has to say, in order."""
    return source.items()


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows that a feed has read: those to join, and those that can match nothing."""

    rows: pa.RecordBatch
    keys: Int64s
    rejected: pa.RecordBatch | None
    size: int
    """Bytes of all of them."""


class Feed:
    """One side while it is read."""

    def __init__(
        self, source: Source, side: Side, report: SideReport,
        tolerance: Counts | None, items: Items | None = None,
    ) -> None:  # fmt: skip
        """`items` are the source's, where somebody else reads them."""
        self.source = source
        self.side = side
        self.report = report
        report.rows_expected = source.rows_hint
        report.visitors = visitors_of(source)
        self.is_live = isinstance(source, Stream) and source.is_live
        self._order = source.order if isinstance(source, Stream) else None
        self._late = source.late if isinstance(source, Stream) else "error"
        if isinstance(source, Stream):
            _check_order_attribute(source, side.given[0], side.name)
        self._field = side.order_field.with_name(side.given[0])
        self._frontier = frontier_of(
            self._order, field=self._field, tolerance=tolerance, late=self._late,
            source=source.name or side.name,
        )  # fmt: skip
        self._items: Items = items or items_of(source)
        self.is_done = False
        self.is_silent = False
        """Whether it had nothing to say when it was last asked."""
        self.is_told_unsorted = False
        """Whether its file says, without being read, that it is not sorted."""
        self._largest: int | None = None
        self._rest: pa.RecordBatch | None = None

    @property
    def frontier(self) -> int:
        """Every later row's order key is at least this; `DONE` when there is none."""
        return DONE if self.is_done else self._frontier.value

    @property
    def is_ordered(self) -> bool:
        """Whether the frontier moves before the end."""
        return self._order is not None

    @property
    def arrival(self) -> str:
        """How rows come, in the words of `Store.window`."""
        if self._order is None:
            return "unsorted"
        return "sorted" if isinstance(self._order, Sorted) else "late"

    @property
    def has_rest(self) -> bool:
        """Whether a part of the last batch is still to be read."""
        return self._rest is not None

    def read(self, rows_at_a_time: Callable[[int, int], int]) -> Portion | None:
        """The next rows; None at the end, or where something else came instead.

        A large batch comes in parts, so that the other side can keep pace.
        """
        item: Any = self._rest if self._rest is not None else next(self._items, _END)
        self._rest = None
        self.is_silent = item is None
        if item is None:
            return None
        if item is _END:
            self.is_done = True
            self._frontier.finish()
            return None
        if isinstance(item, Punctuation):
            self._frontier.punctuate(punctuation_key(item.upto, self._field))
            return None
        part, size = item, self._bytes_of(item)
        # Measured again: the first rows may be far wider than the others.
        while (rows := rows_at_a_time(part.num_rows, size)) < part.num_rows:
            part = part.slice(0, rows)
            size = self._bytes_of(part)
        if part.num_rows < item.num_rows:
            self._rest = item.slice(part.num_rows)
        return self._portion(part, size + column_bytes(item.num_columns))

    def _bytes_of(self, rows: pa.RecordBatch) -> int:
        """What rows take once their values are plain."""
        return int(rows.nbytes) if rows.schema.equals(self.side.schema) else plain_bytes(rows)

    def rest(self) -> Items:
        """What has not been read yet, as it comes, for whoever only looks at it."""
        rest, self._rest = self._rest, None
        if rest is not None:
            yield rest
        yield from self._items

    def _portion(self, batch: pa.RecordBatch, size: int) -> Portion:
        first = self.report.rows_in
        rows, rejected, numbers = self.side.prepare(batch, first)
        keys = self.side.order_keys(rows)
        late = 0
        if self._order is not None:
            if numbers is None:
                numbers = np.arange(first, first + rows.num_rows)
            in_time = self._frontier.admit(keys, numbers)
            if in_time is not None:
                late = int(rows.num_rows - np.count_nonzero(in_time))
                rows, keys = rows.filter(arrow(in_time)), keys[in_time]
        elif len(keys):
            largest = int(keys.max())
            self._largest = largest if self._largest is None else max(self._largest, largest)
        self.report.rows_in += batch.num_rows
        self.report.used += rows.num_rows
        self.report.late += late
        self.report.rejected += rejected.num_rows if rejected is not None else 0
        return Portion(rows, keys, rejected, size)

    def find_sorted(self) -> bool:
        """Look through a source that can be read again: if it is sorted, its order is known."""
        if self._order is not None or not self.source.is_repeatable:
            return self.is_ordered
        name = self.side.grid.order.name
        if name not in self.side.schema.names:  # compared in another type than it has
            return False
        groups = self.source.row_groups(name)
        if groups is not None and descend(groups):
            self.is_told_unsorted = True
            return False
        last: int | None = None
        for batch in self.source.batches([name]):
            column = batch.column(0).drop_null()
            if pa.types.is_floating(column.type):
                column = column.filter(pc.is_finite(column))
            keys = order_key(column)
            if len(keys) == 0:
                continue
            if (last is not None and keys[0] < last) or (keys[1:] < keys[:-1]).any():
                return False
            last = int(keys[-1])
        self._become_sorted()
        return True

    def _become_sorted(self) -> None:
        self._order = Sorted()
        self._frontier = frontier_of(
            self._order, field=self._field, tolerance=None, late="error",
            source=self.source.name or self.side.name,
        )  # fmt: skip
        if self._largest is not None:  # what has been read before its order was known
            self._frontier.admit(np.array([self._largest], np.int64))


def _check_order_attribute(stream: Stream, wanted: str, side: str) -> None:
    if stream.on is not None and stream.on != wanted:
        raise InputError(
            f"{side}: the stream is ordered by {stream.on!r} and the join's order attribute, its "
            f"first, is {wanted!r}; name {stream.on!r} first in on=, or in time= of a window join"
        )
