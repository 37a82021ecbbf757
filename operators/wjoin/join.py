"""Window joins: N streams in one operator, with a window of its own for each pair.

streams ──▶ question (constraints closed) ──▶ choice of an algorithm ──▶ driver ──▶ reader
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from matwin.driver import Driver
from matwin.joining import check_rows_out
from matwin.options import Options, options_of
from matwin.report import Report, StreamReport
from matwin.sources import Source, check_trace, read_once, source_of
from matwin.storage.errors import InputError
from matwin.streams import Stream

from .choose import Choice, choose
from .joining import WindowJoining
from .question import WindowQuestion
from .walked import check_schedule


def window_join(
    streams: Mapping[str, object],
    *,
    time: object,
    windows: object,
    by: object = None,
    where: object = None,
    algorithm: str = "auto",
    bounds: str = "auto",
    **options: Any,
) -> pa.RecordBatchReader:
    """Rows of N streams whose times are within the windows of each other.

    `windows` is one duration for every pair, a mapping of pairs to durations, pairs ``(lo, hi)`` or
    `then`, or a `path`.  `by` names equality keys, `where` further predicates over two streams'
    columns.  Output columns: the keys once, then ``<stream>_<column>``.

    >>> import matwin
    >>> doors = pa.table({"t": [1, 20], "badge": ["ann", "bob"]})
    >>> lifts = pa.table({"t": [4, 21, 90], "badge": ["ann", "bob", "bob"]})
    >>> desks = pa.table({"t": [9, 60], "badge": ["ann", "bob"], "desk": [17, 3]})
    >>> found = matwin.window_join(
    ...     {"door": doors, "lift": lifts, "desk": desks}, time="t", by="badge",
    ...     windows={("door", "lift"): matwin.then(5), ("lift", "desk"): matwin.then(10)},
    ... ).read_all()
    >>> found.to_pylist()
    [{'badge': 'ann', 'door_t': 1, 'lift_t': 4, 'desk_t': 9, 'desk_desk': 17}]
    """
    question, sources, choice = asked(
        streams, time=time, windows=windows, by=by, where=where, algorithm=algorithm, bounds=bounds
    )
    chosen = window_options("window_join", options, question)
    check_trace(chosen.trace, sources.values())
    report = chosen.report or Report()
    if report.streams or report.left.rows_in or report.right.rows_in:
        raise InputError("report=: it has counted another join already; give a new Report()")
    joining = WindowJoining(question, choice, chosen, report, is_live=is_live(sources))
    reports = [report.streams.setdefault(name, StreamReport()) for name in question.names]
    driver = Driver(joining, list(sources.values()), reports, chosen, report)
    return pa.RecordBatchReader.from_batches(
        question.schema, _counted(driver.run(), report, chosen)
    )


def asked(
    streams: object, *, time: object, windows: object, by: object, where: object,
    algorithm: object, bounds: object,
) -> tuple[WindowQuestion, dict[str, Source], Choice]:  # fmt: skip
    """The question, its sources and the algorithm; checked before any row is read."""
    sources = _sources(streams)
    question = WindowQuestion.of(sources, time=time, windows=windows, by=by, where=where)
    choice = choose(algorithm, bounds, is_keyed=question.is_keyed, is_live=is_live(sources))
    return question, sources, choice


def is_live(sources: Mapping[str, Source]) -> bool:
    """Whether a stream may go on for ever."""
    return any(isinstance(source, Stream) and source.is_live for source in sources.values())


def window_options(join: str, given: dict[str, Any], question: WindowQuestion) -> Options:
    """The options of a window join; not every schedule is for any number of streams."""
    options = options_of(join, given)
    check_schedule(options.schedule, len(question.names))
    return options


def _sources(streams: object) -> dict[str, Source]:
    if not isinstance(streams, Mapping):
        raise InputError(
            f"streams is a {type(streams).__name__}; give a mapping, such as "
            "{'a': table, 'b': table}"
        )
    if len(streams) < 2:
        raise InputError(f"streams={list(streams)}: a window join needs at least two")
    found: dict[str, Source] = {}
    seen: dict[str, object] = {}
    for name, data in streams.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"streams: {name!r} is no name; give text")
        found[name] = source_of(data, name)
        once = read_once(found[name])
        for other, its in seen.items():
            if once is not None and once is its:
                raise InputError(
                    f"{other} and {name} are the same source, which can be read only once; give a "
                    "table, or two readers"
                )
        seen[name] = once
    return found


def _counted(
    results: Generator[pa.RecordBatch], report: Report, options: Options
) -> Iterator[pa.RecordBatch]:
    with closing(results):  # also when somebody keeps the exception and its frames
        for batch in results:
            report.rows_out += batch.num_rows
            check_rows_out(report, options)
            if batch.num_rows:
                yield batch
