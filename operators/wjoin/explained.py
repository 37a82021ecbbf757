"""What a window join would do and why, as text; no row is read.

>>> import matwin, pyarrow as pa
>>> cam = pa.table({"t": pa.array([1, 2], pa.timestamp("s")), "obj": [7, 8]})
>>> print(matwin.explain_window_join({"a": cam, "b": cam, "c": cam}, time="t", by="obj",
...     windows={("a", "b"): "5s", ("b", "c"): matwin.then("3s")}, memory="64MiB", threads=2))
window join of a, b, c by obj
  given:    -5s <= b.t - a.t <= 5s
            0s <= c.t - b.t <= 3s
  closed:   -5s <= b.t - a.t <= 5s
            -5s <= c.t - a.t <= 8s
            0s <= c.t - b.t <= 3s
  a:        2 rows, 32 B, order of t not declared
  b:        2 rows, 32 B, order of t not declared
  c:        2 rows, 32 B, order of t not declared
  memory:   64 MiB in pages of 256 KiB, 2 threads
  plan:     merge: all inputs are finite, so they are sorted by key and time and merged; bounds
            graph: the closed windows are the narrowest
  way:      memory, the cheapest that fits
            memory    0.00 s  takes 528 B of 64 MiB
            slabs         no  everything fits
            parts     0.00 s  2 parts, keys by hash, 1.00 copies of a row
            walk      0.00 s  windows on pages, read by a schedule
  output:   obj, a_t, b_t, c_t
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pyarrow as pa

from matwin.explained import labelled, planned_ways, source_size
from matwin.options import Options
from matwin.report import Report
from matwin.sources import Source
from matwin.storage.units import format_size
from matwin.streams import is_live

from .choose import Choice
from .constraints import Between
from .joining import WindowJoining
from .question import WindowQuestion

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
LARGER = (
    (86400 * 10**9, "d"), (3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"),
    (10**3, "us"),
)  # fmt: skip


def explained(
    question: WindowQuestion, sources: Mapping[str, Source], choice: Choice, options: Options
) -> str:
    """The closed windows, the plan and why."""
    keys = f" by {', '.join(question.keys[0])}" if question.is_keyed else ""
    lines = [f"window join of {', '.join(question.names)}{keys}"]
    for number, system in enumerate(question.constraints.alternatives):
        lines += labelled("given" if number == 0 else "or", [_shown(question, c) for c in system])
    lines += labelled("closed", [_shown(question, c) for c in _closed(question)])
    for predicate in question.predicates:
        named = ", ".join(f"{question.names[n]}.{column}" for n, column in predicate.columns)
        lines += labelled("where", [f"{predicate.test} of {named}"])
    for (name, source), column in zip(sources.items(), question.times, strict=True):
        lines += labelled(name, [source_size(source, column)])
    memory = f"{format_size(options.budget_bytes)} in pages of {format_size(options.page_bytes)}"
    lines += labelled("memory", [f"{memory}, {options.workers} threads"])
    live = is_live(sources.values())
    lines += labelled("plan", [_plan(choice, options, is_live=live)])
    if not live and not options.wants_pages:
        joining = WindowJoining(question, choice, options, Report(), is_live=False)
        lines += labelled("way", planned_ways(joining, list(sources.values()), options))
    lines += labelled("output", [", ".join(question.schema.names)])
    return "\n".join(lines)


def _plan(choice: Choice, options: Options, *, is_live: bool) -> str:
    if options.wants_pages:
        return choice.on_pages("trace, materialize or schedule ask for them", "read by a schedule")
    if not is_live:
        return choice.reason
    instead = "an error" if choice.needs_memory else "merged on pages instead"
    return f"{choice.reason}; where the windows do not fit the memory, {instead}"


def _closed(question: WindowQuestion) -> list[Between]:
    upper = question.constraints.upper
    pairs = combinations(range(len(upper)), 2)
    return [Between(a, b, -upper[b][a], upper[a][b]) for a, b in pairs]


def _shown(question: WindowQuestion, one: Between) -> str:
    a, b = (f"{question.names[i]}.{question.times[i]}" for i in (one.a, one.b))
    lo, hi = (_amount(limit, question.time_type) for limit in (one.lo, one.hi))
    return f"{lo} <= {b} - {a} <= {hi}"


def _amount(limit: float, time_type: pa.DataType) -> str:
    """A limit as a user would write it."""
    unit = getattr(time_type, "unit", None)
    if pa.types.is_date32(time_type):
        return f"{limit}d"
    if pa.types.is_date64(time_type):
        unit = "ms"
    if unit is None:
        return f"{limit:g}" if isinstance(limit, float) else str(limit)
    nanoseconds = int(limit) * NANOSECONDS[unit]
    if nanoseconds == 0:
        return f"0{unit}"
    for size, name in LARGER:
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{name}"
    return f"{nanoseconds}ns"
