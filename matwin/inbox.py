"""Inboxes: live streams, each read by a thread of its own into a short queue.

    source ──thread──▶ queue, a few items ──▶ the join, which takes from whoever has something

A silent stream keeps nobody waiting, and a fast one is kept waiting: its thread stops reading when
the queue is full, until the join has caught up.  That something has been said, that nothing has
been said yet, and that the stream has ended are three different things.

Small batches gather while they wait, because a portion costs the join the same whether it has one
row or a thousand.  What is late does not depend on that (`frontier`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from .sizes import column_bytes, fixed_bytes

SMALL_ROWS = 4096
"""Batches gather up to so many rows; of larger ones two wait."""
LOOSE_MAX = 64
"""So many small batches wait as they came, then they become one: by itself each takes a kilobyte
beside its rows."""
ITEMS_MAX = SMALL_ROWS


class _Waiting(NamedTuple):
    """An item, and the rows and bytes of a batch."""

    item: Any
    rows: int
    size: int


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
        self._queue: deque[_Waiting] = deque()
        self._rows = self._bytes = 0  # of all that wait
        self._loose = 0  # how many batches at the end wait as they came
        self._widths: tuple[int, list[int]] | None = None
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
        first = self._popped()
        if not isinstance(first.item, pa.RecordBatch):
            return first.item
        batches, rows = [first.item], first.rows
        while self._queue and isinstance(self._queue[0].item, pa.RecordBatch) and rows < SMALL_ROWS:
            one = self._popped()
            batches.append(one.item)
            rows += one.rows
        return pa.concat_batches(batches) if len(batches) > 1 else first.item

    def _popped(self) -> _Waiting:
        one = self._queue.popleft()
        self._rows -= one.rows
        self._bytes -= one.size
        self._loose = min(self._loose, len(self._queue))
        return one

    def _size(self, batch: pa.RecordBatch, rows: int) -> int:
        """Its bytes.  Asking Arrow for those of all columns takes longer than all else that is done
        with a single row: 5 of 7 µs."""
        if self._widths is None:
            self._widths = fixed_bytes(batch.schema)
        fixed, others = self._widths
        columns = column_bytes(batch.num_columns)
        return columns + rows * fixed + sum(int(batch.column(at).nbytes) for at in others)

    def _has_space(self, item: _Waiting) -> bool:
        if not self._queue or self._is_closed:
            return True
        is_small = self._rows + item.rows < SMALL_ROWS
        limit = ITEMS_MAX if is_small else 2
        return len(self._queue) < limit and self._bytes + item.size <= self._bytes_max

    def _add(self, item: _Waiting) -> None:
        self._queue.append(item)
        self._rows += item.rows
        self._bytes += item.size
        self._loose = self._loose + 1 if isinstance(item.item, pa.RecordBatch) else 0
        if self._loose == LOOSE_MAX:
            loose = [self._queue.pop() for _ in range(LOOSE_MAX)][::-1]
            one = pa.concat_batches([waiting.item for waiting in loose])
            columns = (LOOSE_MAX - 1) * column_bytes(one.num_columns)
            size = sum(waiting.size for waiting in loose) - columns
            self._bytes -= columns
            self._queue.append(_Waiting(one, one.num_rows, size))
            self._loose = 0

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
        is_batch = isinstance(item, pa.RecordBatch)
        rows = item.num_rows if is_batch else 0
        one = _Waiting(item, rows, self._size(item, rows) if is_batch else 0)
        changed = self._bell.changed
        with changed:
            if not self._has_space(one):
                changed.wait_for(lambda: self._has_space(one))
            if self._is_closed:
                return False
            is_first = not self._queue
            self._add(one)
            if is_first:  # nobody waits for one more
                changed.notify_all()
            return True
