"""What the three forms share: rows come in, rows expire, pages are listed and read.

    append(batch) ──▶ tail, in memory ──full, or settle()──▶ pages (each form in its own way)
    expire(below) ──▶ pages wholly below are dropped; of the others, the rows below are masked

A call of `append` is all or nothing: what is written for it counts only once all of it is.

Meaning of `expire(below=b)`: every row whose order attribute is less than `b` and that is in the
window now is gone.  Null and NaN are less than nothing and stay.  A row appended later is in the
window, whatever its value: whether it is late is for the stream to say.

Several threads may use a window: calls on a store and its windows run one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from itertools import pairwise
from typing import ClassVar

import pyarrow as pa
from sortedcontainers import SortedKeyList

from ..arrays import arrow
from ..bounds import bound_key
from ..columns import INT64_MAX, cast_columns, order_key
from ..encodings import plain_type, result_type
from ..errors import CorruptPage, InputError, StoreError
from ..frame import Pinned
from ..grid import Grid
from ..layout import Page, PageId, check_names, check_rows, check_storable
from ..pool import BufferPool
from ..runs import PageRef, RunWriter, live_rows
from ..turns import in_turn
from .tail import Tail, least_from

DECODED_ROWS = 256
"""Rows decoded at a time where a column is dictionary-encoded: their values may be long."""


@dataclass(slots=True)
class WindowState:
    """What a completed step keeps of a window."""

    form: str
    schema: pa.Schema
    grid: str
    next_page: int
    refs: list[PageRef]


@dataclass(slots=True)
class _Call:
    """What it takes to undo a call of `append`.

    Until it spills, its rows are the tail's portions from `first_portion` on.  Then they are in the
    tail and in the pages from `first_page` on, and `replaced` are the pages that those replaced.
    """

    first_portion: int
    first_page: int | None = None
    replaced: list[PageRef] = dataclass_field(default_factory=list)


class Window(ABC):
    """A materialized window.  Made by `Store.window`."""

    form: ClassVar[str]
    _sorted_at_once: ClassVar[int] = 1
    """How many times the tail's limit sorting takes."""

    def __init__(
        self, pool: BufferPool, window: int, name: str, schema: pa.Schema, grid: Grid, reason: str
    ) -> None:
        self.name = name
        self.schema = schema
        self.grid = grid
        self.reason = reason
        self._pool = pool
        self._turn = pool.turn
        self._window = window
        self._next_page = 0
        self._page_schema = page_schema(schema, grid)
        self._required = [field.name for field in schema if not field.nullable]
        self._is_plain = _types(schema, self._page_schema.names) == self._page_schema.types
        self.result_schema = pa.schema([f.with_type(result_type(f.type)) for f in schema])
        self._tail = Tail(pool, grid, self._page_schema)
        self._call: _Call | None = None
        self._by_order: SortedKeyList[PageRef, int] = SortedKeyList(
            key=lambda ref: ref.fence.order_min
        )
        pool.register(window, name, self._page_schema)
        self._begin()

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    @in_turn
    def append(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows, all of them or, on an error, none; the window keeps its own copy."""
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise InputError(
                f"window {self.name!r} takes Arrow record batches and tables, not {type(rows)}"
            )
        self._pool.mark(self._window)  # an error where the window was dropped
        self._tail.join()
        with self._all_or_none():
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                self._check_columns(batch)
                for piece in self._plain(batch):
                    for plain in self._tail.pieces(piece):
                        while self._is_full_for(plain):
                            self._make_way()
                        self._tail.take(plain)

    def _is_full_for(self, piece: pa.RecordBatch) -> bool:
        """Whether something has to go before the rows can be taken."""
        return self._tail.is_full_for(piece)

    @property
    def append_bytes(self) -> int:
        """What calls of `append` take at most: the tail, its rows sorted with those that they are
        joined with, and the pages that are made of them."""
        page = self._pool.file.page_size
        largest = max(page, self._tail.limit // 4)  # a row may be larger than a page
        return self._sorted_at_once * self._tail.limit + self._tail.limit // 2 + 2 * page + largest

    def _plain(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch with the columns of a page; a few rows at a time where values are decoded."""
        rows = max(batch.num_rows, 1) if self._is_plain else DECODED_ROWS
        for start in range(0, batch.num_rows, rows):
            yield cast_columns(batch.slice(start, rows), self._page_schema)

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        self._call = call = _Call(len(self._tail.portions))
        try:
            yield
        except BaseException:
            self._call = None
            self._undo(call)
            raise
        self._call = None
        self._pool.drop([ref.page_id for ref in call.replaced], "rewritten")

    def _undo(self, call: _Call) -> None:
        self._tail.clear(call.first_portion if call.first_page is None else 0)
        if call.first_page is None:
            return
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
        if call is None or call.first_page is not None:
            self._spill()
            return
        new = self._tail.cut(call.first_portion)
        try:
            self._spill()
            call.first_page = self._next_page
        finally:
            call.first_portion = len(self._tail.portions)
            self._tail.put_back(new)

    def _retire(self, ref: PageRef) -> None:
        """Give up a page that others have replaced, if need be when the call has succeeded."""
        call = self._call
        if call and call.first_page is not None and ref.page_id.page < call.first_page:
            call.replaced.append(ref)
        else:
            self._pool.drop([ref.page_id], "rewritten")

    def _check_columns(self, batch: pa.RecordBatch) -> None:
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as e:
            raise InputError(f"window {self.name!r}: the batch is malformed: {e}") from e
        if not batch.schema.equals(self.schema):
            self._check_schema(batch.schema)
        for name in self._required:
            if batch.column(name).null_count:
                raise InputError(
                    f"window {self.name!r}: column {name!r} is not nullable and has a null"
                )

    def _check_schema(self, schema: pa.Schema) -> None:
        """Raise `InputError` where columns or types are others."""
        if sorted(schema.names) != sorted(self.schema.names):
            missing = sorted(set(self.schema.names) - set(schema.names))
            extra = sorted(set(schema.names) - set(self.schema.names))
            raise InputError(
                f"window {self.name!r}: columns missing: {missing}, not expected: {extra}"
            )
        for field in self.schema:
            found = schema.field(field.name).type
            if found != field.type:
                raise InputError(
                    f"window {self.name!r}: column {field.name!r} is {found}, "
                    f"the window has {field.type}; cast it first"
                )

    # ── rows out ─────────────────────────────────────────────────────────────────────────────

    @in_turn
    def expire(self, below: object) -> None:
        """Drop every row of the window whose order attribute is less than `below`."""
        order = self.grid.order.name
        bound = bound_key(below, self._page_schema.field(order).type, order)
        self.expire_key(bound, f"{order} < {getattr(below, 'value', below)}")

    @in_turn
    def expire_key(self, bound: int, why: str) -> None:
        """Drop every row of the window whose order key is less than `bound`."""
        self._tail.expire(bound)
        dead = []
        for ref in list(self._by_order.irange_key(max_key=bound, inclusive=(True, False))):
            if ref.fence.order_max < bound:
                dead.append(ref)
            else:
                ref.low = max(ref.low, bound)
        self._forget(dead)
        self._pool.drop([ref.page_id for ref in dead], why, event="expire")

    @in_turn
    def pages(self) -> list[PageRef]:
        """Every page with its fence, in ε-Grid-Order within each run."""
        self.settle()
        return list(self._listed())

    @contextmanager
    def read(self, ref: PageRef, why: str = "read") -> Iterator[pa.RecordBatch]:
        """The live rows of a page, valid inside the block; join attributes come first."""
        with self._pinned(ref, why) as page:
            yield live_rows(page.batch, ref, self.grid)

    @in_turn
    def _pinned(self, ref: PageRef, why: str) -> Pinned:
        if ref not in self._by_order:
            raise InputError(
                f"window {self.name!r} changed: page {ref.page_id.page} is gone; finish a scan "
                "before you change the window, and list its pages anew after you did"
            )
        return self._pool.pin(ref.page_id, why)

    def scan(self, upto_key: int = INT64_MAX) -> Iterator[pa.RecordBatch]:
        """All live rows, or those up to an order key, a page at a time, with the columns as they
        were appended."""
        for ref in self.pages():
            if ref.fence.order_min > upto_key:
                continue
            with self.read(ref, "scan") as page:
                batch = page
                if ref.fence.order_max > upto_key:
                    keys = order_key(page.column(self.grid.order.name))
                    batch = page.filter(arrow(keys <= upto_key))
                if batch.num_rows:
                    yield cast_columns(batch, self.result_schema)

    @in_turn
    def first_key(self, at_least: int) -> int | None:
        """The least order key of a live row from `at_least` on; reads the pages on which that
        stands, and brings nothing into pages.  Rows without an order value come last."""
        first = self._tail.first_key(at_least)
        for ref in self._by_order:
            if first is not None and ref.fence.order_min >= first:
                break
            if ref.fence.order_min >= max(at_least, ref.low):
                first = ref.fence.order_min
            elif ref.fence.order_max >= at_least:
                with self.read(ref, "first key") as rows:
                    keys = order_key(rows.column(self.grid.order.name))
                first = least_from(keys, at_least, first)
        return first

    @in_turn
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

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _begin(self) -> None:
        """Start with no pages."""

    @in_turn
    def settle(self) -> None:
        """Bring the tail into pages, so that every row is in one."""
        self._settle()

    @abstractmethod
    def _settle(self) -> None:
        """Bring the tail into pages."""

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

    @in_turn
    def state(self) -> WindowState:
        """What a completed step has to keep; the tail is settled first."""
        self.settle()
        return WindowState(
            self.form, self.schema, repr(self.grid), self._next_page, list(self._listed())
        )

    @in_turn
    def restore(self, state: WindowState) -> None:
        """Go on from a completed step."""
        if any(len(ref.fence.first) != len(self.grid.names) for ref in state.refs):
            raise CorruptPage(
                f"window {self.name!r} was kept with fences of another grid; restore the file, or "
                "delete it and run again from the source"
            )
        self._next_page = state.next_page
        self._restore(state.refs)
        sizes = {ref.page_id: ref.size for ref in state.refs}
        self._pool.adopt(sizes, partial(self._check_page, {r.page_id: r for r in state.refs}))

    def _check_page(self, refs: Mapping[PageId, PageRef], page: Page, data: pa.Buffer) -> None:
        """A page that another process wrote is what the manifest and the page itself say."""
        ref = refs[page.page_id]
        if (ref.rows, ref.fence) != (page.rows, page.fence):
            raise CorruptPage(
                f"window {self.name!r}: page {page.page_id.page} has other rows than were kept; "
                "restore the file, or delete it and run again from the source"
            )
        check_rows(page, data, self.grid.sort_keys)

    def _number(self) -> int:
        number, self._next_page = self._next_page, self._next_page + 1
        return number

    def _writer(self, run: int, why: str, *, keep: bool = False) -> RunWriter:
        return RunWriter(self._pool, self._window, self._number, run=run, why=why, keep=keep)

    @in_turn
    def clear(self, why: str) -> None:
        """Drop every row, also those without an order value."""
        self._tail.clear()
        refs = list(self._by_order)
        self._forget(refs)
        self._pool.drop([ref.page_id for ref in refs], why, event="expire")

    @in_turn
    def close(self) -> None:
        """Give up the window and its pages."""
        self._tail.clear()
        refs = list(self._by_order)
        self._forget(refs)
        self._pool.drop([ref.page_id for ref in refs], "closed")
        self._pool.unregister(self._window)

    @in_turn
    def page_ids(self) -> list[PageId]:
        """The names of the window's pages."""
        return [ref.page_id for ref in self._by_order]

    @in_turn
    def check(self) -> None:
        """Raise `AssertionError` unless every invariant holds."""
        listed = list(self._listed())
        assert sorted(r.page_id for r in listed) == sorted(r.page_id for r in self._by_order)
        for ref in listed:
            assert ref.page_id.page < self._next_page
            assert ref.fence.first <= ref.fence.last
            assert ref.fence.order_min <= ref.fence.order_max
        for before, after in pairwise(listed):
            assert before.run != after.run or before.fence.last <= after.fence.first


def page_schema(schema: pa.Schema, grid: Grid) -> pa.Schema:
    """The columns as they stand in pages: join attributes first, values plain."""
    check_names(schema)
    names = [*grid.names, *(name for name in schema.names if name not in grid.names)]
    fields = [schema.field(name) for name in names]
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in fields])
    check_storable(plain)
    return plain


def _types(schema: pa.Schema, names: list[str]) -> list[pa.DataType]:
    return [schema.field(name).type for name in names]
