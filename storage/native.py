"""Kernels as machine code that needs no compiler: found on disk, called through `ctypes`.

    kernel(a, 3, 0.5) ──▶ words: address of a │ 3 │ bits of 0.5 │ room for the result
                      ──▶ entry(words), without the GIL ──▶ the result, read from the words

Numba and LLVM take 0.3 s and 110 MB of a process that only runs what another has compiled.  So the
first process hands its code to `emit` and keeps it (`kept`); later ones put it into memory
(`image`) and have no compiler.  Wherever that can't be done, `Native.found` is None and Numba does
it: on other processors, for other types, for kernels that use what has no name here.

The entry reads an array where NumPy has it, from the object: `PyArrayObject` is a part of NumPy's
binary interface, as all that is compiled against NumPy depends on it.  Asking each of twenty arrays
for its address from Python took 15 µs a call.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import struct
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from . import kept
from .image import Image, Loaded, Unlinkable, c_library

IS_ON = True
"""False: everything is Numba's; a test sets it."""

ALIGNED, C_CONTIGUOUS = 0x100, 0x1
DTYPES = {
    np.dtype(name): name
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64",
    )
}  # fmt: skip
SCALARS: dict[type, str] = {
    int: "int64", bool: "bool", float: "float64", np.int64: "int64", np.uint64: "uint64",
    np.float64: "float64", np.bool_: "bool",
}  # fmt: skip
HEAD = object.__basicsize__
"""Bytes of a Python object before what is its own; an array's data, dimensions and strides follow
at 0, 16 and 24."""

LEFT = b"left to Numba"
"""Kept in the place of code that can't be: trying takes as long as compiling."""
logger = logging.getLogger(__name__)

Kinds = tuple[Any, ...]


class Unsupported(Exception):
    """Something that only Numba takes."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A value that a kernel returns: a scalar's dtype, or an array's with its dimensions."""

    dtype: str
    ndim: int = -1

    @property
    def layout(self) -> str:
        """Its fields, as `struct` writes them: an array is as Numba has it, owner first."""
        if self.ndim < 0:
            return np.dtype(self.dtype).char if self.dtype != "bool" else "?"
        return f"{5 + 2 * self.ndim}q"

    @property
    def fields(self) -> int:
        """How many fields."""
        return 1 if self.ndim < 0 else 5 + 2 * self.ndim

    def value(self, fields: Sequence[Any]) -> Any:
        """It, of its fields."""
        if self.ndim < 0:
            return fields[0]
        owner, data = fields[0], fields[4]
        shape, strides = fields[5 : 5 + self.ndim], fields[5 + self.ndim :]
        return np.asarray(_Owned(owner, data, self.dtype, tuple(shape), tuple(strides)))


