"""Batches of an Arrow IPC file in portions, however large they were written.

    metadata ─▶ batch small?  ─▶ read and decoded by Arrow
                batch large?  ─▶ its columns' buffers, compressed ones put down unpacked
                                 ─▶ rows a … b of every buffer ─▶ portion, portion, …

A buffer's rows are found by arithmetic (numbers), by two offsets (texts, lists) or by the views
themselves, so that a batch of any size takes a portion of memory.  A compressed buffer is unpacked
in pieces into a file without a name.  Files are read, never mapped: one that is cut meanwhile would
kill the process.

Left out: dictionaries, unions and runs in batches that are too large.  They are refused by size.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from matwin.storage.columns import Int64s

from .ipc_check import buffer_count, check, check_places
from .ipc_layout import (
    RECORDS,
    SCHEMA,
    Malformed,
    Message,
    ReadAt,
    Records,
    is_stream,
    messages,
    records_of,
    schema_message,
)
from .reading import ROWS_PER_BATCH
from .shares import ReadShare
from .sizes import BINARIES
from .spill import Spill

UNPACK_BYTES = 2**18
VIEW_BYTES = 16
LENGTH_MAX = 2**46
SHORT_VIEW = 12
VIEW_BITS = 32
"""A view's place and length have 31 bits each: their sum is never taken for a place in the next
buffer."""

_types = pa.types


def can_be_cut(data_type: pa.DataType) -> bool:
    """Whether rows of this type can be read without those before them."""
    if isinstance(data_type, pa.BaseExtensionType):
        return can_be_cut(data_type.storage_type)
    if _types.is_null(data_type) or _is_text(data_type) or _is_view(data_type):
        return True
    if _is_list(data_type) or _types.is_fixed_size_list(data_type):
        return can_be_cut(data_type.value_type) if not _types.is_map(data_type) else _all(data_type)
    if _types.is_struct(data_type):
        return _all(data_type)
    tests = (_types.is_primitive, _types.is_decimal, _types.is_fixed_size_binary)
    return any(test(data_type) for test in tests)


def _all(data_type: pa.DataType) -> bool:
    return all(can_be_cut(child.type) for child in _children(data_type))


def _children(data_type: pa.DataType) -> list[pa.Field]:
    if _types.is_map(data_type):
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return [pa.field("entries", entries, nullable=False)]
    if _is_list(data_type) or _types.is_fixed_size_list(data_type):
        return [data_type.value_field]
    if _types.is_struct(data_type):
        return [data_type.field(i) for i in range(data_type.num_fields)]
    return []


def _is_text(data_type: pa.DataType) -> bool:
    return any(test(data_type) for test in BINARIES)


def _is_large(data_type: pa.DataType) -> bool:
    return bool(_types.is_large_string(data_type) or _types.is_large_binary(data_type))


def _is_view(data_type: pa.DataType) -> bool:
    return bool(_types.is_string_view(data_type) or _types.is_binary_view(data_type))


def _is_list(data_type: pa.DataType) -> bool:
    tests = (_types.is_list, _types.is_large_list, _types.is_map)
    return any(test(data_type) for test in tests)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Stretch:
    """A buffer in a file: its place and length there."""

    read_at: ReadAt
    place: int
    size: int

    def bytes(self, start: int, count: int) -> bytes:
        """Some bytes of it; fewer where it ends, which Arrow's validation finds."""
        count = min(count, self.size - start)
        return self.read_at(self.place + start, count) if count > 0 else b""

    def numbers(self, dtype: Any, first: int, count: int) -> np.ndarray[Any, Any]:
        """Some of its numbers."""
        width = np.dtype(dtype).itemsize
        found = np.frombuffer(self.bytes(first * width, count * width), dtype)
        if len(found) < count:
            raise Malformed("a buffer is shorter than its rows")
        return found


