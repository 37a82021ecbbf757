"""The streams of a job: files that are complete, and lines that still come.

    path = "calls-*.csv"               read to the end
    path = "calls.jsonl", follow = true    JSON lines, as somebody writes them; until it is removed
    path = "-"                         JSON lines on standard input

With ``--once`` nothing is followed: what is there is read, and standard input to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import pyarrow as pa

import matwin
from matwin.files import files_source
from matwin.jsonl import SUFFIXES, declared_schema
from matwin.storage.errors import InputError
from matwin.streams import Stream

from ..follow import STDIN, Following
from .job import Job, SourceGiven

FORMATS = {
    "parquet": (".parquet", ".pq"), "csv": (".csv",), "tsv": (".tsv",), "jsonl": SUFFIXES,
    "arrow": (".arrow", ".ipc", ".feather", ".arrows"),
}  # fmt: skip
END_SECONDS = 1.0
TYPED = ("parquet", "arrow")
"""Formats that say themselves what their columns are."""


class Feeding(Following):
    """The growing sources of a query.  A signal lets it end its epoch, which they then go on to
    feed; only what is waited for before the first epoch ends with the signal itself."""

    is_running = False

    def is_stopped(self) -> bool:
        """Whether nothing more is to be read."""
        return self._is_over or (not self.is_running and self.signals.number != 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, at)
        # What ends while the interpreter does would be reported as leaked by DuckDB.
        for thread in threading.enumerate():
            if thread.name.startswith("matwin stream "):
                thread.join(END_SECONDS)


def opened(job: Job, feeding: Feeding, *, is_once: bool) -> dict[str, Stream]:
    """The streams of a job; what has to be waited for is opened last."""
    live = {n: g for n, g in job.sources.items() if _is_live(g, is_once=is_once)}
    found = {n: _finite(n, g) for n, g in job.sources.items() if n not in live}
    found |= _followed(live, feeding)
    if is_once:
        drain(found)
    return {name: found[name] for name in job.sources}


def drain(streams: Mapping[str, Stream]) -> None:
    """Tell sources that grow to end with what is there."""
    for stream in streams.values():
        for source in (stream, stream.source):
            if hasattr(source, "drain"):
                source.drain()


def _is_live(given: SourceGiven, *, is_once: bool) -> bool:
    _check(given)
    return given.path == STDIN or (given.follow and not is_once)


def _check(given: SourceGiven) -> None:
    """Refuse words that don't go together."""
    where = given.where
    if given.format is not None and given.format not in FORMATS:
        raise where.of("format").wrong(f"{given.format!r}; choose one of {', '.join(FORMATS)}")
    is_lines = given.format in (None, "jsonl")
    if given.path == STDIN and not is_lines:
        raise where.of("format").wrong(
            f"{given.format!r}: standard input is read as JSON lines; write jsonl"
        )
    if given.follow and given.path != STDIN:
        is_lines = is_lines and isinstance(given.path, str) and given.path.endswith(SUFFIXES)
        if not is_lines:
            raise where.of("follow").wrong(
                f"only one file of JSON lines ({', '.join(SUFFIXES)}) is followed"
            )


def _schema(given: SourceGiven) -> pa.Schema | None:
    """The columns that are declared, as text or as a table."""
    if given.schema is None:
        return None
    text = given.schema if isinstance(given.schema, str) else ",".join(
        f"{name}:{kind}" for name, kind in given.schema.items()
    )  # fmt: skip
    return declared_schema(text, f"{given.where.file}: {given.where.of('schema').key}")


def _declared(name: str, source: Any, given: SourceGiven) -> Stream:
    with given.where.told():
        return matwin.stream(
            source, on=given.on, order=given.order, late=given.late, name=name,
        )  # fmt: skip


def _finite(name: str, given: SourceGiven) -> Stream:
    with given.where.told():
        schema = _schema(given)
        source = files_source(given.path, name, schema)
    for path in source.paths:
        kind = next((k for k, ends in FORMATS.items() if any(e in path.lower() for e in ends)), "")
        if given.format is not None and kind != given.format:
            raise given.where.of("format").wrong(
                f"{given.format!r}, and {path!r} is called {kind or 'something else'}; rename it"
            )
        if schema is not None and kind in TYPED:
            raise given.where.of("schema").wrong(f"{path!r} has types of its own; take it out")
    return _declared(name, source, given)


def _followed(live: Mapping[str, SourceGiven], feeding: Feeding) -> dict[str, Stream]:
    paths = {name: str(given.path) for name, given in live.items()}
    piped = [name for name, path in paths.items() if path == STDIN]
    if len(piped) > 1:
        raise live[piped[1]].where.wrong(
            f"{' and '.join(piped)} are both on standard input; give one of them a named pipe"
        )
    found: dict[str, Stream] = {}
    for name, take in feeding.takes(paths, None).items():
        given = live[name]
        with given.where.told():
            reading, batches = feeding.reading(name, take, _schema(given))
            found[name] = matwin.stream(
                batches, on=given.on, order=given.order, late=given.late, name=name,
                schema=reading.schema,
            )  # fmt: skip
    return found


def table_of(name: str, path: str | list[str], job: Job) -> Any:
    """A static table of a job."""
    try:
        return files_source(path, name)
    except InputError as e:
        raise job.where.of("tables").of(name).wrong(str(e)) from e
