"""A direction in memory: probe rows that wait, base rows they may meet, and no page at all.

    probe   waiting ▐▐▐▐▐▐▐        judged, handed over and forgotten once they are final
    base    kept    ▐▐▐▐▐▐▐▐▐▐▐    dropped once no probe row can reach them

Judging many rows sorts both sides into ε-Grid-Order first.  Judging a few, as a live stream does
with every row it gets, tests the portions within reach of the order attribute row by row, without
sorting or copying the window.  `FEW_PAIRS` is where the two cost the same: about 1 ms.

Invariant: `held_bytes` is what the rows and their arrays take; `judge_bytes` bounds what judging
them takes on top.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, one_batch
from matwin.storage.columns import INT64_MAX, INT64_MIN, Bools, Int64s

from .block import Block, offsets
from .candidates import Candidates, joined
from .finality import Finality
from .judge import Judge, Offsets, nobody
from .latest import Latest, Mates, Timed
from .matched import Finish, Matched, Result, Stretch, unmatched_rows
from .output import BATCH_ROWS
from .side import SIDES, Side
from .sizes import batch_bytes, column_bytes
from .state import Held

FEW_PAIRS = 400_000
WIDE_BYTES = 1 << 16
PAIR_BYTES = 48
OFFSETS_MAX = 2**31 - 2**28
MANY_PAIRS = 1 << 14
"""What a pair takes beside its output row: row numbers, keys."""
EVERY = (INT64_MIN, INT64_MAX)
PIECE_ROWS_MIN, PIECE_ROWS_MAX = 1 << 12, 1 << 17
PROBE, BASE = "probe", "base"
NOBODY = np.empty(0, np.int64)


@dataclass(slots=True)
class Portion:
    """Rows with their order keys, the least and the greatest of these, their bytes, and their flat
    block once it is needed."""

    batch: pa.RecordBatch
    keys: Int64s
    low: int
    high: int
    size: int
    block: Block | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, keys: Int64s, size: int) -> Portion:
        """A portion of at least one row."""
        return cls(batch, keys, int(keys.min()), int(keys.max()), size)

    def size_from(self, first: int) -> int:
        """What the rows whose key is at least `first` take, reckoned at their share."""
        if self.low >= first or self.high < first:
            return self.size if self.low >= first else 0
        return self.size * int(np.count_nonzero(self.keys >= first)) // len(self.keys)

    def where(self, mask: Bools) -> Portion:
        """Some of the rows, measured: they may be the widest of all."""
        kept, keys = self.batch.filter(arrow(mask)), self.keys[mask]
        return Portion.of(kept, keys, batch_bytes(kept) + keys.nbytes)


class Rows:
    """Rows of one side in portions, which are joined as they grow."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.portions: list[Portion] = []
        self.rows = 0
        self.size = 0

    def append(self, batch: pa.RecordBatch, keys: Int64s, size: int) -> None:
        """Take rows."""
        if batch.num_rows == 0:
            return
        # Portions of like size become one, so that n rows that come singly are copied log n times.
        # Wide ones do not: a copy of them has no room, and one by one they can be dropped.  Those
        # of very many columns do: what these take by themselves is then taken once.
        parts = [Portion.of(batch, keys, size + keys.nbytes)]
        rows = batch.num_rows
        most = 0 if size - column_bytes(batch.num_columns) > WIDE_BYTES * rows else 1 << 16
        while self.portions and self.portions[-1].batch.num_rows <= 2 * rows < most:
            parts.append(self._pop(-1))
            rows += parts[-1].batch.num_rows
        self._put(_joined(parts[::-1]))

    def joined(self) -> pa.RecordBatch:
        """All rows as one batch."""
        if not self.portions:
            return self._empty_batch()
        portions, self.portions, self.rows, self.size = self.portions, [], 0, 0
        self._put(_joined(portions))
        return self.portions[0].batch

    def take(self, at: Int64s) -> pa.RecordBatch:
        """The rows at these places, without joining the portions."""
        if not self.portions:
            return self._empty_batch()
        ends = np.cumsum([portion.batch.num_rows for portion in self.portions])
        which = np.searchsorted(ends, at, "right")
        order = np.argsort(which, kind="stable")
        parts = []
        for number in np.unique(which).tolist():
            start = ends[number] - self.portions[number].batch.num_rows
            inside = at[order][which[order] == number] - start
            parts.append(self.portions[number].batch.take(arrow(inside)))
        rows = pa.concat_batches(parts) if parts else self._empty_batch()
        back = np.empty(len(at), np.int64)
        back[order] = np.arange(len(at))
        return rows if len(parts) < 2 else rows.take(arrow(back))

    def _empty_batch(self) -> pa.RecordBatch:
        return _empty(self._side.stored)

    def has_upto(self, last: int) -> bool:
        """Whether a row's key is at most `last`."""
        return any(portion.low <= last for portion in self.portions)

    def size_from(self, first: int) -> int:
        """What the rows whose key is at least `first` take."""
        return sum(portion.size_from(first) for portion in self.portions)

    def upto(self, last: int) -> Rows:
        """Take out the rows whose key is at most `last`."""
        out = Rows(self._side)
        portions, self.portions, self.rows, self.size = self.portions, [], 0, 0
        for portion in portions:
            if portion.low > last:
                self._put(portion)
            elif portion.high <= last:
                out._put(portion)
            else:
                is_out = portion.keys <= last
                out._put(portion.where(is_out))
                self._put(portion.where(~is_out))
        return out

    def drop_below(self, bound: int, *, whole: bool) -> None:
        """Forget the rows whose key is below `bound`; with `whole`, only portions that are below as
        a whole, so that no window is copied for a few rows."""
        if not whole and self.has_upto(bound - 1):
            self.upto(bound - 1)
        elif any(portion.high < bound for portion in self.portions):
            portions, self.portions, self.rows, self.size = self.portions, [], 0, 0
            for portion in portions:
                if portion.high >= bound:
                    self._put(portion)

    def pop(self) -> Portion:
        """Take out the first portion."""
        return self._pop(0)

    def batches(self) -> list[pa.RecordBatch]:
        """All rows."""
        return [portion.batch for portion in self.portions]

    def popped(self) -> Iterator[pa.RecordBatch]:
        """All rows, forgotten as they are handed out."""
        while self.portions:
            yield self.pop().batch

    def put_back(self, rows: pa.RecordBatch) -> None:
        """Take a portion of before, as it was."""
        keys = self._side.order_keys(rows)
        self._put(Portion.of(rows, keys, batch_bytes(rows) + keys.nbytes))

    def _pop(self, number: int) -> Portion:
        portion = self.portions.pop(number)
        self.rows -= portion.batch.num_rows
        self.size -= portion.size
        return portion

    def _put(self, portion: Portion) -> None:
        self.portions.append(portion)
        self.rows += portion.batch.num_rows
        self.size += portion.size


