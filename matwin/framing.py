"""Bytes of a file or peer as batches, by format: only what has come whole.

    bytes as they come ──add──▶ JSON lines, CSV records, Arrow messages ──▶ Frame(rows, place, line)
                                └── what has not ended waits

A frame says where it begins: a reading that begins there again, after the head (CSV's header,
Arrow's schema), gives the same rows.

Invariants:
* The rows are the same however the bytes were cut on their way.
* What can't be read is an `InputError` that names the source and the line (Arrow: the byte).
* A line has at most `LINE_BYTES_MAX` bytes, an Arrow message what the source may hold as a whole.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv

from matwin.storage.encodings import plain_schema
from matwin.storage.errors import InputError
from matwin.storage.names import listed
from matwin.storage.units import format_size

from .csv_values import Values, header_of, read_records
from .growing import Lines
from .hints import did_you_mean
from .ipc_layout import (
    DICTIONARY,
    MAGIC,
    METADATA_BYTES_MAX,
    RECORDS,
    SCHEMA,
    Malformed,
    Message,
    message_at,
)
from .jsonl import SAMPLE_LINES, Reading, check_length, schema_of
from .reading import checked_schema, first_line, guarded
from .records import Records
from .shares import ReadShare
from .sources import fitted

Format = Literal["jsonl", "csv", "tsv", "arrow"]
FORMATS: tuple[Format, ...] = get_args(Format)
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv",
    ".arrow": "arrow", ".arrows": "arrow", ".ipc": "arrow",
}  # fmt: skip
_ROW = re.compile(r"(?:In CSV column #(?P<column>\d+): )?(?:CSV parse error: )?Row #(?P<row>\d+): ")


class Frame(NamedTuple):
    """Rows, and where they begin."""

    rows: pa.RecordBatch
    place: int
    """Bytes before them."""
    line: int
    """Lines before them."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How the bytes of a source become batches."""

    format: Format
    schema: pa.Schema
    is_declared: bool
    """Whether somebody has said what the columns are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", plain_schema(self.schema))

    def framer(self, where: str, share: ReadShare) -> Framer:
        """What frames the bytes of one file or peer."""
        return _FRAMERS[self.format](where, self, share)


class Framer(ABC):
    """The bytes of one file or peer while they come."""

    def __init__(self, where: str, framing: Framing, share: ReadShare) -> None:
        self.where, self.framing, self.share = where, framing, share
        self.place = 0
        """Bytes that are in frames, or before them."""
        self.line = 0
        self.is_over = False
        """Whether the bytes themselves have said that they end."""

    is_certain: ClassVar[bool] = True
    """Whether half a row can be told from a whole one that ends without a newline."""

    @property
    def is_linked(self) -> bool:
        """Whether frames need what came before them, so that reading can't begin with one."""
        return False

    def add(self, data: bytes) -> list[Frame]:
        """What has come whole with these bytes, and can be read."""
        return list(self.each(data))

    @abstractmethod
    def each(self, data: bytes) -> Iterator[Frame]:
        """The same; what stands before something that can't be read is given first."""

    @abstractmethod
    def finish(self) -> list[Frame]:
        """What is left when no more bytes come; an error where that is half of something."""

    @property
    @abstractmethod
    def has_half(self) -> bool:
        """Whether something has begun and not ended."""

    @property
    def has_head(self) -> bool:
        """Whether what comes before the first row is known."""
        return True

    def seek(self, place: int, line: int) -> None:
        """Go on elsewhere; the head is known."""
        self.place, self.line = place, line


