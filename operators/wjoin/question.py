"""The question a window join answers, resolved against every stream's schema.  Constant.

streams, time, windows, by, where ──▶ WindowQuestion
                                        sides        the columns of each stream in store
                                        constraints  windows between them, closed
                                        predicates   what else two streams' rows must satisfy
                                        schema       keys once, then <stream>_<column>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from matwin.attributes import common_type, known
from matwin.hints import did_you_mean
from matwin.question import RESERVED
from matwin.side import Side
from matwin.sources import Source
from matwin.storage.columns import is_measurable, is_numeric
from matwin.storage.encodings import plain_type
from matwin.storage.errors import InputError
from matwin.storage.grid import Key
from matwin.storage.layout import check_names, check_storable
from matwin.storage.names import listed

from .constraints import LARGEST, Constraints
from .predicates import Predicate, predicates_of

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WindowQuestion:
    """What is asked of N streams."""

    names: Names
    sides: tuple[Side, ...]
    time_type: pa.DataType
    times: Names
    keys: tuple[Names, ...]
    """The key columns of each stream."""
    key_types: tuple[pa.DataType, ...]
    """What each key is compared as."""
    constraints: Constraints
    predicates: tuple[Predicate, ...]
    schema: pa.Schema
    origins: tuple[tuple[int, str], ...]
    """Which stream and column each output column comes from."""

    @classmethod
    def of(
        cls, sources: Mapping[str, Source], *, time: object, windows: object, by: object,
        where: object,
    ) -> WindowQuestion:  # fmt: skip
        """The question of the arguments, checked before any data is read."""
        names = tuple(sources)
        schemas = {name: _plain(source.schema, name) for name, source in sources.items()}
        times = _times(schemas, time)
        time_type = _common(schemas, times, "time")
        if not is_measurable(time_type):
            raise InputError(
                f"{names[0]}: column {times[0]!r} is {time_type}; the time must be a number, a "
                "time, a date or a duration"
            )
        keys = _keys(schemas, by)
        key_types = [_common(schemas, column, "by") for column in zip(*keys, strict=True)]
        constraints = Constraints.of(names, windows, time_type, times[0])
        sides = tuple(
            _side(name, schemas[name], (column, time_type), constraints, own, key_types)
            for name, column, own in zip(names, times, keys, strict=True)
        )
        schema, origins = _output(schemas, keys)
        predicates = predicates_of(where, schemas)
        return cls(
            names, sides, time_type, times, keys, tuple(key_types), constraints, predicates, schema,
            origins,
        )  # fmt: skip

    @property
    def is_keyed(self) -> bool:
        """Whether rows must agree in a key."""
        return bool(self.keys[0])

    @property
    def is_float(self) -> bool:
        """Whether times are floats."""
        return self.constraints.is_float


def _plain(schema: pa.Schema, name: str) -> pa.Schema:
    for column in schema.names:
        if column.lower().startswith(RESERVED):
            raise InputError(
                f"{name}: column {column!r}: names that begin with {RESERVED!r} are kept for our "
                "own columns; rename it"
            )
    try:
        check_names(schema)
        plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
        check_storable(plain)
    except InputError as e:
        raise InputError(f"{name}: {e}") from e
    return plain


def _field(schemas: Mapping[str, pa.Schema], name: str, column: object, what: str) -> pa.Field:
    schema = schemas[name]
    if not isinstance(column, str):
        raise InputError(f"{what}={column!r}: give a column's name")
    places = schema.get_all_field_indices(column)
    if len(places) != 1:
        missing = f"is not there{did_you_mean(column, schema.names)}"
        problem = "stands there twice" if places else missing
        raise InputError(
            f"{name}: column {column!r} {problem}; the columns are {listed(schema.names)}"
        )
    return schema.field(places[0])


def _per_stream(schemas: Mapping[str, pa.Schema], given: object, what: str) -> list[object]:
    """One value for all streams, or one for each of them."""
    if not isinstance(given, Mapping):
        return [given] * len(schemas)
    for name in given:
        if name not in schemas:
            near = did_you_mean(str(name), schemas)
            raise InputError(
                f"{what}: {name!r} is no stream{near}; the streams are {list(schemas)}"
            )
    for name in schemas:
        if name not in given:
            raise InputError(f"{what}: the stream {name!r} is missing; name a column for each")
    return [given[name] for name in schemas]


def _times(schemas: Mapping[str, pa.Schema], time: object) -> Names:
    given = _per_stream(schemas, time, "time")
    return tuple(
        _field(schemas, name, column, "time").name
        for name, column in zip(schemas, given, strict=True)
    )


def _keys(schemas: Mapping[str, pa.Schema], by: object) -> tuple[Names, ...]:
    if by is None:
        return ((),) * len(schemas)
    found: list[Names] = []
    for name, given in zip(schemas, _keys_per_stream(schemas, by), strict=True):
        columns = [given] if isinstance(given, str) else given
        if not isinstance(columns, Sequence) or not columns:
            raise InputError(f"by={by!r}: give a column's name, a list of names, or one per stream")
        fields = [_field(schemas, name, column, "by") for column in columns]
        for field in fields:
            Key.of(field)
        found.append(tuple(field.name for field in fields))
        if len(set(found[-1])) < len(columns):
            raise InputError(f"{name}: by= names a column twice: {list(found[-1])}")
    if len({len(columns) for columns in found}) > 1:
        raise InputError(f"by={by!r}: every stream must have as many key columns as the others")
    return tuple(found)


def _keys_per_stream(schemas: Mapping[str, pa.Schema], by: object) -> list[object]:
    """Each stream's columns.  As in two-sided joins a tuple is one key, under its name in each
    stream, and a list is several keys."""
    keys = [by] if isinstance(by, tuple) else by
    if not isinstance(keys, list) or not any(isinstance(key, tuple) for key in keys):
        return _per_stream(schemas, by, "by")
    for key in keys:
        if isinstance(key, tuple) and len(key) != len(schemas):
            raise InputError(
                f"by={by!r}: {key!r} is one key with a name for each stream, and there are "
                f"{len(schemas)} streams; give a list for several keys"
            )
    return [
        [key[at] if isinstance(key, tuple) else key for key in keys] for at in range(len(schemas))
    ]


def _common(schemas: Mapping[str, pa.Schema], columns: Sequence[str], what: str) -> pa.DataType:
    """The type in which a column of every stream is compared."""
    names = list(schemas)
    fields = known(
        *(schemas[name].field(column) for name, column in zip(names, columns, strict=True))
    )
    common = fields[0]
    for name, field in zip(names[1:], fields[1:], strict=True):
        # Decimals are counted where they are times; as keys, they are told apart as they are.
        test = is_measurable if what == "time" else is_numeric
        both_numbers = test(common.type) and test(field.type)
        problem = f"{what}: {names[0]} {fields[0].name!r} is {fields[0].type} and {name} " \
            f"{field.name!r} is {field.type}"  # fmt: skip
        if both_numbers:
            try:
                common = pa.field("time", common_type(common, field))
            except InputError as e:
                zoned = [getattr(f.type, "tz", None) is not None for f in (common, field)]
                reason = (
                    "one has a time zone and the other has none"
                    if zoned[0] != zoned[1]
                    else ("they can't be compared")
                )
                raise InputError(f"{problem}: {reason}; cast one of them") from e
        elif _family(common.type) != _family(field.type):
            raise InputError(f"{problem}: they can't be compared; cast one of them")
    return common.type


def _family(data_type: pa.DataType) -> str:
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "text"
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return "bytes"
    return str(data_type)


def _side(
    name: str, schema: pa.Schema, time: tuple[str, pa.DataType], constraints: Constraints,
    keys: Names, key_types: list[pa.DataType],
) -> Side:  # fmt: skip
    number = constraints.names.index(name)
    reach = [abs(u) for row in constraints.upper for u in (row[number],)]
    reach += [abs(u) for u in constraints.upper[number]]
    width = max(reach) or 1
    return Side.of_stream(
        name, schema, time=time, width=min(width, LARGEST if constraints.is_float else 2**62),
        keys=list(zip(keys, key_types, strict=True)),
    )  # fmt: skip


def _output(
    schemas: Mapping[str, pa.Schema], keys: tuple[Names, ...]
) -> tuple[pa.Schema, tuple[tuple[int, str], ...]]:
    names = list(schemas)
    first = schemas[names[0]]
    fields = [first.field(key) for key in keys[0]]
    origins = [(0, key) for key in keys[0]]
    for number, name in enumerate(names):
        for field in schemas[name]:
            if field.name not in keys[number]:
                fields.append(field.with_name(f"{name}_{field.name}"))
                origins.append((number, field.name))
    seen: dict[str, tuple[int, str]] = {}
    for field, origin in zip(fields, origins, strict=True):
        if field.name in seen:
            one, other = (f"{names[n]}.{column}" for n, column in (seen[field.name], origin))
            raise InputError(
                f"the output would have two columns {field.name!r}: {one} and {other}; rename a "
                "stream or a column"
            )
        seen[field.name] = origin
    return pa.schema(fields), tuple(origins)
