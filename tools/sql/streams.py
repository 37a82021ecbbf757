"""Stream functions: how the continuous-query paper names a stream that is cut into chunks.  Pure.

    STREAM_get_packets(rt1, 'CUT ON ts BY 60 SECS')              every 60 s of the column ts
    STREAM_get_packets(rt2, 'CUT ON ts BY 60 SECS', 'BLOCK')     … kept, to be scanned again
    STREAM_get_cdrs(cdrs, 'CUT ON ts BY 5 SECS', 'BLOCK', 12)    … the last 12 chunks of it
    stream(orders, 'CUT BY 1000 ROWS')                           every 1000 rows
    stream(edges, 'CUT ON CHANGE OF graph')                      whenever graph changes

The function's own name says where events come from in the paper; here the source does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from matwin.hints import did_you_mean
from matwin.storage.columns import is_numeric
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.names import listed

from .amounts import UNITS, shown_number, shown_time
from .errors import Place, place_of, wrong

_EVERY = re.compile(
    r"\s*cut\s+on\s+(?P<column>\"[^\"]+\"|[\w#$-]+)\s+by\s+"
    r"(?P<width>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE,
)  # fmt: skip
_COUNT = re.compile(
    r"\s*cut\s+by\s+(?P<count>\d+)\s*(?:rows?|tuples?|inputs?|events?)\s*", re.IGNORECASE
)
_CHANGE = re.compile(
    r"\s*cut\s+on\s+(?:change\s+of\s+)?(?P<column>\"[^\"]+\"|[\w#$-]+)(?:\s+change)?\s*",
    re.IGNORECASE,
)
HOW = (
    "write 'CUT ON ts BY 60 SECS', 'CUT BY 1000 ROWS' or 'CUT ON CHANGE OF key', then 'BLOCK' and "
    "how many chunks are kept"
)


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream that is cut: by `count` rows, `every` width of a column, or `on_change` of one."""

    source: str
    is_quoted: bool
    kind: str
    column: str | None
    width: Fraction
    is_time: bool
    """Whether the width is nanoseconds."""
    block: bool
    keep: int
    """How many chunks each epoch sees: the last so many."""
    text: str = field(default="", compare=False, repr=False)
    at: Place | None = field(default=None, compare=False, repr=False)
    """The query, and where the cut stands in it, for messages."""

    def wrong(self, message: str) -> InputError:
        """The error that says `message` of the cut."""
        return wrong(self.text, message, self.at)

    def not_cut(self, alias: str) -> InputError:
        """The refusal of an engine that runs a query over whole tables."""
        whole = f"{self.source} {alias}" if alias and alias != self.source else self.source
        bucket = "60 seconds" if self.kind != "every" or not self.is_time else (
            f"{shown_number(self.width / UNITS['second'])} seconds"
        )  # fmt: skip
        return self.wrong(
            f"a query on Spark is over whole tables, and not {self.shown}: write from {whole}, and "
            f"for an answer of each stretch group by window({self.column or 'ts'}, '{bucket}'); "
            "chunk by chunk it is run by matwin.sql and matwin.continuous_query"
        )

    @property
    def shown(self) -> str:
        """The cut, for people."""
        if self.kind == "count":
            return f"cut by {shown_number(self.width)} rows"
        if self.kind == "on_change":
            return f"cut when {self.column} changes"
        width = shown_time(self.width) if self.is_time else shown_number(self.width)
        return f"cut on {self.column} by {width}"

    def checked(self, schema: pa.Schema) -> StreamSpec:
        """The same with the column's own spelling and the width in what it counts: seconds are
        numbers on a column of numbers, as in the paper's ``floor(ts / 60)``."""
        if self.column is None:
            return self
        names = {name.lower(): name for name in schema.names}
        column = self.column.lower()
        name = names.get(column, names.get(column.strip("$")))  # $ts$ as LaTeX has it
        if name is None:
            near = did_you_mean(self.column, schema.names)
            raise self.wrong(
                f"{self.source} has no column {self.column!r} to cut on{near}; it has "
                f"{listed(schema.names)}"
            )
        kind = plain_type(schema.field(name).type)
        if self.kind == "every" and not is_numeric(kind):
            raise self.wrong(f"{self.source}: {name!r} is {kind}; cut on a number or a time")
        is_number = self.is_time and not pa.types.is_temporal(kind)
        width = self.width / UNITS["second"] if is_number else self.width
        return replace(self, column=name, width=width, is_time=self.is_time and not is_number)


def stream_spec(text: str, function: exp.Func) -> StreamSpec | None:
    """The stream that a table function is; None where it is another function."""
    name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    if not (name.lower() == "stream" or name.lower().startswith("stream_")):
        return None
    given = list(function.expressions) or [
        one for one in function.args.values() if isinstance(one, exp.Expr)
    ]
    if not given:
        raise wrong(
            text, f"{name} needs a source: {name}(source, 'CUT ON ts BY 60 SECS')", function
        )
    source, is_quoted = _source(text, given[0])
    kind, column, width, is_time = _cut(text, given, name, function)
    block, keep = _kept(text, given)
    at = place_of(given[1])
    return StreamSpec(source, is_quoted, kind, column, width, is_time, block, keep, text, at)


def _source(text: str, node: exp.Expr) -> tuple[str, bool]:
    if isinstance(node, exp.Column):
        quoted = any(part.args.get("quoted") for part in node.parts)
        return ".".join(part.name for part in node.parts), quoted
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this), True
    raise wrong(text, "the first argument is a source: its name, or a file in quotes", node)


def _cut(
    text: str, given: list[exp.Expr], name: str, function: exp.Func
) -> tuple[str, str | None, Fraction, bool]:
    if len(given) < 2:
        raise wrong(text, f"{name} must say where to cut; {HOW}", function)
    node = given[1]
    said = str(node.this) if isinstance(node, exp.Literal) and node.is_string else ""
    if found := _COUNT.fullmatch(said):
        if int(found["count"]) < 1:
            raise wrong(text, "a chunk has at least one row", node)
        return "count", None, Fraction(found["count"]), False
    if found := _EVERY.fullmatch(said):
        return _every(text, found, node)
    if found := _CHANGE.fullmatch(said):
        return "on_change", found["column"].strip('"'), Fraction(0), False
    raise wrong(text, f"this is no cut; {HOW}", node)


def _every(
    text: str, found: re.Match[str], node: exp.Expr
) -> tuple[str, str | None, Fraction, bool]:
    width, unit = Fraction(found["width"]), found["unit"].lower()
    column = found["column"].strip('"')
    if width <= 0:
        raise wrong(text, "a chunk must be wider than nothing", node)
    if not unit:
        return "every", column, width, False
    singular = unit[:-1] if unit.endswith("s") and unit[:-1] in UNITS else unit
    if singular not in UNITS:
        raise wrong(text, f"{found['unit']!r} is no unit of time; {HOW}", node)
    return "every", column, width * UNITS[singular], True


def _kept(text: str, given: list[exp.Expr]) -> tuple[bool, int]:
    if len(given) < 3:
        return False, 1
    block = given[2]
    is_block = isinstance(block, exp.Literal) and str(block.this).upper() == "BLOCK"
    if not is_block or len(given) > 4:
        raise wrong(text, f"the third argument is 'BLOCK'; {HOW}", block)
    if len(given) == 3:
        return True, 1
    count = given[3]
    is_number = isinstance(count, exp.Literal) and not count.is_string
    if not is_number or not str(count.this).isdigit() or int(count.this) < 1:
        raise wrong(text, "the number of chunks is a whole number, at least 1", count)
    return True, int(count.this)
