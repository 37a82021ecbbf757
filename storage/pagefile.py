"""Page files: where pages live when they are not in a frame.

One contract, two forms: `LmdbPageFile` here and `MemoryPageFile` in ``memory.py``.

    write(pages)    one bounded transaction; the pages are there, but not yet part of a step
    free(pages)     gone at once if this step wrote them, else when the step is complete
    complete(state) the commit point: one small record names the step and carries its state
    read(page)      a copy, with its checksum checked

A page is never overwritten: a step writes new pages under new numbers, and what the last complete
record does not name is left over from a step that never ended.  `recover` removes it.

Records have a fixed size, because values of varying size fragment an LMDB file (1.66× the live
data, against 1.13×).  A page that is larger than a record takes several.  A record is 16 bytes
shorter than the page size: LMDB puts 16 bytes before it and rounds up to whole blocks.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from .env import MAP_FIRST, Environment
from .errors import CorruptPage, InputError, StoreError
from .layout import Buffer, PageId, check_page, used_bytes
from .scratch import boot_id, private_folder, scratch_folder
from .units import format_size

LMDB_HEADER_BYTES = 16
PAGE_SIZE_MIN = 4096
PAGE_SIZE_MAX = 64 * 2**20
DELETES_PER_TRANSACTION = 256
DURABILITIES = ("epoch", "checkpoint")

_FILE_MAGIC = b"MATWINFL"
_FILE_VERSION = 1
_FORMAT_KEY = b"\x00format"
_COMPLETE_KEY = b"\x00complete"
_FORMAT = struct.Struct("<8sIHHI64s")
_COMPLETE = struct.Struct("<8sIHHQQ")
_RECORD_KEY = struct.Struct(">cIQI")


class PageFile(Protocol):
    """What the buffer pool asks of a page file."""

    page_size: int
    where: str

    def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
        """Write the pages in one transaction."""

    def read(self, page_id: PageId) -> pa.Buffer:
        """The page's bytes, checked, in memory of their own."""

    def free(self, pages: Iterable[PageId]) -> None:
        """Give up pages: those of a complete step once the next one is complete."""

    def complete(self, state: bytes) -> int:
        """Make everything written and freed since the last step one step; returns its number."""

    def completed(self) -> tuple[int, bytes] | None:
        """The last complete step's number and state, None before the first."""

    def recover(self, live: Iterable[PageId]) -> int:
        """Remove every page but these; returns how many were left over."""

    def page_ids(self) -> list[PageId]:
        """Every page in the file, complete or not."""

    @property
    def file_bytes(self) -> int:
        """Bytes the file takes on disk; 0 while nothing has been written."""

    def close(self) -> None:
        """Close the file."""


def record_bytes(page_size: int) -> int:
    """The bytes of a page that one record holds."""
    return page_size - LMDB_HEADER_BYTES


def check_page_size(page_size: int) -> int:
    """The page size, or an `InputError` that says which ones work."""
    if not PAGE_SIZE_MIN <= page_size <= PAGE_SIZE_MAX or page_size % 4096:
        raise InputError(
            f"page_size={page_size} does not work; give a multiple of 4 KiB from "
            f"{format_size(PAGE_SIZE_MIN)} to {format_size(PAGE_SIZE_MAX)}"
        )
    return page_size


