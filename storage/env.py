"""LMDB environments: the only place that talks to LMDB.

LMDB is exact but leaves a lot to its user.  This file holds those rules, and nothing above it
needs to know them:

* one environment per path and process, and one process per path for writing (``owner.py``);
* never across a fork: the process that opened it is remembered, and a forked child never lets go
  of LMDB's object, because freeing it would give back the parent's reader slots;
* a new file appears whole or not at all, and no link is followed;
* read transactions end before the call returns, so no reader keeps freed pages alive;
* the map grows when it is full, once no transaction is open;
* reads leave no trace in the resident set: what a read mapped is unmapped again;
* the first I/O error poisons the environment, because LMDB accepts commits after a failed sync;
  a full disk does not, and says so in words;
* a file that was there before is checked with plain reads first: LMDB has no checksums and follows
  what its pages say.  Of 600 flipped bits in its own pages 5 ended the process, one lost rows in
  silence.  The check takes 0.1 s for 1 GB in records of 256 KiB, 0.6 s with a cold
  cache;
* LMDB can't tell which state was its last, so that stands beside it, sealed (``last.py``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import numpy as np
from lmdb.verify import VerifyError, verify

from .errors import CorruptPage, StoreError
from .last import Last
from .machine import free_memory
from .mapping import FOLIO_BYTES, aligned, give_back, mapping_of
from .meta import REMEDY, check_metas, metas_of
from .owner import Owner
from .places import Place, place_of
from .records import Trust
from .scratch import free_bytes, open_private, opened_private, os_errors, sync_names
from .turns import Turn
from .units import format_size

T = TypeVar("T")
Pair = tuple[bytes, Any]

DATA, LOCK = "data.mdb", "lock.mdb"
MAP_FIRST = 64 * 2**20
LOCK_BYTES = 8192
UNMAP_EVERY = 8


class Environment:
    """One LMDB file, opened by one process."""

    def __init__(
        self,
        owner: Owner,
        *,
        sync: bool,
        first: Sequence[Pair] = (),
        map_first: int = MAP_FIRST,
    ) -> None:
        """Open the file in the owner's folder; a new one begins with the records `first`.

        `sync` says whether commits wait for the disk.  An old file has been checked (`check_file`).
        The folder is given up when the environment is closed.
        """
        self.folder = folder = owner.folder
        self._owner: Owner | None = owner
        self._turn = Turn(str(folder))
        self._write = Turn(str(folder))
        self._readers = 0
        self._reads = 0
        self._kept_bytes: int | None = None
        self._places: dict[bytes, Place] = {}
        self._poison: str | None = None
        self._last: Last | None = None
        self._bytes_known = 0
        self._map: tuple[int, int] = (0, 0)
        self._check_library()
        with os_errors(folder):
            if not (folder / DATA).exists():
                self._make(sync, first)
            with opened_private(folder / LOCK, os.O_RDWR | os.O_CREAT) as descriptor:
                # Writing to a mapped hole on a full disk would kill the process.
                os.posix_fallocate(descriptor, 0, LOCK_BYTES)
            self._data = open_private(folder / DATA, os.O_RDWR)
            try:
                self._env = self._opened(sync, map_first)
            except BaseException:
                os.close(self._data)
                raise
        _living.add(self)
        self._env.reader_check()
        self._bytes_known = self._bytes_wanted()
        self._map = mapping_of(self._data)

    def _make(self, sync: bool, first: Sequence[Pair]) -> None:
        draft = self.folder / "new.mdb"
        draft.unlink(missing_ok=True)
        with opened_private(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
            try:
                with (
                    lmdb.open(str(draft), subdir=False, lock=False, mode=0o600, sync=sync) as env,
                    env.begin(write=True) as transaction,
                ):
                    for key, value in first:
                        transaction.put(key, value)
                draft.rename(self.folder / DATA)
            except lmdb.Error as e:
                draft.unlink(missing_ok=True)
                full = _disk_full(e, descriptor, self.folder)
                raise full or StoreError(f"{self.folder}: no file can be made: {_reason(e)}") from e
        if sync:
            sync_names(self.folder)

    @staticmethod
    def _check_library() -> None:
        if lmdb.version(subpatch=True)[3] == 0:
            warnings.warn(
                "this LMDB lacks the fixes that the Python package ships; "
                "reinstall lmdb from its wheel",
                stacklevel=4,
            )

    def _opened(self, sync: bool, map_first: int) -> lmdb.Environment:
        size = os.fstat(self._data).st_size
        try:
            return lmdb.open(
                str(self.folder),
                map_size=max(map_first, 2 * size),
                mode=0o600,
                sync=sync,
                metasync=sync,
                readahead=False,
                meminit=False,
                max_spare_txns=2,
            )
        except lmdb.Error as e:
            raise _disk_full(e, self._data, self.folder) or StoreError(
                f"{self.folder} can't be opened: {_reason(e)}; it is damaged or no page file"
            ) from e

    def read(self, key: bytes, use: Callable[[memoryview], T]) -> T | None:
        """What `use` makes of the value, None where the key is missing.

        The view dies with the call: LMDB may overwrite what it shows.
        """
        with self._reading() as transaction:
            self._fetch(key)
            view = transaction.get(key)
            if view is None:
                return None
            start = np.frombuffer(view, np.uint8).ctypes.data
            try:
                return use(view)
            finally:
                self._unmap(start, len(view))

    def read_all(self, keys: Sequence[bytes], use: Callable[[bytes, memoryview], T]) -> list[T]:
        """What `use` makes of the values of keys that are there, in one transaction.

        The kernel is asked for values one by one only where the file is too large to be in its
        memory still: to find a value's place takes as long as to read it from there.
        """
        if self._kept_bytes is None:
            self._kept_bytes = free_memory() // 2
        found: list[T] = []
        with self._reading() as transaction:
            is_cold = self.file_bytes > self._kept_bytes
            for number, key in enumerate(keys, 1):
                if is_cold:
                    self._fetch(key)
                view = transaction.get(key)
                if view is not None:
                    found.append(use(key, view))
                if number % UNMAP_EVERY == 0:
                    give_back(*self._map)
            view = None
            give_back(*self._map)
        return found

    def keys(self, prefix: bytes) -> list[bytes]:
        """The keys that begin with the prefix, in order."""
        with self._reading() as transaction, transaction.cursor() as cursor:
            found = []
            if cursor.set_range(prefix):
                for key in cursor.iternext(keys=True, values=False):
                    if bytes(key[: len(prefix)]) != prefix:
                        break
                    found.append(bytes(key))
            return found

    def write(self, puts: Iterable[Pair] = (), deletes: Sequence[bytes] = ()) -> None:
        """One transaction: all of it is committed, or none.

        `puts` is iterated again when the map has to grow.
        """
        with self._write:
            while True:
                self._usable()
                self._check_length()
                try:
                    self._transact(puts, deletes)
                except lmdb.MapFullError:
                    self._grow()
                except lmdb.Error as e:
                    raise self._translated(e) from e
                else:
                    break
            with os_errors(self.folder, self._poisoned):
                self._after_commit()

    def note_steps(self, trust: Trust) -> None:
        """Have the owner's record say that steps are completed here; it lasts as they do."""
        with self._write, os_errors(self.folder, self._poisoned_unless_full):
            self._usable()
            assert self._owner is not None, "given up by `close`, which makes it unusable"
            self._owner.write(trust, has_steps=True, is_kept=trust.is_synced)

    def keep_last(self, step: int, *, is_synced: bool, is_new: bool) -> None:
        """From now on the last step stands beside the file, too, sealed: at present this one."""
        with self._write, os_errors(self.folder, self._poisoned):
            self._usable()
            metas = metas_of(self._data)
            self._last = Last(self.folder, step, metas, is_synced=is_synced, is_new=is_new)

    def seal(self, step: int) -> None:
        """Seal a step that is committed: an error leaves it to the next start to do so."""
        with self._write, os_errors(self.folder, self._poisoned):
            self._usable()
            if self._last is not None:
                self._last.write(step, metas_of(self._data))

    def _transact(self, puts: Iterable[Pair], deletes: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            for number, key in enumerate(deletes, 1):
                transaction.delete(key)
                self._places.pop(key, None)
                if number % UNMAP_EVERY == 0:
                    give_back(*self._map)
            for number, (key, value) in enumerate(puts, 1):
                transaction.put(key, value)
                self._places.pop(key, None)
                if number % UNMAP_EVERY == 0:
                    give_back(*self._map)

    def _after_commit(self) -> None:
        # LMDB does not write pages that a transaction took and gave back.  At the file's end that
        # would look like a truncation to `check_file`.
        wanted = self._bytes_wanted()
        if os.fstat(self._data).st_size < wanted:
            os.ftruncate(self._data, wanted)
        self._bytes_known = wanted
        # A killed reader would keep freed pages for ever.  Looking costs a microsecond; looking at
        # every 64th commit let a file of 0.4 MB grow to 1.4.
        self._env.reader_check()
        # LMDB has looked at its lists of free pages and at the first blocks of what was deleted,
        # and the kernel maps a lot around them: sliding over 400 MB in pages of 256 KiB left
        # 192 MB resident.  Giving back a map of 8 GB takes 50 µs.
        give_back(*self._map)

    def _bytes_wanted(self) -> int:
        pages: int = self._env.info()["last_pgno"] + 1
        psize: int = self._env.stat()["psize"]
        return pages * psize

    def _grow(self) -> None:
        with self._turn:
            while self._readers:
                self._turn.wait()
            self._env.set_mapsize(2 * self._env.info()["map_size"])
            self._map = mapping_of(self._data)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with self._turn:
            self._usable()
            self._readers += 1
        try:
            self._check_length()
            with self._env.begin(buffers=True) as transaction:
                yield transaction
        except lmdb.CorruptedError as e:
            raise CorruptPage(f"{self.folder}: {_reason(e)}") from e
        except lmdb.Error as e:
            raise self._translated(e) from e
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def _check_length(self) -> None:
        known = self._bytes_known  # first: another thread's commit makes both larger
        size = self.file_bytes
        if size < known:
            raise StoreError(
                f"{self.folder}/data.mdb was cut to {size} bytes while in use; {REMEDY}"
            )

    def _usable(self) -> None:
        self._turn.check()
        if self._poison:
            raise StoreError(
                f"{self.folder} is closed to use after an earlier error ({self._poison}); "
                "reopen it: what was completed before is intact"
            )

    def _translated(self, error: lmdb.Error) -> StoreError:
        full = _disk_full(error, self._data, self.folder)
        if full:
            return full
        self._poisoned(_reason(error))
        return StoreError(f"{self.folder}: {_reason(error)}; reopen the file to go on")

    def _poisoned(self, reason: str) -> None:
        self._poison = self._poison or reason

    def _poisoned_unless_full(self, reason: str) -> None:
        if reason != os.strerror(errno.ENOSPC):
            self._poisoned(reason)

    def _fetch(self, key: bytes) -> None:
        """Have the kernel read the whole value, if it is not in memory yet."""
        place = self._places.get(key) or place_of(self._data, key)
        if place:
            self._places[key] = place
            os.posix_fadvise(self._data, place.start, place.size, os.POSIX_FADV_WILLNEED)

    def _unmap(self, start: int, size: int) -> None:
        """Give back what a read has mapped.

        With a block the kernel maps all that it keeps together with it, up to 2 MiB.  Reading
        512 MB left 560 MB resident without this and 48 MB above the start with it.
        """
        first, limit = self._map
        give_back(max(first, aligned(start)), min(limit, aligned(start + size + FOLIO_BYTES)))
        self._reads += 1  # a count lost to another thread does no harm
        if self._reads % UNMAP_EVERY == 0:  # LMDB's own blocks as well
            give_back(first, limit)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        try:
            return os.fstat(self._data).st_size
        except OSError as e:
            raise StoreError(e.errno, e.strerror, f"{self.folder}/{DATA}") from e

    def close(self) -> None:
        """Close the file once no transaction is open; after a fork, the child leaves it alone."""
        if self._turn.is_inherited or self._owner is None:
            return
        with self._write, self._turn:
            self._close_last()
            self._poisoned("it was closed")
            while self._readers:
                self._turn.wait()
            self._env.close()
            owner, self._owner = self._owner, None
            if owner is not None:  # the first of two threads
                os.close(self._data)
                owner.release()
        _living.discard(self)

    def _close_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            with suppress(OSError):  # the last step was sealed when it was completed
                if not self._poison:
                    last.write_again(metas_of(self._data))
            last.close()

    def _abandon(self) -> None:
        """In a forked child: never let go of LMDB's object."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._env))


_living: weakref.WeakSet[Environment] = weakref.WeakSet()


def _after_fork() -> None:
    for environment in list(_living):
        environment._abandon()
    _living.clear()


os.register_at_fork(after_in_child=_after_fork)


def check_file(path: Path) -> None:
    """Raise `StoreError` for a file that LMDB should not see: truncated, damaged, or not LMDB's."""
    check_metas(path)
    try:
        problems = verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as e:
        problems = [str(e)]
    if problems:
        raise CorruptPage(f"{path} is damaged: {problems[0]}; {REMEDY}")


def _disk_full(error: lmdb.Error, descriptor: int, folder: Path) -> StoreError | None:
    """The error in words when the disk is full; LMDB calls a short write an I/O error."""
    reason = _reason(error)
    try:
        free, used = free_bytes(descriptor), os.fstat(descriptor).st_size
    except OSError:
        return None
    is_short = os.strerror(errno.EIO) in reason and free < 4 * 2**20
    if os.strerror(errno.ENOSPC) not in reason and not is_short:
        return None
    return StoreError(
        errno.ENOSPC,
        f"the disk is full: the page file has {format_size(used)}, {format_size(free)} "
        "are free; free some space or name another scratch folder",
        str(folder),
    )


def _reason(error: Exception) -> str:
    return str(error).removeprefix("mdb_").replace("\n", " ")
