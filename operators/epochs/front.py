"""A continuous query put together from what the user gave; everything is checked before a row is
read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from matwin.growing import Growing
from matwin.inbox import Bell
from matwin.options import PAGE_MIN, Options, options_of, share_of
from matwin.shares import CHUNK_SHARE, FRESH_SHARE, RESULT_SHARE, ReadShare
from matwin.sources import Held, read_once, source_of
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.pool import smallest_budget
from matwin.storage.store import Store
from matwin.storage.units import (
    HOW_TO_WRITE,
    Duration,
    format_size,
    is_duration,
    seconds_of,
    shown,
)
from matwin.streams import Stream, stream

from .capture import Capture
from .chunks import ChunkWindow
from .continuous import ContinuousQuery, Status
from .cut import Count, Cut, Every, OnChange
from .cutter import CountCutter, Cutter, RangeCutter
from .durable import StateFolder, stored_page_size
from .living import living
from .matching import ChangeCutter
from .objects import check_alike
from .query import Bound, Query, Windows
from .sinks import Sink

Keep = int | Mapping[str, int]
Unfinished = Literal["emit", "keep"]
SinkFrom = Literal["here"] | None
_TAKEN = ("memory", "page_size", "scratch", "trace")


def prepared(
    query: Query, sources: Mapping[str, object], *, cut: Cut, keep: Keep,
    tables: Mapping[str, object] | None, state: str | Path | None, sink: Sink,
    sink_from: SinkFrom, unfinished: Unfinished, idle_after: Duration | None,
    progress: Callable[[Status], None] | None, options: Mapping[str, Any],
) -> ContinuousQuery:  # fmt: skip
    """The query, ready to run."""
    for name in options:
        if name not in _TAKEN:
            raise InputError(
                f"continuous_query takes no {name}=; its options are {', '.join(_TAKEN)}, and a "
                "join's own go into its functools.partial"
            )
    given = options_of("continuous_query", options)
    streams = _streams(sources)
    bell = Bell()
    waiting = given.budget_bytes // FRESH_SHARE // len(streams)
    share = ReadShare.of(given.budget_bytes, len(streams), given.scratch)
    captures = {
        name: Capture(name, each.within(share), cutter_of(cut, name, each), bell, waiting)
        for name, each in streams.items()
    }
    by_object = [c.objects for c in captures.values() if isinstance(c.cutter, ChangeCutter)]
    if by_object:
        check_alike((cutter.name, cutter.field) for cutter in by_object)
    for capture in captures.values():
        capture.goes_on = _goes_on(unfinished, state)
    held = _tables(tables or {}, streams)
    idle = _seconds(idle_after)
    kept = {name: _kept(keep, name, streams) for name in streams}
    with ExitStack() as undo:  # whatever is open, should it be refused
        undo.callback(sink.close)
        undo.callback(query.close)
        folder, store = _opened(state, given)
        undo.callback(store.close)
        asked = _asked(query, streams, cut, kept)
        _check_state(folder, asked)
        _check_sink(folder, sink, sink_from)
        windows = {
            name: ChunkWindow(store, name, each.schema, kept[name], waiting)
            for name, each in streams.items()
        }
        query_bytes = _rest(given, store)
        seen = Windows(windows, held, memory=query_bytes, scratch=given.scratch)
        query.check(seen)
        if isinstance(query, Bound):
            query = living(query, seen) or query
        undo.pop_all()
    return ContinuousQuery(
        query, captures, windows, held, sink, store, state=folder, asked=asked, bell=bell,
        idle_seconds=idle, query_bytes=query_bytes,
        spool_bytes=given.budget_bytes // RESULT_SHARE, scratch=given.scratch, progress=progress,
    )  # fmt: skip


def _rest(given: Options, store: Store) -> int:
    """What the chunks leave to the query."""
    left = max(given.budget_bytes - store.pool.budget_bytes, smallest_budget(PAGE_MIN))
    return min(left, given.budget_bytes - given.budget_bytes // CHUNK_SHARE)


def _opened(state: str | Path | None, given: Options) -> tuple[StateFolder | None, Store]:
    options = share_of(given, CHUNK_SHARE)
    memory, page_size, trace = options.budget_bytes, options.page_bytes, options.trace
    if state is None:
        return None, Store(memory=memory, page_size=page_size, scratch=options.scratch, trace=trace)
    own = stored_page_size(state) if given.page_size is None else None
    if own is not None:
        # Another memory is no other store: its pages stay as large as they are.
        page_size, memory = own, max(memory, smallest_budget(own))
        smallest = memory + smallest_budget(PAGE_MIN)
        if given.budget_bytes < smallest:
            raise BudgetError(
                f"memory={given.memory!r} is too small for {state}, which has pages of "
                f"{format_size(own)}; the smallest that works is {format_size(smallest)} "
                f"({smallest} bytes)",
                smallest_bytes=smallest,
            )
    folder = StateFolder(state, memory=memory, page_size=page_size, trace=trace)
    return folder, folder.store


def _streams(sources: object) -> dict[str, Stream]:
    if not isinstance(sources, Mapping) or not sources:
        raise InputError("sources: give a mapping of names to streams, such as {'a': table}")
    found: dict[str, Stream] = {}
    seen: dict[int, str] = {}
    for name, data in sources.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"sources: {name!r} is not a name; give text")
        found[name] = _stream(data, name)
        inner = found[name].source
        once = read_once(inner) or (inner.cursor if isinstance(inner, Growing) else None)
        if once is not None and id(once) in seen:
            raise InputError(
                f"{seen[id(once)]} and {name} are the same source, which can be read only once; "
                f"capture it once, and take matwin.chunks({name!r}, last=…) twice"
            )
        seen[id(once)] = name
    return found


def _stream(data: object, name: str) -> Stream:
    found = data if isinstance(data, Stream) else stream(data, name=name)
    return found.called(name)


def cutter_of(cut: Cut, name: str, stream: Stream) -> Cutter:
    """What divides a stream's rows."""
    match cut:
        case Count():
            return CountCutter(name, cut)
        case OnChange():
            return ChangeCutter(name, cut, stream)
        case Every():
            return RangeCutter(name, cut, stream)
    raise InputError(
        f"cut={cut!r} is not a cut; give cut.count(n), cut.every(width, on=column) or "
        "cut.on_change(column)"
    )


