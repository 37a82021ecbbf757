"""Page bytes: the twin of ``docs/FORMAT.md``.

A page is a header, a fence, a directory of cells and one Arrow record batch:

    0 ┌──────────────────────────────┐
      │ header, 64 bytes             │  magic, checksum, identity, counts, order range
   64 ├──────────────────────────────┤
      │ fence, 16 × coordinates      │  first and last cell
      ├──────────────────────────────┤
      │ directory, 2 × entries       │  rows in each cell
      ├──────────────────────────────┤  aligned to 64
      │ Arrow record batch message   │  buffers are used in place
 used └──────────────────────────────┘

Invariants: the checksum covers everything behind itself; rows are in ε-Grid-Order, and the order
attribute ascends within a cell; a page says which window and which number it is, so that a page
found in another's place is noticed.

The directory counts rows in 16 bits because sparse cells are common: with one row a cell it costs
2 bytes a row, where a start and the coordinates would cost as much as the row itself.  A cell of
more than 65,535 rows takes several entries.  Coordinates follow from the first row of a cell.

Left out: compression (a kernel could not use the buffers in place) and the schema (it is the
same for every page of a window and is kept once).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .checksum import crc32
from .columns import Int64s
from .encodings import is_plain
from .errors import CorruptPage, InputError
from .names import listed, repeated
from .ordering import group_starts, is_sorted

MAGIC = b"MATWINPG"
VERSION = 2
CHECKSUM_FROM = 12
ALIGNMENT = 64
ROWS_PER_ENTRY = 2**16 - 1
PARTS_MAX = 2**16
# What Arrow raises for bytes that are no message of its own; all of it means the same.
NOT_ARROW = (
    pa.ArrowException, OSError, EOFError, MemoryError, ValueError, TypeError, LookupError,
    OverflowError, SystemError,
)  # fmt: skip
HEADER = struct.Struct("<8sIHHQIIIIIIqq")
assert HEADER.size == 64

Buffer: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


class PageId(NamedTuple):
    """A page's name: its window's number and its own."""

    window: int
    page: int


@dataclass(frozen=True, slots=True)
class Fence:
    """What is known of a page without reading it: its first and last cell and its order range."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    order_min: int
    order_max: int


@dataclass(frozen=True)
class Page:
    """A decoded page; `batch` shares the page's memory."""

    page_id: PageId
    rows: int
    fence: Fence
    directory: npt.NDArray[np.uint16]
    batch: pa.RecordBatch

    @cached_property
    def starts(self) -> Int64s:
        """The row at which each cell begins."""
        return np.concatenate(([0], np.cumsum(self.directory[:-1], dtype=np.int64)))


def schema_mark(schema: pa.Schema) -> int:
    """A checksum of a schema, so that a page is never read with another one's columns."""
    return crc32("\n".join(f"{field.name}: {field.type}" for field in schema).encode())


def fence_of(keys: Sequence[Int64s]) -> Fence:
    """The fence of sorted rows, from their sort keys: the cells, and the order key last."""
    *cells, order = keys
    return Fence(
        tuple(int(c[0]) for c in cells),
        tuple(int(c[-1]) for c in cells),
        int(order.min()),
        int(order.max()),
    )


def encode_page(
    page_id: PageId, batch: pa.RecordBatch, keys: Sequence[Int64s], mark: int
) -> tuple[pa.Buffer, Fence]:
    """The bytes of a page and its fence, from sorted rows and their sort keys."""
    fence = fence_of(keys)
    return _encoded(page_id, batch, fence, _directory(keys[:-1], batch.num_rows), mark), fence


def _encoded(
    page_id: PageId, batch: pa.RecordBatch, fence: Fence, directory: npt.NDArray[np.uint16],
    mark: int,
) -> pa.Buffer:  # fmt: skip
    body = batch.serialize()
    start = _body_start(len(fence.first), len(directory))
    page = pa.allocate_buffer(start + body.size)
    view = np.frombuffer(page, np.uint8)
    coordinates = np.array([*fence.first, *fence.last], "<i8").view(np.uint8)
    directory_at = HEADER.size + len(coordinates)
    view[HEADER.size : directory_at] = coordinates
    view[directory_at : directory_at + 2 * len(directory)] = directory.view(np.uint8)
    view[directory_at + 2 * len(directory) : start] = 0
    view[start:] = np.frombuffer(body, np.uint8)
    fields = (
        VERSION, len(fence.first), page_id.page, page_id.window, mark, batch.num_rows,
        len(directory), start, page.size, fence.order_min, fence.order_max,
    )  # fmt: skip
    HEADER.pack_into(page, 0, MAGIC, 0, *fields)
    seal(page)
    return page


