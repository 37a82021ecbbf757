"""A window join's question asked of DuckDB, and both answers compared as bags of rows.

    window_join ───────▶ rows ─┐
                               ├─ compare.py ─▶ equal, or what is missing and what is too much
    window_answer.py ──▶ rows ─┘

All tables and both answers are held in memory, and DuckDB's memory is its own: no budget bounds a
verification.

Left out: streams that can be read only once, because nobody knows what they would say a second
time, and those that drop late rows, because which rows are late depends on when they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matwin
from matwin.operators.wjoin.join import window_join
from matwin.sources import Source, source_of
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .referee import Rows, rows_of
from .verify import Verification, compared, told, verifiable
from .verify_question import asked_arguments
from .window_answer import window_answer
from .window_question import PlainQuestion

WAYS = ("algorithm", "bounds")
"""Arguments that say how tuples are found, and not which."""


def verify_window_join(
    streams: Mapping[str, object], *, result: object = None, **arguments: Any
) -> Verification:
    """Run a window join, ask DuckDB the same, and compare.

    The arguments are those of `matwin.window_join`.  `result` is an answer to check instead of
    running the join: a table, a reader or a file.

    Everything is read into memory, and DuckDB's own memory is not bounded by ``memory=``.

    >>> import pyarrow as pa
    >>> door = pa.table({"t": [1, 60], "who": ["ann", "bob"]})
    >>> desk = pa.table({"t": [4, 90], "who": ["ann", "bob"]})
    >>> seen = pa.table({"who": ["ann"], "door_t": [1], "desk_t": [4]})
    >>> print(verify_window_join(
    ...     {"door": door, "desk": desk}, time="t", windows=10, by="who", result=seen))
    equal: DuckDB finds the same rows, 1 in all
    """
    if not isinstance(streams, Mapping):
        raise InputError(f'streams={streams!r:.80}: write for example {{"a": one, "b": other}}')
    sources = {name: _verifiable(data, name) for name, data in streams.items()}
    asked = asked_arguments(window_join, (streams,), arguments)
    rows_asked = {name: value for name, value in asked.items() if name not in WAYS}
    schemas = {name: source.schema for name, source in sources.items()}
    question = PlainQuestion.of(schemas, **rows_asked)
    read = _read(streams, sources)
    tables = {name: rows.table for name, rows in read.items()}
    expected = window_answer([tables[name] for name in question.names], question)
    if result is not None:
        found = rows_of(source_of(result, "result"))
        return told(compared(found.table, expected, cast=True), [*read.values(), found])
    # A reader has been read by now; what can be read again is joined as it was given.
    given = {
        name: data if sources[name].is_repeatable else tables[name]
        for name, data in streams.items()
    }
    answer = matwin.window_join(given, **arguments).read_all()
    return told(compared(answer, expected), read.values())


def _verifiable(data: object, name: str) -> Source:
    source = verifiable(data, name)
    if isinstance(source, Stream) and not source.is_repeatable:
        raise InputError(
            f"stream {name!r} can be read only once, so nothing can be verified; give a table, "
            "files or a list of batches"
        )
    return source


def _read(streams: Mapping[str, object], sources: Mapping[str, Source]) -> dict[str, Rows]:
    """The rows of each stream; a source that stands under two names is read once."""
    read: dict[int, Rows] = {}
    for name, data in streams.items():
        if id(data) not in read:
            read[id(data)] = rows_of(sources[name])
    return {name: read[id(data)] for name, data in streams.items()}
