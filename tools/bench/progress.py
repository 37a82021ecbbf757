"""How far a benchmark is: one line on a terminal, nothing in a pipe or with ``--quiet``."""

from __future__ import annotations

import argparse
import sys


class Progress:
    """A line that is replaced as the work goes on, and gone in the end."""

    is_wanted = True
    """For all of this process: a benchmark's steps are made far below its arguments."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_shown = Progress.is_wanted and sys.stderr.isatty()

    def say(self, number: int, what: str) -> None:
        """Replace the line."""
        self._write(f"{number}/{self._total}  {what}"[:78])

    def clear(self) -> None:
        """Remove the line."""
        self._write("")

    def _write(self, line: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def begin(args: argparse.Namespace) -> None:
    """Show progress or not, as the words of a benchmark have it."""
    Progress.is_wanted = not args.quiet


def tell_plot(args: argparse.Namespace, name: str, path: object) -> None:
    """Say where a plot is."""
    if not args.quiet:
        print(f"{name}: {path}", file=sys.stderr)
