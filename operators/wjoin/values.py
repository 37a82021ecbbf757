"""A window's values: columns that rows are appended to, dropped from the front and taken from.

    fixed widths   one array a column, with room to grow: rows are taken in one go
    the others     portions of Arrow, as they came: rows are taken from each, and put in order

Texts and lists have no width to reckon with; booleans are bits.  Everything in portions, as it was
before, cost a window of 10M rows as much as finding them: which portion a row lies in had to be
looked up, and each gave only a few rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.sizes import batch_bytes, bytes_at, column_bytes, fixed_bytes, has_whole_bytes
from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Bools, Int64s

PORTION_ROWS = 1 << 17
WIDE_BYTES = 1 << 16
PAGE_BYTES, LARGE_PAGE_BYTES = 1 << 12, 1 << 21
N = TypeVar("N", bound=np.generic)


class Values:
    """All columns of a window."""

    def __init__(self, schema: pa.Schema, room: int) -> None:
        self._schema = schema
        self._fixed = {f.name: _Fixed(f.type, room) for f in schema if has_whole_bytes(f.type)}
        self._row_bytes, _ = fixed_bytes(pa.schema([schema.field(name) for name in self._fixed]))
        self._others = [field.name for field in schema if field.name not in self._fixed]
        self._portions = Portions()
        self._is_lent = False
        self._room = room
        self._widths = Counter(column.width for column in self._fixed.values())

    def held_bytes(self, written: int) -> int:
        """What all columns take, where so many rows have been written."""
        sizes = self._sizes(written)
        arrays = sum(count * size for size, count in sizes.items())
        return arrays + column_bytes(len(self._fixed)) + self._portions.size

    def largest_bytes(self, written: int) -> int:
        """What the largest of the arrays takes: they are made larger one after the other."""
        return max(self._sizes(written), default=0)

    def _sizes(self, written: int) -> dict[int, int]:
        """What arrays take, and how many take as much: there may be thousands, of a few widths."""
        sizes: dict[int, int] = {}
        for width, count in self._widths.items():
            size = resident_bytes(self._room, width, written)
            sizes[size] = sizes.get(size, 0) + count
        return sizes

    def resize(self, room: int, kept: int) -> None:
        """Give the first `kept` rows so much room."""
        for column in self._fixed.values():
            column.resize(room, kept)
        self._is_lent, self._room = False, room

    def append(self, rows: pa.RecordBatch, first: int) -> None:
        """Take rows, from place `first` on."""
        for name, column in self._fixed.items():
            if column.put(rows.column(name), first):
                self._widths[column.width] += 1
                self._widths[column.width - 1] -= 1
        if self._others:
            self._portions.append(rows.select(self._others))

    def column_at(self, name: str, at: Int64s) -> pa.Array:
        """The values of a column in some rows."""
        column = self._fixed.get(name)
        return self._portions.column_at(name, at) if column is None else column.at(at)

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        if len(at) == 0:
            return 0
        own = self._row_bytes
        return own + self._portions.bytes_at(at) if self._others else own

    def drop(self, gone: int, limit: int) -> None:
        """Forget the first rows, and move the others, up to `limit`, to the beginning."""
        for column in self._fixed.values():
            column.move(gone, limit, in_place=not self._is_lent)
        self._is_lent = False
        if self._others:
            self._portions.drop(gone)

    def sort(self, places: Int64s) -> None:
        """Bring all rows into the order of these places."""
        for column in self._fixed.values():
            column.sort(places)
        self._is_lent = False
        if self._others:
            self._portions.sort(places)

    def batches(self, first: int, limit: int) -> list[pa.RecordBatch]:
        """The rows between two places, not copied."""
        if first == limit:
            return []
        self._is_lent = True
        if not self._others:
            return [self._batch(first, limit, None)]
        found = []
        for portion in self._portions.since(first):
            found.append(self._batch(first, first + portion.num_rows, portion))
            first += portion.num_rows
        return found

    def _batch(self, first: int, limit: int, others: pa.RecordBatch | None) -> pa.RecordBatch:
        columns = []
        for name in self._schema.names:
            own = self._fixed.get(name)
            if own is not None:
                columns.append(own.between(first, limit))
            elif others is not None:
                columns.append(others.column(name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Fixed:
    """A column whose values take whole bytes, as integers of that width."""

    def __init__(self, data_type: pa.DataType, room: int) -> None:
        self._type = data_type
        self._values: npt.NDArray[np.signedinteger] = np.empty(
            room, np.dtype(f"i{data_type.bit_width // 8}")
        )
        self._valid: Bools | None = None  # since a null came

    @property
    def width(self) -> int:
        """Bytes of a value, and of whether it is there."""
        return self._values.itemsize + (self._valid is not None)

    def resize(self, room: int, kept: int) -> None:
        self._values = resized(self._values, room, kept)
        if self._valid is not None:
            self._valid = resized(self._valid, room, kept)

    def put(self, column: pa.Array, first: int) -> bool:
        """Take values; whether their first null was among them, which makes all of them wider."""
        is_first = column.null_count > 0 and self._valid is None
        rows, offset = len(column), column.offset
        given = np.frombuffer(column.buffers()[1], self._values.dtype, offset + rows)[offset:]
        self._values[first : first + rows] = given
        if is_first:
            self._valid = np.empty(len(self._values), np.bool_)
            self._valid[:first] = True
        if self._valid is not None:
            there = as_numpy(pc.is_valid(column))
            self._valid[first : first + rows] = there
        return is_first

    def at(self, places: Int64s) -> pa.Array:
        return self._array(
            self._values.take(places), None if self._valid is None else self._valid.take(places)
        )

    def between(self, first: int, limit: int) -> pa.Array:
        valid = None if self._valid is None else self._valid[first:limit]
        return self._array(self._values[first:limit], valid)

    def move(self, gone: int, limit: int, *, in_place: bool) -> None:
        """In place only where nobody has been given the rows."""
        moved = self._values if in_place else np.empty_like(self._values)
        moved[: limit - gone] = self._values[gone:limit]
        self._values = moved
        if self._valid is not None:
            self._valid[: limit - gone] = self._valid[gone:limit]

    def sort(self, places: Int64s) -> None:
        values = np.empty_like(self._values)
        values[: len(places)] = self._values[places]
        self._values = values
        if self._valid is not None:
            self._valid[: len(places)] = self._valid[places]

    def _array(self, values: npt.NDArray[np.signedinteger], valid: Bools | None) -> pa.Array:
        bits = None
        if valid is not None and not valid.all():
            bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(self._type, len(values), [bits, pa.py_buffer(values)])


class Portions:
    """Rows as they came, in portions that become one while they are small."""

    def __init__(self) -> None:
        self._portions: list[pa.RecordBatch] = []
        self._gather: Gather | None = None
        self.size = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Portions of like size become one: n rows that come singly are copied log n times.  Wide
        ones do not: a copy of them has no room."""
        self._gather = None
        size = batch_bytes(rows)
        self.size += size
        parts = [rows]
        count = rows.num_rows
        most = 0 if size > WIDE_BYTES * rows.num_rows else PORTION_ROWS
        while self._portions and self._portions[-1].num_rows <= 2 * count < most:
            parts.append(self._portions.pop())
            count += parts[-1].num_rows
        self._portions.append(pa.concat_batches(parts[::-1]) if len(parts) > 1 else rows)

    def column_at(self, name: str, at: Int64s) -> pa.Array:
        """The values of a column in some rows."""
        return self._gathered(at).column(name, self._portions)

    def bytes_at(self, at: Int64s) -> Int64s | int:
        """What some rows take, each."""
        return self._gathered(at).sizes(self._portions)

    def _gathered(self, at: Int64s) -> Gather:
        """How to take some rows; asked for once for each column of them."""
        if self._gather is None or self._gather.asked is not at:
            self._gather = Gather.of(at, self._portions)
        return self._gather

    def drop(self, gone: int) -> None:
        """Forget the first rows."""
        self._gather = None
        while self._portions and gone >= self._portions[0].num_rows:
            gone -= self._portions.pop(0).num_rows
        if gone:
            # A copy, so that the memory of the rest is given back.
            rest = self._portions[0].slice(gone)
            self._portions[0] = rest.take(arrow(np.arange(rest.num_rows)))
        self.size = sum(map(batch_bytes, self._portions))

    def sort(self, places: Int64s) -> None:
        """Bring the rows into the order of the places."""
        rows = pa.Table.from_batches(self._portions).take(arrow(places))
        self._portions = rows.combine_chunks().to_batches()
        self._gather = None

    def since(self, first: int) -> Iterator[pa.RecordBatch]:
        """The rows from a place on."""
        for portion in self._portions:
            if first < portion.num_rows:
                yield portion.slice(first)
            first = max(first - portion.num_rows, 0)


