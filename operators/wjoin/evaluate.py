"""Backward and forward evaluation, a portion of rows at a time, on windows in memory.

Backward (NLW, HW, BEW): rows that come meet what came before them, and every N-tuple is found when
the last of its rows comes.  No stream waits for another.

Forward (MW, FEW): rows wait until nothing earlier can come, and are then taken in order of time; an
N-tuple is found through the latest of its rows.  For that row x, each other stream's rows lie
between two places of a buffer by time:

    other   ──┼────────────┼──▶        begin: the first row that x's window admits
            begin         end          end:   the rows up to x's time
                           x
Mode 1 looks at these places alone and skips x where a stream has nothing between them.  Mode 2
joins what lies between, without testing a window again: in a uniform clique all of it is within the
window of x, x is the latest, and so any two are within it of each other.  In other forms the
refinement tests the given windows.

The papers leave open which rows mode 2 admits and what a restart of mode 1 drops.  Completeness
decides: mode 2 admits exactly the rows up to x in the order of (time, stream), so that of
simultaneous rows the one of the last stream finds the tuple, and nothing is dropped while a row to
come can meet it (`needed.needed_from`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from matwin.feed import Portion
from matwin.finality import DONE
from matwin.sizes import batch_bytes
from matwin.state import Held
from matwin.storage.arrays import arrow
from matwin.storage.columns import INT64_MAX, INT64_MIN, Int64s, float_key, floats_of_keys

from .block import Blocks
from .buffers import Buffer
from .kernels import expand
from .needed import needed_from
from .output import Output
from .pipeline import Pipeline, Reach
from .question import WindowQuestion
from .reaches import BackwardReach, ForwardReach
from .streams import OLD, WAITING, StreamsInMemory, in_role
from .waiting import Waiting


class Backward(StreamsInMemory):
    """Windows that rows probe as they come."""

    step_bytes: int | None = 0
    joins_at_once = True
    copies = 1
    """How often a row that comes is in memory."""

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, *, bounds: str,
        is_hash: bool,
    ) -> None:  # fmt: skip
        self._upper = question.constraints.bounds(bounds)
        self._is_float = question.is_float
        self._blocks = blocks
        self._output = output
        self.buffers = [Buffer(b, by_time=not is_hash, is_linked=is_hash) for b in blocks]
        self._pipelines = [
            Pipeline(question, root, bounds=bounds) for root in range(len(question.names))
        ]
        self._reaches: dict[int, Reach] = {
            i: BackwardReach(buffer, is_hash=is_hash) for i, buffer in enumerate(self.buffers)
        }

    @property
    def held_bytes(self) -> int:
        """What the windows take."""
        return sum(buffer.held_bytes for buffer in self.buffers)

    @property
    def counted_bytes(self) -> int:
        """What the windows take, and output that was under way."""
        return self.held_bytes + self._output.used_bytes

    @property
    def needed_bytes(self) -> int:
        """What the windows take, and what making one of them larger takes."""
        return self.held_bytes + _growing_bytes(self.buffers) + self._output.share_bytes

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """What new rows find; then they are in the window."""
        block = self._blocks[stream].of(portion.rows)
        if all(b.rows for i, b in enumerate(self.buffers) if i != stream):
            run = self._pipelines[stream].run(
                block, np.arange(len(block)), self._reaches, self._output.capacity
            )
            for seen, tuples in run:
                yield from self._output.batches(seen, tuples)
        self.buffers[stream].append(block)

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Drop what no later row can meet."""
        needed = needed_from(frontiers, self._upper, is_float=self._is_float)
        for buffer, bound in zip(self.buffers, needed, strict=True):
            buffer.drop_below(bound)
        return iter(())

    @property
    def holders(self) -> list[Held]:
        """The windows; rows are joined as they come."""
        return in_role(OLD, self.buffers)


