"""`matwin.continuous_query`: the front door of continuous queries, SQL and DuckDB included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from matwin.operators.epochs.continuous import ContinuousQuery, Status
from matwin.operators.epochs.cut import Cut
from matwin.operators.epochs.front import Keep, SinkFrom, Unfinished, prepared
from matwin.operators.epochs.query import Pairs, Query, check_pairs, query_of
from matwin.operators.epochs.sinks import Sink, sink_of
from matwin.storage.errors import InputError
from matwin.storage.units import Duration


class QueryOptions(TypedDict, total=False):
    """Keyword arguments of a continuous query that change no result; see `matwin.JoinOptions`."""

    memory: int | str | None
    page_size: int | str | None
    scratch: str | Path | None
    trace: str | Path | None


def continuous_query(
    query: object,
    sources: Mapping[str, object],
    *,
    cut: Cut,
    keep: Keep = 1,
    tables: Mapping[str, object] | None = None,
    windows: Mapping[str, Any] | None = None,
    pairs: Pairs = "all",
    state: str | Path | None = None,
    sink: object = None,
    sink_from: SinkFrom = None,
    unfinished: Unfinished = "emit",
    idle_after: Duration | None = None,
    progress: Callable[[Status], None] | None = None,
    **options: Unpack[QueryOptions],
) -> ContinuousQuery:
    """Run a query over streams epoch by epoch, each over a chunk of every stream.

    * `query`: a join of ours, bound with `functools.partial` to `matwin.chunks`; a function of the
      windows; or SQL, in which a stream's name is a table of the chunks that are kept.
    * `sources`: a mapping of names to streams: anything a join takes, or `matwin.stream(...)`.
    * `cut`: `matwin.cut.count(n)`, `matwin.cut.every("60s", on="ts")` or
      `matwin.cut.on_change("id")`, which brings streams together object by object; all streams
      are cut alike.
    * `keep`: how many chunks are kept, of all streams or of each.
    * `tables`: static tables, loaded once.
    * `windows`: for SQL, more names for chunks: ``{"newest": matwin.chunks("a", last=1)}``.
    * `pairs`: ``"all"`` gives the query over the windows in every epoch; ``"new"`` gives each pair
      of rows in the first epoch that has both.
    * `state`: a folder; each epoch is one commit there, and a restart goes on after the last.
    * `sink`: where results go, each epoch once: a folder for Parquet files,
      ``"file.sqlite:table"``, ``"file.duckdb:table"``, or a function of the epoch's number and a
      reader of its rows.  Without one, iterate over the epochs.
    * `sink_from`: ``"here"`` where rows of earlier epochs were moved out of the sink on purpose;
      otherwise a sink that lacks epochs of the state is refused.
    * `unfinished`: the last chunk of a source that is told to end with what is there
      (``matwin.tail(..., once=True)``) is an epoch (``"emit"``), or is left for the next start
      (``"keep"``, with `state`).
    * `idle_after`: how long a silent stream may keep the others waiting.
    * `progress`: called with the `status`.
    * `memory`, `page_size`, `scratch`, `trace`: see `matwin.JoinOptions`.

    >>> import matwin, pyarrow as pa
    >>> from functools import partial
    >>> seen = pa.table({"ts": [1, 30, 61, 70], "pid": [1, 2, 3, 4]})
    >>> again = pa.table({"ts": [2, 65, 66], "pid": [1, 3, 2]})
    >>> both = partial(matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("b"),
    ...                on={"ts": 10}, by="pid")
    >>> for epoch in matwin.continuous_query(
    ...     both, {"a": seen, "b": again}, cut=matwin.cut.every(60, on="ts")
    ... ):
    ...     print(epoch.id, epoch.bounds, epoch.result.to_arrow()["pid"].to_pylist())
    1 0 … 60 [1]
    2 60 … 120 [3]
    """
    asked = _query(query, pairs, windows)
    given: dict[str, Any] = dict(options)
    return prepared(
        asked, sources, cut=cut, keep=keep, tables=tables, state=state, sink=_sink(sink),
        sink_from=sink_from, unfinished=unfinished, idle_after=idle_after, progress=progress,
        options=given,
    )  # fmt: skip


def _query(query: object, pairs: Pairs, windows: Mapping[str, Any] | None) -> Query:
    if isinstance(query, str):
        check_pairs(query, pairs)
        from .epoch_sql import Sql

        return Sql(query, windows or {})
    if windows:
        raise InputError(
            "windows= gives names for SQL; a join or a function takes matwin.chunks(...)"
        )
    return query_of(query, pairs)


def _sink(sink: object) -> Sink:
    if isinstance(sink, str) and sink.partition(":")[0].endswith(".duckdb"):
        from .epoch_sql import DuckDb

        path, _, table = sink.partition(":")
        return DuckDb(path, table or "results")
    return sink_of(sink)
