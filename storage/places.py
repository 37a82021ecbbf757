"""Where LMDB keeps a value, found by walking its tree with plain reads.

    meta pages ──▶ root ──▶ branch ──▶ leaf ──┬─▶ a small value, in the leaf
                                              └─▶ a large one, in blocks of its own

With the place of a value the kernel can be asked for exactly that, all of it at once.

py-lmdb touches a value block by block before it shows it.  From a cold disk that makes a read of
4 KiB out of each block (36 MB/s); with the kernel's own reading ahead, a random tenth of the pages
cost 9 times their bytes.  Asked for as a whole, the bytes read are the bytes wanted, at 280 MB/s.

That place is a hint: a commit in between can make it wrong, and nothing but the speed of a read
depends on it.  In a file that was checked and that nobody has open, values are read without LMDB.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from typing import NamedTuple

_META = struct.Struct("<40xI84xQQQ")
_PAGE = struct.Struct("<10xHH2x")
_NODE = struct.Struct("<HHHH")
_LEAF = 2
_BIG_VALUE = 1
_DEPTH_MAX = 32


class Place(NamedTuple):
    """The bytes of a value in the file."""

    start: int
    size: int


class _Leaf(NamedTuple):
    """A leaf's page, and where in it a key's node begins."""

    page_size: int
    data: bytes
    node: int


def place_of(descriptor: int, key: bytes) -> Place | None:
    """Where the value of a key lies, if it has blocks of its own."""
    try:
        leaf = _leaf_of(descriptor, key)
        return _blocks(leaf) if leaf else None
    except (struct.error, IndexError, OSError, OverflowError):
        return None


def value_of(descriptor: int, key: bytes) -> bytes | None:
    """The value of a key, None where there is none; in a file that was checked."""
    try:
        leaf = _leaf_of(descriptor, key)
    except (struct.error, IndexError, OverflowError):  # an empty tree, whose root is no page
        return None
    if leaf is None:
        return None
    place = _blocks(leaf)
    if place is not None:
        return os.pread(descriptor, place.size, place.start)
    low, high, _, key_size = _NODE.unpack_from(leaf.data, leaf.node)
    start = leaf.node + _NODE.size + key_size
    return leaf.data[start : start + (low | high << 16)]


def _leaf_of(descriptor: int, key: bytes) -> _Leaf | None:
    page_size, page = _root(descriptor)
    for _ in range(_DEPTH_MAX):
        data = os.pread(descriptor, page_size, page * page_size)
        flags, lower = _PAGE.unpack_from(data)
        nodes = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", data, _PAGE.size)
        at = nodes[_child(data, nodes, key, is_leaf=flags == _LEAF)]
        if flags == _LEAF:
            return _Leaf(page_size, data, at) if _key(data, at) == key else None
        low, middle, high, _ = _NODE.unpack_from(data, at)
        page = low | middle << 16 | high << 32
    return None


def _blocks(leaf: _Leaf) -> Place | None:
    """Where the node's value lies, if not in the leaf."""
    low, high, flags, key_size = _NODE.unpack_from(leaf.data, leaf.node)
    if flags != _BIG_VALUE:
        return None
    (page,) = struct.unpack_from("<Q", leaf.data, leaf.node + _NODE.size + key_size)
    return Place(page * leaf.page_size + _PAGE.size, low | high << 16)


def _child(data: bytes, nodes: tuple[int, ...], key: bytes, *, is_leaf: bool) -> int:
    """The last node whose key is at most `key`; a branch's first node has no key of its own."""
    found = bisect_right(nodes, key, key=lambda node: _key(data, node)) - 1
    return found if is_leaf else max(found, 0)


def _root(descriptor: int) -> tuple[int, int]:
    """The page size and the root of the newest state."""
    page_size, root, _, transaction = _META.unpack(os.pread(descriptor, _META.size, 0))
    _, other_root, _, later = _META.unpack(os.pread(descriptor, _META.size, page_size))
    return page_size, other_root if later > transaction else root


def _key(data: bytes, node: int) -> bytes:
    (size,) = struct.unpack_from("<H", data, node + 6)
    return data[node + _NODE.size : node + _NODE.size + size]
