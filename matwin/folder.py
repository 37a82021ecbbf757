"""A folder in which files appear: each is read whole, in the order of their names.

    in/_tmp   in/2024-05-02.parquet.part       not complete: left alone
    in/2024-05-01.parquet  ✓ read
    in/2024-05-02.parquet  ◀ next

A file is complete when its name is neither hidden (`.`, `_`) nor says otherwise (`.part`, `.tmp`):
write it under such a name, then rename it.

Invariants:
* The names that are taken ascend.  A file that appears with a name below one that was taken is an
  error, because its rows would never come.
* The columns are those of the first file, or declared; types are brought to them, no value changed.
* A mark is a file's name and size, and a row in it.  Files before it may be gone; that one may not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.storage.encodings import plain_schema
from matwin.storage.errors import InputError

from .csv_file import Csv
from .file import File, described_file
from .files import sum_of
from .formats import Ipc, JsonLines, Parquet, file_format
from .growing import Growing, Marks, Switch
from .places import Place, is_folder
from .reading import Source

UNFINISHED = (".part", ".tmp")
LOOK_SHARE = 10
"""Looking at a folder takes at most a tenth of the time, however many files it has."""
_FORMATS: dict[str, type[File]] = {
    "jsonl": JsonLines, "csv": Csv, "tsv": Csv, "arrow": Ipc, "parquet": Parquet,
}  # fmt: skip


def folder_source(
    given: str, format: str | None, schema: pa.Schema | None, switch: Switch, name: str
) -> Source:
    """The source of a folder, or of a pattern for the files in it."""
    path = Path(given)
    folder, pattern = (path, "*") if is_folder(path) else (path.parent, path.name)
    where = f"{name}: folder {str(folder)!r}"
    if not is_folder(folder):
        raise InputError(f"{where} is not there; make it, or mend the name")
    if format is not None and format not in _FORMATS:
        raise InputError(f"{where}: format={format!r}; choose one of {', '.join(_FORMATS)}")
    declared = schema if schema is None else plain_schema(schema)
    found = Folder(name, declared, False, None, None, switch, folder, pattern, format,
                   schema is not None, Marks())  # fmt: skip
    if schema is not None:
        return found
    first = next(iter(found.names()), None)
    if first is None:
        raise InputError(
            f"{where} has no complete file yet to tell its columns; declare them with schema="
        )
    return found.with_schema(found.file(first).schema)


@dataclass(frozen=True)
class Folder(Growing):
    """Files that appear in a folder.  Make one with `matwin.tail`."""

    folder: Path
    pattern: str
    format: str | None
    is_declared: bool
    marks: Marks

    def with_schema(self, schema: pa.Schema) -> Folder:
        """The same files with these columns."""
        return Folder(self.name, plain_schema(schema), False, None, None, self.switch, self.folder,
                      self.pattern, self.format, False, self.marks, share=self.share)  # fmt: skip

    def names(self) -> list[str]:
        """The complete files that are there now, in order."""
        try:
            with os.scandir(self.folder) as found:
                names = [entry.name for entry in found if entry.is_file()]
        except OSError as e:
            raise InputError(
                f"{self.name}: folder {str(self.folder)!r} can't be listed: {e.strerror}"
            ) from e
        return sorted(filter(self._is_wanted, names))

    def _is_wanted(self, name: str) -> bool:
        if name.startswith((".", "_")) or name.endswith(UNFINISHED):
            return False
        is_known = self.format is not None or file_format(name) is not None
        return fnmatchcase(name, self.pattern) and (is_known or self.pattern != "*")

    def file(self, name: str) -> File:
        """A file with what it says of itself."""
        path = str(self.folder / name)
        kind = file_format(name) if self.format is None else _FORMATS[self.format]
        if kind is None:
            raise InputError(
                f"{self.name}: file {path!r}: its suffix tells no format; give format= as one of "
                f"{', '.join(_FORMATS)}"
            )
        declared = self.schema if kind in (JsonLines, Csv) else None
        return described_file(Place(path, path), self.name, kind, declared)

    @property
    def cursor(self) -> object:
        return self.marks

    def pieces(self) -> Generator[Any]:
        return _Reading(self, None, Marks()).pieces()

    def items_from(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on, None where nothing is there now."""
        self.marks.clear()
        return self.portions(_Reading(self, mark, self.marks).pieces())

    def mark(self, row: int) -> tuple[Any, int]:
        """Where to begin for a row, and the rows before it from there on."""
        return self.marks.find(row)