class LmdbPageFile:
    """Pages in an LMDB environment, opened when the first page is written or read.

    Without a path the file is scratch: it is unlinked as soon as it is open, so that nothing stays
    behind, however the process ends.  `durability` says what a complete step survives: ``"epoch"``
    a power cut, ``"checkpoint"`` the end of the process (the file is discarded when the machine
    has been started anew since).
    """

    def __init__(
        self,
        path: Path | None,
        *,
        page_size: int,
        durability: str = "checkpoint",
        scratch: Path | None = None,
        map_first: int = MAP_FIRST,
    ) -> None:
        if durability not in DURABILITIES:
            raise InputError(f"durability={durability!r}; choose one of {DURABILITIES}")
        self.page_size = check_page_size(page_size)
        self.where = str(path) if path else "scratch"
        self._path = path
        self._scratch = scratch
        self._sync = durability == "epoch" and path is not None
        self._map_first = map_first
        self._env: Environment | None = None
        self._fresh: set[PageId] = set()
        self._freed: list[PageId] = []
        self._dead: list[PageId] = []
        self._parts: dict[PageId, int] = {}
        self._step = 0
        self._is_closed = False
        if path is not None:
            self._open()

    def _open(self) -> Environment:
        if self._is_closed:
            raise StoreError(f"{self.where} is closed; open it again")
        if self._env is None:
            folder = self._path or scratch_folder(self._scratch)
            if self._path:
                private_folder(folder)
            env = Environment(folder, sync=self._sync, map_first=self._map_first)
            try:
                self._check_format(env)
            except BaseException:
                env.close()
                raise
            if not self._path:
                env.unlink()
            self._env = env
        return self._env

    def _check_format(self, env: Environment) -> None:
        found = env.read(_FORMAT_KEY, bytes)
        if found is not None:
            page_size, is_synced, boot = self._unpack_format(found)
            if page_size != self.page_size:
                raise InputError(
                    f"{self.where} has pages of {page_size} bytes, not {self.page_size}; "
                    f"open it with page_size={page_size}"
                )
            if is_synced or boot == boot_id():
                self._step = (self._completed(env) or (0, b""))[0]
            else:
                self._discard(env)
        elif env.keys(b""):
            raise StoreError(f"{self.where} is an LMDB file, but not one of MatWin's")
        boot = boot_id().encode()[:64]
        head = _FORMAT.pack(_FILE_MAGIC, 0, _FILE_VERSION, self._sync, self.page_size, boot)
        env.write([(_FORMAT_KEY, _sealed(head))])

    def _unpack_format(self, record: bytes) -> tuple[int, bool, str]:
        magic, version = record[:8], struct.unpack_from("<H", record, 12)[0]
        if magic == _FILE_MAGIC and version != _FILE_VERSION:
            raise StoreError(
                f"{self.where} has format version {version}, this is version {_FILE_VERSION}; "
                "open it with the release that wrote it"
            )
        _check_seal(record, _FORMAT.size, f"{self.where}: the format record")
        _, _, _, is_synced, page_size, boot = _FORMAT.unpack(record)
        return page_size, bool(is_synced), boot.rstrip(b"\0").decode(errors="replace")

    def _discard(self, env: Environment) -> None:
        """Drop everything: it was not synced, and the machine has started anew since."""
        for keys in _portions(env.keys(b""), DELETES_PER_TRANSACTION):
            env.write(deletes=keys)

    def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
        """Write the pages in one transaction."""
        size = record_bytes(self.page_size)
        self._open().write(_Records(pages, size))
        self._fresh.update(page_id for page_id, _ in pages)
        self._parts.update((i, -(-page.size // size)) for i, page in pages if page.size > size)

    def read(self, page_id: PageId) -> pa.Buffer:
        """The page's bytes, checked, in memory of their own."""
        env, size = self._open(), record_bytes(self.page_size)
        first = env.read(_record_key(page_id, 0), lambda view: self._first_part(view, page_id))
        if first is None:
            raise CorruptPage(f"{self.where}: page {page_id.page} of window {page_id.window} "
                              "is missing; the file is damaged")  # fmt: skip
        page, filled = first, size
        target = np.frombuffer(page, np.uint8)
        for part in range(1, -(-page.size // size)):
            length = min(size, page.size - filled)
            got = env.read(
                _record_key(page_id, part),
                lambda view, at=filled, n=length: _copy(view, target, at, n),  # type: ignore[misc]
            )
            if got is None:
                raise CorruptPage(f"{self.where}: part {part} of page {page_id.page} is missing")
            filled += length
        check_page(page, page_id, self.where)
        return page

    def _first_part(self, view: memoryview, page_id: PageId) -> pa.Buffer:
        used = used_bytes(view, page_id, self.where)
        if used < 64 or used > max(len(view), _PARTS_MAX * len(view)):
            raise CorruptPage(f"{self.where}: page {page_id.page} claims {used} bytes")
        page = pa.allocate_buffer(used)
        _copy(view, np.frombuffer(page, np.uint8), 0, min(used, len(view)))
        return page

    def free(self, pages: Iterable[PageId]) -> None:
        """Give up pages: those of a complete step once the next one is complete."""
        pages = list(pages)
        self._freed.extend(page_id for page_id in pages if page_id not in self._fresh)
        self._dead.extend(page_id for page_id in pages if page_id in self._fresh)
        self._sweep()

    def complete(self, state: bytes) -> int:
        """Make everything written and freed since the last step one step; returns its number."""
        head = _COMPLETE.pack(_FILE_MAGIC, 0, _FILE_VERSION, 0, self._step + 1, len(state))
        self._open().write([(_COMPLETE_KEY, _sealed(head + state))])
        self._step += 1
        freed, self._freed = self._freed, []
        self._fresh.clear()
        self._dead.extend(freed)
        self._sweep()
        return self._step

    def completed(self) -> tuple[int, bytes] | None:
        """The last complete step's number and state, None before the first."""
        return self._completed(self._open())

    def _completed(self, env: Environment) -> tuple[int, bytes] | None:
        record = env.read(_COMPLETE_KEY, bytes)
        if record is None:
            return None
        what = f"{self.where}: the complete record"
        _check_seal(record, _COMPLETE.size, what)
        _, _, _, _, step, length = _COMPLETE.unpack_from(record)
        return step, record[_COMPLETE.size : _COMPLETE.size + length]

    def recover(self, live: Iterable[PageId]) -> int:
        """Remove every page but these; returns how many were left over."""
        kept = set(live)
        left_over = [page_id for page_id in self.page_ids() if page_id not in kept]
        self._freed.clear()
        self._dead = list(left_over)
        self._sweep()
        return len(left_over)

    def page_ids(self) -> list[PageId]:
        """Every page in the file, complete or not."""
        found: dict[PageId, int] = {}
        for _, window, page, _ in map(_RECORD_KEY.unpack, self._open().keys(b"\x01")):
            page_id = PageId(window, page)
            found[page_id] = found.get(page_id, 0) + 1
        self._parts = {page_id: parts for page_id, parts in found.items() if parts > 1}
        return list(found)

    def _sweep(self) -> None:
        """Delete dead pages, some at a time; on a full disk they wait for the next call."""
        while self._dead:
            some = self._dead[:DELETES_PER_TRANSACTION]
            keys = [_record_key(i, part) for i in some for part in range(self._parts.get(i, 1))]
            try:
                self._open().write(deletes=keys)
            except StoreError as e:
                if e.errno == errno.ENOSPC:
                    return
                raise
            del self._dead[: len(some)]
            self._fresh.difference_update(some)
            for page_id in some:
                self._parts.pop(page_id, None)

    @property
    def file_bytes(self) -> int:
        """Bytes the file takes on disk; 0 while nothing has been written."""
        return self._env.file_bytes if self._env else 0

    def close(self) -> None:
        """Close the file."""
        if self._env is not None:
            self._env.close()
        self._env, self._is_closed = None, True


_PARTS_MAX = 2**16


class _Records:
    """The records of some pages; can be iterated again when a transaction is repeated."""

    def __init__(self, pages: Sequence[tuple[PageId, pa.Buffer]], size: int) -> None:
        self._pages = pages
        self._size = size

    def __iter__(self) -> Iterator[tuple[bytes, Buffer]]:
        padded = bytearray(self._size)
        for page_id, page in self._pages:
            view = memoryview(page)
            for part in range(-(-len(view) // self._size)):
                piece = view[part * self._size : (part + 1) * self._size]
                padded[: len(piece)] = piece
                padded[len(piece) :] = bytes(self._size - len(piece))
                yield _record_key(page_id, part), padded


def _record_key(page_id: PageId, part: int) -> bytes:
    return _RECORD_KEY.pack(b"\x01", page_id.window, page_id.page, part)


def _copy(view: memoryview, target: np.ndarray, at: int, length: int) -> int:  # type: ignore[type-arg]
    target[at : at + length] = np.frombuffer(view, np.uint8)[:length]
    return length


def _sealed(record: bytes) -> bytes:
    """The record with the checksum of what follows it at bytes 8 to 12."""
    return record[:8] + struct.pack("<I", zlib.crc32(record[12:])) + record[12:]


def _check_seal(record: bytes, size_min: int, what: str) -> None:
    if len(record) < size_min or record != _sealed(record) or record[:8] != _FILE_MAGIC:
        raise CorruptPage(f"{what} is damaged; restore the file, or delete it and run again")


def _portions(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
