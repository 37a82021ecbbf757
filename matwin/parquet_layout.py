"""The fields of a Parquet footer that are read, and where `kernels/thrift.py` puts them.

    FileMetaData ─┬─ schema ─▶ a row for each element     logical type ─┘ in the element's row
                  ├─ row groups ─▶ a row for each, followed by one for each of its columns
                  └─ key-value pairs                      statistics, sizes ─┘ in the column's row

The numbers of fields are those of Parquet's own definition, and stand nowhere else.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .kernels import thrift as t

Numbers: TypeAlias = npt.NDArray[np.int64]

FILE, ELEMENT, GROUP, CHUNK, PAIR = range(5)
"""The kinds of structs that have rows; those below are read into the row of one of them."""
META, STATISTICS, SIZES, LOGICAL, DECIMAL, TIME, UNIT, INTEGER, EMPTY = range(5, 14)
FIELDS = 20
WIDTH = 32

# The columns of a row; the first two are the reader's.
VERSION, ROWS, ELEMENTS, GROUPS, PAIRS, CRYPTO = 2, 3, 4, 5, 6, 7
TYPE, LENGTH, REPETITION, NAME, CHILDREN, CONVERTED, SCALE, PRECISION = 2, 3, 4, 5, 7, 8, 9, 10
IS_LOGICAL, LOGICAL_SCALE, LOGICAL_PRECISION, IS_UTC, IN_UNIT, BIT_WIDTH, IS_SIGNED = range(11, 18)
SIZE, CHUNKS = 2, 4  # of a row group, beside ROWS
ENCODINGS, PATH, CODEC, VALUES, UNPACKED, PACKED, DATA_PAGE, DICTIONARY = 4, 6, 8, 9, 10, 11, 12, 13
MAX, MIN, NULLS, OLD_MAX, OLD_MIN, IN_FILE, OTHER_FILE = 14, 16, 18, 19, 21, 23, 24
TEXT_BYTES, REPEATED_LEVELS, DEFINED_LEVELS, GEOGRAPHIC = 26, 27, 28, 29
KEY, VALUE = 2, 4


def _spec() -> Numbers:
    """The table of `thrift.read`, from that of Parquet's definition."""
    byte, small, large, text = (
        (t.BYTE, t.NUMBER), (t.I32, t.NUMBER), (t.I64, t.NUMBER), (t.BINARY, t.PLACE),
    )  # fmt: skip
    truth, inner, rows = (t.BOOL, t.NUMBER), (t.STRUCTURE, t.STRUCT), (t.LIST, t.STRUCTS)
    wanted: dict[int, dict[int, tuple[int, ...]]] = {
        FILE: {
            1: (*small, VERSION), 2: (*rows, ELEMENTS, ELEMENT),
            3: (*large, ROWS),
            4: (*rows, GROUPS, GROUP), 5: (*rows, PAIRS, PAIR),
            8: (*inner, CRYPTO, EMPTY),
        },
        ELEMENT: {
            1: (*small, TYPE), 2: (*small, LENGTH), 3: (*small, REPETITION),
            4: (*text, NAME), 5: (*small, CHILDREN), 6: (*small, CONVERTED),
            7: (*small, SCALE), 8: (*small, PRECISION),
            10: (*inner, 0, LOGICAL),
        },
        LOGICAL: {
            **dict.fromkeys(range(1, FIELDS), (*inner, IS_LOGICAL, EMPTY)),
            5: (*inner, IS_LOGICAL, DECIMAL), 7: (*inner, IS_LOGICAL, TIME),
            8: (*inner, IS_LOGICAL, TIME), 10: (*inner, IS_LOGICAL, INTEGER),
        },
        DECIMAL: {1: (*small, LOGICAL_SCALE), 2: (*small, LOGICAL_PRECISION)},
        TIME: {1: (*truth, IS_UTC), 2: (*inner, 0, UNIT)},
        UNIT: dict.fromkeys((1, 2, 3), (*inner, IN_UNIT, EMPTY)),
        INTEGER: {1: (*byte, BIT_WIDTH), 2: (*truth, IS_SIGNED)},
        GROUP: {
            1: (*rows, CHUNKS, CHUNK), 2: (*large, SIZE), 3: (*large, ROWS),
        },
        CHUNK: {1: (*text, OTHER_FILE), 2: (*large, IN_FILE),
                3: (*inner, 0, META)},
        META: {
            1: (*small, TYPE), 2: (t.LIST, t.BITS, ENCODINGS), 3: (t.LIST, t.HASH, PATH),
            4: (*small, CODEC), 5: (*large, VALUES), 6: (*large, UNPACKED),
            7: (*large, PACKED), 9: (*large, DATA_PAGE), 11: (*large, DICTIONARY),
            12: (*inner, 0, STATISTICS), 16: (*inner, 0, SIZES),
            17: (*inner, GEOGRAPHIC, EMPTY),
        },
        STATISTICS: {
            1: (*text, OLD_MAX), 2: (*text, OLD_MIN), 3: (*large, NULLS),
            5: (*text, MAX), 6: (*text, MIN),
        },
        SIZES: {
            1: (*large, TEXT_BYTES), 2: (t.LIST, t.COUNT, REPEATED_LEVELS),
            3: (t.LIST, t.COUNT, DEFINED_LEVELS),
        },
        PAIR: {1: (*text, KEY), 2: (*text, VALUE)},
    }  # fmt: skip
    spec = np.zeros((EMPTY + 1, FIELDS, 4), np.int64)
    for kind, fields in wanted.items():
        for field, what in fields.items():
            spec[kind, field, : len(what)] = what
    return spec


SPEC = _spec()
NEEDED = {
    FILE: (VERSION, ELEMENTS, ROWS, GROUPS), ELEMENT: (NAME,), GROUP: (CHUNKS, SIZE, ROWS),
    CHUNK: (TYPE, ENCODINGS, CODEC, VALUES, UNPACKED, PACKED, DATA_PAGE),
}  # fmt: skip
