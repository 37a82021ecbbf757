"""What a join would do and why, as text; rows are sampled where that is cheap.

>>> import matwin, pyarrow as pa
>>> left = pa.table({"t": [1, 2], "x": [0.5, 1.5]})
>>> print(matwin.explain_join(left, left, best=True, on={"t": 10, "x": 0.1}, memory="64MiB",
...     threads=2))
left bestmatch join
  eligible: -10 <= right.t - left.t <= 10
            -0.1 <= right.x - left.x <= 0.1
  best:     no other right row of the same left row is at least as good in t (min_distance), x
            (min_distance) and better in one
  left:     2 rows, 32 B, order of t not declared
  right:    2 rows, 32 B, order of t not declared
  memory:   64 MiB in pages of 256 KiB, 2 threads
  plan:     memory, the cheapest that fits
            memory    0.00 s  takes 672 B of 64 MiB
            slabs         no  everything fits
            parts     0.00 s  2 parts, strips of x, 1.25 copies of a row
            walk      0.00 s  windows on pages, read by a schedule
  output:   t_left, x_left, t_right, x_right
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from matwin.storage.units import format_size

from .attributes import Attribute
from .bounds import FLOAT_LIMIT, INT_LIMIT
from .cost import cheapest
from .engine import Divisible
from .joining import Join, MakeDirections
from .options import Options
from .question import Question
from .row_groups import descend
from .sampling import drawn
from .sources import Source
from .streams import Stream, is_live
from .ways import ways_of

WIDTH = 100
_BEST = {
    "left": "no other right row of the same left row is at least as good in {} and better in one",
    "right": "no other left row of the same right row is at least as good in {} and better in one",
    "full": "no other pair of the same left row, or none of the same right row, is at least as "
    "good in {} and better in one",
    "inner": "no other pair at all is at least as good in {} and better in one",
}


def explained(join: Join, make: MakeDirections) -> str:
    """What a join of two sides would do."""
    question, options, sources = join.question, join.options, join.sources
    best = question.best
    lines = [f"{question.how} {'bestmatch' if best else 'ε-'}{' ' if best else ''}join"]
    lines += labelled("eligible", _eligible(question))
    if best:
        orders = ", ".join(f"{a.name} ({a.order!r})" for a in question.attributes)
        lines += labelled("best", [_BEST[question.how].format(orders)])
    for name, source in zip(("left", "right"), sources, strict=True):
        lines += labelled(name, [source_size(source, getattr(question.order, name))])
    memory = f"{format_size(options.budget_bytes)} in pages of {format_size(options.page_bytes)}"
    lines += labelled("memory", [f"{memory}, {options.workers} threads"])
    lines += labelled("plan", _plan(join, make))
    lines += labelled("output", [", ".join(question.schema.names)])
    return "\n".join(lines)


def labelled(label: str, texts: list[str]) -> list[str]:
    """Lines under a label, wrapped."""
    lines = [line for text in texts for line in textwrap.wrap(text, WIDTH - 12)]
    first, *rest = lines or [""]
    return [f"  {label + ':':<10}{first}", *(" " * 12 + line for line in rest)]


def _eligible(question: Question) -> list[str]:
    found = [f"right.{key.right} = left.{key.left}" for key in question.keys]
    found += [_constraint(a) for a in question.attributes if a.is_constrained or a.is_nonzero]
    return found or ["every pair"]


def _constraint(a: Attribute) -> str:
    if a.lo == a.hi == 0:
        return f"right.{a.right} = left.{a.left}"
    if a.is_nonzero:
        bare = _constraint(replace(a, is_nonzero=False)) if a.is_constrained else ""
        return ", ".join(filter(None, [bare, f"right.{a.right} <> left.{a.left}"]))
    unit = f" {a.type.unit}" if hasattr(a.type, "unit") else ""
    limits = (INT_LIMIT, FLOAT_LIMIT)
    at_least = "" if a.lo is None or -a.lo in limits else f"{a.lo}{unit} <= "
    at_most = "" if a.hi is None or a.hi in limits else f" <= {a.hi}{unit}"
    return f"{at_least}right.{a.right} - left.{a.left}{at_most}"


def source_size(source: Source, order: str) -> str:
    """What is known of a source without reading it."""
    rows = "an unknown number of rows" if source.rows_hint is None else f"{source.rows_hint} rows"
    size = "" if source.bytes_hint is None else f", {format_size(source.bytes_hint)}"
    if not isinstance(source, Stream):
        told = {None: "", True: ": not sorted, by the statistics of its row groups",
                False: ": may be sorted, by the statistics of its row groups"}  # fmt: skip
        return f"{rows}{size}, order of {order} not declared{told[is_told_unsorted(source, order)]}"
    live = ", live" if source.is_live else ""
    return f"{rows}{size}, {source.order} by {order}, late rows: {source.late}{live}"


def is_told_unsorted(source: Source, order: str) -> bool | None:
    """Whether a file says of itself that it is not sorted; None: it says nothing of it."""
    groups = source.row_groups(order)
    return None if groups is None or len(groups) < 2 else descend(groups)


def _plan(join: Join, make: MakeDirections) -> list[str]:
    options, sources = join.options, join.sources
    joining = join.joining(make, (), is_live=is_live(sources))
    if options.wants_pages and joining.beyond == "merge":
        return [f"merge, because trace, materialize or schedule ask for pages: {merged(options)}"]
    if options.wants_pages:
        return [
            f"pages, because trace, materialize or schedule ask for them: {options.materialize} "
            f"windows, {options.schedule} schedule"
        ]
    if is_live(sources):
        told = "merged" if joining.beyond == "merge" else "on pages"
        return [
            f"live: a step with every batch; the windows are in memory while they fit, then {told}"
        ]
    return planned_ways(joining, sources, options)


def merged(options: Options) -> str:
    """The merge of an as-of join in words, with options that it has no use for."""
    told = "both sides are sorted by key and time and read once, in one order"
    named = [
        f"{name}={value!r}"
        for name in ("schedule", "materialize")
        if (value := getattr(options, name)) != "auto"
    ]
    return f"{told}; {' and '.join(named)} can give it no other" if named else told


def planned_ways(joining: Divisible, sources: Sequence[Source], options: Options) -> list[str]:
    """The four ways with their estimates, and which is taken; looks at a sample of the sources
    where that is cheap."""
    known = [(s.rows_hint, s.bytes_hint) for s in sources]
    if any(rows is None or size is None for rows, size in known):
        is_merge = joining.beyond == "merge"
        left = "else a merge" if is_merge else "else in parts, else a walk over pages"
        return [
            "sizes are not known beforehand: in memory if it fits, else slab by slab if all inputs "
            f"are sorted, {left}; the cheapest"
        ]
    sizes = [(size or 0) / max(rows or 0, 1) for rows, size in known]
    samples = [drawn(joining.cutting, i, s, [], is_all=False) for i, s in enumerate(sources)]
    is_sorted = True if all(isinstance(source, Stream) for source in sources) else None
    orders = [side.origin(side.grid.order.name) for side in joining.sides]
    if any(map(is_told_unsorted, sources, orders)):
        is_sorted = False
    ways = ways_of(joining, samples, sizes, options, is_sorted=is_sorted)
    chosen = cheapest(ways.estimates)
    lines = [f"{chosen.way}, the cheapest that fits"]
    if chosen.way == "slabs" and is_sorted is None:
        other = "parts" if ways.prefers_parts else ways.estimates[-1].way
        lines = [f"slabs if all inputs turn out to be sorted, else {other}"]
    for one in ways.estimates:
        cost = f"{one.seconds:.2f} s" if one.is_possible else "no"
        lines.append(f"{one.way:<8}{cost:>8}  {one.why}")
    if any(sample.is_thinned for sample in samples):
        lines.append("by a sample of some row groups: their statistics say that all are alike")
    return lines
