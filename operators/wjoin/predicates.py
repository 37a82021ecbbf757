"""Predicates over two streams' columns: a tolerance, or a user's function of their values.

    where={("a.x", "b.x"): 0.5}                                  -0.5 <= b.x - a.x <= 0.5
    where={("a.x", "b.x"): (None, 5)}                            b.x - a.x <= 5
    where={("a.id", "b.id"): matwin.nonzero()}                   b.id <> a.id
    where={("a.lat", "a.lon", "b.lat", "b.lon"): close}          close(a.lat, a.lon, b.lat, b.lon)

A function gets numbers, times as counts: all of them in the finest unit among its columns, a
timestamp[s] beside a timestamp[ms] in milliseconds, dates alone in days.  How it is called is
`matwin.functions`' business.  What is null, NaN or false does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from matwin.attributes import common_type
from matwin.bounds import FLOAT_LIMIT, INT_LIMIT, bare_tolerance
from matwin.functions import UserFunction, plain_number
from matwin.side import converted
from matwin.storage.arrays import arrow, as_numpy
from matwin.storage.columns import Bools, comparable, is_measurable, is_numeric, is_temporal
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension
from matwin.storage.names import listed
from matwin.storage.units import Counts, shown, unit_nanoseconds, unit_of

EXAMPLE = 'write for example where={("a.x", "b.x"): 0.5}'
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Predicate:
    """What rows of two streams must satisfy; `columns` are (stream, column), in the key's order."""

    columns: tuple[tuple[int, str], ...]
    test: Callable[[list[pa.Array]], Bools]

    @property
    def streams(self) -> frozenset[int]:
        """The two streams."""
        return frozenset(number for number, _ in self.columns)


def predicates_of(where: object, schemas: Mapping[str, pa.Schema]) -> tuple[Predicate, ...]:
    """The predicates of the argument `where`."""
    if where is None:
        return ()
    given = where if isinstance(where, list | tuple) else [where]
    found = []
    for mapping in given:
        if not isinstance(mapping, Mapping):
            raise InputError(f"where={where!r}: {EXAMPLE}")
        found += [_predicate(key, test, schemas) for key, test in mapping.items()]
    return tuple(found)


def _predicate(key: Any, test: Any, schemas: Mapping[str, pa.Schema]) -> Predicate:
    if not isinstance(key, tuple) or not all(isinstance(name, str) for name in key):
        raise InputError(f"where: {key!r} does not name columns; {EXAMPLE}")
    columns = tuple(_column(text, schemas) for text in key)
    names = list(schemas)
    if len({number for number, _ in columns}) != 2:
        raise InputError(f"where: {key!r} must name columns of two streams; {EXAMPLE}")
    fields = [schemas[names[number]].field(column) for number, column in columns]
    if callable(test):
        return Predicate(columns, Function(test, key, [field.type for field in fields]))
    return Predicate(columns, _Near.of(key, fields, test))


def _column(text: str, schemas: Mapping[str, pa.Schema]) -> tuple[int, str]:
    """``stream.column``; either may hold points itself."""
    for number, name in enumerate(schemas):
        column = text.removeprefix(name + ".")
        if text.startswith(name + ".") and column in schemas[name].names:
            return number, column
    streams = ", ".join(schemas)
    name, _, column = text.partition(".")
    if name in schemas and column:
        raise InputError(
            f"where: {name}: column {column!r} is not there; the columns are "
            f"{listed(schemas[name].names)}"
        )
    raise InputError(f"where: {text!r} is no stream.column; the streams are {streams}")


@dataclass(frozen=True, slots=True)
class _Near:
    """``lo <= b - a <= hi``, in the columns' common type, and not 0 where that is asked for."""

    key: tuple[str, ...]
    type: pa.DataType
    lo: Any
    hi: Any
    is_nonzero: bool

    @classmethod
    def of(cls, key: tuple[str, ...], fields: list[pa.Field], tolerance: Any) -> _Near:
        if len(fields) != 2:
            raise InputError(f"where: {key!r}: a tolerance is for one column of each stream")
        if tolerance is None or not all(is_measurable(field.type) for field in fields):
            raise InputError(
                f"where: {key!r} are {fields[0].type} and {fields[1].type} with "
                f"{shown(tolerance)}: give numbers or times with a tolerance, or a function that "
                "returns true or false"
            )
        try:
            common = common_type(*fields)
            limits, is_nonzero = limits_between(tolerance, pa.field(key[0], common))
        except InputError as e:
            raise InputError(f"where: {key!r}: {e}") from e
        return cls(key, common, limits.lo, limits.hi, is_nonzero)

    def __str__(self) -> str:
        limit = FLOAT_LIMIT if pa.types.is_floating(self.type) else INT_LIMIT
        lo, hi = ("" if abs(end) >= limit else str(end) for end in (self.lo, self.hi))
        within = f"{f'{lo} <= ' * bool(lo)}difference{f' <= {hi}' * bool(hi)}" if lo or hi else ""
        return " and ".join(filter(None, [within, "difference <> 0" * self.is_nonzero]))

    def __call__(self, columns: list[pa.Array]) -> Bools:
        a, b = (comparable(_cast(column, self.type, repr(self.key))) for column in columns)
        good: Bools = np.ones(len(a[0]), np.bool_)
        for _, valid in (a, b):
            good = good if valid is None else good & valid
        if self.is_nonzero:
            good = good & (a[0] != b[0])
        if a[0].dtype == np.float64:
            with np.errstate(invalid="ignore", over="ignore"):
                apart = b[0] - a[0]
                good &= np.isfinite(a[0]) & np.isfinite(b[0])
            good &= (apart >= self.lo) & (apart <= self.hi)
            return good
        up, down = b[0] >= a[0], b[0] < a[0]
        apart = np.where(up, b[0], a[0]).view(np.uint64) - np.where(up, a[0], b[0]).view(np.uint64)
        within = (up & _at_most(apart, self.hi) & _at_least(apart, self.lo)) | (
            down & _at_most(apart, -self.lo) & _at_least(apart, -self.hi)
        )
        return good & within


