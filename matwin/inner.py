"""The best pairs of all: one frontier over every eligible pair.

Sources that can be read again are read twice:

    first   best pairs of each left row ──▶ frontier: the distances that nothing dominates
    second  best pairs of each left row ──▶ those whose distances are on the frontier

so nothing but the frontier is kept, however many pairs tie on it.  Streams can't be read again, and
black boxes have no distances: there the pairs on the frontier so far are kept with their rows and
handed over at the end, or as they come and go (``emit="updates"``).  When they outgrow their share
of the budget they go to a file:

    new pairs ──▶ judged by the places on the frontier, in memory ──▶ added to the file
                  or, where there are too many of them, or none, by every pair on the file

What is dominated leaves the file at once where somebody is told of it, else at the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Int64s
from matwin.storage.errors import InputError

from .candidates import Candidates, Contest, joined, plain_keys
from .joining import Batches, Join, MakeDirections
from .kernels.skyline import best_of_groups
from .matched import Finish, Matched
from .shares import PAIR_SHARE
from .spill import BatchSpill

CHANGE = "change"
Scored = tuple[Candidates, pa.RecordBatch]


def best_pairs(join: Join, finish: Finish[Any]) -> MakeDirections:
    """The direction that judges each left row."""
    return lambda means: [join.direction(means, "left", "best", finish, with_keys=True)]


def frontier_of_all(join: Join) -> Candidates | None:
    """The candidates, one for each place on the frontier, that nothing dominates."""
    contest = Contest(join.question, "left")
    frontier: Candidates | None = None
    for found in join.run(best_pairs(join, lambda matched: matched.candidates)):
        if len(found):
            frontier = _distinct(contest.best(_joined_as_one(frontier, found)))
    return frontier


def on_frontier(join: Join, frontier: Candidates | None) -> Iterator[Batches]:
    """The output rows of pairs on the frontier; None is the frontier of no pair at all."""
    contest = Contest(join.question, "left")

    def finish(matched: Matched) -> Batches:
        at = _kept_new(contest, frontier, matched.candidates)
        probe, base = matched.candidates.probe[at], matched.candidates.base[at]
        return join.portions("left", matched, probe, base) if len(at) else ()

    yield from join.run(best_pairs(join, finish))


def scored(join: Join) -> Iterator[pa.RecordBatch]:
    """The best pairs of each left row as output rows, with a column more for each of their scores.

    Whoever divides a join among several processes finds the best of all by these: a score is a
    whole number, the smaller the better, and equal for equal pairs wherever they are computed.
    """
    schema = join.output.schema

    def finish(matched: Matched) -> Batches:
        found = matched.candidates
        for start, limit in join.cuts(matched, found.probe, found.base):
            some = found.slice(start, limit)
            rows = join.paired("left", matched, some.probe, some.base)
            scores = [pa.array(np.ascontiguousarray(column)) for column in some.keys.T]
            names = [*schema.names, *(f"score {i}" for i in range(len(scores)))]
            yield pa.RecordBatch.from_arrays([*rows.columns, *scores], names=names)

    for batches in join.run(best_pairs(join, finish)):
        yield from batches


def best_scores(scores: Int64s, refined: tuple[int, ...]) -> Int64s:
    """The scores that no other dominates, each once; `refined` are those that have two columns."""
    distinct = np.unique(scores, axis=0)
    plain = plain_keys(distinct, refined)
    kept = best_of_groups(np.zeros(len(distinct), np.int64), plain)
    best: Int64s = distinct[np.sort(kept)]
    return best


class Champions:
    """The pairs on the frontier so far, with their output rows."""

    def __init__(self, join: Join, emit: str) -> None:
        self._join = join
        self._contest = Contest(join.question, "left")
        self._emits_updates = emit == "updates"
        self._share = join.options.budget_bytes // PAIR_SHARE
        self._kept: Scored | None = None
        self._file: _OnFile | None = None
        self._places: Candidates | None = None
        """One pair for each place on the frontier, while the pairs are on file."""
        self.schema = join.output.schema
        if self._emits_updates:
            if CHANGE in self.schema.names:
                raise InputError(
                    f"emit='updates' adds a column {CHANGE!r}, which is there already; rename it"
                )
            self.schema = self.schema.append(pa.field(CHANGE, pa.string(), nullable=False))

    def batches(self) -> Generator[Batches]:
        """Output rows: all at the end, or every change as it comes."""
        for portions in self._join.run(best_pairs(self._join, self._scored)):
            for found, rows in portions:
                for change in self._taken(found, rows):
                    if self._emits_updates:
                        yield [change]
        if not self._emits_updates:
            for _, rows in self._final():
                yield [self._told(rows)]

    def _final(self) -> Iterator[Scored]:
        if self._file is None:
            yield from [self._kept] if self._kept is not None else []
            return
        for found, rows in self._file.read():
            at = np.arange(len(found))
            if self._places is not None:
                at = _kept_new(self._contest, self._places, found)
            yield found.take(at), rows.take(arrow(at))

    def _scored(self, matched: Matched) -> Iterator[Scored]:
        """The pairs of a portion that nothing in it dominates, with their output rows and what
        black boxes compare, in parts."""
        found = matched.candidates
        best = self._contest.best(_as_one_group(found)) if len(found) else found
        kept = found.take(best.base) if len(found) else found
        return (
            (best.slice(a, b), self._rows(matched, kept.slice(a, b)))
            for a, b in self._join.cuts(matched, kept.probe, kept.base)
        )

    def _rows(self, matched: Matched, found: Candidates) -> pa.RecordBatch:
        rows = self._join.paired("left", matched, found.probe, found.base)
        if not found.boxes:
            return rows
        sides = self._join.sides
        stored = (sides["left"].attributes, sides["right"].attributes)
        boxes = self._contest.box_columns(found, matched.probe_rows, matched.base_rows, stored)
        return with_columns(rows, boxes, "box")

    def _taken(self, found: Candidates, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take new pairs; what was withdrawn and what was added."""
        if len(found) == 0:
            return
        if self._file is not None:
            yield from self._taken_on_file(self._file, found, rows)
        elif self._kept is None:
            yield self._told(rows, "added")
            self._keep(found, rows)
        else:
            yield from self._taken_in_memory(*self._kept, found, rows)

    def _taken_in_memory(
        self, old: Candidates, old_rows: pa.RecordBatch, found: Candidates, rows: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        both = joined([_numbered(old, 0), _numbered(found, len(old))])
        kept = np.sort(self._contest.best(both).base)
        stays, comes = kept[kept < len(old)], kept[kept >= len(old)] - len(old)
        goes = np.setdiff1d(np.arange(len(old)), stays)
        if len(comes) == 0:
            return
        if len(goes):
            yield self._told(old_rows.take(arrow(goes)), "withdrawn")
        added = rows.take(arrow(comes))
        yield self._told(added, "added")
        stayed = old_rows.take(arrow(stays))
        self._keep(both.take(kept), pa.concat_batches([stayed, added]))

    def _keep(self, found: Candidates, rows: pa.RecordBatch) -> None:
        """Keep pairs, in memory while they fit."""
        self._kept = (found, rows)
        if rows.nbytes + found.size > self._share:
            self._file = self._new_file(found, rows)
            self._file.write(found, rows)
            self._note_places(found)
            self._kept = None

    def _new_file(self, found: Candidates, rows: pa.RecordBatch) -> _OnFile:
        columns = len(self._join.output.schema)
        scratch = self._join.options.scratch
        return _OnFile(self._contest, scratch, rows.schema, columns, found.keys.shape[1])

    def _note_places(self, frontier: Candidates) -> None:
        """Keep the places on the frontier in mind, if there are such and they fit."""
        places = None if frontier.boxes else _distinct(frontier)
        self._places = places if places is not None and places.size <= self._share else None

    # ── on file ──────────────────────────────────────────────────────────────────────────────

    def _taken_on_file(
        self, file: _OnFile, found: Candidates, rows: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        before, by = self._places, found
        if before is None:
            at = self._unbeaten(file, found)
        else:
            at = _kept_new(self._contest, before, found)
        if len(at) == 0:
            return
        found, rows = found.take(at), rows.take(arrow(at))
        if before is not None:
            by = self._contest.best(_joined_as_one(before, found))
            self._note_places(by)
        # Without places the file must be exact; with them, pairs that nobody is told of may stay.
        if self._places is None or (self._emits_updates and self._beats_some(found, before)):
            yield from self._withdrawn(file, by)
        assert self._file is not None
        self._file.write(found, rows)
        yield self._told(rows, "added")

    def _unbeaten(self, file: _OnFile, found: Candidates) -> Int64s:
        """Which pairs nothing on file dominates."""
        at = np.arange(len(found))
        for old, _ in file.read():
            at = at[_kept_new(self._contest, old, found.take(at))]
        return at

    def _beats_some(self, found: Candidates, old: Candidates | None) -> bool:
        return old is not None and len(_kept_new(self._contest, found, old)) < len(old)

    def _withdrawn(self, file: _OnFile, by: Candidates) -> Iterator[pa.RecordBatch]:
        """Take from the file what is dominated, which may be nothing."""
        if not any(self._beats_some(by, old) for old, _ in file.read()):
            return
        rest = file.empty()
        for old, rows in file.read():
            stays = _kept_new(self._contest, by, old)
            goes = np.setdiff1d(np.arange(len(old)), stays)
            rest.write(old.take(stays), rows.take(arrow(stays)))
            if len(goes):
                yield self._told(rows.take(arrow(goes)), "withdrawn")
        file.close()
        self._file = rest

    def _told(self, rows: pa.RecordBatch, change: str = "") -> pa.RecordBatch:
        """Output rows without what black boxes compare."""
        columns = rows.columns[: len(self._join.output.schema)]
        if self._emits_updates:
            columns.append(pa.array([change] * rows.num_rows, pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class _OnFile:
    """Pairs with their output rows, what black boxes compare and their distances, on disk."""

    def __init__(
        self, contest: Contest, scratch: str | Path | None, schema: pa.Schema, columns: int,
        scores: int,
    ) -> None:  # fmt: skip
        """`columns` of the schema's are output; each pair has so many `scores` beside them."""
        self._contest, self._scratch, self._schema = contest, scratch, schema
        self._columns, self._scores = columns, scores
        more = [pa.field(f"matwin score {i}", pa.int64()) for i in range(scores)]
        self._spill = BatchSpill("the best pairs so far", scratch, pa.schema([*schema, *more]))

    def empty(self) -> _OnFile:
        """Another one for pairs like these."""
        return _OnFile(self._contest, self._scratch, self._schema, self._columns, self._scores)

    def write(self, found: Candidates, rows: pa.RecordBatch) -> None:
        """Add pairs."""
        if len(found):
            self._spill.write(with_columns(rows, found.keys.T, "score"))

    def read(self) -> Iterator[Scored]:
        """All pairs, a batch after the other."""
        width = len(self._schema)
        for batch in self._spill:
            keys = np.empty((batch.num_rows, self._scores), np.int64)
            for at, column in enumerate(batch.columns[width:]):
                keys[:, at] = as_numpy(column)
            rows = pa.RecordBatch.from_arrays(batch.columns[:width], schema=self._schema)
            boxes = self._contest.boxes_of(rows.columns[self._columns :])
            none = np.empty(len(keys), np.int64)
            yield Candidates(none, none, keys, boxes), rows

    def close(self) -> None:
        """Give the space back."""
        self._spill.close()


def with_columns(rows: pa.RecordBatch, columns: Iterable[Any], what: str) -> pa.RecordBatch:
    """Rows with more columns at the end."""
    more = [pa.array(np.ascontiguousarray(c)) if isinstance(c, np.ndarray) else c for c in columns]
    fields = [pa.field(f"matwin {what} {i}", column.type) for i, column in enumerate(more)]
    schema = pa.schema([*rows.schema, *fields])
    return pa.RecordBatch.from_arrays([*rows.columns, *more], schema=schema)


def _as_one_group(found: Candidates) -> Candidates:
    return _numbered(found, 0)


def _numbered(found: Candidates, first: int) -> Candidates:
    """All pairs in one group, each known by its place."""
    group = np.zeros(len(found), np.int64)
    return Candidates(group, np.arange(first, first + len(found)), found.keys, found.boxes)


def _joined_as_one(frontier: Candidates | None, found: Candidates) -> Candidates:
    new = _as_one_group(found)
    return new if frontier is None else joined([frontier, new])


def _distinct(frontier: Candidates) -> Candidates:
    """One pair for each place on the frontier, where places are numbers."""
    if frontier.boxes:
        return frontier
    _, at = np.unique(frontier.keys, axis=0, return_index=True)
    return frontier.take(np.sort(at))


def _kept_new(contest: Contest, frontier: Candidates | None, found: Candidates) -> Int64s:
    """Which of the found pairs the frontier does not dominate."""
    if len(found) == 0 or frontier is None:
        return np.empty(0, np.int64)
    both = joined([_numbered(frontier, 0), _numbered(found, len(frontier))])
    kept = np.sort(contest.best(both).base)
    return kept[kept >= len(frontier)] - len(frontier)
