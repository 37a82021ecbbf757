"""How a stream's rows are found, by the names of the algorithms.

merge                  sorted blocks, one after the other        `MergeReach`
backward-nested-loop   a buffer by time, scanned within the interval
backward-hash          a buffer by arrival, along the key's chain
forward-nested-loop    a buffer by time, between two places: no window is tested
forward-hash           the same, along the key's chain
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s

from .block import Block, Held
from .buffers import Buffer
from .kernels import expand
from .pipeline import Found, Probe


def _portions(call: Callable[..., Any], first: int, limit: int, capacity: int) -> Iterator[Found]:
    """What a kernel finds for the tuples from `first` on, in portions."""
    place = -1
    while first < limit:
        tuples, rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        filled, first, place = call(first, limit, place, tuples, rows)
        if filled:
            yield tuples[:filled], rows[:filled]


class BlockRef(Protocol):
    """A block that may have to be read first."""

    @property
    def key_range(self) -> tuple[int, int]: ...
    @property
    def time_range(self) -> tuple[int, int]: ...
    @property
    def rows(self) -> int: ...
    def pinned(self) -> AbstractContextManager[Block]: ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """A block that is there."""

    block: Block

    @property
    def key_range(self) -> tuple[int, int]:
        """The first and the last key."""
        return int(self.block.keys[0]), int(self.block.keys[-1])

    @property
    def time_range(self) -> tuple[int, int]:
        """Any: to find the first and the last took longer than to merge the block in vain."""
        return INT64_MIN, INT64_MAX

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.block)

    def pinned(self) -> AbstractContextManager[Block]:
        """The block."""
        return nullcontext(self.block)


class MergeReach:
    """Sorted blocks: a tuple's candidates are a stretch of each."""

    def __init__(self, refs: Sequence[BlockRef]) -> None:
        self._refs = [(ref, ref.key_range, ref.time_range) for ref in refs]

    def candidates(self, probe: Probe, capacity: int) -> Iterator[tuple[Held, Found]]:
        """Candidates in every block that the tuples reach."""
        ref = self._refs[0][0] if len(self._refs) == 1 else None
        if len(probe) and isinstance(ref, InMemory):
            places = probe.places_in(ref.block)
            if places is not None:
                for found in _portions(partial(expand.between, *places), 0, len(probe), capacity):
                    yield ref.block, found
                return
        for own, first, limit in self.reached(probe):
            with own.pinned() as block:
                for found in merged(block, probe, first, limit, capacity):
                    yield block, found

    def reached(self, probe: Probe) -> Iterator[tuple[BlockRef, int, int]]:
        """The blocks that the tuples may reach, not read yet, and which of the tuples."""
        if len(probe) == 0:
            return
        keys, (lows, highs) = probe.keys, probe.intervals
        low, high = int(lows.min()), int(highs.max())
        is_sorted = not (keys[1:] < keys[:-1]).any()
        key_low, key_high = (int(keys.min()), int(keys.max()))
        for ref, (first_key, last_key), (first_time, last_time) in self._refs:
            if last_key < key_low or first_key > key_high or last_time < low or first_time > high:
                continue
            first, limit = 0, len(probe)
            if is_sorted:
                first = int(np.searchsorted(keys, first_key, "left"))
                limit = int(np.searchsorted(keys, last_key, "right"))
            if first < limit:
                yield ref, first, limit


def merged(block: Block, probe: Probe, first: int, limit: int, capacity: int) -> Iterator[Found]:
    """Candidates of some tuples in a sorted block."""

    def call(*state: Any) -> Any:
        return expand.merge(block.keys, block.times, probe.keys, *probe.intervals, *state)

    return _portions(call, first, limit, capacity)


class BackwardReach:
    """A buffer whose rows came before: intervals decide."""

    def __init__(self, buffer: Buffer, *, is_hash: bool) -> None:
        self._buffer = buffer
        self._is_hash = is_hash

    def candidates(self, probe: Probe, capacity: int) -> Iterator[tuple[Held, Found]]:
        """Candidates within each tuple's interval."""
        buffer, keys, (lows, highs) = self._buffer, probe.keys, probe.intervals
        nodes, oldest, base = buffer.nodes, buffer.oldest, buffer.base
        if self._is_hash:

            def call(*state: Any) -> Any:
                return expand.chain(buffer.table, nodes, base, oldest, keys, lows, highs, *state)

            found = _portions(call, 0, len(probe), capacity)
        else:

            def scan(*state: Any) -> Any:
                return expand.scan(
                    nodes[oldest:, expand.KEY], nodes[oldest:, expand.TIME], keys, lows, highs,
                    *state,
                )  # fmt: skip

            found = ((t, rows + oldest) for t, rows in _portions(scan, 0, len(probe), capacity))
        for portion in found:
            yield buffer, portion


class ForwardReach:
    """A buffer by time: for each row of the root, two places decide, and no time is looked at."""

    def __init__(
        self, buffer: Buffer, root: int, first: int, begins: Int64s, ends: Int64s, *, is_hash: bool
    ) -> None:
        """`begins` and `ends` are those of the root's rows from `first` on."""
        self._buffer = buffer
        self._first = first
        self._root = root
        self._begins, self._ends = begins, ends
        self._is_hash = is_hash

    def candidates(self, probe: Probe, capacity: int) -> Iterator[tuple[Held, Found]]:
        """Candidates between the places of each tuple's root row."""
        rows = probe.tuples[self._root] - self._first
        begins, ends, keys = self._begins[rows], self._ends[rows], probe.keys
        buffer = self._buffer
        nodes, base = buffer.nodes, buffer.base

        def call(*state: Any) -> Any:
            if self._is_hash:
                return expand.chain_places(buffer.table, nodes, base, keys, begins, ends, *state)
            return expand.scan_places(nodes[:, expand.KEY], keys, begins, ends, *state)

        for portion in _portions(call, 0, len(probe), capacity):
            yield buffer, portion
