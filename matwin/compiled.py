"""A user's function compiled by Numba, kept for whoever asks again.

    function ──▶ its code, and the values that it captures ──▶ kept? ──▶ a loop over columns
                                                        └─ no ──▶ Numba, half a second or more

Numba freezes what a function captures (globals, variables of an outer function, defaults) when it
compiles.  So these values are a part of the key: a function whose captured values have changed is
another function, and is compiled anew.  What can't be told apart by its value, such as a large
array, is not kept: then a join has the values that there were when it first called the function.

The key holds no function, so that the copies that Spark makes of one for every task share what a
worker has compiled.  At most `KEPT` are kept, those used last; that a function can't be compiled is
kept as well.
"""

from __future__ import annotations

import dis
import logging
import threading
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Loop = Callable[[list[Values]], Values]
"""The function's value for each row."""

KEPT = 128
ARRAY_BYTES = 1 << 16
"""Larger arrays are not compared by their contents."""
_loops: OrderedDict[Any, Loop | None] = OrderedDict()
_lock = threading.Lock()


class Unknown(Exception):
    """A captured value that can't be told from another."""


def compiled(function: Callable[..., Any], columns: list[Values], own: dict[Any, Any]) -> Any:
    """A compiled loop for columns of these types, or None where Numba can't.

    `own` keeps what no other join may use.
    """
    if not isinstance(function, types.FunctionType) or not 2 <= len(columns) <= 4:
        return None
    dtypes = tuple(column.dtype.char for column in columns)
    by_code = (function.__code__, dtypes)
    try:
        key: Any = (_identity(function, ()), dtypes)
        kept: dict[Any, Any] = _loops
    except Unknown:
        key, kept = by_code, own
    with _lock:
        if key not in kept and _loops.get(by_code, key) is not None:
            kept[key] = _compiled(function, columns)
            if kept is own and kept[key] is None:
                _loops[by_code] = None  # with other values it could be; pairs are right as well
        if key in _loops:
            _loops.move_to_end(key)
        while len(_loops) > KEPT:
            _loops.popitem(last=False)
        return kept.get(key)


_EXACT_NAMES = {
    "abs", "min", "max", "bool", "int", "float", "math", "np", "numpy", "sqrt", "fabs", "floor",
    "ceil", "trunc", "minimum", "maximum", "absolute", "where", "sign", "inf", "isnan", "isinf",
}  # fmt: skip


def is_exact(function: Callable[..., Any]) -> bool:
    """Whether a function only does what has one right result, so that compiled code gives the same
    bits as Python: no powers, no functions inside, and nothing but these names and plain values."""
    if not isinstance(function, types.FunctionType):
        return False
    code, found = function.__code__, function.__globals__
    outer = {name for name in code.co_names if isinstance(found.get(name), int | float)}
    captured = [cell.cell_contents for cell in function.__closure__ or ()]
    return (
        set(code.co_names) - outer <= _EXACT_NAMES
        and all(isinstance(value, int | float) for value in captured)
        and not any(isinstance(constant, types.CodeType) for constant in code.co_consts)
        and not any(step.argrepr in ("**", "**=") for step in dis.get_instructions(code))
    )


# ── what a function is ───────────────────────────────────────────────────────────────────────


def _identity(function: types.FunctionType, seen: tuple[Any, ...]) -> Any:
    """The code with everything it captures, by value."""
    code = function.__code__
    if code in seen:
        return code
    names, seen = frozenset(_names(code)), (*seen, code)
    found = function.__globals__
    outer = [(name, found[name]) for name in sorted(names & found.keys())]
    inner = [("", _contents(cell)) for cell in function.__closure__ or ()]
    given = [("", value) for value in function.__defaults__ or ()]
    given += sorted((function.__kwdefaults__ or {}).items())
    values = [(name, _value(value, names, seen)) for name, value in (*outer, *inner, *given)]
    return code, len(inner), len(given), tuple(values)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError as e:  # nothing is in it yet
        raise Unknown from e


def _value(value: Any, names: frozenset[str], seen: tuple[Any, ...]) -> Any:
    """Something that is equal for equal values, and for nothing else."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return kind, value
    if kind in (float, complex) or isinstance(value, np.generic):
        return kind, repr(value)  # tells -0.0 from 0.0
    if kind is tuple:
        return kind, tuple(_value(item, names, seen) for item in value)
    if kind is np.ndarray and value.nbytes <= ARRAY_BYTES and value.dtype != object:
        return kind, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, types.ModuleType):
        return kind, value.__name__, _parts(value, names, seen)
    if isinstance(value, types.BuiltinFunctionType | type | np.ufunc) or _is_library(value):
        return kind, getattr(value, "__module__", None), value.__name__
    if isinstance(value, types.FunctionType):
        return kind, _identity(value, seen)
    if hasattr(value, "py_func") and hasattr(value, "targetoptions"):  # Numba's own
        return kind, _identity(value.py_func, seen), repr(value.targetoptions)
    raise Unknown


def _parts(module: types.ModuleType, names: frozenset[str], seen: tuple[Any, ...]) -> Any:
    """What of a module has a name that the function uses."""
    if module in seen:
        return None
    used = [name for name in sorted(names) if name in vars(module)]
    return tuple((name, _value(vars(module)[name], names, (*seen, module))) for name in used)


def _is_library(value: Any) -> bool:
    """A function of NumPy, which nobody redefines."""
    module = str(getattr(value, "__module__", None))
    return hasattr(value, "__name__") and module.partition(".")[0] in ("numpy", "math")


# ── Numba ────────────────────────────────────────────────────────────────────────────────────


def _compiled(function: types.FunctionType, columns: list[Values]) -> Loop | None:
    """Whatever Numba says of a function that it can't compile, there are other ways to call it."""
    import numba  # here: most joins have no such function, and it takes a quarter of a second

    numbers = (numba.types.Boolean, numba.types.Integer, numba.types.Float)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Without the check a place outside of a captured array would be read, or crash.
            inner: Any = numba.njit(function, nogil=True, boundscheck=True)
            inner.compile(tuple(numba.from_dtype(column.dtype) for column in columns))
            result = inner.nopython_signatures[-1].return_type
            if not isinstance(result, numbers):
                return None
            out = numba.np.numpy_support.as_dtype(result)
            loop = _looping(inner, len(columns))
            loop(np.empty(0, out), *(column[:0] for column in columns))
    except Exception as e:
        logging.getLogger(__name__).debug("%s is not compiled: %s", function, e)
        return None
    return lambda some: loop(np.empty(len(some[0]), out), *some)


def _looping(inner: Any, count: int) -> Callable[..., Values]:
    """A compiled loop over two to four columns: Numba can't unpack a varying number of them."""
    import numba

    @numba.njit(nogil=True)
    def two(out: Any, a: Any, b: Any) -> Any:
        for i in range(len(out)):
            out[i] = inner(a[i], b[i])
        return out

    @numba.njit(nogil=True)
    def three(out: Any, a: Any, b: Any, c: Any) -> Any:
        for i in range(len(out)):
            out[i] = inner(a[i], b[i], c[i])
        return out

    @numba.njit(nogil=True)
    def four(out: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        for i in range(len(out)):
            out[i] = inner(a[i], b[i], c[i], d[i])
        return out

    loops: dict[int, Callable[..., Values]] = {2: two, 3: three, 4: four}
    return loops[count]