def seal(page: pa.Buffer) -> None:
    """Put the checksum of what follows it into the page's header."""
    struct.pack_into("<I", page, 8, crc32(memoryview(page)[CHECKSUM_FROM:]))


def _directory(cells: Sequence[Int64s], rows: int) -> npt.NDArray[np.uint16]:
    starts = group_starts(cells)
    counts = np.diff(starts, append=rows)
    if counts.max() > ROWS_PER_ENTRY:
        pieces = [_pieces(int(count)) for count in counts]
        counts = np.concatenate(pieces)
    return counts.astype("<u2")


def _pieces(count: int) -> Int64s:
    whole, rest = divmod(count, ROWS_PER_ENTRY)
    return np.array([ROWS_PER_ENTRY] * whole + ([rest] if rest else []), np.int64)


def _body_start(coordinates: int, entries: int) -> int:
    end = HEADER.size + 16 * coordinates + 2 * entries
    return -(-end // ALIGNMENT) * ALIGNMENT


def used_bytes(head: Buffer, page_id: PageId, where: str) -> int:
    """How many bytes the page takes, from its first 64; they are not trusted further than that."""
    if len(head) < HEADER.size:
        raise CorruptPage(f"{where}: {_name(page_id)} is cut off after {len(head)} bytes")
    magic, _, version, *rest = HEADER.unpack_from(head, 0)
    if magic != MAGIC:
        raise CorruptPage(f"{where}: {_name(page_id)} does not begin like a page; {_REMEDY}")
    if version != VERSION:
        raise CorruptPage(
            f"{where}: {_name(page_id)} has format version {version}, this is version {VERSION}; "
            "read it with the release that wrote it"
        )
    used: int = rest[7]
    return used


def check_page(page: Buffer, page_id: PageId, where: str) -> None:
    """Raise `CorruptPage` unless the bytes are exactly those written under this name."""
    used = used_bytes(page, page_id, where)
    if used != len(page):
        raise CorruptPage(f"{where}: {_name(page_id)} is {len(page)} bytes, not {used}; {_REMEDY}")
    _, checksum, _, _, number, window, *_ = HEADER.unpack_from(page, 0)
    if crc32(memoryview(page)[CHECKSUM_FROM:]) != checksum:
        raise CorruptPage(f"{where}: the checksum of {_name(page_id)} is wrong; {_REMEDY}")
    if (window, number) != page_id:
        raise CorruptPage(
            f"{where}: {_name(page_id)} holds {_name(PageId(window, number))}; {_REMEDY}"
        )


class Piece(NamedTuple):
    """Some bytes of a loose page, which have a checksum of their own: they are read alone."""

    page_id: PageId
    start: int
    size: int
    checksum: int


def check_piece(data: Buffer, piece: Piece, where: str) -> None:
    """Raise `CorruptPage` unless the bytes are those that were written."""
    if len(data) != piece.size or crc32(memoryview(data)) != piece.checksum:
        raise CorruptPage(
            f"{where}: the checksum of {_name(piece.page_id)} is wrong in the {piece.size} bytes "
            f"from {piece.start} on; {_REMEDY}"
        )


_REMEDY = "the file is damaged: restore it, or delete it and run again from the source"


def _name(page_id: PageId) -> str:
    return f"page {page_id.page} of window {page_id.window}"


def decode_page(page: pa.Buffer, schema: pa.Schema, mark: int) -> Page:
    """A checked page as columns; no column is copied."""
    _, _, _, width, number, window, found, rows, entries, start, used, low, high = (
        HEADER.unpack_from(page, 0)
    )
    page_id = PageId(window, number)
    if found != mark:
        raise CorruptPage(f"{_name(page_id)} has other columns than its window; {_REMEDY}")
    if used != page.size or start != _body_start(width, entries) or start > used:
        raise _malformed(page_id, "its parts don't fit together")
    view = np.frombuffer(page, np.uint8)
    directory_at = HEADER.size + 16 * width
    cells = view[HEADER.size : directory_at].view("<i8").tolist()
    directory = view[directory_at : directory_at + 2 * entries].view("<u2")
    try:
        batch = pa.ipc.read_record_batch(page.slice(start, used - start), schema)
    except NOT_ARROW as e:
        raise _malformed(page_id, str(e)) from e
    if batch.num_rows != rows or rows == 0:
        raise _malformed(page_id, f"{batch.num_rows} rows, not {rows}")
    fence = Fence(tuple(cells[:width]), tuple(cells[width:]), low, high)
    return Page(page_id, rows, fence, directory, batch)


def check_rows(
    page: Page, data: pa.Buffer, sort_keys: Callable[[pa.RecordBatch], Sequence[Int64s]]
) -> None:
    """Raise `CorruptPage` unless everything that the page says of its rows is true.

    A checksum tells that a page is as it was written, not that MatWin wrote it.  All that kernels
    rely on follows from the rows, so it is computed once more, once a page: 1 to 2 ms for 256 KiB.
    """
    try:
        page.batch.validate(full=True)
    except NOT_ARROW as e:
        raise _malformed(page.page_id, str(e)) from e
    for field, column in zip(page.batch.schema, page.batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise _malformed(page.page_id, f"nulls in {field.name!r}")
        if not all(map(partial(_is_inside, data), column.buffers())):
            raise _malformed(page.page_id, f"{field.name!r} is compressed")
    keys = sort_keys(page.batch)
    if not is_sorted(keys):
        raise _malformed(page.page_id, "rows out of order")
    is_fence = page.fence == fence_of(keys)
    if not is_fence or not np.array_equal(page.directory, _directory(keys[:-1], page.rows)):
        raise _malformed(page.page_id, "other rows than its fence and cells say")


def _is_inside(data: pa.Buffer, part: pa.Buffer | None) -> bool:
    if part is None or part.size == 0:
        return True
    return bool(data.address <= part.address <= data.address + data.size - part.size)


def _malformed(page_id: PageId, why: str) -> CorruptPage:
    return CorruptPage(f"{_name(page_id)} is malformed ({why}); {_REMEDY}")


def rows_that_fit(batch: pa.RecordBatch, keys: Sequence[Int64s], capacity: int, guess: int) -> int:
    """How many leading rows fill a page of `capacity` bytes as well as can be, at least one.

    `guess` is what fitted the page before.  Fixed-width rows are right at the first or second
    try; rows of varying length take a few more.
    """
    fits, too_many = 0, batch.num_rows + 1
    tries = max(1, min(guess, batch.num_rows))
    while too_many - fits > 1:
        size = page_bytes(batch.slice(0, tries), [k[:tries] for k in keys])
        if size <= capacity:
            fits = tries
            if capacity - size < capacity // 64:
                break
        else:
            too_many = tries
        tries = min(max(tries * capacity // max(size, 1), fits + 1), too_many - 1)
    return max(fits, 1)


def page_bytes(batch: pa.RecordBatch, keys: Sequence[Int64s]) -> int:
    """The bytes a page of these rows would take."""
    groups = len(group_starts(keys[:-1]))
    entries = groups + batch.num_rows // ROWS_PER_ENTRY
    return _body_start(len(keys) - 1, entries) + int(pa.ipc.get_record_batch_size(batch))


def check_names(schema: pa.Schema) -> None:
    """Raise `InputError` for columns that can't be told apart."""
    twice = repeated(schema.names)
    if twice:
        raise InputError(f"columns {listed(twice)} stand twice; rename them")


def check_storable(schema: pa.Schema) -> None:
    """Raise `InputError` for columns no page can hold."""
    for field in schema:
        if not is_plain(field.type):
            raise InputError(
                f"column {field.name!r} is {field.type}: encoded or view values inside another "
                "can't be kept; decode them first"
            )
