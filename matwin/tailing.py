"""`matwin.tail`: rows of a file that grows, of a folder in which files appear, or of a pipe.

    bytes that are there ──frames──▶ batches ──▶ None where nothing is there now
         │ nothing more                 └── noted: row, byte, line, and which file it is
         ▼
    truncated?  finish its copy, then begin the file anew
    renamed?    finish it, then go on with the next one of the name
    drained?    end

A mark is where rows begin: the number of the row, the byte and line, and what the file is known by
(`rotation.py`), so that another file of that name is not taken for it.

Invariants: every row comes once, through both kinds of rotation; what has not ended with a newline
is read only when its file is finished.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .folder import folder_source
from .framing import Frame, Framer, Framing, format_of, told_schema
from .growing import STDIN, Growing, Input, Marks, Switch, input_of
from .jsonl import CHUNK_BYTES, SAMPLE_BYTES
from .places import is_folder
from .reading import Source
from .rotation import (
    Older,
    Opened,
    copy_of,
    following,
    found_again,
    older_than,
    oldest,
    unread_copy,
)
from .sources import Once

SAMPLE_MAX = 2 * SAMPLE_BYTES


def tail(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    schema: pa.Schema | None = None,
    from_end: bool = False,
    from_oldest: bool = False,
    rotated: bool = True,
    once: bool = False,
    name: str | None = None,
) -> Source:
    """The rows of a file that somebody still writes to, as they come.

    * `path`: a file of JSON lines, CSV or an Arrow stream; a folder or a pattern such as
      ``"in/*.parquet"``, whose files are taken whole, in the order of their names; a named pipe;
      ``"-"`` is standard input.
    * `format`: ``"jsonl"``, ``"csv"``, ``"tsv"`` or ``"arrow"`` (in a folder also ``"parquet"``);
      None: the suffix tells.
    * `schema`: the columns; None: what is there tells.  A file that is not there yet needs one.
    * `from_end`: begin behind what is there.  `from_oldest`: begin with the oldest rotated file
      that is there (``log.2``, ``log.1``, ``log``), not with the file of the name.
    * `rotated`: go on with the next file when this one is renamed or truncated.  Without it, a
      file ends when it is removed, and one that becomes shorter is an error.
    * `once`: take what is there, then end.  `drain()` does so later.

    Files and folders can be read again from where a continuous query has committed; pipes can't.

    >>> import matwin, pathlib, tempfile
    >>> log = pathlib.Path(tempfile.mkdtemp(), "log.jsonl")
    >>> _ = log.write_text('{"t": 1}\\n{"t": 2}\\n{"t"')
    >>> [row for batch in matwin.tail(log, once=True).batches() for row in batch.to_pylist()]
    [{'t': 1}, {'t': 2}]
    """
    given = os.fsdecode(path)
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InputError(f"schema is a {type(schema).__name__}; give a pyarrow.Schema")
    switch = Switch(once)
    if given == STDIN:
        return _piped(given, format or "jsonl", schema, switch, name or "stdin")
    place = Path(given).expanduser()
    called = name or place.name
    is_pattern = glob.has_magic(given) and not os.path.lexists(place)
    if is_pattern or is_folder(place):
        if from_end or from_oldest or not rotated:
            raise InputError(f"{called}: from_end=, from_oldest= and rotated= are for a file")
        return folder_source(str(place), format, schema, switch, called)
    where = f"{called}: file {given!r}"
    kind = format_of(given, format, where)
    if _is_pipe(place):
        return _piped(str(place), kind, schema, switch, called)
    framing = Framing(kind, _schema(place, kind, schema, where), schema is not None)
    if from_oldest and (from_end or not rotated):
        raise InputError(f"{where}: from_oldest= goes with rotated=True, and without from_end=")
    begin = _end(place, framing, where) if from_end else None
    return Tail(called, framing.schema, False, None, None, switch, place, framing, Marks(), begin,
                rotated, from_oldest)  # fmt: skip


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _schema(path: Path, format: Any, schema: pa.Schema | None, where: str) -> pa.Schema:
    """The columns that are declared, or that the first bytes tell."""
    if schema is not None:
        return schema
    try:
        with path.open("rb") as file:
            found = told_schema(format, file.read(SAMPLE_MAX), where)
    except FileNotFoundError as e:
        raise InputError(
            f"{where} is not there; give schema= to wait for it, or mend the name"
        ) from e
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be opened: {e}") from e
    if found is None:
        raise InputError(f"{where} has no row yet to tell its columns; declare them with schema=")
    return found


def _end(path: Path, framing: Framing, where: str) -> dict[str, Any] | None:
    """The mark behind the last whole line."""
    if framing.format == "arrow":
        raise InputError(f"{where}: from_end= is for lines; an Arrow stream is read from its start")
    try:
        file = Opened(path, where)
    except FileNotFoundError:
        return None
    lines = place = 0
    while data := file.read(CHUNK_BYTES):
        if b"\n" in data:
            place = file.place - len(data) + data.rindex(b"\n") + 1
            lines += data.count(b"\n")
    file.seek(place)
    mark = {"row": 0, "offset": place, "line": lines, **file.told(),
            "older": older_than(file, path)}  # fmt: skip
    file.close()
    return mark if place else None


@dataclass(frozen=True)
class Tail(Growing):
    """A file that grows.  Make one with `tail`."""

    path: Path
    framing: Framing
    marks: Marks
    begin: dict[str, Any] | None
    """Where the first reading begins; None: with the first row."""
    rotated: bool
    from_oldest: bool

    @property
    def where(self) -> str:
        """How messages call the file."""
        return f"{self.name}: file {str(self.path)!r}"

    @property
    def paths(self) -> tuple[str, ...]:
        return (str(self.path),)

    @property
    def cursor(self) -> object:
        return self.marks

    def pieces(self) -> Generator[Any]:
        return _Reading(self, self.begin, Marks()).pieces()

    def items_from(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on, None where nothing is there now."""
        self.marks.clear()
        return self.portions(_Reading(self, mark or self.begin, self.marks).pieces())

    def mark(self, row: int) -> tuple[Any, int]:
        """Where to begin for a row, and the rows before it from there on."""
        return self.marks.find(row)