class Body:
    """The buffers of one batch, unpacked where they are compressed."""

    def __init__(self, read_at: ReadAt, records: Records, spill: Spill) -> None:
        self._read_at, self._records, self._spill = read_at, records, spill

    def stretch(self, number: int) -> Stretch:
        """A buffer, ready to be read anywhere."""
        place, size = self._records.buffers[number]
        start = self._records.message.body + place
        if not 0 <= place <= place + size <= self._records.message.body_bytes:
            raise Malformed("a buffer lies outside of its batch")
        if self._records.codec is None or size == 0:
            return Stretch(self._read_at, start, size)
        length = self._length(start)
        if length == -1:  # not worth compressing
            return Stretch(self._read_at, start + 8, size - 8)
        return self._unpacked(start + 8, size - 8, length)

    def _length(self, start: int) -> int:
        length = int(struct.unpack("<q", self._read_at(start, 8))[0])
        if not -1 <= length < LENGTH_MAX:
            raise Malformed(f"a compressed buffer claims {length} bytes")
        return length

    def _unpacked(self, start: int, size: int, length: int) -> Stretch:
        place = self._spill.size
        packed = io.BufferedReader(_Window(self._read_at, start, size), UNPACK_BYTES)
        with pa.CompressedInputStream(pa.PythonFile(packed, "r"), self._records.codec) as stream:
            while self._spill.size - place < length:
                piece = stream.read(min(UNPACK_BYTES, length - (self._spill.size - place)))
                if not piece:
                    raise Malformed("a compressed buffer ends too early")
                self._spill.write(piece)
        return Stretch(self._spill.read_at, place, length)

    def unpacked_bytes(self) -> int:
        """What all buffers take."""
        body = self._records.message.body
        if self._records.codec is None:
            return sum(size for _, size in self._records.buffers)
        return sum(
            max(self._length(body + place), size) if size >= 8 else size
            for place, size in self._records.buffers
            if 0 <= place <= place + size <= self._records.message.body_bytes
        )


class _Window(io.RawIOBase):
    """A part of a file, from its beginning."""

    def __init__(self, read_at: ReadAt, place: int, size: int) -> None:
        self._read_at, self._place, self._left = read_at, place, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._left)
        buffer[:count] = self._read_at(self._place, count)
        self._place, self._left = self._place + count, self._left - count
        return count


