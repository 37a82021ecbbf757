"""What the three forms share: rows come in, rows expire, pages are listed and read.

    append(batch) ──▶ tail, in memory ──full, or settle()──▶ pages (each form in its own way)
    expire(below) ──▶ pages wholly below are dropped; of the others, the rows below are masked

The tail counts against the pool's budget and is never so large that sorting it would not fit.

Meaning of `expire(below=b)`: every row whose order attribute is less than `b` and that is in the
window now is gone.  Null and NaN are less than nothing and stay.  A row appended later is in the
window, whatever its value: whether it is late is for the stream to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
from sortedcontainers import SortedKeyList

from ..columns import Int64s, bound_key, cast_columns, order_key, plain_type
from ..errors import InputError, StoreError
from ..grid import Grid
from ..layout import PageId, check_names, check_storable
from ..pool import BufferPool
from ..runs import PageRef, RunWriter, Sorted, live_rows, sort_rows, sort_space


@dataclass(slots=True)
class WindowState:
    """What a completed step keeps of a window."""

    form: str
    schema: pa.Schema
    grid: str
    next_page: int
    refs: list[PageRef]


@dataclass(slots=True)
class _Portion:
    batch: pa.RecordBatch
    keys: Int64s
    size: int


@dataclass(slots=True)
class _Call:
    """What it takes to undo a call of `append`.

    Until it spills, its rows are the tail's portions from `first_portion` on.  Then they are in the
    tail and in the pages from `first_page` on, and `replaced` are the pages that those replaced.
    """

    first_portion: int
    first_page: int | None = None
    replaced: list[PageRef] = field(default_factory=list)


class Window(ABC):
    """A materialized window.  Made by `Store.window`."""

    form: ClassVar[str]

    def __init__(
        self, pool: BufferPool, window: int, name: str, schema: pa.Schema, grid: Grid, reason: str
    ) -> None:
        self.name = name
        self.schema = schema
        self.grid = grid
        self.reason = reason
        self._pool = pool
        self._window = window
        self._next_page = 0
        self._page_schema = page_schema(schema, grid)
        self._tail: list[_Portion] = []
        self._tail_rows = 0
        self._tail_bytes = 0
        self._call: _Call | None = None
        self._by_order: SortedKeyList[PageRef, int] = SortedKeyList(
            key=lambda ref: ref.fence.order_min
        )
        pool.register(window, name, self._page_schema)
        self._begin()

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def append(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows, all of them or, on an error, none; the window keeps its own copy."""
        with self._all_or_none():
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                self._check_columns(batch)
                for piece in self._pieces(batch):
                    for plain in self._pieces(cast_columns(piece, self._page_schema)):
                        self._take(plain)

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        self._call = call = _Call(len(self._tail))
        try:
            yield
        except BaseException:
            self._call = None
            self._undo(call)
            raise
        self._call = None
        self._pool.drop([ref.page_id for ref in call.replaced], "rewritten")

    def _undo(self, call: _Call) -> None:
        if call.first_page is None:
            self._set_tail(self._tail[: call.first_portion], self._tail[call.first_portion :])
            return
        self._set_tail([], self._tail)
        made = [ref for ref in self._by_order if ref.page_id.page >= call.first_page]
        self._forget(made)
        if call.replaced:
            self._restore(call.replaced)
        with suppress(StoreError):
            self._pool.drop([ref.page_id for ref in made], "taken back")

    def _make_way(self) -> None:
        """Spill.  What was there before this call goes first and alone, so that its rows and the
        call's are in different pages."""
        call = self._call
        if call is not None and call.first_page is None:
            new = self._tail[call.first_portion :]
            self._set_tail(self._tail[: call.first_portion])
            try:
                self._spill()
                call.first_page = self._next_page
            finally:
                call.first_portion = len(self._tail)
                self._set_tail([*self._tail, *new])
        else:
            self._spill()

    def _set_tail(self, tail: list[_Portion], gone: Sequence[_Portion] = ()) -> None:
        self._pool.give_back(sum(portion.size for portion in gone))
        self._tail = tail
        self._tail_rows = sum(portion.batch.num_rows for portion in tail)
        self._tail_bytes = sum(portion.size for portion in tail)

    def _retire(self, ref: PageRef) -> None:
        """Give up a page that others have replaced, if need be when the call has succeeded."""
        call = self._call
        if call and call.first_page is not None and ref.page_id.page < call.first_page:
            call.replaced.append(ref)
        else:
            self._pool.drop([ref.page_id], "rewritten")

    def _sort_space(self, more_rows: int = 0, more_bytes: int = 0) -> int:
        return sort_space(
            self._tail_rows + more_rows, self._tail_bytes + more_bytes, len(self.grid.names) + 1
        )

    @property
    def _tail_limit(self) -> int:
        """What sorting the tail may take: a quarter of the budget for a window on its own."""
        return self._pool.budget_bytes // (2 * (self._pool.windows + 1))

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in parts a fraction of the tail's size, a single row at the least."""
        rows, size = batch.num_rows, int(pa.ipc.get_record_batch_size(batch))
        space = sort_space(rows, size, len(self.grid.names) + 1)
        if rows > 1 and space > self._tail_limit // 4:
            yield from self._pieces(batch.slice(0, rows // 2))
            yield from self._pieces(batch.slice(rows // 2))
        elif rows:
            yield batch

    def _check_columns(self, batch: pa.RecordBatch) -> None:
        batch.validate()
        if sorted(batch.schema.names) != sorted(self.schema.names):
            missing = sorted(set(self.schema.names) - set(batch.schema.names))
            extra = sorted(set(batch.schema.names) - set(self.schema.names))
            raise InputError(
                f"window {self.name!r}: columns missing: {missing}, not expected: {extra}"
            )
        for field in self.schema:
            found = batch.schema.field(field.name).type
            if found != field.type:
                raise InputError(
                    f"window {self.name!r}: column {field.name!r} is {found}, "
                    f"the window has {field.type}; cast it first"
                )

    @contextmanager
    def _sorted_tail(self) -> Iterator[Sorted]:
        """The tail's rows in order, with room for sorting and writing them."""
        with self._pool.reserve(self._sort_space() + 2 * self._pool.file.page_size):
            rows = pa.concat_batches([portion.batch for portion in self._tail])
            yield sort_rows(rows, self.grid)

    def _clear_tail(self) -> None:
        self._pool.give_back(sum(portion.size for portion in self._tail))
        self._tail.clear()
        self._tail_rows = self._tail_bytes = 0

    def _take(self, piece: pa.RecordBatch) -> None:
        size = int(pa.ipc.get_record_batch_size(piece))
        while self._tail and self._sort_space(piece.num_rows, size) > self._tail_limit:
            self._make_way()
        self._pool.take(size)
        self._hold(pa.ipc.read_record_batch(piece.serialize(), self._page_schema), size)

    def _hold(self, owned: pa.RecordBatch, size: int) -> None:
        keys = order_key(owned.column(self.grid.order.name))
        self._tail.append(_Portion(owned, keys, size))
        self._tail_rows += owned.num_rows
        self._tail_bytes += size

    # ── rows out ─────────────────────────────────────────────────────────────────────────────

    def expire(self, below: object) -> None:
        """Drop every row of the window whose order attribute is less than `below`."""
        order = self.grid.order.name
        bound = bound_key(below, self._page_schema.field(order).type, order)
        self._expire_tail(bound)
        dead = []
        for ref in list(self._by_order.irange_key(max_key=bound, inclusive=(True, False))):
            if ref.fence.order_max < bound:
                dead.append(ref)
            else:
                ref.low = max(ref.low, bound)
        self._forget(dead)
        why = f"{order} < {below}"
        self._pool.drop([ref.page_id for ref in dead], why, event="expire")

    def _expire_tail(self, bound: int) -> None:
        kept = []
        for portion in self._tail:
            alive = portion.keys >= bound
            if alive.all():
                kept.append(portion)
                continue
            self._tail_rows -= portion.batch.num_rows - int(alive.sum())
            if alive.any():
                batch = portion.batch.filter(pa.array(alive))
                kept.append(_Portion(batch, portion.keys[alive], portion.size))
            else:
                self._pool.give_back(portion.size)
                self._tail_bytes -= portion.size
        self._tail = kept

    def pages(self) -> list[PageRef]:
        """Every page with its fence, in ε-Grid-Order within each run."""
        self.settle()
        return list(self._listed())

    @contextmanager
    def read(self, ref: PageRef, why: str = "read") -> Iterator[pa.RecordBatch]:
        """The live rows of a page, valid inside the block; join attributes come first."""
        with self._pool.pin(ref.page_id, why) as page:
            yield live_rows(page.batch, ref, self.grid)

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All live rows, a page at a time, with the columns as they were appended."""
        for ref in self.pages():
            with self.read(ref, "scan") as batch:
                if batch.num_rows:
                    yield cast_columns(batch, self.schema)

    def count(self) -> int:
        """How many rows are live; reads the pages of which some rows have expired."""
        total = 0
        for ref in self.pages():
            if ref.is_whole:
                total += ref.rows
            else:
                with self.read(ref, "count") as batch:
                    total += batch.num_rows
        return total

    @property
    def page_count(self) -> int:
        """How many pages the window has, without the tail."""
        return len(self._by_order)

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _begin(self) -> None:
        """Start with no pages."""

    @abstractmethod
    def settle(self) -> None:
        """Bring the tail into pages, so that every row is in one."""

    @abstractmethod
    def _spill(self) -> None:
        """The tail is full: make room for more rows."""

    @abstractmethod
    def _listed(self) -> Iterable[PageRef]:
        """The pages in the order to list them."""

    @abstractmethod
    def _forget(self, refs: list[PageRef]) -> None:
        """The pages are gone."""

    @abstractmethod
    def _restore(self, refs: list[PageRef]) -> None:
        """Take over the pages of a completed step."""

    def state(self) -> WindowState:
        """What a completed step has to keep; the tail is settled first."""
        self.settle()
        return WindowState(
            self.form, self.schema, repr(self.grid), self._next_page, list(self._listed())
        )

    def restore(self, state: WindowState) -> None:
        """Go on from a completed step."""
        self._next_page = state.next_page
        self._restore(state.refs)

    def _number(self) -> int:
        number, self._next_page = self._next_page, self._next_page + 1
        return number

    def _writer(self, run: int, why: str, *, keep: bool = False) -> RunWriter:
        return RunWriter(self._pool, self._window, self._number, run=run, why=why, keep=keep)

    def close(self) -> None:
        """Give up the window and its pages."""
        self._clear_tail()
        refs = list(self._by_order)
        self._forget(refs)
        self._pool.drop([ref.page_id for ref in refs], "closed")
        self._pool.unregister(self._window)

    def page_ids(self) -> list[PageId]:
        """The names of the window's pages."""
        return [ref.page_id for ref in self._by_order]

    def check(self) -> None:
        """Raise `AssertionError` unless every invariant holds."""
        listed = list(self._listed())
        assert sorted(r.page_id for r in listed) == sorted(r.page_id for r in self._by_order)
        assert self._tail_bytes == sum(portion.size for portion in self._tail)
        assert self._tail_rows == sum(portion.batch.num_rows for portion in self._tail)
        for ref in listed:
            assert ref.page_id.page < self._next_page
            assert ref.fence.first <= ref.fence.last
            assert ref.fence.order_min <= ref.fence.order_max
        for before, after in zip(listed, listed[1:], strict=False):
            assert before.run != after.run or before.fence.last <= after.fence.first


def page_schema(schema: pa.Schema, grid: Grid) -> pa.Schema:
    """The columns as they stand in pages: join attributes first, values plain."""
    check_names(schema)
    names = [*grid.names, *(name for name in schema.names if name not in grid.names)]
    fields = [schema.field(name) for name in names]
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in fields])
    check_storable(plain)
    return plain
