"""A user's function of two values, on whole columns of pairs.

    f(a, b) ──Numba can──▶ a compiled loop over numbers
            ──it can't───▶ called once with two NumPy arrays
            ──nor that───▶ called pair by pair                  (text, sets, any Python object)

Numbers go in as 64-bit integers or floats (``uint64`` as floats), times as counts of their unit.
What comes out is checked: one number for each pair, none of them NaN, and no integer that has
wrapped.  A function that raises, or returns something else, is an `InputError` that names the
function and the first pair it failed on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba.core.errors import NumbaError

from matwin.storage.columns import Int64s, float_key
from matwin.storage.errors import InputError

Values = npt.NDArray[Any]


class PairFunction:
    """A function to be minimized, and how it is called."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", None) or repr(function))
        self._loop: Callable[..., Values] | None = None
        self._how: str | None = None
        self._shadow: Callable[..., Values] | None = None
        self._lock = threading.Lock()

    def __call__(self, a: Values, b: Values) -> Values:
        """The value of each pair, as int64 or float64."""
        a, b = _signed(a), _signed(b)
        if len(a) == 0:
            return np.empty(0, np.float64)
        with self._lock:  # two workers may be the first
            self._how = self._how or self._chosen(a, b)
        try:
            values = self._checked(self._call(a, b), a, b)
            self._check_wrapped(values, a, b)
            return values
        except InputError:
            raise
        except Exception as e:
            raise self._failed(a, b, e) from e

    def keys(self, a: Values, b: Values) -> Int64s:
        """Numbers that ascend with the value."""
        values = self(a, b)
        return float_key(values) if values.dtype == np.float64 else values.astype(np.int64)

    def _chosen(self, a: Values, b: Values) -> str:
        if a.dtype != object and b.dtype != object and self._compile(a, b):
            return "compiled"
        try:
            result = np.asarray(self.function(a[:2], b[:2]))
        except Exception:  # whatever it is, called with scalars it may well work
            return "pair by pair"
        return "vectorized" if result.shape == a[:2].shape else "pair by pair"

    def _compile(self, a: Values, b: Values) -> bool:
        try:
            compiled = numba.njit(self.function, nogil=True)
            compiled.compile((numba.from_dtype(a.dtype), numba.from_dtype(b.dtype)))
            result = compiled.nopython_signatures[-1].return_type
        except (NumbaError, TypeError, AttributeError, ValueError) as e:
            logging.getLogger(__name__).debug("%s is not compiled: %s", self.name, e)
            return False
        if result in numba.types.signed_domain:
            dtype: Any = np.int64
        elif isinstance(result, numba.types.Integer | numba.types.Float | numba.types.Boolean):
            dtype = np.float64
        else:
            return False
        loop = _looping(compiled)
        self._loop = lambda a, b: loop(a, b, np.empty(len(a), dtype))
        if dtype == np.int64:
            self._shadow = self._in_floats(compiled)
        return True

    def _in_floats(self, compiled: Any) -> Callable[..., Values] | None:
        """The same function of floats, which tells when 64-bit integers have wrapped."""
        try:
            compiled.compile((numba.float64, numba.float64))
        except (NumbaError, TypeError):
            return None  # it needs integers, and bits don't wrap
        loop = _looping(compiled)
        return lambda a, b: loop(
            a.astype(np.float64), b.astype(np.float64), np.empty(len(a), np.float64)
        )

    def _check_wrapped(self, values: Values, a: Values, b: Values) -> None:
        if self._shadow is None or values.dtype != np.int64:
            return
        try:
            about = self._shadow(a, b)
        except ArithmeticError:
            return  # floats that are not the integers: nothing to compare with
        # What has wrapped is wrong by a multiple of 2^64.
        wrong = np.abs(about - values.astype(np.float64)) > 2.0**62
        if wrong.any():
            raise self._wrong(
                "goes beyond 64-bit integers", a, b, int(wrong.argmax()),
                "reckon in floats, for example float(a - b) ** 2",
            )  # fmt: skip

    def _call(self, a: Values, b: Values) -> Any:
        if self._how == "compiled" and self._loop is not None:
            return self._loop(a, b)
        if self._how == "vectorized":
            return self.function(a, b)
        return [self.function(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]

    def _checked(self, result: Any, a: Values, b: Values) -> Values:
        if isinstance(result, list):
            for at, value in enumerate(result):
                if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                    raise self._wrong(f"returns {value!r}", a, b, at)
        values = np.asarray(result)
        if values.shape != a.shape or values.dtype.kind not in "iufb":
            raise self._wrong(f"returns {result!r:.80}", a, b, 0)
        if self._how == "compiled" and values.dtype == np.int64:
            return values
        # Always floats: a function may return integers for some pairs and floats for others.
        values = values.astype(np.float64, copy=False)
        nan = np.isnan(values)
        if nan.any():
            raise self._wrong("returns NaN", a, b, int(nan.argmax()))
        return values

    def _wrong(
        self, what: str, a: Values, b: Values, at: int,
        remedy: str = "it must return a number for every pair",
    ) -> InputError:  # fmt: skip
        return InputError(
            f"the order function {self.name!r} {what} for left {_shown(a[at])} and right "
            f"{_shown(b[at])}; {remedy}"
        )

    def _failed(self, a: Values, b: Values, error: Exception) -> InputError:
        low, high = 0, len(a)
        while high - low > 1:  # the first pair that fails, by halving
            middle = (low + high) // 2
            try:
                self._call(a[low:middle], b[low:middle])
                low = middle
            except Exception:  # the same failure, closer
                high = middle
        return InputError(
            f"the order function {self.name!r} fails for left {_shown(a[low])} and right "
            f"{_shown(b[low])}: {type(error).__name__}: {error}"
        )


def _looping(compiled: Any) -> Callable[..., Values]:
    @numba.njit(nogil=True)
    def loop(a: Any, b: Any, out: Any) -> Any:
        for i in range(len(a)):
            out[i] = compiled(a[i], b[i])
        return out

    function: Callable[..., Values] = loop
    return function


def _signed(values: Values) -> Values:
    """Unsigned numbers as floats: their differences would wrap."""
    return values.astype(np.float64) if values.dtype == np.uint64 else values


def _shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)
