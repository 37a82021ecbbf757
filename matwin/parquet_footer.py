"""A Parquet file's footer: what it says of row groups and columns, read and checked by ourselves.

    … pages │ footer │ its length │ PAR1        footer  schema │ row group, its columns │ …
                │
                └─ kernels/thrift.py ─▶ rows of numbers ─▶ checked, all columns of all row groups
                                                           at once

pyarrow reads a footer whose numbers contradict each other, and its accessors end the process when
one of them is asked for: their C++ exceptions are caught by nobody.  So pyarrow is asked nothing of
a footer, and it opens no file whose footer has not been looked at here.

Checked is what says where rows are and how many: a footer has no checksum, but it says most things
twice.  Statistics are looked at where they are used.  Left out: encrypted footers, which pyarrow
refuses by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from . import parquet_layout as f
from .ipc_layout import ReadAt
from .kernels import thrift
from .kernels.thrift import KIND, SEEN
from .parquet_layout import Numbers
from .row_groups import RowGroup

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
TAIL_BYTES = 2**16
"""So much is read at first: most footers are smaller."""

TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_NUMBERS = {"INT32": "i4", "INT64": "i8", "FLOAT": "f4", "DOUBLE": "f8"}
DICTIONARY_ENCODINGS, PREFIX_ENCODING = (2, 8), 7
_DECIMAL_CONVERTED, _UNSIGNED_CONVERTED, _DECIMAL, _INTEGER = 5, range(11, 15), 5, 10
_TIMES = {6: {0: 6}, 7: {1: 7, 2: 8}, 8: {1: 9, 2: 10}}
"""Logical kinds of times, and the converted types of their units: milliseconds, microseconds."""
REPEATED = 2
LEVELS_MAX = 256
"""So deep may a column be nested; Arrow opens a schema by calling itself, level by level."""


class Damaged(ValueError):
    """A file says something that can't be."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of numbers or texts, at the end of its path."""

    path: tuple[bytes, ...]
    type: str
    bytes: int
    """Of a value; 0 where they differ."""
    optional: int
    """How many levels of the path may be null or empty."""
    repeated: int
    """How many levels of the path are lists."""
    element: int

    @property
    def name(self) -> str:
        return b".".join(self.path).decode(errors="replace")

    @property
    def bits(self) -> int:
        """Of a plain value; 0 where they differ."""
        return 1 if self.type == "BOOLEAN" else 8 * self.bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A leaf's values in one row group."""

    rows: int
    values: int
    unpacked: int
    packed: int
    start: int
    has_dictionary: bool
    has_prefixes: bool
    codec: str
    """"": one that is not known."""


