"""The best pairs of all: one frontier over every eligible pair.

Sources that can be read again are read twice:

    first   best pairs of each left row ──▶ frontier: the distances that nothing dominates
    second  best pairs of each left row ──▶ those whose distances are on the frontier

so nothing but the frontier is kept, however many pairs tie on it.  Streams can't be read again: the
pairs on the frontier so far are kept with their rows and handed over at the end, or as they come
and go (``emit="updates"``).  When they outgrow a quarter of the budget they go to a file without a
name, with their distances; at the end, those on the frontier are handed over.  (Updates withdraw
rows, and black boxes have no distances: these are never on file.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s
from matwin.storage.errors import BudgetError, InputError, StoreError
from matwin.storage.units import format_size

from .candidates import Candidates, Contest, joined, plain_keys
from .joining import Batches, Join
from .kernels.skyline import best_of_groups
from .matched import Matched

CHANGE = "change"
Scored = tuple[Candidates, pa.RecordBatch]


def frontier_of_all(join: Join) -> Candidates | None:
    """The candidates, one for each place on the frontier, that nothing dominates."""
    direction = join.direction("left", "best", lambda matched: matched.candidates, with_keys=True)
    contest = direction.judge.contest
    frontier: Candidates | None = None
    for found in join.run([direction]):
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

    yield from join.run([join.direction("left", "best", finish, with_keys=True)])


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

    for batches in join.run([join.direction("left", "best", finish, with_keys=True)]):
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
        self._kept: Scored | None = None
        self._file: _File | None = None
        self.schema = join.output.schema
        if self._emits_updates:
            if CHANGE in self.schema.names:
                raise InputError(
                    f"emit='updates' adds a column {CHANGE!r}, which is there already; rename it"
                )
            self.schema = self.schema.append(pa.field(CHANGE, pa.string(), nullable=False))

    def batches(self) -> Generator[Batches]:
        """Output rows: all at the end, or every change as it comes."""
        direction = self._join.direction("left", "best", self._scored, with_keys=True)
        for found, rows in self._join.run([direction]):
            changes = self._taken(found, rows)
            if self._emits_updates and changes:
                yield changes
        if self._file is not None:
            assert self._kept is not None
            for found, rows in self._file.read():
                at = _kept_new(self._contest, self._kept[0], found)
                yield [rows.take(pa.array(at))]
        elif not self._emits_updates and self._kept is not None:
            yield [self._kept[1]]

    def _scored(self, matched: Matched) -> Scored:
        """The pairs of a portion that nothing in it dominates, with their output rows."""
        found = matched.candidates
        best = self._contest.best(_as_one_group(found)) if len(found) else found
        at = best.base if len(found) else np.empty(0, np.int64)
        rows = self._join.paired("left", matched, found.probe[at], found.base[at])
        return best, rows

    def _taken(self, found: Candidates, rows: pa.RecordBatch) -> Batches:
        """Take new pairs; what was added and what was withdrawn."""
        if len(found) == 0:
            return []
        if self._kept is None:
            self._keep(found, rows)
            return [self._marked(rows, "added")]
        old, old_rows = self._kept
        if self._file is not None:
            at = _kept_new(self._contest, old, found)
            self._file.write(found.take(at), rows.take(pa.array(at)))
            best = self._contest.best(_joined_as_one(old, found.take(at)))
            self._keep(_distinct(best), old_rows)
            return []
        both = joined([_numbered(old, 0), _numbered(found, len(old))])
        kept = np.sort(self._contest.best(both).base)
        stays, comes = kept[kept < len(old)], kept[kept >= len(old)] - len(old)
        goes = np.setdiff1d(np.arange(len(old)), stays)
        if len(comes) == 0:
            return []
        added = rows.take(pa.array(comes))
        changes = [self._marked(old_rows.take(pa.array(goes)), "withdrawn")] if len(goes) else []
        stayed = old_rows.take(pa.array(stays))
        self._keep(both.take(kept), pa.concat_batches([stayed, added]))
        return [*changes, self._marked(added, "added")]

    def _keep(self, found: Candidates, rows: pa.RecordBatch) -> None:
        size, limit = rows.nbytes + found.size, self._join.options.budget_bytes // 4
        if size > limit and self._file is None and not self._emits_updates and not found.boxes:
            self._file = _File(self._join.options.scratch)
            self._file.write(found, rows)
            found, rows = _distinct(found), rows.slice(0, 0)
        elif size > limit:
            raise BudgetError(
                f"the best pairs so far take {format_size(size)}, more than a quarter of the "
                f"budget; give at least {format_size(8 * size)} ({8 * size} bytes), or a source "
                "that can be read twice",
                smallest_bytes=8 * size,
            )
        self._kept = (found, rows)

    def _marked(self, rows: pa.RecordBatch, change: str) -> pa.RecordBatch:
        if not self._emits_updates:
            return rows
        marks = pa.array([change] * rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*rows.columns, marks], schema=self.schema)


class _File:
    """Pairs with their distances and output rows, in a file that nobody else can see."""

    def __init__(self, folder: str | Path | None) -> None:
        with self._named():
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._writer: pa.RecordBatchStreamWriter | None = None

    def write(self, found: Candidates, rows: pa.RecordBatch) -> None:
        """Add pairs."""
        scores = [pa.array(np.ascontiguousarray(column)) for column in found.keys.T]
        names = [*rows.schema.names, *(f"score {i}" for i in range(len(scores)))]
        batch = pa.RecordBatch.from_arrays([*rows.columns, *scores], names=names)
        with self._named():
            if self._writer is None:
                self._schema = rows.schema
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)

    def read(self) -> Iterator[Scored]:
        """All pairs, a batch after the other."""
        assert self._writer is not None
        self._writer.close()
        self._file.seek(0)
        width = len(self._schema)
        for batch in pa.ipc.open_stream(self._file):
            keys = np.column_stack([column.to_numpy() for column in batch.columns[width:]])
            none = np.empty(batch.num_rows, np.int64)
            rows = pa.RecordBatch.from_arrays(batch.columns[:width], schema=self._schema)
            yield Candidates(none, none, keys), rows

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise StoreError(f"the best pairs so far can't be kept on disk: {e}") from e


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
