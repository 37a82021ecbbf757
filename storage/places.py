"""Where LMDB keeps a value, so that the kernel can be asked for exactly that, all of it at once.

py-lmdb touches a value block by block before it shows it.  From a cold disk that makes a read of
4 KiB out of each block (36 MB/s); with the kernel's own reading ahead, a random tenth of the pages
cost 9 times their bytes.  Asked for as a whole, the bytes read are the bytes wanted, at 280 MB/s.

The place is found by walking LMDB's tree with plain reads.  It is a hint: a commit in between can
make it wrong, and nothing but the speed of a read depends on it.
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


def place_of(descriptor: int, key: bytes) -> Place | None:
    """Where the value of a key lies, if it has blocks of its own."""
    try:
        page_size, page = _root(descriptor)
        for _ in range(_DEPTH_MAX):
            data = os.pread(descriptor, page_size, page * page_size)
            flags, lower = _PAGE.unpack_from(data)
            nodes = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", data, _PAGE.size)
            at = nodes[_child(data, nodes, key, is_leaf=flags == _LEAF)]
            low, high, high_or_flags, key_size = _NODE.unpack_from(data, at)
            if flags == _LEAF:
                if _key(data, at) != key or high_or_flags != _BIG_VALUE:
                    return None
                (page,) = struct.unpack_from("<Q", data, at + _NODE.size + key_size)
                return Place(page * page_size + _PAGE.size, low | high << 16)
            page = low | high << 16 | high_or_flags << 32
    except (struct.error, IndexError, OSError, OverflowError):
        pass
    return None


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
