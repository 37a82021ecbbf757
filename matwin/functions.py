"""A user's function of a row's values, on whole columns.

    f(a, b) ──▶ called once with columns in the place of values   `whole`: it means the same then
            ──▶ compiled by Numba                                 `compiled`: where many rows come
            ──▶ called row by row                                 always right; for text and sets
            ──▶ called with NumPy arrays                          where single values are refused

What a function means is what it returns for single values: Python's own numbers, whole ones without
a limit; times as counts of their unit.  The first two ways are only faster: each of their calls is
tried against single values on a sample of its rows, and where they differ, or fail, the rows are
called one by one.  Which way a row takes must never show, not even in a float's last bit, or pairs
that tie would no longer do so; so a function with powers or sines is compiled at once or never.
A function that wants arrays (all of the sample are a TypeError, an AttributeError or an IndexError)
is called with arrays, if a row gives the same alone as among others; so is a ufunc.

Invariant: a function that raises, or returns something else than it should, is an `InputError` that
names the function and the first row it failed on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from matwin.storage.columns import Int64s, float_key
from matwin.storage.errors import InputError

from .compiled import compiled, is_exact
from .whole import EXACT, called_whole

Values = npt.NDArray[Any]
Result = Values | list[Any]
"""An array of numbers, or whatever single calls have returned."""

SAMPLE = 8
"""Rows of each call that are tried one by one; a call with no more is made so."""
COMPILE_AFTER = 4096
"""Rows that a function is called with before it is worth to compile it."""
LARGEST = 2**100
ROUNDING, RELATIVE = 2.0**-30, 2.0**-16
"""By how much floats may differ from integers: of the largest value given, and of the result.  What
has wrapped differs by far more."""


class UserFunction:
    """A function, and how it is called."""

    what = "the function"

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", None) or repr(function))
        self._names = names
        self._is_never_whole = self._is_never_compiled = self._wants_arrays = False
        self._is_exact = is_exact(function)
        self._rows_seen = 0
        self._own: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def results(self, columns: list[Values]) -> Result:
        """What the function returns for each row."""
        columns = [_signed(column) for column in columns]
        rows = len(columns[0])
        with self._lock:
            self._rows_seen += rows
        if any(column.dtype == object for column in columns):
            return self._single(columns)
        if isinstance(self.function, np.ufunc):
            return self._of_arrays(columns)
        if rows > SAMPLE or not self._is_exact:
            found = self._whole(columns)
            found = self._compiled(columns) if found is None else found
            if found is not None:
                return found
        return self._single(columns)

    def _whole(self, columns: list[Values]) -> Values | None:
        if self._is_never_whole:
            return None
        try:
            found = called_whole(self.function, columns)
        except Exception:  # single values may do better, or fail with the row's own words
            return None
        if found is None or not self._agrees(found, columns):
            self._is_never_whole = True
            return None
        return found

    def _compiled(self, columns: list[Values]) -> Values | None:
        is_worth_it = self._rows_seen > COMPILE_AFTER or not self._is_exact
        if self._is_never_compiled or not is_worth_it:
            return None
        loop = compiled(self.function, columns, self._own)
        if loop is None:
            self._is_never_compiled = True
            return None
        try:
            found: Values = loop(columns)
        except Exception:  # the same as above
            return None
        if not self._agrees(found, columns):
            self._is_never_compiled = True
            return None
        return None if self._may_have_wrapped(found, columns) else found

    def _may_have_wrapped(self, found: Values, columns: list[Values]) -> bool:
        """Whether 64-bit integers were too short, also on the way to a float: then floats give
        something else.  What takes no floats is not known to be right, such as ``a << 40``."""
        if all(column.dtype != np.int64 for column in columns):
            return False
        floats = [column.astype(np.float64) for column in columns]
        loop = compiled(self.function, floats, self._own)
        if loop is None:
            self._is_never_compiled = True
            return True
        try:
            about = loop(floats).astype(np.float64)
        except Exception:  # floats that are not the integers: nothing to compare with
            return True
        rounded: Any = 0.0
        if found.dtype != np.bool_:
            rounded = 0.5 + ROUNDING * max(np.abs(column).max() for column in floats)
            rounded = rounded + RELATIVE * np.abs(about)
        is_near = bool((np.abs(about - found.astype(np.float64)) <= rounded).all())
        return not is_near or self._is_whole_as_float(found, columns)

    def _is_whole_as_float(self, found: Values, columns: list[Values]) -> bool:
        """Whether whole numbers that no float holds have become floats, as they do in a function
        that returns a float elsewhere."""
        if found.dtype != np.float64:
            return False
        at = int(np.abs(found).argmax())
        if abs(found[at]) < EXACT:
            return False
        row = next(list_rows([column[at : at + 1] for column in columns]))
        try:
            return isinstance(plain_number(self.function(*row)), int)
        except Exception:  # the same as above
            return True

    def _agrees(self, found: Values, columns: list[Values]) -> bool:
        """Whether single values give the same, on a sample."""
        at = np.linspace(0, len(found) - 1, SAMPLE).astype(np.int64)
        rows = list_rows([column[at] for column in columns])
        try:
            return all(
                _is_same(x, self.function(*row))
                for x, row in zip(found[at].tolist(), rows, strict=True)
            )
        except Exception:  # the call says which row it is
            return False

    def _single(self, columns: list[Values]) -> Result:
        if self._wants_arrays:
            return self._of_arrays(columns)
        found = []
        for at, row in enumerate(list_rows(columns)):
            try:
                found.append(self.function(*row))
            except Exception as e:
                if at == 0 and self._may_want_arrays(columns):
                    return self._of_arrays(columns)
                raise self.failed(columns, at, e) from e
        return found

    # ── functions of arrays ──────────────────────────────────────────────────────────────────

    def _may_want_arrays(self, columns: list[Values]) -> bool:
        """Whether single values are refused as such, and arrays are not."""
        if any(column.dtype == object for column in columns):
            return False
        for row in list_rows([column[:SAMPLE] for column in columns]):
            try:
                self.function(*row)
                return False
            except (TypeError, AttributeError, IndexError):
                pass
            except Exception:
                return False
        try:
            shape = np.asarray(self.function(*columns)).shape
        except Exception:
            return False
        self._wants_arrays = shape == columns[0].shape
        return self._wants_arrays

    def _of_arrays(self, columns: list[Values]) -> Values:
        try:
            found = np.asarray(self.function(*columns))
        except Exception as e:
            raise self.failed(columns, self._first_failure(columns), e) from e
        if found.shape != columns[0].shape or found.dtype.kind not in "biuf":
            raise self.wrong(f"returns {found!r:.80}", columns, 0)
        for at in np.linspace(0, len(found) - 1, SAMPLE).astype(np.int64).tolist():
            alone = np.asarray(self.function(*(column[at : at + 1] for column in columns)))
            if alone.shape != (1,) or not _is_same(found[at].item(), alone[0].item()):
                raise self.wrong("returns something else among other rows", columns, at)
        return found

    def _first_failure(self, columns: list[Values]) -> int:
        low, high = 0, len(columns[0])
        while high - low > 1:  # by halving
            middle = (low + high) // 2
            try:
                self.function(*(column[low:middle] for column in columns))
                low = middle
            except Exception:  # the same failure, closer
                high = middle
        return low

    # ── what is told ─────────────────────────────────────────────────────────────────────────

    must = "it must return a number for every pair"

    def wrong(self, problem: str, columns: list[Values], at: int) -> InputError:
        """A result that is none."""
        return InputError(
            f"{self.what} {self.name!r} {problem} for {self._row(columns, at)}; {self.must}"
        )

    def failed(self, columns: list[Values], at: int, error: Exception) -> InputError:
        """A function that has raised."""
        return InputError(
            f"{self.what} {self.name!r} fails for {self._row(columns, at)}: "
            f"{type(error).__name__}: {error}"
        )

    def _row(self, columns: list[Values], at: int) -> str:
        row = next(list_rows([column[at : at + 1] for column in columns]))
        return self.shown(
            [f"{name}{value!r}" for name, value in zip(self._names, row, strict=True)]
        )

    def shown(self, values: list[str]) -> str:
        """A row's values in a message."""
        return ", ".join(values)


