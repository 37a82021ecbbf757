"""Where the bytes of an Arrow IPC file or stream are, read from its metadata alone.

    stream   message message … end          message   -1 │ length │ metadata │ body
    file     ARROW1 │ stream │ footer        metadata  rows, nodes, buffers (place and length in the
                                                      body), compression

pyarrow reads a message with its whole body; a batch of 400 MB would be held before anything could
be said about it.  The metadata are FlatBuffers, of which four tables matter here.  Nothing is
trusted: places outside of the file are errors where they are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MAGIC = b"ARROW1"
CODECS = {0: "lz4", 1: "zstd"}
SCHEMA, DICTIONARY, RECORDS = 1, 2, 3
FIRST_MESSAGE = 8
"""Where a file's first message begins."""
END_BYTES = 64
"""So many zeros may fill a stream up to the end of a line."""
METADATA_BYTES_MAX = 2**28

ReadAt = Callable[[int, int], bytes]


class Malformed(ValueError):
    """The metadata make no sense."""


class _Table:
    """A FlatBuffers table."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - self._at("<i", place)
        self._size = self._at("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        if len(data) < 4:
            raise Malformed("its metadata are too short")
        return cls(data, struct.unpack_from("<I", data)[0])

    def _at(self, form: str, place: int) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(form):
            raise Malformed("its metadata point outside of themselves")
        return int(struct.unpack_from(form, self._data, place)[0])

    def _slot(self, number: int) -> int:
        at = 4 + 2 * number
        return self._at("<H", self._fields + at) if at < self._size else 0

    def number(self, field: int, form: str, default: int = 0) -> int:
        slot = self._slot(field)
        return self._at(form, self._place + slot) if slot else default

    def table(self, field: int) -> _Table | None:
        slot = self._slot(field)
        if not slot:
            return None
        place = self._place + slot
        return _Table(self._data, place + self._at("<I", place))

    def structs(self, field: int, form: str) -> list[tuple[int, ...]]:
        """A vector of structs, or of numbers."""
        slot = self._slot(field)
        if not slot:
            return []
        place = self._place + slot
        place += self._at("<I", place)
        count, size = self._at("<I", place), struct.calcsize(form)
        if place + 4 + count * size > len(self._data):
            raise Malformed("its metadata point outside of themselves")
        return list(struct.iter_unpack(form, self._data[place + 4 : place + 4 + count * size]))


@dataclass(frozen=True, slots=True)
class Message:
    """One message: what it is, where it begins and its body lies."""

    kind: int
    place: int
    body: int
    body_bytes: int
    header: Any

    @property
    def end(self) -> int:
        return self.body + self.body_bytes


@dataclass(frozen=True, slots=True)
class Records:
    """A record batch that is still in its file."""

    message: Message
    rows: int
    nodes: list[tuple[int, ...]]
    buffers: list[tuple[int, ...]]
    codec: str | None
    view_buffers: list[int]

    @classmethod
    def of(cls, message: Message, table: Any) -> Records:
        """The batch that a table in a message describes."""
        compression = table.table(3)
        codec = None if compression is None else CODECS.get(compression.number(0, "<b"), "none")
        views = [count for (count,) in table.structs(4, "<q")]
        return cls(
            message, table.number(0, "<q"), table.structs(1, "<qq"), table.structs(2, "<qq"),
            codec, views,
        )  # fmt: skip


def records_of(message: Message) -> Records | None:
    """The batch of a message, be it rows or a dictionary."""
    if message.kind == DICTIONARY:
        table = message.header.table(1)
        return None if table is None else Records.of(message, table)
    return Records.of(message, message.header) if message.kind == RECORDS else None


def is_stream(read_at: ReadAt, size: int) -> bool:
    """Whether the messages come without a directory."""
    return read_at(0, min(size, len(MAGIC))) != MAGIC


def is_little_endian(read_at: ReadAt, size: int) -> bool:
    """Whether numbers are as this machine has them; what tells of the columns says it."""
    if is_stream(read_at, size):
        message = message_at(read_at, 0)
        columns = None if message is None else message.header
    else:
        columns = _directory(read_at, size)[0].table(1)
    return columns is not None and columns.number(0, "<h") == 0


def messages(read_at: ReadAt, size: int) -> Iterator[Message]:
    """The messages of a stream, or a file's dictionaries and batches, in order, without their
    bodies."""
    if not is_stream(read_at, size):
        yield from _listed(read_at, size)
        return
    place = 0
    while place + 4 <= size:
        message = message_at(read_at, place)
        if message is None:
            rest = size - place - 8
            if rest > END_BYTES or (rest > 0 and any(read_at(place + 8, rest))):
                raise Malformed(f"its end is said to be at byte {place}, and more follows")
            return
        if message.kind not in ((DICTIONARY, RECORDS) if place else (SCHEMA,)):
            raise Malformed(f"its message at byte {place} is of kind {message.kind}")
        yield _checked(message, size)
        place = message.end


def _listed(read_at: ReadAt, size: int) -> Iterator[Message]:
    """The dictionaries and batches of a file, by the directory at its end, which has to list all
    of them: they lie one behind the other."""
    footer, end = _directory(read_at, size)
    found = [(*block, DICTIONARY) for block in footer.structs(2, "<qi4xq")]
    found += [(*block, RECORDS) for block in footer.structs(3, "<qi4xq")]
    first = schema_message(read_at, size)
    place = first.end if first is not None else min(found)[0] if found else end
    for start, metadata_bytes, body_bytes, kind in sorted(found):
        if start != place:
            raise Malformed(f"its directory does not tell what is at byte {place}")
        message = _checked(message_at(read_at, place), end)
        told = (message.kind, message.body - place, message.body_bytes)
        if told != (kind, metadata_bytes, body_bytes):
            raise Malformed(f"its directory tells something else of byte {place} than is there")
        yield message
        place = message.end
    if end - place >= 8 and message_at(read_at, place) is not None:
        raise Malformed(f"its directory does not tell what is at byte {place}")


def _directory(read_at: ReadAt, size: int) -> tuple[_Table, int]:
    """What a file tells at its end, and where that begins."""
    if size < FIRST_MESSAGE + 10:
        raise Malformed("it is too short")
    (length,) = struct.unpack_from("<i", read_at(size - 10, 10))
    end = size - 10 - length
    if length <= 0 or end < FIRST_MESSAGE:
        raise Malformed(f"its directory has {length} bytes")
    return _Table.root(read_at(end, length)), end


def schema_message(read_at: ReadAt, size: int) -> Message | None:
    """The message with the columns at the beginning of a file; None where there is none: Polars
    writes something else there, which no reader needs, for the directory tells them too."""
    try:
        message = _checked(message_at(read_at, FIRST_MESSAGE), size)
    except (ValueError, OSError):
        return None
    return message if message.kind == SCHEMA else None


def _checked(message: Message | None, size: int) -> Message:
    if message is None or message.body_bytes < 0 or message.end > size:
        raise Malformed("a message ends behind the file")
    return message


def message_at(read_at: ReadAt, place: int) -> Message | None:
    """The message at a place, its prefix and metadata; None at the end of a stream."""
    start = place
    (length,) = struct.unpack("<i", read_at(place, 4))
    place += 4
    if length == -1:  # older writers do without
        (length,) = struct.unpack("<i", read_at(place, 4))
        place += 4
    if length == 0:
        return None
    if not 0 < length <= METADATA_BYTES_MAX:
        raise Malformed(f"its message at byte {start} has metadata of {length} bytes")
    table = _Table.root(read_at(place, length))
    kind, header = table.number(1, "<B"), table.table(2)
    if header is None:
        raise Malformed(f"its message at byte {start} is empty")
    return Message(kind, start, place + length, table.number(3, "<q"), header)
