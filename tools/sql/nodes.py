"""A plan: what is read, what we join, and what DuckDB does around it.  Pure data.

    Plan
      sql ── DuckDB's text, in which each table is one of `parts` by name
      parts ── Scan          a source: some columns, rows that pass filters
               Derived       a query in the place of a table, run by DuckDB
               Best, Near, Asof, Windowed       our joins, of other parts

A joined part's columns are called ``alias.column``: no two are alike, and messages of the joins
name them as the query does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from matwin.sources import Source

from .amounts import Range
from .recognise import Ref
from .streams import StreamSpec


def joined_name(ref: Ref) -> str:
    """What a column is called in what a join gives."""
    return prefix_of(ref[0]) + ref[1]


def prefix_of(alias: str) -> str:
    """What the names of a table's columns begin with; with a point in it, `a.b.c` could be two."""
    return f'"{alias}".' if "." in alias else f"{alias}."


@dataclass(frozen=True, slots=True)
class Scan:
    """Some columns of a source, and the rows that pass the filters.

    `alias` is set where a join reads it: its columns are then called ``alias.column``.
    """

    label: str
    source: Source
    columns: tuple[str, ...]
    alias: str | None = None
    filters: tuple[str, ...] = ()
    """Conditions in the query's own words, in which the table is called `alias`."""
    kept: tuple[str, ...] | None = None
    """The columns that are left after the filters; None: all."""
    spec: StreamSpec | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """A query that a join reads; `schema` has the names that the join sees."""

    sql: str
    schema: pa.Schema
    shown: str
    """What it is, for people."""
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    """A join attribute: columns, how far apart (None: any distance), and the order."""

    left: Ref
    right: Ref
    limits: Range | None
    tolerance: Any = None
    order_name: str = "mindist"
    order: Any = None


@dataclass(frozen=True, slots=True)
class Best:
    """A bestmatch join."""

    left: Part
    right: Part
    how: str
    on: tuple[Attribute, ...]
    where: tuple[Attribute, ...]
    keys: tuple[tuple[Ref, Ref], ...]


@dataclass(frozen=True, slots=True)
class Near:
    """An ε-join."""

    left: Part
    right: Part
    how: str
    on: tuple[Attribute, ...]
    keys: tuple[tuple[Ref, Ref], ...]


@dataclass(frozen=True, slots=True)
class Asof:
    """An as-of join."""

    left: Part
    right: Part
    how: str
    on: tuple[Ref, Ref]
    direction: str
    is_strict: bool
    keys: tuple[tuple[Ref, Ref], ...]


@dataclass(frozen=True, slots=True)
class Windowed:
    """A window join of several streams."""

    streams: tuple[tuple[str, Part], ...]
    times: tuple[str, ...]
    windows: Any
    shown: tuple[str, ...]
    """The windows as they are given, for people."""
    keys: tuple[tuple[Ref, ...], ...]
    near: tuple[Attribute, ...]
    functions: tuple[tuple[tuple[Ref, ...], str, Callable[..., Any]], ...]


Joined = Best | Near | Asof | Windowed
Part = Scan | Derived | Best | Near | Asof | Windowed


@dataclass(frozen=True, slots=True)
class Note:
    """What became of a condition, "tolerance", "key", "predicate", "below" or "after", or what is
    left to DuckDB, "duckdb", and why."""

    what: str
    text: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A query ready to run."""

    sql: str
    parts: dict[str, Part]
    schema: pa.Schema
    """Names and types of the result, as DuckDB gives them."""
    direct: tuple[str, tuple[str, ...]] | None
    """A joined part and columns of it that are the whole result: DuckDB has nothing to do."""
    notes: tuple[Note, ...]
    is_rowwise: bool = False
    """Whether DuckDB's part may be run batch by batch."""
    streams: tuple[Any, ...] = field(default=())
    """Stream functions, for continuous queries."""
    text: str = ""
    """The query as it was given, for messages."""


def columns_of(part: Part) -> list[pa.Field]:
    """The columns that a part has, under the names that it gives them."""
    match part:
        case Scan():
            names = part.columns if part.kept is None else part.kept
            fields = [part.source.schema.field(name) for name in names]
            prefix = "" if part.alias is None else prefix_of(part.alias)
            return [one.with_name(prefix + one.name) for one in fields]
        case Derived():
            return list(part.schema)
        case Windowed():
            return [one for _, stream in part.streams for one in columns_of(stream)]
    if isinstance(part, Near) and part.how in ("semi", "anti"):
        return columns_of(part.left)
    return [*columns_of(part.left), *columns_of(part.right)]


def inner_parts(part: Part) -> list[Part]:
    """The parts that a part is made of."""
    match part:
        case Scan() | Derived():
            return []
        case Windowed():
            return [stream for _, stream in part.streams]
    return [part.left, part.right]