class Forward(StreamsInMemory):
    """Windows of what is final, and rows that are not final yet."""

    step_bytes: int | None = 0
    copies = 3
    """How often a row that comes is in memory: when those that wait are joined and sorted."""

    def __init__(
        self, question: WindowQuestion, blocks: Sequence[Blocks], output: Output, *, bounds: str,
        is_hash: bool,
    ) -> None:  # fmt: skip
        self._question = question
        self._blocks = blocks
        self._output = output
        self._is_hash = is_hash
        self._upper = question.constraints.bounds(bounds)
        self.buffers = [Buffer(b, by_time=True, is_linked=is_hash) for b in blocks]
        self.waiting = [Waiting(b.side) for b in blocks]
        self._pipelines = [
            Pipeline(question, root, bounds=bounds, is_forward=True)
            for root in range(len(question.names))
        ]

    @property
    def held_bytes(self) -> int:
        """What the windows take, and rows that wait."""
        waiting = sum(rows.size for rows in self.waiting)
        return sum(buffer.held_bytes for buffer in self.buffers) + waiting

    @property
    def counted_bytes(self) -> int:
        """What the windows take, and output that was under way."""
        return self.held_bytes + self._output.used_bytes

    @property
    def needed_bytes(self) -> int:
        """What the windows take, and rows that wait, with what they will take in their window."""
        waiting = sum(
            2 * rows.size + rows.rows * buffer.row_bytes
            for buffer, rows in zip(self.buffers, self.waiting, strict=True)
        )
        growing = _growing_bytes(self.buffers)
        return self.held_bytes + waiting + growing + self._output.share_bytes

    def take(self, stream: int, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Rows wait until they are final."""
        self.waiting[stream].append(portion.rows, portion.size)
        return iter(())

    def advance(self, frontiers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Join all rows that are final, in order of time; then drop what no later row can meet."""
        upto, firsts = min(frontiers), []
        for stream, buffer in enumerate(self.buffers):
            before = buffer.limit
            self._admit(stream, upto)
            firsts.append(before)
        for stream, first in enumerate(firsts):
            if self.buffers[stream].limit > first and all(b.rows for b in self.buffers):
                yield from self._found(stream, first)
        # Rows that wait are still to come.
        lowest = [upto if f != DONE or w.rows else DONE
                  for f, w in zip(frontiers, self.waiting, strict=True)]  # fmt: skip
        needed = needed_from(lowest, self._upper, is_float=self._question.is_float)
        for buffer, bound in zip(self.buffers, needed, strict=True):
            buffer.drop_below(bound)

    def _admit(self, stream: int, upto: int) -> None:
        """Move the rows below `upto` to their window, by time."""
        waiting = self.waiting[stream]
        if not waiting.has_below(upto):
            return
        rows = pa.concat_batches(waiting.popped())
        times = self._blocks[stream].side.order_keys(rows)
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(arrow(order)), times[order]
        final = len(times) if upto > INT64_MAX else int(np.searchsorted(times, upto))
        ready, rest = rows.slice(0, final), rows.slice(final)
        self.buffers[stream].append(self._blocks[stream].of(ready))
        waiting.append(rest, batch_bytes(rest))

    def _found(self, stream: int, first: int) -> Iterator[pa.RecordBatch]:
        """The tuples whose latest row is one of a stream's new ones."""
        own = self.buffers[stream]
        times = np.ascontiguousarray(own.times[first:])
        alive = np.ones(len(times), np.bool_)
        reaches: dict[int, Reach] = {}
        for other, buffer in enumerate(self.buffers):
            if other == stream:
                continue
            begins, ends = self._places(stream, other, times)
            alive &= begins < ends
            reaches[other] = ForwardReach(
                buffer, stream, first, begins, ends, is_hash=self._is_hash
            )
        rows = first + np.flatnonzero(alive)  # mode 1 leaves these for mode 2
        if len(rows) == 0:
            return
        for seen, tuples in self._pipelines[stream].run(own, rows, reaches, self._output.capacity):
            yield from self._output.batches(seen, tuples)

    def _places(self, stream: int, other: int, times: Int64s) -> tuple[Int64s, Int64s]:
        """Between which rows of another stream those lie that came before each time."""
        buffer = self.buffers[other]
        begins, ends = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
        down = self._upper[other][stream]
        if down < 0:  # rows of this stream come before the other's
            return np.zeros_like(begins), np.zeros_like(ends)
        lows = _lowered(times, down, is_float=self._question.is_float)
        is_inclusive = other < stream
        # Both ascend, but the buffer's rows go back a whole window: begin where the first is.
        start = int(expand.first_not_below(buffer.times, buffer.oldest, int(lows[0])))
        start = max(start, buffer.oldest)
        expand.places(lows, times, buffer.times[start:], is_inclusive, begins, ends)
        return begins + start, ends + start

    @property
    def holders(self) -> list[Held]:
        """The windows, and what is not final yet."""
        return [*in_role(OLD, self.buffers), *in_role(WAITING, self.waiting)]


def _growing_bytes(buffers: Sequence[Buffer]) -> int:
    return max(buffer.growing_bytes for buffer in buffers)


def _lowered(times: Int64s, by: float, *, is_float: bool) -> Int64s:
    """Times less a window, as order keys."""
    if is_float:
        with np.errstate(over="ignore"):
            low = floats_of_keys(times) - float(by)
            for _ in range(2):  # the difference is rounded
                low = np.nextafter(low, -np.inf)
        return float_key(low)
    if by > INT64_MAX:
        return np.full(len(times), INT64_MIN)
    down = np.int64(by)
    return np.where(times < INT64_MIN + down, INT64_MIN, times - down)
