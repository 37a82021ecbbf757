"""Thrift in its compact form, read into rows of numbers by a table that says what is wanted.

    struct   (field, type, value)*, 0      spec[kind, field]   type │ action │ column │ child
    list     count and type, value*        records             a row for each struct of some lists

Everything else is skipped.  Every place and length is checked, so the bytes may be any.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from matwin.storage.kernel import kernel

Int: TypeAlias = Any
Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]

BOOL, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCTURE, UUID = 1, *range(3, 14)
SKIP, NUMBER, PLACE, STRUCT, STRUCTS, BITS, HASH, COUNT = range(8)
"""What is done with a field: nothing; its number is kept, or the place and length of its bytes; its
fields are read into the same row, or each of its structs into a row of its own; its numbers become
bits, or its texts a hash, with the place of the first; its elements are counted."""
KIND, SEEN = 0, 1
"""The first columns of a row: the kind of its struct, and which other columns have been set."""
FRAME_KIND, LEFT, LAST, ROW, TURN, WANTED, FRAME = range(7)
"""A frame of the stack is an open struct (kind, -1, its last field, row), or an open list or map:
how many elements are left, their type, the row, the type of every second one, and what is done with
them."""
DEPTH_MAX = 32
NONSENSE, FULL = -1, -2
BITS_MAX = 62
HASH_START, HASH_FACTOR = 1469598103934665603, 1099511628211


@kernel
def varint(data: Bytes, at: int) -> tuple[Int, Int]:
    """A number of up to 64 bits, and the place behind it; `NONSENSE` where there is none."""
    value: Int = np.int64(0)
    shift: Int = 0
    while at < len(data) and shift < 64:
        byte: Int = np.int64(data[at])
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            return value, at
    return np.int64(0), NONSENSE


@kernel
def field(
    data: Bytes, at: int, spec: Numbers, stack: Numbers, depth: int
) -> tuple[Int, Int, Int, Int, Int]:
    """The next field of a struct: its type (0: there is none), what is done with it, the column and
    kind for that, and the place of its value."""
    if at >= len(data):
        return np.int64(0), SKIP, np.int64(0), np.int64(-1), NONSENSE
    byte: Int = np.int64(data[at])
    wire: Int = byte & 15
    at += 1
    if byte == 0:
        return wire, SKIP, np.int64(0), np.int64(-1), at
    if byte >> 4:
        stack[depth, LAST] += byte >> 4
    else:
        number, at = varint(data, at)
        stack[depth, LAST] = (number >> 1) ^ -(number & 1)
    kind: Int = stack[depth, FRAME_KIND]
    which: Int = stack[depth, LAST]
    if kind >= 0 and 0 <= which < spec.shape[1]:
        told: Int = spec[kind, which, 0]
        if told == wire or (told == BOOL and wire == 2):
            return wire, spec[kind, which, 1], spec[kind, which, 2], spec[kind, which, 3], at
    return wire, SKIP, np.int64(0), np.int64(-1), at


@kernel
def element(stack: Numbers, depth: int) -> tuple[Int, Int, Int]:
    """The next element of a list or map: its type (0: there is none), what is done with it, and the
    column for that."""
    if stack[depth, LEFT] == 0:
        return np.int64(0), np.int64(0), np.int64(0)
    stack[depth, LEFT] -= 1
    wire: Int = stack[depth, LAST]
    stack[depth, LAST] = stack[depth, TURN]  # keys and values of a map take turns
    stack[depth, TURN] = wire
    return wire, stack[depth, WANTED] & 15, stack[depth, WANTED] >> 4


@kernel
def simple(
    data: Bytes, at: int, wire: int, is_element: bool, action: int, column: int, row: Numbers
) -> int:
    """Do what is wanted with a value that is no list and no struct; the place behind it."""
    value: Int = np.int64(0)
    if wire == 1 or wire == 2:  # in a struct, the type is the value
        value = np.int64(wire == 1)
        at += 1 if is_element else 0
    elif wire == BYTE:
        value = np.int64(data[at]) if at < len(data) else value
        at += 1
    elif I16 <= wire <= I64:
        number, at = varint(data, at)
        if at < 0:
            return NONSENSE
        value = ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1)
    elif wire == DOUBLE:
        at += 8
    elif wire == UUID:
        at += 16
    elif wire == BINARY:
        value, at = varint(data, at)
        if at < 0 or value < 0 or value > len(data) - at:
            return NONSENSE
        if action == PLACE:
            row[column] = at
            row[column + 1] = value
            row[SEEN] |= np.int64(1) << column
        elif action == HASH:
            mixed: Int = (row[column] ^ (value + 257)) * HASH_FACTOR
            for i in range(value):
                mixed = (mixed ^ np.int64(data[at + i])) * HASH_FACTOR
            row[column] = mixed
        at += value
    else:
        return NONSENSE
    if action == NUMBER:
        row[column] = value
        row[SEEN] |= np.int64(1) << column
    elif action == BITS and is_element:
        bit: Int = value if 0 <= value < BITS_MAX else BITS_MAX
        row[column] |= np.int64(1) << bit
    return at if at <= len(data) else NONSENSE


@kernel
def listed(
    data: Bytes, at: int, wire: int, action: int, column: int, child: int, row: Numbers,
    frame: Numbers,
) -> int:  # fmt: skip
    """Open a list, set or map; the place of its first element."""
    if at >= len(data):
        return NONSENSE
    head: Int = np.int64(data[at])
    count: Int = np.int64(0)
    frame[WANTED] = SKIP
    if wire == MAP:
        count, at = varint(data, at)
        if at < 0 or count < 0 or count > len(data) or (count and at >= len(data)):
            return NONSENSE
        if count:
            head = np.int64(data[at])
            at += 1
        frame[LAST] = head >> 4
        frame[TURN] = head & 15
        frame[LEFT] = 2 * count
    else:
        at += 1
        count = head >> 4
        if count == 15:
            count, at = varint(data, at)
        if at < 0 or count < 0 or count > len(data):
            return NONSENSE
        frame[LAST] = head & 15
        frame[TURN] = head & 15
        frame[LEFT] = count
        if action >= STRUCTS:
            row[column] = HASH_START if action == HASH else 0
            row[SEEN] |= np.int64(1) << column
        if action in (STRUCTS, COUNT):
            row[column] = count
        if action == HASH:
            row[column + 1] = at
        if action in (BITS, HASH):
            frame[WANTED] = action | (column << 4)
        elif action == STRUCTS and head & 15 == STRUCTURE:
            frame[WANTED] = action | (child << 4)
    # Whatever an element is, it takes a byte.
    return at if frame[LEFT] <= len(data) - at else NONSENSE


@kernel(outputs=2, few_rows=1024)
def read(data: Bytes, spec: Numbers, records: Numbers, stack: Numbers) -> tuple[int, int]:
    """Read a struct of kind 0: the place behind it, or `NONSENSE`, or `FULL` where the rows don't
    suffice; and how many of them it took."""
    at: Int = 0
    depth: Int = 0
    used: Int = 1
    records[0, KIND] = 0
    records[0, SEEN] = 0
    stack[0, FRAME_KIND] = 0
    stack[0, LEFT] = -1
    stack[0, LAST] = 0
    stack[0, ROW] = 0
    child: Int = np.int64(-1)
    while depth >= 0 and at >= 0:
        row: Int = stack[depth, ROW]
        is_element = stack[depth, LEFT] >= 0
        if is_element:
            wire, action, column = element(stack, depth)
        else:
            wire, action, column, child, at = field(data, at, spec, stack, depth)
        if wire == 0 or at < 0:
            depth -= 1
            continue
        if wire < LIST or wire > STRUCTURE:
            at = simple(data, at, wire, is_element, action, column, records[row])
            continue
        depth += 1
        if depth >= len(stack):
            return NONSENSE, used
        stack[depth, FRAME_KIND] = -1
        stack[depth, LEFT] = -1
        stack[depth, LAST] = 0
        stack[depth, ROW] = row
        if wire != STRUCTURE:
            at = listed(data, at, wire, action, column, child, records[row], stack[depth])
        elif action == STRUCT:
            stack[depth, FRAME_KIND] = child
            if column:
                records[row, column] = stack[depth - 1, LAST]
                records[row, SEEN] |= np.int64(1) << column
        elif action == STRUCTS:
            if used >= len(records):
                return FULL, used
            records[used, KIND] = column
            records[used, SEEN] = 0
            stack[depth, FRAME_KIND] = column
            stack[depth, ROW] = used
            used += 1
    return at, used
