"""`matwin.captured` and `matwin.replayable`: rows that a function of the caller's gives.

    first ──▶ normal ──▶ normal ──▶ …  ──▶ last          one scan: what is open from first to last
                  │ rows, None, StopIteration
    call.chunk  ──────────┤ cut ├──────────┤ cut         a new dict with every chunk
    call.scan   ─────────────────────────────────────    from the first to the last call
    call.query  ═════════════════════════════════════▶   over restarts, where it is replayable

In a continuous query the function is called in step: only when the open chunk needs more rows, and
only when the rows of the call before are in a chunk or wait for one.  So what it keeps in
`call.chunk` is of the chunk that its rows are meant for, but for the row that opens the next one,
by which the cut is found.  Scanning a chunk again never calls it: chunks come from pages then.

With ``replayable=True`` the query's buffer before each call is the mark of the rows that it gives:
what the function needs to go on from there has to be in it, as plain data.

Elsewhere there are no cuts: all is one chunk.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from matwin.storage.errors import InputError

from .growing import POLL_SECONDS, Growing, Marks, Switch
from .reading import checked_schema
from .sources import Batches
from .streams import ItemReader

Kind = Literal["first", "normal", "last"]


@dataclass(slots=True)
class Call:
    """What a capture function is called with; the same object every time."""

    kind: Kind = "first"
    """The first call of a scan, a normal one, or the last."""
    query: dict[str, Any] = field(default_factory=dict)
    """Lives as long as the query, over restarts where the source is replayable."""
    chunk: dict[str, Any] = field(default_factory=dict)
    """Lives until the next cut."""
    scan: dict[str, Any] = field(default_factory=dict)
    """Lives from the first to the last call."""


Function = Callable[[Call], Any]
_END = object()


def captured(
    function: Function, *, schema: pa.Schema, replayable: bool = False, name: str | None = None
) -> Captured:
    """Rows that a function gives, called again and again.

    It gets a `Call`, whose `kind` is ``"first"`` once, then ``"normal"``, and ``"last"`` once at
    the end, however that comes about.  It returns a record batch, a table, a row as a dict, a list
    of rows, or None where nothing is there now, and raises `StopIteration` at the end of its rows.

    `call.query`, `call.chunk` and `call.scan` are dicts to keep things in: as long as the query
    goes on, until the next cut, and between the first and the last call.  With ``replayable=True``
    the query's dict is committed with each epoch, and a restart goes on with what it was before
    the first row that is in no committed epoch; it must hold what JSON can.

    >>> import matwin, pyarrow as pa
    >>> def countdown(call):
    ...     if call.kind == "first":
    ...         call.scan["left"] = iter([3, 2, 1])
    ...     elif call.kind == "normal":
    ...         return {"n": next(call.scan["left"])}
    >>> source = matwin.captured(countdown, schema=pa.schema([("n", pa.int64())]))
    >>> [row for batch in source.batches() for row in batch.to_pylist()]
    [{'n': 3}, {'n': 2}, {'n': 1}]
    """
    called = name or _name(function)
    if not callable(function):
        raise InputError(f"captured: a {type(function).__name__} is no function")
    schema = _check_schema(schema, called)
    kind = CapturedAgain if replayable else Captured
    return kind(called, schema, False, None, None, Switch(), function, Step())


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_schema(schema: object, name: str) -> pa.Schema:
    if not isinstance(schema, pa.Schema):
        raise InputError(f"{name}: schema is a {type(schema).__name__}; give a pyarrow.Schema")
    return checked_schema(schema, name)


class Step:
    """What keeps a function in step with the epochs: it is asked for rows, and told of cuts."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: tuple[int | None, int] | None = None
        self._given = 0
        self._chunk: int | None = None

    def begin(self, row: int) -> None:
        """Rows are given from a number on."""
        with self._changed:
            self._given, self._chunk, self._asked = row, None, None

    def ask(self, chunk: int | None, row: int) -> None:
        """A chunk needs more than the rows below a number; None: the first is not open yet."""
        with self._changed:
            self._asked = chunk, row
            self._changed.notify_all()

    def wait(self) -> bool:
        """Whether somebody who has all rows so far has asked for more, after a little while."""
        with self._changed:
            return self._changed.wait_for(self._is_due, POLL_SECONDS)

    def _is_due(self) -> bool:
        return self._asked is not None and self._asked[1] >= self._given

    def begins_chunk(self) -> bool:
        """Answer who has asked; whether a chunk has ended since the answer before."""
        with self._changed:
            chunk = self._asked[0] if self._asked is not None else None
            self._asked, before = None, self._chunk
            self._chunk = before if chunk is None else chunk
            return before is not None and before != self._chunk

    def give(self, rows: int) -> None:
        """So many rows are on their way."""
        with self._changed:
            self._given += rows


@dataclass(frozen=True)
class Captured(Growing):
    """Rows that a function gives.  Make one with `captured`."""

    function: Function
    step: Step

    @property
    def cursor(self) -> object:
        return self.step

    def pieces(self) -> Generator[Any]:
        return _Scan(self, None, None).pieces()

    def items_in_step(self, mark: Any) -> Iterator[Any]:
        """Batches, each when it is asked for."""
        return self.portions(_Scan(self, self.step, mark).pieces())

    def ask(self, chunk: int | None, row: int) -> None:
        """The open chunk needs more than the rows below a number."""
        self.step.ask(chunk, row)


