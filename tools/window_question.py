"""What a window join asks, read from its arguments for the referee.

    windows, time ──▶ alternatives   each a list of  lo <= t_b - t_a <= hi,  as they were given
    by            ──▶ keys           one column of every stream, compared as one type
    where         ──▶ near           tolerances between two columns
                      conditions     functions of two streams' columns

The operator has a reading of its own, with windows that follow from others and plans.  This one
stays with what was written, so that a mistake there is not made here as well; only the windows'
limits come from the same code, before anything is derived from them.

Nothing here reads a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from matwin.attributes import common_type, keys_of, known
from matwin.hints import did_you_mean
from matwin.operators.wjoin.constraints import Between, Constraints
from matwin.operators.wjoin.predicates import limits_between
from matwin.storage.columns import is_measurable, is_numeric
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.names import listed, repeated


@dataclass(frozen=True, slots=True)
class Key:
    """An equality key: a column of each stream, and what they are compared as."""

    columns: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream, which goes by its number."""

    stream: int
    name: str


@dataclass(frozen=True, slots=True)
class Near:
    """``lo <= b - a <= hi`` for two columns, compared as one type, and not 0 where it says so."""

    a: Column
    b: Column
    type: pa.DataType
    lo: int | float
    hi: int | float
    is_nonzero: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """A function of columns of two streams that has to be true."""

    columns: tuple[Column, ...]
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(getattr(self.function, "__name__", None) or repr(self.function))


@dataclass(frozen=True, slots=True)
class PlainQuestion:
    """What a window join asks; streams go by their number."""

    names: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    times: tuple[str, ...]
    time_type: pa.DataType
    alternatives: tuple[tuple[Between, ...], ...]
    keys: tuple[Key, ...]
    near: tuple[Near, ...]
    conditions: tuple[Condition, ...]

    @classmethod
    def of(
        cls,
        schemas: Mapping[str, pa.Schema],
        *,
        time: object,
        windows: object,
        by: object = None,
        where: object = None,
    ) -> PlainQuestion:
        """The question of the arguments."""
        if len(schemas) < 2:
            raise InputError(f"a window join needs two streams or more, and has {list(schemas)}")
        names, plain = tuple(schemas), tuple(map(_plain, schemas.values()))
        times = _times(names, time)
        fields = known(*(_field(n, s, t) for n, s, t in zip(names, plain, times, strict=True)))
        time_type = _common(names, fields)
        near, conditions = _where(names, plain, where)
        question = cls(
            names, plain, times, time_type,
            Constraints.of(names, windows, time_type).alternatives,
            _keys(names, plain, by), near, conditions,
        )  # fmt: skip
        question._check_output()
        return question

    def output(self) -> list[tuple[Column, str]]:
        """The columns that come out, in order, and what they are called."""
        found = [(Column(0, key.columns[0]), key.columns[0]) for key in self.keys]
        for number, (stream, schema) in enumerate(zip(self.names, self.schemas, strict=True)):
            keys = {key.columns[number] for key in self.keys}
            found += [
                (Column(number, name), f"{stream}_{name}")
                for name in schema.names
                if name not in keys
            ]
        return found

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out, with their types."""
        return pa.schema(
            [self.schemas[c.stream].field(c.name).with_name(shown) for c, shown in self.output()]
        )

    def _check_output(self) -> None:
        twice = repeated(name for _, name in self.output())
        if twice:
            raise InputError(f"two output columns are called {twice[0]!r}; rename one of them")


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema])


def _field(stream: str, schema: pa.Schema, column: object) -> pa.Field:
    if column not in schema.names:
        near = did_you_mean(str(column), schema.names)
        raise InputError(
            f"stream {stream!r}: column {column!r} is not there{near}; there are "
            f"{listed(schema.names)}"
        )
    return schema.field(column)


def _common(names: Sequence[str], fields: Sequence[pa.Field]) -> pa.DataType:
    """The type in which all the columns are compared without loss."""
    for name, field in zip(names, fields, strict=True):
        if not is_measurable(field.type):
            raise InputError(
                f"stream {name!r}: column {field.name!r} is {field.type}; it must be a number, a "
                "time, a date or a duration"
            )
    first, common = names[0], fields[0]
    for name, field in zip(names[1:], fields[1:], strict=True):
        try:
            common = common.with_type(common_type(common, field))
        except InputError as e:
            raise InputError(f"streams {first!r} (left) and {name!r} (right): {e}") from e
    return common_type(common, common)


def _times(names: tuple[str, ...], time: object) -> tuple[str, ...]:
    if isinstance(time, str):
        return (time,) * len(names)
    if isinstance(time, Mapping):
        _check_streams(names, time, "time")
        return tuple(time[name] for name in names)
    raise InputError(f'time={time!r}: name the time column, time="t", or time={{"a": "t", …}}')


def _check_streams(names: tuple[str, ...], given: Mapping[Any, Any], what: str) -> None:
    for name in given:
        if name not in names:
            raise InputError(f"{what}= names {name!r}; the streams are {', '.join(names)}")
    for name in names:
        if name not in given:
            raise InputError(f"{what}= says nothing of the stream {name!r}")


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


def _keys(names: tuple[str, ...], schemas: tuple[pa.Schema, ...], by: object) -> tuple[Key, ...]:
    if by is None:
        return ()
    if isinstance(by, Mapping):
        _check_streams(names, by, "by")
        lists = [_listed(by[name]) for name in names]
    else:
        keys = [by] if isinstance(by, tuple) else _listed(by)
        lists = [[_name_in(at, key, by, len(names)) for key in keys] for at in range(len(names))]
    if len({len(found) for found in lists}) > 1:
        raise InputError(f"by={by!r}: each stream needs as many keys as the others")
    return tuple(_key(names, schemas, columns) for columns in zip(*lists, strict=True))


def _name_in(at: int, key: Any, by: object, streams: int) -> Any:
    """A key's name in a stream: a tuple has one for each."""
    if not isinstance(key, tuple):
        return key
    if len(key) != streams:
        raise InputError(f"by={by!r}: {key!r} needs a name for each of {streams} streams")
    return key[at]


