"""A file without a name, for what has to be put down while a source is read or pairs are kept.

    Spill         bytes: written at the end, read anywhere
    BatchSpill    record batches on it: written at the end, gone through as often as asked

It is gone with the process, however that ends.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.storage.errors import StoreError


class Spill(io.RawIOBase):
    """Bytes on disk, as a file for whoever writes and by place for whoever reads."""

    def __init__(self, name: str, folder: str | Path | None = None) -> None:
        """`name` is how errors call the source; None is the system's folder."""
        self._name, self._folder = name, folder
        self._file: Any = None
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Put bytes at the end."""
        view = memoryview(data).cast("B")
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115
            done = 0
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done:], self.size + done)
        except OSError as e:
            raise StoreError(
                f"{self._name}: its rows can't be kept in {self._folder or tempfile.gettempdir()}: "
                f"{e}; free some space there, or name another folder with scratch="
            ) from e
        self.size += done
        return done

    def tell(self) -> int:
        return self.size

    def read_at(self, place: int, count: int) -> bytes:
        """So many bytes from a place on."""
        return read_at(self._file.fileno(), place, count) if count else b""

    def close(self) -> None:
        """Give the space back."""
        if self._file is not None:
            self._file.close()
        super().close()


class BatchSpill:
    """Record batches on disk; those that are written while others are read come at the end."""

    def __init__(self, name: str, folder: str | Path | None, schema: pa.Schema) -> None:
        self._spill = Spill(name, folder)
        self._writer = pa.ipc.new_stream(self._spill, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Put a batch at the end."""
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        # The stream has no end mark, so that it can grow: it ends where the file does.
        return iter(pa.ipc.open_stream(_Reading(self._spill)))

    def close(self) -> None:
        """Give the space back."""
        self._spill.close()


class _Reading(io.RawIOBase):
    """A spill from its beginning, with a place of its own."""

    def __init__(self, spill: Spill) -> None:
        self._spill, self._place = spill, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._spill.size - self._place)
        buffer[:count] = self._spill.read_at(self._place, count)
        self._place += count
        return count


def read_at(descriptor: int, place: int, count: int) -> bytes:
    """So many bytes of a file from a place on; fewer are an error: the file has been cut."""
    parts = []
    while count > 0:
        part = os.pread(descriptor, min(count, 2**30), place)
        if not part:
            raise EOFError(f"the file ends before byte {place + count}")
        parts.append(part)
        place, count = place + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