class _Reading:
    """One reading of a file, through its rotations."""

    def __init__(self, source: Tail, mark: dict[str, Any] | None, marks: Marks) -> None:
        self._source, self._mark, self._marks = source, mark, marks
        self._row = mark["row"] if mark else 0
        self._count = min(CHUNK_BYTES, source.share.portion_bytes)
        self._file: Opened | None = None
        self._older: Older | None = None
        self._first_row: int | None = None
        """Of the file, where it was read from its beginning."""
        self._framer: Framer = self._fresh()
        self._is_over = False

    def _fresh(self) -> Framer:
        return self._source.framing.framer(self._source.where, self._source.share)

    def pieces(self) -> Generator[Any]:
        """Batches as they come, None where nothing is there now."""
        try:
            yield from self._pieces()
        except OSError as e:
            raise InputError(f"{self._source.where} can't be read: {e.strerror}") from e
        finally:
            if self._file is not None:
                self._file.close()

    def _pieces(self) -> Iterator[Any]:
        if self._mark is not None:
            self._file = self._resumed(self._mark)
            self._marks.note(self._row, self._mark)
        while not self._is_over:
            data = self._file.read(self._count) if self._file is not None else b""
            if (copy := self._unread_copy()) is not None:
                self._begin(copy)
            elif data:
                self._note_beginning()
                yield from self._rows(self._framer.add(data))
            else:
                yield from self._look_around()

    def _resumed(self, mark: dict[str, Any]) -> Opened:
        """The file of a mark, at its place, its head read."""
        file = found_again(self._source.path, mark, self._source.where)
        self._older = mark.get("older")
        self._first_row = None if mark["offset"] else self._row
        if mark["offset"]:
            at = 0
            while not self._framer.has_head:
                data = os.pread(file.fd, self._count, at)
                self._framer.add(data)
                at += len(data)
            self._framer.seek(mark["offset"], mark["line"])
        return file

    def _rows(self, frames: list[Frame]) -> Iterator[pa.RecordBatch]:
        for frame in frames:
            self._note(frame.place, frame.line)
            self._row += frame.rows.num_rows
            yield frame.rows
        # Behind the last one, for whoever has taken all of them.
        self._note(self._framer.place, self._framer.line)

    def _note_beginning(self) -> None:
        """A file's first byte can always be begun with, once something is known of the file."""
        if self._framer.place == 0:
            self._note(0, 0)

    def _note(self, place: int, line: int) -> None:
        assert self._file is not None
        if place == 0 or not self._framer.is_linked:
            mark = {"row": self._row, "offset": place, "line": line, **self._file.told(),
                    "older": self._older}  # fmt: skip
            self._marks.note(self._row, mark)

    # ── when nothing more is there ───────────────────────────────────────────────────────────

    def _look_around(self) -> Iterator[Any]:
        """Nothing more is there now: the file is finished, or goes on elsewhere, or later."""
        file = self._file
        if file is None:
            path = self._source.path
            yield from self._open(oldest(path) if self._source.from_oldest else path)
        elif file.is_truncated:
            yield from self._truncated(file)
        elif self._source.rotated and (after := self._following(file)) is not None:
            yield from self._finished(file)
            yield from self._open(after)
        elif not self._source.rotated and file.is_removed:
            yield from self._finished(file)
            self._is_over = True
        else:
            yield from self._wait()

    def _following(self, file: Opened) -> Path | None:
        return following(file, self._source.path, self._older)

    def _wait(self) -> Iterator[None]:
        if self._source.switch.is_on:
            self._is_over = True
            return
        yield None
        self._source.switch.wait()

    def _open(self, path: Path) -> Iterator[Any]:
        """Begin a file; there may be none yet."""
        try:
            found = Opened(path, self._source.where)
        except FileNotFoundError:
            yield from self._wait()
            return
        self._begin(found)

    def _begin(self, found: Opened) -> None:
        self._take(found)
        self._framer, self._first_row = self._fresh(), self._row

    def _take(self, found: Opened) -> None:
        """Go on with another file."""
        before = None if self._file is None else self._file.inode
        if self._source.rotated:
            self._older = older_than(found, self._source.path, self._older, before)
        if self._file is not None:
            self._file.close()
        self._file = found

    def _unread_copy(self) -> Opened | None:
        """What the file was before it was truncated, where no row of that had been read: then its
        first bytes don't tell."""
        if self._file is None or self._row != self._first_row or not self._source.rotated:
            return None
        return unread_copy(self._file, self._source.path, self._older)

    def _finished(self, file: Opened) -> Iterator[Any]:
        """What its writer has added before leaving it, and a last line without a newline."""
        while data := file.read(self._count):
            yield from self._rows(self._framer.add(data))
        yield from self._rows(self._framer.finish())

    def _truncated(self, file: Opened) -> Iterator[Any]:
        """Go on in the copy that was made before, or at the beginning."""
        if not self._source.rotated:
            raise InputError(f"{self._source.where} has become shorter while it was followed")
        copy = copy_of(file, self._source.path, self._older)
        if copy is not None:
            self._take(copy)
            return
        if self._framer.has_half:
            raise InputError(
                f"{self._source.where} was truncated in the middle of line "
                f"{self._framer.line + 1}, and there is no copy of what it was; rotate it with "
                "copytruncate, or by renaming"
            )
        yield from self._open(self._source.path)


