"""Joining slab by slab: what has come since the last step meets everything, sorted and merged.

    old   what was there at the last step          new   what has come since

    A tuple is found at the step that brings the last of its rows, through the first of its streams
    that has a new row:

    root      a      b      c
    new a     new    all    all         all = old and new
    new b     old    new    all
    new c     old    old    new

So every tuple is found once, however many of its rows are new.  Finite inputs that fit the memory
are one step, in which everything is new: sorted once, merged once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from matwin.feed import Portion
from matwin.report import Report
from matwin.state import Held
from matwin.storage.columns import INT64_MIN

from .block import BYTES_PER_ROW, Blocks
from .needed import needed_from
from .output import Output
from .parts import SORTING_BYTES, MemoryPart, needed_bytes
from .pipeline import Pipeline, Reach
from .question import WindowQuestion
from .reaches import BlockRef, MergeReach
from .streams import NEW, OLD, StreamsInMemory, in_role

STRETCH_MIN, STRETCH_MAX = 1 << 10, 1 << 17
Refs = Sequence[Sequence[BlockRef]]


class Slabs(StreamsInMemory):
    """Old and new rows of every stream, in memory."""

    step_bytes: int | None = None
    copies = 2
    """How often a row that comes is in memory: when its part is sorted."""

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, *, bounds: str,
        threads: int, budget_bytes: int, report: Report, keeps_rows: bool = False,
    ) -> None:  # fmt: skip
        """`keeps_rows`: rows are few enough to be left where they lie."""
        self._keeps_rows = keeps_rows
        self._report = report
        self._question = question
        self._output = output
        self._bounds = bounds
        self._threads = threads
        self._budget_bytes = budget_bytes
        self.old = [MemoryPart(b, keeps_rows=keeps_rows) for b in blocks]
        self.new = [MemoryPart(b, keeps_rows=keeps_rows) for b in blocks]

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return sum(part.held_bytes for part in (*self.old, *self.new))

    @property
    def counted_bytes(self) -> int:
        """What a step takes: it sorts, and makes output."""
        return self._needed_bytes(self._sorted_together)

    @property
    def needed_bytes(self) -> int:
        """What the rows take, and sorting the largest part, and output."""
        return self._needed_bytes(1)

    def _needed_bytes(self, together: int) -> int:
        return needed_bytes([*self.old, *self.new], together) + self._output.share_bytes

    @property
    def _sorted_together(self) -> int:
        """How many parts are sorted at a time: one on each thread, if there is memory for that."""
        fits = self._needed_bytes(self._threads) <= self._budget_bytes
        return self._threads if fits else 1

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step."""
        if not is_known(frontiers):
            return self.needed_bytes
        parts = list(zip(self.old, self.new, self._needed(frontiers), strict=True))
        kept = sum(o.bytes_from(bound) + n.bytes_from(bound) for o, n, bound in parts)
        return kept + self._output.share_bytes

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Keep rows for the next step."""
        self.new[stream].append(portion.rows, portion.size)
        return iter(())

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row; then drop what no later row can meet.

        While nothing is known of a stream's order nothing could be dropped, and more rows would
        have to be joined in steps than in one: then it waits.
        """
        if not is_known(frontiers):
            return
        self._report.steps += 1
        self._sort()
        old, new = [p.refs() for p in self.old], [p.refs() for p in self.new]
        counts = [o.rows + n.rows for o, n in zip(self.old, self.new, strict=True)]
        yield from stepped(
            self._question, old, new, counts, self._bounds, self._output, self._threads
        )
        for own, come, bound in zip(self.old, self.new, self._needed(frontiers), strict=True):
            own.absorb(come)
            own.drop_below(bound)

    def _sort(self) -> None:
        """Sort what is not sorted yet.  Few rows are not worth the threads."""
        parts = [*self.old, *self.new]
        together = self._sorted_together
        if together > 1 and sum(part.rows for part in parts) > STRETCH_MIN:
            with ThreadPoolExecutor(together) as pool:
                list(pool.map(MemoryPart.refs, parts))

    def _needed(self, frontiers: Sequence[int]) -> list[int]:
        upper = self._question.constraints.bounds(self._bounds)
        return needed_from(frontiers, upper, is_float=self._question.is_float)

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes: its rows and arrays, and a copy and words while they are sorted."""
        if self._keeps_rows:
            # A copy while a part is loaded; afterwards arrays, where each row lies, and words.
            return size + max(size, rows * (BYTES_PER_ROW + 8 + SORTING_BYTES))
        return self.copies * size + rows * (BYTES_PER_ROW + SORTING_BYTES)

    @property
    def is_untouched(self) -> bool:
        """Whether no rows have been joined yet."""
        return not any(part.rows for part in self.old)

    @property
    def holders(self) -> list[Held]:
        """Old and new rows."""
        return [*in_role(OLD, self.old), *in_role(NEW, self.new)]


def is_known(frontiers: Sequence[int]) -> bool:
    """Whether every stream has said how far it has come."""
    return all(frontier > INT64_MIN for frontier in frontiers)


def stepped(
    question: WindowQuestion, old: Refs, new: Refs, counts: Sequence[int], bounds: str,
    output: Output, threads: int,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The tuples that have a new row."""
    for root, roots in enumerate(new):
        others = {
            i: old[i] if i < root else [*old[i], *new[i]] for i in range(len(new)) if i != root
        }
        if not roots or not all(others.values()):
            continue
        pipeline = Pipeline(question, root, bounds=bounds, rows=counts)
        reaches: dict[int, Reach] = {i: MergeReach(refs) for i, refs in others.items()}
        for ref in roots:
            yield from _of_root(pipeline, ref, reaches, output, threads)


def _of_root(
    pipeline: Pipeline, ref: BlockRef, reaches: dict[int, Reach], output: Output, threads: int
) -> Iterator[pa.RecordBatch]:
    """The tuples of one block of the root, stretch by stretch."""
    with ref.pinned() as block:

        def batches(first: int, limit: int) -> Generator[pa.RecordBatch]:
            rows = np.arange(first, limit)
            for seen, tuples in pipeline.run(block, rows, reaches, output.capacity):
                yield from output.batches(seen, tuples)

        if threads == 1 or len(block) <= STRETCH_MIN:
            for first in range(0, len(block), STRETCH_MAX):
                yield from batches(first, min(first + STRETCH_MAX, len(block)))
        else:
            yield from _in_stretches(batches, len(block), threads, output.capacity)


def _in_stretches(
    batches: Callable[[int, int], Generator[pa.RecordBatch]], rows: int, threads: int, wanted: int
) -> Iterator[pa.RecordBatch]:
    """Stretches of rows on all threads, their batches in order; each thread is one batch ahead."""
    size, start = STRETCH_MIN, 0
    waiting: deque[tuple[Generator[pa.RecordBatch], Future[pa.RecordBatch | None]]] = deque()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        stack.callback(lambda: [future.cancel() for _, future in waiting])
        found = 0
        while start < rows or waiting:
            while start < rows and len(waiting) <= threads:
                made = batches(start, min(start + size, rows))
                waiting.append((made, pool.submit(next, made, None)))
                start += size
            made, future = waiting.popleft()
            batch = future.result()
            if batch is None:
                size = _next_size(size, found, wanted)
                found = 0
                continue
            found += batch.num_rows
            waiting.appendleft((made, pool.submit(next, made, None)))
            yield batch


def _next_size(size: int, found: int, wanted: int) -> int:
    """Stretches of which each gives about one batch."""
    better = size * wanted // max(found, 1)
    return max(STRETCH_MIN, min(better, 4 * size, STRETCH_MAX))
