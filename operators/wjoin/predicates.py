"""Predicates over two streams' columns: a tolerance, or a user's function of their values.

    where={("a.x", "b.x"): 0.5}                                  -0.5 <= b.x - a.x <= 0.5
    where={("a.lat", "a.lon", "b.lat", "b.lon"): close}          close(a.lat, a.lon, b.lat, b.lon)

A function is compiled by Numba where it can be, called once with whole columns where it can't, and
called row by row as a last resort.  What is null, NaN or false does not match.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba.core.errors import NumbaError

from matwin.attributes import common_type
from matwin.storage.columns import Bools, comparable, is_numeric
from matwin.storage.errors import InputError
from matwin.storage.grid import Dimension

SAMPLE = 16
"""Pairs on which a function is tried."""
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
        return Predicate(columns, Function(test, key))
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
            f"where: {name}: column {column!r} is not there; the columns are {schemas[name].names}"
        )
    raise InputError(f"where: {text!r} is no stream.column; the streams are {streams}")


@dataclass(frozen=True, slots=True)
class _Near:
    """``lo <= b - a <= hi``, in the columns' common type."""

    key: tuple[str, ...]
    type: pa.DataType
    lo: Any
    hi: Any

    @classmethod
    def of(cls, key: tuple[str, ...], fields: list[pa.Field], tolerance: Any) -> _Near:
        if len(fields) != 2:
            raise InputError(f"where: {key!r}: a tolerance is for one column of each stream")
        if tolerance is None or not all(is_numeric(field.type) for field in fields):
            raise InputError(
                f"where: {key!r} are {fields[0].type} and {fields[1].type} with {tolerance!r}: "
                "give numbers or times with a tolerance, or a function that returns true or false"
            )
        try:
            common = common_type(*fields)
            bound = Dimension.of(pa.field(key[0], common), tolerance)
        except InputError as e:
            raise InputError(f"where: {key!r}: {e}") from e
        return cls(key, common, bound.lo, bound.hi)

    def _cast(self, column: pa.Array) -> pa.Array:
        try:
            return column.cast(self.type)
        except pa.ArrowInvalid as e:
            raise InputError(
                f"where: {self.key!r}: a value does not fit {self.type}, in which both are "
                f"compared ({e}); cast or filter it first"
            ) from e

    def __str__(self) -> str:
        return f"{self.lo} <= difference <= {self.hi}"

    def __call__(self, columns: list[pa.Array]) -> Bools:
        a, b = (comparable(self._cast(column)) for column in columns)
        good: Bools = np.ones(len(a[0]), np.bool_)
        for _, valid in (a, b):
            good = good if valid is None else good & valid
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


def _at_most(apart: Values, limit: int) -> Bools:
    if limit < 0:
        return np.zeros(len(apart), np.bool_)
    return apart <= np.uint64(min(limit, 2**64 - 1))


def _at_least(apart: Values, limit: int) -> Bools:
    if limit > 2**64 - 1:
        return np.zeros(len(apart), np.bool_)
    return apart >= np.uint64(max(limit, 0))


_loops: WeakKeyDictionary[Any, dict[tuple[str, ...], Any]] = WeakKeyDictionary()


