"""Sources that grow: standard input, pipes, and files that somebody still writes to.

    a=-          standard input   ─select─┐
    b=b.jsonl    a file           ─poll───┼─▶ whole lines ─▶ batches, None ─▶ matwin.stream
    several on standard input     ─by a field of each line─┘

An `Input` (`matwin.growing`) gives the lines that are there, nothing after at most `POLL_SECONDS`,
or its end.  A pipe ends when its writers have closed it, a file when it is removed; everything ends
with the first Ctrl-C: what has been read is joined and written, and the second one breaks off
(`signals.py`).

Left out: files that are rotated, which `matwin.tail` reads.  A file that shrinks is an error, a
removed one has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

import matwin
from matwin.growing import POLL_SECONDS, STDIN, Input, input_of
from matwin.jsonl import Line, Reading, schema_of
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .signals import Signals

WAITING_MAX, WAITING_BYTES_MAX = 1_000_000, 64 * 2**20

Take = Callable[[], "list[Line] | None"]
"""The lines that are there now, perhaps none, or None at the end; waits at most `POLL_SECONDS`."""


class Divided:
    """Several streams in one input: a field of each line names its stream.

    Whichever stream asks for lines reads for all of them; what belongs to others waits.
    """

    def __init__(self, source: Input, names: Sequence[str], by: str) -> None:
        self._source, self._by = source, by
        self._waiting: dict[str, deque[Line]] = {name: deque() for name in names}
        self._bytes = dict.fromkeys(names, 0)
        self._changed = threading.Condition()
        self._is_reading = self._is_over = False

    def of(self, name: str) -> Take:
        """The lines of one stream."""
        return lambda: self._take(name)

    def _take(self, name: str) -> list[Line] | None:
        with self._changed:
            if self._is_reading and not self._waiting[name]:
                self._changed.wait(POLL_SECONDS)
            if self._waiting[name] or self._is_over or self._is_reading:
                return self._own(name)
            self._is_reading = True
        lines: list[Line] | None = None
        try:
            lines = self._source.take()
        finally:  # also after an error: the others end with it
            with self._changed:
                self._is_reading, self._is_over = False, lines is None
                self._divide(lines or [])
                self._changed.notify_all()
        with self._changed:
            return self._own(name)

    def _own(self, name: str) -> list[Line] | None:
        waiting = self._waiting[name]
        found = [waiting.popleft() for _ in range(len(waiting))]
        self._bytes[name] = 0
        return None if self._is_over and not found else found

    def _divide(self, lines: list[Line]) -> None:
        for line in lines:
            name = line.row.pop(self._by, None)
            if not isinstance(name, str) or name not in self._waiting:
                self._is_over = True
                raise InputError(
                    f"{self._source.where}: line {line.number}: its {self._by!r} is {name!r:.60}, "
                    f"and that is no stream here; there are {', '.join(self._waiting)}"
                )
            self._waiting[name].append(line)
            self._bytes[name] += line.size
        for name, waiting in self._waiting.items():
            if len(waiting) > WAITING_MAX or self._bytes[name] > WAITING_BYTES_MAX:
                self._is_over = True
                raise InputError(
                    f"{self._source.where}: {len(waiting):,} lines of the stream {name!r} wait for "
                    "the others; give it a pipe of its own"
                )


class Following:
    """The sources of one command that grow, and the signals that end them."""

    def __init__(self) -> None:
        self.signals = Signals(is_gentle=True)
        self._is_over = False

    def is_stopped(self) -> bool:
        """Whether nothing more is to be read."""
        return self._is_over or self.signals.number != 0

    def __enter__(self) -> Following:
        self.signals.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._is_over = True
        self.signals.__exit__(kind, error, at)

    def takes(self, files: Mapping[str, str], by: str | None) -> dict[str, Take]:
        """How the lines of each stream are had."""
        shared = [name for name, path in files.items() if path == STDIN]
        if len(shared) > 1 and by is None:
            raise InputError(
                f"{', '.join(shared)} are all on standard input; say with --stream-field which "
                "field of a line names its stream"
            )
        if by is not None and not shared:
            raise InputError("--stream-field goes with streams on standard input, such as a=-")
        found: dict[str, Take] = {}
        if by is not None:
            divided = Divided(input_of(STDIN, ", ".join(shared), self.is_stopped), shared, by)
            found |= {name: divided.of(name) for name in shared}
        for name, path in files.items():
            if name not in found:
                found[name] = input_of(path, name, self.is_stopped).take
        return found

    def reading(
        self, name: str, take: Take, schema: pa.Schema | None
    ) -> tuple[Reading, Iterator[Any]]:
        """How a stream's lines are read, and its batches, with None where there is nothing now."""
        head: list[Line] = []
        if schema is None:
            head = self._first(name, take)
        found = schema_of(head, name) if schema is None else schema
        reading = Reading(name, found, schema is not None)
        return reading, _batches(reading, head, take)

    def _first(self, name: str, take: Take) -> list[Line]:
        """The first lines, waited for."""
        while True:
            lines = take()
            if lines:
                return lines
            if self.is_stopped():
                raise KeyboardInterrupt
            if lines is None:
                raise InputError(
                    f"{name}: it ended without a line to tell its columns; declare them with "
                    "--schema"
                )

    def stream(
        self, name: str, take: Take, schema: pa.Schema | None, *, order: Any, late: Any
    ) -> Stream:
        """A followed source as a live stream; `order` makes the promise from the schema."""
        reading, batches = self.reading(name, take, schema)
        return matwin.stream(
            batches, order=order(reading.schema), late=late, schema=reading.schema, name=name
        )

    def reader(self, name: str, take: Take, schema: pa.Schema | None) -> pa.RecordBatchReader:
        """A source that is read to its end, once."""
        reading, batches = self.reading(name, take, schema)
        there = (batch for batch in batches if batch is not None)
        return pa.RecordBatchReader.from_batches(reading.schema, there)


def _batches(reading: Reading, head: list[Line], take: Take) -> Iterator[pa.RecordBatch | None]:
    lines: list[Line] | None = head
    while lines is not None:
        yield reading.batch(lines) if lines else None
        lines = take()
