"""Files as sources: one, several in a list, those of a folder or of a pattern.

    "day*.parquet"  ─▶  [day1, day2, …]  ─▶  one schema  ─▶  batches, file after file
                    └── places.py, on this machine or in an object store

Invariants:
* The files of one list have the same column names.  Their types are brought to a common one that
  holds every value, each value checked, or it is an error that names the file.
* Columns that folders tell (`key=value/`) are whole numbers if all values are, else text.  A column
  of that name in the file itself stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from matwin.storage.encodings import plain_schema, plain_type
from matwin.storage.errors import InputError
from matwin.storage.names import listed

from .csv_file import Csv
from .file import File, described_file, reading, size_of
from .formats import JsonLines, format_of, has_format, sniffed
from .places import Place, places
from .reading import Source, first_line, sliced, validated
from .row_groups import RowGroup, are_alike
from .shares import ReadShare


@dataclass(frozen=True)
class Files(Source):
    """The rows of files, one after the other."""

    files: tuple[File, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.place.local for file in self.files if file.place.local is not None)

    def named(self, name: str) -> Files:
        return replace(self, name=name, files=tuple(replace(f, name=name) for f in self.files))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.check_columns(columns)
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return self._batches(names, schema)

    def _batches(self, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        portion_bytes = self.share.portion_bytes
        for file in self.files:
            where = f"{self.name}: file {file.path!r}"
            batches = _with_constants(file, names, self.share)
            while True:
                with reading(file, where):
                    batch = next(batches, None)
                if batch is None:
                    break
                whole = batch if file.is_parsed else validated(batch, where)
                for part in sliced(whole, portion_bytes):
                    yield _cast(part, schema, where)

    def row_groups(self, column: str) -> list[RowGroup] | None:
        wanted = self.schema.field(column).type
        found: list[RowGroup] = []
        for file in self.files:
            is_same = plain_type(file.schema.field(column).type) == wanted
            is_own = column not in dict(file.constants)
            some = file.row_groups(column) if is_same and is_own else None
            if some is None:
                return None
            found += some
        return found

    def thinned(self, columns: Sequence[str], groups: int) -> Files | None:
        if len(self.files) > 1:  # a file is opened for what it says of a column
            return None
        told = [self.row_groups(column) for column in columns]
        if not told or not all(some is not None and are_alike(some) for some in told):
            return None
        every = told[0] or []
        if len(every) <= groups:
            return None
        chosen = tuple(range(0, len(every), -(-len(every) // groups)))
        rows = sum(every[at].rows for at in chosen)
        files = (replace(self.files[0], groups=chosen, rows_hint=rows),)
        return replace(self, files=files, rows_hint=rows, bytes_hint=None)


def _with_constants(file: File, names: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
    """A file's rows, with the columns that it does not have."""
    constants = dict(file.constants)
    own = [name for name in names if name not in constants]
    if len(own) == len(names):
        yield from file.batches(own, share)
        return
    # Somebody has to say how many rows there are.
    counting = [name for name in file.schema.names if name not in constants][:1]
    for batch in file.batches(own or counting, share):
        columns = {
            name: pa.repeat(constants[name], batch.num_rows)
            if name in constants
            else batch.column(name)
            for name in names
        }
        yield pa.RecordBatch.from_pydict(columns)


def files_source(
    data: Any, name: str, declared: pa.Schema | None = None, usual: type[File] | None = None
) -> Files:
    """The source of a path, a folder, a pattern or a list of them.

    `declared` are the columns of JSON lines and CSV, which their first lines tell otherwise;
    `usual` is the format of files whose names don't say it.
    """
    patterns = data if isinstance(data, list | tuple) else [data]
    is_known = has_format if usual is None else (lambda path: True)
    found = [p for each in patterns for p in places(os.fsdecode(each), name, is_known)]
    files = _with_hive([_described(place, name, declared, usual) for place in found])
    schema = _common_schema(files, name)
    files = [replace(file, schema=_without_nulls(file.schema, schema)) for file in files]
    return sum_of(files, schema, name)


