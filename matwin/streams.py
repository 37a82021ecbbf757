"""A stream: a source with a promise about the order of its rows.

    matwin.stream(source, on="t", order=Lateness("5s"), late="drop")

      Sorted()        no row is below one before it
      Lateness(c)     rows up to (largest so far - c) have all come
      ReadAhead(n)    what n consecutive rows are all above has come
      Punctuated()    a `Punctuation(upto)` among the batches says what has come
      GridOrdered(w)  floor(y / w) never falls: the first coordinate of ε-Grid-Order

What a promise means for rows that are still to come is `frontier.py`'s business; here it is only
checked that it can be meant.  An iterable, or a source that grows, is *live*: its
results should leave with each batch.

Invariants:
* Bad arguments are refused before any data is read.  Durations as text are checked for their form
  here, and against the column's unit when the join knows the column.
* With `schema` given, nothing is taken from an iterable before its items are asked for.

Left out here: reading ahead in another thread.  Joins of two sides ask both for rows in turn;
window joins read live streams by threads of their own (`operators.wjoin.inbox`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from matwin.storage.columns import is_temporal
from matwin.storage.encodings import plain_schema
from matwin.storage.errors import InputError
from matwin.storage.names import listed
from matwin.storage.units import HOW_TO_WRITE, Amount, is_duration, nanoseconds, shown

from .hints import did_you_mean
from .shares import ReadShare
from .sources import Batches, Source, is_iterable_source, source_of

LATE = ("error", "drop")


@dataclass(frozen=True, slots=True)
class Sorted:
    """No row is below one before it; equal ones may come."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Rows up to and including (largest so far - lateness) have all come.

    The bound belongs to what is complete, as in the paper: with ``Lateness(0)`` another row equal
    to the largest would be late.  Use `Sorted` where ties may come.
    """

    lateness: Amount

    def __post_init__(self) -> None:
        if _sign(self.lateness, "Lateness") < 0:
            raise InputError(
                f"Lateness({shown(self.lateness)}) is negative; rows can't come that early"
            )

    def __repr__(self) -> str:
        return f"Lateness(lateness={shown(self.lateness)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrow's own durations are pickled by way of Python's, which can't hold all of them.
        amount = self.lateness
        if isinstance(amount, pa.DurationScalar) and amount.is_valid:
            amount = f"{amount.value}{amount.type.unit}"
        return Lateness, (amount,)


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Once `rows` consecutive rows are all above a value, everything up to it has come."""

    rows: int

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int | np.integer):
            raise InputError(f"ReadAhead({self.rows!r}): give a whole number of rows")
        if self.rows < 1:
            raise InputError(f"ReadAhead({self.rows}): at least one row must be read ahead")
        object.__setattr__(self, "rows", int(self.rows))


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Batches come interspersed with `Punctuation`s that say how far the stream is complete."""


@dataclass(frozen=True, slots=True)
class GridOrdered:
    """``floor(y / width)`` never falls; the width is the tolerance ε unless it is given."""

    width: Amount | None = None

    def __post_init__(self) -> None:
        if self.width is not None and _sign(self.width, "GridOrdered") <= 0:
            raise InputError(f"GridOrdered({shown(self.width)}): a cell must be wider than nothing")

    def __repr__(self) -> str:
        return f"GridOrdered(width={shown(self.width)})"


Order = Sorted | Lateness | ReadAhead | Punctuated | GridOrdered
_ORDERS = (Sorted, Lateness, ReadAhead, Punctuated, GridOrdered)


@dataclass(frozen=True, slots=True)
class Punctuation:
    """No more rows whose order attribute is at most `upto`."""

    upto: object


def _sign(amount: Any, what: str) -> int:
    """-1, 0 or 1; an error for what is no amount."""
    if is_duration(amount):
        amount = nanoseconds(amount)
    is_number = isinstance(amount, int | float | Fraction | Decimal | np.integer | np.floating)
    if isinstance(amount, bool) or not is_number or not _is_finite(amount):
        raise InputError(
            f"{what}({shown(amount)}): give a finite number for a column of numbers; for times "
            f"{HOW_TO_WRITE}"
        )
    return int(amount > 0) - int(amount < 0)


def _is_finite(amount: Any) -> bool:
    return not isinstance(amount, float | Decimal | np.floating) or math.isfinite(amount)


@dataclass(frozen=True)
class Stream(Source):
    """A source whose order is declared.  Make one with `stream`."""

    name: str | None  # type: ignore[assignment]  # None until the join calls it left or right
    source: Source
    on: str | None
    order: Order
    late: str
    is_live: bool

    @property
    def paths(self) -> tuple[str, ...]:
        return self.source.paths

    def called(self, name: str) -> Stream:
        """The stream, called `name` in messages unless it has a name of its own."""
        if self.name is not None:
            return self
        return replace(self, name=name, source=self.source.named(name))

    def within(self, share: ReadShare) -> Stream:
        """The stream, its source read in portions that take so much."""
        return replace(self, share=share, source=self.source.within(share))

    def items(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch | Punctuation]:
        """Batches and, in a punctuated stream, what is said between them."""
        return self.source.items(columns)

    def drain(self) -> None:
        self.source.drain()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The batches alone."""
        return self.source.batches(columns)


