"""An epoch's result, put down until somebody has taken it.

    query ──batches──▶ spool ──commit──▶ sink, or whoever iterates

With a state folder it is a file there, written and synced before the epoch is committed, so that it
can be delivered after a crash: the commit says that it is whole.  Without one it is in memory as
long as it is small, then in a file without a name.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from matwin.spill import BatchSpill
from matwin.storage.checksum import crc32
from matwin.storage.errors import CorruptPage, StoreError
from matwin.storage.scratch import open_private, os_errors, sync_names

from .query import Rows

MEMORY_SHARE = 8
"""A result of up to an eighth of the memory stays there."""


class Spooled(Protocol):
    """An epoch's result."""

    schema: pa.Schema
    rows: int

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...
    def opened(self) -> Iterator[pa.RecordBatch]:
        """The rows, which stay there for whoever has this, also when the next epoch has come."""

    def close(self) -> None:
        """It is not needed any more."""


class Held:
    """A result without a state folder: in memory, or in a file that has no name."""

    def __init__(self, rows: Rows, limit: int, scratch: str | Path | None) -> None:
        self.schema, self.rows = rows.schema, 0
        self._batches: list[pa.RecordBatch] = []
        self._spill: BatchSpill | None = None
        size = 0
        for batch in rows:
            self.rows += batch.num_rows
            size += batch.nbytes
            if self._spill is None and size > limit:
                self._spill = BatchSpill("the epoch's result", scratch, self.schema)
            if self._spill is None:
                self._batches.append(batch)
            else:
                self._spill.write(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches
        if self._spill is not None:
            yield from self._spill

    def opened(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return iter(self)

    def close(self) -> None:
        """Give the memory back."""
        self._batches = []
        if self._spill is not None:
            self._spill.close()
            self._spill = None


class Kept:
    """A result in a state folder, with the checksum of its file."""

    def __init__(self, path: Path, rows: int, size: int, crc: int) -> None:
        self.path, self.rows, self.size, self.crc = path, rows, size, crc
        with os_errors(path), pa.OSFile(str(path)) as file:
            self.schema = pa.ipc.open_stream(file).schema

    @classmethod
    def written(cls, path: Path, rows: Rows) -> Kept:
        """Put a result down; what was there under its name was never committed."""
        count = 0
        with os_errors(path):
            path.unlink(missing_ok=True)
            descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as plain:
                file = Summed(plain)
                with pa.ipc.new_stream(file, rows.schema) as writer:
                    for batch in rows:
                        writer.write_batch(batch)
                        count += batch.num_rows
                plain.flush()
                os.fsync(plain.fileno())
            sync_names(path.parent)
        return cls(path, count, file.size, file.crc)

    @classmethod
    def read_back(cls, path: Path, about: Mapping[str, Any]) -> Kept:
        """A result that was committed with an epoch; refused unless it is whole."""
        remedy = f"the result of epoch {about['epoch']}, committed and not delivered yet; restore"
        try:
            size, crc = _summed(path)
        except OSError as e:
            raise StoreError(f"{path} can't be read ({e.strerror}): {remedy} it") from e
        if (size, crc) != (about["size"], about["crc"]):
            raise CorruptPage(f"{path} is damaged: {remedy} it")
        return cls(path, about["rows"], size, crc)

    def about(self) -> dict[str, int]:
        """What a commit says of it."""
        return {"rows": self.rows, "size": self.size, "crc": self.crc}

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.opened()

    def opened(self) -> Iterator[pa.RecordBatch]:
        """The rows; the file is open from now on, and may lose its name."""
        with os_errors(self.path):
            return _batches(pa.OSFile(str(self.path)))

    def close(self) -> None:
        """Remove the file."""
        with os_errors(self.path):
            self.path.unlink(missing_ok=True)


def _batches(file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    with file:
        yield from pa.ipc.open_stream(file)


class Summed(io.RawIOBase):
    """A file that is written, with its size and checksum."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write bytes at the end."""
        view = memoryview(data).cast("B")
        self.crc = crc32(view, self.crc)
        self.size += len(view)
        self._file.write(view)
        return len(view)

    def tell(self) -> int:
        return self.size


def _summed(path: Path) -> tuple[int, int]:
    size = crc = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            size, crc = size + len(data), crc32(data, crc)
    return size, crc
