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

    def cut(self, data: bytes) -> tuple[int, int]:
        """Behind the first and behind the last record that ends in these bytes; 0 for none.

        >>> Records(",").cut(b'a,"b\\nc"\\n5" disk\\nx,"y')
        (8, 16)
        """
        flips, was_inside = self._flips(data), self._is_inside
        self._is_inside ^= bool(len(flips) & 1)
        found = _outer(data, b"\n", len(data), flips, was_inside)
        if not any(found):
            # In files of old Macs a line ends with \r alone; the last one may be half of \r\n.
            found = _outer(data, b"\r", len(data) - 1, flips, was_inside)
        return found

    def ends(self, data: bytes) -> Any:
        """Behind each record that ends in these bytes."""
        flips, was_inside = self._flips(data), self._is_inside
        self._is_inside ^= bool(len(flips) & 1)
        places = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        return places[((np.searchsorted(flips, places) & 1) != 0) == was_inside] + 1

    def _flips(self, data: bytes) -> Any:
        """The quotes that begin and end texts, two of them for one that is doubled."""
        if not self._is_begun and data:
            self._is_begun = True
            if data.startswith(BOM):
                return self._flips(data[len(BOM) :]) + len(BOM)
        if not self._quote or self._quote not in data:
            self._before = data[-1] if data else self._before
            return np.empty(0, np.int64)
        found = np.frombuffer(data, np.uint8)
        quote = self._quote[0]
        quotes = np.flatnonzero(found == quote)
        opening = quotes[int(self._is_inside) :: 2]
        before = found[opening - 1]
        if len(opening) and opening[0] == 0:
            before[0] = self._before
        # A quote behind the one that closes makes both of them one character.
        if not self._borders[before].all():
            quotes = self._one_by_one(data, quotes.tolist())
        is_flip = bool(len(quotes)) and quotes[-1] == len(data) - 1
        self._before = data[-1] if is_flip or data[-1] != quote else 0
        return quotes

    def _one_by_one(self, data: bytes, quotes: list[int]) -> Any:
        """The same where a quote stands in the middle of a field."""
        flips = []
        quote = self._quote[0]
        is_inside, closed = self._is_inside, -1 if self._before == quote else -2
        for place in quotes:
            before = data[place - 1] if place else self._before
            if is_inside:
                closed = place
            elif closed != place - 1 and (before == quote or not self._borders[before]):
                continue
            is_inside = not is_inside
            flips.append(place)
        return np.array(flips, np.int64)


def _outer(data: bytes, end: bytes, stop: int, flips: Any, was_inside: bool) -> tuple[int, int]:
    """Behind the first and behind the last end that stands outside of quotes; 0 for none."""

    def flips_before(place: int) -> int | None:
        """How many there are, where the place is inside of quotes."""
        count = int(np.searchsorted(flips, place))
        return count if (count & 1) != was_inside else None

    first = data.find(end, 0, max(stop, 0))
    while first >= 0 and (count := flips_before(first)) is not None:
        first = data.find(end, int(flips[count]), stop) if count < len(flips) else -1
    last = data.rfind(end, 0, stop) if first >= 0 else -1
    while last > first and (count := flips_before(last)) is not None:
        last = data.rfind(end, 0, int(flips[count - 1]))
    return first + 1, last + 1


def blocks(
    read: Callable[[int], bytes], records: Records, block_bytes: int, check: Callable[[int], None]
) -> Iterator[bytes]:
    """A text as its first record and then blocks of whole ones; a block is larger where a record
    is, of which `check` is told the bytes so far."""
    rest: list[bytes] = []
    rest_bytes, is_first = 0, True
    while data := read(block_bytes):
        if is_first and not rest_bytes:
            # Empty lines before the first record are none.
            data = data.removeprefix(BOM).lstrip(b"\r\n")
        first, last = records.cut(data)
        if is_first and first:
            yield b"".join([*rest, data[:first]])
            rest, rest_bytes, is_first = [], 0, False
        else:
            first = 0
        if first < last:
            yield b"".join([*rest, memoryview(data)[first:last]])
            rest, rest_bytes = [], 0
        rest.append(data[last:])
        rest_bytes += len(data) - last
        check(rest_bytes)
    if rest_bytes:
        yield b"".join(rest)