@dataclass(frozen=True, slots=True)
class Gather:
    """Rows to be taken from several portions: which from which, and how to put them back in order.

    Arrow's own `take` of a column in chunks makes one of all of them first.
    """

    asked: Int64s
    parts: list[tuple[int, pa.Array]]
    back: pa.Array | None

    @classmethod
    def of(cls, places: Int64s, portions: list[pa.RecordBatch]) -> Gather:
        """The plan for rows at these places of all portions together."""
        ends = np.cumsum([portion.num_rows for portion in portions])
        which = np.searchsorted(ends, places, "right")
        if len(portions) <= 1 << 16:
            which = which.astype(np.uint16)  # sorted by radix
        if len(which) == 0 or (which == which[0]).all():
            number = int(which[0]) if len(which) else 0
            start = int(ends[number]) - portions[number].num_rows
            return cls(places, [(number, arrow(places - start))], None)
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order])) + 1
        parts = []
        for rows in np.split(order, cuts):
            number = int(which[rows[0]])
            start = int(ends[number]) - portions[number].num_rows
            parts.append((number, arrow(places[rows] - start)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return cls(places, parts, arrow(back))

    def column(self, name: str, portions: list[pa.RecordBatch]) -> pa.Array:
        """The values of a column in these rows."""
        found = [
            pc.take(portions[number].column(name), at, boundscheck=False)
            for number, at in self.parts
        ]
        if self.back is None:
            return found[0]
        return pc.take(pa.concat_arrays(found), self.back, boundscheck=False)

    def sizes(self, portions: list[pa.RecordBatch]) -> Int64s | int:
        """The bytes of each of these rows; one number where all take as much."""
        found = [bytes_at(portions[number], as_numpy(at)) for number, at in self.parts]
        if all(isinstance(each, int) for each in found):
            return max(map(int, found))
        each = [np.full(len(at), b) for b, (_, at) in zip(found, self.parts, strict=True)]
        sizes: Int64s = np.concatenate(each)
        return sizes if self.back is None else sizes[as_numpy(self.back)]


def resident_bytes(room: int, width: int, written: int) -> int:
    """What an array takes of which only the first rows have been written.

    Room that nobody has written to is no memory yet: the kernel gives it page by page, and NumPy
    asks for large pages where an array takes 4 MiB and more.
    """
    size = room * width
    page = LARGE_PAGE_BYTES if size >= 2 * LARGE_PAGE_BYTES else PAGE_BYTES
    return min(size, written * width + page)


def resized(array: npt.NDArray[N], room: int, kept: int) -> npt.NDArray[N]:
    """The first rows of an array in one with so much room."""
    found = np.empty((room, *array.shape[1:]), array.dtype)
    found[:kept] = array[:kept]
    return found
