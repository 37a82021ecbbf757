"""The `last` file: the number of the last completed step, sealed, beside the data file.

    LMDB's commit of a step ──▶ a slot of `last` written and synced ──▶ the step is acknowledged

LMDB has two meta pages and no checksums: one flipped bit in a transaction's number opens the state
before, without a word.  Only what is outside LMDB can tell, so here stand the step, LMDB's
transaction, and the checksum of the meta page that this has written.

    LMDB has                             then
    the step that was sealed             go on
    the step after it                    go on: the process ended between commit and seal
    anything else                        an error; nothing is touched

The two slots take turns, each in a sector of its own: a write that a power cut tears leaves the
other one, and for that LMDB is a step ahead.  A slot is written in place, which needs no space, and
syncing it brings nothing but its data to the disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import CorruptPage, StoreError
from .meta import Metas, newest
from .records import SEALED, Complete, Sealed, pack_sealed, unpack_sealed
from .scratch import open_private, opened_private, sync_names

LAST, DRAFT = "last", "new.last"
SLOT_BYTES = 4096


class Last:
    """The file, open in the process that has the folder."""

    def __init__(
        self, folder: Path, step: int, metas: Metas, *, is_synced: bool, is_new: bool
    ) -> None:
        """Open the file, or make it; from now on it says what LMDB holds, which was checked."""
        self._is_synced = is_synced
        if is_new or not _size(folder / LAST):
            _make(folder, _seal_of(0, step, metas), is_synced)
        self._descriptor = open_private(folder / LAST, os.O_RDWR)
        try:
            self._sealed = _found(self._descriptor, folder / LAST)
            self.write(step, metas)
        except BaseException:
            self.close()
            raise

    def write(self, step: int, metas: Metas) -> None:
        """Seal what LMDB holds, unless that has been done."""
        sealed = _seal_of(self._sealed.number + 1, step, metas)
        if sealed.tells_same(self._sealed):
            return
        os.pwrite(self._descriptor, pack_sealed(sealed), sealed.number % 2 * SLOT_BYTES)
        if self._is_synced:
            os.fdatasync(self._descriptor)
        self._sealed = sealed

    def write_again(self, metas: Metas) -> None:
        """Seal what LMDB has done since the last step, such as removing what that gave up."""
        self.write(self._sealed.step, metas)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _make(folder: Path, sealed: Sealed, is_synced: bool) -> None:
    """Make the file anew; it has its name when it is whole."""
    draft = folder / DRAFT
    draft.unlink(missing_ok=True)
    with opened_private(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        os.pwrite(descriptor, pack_sealed(sealed).ljust(2 * SLOT_BYTES, b"\0"), 0)
        if is_synced:
            os.fsync(descriptor)
    draft.rename(folder / LAST)
    if is_synced:
        sync_names(folder)


def _seal_of(number: int, step: int, metas: Metas) -> Sealed:
    meta = newest(metas)
    return Sealed(number, step, meta.transaction, meta.crc)


def _found(descriptor: int, path: Path) -> Sealed:
    """The newer of the whole records."""
    slots = (os.pread(descriptor, SEALED.size, at) for at in (0, SLOT_BYTES))
    whole = [sealed for sealed in map(unpack_sealed, slots) if sealed is not None]
    if not whole:
        raise CorruptPage(f"{path} is damaged; restore it, or {_on_purpose(path)}")
    return max(whole, key=lambda sealed: sealed.number)


def check_last(folder: Path, complete: Complete, metas: Metas) -> None:
    """Raise `StoreError` where LMDB's file does not hold the last completed step, or the next."""
    path = folder / LAST
    size = _size(path)
    if not size:  # emptied on purpose, or of a release that had no such file
        if size is None and complete.is_sealed:
            raise StoreError(
                f"{path} is missing; restore it together with data.mdb, or {_on_purpose(path)}"
            )
        return
    with opened_private(path, os.O_RDONLY) as descriptor:
        sealed = _found(descriptor, path)
    meta = newest(metas)
    if complete.step > sealed.step and not complete.is_sealed:
        return  # a release that had no such file has gone on
    if complete.step < sealed.step or meta.transaction < sealed.transaction:
        raise StoreError(
            f"{folder}/data.mdb is at step {complete.step}, transaction {meta.transaction}, and "
            f"step {sealed.step}, transaction {sealed.transaction}, was completed: it is damaged, "
            f"or an older copy; restore the whole folder, or {_on_purpose(path)}"
        )
    if complete.step > sealed.step + 1:
        raise StoreError(
            f"{path} is of step {sealed.step}, and data.mdb of step {complete.step}: it is an "
            f"older copy; restore the whole folder, or {_on_purpose(path)}"
        )
    # The other page is no longer as it was if LMDB failed to write it.
    if meta.transaction == sealed.transaction and meta.crc != sealed.crc:
        raise CorruptPage(
            f"{folder}/data.mdb is damaged: a meta page is not as it was at step {sealed.step}; "
            f"restore the whole folder, or {_on_purpose(path)}"
        )


def _on_purpose(path: Path) -> str:
    return f"make {path} an empty file to go on with data.mdb as it is"


def _size(path: Path) -> int | None:
    """The bytes of the file; None where there is none."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return None