def _tables(tables: Mapping[str, object], streams: Mapping[str, object]) -> dict[str, Held]:
    """Tables, loaded once."""
    found = {}
    for name, data in tables.items():
        if name in streams:
            raise InputError(f"{name!r} is a stream and a table; call one of them otherwise")
        source = source_of(data, name)
        rows = pa.Table.from_batches(list(source.batches()), schema=source.schema)
        found[name] = Held.of(rows, name)
    return found


def _kept(keep: Keep, name: str, streams: Mapping[str, object]) -> int:
    for other in keep if isinstance(keep, Mapping) else ():
        if other not in streams:
            raise InputError(f"keep: there is no stream {other!r}; there are {', '.join(streams)}")
    chunks = keep.get(name, 1) if isinstance(keep, Mapping) else keep
    if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1:
        raise InputError(f"keep={shown(keep)}: give a whole number of chunks, 1 or more")
    return chunks


def _goes_on(unfinished: Unfinished, state: object) -> bool:
    if unfinished not in ("emit", "keep"):
        raise InputError(f"unfinished={unfinished!r}; choose 'emit' or 'keep'")
    if unfinished == "keep" and state is None:
        raise InputError("unfinished='keep': only a query with state= can go on later")
    return unfinished == "keep"


def _seconds(idle_after: Duration | None) -> float | None:
    if idle_after is None:
        return None
    if not is_duration(idle_after):
        raise InputError(f"idle_after={shown(idle_after)}: {HOW_TO_WRITE}")
    seconds = seconds_of(idle_after)
    if seconds <= 0:
        raise InputError(f"idle_after={shown(idle_after)}: give a time above 0")
    return seconds


def _asked(
    query: Query, streams: Mapping[str, Stream], cut: Cut, keep: Mapping[str, int]
) -> dict[str, str]:
    """What is asked, in words, to be compared at a restart."""
    found = {**query.told(), "cut": str(cut)}
    for name, each in streams.items():
        columns = ", ".join(f"{f.name} {f.type}" for f in each.schema)
        found[f"keep of {name}"] = str(keep[name])
        found[f"columns of {name}"] = columns
        found[f"order of {name}"] = repr(each.order)
    return found


def _check_state(folder: StateFolder | None, asked: Mapping[str, str]) -> None:
    """Refuse the state of another query."""
    if folder is not None and folder.notes is not None:
        folder.notes.check_asked(asked, str(folder.path))


def _check_sink(folder: StateFolder | None, sink: Sink, sink_from: SinkFrom) -> None:
    """Refuse a sink that is ahead: it would take its epochs for those of this run, and leave ours
    out; and one that is behind, unless its rows were moved away: they would be missing for ever."""
    if sink_from not in (None, "here"):
        raise InputError(
            f"sink_from={shown(sink_from)}; write 'here' where the rows of earlier epochs were "
            "moved away on purpose, or leave it out"
        )
    notes = folder.notes if folder is not None else None
    done = notes.epoch if notes is not None else 0
    last = sink.last()
    if last is None:
        return
    where = "a run without state=" if folder is None else f"the state in {folder.path}"
    if last > done:
        raise InputError(
            f"the sink {sink.told()} has epoch {last}, and {where} is at epoch {done}: they are of "
            "different runs; give the state that goes with it, or another sink"
        )
    # The last epoch may be about to be delivered.
    delivered = done - (notes is not None and notes.output is not None)
    if last < delivered and sink_from is None:
        has = f"ends with epoch {last}" if last else "has no epoch"
        raise InputError(
            f"the sink {sink.told()} {has}, and {where} is at epoch {done}: rows of epochs "
            f"{last + 1} to {delivered} would be missing; put them back, begin anew with another "
            "state folder, or, if they were moved away on purpose, go on behind them with "
            "sink_from='here'"
        )
