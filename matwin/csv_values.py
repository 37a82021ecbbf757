"""CSV's fields as values, in one way for files, growing text and peers.

    field        text column   float column   other columns
    (nothing)    null          null           null           as pandas, Polars and DuckDB have it
    ""           ""            null           null           as Polars has it
    NA null …    itself        null           null           as pandas has it
    nan          itself        NaN            null

In a file of one column an empty line is a row (as Polars and DuckDB have it); elsewhere it is none.

Arrow takes one list of words for null for all columns of a reading.  Columns are read at once:

    as texts are      until a number is a word for null: the empty field is the only null
    as floats are     until another number is "nan": texts have no null, their empty fields get one
    apart             texts, floats and others, each by themselves
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from matwin.storage.errors import InputError

from .reading import checked_schema, first_line

Text = bytes | memoryview

WORDS: tuple[str, ...] = tuple(pa_csv.ConvertOptions().null_values)
"""What is null where it can't be a text."""
_FLOAT_WORDS = tuple(word for word in WORDS if word.lower().lstrip("-") != "nan")

_MEASURED = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
"""Texts whose lengths are at hand."""
_TWO_QUOTES = re.compile(rb'""')


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that are read at once, and what is null in them."""

    names: tuple[str, ...]
    words: tuple[str, ...]
    may_be_text: bool
    empty: tuple[str, ...] = ()
    """Texts among columns that are read as numbers are: Arrow leaves their empty fields empty."""

    def options(self, schema: pa.Schema) -> pa_csv.ConvertOptions:
        """The same for Arrow."""
        return pa_csv.ConvertOptions(
            column_types={name: schema.field(name).type for name in self.names},
            include_columns=list(self.names),
            null_values=list(self.words),
            strings_can_be_null=self.may_be_text,
            quoted_strings_can_be_null=not self.may_be_text,
        )


def ways(schema: pa.Schema, names: Sequence[str]) -> list[list[Columns]]:
    """Ways to read columns, the cheapest first; the last one is always right."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        kinds.setdefault(null_words(schema.field(name).type), []).append(name)
    apart = [Columns(tuple(some), words, words == ("",)) for words, some in kinds.items()]
    if len(apart) == 1:
        return [apart]
    texts = tuple(kinds.get(("",), ()))
    found = [[Columns(tuple(names), ("",), True)], apart]
    if all(schema.field(name).type in _MEASURED for name in texts):
        words = _FLOAT_WORDS if _FLOAT_WORDS in kinds else WORDS
        found.insert(1, [Columns(tuple(names), words, False, texts)])
    return found


def null_words(data_type: pa.DataType) -> tuple[str, ...]:
    """What is null in a column of this type."""
    t = pa.types
    value = data_type.value_type if t.is_dictionary(data_type) else data_type
    is_binary = t.is_binary(value) or t.is_large_binary(value) or t.is_fixed_size_binary(value)
    if is_binary or t.is_string(value) or t.is_large_string(value) or t.is_string_view(value):
        return ("",)
    return _FLOAT_WORDS if t.is_floating(value) else WORDS


class Values:
    """Reads records without a header, again and again."""

    def __init__(self, delimiter: str, schema: pa.Schema, names: Sequence[str]) -> None:
        self._delimiter, self._schema, self._names = delimiter, schema, list(names)
        self._ways = ways(schema, names)

    def table(self, text: Text, header: Sequence[str]) -> pa.Table:
        """The rows of some records; Arrow's own errors."""
        while True:
            try:
                parts = [self._part(text, header, columns) for columns in self._ways[0]]
                break
            except pa.ArrowInvalid as e:
                if len(self._ways) == 1 or "conversion error" not in str(e):
                    raise
                del self._ways[0]
        if len(parts) == 1:
            return parts[0]
        found = {name: part[name] for part in parts for name in part.column_names}
        return pa.table({name: found[name] for name in self._names})

    def _part(self, text: Text, header: Sequence[str], columns: Columns) -> pa.Table:
        table = read_records(text, self._delimiter, header, columns.options(self._schema))
        lengths = {name: pc.binary_length(table[name]) for name in columns.empty}
        empty = [name for name in lengths if pc.min(lengths[name]).as_py() == 0]
        if not empty:
            return table
        if _TWO_QUOTES.search(text):  # some may be quoted
            texts = Columns(tuple(empty), ("",), True)
            parts = self._part(text, header, texts)
        else:
            parts = {
                name: pc.if_else(pc.greater(lengths[name], 0), table[name], None) for name in empty
            }
        for name in empty:
            table = table.set_column(table.column_names.index(name), name, parts[name])
        return table


def read_records(
    text: Text, delimiter: str, header: Sequence[str], convert: pa_csv.ConvertOptions
) -> pa.Table:
    """The rows of records without a header."""
    # A reader of streams has less to set up than read_csv has for each block.
    with pa_csv.open_csv(
        # In Arrow's memory: a thread of Arrow's that had to ask Python while it ends would abort.
        pa.BufferReader(text),
        read_options=pa_csv.ReadOptions(
            column_names=header, use_threads=False, block_size=len(text) + 1
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
        ),
        convert_options=convert,
    ) as reader:
        return reader.read_all()


def header_of(text: Text, delimiter: str, where: str) -> list[str]:
    """The names in a header line."""
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text), parse_options=pa_csv.ParseOptions(delimiter=delimiter)
        )
    except pa.ArrowException as e:
        raise InputError(f"{where}: line 1 is no header: {first_line(e)}") from e
    checked_schema(table.schema, where)
    return list(table.column_names)