class PairFunction(UserFunction):
    """A function of a left and a right value that is to be minimized."""

    what = "the order function"

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(function, ("left ", "right "))

    def shown(self, values: list[str]) -> str:
        """A pair in a message."""
        return " and ".join(values)

    def __call__(self, a: Values, b: Values) -> npt.NDArray[np.float64]:
        """The value of each pair, as float64."""
        return self._numbers(a, b)[0]

    def keys(self, a: Values, b: Values) -> tuple[Int64s, Int64s]:
        """Numbers that ascend with the value, and what decides where they are equal: how much more
        a whole number is than the float next to it."""
        floats, rests = self._numbers(a, b)
        return float_key(floats), rests

    def _numbers(self, a: Values, b: Values) -> tuple[npt.NDArray[np.float64], Int64s]:
        if len(a) == 0:
            return np.empty(0, np.float64), np.empty(0, np.int64)
        result = self.results([a, b])
        if not isinstance(result, list) and result.dtype == np.uint64:
            result = result.tolist()
        if isinstance(result, list):
            result = self._checked(result, [a, b])
        if isinstance(result, list):
            pairs = [split(value) for value in result]
            return np.array([f for f, _ in pairs]), np.array([r for _, r in pairs], np.int64)
        if result.dtype.kind == "f":
            floats = result.astype(np.float64, copy=False)
            nan = np.isnan(floats)
            if nan.any():
                raise self.wrong("returns NaN", [a, b], int(nan.argmax()))
            return floats, np.zeros(len(a), np.int64)
        return split_whole(result)

    def _checked(self, result: list[Any], columns: list[Values]) -> Result:
        """Numbers as an array where that is exact, else as Python's own."""
        numbers = [plain_number(value) for value in result]
        for at, value in enumerate(numbers):
            if not isinstance(value, int | float):
                raise self.wrong(f"returns {value!r:.80}", columns, at)
            if value != value:
                raise self.wrong("returns NaN", columns, at)
            if abs(value) >= LARGEST and isinstance(value, int):
                raise self.wrong(f"returns {value}, beyond 2**100,", columns, at)
        values = np.array(numbers)
        is_exact = values.dtype.kind in "ib" or (
            values.dtype.kind == "f" and bool((np.abs(values) < EXACT).all())
        )
        return values if is_exact else numbers


