"""LMDB's two meta pages, which say what a file holds, read and checked without LMDB.

    page 0   the state after an even transaction  ┐  the newer one counts; a commit writes
    page 1   the state after an odd one           ┘  over the other

LMDB believes what stands there: a flag ended the process at the next commit, and a transaction's
number of which one bit was flipped opened the state before.  So every field is checked before LMDB
sees the file.  A number that is wrong and possible, only what is beside the file can tell
(``last.py``): for that each page has a checksum here.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from .checksum import crc32
from .errors import CorruptPage, StoreError

META_BYTES = 152
"""What LMDB uses of a meta page."""
REMEDY = "restore it, or delete it and run again from the source"

# Page header, then magic, version, address and size of the map; the list of free pages and the
# main tree, each with pad, flags, depth, four counts and root; last page, transaction.
_META = struct.Struct("<Q2xHHH IIQQ IHHQQQQQ IHHQQQQQ QQ")
_MAGIC = 0xBEEFC0DE
_VERSION = 1
_IS_META = 8
_FREE_FLAGS = {0x0008, 0x4008}  # integer keys; and the file was made outside a folder of its own
_DEPTH_MAX = 32
_NOTHING = 2**64 - 1
_PAGE_SIZES = [2**bits for bits in range(8, 16)]


@dataclass(frozen=True, slots=True)
class Meta:
    """What one meta page says, as far as anybody asks; `crc` is the checksum of all of it."""

    page_size: int
    last_page: int
    transaction: int
    flags: int
    crc: int


Metas = tuple[Meta, Meta]


def metas_of(descriptor: int) -> Metas:
    """Both meta pages, as they are, of a file that was checked when it was opened."""
    first = os.pread(descriptor, META_BYTES, 0)
    page_size = _meta(first).page_size if len(first) == META_BYTES else 0
    second = os.pread(descriptor, META_BYTES, page_size)
    if not page_size or len(second) < META_BYTES:
        raise StoreError(f"the meta pages are cut off; {REMEDY}")
    return _meta(first), _meta(second)


def newest(metas: Metas) -> Meta:
    """The one that counts."""
    return max(metas, key=lambda meta: meta.transaction)


def check_metas(path: Path) -> None:
    """Raise `StoreError` for a file of which LMDB should not see a byte."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(META_BYTES)
        if not _is_meta(head):
            raise StoreError(
                f"{path} is no page file, or it is damaged: its first bytes are not LMDB's; "
                f"{REMEDY}"
            )
        page_size = _meta(head).page_size
        if page_size not in _PAGE_SIZES:
            raise CorruptPage(f"{path} is damaged: its blocks have {page_size} bytes; {REMEDY}")
        file.seek(page_size)
        heads = (head, file.read(META_BYTES))
    _check_size(path, size, heads)
    pages = size // page_size
    problems = [f"meta page {n}: {p}" for n, h in enumerate(heads) for p in _problems(h, n, pages)]
    problems = problems or _disagreements(_meta(heads[0]), _meta(heads[1]))
    if problems:
        raise CorruptPage(f"{path} is damaged: {problems[0]}; {REMEDY}")


def _check_size(path: Path, size: int, heads: tuple[bytes, bytes]) -> None:
    whole = [_meta(head) for head in heads if _is_meta(head)]
    last = max(whole, key=lambda meta: meta.transaction)
    if size < (last.last_page + 1) * last.page_size:
        wanted = (last.last_page + 1) * last.page_size
        raise StoreError(f"{path} is truncated: {size} bytes of {wanted}; {REMEDY}")


def _is_meta(head: bytes) -> bool:
    return len(head) == META_BYTES and int.from_bytes(head[16:20], "little") == _MAGIC


def _meta(head: bytes) -> Meta:
    fields = _META.unpack(head)
    return Meta(
        page_size=fields[8], flags=fields[9], last_page=fields[24], transaction=fields[25],
        crc=crc32(head),
    )  # fmt: skip


def _problems(head: bytes, number: int, pages: int) -> list[str]:
    """What is wrong with a meta page by itself, in a file of so many pages: at most one thing.

    The older page may have roots beyond its last page: when LMDB can't write a meta page, it only
    puts the old numbers of the transaction and of the last page back.
    """
    if not _is_meta(head):
        return ["its first bytes are not LMDB's"]
    page, kind, low, high, _, version, address, map_size, *trees = _META.unpack(head)
    free, tree, transaction = trees[:8], trees[8:16], trees[17]
    page_size, free_flags = free[0], free[1]
    rules = {
        f"it says that it is page {page}": page == number,
        f"its kind is {kind}": (kind, low, high) == (_IS_META, 0, 0),
        f"it is of version {version}": (version, address) == (_VERSION, 0),
        f"a map of {map_size} bytes": map_size % page_size == 0 if page_size else False,
        f"flags {free_flags:#x} of the free pages": free_flags in _FREE_FLAGS,
        f"flags {tree[1]:#x} of the tree": (tree[0], tree[1]) == (0, 0),
        "the root of the free pages": _has_root(free, pages),
        "the root of the tree": _has_root(tree, pages),
        f"transaction {transaction}": transaction % 2 == number or transaction == 0,
    }
    return [f"{what} can't be" for what, is_kept in rules.items() if not is_kept][:1]


def _has_root(tree: list[int], pages: int) -> bool:
    _, _, depth, *_, entries, root = tree
    if root == _NOTHING:
        return depth == entries == 0
    return 2 <= root < pages and 1 <= depth <= _DEPTH_MAX and entries > 0


def _disagreements(first: Meta, second: Meta) -> list[str]:
    """What can't be of both pages together: each transaction follows the one before it."""
    if abs(first.transaction - second.transaction) != bool(first.transaction or second.transaction):
        return ["a transaction number is wrong"]
    if (first.page_size, first.flags) != (second.page_size, second.flags):
        return ["its meta pages don't agree"]
    low, high = sorted((first, second), key=lambda meta: meta.transaction)
    return ["a number of the last page is wrong"] if low.last_page > high.last_page else []
