"""What comes bit by bit: bytes of pipes and files, the lines in them, and sources that may go on.

    pipe, socket  ─select─┐
    file          ─poll───┴─▶ bytes, b"" where there are none now, None at the end
                                └─▶ whole lines, or frames of any format (`framing.py`)

A `Growing` source is live: its items are batches, and None where it has nothing now, so that
whoever reads it can always stop.  `drain` tells it to give what is there and end.

Invariants:
* No call waits longer than `POLL_SECONDS`, so that a thread that reads can always be ended.
* Only whole lines are read.  At its end a pipe's last line needs no newline; a line that somebody
  was writing when we were stopped is left out.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from matwin.storage.errors import InputError

from .jsonl import CHUNK_BYTES, Line, check_length, line_of
from .places import STDIN as STDIN
from .reading import Source, sliced, validated

POLL_SECONDS = 0.05
MARKS_MAX = 4096


class Lines:
    """Bytes that come, divided into whole lines."""

    def __init__(self, where: str, number: int = 0) -> None:
        self.where = where
        self.number = number
        """How many lines have been given."""
        self._rest: list[bytes] = []  # of a line that has not ended, unjoined until it has
        self.rest_bytes = 0

    def add(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their newlines."""
        first, *more = data.split(b"\n")
        self._rest.append(first)
        self.rest_bytes += len(first)
        check_length(self.rest_bytes, self.number + 1, self.where)
        if not more:
            return []
        whole = [b"".join(self._rest), *more[:-1]]
        self._rest, self.rest_bytes = [more[-1]], len(more[-1])
        check_length(self.rest_bytes, self.number + len(whole) + 1, self.where)
        return whole

    def finish(self) -> list[bytes]:
        """What follows the last newline, perhaps nothing."""
        last = b"".join(self._rest)
        self._rest, self.rest_bytes = [], 0
        return [last]

    def parsed(self, texts: list[bytes]) -> list[Line]:
        """The rows of lines, which are given with it."""
        found = []
        for text in texts:
            self.number += 1
            line = line_of(text, self.number, self.where)
            if line is not None:
                found.append(line)
        return found


# ── bytes ────────────────────────────────────────────────────────────────────────────────────


class Input(ABC):
    """Bytes that come, as they are or as numbered lines."""

    def __init__(self, fd: int, where: str, is_stopped: Callable[[], bool]) -> None:
        self.fd, self.where, self.is_stopped = fd, where, is_stopped
        self._lines = Lines(where)
        self._is_over = False

    def take(self) -> list[Line] | None:
        """The lines that are there now; None at the end."""
        if self._is_over or self.is_stopped():
            self.close()
            return None
        data = self.data()
        if data is None:
            self._is_over = True
            return self._lines.parsed(self._lines.finish()) or None
        return self._lines.parsed(self._lines.add(data))

    def data(self) -> bytes | None:
        """What can be read now; None at the end."""
        try:
            return self.read()
        except OSError as e:
            raise InputError(f"{self.where} can't be read: {e.strerror}") from e

    def close(self) -> None:
        """By whoever reads, so that nobody else's file gets the number meanwhile."""
        fd, self.fd = self.fd, -1
        if fd > 2:
            os.close(fd)

    @abstractmethod
    def read(self) -> bytes | None:
        """What can be read now; None at the end."""


class PipeInput(Input):
    """Standard input or a named pipe, which ends when its writers have closed it."""

    def read(self) -> bytes | None:
        # A named pipe that nobody has opened yet is not ready; one that was closed is, and empty.
        ready, _, _ = select.select([self.fd], [], [], POLL_SECONDS)
        return os.read(self.fd, CHUNK_BYTES) or None if ready else b""


