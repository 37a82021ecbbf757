"""The pages of a Parquet column chunk, by their headers alone.

    chunk   header │ dictionary page │ header │ data page │ header │ data page │ …

The footer says how large a chunk is, not its pages, and a page is decompressed whole; nor does it
say how long a dictionary's texts are, which decides how much a few bytes of numbers decode to.
Headers are Thrift, in its compact form: a struct is a list of (field, type, value).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .ipc_layout import ReadAt

HEADER_BYTES = 2**10
HEADER_BYTES_MAX = 2**24
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS = (2, 8)
_CODECS = {
    "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4_raw",
    "LZ4_RAW": "lz4_raw",
}  # fmt: skip
_VARINT_BITS = 64


@dataclass(frozen=True, slots=True)
class Page:
    """One page: where its bytes are, what they become, and how many values it has."""

    kind: int
    place: int
    size: int
    unpacked: int
    values: int
    encoding: int
    header: int
    """Where its header begins."""

    @property
    def is_coded(self) -> bool:
        """Whether it holds numbers of a dictionary's values."""
        return self.kind != DICTIONARY_PAGE and self.encoding in DICTIONARY_ENCODINGS


def pages(read_at: ReadAt, start: int, size: int) -> Iterator[Page]:
    """The pages of a chunk of `size` bytes."""
    place = start
    while place < start + size:
        header, length = _header(read_at, place, start + size - place)
        about = header.get(5) or header.get(7) or header.get(8) or {}
        if not isinstance(about, dict):
            raise _nonsense(place)
        packed, unpacked, kind = (_count(header, field, place) for field in (3, 2, 1))
        values, encoding = (_count(about, f, place) for f in (1, 4 if 8 in header else 2))
        header_at, place = place, place + length
        if packed < 0 or unpacked < 0 or place + packed > start + size:
            raise ValueError(f"its page at byte {place} ends behind its column")
        yield Page(kind, place, packed, unpacked, values, encoding, header_at)
        place += packed


def _count(fields: dict[int, Any], field: int, place: int) -> int:
    """A number of a header; a damaged one may have something else there."""
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise _nonsense(place)
    return value


def _nonsense(place: int) -> ValueError:
    return ValueError(f"its page header at byte {place} makes no sense")


def _header(read_at: ReadAt, place: int, left: int) -> tuple[dict[int, Any], int]:
    size = HEADER_BYTES
    while True:
        data = read_at(place, min(size, left))
        try:
            return _Thrift(data).header()
        except IndexError:
            if size >= min(left, HEADER_BYTES_MAX):
                raise _nonsense(place) from None
            size *= 16


class _Thrift:
    """A reader of the compact protocol; an `IndexError` where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def header(self) -> tuple[dict[int, Any], int]:
        """The struct, and how many bytes it took."""
        return self._struct(0), self._at

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > _VARINT_BITS:  # megabytes of such bytes would be a number that never ends
                raise IndexError

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > 8:
            raise IndexError
        found: dict[int, Any] = {}
        field = 0
        while True:
            byte = self._byte()
            if byte == 0:
                return found
            field = field + (byte >> 4) if byte >> 4 else self._number()
            found[field] = self._value(byte & 15, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._number()
        if kind == 12:
            return self._struct(depth + 1)
        if kind in (3, 7, 8):  # a byte, a double, bytes: nothing that matters here
            skipped = self._varint() if kind == 8 else {3: 1, 7: 8}[kind]
            self._at += skipped
            return None
        raise IndexError  # lists and maps are not in page headers


def unpacked(read_at: ReadAt, page: Page, codec: str) -> bytes | None:
    """The bytes of a page; None where they can't be unpacked: of damage Arrow tells later."""
    data = read_at(page.place, page.size)
    if codec == "UNCOMPRESSED":
        return data
    try:
        if codec == "LZ4" and (whole := _of_hadoop(data, page.unpacked)) is not None:
            return whole
        found: bytes = pa.decompress(data, page.unpacked, _CODECS[codec], asbytes=True)
    except (KeyError, pa.ArrowException, OSError):
        return None
    return found


def _of_hadoop(data: bytes, size: int) -> bytes | None:
    """The bytes of LZ4 as Hadoop writes it, and Spark: blocks, each behind what it becomes and what
    it takes; None where it is the other LZ4, which has the same name."""
    found: list[bytes] = []
    at = left = 0
    while at + 8 <= len(data):
        whole, packed = (int.from_bytes(data[at + n : at + n + 4], "big") for n in (0, 4))
        at += 8 + packed
        left = size - sum(map(len, found)) - whole
        if at > len(data) or left < 0:
            return None
        found.append(pa.decompress(data[at - packed : at], whole, "lz4_raw", asbytes=True))
    return b"".join(found) if at == len(data) and left == 0 else None


def longest_text(read_at: ReadAt, page: Page, codec: str) -> int:
    """The bytes of the longest value of a dictionary of texts; at most its page's."""
    data = unpacked(read_at, page, codec)
    if data is None:
        return page.unpacked
    from .kernels.texts import longest

    return int(longest(np.frombuffer(data, np.uint8)))