class Footer:
    """What a file says of itself."""

    def __init__(self, data: bytes, size: int) -> None:
        """`data` is the footer, `size` its file's without it and what follows."""
        self._data, self._size = np.frombuffer(data, np.uint8), size
        records = self._read()
        file = records[0]
        self.rows = int(file[f.ROWS])
        elements = _of_kind(records, f.ELEMENT, int(file[f.ELEMENTS]))
        self._elements = elements
        self.columns: dict[str, range] = {}
        """The leaves of every column, by number; columns of structs and maps have several."""
        self.leaves = self._leaves(elements)
        self._groups, self._chunks = self._groups_of(records, int(file[f.GROUPS]))
        self._check()

    @classmethod
    def of(cls, read_at: ReadAt, size: int) -> Footer:
        """The footer of a file of `size` bytes."""
        tail = read_at(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
        if size < 12 or tail[-4:] != MAGIC:
            what = "its footer is encrypted" if tail[-4:] == ENCRYPTED else "it has no footer"
            raise Damaged(f"{what}; a Parquet file ends with {MAGIC.decode()}")
        length = int.from_bytes(tail[-8:-4], "little")
        start = size - 8 - length
        if start < 4:
            raise Damaged(f"its footer claims {length} bytes, of a file of {size}")
        if length + 8 <= len(tail):
            return cls(tail[len(tail) - 8 - length : -8], start)
        return cls(read_at(start, length), start)

    def _read(self) -> Numbers:
        # The smallest struct that has a row, a flat column of a schema, takes some 10 bytes, and a
        # column of a row group 60: what is not used of this is never touched.
        rows = len(self._data) // 20 + 16
        stack = np.empty((thrift.DEPTH_MAX, thrift.FRAME), np.int64)
        while True:
            records = np.empty((rows, f.WIDTH), np.int64)
            end, used = thrift.read(self._data, f.SPEC, records, stack)
            if end != thrift.FULL:
                break
            rows *= 2
        is_signed = bool(records[0, SEEN] >> f.CRYPTO & 1)
        if end < 0 or (end < len(self._data) and not is_signed):
            raise Damaged("its footer makes no sense")
        found = records[:used]
        for kind, columns in f.NEEDED.items():
            needed = sum(1 << column for column in columns)
            if ((found[:, SEEN] & needed != needed) & (found[:, KIND] == kind)).any():
                raise Damaged("its footer lacks what every footer has")
        return found

    def _text(self, place: int, length: int) -> bytes:
        return self._data[place : place + length].tobytes()

    # ── the schema ───────────────────────────────────────────────────────────────────────────

    def _leaves(self, elements: Numbers) -> list[Leaf]:
        """The leaves, of a tree whose nodes stand one after the other, each with its count of
        children."""
        found: list[Leaf] = []
        above: list[list[Any]] = []  # path, optional, repeated, children to come
        names: list[tuple[str, int]] = []
        for at, row in enumerate(elements.tolist()):
            has_type = row[SEEN] >> f.TYPE & 1
            children = row[f.CHILDREN] if row[SEEN] >> f.CHILDREN & 1 else 0
            if at == 0:
                above.append([(), 0, 0, children])
                continue
            if not above or len(above) > LEVELS_MAX:
                what = f"nested more than {LEVELS_MAX} levels deep" if above else "not one tree"
                raise Damaged(f"its schema is {what}")
            path, optional, repeated, _ = above[-1]
            name = self._text(row[f.NAME], row[f.NAME + 1])
            if len(above) == 1:
                names.append((name.decode(errors="replace"), len(found)))
            path = (*path, name)
            repetition = row[f.REPETITION] if row[SEEN] >> f.REPETITION & 1 else -1
            if not 0 <= repetition <= REPEATED:
                raise Damaged(f"its schema does not say whether column {_shown(path)} has nulls")
            optional, repeated = optional + (repetition > 0), repeated + (repetition == REPEATED)
            above[-1][3] -= 1
            if children > 0 and not has_type:
                above.append([path, optional, repeated, children])
            elif has_type and children == 0:
                found.append(self._leaf(row, at, path, optional, repeated))
            elif not (children == 0 and not has_type):  # a struct without fields has no leaf
                raise Damaged(f"column {_shown(path)} of its schema has both values and columns")
            while above and above[-1][3] == 0:
                above.pop()
        if above and (above[0][3] or len(above) > 1):
            raise Damaged("its schema is not one tree")
        ends = [*(first for _, first in names), len(found)][1:]
        self.columns = {
            name: range(first, end) for (name, first), end in zip(names, ends, strict=True)
        }
        return found

    def _leaf(
        self, row: list[int], at: int, path: tuple[bytes, ...], optional: int, repeated: int
    ) -> Leaf:
        if not 0 <= row[f.TYPE] < len(TYPES):
            raise Damaged(f"column {_shown(path)} of its schema has a type that is not known")
        kind = TYPES[row[f.TYPE]]
        width = _BYTES.get(kind, 0)
        if kind == "FIXED_LEN_BYTE_ARRAY":
            width = row[f.LENGTH] if row[SEEN] >> f.LENGTH & 1 else -1
        if width < 0:
            raise Damaged(f"column {_shown(path)} of its schema has values of {width} bytes")
        if _contradict(row):
            raise Damaged(f"column {_shown(path)} of its schema has two types that contradict")
        return Leaf(path, kind, width, optional, repeated, at)

    # ── the row groups ───────────────────────────────────────────────────────────────────────

    def _groups_of(self, records: Numbers, count: int) -> tuple[Numbers, Numbers]:
        """The rows of row groups, and those of their columns: group, column, number."""
        width = len(self.leaves) + 1
        kinds = records[:, KIND]
        first = int(np.argmax(kinds == f.GROUP)) if count else 0
        found = records[first : first + count * width]
        if len(found) < count * width or (kinds == f.GROUP).sum() != count:
            raise Damaged("a row group does not have the columns of its schema")
        groups = found.reshape(count, width, f.WIDTH)
        if (groups[:, 0, KIND] != f.GROUP).any() or (groups[:, 1:, KIND] != f.CHUNK).any():
            raise Damaged("a row group does not have the columns of its schema")
        return groups[:, 0], groups[:, 1:]

    def _check(self) -> None:
        """Refuse what contradicts itself."""
        if not len(self._groups):
            if self.rows:
                raise Damaged(f"its footer tells of {self.rows} rows, and of no row group")
            return
        rows = self._groups[:, f.ROWS]
        if rows.min() < 0 or int(rows.sum()) != self.rows:
            raise Damaged(
                f"its footer tells of {self.rows} rows in all, and of {int(rows.sum())} in its row "
                "groups"
            )
        chunks, leaves = self._chunks, self.leaves
        types = np.array([TYPES.index(leaf.type) for leaf in leaves], np.int64)
        self._refuse(chunks[..., f.TYPE] != types, "is of another type than in the schema")
        has_other = (chunks[..., SEEN] >> f.OTHER_FILE & 1 != 0) & (
            chunks[..., f.OTHER_FILE + 1] > 0
        )
        self._refuse(has_other, "lies in another file")
        self._check_paths()
        values, packed = chunks[..., f.VALUES], chunks[..., f.PACKED]
        is_flat = np.array([leaf.repeated == 0 for leaf in leaves], bool)
        wrong = np.where(is_flat, values != rows[:, None], values < rows[:, None])
        self._refuse(wrong, "has another number of values than the row group has of rows")
        has_nulls = self._has(f.NULLS) & (chunks[..., f.NULLS] > 0)
        is_required = np.array([leaf.optional == 0 for leaf in leaves], bool)
        self._refuse(has_nulls & is_required, "has nulls, which the schema excludes")
        is_plain = (chunks[..., f.CODEC] == 0) & (values > 0)
        is_packed = is_plain & (packed != chunks[..., f.UNPACKED])
        self._refuse(is_packed, "is not compressed, and takes another size than its values")
        starts = self._starts()
        outside = (
            (packed < 0) | (starts < 0) | (starts > self._size) | (packed > self._size - starts)
        )
        self._refuse(outside & (values > 0), "does not lie in the file")

    def _check_paths(self) -> None:
        """A column of a row group says its whole name once more."""
        is_told = self._chunks[..., SEEN] >> f.PATH & 1 != 0
        hashes, places = (
            self._chunks[..., f.PATH],
            self._chunks[0, :, f.PATH + 1].tolist(),
        )
        first = np.zeros(is_told.shape[1:], bool)
        for number, (leaf, place) in enumerate(zip(self.leaves, places, strict=True)):
            told = b"".join(_varint(len(part)) + part for part in leaf.path)
            first[number] = self._text(place, len(told)) != told
        other = hashes != hashes[0]
        other[0] = first
        self._refuse(other & is_told & is_told[0], "has another name than in the schema")

    def _has(self, column: int) -> npt.NDArray[np.bool_]:
        """Where this is told of a column of a row group."""
        found: npt.NDArray[np.bool_] = self._chunks[..., SEEN] >> column & 1 != 0
        return found

    def _starts(self) -> Numbers:
        data, dictionary = self._chunks[..., f.DATA_PAGE], self._chunks[..., f.DICTIONARY]
        is_first = self._has(f.DICTIONARY) & (dictionary > 0) & (dictionary < data)
        found: Numbers = np.where(is_first, dictionary, data)
        return found

    def _refuse(self, wrong: npt.NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            group, leaf = np.argwhere(wrong)[0].tolist()
            raise Damaged(
                f"its footer contradicts itself: column {self.leaves[leaf].name!r} of row group "
                f"{group} {what}"
            )

    # ── what is asked ────────────────────────────────────────────────────────────────────────

    @property
    def groups(self) -> int:
        """How many row groups there are."""
        return len(self._groups)

    @property
    def unpacked(self) -> int:
        """What all rows take when they are decoded."""
        return int(self._groups[:, f.SIZE].sum()) if self.groups else 0

    def rows_of(self, group: int) -> int:
        """The rows of a row group."""
        return int(self._groups[group, f.ROWS])

    def chunk(self, group: int, leaf: int) -> Chunk:
        """The values of a leaf in a row group."""
        row = self._chunks[group, leaf].tolist()
        start, codec, encodings = row[f.DATA_PAGE], row[f.CODEC], row[f.ENCODINGS]
        if row[SEEN] >> f.DICTIONARY & 1 and 0 < row[f.DICTIONARY] < start:
            start = row[f.DICTIONARY]
        return Chunk(
            rows=self.rows_of(group),
            values=row[f.VALUES],
            unpacked=row[f.UNPACKED],
            packed=row[f.PACKED],
            start=start,
            has_dictionary=any(encodings >> each & 1 for each in DICTIONARY_ENCODINGS),
            has_prefixes=bool(encodings >> PREFIX_ENCODING & 1),
            codec=CODECS[codec] if 0 <= codec < len(CODECS) else "",
        )

    def levels_are_told_twice(self, group: int, leaf: int) -> bool:
        """Whether counts of its levels fit the schema, so that no page has to be asked."""
        row = self._chunks[group, leaf].tolist()
        told = row[f.DEFINED_LEVELS] if row[SEEN] >> f.DEFINED_LEVELS & 1 else 0
        return told > 1 and told == self.leaves[leaf].optional + 1

    def ranges(self, name: str) -> list[RowGroup] | None:
        """The least and greatest numbers of a column in each row group; None where they are not
        told of all of them."""
        numbers = self.columns.get(name, range(0))
        if len(numbers) != 1 or self.leaves[numbers[0]].repeated:
            return None
        number = numbers[0]
        dtype = self._number(self.leaves[number])
        if dtype is None:
            return None
        found = [self._range(group, number, dtype) for group in range(self.groups)]
        return [each for each in found if each is not None] if None not in found else None

    def _number(self, leaf: Leaf) -> np.dtype[Any] | None:
        """How a leaf's least value is written; None where it is no number."""
        row = self._elements[leaf.element].tolist()
        seen = row[SEEN]
        logical = row[f.IS_LOGICAL] if seen >> f.IS_LOGICAL & 1 else 0
        converted = row[f.CONVERTED] if seen >> f.CONVERTED & 1 else -1
        form = _NUMBERS.get(leaf.type)
        if form is None or logical == _DECIMAL or converted == _DECIMAL_CONVERTED:
            return None
        is_unsigned = logical == _INTEGER and not (seen >> f.IS_SIGNED & 1 and row[f.IS_SIGNED])
        if is_unsigned or converted in _UNSIGNED_CONVERTED:
            form = form.replace("i", "u")
        return np.dtype("<" + form)

    def _range(self, group: int, leaf: int, dtype: np.dtype[Any]) -> RowGroup | None:
        row = self._chunks[group, leaf].tolist()
        seen, values = row[SEEN], row[f.VALUES]
        # The older pair was compared as signed numbers, whatever they are.
        pairs = ((f.MIN, f.MAX), (f.OLD_MIN, f.OLD_MAX)) if dtype.kind != "u" else ((f.MIN, f.MAX),)
        for low, high in pairs:
            if seen >> low & seen >> high & 1:
                texts = [self._text(row[at], row[at + 1]) for at in (low, high)]
                if any(len(text) != dtype.itemsize for text in texts):
                    return None
                limits = tuple(np.frombuffer(text, dtype)[0].item() for text in texts)
                # An infinite value is one that no join looks at, and hides the others.
                is_sound = all(map(isfinite, limits))
                return RowGroup(values, (limits[0], limits[1])) if is_sound else None
        is_null = seen >> f.NULLS & 1 and row[f.NULLS] == values
        return RowGroup(values, None) if is_null else None

    @property
    def has_sound_statistics(self) -> bool:
        """Whether everything that it says of values, which may be anything, is of the right size.

        Arrow ends the process where it is not, when it leaves out row groups by a filter.
        """
        chunks, leaves = self._chunks, self.leaves
        widths = np.array([leaf.bytes for leaf in leaves], np.int64)
        for column in (f.MAX, f.MIN, f.OLD_MAX, f.OLD_MIN):
            wrong = self._has(column) & (widths > 0) & (chunks[..., column + 1] != widths)
            if wrong.any():
                return False
        for column, levels in (
            (f.REPEATED_LEVELS, [leaf.repeated for leaf in leaves]),
            (f.DEFINED_LEVELS, [leaf.optional for leaf in leaves]),
        ):
            counts = np.where(self._has(column), chunks[..., column], 0)
            if ((counts > 0) & (counts != np.array(levels) + 1)).any():
                return False
        is_text = np.array([leaf.type == "BYTE_ARRAY" for leaf in leaves], bool)
        odd = self._has(f.GEOGRAPHIC) | (self._has(f.TEXT_BYTES) & ~is_text)
        return not odd.any()


def _of_kind(records: Numbers, kind: int, count: int) -> Numbers:
    found: Numbers = records[records[:, KIND] == kind]
    if len(found) != count or not count:
        raise Damaged("its footer makes no sense")
    return found


def _contradict(row: list[int]) -> bool:
    """Whether the newer and the older way to tell what a number means tell different things."""
    seen, logical, converted = row[SEEN], row[f.IS_LOGICAL], row[f.CONVERTED]
    if not (seen >> f.IS_LOGICAL & seen >> f.CONVERTED & 1):
        return False
    if logical == _DECIMAL:
        older = (row[f.SCALE], row[f.PRECISION]) if seen >> f.PRECISION & 1 else None
        newer = (row[f.LOGICAL_SCALE], row[f.LOGICAL_PRECISION])
        return converted != _DECIMAL_CONVERTED or older not in (None, newer)
    if logical == _INTEGER:
        signed = row[f.IS_SIGNED] if seen >> f.IS_SIGNED & 1 else 1
        first = 15 if signed else 11
        return (first + row[f.BIT_WIDTH].bit_length() - 4) != converted
    if logical in _TIMES:
        unit = row[f.IN_UNIT] if seen >> f.IN_UNIT & 1 else 0
        return _TIMES[logical].get(unit) != converted
    return False


def _shown(path: Sequence[bytes]) -> str:
    return repr(b".".join(path).decode(errors="replace"))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