def stream(
    source: object,
    *,
    on: str | None = None,
    order: Order | Literal["sorted"] = "sorted",
    late: Literal["error", "drop"] = "error",
    schema: pa.Schema | None = None,
    name: str | None = None,
    live: bool | None = None,
) -> Stream:
    """Declare the order of a source: anything a join takes, or an iterable of live items.

    `on` names the order attribute (None: the first attribute of the join).  ``late="drop"`` drops
    and counts rows that break the promise; the default is an error that names the row.  Items of an
    iterable may be record batches, tables, `Punctuation`s and, with `schema`, dicts (a row) and
    lists of dicts; None says that there is nothing to say now.  `live` says whether results should
    leave with each batch (None: for iterables, and for sources that grow such as `matwin.tail`).

    >>> stream(iter([{"t": 1}]), schema=pa.schema([("t", pa.int64())])).is_live
    True
    """
    promise = _order_of(order)
    if late not in LATE:
        raise InputError(f"late={late!r} is not one of {', '.join(map(repr, LATE))}")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InputError(f"schema is a {type(schema).__name__}; give a pyarrow.Schema")
    inner = _inner(source, promise, name or "stream", schema)
    names = inner.schema.names
    if on is not None and on not in names:
        near = did_you_mean(str(on), names)
        raise InputError(
            f"{inner.name}: column {on!r} is not there{near}; there are {listed(names)}"
        )
    is_live = inner.comes_live if live is None else bool(live)
    return Stream(
        name, inner.schema, inner.is_repeatable, inner.bytes_hint, inner.rows_hint,
        inner, on, promise, late, is_live,
    )  # fmt: skip


def _order_of(order: object) -> Order:
    if isinstance(order, _ORDERS):
        return order
    if order == "sorted":
        return Sorted()
    raise InputError(
        f"order={order!r} is not an order; use 'sorted', Sorted(), Lateness('5s'), ReadAhead(100), "
        "Punctuated() or GridOrdered()"
    )


def _inner(source: object, order: Order, name: str, schema: pa.Schema | None) -> Source:
    if isinstance(source, Stream):
        raise InputError(f"{name}: the source is a stream already; declare its order once")
    if is_iterable_source(source):
        return Batches.of(source, name, schema, ItemReader(isinstance(order, Punctuated), schema))
    if isinstance(order, Punctuated):
        raise InputError(
            f"{name}: only an iterable can hold punctuations; give batches and Punctuations, or "
            "declare another order"
        )
    inner = source_of(source, name)
    if schema is not None and not inner.schema.equals(plain_schema(schema)):
        raise InputError(f"{name}: its columns are\n{inner.schema}\nand not\n{schema}")
    return inner


@dataclass(frozen=True, slots=True)
class ItemReader:
    """What live items other than batches are."""

    is_punctuated: bool
    schema: pa.Schema | None

    def __call__(self, item: Any, where: str) -> object:
        if item is None:
            return None
        if isinstance(item, Punctuation):
            if self.is_punctuated:
                return item
            raise InputError(
                f"{where} is a Punctuation; declare the stream with order=Punctuated()"
            )
        if isinstance(item, Mapping):
            return self._rows([item], where)
        if isinstance(item, list | tuple) and all(isinstance(row, Mapping) for row in item):
            return self._rows(item, where)
        raise InputError(
            f"{where} is a {type(item).__name__}; give record batches, tables, Punctuations or, "
            "with schema=, dicts and lists of dicts"
        )

    def _rows(self, rows: Sequence[Mapping[str, Any]], where: str) -> pa.RecordBatch:
        if self.schema is None:
            raise InputError(f"{where} is a row; declare its columns with schema=")
        names = set(self.schema.names)
        for row in rows:
            for name in row:
                if name not in names:
                    raise InputError(f"{where} has column {name!r}, which the schema lacks")
        columns = [self._column(rows, field, where) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, rows: Sequence[Mapping[str, Any]], field: pa.Field, where: str) -> pa.Array:
        try:
            return _exact_array([row.get(field.name) for row in rows], field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
            raise InputError(f"{where}: column {field.name!r} is no {field.type}: {e}") from e


def _exact_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """An array of these values.  Arrow alone would cut 1.5 to 1, microseconds to seconds, and take
    the zone off a time."""
    array = pa.array(values, data_type)
    is_whole = pa.types.is_integer(data_type) or is_temporal(data_type)
    if not is_whole or all(
        value is None or isinstance(value, int | np.integer) for value in values
    ):
        return array
    given = pa.array(values)
    if getattr(given.type, "tz", None) is None and getattr(data_type, "tz", None) is not None:
        raise ValueError("a time without a zone; give it one")
    if getattr(given.type, "tz", None) is not None and getattr(data_type, "tz", None) is None:
        raise ValueError("a time with a zone; take it off, or declare the column with one")
    if not array.cast(given.type).equals(given):
        raise ValueError(f"{given[0]} and others have more digits; declare a finer type")
    return array


def is_live(sources: Iterable[object]) -> bool:
    """Whether one of them may go on for ever."""
    return any(isinstance(source, Stream) and source.is_live for source in sources)