# ── columns ──────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Column:
    """A column, or a part of a nested one, in its file."""

    type: pa.DataType
    nulls: int
    wrapper: pa.DataType | None = None
    """The extension type around it."""
    buffers: list[Stretch] = field(default_factory=list)
    children: list[Column] = field(default_factory=list)

    def size(self, first: int, count: int) -> int:
        """The bytes of some rows, without reading them."""
        if count == 0 or _types.is_null(self.type):
            return 0
        size = count // 8
        if _is_view(self.type):
            return (
                size + count * VIEW_BYTES + int(self._views(first, count)[:, 0].sum(dtype=np.int64))
            )
        if _is_text(self.type) or _is_list(self.type):
            low, high = self._ends(first, count)
            inner = self.children[0].size(low, high - low) if self.children else high - low
            return size + count * self._offset.itemsize + inner
        if _types.is_fixed_size_list(self.type):
            width = self.type.list_size
            return size + self.children[0].size(first * width, count * width)
        if _types.is_struct(self.type):
            return size + sum(child.size(first, count) for child in self.children)
        return size + count * int(self.type.bit_width) // 8

    @property
    def _offset(self) -> np.dtype[Any]:
        is_long = _is_large(self.type) or _types.is_large_list(self.type)
        return np.dtype(np.int64 if is_long else np.int32)

    def _ends(self, first: int, count: int) -> tuple[int, int]:
        low, high = (int(self._offsets(at, 1)[0]) for at in (first, first + count))
        if not 0 <= low <= high:
            raise Malformed("offsets descend")
        return low, high

    def _offsets(self, first: int, count: int) -> np.ndarray[Any, Any]:
        return self.buffers[1].numbers(self._offset, first, count)

    def read(self, first: int, count: int) -> pa.Array:
        """Some rows."""
        if _types.is_null(self.type):
            return pa.nulls(count)
        valid = self._bits(0, first, count) if self.nulls and self.buffers[0].size else None
        buffers, children = self._values(first, count)
        array = pa.Array.from_buffers(self.type, count, [valid, *buffers], children=children)
        return array if self.wrapper is None else self.wrapper.wrap_array(array)

    def _bits(self, number: int, first: int, count: int) -> pa.Buffer:
        # Moved to the beginning of a byte, for Arrow overlooks the offset of a map's entries.
        data = self.buffers[number].bytes(first // 8, (first + count + 7) // 8 - first // 8)
        if first % 8 == 0:
            return pa.py_buffer(data)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return pa.py_buffer(np.packbits(bits[first % 8 :], bitorder="little"))

    def _values(self, first: int, count: int) -> tuple[list[pa.Buffer], list[pa.Array] | None]:
        if _is_view(self.type):
            return self._cut_views(first, count), None
        if _is_text(self.type) or _is_list(self.type):
            offsets = self._offsets(first, count + 1)
            low, high = self._ends(first, count)
            moved = pa.py_buffer(np.ascontiguousarray(offsets - offsets.dtype.type(low)))
            if self.children:
                return [moved], [self.children[0].read(low, high - low)]
            return [moved, pa.py_buffer(self.buffers[2].bytes(low, high - low))], None
        if _types.is_fixed_size_list(self.type):
            width = self.type.list_size
            return [], [self.children[0].read(first * width, count * width)]
        if _types.is_struct(self.type):
            return [], [child.read(first, count) for child in self.children]
        if _types.is_boolean(self.type):
            return [self._bits(1, first, count)], None
        width = self.type.bit_width // 8
        return [pa.py_buffer(self.buffers[1].bytes(first * width, count * width))], None

    def _views(self, first: int, count: int) -> np.ndarray[Any, Any]:
        """Length, beginning, buffer and place of some texts; null ones are empty, whatever they
        look at: Arrow follows them when it casts."""
        views = self.buffers[1].numbers(np.int32, first * 4, count * 4).reshape(-1, 4).copy()
        if self.nulls and self.buffers[0].size:
            bits = np.frombuffer(self._bits(0, first, count), np.uint8)
            views[np.unpackbits(bits, bitorder="little", count=count) == 0] = 0
        return views

    def _cut_views(self, first: int, count: int) -> list[pa.Buffer]:
        """Views, and one buffer with the stretches of data that they look at.

        Rows that were sorted or taken look anywhere, so nothing between two stretches is read.
        """
        views = self._views(first, count)
        is_long = views[:, 0] > SHORT_VIEW
        if not is_long.any():
            return [pa.py_buffer(views)]
        lengths, numbers, places = (views[is_long, at].astype(np.int64) for at in (0, 2, 3))
        if min(numbers.min(), places.min()) < 0 or numbers.max() >= len(self.buffers) - 2:
            raise Malformed("a view looks outside of its buffers")
        starts = (numbers << VIEW_BITS) + places
        stretches, moved = _stretches(starts, starts + lengths)
        views[is_long, 2], views[is_long, 3] = 0, moved
        data = b"".join(self._viewed(start, end) for start, end in stretches)
        return [pa.py_buffer(views), pa.py_buffer(data)]

    def _viewed(self, start: int, end: int) -> bytes:
        number, place = divmod(start, 1 << VIEW_BITS)
        found = self.buffers[2 + number].bytes(place, end - start)
        if len(found) < end - start:
            raise Malformed("a view looks behind its buffer")
        return found


def _stretches(starts: Int64s, ends: Int64s) -> tuple[list[tuple[int, int]], Int64s]:
    """What intervals cover, in stretches that don't touch, and where each interval begins once
    these stretches lie one after the other."""
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order])
    is_new = np.append(True, starts[order][1:] > reached[:-1])
    firsts = np.flatnonzero(is_new)
    lows, highs = starts[order][firsts], reached[np.append(firsts[1:], len(order)) - 1]
    before = np.cumsum(highs - lows) - (highs - lows)
    stretch = np.cumsum(is_new) - 1
    moved = np.empty_like(starts)
    moved[order] = before[stretch] + starts[order] - lows[stretch]
    return list(zip(lows.tolist(), highs.tolist(), strict=True)), moved


