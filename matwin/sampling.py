"""A sample of rows, by which they are divided.

    a source that can be read again, by columns   every n-th row of all: the whole is known
    the same, whose row groups are alike          every n-th row of some row groups
    any other                                     every n-th row of what has been read so far

Rows that come in some order, and most do, begin unlike they end.  So where it is cheap, all of a
source is looked at: the columns that say where a row goes are a small part of a file (1M rows of
Parquet: 5 ms a column).  A CSV file would have to be parsed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow
from matwin.storage.encodings import plain_batch

from .cutting import Cutting
from .side import Side
from .sources import Source

SAMPLE_ROWS = 20_000
SAMPLE_GROUPS = 4
"""Row groups of a file that are looked at where its statistics say that all are alike: of 100
million rows, four in a hundred groups."""
UNKNOWN = 16
"""A source of unknown length is taken for so many times what has been read of it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some rows of a side, and how many there are in all, as far as anybody knows."""

    batches: Sequence[pa.RecordBatch]
    total: float
    is_thinned: bool = False
    """Whether only some row groups were looked at, which are like all others."""


def drawn(
    cutting: Cutting, side: int, source: Source, held: Sequence[pa.RecordBatch], *, is_all: bool
) -> Drawn:
    """A sample of a side of which `held` has been read, which may be all of it."""
    names = cutting.columns(side)
    if not is_all and source.is_repeatable and source.rows_hint is not None:
        own = cutting.sides[side]
        some = source.thinned([own.origin(name) for name in names], SAMPLE_GROUPS)
        batches = _of_source(some or source, own, names)
        return Drawn(batches, float(source.rows_hint), some is not None)
    rows = sum(batch.num_rows for batch in held)
    stride = max(1, rows // SAMPLE_ROWS)
    times = 1 if is_all else UNKNOWN
    found = strided((batch.select(names) for batch in held), stride)
    return Drawn(list(found), float(times * max(rows, 1)))


def _of_source(source: Source, side: Side, names: Sequence[str]) -> list[pa.RecordBatch]:
    stride = max(1, int(source.rows_hint or 0) // SAMPLE_ROWS)
    raw = list(dict.fromkeys(side.origin(name) for name in names))
    return [side.some_stored(b, names) for b in strided(source.batches(raw), stride)]


def strided(batches: Iterable[pa.RecordBatch], stride: int) -> Iterator[pa.RecordBatch]:
    """Every n-th row, in memory of its own."""
    first = 0
    for batch in batches:
        at = np.arange(first, batch.num_rows, stride)
        first = (first - batch.num_rows) % stride
        if len(at):
            yield plain_batch(batch).take(arrow(at))
