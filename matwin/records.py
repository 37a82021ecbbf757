r"""Records of CSV: where they end, as Arrow's parser sees it.

    bytes as they come ──cut──▶ whole records │ what has not ended waits

A record ends with a line break outside of quotes.  A quote opens a text only where a field begins,
so the one in ``5" disk`` is a character as any other; two of them inside quotes are one character.
All of that is found without a step for each byte: line breaks and quotes by searching, and a look
at each quote only where one stands in the middle of a field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 2**16

Bytes = bytes | bytearray


class Records:
    """Cuts the bytes of one text, given piece by piece."""

    def __init__(self, delimiter: str, quote: str | None = '"') -> None:
        self._quote = quote.encode() if quote else b""
        """None: every line break ends a record."""
        self._borders = np.zeros(256, np.bool_)
        """Which bytes may stand before a quote that opens; a quote, where it has just closed."""
        self._borders[[*(delimiter + "\n\r").encode(), *self._quote]] = True
        self._is_inside = False
        """Whether the next byte stands in quotes."""
        self._before = ord("\n")
        """The byte before it; 0 for a quote that opened and closed nothing."""
        self._is_begun = False

    def cut(self, data: Bytes, start: int = 0, stop: int | None = None) -> tuple[int, int]:
        """Behind the first and behind the last record that ends in these bytes; 0 for none.

        >>> Records(",").cut(b'a,"b\\nc"\\n5" disk\\nx,"y')
        (8, 16)
        """
        stop = len(data) if stop is None else stop
        flips, was_inside = self._flips(data, start, stop), self._is_inside
        self._is_inside ^= bool(len(flips) & 1)
        found = _outer(data, b"\n", start, stop, flips, was_inside)
        if not any(found):
            # In files of old Macs a line ends with \r alone; the last one may be half of \r\n.
            found = _outer(data, b"\r", start, stop - 1, flips, was_inside)
        return found

    def ends(self, data: bytes) -> Any:
        """Behind each record that ends in these bytes."""
        flips, was_inside = self._flips(data, 0, len(data)), self._is_inside
        self._is_inside ^= bool(len(flips) & 1)
        places = _places(np.frombuffer(data, np.uint8), ord("\n"), 0, len(data))
        return places[((np.searchsorted(flips, places) & 1) != 0) == was_inside] + 1

    def _flips(self, data: Bytes, start: int, stop: int) -> Any:
        """The quotes that begin and end texts, two of them for one that is doubled."""
        if not self._is_begun and start < stop:
            self._is_begun = True
            if data.startswith(BOM, start):
                start += len(BOM)
        if start == stop:
            return np.empty(0, np.int64)
        if not self._quote or data.find(self._quote, start, stop) < 0:
            self._before = data[stop - 1]
            return np.empty(0, np.int64)
        found = np.frombuffer(data, np.uint8)
        quote = self._quote[0]
        quotes = _places(found, quote, start, stop)
        opening = quotes[int(self._is_inside) :: 2]
        before = found[opening - 1]
        if len(opening) and opening[0] == start:
            before[0] = self._before
        # A quote behind the one that closes makes both of them one character.
        if not self._borders[before].all():
            quotes = self._one_by_one(data, start, quotes.tolist())
        is_flip = bool(len(quotes)) and quotes[-1] == stop - 1
        self._before = data[stop - 1] if is_flip or data[stop - 1] != quote else 0
        return quotes

    def _one_by_one(self, data: Bytes, start: int, quotes: list[int]) -> Any:
        """The same where a quote stands in the middle of a field."""
        flips = []
        quote = self._quote[0]
        is_inside = self._is_inside
        closed = start - 1 if self._before == quote else start - 2
        for place in quotes:
            before = data[place - 1] if place > start else self._before
            if is_inside:
                closed = place
            elif closed != place - 1 and (before == quote or not self._borders[before]):
                continue
            is_inside = not is_inside
            flips.append(place)
        return np.array(flips, np.int64)


def _places(found: Any, byte: int, start: int, stop: int) -> Any:
    """Where a byte stands; in pieces that stay in the processor's cache."""
    pieces = [
        np.flatnonzero(found[at : min(at + _PIECE_BYTES, stop)] == byte) + at
        for at in range(start, stop, _PIECE_BYTES)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _outer(
    data: Bytes, end: bytes, start: int, stop: int, flips: Any, was_inside: bool
) -> tuple[int, int]:
    """Behind the first and behind the last end that stands outside of quotes; 0 for none."""

    def flips_before(place: int) -> int | None:
        """How many there are, where the place is inside of quotes."""
        count = int(np.searchsorted(flips, place))
        return count if (count & 1) != was_inside else None

    stop = max(start, stop)
    first = data.find(end, start, stop)
    while first >= 0 and (count := flips_before(first)) is not None:
        first = data.find(end, int(flips[count]), stop) if count < len(flips) else -1
    last = data.rfind(end, first, stop) if first >= 0 else -1
    while last > first and (count := flips_before(last)) is not None:
        last = data.rfind(end, first, int(flips[count - 1]))
    return first + 1, last + 1


def blocks(
    text: Any, records: Records, block_bytes: int, check: Callable[[int], None]
) -> Iterator[memoryview]:
    """A text as its first record and then blocks of whole ones; a block is larger where a record
    is, of which `check` is told the bytes so far.

    A block is there until the next one is asked for: all of them come into one piece of memory, for
    new memory costs as much as finding the ends.
    """
    room = bytearray(block_bytes + min(block_bytes, _PIECE_BYTES))
    begin = stop = 0
    is_first = True
    while True:
        if begin:  # to the front, what has not ended
            memoryview(room)[: stop - begin] = memoryview(room)[begin:stop]
            begin, stop = 0, stop - begin
        if len(room) - stop < block_bytes:
            larger = bytearray(stop + max(stop // 2, block_bytes))
            larger[:stop] = memoryview(room)[:stop]
            room = larger
        count = text.readinto(memoryview(room)[stop : stop + block_bytes])
        if not count:
            break
        if is_first and not stop:
            # Empty lines before the first record are none.
            blank = count - len(bytes(room[:count]).removeprefix(BOM).lstrip(b"\r\n"))
            begin = stop = blank
            count -= blank
        first, last = records.cut(room, stop, stop + count)
        stop += count
        whole = memoryview(room)
        if is_first and first:
            yield whole[begin:first]
            begin, is_first = first, False
        if begin < last:
            yield whole[begin:last]
            begin = last
        check(stop - begin)
    if begin < stop:
        yield memoryview(room)[begin:stop]
