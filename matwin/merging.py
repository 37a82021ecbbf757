"""As-of joins that do not fit the memory: both sides sorted once, one pass, rows fetched in order.

    rows ──┬─ key, time, number ──▶ sorted on pages (`events`) ──one pass (`nearest`)──▶ pairs of
           │                                                                             numbers
           └─ all columns ──▶ blocks in the order in which they came (`numbered`)          │
                                                                                           ▼
    right blocks, in order ◀── pairs in lanes by their right row ◀─────────────────────────┘
         └──▶ matches in lanes by their left row ──▶ left blocks, in order ──▶ results in left order

Where rows are so many that pieces of lanes would be small, lanes are fewer and each is divided once
more when it is its turn: pieces stay large, and time grows with rows as that of a sort does.

Columns that nothing is compared by are never sorted: left ones are written once and read once,
right ones once more where they are brought to their left rows.  However rows are spread over keys
and times, nothing but two groups of one key is kept during the pass.

Finite inputs are one step at the end.  A live step takes what has come since the last one; left
rows that are not final and right rows that later ones may reach stay on pages.

Invariant: every left row comes out once (`ties="all"`: with each match), in the order of the left
input within a step; everything that is held counts against the pool's budget.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, arrow_or_null, as_numpy
from matwin.storage.columns import Int64s, has_own_code, key_code, no_rows
from matwin.storage.errors import BudgetError
from matwin.storage.lanes import Lanes
from matwin.storage.pool import smallest_budget
from matwin.storage.store import Store
from matwin.storage.units import format_size

from .directions import Direction
from .events import LEFT, Columns, EventRoom, Events, Pile
from .feed import Portion
from .finality import DONE
from .latest import Latest, Near
from .mate_lanes import (
    MATE,
    PAIR_BYTES,
    MateLanes,
    Mates,
    PairLanes,
    gathered,
    places_of,
    taken_together,
    whole_numbers,
)  # fmt: skip
from .nearest import Search
from .need import Need
from .numbered import TIME, Block, Numbered, numbers_of
from .options import Options
from .output import BATCH_ROWS, Output
from .report import Report
from .shares import MERGE_SHARES as SHARES
from .shares import STEP_SHARE
from .side import ROW, SIDES, Side
from .sizes import bytes_at, column_bytes, cuts, fan_out, ways_of

ROWS_WIDE = 16
"""A budget must have room for so many of the widest row: in its block, in the message that is made
of it, on a page, beside its match, in the output; and for all else that goes by shares."""

BATCHES = 8
"""So many batches of very many columns, which take something however few rows they have."""


Lot = list[Block]
"""Right blocks that are there together."""


class MergeNeed(Need):
    """An as-of join: rows on pages, of which few are held at a time."""

    def __init__(self, columns: int, options: Options) -> None:
        super().__init__(options)
        self._batch_bytes = column_bytes(columns)

    def _smallest(self, ties: int, page: int) -> int:
        # One more row than is needed: a message of the same row takes some bytes more or less,
        # depending on where in its batch it stands.
        return self._for_rows(ROWS_WIDE + 1, page)

    def _for_rows(self, rows: int, page: int) -> int:
        size = rows * self._row_max + BATCHES * self._batch_bytes
        return max(smallest_budget(page), size)

    def check(self) -> None:
        """Raise `BudgetError` where the widest row so far is too wide."""
        page = self._options.page_bytes
        smallest = self._smallest(0, page)
        if self._for_rows(ROWS_WIDE, page) > self._options.budget_bytes:
            raise BudgetError(
                f"a row of {format_size(self.row_bytes)} is too large for a budget of "
                f"{format_size(self._options.budget_bytes)}; the smallest that works is "
                f"{format_size(smallest)} ({smallest} bytes)",
                smallest_bytes=smallest,
            )


@dataclass(frozen=True, slots=True)
class Asked:
    """An as-of join as the merge knows it."""

    latest: Latest
    near: Near
    is_float: bool
    keeps: bool
    """Whether left rows without a match come out."""
    sides: Sequence[Side]
    output: Output
    rows: int | None
    """How many rows there are, where both sources know."""


class Merge:
    """Rows of both sides on pages, joined in one pass."""

    makes_room = True
    needed_bytes = 0  # a store counts its own

    def __init__(
        self, asked: Asked, direction: Direction, need: MergeNeed, store: Store, report: Report, *,
        is_live: bool,
    ) -> None:  # fmt: skip
        self._asked = asked
        self._direction = direction
        self._need = need
        self._store = store
        self._pool = store.pool
        self._report = report
        self._is_live = is_live
        budget = store.pool.budget_bytes
        self._budget = budget
        self.step_bytes: int | None = budget // STEP_SHARE if is_live else None
        is_all = asked.latest.ties == "all"
        self._is_mirrored = asked.latest.direction == "forward"
        left, right = asked.sides
        codes = sum(1 if has_own_code(left.stored.field(k).type) else 2 for k in left.keys)
        size = None if asked.rows is None else 8 * (codes + 2) * asked.rows
        room = EventRoom(budget // SHARES.run, budget // SHARES.merge, size)
        self._events = Events(store, codes, room, by_row=is_all)
        ours, theirs = asked.output.names
        self._left = Numbered(store, "left", _numbered(left, ours, with_time=is_live))
        self._right = Numbered(store, "right", _numbered(right, theirs, with_time=False))
        self._room = budget // SHARES.rows
        self._mates = budget // SHARES.mates
        self._gather = budget // SHARES.gather
        self._pairs_max = max(64, budget // SHARES.pairs // PAIR_BYTES)
        need.check()

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes: its numbers, its columns and the message that is made of them."""
        return 4 * size + 64 * rows

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def take(self, feed: int, portion: Portion) -> Iterator[Any]:
        """Take rows."""
        rejected = portion.rejected
        if self._is_live or feed == 1 or not self._asked.keeps:
            rejected = None
        if rejected is not None:
            self._need.see(rejected, feed)
        self._need.check()
        self.append(feed, portion.rows, portion.keys, rejected)
        return iter(())

    def append(
        self, feed: int, rows: pa.RecordBatch, keys: Int64s, rejected: pa.RecordBatch | None = None
    ) -> None:
        """Take rows as they are stored, and left rows that match nothing, as they came."""
        side, numbered = self._asked.sides[feed], (self._left, self._right)[feed]
        if rows.num_rows:
            codes = [c for name in side.keys for c in _codes(rows.column(name), name)]
            numbers = numbers_of(rows) + (LEFT if feed == 0 else 0)
            self._events.add([*codes, ~keys if self._is_mirrored else keys, numbers])
        stored = _columns(rows, numbered.schema, keys)
        if rejected is not None and rejected.num_rows:
            others = _columns(rejected, numbered.schema, np.zeros(rejected.num_rows, np.int64))
            stored = pa.concat_batches([stored, others])
            stored = stored.take(arrow(np.argsort(numbers_of(stored), kind="stable")))
            keys = np.zeros(stored.num_rows, np.int64)  # nobody asks when
        numbered.add(stored, keys)

    # ── a step ───────────────────────────────────────────────────────────────────────────────

    def advance(self, frontiers: Sequence[int]) -> Iterator[Any]:
        """Results that are final by these frontiers."""
        last, needed_from = self._direction.bounds(dict(zip(SIDES, frontiers, strict=True)))
        self._left.settle()
        self._right.settle()
        if any(block.low <= last and block.done < last for block in self._left.blocks):
            self._report.steps += 1
            yield from self._step(last, needed_from)
            for block in self._left.blocks:
                block.done = max(block.done, last)
        is_end = needed_from == DONE
        self._left.drop([b for b in self._left.blocks if is_end or b.high <= last])
        self._right.drop([b for b in self._right.blocks if is_end or b.high < needed_from])
        if is_end:
            for rows in (self._left, self._right, self._events):
                rows.close()

    def _step(self, last: int, needed_from: int) -> Iterator[Any]:
        parts = self._parted(list(self._right.groups(self._room)))
        pairs = self._pair_lanes(parts)
        self._events.settle()
        held = self._events.merging_bytes + SHARES.passing * self._budget // SHARES.merge
        held += 4 * PAIR_BYTES * self._pairs_max
        with self._pool.reserve(held):
            self._search(pairs, last, needed_from)
        attached = MateLanes(self._store, self._right.schema, self._starts(pairs.count))
        for number, lots in enumerate(parts):
            self._brought(lots, pairs.lanes, number, attached)
        pairs.lanes.close()
        ends = [*attached.starts[1:].tolist(), LEFT]
        for number, (start, limit) in enumerate(zip(attached.starts.tolist(), ends, strict=True)):
            yield from self._emitted(attached.lanes, number, start, limit, last)
        attached.lanes.close()

    def _search(self, pairs: PairLanes, last: int, needed_from: int) -> None:
        """The pass: what is final finds its matches, what is not stays."""
        asked, numbers = self._asked, count()
        piles = self._store.lanes("waiting", whole_numbers("a", "b"))
        limit = self._budget // SHARES.pile

        def pile(columns: int) -> Pile:
            return Pile(piles, next(numbers), columns, limit)

        search = Search(
            asked.latest, asked.near, is_float=asked.is_float, pairs_max=self._pairs_max, pile=pile
        )
        keeper = self._events.keep() if needed_from < DONE else None
        for portion in self._events.portions():
            judged = portion
            if keeper is not None:
                times = ~portion[-2] if self._is_mirrored else portion[-2]
                is_left = portion[-1] >= LEFT
                is_final = ~is_left | (times <= last)
                stays = np.where(is_left, times > last, times >= needed_from)
                keeper.add([column[stays] for column in portion])
                judged = [column[is_final] for column in portion]
            for found in search.found(judged):
                pairs.add(found)
        for found in search.end():
            pairs.add(found)
        pairs.finish()
        if keeper is not None:
            keeper.finish()
        piles.close()

    # ── right rows to their left rows ────────────────────────────────────────────────────────

    def _starts(self, pairs: int) -> list[int]:
        """The first left rows of lanes whose matches fit, if all are alike; of fewer lanes, which
        are divided again, where so many would be of small pieces."""
        each = pairs / max(self._left.rows, 1) * (self._right.size / max(self._right.rows, 1) + 16)
        total = each * self._left.rows
        room = 0.8 * self._mates
        lanes = int(total // room) + 1
        if (ways := ways_of(lanes, fan_out(self._gather))) < lanes:
            room = total / ways
        starts, size = [0], 0.0
        for block in self._left.blocks:
            takes = block.rows * each
            if size and size + takes > room:
                starts.append(block.first)
                size = 0.0
            lanes = int(takes // room) + 1
            if lanes > 1:
                cut = np.linspace(block.first, block.last + 1, lanes, endpoint=False)
                starts += cut[1:].astype(np.int64).tolist()
            size += takes / lanes
        return sorted({*starts})

    def _parted(self, lots: list[Lot]) -> list[list[Lot]]:
        """Lots in parts that have a lane of pairs each; one lot each if they are few."""
        ways = ways_of(len(lots), fan_out(PAIR_BYTES * self._pairs_max))
        edges = [len(lots) * n // ways for n in range(ways + 1)]
        return [lots[a:b] for a, b in pairwise(edges) if b > a]

    def _pair_lanes(self, parts: list[list[Lot]]) -> PairLanes:
        return PairLanes(self._store, [lots[0][0].first for lots in parts], self._pairs_max)

    def _brought(self, lots: list[Lot], lanes: Lanes, number: int, attached: MateLanes) -> None:
        """Bring the rows of a lane's lots to the left rows that they match."""
        if len(lots) == 1:
            self._fetch(lots[0], lanes, number, attached)
            return
        parts = self._parted(lots)
        again = self._pair_lanes(parts)
        with self._pool.reserve(10 * PAIR_BYTES * self._pairs_max):
            for found in gathered(lanes, number, self._pairs_max):
                again.add(found)
            again.finish()
        for at, some in enumerate(parts):
            self._brought(some, again.lanes, at, attached)
        again.lanes.close()

    def _fetch(self, lot: Lot, lanes: Lanes, number: int, attached: MateLanes) -> None:
        """Bring some right blocks' rows to the left rows that they match."""
        if not lanes.lane(number).rows:
            return
        size = sum(block.size for block in lot)
        with self._pool.reserve(2 * size + 6 * PAIR_BYTES * self._pairs_max):
            rows = self._right.read(lot)
            places = numbers_of(rows)
            for left, right in gathered(lanes, number, self._pairs_max):
                at = places_of(places, right)
                attached.add(rows, at, left, right, self._pool, self._gather)

    # ── results ──────────────────────────────────────────────────────────────────────────────

    def _emitted(
        self, lanes: Lanes, number: int, start: int, limit: int, last: int
    ) -> Iterator[Any]:
        """The left rows from `start` up to `limit` with their matches."""
        size = lanes.lane(number).message_bytes
        if size > self._mates:
            end = min(limit, self._left.blocks[-1].last + 1)
            if end - start > 1:
                yield from self._divided(lanes, number, start, end, last)
                return
            for rows in self._of_blocks(start, limit, last):
                for mates in self._by_mate(lanes, number, 0, self._right.blocks[-1].last + 1):
                    yield from self._joined(rows, mates)
            return
        with self._pool.reserve(2 * size + 32 * lanes.lane(number).rows):
            pieces = list(lanes.taken(number))
            mates = Mates.of(pa.concat_batches(pieces) if pieces else no_rows(lanes.schema))
            del pieces
            for rows in self._of_blocks(start, limit, last):
                yield from self._joined(rows, mates)

    def _divided(
        self, lanes: Lanes, number: int, start: int, limit: int, last: int
    ) -> Iterator[Any]:
        """The same where their matches do not fit, in smaller stretches."""
        again = self._spread(lanes, number, start, limit, ROW)
        for at, (begin, until) in enumerate(pairwise([*again.starts.tolist(), limit])):
            yield from self._emitted(again.lanes, at, begin, until, last)
        again.lanes.close()

    def _by_mate(self, lanes: Lanes, number: int, start: int, limit: int) -> Iterator[Mates]:
        """Matches of one left row that do not fit, in the order of their own numbers."""
        size = lanes.lane(number).message_bytes
        if size > self._mates and limit - start > 1:
            again = self._spread(lanes, number, start, limit, MATE)
            for at, (begin, until) in enumerate(pairwise([*again.starts.tolist(), limit])):
                yield from self._by_mate(again.lanes, at, begin, until)
            again.lanes.close()
        elif size:
            with self._pool.reserve(2 * size + 32 * lanes.lane(number).rows):
                yield Mates.of(pa.concat_batches(list(lanes.taken(number))))

    def _spread(self, lanes: Lanes, number: int, start: int, limit: int, by: str) -> MateLanes:
        """The matches of a lane, in smaller lanes by the left or the right rows' numbers."""
        lane = lanes.lane(number)
        lots = int(1.25 * lane.message_bytes / self._mates) + 1
        ways = max(2, ways_of(lots, fan_out(self._gather)))
        starts = np.unique(np.linspace(start, limit, ways + 1).astype(np.int64)[:-1]).tolist()
        again = MateLanes(self._store, self._right.schema, starts)
        with self._pool.reserve(4 * max(self._gather, lane.piece_bytes_max)):
            for pieces in taken_together(lanes, number, self._gather // 2):
                again.move(pa.concat_batches(pieces), by)
        return again

    def _of_blocks(self, start: int, limit: int, last: int) -> Iterator[pa.RecordBatch]:
        """The left rows between two numbers that leave in this step, a block at a time."""
        blocks = self._left.blocks
        for at in range(bisect_left(blocks, start, key=lambda block: block.last), len(blocks)):
            block = blocks[at]
            if block.first >= limit:
                break
            if block.low > last or block.done >= last:
                continue
            with self._pool.reserve(3 * block.size):
                rows = self._left.read([block])
                numbers = numbers_of(rows)
                mine = (numbers >= start) & (numbers < limit)
                if self._is_live:
                    times = as_numpy(rows.column(TIME))
                    mine &= (times <= last) & (times > block.done)
                yield rows if mine.all() else rows.filter(arrow(mine))

    def _joined(self, rows: pa.RecordBatch, mates: Mates) -> Iterator[Any]:
        """Left rows with their matches, in batches."""
        at, places = mates.of_rows(numbers_of(rows), keeps=self._asked.keeps)
        is_each_once = len(at) == rows.num_rows and bool((np.diff(at) == 1).all())
        widths = bytes_at(rows, at)
        if mates.rows.num_rows:
            widths = widths + bytes_at(mates.rows, np.maximum(places, 0))
        for a, b in cuts(widths, len(at), self._budget // SHARES.batch, BATCH_ROWS):
            mate_at = arrow_or_null(places[a:b], places[a:b] < 0)
            left = slice(a, b) if is_each_once else at[a:b]
            yield [self._asked.output.pairs(rows, left, mates.rows, mate_at)]


def _codes(column: pa.Array, name: str) -> Columns:
    """Numbers that are equal where the keys are: of texts two hashes, 128 bits together."""
    if has_own_code(column.type):
        return [key_code(column, name)]
    return [key_code(column, name), key_code(column, name, salt=1)]


def _numbered(side: Side, names: Sequence[str], *, with_time: bool) -> pa.Schema:
    """What is kept of a side's rows: the columns that come out, and their number."""
    fields = [side.stored.field(name) for name in names]
    fields += [pa.field(TIME, pa.int64())] if with_time else []
    return pa.schema([*fields, pa.field(ROW, pa.int64())])


def _columns(rows: pa.RecordBatch, schema: pa.Schema, keys: Int64s) -> pa.RecordBatch:
    columns = [arrow(keys) if name == TIME else rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