# ── pipes ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Piped(Growing):
    """Bytes that come once: standard input, a named pipe."""

    given: Once
    framing: Framing

    def pieces(self) -> Generator[Any]:
        source, first = self.given.take(self.name)
        framer = self.framing.framer(source.where, self.share)
        return _framed(source, framer, first, self.switch)


def _framed(source: Input, framer: Framer, first: bytes, switch: Switch) -> Generator[Any]:
    """The rows of an input, the first bytes of which were read already."""
    data: bytes | None = first
    try:
        while data is not None and not framer.is_over:
            yield from (frame.rows for frame in framer.add(data)) if data else (None,)
            data = source.data()
            if not data and switch.is_on:
                break
        if data is None and not framer.is_over:
            yield from (frame.rows for frame in framer.finish())
    finally:
        source.close()


def _piped(path: str, format: str, schema: pa.Schema | None, switch: Switch, name: str) -> Piped:
    source = input_of(path, name, lambda: False)
    kind = format_of(path, format, source.where)
    first = b""
    found = schema
    while found is None:
        data = source.data()
        first += data or b""
        found = told_schema(kind, first, source.where)
        if found is None and (data is None or len(first) > SAMPLE_MAX):
            source.close()
            raise InputError(
                f"{source.where} ended without a row to tell its columns; declare them with schema="
            )
    framing = Framing(kind, found, schema is not None)
    return Piped(
        name, framing.schema, False, None, None, switch, Once((source, first), source), framing
    )