def _joined(portions: list[Portion]) -> Portion:
    if len(portions) == 1:
        return portions[0]
    columns = column_bytes(portions[0].batch.num_columns)
    return Portion(
        one_batch([p.batch for p in portions]),
        np.concatenate([p.keys for p in portions]),
        min(p.low for p in portions),
        max(p.high for p in portions),
        sum(p.size for p in portions) - (len(portions) - 1) * columns,
    )


class MemoryDirection:
    """Probe rows and base rows of one direction, in memory."""

    def __init__(
        self, judge: Judge, finality: Finality, *, threads: int, output_bytes: int, is_live: bool,
        wants_unmatched: bool = True, keeps_rows: bool = False,
    ) -> None:  # fmt: skip
        """`keeps_rows`: rows stay where they lie, and only their arrays are sorted."""
        self._wants_unmatched = wants_unmatched
        self._keeps_rows = keeps_rows
        self.judge = judge
        self._threads = threads
        self._finality = finality
        self._output_bytes = output_bytes
        self._is_live = is_live
        self.clear()

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return self.probe.size + self.base.size

    @property
    def judge_bytes(self) -> int:
        """What judging takes beside them at most: copies of both sides, and their blocks."""
        probe, base = self.judge.probe.bytes_per_row(), self.judge.base.bytes_per_row()
        copies = self.copies * (self.probe.size + self.base.size)
        return copies + 3 * (self.probe.rows * probe + self.base.rows * base)

    @property
    def copies(self) -> int:
        """How often judging copies a row: to join the portions, and unless rows are few, to sort
        them.  Wide rows are few."""
        return 1 if self.probe.rows * self.base.rows <= FEW_PAIRS else 2

    @property
    def output_bytes(self) -> int:
        """What output that is under way takes at most."""
        widths = [rows.size // max(rows.rows, 1) for rows in (self.probe, self.base)]
        portions = 2 * self._threads + 1
        return min(self._output_bytes, portions * BATCH_ROWS * (sum(widths) + PAIR_BYTES))

    @property
    def exceeds_offsets(self) -> bool:
        """Whether a side has more bytes than a column's 32-bit offsets can tell."""
        return max(self.probe.size, self.base.size) > OFFSETS_MAX

    names: Sequence[str] = ()  # in no store

    @property
    def holders(self) -> list[Held]:
        """Its rows: a side is the probe of one direction only, and the base of one."""
        judge = self.judge
        return [
            Held(SIDES.index(judge.probe_name), PROBE, self.probe),
            Held(SIDES.index(judge.base_name), BASE, self.base),
        ]

    def append(self, side: str, rows: pa.RecordBatch, keys: Int64s, size: int) -> None:
        """Take rows of a side."""
        (self.probe if side == self.judge.probe_name else self.base).append(rows, keys, size)

    def clear(self) -> None:
        """Forget all rows."""
        self.probe, self.base = Rows(self.judge.probe.side), Rows(self.judge.base.side)

    def waiting(self, last: int) -> bool:
        """Whether some probe row could be judged."""
        return self.probe.has_upto(last)

    def drop_base(self, below: int) -> None:
        """Forget base rows that no probe row can reach any more."""
        self.base.drop_below(below, whole=self._is_live)

    def kept_share(self, last: int, below: int) -> float:
        """How much of the windows would be left once rows up to `last` are judged and base rows
        below are dropped."""
        kept = self.probe.size_from(last + 1) + self.base.size_from(below)
        return kept / max(self.held_bytes, 1)

    def judge_upto(
        self, last: int, finish: Finish[Result], *, with_keys: bool = False
    ) -> Iterator[Result]:
        """Judge the probe rows whose key is at most `last`; they are forgotten."""
        self._capacity, is_eager = self._pairs_at_a_time()
        judged = self.probe.upto(last)
        if judged.rows * self.base.rows <= FEW_PAIRS:
            yield from self._judge_few(judged, finish, with_keys=with_keys)
            return
        work: _Work
        if self.judge.latest is not None:
            work = self._latest(judged, self.judge.latest, is_end=last == INT64_MAX)
        else:
            made = self._ordered if self._keeps_rows and self.judge.is_fused else self._sorted
            work = _SortedWork(
                self.judge, *made(judged.joined()), with_keys=with_keys,
                wants_unmatched=self._wants_unmatched,
            )  # fmt: skip
        del judged
        if is_eager:
            yield from self._pieces(work, finish)
        else:
            yield from map(finish, self._pieces(work, _as_it_is))

    def _latest(self, judged: Rows, latest: Latest, *, is_end: bool) -> _LatestWork:
        """The nearest rows of each row, found in one pass over both sides."""
        judge, rows, base = self.judge, judged.joined(), self.base.joined()
        keys = self.base.portions[0].keys if self.base.portions else np.empty(0, np.int64)
        found = latest.search(
            judge.question.order,
            Timed(judge.probe.side, rows, judged.portions[0].keys),
            Timed(judge.base.side, base, keys),
            threads=self._threads,
        )
        is_shared = is_end and not self._keeps_rows
        return _LatestWork(nobody(judge), rows, base, found, is_shared=is_shared)

    def _sorted(self, judged: pa.RecordBatch) -> tuple[_Ordered, _Ordered]:
        """Both sides sorted: whoever gathers the rows of pairs finds them side by side."""
        probe, base = self.judge.probe, self.judge.base
        both = probe.sorted(judged), base.sorted(self.base.joined())
        return _Ordered(both[0][0], None, both[0][1]), _Ordered(both[1][0], None, both[1][1])

    def _ordered(self, judged: pa.RecordBatch) -> tuple[_Ordered, _Ordered]:
        """Both sides as they lie, without a copy: for as many rows as a CPU's cache holds."""
        rows = judged, self.base.joined()
        probe, base = self.judge.probe.ordered(rows[0]), self.judge.base.ordered(rows[1])
        return _Ordered(rows[0], *probe), _Ordered(rows[1], *base)

    def _pairs_at_a_time(self) -> tuple[int, bool]:
        """Pairs in a portion, so that two portions a thread under way fit their share, and whether
        workers make output rows of them.

        In a small budget they hand over numbers only, and rows are made one batch at a time: 1M
        rows a side in 8 MiB took 4,900 portions of rows (2.5 s) and take 2,200 of numbers (1.3 s).
        """
        width = sum(rows.size // max(rows.rows, 1) for rows in (self.probe, self.base))
        if self._threads == 1:
            # One portion's rows, and numbers of the one that the caller has still: a batch is then
            # as large as it can be.  In 9 MB, 1,600 batches in place of 3,600.
            pairs = self._output_bytes // (width + 2 * PAIR_BYTES)
            return max(64, self._output_bytes // (8 * PAIR_BYTES), min(pairs, BATCH_ROWS)), False
        portions = 2 * self._threads + 1
        pairs = self._output_bytes // (portions * (width + PAIR_BYTES))
        if pairs >= MANY_PAIRS:
            return min(pairs, BATCH_ROWS), True
        pairs = self._output_bytes // (portions * PAIR_BYTES)
        return max(64, min(pairs, BATCH_ROWS)), False

    def _pieces(self, work: _Work, finish: Finish[Result]) -> Iterator[Result]:
        """Stretches of probe rows, their results in order."""
        if self._threads > 1:
            yield from self._threaded(work, finish)
            return
        first = 0
        while first < work.rows:
            limit = min(first + PIECE_ROWS_MAX, work.rows)
            result, first, _ = work.run(finish, first, limit, self._capacity)
            yield result

    def _threaded(self, work: _Work, finish: Finish[Result]) -> Iterator[Result]:
        """The same on all threads."""
        rows = work.rows
        size, start = PIECE_ROWS_MIN, 0
        running: deque[tuple[Future[tuple[Result, int, int]], int]] = deque()
        with ThreadPoolExecutor(self._threads, "matwin-judge") as executor:
            while start < rows or running:
                while start < rows and len(running) <= self._threads:
                    limit = min(start + size, rows)
                    task = executor.submit(work.run, finish, start, limit, self._capacity)
                    running.append((task, limit))
                    start = limit
                future, limit = running.popleft()
                result, following, seen = future.result()
                if following < limit:
                    task = executor.submit(work.run, finish, following, limit, self._capacity)
                    running.appendleft((task, limit))
                size = _piece_rows(seen, self._capacity)
                yield result

    def _judge_few(
        self, judged: Rows, finish: Finish[Result], *, with_keys: bool
    ) -> Iterator[Result]:
        if judged.rows == 0:
            return
        rows = judged.joined()
        probe = self.judge.probe.flat(rows, judged.portions[0].keys)
        found = self._found(probe, rows, judged, with_keys=with_keys)
        found = self.judge.contest.settled(found)
        lonely = unmatched_rows(probe.order, EVERY, 0, probe.rows, found.probe)
        # A row once, however many have found it: 300 rows of 10 KB a side that all meet each other
        # took 2.7 GB in a budget of 64 MiB.
        mates, at = np.unique(found.base, return_inverse=True)
        candidates = Candidates(found.probe, at, found.keys, found.boxes)
        yield finish(Matched(rows, self.base.take(mates), candidates, lonely))

    def _found(
        self, probe: Block, rows: pa.RecordBatch, judged: Rows, *, with_keys: bool
    ) -> Candidates:
        """What the base portions within reach of the order attribute hold, one after the other."""
        low, high = self._finality.within_reach(judged.portions[0].low, judged.portions[0].high)
        needs_keys = with_keys or self.judge.mode == "best"
        parts, start = [nobody(self.judge)], 0
        for portion in self.base.portions:
            if portion.high >= low and portion.low <= high:
                if portion.block is None:
                    portion.block = self.judge.base.flat(portion.batch, portion.keys)
                for found in self.judge.search(
                    probe, portion.block, (rows, portion.batch), capacity=probe.rows * 64,
                    with_keys=needs_keys,
                ):  # fmt: skip
                    parts.append(found.candidates.shifted(start))
            start += portion.batch.num_rows
        return self._merged([part for part in parts if len(part)] or parts[:1])

    def _merged(self, parts: list[Candidates]) -> Candidates:
        if self.judge.mode == "best":
            return reduce(self.judge.contest.merged, parts)
        found = joined(parts)
        found = found.take(np.argsort(found.probe, kind="stable"))
        if self.judge.mode == "any":
            found = found.take(np.unique(found.probe, return_index=True)[1])
        return found


def _as_it_is(matched: Matched) -> Matched:
    return matched


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Rows, where each row of their block lies among them (None: as in the block), the block."""

    rows: pa.RecordBatch
    order: Int64s | None
    block: Block

    def places(self, at: Int64s) -> Int64s:
        """Where rows of the block lie."""
        return at if self.order is None else self.order[at]


class _Work(Protocol):
    """Probe rows to be searched for, a piece at a time."""

    rows: int

    def run(
        self, finish: Finish[Result], first: int, limit: int, capacity: int
    ) -> tuple[Result, int, int]:
        """Search from `first` on until the capacity is used; the result, where to go on, and how
        many rows that took for a full portion."""


class _SortedWork:
    """Sorted blocks, and how they are searched."""

    def __init__(
        self, judge: Judge, probe: _Ordered, base: _Ordered, *, with_keys: bool,
        wants_unmatched: bool,
    ) -> None:  # fmt: skip
        self._wants_unmatched = wants_unmatched
        self.rows = probe.block.rows
        self._judge = judge
        self._sides = (probe, base)
        self._with_keys = with_keys
        self._reach: Offsets = offsets(judge.probe, probe.block, base.block)

    def run(
        self, finish: Finish[Result], first: int, limit: int, capacity: int
    ) -> tuple[Result, int, int]:
        """See `_Work`."""
        probe, base = self._sides
        found = next(
            self._judge.search(
                probe.block, base.block, (probe.rows, base.rows), capacity=capacity, first=first,
                limit=limit, with_keys=self._with_keys, reach=self._reach,
            )
        )  # fmt: skip
        pairs = self._judge.contest.settled(found.candidates)
        lonely = NOBODY
        if self._wants_unmatched:  # it looks at every pair
            lonely = unmatched_rows(probe.block.order, EVERY, first, found.limit, pairs.probe)
        placed = Candidates(probe.places(pairs.probe), base.places(pairs.base), pairs.keys,
                            pairs.boxes)  # fmt: skip
        result = finish(Matched(probe.rows, base.rows, placed, probe.places(lonely)))
        rows = (found.limit - first) * capacity // max(len(pairs), 1)
        return result, found.limit, rows


class _LatestWork:
    """What has been found already: a row's matches or nobody."""

    def __init__(
        self, nobody: Candidates, rows: pa.RecordBatch, base: pa.RecordBatch, found: Mates, *,
        is_shared: bool,
    ) -> None:  # fmt: skip
        self._is_shared = is_shared
        self.rows = rows.num_rows
        self._nobody = nobody
        self._sides = (rows, base)
        self._found = found

    def run(
        self, finish: Finish[Result], first: int, limit: int, capacity: int
    ) -> tuple[Result, int, int]:
        """See `_Work`."""
        rows, mates, limit = self._found.stretch(first, limit, capacity)
        stretch = Stretch(first, mates, self._is_shared, rows)
        return finish(Matched(*self._sides, self._nobody, NOBODY, stretch)), limit, PIECE_ROWS_MAX


def _piece_rows(rows_for_capacity: int, capacity: int) -> int:
    """How many probe rows fill about three quarters of a portion."""
    return max(PIECE_ROWS_MIN, min(rows_for_capacity * 3 // 4, PIECE_ROWS_MAX, 16 * capacity))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
