"""Compiled code on disk that is older than its sources is thrown away.

Numba keeps compiled functions beside their file and compiles anew when that file changes.  A
function that calls another has it built in; when the other's file changes, nothing happens, and the
old code runs on.  So whenever any file of a folder is newer than what was compiled from the folder,
all of it goes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

_looked_at: set[Path] = set()


def drop_stale(function: Any) -> int:
    """Delete what was compiled from the function's folder before its newest file; how many files.

    `function` is any compiled function of the folder; nothing of it has run yet.  A folder is
    looked at once.
    """
    folder = Path(function.py_func.__code__.co_filename).parent
    if folder in _looked_at:
        return 0
    _looked_at.add(folder)
    kept = Path(function.stats.cache_path)
    newest = max((file.stat().st_mtime for file in folder.glob("*.py")), default=0.0)
    dropped = 0
    for file in kept.glob("*.nb[ic]"):
        with suppress(OSError):  # another process does the same, or it is not ours to delete
            if file.stat().st_mtime < newest:
                file.unlink()
                dropped += 1
    return dropped
