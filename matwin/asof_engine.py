"""An as-of join on the engine: the nearest rows, in the order of the left input.

    fits         one pass over both sides in memory (`latest.py`)
    sorted       the same, slab by slab, where a tolerance says what is final
    else         a merge: sorted on pages, one pass, rows fetched in order (`merging.py`)

In memory rows without a value to join by wait until it is their turn, so that every way hands left
rows over in their order and nothing is sorted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, arrow_or_null, as_numpy
from matwin.storage.columns import INT64_MAX, Int64s, no_rows
from matwin.storage.ordering import group_starts
from matwin.storage.store import Store

from .cutting import Cutting
from .directions import Direction, Directions, Means
from .engine import Moved
from .explained import merged
from .feed import Portion
from .finality import DONE
from .joining import Batches, Join, MakeDirections, TwoSided, batches_of
from .latest import NOBODY, Latest, Near, nearer, values_of
from .matched import Matched
from .merging import Asked, Merge, MergeNeed
from .options import Options
from .output import BATCH_ROWS
from .question import Question
from .side import ROW
from .sizes import batch_bytes, bytes_at, cuts
from .sources import Source
from .state import Kept
from .streams import Sorted, Stream

REJECTED = "rejected"


class AsofJoin(Join):
    """A left join that keeps the nearest matches of each row, and its row's number."""

    def __init__(
        self, question: Question, left: Source, right: Source, options: Options, latest: Latest,
        is_whole_order: bool,
    ) -> None:  # fmt: skip
        """`is_whole_order`: finite results come in the order of the left input."""
        super().__init__(question, left, right, options, row_numbers=True)
        self.latest = latest
        order = left.order if isinstance(left, Stream) else Sorted()
        self.waits_for_all = is_whole_order and not isinstance(order, Sorted | None)
        """Whether no row may leave before all have come: slabs leave in order of time."""

    def joining(
        self, make: MakeDirections, keeps_rejected: tuple[str, ...], *, is_live: bool
    ) -> AsofJoining:
        """The join as the driver knows it."""
        return AsofJoining(self, make, keeps_rejected, is_live)

    def directions(self, means: Means) -> list[Direction]:
        """The one direction there is."""
        keeps = self.question.keep_unmatched
        made = self.direction(means, "left", "best", self._finish, wants_unmatched=keeps)
        made.judge.latest = self.latest
        return [made]

    def _finish(self, matched: Matched) -> Batches:
        """Rows for each left row, in their order: the matches that are kept, or none."""
        rows, mates = self._in_order(matched)
        widths = bytes_at(matched.probe_rows, rows) + bytes_at(
            matched.base_rows, np.maximum(mates, 0) if matched.base_rows.num_rows else rows[:0]
        )
        return batches_of(
            cuts(widths, len(rows), self.batch_bytes, BATCH_ROWS),
            lambda a, b: self._batch(matched, rows[a:b], mates[a:b]),
        )

    def _in_order(self, matched: Matched) -> tuple[Int64s, Int64s]:
        """Left rows that come out, ascending, and the matches of each, or `NOBODY`."""
        keeps = self.question.keep_unmatched
        stretch = matched.stretch
        if stretch is not None:
            mates = stretch.mates
            rows = stretch.rows
            if rows is None:
                rows = np.arange(stretch.first, stretch.first + len(mates))
            return (rows, mates) if keeps else (rows[mates >= 0], mates[mates >= 0])
        rows, mates = self._nearest(matched)
        if keeps and len(matched.unmatched):
            rows = np.concatenate((rows, matched.unmatched))
            mates = np.concatenate((mates, np.full(len(matched.unmatched), NOBODY)))
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows, mates = rows[order], mates[order]
        return rows, mates

    def _nearest(self, matched: Matched) -> tuple[Int64s, Int64s]:
        """The matches that are kept, in the order of their rows.

        Distances of floats are rounded, so that candidates may be more than the nearest.
        """
        found = matched.candidates
        if not len(found):
            return found.probe, found.base
        left, right = self.sides["left"], self.sides["right"]
        theirs = right.order_keys(matched.base_rows)[found.base]
        is_after = theirs > left.order_keys(matched.probe_rows)[found.probe]
        numbers = as_numpy(matched.base_rows.column(ROW))[found.base]
        nearness = np.where(is_after, theirs, ~theirs)
        order = np.lexsort((numbers, nearness, is_after, found.probe))
        probe, base, after = found.probe[order], found.base[order], is_after[order]
        sides = group_starts([probe, after.astype(np.int64)])
        sizes = np.diff(np.append(sides, len(probe)))
        is_near = nearness[order] == np.repeat(nearness[order][sides], sizes)
        # Of a row with matches on both sides the nearer one's go on, or both.
        both = np.flatnonzero(probe[sides[1:]] == probe[sides[:-1]])
        ours = values_of(left, matched.probe_rows)[probe[sides[both]]]
        values = values_of(right, matched.base_rows)[base]
        side = nearer(ours, values[sides[both]], values[sides[both + 1]])
        goes = np.zeros(len(sides), np.bool_)
        goes[both[side > 0]] = True
        goes[both[side < 0] + 1] = True
        if self.latest.ties != "all":
            goes[both[side == 0] + 1] = True
        kept = np.flatnonzero(is_near & ~np.repeat(goes, sizes))
        if self.latest.ties == "all":
            kept = kept[np.lexsort((numbers[order][kept], probe[kept]))]
            return probe[kept], base[kept]
        first = group_starts([probe[kept]])
        at = first if self.latest.ties == "first" else np.append(first[1:], len(kept)) - 1
        return probe[kept[at]], base[kept[at]]

    def _batch(self, matched: Matched, rows: Int64s, mates: Int64s) -> pa.RecordBatch:
        at = arrow_or_null(mates, mates < 0)
        ours = matched.places(rows)
        batch = self.output.pairs(matched.probe_rows, ours, matched.base_rows, at)
        return self.with_numbers(batch, matched.probe_rows, ours)


