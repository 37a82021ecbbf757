"""LMDB environments: the only place that talks to LMDB.

LMDB is exact but leaves a lot to its user.  This file holds those rules, and nothing above it
needs to know them:

* one environment per path and process, and one process per path for writing (a lock file);
* never across a fork: the process that opened it is remembered, and a forked child never lets go
  of LMDB's object, because freeing it would give back the parent's reader slots;
* a new file appears whole or not at all; an unsynced one is void once the machine has started anew,
  which the owner's file says, so that LMDB never looks at what a power cut has left of it;
* read transactions end before the call returns, so no reader keeps freed pages alive;
* the map grows when it is full, once no transaction is open;
* reads leave no trace in the resident set: what a read mapped is unmapped again;
* the first I/O error poisons the environment, because LMDB accepts commits after a failed sync;
  a full disk does not, and says so in words;
* a file that was there before is checked with plain reads first: LMDB has no checksums and follows
  what its pages say.  Of 600 flipped bits in its own pages 5 ended the process, one lost rows in
  silence.  The check takes 0.1 s for 1 GB in records of 256 KiB, 0.6 s with a cold cache.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import numpy as np
from lmdb.verify import VerifyError, verify

from .errors import CorruptPage, InputError, StoreError
from .places import Place, place_of
from .scratch import free_bytes
from .units import format_size

T = TypeVar("T")
Pair = tuple[bytes, Any]

MAP_FIRST = 64 * 2**20
LOCK_BYTES = 8192
OWNER_BYTES = 128
UNMAP_EVERY = 8
FOLIO_BYTES = 2 << 20
_MADV_DONTNEED = 4
_META = struct.Struct("<16xIIQQ48x40xQQQ")
_META_MAGIC = 0xBEEFC0DE
_META_WITHIN = 2 * 64 * 1024
_open_paths: dict[str, int] = {}
_registry = threading.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


class Environment:
    """One LMDB file, opened by one process."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: bool | None,
        boot: str = "",
        first: Sequence[Pair] = (),
        map_first: int = MAP_FIRST,
    ) -> None:
        """Open the folder's file; a new one begins with the records `first`.

        `sync` says whether commits wait for the disk; None leaves an old file as it was.  `boot`
        names the time since the machine started.
        """
        self.folder = folder
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._write = threading.RLock()
        self._readers = 0
        self._reads = 0
        self._places: dict[bytes, Place] = {}
        self._poison: str | None = None
        self._bytes_known = 0
        self._map: tuple[int, int] = (0, 0)
        self._check_library()
        with _os_errors(folder):
            self._lock = _claim(folder)
            try:
                sync = self._take_over(sync, boot)
                if self.is_old():
                    check_file(folder / "data.mdb")
                else:
                    self._make(sync, first)
                _allocate(folder / "lock.mdb", LOCK_BYTES)
                self._env = self._opened(sync, map_first)
                self._data = os.open(folder / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
            except BaseException:
                _release(folder, self._lock)
                raise
        _living.add(self)
        self._env.reader_check()
        self._bytes_known = self._bytes_wanted()
        self._map = _mapping_of(self._data)

    def _take_over(self, sync: bool | None, boot: str) -> bool:
        """Write down who has the folder, and until when its file is to be trusted.

        The second line of the owner's file is empty while everything completed is on the disk.
        """
        owner, _, before = os.pread(self._lock, 256, 0).decode(errors="replace").partition("\n")
        if before.strip() not in ("", boot):
            for name in ("data.mdb", "lock.mdb"):
                (self.folder / name).unlink(missing_ok=True)
        was_synced = self.is_old() and bool(owner) and not before.strip()
        if sync is False and boot and was_synced:
            raise InputError(
                f"{self.folder} was written with durability='epoch'; "
                "open it with that, or leave durability out"
            )
        sync = was_synced if sync is None else sync
        if sync and self.is_old() and not was_synced:
            _sync_file(self.folder / "data.mdb")
        # Overwritten in place and always as long: no power cut leaves half of it.
        line = f"{os.getpid()}\n{'' if sync else boot}"
        os.pwrite(self._lock, line.ljust(OWNER_BYTES - 1).encode() + b"\n", 0)
        if boot:
            os.fsync(self._lock)
        return sync

    def _make(self, sync: bool, first: Sequence[Pair]) -> None:
        draft = self.folder / "new.mdb"
        draft.unlink(missing_ok=True)
        try:
            with (
                lmdb.open(str(draft), subdir=False, lock=False, mode=0o600, sync=sync) as env,
                env.begin(write=True) as transaction,
            ):
                for key, value in first:
                    transaction.put(key, value)
            draft.rename(self.folder / "data.mdb")
        except lmdb.Error as e:
            draft.unlink(missing_ok=True)
            full = _disk_full(e, self._lock, self.folder)
            raise full or StoreError(f"{self.folder}: no file can be made: {_reason(e)}") from e
        if sync:
            _sync_file(self.folder)

    @staticmethod
    def _check_library() -> None:
        if lmdb.version(subpatch=True)[3] == 0:
            warnings.warn(
                "this LMDB lacks the fixes that the Python package ships; "
                "reinstall lmdb from its wheel",
                stacklevel=4,
            )

    def _opened(self, sync: bool, map_first: int) -> lmdb.Environment:
        size = (self.folder / "data.mdb").stat().st_size if self.is_old() else 0
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
            raise _disk_full(e, self._lock, self.folder) or StoreError(
                f"{self.folder} can't be opened: {_reason(e)}; it is damaged or no page file"
            ) from e

    def is_old(self) -> bool:
        """Whether the file was there before."""
        return (self.folder / "data.mdb").exists()

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
            with _os_errors(self.folder, self._poisoned):
                self._after_commit()

    def _transact(self, puts: Iterable[Pair], deletes: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            for number, key in enumerate(deletes, 1):
                transaction.delete(key)
                self._places.pop(key, None)
                if number % UNMAP_EVERY == 0:
                    _give_back(*self._map)
            for number, (key, value) in enumerate(puts, 1):
                transaction.put(key, value)
                self._places.pop(key, None)
                if number % UNMAP_EVERY == 0:
                    _give_back(*self._map)

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
        _give_back(*self._map)

    def _bytes_wanted(self) -> int:
        pages: int = self._env.info()["last_pgno"] + 1
        psize: int = self._env.stat()["psize"]
        return pages * psize

    def _grow(self) -> None:
        with self._turn:
            while self._readers:
                self._turn.wait()
            self._env.set_mapsize(2 * self._env.info()["map_size"])
            self._map = _mapping_of(self._data)

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
        size = os.fstat(self._data).st_size
        if size < known:
            raise StoreError(
                f"{self.folder}/data.mdb was cut to {size} bytes while in use; {_REMEDY}"
            )

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.folder} was opened by process {self._pid} before a fork; "
                "open it in this process"
            )
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
        _give_back(max(first, _aligned(start)), min(limit, _aligned(start + size + FOLIO_BYTES)))
        self._reads += 1  # a count lost to another thread does no harm
        if self._reads % UNMAP_EVERY == 0:  # LMDB's own blocks as well
            _give_back(first, limit)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._data).st_size

    def close(self) -> None:
        """Close the file once no transaction is open; after a fork, the child leaves it alone."""
        if self._pid != os.getpid() or self._lock < 0:
            return
        with self._write, self._turn:
            self._poisoned("it was closed")
            while self._readers:
                self._turn.wait()
            self._env.close()
        os.close(self._data)
        _release(self.folder, self._lock)
        self._lock = -1
        _living.discard(self)

    def _abandon(self) -> None:
        """In a forked child: let go of the folder, but never of LMDB's object."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._env))
        os.close(self._lock)
        self._turn, self._write = threading.Condition(), threading.RLock()


_living: weakref.WeakSet[Environment] = weakref.WeakSet()


def _after_fork() -> None:
    global _registry
    _registry = threading.Lock()
    _open_paths.clear()
    for environment in list(_living):
        environment._abandon()
    _living.clear()


os.register_at_fork(after_in_child=_after_fork)


def check_file(path: Path) -> None:
    """Raise `StoreError` for a file that LMDB should not see: truncated, damaged, or not LMDB's."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_META_WITHIN)
    first = _meta(head, 0)
    second = _meta(head, first[0]) if first else None
    if first is None:
        raise StoreError(
            f"{path} is no page file, or it is damaged: its first bytes are not LMDB's; {_REMEDY}"
        )
    page_size, last_page, _ = max(first, second or first, key=lambda meta: meta[2])
    if size < (last_page + 1) * page_size:
        raise StoreError(
            f"{path} is truncated: {size} bytes of {(last_page + 1) * page_size}; {_REMEDY}"
        )
    if second and abs(first[2] - second[2]) > 1:
        raise CorruptPage(f"{path} is damaged: a transaction number is wrong; {_REMEDY}")
    try:
        problems = verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as e:
        problems = [str(e)]
    if problems:
        raise CorruptPage(f"{path} is damaged: {problems[0]}; {_REMEDY}")


