"""LMDB environments: the only place that talks to LMDB.

LMDB is exact but leaves a lot to its user.  This file holds those rules, and nothing above it
needs to know them:

* one environment per path and process, and one process per path for writing (a lock file);
* never across a fork: the process that opened it is remembered;
* read transactions end before the call returns, so no reader keeps freed pages alive;
* the map grows when it is full, once no transaction is open;
* reads leave no trace in the resident set: what a read mapped is unmapped again;
* the first I/O error poisons the environment, because LMDB accepts commits after a failed sync;
  a full disk does not, and says so in words;
* the file's size is compared with its own meta page before anything is read through the map.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import numpy as np

from .errors import CorruptPage, StoreError
from .scratch import free_bytes
from .units import format_size

T = TypeVar("T")
Pair = tuple[bytes, Any]

MAP_FIRST = 64 * 2**20
READERS_CHECKED_EVERY = 64
_FAULT_AROUND = 64 * 1024
_MADV_DONTNEED = 4
_META = struct.Struct("<16xIIQQ48x40xQQQ")
_META_MAGIC = 0xBEEFC0DE
_META_WITHIN = 2 * 64 * 1024
_open_paths: dict[str, int] = {}
_registry = threading.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


class Environment:
    """One LMDB file, opened by one process."""

    def __init__(self, folder: Path, *, sync: bool, map_first: int = MAP_FIRST) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._write = threading.RLock()
        self._readers = 0
        self._commits = 0
        self._poison: str | None = None
        self._bytes_known = 0
        self._map: tuple[int, int] = (0, 0)
        self._check_library()
        self._lock = _claim(folder)
        try:
            check_size(folder / "data.mdb")
            self._env = self._opened(sync, map_first)
            self._data = os.open(folder / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            _release(folder, self._lock)
            raise
        self._env.reader_check()
        self._bytes_known = self._bytes_wanted()

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
            raise StoreError(
                f"{self.folder} can't be opened: {_reason(e)}; it is damaged or no page file"
            ) from e

    def is_old(self) -> bool:
        """Whether the file was there before."""
        return (self.folder / "data.mdb").exists()

    def unlink(self) -> None:
        """Take the files out of the folder; the space goes back when the process ends."""
        for name in ("data.mdb", "lock.mdb", "owner"):
            (self.folder / name).unlink(missing_ok=True)
        self.folder.rmdir()

    def read(self, key: bytes, use: Callable[[memoryview], T]) -> T | None:
        """What `use` makes of the value, None where the key is missing.

        The view dies with the call: LMDB may overwrite what it shows.
        """
        with self._reading() as transaction:
            view = transaction.get(key)
            if view is None:
                return None
            try:
                return use(view)
            finally:
                self._unmap(view)

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
                try:
                    self._transact(puts, deletes)
                except lmdb.MapFullError:
                    self._grow()
                except lmdb.Error as e:
                    raise self._translated(e) from e
                else:
                    break
            self._after_commit()

    def _transact(self, puts: Iterable[Pair], deletes: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            for key in deletes:
                transaction.delete(key)
            for key, value in puts:
                transaction.put(key, value)

    def _after_commit(self) -> None:
        # LMDB does not write pages that a transaction took and gave back.  At the file's end that
        # would look like a truncation to `check_size`.
        wanted = self._bytes_wanted()
        if os.fstat(self._data).st_size < wanted:
            os.ftruncate(self._data, wanted)
        self._bytes_known = wanted
        self._commits += 1
        if self._commits % READERS_CHECKED_EVERY == 0:
            self._env.reader_check()

    def _bytes_wanted(self) -> int:
        pages: int = self._env.info()["last_pgno"] + 1
        psize: int = self._env.stat()["psize"]
        return pages * psize

    def _grow(self) -> None:
        with self._turn:
            while self._readers:
                self._turn.wait()
            self._env.set_mapsize(2 * self._env.info()["map_size"])
            self._map = (0, 0)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        self._usable()
        with self._turn:
            self._readers += 1
        try:
            with self._env.begin(buffers=True) as transaction:
                self._check_length()
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
            raise StoreError(f"{self.folder}/data.mdb was cut to {size} bytes while in use")

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
        reason = _reason(error)
        free = free_bytes(self._data)
        if os.strerror(errno.ENOSPC) in reason or (
            os.strerror(errno.EIO) in reason and free < 4 * 2**20
        ):
            used = os.fstat(self._data).st_size
            return StoreError(
                errno.ENOSPC,
                f"the disk is full: the page file has {format_size(used)}, {format_size(free)} "
                "are free; free some space or name another scratch folder",
                str(self.folder),
            )
        self._poison = reason
        return StoreError(f"{self.folder}: {reason}; reopen the file to go on")

    def _unmap(self, view: memoryview) -> None:
        """Give back the resident pages that reading the view has mapped.

        The kernel maps 64 KiB around each fault.  Reading 512 MB left 560 MB resident without
        this and 48 MB above the start with it, at the same 2 GB/s.
        """
        address = np.frombuffer(view, np.uint8).ctypes.data
        start, end = self._map
        if not start <= address < end:
            start, end = self._map = _mapping_at(address)
        first = max(address & -_FAULT_AROUND, start)
        limit = min(-(-(address + len(view)) // _FAULT_AROUND) * _FAULT_AROUND, end)
        if limit > first:
            _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(limit - first), _MADV_DONTNEED)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._data).st_size

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        self._usable()
        try:
            self._env.sync(True)
        except lmdb.Error as e:
            raise self._translated(e) from e

    def close(self) -> None:
        """Close the file; a process that inherited it by a fork leaves it alone."""
        if self._pid != os.getpid() or self._lock < 0:
            return
        self._env.close()
        os.close(self._data)
        _release(self.folder, self._lock)
        self._lock = -1


def check_size(path: Path) -> None:
    """Raise `StoreError` for a file shorter than its own meta page says.

    Reading beyond the end of a mapped file would kill the process.
    """
    if not path.exists():
        return
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("rb") as file:
        head = file.read(_META_WITHIN)
    first = _meta(head, 0)
    metas = [m for m in (first, _meta(head, first[0] if first else 4096)) if m]
    if not metas:
        raise StoreError(f"{path} is no page file: its first bytes are not LMDB's")
    page_size, last_page, _ = max(metas, key=lambda meta: meta[2])
    if size < (last_page + 1) * page_size:
        raise StoreError(
            f"{path} is truncated: {size} bytes of {(last_page + 1) * page_size}; "
            "restore it, or delete it and run again from the source"
        )


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
            owner = os.read(descriptor, 32).decode(errors="replace")
            os.close(descriptor)
            raise StoreError(f"{folder} is in use by process {owner or '?'}") from e
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        _open_paths[real] = os.getpid()
        return descriptor


def _release(folder: Path, descriptor: int) -> None:
    with _registry:
        _open_paths.pop(str(folder.resolve()), None)
        os.close(descriptor)


def _mapping_at(address: int) -> tuple[int, int]:
    """Start and end of the memory mapping that holds an address; empty where nobody says."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return (address, address)
    for line in lines:
        start, end = (int(part, 16) for part in line.split(" ", 1)[0].split("-"))
        if start <= address < end:
            return (start, end)
    return (address, address)


def _reason(error: Exception) -> str:
    return str(error).removeprefix("mdb_").replace("\n", " ")
