"""What a Parquet column's first data page shows of nulls, compared with what the footer says.

    REQUIRED   values                             the schema says which of the two it is, and
    OPTIONAL   length │ levels, in runs │ values   nothing else of a footer says so again

Arrow takes the levels of a column that is told to be required for its values, and none of them is
right.  A page is refused where it makes no sense as it is told to be, and does the other way: what
neither way explains is left to Arrow.  How many bytes plain numbers take says it without the page.

Left out: columns with more levels than one, and pages of version 2, whose headers say where the
values begin.
"""

from __future__ import annotations

from collections.abc import Iterator

from .ipc_layout import ReadAt
from .parquet_pages import DATA_PAGE, DICTIONARY_ENCODINGS, DICTIONARY_PAGE, Page, unpacked

PLAIN, RLE, SPLIT = 0, 3, 9
DELTAS = (5, 6, 7)
"""Numbers by their differences; the lengths of texts are such numbers."""
LENGTH_BYTES = 4
RUNS = 64
"""So many runs that make sense are levels; before a file is refused all are looked at."""
DELTA_BLOCK = 128
WIDTH_MAX = 32


def contradicts(
    read_at: ReadAt, pages: Iterator[Page], codec: str, width: int, has_levels: bool, bytes_max: int
) -> bool:
    """Whether a column is required although the schema says that it isn't, or the reverse.

    `pages` are those of one row group, of values of `width` bits (0: they differ).  A page that
    takes more than `bytes_max` is not looked at.
    """
    full = (page for page in pages if page.values > 0)
    page = next((page for page in full if page.kind != DICTIONARY_PAGE), None)
    if page is None or page.kind != DATA_PAGE or page.unpacked > bytes_max:
        return False
    is_fixed = width > 0 and page.encoding in (PLAIN, SPLIT)
    if is_fixed and (page.unpacked == _bytes(page.values, width)) != has_levels:
        return False  # as long as it should be, or too long or short for a required one
    data = unpacked(read_at, page, codec)
    if data is None or _begins_with_levels(data, page.values, RUNS) == has_levels:
        return False
    if not has_levels and not _begins_with_levels(data, page.values):
        return False
    return _are_values(data, page, width) == has_levels


def _bytes(values: int, width: int) -> int:
    return (values * width + 7) // 8


def _begins_with_levels(data: bytes, values: int, runs_max: int | None = None) -> bool:
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    if length == 0 or end > len(data):
        return False
    return _are_runs(data[:end], LENGTH_BYTES, 1, values, runs_max)


def _are_runs(data: bytes, at: int, width: int, values: int, runs_max: int | None = None) -> bool:
    """Whether the bytes from `at` to the end are runs of so many numbers of `width` bits, and
    nothing else; the last run may be longer, to a multiple of eight or more."""
    if width == 0:
        return len(data) - at <= LENGTH_BYTES + 1  # a run without a byte for its value, or nothing
    while values > 0:
        head, at = _varint(data, at)
        count = head >> 1
        if head < 0 or count == 0:
            return False
        if head & 1:
            values -= 8 * count
            at = min(at + width * count, max(len(data), at + _bytes(values + 8 * count, width)))
        else:
            values -= count
            value = int.from_bytes(data[at : at + (width + 7) // 8], "little")
            at += (width + 7) // 8
            if value >> width:
                return False
        if at > len(data):
            return False
        if runs_max is not None:
            runs_max -= 1
            if runs_max == 0:
                return True
    return at == len(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 32 bits and the place behind it; -1 where there is none."""
    value = 0
    for place in range(at, min(at + 5, len(data))):
        value |= (data[place] & 127) << 7 * (place - at)
        if data[place] < 128:
            return value, place + 1
    return -1, at


def _are_values(data: bytes, page: Page, width: int) -> bool:
    """Whether a page has its values and nothing before them; False where nobody can tell."""
    if page.encoding in (PLAIN, SPLIT):
        return len(data) == _bytes(page.values, width) if width else _are_texts(data, page.values)
    if page.encoding in DICTIONARY_ENCODINGS:
        return bool(data) and data[0] <= WIDTH_MAX and _are_runs(data, 1, data[0], page.values)
    if page.encoding in DELTAS:
        block, at = _varint(data, 0)
        _, at = _varint(data, at)
        return block > 0 and block % DELTA_BLOCK == 0 and _varint(data, at)[0] == page.values
    if page.encoding == RLE:  # of truths: levels themselves, and nothing behind them
        length = int.from_bytes(data[:LENGTH_BYTES], "little")
        return LENGTH_BYTES + length == len(data) and _begins_with_levels(data, page.values)
    return False


def _are_texts(data: bytes, values: int) -> bool:
    """Whether these are so many texts, each behind its length."""
    at = 0
    for _ in range(values):
        at += LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
        if at > len(data):
            return False
    return at == len(data)