class FileInput(Input):
    """A file that grows, which ends when it is removed."""

    def __init__(self, fd: int, where: str, is_stopped: Callable[[], bool]) -> None:
        super().__init__(fd, where, is_stopped)
        self._place = 0

    def read(self) -> bytes | None:
        about = os.fstat(self.fd)  # before reading, or what comes between would be missed
        data = os.read(self.fd, CHUNK_BYTES)
        if data:
            self._place += len(data)
            return data
        if about.st_size < self._place:
            raise InputError(f"{self.where} has become shorter while it was followed")
        if about.st_nlink == 0:
            return None
        time.sleep(POLL_SECONDS)
        return b""


def input_of(path: str, name: str, is_stopped: Callable[[], bool]) -> Input:
    """The input of a path or of standard input."""
    if path == STDIN:
        return PipeInput(sys.stdin.fileno(), f"{name}: standard input", is_stopped)
    where = f"{name}: file {path!r}"
    try:
        # Without blocking: a named pipe would wait for its writer, and so might the writer for us.
        fd = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as e:
        raise InputError(f"{where} is not there; make it, then follow it") from e
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be opened: {e}") from e
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return FileInput(fd, where, is_stopped)
    if stat.S_ISFIFO(mode):
        return PipeInput(fd, where, is_stopped)
    os.close(fd)
    raise InputError(f"{where} is neither a file nor a pipe")


# ── sources ──────────────────────────────────────────────────────────────────────────────────


class Switch:
    """Whether a source should give what is there and end; thrown from any thread."""

    def __init__(self, is_on: bool = False) -> None:
        self._event = threading.Event()
        if is_on:
            self.throw()

    def throw(self) -> None:
        """Give what is there, and end."""
        self._event.set()

    @property
    def is_on(self) -> bool:
        """Whether it has been thrown."""
        return self._event.is_set()

    def wait(self) -> None:
        """Wait a little, for something to come."""
        self._event.wait(POLL_SECONDS)


class Marks:
    """Where rows begin, for whoever wants to begin there again; one thread notes, another asks.

    Not every row has a mark: from the mark before it some rows are to be skipped.  Nobody may ever
    ask, so that too many are thinned out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[int] = []
        self._marks: list[Any] = []

    def clear(self) -> None:
        """Begin anew."""
        with self._lock:
            self._rows, self._marks = [], []

    def note(self, row: int, mark: Any) -> None:
        """A row begins at a mark."""
        with self._lock:
            if self._rows and self._rows[-1] == row:
                self._marks[-1] = mark
                return
            if len(self._rows) >= MARKS_MAX:
                self._rows, self._marks = self._rows[::2], self._marks[::2]
            self._rows.append(row)
            self._marks.append(mark)

    def find(self, row: int) -> tuple[Any, int]:
        """The last mark before a row, and the rows between; what is before it is forgotten."""
        with self._lock:
            at = bisect_right(self._rows, row) - 1
            if at < 0:
                return None, row
            del self._rows[:at], self._marks[:at]
            return self._marks[0], row - self._rows[0]


@dataclass(frozen=True)
class Growing(Source):
    """A source that may go on for ever."""

    switch: Switch

    comes_live: ClassVar[bool] = True
    is_validated: ClassVar[bool] = False
    """Whether the pieces are validated already."""

    @property
    def cursor(self) -> object:
        """What a second reading by the same query would disturb; None where nothing would be."""
        return None

    @abstractmethod
    def pieces(self) -> Generator[Any]:
        """Batches as they come, None where nothing is there now."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return (item for item in self.items(columns) if isinstance(item, pa.RecordBatch))

    def items(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        self.check_columns(columns)
        return self.portions(self.pieces(), columns)

    def portions(
        self, pieces: Generator[Any], columns: Sequence[str] | None = None
    ) -> Generator[Any]:
        """Pieces, validated, of the size that the source has been told."""
        with closing(pieces):
            for piece in pieces:
                if piece is None:
                    yield None
                    continue
                rows = piece if columns is None else piece.select(columns)
                rows = rows if self.is_validated else validated(rows, self.name)
                yield from sliced(rows, self.share.portion_bytes)

    def drain(self) -> None:
        self.switch.throw()
