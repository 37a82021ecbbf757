"""A page file read with plain reads: looking at it opens no LMDB and changes no byte.

Opening a store takes the folder over: it writes down the new owner, and removes what the last
complete step does not name.  An inspector must not.  So the records are found by walking LMDB's
tree, after its pages have been checked:

    meta pages ──▶ root ──▶ branch ──▶ leaf ──┬─▶ a small value, in the leaf
                                              └─▶ a large one, in blocks of its own

`docs/FORMAT.md` says what the records hold.  While a process has the store open, its lock refuses
us, and ours keeps others from opening it for the moment that a look takes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pyarrow as pa

from matwin.storage.env import check_file
from matwin.storage.errors import CorruptPage, StoreError
from matwin.storage.layout import PageId, check_page, used_bytes
from matwin.storage.manifest import unpack_states
from matwin.storage.materialize import WindowState
from matwin.storage.pagefile import record_bytes

from .text import escaped

_META = struct.Struct("<40xI84xQQQ")
_PAGE = struct.Struct("<10xHH2x")
_NODE = struct.Struct("<HHHH")
_RECORD_KEY = struct.Struct(">cIQI")
_FORMAT = struct.Struct("<8sIHHI")
_COMPLETE = struct.Struct("<8sIHHQQ")
_MAGIC = b"MATWINFL"
_VERSION = 1
_LEAF, _IN_BLOCKS = 2, 1
_DEPTH_MAX = 32


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
        first = _value(self.descriptor, _RECORD_KEY.pack(b"\x01", *page_id, 0))
        if first is None:
            return None
        where = escaped(str(self.folder))
        used = used_bytes(first, page_id, where)
        parts = [first]
        while len(parts) * size < used:
            key = _RECORD_KEY.pack(b"\x01", *page_id, len(parts))
            part = _value(self.descriptor, key)
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
            page_size = _page_size(descriptor, where)
            step, state = _complete(descriptor, where)
            yield Peek(folder, descriptor, page_size, step, _states(state, where))
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
            process = os.read(descriptor, 32).decode(errors="replace").partition("\n")[0].strip()
            raise StoreError(
                f"{where} is in use by process {escaped(process) or '?'}; "
                "look at it when that has ended, or name a copy with --store"
            ) from e
        yield
    finally:
        os.close(descriptor)


def _page_size(descriptor: int, where: str) -> int:
    record = _value(descriptor, b"\x00format")
    if record is None or record[:8] != _MAGIC:
        raise StoreError(f"{where} is an LMDB file, but not one of MatWin's")
    _check_seal(record, _FORMAT, f"{where}: the format record")
    version, page_size = _FORMAT.unpack_from(record)[2], _FORMAT.unpack_from(record)[4]
    if version != _VERSION:
        raise StoreError(f"{where} has format version {version}, this is version {_VERSION}")
    return int(page_size)


def _complete(descriptor: int, where: str) -> tuple[int, bytes]:
    record = _value(descriptor, b"\x00complete") or b""
    _check_seal(record, _COMPLETE, f"{where}: the complete record")
    step, length = _COMPLETE.unpack_from(record)[4:]
    return step, record[_COMPLETE.size : _COMPLETE.size + length]


def _states(state: bytes, where: str) -> dict[str, tuple[int, WindowState]]:
    if not state:
        return {}
    with suppress(pa.ArrowException, KeyError, TypeError, ValueError):
        return unpack_states(state)
    raise CorruptPage(f"{where}: the complete record names no windows that can be read")


def _check_seal(record: bytes, form: struct.Struct, what: str) -> None:
    is_whole = len(record) >= form.size and record[:8] == _MAGIC
    if not is_whole or crc32(record[12:]) != int.from_bytes(record[8:12], "little"):
        raise CorruptPage(f"{what} is damaged; restore the file, or run again from the source")


# ── LMDB's tree ──────────────────────────────────────────────────────────────────────────────


def _value(descriptor: int, key: bytes) -> bytes | None:
    """The value of a key, None where there is none; the file has been checked."""
    page_size, page = _root(descriptor)
    with suppress(struct.error, IndexError):  # an empty tree, whose root is no page
        for _ in range(_DEPTH_MAX):
            data = os.pread(descriptor, page_size, page * page_size)
            flags, lower = _PAGE.unpack_from(data)
            nodes = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", data, _PAGE.size)
            keys = [_key(data, node) for node in nodes]
            at = bisect_right(keys, key) - 1
            if flags == _LEAF:
                is_there = at >= 0 and keys[at] == key
                return _content(descriptor, page_size, data, nodes[at]) if is_there else None
            # A branch's first node has no key of its own.
            low, middle, high, _ = _NODE.unpack_from(data, nodes[max(at, 0)])
            page = low | middle << 16 | high << 32
    return None


def _content(descriptor: int, page_size: int, data: bytes, node: int) -> bytes:
    """The value of a leaf's node, wherever it is."""
    low, high, flags, key_size = _NODE.unpack_from(data, node)
    start, size = node + _NODE.size + key_size, low | high << 16
    if flags != _IN_BLOCKS:
        return data[start : start + size]
    (block,) = struct.unpack_from("<Q", data, start)
    return os.pread(descriptor, size, block * page_size + _PAGE.size)


def _root(descriptor: int) -> tuple[int, int]:
    """The page size and the root of the newest state."""
    page_size, root, _, transaction = _META.unpack(os.pread(descriptor, _META.size, 0))
    _, other, _, later = _META.unpack(os.pread(descriptor, _META.size, page_size))
    return page_size, other if later > transaction else root


def _key(data: bytes, node: int) -> bytes:
    """A node's key; a branch's first node has none."""
    (size,) = struct.unpack_from("<H", data, node + 6)
    return data[node + _NODE.size : node + _NODE.size + size]
