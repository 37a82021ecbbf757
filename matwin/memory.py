"""A direction in memory: probe rows that wait, base rows they may meet, and no page at all.

    probe   waiting ▐▐▐▐▐▐▐        judged, handed over and forgotten once they are final
    base    kept    ▐▐▐▐▐▐▐▐▐▐▐    dropped once no probe row can reach them

Judging many rows sorts both sides into ε-Grid-Order first.  Judging a few, as a live stream does
with every row it gets, tests the base rows within reach of the order attribute one by one, without
sorting or copying the window.  `FEW_PAIRS` is where the two cost the same: about 1 ms.

Invariant: `held_bytes` is what the rows and their arrays take; `judge_bytes` bounds what judging
them takes on top.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s

from .block import Block, offsets
from .judge import Judge, Offsets
from .matched import Finish, Matched, Result, unmatched_rows
from .output import BATCH_ROWS

FEW_PAIRS = 400_000
PAIR_BYTES = 48
"""What a pair takes beside its output row: row numbers, keys."""
EVERY = (INT64_MIN, INT64_MAX)
PIECE_ROWS_MIN, PIECE_ROWS_MAX = 1 << 12, 1 << 17


class Rows:
    """Rows of one side with their order keys, in portions that are joined as they grow."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.batches: list[pa.RecordBatch] = []
        self.keys: list[Int64s] = []
        self.rows = 0
        self.size = 0

    def append(self, batch: pa.RecordBatch, keys: Int64s) -> None:
        """Take rows."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        self.size += batch.nbytes + keys.nbytes
        # Portions of like size become one, so that n rows that come singly are copied log n times.
        while self.batches and self.batches[-1].num_rows <= 2 * batch.num_rows < 1 << 16:
            batch = pa.concat_batches([self.batches.pop(), batch])
            keys = np.concatenate([self.keys.pop(), keys])
        self.batches.append(batch)
        self.keys.append(keys)

    def joined(self) -> tuple[pa.RecordBatch, Int64s]:
        """All of them as one batch."""
        if not self.batches:
            return _empty(self._schema), np.empty(0, np.int64)
        if len(self.batches) > 1:
            self.batches = [pa.concat_batches(self.batches)]
            self.keys = [np.concatenate(self.keys)]
        return self.batches[0], self.keys[0]

    def upto(self, last: int) -> tuple[pa.RecordBatch, Int64s]:
        """Take out the rows whose key is at most `last`."""
        out = Rows(self._schema)
        self._split(last, out)
        return out.joined()

    def drop_below(self, bound: int) -> None:
        """Forget the rows whose key is below `bound`."""
        if bound > INT64_MIN:
            self._split(bound - 1, None)

    def _split(self, last: int, out: Rows | None) -> None:
        batches, keys = self.batches, self.keys
        self.batches, self.keys, self.rows, self.size = [], [], 0, 0
        for batch, portion in zip(batches, keys, strict=True):
            is_out = portion <= last
            if not is_out.any():
                self._put(batch, portion)
            elif is_out.all():
                if out is not None:
                    out._put(batch, portion)
            else:
                mask = pa.array(is_out)
                if out is not None:
                    out._put(batch.filter(mask), portion[is_out])
                self._put(batch.filter(pa.array(~is_out)), portion[~is_out])

    def _put(self, batch: pa.RecordBatch, keys: Int64s) -> None:
        self.batches.append(batch)
        self.keys.append(keys)
        self.rows += batch.num_rows
        self.size += batch.nbytes + keys.nbytes


class MemoryDirection:
    """Probe rows and base rows of one direction, in memory."""

    is_paged = False

    def __init__(self, judge: Judge, *, threads: int, output_bytes: int) -> None:
        self.judge = judge
        self._threads = threads
        self._output_bytes = output_bytes
        self.probe = Rows(judge.probe.side.stored)
        self.base = Rows(judge.base.side.stored)

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return self.probe.size + self.base.size

    @property
    def judge_bytes(self) -> int:
        """What judging takes beside them at most: both sides sorted, and their blocks."""
        probe, base = self.judge.probe.bytes_per_row(), self.judge.base.bytes_per_row()
        copies = 2 * (self.probe.size + self.base.size)
        return copies + 3 * (self.probe.rows * probe + self.base.rows * base)

    def append(self, side: str, rows: pa.RecordBatch, keys: Int64s) -> None:
        """Take rows of a side."""
        (self.probe if side == self.judge.probe_name else self.base).append(rows, keys)

    def waiting(self, last: int) -> bool:
        """Whether some probe row could be judged."""
        return any(bool((keys <= last).any()) for keys in self.probe.keys)

    def drop_base(self, below: int) -> None:
        """Forget base rows that no probe row can reach any more."""
        self.base.drop_below(below)

    def close(self) -> None:
        """Forget everything."""
        self.probe.drop_below(INT64_MAX)
        self.base.drop_below(INT64_MAX)

    def judge_upto(
        self, last: int, finish: Finish[Result], *, with_keys: bool = False
    ) -> Iterator[Result]:
        """Judge the probe rows whose key is at most `last`; they are forgotten."""
        self._capacity = self._pairs_at_a_time()
        rows, keys = self.probe.upto(last)
        if rows.num_rows * self.base.rows <= FEW_PAIRS:
            yield from self._judge_few(rows, keys, finish, with_keys=with_keys)
            return
        probe_rows, probe = self.judge.probe.sorted(rows)
        base_rows, base = self.judge.base.sorted(self.base.joined()[0])
        del rows, keys
        work = _Work(self.judge, probe_rows, probe, base_rows, base, finish, with_keys=with_keys)
        yield from self._pieces(work)

    def _pairs_at_a_time(self) -> int:
        """Pairs whose output rows, with two portions a thread under way, fit their share."""
        widths = [rows.size // max(rows.rows, 1) for rows in (self.probe, self.base)]
        portions = 2 * self._threads + 1
        pairs = self._output_bytes // (portions * (sum(widths) + PAIR_BYTES))
        return max(64, min(pairs, BATCH_ROWS))

    def _pieces(self, work: _Work[Result]) -> Iterator[Result]:
        """Stretches of probe rows on all threads, their results in order."""
        rows = work.probe.rows
        size, start = PIECE_ROWS_MIN, 0
        running: deque[tuple[Future[tuple[Result, int, int]], int]] = deque()
        with ThreadPoolExecutor(self._threads, "matwin-judge") as executor:
            while start < rows or running:
                while start < rows and len(running) <= self._threads:
                    limit = min(start + size, rows)
                    task = executor.submit(work.run, start, limit, self._capacity)
                    running.append((task, limit))
                    start = limit
                future, limit = running.popleft()
                result, following, seen = future.result()
                if following < limit:
                    task = executor.submit(work.run, following, limit, self._capacity)
                    running.appendleft((task, limit))
                size = _piece_rows(seen, self._capacity)
                yield result

    def _judge_few(
        self, rows: pa.RecordBatch, keys: Int64s, finish: Finish[Result], *, with_keys: bool
    ) -> Iterator[Result]:
        if rows.num_rows == 0:
            return
        probe = self.judge.probe.flat(rows, keys)
        table = pa.Table.from_batches(self.base.batches, schema=self.judge.base.side.stored)
        base_rows, base = self._within_reach(table)
        search = self.judge.search(
            probe, base, (rows, base_rows), capacity=self._capacity, with_keys=with_keys
        )
        for found in search:
            lonely = unmatched_rows(
                probe.order, EVERY, found.first, found.limit, found.candidates.probe
            )
            yield finish(Matched(rows, base_rows, found.candidates, lonely))

    def _within_reach(self, table: pa.Table) -> tuple[pa.RecordBatch, Block]:
        rows = _as_batch(table)
        keys = np.concatenate(self.base.keys) if self.base.keys else np.empty(0, np.int64)
        return rows, self.judge.base.flat(rows, keys)


class _Work(Generic[Result]):
    """Sorted blocks, and what to do with what is found in them."""

    def __init__(
        self, judge: Judge, probe_rows: pa.RecordBatch, probe: Block, base_rows: pa.RecordBatch,
        base: Block, finish: Finish[Result], *, with_keys: bool,
    ) -> None:  # fmt: skip
        self.probe = probe
        self._judge = judge
        self._rows = (probe_rows, base_rows)
        self._base = base
        self._finish = finish
        self._with_keys = with_keys
        self._reach: Offsets = offsets(judge.probe, probe, base)

    def run(self, first: int, limit: int, capacity: int) -> tuple[Result, int, int]:
        """Search from `first` on until the capacity is used; the result, where to go on, and how
        many rows that took for a full portion."""
        found = next(
            self._judge.search(
                self.probe, self._base, self._rows, capacity=capacity, first=first, limit=limit,
                with_keys=self._with_keys, reach=self._reach,
            )
        )  # fmt: skip
        lonely = unmatched_rows(self.probe.order, EVERY, first, found.limit, found.candidates.probe)
        result = self._finish(Matched(*self._rows, found.candidates, lonely))
        rows = (found.limit - first) * capacity // max(len(found.candidates), 1)
        return result, found.limit, rows


def _piece_rows(rows_for_capacity: int, capacity: int) -> int:
    """How many probe rows fill about three quarters of a portion."""
    return max(PIECE_ROWS_MIN, min(rows_for_capacity * 3 // 4, PIECE_ROWS_MAX, 16 * capacity))


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else _empty(table.schema)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
