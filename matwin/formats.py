"""The formats of files, and which one a file has: by the ending of its name, or by its first bytes.

    .parquet .pq               columns in row groups, read by their pages       parquet.py
    .csv .tsv                  text, read in blocks                             csv_file.py
    .jsonl .ndjson .json       an object on each line                           jsonl.py
    .arrow .ipc .feather …     Arrow's own, read by its buffers                 ipc.py

CSV and JSON lines may be compressed (``.csv.gz``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError
from matwin.storage.units import format_size

from . import jsonl
from .csv_file import Csv, Tsv
from .file import COMPRESSED, File
from .hints import did_you_mean
from .ipc import batches as ipc_batches
from .ipc import can_be_cut, check_schema, largest_batch
from .ipc_layout import is_little_endian, is_stream
from .parquet import Reader, described, row_groups
from .places import Place
from .row_groups import RowGroup
from .shares import ReadShare


class Parquet(File):
    """Columns in row groups; a row group is decoded piece by piece."""

    def described(self) -> File:
        schema, size, rows = described(self.place)
        return replace(self, schema=schema, bytes_hint=size, rows_hint=rows)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        with (
            self.place.bytes() as get,
            Reader(self.place, get, columns, share, self.groups) as reader,
        ):
            yield from reader.batches()

    def row_groups(self, column: str) -> list[RowGroup] | None:
        return row_groups(self.place, column)


class Ipc(File):
    """Arrow's own format, as a file (with a directory at its end) or as a stream."""

    def _opened(self, columns: Sequence[str] | None) -> Iterator[Any]:
        """The schema, then the batches, decoded by Arrow as they were written."""
        options = pa.ipc.IpcReadOptions()
        if columns is not None:
            options.included_fields = [self.schema.get_field_index(name) for name in columns]
        with self.place.bytes() as get:
            is_plain = is_stream(get, self.size)
        with self.place.file() as file:
            if is_plain:
                reader = pa.ipc.open_stream(file, options=options)
                yield reader.schema
                yield from reader
            else:
                directory = pa.ipc.open_file(file, options=options)
                yield directory.schema
                yield from map(directory.get_batch, range(directory.num_record_batches))

    def described(self) -> File:
        schema = next(self._opened(None))
        with self.place.bytes() as get:
            check_schema(get, self.size, schema)
        return replace(self, schema=schema, bytes_hint=self.size)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        with self.place.bytes() as get:
            schema = next(self._opened(None))
            is_cut = all(can_be_cut(field.type) for field in schema)
            if is_cut and is_little_endian(get, self.size):
                yield from ipc_batches(get, self.size, schema, columns, share, self.path)
                return
            largest, rows = largest_batch(get, self.size, schema, share, self.path)
        self._check_size(largest, share)
        batches = self._opened(columns)
        next(batches)
        for batch in batches:
            rows -= batch.num_rows
            yield batch
        if rows:
            raise ValueError(f"{rows} rows fewer were read than its batches say")

    def _check_size(self, largest: int, share: ReadShare) -> None:
        if largest > share.whole_bytes:
            raise share.refusal(
                f"file {self.path!r}: a batch takes {format_size(largest)} and, with its "
                "dictionaries, unions or runs, can only be read whole",
                largest, "write smaller batches",
            )  # fmt: skip


class JsonLines(File):
    """One object on each line, perhaps compressed."""

    @property
    def _where(self) -> str:
        return f"{self.name}: file {self.path!r}"

    def described(self) -> File:
        is_compressed = self.path.lower().endswith(COMPRESSED)
        hint = None if is_compressed else self.size
        if self.schema is not None:
            return replace(self, bytes_hint=hint)
        with self.place.lines() as lines:
            return replace(self, schema=jsonl.told_schema(lines, self._where), bytes_hint=hint)

    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        own = [field for field in self.schema if field.name not in dict(self.constants)]
        reading = jsonl.Reading(self._where, pa.schema(own), self.is_declared)
        with self.place.lines() as lines:
            yield from jsonl.batches(lines, reading, share.portion_bytes)


_FORMATS: dict[str, type[File]] = {
    ".parquet": Parquet, ".pq": Parquet,
    ".csv": Csv, ".tsv": Csv,
    ".jsonl": JsonLines, ".ndjson": JsonLines, ".json": JsonLines,
    ".arrow": Ipc, ".ipc": Ipc, ".feather": Ipc, ".arrows": Ipc,
}  # fmt: skip


_WORDS: dict[str, type[File]] = {
    "parquet": Parquet, "csv": Csv, "tsv": Tsv, "jsonl": JsonLines, "arrow": Ipc,
}  # fmt: skip


def format_named(word: str) -> type[File]:
    """The format of that name; the other endings of its files are names too."""
    found = _WORDS.get(word.lower()) or _FORMATS.get(f".{word.lower()}")
    if found is None:
        near = did_you_mean(word, _WORDS)
        raise InputError(f"the input format {word!r} is none of {', '.join(_WORDS)}{near}")
    return found


def has_format(path: str) -> bool:
    """Whether a file's name says its format."""
    return file_format(path) is not None


def file_format(path: str) -> type[File] | None:
    """The format that a file's name says."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    is_compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    kind = _FORMATS.get("".join(suffixes[-2:-1] if is_compressed else suffixes[-1:]))
    return kind if not is_compressed or kind in (Csv, JsonLines) else None


def format_of(path: str, where: str) -> type[File]:
    """The format that a file's name tells."""
    kind = file_format(path)
    if kind is None:
        raise InputError(
            f"{where}: its suffix is none of {', '.join(_FORMATS)} or .csv.gz, so its format is "
            "not known; rename it, or read it with pyarrow and pass the reader (on the command "
            "line: say it with --input-format)"
        )
    return kind


def sniffed(place: Place) -> type[File]:
    """The format that the first bytes tell, of a file without a name."""
    with place.bytes() as get:
        start = get(0, 6)
    if start[:4] == b"PAR1":
        return Parquet
    if start == b"ARROW1" or start[:4] == b"\xff\xff\xff\xff":
        return Ipc
    with place.lines() as lines:
        return JsonLines if lines.read(64).lstrip()[:1] == b"{" else Csv
