"""Results in the order of the left input.

    results, each with its left row's number ──┬── the numbers go on without a gap ──▶ out, at once
                                               └── else ──▶ sorted by number on pages, at the end

Joins that fit the memory mostly find their rows in that order, or nearly so; parts and walks don't.
Where every left row comes out, a row whose number is next is known to be next, and leaves at once.

What is sorted takes half of the budget, and so does the join then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.errors import BudgetError
from matwin.storage.store import Store

from .joining import Batches, Join
from .options import Options, half_of
from .report import Report
from .side import ROW


def in_left_order(
    join: Join, results: Generator[Batches], options: Options, *, is_whole: bool
) -> Generator[Batches]:
    """The results by their left rows' numbers, where the join has them; as they are otherwise.

    `is_whole`: every left row is among them, so that no smaller number can come after the next.
    `options` are those of the whole, of which the join has half.
    """
    if not join.is_ordered:
        return results
    rows = _counted(results, join.report, options.budget_bytes)
    return _in_order(join, rows, half_of(options), is_whole=is_whole)


def _counted(results: Generator[Batches], report: Report, budget: int) -> Generator[pa.RecordBatch]:
    """All batches; the join believes that its half is all there is."""
    with closing(results):
        for batches in results:
            report.budget_bytes = budget
            yield from (batch for batch in batches if batch.num_rows)
    report.budget_bytes = budget


def _in_order(
    join: Join, results: Generator[pa.RecordBatch], options: Options, *, is_whole: bool
) -> Generator[Batches]:
    coming = 0
    with closing(results) as rest:
        late: pa.RecordBatch | None = None
        for batch in rest if is_whole else ():
            numbers = as_numpy(batch.column(batch.num_columns - 1))
            if not _goes_on(numbers, coming):
                late = batch
                break
            coming = int(numbers[-1]) + 1
            yield [_bare(batch)]
        if is_whole and late is None:
            return
        waiting = rest if late is None else _chained(late, rest)
        yield from _sorted(join, waiting, options)


def _goes_on(numbers: Int64s, coming: int) -> bool:
    """Whether these are the next numbers, each once or several times."""
    steps = np.diff(numbers, prepend=coming - 1 if numbers[0] == coming else -2)
    return bool(numbers[0] == coming and ((steps == 0) | (steps == 1)).all())


def _chained(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _sorted(join: Join, batches: Iterable[pa.RecordBatch], options: Options) -> Iterator[Batches]:
    numbered, report = join.numbered, join.report
    report.decide("ordered: results are sorted by the left rows' numbers")
    try:
        with Store(
            memory=options.budget_bytes, page_size=options.page_bytes, scratch=options.scratch
        ) as store, store.sort(batches, numbered, on=ROW) as rows:  # fmt: skip
            for batch in rows.batches():
                yield [_bare(batch)]
            counted = store.pool.counters
            report.peak_bytes += counted.bytes_peak
            report.pages_read += counted.reads
            report.pages_written += counted.writes
    except BudgetError as e:
        raise join.announced(e) from e


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(batch.schema.names[:-1])