class JsonFramer(Framer):
    """One object on each line."""

    def __init__(self, where: str, framing: Framing, share: ReadShare) -> None:
        super().__init__(where, framing, share)
        self._lines = Lines(where)
        self._reading = Reading(where, framing.schema, framing.is_declared)

    @property
    def has_half(self) -> bool:
        return self._lines.rest_bytes > 0

    def each(self, data: bytes) -> Iterator[Frame]:
        texts, number = self._lines.add(data), self._lines.number
        try:
            found = self._frames(texts)
        except InputError:
            if len(texts) == 1:
                raise
            self._lines.number = number
            for text in texts:
                yield from self._frames([text])
            return
        yield from found

    def finish(self) -> list[Frame]:
        last = self._lines.finish()
        return self._frames(last, newline_bytes=0) if last[0] else []

    def seek(self, place: int, line: int) -> None:
        super().seek(place, line)
        self._lines = Lines(self.where, line)

    def _frames(self, texts: list[bytes], newline_bytes: int = 1) -> list[Frame]:
        place, line = self.place, self.line
        lines = self._lines.parsed(texts)
        self.place += sum(map(len, texts)) + newline_bytes * len(texts)
        self.line = self._lines.number
        return [Frame(self._reading.batch(lines), place, line)] if lines else []


class CsvFramer(Framer):
    """Records with a header; a record ends with a newline outside of quotes."""

    is_certain = False

    def __init__(self, where: str, framing: Framing, share: ReadShare) -> None:
        super().__init__(where, framing, share)
        self._delimiter = "\t" if framing.format == "tsv" else ","
        self._values = Values(self._delimiter, framing.schema, framing.schema.names)
        self._names: list[str] | None = None
        self._forget()

    def _forget(self) -> None:
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._records = Records(self._delimiter)

    @property
    def has_half(self) -> bool:
        return self._rest_bytes > 0

    @property
    def has_head(self) -> bool:
        return self._names is not None

    def seek(self, place: int, line: int) -> None:
        super().seek(place, line)
        self._forget()

    def each(self, data: bytes) -> Iterator[Frame]:
        first, whole = self._records.cut(data)
        if self._names is None and first:  # the header by itself: the rest is parsed below it
            self._head(b"".join([*self._rest, data[:first]]))
            self._forget()
            yield from self.each(data[first:]) if data[first:] else ()
            return
        text = b"".join([*self._rest, data[:whole]]) if whole else b""
        if whole:
            self._rest, self._rest_bytes = [], 0
        self._rest.append(data[whole:])
        self._rest_bytes += len(data) - whole
        check_length(self._rest_bytes, self.line + text.count(b"\n") + 1, self.where)
        try:
            found = self._frames(text) if text else []
        except InputError:
            ends = Records(self._delimiter).ends(text).tolist()
            if len(ends) < 2:
                raise
            for begin, end in pairwise([0, *ends]):
                yield from self._frames(text[begin:end])
            return
        yield from found

    def finish(self) -> list[Frame]:
        text = b"".join(self._rest)
        self._forget()
        if self._names is None:
            if text:
                self._head(text)
            return []
        return self._frames(text) if text else []

    def _head(self, text: bytes) -> None:
        self._names = header_of(text, self._delimiter, self.where)
        for name in self.framing.schema.names:
            if name not in self._names:
                near = did_you_mean(name, self._names)
                raise InputError(
                    f"{self.where}: line 1 has no column {name!r}{near}; there are "
                    f"{listed(self._names)}"
                )
        if not self.framing.is_declared:
            for name in self._names:
                if name not in self.framing.schema.names:
                    raise InputError(
                        f"{self.where}: line 1 has a column {name!r}, which was not there before; "
                        "declare the columns with schema="
                    )
        self.place += len(text)
        self.line += text.count(b"\n")

    def _frames(self, text: bytes) -> list[Frame]:
        place, line = self.place, self.line
        assert self._names is not None
        try:
            rows = self._values.table(text, self._names).cast(self.framing.schema)
        except pa.ArrowException as e:
            raise self._explained(text, str(first_line(e))) from e
        self.place += len(text)
        self.line += text.count(b"\n")
        batches = rows.combine_chunks().to_batches()
        return [Frame(batches[0], place, line)] if batches and batches[0].num_rows else []

    def _explained(self, text: bytes, error: str) -> InputError:
        found = _ROW.search(error)
        line, column = self.line + 1, ""
        if found is not None:
            assert self._names is not None
            line += _lines_before(text, int(found["row"]), empty_is_row=len(self._names) == 1)
            if found["column"] is not None:
                column = f"column {self._names[int(found['column'])]!r}: "
            error = error[found.end() :]
        return InputError(
            f"{self.where}: line {line}: {column}{error}; mend the line, or declare the columns "
            "with schema="
        )


