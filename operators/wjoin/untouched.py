"""Rows of finite inputs before an algorithm gets them, stream by stream, a step at a time.

Backward and forward evaluation join rows as they come.  Where all inputs are finite nobody waits
for the first results, and rows that have not been joined yet can still be divided into parts: so
they gather until a step is due, as they do for `merge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from matwin.feed import Portion
from matwin.sizes import batch_bytes
from matwin.state import Held
from matwin.storage.columns import INT64_MAX

from .block import Blocks
from .constraints import Matrix
from .evaluate import Backward, Forward
from .needed import needed_from
from .parts import MemoryPart
from .slabs import is_known
from .streams import NEW, StreamsInMemory, in_role


class Untouched(StreamsInMemory):
    """An engine that joins rows as they come, and rows that it has not got yet."""

    step_bytes: int | None = None

    def __init__(
        self, engine: Backward | Forward, blocks: Sequence[Blocks], upper: Matrix, *, is_float: bool
    ) -> None:
        self._engine = engine
        self._blocks = blocks
        self._upper = upper
        self._is_float = is_float
        self.copies = engine.copies
        self._new = [MemoryPart(b) for b in blocks]

    @property
    def is_untouched(self) -> bool:
        """Whether the engine has no rows."""
        return not any(held.holder.batches() for held in self._engine.holders)

    @property
    def held_bytes(self) -> int:
        """What the rows take."""
        return sum(part.size for part in self._new) + self._engine.held_bytes

    @property
    def counted_bytes(self) -> int:
        """What a step takes."""
        return self.needed_bytes

    @property
    def needed_bytes(self) -> int:
        """What the rows take, now and in their windows."""
        coming = sum(self._engine.weight(part.rows, part.size) for part in self._new)
        return coming + self._engine.needed_bytes

    def kept_bytes(self, frontiers: Sequence[int]) -> int:
        """What would be needed after a step."""
        if not is_known(frontiers):
            return self.needed_bytes
        kept = 0
        bounds = needed_from(frontiers, self._upper, is_float=self._is_float)
        for part, buffer, bound in zip(self._new, self._engine.buffers, bounds, strict=True):
            coming = part.bytes_from(bound) / max(part.held_bytes, 1)
            kept += int(coming * self._engine.weight(part.rows, part.size))
            there = int(np.count_nonzero(buffer.times[buffer.oldest :] >= min(bound, INT64_MAX)))
            kept += buffer.held_bytes * there // max(buffer.rows, 1)
        return kept

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Keep rows for the next step."""
        self._new[stream].append(portion.rows, portion.size)
        return iter(())

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The engine gets all rows, and makes its step."""
        if not is_known(frontiers):
            return
        for stream, part in enumerate(self._new):
            while part.rows:
                yield from self._engine.take(stream, self._portion(stream, part.pop()))
        yield from self._engine.advance(frontiers)

    def _portion(self, stream: int, rows: pa.RecordBatch) -> Portion:
        keys = self._blocks[stream].side.order_keys(rows)
        return Portion(rows, keys, None, batch_bytes(rows))

    def weight(self, rows: int, size: int) -> int:
        """What a portion takes once the engine has got it."""
        return self._engine.weight(rows, size)

    @property
    def holders(self) -> list[Held]:
        """What the engine has, and what it has not got yet."""
        return [*self._engine.holders, *in_role(NEW, self._new)]
