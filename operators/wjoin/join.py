"""Window joins: N streams in one operator, with a window of its own for each pair.

streams ──▶ question (constraints closed) ──▶ choice of an algorithm ──▶ driver ──▶ reader
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from matwin.driver import Driver
from matwin.hints import explains_words
from matwin.joining import handed_out
from matwin.options import JoinOptions, Options, options_of
from matwin.report import Report, StreamReport
from matwin.result import Result
from matwin.sources import Source, check_trace, read_once, source_of
from matwin.storage.errors import InputError
from matwin.streams import is_live

from .choose import Algorithm, Bounds, Choice, choose
from .explained import explained
from .joining import WindowJoining
from .question import WindowQuestion
from .walked import check_schedule


@explains_words
def window_join(
    streams: Mapping[str, object],
    *,
    time: object,
    windows: object,
    by: object = None,
    where: object = None,
    algorithm: Algorithm = "auto",
    bounds: Bounds = "auto",
    **options: Unpack[JoinOptions],
) -> Result:
    """Rows of N streams whose times are within the windows of each other.

    * `streams`: a mapping of names to tables, files or streams; two or more.
    * `time`: the column with the time: one name for all streams, or a mapping of stream to column.
    * `windows`: how close in time rows must be: one duration for every pair of streams (``"5s"``),
      a mapping of pairs to durations, ``(lo, hi)`` or `matwin.then`, or a `matwin.path`.  Pairs
      without a window of their own are bound through the others.
    * `by`: columns that must be equal in all streams: a name, a tuple of one key's names in each
      stream, a list of either, or a mapping of stream to columns.
    * `where`: further conditions on two streams' columns:
      ``{("a.x", "b.x"): 0.5}``, or a function of the two values.
    * `algorithm`: ``"auto"``, or one by name: ``"merge"``, ``"backward-nested-loop"``,
      ``"backward-hash"``, ``"forward-nested-loop"``, ``"forward-hash"``.
    * `bounds`: which windows bound the search: ``"auto"``, ``"global"``, ``"local"``, ``"graph"``.
    * further options, such as `memory`: see `matwin.JoinOptions`.

    Output columns: the keys once, then ``<stream>_<column>``.  Rows come as they are found.

    An `algorithm` that is asked for by name is the one that runs.  All but ``"merge"`` have their
    windows in memory: finite inputs that don't fit are divided into parts that do, and where that
    can't be (one key or instant that does not fit), or where live windows outgrow the memory, it is
    an `InputError`.  ``"auto"`` goes on with pages: take it for streams that may grow.

    >>> import matwin
    >>> import pyarrow as pa
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
    chosen = window_options("window_join", options, question, choice)
    check_trace(chosen.trace, sources.values())
    report = chosen.report or Report()
    if report.streams or report.left.rows_in or report.right.rows_in:
        raise InputError("report=: it has counted another join already; give a new Report()")
    joining = WindowJoining(question, choice, chosen, report, is_live=is_live(sources.values()))
    reports = [report.streams.setdefault(name, StreamReport()) for name in question.names]
    driver = Driver(joining, list(sources.values()), reports, chosen, report)
    explain = partial(explained, question, sources, choice, chosen)
    return Result(question.schema, handed_out(driver.run(), report, chosen), report, explain)


def asked(
    streams: object, *, time: object, windows: object, by: object, where: object,
    algorithm: object, bounds: object,
) -> tuple[WindowQuestion, dict[str, Source], Choice]:  # fmt: skip
    """The question, its sources and the algorithm; checked before any row is read."""
    sources = _sources(streams)
    question = WindowQuestion.of(sources, time=time, windows=windows, by=by, where=where)
    live = is_live(sources.values())
    choice = choose(algorithm, bounds, is_keyed=question.is_keyed, is_live=live)
    return question, sources, choice


def window_options(
    join: str, given: Mapping[str, Any], question: WindowQuestion, choice: Choice
) -> Options:
    """The options of a window join; not every schedule is for any number of streams, nor are pages
    for every algorithm."""
    options = options_of(join, given)
    check_schedule(options.schedule, len(question.names))
    if options.wants_pages:
        choice.check_pages()
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
