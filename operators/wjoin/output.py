"""Output rows: tuples gathered into batches that own their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from matwin.output import BATCH_ROWS
from matwin.shares import OUTPUT_SHARE
from matwin.sizes import cuts

from .block import Held
from .pipeline import Tuples
from .question import WindowQuestion

FEW_ROWS = 64
TUPLES = 0.4
"""Of a portion, tuples as numbers; the rest is for their rows.  With rows of 48 bytes a portion is
then one batch, where halves make two."""
FOUND_BYTES = 16
"""A tuple's and a row's number; the row numbers of the tuple's streams come on top."""


class Output:
    """How tuples become rows, and how many are made at a time."""

    def __init__(self, question: WindowQuestion, budget_bytes: int, threads: int) -> None:
        self.schema = question.schema
        self._origins = question.origins
        self._names: dict[int, list[str]] = {}
        for stream, name in question.origins:
            self._names.setdefault(stream, []).append(name)
        self._streams = len(question.names)
        self._largest = 0  # bytes of the largest batch so far
        self.share_bytes = budget_bytes // OUTPUT_SHARE
        self._portions = self._portion_bytes = 0
        self.divide(threads)

    @property
    def used_bytes(self) -> int:
        """What of the share has been used at most."""
        each = self._largest + self.capacity * self._streams * (FOUND_BYTES + 8 * self._streams)
        return min(self.share_bytes, each * self._portions) if self._largest else 0

    def divide(self, threads: int) -> None:
        """Share the bytes among threads, each with one portion under way and one waiting."""
        self._portions = 2 * threads - 1
        self._portion_bytes = self.share_bytes // self._portions

    @property
    def capacity(self) -> int:
        """Tuples that are under way at each level, on each thread."""
        levels = self._streams * (FOUND_BYTES + 8 * self._streams)
        return max(FEW_ROWS, min(BATCH_ROWS, int(self._portion_bytes * TUPLES) // levels))

    def batches(self, blocks: Mapping[int, Held], tuples: Tuples) -> Iterator[pa.RecordBatch]:
        """The rows of tuples, in batches that take their share however wide some rows are."""
        widths = sum(blocks[n].bytes_at(rows) for n, rows in tuples.items())
        share = int(self._portion_bytes * (1 - TUPLES))
        for first, limit in cuts(widths, len(tuples[0]), share, BATCH_ROWS):
            # All of them are given on as they are: buffers know how to take what they were asked.
            is_all = limit - first == len(tuples[0])
            some = tuples if is_all else {n: rows[first:limit] for n, rows in tuples.items()}
            batch = self._batch(blocks, some)
            self._largest = max(self._largest, batch.nbytes)
            yield batch

    def _batch(self, blocks: Mapping[int, Held], tuples: Tuples) -> pa.RecordBatch:
        taken = {
            (stream, name): column
            for stream, names in self._names.items()
            for name, column in zip(
                names, blocks[stream].columns_at(names, tuples[stream]), strict=True
            )
        }
        columns = [taken[origin] for origin in self._origins]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
