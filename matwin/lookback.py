"""The least key of the last rows, and of every n consecutive ones.

What has to be kept of the last n - 1 rows is the least key from each of them on: that tells every
window of n rows that reaches into later ones.

    rows        7  3  5  4  9         (n = 6)
    least       3  3  4  4  9         the same from each row on
    kept       (1,3) (3,4) (4,9)      once, with the last row that has it
"""

from __future__ import annotations

from collections import deque

import numpy as np

from matwin.storage.columns import INT64_MIN, Int64s


class Lookback:
    """The last n - 1 of a sequence of keys, as far as windows of n need them.

    They are kept in the form in which they came last, single rows or batches: to turn the one into
    the other takes 0.5 µs a row.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._count = 0
        self._kept: deque[tuple[int, int]] | None = deque()  # (row, key), both ascending
        self._least = np.empty(0, np.int64)  # the least key from each row on, if `_kept` is None

    def push(self, key: int) -> int:
        """Take one more row; the least of the window that ends with it, if there is one."""
        kept = self._kept
        if kept is None:
            kept = self._kept = self._compressed()
        while kept and kept[-1][1] >= key:
            kept.pop()
        kept.append((self._count, key))
        self._count += 1
        if self._count < self._rows:
            return INT64_MIN
        row, lowest = kept[0]
        if row <= self._count - self._rows:
            kept.popleft()
        return lowest

    def leasts(self, keys: Int64s) -> Int64s:
        """The least of the window that would end with each of the keys, `INT64_MIN` for none."""
        windows = _sliding_least(np.concatenate([self._expanded(), keys]), self._rows)
        leasts = np.full(len(keys), INT64_MIN)
        leasts[len(keys) - len(windows) :] = windows
        return leasts

    def extend(self, keys: Int64s) -> None:
        """Take more rows."""
        last = np.concatenate([self._expanded(), keys])
        last = last[max(len(last) - self._rows + 1, 0) :]
        self._least = np.minimum.accumulate(last[::-1])[::-1]
        self._kept = None
        self._count += len(keys)

    def kept(self) -> list[int]:
        """The least key from each of the last rows on; rows with these keys do as well."""
        found: list[int] = self._expanded().tolist()
        return found

    def _expanded(self) -> Int64s:
        if self._kept is None:
            return self._least
        if not self._kept:
            return np.empty(0, np.int64)
        rows, keys = np.array(self._kept).T
        first = max(self._count - self._rows + 1, 0)
        return np.repeat(keys, np.diff(rows, prepend=first - 1))

    def _compressed(self) -> deque[tuple[int, int]]:
        least = self._least
        ends = np.flatnonzero(np.append(least[1:] != least[:-1], True)[: len(least)])
        rows = ends + (self._count - len(least))
        return deque(zip(rows.tolist(), least[ends].tolist(), strict=True))


def _sliding_least(keys: Int64s, width: int) -> Int64s:
    """The least of every `width` consecutive keys, by doubling."""
    if len(keys) < width:
        return keys[:0]
    done = 1
    while 2 * done <= width:
        keys = np.minimum(keys[:-done], keys[done:])
        done *= 2
    rest = width - done
    return np.minimum(keys[: len(keys) - rest], keys[rest:])
