"""One step over pages: the tuples with a new row, found by walks over pairs of pages.

    root      the stream whose new rows the tuples are found through (see `slabs`)
    driver    the stream with the most pages; each of them is read once
    columns   the pages of the other streams that a driver page can meet, by keys and times

         driver pages, by their first key ▶
    b  ■ ■ · · ·       a driver page is judged when all pages that it meets are in frames: the
    b  · ■ ■ · ·       tuples whose row of the driver stream is on it, through rows of the root
    c  ■ ■ · · ·       that are on it or on its columns
    c  · · ■ ■ ■

Two streams: any schedule does, because a tuple is a pair, and a pair of pages can be judged by
itself.  More streams: gallop, driver page by driver page.  Where a driver page meets more pages
than there are frames (short runs, a hot key), of those pages only the rows are kept that the root's
rows can meet (`reduced`).

Invariant: every tuple is found once.  Its row of the driver stream is on one page, and its root is
the first of its streams that has a new row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from matwin.report import Report
from matwin.scheduler import Pair, Reach, Schedule, Walk, plan
from matwin.scheduler.reach import Int64s
from matwin.scheduler.spans import Spans, overlapping
from matwin.scheduler.walk import READ_AHEAD
from matwin.storage.errors import InputError
from matwin.storage.frame import Pinned
from matwin.storage.layout import PageId
from matwin.storage.pool import BufferPool

from .block import BYTES_PER_ROW, Block, joined
from .output import Output
from .parts import OnPage
from .pipeline import Pipeline, shifted
from .pipeline import Reach as Candidates
from .question import WindowQuestion
from .reaches import InMemory, MergeReach
from .reduced import Reduced

FRAMES_MIN = 2
AHEAD_SHARE, AHEAD_MAX = 4, 16
Pages = Sequence[Sequence[OnPage]]


def check_schedule(mode: str, streams: int) -> None:
    """More than two streams have one schedule."""
    if streams > 2 and mode not in ("auto", "gallop"):
        raise InputError(
            f"schedule={mode!r} is for two streams, and there are {streams}: a page of one stream "
            "then needs all pages of the others that it meets at once; leave it out, or take "
            "'gallop'"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What a step is done with."""

    question: WindowQuestion
    bounds: str
    mode: str
    output: Output
    pool: BufferPool
    report: Report

    def tuples(self, old: Pages, new: Pages) -> Iterator[pa.RecordBatch]:
        """All tuples with a new row."""
        for root, roots in enumerate(new):
            lots = [
                roots if i == root else old[i] if i < root else [*old[i], *new[i]]
                for i in range(len(new))
            ]
            if all(lots):
                yield from _Rooted(self, root, lots).tuples()


