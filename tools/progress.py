"""A line on a terminal that says how far a join is; nothing at all anywhere else.

    ███████████▏············  46%  8 s left  920,000 of 2,000,000 rows  1,204 pages read

The line is rewritten in place and gone when the join ends.  The share is that of the rows read, or
of the page pairs visited once all rows are in.  Left out: any promise; what is left is reckoned
from what is done, and pages are not alike.
"""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import TextIO

from matwin.report import Report

BAR_WIDTH = 24
_PARTS = " ▏▎▍▌▋▊▉"
_CLEAR = "\r\x1b[K"


class Progress:
    """The progress callback of a join, as a context that leaves no trace on the terminal."""

    def __init__(self, stream: TextIO | None = None, *, is_wanted: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._is_on = is_wanted and self._stream.isatty()
        self._started = time.monotonic()

    @property
    def callback(self) -> Progress | None:
        """What to give to ``progress=``."""
        return self if self._is_on else None

    def __call__(self, report: Report) -> None:
        """Show the line."""
        width = shutil.get_terminal_size().columns - 1
        line = line_of(report, time.monotonic() - self._started, width)
        self._stream.write(_CLEAR + line)
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._is_on:
            self._stream.write(_CLEAR)
            self._stream.flush()


def line_of(report: Report, seconds: float, width: int = 100) -> str:
    """How far the join is, in at most `width` columns; what matters least is left out first.

    >>> report = Report()
    >>> report.left.rows_in, report.left.rows_expected = 50, 100
    >>> report.right.rows_in, report.right.rows_expected = 0, 100
    >>> print(line_of(report, 1.0))
    ██████··················  25%  3 s left  50 of 200 rows  0 matches
    >>> print(line_of(report, 1.0, width=42))
    ██████··················  25%  3 s left
    """
    parts = [*_share_and_time(share_of(report), seconds), _rows(report)]
    parts.append(f"{report.rows_out:,} matches")
    if report.pages_read:
        parts.append(f"{report.pages_read:,} pages read")
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)[: max(width, 0)]


def _share_and_time(share: float | None, seconds: float) -> list[str]:
    if share is None:
        return [f"{seconds:.0f} s"]
    bar = f"{_bar(share)} {share:4.0%}"
    return [bar, f"{_duration(seconds * (1 - share) / share)} left"] if 0 < share < 1 else [bar]


def _rows(report: Report) -> str:
    read, expected = report.left.rows_in + report.right.rows_in, _expected(report)
    return f"{read:,} of {expected:,} rows" if expected else f"{read:,} rows"


def share_of(report: Report) -> float | None:
    """How much is done, between 0 and 1; None if nobody knows."""
    if report.pairs_planned:
        return min(report.pairs_visited / report.pairs_planned, 1.0)
    expected = _expected(report)
    if not expected:
        return None
    return min((report.left.rows_in + report.right.rows_in) / expected, 1.0)


def _expected(report: Report) -> int | None:
    sides = report.left.rows_expected, report.right.rows_expected
    return None if None in sides else sum(side or 0 for side in sides)


def _bar(share: float) -> str:
    eighths = round(share * BAR_WIDTH * 8)
    bar = "█" * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")
    return bar + "·" * (BAR_WIDTH - len(bar))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