def limits_between(tolerance: Any, column: pa.Field) -> tuple[Counts, bool]:
    """The least and the greatest difference that are within, and whether equal values are out."""
    bare, is_nonzero = bare_tolerance(tolerance, column)
    bound = Dimension.of(column, bare)
    limit = FLOAT_LIMIT if pa.types.is_floating(column.type) else INT_LIMIT
    return bound.limits or Counts(-limit, limit), is_nonzero


def _at_most(apart: Values, limit: int) -> Bools:
    if limit < 0:
        return np.zeros(len(apart), np.bool_)
    return apart <= np.uint64(min(limit, 2**64 - 1))


def _at_least(apart: Values, limit: int) -> Bools:
    if limit > 2**64 - 1:
        return np.zeros(len(apart), np.bool_)
    return apart >= np.uint64(max(limit, 0))


class Function(UserFunction):
    """A user's predicate."""

    what = "where: the function"
    must = "it must return true or false for every pair of rows"

    def __init__(
        self, function: Callable[..., Any], key: tuple[str, ...], types: list[pa.DataType]
    ) -> None:
        super().__init__(function, [f"{name}=" for name in key])
        self._types = compared_types(types)

    def __str__(self) -> str:
        return f"the function {self.name}"

    def __call__(self, columns: list[pa.Array]) -> Bools:
        rows = len(columns[0])
        valid = _all_there(columns)
        if valid is not None:
            columns = [column.filter(arrow(valid)) for column in columns]
        values = [
            _values(_cast(column, wanted, self.name))
            for column, wanted in zip(columns, self._types, strict=True)
        ]
        found = self._true(values) if len(values[0]) else np.zeros(0, np.bool_)
        if valid is None:
            return found
        out = np.zeros(rows, np.bool_)
        out[valid] = found
        return out

    def _true(self, columns: list[Values]) -> Bools:
        result = self.results(columns)
        if not isinstance(result, list):
            is_there = ~np.isnan(result) if result.dtype.kind == "f" else True
            truth: Bools = (result != 0) & is_there
            return truth
        truths = [plain_number(value) for value in result]
        for at, value in enumerate(truths):
            if not (value is None or isinstance(value, int | float)):
                raise self.wrong(f"returns {value!r:.80}", columns, at)
        return np.array([bool(value) and value == value for value in truths], np.bool_)


def compared_types(types: list[pa.DataType]) -> list[pa.DataType]:
    """The types in which a function gets its values: times all in the finest unit among them.

    >>> types = [pa.timestamp("s"), pa.date32(), pa.int8(), pa.time64("us")]
    >>> [str(t) for t in compared_types(types)]
    ['timestamp[us]', 'timestamp[us]', 'int8', 'time64[us]']
    """
    units = {unit_nanoseconds(t): unit_of(t) for t in types if is_temporal(t)}
    if len(units) < 2:
        return types
    finest = units[min(units)]
    return [_in_unit(t, finest) if is_temporal(t) else t for t in types]


def _in_unit(data_type: pa.DataType, unit: str) -> pa.DataType:
    if pa.types.is_duration(data_type):
        return pa.duration(unit)
    if pa.types.is_time(data_type):
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return pa.timestamp(unit, getattr(data_type, "tz", None))


def _cast(column: pa.Array, wanted: pa.DataType, what: str) -> pa.Array:
    """A column in the type of the comparison."""
    if column.type == wanted and not pa.types.is_decimal(wanted):
        return column
    try:
        return converted(column, wanted)
    except pa.ArrowInvalid as e:
        raise InputError(
            f"where: {what}: a value does not fit {wanted}, in which both are compared ({e}); cast "
            "or filter it first"
        ) from e


def _all_there(columns: list[pa.Array]) -> Bools | None:
    """Where no column is null or NaN; None: everywhere."""
    masks = []
    for column in columns:
        if column.null_count:
            masks.append(as_numpy(pc.is_valid(column)))
        if pa.types.is_floating(column.type):
            nan = pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
            if nan.any():
                masks.append(~nan)
    return np.logical_and.reduce(masks) if masks else None


def _values(column: pa.Array) -> Values:
    if is_numeric(column.type) or pa.types.is_boolean(column.type):
        if pa.types.is_boolean(column.type):
            return as_numpy(column)
        return comparable(column)[0]
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found