class Function:
    """A user's predicate, and how it is called."""

    def __init__(self, function: Callable[..., Any], key: tuple[str, ...]) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", None) or repr(function))
        self._key = key
        self._how: str | None = None
        self._loop: Callable[..., Values] | None = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"the function {self.name}"

    def __call__(self, columns: list[pa.Array]) -> Bools:
        rows = len(columns[0])
        valid = _all_there(columns)
        if valid is not None:
            columns = [column.filter(pa.array(valid)) for column in columns]
        values = [_values(column) for column in columns]
        found = self._tested(values) if len(values[0]) else np.zeros(0, np.bool_)
        if valid is None:
            return found
        out = np.zeros(rows, np.bool_)
        out[valid] = found
        return out

    def _tested(self, values: list[Values]) -> Bools:
        with self._lock:  # two workers may be the first
            how = self._how or self._chosen(values)
            # A single pair does not tell a function of columns from one of values.
            if how == "compiled" or len(values[0]) > 1:
                self._how = how
        try:
            result = self._call(values, how)
        except Exception as e:
            raise self._failed(values, e, how) from e
        return self._checked(result, values)

    def _chosen(self, values: list[Values]) -> str:
        if any(v.dtype == object for v in values):
            return "row by row"
        if self._compile(values):
            return "compiled"
        if len(values[0]) == 1:
            is_scalar = self._tried("row by row", values) is not None
            is_whole = not is_scalar and self._tried("vectorized", values) is not None
            return "vectorized" if is_whole else "row by row"
        few = [v[:SAMPLE] for v in values]
        whole = self._tried("vectorized", few)
        # Of two lengths, lest a length that is fixed be the right one by chance.
        if whole is None or self._tried("vectorized", [v[:2] for v in values]) is None:
            return "row by row"
        single = self._tried("row by row", few)
        # Where both work, they must mean the same.
        return "vectorized" if single is None or (whole == single).all() else "row by row"

    def _tried(self, how: str, values: list[Values]) -> Bools | None:
        try:
            return self._checked(self._call(values, how), values)
        except Exception:  # whatever it is, called in another way it may well work
            return None

    def _compile(self, values: list[Values]) -> bool:
        """Compile the function for columns of these types, once for all joins that use it."""
        types = tuple(v.dtype.char for v in values)
        try:
            loops = _loops.setdefault(self.function, {})
        except TypeError:  # an object that can't be kept by name, such as a ufunc
            loops = {}
        if types not in loops:
            loops[types] = self._compiled(values)
        self._loop = loops[types]
        return self._loop is not None

    def _compiled(self, values: list[Values]) -> Callable[..., Values] | None:
        try:
            compiled = numba.njit(self.function, nogil=True)
            compiled.compile(tuple(numba.from_dtype(v.dtype) for v in values))
            result = compiled.nopython_signatures[-1].return_type
        except (NumbaError, TypeError, AttributeError, ValueError) as e:
            logging.getLogger(__name__).debug("%s is not compiled: %s", self.name, e)
            return None
        if not isinstance(result, numba.types.Boolean | numba.types.Integer):
            return None
        return _looping(compiled, len(values))

    def _call(self, values: list[Values], how: str | None) -> Any:
        are_numbers = all(v.dtype != object for v in values)  # of 64 bits with a sign
        if how == "compiled" and self._loop is not None and are_numbers:
            return self._loop(np.empty(len(values[0]), np.bool_), *values)
        if how == "vectorized":
            return np.asarray(self.function(*values))
        return [self.function(*row) for row in _rows(values)]

    def _checked(self, result: Any, values: list[Values]) -> Bools:
        if isinstance(result, list):
            for at, value in enumerate(result):
                is_truth = value is None or isinstance(value, bool | np.bool_ | int | float)
                if not is_truth:
                    raise self._wrong(f"returns {value!r}", values, at)
            return np.array([bool(value) and value == value for value in result], np.bool_)
        found = np.asarray(result)
        if found.shape != values[0].shape or found.dtype.kind not in "biuf":
            raise self._wrong(f"returns {result!r:.80}", values, 0)
        if found.dtype.kind == "f":
            found = ~np.isnan(found) & (found != 0)
        truth: Bools = found.astype(np.bool_, copy=False)
        return truth

    def _wrong(self, what: str, values: list[Values], at: int) -> InputError:
        return InputError(
            f"where: the function {self.name!r} {what} for {self._row(values, at)}; it must return "
            "true or false for every pair of rows"
        )

    def _failed(self, values: list[Values], error: Exception, how: str) -> InputError:
        low, high = 0, len(values[0])
        while high - low > 1:  # the first pair that fails, by halving
            middle = (low + high) // 2
            try:
                self._call([v[low:middle] for v in values], how)
                low = middle
            except Exception:  # the same failure, closer
                high = middle
        return InputError(
            f"where: the function {self.name!r} fails for {self._row(values, low)}: "
            f"{type(error).__name__}: {error}"
        )

    def _row(self, values: list[Values], at: int) -> str:
        shown = next(_rows([v[at : at + 1] for v in values]))
        return ", ".join(f"{name}={value!r}" for name, value in zip(self._key, shown, strict=True))


def _rows(values: list[Values]) -> Iterator[tuple[Any, ...]]:
    return zip(*(v.tolist() for v in values), strict=True)


def _all_there(columns: list[pa.Array]) -> Bools | None:
    """Where no column is null or NaN; None: everywhere."""
    masks = []
    for column in columns:
        if column.null_count:
            masks.append(pc.is_valid(column).to_numpy(zero_copy_only=False))
        if pa.types.is_floating(column.type):
            nan = pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
            if nan.any():
                masks.append(~nan)
    return np.logical_and.reduce(masks) if masks else None


def _values(column: pa.Array) -> Values:
    if is_numeric(column.type) or pa.types.is_boolean(column.type):
        if pa.types.is_boolean(column.type):
            return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        values = comparable(column)[0]
        if values.dtype != np.uint64:
            return values
        # Differences of unsigned numbers would wrap.
        if values.max(initial=0) < 2**63:
            return values.astype(np.int64)
        return values.astype(object)
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found


def _looping(compiled: Any, count: int) -> Callable[..., Values] | None:
    """A compiled loop over two to four columns: Numba can't unpack a varying number of them."""

    @numba.njit(nogil=True)
    def two(out: Any, a: Any, b: Any) -> Any:
        for i in range(len(out)):
            out[i] = compiled(a[i], b[i])
        return out

    @numba.njit(nogil=True)
    def three(out: Any, a: Any, b: Any, c: Any) -> Any:
        for i in range(len(out)):
            out[i] = compiled(a[i], b[i], c[i])
        return out

    @numba.njit(nogil=True)
    def four(out: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        for i in range(len(out)):
            out[i] = compiled(a[i], b[i], c[i], d[i])
        return out

    loops: dict[int, Callable[..., Values]] = {2: two, 3: three, 4: four}
    return loops.get(count)
