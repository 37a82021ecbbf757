"""A bar on a terminal that says how far a join is; nothing at all anywhere else.

    reading ━━━━━━━━━━━━━╸━━━━━━━━━━━━  34% 0:00:08 left  920,000 of 1,340,000 rows

The bar is gone when the join ends.  One bar is for everything, and its share never falls:

    reading   the first half, by rows read
    judging   the second half, by page pairs visited, or by the pages of parts read back
    writing   the same, once rows come out

Left out: any promise; what is left is reckoned from what is done, and pages are not alike.  Rich
draws, without a thread of its own: a thread would be lost where a process forks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from matwin.report import Report
from matwin.sinks import Rows
from matwin.storage import kernel

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

BAR_WIDTH = 24
FIXED_WIDTH = len("reading") + 1 + BAR_WIDTH + 1 + len("100%") + 1 + len("0:00:00") + 1
READING = 0.5
"""The share of reading, by no measurement: how long judging takes is not known beforehand."""


class Progress:
    """The progress callback of a join, as a context that leaves no trace on the terminal."""

    def __init__(self, stream: TextIO | None = None, *, is_wanted: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._is_on = is_wanted and self._stream.isatty()
        self._bar: Bar | None = None
        self._most = 0.0
        self._is_over = False

    @property
    def callback(self) -> Progress | None:
        """What to give to ``progress=``."""
        return self if self._is_on else None

    def __call__(self, report: Report) -> None:
        """Show how far the join is."""
        share = share_of(report)
        self._most = max(self._most, share or 0.0)
        known = None if share is None else 1.0
        self._show(phase_of(report), known, counts_of(report, self._room))

    @property
    def _room(self) -> int:
        """Columns for the counts: rich would rather cut the share than them."""
        return self._started().console.width - FIXED_WIDTH

    def _show(self, phase: str, total: float | None, counts: str) -> None:
        if self._is_over:
            return
        bar = self._started()
        task = bar.task_ids[0]
        bar.update(task, description=phase, total=total, completed=self._most, counts=counts)
        bar.refresh()

    def _started(self) -> Bar:
        """The bar, from the first time on that there is something to say: rich takes 0.1 s."""
        if self._bar is None:
            from rich.console import Console

            console = Console(file=self._stream, force_terminal=True, highlight=False)
            self._bar = _bar(console)
            self._bar.add_task("", total=None, counts="")
            self._bar.start()
        return self._bar

    def __enter__(self) -> Progress:
        if self._is_on:
            kernel.on_compiling = lambda _: self._show(kernel.COMPILING, 1.0, "")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._is_on:
            kernel.on_compiling = None
        self._remove()

    def _remove(self) -> None:
        self._is_over = True
        if self._bar is not None:
            self._bar.stop()

    def until_read(self, rows: Rows) -> Rows:
        """The rows; when the last one has been read the bar is gone, and the line free for a table
        of them."""
        return _Until(rows, self._remove)


@dataclass(frozen=True, slots=True)
class _Until:
    """Rows, and what is done when all of them have been read."""

    rows: Rows
    then: Callable[[], None]

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows
        self.then()


def _bar(console: Console) -> Bar:
    """A bar that is drawn when it is told to, and wiped at the end."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    return Bar(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(BAR_WIDTH),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}", markup=False, table_column=Column(no_wrap=True)),
        console=console, auto_refresh=False, transient=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip


def phase_of(report: Report) -> str:
    """What the join is doing.

    >>> report = Report()
    >>> report.left.rows_in, report.left.rows_expected, report.right.rows_expected = 5, 10, 0
    >>> phase_of(report)
    'reading'
    >>> report.left.rows_in = 10
    >>> phase_of(report)
    'judging'
    """
    if report.rows_out:
        return "writing"
    read, expected = _rows_read(report), _expected(report)
    is_read = bool(report.pairs_planned) or (expected is not None and read >= expected)
    return "judging" if is_read else "reading"


def counts_of(report: Report, width: int = 100) -> str:
    """Rows, matches and pages so far; what matters least is left out first.

    >>> report = Report()
    >>> report.left.rows_in, report.left.rows_expected, report.right.rows_expected = 50, 200, 0
    >>> counts_of(report)
    '50 of 200 rows  0 matches'
    >>> counts_of(report, 20)
    '50 of 200 rows'
    """
    read, expected = _rows_read(report), _expected(report)
    parts = [f"{read:,} of {expected:,} rows" if expected else f"{read:,} rows"]
    parts.append(f"{report.rows_out:,} matches")
    if report.pages_read:
        parts.append(f"{report.pages_read:,} pages read")
    while parts and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)


def share_of(report: Report) -> float | None:
    """How much is done, between 0 and 1; None if nobody knows.

    >>> report = Report()
    >>> report.left.rows_in, report.left.rows_expected, report.right.rows_expected = 50, 200, 0
    >>> share_of(report)
    0.125
    >>> report.left.rows_in, report.pairs_planned, report.pairs_visited = 200, 10, 5
    >>> share_of(report)
    0.75
    """
    expected = _expected(report)
    if report.is_done:
        return 1.0
    if not expected:
        return _judged(report) if report.pairs_planned else None
    read = min(_rows_read(report) / expected, 1.0)
    return READING * read + (1 - READING) * read * _judged(report)


def _judged(report: Report) -> float:
    """The share of what is judged after reading; 0 while that is unknown."""
    done, planned = report.pairs_visited, report.pairs_planned
    if not planned:
        done, planned = report.pages_read, report.pages_written
    return min(done / planned, 1.0) if planned else 0.0


def _rows_read(report: Report) -> int:
    return report.left.rows_in + report.right.rows_in


def _expected(report: Report) -> int | None:
    sides = report.left.rows_expected, report.right.rows_expected
    return None if None in sides else sum(side or 0 for side in sides)
