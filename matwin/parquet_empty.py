"""Data pages without values, hidden from Arrow.

    footer says 3 rows    page of 0 values │ page of 3 values        Arrow 26: 0 rows, no error
    a byte is changed     index page       │ page of 3 values        3 rows

Arrow takes a page without values for the end of a column chunk, if it comes where a batch begins.
Its own writer makes such pages: the columns of lists of row groups of one row get one each where
data pages are tiny.  Pages of other kinds it passes over, so the byte with the kind of the page is
given to it as that of an index page, which no writer writes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from .ipc_layout import ReadAt
from .parquet_pages import DATA_PAGE, DATA_PAGE_V2, Page

INDEX_PAGE = 1
_KIND_FIELD = 0x15
"""The first byte of a page header: field 1, a number."""


def empty_pages(read_at: ReadAt, pages: Iterator[Page]) -> Iterator[int]:
    """Where the kinds of data pages without values stand."""
    for page in pages:
        is_empty = page.values == 0 and page.kind in (DATA_PAGE, DATA_PAGE_V2)
        if is_empty and read_at(page.header, 2) == bytes([_KIND_FIELD, 2 * page.kind]):
            yield page.header + 1


def hidden(read_at: ReadAt, size: int, places: Sequence[int]) -> Any:
    """The file for Arrow, with index pages where data pages have no values."""
    return pa.PythonFile(io.BufferedReader(_Hidden(read_at, size, places), 2**16), "r")


class _Hidden(io.RawIOBase):
    """A file some bytes of which are others."""

    def __init__(self, read_at: ReadAt, size: int, places: Sequence[int]) -> None:
        self._read_at, self._size, self._places, self._at = read_at, size, places, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._at)
        data = self._read_at(self._at, count) if count > 0 else b""
        buffer[: len(data)] = data
        for place in self._places:
            if 0 <= place - self._at < len(data):
                buffer[place - self._at : place - self._at + 1] = bytes([2 * INDEX_PAGE])
        self._at += len(data)
        return len(data)
