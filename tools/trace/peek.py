"""A page file read with plain reads: looking at it opens no LMDB and changes no byte.

Opening a store takes the folder over: it writes down the new owner, and removes what the last
complete step does not name.  An inspector must not.  So the records are found by walking LMDB's
tree (`storage/places.py`), after its pages have been checked.

`docs/FORMAT.md` says what the records hold.  While a process has the store open, its lock refuses
us, and ours keeps others from opening it for the moment that a look takes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from matwin.storage.env import check_file
from matwin.storage.errors import CorruptPage, StoreError
from matwin.storage.inherit import completed_in
from matwin.storage.layout import PageId, check_page, used_bytes
from matwin.storage.manifest import unpack_states
from matwin.storage.materialize import WindowState
from matwin.storage.pagefile import record_bytes
from matwin.storage.places import value_of
from matwin.storage.records import FORMAT_KEY, OWNER, unpack_format, unpack_owner
from matwin.text import escaped

_RECORD_KEY = struct.Struct(">cIQI")


@dataclass(frozen=True, slots=True)
class Peek:
    """A page file that is looked at."""

    folder: Path
    descriptor: int
    page_size: int
    step: int
    windows: dict[str, tuple[int, WindowState]]

    def page(self, page_id: PageId) -> pa.Buffer | None:
        """The page's bytes, checked; None where the file has no such page."""
        size = record_bytes(self.page_size)
        first = value_of(self.descriptor, _RECORD_KEY.pack(b"\x01", *page_id, 0))
        if first is None:
            return None
        where = escaped(str(self.folder))
        used = used_bytes(first, page_id, where)
        parts = [first]
        while len(parts) * size < used:
            key = _RECORD_KEY.pack(b"\x01", *page_id, len(parts))
            part = value_of(self.descriptor, key)
            if part is None:
                raise CorruptPage(f"{where}: part {len(parts)} of page {page_id.page} is missing")
            parts.append(part)
        page = pa.py_buffer(b"".join(parts)[:used])
        check_page(page, page_id, where)
        return page


@contextmanager
def peek(folder: Path) -> Iterator[Peek]:
    """Look at the page file in a folder."""
    folder = folder.parent if folder.name == "data.mdb" else folder
    where = escaped(str(folder))
    data = folder / "data.mdb"
    if not data.is_file():
        raise StoreError(f"{where} holds no page file (data.mdb); name its folder with --store")
    with _os_errors(where), _shared(folder, where):
        check_file(data)
        descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        try:
            page_size = unpack_format(value_of(descriptor, FORMAT_KEY), where).page_size
            step, state, _ = completed_in(folder, descriptor)
            windows, _ = unpack_states(state, where, page_size)
            yield Peek(folder, descriptor, page_size, step, windows)
        finally:
            os.close(descriptor)


@contextmanager
def _os_errors(where: str) -> Iterator[None]:
    """The operating system's errors as ours."""
    try:
        yield
    except StoreError:
        raise
    except OSError as e:
        raise StoreError(f"{where} can't be read: {e.strerror or e}") from e


@contextmanager
def _shared(folder: Path, where: str) -> Iterator[None]:
    """Hold the folder together with other onlookers, if nobody writes to it."""
    owner = folder / "owner"
    if not owner.is_file():
        yield
        return
    descriptor = os.open(owner, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as e:
            found = unpack_owner(os.pread(descriptor, OWNER.size, 0))
            raise StoreError(
                f"{where} is in use by process {found.process if found else '?'}; "
                "look at it when that has ended, or name a copy with --store"
            ) from e
        yield
    finally:
        os.close(descriptor)
