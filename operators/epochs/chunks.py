"""Windows of chunks: the last n chunks of a stream, on pages, to be scanned as often as need be.

    rows as they come ──add──▶ fresh, in memory ──a portion, or the cut──▶ a run of pages
                                                                            of that chunk alone
    first scan, chunk still open   what has come, then what comes, until the cut
    every later scan               the same rows, from pages

Which of the two a scan is, is no business of whoever scans: it reads rows in their order, and waits
while the chunk is open and nothing more has come.  A chunk's pages hold no other chunk's rows, so
that a chunk that leaves the window leaves whole.

Several threads may scan while one adds rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa

from matwin.reading import Source, sliced
from matwin.storage.columns import cast_columns
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.materialize.slab import SlabWindow
from matwin.storage.runs import PageRef
from matwin.storage.store import Store

CHUNK = "matwin chunk"
"""The column with the number of the epoch; users' columns can't be called so."""


class Stopped(Exception):
    """Whoever adds rows has given up: a scan of an open chunk can't go on."""


@dataclass(slots=True)
class Chunk:
    """One epoch's rows of a stream."""

    epoch: int
    refs: list[PageRef] = field(default_factory=list)
    fresh: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    on_pages: int = 0
    is_open: bool = True


class ChunkWindow:
    """The last chunks of one stream."""

    def __init__(self, store: Store, name: str, schema: pa.Schema, keep: int, share: int) -> None:
        """`share` is what may be fresh, in bytes."""
        if CHUNK in schema.names:
            raise InputError(f"{name}: a column is called {CHUNK!r}, which is ours; rename it")
        self.name, self.schema, self.keep = name, schema, keep
        self._share = share
        self._changed = threading.Condition()
        self._is_stopped = False
        self._fresh_bytes = 0
        self.result_schema = pa.schema([f.with_type(plain_type(f.type)) for f in schema])
        """The columns as a scan gives them: as plain as pages have them."""
        stored = self.result_schema.append(pa.field(CHUNK, pa.int64(), nullable=False))
        window = store.window(name, stored, on={CHUNK: 1}, materialize="slab")
        self._window = cast(SlabWindow, window).only_runs()
        self._chunks: dict[int, Chunk] = {}
        for ref in window.pages():
            self._restored(ref)

    def _restored(self, ref: PageRef) -> None:
        epoch = ref.fence.order_min
        chunk = self._chunks.setdefault(epoch, Chunk(epoch, is_open=False))
        chunk.refs.append(ref)
        chunk.rows += ref.rows
        chunk.on_pages += ref.rows

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def begin(self, epoch: int) -> None:
        """A new chunk; those that leave the window are dropped."""
        with self._changed:
            self._chunks[epoch] = Chunk(epoch)
            below = epoch - self.keep + 1
            self._chunks = {e: chunk for e, chunk in self._chunks.items() if e >= below}
        self._window.expire(below)

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of the newest chunk."""
        rows = cast_columns(rows, self.result_schema)
        with self._changed:
            chunk = self._newest
            chunk.fresh.append(rows)
            chunk.rows += rows.num_rows
            self._fresh_bytes += rows.nbytes
            if self._fresh_bytes >= self._share:
                self._write(chunk)
            self._changed.notify_all()

    def end(self) -> None:
        """The newest chunk is complete."""
        with self._changed:
            chunk = self._newest
            self._write(chunk)
            chunk.is_open = False
            self._changed.notify_all()

    def take_back(self) -> None:
        """The newest chunk does not happen: its rows are read again some day."""
        with self._changed:
            chunk = self._chunks.pop(max(self._chunks))
            self._fresh_bytes = 0
        self._window.drop_run(chunk.refs)

    def stop(self) -> None:
        """Nothing more comes: scans that wait end with `Stopped`."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    @property
    def _newest(self) -> Chunk:
        return self._chunks[max(self._chunks)]

    def _write(self, chunk: Chunk) -> None:
        """Make a run of what is fresh."""
        if not chunk.fresh:
            return
        rows = pa.concat_batches(chunk.fresh)
        number = pa.repeat(pa.scalar(chunk.epoch, pa.int64()), rows.num_rows)
        numbered = pa.RecordBatch.from_arrays([*rows.columns, number], schema=self._window.schema)
        chunk.refs += self._window.add_run(numbered, is_to_merge=True)
        chunk.on_pages += rows.num_rows
        chunk.fresh = []
        self._fresh_bytes = 0

    # ── rows out ─────────────────────────────────────────────────────────────────────────────

    def epochs(self, last: int | None = None, *, skip: int = 0) -> list[int]:
        """The numbers of the last chunks, but for the `skip` newest."""
        known = sorted(self._chunks)
        newest = known[-1] if known else 0
        last = self.keep if last is None else last
        return [e for e in known if newest - last < e <= newest - skip]

    def rows(self, epochs: Sequence[int]) -> int | None:
        """How many rows chunks have; None while one of them is open."""
        chunks = [self._chunks[e] for e in epochs]
        return None if any(c.is_open for c in chunks) else sum(c.rows for c in chunks)

    def scan(
        self, epochs: Sequence[int], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of chunks, in the order in which they came."""
        for epoch in epochs:
            yield from self._scanned(self._chunks[epoch], columns)

    def _scanned(self, chunk: Chunk, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        done = pages = first = 0
        # Rows handed over, pages passed, and the rows of these.
        while True:
            with self._changed:
                self._wait_beyond(chunk, done)
                if self._is_stopped:
                    raise Stopped
                if chunk.rows == done:
                    return
                ref = chunk.refs[pages] if pages < len(chunk.refs) else None
                fresh = list(chunk.fresh) if ref is None else []
            if ref is not None:
                pages += 1
                if first + ref.rows > done:
                    with self._window.read(ref, "scan") as page:
                        rows = page
                    yield self._given(rows.slice(done - first), columns)
                    done = first + ref.rows
                first += ref.rows
                continue
            place = first
            for rows in fresh:
                if place + rows.num_rows > done:
                    yield self._given(rows.slice(done - place), columns)
                    done = place + rows.num_rows
                place += rows.num_rows

    def _wait_beyond(self, chunk: Chunk, rows: int) -> None:
        """Until the chunk has more rows, or is over."""
        self._changed.wait_for(lambda: chunk.rows > rows or not chunk.is_open or self._is_stopped)

    def _given(self, rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
        return rows.select(self.result_schema.names if columns is None else columns)

    def all_chunks(self) -> list[Chunk]:
        """The chunks, the oldest first; for whoever looks at them from outside."""
        return [self._chunks[epoch] for epoch in sorted(self._chunks)]

    def read_page(self, ref: PageRef) -> tuple[pa.Array, pa.RecordBatch]:
        """A page as it is: the epoch that each row is of, and the rows."""
        with self._window.read(ref, "verify") as page:
            return page.column(CHUNK), self._given(page, None)

    @property
    def held_rows(self) -> int:
        """Rows of all chunks."""
        return sum(chunk.rows for chunk in self._chunks.values())


@dataclass(frozen=True)
class ChunkSource(Source):
    """Chunks of a window as the source of a join: they can be read as often as need be."""

    window: ChunkWindow
    epochs: tuple[int, ...]

    @classmethod
    def of(cls, window: ChunkWindow, epochs: Sequence[int]) -> ChunkSource:
        """The source of some chunks."""
        rows = window.rows(epochs)
        return cls(window.name, window.result_schema, True, None, rows, window, tuple(epochs))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        for rows in self.window.scan(self.epochs, columns):
            yield from sliced(rows, self.share.portion_bytes)