class _Reading:
    """One reading of a folder."""

    def __init__(self, source: Folder, mark: dict[str, Any] | None, marks: Marks) -> None:
        self._source, self._mark, self._marks = source, mark, marks
        self._row = mark["row"] if mark else 0
        self._last = ""
        """The last file that was taken."""
        self._seen: set[str] | None = None
        """The names up to it; None: not looked at yet."""
        self._rest_until = 0.0

    def pieces(self) -> Generator[Any]:
        """Batches as they come, None where nothing is there now."""
        if self._mark is not None:
            yield from self._resumed(self._mark)
        while True:
            new = self._new()
            for name in new:
                yield from self._file(name, 0)
            if new:
                continue
            if self._source.switch.is_on:
                return
            yield None
            self._source.switch.wait()

    def _resumed(self, mark: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """The rest of the file that was being read."""
        self._marks.note(self._row, mark)
        if mark["is_done"]:
            self._last = mark["file"]
            return
        path = self._source.folder / mark["file"]
        where = f"{self._source.name}: file {str(path)!r}"
        try:
            size = path.stat().st_size
        except OSError as e:
            raise InputError(
                f"{where} is not there, and reading was at row {mark['at']} of it; restore it, or "
                "begin anew with another state"
            ) from e
        if size != mark["size"]:
            raise InputError(
                f"{where} has {size} bytes and had {mark['size']} when row {mark['at']} of it was "
                "read; restore it, or begin anew with another state"
            )
        yield from self._file(mark["file"], mark["at"])

    def _new(self) -> list[str]:
        """The files that have appeared, if it is time to look."""
        began = time.monotonic()
        if began < self._rest_until and not self._source.switch.is_on:
            return []
        names = self._source.names()
        self._rest_until = began + LOOK_SHARE * (time.monotonic() - began)
        passed = {name for name in names if name <= self._last}
        self._check_passed(passed)
        self._seen = passed
        return [name for name in names if name > self._last]

    def _check_passed(self, passed: set[str]) -> None:
        late = sorted(passed - self._seen) if self._seen is not None else []
        if late:
            raise InputError(
                f"{self._source.name}: file {str(self._source.folder / late[0])!r} has appeared "
                f"after {self._last!r} was read; give files names that ascend, such as times"
            )

    def _file(self, name: str, first: int) -> Iterator[pa.RecordBatch]:
        """The rows of a file from a number on."""
        file = self._source.file(name)
        self._check_columns(file)
        if self._seen is not None:
            self._seen.add(name)
        self._last = name
        at = 0
        self._note(file, first, is_done=False)
        rows = sum_of([file], self._source.schema, self._source.name).within(self._source.share)
        for batch in rows.batches():
            wanted = batch.slice(max(first - at, 0))
            at += batch.num_rows
            if wanted.num_rows:
                self._note(file, at - wanted.num_rows, is_done=False)
                self._row += wanted.num_rows
                yield wanted
        self._note(file, at, is_done=True)

    def _note(self, file: File, at: int, *, is_done: bool) -> None:
        mark = {"row": self._row, "file": Path(file.path).name, "at": at, "size": file.size,
                "is_done": is_done}  # fmt: skip
        self._marks.note(self._row, mark)

    def _check_columns(self, file: File) -> None:
        where = f"{self._source.name}: file {file.path!r}"
        names, wanted = set(file.schema.names), self._source.schema.names
        for name in wanted:
            if name not in names:
                raise InputError(f"{where} lacks column {name!r}, which the files before have")
        for name in file.schema.names if not self._source.is_declared else ():
            if name not in wanted:
                raise InputError(
                    f"{where} has a column {name!r}, which the files before don't have; declare "
                    "the columns with schema="
                )