def _lines_before(text: bytes, row: int, *, empty_is_row: bool) -> int:
    """The lines before a record; records count from 1."""
    begin = quotes = 0
    for number, part in enumerate(text.split(b"\n")):
        if quotes == 0:
            begin = number
            row -= empty_is_row or bool(part.strip(b"\r"))
        quotes = (quotes + part.count(b'"')) & 1
        if row == 0:
            break
    return begin


class ArrowFramer(Framer):
    """Messages of an Arrow stream; a batch is decoded with the schema and dictionaries before."""

    def __init__(self, where: str, framing: Framing, share: ReadShare) -> None:
        super().__init__(where, framing, share)
        self._data = b""
        self._schema = b""
        self._dictionaries = b""

    @property
    def is_linked(self) -> bool:
        return bool(self._dictionaries)

    @property
    def has_head(self) -> bool:
        return bool(self._schema)

    @property
    def has_half(self) -> bool:
        return bool(self._data)

    def seek(self, place: int, line: int) -> None:
        super().seek(place, line)
        self._data = self._dictionaries = b""  # a linked frame is not a place to begin
        self.is_over = False

    def each(self, data: bytes) -> Iterator[Frame]:
        if self.is_over:
            raise InputError(f"{self.where}: at byte {self.place} it goes on after its end")
        self._data += data
        at = 0
        while True:
            frames: list[Frame] = []
            end = self._next(at, frames)
            yield from frames
            if end == at:
                break
            at = end
        self._data = self._data[at:]

    def finish(self) -> list[Frame]:
        if self._data:
            raise InputError(
                f"{self.where}: it ends in the middle of the message at byte {self.place}"
            )
        return []

    def _next(self, at: int, frames: list[Frame]) -> int:
        """Behind the message at a place, if it is whole; else the place."""
        if self.is_over:
            return at
        try:
            message = whole_message(self._data, at)
        except (Malformed, ValueError) as e:
            raise InputError(
                f"{self.where}: at byte {self.place} is no Arrow stream: {first_line(e)}"
            ) from e
        if message is None:
            return at
        if isinstance(message, int):
            self.is_over = True
            self.place += message - at
            return message
        if message.body_bytes > self.share.whole_bytes:
            raise self.share.refusal(
                f"{self.where}: the message at byte {self.place} takes "
                f"{format_size(message.body_bytes)}", message.body_bytes, "write smaller batches",
            )  # fmt: skip
        if message.end > len(self._data):
            return at
        self._take(message, self._data[at : message.end], frames)
        self.place += message.end - at
        return message.end

    def _take(self, message: Message, data: bytes, frames: list[Frame]) -> None:
        if message.kind == SCHEMA:
            self._schema = data
            fitted(empty_batch(self._opened(b"").schema), self.framing.schema, self.where)
        elif message.kind == DICTIONARY:
            self._dictionaries += data
        elif message.kind == RECORDS:
            for batch in self._decoded(data):
                if batch.num_rows:
                    rows = fitted(batch, self.framing.schema, self.where)
                    frames.append(Frame(rows, self.place, 0))

    def _decoded(self, data: bytes) -> list[pa.RecordBatch]:
        """The batch of a message, with what it needs before it."""
        return list(guarded(self._opened(data), self._message))

    def _opened(self, data: bytes) -> pa.RecordBatchReader:
        try:
            return pa.ipc.open_stream(pa.py_buffer(self._schema + self._dictionaries + data))
        except (pa.ArrowException, OSError, ValueError) as e:
            raise InputError(f"{self._message} can't be read: {first_line(e)}") from e

    @property
    def _message(self) -> str:
        return f"{self.where}: the message at byte {self.place}"


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of a schema."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def whole_message(data: bytes, at: int) -> Message | int | None:
    """The message at a place, whose body may be still to come; where the stream ends, if that is
    there; None where not even its metadata has come."""
    if data[at : at + len(MAGIC)] == MAGIC:
        raise Malformed("it is an Arrow file, which is written whole; read it by its path")
    start = at + 8
    if len(data) < start:
        return None
    length = int.from_bytes(data[at : at + 4], "little", signed=True)
    if length == -1:
        length = int.from_bytes(data[at + 4 : start], "little", signed=True)
    else:
        start = at + 4  # older writers do without
    if length == 0:
        return start
    if 0 < length <= METADATA_BYTES_MAX and len(data) < start + length:
        return None
    return message_at(lambda place, count: data[place : place + count], at)


