"""Whether what an Arrow batch says of itself holds together.  Pure, but for bits that are counted.

    rows 15    nodes (15, 2) (15, 0) …      one for each column and each part of a nested one
               buffers 0…2, 8…128, …        one behind the other, as all writers put them

Arrow believes it: a batch whose count of rows has a flipped bit gives fewer rows, one whose buffer
is said to begin elsewhere gives other values, and no error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from .ipc_layout import Malformed, Records
from .sizes import BINARIES

PADDING_MIN, PADDING_MAX = 64, 4096
_types = pa.types


def check(records: Records, schema: pa.Schema, bits: Callable[[int, int], bytes]) -> None:
    """Refuse a batch that contradicts itself; `bits` gives so many bytes of a buffer."""
    check_places(records)
    if any(map(_has_union, schema.types)):
        return  # older writers gave them a buffer more
    walk = _Walk(records, list(records.view_buffers))
    for column in schema:
        walk.visit(column.type, records.rows, is_exact=True)
    if (walk.node, walk.buffer) != (len(records.nodes), len(records.buffers)):
        raise Malformed("a batch has other columns than the schema")
    for number, rows in walk.doubtful:
        there = np.frombuffer(bits(number, -(-rows // 8)), np.uint8)
        if np.unpackbits(there, bitorder="little", count=rows).sum() != rows:
            raise Malformed("a column of a batch says that it has no nulls, and has some")


def check_places(records: Records) -> None:
    """Buffers that lie one behind the other, with no more between them than fills a line."""
    body = records.message.body_bytes
    found = np.array(records.buffers, np.int64).reshape(-1, 2)
    places, sizes = found[found[:, 1] != 0].T
    if (places < 0).any() or (sizes < 0).any() or (sizes > body).any() or (places > body).any():
        raise Malformed("a buffer lies outside of its batch")
    whole = int(np.bitwise_or.reduce(places)) if len(places) else 0
    # As much as all places are multiples of: 8 or 64, as writers have it.
    line = min(max(whole & -whole, 8), PADDING_MAX) if whole else PADDING_MIN
    gaps = places - np.concatenate([[0], (places + sizes)[:-1]])
    if (gaps < 0).any() or (gaps >= line).any():
        raise Malformed("the buffers of a batch don't lie one behind the other")
    rest = body - int((places + sizes)[-1]) if len(places) else body
    if not 0 <= rest < max(line, PADDING_MIN):
        raise Malformed("the buffers of a batch don't fill it")


@dataclass(slots=True)
class _Walk:
    """How far a batch's nodes and buffers have been given to columns."""

    records: Records
    views: list[int]
    node: int = 0
    buffer: int = 0
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    """Buffers of bits, and how many, of columns that say that all of them are set."""

    def visit(self, data_type: pa.DataType, rows: int, *, is_exact: bool) -> None:
        """Go past a column, or a part of one that has as many rows or more."""
        while isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        if self.node >= len(self.records.nodes):
            raise Malformed("a batch has fewer columns than the schema")
        length, nulls = self.records.nodes[self.node]
        self.node += 1
        if length < rows or (is_exact and length != rows):
            raise Malformed(f"a column of a batch has {length} rows, and should have {rows}")
        if not 0 <= nulls <= length:
            raise Malformed(f"a column of a batch has {length} rows, and {nulls} nulls")
        count = buffer_count(data_type)
        if _types.is_string_view(data_type) or _types.is_binary_view(data_type):
            count += self.views.pop(0) if self.views else 0
        if self.buffer + count > len(self.records.buffers):
            raise Malformed("a batch has fewer buffers than its columns need")
        if count:
            has_bits = self.records.buffers[self.buffer][1] != 0
            if nulls and not has_bits:
                raise Malformed("a column of a batch has nulls, and does not say which")
            if has_bits and not nulls:
                self.doubtful.append((self.buffer, length))
        self.buffer += count
        self._visit_children(data_type, length)

    def _visit_children(self, data_type: pa.DataType, length: int) -> None:
        if _types.is_struct(data_type):
            for number in range(data_type.num_fields):
                self.visit(data_type.field(number).type, length, is_exact=False)
        elif _types.is_fixed_size_list(data_type):
            self.visit(data_type.value_type, length * data_type.list_size, is_exact=False)
        elif not _types.is_dictionary(data_type):
            for number in range(data_type.num_fields):
                self.visit(data_type.field(number).type, 0, is_exact=False)


def _has_union(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_union(data_type.storage_type)
    if _types.is_dictionary(data_type):
        return False  # its values are in other messages
    inner = (data_type.field(number).type for number in range(data_type.num_fields))
    return bool(_types.is_union(data_type)) or any(map(_has_union, inner))


def buffer_count(data_type: pa.DataType) -> int:
    """How many buffers a column has, without those of its parts and those that views look at."""
    if _types.is_null(data_type) or _types.is_run_end_encoded(data_type):
        return 0
    if _types.is_struct(data_type) or _types.is_fixed_size_list(data_type):
        return 1
    if _types.is_list_view(data_type) or _types.is_large_list_view(data_type):
        return 3
    return 3 if any(test(data_type) for test in BINARIES) else 2
