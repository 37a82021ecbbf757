"""CSV files: text with a header line, read in blocks.

    the first 8 MiB  ─▶  the types of the columns
    blocks           ─▶  rows; a block grows where a row is longer, as far as the share has room

A block is 1 MiB at most, and less in small budgets: Arrow reads 32 of them ahead.

Left out: types that show only after the first 8 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from matwin.storage.machine import release_unused
from matwin.storage.units import format_size

from .file import COMPRESSED, File
from .shares import ReadShare

CSV_BLOCK_BYTES_MIN, CSV_BLOCK_BYTES = 2**16, 2**20
CSV_BLOCKS_AHEAD = 32
CSV_SAMPLE_BYTES = 8 * 2**20

_LONG_ROW = ("straddl", "Empty CSV file or block")
"""What Arrow says of a row that is longer than a block; the latter where it is the header."""


class Csv(File):
    """Text with a header line, perhaps compressed."""

    @property
    def _delimiter(self) -> str:
        return "\t" if ".tsv" in Path(self.path.lower()).suffixes else ","

    def _opened(self, text: Any, block_bytes: int, columns: Sequence[str] | None = None) -> Any:
        types = {} if self.schema is None else {f.name: f.type for f in self.schema}
        return pa_csv.open_csv(
            text,
            # Without threads the rows are counted in messages, and no blocks are read ahead.
            read_options=pa_csv.ReadOptions(block_size=block_bytes, use_threads=False),
            # A quoted line break may fall on the edge of a block; looking for them costs nothing.
            parse_options=pa_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=types, include_columns=columns),
        )

    def described(self) -> File:
        is_compressed = self.path.lower().endswith(COMPRESSED)
        with self._text() as text, self._opened(_head(text), CSV_SAMPLE_BYTES) as reader:
            schema = reader.schema
        del reader
        release_unused()  # the sample, which took several times its size
        return replace(self, schema=schema, bytes_hint=None if is_compressed else self.size)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        # Arrow reads 32 blocks ahead, so they are small, and grow where a row is longer than one.
        block = max(CSV_BLOCK_BYTES_MIN, min(share.portion_bytes // 2, CSV_BLOCK_BYTES))
        done = 0
        while True:
            try:
                for batch in self._rest(columns, block, done):
                    done += batch.num_rows
                    yield batch
                return
            except pa.ArrowInvalid as e:
                if not any(words in str(e) for words in _LONG_ROW):
                    raise
                block = self._larger(block, share)

    def _rest(self, columns: Sequence[str], block: int, first: int) -> Iterator[pa.RecordBatch]:
        """The rows from a number on."""
        with self._text() as text, self._opened(text, block, columns) as reader:
            for batch in reader:
                if first < batch.num_rows:
                    yield batch.slice(first)
                first = max(first - batch.num_rows, 0)

    def _larger(self, block: int, share: ReadShare) -> int:
        """A block for rows that are longer than this one, if the share has room for it."""
        # The blocks ahead are open while rows are read, as Parquet's pages are.
        largest = share.whole_bytes // CSV_BLOCKS_AHEAD
        if block < largest:
            return min(2 * block, largest)
        with self._text() as text:
            size = longest_row(text)
        raise share.refusal(
            f"file {self.path!r}: a row takes {format_size(size)} and 32 of them are read ahead",
            max(size, largest + 1) * CSV_BLOCKS_AHEAD,
            "write it as Parquet",
        )

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
    def _delimiter(self) -> str:
        return "\t"


def _head(text: Any) -> pa.BufferReader:
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


def longest_row(text: Any) -> int:
    """The bytes of the longest row of a CSV text, line breaks in quotes included.

    >>> import io
    >>> longest_row(io.BytesIO(b'a,b\\n1,"x\\ny"\\n22,z'))
    8
    """
    longest = start = at = quotes = 0
    while data := text.read(CSV_BLOCK_BYTES):
        found = np.frombuffer(data, np.uint8)
        inside = (quotes + np.cumsum(found == ord('"'))) & 1
        ends = at + 1 + np.flatnonzero((found == ord("\n")) & (inside == 0))
        longest = max(longest, int(np.diff(ends, prepend=start).max(initial=0)))
        start, quotes = int(ends[-1]) if len(ends) else start, int(inside[-1])
        at += len(data)
    return max(longest, at - start)
