"""A plan as text: which joins, by what, and what DuckDB does before and after.

bestmatch join, best for each left row                                    one of ours
  on       temp.t mindist hum.t: ±10min                                   order and tolerance
  by       temp.room = hum.room
  left     temp: t, x, room; below: temp.x > 3                            what is read
  right    hum: t, room
after, by DuckDB                                                          the rest
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

from .nodes import (
    Asof,
    Attribute,
    Best,
    Derived,
    Near,
    Note,
    Part,
    Plan,
    Scan,
    Windowed,
    joined_name,
)
from .recognise import Ref

_BEST = {
    "inner": "the best pairs of all", "left": "the best for each left row",
    "right": "the best for each right row", "full": "the best for each row of either side",
}  # fmt: skip
_SAID = {
    "key": "equality key of the join",
    "tolerance": "tolerance of the join: decides which pairs are candidates",
    "predicate": "function, asked by the join",
    "below": "filter below the join, before it reads",
    "after": "filter on the joined rows, after the best are chosen",
    "duckdb": "left to DuckDB",
}
_PLAIN = {**_SAID, "after": "filter on the joined rows"}


def explained(plan: Plan) -> str:
    """The plan as text."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    parts = list(plan.parts.items())
    for name, part in parts:
        if isinstance(part, Scan):
            if not any(isinstance(one, Derived) for _, one in parts) or name in plan.sql:
                yield f"read {_scan(part)}"
        else:
            yield from _part(part, "")
    best = any(isinstance(part, Best) for _, part in parts)
    if plan.notes:
        yield "conditions"
        yield from (_note(one, _SAID if best else _PLAIN) for one in plan.notes)
    if plan.direct is not None:
        yield "after: nothing, the joined rows are the result"
    else:
        yield "after, by DuckDB"
        lines = [line for line in dedent(plan.sql).splitlines() if line.strip()]
        yield from (f"  {line.rstrip()}" for line in lines)


def _note(one: Note, said: dict[str, str]) -> str:
    why = f": {one.why}" if one.why else ""
    return f"  {one.text}: {said.get(one.what, one.what)}{why}"


def _part(part: Part, indent: str) -> Iterator[str]:
    inner = indent + "  "
    match part:
        case Scan():
            yield f"{indent}read {_scan(part)}"
        case Derived():
            below = f"; below: {' and '.join(part.filters)}" if part.filters else ""
            yield f"{indent}query, run by DuckDB before: {part.shown}{below}"
        case Best():
            yield f"{indent}bestmatch join, {_BEST[part.how]}"
            yield from (f"{inner}on    {_attribute(one)}" for one in part.on)
            yield from (f"{inner}where {_attribute(one)}" for one in part.where)
            yield from _keys(part.keys, inner)
            yield from _sides(part.left, part.right, inner)
        case Near():
            yield f"{indent}ε-join, {part.how}"
            yield from (f"{inner}on    {_attribute(one)}" for one in part.on)
            yield from _keys(part.keys, inner)
            yield from _sides(part.left, part.right, inner)
        case Asof():
            exact = "" if not part.is_strict else ", no equal values"
            ours, theirs = (joined_name(ref) for ref in part.on)
            yield f"{indent}as-of join, {part.how}, {part.direction}{exact}"
            yield f"{inner}on    {ours}, {theirs}"
            yield from _keys(part.keys, inner)
            yield from _sides(part.left, part.right, inner)
        case Windowed():
            yield f"{indent}window join of {len(part.streams)} streams"
            yield from (f"{inner}window {one}" for one in part.shown)
            yield from (f"{inner}by     {' = '.join(map(joined_name, key))}" for key in part.keys)
            yield from (f"{inner}where  {_attribute(one)}" for one in part.near)
            for refs, name, _ in part.functions:
                yield f"{inner}where  {name}({', '.join(map(joined_name, refs))})"
            for (name, stream), time in zip(part.streams, part.times, strict=True):
                yield f"{inner}{name}: time {time}"
                yield from _part(stream, inner + "  ")


def _keys(keys: tuple[tuple[Ref, Ref], ...], indent: str) -> Iterator[str]:
    yield from (f"{indent}by    {joined_name(a)} = {joined_name(b)}" for a, b in keys)


def _sides(left: Part, right: Part, indent: str) -> Iterator[str]:
    for side, part in (("left", left), ("right", right)):
        yield f"{indent}{side}"
        yield from _part(part, indent + "  ")


def _attribute(one: Attribute) -> str:
    order = f" {one.order_name} " if one.order_name else ", "
    limits = "any distance" if one.limits is None else str(one.limits)
    return f"{joined_name(one.left)}{order}{joined_name(one.right)}: {limits}"


def _scan(part: Scan) -> str:
    called = f" as {part.alias}" if part.alias and part.alias != part.label else ""
    below = f"; below: {' and '.join(part.filters)}" if part.filters else ""
    cut = f"; {part.spec.shown}, keep {part.spec.keep}" if part.spec is not None else ""
    return f"{part.label}{called}: {', '.join(part.columns)}{below}{cut}"
