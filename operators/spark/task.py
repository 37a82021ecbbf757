"""What runs in an executor: one part of a join, by the embedded operators.

    Spark's Arrow batches ──▶ split by tag ──▶ a sorted stream for each side ──▶ embedded join ──▶
      one part, sorted          Streams             with punctuations            a budget, scratch

All sides arrive in one sequence, sorted by the order attribute, and the join asks for one side at a
time.  Whoever asks reads on; rows of the others wait for their turn.  When a stretch has no rows of
a side, a punctuation tells that side's stream how far the others have come; and while more than a
few chunks wait for others, a side has nothing to say, so that the join asks them.

Nothing here imports Spark but to ask which task it is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matwin.sources import Batches
from matwin.storage.errors import MatwinError
from matwin.streams import Punctuation, Sorted, Stream

from .onekey import OneKey

TAG, PART, OWN, SORT = "tag", "part", "own", "sort"
MEMORY = "128MiB"
"""The budget of a task unless one is given."""
CHUNK_ROWS, CHUNK_BYTES = 65_536, 4 << 20
WAITING_BYTES = 2 * CHUNK_BYTES
"""What may wait for its side to be asked, beside the chunk that was read last."""


@dataclass(frozen=True)
class Task:
    """What a part is joined with: the sides' columns by slot, and what makes batches of streams."""

    operator: str
    sides: tuple[str, ...]
    columns: tuple[tuple[tuple[str, str], ...], ...]
    """For each side, its columns: name, and what it is called in the exchange."""
    sort: str | None
    """The column by which the part is sorted; None where no order attribute is a number."""
    options: dict[str, Any]
    output: pa.Schema
    parts: tuple[str, ...]
    """What each part is called."""
    work: Work
    arguments: dict[str, Any] = field(default_factory=dict)
    one_key: OneKey | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The part's results, in Spark's types."""
        streams = Streams(self, iter(batches))
        try:
            if streams.is_empty:
                return
            options = {**self.options, **_local(self.options)}
            for batch in self.work(streams.all(), self.arguments, options):
                yield fitted(batch, self.output)
        except Exception as e:
            named = self.parts[streams.part]
            raise TaskError(f"{self.operator}, {named}: {type(e).__name__}: {e}") from e


class TaskError(MatwinError):
    """An operator failed in an executor; the message names operator, strip and cause."""


class Work(ABC):
    """What a task does with its streams."""

    @abstractmethod
    def __call__(
        self, streams: dict[str, Stream], arguments: dict[str, Any], options: dict[str, Any]
    ) -> Iterable[pa.RecordBatch]:
        """The batches that come out."""


def _local(options: dict[str, Any]) -> dict[str, Any]:
    """The executor's own folder for scratch, and as many threads as the task has cores."""
    from pyspark import TaskContext

    found: dict[str, Any] = {"memory": options.get("memory") or MEMORY}
    context = TaskContext.get()
    if options.get("threads") is None:
        found["threads"] = max(1, int(context.cpus())) if context is not None else 1
    if options.get("scratch") is None:
        found["scratch"] = local_folder()
    return found


def local_folder() -> str | None:
    """Where the executor keeps its own temporary files; Spark removes it with the executor."""
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            return folder
    return None


class Streams:
    """One sequence of tagged rows as a stream for each side."""

    def __init__(self, task: Task, batches: Iterator[pa.RecordBatch]) -> None:
        self._task = task
        self._batches = batches
        self._waiting: list[deque[Any]] = [deque() for _ in task.sides]
        self._held: pa.RecordBatch | None = next(
            (batch for batch in batches if batch.num_rows), None
        )
        self.is_empty = self._held is None
        self._bytes = [0] * len(task.sides)
        self._key: pa.Table | None = None
        self.part = 0
        if self._held is not None:
            self.part = int(self._held.column(TAG)[0].as_py()) // len(task.sides)

    def all(self) -> dict[str, Stream]:
        """The streams by name."""
        assert self._held is not None
        schema = self._held.schema
        found = {}
        for number, name in enumerate(self._task.sides):
            columns = self._task.columns[number]
            own = pa.schema([schema.field(slot).with_name(column) for column, slot in columns])
            found[name] = _stream(self._items(number), own, name, self._task.sort is not None)
        return found

    def _items(self, side: int) -> Iterator[Any]:
        while True:
            while self._waiting[side]:
                item = self._waiting[side].popleft()
                self._bytes[side] -= getattr(item, "nbytes", 0)
                yield item
            if max(self._bytes) > WAITING_BYTES:
                yield None
            elif not self._read():
                return

    def _read(self) -> bool:
        """Take a chunk and divide it among the sides; False at the end."""
        chunk = self._chunk()
        if not chunk:
            return False
        table = pa.Table.from_batches(chunk)
        upto = self._complete_upto(table)
        tags = table.column(TAG)
        first, taken = self.part * len(self._task.sides), 0
        for side, columns in enumerate(self._task.columns):
            mine = pc.equal(tags, pa.scalar(first + side, tags.type))
            rows = table.filter(mine).select([slot for _, slot in columns])
            taken += rows.num_rows
            if rows.num_rows:
                whole = rows.rename_columns([column for column, _ in columns]).combine_chunks()
                self._look_at_key(side, whole)
                for batch in whole.to_batches():
                    self._waiting[side].append(batch)
                    self._bytes[side] += batch.nbytes
            if upto is not None:
                self._waiting[side].append(Punctuation(upto))
        if taken < table.num_rows:  # copies of one row would meet, and find their matches twice
            raise AssertionError("Spark has brought rows of two parts together")
        return True

    def _look_at_key(self, side: int, rows: pa.Table) -> None:
        one = self._task.one_key
        if one is not None and side == one.side and self.part >= one.first:
            self._key = one.checked(self._key, rows)

    def _chunk(self) -> list[pa.RecordBatch]:
        """Some batches together: Spark's own are small."""
        found: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < CHUNK_ROWS and size < CHUNK_BYTES:
            batch, self._held = self._held, None
            batch = batch if batch is not None else next(self._batches, None)
            if batch is None:
                break
            found.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return found

    def _complete_upto(self, table: pa.Table) -> object:
        """What nothing that comes is below or equal to; the last value itself may come again."""
        if self._task.sort is None:
            return None
        column = table.column(self._task.sort)
        last = column.chunk(column.num_chunks - 1)[-1:]
        if last.null_count:
            return None
        if pa.types.is_floating(last.type):
            value = float(last[0].as_py())
            return float(np.nextafter(value, -np.inf)) if np.isfinite(value) else None
        if pa.types.is_decimal(last.type):
            with localcontext(prec=100):
                return last[0].as_py() - Decimal(1).scaleb(-last.type.scale)
        counted = last.view(_counted(last.type))
        before = int(counted[0].as_py()) - 1
        if before < -(2 ** (counted.type.bit_width - 1)):
            return None
        return pa.array([before], counted.type).view(last.type)[0]


def _counted(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if data_type.bit_width == 32 else pa.int64()


def _stream(items: Iterator[Any], schema: pa.Schema, name: str, is_sorted: bool) -> Any:
    source = Batches.of(items, name, schema, lambda item, where: item)
    if not is_sorted:
        return source
    return Stream(name, schema, False, None, None, source, None, Sorted(), "error", False)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in exactly the types that Spark has been told."""
    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        columns.append(column if column.type == wanted.type else column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def unique_name(wish: str, taken: Sequence[str]) -> str:
    """A column name like the wish that nobody has, whatever the case."""
    folded = {name.lower() for name in taken}
    while wish.lower() in folded:
        wish += "_"
    return wish
