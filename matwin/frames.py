"""Tables of other libraries and of plain Python, as Arrow tables.

pandas        its columns, and the levels of its index that have a name
list of dicts a column for each name that any row has; null where a row lacks it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from matwin.storage.errors import InputError

from .reading import first_line

_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError)


def pandas_table(frame: Any) -> pa.Table:
    """The columns of a pandas frame.

    pandas itself hands over every index but a plain range as a column ``__index_level_0__``, and a
    named range not at all.
    """
    named = [name for name in frame.index.names if name is not None]
    table = pa.Table.from_pandas(frame, preserve_index=bool(named))
    given = {*map(str, frame.columns), *map(str, named)}
    levels = {f"__index_level_{level}__" for level in range(frame.index.nlevels)}
    return table.drop_columns([name for name in table.column_names if name in levels - given])


def is_rows(data: object) -> bool:
    """Whether something is a list of rows, each a dict."""
    is_list = isinstance(data, list | tuple) and len(data) > 0
    return is_list and all(isinstance(row, Mapping) for row in data)  # type: ignore[attr-defined]


def rows_table(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Table:
    """The table of a list of rows.

    >>> rows_table([{"t": 1}, {"t": 2, "x": 0.5}], "left").schema.names
    ['t', 'x']
    """
    names = dict.fromkeys(column for row in rows for column in row)
    for column in names:
        if not isinstance(column, str):
            raise InputError(f"{name}: the key {column!r} of a row is no text; name columns by str")
    if not names:
        raise InputError(f"{name}: its rows have no columns")
    return pa.table({column: _column(rows, column, name) for column in names})


def _column(rows: Sequence[Mapping[str, Any]], column: str, name: str) -> pa.Array:
    values = [row.get(column) for row in rows]
    try:
        return pa.array(values)
    except _FAILURES as e:
        first = next((value for value in values if value is not None), None)
        number = _first_misfit(values)
        raise InputError(
            f"{name}: row {number}: column {column!r} is {values[number]!r:.60}, and {first!r:.60} "
            f"in a row before: {first_line(e)}; give the column one type"
        ) from e


def _first_misfit(values: list[Any]) -> int:
    """The number of the first value that does not go with those before, by halves."""
    low, high = 0, len(values) - 1  # the first `low` values are right, the first `high + 1` not
    while low < high:
        middle = (low + high) // 2
        try:
            pa.array(values[: middle + 1])
        except _FAILURES:
            high = middle
        else:
            low = middle + 1
    return low
