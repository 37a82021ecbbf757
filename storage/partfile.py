"""A file that appears under its name when it is complete, and not before.

    PartFile(out) ─▶ .matwin-3f….part, locked ─▶ complete() ─▶ out
                                       └── killed: the next part file in the folder removes it

Whoever has what was there before open, or mapped, keeps it: it is replaced and never cut.  What is
replaced hands down its mode; what is new follows the umask.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from .alive import new_file, sweep

_PREFIX, _SUFFIX = ".matwin-", ".part"


class PartFile:
    """What will be the file at a path; errors are the operating system's own."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Make it beside the path, which is no link."""
        self._target, self._overwrite = path, overwrite
        self._about = _stat(path)
        sweep(path.parent, _PREFIX, _SUFFIX)
        # Until it is complete, only we may read what may replace something private.
        mode = 0o666 if self._about is None else 0o600
        self.descriptor, self.path = new_file(path.parent, _PREFIX, _SUFFIX, mode)

    def complete(self) -> None:
        """Give it its name; without `overwrite` only if that is still free."""
        if self._about is not None:
            _hand_down(self.descriptor, self._about)
        os.fsync(self.descriptor)
        _name(self.path, self._target, overwrite=self._overwrite)

    def remove(self) -> None:
        """Remove it if it has not got its name."""
        self.path.unlink(missing_ok=True)


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _hand_down(descriptor: int, about: os.stat_result) -> None:
    with suppress(OSError):  # only root gives files away
        os.fchown(descriptor, about.st_uid, about.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(about.st_mode) & 0o777)


def _name(part: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        part.replace(path)
        return
    try:
        os.link(part, path)
    except OSError as e:
        if e.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        part.rename(path)  # a file system without links, where nobody can tell in time
