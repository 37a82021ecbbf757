"""The streams of a job: files that are complete, and sources that grow.

    path = "calls-*.csv"                   read to the end
    path = "calls.jsonl", follow = true    as somebody writes it
    path = "-"                             standard input, to its end
    listen = ":9000"                       whoever connects; connect = "host:9000" the other way

With ``--once`` a source that grows gives what is there and ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import pyarrow as pa

import matwin
from matwin.files import files_source
from matwin.formats import format_named, has_format
from matwin.growing import STDIN
from matwin.jsonl import SUFFIXES, declared_schema
from matwin.storage.errors import InputError
from matwin.streams import Stream

from ..follow import Following
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


def opened(job: Job, *, is_once: bool) -> dict[str, Stream]:
    """The streams of a job; what has to be waited for is opened last."""
    for given in job.sources.values():
        _check(given)
    _check_standard_input(job.sources)
    live = {n: g for n, g in job.sources.items() if _is_live(g)}
    found = {n: _finite(n, g) for n, g in job.sources.items() if n not in live}
    for name, given in live.items():
        with given.where.told():
            found[name] = _growing(name, given, is_once=is_once)
    return {name: found[name] for name in job.sources}


def _is_live(given: SourceGiven) -> bool:
    return given.place != "path" or given.path == STDIN or given.follow


def _growing(name: str, given: SourceGiven, *, is_once: bool) -> Stream:
    if given.place != "path":
        source = _socket(name, given)
        if is_once:
            source.drain()
    else:
        is_drained = is_once and given.path != STDIN  # which ends by itself
        source = matwin.tail(
            str(given.path), format=given.format, schema=_schema(given), once=is_drained, name=name
        )
    return _declared(name, source, given)


def _socket(name: str, given: SourceGiven) -> Any:
    schema = _schema(given)
    if schema is None:
        raise given.where.wrong('schema is missing; write for example schema = {ts = "int64"}')
    more: dict[str, Any] = {} if given.format is None else {"format": given.format}
    if given.place == "connect":
        return matwin.connect(str(given.path), schema=schema, name=name, **more)
    return matwin.listen(str(given.path), schema=schema, name=name, peers=given.peers, **more)


def _check(given: SourceGiven) -> None:
    """Refuse words that don't go together."""
    where = given.where
    if given.format is not None and given.format not in FORMATS:
        raise where.of("format").wrong(f"{given.format!r}; choose one of {', '.join(FORMATS)}")
    if given.follow and not isinstance(given.path, str):
        raise where.of("follow").wrong("it takes one path or pattern, and there are several")
    if given.follow and given.place != "path":
        raise where.of("follow").wrong(f"{given.place} grows anyway; take it out")
    if given.peers != "one" and given.place != "listen":
        raise where.of("peers").wrong(f"it goes with listen, not with {given.place}; take it out")


def _check_standard_input(sources: Mapping[str, SourceGiven]) -> None:
    piped = [name for name, given in sources.items() if given.path == STDIN]
    if len(piped) > 1:
        raise sources[piped[1]].where.wrong(
            f"{' and '.join(piped)} are both on standard input; give one of them a named pipe"
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
        usual = None if given.format is None else format_named(given.format)
        source = files_source(given.path, name, schema, usual)
    for path in filter(has_format, source.paths):
        kind = next((k for k, ends in FORMATS.items() if any(e in path.lower() for e in ends)), "")
        if given.format is not None and kind != given.format:
            raise given.where.of("format").wrong(
                f"{given.format!r}, and {path!r} is called {kind or 'something else'}; rename it"
            )
        if schema is not None and kind in TYPED:
            raise given.where.of("schema").wrong(f"{path!r} has types of its own; take it out")
    return _declared(name, source, given)


def table_of(name: str, path: str | list[str], job: Job) -> Any:
    """A static table of a job."""
    try:
        return files_source(path, name)
    except InputError as e:
        raise job.where.of("tables").of(name).wrong(str(e)) from e