def batches(
    read_at: ReadAt, size: int, schema: pa.Schema, names: Sequence[str], share: ReadShare, name: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a file or stream whose columns can all be cut."""
    for message in messages(read_at, size):
        if message.kind == SCHEMA:
            continue
        if message.kind != RECORDS:
            raise Malformed(f"its message at byte {message.place} is a dictionary of no column")
        with Spill(name, share.scratch) as spill:
            batch = Batch(read_at, message, schema, names, spill)
            batch.check()
            if batch.bytes <= share.portion_bytes:
                yield _decoded(read_at, message, schema).select(names)
            else:
                yield from batch.portions(share.portion_bytes)


def largest_batch(
    read_at: ReadAt, size: int, schema: pa.Schema, share: ReadShare, name: str
) -> tuple[int, int]:
    """The bytes of the largest batch or dictionary, unpacked, and the rows of all batches."""
    largest = rows = 0
    for message in messages(read_at, size):
        if message.kind == SCHEMA:
            continue
        records = records_of(message)
        if records is None or not records.nodes:
            raise Malformed(f"its message at byte {message.place} has neither rows nor values")
        with Spill(name, share.scratch) as spill:
            largest = max(largest, Body(read_at, records, spill).unpacked_bytes())
            check_places(records)
            if message.kind == RECORDS:
                rows += records.rows
                Batch(read_at, message, schema, schema.names, spill).check()
    return largest, rows


def check_schema(read_at: ReadAt, size: int, schema: pa.Schema) -> None:
    """Refuse a file whose directory tells of other columns than its first message does."""
    first = None if is_stream(read_at, size) else schema_message(read_at, size)
    if first is None:
        return
    told = pa.ipc.read_schema(pa.py_buffer(read_at(first.place, first.body - first.place)))
    if not told.equals(schema, check_metadata=True):
        raise Malformed("its directory tells of other columns than its beginning")


def _decoded(read_at: ReadAt, message: Message, schema: pa.Schema) -> pa.RecordBatch:
    data = pa.py_buffer(read_at(message.place, message.end - message.place))
    return pa.ipc.read_record_batch(pa.ipc.read_message(data), schema)


class Batch:
    """A record batch in its file, of which some columns are wanted."""

    def __init__(
        self, read_at: ReadAt, message: Message, schema: pa.Schema, names: Sequence[str],
        spill: Spill,
    ) -> None:  # fmt: skip
        assert message.kind == RECORDS
        self._records = Records.of(message, message.header)
        self._body = Body(read_at, self._records, spill)
        self._schema, self._names = schema, names

    @property
    def bytes(self) -> int:
        """What the whole batch takes in memory."""
        return self._body.unpacked_bytes()

    def check(self) -> None:
        """Refuse a batch that contradicts itself."""
        check(self._records, self._schema, lambda at, count: self._body.stretch(at).bytes(0, count))

    def portions(self, portion_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows."""
        columns = self._columns()
        schema = pa.schema([self._schema.field(name) for name in self._names])
        first, count = 0, ROWS_PER_BATCH
        while first < self._records.rows:
            count = self._fitting(columns, first, min(2 * count, ROWS_PER_BATCH), portion_bytes)
            arrays = [column.read(first, count) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            first += count

    def _fitting(self, columns: list[Column], first: int, count: int, portion_bytes: int) -> int:
        """How many rows from `first` on take a portion; at least one."""
        count = min(count, self._records.rows - first)
        while count > 1:
            size = sum(column.size(first, count) for column in columns)
            if size <= portion_bytes:
                break
            count = max(1, min(count - 1, count * portion_bytes // size))
        return count

    def _columns(self) -> list[Column]:
        at = _Place(list(self._records.view_buffers))
        found, names = {}, set(self._names)
        for wanted in self._schema:
            found[wanted.name] = self._column(wanted.type, at, wanted.name in names)
        return [found[name] for name in self._names]

    def _column(self, data_type: pa.DataType, at: _Place, is_wanted: bool) -> Column:
        is_wrapped = isinstance(data_type, pa.BaseExtensionType)
        storage = data_type.storage_type if is_wrapped else data_type
        column = Column(storage, self._nulls(at), data_type if is_wrapped else None)
        count = buffer_count(storage)
        if _is_view(storage):
            count += at.views.pop(0) if at.views else 0
        for _ in range(count):
            if is_wanted:
                column.buffers.append(self._buffer(at.buffer))
            at.buffer += 1
        for child in _children(storage):
            column.children.append(self._column(child.type, at, is_wanted))
        return column

    def _nulls(self, at: _Place) -> int:
        if at.node >= len(self._records.nodes):
            raise Malformed("a batch has fewer columns than the schema")
        _, nulls = self._records.nodes[at.node]
        at.node += 1
        return nulls

    def _buffer(self, number: int) -> Stretch:
        if number >= len(self._records.buffers):
            raise Malformed("a batch has fewer buffers than its columns need")
        return self._body.stretch(number)


@dataclass(slots=True)
class _Place:
    """How far a batch's nodes, buffers and counts of views have been given to columns."""

    views: list[int]
    node: int = 0
    buffer: int = 0
