"""Lanes: rows put down once, by lane, and taken back once, lane by lane.

    put(rows in order of their lanes)
        │
        ▼   a piece for each lane, a page for as many pieces as it holds
    │ lane 0 │ lane 1 │ lane 2 ┊ │ lane 3 │ lane 4 │ …  ──▶ pool ──late──▶ page file
        ▲
    taken(lane): its piece of every page, and nothing else is read

Rows of a lane are in no order.  What a window offers (order, expiry, steps) is left out: a lane is
for whoever divides rows that do not fit into lots that do.  Lanes are many and what is put down at
once is little, so pieces are small (10 KB for 1M rows in a tenth of their memory): a page of its
own for each took 100 us, a piece takes 33 (window join of two streams, put down and taken back).

A page is its pieces, one after the other, each an Arrow message, and as long as they are: nothing
is rewritten, so nothing can fragment.  Where a piece lies and its checksum are known here alone:
lanes are scratch, and end with whoever made them.

Invariant: a page is there as long as a piece of it has not been taken.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from zlib import crc32

import numpy as np
import pyarrow as pa

from .layout import PageId, Piece
from .pagefile import record_bytes
from .pool import BufferPool

PIECES_AT_ONCE = 64


@dataclass(slots=True)
class Lane:
    """What is known of a lane without reading it."""

    rows: int = 0
    size: int = 0
    piece_bytes_max: int = 0
    """The largest piece, as a message."""
    message_bytes: int = 0
    """The rows as messages, whose heads are the larger part where columns are many."""
    _places: array[int] = field(default_factory=lambda: array("Q"))
    """Page, start, size and checksum of each piece: 32 bytes, where a `Piece` is a tuple of
    Python's numbers.  Much data in little memory has very many of them."""

    def add(self, page: int, start: int, body: pa.Buffer) -> None:
        """Note a piece."""
        self._places.extend((page, start, body.size, crc32(body)))
        self.message_bytes += body.size
        self.piece_bytes_max = max(self.piece_bytes_max, body.size)

    def pieces(self, window: int) -> list[Piece]:
        """All pieces, in the order in which they came."""
        four = (self._places[at::4] for at in range(4))
        return [Piece(PageId(window, page), *rest) for page, *rest in zip(*four, strict=True)]