def split(value: int | float) -> tuple[float, int]:
    """A number as the float next to it, and how much more it is."""
    near = float(value)
    return near, value - int(near) if isinstance(value, int) else 0


def split_whole(values: Values) -> tuple[npt.NDArray[np.float64], Int64s]:
    """The same for an array of whole numbers."""
    floats = values.astype(np.float64)
    if values.dtype != np.int64 or not len(values) or np.abs(floats).max() < EXACT:
        return floats, np.zeros(len(values), np.int64)
    is_top = floats == 2.0**63  # which is no int64; differences wrap into place
    near = np.where(is_top, -(2**63), np.where(is_top, 0.0, floats).astype(np.int64))
    rests = (values.view(np.uint64) - near.view(np.uint64)).view(np.int64)
    return floats, rests


def list_rows(columns: list[Values]) -> Iterator[tuple[Any, ...]]:
    """The rows of columns, as Python's own values."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _signed(column: Values) -> Values:
    """Unsigned numbers as signed ones, or as Python's: their differences would wrap."""
    if column.dtype != np.uint64:
        return column
    fits = bool(column.max(initial=0) < 2**63)
    return column.astype(np.int64) if fits else column.astype(object)


def plain_number(value: Any) -> Any:
    """A number of NumPy's as Python's."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return plain_number(value[()])
    return value


def _is_same(one: Any, other: Any) -> bool:
    """Whether a result of columns is that of single values; floats may round differently."""
    other = plain_number(other)
    if not isinstance(other, int | float):
        return False
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (one != one and other != other)
    return bool(one == other)
