"""Standard input, output and errors, also where whoever started us has closed them.

Python has None in the place of a closed stream, and the next file that is opened takes its number:
whatever writes to standard output or errors by number would then write into that file.
"""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Make the standard streams of a program usable, whatever they are and say."""
    _reopen()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ε where the locale has none


def _reopen() -> None:
    """Give every standard stream that is closed something of its own.

    Input is empty, output fails when it is written to (bad file descriptor), errors go nowhere.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(number):
            # The lowest number that is free is the one we want: those below are open by now.
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (as long as the process)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