class Lanes:
    """Rows of one schema, by lane.  Made by `Store.lanes`."""

    def __init__(self, pool: BufferPool, window: int, name: str, schema: pa.Schema) -> None:
        self._pool = pool
        self._window = window
        self.schema = schema
        self._row_bits = _row_bits(schema)
        self._next_page = 0
        self._lanes: dict[int, Lane] = {}
        self._left = Counter[PageId]()
        """Pieces of each page that have not been taken."""
        self._leaving = Lock()
        pool.register(window, name, schema)
        pool.file.loosen(window)

    def lane(self, number: int) -> Lane:
        """What a lane holds."""
        return self._lanes.get(number) or Lane()

    def put(self, rows: pa.RecordBatch, edges: Sequence[int]) -> None:
        """Put rows down at the ends of their lanes: lane n has those from edges[n] to edges[n+1].

        While a page is made there are two copies of it, so pages are no larger than others'.
        """
        self._put(
            (number, rows.slice(edges[number], edges[number + 1] - edges[number]))
            for number in np.flatnonzero(np.diff(edges)).tolist()
        )

    def add(self, number: int, pieces: Iterable[pa.RecordBatch]) -> None:
        """Put pieces down at the end of one lane, in their order."""
        self._put((number, piece) for piece in pieces)

    def add_bytes(self, number: int, bodies: Iterable[pa.Buffer]) -> list[Piece]:
        """Put plain bytes down in a lane of their own, each no larger than a page; where they are.

        Whoever knows what they mean takes them back by their places, with `take_bytes`.
        """
        page = _Page(room := record_bytes(self._pool.file.page_size))
        for body in bodies:
            if not page.has_room(body.size):
                self._write(page)
                page = _Page(room)
            page.add(number, body)
            self._lanes.setdefault(number, Lane())
        self._write(page)
        return self._lanes.pop(number, Lane()).pieces(self._window)

    def take_bytes(self, pieces: Sequence[Piece]) -> list[pa.Buffer]:
        """Bytes that were put down, all in one call; they are gone here, and what is handed over is
        one piece of memory as long as one of them is held."""
        found = self._pool.copied(pieces)
        self._let_go(pieces, "taken")
        return found

    def _put(self, given: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        page = _Page(room := record_bytes(self._pool.file.page_size))
        for number, rows in given:
            for piece in self._small(rows):
                body = piece.serialize()
                if not page.has_room(body.size):
                    self._write(page)
                    page = _Page(room)
                page.add(number, body)
                lane = self._lanes.setdefault(number, Lane())
                lane.rows += piece.num_rows
                lane.size += self._bytes_of(piece)
        self._write(page)

    def _bytes_of(self, rows: pa.RecordBatch) -> int:
        # Asking Arrow takes three times as long as to make a message of the rows.
        return -(-self._row_bits * rows.num_rows // 8) if self._row_bits else int(rows.nbytes)

    def _small(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows in pieces that are no larger than a page."""
        if rows.num_rows > 1 and self._bytes_of(rows) > self._pool.file.page_size:
            half = rows.num_rows // 2
            yield from self._small(rows.slice(0, half))
            yield from self._small(rows.slice(half))
        else:
            yield rows

    def _write(self, page: _Page) -> None:
        if not page.bodies:
            return
        page_id = PageId(self._window, self._next_page)
        self._next_page += 1
        why = f"parts {page.numbers[0]} to {page.numbers[-1]}" if self._pool.is_traced else ""
        self._pool.put(page_id, page.data(), why)
        self._left[page_id] = len(page.bodies)
        start = 0
        for number, body in zip(page.numbers, page.bodies, strict=True):
            self._lanes[number].add(page_id.page, start, body)
            start += body.size

    def peeked(self, number: int, pieces: int) -> Iterator[pa.RecordBatch]:
        """Some pieces of a lane, evenly spaced; they stay."""
        held = self.lane(number).pieces(self._window)
        for piece in held[:: max(1, len(held) // pieces)]:
            yield from map(self._rows, self._pool.copied([piece]))

    def taken(self, number: int, at_once: int = PIECES_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """The rows of a lane, a piece at a time; they are gone here.

        Whoever takes them has reserved room for them, for `at_once` pieces at least: the pool does
        not count them any more.
        """
        pieces = self._lanes.pop(number, Lane()).pieces(self._window)
        for first in range(0, len(pieces), at_once):
            some = pieces[first : first + at_once]
            found = self._pool.copied(some)
            self._let_go(some, f"part {number}")
            yield from map(self._rows, found)

    def read(self, number: int, at_once: int = 1) -> Iterator[pa.RecordBatch]:
        """The same, and they stay."""
        pieces = self.lane(number).pieces(self._window)
        for first in range(0, len(pieces), at_once):
            some = pieces[first : first + at_once]
            found = self._pool.copied(some)
            self._pool.looked_at(dict.fromkeys(piece.page_id for piece in some), f"part {number}")
            yield from map(self._rows, found)

    def drop(self, number: int) -> None:
        """Give up a lane unread."""
        self._dropped(self._lanes.pop(number, Lane()).pieces(self._window))

    def _rows(self, body: pa.Buffer) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(body, self.schema)

    def _let_go(self, pieces: Sequence[Piece], why: str) -> None:
        """Pieces that have been read; their page goes with the last, on whatever thread that is."""
        self._pool.finish(self._done_with(pieces), why)

    def _dropped(self, pieces: Sequence[Piece]) -> None:
        self._pool.drop(self._done_with(pieces), "dropped")

    def _done_with(self, pieces: Sequence[Piece]) -> list[PageId]:
        """The pages of which nothing is left without these pieces."""
        done = []
        with self._leaving:
            for piece in pieces:
                self._left[piece.page_id] -= 1
                if self._left[piece.page_id] == 0:
                    done.append(piece.page_id)
                    del self._left[piece.page_id]
        return done

    def close(self) -> None:
        """Give up all lanes."""
        self._pool.drop(list(self._left), "closed")
        self._left.clear()
        self._lanes.clear()
        self._pool.unregister(self._window)


class _Page:
    """A page while it is made."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.numbers: list[int] = []
        self.bodies: list[pa.Buffer] = []

    def has_room(self, size: int) -> bool:
        """Whether so much more fits; one piece always does."""
        return not self.bodies or size <= self._room

    def add(self, number: int, body: pa.Buffer) -> None:
        """Take a piece of a lane."""
        self.numbers.append(number)
        self.bodies.append(body)
        self._room -= body.size

    def data(self) -> pa.Buffer:
        """The bytes of all pieces."""
        if len(self.bodies) == 1:
            return self.bodies[0]
        page = pa.allocate_buffer(sum(body.size for body in self.bodies))
        with pa.FixedSizeBufferWriter(page) as writer:
            for body in self.bodies:
                writer.write(body)
        return page


def _row_bits(schema: pa.Schema) -> int | None:
    """What a row takes where all take the same, with a bit for null in each column."""
    try:
        return sum(int(field.type.bit_width) + 1 for field in schema)
    except ValueError:
        return None