@dataclass(frozen=True)
class CapturedAgain(Captured):
    """The same, of a function that can go on from what its query's buffer was."""

    marks: Marks = field(default_factory=Marks)

    def items_from(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on."""
        return self.items_in_step(mark)

    def mark(self, row: int) -> tuple[Any, int]:
        """Where to begin for a row, and the rows before it from there on."""
        return self.marks.find(row)


class _Scan:
    """The calls from the first to the last."""

    def __init__(self, source: Captured, step: Step | None, mark: dict[str, Any] | None) -> None:
        self._source, self._step = source, step
        self._marks = source.marks if isinstance(source, CapturedAgain) else None
        self._call = Call(query=json.loads(mark["query"]) if mark else {})
        self._row = mark["row"] if mark else 0
        self._reader = ItemReader(is_punctuated=False, schema=source.schema)
        self._calls = 0
        if step is not None:
            step.begin(self._row)

    def pieces(self) -> Generator[Any]:
        """What the calls give, as batches."""
        is_over = False
        try:
            self._first()
            while not is_over:
                if self._step is not None and not self._step.wait():
                    yield None
                    continue
                found = self._normal()
                is_over = found is _END
                yield from self._given(self._called("last") if is_over else found)
        finally:
            if not is_over:
                self._called("last")

    def _first(self) -> None:
        if self._called("first") is not None:
            raise InputError(
                f"{self._source.name}: its first call has returned something; prepare what is "
                "needed there, and give rows in normal calls"
            )

    def _normal(self) -> Any:
        """What a call returns; `_END` where there is no more."""
        if self._step is not None and self._step.begins_chunk():
            self._call.chunk = {}
        try:
            found = self._called("normal")
        except StopIteration:
            return _END
        return _END if found is None and self._source.switch.is_on else found

    def _called(self, kind: Kind) -> Any:
        self._note()
        self._call.kind = kind
        self._calls += 1
        return self._source.function(self._call)

    def _given(self, found: Any) -> Iterator[Any]:
        """What a call has returned, handed over."""
        batches = self._batches(found)
        if self._step is not None:
            self._step.give(sum(batch.num_rows for batch in batches))
        for batch in batches:
            self._row += batch.num_rows
            yield batch
        if not batches:
            yield None
            if self._step is None:
                self._source.switch.wait()

    def _batches(self, found: Any) -> list[pa.RecordBatch]:
        if found is None:
            return []
        source = self._source
        rows = Batches.of([found], source.name, source.schema, self._reader)
        try:
            return list(rows.batches())
        except InputError as e:
            words = str(e).replace(f"{source.name}: batch 0", f"{source.name}: call {self._calls}")
            raise InputError(words) from e

    def _note(self) -> None:
        if self._marks is None:
            return
        try:
            text = json.dumps(self._call.query, allow_nan=False)
        except (TypeError, ValueError) as e:
            raise InputError(
                f"{self._source.name}: call.query holds what JSON can't ({e}); keep text, numbers, "
                "lists and dicts there, and other things in call.scan"
            ) from e
        self._marks.note(self._row, {"row": self._row, "query": text})


# ── offsets ──────────────────────────────────────────────────────────────────────────────────


def replayable(
    open_at: Callable[[int], Iterable[Any]], *, schema: pa.Schema, name: str | None = None
) -> Replayed:
    """Rows that can be had from any row on: ``open_at(row)`` gives them, from that number on.

    It gives an iterable of record batches, tables, rows as dicts, lists of rows, and None where
    nothing is there now; the same rows for the same numbers every time.

    >>> import matwin, pyarrow as pa
    >>> table = pa.table({"n": [1, 2, 3]})
    >>> source = matwin.replayable(lambda row: table.slice(row).to_batches(), schema=table.schema)
    >>> [batch.to_pylist() for batch in source.items_from({"row": 2})]
    [[{'n': 3}]]
    """
    called = name or _name(open_at)
    if not callable(open_at):
        raise InputError(f"replayable: a {type(open_at).__name__} is no function of a row's number")
    schema = _check_schema(schema, called)
    return Replayed(called, schema, False, None, None, Switch(), open_at)


@dataclass(frozen=True)
class Replayed(Growing):
    """Rows by their numbers.  Make one with `replayable`."""

    open_at: Callable[[int], Iterable[Any]]

    def pieces(self) -> Generator[Any]:
        return self._from(0)

    def _from(self, row: int) -> Generator[Any]:
        rows = self.open_at(row)
        if not isinstance(rows, Iterable):
            raise InputError(
                f"{self.name}: at row {row} it returned a {type(rows).__name__}; return an "
                "iterable of record batches"
            )
        reader = ItemReader(is_punctuated=False, schema=self.schema)
        for item in Batches.of(iter(rows), self.name, self.schema, reader).items():
            if item is None and self.switch.is_on:
                return
            yield item
            if item is None:
                self.switch.wait()

    def items_from(self, mark: Any) -> Iterator[Any]:
        """Batches from a mark on."""
        return self.portions(self._from(mark["row"] if mark else 0))

    def mark(self, row: int) -> tuple[Any, int]:
        """A row is its own mark."""
        return {"row": row}, 0
