"""Partial results: what the rows of probe pages have found that have visits to come.

    a visit ──▶ merged with what its page has found ──▶ kept, within a share of the budget
                                                          │ full: the largest go, to half of it
                                                          ▼
                                                        a file: runs by probe row
    last visit ◀── a stretch of probe rows at a time ◀────┘

A schedule that reads few pages keeps many open, and how much their rows find is known only when
they have.  So what outgrows the share is put down, and read back once, when its page is finished:
pages are read as planned, whatever is found.  The alternative, to break the walk off and to walk
what is unfinished again in halves, visited 15,489 pairs of pages where there are 9,604 (lookahead,
200,000 rows a side in 4 MiB).

Row numbers and keys are put down.  What black boxes compare is not: it is read again from the rows.

Invariants: what is kept never takes more than the share; a probe row is handed over once, with all
that it has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from matwin.storage.columns import Bools, Int64s
from matwin.storage.errors import BudgetError
from matwin.storage.pool import BufferPool
from matwin.storage.units import format_size

from .candidates import Candidates, Contest, joined
from .pairfile import PairFile, Run
from .sizes import cuts

Again = Callable[[Candidates], Candidates]
"""Candidates with all that their rows say of them, read again."""


class TooManyTies(BudgetError):
    """The best matches of a single row do not fit."""


class Partials:
    """What open probe pages have found; pages go by their numbers."""

    def __init__(
        self, contest: Contest, pool: BufferPool, share_bytes: int, scratch: str | Path | None
    ) -> None:
        self._contest = contest
        self._pool = pool
        self._share = share_bytes
        self._kept: dict[int, Candidates] = {}
        self._hits: dict[int, Bools] = {}
        self._runs: dict[int, list[Run]] = {}
        self._file = PairFile("partial results", scratch)
        self._bytes = 0

    @property
    def put_down_bytes(self) -> int:
        """What has gone to the file so far."""
        return self._file.size

    def close(self) -> None:
        """Forget everything."""
        self._count(-self._bytes)
        self._kept.clear()
        self._hits.clear()
        self._file.close()

    # ── a visit ──────────────────────────────────────────────────────────────────────────────

    def add(self, page: int, new: Candidates) -> None:
        """The best candidates of a visit, of whole rows."""
        if len(new) == 0:
            return
        if not self._has_room(new.size):
            self._put_down(page, new)
            return
        old = self._kept.get(page)
        merged = new if old is None else self._merged(old, new)
        self._count(merged.size - (old.size if old is not None else 0))
        self._kept[page] = merged

    def add_hits(self, page: int, rows: int, hits: Int64s) -> None:
        """Rows of a page, which has so many, that have met one; they may be known already."""
        if page not in self._hits:
            if not self._has_room(rows):
                self._put_down(page, _only_rows(np.unique(hits)))
                return
            self._count(rows)
            self._hits[page] = np.zeros(rows, np.bool_)
        self._hits[page][hits] = True

    def _merged(self, old: Candidates, new: Candidates) -> Candidates:
        """Merge the rows that a portion is about; the others stay as they are."""
        start = int(np.searchsorted(old.probe, new.probe[0]))
        limit = int(np.searchsorted(old.probe, new.probe[-1], "right"))
        if start == limit == len(old):
            return joined([old, new])
        merged = self._contest.merged(old.slice(start, limit), new)
        return joined([old.slice(0, start), merged, old.slice(limit, len(old))])

    # ── the last visit ───────────────────────────────────────────────────────────────────────

    def taken(
        self, page: int, rows: int, again: Again
    ) -> Iterator[tuple[int, int, Candidates | None]]:
        """What the rows of a page have found: stretches of rows, and their best candidates."""
        runs, found = self._runs.pop(page, []), self._kept.pop(page, None)
        size = found.size if found is not None else 0
        if runs and found is not None:
            runs.append(self._file.write(found))
            found = None
            self._count(-size)
        if not runs:
            yield 0, rows, found
            self._count(-size)
            return
        self._make_way(self._share // 2)
        for first, limit, parts in self._stretches(runs, rows):
            found = self._read_back(runs, parts, again)
            size = found.size if found is not None else 0
            if not self._has_room(size):
                raise _too_many(self._pool.budget_bytes)
            self._count(size)
            yield first, limit, found
            self._count(-size)

    def taken_hits(self, page: int, rows: int) -> Bools:
        """Which rows of a page have met one."""
        is_hit = self._hits.pop(page, None)
        if is_hit is None:
            is_hit = np.zeros(rows, np.bool_)
        else:
            self._count(-rows)
        for run in self._runs.pop(page, []):
            is_hit[self._file.probes(run, 0, run.pairs)] = True
        return is_hit

    def _stretches(
        self, runs: Sequence[Run], rows: int
    ) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Stretches of probe rows whose pairs take half the share, and where they are in each run.
        A row may take more: what is best of it may still fit."""
        pair_bytes = 16 + 8 * runs[0].columns + 200 * len(self._contest.no_boxes())
        if sum(run.pairs for run in runs) * pair_bytes <= self._share // 2:
            yield 0, rows, [(0, run.pairs) for run in runs]
            return
        counts = np.zeros(rows, np.int64)
        for run in runs:
            counts += np.bincount(self._file.probes(run, 0, run.pairs), minlength=rows)
        stretches = cuts(counts * pair_bytes, rows, self._share // 2, rows)
        limits = [limit for _, limit in stretches]
        at = [np.searchsorted(self._file.probes(run, 0, run.pairs), limits) for run in runs]
        ends = np.array(at, np.int64).T
        before = np.zeros(len(runs), np.int64)
        for (first, limit), own in zip(stretches, ends, strict=True):
            yield first, limit, list(zip(before.tolist(), own.tolist(), strict=True))
            before = own

    def _read_back(
        self, runs: Sequence[Run], parts: Sequence[tuple[int, int]], again: Again
    ) -> Candidates | None:
        """The best of a stretch of probe rows in all runs."""
        found: Candidates | None = None
        for run, (first, limit) in zip(runs, parts, strict=True):
            if first == limit:
                continue
            new = again(self._file.read(run, first, limit))
            found = new if found is None else self._contest.merged(found, new)
            if found.size > self._share:
                raise _too_many(self._pool.budget_bytes)
        return found

    # ── the share, and the file ──────────────────────────────────────────────────────────────

    def _has_room(self, more: int) -> bool:
        """Whether so much more fits, after others have made way for it."""
        if self._bytes + more > self._share:
            self._make_way(max(self._share // 2 - more, 0))
        return self._bytes + more <= self._share

    def _make_way(self, wanted: int) -> None:
        """Put the largest results down until no more than `wanted` is kept."""
        for page in sorted(self._kept, key=lambda page: -self._kept[page].size):
            if self._bytes <= wanted:
                return
            found = self._kept.pop(page)
            self._put_down(page, found)
            self._count(-found.size)
        for page in list(self._hits):
            if self._bytes <= wanted:
                return
            is_hit = self._hits.pop(page)
            self._put_down(page, _only_rows(np.flatnonzero(is_hit)))
            self._count(-len(is_hit))

    def _put_down(self, page: int, found: Candidates) -> None:
        if len(found):
            self._runs.setdefault(page, []).append(self._file.write(found))

    def _count(self, size: int) -> None:
        """Count what is kept against the budget."""
        if size > 0:
            self._pool.take(size)
        elif size < 0:
            self._pool.give_back(-size)
        self._bytes += size


def _only_rows(rows: Int64s) -> Candidates:
    return Candidates(rows, np.zeros(len(rows), np.int64), np.empty((len(rows), 0), np.int64))


def _too_many(budget_bytes: int) -> TooManyTies:
    return TooManyTies(
        f"the best matches of a single row do not fit their share of a budget of "
        f"{format_size(budget_bytes)}; give at least twice as much",
        smallest_bytes=2 * budget_bytes,
    )
