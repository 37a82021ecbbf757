"""The `owner` file: one process has a folder, and what it knew of the data file.

The file is held under an exclusive lock as long as the folder is in use.  Its record is overwritten
in place and always as long, so that no power cut leaves half of it; should it be damaged all the
same, it counts as missing.  It never decides over a file that can be read.  Before the first step
is completed it says so: a file that is gone is missed from then on.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from .errors import StoreError
from .records import OWNER, OWNER_VERSION, Claim, Trust, pack_owner, unpack_owner
from .scratch import open_private

_held: dict[str, int] = {}
_claims: weakref.WeakSet[Owner] = weakref.WeakSet()
_registry = threading.Lock()
_FIRST_RELEASES = re.compile(rb"\d+\n[ -~\n]*")


class Owner:
    """A folder that this process has, and no other; one at a time in this process, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._real = str(folder.resolve())
        with _registry:
            if _held.get(self._real) == os.getpid():
                raise StoreError(f"{folder} is open in this process already; share that page file")
            self._descriptor = open_private(folder / "owner", os.O_RDWR | os.O_CREAT)
            _claims.add(self)
            found: Claim | None = None
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                with suppress(OSError):
                    found = unpack_owner(self._read())
                os.close(self._descriptor)
                _claims.discard(self)
                if not isinstance(e, BlockingIOError):
                    raise StoreError(e.errno, f"it can't be locked: {e.strerror}",
                                     str(folder)) from e  # fmt: skip
                raise StoreError(
                    f"{folder} is in use by process {found.process if found else '?'}; "
                    "wait for it, or name another path"
                ) from e
            _held[self._real] = os.getpid()

    def _read(self) -> bytes:
        return os.pread(self._descriptor, 4 * OWNER.size, 0)

    def last(self) -> Claim | None:
        """What the last owner wrote down; None where no whole record says."""
        return unpack_owner(self._read())

    def refuse_unknown(self) -> None:
        """Raise `StoreError` where the file is not empty and nobody can tell what it says."""
        found = self._read()
        if found and unpack_owner(found) is None and not _FIRST_RELEASES.fullmatch(found):
            raise StoreError(
                f"{self.folder}/owner is damaged, or is not one of MatWin's files of version "
                f"{OWNER_VERSION}, and there is no data file: restore that if there was one; "
                "otherwise remove owner, or name another folder"
            )

    def write(self, trust: Trust, *, has_steps: bool = False, is_kept: bool = True) -> None:
        """Write down who has the folder; `is_kept` says that it has to last."""
        os.pwrite(self._descriptor, pack_owner(Claim(os.getpid(), trust, has_steps)), 0)
        if os.fstat(self._descriptor).st_size != OWNER.size:
            os.ftruncate(self._descriptor, OWNER.size)
        if is_kept:
            os.fsync(self._descriptor)

    def release(self) -> None:
        """Give the folder up; once is enough, and more does no harm."""
        with _registry:
            if self._descriptor < 0:
                return
            _held.pop(self._real, None)
            _claims.discard(self)
            with suppress(OSError):  # closing gives it up, too
                # A child just forked may have it open.
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def _abandon(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def _after_fork() -> None:
    """In a forked child: let go of the parent's folders, or they would outlive the parent."""
    global _registry
    _registry = threading.Lock()
    _held.clear()
    for owner in list(_claims):
        owner._abandon()
    _claims.clear()


os.register_at_fork(after_in_child=_after_fork)