_REMEDY = "restore it, or delete it and run again from the source"


def _meta(head: bytes, at: int) -> tuple[int, int, int] | None:
    if len(head) < at + _META.size:
        return None
    magic, _, _, _, _, last_page, transaction = _META.unpack_from(head, at)
    (page_size,) = struct.unpack_from("<I", head, at + 40)
    return (page_size, last_page, transaction) if magic == _META_MAGIC else None


def _claim(folder: Path) -> int:
    """Hold the folder for this process alone, and for one environment in it."""
    real = str(folder.resolve())
    with _registry:
        if _open_paths.get(real) == os.getpid():
            raise StoreError(f"{folder} is open in this process already; share that page file")
        descriptor = os.open(folder / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            owner = os.read(descriptor, 32).decode(errors="replace").partition("\n")[0]
            os.close(descriptor)
            raise StoreError(
                f"{folder} is in use by process {owner or '?'}; wait for it, or name another path"
            ) from e
        _open_paths[real] = os.getpid()
        return descriptor


def _release(folder: Path, descriptor: int) -> None:
    with _registry:
        _open_paths.pop(str(folder.resolve()), None)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child just forked may have it open as well
        os.close(descriptor)


def _mapping_of(descriptor: int) -> tuple[int, int]:
    """Start and end of a file's shared mapping in this process; empty where nobody says."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return (0, 0)
    inode = str(os.fstat(descriptor).st_ino)
    for line in lines:
        place, mode, _, _, found, *_ = line.split()
        if found == inode and mode.endswith("s"):
            start, end = place.split("-")
            return (int(start, 16), int(end, 16))
    return (0, 0)


def _give_back(start: int, end: int) -> None:
    """Drop a part of a file's mapping from the resident set; it can be read again at any time."""
    if end > start:
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _aligned(address: int) -> int:
    return address & -FOLIO_BYTES


def _allocate(path: Path, size: int) -> None:
    """Give a file its blocks: writing to a mapped hole on a full disk would kill the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _os_errors(folder: Path, poison: Callable[[str], None] | None = None) -> Iterator[None]:
    """The operating system's errors as ours."""
    try:
        yield
    except StoreError:
        raise
    except OSError as e:
        if poison:
            poison(str(e.strerror))
        raise StoreError(e.errno, e.strerror, str(e.filename or folder)) from e


def _disk_full(error: lmdb.Error, descriptor: int, folder: Path) -> StoreError | None:
    """The error in words when the disk is full; LMDB calls a short write an I/O error."""
    reason = _reason(error)
    free = free_bytes(descriptor)
    is_short = os.strerror(errno.EIO) in reason and free < 4 * 2**20
    if os.strerror(errno.ENOSPC) not in reason and not is_short:
        return None
    used = os.fstat(descriptor).st_size
    return StoreError(
        errno.ENOSPC,
        f"the disk is full: the page file has {format_size(used)}, {format_size(free)} "
        "are free; free some space or name another scratch folder",
        str(folder),
    )


def _reason(error: Exception) -> str:
    return str(error).removeprefix("mdb_").replace("\n", " ")
