"""Page files: where pages live when they are not in a frame.

One contract, two forms: `LmdbPageFile` here and `MemoryPageFile` in ``memory.py``.

    write(pages)    one bounded transaction; the pages are there, but not yet part of a step
    free(pages)     gone at once if this step wrote them, else when the step is complete
    complete(state) the commit point: one small record names the step and carries its state
    read(page)      a copy, with its checksum checked

A page is never overwritten: a step writes new pages under new numbers, and what the last complete
record does not name is left over from a step that never ended.  `recover` removes it.

Records have a fixed size, because values of varying size fragment an LMDB file (1.66× the live
data, against 1.13×); only pages that are written once and never replaced are kept as they are
(`loosen`).  A page that is larger than a record takes several.  A record is 16 bytes
shorter than the page size: LMDB puts 16 bytes before it and rounds up to whole blocks.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .env import DATA, MAP_FIRST, Environment, Pair
from .errors import CorruptPage, InputError, StoreError
from .inherit import agreed, inherited
from .layout import PARTS_MAX, PageId, Piece, check_page, check_piece, used_bytes
from .owner import Owner
from .records import (
    COMPLETE_KEY,
    DURABILITIES,
    FORMAT_KEY,
    Complete,
    Trust,
    pack_complete,
    pack_format,
    unpack_complete,
)
from .scratch import boot_id, os_errors, private_folder, scratch_folder, sync_file, sync_names
from .turns import Turn, in_turn
from .units import format_size

LMDB_HEADER_BYTES = 16
BLOCK_BYTES = 4096
PAGE_SIZE_MIN = 4096
PAGE_SIZE_MAX = 64 * 2**20
DELETES_PER_TRANSACTION = 256
TRANSACTION_BYTES_MAX = 4 * 2**20

_RECORD_KEY = struct.Struct(">cIQI")


class PageFile(Protocol):
    """What the buffer pool asks of a page file."""

    page_size: int
    where: str

    def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
        """Write the pages in one transaction."""

    def loosen(self, window: int) -> None:
        """Let the records of a window's pages be as long as the pages: they are written once."""

    def stored_bytes(self, page_id: PageId, size: int) -> int:
        """What a page of so many bytes takes in the file."""

    def read(self, page_id: PageId) -> pa.Buffer:
        """The page's bytes, checked, in memory of their own."""

    def read_pieces(self, pieces: Sequence[Piece]) -> list[pa.Buffer]:
        """Pieces of loose pages, checked, in memory of their own."""

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
    has been started anew since).  None is what an old file has, and ``"checkpoint"`` for a new one.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        page_size: int,
        durability: str | None = None,
        scratch: Path | None = None,
        map_first: int = MAP_FIRST,
    ) -> None:
        if durability not in (None, *DURABILITIES):
            raise InputError(f"durability={durability!r}; choose one of {DURABILITIES}")
        self.page_size = check_page_size(page_size)
        self.where = str(path) if path else "scratch"
        self._path = path
        self._scratch = scratch
        self._durability = durability
        self._map_first = map_first
        self._env: Environment | None = None
        self._fresh: set[PageId] = set()
        self._freed: list[PageId] = []
        self._dead: list[PageId] = []
        self._parts: dict[PageId, int] = {}
        self._loose: set[int] = set()
        self._step = 0
        self._trust: Trust | None = None
        self._is_closed = False
        self._turn = Turn(self.where)
        if path is not None:
            self._open()

    def _open(self) -> Environment:
        with self._turn:
            if self._is_closed:
                raise StoreError(f"{self.where} is closed; open it again")
            if self._env is None:
                self._env = self._opened(self._path) if self._path else self._opened_scratch()
                _warm_heap(4 * TRANSACTION_BYTES_MAX)
            return self._env

    def _opened(self, folder: Path) -> Environment:
        private_folder(folder)
        with _owned(folder) as owner:
            boot = boot_id()
            found = inherited(owner, boot)
            trust = agreed(found, folder, self.page_size, self._durability, boot)
            last = owner.last()
            has_steps = found is not None and last is not None and last.has_steps
            # Before a new file is there: should a power cut tear it, it is known to be void.
            owner.write(found.trust if found else trust, has_steps=has_steps)
            env = self._environment(owner, trust)
            try:
                self._step = unpack_complete(env.read(COMPLETE_KEY, bytes), self.where).step
                is_other = found is None or found.trust != trust
                env.keep_last(self._step, is_synced=trust.is_synced, is_new=is_other)
                if found and is_other:
                    sync_file(folder / DATA)
                    sync_names(folder)
                    env.write([(FORMAT_KEY, pack_format(self.page_size, trust))])
                    owner.write(trust, has_steps=has_steps)
                if has_steps != (self._step > 0):  # lost with its record, or marked and killed
                    owner.write(trust, has_steps=self._step > 0)
            except BaseException:
                env.close()
                raise
            self._trust = trust
            return env

    def _opened_scratch(self) -> Environment:
        with scratch_folder(self._scratch) as folder, _owned(folder) as owner:
            trust = Trust.of("checkpoint", boot="")
            owner.write(trust, is_kept=False)
            return self._environment(owner, trust)

    def _environment(self, owner: Owner, trust: Trust) -> Environment:
        """A new file holds both records from the start; that either is missing later is damage."""
        first = [
            (FORMAT_KEY, pack_format(self.page_size, trust)),
            (COMPLETE_KEY, pack_complete(Complete(0, b"", is_sealed=False))),
        ]
        return Environment(owner, sync=trust.is_synced, first=first, map_first=self._map_first)

    @in_turn
    def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
        """Write the pages in one transaction."""
        size = record_bytes(self.page_size)
        self._open().write(_Records(pages, size, self._loose))
        if self._dead:  # a number that comes again, after a step that never ended, is alive
            written = {page_id for page_id, _ in pages}
            self._dead = [page_id for page_id in self._dead if page_id not in written]
        self._fresh.update(page_id for page_id, _ in pages)
        self._parts.update((i, -(-page.size // size)) for i, page in pages if page.size > size)

    def loosen(self, window: int) -> None:
        """Let the records of a window's pages be as long as the pages: they are written once."""
        self._loose.add(window)

    def stored_bytes(self, page_id: PageId, size: int) -> int:
        """What a page of so many bytes takes in the file."""
        unit = BLOCK_BYTES if page_id.window in self._loose else self.page_size
        return -(-size // unit) * unit

    def read(self, page_id: PageId) -> pa.Buffer:
        """The page's bytes, checked, in memory of their own."""
        # Not in turn: pages are read while others are written.
        env, size = self._env or self._open(), record_bytes(self.page_size)
        page = env.read(_record_key(page_id, 0), lambda view: self._first_part(view, page_id))
        if page is None:
            raise self._missing(page_id, 0)
        used = used_bytes(page, page_id, self.where)
        if used > size:
            page = self._all_parts(env, page_id, page, used)
        check_page(page, page_id, self.where)
        return page

    def read_pieces(self, pieces: Sequence[Piece]) -> list[pa.Buffer]:
        """Pieces of loose pages, checked, in memory of their own; read in one transaction."""
        lot = pa.allocate_buffer(sum(piece.size for piece in pieces))
        target = np.frombuffer(lot, np.uint8)
        wanted = list(_stretches(pieces, record_bytes(self.page_size)))
        todo = iter(wanted)

        def copied(key: bytes, view: memoryview) -> bool:
            stretch = next(todo)
            limit = stretch.begin + stretch.size
            if stretch.key != key or len(view) < limit:
                return False
            part = np.frombuffer(view, np.uint8)[stretch.begin : limit]
            target[stretch.at : stretch.at + stretch.size] = part
            return True

        keys = [stretch.key for stretch in wanted]
        found = (self._env or self._open()).read_all(keys, copied) if keys else []
        if len(found) < len(keys) or not all(found):
            at = found.index(False) if False in found else len(found)
            raise self._missing(wanted[at].page_id, 0)
        ends = accumulate((piece.size for piece in pieces), initial=0)
        read = [lot.slice(at, piece.size) for at, piece in zip(ends, pieces, strict=False)]
        for piece, buffer in zip(pieces, read, strict=True):
            check_piece(buffer, piece, self.where)
        return read

    def _first_part(self, view: memoryview, page_id: PageId) -> pa.Buffer:
        """What the page has in its first record."""
        used = used_bytes(view, page_id, self.where)
        size = record_bytes(self.page_size)
        if used < 64 or used > PARTS_MAX * size or len(view) != size:
            raise CorruptPage(
                f"{self.where}: page {page_id.page} of window {page_id.window} claims {used} "
                f"bytes in records of {len(view)}; the file is damaged"
            )
        page = pa.allocate_buffer(min(used, size))
        _copy(view, np.frombuffer(page, np.uint8), 0, page.size)
        return page

    def _all_parts(
        self, env: Environment, page_id: PageId, first: pa.Buffer, used: int
    ) -> pa.Buffer:
        """A page that takes several records."""
        size = record_bytes(self.page_size)
        last = (used - 1) // size
        if env.read(_record_key(page_id, last), len) is None:  # before gigabytes are asked for
            raise self._missing(page_id, last)
        page = pa.allocate_buffer(used)
        target = np.frombuffer(page, np.uint8)
        target[:size] = np.frombuffer(first, np.uint8)
        for part in range(1, last + 1):
            at = part * size
            got = env.read(
                _record_key(page_id, part),
                lambda view, at=at: _copy(view, target, at, min(size, used - at)),  # type: ignore[misc]
            )
            if got is None:
                raise self._missing(page_id, part)
        return page

    def _missing(self, page_id: PageId, part: int) -> CorruptPage:
        which = f"part {part} of page" if part else "page"
        return CorruptPage(
            f"{self.where}: {which} {page_id.page} of window {page_id.window} is missing or cut; "
            "the file is damaged: restore it, or delete it and run again from the source"
        )

    @in_turn
    def free(self, pages: Iterable[PageId]) -> None:
        """Give up pages: those of a complete step once the next one is complete."""
        pages = list(pages)
        self._freed.extend(page_id for page_id in pages if page_id not in self._fresh)
        self._dead.extend(page_id for page_id in pages if page_id in self._fresh)
        self._sweep()

    @in_turn
    def complete(self, state: bytes) -> int:
        """Make everything written and freed since the last step one step; returns its number."""
        is_sealed = self._path is not None
        record = pack_complete(Complete(self._step + 1, state, is_sealed))
        env = self._open()
        if self._step == 0 and self._trust is not None:
            env.note_steps(self._trust)  # first: a file with a step is missed when it is gone
        self._dead.extend(self._freed)
        given_up, self._freed = len(self._freed), []
        try:
            self._put_complete(env, record)
        except BaseException:
            # The last step stands, with its pages.
            self._freed = self._dead[len(self._dead) - given_up :]
            del self._dead[len(self._dead) - given_up :]
            raise
        self._step += 1
        self._fresh.clear()
        self._sweep()
        env.seal(self._step)
        return self._step

    def _put_complete(self, env: Environment, record: bytes) -> None:
        """Write the record, and delete what it gives up unless only that does not fit the disk."""
        try:
            self._delete_some(env, [(COMPLETE_KEY, record)])
        except StoreError as e:
            if e.errno != errno.ENOSPC or not self._dead:
                raise
            env.write([(COMPLETE_KEY, record)])

    def completed(self) -> tuple[int, bytes] | None:
        """The last complete step's number and state, None before the first."""
        step, state, _ = unpack_complete(self._open().read(COMPLETE_KEY, bytes), self.where)
        return (step, state) if step else None

    @in_turn
    def recover(self, live: Iterable[PageId]) -> int:
        """Remove every page but these; returns how many were left over."""
        kept = set(live)
        left_over = [page_id for page_id in self.page_ids() if page_id not in kept]
        self._freed.clear()
        self._dead = list(left_over)
        self._sweep()
        return len(left_over)

    @in_turn
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
            try:
                self._delete_some(self._open(), ())
            except StoreError as e:
                if e.errno == errno.ENOSPC:
                    return
                raise

    def _delete_some(self, env: Environment, puts: Sequence[Pair]) -> None:
        """Delete some dead pages, in one transaction with `puts`: a step that is complete has
        given up its pages, and one wait for the disk serves both."""
        some = self._dead[:DELETES_PER_TRANSACTION]
        env.write(puts, [_record_key(i, p) for i in some for p in range(self._parts.get(i, 1))])
        del self._dead[: len(some)]
        self._fresh.difference_update(some)
        for page_id in some:
            self._parts.pop(page_id, None)

    @property
    def file_bytes(self) -> int:
        """Bytes the file takes on disk; 0 while nothing has been written."""
        return self._env.file_bytes if self._env else 0

    def close(self) -> None:
        """Close the file; a forked child leaves its parent's alone."""
        if self._turn.is_inherited:
            return
        with self._turn:
            env, self._env, self._is_closed = self._env, None, True
        if env is not None:
            env.close()


@contextmanager
def _owned(folder: Path) -> Iterator[Owner]:
    """Take the folder for this process; an error inside the block gives it up again."""
    with os_errors(folder):
        owner = Owner(folder)
        try:
            yield owner
        except BaseException:
            owner.release()
            raise


class _Records:
    """The records of some pages; can be iterated again when a transaction is repeated."""

    def __init__(
        self, pages: Sequence[tuple[PageId, pa.Buffer]], size: int, loose: Container[int]
    ) -> None:
        self._pages = pages
        self._size = size
        self._loose = loose

    def __iter__(self) -> Iterator[tuple[bytes, npt.NDArray[np.uint8]]]:
        # NumPy copies at memory speed; assigning to a bytearray's slice took 240 µs a page of
        # 256 KiB and was half the time of an append.
        padded = np.empty(self._size, np.uint8)
        for page_id, page in self._pages:
            data = np.frombuffer(page, np.uint8)
            for part in range(-(-len(data) // self._size)):
                piece = data[part * self._size : (part + 1) * self._size]
                if page_id.window in self._loose:
                    yield _record_key(page_id, part), piece
                    continue
                padded[: len(piece)] = piece
                padded[len(piece) :] = 0
                yield _record_key(page_id, part), padded


def _record_key(page_id: PageId, part: int) -> bytes:
    return _RECORD_KEY.pack(b"\x01", page_id.window, page_id.page, part)


class _Stretch(NamedTuple):
    """Bytes of one record, and where they go."""

    key: bytes
    page_id: PageId
    begin: int
    size: int
    at: int


def _stretches(pieces: Sequence[Piece], size: int) -> Iterator[_Stretch]:
    """Where the bytes of pieces stand, in records of `size` bytes."""
    at = 0
    for page_id, start, length, _ in pieces:
        limit = start + length
        while start < limit:
            part, begin = divmod(start, size)
            more = min(size - begin, limit - start)
            yield _Stretch(_record_key(page_id, part), page_id, begin, more, at)
            start, at = start + more, at + more


def _copy(view: memoryview, target: npt.NDArray[np.uint8], at: int, length: int) -> int | None:
    """Copy the beginning of a record; None where it is shorter than that."""
    if len(view) < length:
        return None
    target[at : at + length] = np.frombuffer(view, np.uint8)[:length]
    return length


def _warm_heap(size: int) -> None:
    """Let the C library keep as much free memory as a transaction takes.

    glibc gives the top of the heap back to the kernel after every commit and faults it in again
    for the next, until it has seen a block of this size come and go.  Appending 256 KiB pages with
    4 MiB a transaction went from 0.45 to 0.92 GB/s, where a raw file makes 1.15.
    """
    block = np.empty(size, np.uint8)
    del block
