"""Kernels: loops over plain arrays, compiled by Numba when that pays.

    @kernel                       few rows, and little done so far ──▶ run as Python
    def judge(...): ...           otherwise ──▶ Numba, imported at the first such call;
                                                compiled once for a machine, then kept on disk

Importing Numba and loading what it has kept takes a quarter of a second of CPU, compiling seconds.
A join of three rows needs neither: the same loop in Python takes a millisecond.  A process that has
spent `PLAIN_SECONDS` that way does more than a few rows, and gets compiled code from then on.

Both ways give the same numbers: Python runs on NumPy's integers, which have 64 bits and wrap around
as those of compiled code do.

A kernel may call other kernels.  It uses loops and arrays only: one assignment of a slice or one
`np.sort` inside a kernel adds a second of compilation, for messages and cases that nobody needs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from . import native
from .compiled import drop_stale

P = ParamSpec("P")
R = TypeVar("R")

PLAIN_SECONDS = 0.05
"""So long a process runs kernels as Python; tests set it to 0, or to infinity."""
FEW_ROWS = 64
"""Only calls with so few rows are run as Python."""
COMPILING = "compiling kernels, once for this machine"

_state = threading.local()
_spent = [0.0]


class Kernel(Generic[P, R]):
    """A function on arrays that runs as Python or compiled."""

    def __init__(self, function: Callable[P, R], outputs: int, few_rows: int) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._outputs = outputs
        self._few_rows = few_rows
        self._dispatcher: Any = None
        self._native = native.Native(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it, compiled if that pays."""
        if getattr(_state, "is_plain", False):
            return self.py_func(*args, **kwargs)
        if _spent[0] < PLAIN_SECONDS and not kwargs and self._is_small(args):
            return self._plain(args)
        found: R
        if not kwargs and native.IS_ON:
            with suppress(native.Unsupported):
                kinds, words = native.described(args)
                code = self._native.code(kinds)
                if code is not None:
                    found = code(words)
                    return found
        found = self.dispatcher(*args, **kwargs)
        return found

    @property
    def dispatcher(self) -> Any:
        """What Numba makes of it."""
        if self._dispatcher is None:
            # Nobody calls kernels from C.
            made = _numba().njit(cache=True, nogil=True, no_cfunc_wrapper=True)(self.py_func)
            drop_stale(made)
            self._dispatcher = made
        return self._dispatcher

    def _is_small(self, args: Sequence[Any]) -> bool:
        rows = args[: len(args) - self._outputs]
        return all(len(a) <= self._few_rows for a in rows if isinstance(a, np.ndarray))

    def _plain(self, args: Sequence[Any]) -> R:
        start = time.perf_counter()
        _state.is_plain = True
        try:
            with np.errstate(over="ignore"):
                return self.py_func(*map(_as_compiled, args))  # type: ignore[call-arg]
        finally:
            _state.is_plain = False
            _spent[0] += time.perf_counter() - start


@overload
def kernel(function: Callable[P, R], /) -> Kernel[P, R]: ...
@overload
def kernel(
    *, outputs: int = 0, few_rows: int = FEW_ROWS
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
def kernel(function: Any = None, /, *, outputs: int = 0, few_rows: int = FEW_ROWS) -> Any:
    """Make a kernel of a function.

    Its last `outputs` arguments are arrays to be filled, whose length says nothing about the work.
    With ``few_rows=0`` it is always compiled: a search takes long however few its pages are.
    """
    if function is None:
        return lambda each: Kernel(each, outputs, few_rows)
    return Kernel(function, outputs, few_rows)


def _as_compiled(value: Any) -> Any:
    """An argument as compiled code has it."""
    return np.int64(value) if type(value) is int and abs(value) < 2**63 else value


_numbas: list[Any] = []
_lock = threading.Lock()


def _numba() -> Any:
    """Numba, told what a kernel within a kernel is, and to say when it compiles."""
    with _lock:
        if not _numbas:
            import numba
            from numba.core import event, types
            from numba.extending import typeof_impl

            typeof_impl.register(Kernel)(lambda value, _: types.Dispatcher(bare(value.py_func)))
            event.register("numba:compile", _listener(event))  # type: ignore[no-untyped-call]
            _numbas.append(numba)
        return _numbas[0]


@cache
def bare(function: Callable[..., Any]) -> Any:
    """A function for other compiled code to call, and nobody else: calls from Python would take a
    seventh of the time to compile it (judge: 4.8 s with them, 4.1 without)."""
    return _numba().njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)(function)


def _listener(event: Any) -> Any:
    """Says that a kernel is being compiled: to whoever has asked, else once on a terminal."""

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            if function.__module__.startswith("matwin."):  # not a user's, not one of Numba's own
                _say(function.__name__)

        def on_end(self, event: Any) -> None: ...

    return Listener()


on_compiling: Callable[[str], None] | None = None
"""Called with a kernel's name, in place of the line on a terminal: a progress bar, say."""
_said = [False]


def _say(name: str) -> None:
    if on_compiling is not None:
        on_compiling(name)
    elif not _said[0] and sys.stderr is not None and sys.stderr.isatty():
        print(f"matwin: {COMPILING}", file=sys.stderr)
    _said[0] = True
