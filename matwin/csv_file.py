"""CSV files: text with a header line, read in blocks of whole records.

    the first 8 MiB  ─▶  the types of the columns
    blocks           ─▶  rows; a block is larger where a row is, as far as the share has room

A block is 1 MiB at most, and less in small budgets.  It is cut where a record ends (`records.py`)
and parsed by itself: Arrow's own reader of streams reads 32 blocks ahead, so with rows of 900 KB it
held 60 MB more, at the same speed.

Left out: types that show only after the first 8 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from matwin.storage.machine import release_unused
from matwin.storage.units import format_size

from .csv_values import Values, header_of
from .file import COMPRESSED, File
from .records import Records, blocks
from .shares import ReadShare

CSV_BLOCK_BYTES_MIN, CSV_BLOCK_BYTES = 2**16, 2**20
CSV_SAMPLE_BYTES = 8 * 2**20
_COPIES = 8
"""A row that is longer than a block is there in pieces, joined and as values, and is copied."""


class Csv(File):
    """Text with a header line, perhaps compressed."""

    is_parsed = True

    @property
    def delimiter(self) -> str:
        return "\t" if ".tsv" in Path(self.path.lower()).suffixes else ","

    def _opened(self, text: Any) -> Any:
        """Arrow's reader of a sample, which says what the columns are."""
        types = {} if self.schema is None else {f.name: f.type for f in self.schema}
        return pa_csv.open_csv(
            text,
            read_options=pa_csv.ReadOptions(block_size=CSV_SAMPLE_BYTES, use_threads=False),
            # A quoted line break may fall on the edge of a block; looking for them costs nothing.
            parse_options=pa_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=types),
        )

    def described(self) -> File:
        is_compressed = self.path.lower().endswith(COMPRESSED)
        with self._text() as text, self._opened(head(text)) as reader:
            schema = reader.schema
        del reader
        release_unused()  # the sample, which took several times its size
        return replace(self, schema=schema, bytes_hint=None if is_compressed else self.size)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        block = max(CSV_BLOCK_BYTES_MIN, min(share.portion_bytes // 2, CSV_BLOCK_BYTES))
        values = Values(self.delimiter, self.schema, columns)
        with self._text() as text:
            texts = blocks(text, Records(self.delimiter), block, self._check_row(share))
            names = header_of(next(texts, b""), self.delimiter, f"{self.name}: {self.path}")
            rows = 1
            for some in texts:
                try:
                    table = values.table(some, names)
                except pa.ArrowInvalid as e:
                    raise pa.ArrowInvalid(further(str(e), rows)) from e
                rows += table.num_rows
                yield from table.combine_chunks().to_batches()

    def _check_row(self, share: ReadShare) -> Callable[[int], None]:
        """Refuse a row that is too long for a share, with the size of the longest."""

        def check(row_bytes: int) -> None:
            if row_bytes <= share.whole_bytes // _COPIES:
                return
            with self._text() as text:
                size = longest_row(text, self.delimiter)
            raise share.refusal(
                f"file {self.path!r}: a row takes {format_size(size)}, and several times as much "
                "while it is read",
                max(size, row_bytes) * _COPIES,
                "write it as Parquet",
            )

        return check

    def _text(self) -> Any:
        return self.place.text()

    def explained(self, error: str) -> str:
        named = re.sub(r"In CSV column #(\d+): ", self._column_name, error)
        if "conversion error" in error:
            return (
                f"{named}; types come from the first 8 MiB of the file: write it as Parquet, or "
                "pass pyarrow.csv.open_csv(..., convert_options=...) with the column's type"
            )
        if "straddl" in error:
            return f"a row is longer than {CSV_SAMPLE_BYTES} bytes; write the file as Parquet"
        return super().explained(named)

    def _column_name(self, match: re.Match[str]) -> str:
        names = self.schema.names if self.schema is not None else []
        number = int(match[1])
        return f"column {names[number]!r}: " if number < len(names) else match[0]


class Tsv(Csv):
    """The same with tabs, whatever the file's name says."""

    @property
    def delimiter(self) -> str:
        return "\t"


def head(text: Any) -> pa.BufferReader:
    """The beginning of a text: the sample, and a block more to find the end of its last line.

    Without an end Arrow would read 32 blocks ahead, 256 MiB, while it looks at the first.  It is in
    Arrow's memory, for a thread of Arrow's still reads it when the schema is there: if Python had
    to be asked for it, and was ending, that thread would abort the process.
    """
    pieces, left = [], 2 * CSV_SAMPLE_BYTES
    while left and len(piece := text.read_buffer(left)):
        pieces.append(piece)
        left -= len(piece)
    return pa.BufferReader(pieces[0] if len(pieces) == 1 else b"".join(map(memoryview, pieces)))


def further(error: str, rows: int) -> str:
    """What Arrow says of a row of a block, as that of a file."""
    return re.sub(r"Row #(\d+)", lambda found: f"Row #{int(found[1]) + rows}", error)


def longest_row(text: Any, delimiter: str = ",") -> int:
    """The bytes of the longest row of a CSV text, line breaks in quotes included.

    >>> import io
    >>> longest_row(io.BytesIO(b'a,b\\n1,"x\\ny"\\n22,z'))
    8
    """
    records = Records(delimiter)
    longest = start = at = 0
    while data := text.read(CSV_BLOCK_BYTES):
        for end in at + records.ends(data):
            longest, start = max(longest, int(end) - start), int(end)
        at += len(data)
    return max(longest, at - start)