class AsofJoining(TwoSided):
    """An as-of join as the driver knows it: in memory, slab by slab, or a merge."""

    join: AsofJoin

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = max(len(side.stored) for side in self.sides)
        self.need: MergeNeed = MergeNeed(columns, self.join.options)

    is_faster_in_parts = False
    beyond = "merge"

    @property
    def cutting(self) -> Cutting:
        """Nothing: what does not fit is merged, in whatever order it is."""
        return replace(super().cutting, cuts=())

    def in_memory(self) -> AsofRows:
        """The direction, without rows."""
        join = self.join
        return AsofRows(join, self.make(self._means), is_live=self.is_live)

    def on_pages(
        self, engine: Directions, store: Store, arrivals: Sequence[str], why: str
    ) -> Moved:
        """The rows of an engine in memory, to be merged."""
        join, question = self.join, self.join.question
        known = [source.rows_hint for source in join.sources]
        rows = None if self.is_live or None in known else sum(n or 0 for n in known)
        asked = Asked(
            join.latest, Near.of(question.order), bool(pa.types.is_floating(question.order.type)),
            question.keep_unmatched, self.sides, join.output, rows,
        )  # fmt: skip
        direction = engine.directions[0]
        merge = Merge(asked, direction, self.need, store, join.report, is_live=self.is_live)
        self._pour(engine, merge, store)
        return Moved(merge, f"merge: {why}; {merged(join.options)}", iter(()))

    def _pour(self, engine: Directions, merge: Merge, store: Store) -> None:
        """Move the rows; what has not been moved yet counts against the pool's budget as well."""
        held = engine.held_bytes
        store.pool.take(held)
        try:
            rejected: list[pa.RecordBatch] = []
            for feed, role, rows in engine.pour():
                if role == REJECTED:
                    rejected.append(rows)
                    continue
                mine = None
                if feed == 0 and rejected:
                    mine, rejected = _upto(rejected, int(as_numpy(rows.column(ROW))[-1]))
                merge.append(feed, rows, self.sides[feed].order_keys(rows), mine)
                del rows
                store.pool.give_back(held - engine.held_bytes)
                held = engine.held_bytes
            if rejected:
                rest, _ = _upto(rejected, INT64_MAX)
                none = no_rows(self.sides[0].stored)
                merge.append(0, none, np.empty(0, np.int64), rest)
        finally:
            store.pool.give_back(held)

    def rejected(self, feed: int, rows: pa.RecordBatch) -> Iterator[Batches]:
        """Finite left rows that match nothing come out in their place."""
        return super().rejected(feed, rows) if self.is_live else iter(())


class AsofRows(Directions):
    """Rows in memory, and left rows that match nothing until it is their turn."""

    def __init__(self, join: AsofJoin, made: Sequence[Direction], *, is_live: bool) -> None:
        super().__init__(made, join.options, join.report, is_live=is_live)
        self._join = join
        self._holds = join.question.keep_unmatched and not is_live
        self._rejected: list[pa.RecordBatch] = []
        self._rejected_bytes = 0

    @property
    def needed_bytes(self) -> int:
        """What the rows take, and a copy of those that wait for their turn."""
        return super().needed_bytes + 2 * self._rejected_bytes

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return super().held_bytes + self._rejected_bytes

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step."""
        return self.needed_bytes if self._join.waits_for_all else super().kept_bytes(frontiers)

    def take(self, feed: int, portion: Portion) -> Iterator[Any]:
        """Take rows."""
        if feed == 0 and self._holds and portion.rejected is not None:
            self._rejected.append(portion.rejected)
            self._rejected_bytes += batch_bytes(portion.rejected)
        return super().take(feed, portion)

    def advance(self, frontiers: Sequence[int]) -> Iterator[Any]:
        """Judge what is final; rows that match nothing come between the others."""
        join = self._join
        join.is_ordered = bool(self._rejected)
        if not self._rejected:
            yield from super().advance(frontiers)
            return
        for batches in super().advance(frontiers):
            for batch in batches:
                upto = int(as_numpy(batch.column(batch.num_columns - 1))[-1])
                mine, self._rejected = _upto(self._rejected, upto)
                bare = batch.select(batch.schema.names[:-1])
                if mine is None:
                    yield [bare]
                    continue
                others = join.output.unmatched("left", mine)
                numbers = as_numpy(batch.column(batch.num_columns - 1)), as_numpy(mine.column(ROW))
                order = np.argsort(np.concatenate(numbers), kind="stable")
                yield [pa.concat_batches([bare, others]).take(arrow(order))]
        if min(frontiers) == DONE:
            for rows in self._rejected:
                yield [join.output.unmatched("left", rows)]
            self._rejected = []
        self._rejected_bytes = sum(map(batch_bytes, self._rejected))

    def pour(self) -> Iterator[Kept]:
        """All rows; those that match nothing come first."""
        while self._rejected:
            rows = self._rejected.pop(0)
            self._rejected_bytes -= batch_bytes(rows)
            yield Kept(0, REJECTED, rows)
        yield from super().pour()


def _upto(
    rows: list[pa.RecordBatch], number: int
) -> tuple[pa.RecordBatch | None, list[pa.RecordBatch]]:
    """The rows up to a number, and the others."""
    taken, left = [], []
    for batch in rows:
        fits = int(np.searchsorted(as_numpy(batch.column(ROW)), number, "right"))
        taken += [batch.slice(0, fits)] if fits else []
        left += [batch.slice(fits)] if fits < batch.num_rows else []
    return (pa.concat_batches(taken) if taken else None), left
