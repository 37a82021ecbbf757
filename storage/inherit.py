"""A file that was there before: go on with it, begin anew, or leave it alone and say why.

    the file can be read, and says of itself       then
      epoch                                        go on
      checkpoint, made since the machine started   go on
      and `last` names a step that it has not      an error; nothing is touched
      checkpoint, made before that                 it is void: deleted
    the file can't be read, and the owner's whole record says
      checkpoint, written before the machine started   torn by a power cut: set aside
      anything else, or there is no whole record       an error; nothing is touched
    the file is of another version                 an error; nothing is touched
    there is no file, and the owner's whole record says
      no step was completed, or the machine has restarted and a checkpoint is void   a new one
      a step was completed                         an error; nothing is touched
    there is no file, and the record is damaged    an error; nothing is touched
    there is neither file nor record               a new one

Nothing is deleted on a guess.  A file that says itself that it is void is the only one that is ever
deleted, and one that is set aside (``discarded.mdb``) takes the place of the last such file.
"""

from __future__ import annotations

import os
from pathlib import Path

from .env import DATA, LOCK, check_file
from .errors import InputError, StoreError
from .last import check_last
from .meta import metas_of
from .owner import Owner
from .places import value_of
from .records import (
    COMPLETE_KEY,
    FILE_VERSION,
    FORMAT_KEY,
    Complete,
    Format,
    Trust,
    unpack_complete,
    unpack_format,
    version_of,
)
from .scratch import opened_private, sync_file

DISCARDED = "discarded.mdb"


def inherited(owner: Owner, boot: str) -> Format | None:
    """What the folder's file says of itself; None where there is none to go on with."""
    data = owner.folder / DATA
    if not os.path.lexists(data):
        _check_unmissed(owner, boot)
        return None
    with opened_private(data, os.O_RDONLY) as descriptor:
        record = None
        try:
            check_file(data)
            record = value_of(descriptor, FORMAT_KEY)
            found = unpack_format(record, str(owner.folder))
        except StoreError:
            last = owner.last()
            is_ours = version_of(record) in (None, FILE_VERSION)
            if last is None or not last.trust.is_void(boot) or not is_ours:
                raise
            _give_up(owner.folder, is_sure=False)
            return None
        if found.trust.is_void(boot):
            _give_up(owner.folder, is_sure=True)
            return None
        completed_in(owner.folder, descriptor)
    return found


def completed_in(folder: Path, descriptor: int) -> Complete:
    """The last step of a file that was checked, by plain reads; an error where it is not that."""
    complete = unpack_complete(value_of(descriptor, COMPLETE_KEY), str(folder))
    check_last(folder, complete, metas_of(descriptor))
    return complete


def _check_unmissed(owner: Owner, boot: str) -> None:
    """Raise `StoreError` where the folder had steps that should still be there."""
    owner.refuse_unknown()
    last = owner.last()
    if last is not None and last.has_steps and not last.trust.is_void(boot):
        raise StoreError(
            f"{owner.folder}/{DATA} is missing, and steps were completed in it; restore it, or "
            f"remove {owner.folder}/owner to begin with an empty store"
        )


def _give_up(folder: Path, *, is_sure: bool) -> None:
    if is_sure:
        (folder / DATA).unlink()
    else:
        (folder / DATA).rename(folder / DISCARDED)
    (folder / LOCK).unlink(missing_ok=True)
    sync_file(folder)  # before the owner's record speaks of another file


def page_size_of(folder: Path) -> int:
    """The page size of the file that is in a folder."""
    with opened_private(folder / DATA, os.O_RDONLY) as descriptor:
        check_file(folder / DATA)
        return unpack_format(value_of(descriptor, FORMAT_KEY), str(folder)).page_size


def agreed(
    found: Format | None, folder: Path, page_size: int, durability: str | None, boot: str
) -> Trust:
    """What the file is to survive from now on, or an `InputError` where the two don't agree."""
    if found is None:
        return Trust.of(durability or "checkpoint", boot)
    if found.page_size != page_size:
        raise InputError(
            f"{folder} has pages of {found.page_size} bytes, not {page_size}; "
            f"open it with page_size={found.page_size}"
        )
    if durability == "checkpoint" and found.trust.is_synced:
        raise InputError(
            f"{folder} was written with durability='epoch'; "
            "open it with that, or leave durability out"
        )
    return found.trust if durability is None else Trust.of(durability, boot)
