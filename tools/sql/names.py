"""Names in a query: which table and column each of them means.

    from temp a bestmatch join hum b …        inputs: a (temp's columns), b (hum's columns)
    where a.t > 3 and humidity > 4            a.t; b.humidity, which only b has

As in DuckDB, names are compared without regard to case, an inner query's tables hide an outer's,
and a name may also mean a column of the select list.  A name that several tables have is refused,
with the place where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from matwin.hints import did_you_mean
from matwin.storage.names import listed

from .errors import wrong
from .recognise import Ref


class Declined(Exception):
    """A select whose joins are not for us: what it has that we don't follow, and where."""

    def __init__(self, why: str, at: exp.Expr | None = None) -> None:
        super().__init__(why)
        self.why, self.at = why, at


@dataclass(frozen=True)
class Input:
    """A table of a from clause: what the query calls it, and its columns."""

    alias: str
    schema: pa.Schema
    item: exp.Expr
    """Where it stands in the from clause."""
    is_hidden: bool = False
    """Whether only the condition of its own join sees it: semi and anti joins."""

    @cached_property
    def names(self) -> dict[str, str]:
        """Its columns by their names in lower case."""
        found: dict[str, str] = {}
        for name in self.schema.names:
            found.setdefault(name.lower(), name)
        return found

    def field(self, column: str) -> pa.Field:
        """A column's name and type."""
        return self.schema.field(column)


@dataclass(frozen=True, slots=True)
class Merged:
    """A column that several tables have and that stands once, by USING or NATURAL."""

    name: str
    """In lower case."""
    aliases: tuple[str, ...]
    shown: str
    """The table whose values it has: the right one of a right join."""


@dataclass(frozen=True)
class Scope:
    """The inputs of one select that we join."""

    text: str
    inputs: tuple[Input, ...]
    merged: tuple[Merged, ...]
    aliases: frozenset[str]
    """Names of the select list, in lower case."""

    @property
    def visible(self) -> list[Input]:
        """The inputs that a star stands for."""
        return [one for one in self.inputs if not one.is_hidden]

    def merged_of(self, alias: str, column: str) -> Merged | None:
        """What a column is merged into."""
        name = column.lower()
        return next((m for m in self.merged if m.name == name and alias in m.aliases), None)

    def star(self, inputs: Sequence[Input]) -> Iterator[Ref]:
        """The columns that a star over these inputs stands for, each merged one once."""
        done: set[Merged] = set()
        aliases = {one.alias for one in inputs}
        for one in inputs:
            for column in one.schema.names:
                found = self.merged_of(one.alias, column)
                if found is None:
                    yield one.alias, column
                elif found not in done:
                    done.add(found)
                    is_whole = len(aliases.intersection(found.aliases)) > 1
                    shown = self.input_of(found.shown) if is_whole else one
                    assert shown is not None
                    yield shown.alias, shown.names[column.lower()]

    def input_of(self, alias: str) -> Input | None:
        """The input of this name."""
        return next((one for one in self.inputs if one.alias.lower() == alias.lower()), None)

    def field(self, ref: Ref) -> pa.Field:
        """The field of a column."""
        found = self.input_of(ref[0])
        assert found is not None, ref
        return found.field(ref[1])

    def resolve(self, column: exp.Column, own: Input | None = None) -> Ref | None:
        """The column that a name means here; None where it is nothing of these inputs.

        `own`: the hidden input in whose condition it stands."""
        parts = [part.name for part in column.parts]
        table = self.input_of(parts[0]) if len(parts) > 1 else None
        if table is None or (table.is_hidden and table is not own):
            return self._bare(column, parts[0], own)
        name = table.names.get(parts[1].lower())
        if name is None:
            raise self._no_column(column, table, parts[1])
        return table.alias, name

    def length(self, column: exp.Column) -> int:
        """How many of a name's parts name the column; the rest are fields within it."""
        table = self.input_of(column.parts[0].name) if len(column.parts) > 1 else None
        return 1 if table is None else 2

    def _bare(self, column: exp.Column, name: str, own: Input | None) -> Ref | None:
        low = name.lower()
        having = self.having(low, own)
        if len(having) > 1:
            if low in self.aliases:
                return None
            said = " or ".join(f"{one.alias}.{one.names[low]}" for one in having)
            message = f"{name!r} is ambiguous: {len(having)} tables have it; write {said}"
            raise wrong(self.text, message, column)
        return (having[0].alias, having[0].names[low]) if having else None

    def having(self, name: str, own: Input | None = None) -> list[Input]:
        """The inputs that a bare name, in lower case, may be a column of."""
        merged = [one for one in self.merged if one.name == name]
        if len(merged) == 1:  # before a column of another table, as in DuckDB
            return [one for one in self.inputs if one.alias == merged[0].shown]
        return [
            one for one in self.inputs
            if name in one.names and (one is own or not one.is_hidden)
            and ((found := self.merged_of(one.alias, name)) is None or found.shown == one.alias)
        ]  # fmt: skip

    def _no_column(self, column: exp.Column, table: Input, name: str) -> Exception:
        if isinstance(table.item, exp.Table) and isinstance(table.item.this, exp.Func):
            return Declined("DuckDB has several names for the column of a function", column)
        near = did_you_mean(name, table.schema.names)
        message = f"{table.alias} has no column {name!r}{near}; it has {listed(table.schema.names)}"
        return wrong(self.text, message, column)

    def unknown(self, column: exp.Column) -> Exception:
        """The error for a name that nothing in the query has."""
        parts = [part.name for part in column.parts]
        if len(parts) > 1:
            aliases = [one.alias for one in self.visible]
            near = did_you_mean(parts[0], aliases)
            message = (
                f"there is no table {parts[0]!r} in this from clause{near}; there are "
                f"{', '.join(aliases)}"
            )
            return wrong(self.text, message, column)
        names = [name for one in self.visible for name in one.schema.names]
        near = did_you_mean(parts[0], names)
        message = f"no table here has a column {parts[0]!r}{near}; there are {listed(names)}"
        return wrong(self.text, message, column)


def check_aliases(text: str, inputs: Iterable[Input], used: Iterable[exp.Column]) -> None:
    """Refuse two tables of one name, and say what was meant where that can be seen."""
    seen: dict[str, Input] = {}
    for one in inputs:
        if one.alias.lower() in seen:
            raise wrong(text, _twice(one, list(inputs), used), one.item)
        seen[one.alias.lower()] = one


def _twice(one: Input, inputs: list[Input], used: Iterable[exp.Column]) -> str:
    known = {other.alias.lower() for other in inputs}
    nobody = [column.table for column in used if column.table and column.table.lower() not in known]
    message = f"{one.alias} is the name of two tables; give one of them another"
    if nobody and isinstance(one.item, exp.Table):
        meant = nobody[0]
        message += f": the query also speaks of {meant}, did you mean {one.item.name} {meant}?"
    return message