class _Rooted:
    """The tuples that are found through one stream's new rows."""

    def __init__(self, step: Step, root: int, lots: Pages) -> None:
        self._step = step
        self._root = root
        self._lots = lots
        self._pipeline = Pipeline(
            step.question, root, bounds=step.bounds,
            rows=[sum(page.rows for page in lot) for lot in lots],
        )  # fmt: skip
        self._driver = max(range(len(lots)), key=lambda i: len(lots[i]))
        # By key, whatever run they are of: neighbours meet the same columns.
        self._left = sorted(lots[self._driver], key=lambda p: (p.key_range, p.time_range))
        others = [i for i in range(len(lots)) if i != self._driver]
        self._right = [page for i in others for page in lots[i]]
        self._columns: list[tuple[dict[PageId, Pinned], list[Block]]] = [({}, []) for _ in lots]
        self._place = {page.ref.page_id: at for at, page in enumerate(self._right)}
        self._stream_of = {page.ref.page_id: i for i, lot in enumerate(lots) for page in lot}

    def tuples(self) -> Iterator[pa.RecordBatch]:
        """The tuples, a walk's first, then those that no walk has room for."""
        step, reach = self._step, self._reach()
        frames = self._frames()
        degrees = np.bincount(reach.owners, reach.limit - reach.first, len(self._left))
        is_walked = (degrees > 0) & ((degrees < frames) | (len(self._lots) == 2))
        if frames < FRAMES_MIN:
            is_walked[:] = False
        walked = np.flatnonzero(is_walked)
        if len(walked):
            with step.pool.reserve(self._reserved(frames)):
                for left in self._by_window(walked):
                    yield from self._walked(self._of(reach, left), frames, left)
        crowded = np.flatnonzero((degrees > 0) & ~is_walked).tolist()
        if crowded:
            step.report.decide("reduced: what some pages meet takes more frames than there are")
            yield from self._crowded([self._left[at] for at in crowded])

    # ── what meets ───────────────────────────────────────────────────────────────────────────

    def _reach(self) -> Reach:
        """The columns of every driver page."""
        owners, edges, start = [], [], 0
        question = self._step.question
        upper = question.constraints.bounds(self._step.bounds)
        driver, spans = self._driver, _spans(self._left)
        for i, lot in enumerate(self._lots):
            if i == driver:
                continue
            down, up = -upper[i][driver], upper[driver][i]
            lows = shifted(spans.time_first, down, -np.inf, is_float=question.is_float)
            highs = shifted(spans.time_last, up, np.inf, is_float=question.is_float)
            reached = Spans(spans.key_first, spans.key_last, lows, highs)
            own, between = overlapping(reached, _spans(lot))
            owners.append(own)
            edges.append(between + start)
            start += len(lot)
        return Reach.from_intervals(
            np.concatenate(owners), np.concatenate(edges), len(self._left), start
        )

    def _of(self, reach: Reach, left: Int64s) -> Reach:
        """The reach of some of the driver pages."""
        places = np.searchsorted(left, reach.owners)
        keep = np.isin(reach.owners, left)
        edges = np.stack((reach.first, reach.limit), 1).astype(np.int64)
        return Reach.from_intervals(places[keep], edges[keep], len(left), reach.right_pages)

    def _by_window(self, left: Int64s) -> Iterator[Int64s]:
        """Driver pages by their windows: old and new rows may be in two, and a walk, with the
        matrix that is shown of it, has the left pages of one."""
        windows = np.array([self._left[at].ref.page_id.window for at in left.tolist()])
        for window in np.unique(windows):
            yield left[windows == window]

    # ── the walk ─────────────────────────────────────────────────────────────────────────────

    def _walked(self, reach: Reach, frames: int, left: Int64s) -> Iterator[pa.RecordBatch]:
        step = self._step
        self._columns = [({}, []) for _ in self._lots]
        schedule = self._schedule(reach, frames)
        step.report.decide(f"schedule: {schedule.mode}, {schedule.reason or 'as asked for'}")
        step.report.pairs_planned += reach.pairs
        lefts = [self._left[at].ref for at in left.tolist()]
        rights = [page.ref for page in self._right]
        walk = Walk(step.pool, schedule, lefts, rights, read_ahead=self._ahead(frames))
        for columns, is_whole in walk.together(columns=self._ahead(frames)):
            # Whole columns are judged together; parts of them by themselves, because two of them
            # may have been in frames with different pages before.
            for pairs in [list(chain.from_iterable(columns))] if is_whole else columns:
                step.report.pairs_visited += len(pairs)
                yield from self._judged(pairs, is_whole=is_whole)

    def _schedule(self, reach: Reach, frames: int) -> Schedule:
        mode = self._step.mode
        if len(self._lots) == 2 or mode == "gallop":
            return plan(reach, frames=frames, mode=mode)
        schedule = plan(reach, frames=frames, mode="gallop")
        return replace(schedule, reason="a page needs all that it meets in more than two streams")

    def _judged(self, pairs: list[Pair], *, is_whole: bool) -> Iterator[pa.RecordBatch]:
        """The tuples of driver pages and columns that are in frames together."""
        pages: list[dict[PageId, Pinned]] = [{} for _ in self._lots]
        for pair in pairs:
            for page in (pair.left, pair.right):
                pages[self._stream_of[page.page_id]][page.page_id] = page
        if not all(pages):
            return
        blocks = [self._blocks(i, own, is_whole=is_whole) for i, own in enumerate(pages)]
        reaches: dict[int, Candidates] = {
            i: MergeReach([InMemory(block) for block in own])
            for i, own in enumerate(blocks) if i != self._root
        }  # fmt: skip
        output = self._step.output
        others = [own for i, own in enumerate(blocks) if i != self._root]
        for block in blocks[self._root]:
            rows = _meeting(block, others)
            for seen, found in self._pipeline.run(block, rows, reaches, output.capacity):
                yield from output.batches(seen, found)

    def _blocks(self, stream: int, pages: dict[PageId, Pinned], *, is_whole: bool) -> list[Block]:
        """Blocks of pages that are held, as few as can be.

        Columns mostly stay while driver pages pass by, so what was joined of them serves again.
        With driver pages that have come together with all that they meet, more columns than theirs
        do no harm.
        """
        make = self._lots[stream][0].block_of
        if stream == self._driver or not is_whole:
            return joined([make(page) for page in pages.values()])
        before, blocks = self._columns[stream]
        if not pages.keys() <= before.keys():
            pages = {name: page for name, page in before.items() if page.is_held} | pages
            ordered = sorted(pages.values(), key=lambda page: self._place[page.page_id])
            blocks = joined([make(page) for page in ordered])
            self._columns[stream] = (pages, blocks)
        return blocks

    # ── room ─────────────────────────────────────────────────────────────────────────────────

    def _frames(self) -> int:
        """Frames for pages and what is made of them, in what output and pages read ahead leave.
        The columns and the driver pages of a lot are there a second time, joined to one block."""
        pool = self._step.pool
        room = pool.budget_bytes - pool.write_space - pool.held_bytes
        room -= self._step.output.share_bytes + 2 * pool.file.page_size
        page, block, again = self._sizes()
        most = int(room // (page + block + again // 2))
        return most - self._ahead(most)

    def _ahead(self, frames: int) -> int:
        """How many pages are read ahead, and judged together: the more, the less each costs."""
        return max(READ_AHEAD, min(AHEAD_MAX, frames // AHEAD_SHARE))

    def _reserved(self, frames: int) -> int:
        """What a walk takes beside its pages."""
        _, block, again = self._sizes()
        pages = frames + self._ahead(frames)
        return pages * (block + again // 2) + self._step.output.share_bytes

    def _sizes(self) -> tuple[int, int, int]:
        """The largest page, the largest block beside it, and such a block by itself."""
        lots = [lot for lot in self._lots if lot]
        size = max(page.ref.size for lot in lots for page in lot)
        rows = max(page.rows for lot in lots for page in lot)
        made = max(lot[0].blocks.bytes_per_row for lot in lots)
        size = max(size, self._step.pool.file.page_size)
        return size, rows * made, size + rows * BYTES_PER_ROW

    def _crowded(self, pages: list[OnPage]) -> Iterator[pa.RecordBatch]:
        """Driver pages with more columns than frames."""
        step, pool = self._step, self._step.pool
        lots = [pages if i == self._driver else lot for i, lot in enumerate(self._lots)]
        page, block, _ = self._sizes()
        held = pool.write_space + pool.held_bytes + step.output.share_bytes
        room = pool.budget_bytes - held - (len(lots) + 2) * (page + block)
        with pool.reserve(max(room // 2, 0) + step.output.share_bytes):
            yield from Reduced(self._pipeline, lots, max(room // 2, 0)).tuples(step.output)


def _meeting(root: Block, others: Sequence[Sequence[Block]]) -> Int64s:
    """The rows of a block whose keys are within those of all others: of columns that have stayed
    for many driver pages these meet a few."""
    first = max(min(int(block.keys[0]) for block in own) for own in others)
    last = min(max(int(block.keys[-1]) for block in own) for own in others)
    return np.arange(
        np.searchsorted(root.keys, first, "left"), np.searchsorted(root.keys, last, "right")
    )


def _spans(pages: Sequence[OnPage]) -> Spans:
    keys = np.array([page.key_range for page in pages], np.int64).reshape(-1, 2)
    times = np.array([page.time_range for page in pages], np.int64).reshape(-1, 2)
    return Spans(keys[:, 0], keys[:, 1], times[:, 0], times[:, 1])
