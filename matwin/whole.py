"""Whole columns in the place of single values: what a user's function makes of all pairs at once.

    f(a, b)   with a, b = Whole(column)      a - b, abs(a), a < b, np.sqrt(a), np.where(…)      ✓
                                             if a > b, math.sqrt(a), max(a, b), len(a), a[0]    ✗

A function that only uses what is on the first line means the same for a column as for each of its
values, because every step does; so its result needs no trust.  Whatever else it tries with a column
is refused, also where the function catches the error: it is then called in another way.

Invariant: a result is what Python's own numbers give, to the last bit.  Whole numbers that would
leave 64 bits, or that no float64 holds where they would become one, are refused; so is what NumPy
only warns of.

Left out: attributes and methods of arrays.  Python's numbers have none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

Values = npt.NDArray[Any]

_FUNCTIONS: dict[Any, Callable[..., Any]] = {np.where: np.where, np.clip: np.clip}
"""What is no ufunc and works value by value all the same."""
_EXACT = {
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.negative,
    np.positive, np.absolute, np.fabs, np.square, np.sqrt, np.minimum, np.maximum, np.floor,
    np.ceil, np.trunc, np.sign, np.equal, np.not_equal, np.less, np.less_equal, np.greater,
    np.greater_equal, np.logical_and, np.logical_or, np.logical_not, np.logical_xor,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.right_shift, np.power,
}  # fmt: skip
"""What has one right result.  A sine of a column may be a bit off that of a value, and pairs that
tie would no longer do so."""
_GROWING = {np.add, np.subtract, np.multiply, np.power, np.negative, np.absolute, np.square}
_OF_TRUTH = {
    np.logical_and, np.logical_or, np.logical_not, np.logical_xor,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor,
}  # fmt: skip
EXACT = 2**53
"""Whole numbers up to here are floats."""


class NotWhole(TypeError):
    """A column was used as if it were a value."""


class Whole(NDArrayOperatorsMixin):
    """A column of numbers that is used like one of them."""

    __slots__ = ("_trial", "_values")

    def __init__(self, values: Values, trial: Trial) -> None:
        self._values = values
        self._trial = trial

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in _EXACT:
            self._trial.refuse()
        given = [self._trial.plain(value) for value in inputs]
        if ufunc not in _OF_TRUTH:
            given = [_counted(value) for value in given]
        result = ufunc(*given)
        self._trial.check(ufunc, given, result)
        return Whole(result, self._trial)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        if function not in _FUNCTIONS or options or len(inputs) != 3:
            self._trial.refuse()
        given = [self._trial.plain(value) for value in inputs]
        result = _FUNCTIONS[function](*given)
        self._trial.check(function, given[function is np.where :], result)
        return Whole(result, self._trial)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What isinstance asks for: a column is none of what a value is."""
        self._trial.refuse()

    def _refused(self, *_: Any) -> Any:
        self._trial.refuse()

    def __getattr__(self, name: str) -> Any:
        self._trial.refuse()

    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __float__ = __int__ = _refused
    __index__ = __complex__ = __round__ = __repr__ = __str__ = __format__ = __array__ = _refused
    __hash__ = _refused


class Trial:
    """One call of a function with whole columns."""

    def __init__(self) -> None:
        self.is_refused = False
        """Whether a column was used as if it were a value."""

    def refuse(self) -> NoReturn:
        """The function is none of whole columns, whatever it makes of this error."""
        self.is_refused = True
        raise NotWhole("a whole column is used as if it were one value")

    def plain(self, value: Any) -> Any:
        """An operand: a column's values, or a number as it is."""
        if isinstance(value, Whole):
            return value._values
        if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
            return value
        return self.refuse()

    def check(self, function: Any, given: list[Any], result: Values) -> None:
        """See to it that Python's own numbers would have given the same."""
        if result.dtype.kind not in "bif" or result.dtype.itemsize not in (1, 8):
            self.refuse()
        is_whole = [_kind(value) == "i" for value in given]
        if function is np.power and not all(is_whole):
            self.refuse()
        if "f" in (result.dtype.kind, *map(_kind, given)):
            for value, whole in zip(given, is_whole, strict=True):
                if whole and not _below(value, EXACT):
                    raise OverflowError("a whole number that no float holds")
        elif result.dtype.kind == "i" and function in _GROWING and any(is_whole):
            about = function(*(np.asarray(value, np.float64) for value in given))
            if not _below(about, 2.0**62):
                raise OverflowError("beyond 64-bit integers")


def _kind(value: Any) -> str:
    return np.asarray(value).dtype.kind if not isinstance(value, np.ndarray) else value.dtype.kind


def _below(values: Any, limit: float) -> bool:
    about = np.abs(np.asarray(values, np.float64))
    return not about.size or bool(about.max() < limit)


def _counted(value: Any) -> Any:
    """True and False as the numbers that Python takes them for."""
    return value.astype(np.int64) if _kind(value) == "b" and np.ndim(value) else value


def called_whole(function: Callable[..., Any], columns: list[Values]) -> Values | None:
    """The function's value for each row, or None where it is none of whole columns.

    Raises whatever the function raises, an `OverflowError` or a `FloatingPointError` where its
    numbers leave what a column can hold; single values may then do better.
    """
    trial = Trial()
    with np.errstate(all="raise", under="ignore"):
        try:
            result = function(*(Whole(column, trial) for column in columns))
        except NotWhole:
            return None
        except Exception:
            if trial.is_refused:
                return None
            raise
    if trial.is_refused:
        return None
    if isinstance(result, Whole):
        values: Values = result._values
        return values
    if isinstance(result, int | float | np.bool_ | np.integer | np.floating):
        constant = np.full(len(columns[0]), result)
        return constant if constant.dtype != object else None  # else beyond 64 bits
    return None
