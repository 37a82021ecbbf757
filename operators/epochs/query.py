"""What a continuous query asks, epoch after epoch: a join, a function, or whatever has a `run`.

    partial(matwin.epsilon_join, chunks("a", last=1), chunks("b"), on=…)    a join of ours, bound
    def traffic(windows): …                                                 a function
    Question.run(windows)                                                   SQL (tools)

A query is one living instance.  `run` is called once an epoch, when its first row comes, in a
thread of its own: scans give what has come and wait for what comes, until the cut.  What it holds
besides belongs to the epoch and goes with it; what should last is in `windows.notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from matwin.bestmatch import bestmatch_join
from matwin.hints import did_you_mean
from matwin.operators.epsilon import epsilon_join
from matwin.operators.wjoin.join import window_join
from matwin.reading import Source
from matwin.sources import source_of
from matwin.storage.errors import InputError

from .chunks import ChunkSource, ChunkWindow
from .durable import CODE
from .functions import code_of

Pairs = Literal["all", "new"]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a stream, or a table, by name; made by `chunks`."""

    name: str
    last: int | None = None

    def __repr__(self) -> str:
        return f"chunks({self.name!r})" if self.last is None else (
            f"chunks({self.name!r}, last={self.last})"
        )  # fmt: skip


def chunks(name: str, *, last: int | None = None) -> Chunks:
    """The chunks that a continuous query keeps of a stream, or only the `last` of them.

    It stands for a source in a join that is bound to a continuous query; a table's name does, too.

    >>> chunks("calls", last=1)
    chunks('calls', last=1)
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"chunks({name!r}): give the name of a stream or table")
    if last is not None and (isinstance(last, bool) or not isinstance(last, int) or last < 1):
        raise InputError(f"chunks({name!r}, last={last!r}): give a whole number, 1 or more")
    return Chunks(name, last)


class Rows(Protocol):
    """What a query gives for an epoch: columns, and batches as they are found."""

    @property
    def schema(self) -> pa.Schema: ...
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


class Query(Protocol):
    """A question that is asked anew in every epoch."""

    def check(self, windows: Windows) -> None:
        """Refuse what can't be asked of these windows, before a row is read."""

    def told(self) -> dict[str, str]:
        """What it asks, in words: a state is another query's where they differ."""

    def run(self, windows: Windows) -> Rows:
        """The epoch's result."""

    def close(self) -> None:
        """The query is over."""