def _listed(names: object) -> list[Any]:
    if isinstance(names, str):
        return [names]
    if isinstance(names, Sequence):
        return list(names)
    raise InputError(f"by={names!r}: give a column's name, or a list of names")


def _key(names: tuple[str, ...], schemas: tuple[pa.Schema, ...], columns: tuple[Any, ...]) -> Key:
    fields = known(*(_field(*given) for given in zip(names, schemas, columns, strict=True)))
    for schema, column in zip(schemas[1:], columns[1:], strict=True):
        keys_of(schemas[0], schema, [(columns[0], column)])  # refuses what can't be compared
    is_number = is_numeric(fields[0].type)
    return Key(tuple(columns), _common(names, fields) if is_number else fields[0].type)


# ── where ────────────────────────────────────────────────────────────────────────────────────


def _where(
    names: tuple[str, ...], schemas: tuple[pa.Schema, ...], where: object
) -> tuple[tuple[Near, ...], tuple[Condition, ...]]:
    near, conditions = [], []
    given = where if isinstance(where, list | tuple) else [where or {}]
    for mapping in given:
        if not isinstance(mapping, Mapping):
            raise InputError(f'where={where!r}: write for example where={{("a.x", "b.x"): 0.5}}')
        for key, value in mapping.items():
            columns = _columns(names, schemas, key)
            if callable(value):
                conditions.append(Condition(columns, value))
            else:
                near.append(_near(names, schemas, columns, value))
    return tuple(near), tuple(conditions)


def _columns(
    names: tuple[str, ...], schemas: tuple[pa.Schema, ...], key: object
) -> tuple[Column, ...]:
    if not isinstance(key, tuple) or not all(isinstance(text, str) for text in key):
        raise InputError(f'where: {key!r} is no key; write for example ("a.x", "b.x")')
    columns = tuple(column_of(names, schemas, text) for text in key)
    if len({column.stream for column in columns}) != 2:
        raise InputError(f"where: {key!r} must name columns of two streams")
    return columns


def column_of(names: Sequence[str], schemas: Sequence[pa.Schema], text: str) -> Column:
    """The column that ``stream.column`` means; either name may have dots of its own."""
    found = [
        Column(number, text[len(name) + 1 :])
        for number, name in enumerate(names)
        if text.startswith(f"{name}.") and text[len(name) + 1 :] in schemas[number].names
    ]
    if len(found) != 1:
        problem = "is no column" if not found else "could be a column of several streams"
        raise InputError(
            f"where: {text!r} {problem}; write stream.column, the streams are {', '.join(names)}"
        )
    return found[0]


def _near(
    names: tuple[str, ...], schemas: tuple[pa.Schema, ...], columns: tuple[Column, ...], value: Any
) -> Near:
    if len(columns) != 2:
        raise InputError(f"where: the tolerance {value!r} is between two columns")
    fields = [schemas[column.stream].field(column.name) for column in columns]
    common = _common([names[column.stream] for column in columns], fields)
    if value is None:
        raise InputError(f"where: the tolerance of {[c.name for c in columns]} is missing")
    limits, is_nonzero = limits_between(value, pa.field(columns[0].name, common))
    return Near(*columns, common, limits.lo, limits.hi, is_nonzero)
