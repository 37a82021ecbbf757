"""Judging blocks: some rows of one side against rows of the other, a bounded portion at a time.

    probe block × base block ──kernel──▶ candidates of whole probe rows ──▶ the best of them

One class serves every join: `best` keeps what nothing dominates, `all` keeps every eligible pair,
`any` only says which probe rows have one.  Probing from the right is the same question swapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s
from matwin.storage.grid import Grid

from .block import Block, Blocks, Terms, offsets
from .candidates import Candidates, Contest
from .kernels import judge as kernel
from .kernels import strips
from .latest import Latest
from .question import Question
from .side import Side
from .ties import ALL, Ties

MODES = {"all": kernel.ALL, "best": kernel.BEST, "any": kernel.ANY}
Offsets = tuple[Int64s, Int64s]


@dataclass(frozen=True, slots=True)
class Found:
    """What judging probe rows `first` up to `limit` has found."""

    first: int
    limit: int
    candidates: Candidates


class Judge:
    """Probe rows against base rows, by the terms of a question."""

    def __init__(
        self, question: Question, sides: dict[str, Side], probe: str, mode: str,
        ties: Ties = ALL,
    ) -> None:  # fmt: skip
        self.question = question
        self.probe_name = probe
        self.base_name = "right" if probe == "left" else "left"
        self.mode = mode
        seen = question if probe == "left" else question.swapped()
        self.terms = Terms.of(seen)
        self.probe = Blocks(sides[probe], seen, _facing(sides[probe].grid, probe))
        self.contest = Contest(question, probe, ties if mode == "best" else ALL)
        base = sides[self.base_name]
        self.base = Blocks(base, seen, base.grid, self.contest.ties)
        self.stored = (sides[probe].attributes, sides[self.base_name].attributes)
        self.is_fused = self.terms.is_compiled or mode != "best"
        is_distance = self.terms.is_compiled and list(self.terms.kinds) == [kernel.INT_DISTANCE]
        self.latest: Latest | None = None
        """How one match of each row is chosen, where one is enough."""
        self._finds_nearest = is_distance and mode == "best" and self.base.is_one_integer

    def search(
        self,
        probe: Block,
        base: Block,
        rows: tuple[pa.RecordBatch, pa.RecordBatch],
        *,
        capacity: int,
        first: int = 0,
        limit: int | None = None,
        orders: tuple[int, int] = (INT64_MIN, INT64_MAX),
        with_keys: bool = False,
        reach: Offsets | None = None,
    ) -> Iterator[Found]:
        """What probe rows `first` to `limit` find, whole rows at a time, about `capacity` pairs.

        Only rows whose order key lies between `orders` are judged, both ends included.
        """
        limit = probe.rows if limit is None else limit
        down, up = reach or offsets(self.probe, probe, base)
        pieces = np.array([[0, base.rows]]) if base.pieces is None else base.pieces
        is_nearest = self._finds_nearest and not (probe.is_flat or base.is_flat)
        room = capacity
        contest = self.contest
        with_keys = with_keys or not contest.ties.are_kept
        while first < limit:
            out_probe, out_base = np.empty(room, np.int64), np.empty(room, np.int64)
            wants_keys = with_keys and self.is_fused and self.mode == "best"
            out_keys = np.empty((room if wants_keys else 0, len(self.terms.kinds)), np.int64)
            mode = MODES[self.mode] if self.is_fused else kernel.ALL
            following, count, needed = kernel.judge(
                probe.cells, probe.order, probe.ints, probe.floats,
                base.cells, base.ints, base.floats, pieces,
                down, up, self.terms.int_bounds, self.terms.float_bounds,
                self.terms.kinds, self.terms.columns, self.terms.nonzero_ints,
                self.terms.nonzero_floats, contest.firsts, base.ranks, mode, is_nearest,
                strips.FEW_ROWS, first, limit, *orders, out_probe, out_base, out_keys,
            )  # fmt: skip
            if needed:
                room = needed
                continue
            found = Candidates(out_probe[:count], out_base[:count], out_keys[:count])
            if not self.is_fused:
                found = contest.evaluated(found, *rows, self.stored)
                found = contest.best(contest.ranked(found, base.ranks))
            elif self.mode == "best":
                found = contest.ranked(found, base.ranks)
            yield Found(first, following, found)
            first, room = following, capacity


def nobody(judge: Judge) -> Candidates:
    """No candidates, in the form that the judge finds them."""
    none = np.empty(0, np.int64)
    columns = len(judge.terms.kinds) if judge.is_fused else judge.contest.key_columns
    columns += judge.contest.ties.columns
    boxes = () if judge.is_fused else judge.contest.no_boxes()
    return Candidates(none, none, np.empty((0, columns), np.int64), boxes)


def _facing(grid: Grid, probe: str) -> Grid:
    """The grid of the probing side, its tolerances as they look from there."""
    if probe == "left":
        return grid
    return Grid(grid.keys, tuple(dimension.swapped() for dimension in grid.dimensions))