class View:
    """Some chunks of a stream, or a table, for whoever scans them."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.source.schema

    def scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows; those of the newest chunk as they come, until the cut."""
        return self.source.batches(columns)

    def to_arrow(self) -> pa.Table:
        """All rows, when they have come."""
        return pa.Table.from_batches(list(self.scan()), schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader of Arrow's."""
        return pa.RecordBatchReader.from_batches(self.schema, self.scan())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that speaks Arrow."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


class Windows(Mapping[str, View]):
    """What a query sees in an epoch: the chunks of every stream, and the tables."""

    def __init__(
        self, streams: Mapping[str, ChunkWindow], tables: Mapping[str, Source],
        notes: dict[str, Any] | None = None, epoch: int = 0, memory: int = 0,
        scratch: str | Path | None = None,
    ) -> None:  # fmt: skip
        self._streams, self._tables = streams, tables
        self.notes = {} if notes is None else notes
        """What lasts from epoch to epoch: anything that JSON can hold is committed with them."""
        self.epoch = epoch
        self.arrivals: Iterator[tuple[str, pa.RecordBatch]] = iter(())
        """The rows of all streams in the order in which they come, until the cut; for a query that
        `takes_arrivals`."""
        self.memory = memory
        """What the query may take, in bytes."""
        self.scratch = scratch
        """Where it may put down what does not fit."""

    def __getitem__(self, name: str) -> View:
        return self.last(name)

    def __iter__(self) -> Iterator[str]:
        return chain(self._streams, self._tables)

    def __contains__(self, name: object) -> bool:
        return name in self._streams or name in self._tables

    def __len__(self) -> int:
        return len(self._streams) + len(self._tables)

    def last(self, name: str, chunks: int | None = None, *, skip: int = 0) -> View:
        """The last chunks of a stream (None: all that are kept), but for the `skip` newest."""
        return View(self.source(Chunks(name, chunks), skip=skip))

    def newest(self, name: str) -> View:
        """The chunk of this epoch."""
        return self.last(name, 1)

    def source(self, wanted: Chunks, *, skip: int = 0) -> Source:
        """Chunks, or a table, as the source of a join."""
        if wanted.name in self._tables:
            return self._tables[wanted.name]
        window = self.window(wanted.name)
        return ChunkSource.of(window, window.epochs(wanted.last, skip=skip))

    def window(self, name: str) -> ChunkWindow:
        """The chunks that are kept of a stream."""
        if name not in self._streams:
            known = [*self._streams, *self._tables]
            near = did_you_mean(name, known)
            raise InputError(
                f"there is no stream or table {name!r}{near}; there are {', '.join(known)}"
            )
        return self._streams[name]

    def is_stream(self, name: str) -> bool:
        """Whether a name is a stream's."""
        return name in self._streams

    def check(self, wanted: Chunks) -> None:
        """Refuse chunks that nobody keeps."""
        if wanted.name in self._tables:
            if wanted.last is not None:
                raise InputError(f"{wanted!r}: {wanted.name!r} is a table, which has no chunks")
            return
        keep = self.window(wanted.name).keep
        if wanted.last is not None and wanted.last > keep:
            raise InputError(
                f"{wanted!r}: only {keep} are kept of {wanted.name!r}; give keep={wanted.last}"
            )


@dataclass(frozen=True, slots=True)
class Bound:
    """A join of ours whose sources are chunks."""

    join: partial[Any]
    pairs: Pairs

    @property
    def chunks(self) -> list[Chunks]:
        """The chunks among its arguments, in their order."""
        return [v for v in _flat([*self.join.args, *self.join.keywords.values()])
                if isinstance(v, Chunks)]  # fmt: skip

    def check(self, windows: Windows) -> None:
        """Refuse chunks that are not kept, and pairs that can't be given once."""
        if not self.chunks:
            raise InputError(
                f"{_name(self.join.func)}: none of its sources is matwin.chunks(...); name the "
                "streams that it joins"
            )
        for wanted in self.chunks:
            windows.check(wanted)
        if self.pairs == "new":
            self._check_new(windows)

    def _check_new(self, windows: Windows) -> None:
        """Each pair once: where every result holds a new row anyway, or pairs stand alone."""
        how = self.join.keywords.get("how", _HOW.get(self.join.func, "?"))
        if self.join.func is window_join or (self.join.func is epsilon_join and how == "inner"):
            return
        wide = [c for c in self.chunks if windows.is_stream(c.name) and width_of(c, windows) > 1]
        kept = {"left": 0, "semi": 0, "anti": 0, "right": 1}.get(how)
        ours = self.join.args[kept] if kept is not None and kept < len(self.join.args) else None
        if not wide or (isinstance(ours, Chunks) and ours not in wide):
            return
        raise InputError(
            f"pairs='new': {_name(self.join.func)} with how={how!r} over {wide[0]!r} gives other "
            "results when chunks are added, not more; take the newest chunk, "
            f"chunks({wide[0].name!r}, last=1), of the side that is kept, or pairs='all'"
        )

    def told(self) -> dict[str, str]:
        """The join, and every argument that changes its result."""
        given = {str(i): v for i, v in enumerate(self.join.args)} | self.join.keywords
        kept = {name: _told(v) for name, v in given.items() if name not in OPTIONS}
        codes = {f"{CODE}{name}": code for name, v in given.items()
                 if name not in OPTIONS and (code := code_of(v)) is not None}  # fmt: skip
        return {"query": _name(self.join.func), "pairs": self.pairs, **kept, **codes}

    def run(self, windows: Windows) -> Rows:
        """The join of the chunks as they are."""
        if self.pairs == "all":
            return self._joined(windows, {})
        return self._new(windows)

    def _joined(self, windows: Windows, only: Mapping[int, str]) -> Rows:
        """The join, in some places with only the "new" chunk, or only the "old" ones."""
        place = count()

        def filled(value: Any) -> Any:
            if isinstance(value, Chunks):
                part = only.get(next(place))
                wanted = Chunks(value.name, 1) if part == "new" else value
                return windows.source(wanted, skip=int(part == "old"))
            if isinstance(value, Mapping):
                return {name: filled(v) for name, v in value.items()}
            return [filled(v) for v in value] if type(value) is list else value

        args = [filled(v) for v in self.join.args]
        keywords = {name: filled(v) for name, v in self.join.keywords.items()}
        keywords.setdefault("memory", windows.memory)
        rows: Rows = self.join.func(*args, **keywords)
        return rows

    def _new(self, windows: Windows) -> Rows:
        """Every tuple that has a row of the newest chunk, once: the first place with such a row is
        joined with old rows before it and all rows behind it."""
        streams = [i for i, c in enumerate(self.chunks) if windows.is_stream(c.name)]
        joins: list[Rows] = []
        for at in streams:
            before = [i for i in streams if i < at]
            if any(width_of(self.chunks[i], windows) == 1 for i in before):
                break  # what stands there is always new
            joins.append(self._joined(windows, {**dict.fromkeys(before, "old"), at: "new"}))
        return _Several(joins)

    def close(self) -> None:
        """Nothing to do."""


def width_of(wanted: Chunks, windows: Windows) -> int:
    """How many chunks are asked for."""
    return windows.window(wanted.name).keep if wanted.last is None else wanted.last


@dataclass(frozen=True, slots=True)
class _Several:
    """Results of the same columns, one after the other."""

    parts: Sequence[Rows]

    @property
    def schema(self) -> pa.Schema:
        return self.parts[0].schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(self.parts)


@dataclass(frozen=True, slots=True)
class Called:
    """A function of the windows."""

    function: Callable[[Windows], Any]

    def check(self, windows: Windows) -> None:
        """Anything may be asked."""

    def told(self) -> dict[str, str]:
        """The function's name, and its code."""
        code = code_of(self.function)
        return {"query": _name(self.function)} | ({} if code is None else {f"{CODE}query": code})

    def run(self, windows: Windows) -> Rows:
        """What it returns, as rows."""
        found = self.function(windows)
        if found is None:
            raise InputError(
                f"{_name(self.function)} returned None for epoch {windows.epoch}; return a table, "
                "record batches or a result (an empty one where there is nothing)"
            )
        return _Rows(source_of(found, f"the result of {_name(self.function)}"))

    def close(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class _Rows:
    source: Source

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.source.batches()


OPTIONS = frozenset(
    ("memory", "page_size", "materialize", "schedule", "scratch", "trace", "threads", "progress",
     "report", "max_output_rows", "max_delay")
)  # fmt: skip
"""What changes no result."""
_HOW = {epsilon_join: "inner", bestmatch_join: "left"}


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Mapping):
            yield from _flat(list(value.values()))
        elif type(value) is list:
            yield from _flat(value)
        else:
            yield value


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _told(value: Any) -> str:
    """A value in words that are the same in the next process."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_told(k)}: {_told(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_told, value)) + ")"
    if isinstance(value, str | int | float | bool | Chunks) or value is None:
        return repr(value)
    if isinstance(value, pa.Table):
        return "a table of " + ", ".join(value.schema.names)
    return _name(value) if callable(value) else repr(value)


def check_pairs(query: object, pairs: Pairs) -> None:
    """Refuse what can't be given once: only a join of ours knows its pairs."""
    if pairs not in ("all", "new"):
        raise InputError(f"pairs={pairs!r}; choose 'all' or 'new'")
    if pairs == "new" and not isinstance(query, partial):
        raise InputError(
            "pairs='new' is for a join of ours, functools.partial(matwin.epsilon_join, ...); a "
            "function or SQL decides by itself which chunks it pairs, such as windows.newest(name)"
        )


def query_of(query: object, pairs: Pairs) -> Query:
    """The query that a partial or a function is."""
    check_pairs(query, pairs)
    if isinstance(query, partial):
        return Bound(query, pairs)
    if hasattr(query, "run") and hasattr(query, "told"):
        found: Any = query
        return found  # type: ignore[no-any-return]
    if callable(query):
        return Called(query)
    raise InputError(
        f"query is a {type(query).__name__}; give functools.partial(matwin.epsilon_join, ...) with "
        "matwin.chunks(...) as sources, a function of the windows, or SQL"
    )
