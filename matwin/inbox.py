"""Inboxes: live streams, each read by a thread of its own into a short queue.

    source ──thread──▶ queue, a few items ──▶ the join, which takes from whoever has something

A silent stream keeps nobody waiting, and a fast one is kept waiting: its thread stops reading when
the queue is full, until the join has caught up.  That something has been said, that nothing has
been said yet, and that the stream has ended are three different things.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

ITEMS_MAX, SMALL_ROWS = 64, 4096


class Bell:
    """Rings when any inbox has something."""

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def wait_for(self, inboxes: list[Inbox], seconds: float | None = None) -> None:
        """Wait until one of the inboxes has something to read."""
        with self.changed:
            self.changed.wait_for(lambda: any(inbox.is_ready for inbox in inboxes), seconds)


class Inbox(Iterator[Any]):
    """A live stream's items, as an iterator that says whether it would block."""

    def __init__(self, items: Iterator[Any], bell: Bell, name: str, bytes_max: int) -> None:
        """At most `bytes_max` wait in the queue, and one item however large it is."""
        self._items = items
        self._bell = bell
        self._queue: deque[Any] = deque()
        self._error: BaseException | None = None
        self._is_over = False
        self._is_closed = False
        self._name = name
        self._bytes_max = bytes_max
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(
            target=self._read, name=f"matwin stream {self._name}", daemon=True
        )
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether the next item, the end or an error is there."""
        return bool(self._queue) or self._is_over

    @property
    def has_items(self) -> bool:
        """Whether the next item is there; not its end, which comes when it is closed, too."""
        return bool(self._queue)

    def __next__(self) -> Any:
        with self._bell.changed:
            self._bell.changed.wait_for(lambda: self.is_ready)
            if self._queue:
                item = self._taken()
                self._bell.changed.notify_all()
                return item
            if self._error is not None:
                raise self._error
            raise StopIteration

    def _taken(self) -> Any:
        """The next item; small batches that have gathered come as one, so that a stream of single
        rows is joined in portions as soon as the join falls behind."""
        item = self._queue.popleft()
        if not isinstance(item, pa.RecordBatch):
            return item
        batches, rows = [item], item.num_rows
        while self._queue and isinstance(self._queue[0], pa.RecordBatch) and rows < SMALL_ROWS:
            batches.append(self._queue.popleft())
            rows += batches[-1].num_rows
        return pa.concat_batches(batches) if len(batches) > 1 else item

    def _has_space(self, item: Any) -> bool:
        if not self._queue or self._is_closed:
            return True
        batches = [i for i in (*self._queue, item) if isinstance(i, pa.RecordBatch)]
        is_small = sum(batch.num_rows for batch in batches) < SMALL_ROWS
        size = sum(batch.nbytes for batch in batches)
        limit = ITEMS_MAX if is_small else 2
        return len(self._queue) < limit and size <= self._bytes_max

    def close(self) -> None:
        """Read no more; a thread that waits for its source ends with it."""
        with self._bell.changed:
            self._is_closed = True
            self._bell.changed.notify_all()

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                if self._is_closed or (item is not None and not self._put(item)):
                    break
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
        except BaseException as e:
            error = e  # raised where the stream is read
        finally:
            with self._bell.changed:
                self._error, self._is_over = error, True
                self._bell.changed.notify_all()

    def _put(self, item: Any) -> bool:
        with self._bell.changed:
            self._bell.changed.wait_for(lambda: self._has_space(item))
            if self._is_closed:
                return False
            self._queue.append(item)
            self._bell.changed.notify_all()
            return True
