"""Rows of one stream that are not final yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from matwin.side import Side
from matwin.sizes import batch_bytes


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows, the earliest of their times, and their bytes."""

    rows: pa.RecordBatch
    lowest: int
    size: int


class Waiting:
    """Rows in portions, which are joined as they grow."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._portions: list[Portion] = []

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return sum(portion.rows.num_rows for portion in self._portions)

    @property
    def size(self) -> int:
        """What they take."""
        return sum(portion.size for portion in self._portions)

    def append(self, rows: pa.RecordBatch, size: int) -> None:
        """Portions of like size become one: n rows that come singly are copied log n times."""
        if rows.num_rows == 0:
            return
        parts, count = [rows], rows.num_rows
        while self._portions and self._portions[-1].rows.num_rows <= 2 * count:
            last = self._portions.pop()
            parts.append(last.rows)
            count += last.rows.num_rows
            size += last.size
        rows = pa.concat_batches(parts[::-1]) if len(parts) > 1 else rows
        times = self._side.order_keys(rows)
        self._portions.append(Portion(rows, int(times.min()), size))

    def has_below(self, bound: int) -> bool:
        """Whether a row's time is below `bound`."""
        return any(portion.lowest < bound for portion in self._portions)

    def batches(self) -> list[pa.RecordBatch]:
        """All rows."""
        return [portion.rows for portion in self._portions]

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, forgotten as they are handed out."""
        while self._portions:
            yield self._portions.pop(0).rows

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take rows that have waited before."""
        self.append(rows, batch_bytes(rows))
