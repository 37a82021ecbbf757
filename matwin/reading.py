"""What every source shares: its face, and how foreign rows are let in.

Invariants:
* Every batch is validated in full before anything looks at its values: a wrong offset in data that
  others wrote would crash the process.  Fixed-width columns cost nothing (0.5 µs for a table of any
  size, 0.4 µs for a one-row batch), text 0.3 ms/MB for its UTF-8, on one core.
* Batches are plain: dictionaries, views and runs are decoded as soon as a portion is cut, once and
  for all joins, and a source's schema says plain types from the beginning.
* What can't be read is an `InputError` that names the source.  Our own errors pass unchanged: the
  reader may be the result of another join.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from matwin.storage.encodings import plain_batch, plain_schema
from matwin.storage.errors import InputError, MatwinError
from matwin.storage.names import listed, repeated

from .hints import did_you_mean
from .row_groups import RowGroup
from .shares import ROOMY, ReadShare
from .sizes import plain_bytes

ROWS_PER_BATCH = 65536
NESTED_MAX = 63
"""So many levels of lists and structs Arrow writes to a file, and to a page."""

AnySource = TypeVar("AnySource", bound="Source")


@dataclass(frozen=True)
class Source(ABC):
    """Rows to be had as record batches, and what is known of them beforehand."""

    name: str
    """How errors call it: "left", "right", or the file's name."""
    schema: pa.Schema
    is_repeatable: bool
    """Whether the batches may be asked for again, and are the same rows."""
    bytes_hint: int | None
    """The decoded size where it is cheap to know."""
    rows_hint: int | None
    share: ReadShare = field(default=ROOMY, kw_only=True)
    """What it may take while it is read."""

    comes_live: ClassVar[bool] = False
    """Whether rows come while they are read, so that results should leave with each batch."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read, as far as we open them."""
        return ()

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows; only these columns, in this order, if any are named."""

    def items(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """The batches, and what a live source says between them: None where nothing is there now,
        punctuations."""
        return self.batches(columns)

    def drain(self) -> None:  # noqa: B027  (most have nothing to do)
        """Give what is there, then end; a source that does not grow does so anyway."""

    def row_groups(self, column: str) -> list[RowGroup] | None:
        """What is known of a column's values without reading them, row group by row group."""
        return None

    def thinned(self, columns: Sequence[str], groups: int) -> Source | None:
        """About so many row groups that stand for all rows; None where nobody knows that they do.

        Their rows are for a sample: they are a part of the rows."""
        return None

    def within(self: AnySource, share: ReadShare) -> AnySource:
        """The same rows, read in portions that take so much."""
        return replace(self, share=share)

    def named(self: AnySource, name: str) -> AnySource:
        """The same rows under another name in messages."""
        return replace(self, name=name)

    def called(self: AnySource, name: str) -> AnySource:
        """Itself, which has a name; a stream without one takes this."""
        return self

    def check_columns(self, columns: Sequence[str] | None) -> None:
        """Refuse names that are not there."""
        known = set(self.schema.names)
        for column in columns or ():
            if column not in known:
                near = did_you_mean(str(column), known)
                raise InputError(
                    f"{self.name}: column {column!r} is not there{near}; there are "
                    f"{listed(self.schema.names)}"
                )


def checked_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """The schema that batches have once they are let in, if its columns can be told apart and be
    put down."""
    try:
        names = schema.names
    except UnicodeDecodeError as e:
        raise InputError(f"{where}: a column's name is not UTF-8") from e
    doubles = repeated(names)
    if doubles:
        raise InputError(f"{where}: column {doubles[0]!r} is there twice; rename one of them")
    for name, data_type in zip(names, schema.types, strict=True):
        if data_type.num_fields:
            _check_parts(data_type, f"{where}: column {name!r}")
    return plain_schema(schema)


def _check_parts(data_type: pa.DataType, where: str) -> None:
    """Refuse a type whose parts Arrow can't write down, level by level."""
    level = [data_type]
    for _ in range(NESTED_MAX + 1):
        found = [inner for outer in level for inner in _parts(outer, where)]
        if not found:
            return
        level = found
    raise InputError(
        f"{where} is nested more than {NESTED_MAX} levels deep, which Arrow can't write down; "
        "flatten it"
    )


def _parts(data_type: pa.DataType, where: str) -> list[pa.DataType]:
    fields = [data_type.field(number) for number in range(data_type.num_fields)]
    try:
        for each in fields:
            _ = each.name
    except UnicodeDecodeError as e:
        raise InputError(f"{where} has a part whose name is not UTF-8") from e
    return [each.type for each in fields]


def validated(rows: Any, where: str) -> Any:
    """A table or batch whose buffers hold what its types say."""
    try:
        rows.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as e:
        raise InputError(f"{where}: its data is malformed and must be made anew: {e}") from e
    return rows


def read(
    reader: Any, columns: Sequence[str] | None, where: str, portion_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a reader, validated, in portions, none of them empty."""
    for batch in guarded(reader, where):
        wanted = batch if columns is None else batch.select(columns)
        yield from sliced(validated(wanted, where), portion_bytes)


def guarded(batches: Any, where: str) -> Iterator[Any]:
    """What an Arrow reader gives; its failures become errors that name the source."""
    batches = iter(batches)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except MatwinError:
            raise
        except (pa.ArrowException, OSError, ValueError) as e:
            raise InputError(f"{where}: reading failed: {first_line(e)}") from e
        yield batch


def sliced(batch: pa.RecordBatch, portion_bytes: int) -> Iterator[pa.RecordBatch]:
    """A batch in plain pieces of at most `ROWS_PER_BATCH` rows and of so many bytes, none of them
    empty; a single row may take more."""
    for start in range(0, batch.num_rows, ROWS_PER_BATCH):
        is_long = batch.num_rows > ROWS_PER_BATCH
        yield from _halved(batch.slice(start, ROWS_PER_BATCH) if is_long else batch, portion_bytes)


def _halved(batch: pa.RecordBatch, portion_bytes: int) -> Iterator[pa.RecordBatch]:
    # By halves, not by the mean: a few rows may be far wider than the others.
    if batch.num_rows < 2 or plain_bytes(batch) <= portion_bytes:
        yield plain_batch(batch)
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), portion_bytes)
    yield from _halved(batch.slice(half), portion_bytes)


def first_line(error: BaseException) -> str:
    """An error's text without the rest that Arrow adds for its developers."""
    return (str(error).splitlines() or [type(error).__name__])[0]
