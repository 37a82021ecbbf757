"""Live streams that say what a test tells them, and a listener that can be waited for.

    talk.say(rows) ──▶ the join's reading thread ──▶ join ──▶ Listener's thread ──▶ heard(rows=3)

Nothing sleeps.  Whoever waits does so for at most `PATIENCE` seconds, so that a join that hangs
fails its test; a test that passes never waits that long.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pyarrow as pa

import matwin

PATIENCE = 20.0
_END = object()

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
BACKWARD = ("auto", "backward-nested-loop", "backward-hash")
FORWARD = ("forward-nested-loop", "forward-hash")


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def live(items: Any, **promise: Any) -> Any:
    return matwin.stream(items, schema=SCHEMA, **promise)


def row(t: int | None, k: int | None = 0, number: int = 0) -> dict[str, Any]:
    return {"t": t, "k": k, "id": number}


class Talk:
    """A stream; `taken` counts the items that were asked for and given."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.taken = 0

    def say(self, *items: Any) -> None:
        for item in items:
            self._items.put(item)

    def end(self) -> None:
        self._items.put(_END)

    def __iter__(self) -> Iterator[Any]:
        while (item := self._items.get(timeout=PATIENCE)) is not _END:
            self.taken += 1
            yield item


class Listener:
    """Reads a join in a thread of its own; the talks end when the test does, also a failed one."""

    def __init__(self, reader: pa.RecordBatchReader, talks: dict[str, Talk]) -> None:
        self._reader = reader
        self._talks = talks
        self._rows: list[dict[str, Any]] = []
        self._error: BaseException | None = None
        self._is_over = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.end()
        self._thread.join(PATIENCE)

    def end(self) -> None:
        for talk in self._talks.values():
            talk.end()

    def _listen(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._reader:
                with self._news:
                    self._rows += batch.to_pylist()
                    self._news.notify_all()
        except BaseException as e:
            error = e  # raised where the test waits
        with self._news:
            self._error, self._is_over = error, True
            self._news.notify_all()

    def heard(self, rows: int) -> list[dict[str, Any]]:
        """All rows so far, as soon as there are so many."""
        with self._news:
            self._news.wait_for(lambda: len(self._rows) >= rows or self._is_over, PATIENCE)
            if self._error is not None:
                raise self._error
            assert len(self._rows) >= rows, f"{len(self._rows)} rows have come, not {rows}"
            return list(self._rows)

    def heard_of(self, column: str, values: int) -> list[dict[str, Any]]:
        """All rows so far, as soon as a column has so many different values in them."""
        with self._news:
            self._news.wait_for(
                lambda: len({r[column] for r in self._rows}) >= values or self._is_over, PATIENCE
            )
            if self._error is not None:
                raise self._error
            return list(self._rows)

    def all(self) -> list[dict[str, Any]]:
        """All rows, after the end of every stream."""
        self.end()
        with self._news:
            assert self._news.wait_for(lambda: self._is_over, PATIENCE), "the join does not end"
            if self._error is not None:
                raise self._error
            return list(self._rows)