def sum_of(files: Sequence[File], schema: pa.Schema, name: str) -> Files:
    """The source of files whose columns are known."""
    size, rows = _sum(f.bytes_hint for f in files), _sum(f.rows_hint for f in files)
    return Files(name, plain_schema(schema), True, size, rows, tuple(files))


def _with_hive(files: list[File]) -> list[File]:
    """The files with the columns that their folders tell."""
    told: dict[str, list[str | None]] = {}
    for file in files:
        for key, value in file.place.hive:
            told.setdefault(key, []).append(value)
    types = {key: _hive_type(values) for key, values in told.items()}
    return [with_columns(file, _scalars(file, types)) for file in files]


def _hive_type(values: Sequence[str | None]) -> pa.DataType:
    known = [value for value in values if value is not None]
    is_whole = all(re.fullmatch(r"-?[0-9]{1,18}", value) for value in known)
    return pa.int64() if known and is_whole else pa.string()


def _scalars(file: File, types: dict[str, pa.DataType]) -> dict[str, pa.Scalar]:
    def scalar(value: str | None, kind: pa.DataType) -> pa.Scalar:
        is_number = value is not None and pa.types.is_integer(kind)
        return pa.scalar(int(value) if is_number and value is not None else value, kind)

    return {key: scalar(value, types[key]) for key, value in file.place.hive}


def with_columns(file: File, values: dict[str, pa.Scalar]) -> File:
    """The file with columns that are the same in all its rows; its own stand."""
    new = {name: value for name, value in values.items() if name not in file.schema.names}
    schema = file.schema
    for name, value in new.items():
        schema = schema.append(pa.field(name, value.type))
    return replace(file, schema=schema, constants=tuple(new.items()))


def _sum(hints: Iterable[int | None]) -> int | None:
    known = list(hints)
    return None if None in known else sum(hint for hint in known if hint is not None)


def _described(
    place: Place, name: str, declared: pa.Schema | None, usual: type[File] | None
) -> File:
    where = f"{name}: file {place.path!r}"
    size_of(place, where)  # what is not there is told first
    if usual is not None and not has_format(place.path):
        kind = usual
    else:
        kind = sniffed(place) if place.held is not None else format_of(place.path, where)
    return described_file(place, name, kind, declared if kind in (Csv, JsonLines) else None)


def _common_schema(files: list[File], name: str) -> pa.Schema:
    """One schema for all files, of types that hold the values of each."""
    schema = files[0].schema
    for file in files[1:]:
        where = f"{name}: file {file.path!r}"
        odd = sorted({*schema.names} ^ {*file.schema.names})
        if odd:
            raise InputError(
                f"{where}: column {odd[0]!r} is not in all files of the list; {files[0].path!r} "
                f"has {listed(schema.names)}, this one {listed(file.schema.names)}"
            )
        try:
            schema = pa.unify_schemas([schema, file.schema], promote_options="permissive")
        except pa.ArrowException as e:
            raise InputError(f"{where}: its types don't go with the files before: {e}") from e
    is_csv = all(isinstance(file, Csv) for file in files)
    return _without_nulls(schema, None) if is_csv else schema


def _without_nulls(schema: pa.Schema, common: pa.Schema | None) -> pa.Schema:
    """The schema with a type for columns that look empty: the common one, or text."""
    fields = []
    for field in schema:
        if pa.types.is_null(field.type):
            field = field.with_type(common.field(field.name).type if common else pa.string())
        fields.append(field)
    return pa.schema(fields, schema.metadata)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch with the columns and types of the schema, no value changed."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names != schema.names:
        batch = batch.select(schema.names)
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as e:
                raise InputError(
                    f"{where}: column {field.name!r} is {column.type} here and {field.type} for "
                    f"all files, and a value does not fit: {first_line(e)}; give the files one type"
                ) from e
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