class _Owned:
    """Memory that a kernel has allocated, as an array that gives it back."""

    def __init__(
        self, owner: int, data: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self._owner = owner
        self._free = c_library().free
        self.__array_interface__ = {
            "version": 3, "typestr": np.dtype(dtype).str, "shape": shape, "strides": strides,
            "data": (data, False),
        }  # fmt: skip

    def __del__(self) -> None:
        references = ctypes.c_size_t.from_address(self._owner)
        references.value -= 1
        if not references.value:
            self._free(ctypes.c_void_p(self._owner))


class Code:
    """A kernel for arguments of certain kinds."""

    def __init__(self, name: str, image: Image, returned: tuple[Returned, ...] | None) -> None:
        self._name, self._returned = name, returned
        self._loaded: Loaded = image.load()
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._loaded.address)
        self._layout = struct.Struct("@" + "".join(r.layout for r in returned or ()))
        self._room = [0] * (self._layout.size // 8 + 2)

    def __call__(self, words: list[int]) -> Any:
        """Run it."""
        count = len(words)
        held = (ctypes.c_int64 * (count + len(self._room)))(*words)
        if self._entry(ctypes.addressof(held)) > 0:
            # Nothing else is raised in kernels: they are loops over arrays.
            raise MemoryError(f"no memory for the arrays of {self._name}")
        if self._returned is None:
            return None
        fields = self._layout.unpack_from(held, 8 * count)
        if len(self._returned) == len(fields):  # no arrays
            return fields if len(fields) > 1 else fields[0]
        values, at = [], 0
        for each in self._returned:
            values.append(each.value(fields[at : at + each.fields]))
            at += each.fields
        return tuple(values) if len(values) > 1 else values[0]


def described(args: Sequence[Any]) -> tuple[Kinds, list[int]]:
    """The kinds of arguments, which code is compiled for, and the words that carry them."""
    words: list[int] = []
    return _kinds(args, words), words


def _kinds(args: Sequence[Any], words: list[int]) -> Kinds:
    kinds: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is np.ndarray:
            dtype, flags = DTYPES.get(value.dtype), value.flags.num
            if dtype is None or not flags & ALIGNED:
                raise Unsupported
            kinds.append((dtype, value.ndim, flags & C_CONTIGUOUS))
            words.append(id(value))
            continue
        if isinstance(value, tuple):
            kinds.append((kind, _kinds(value, words)))
            continue
        name = SCALARS.get(kind)
        if name is None:
            raise Unsupported
        kinds.append(name)
        if name == "float64":
            words.append(struct.unpack("q", struct.pack("d", value))[0])
        else:
            words.append(_word(int(value)))
    return tuple(kinds)


def flat(kinds: Kinds) -> Iterator[Any]:
    """One kind for each word: what is in a tuple has words of its own."""
    for kind in kinds:
        if is_tuple(kind):
            yield from flat(kind[1])
        else:
            yield kind


def is_tuple(kind: Any) -> bool:
    """Whether it is a tuple's: its class, and what is in it."""
    return isinstance(kind[0], type)


def _word(value: int) -> int:
    if -(2**63) <= value < 2**63:
        return value
    raise Unsupported


class Native:
    """All the code of one kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._codes: dict[Kinds, Code | None] = {}
        self._lock = threading.Lock()

    def code(self, kinds: Kinds) -> Code | None:
        """The code for these kinds of arguments, loaded or made now; None: ask Numba."""
        if kinds not in self._codes:
            with self._lock:
                if kinds not in self._codes:
                    self._codes[kinds] = self._found(kinds)
        return self._codes[kinds]

    def _found(self, kinds: Kinds) -> Code | None:
        if not is_possible():
            return None
        try:
            name = self._file_name(kinds)
            data = kept.find(name)
            if data is None:
                data = self._made(kinds)
                kept.keep(name, data)
            return self._loaded(data)
        except (Unsupported, Unlinkable, MemoryError, OSError) as e:
            logger.debug("%s is left to Numba: %r", self._function, e)
            return None

    def _made(self, kinds: Kinds) -> bytes:
        from .emit import emitted  # imports Numba

        try:
            return emitted(self._function, kinds)
        except (MemoryError, OSError):
            raise  # next time it may work
        except Exception as e:  # whatever other versions of Numba have that these lines don't know
            logger.debug("%s is left to Numba: %r", self._function, e)
            return LEFT

    def _loaded(self, data: bytes) -> Code | None:
        if data == LEFT:
            return None
        told, _, image = data.partition(b"\n")
        returned = _returned_of(told.decode())
        return Code(self._function.__name__, Image.from_bytes(image), returned)

    def _file_name(self, kinds: Kinds) -> str:
        made_of = repr((kinds, identity(self._function), kept.machine()))
        return f"{self._function.__name__}-{hashlib.sha256(made_of.encode()).hexdigest()}"


def told(returned: tuple[Returned, ...] | None) -> str:
    """What a kernel returns, as a line of text."""
    return "none" if returned is None else " ".join(f"{r.dtype}:{r.ndim}" for r in returned)


def _returned_of(line: str) -> tuple[Returned, ...] | None:
    if line == "none":
        return None
    pairs = (word.split(":") for word in line.split())
    return tuple(Returned(dtype, int(ndim)) for dtype, ndim in pairs)


@cache
def is_possible() -> bool:
    """Whether this machine is one of those for which code is kept."""
    return (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and sys.implementation.name == "cpython"
        and not os.environ.get("NUMBA_DISABLE_JIT")
        and kept.machine() is not None
        and _arrays_are_as_expected()
    )


def _arrays_are_as_expected() -> bool:
    array = np.zeros((3, 5), np.int64)[:, ::2]
    at = id(array) + HEAD
    data, _, dimensions, strides = (ctypes.c_int64 * 4).from_address(at)
    pairs = ((dimensions, array.shape), (strides, array.strides))
    return data == array.ctypes.data and all(
        tuple((ctypes.c_int64 * 2).from_address(place)) == values for place, values in pairs
    )


def identity(function: Callable[..., Any]) -> Any:
    """A function with all that it calls and all constants that it uses, as text that differs when
    any of it does."""
    code: types.CodeType = function.__code__
    if code.co_freevars or function.__defaults__ or function.__kwdefaults__:
        raise Unsupported
    names = [
        (name, function.__globals__[name]) for name in code.co_names if name in function.__globals__
    ]
    held = [(name, _value(value)) for name, value in names]
    constants = [repr(constant) for constant in code.co_consts]
    return code.co_code.hex(), code.co_varnames, code.co_names, constants, held


def _value(value: Any) -> Any:
    inner = getattr(value, "py_func", None)
    if inner is not None:
        return identity(inner)
    if value is np:
        return np.__version__
    if isinstance(value, type) and issubclass(value, tuple):
        return value.__module__, value.__qualname__, getattr(value, "_fields", ())
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    if isinstance(value, int | float | np.generic):
        return type(value).__name__, repr(value)
    raise Unsupported
