"""The page file's memory twin: the same contract in dictionaries.

It shows the contract without LMDB, and serves where a test wants a page file that costs nothing.
It outlives `close`, as the real file does: what a new owner finds is what `completed` and
`page_ids` say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from .errors import CorruptPage
from .layout import PageId, Piece, check_page, check_piece
from .pagefile import check_page_size


class MemoryPageFile:
    """Pages in a dictionary."""

    def __init__(self, *, page_size: int) -> None:
        self.page_size = check_page_size(page_size)
        self.where = "memory"
        self.pages: dict[PageId, bytes] = {}
        self._fresh: set[PageId] = set()
        self._freed: list[PageId] = []
        self._complete: tuple[int, bytes] | None = None

    def write(self, pages: Sequence[tuple[PageId, pa.Buffer]]) -> None:
        """Keep a copy of each page."""
        self.pages.update((page_id, page.to_pybytes()) for page_id, page in pages)
        self._fresh.update(page_id for page_id, _ in pages)

    def loosen(self, window: int) -> None:
        """Nothing: every page is kept as it is."""

    def stored_bytes(self, page_id: PageId, size: int) -> int:
        """What a page of so many bytes takes."""
        return size

    def read(self, page_id: PageId) -> pa.Buffer:
        """The page's bytes, checked, in memory of their own."""
        if page_id not in self.pages:
            raise CorruptPage(f"memory: page {page_id.page} of window {page_id.window} is missing")
        page = self.pages[page_id]
        check_page(page, page_id, self.where)
        return pa.py_buffer(bytearray(page))

    def read_pieces(self, pieces: Sequence[Piece]) -> list[pa.Buffer]:
        """Pieces of loose pages, checked, in memory of their own."""
        read = []
        for piece in pieces:
            page = self.pages.get(piece.page_id, b"")
            read.append(pa.py_buffer(bytearray(page[piece.start : piece.start + piece.size])))
            check_piece(read[-1], piece, self.where)
        return read

    def free(self, pages: Iterable[PageId]) -> None:
        """Give up pages: those of a complete step once the next one is complete."""
        for page_id in pages:
            if page_id in self._fresh:
                del self.pages[page_id]
                self._fresh.discard(page_id)
            else:
                self._freed.append(page_id)

    def complete(self, state: bytes) -> int:
        """Make everything since the last step one step."""
        self._complete = (self._complete[0] + 1 if self._complete else 1, state)
        for page_id in self._freed:
            del self.pages[page_id]
        self._freed.clear()
        self._fresh.clear()
        return self._complete[0]

    def completed(self) -> tuple[int, bytes] | None:
        """The last complete step's number and state."""
        return self._complete

    def recover(self, live: Iterable[PageId]) -> int:
        """Remove every page but these; returns how many were left over."""
        kept = set(live)
        left_over = [page_id for page_id in self.pages if page_id not in kept]
        for page_id in left_over:
            del self.pages[page_id]
        self._freed.clear()
        self._fresh.clear()
        return len(left_over)

    def page_ids(self) -> list[PageId]:
        """Every page in the file."""
        return sorted(self.pages)

    @property
    def file_bytes(self) -> int:
        """Bytes of all pages."""
        return sum(map(len, self.pages.values()))

    def close(self) -> None:
        """Nothing to close."""