_FRAMERS: dict[str, type[Framer]] = {
    "jsonl": JsonFramer, "csv": CsvFramer, "tsv": CsvFramer, "arrow": ArrowFramer,
}  # fmt: skip


# ── what the first bytes tell ────────────────────────────────────────────────────────────────


def told_schema(format: Format, data: bytes, where: str) -> pa.Schema | None:
    """The columns that the first bytes tell; None where too few have come."""
    found = _TOLD[format](data, where)
    return None if found is None else checked_schema(found, where)


def _told_by_lines(data: bytes, where: str) -> pa.Schema | None:
    lines = Lines(where)
    found = lines.parsed(lines.add(data)[:SAMPLE_LINES])
    return schema_of(found, where) if found else None


def _told_by_records(data: bytes, where: str, delimiter: str = ",") -> pa.Schema | None:
    head, whole = Records(delimiter).cut(data)
    if whole == head:
        return None
    names = header_of(data[:head], delimiter, where)
    try:
        rows = read_records(data[head:whole], delimiter, names, pa_csv.ConvertOptions())
    except pa.ArrowException as e:
        raise InputError(f"{where}: {first_line(e)}; mend it, or declare its columns") from e
    if not rows.num_rows:
        return None
    types = [pa.string() if pa.types.is_null(t) else t for t in rows.schema.types]
    return pa.schema(list(zip(names, types, strict=True)))


def _told_by_tabs(data: bytes, where: str) -> pa.Schema | None:
    return _told_by_records(data, where, "\t")


def _told_by_messages(data: bytes, where: str) -> pa.Schema | None:
    try:
        message = whole_message(data, 0)
        if not isinstance(message, Message) or message.end > len(data):
            return None
        return pa.ipc.open_stream(pa.py_buffer(data[: message.end])).schema
    except (Malformed, pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"{where}: it is no Arrow stream: {first_line(e)}") from e


_TOLD: dict[str, Any] = {
    "jsonl": _told_by_lines, "csv": _told_by_records, "tsv": _told_by_tabs,
    "arrow": _told_by_messages,
}  # fmt: skip


def format_of(path: str, format: str | None, where: str) -> Format:
    """The format that is named, or that a file's suffix tells."""
    found = _SUFFIXES.get(Path(path).suffix.lower()) if format is None else format
    if found in FORMATS:
        return found
    if format is not None:
        near = did_you_mean(format, FORMATS)
        raise InputError(
            f"{where}: format={format!r}{near} does not grow; choose one of {', '.join(FORMATS)}"
        )
    raise InputError(
        f"{where}: its suffix does not tell a format that grows; give format= as one of "
        f"{', '.join(FORMATS)}, or a folder for files that are written whole"
    )
