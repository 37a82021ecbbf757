"""Functions in words that stay the same from process to process, to notice when one has changed.

    lambda a, b: a + w        source ──▶ syntax tree ──▶ text      no line numbers, no formatting
                              w = 2                                defaults and closure values
                              functions that it calls,             likewise
                                of its own module

Bytecode and addresses say nothing: they differ between releases of Python and between processes.
A function without source (typed into a prompt, made by `exec`) is known by its name alone; that is
said once.

Left out: globals that are no functions, and values that a function itself changes (a list that it
appends to): they belong to the run, not to the question.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import linecache
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

TEXT_MAX = 300
"""Longer code is told by its beginning and a checksum."""
_PLAIN = (
    str, bytes, int, float, complex, type(None), Decimal, Fraction, date, time, timedelta, tzinfo,
    PurePath, np.generic, range, slice,
)  # fmt: skip
_CHANGING = frozenset(
    ("append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "popleft",
     "popitem", "remove", "discard", "clear", "sort", "reverse", "write", "put")
)  # fmt: skip
_told_once: set[str] = set()
Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def code_of(value: object) -> str | None:
    """The code of all functions in a value; None where there is none, or one has no source."""
    if not _has_function(value):
        return None
    reading = _Reading()
    text = reading.told(value)
    for name in reading.unknown:
        if name not in _told_once:
            _told_once.add(name)
            warnings.warn(
                f"{name}: its source can't be read, so that a restart knows it by its name alone "
                "and does not notice when it changes; put it into a file",
                stacklevel=2,
            )
    if not reading.functions or reading.unknown:
        return None
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:60]}… ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _has_function(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_function, value.values()))
    return any(map(_has_function, value)) if isinstance(value, list | tuple) else callable(value)


class _Reading:
    """One value, with all that it is made of."""

    def __init__(self) -> None:
        self.functions = 0
        self.unknown: list[str] = []
        self._told: dict[int, tuple[str, Any]] = {}
        """Texts by identity; with the value, which keeps its identity to itself."""

    def told(self, value: Any) -> str:
        """A value in words."""
        if isinstance(value, enum.Enum | type):
            return str(getattr(value, "__qualname__", value))
        if isinstance(value, _PLAIN):
            return repr(value)
        if id(value) not in self._told:
            self._told[id(value)] = "a circle", value
            self._told[id(value)] = self._made_of(value), value
        return self._told[id(value)][0]

    def _made_of(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return (
                "{" + ", ".join(f"{self.told(k)}: {self.told(v)}" for k, v in value.items()) + "}"
            )
        if isinstance(value, list | tuple):
            return "(" + ", ".join(map(self.told, value)) + ")"
        if isinstance(value, set | frozenset):
            return "{" + ", ".join(sorted(map(self.told, value))) + "}"
        if callable(value):
            return self._callable(value)
        return _data(value) or type(value).__qualname__

    def _callable(self, value: Any) -> str:
        if isinstance(value, partial):
            return f"partial{self.told((value.func, value.args, value.keywords))}"
        if isinstance(value, types.MethodType):
            return self._method(value)
        for inner in ("py_func", "__wrapped__"):  # compiled by Numba; a cache or another wrapper
            if callable(getattr(value, inner, None)) and not isinstance(value, types.FunctionType):
                return self.told(getattr(value, inner))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        call = vars(type(value)).get("__call__")
        if isinstance(call, types.FunctionType):
            return self._method(types.MethodType(call, value))
        return str(getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__)))

    def _method(self, value: types.MethodType) -> str:
        """A method, and what its object has, but for what the method changes."""
        body = self.told(value.__func__)
        node = _node(value.__func__) if isinstance(value.__func__, types.FunctionType) else None
        changed = {name.rpartition(".")[2] for name in _changed(node) if "." in name}
        has = {n: v for n, v in getattr(value.__self__, "__dict__", {}).items() if n not in changed}
        if isinstance(value.__self__, type):
            has = {}
        return f"{body} of {type(value.__self__).__qualname__}{self.told(has)}"

    def _function(self, function: types.FunctionType) -> str:
        self.functions += 1
        node = _node(function)
        if node is None:
            self.unknown.append(function.__qualname__)
            return function.__qualname__
        parts = [_text(node)]
        given = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
        if given:
            parts.append(f"defaults {self.told(given)}")
        changed = _changed(node)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            with suppress(ValueError):  # not bound yet
                value = cell.cell_contents
                told = type(value).__qualname__ if name in changed else self.told(value)
                parts.append(f"{name} = {told}")
        for name in sorted(_names(node)):
            other = function.__globals__.get(name)
            if isinstance(other, types.FunctionType) and other.__module__ == function.__module__:
                parts.append(f"{name} = {self.told(other)}")
        return "; ".join(parts)


# ── source ───────────────────────────────────────────────────────────────────────────────────


def _node(function: types.FunctionType) -> Node | None:
    """The syntax tree of a function; None where its source can't be had."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    if code.co_name != "<lambda>":
        return next((n for n in _defined(tree) if _begins(n) == code.co_firstlineno
                     and n.name == code.co_name), None)  # fmt: skip
    found = [n for n in ast.walk(tree)
             if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]  # fmt: skip
    if len(found) > 1:  # several on a line
        places = _places(code)
        found = [n for n in found if places is not None and _range(n.body) == places]
    return found[0] if len({_text(n) for n in found}) == 1 else None


def _defined(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _begins(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line that code says it begins with: of its first decorator, if it has one."""
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


Range = tuple[tuple[int, int], tuple[int, int]]


def _range(node: ast.expr) -> Range:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _places(code: types.CodeType) -> Range | None:
    """What a lambda's code covers in its file: its body."""
    known = [(a, b, c, d) for a, b, c, d in code.co_positions()
             if None not in (a, b, c, d) and (a, c) != (b, d)]  # fmt: skip
    if not known:
        return None
    return min((a, c) for a, _, c, _ in known), max((b, d) for _, b, _, d in known)  # type: ignore[return-value]


def _text(node: Node) -> str:
    """Its code in the form of `ast.unparse`, without documentation and decorators: these are in
    what the function was wrapped in."""
    if isinstance(node, ast.Lambda):
        return ast.unparse(node)
    plain = copy(node)
    if ast.get_docstring(node) is not None:
        plain.body = node.body[1:] or [ast.Pass()]
    plain.decorator_list = []
    return ast.unparse(plain)


def _names(node: Node) -> set[str]:
    """The names that it reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _changed(node: Node | None) -> set[str]:
    """The names that it binds or changes, ``self.x`` included."""
    found: set[str] = set()
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Nonlocal):
            found.update(each.names)
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.add(ast.unparse(each))
        elif isinstance(each, ast.Subscript) and not isinstance(each.ctx, ast.Load):
            found.add(ast.unparse(each.value))
        elif (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in _CHANGING
        ):
            found.add(ast.unparse(each.func.value))
    return found


def _data(value: Any) -> str | None:
    """Arrays and tables by their content."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return None
        digest = hashlib.sha256(np.ascontiguousarray(value).view(np.uint8).tobytes()).hexdigest()
        return f"array {value.dtype} {value.shape} {digest[:16]}"
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = pa.table({"": value})
    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    if not isinstance(value, pa.Table):
        return None
    summed = hashlib.sha256()
    for batch in value.combine_chunks().to_batches():
        summed.update(pa.ipc.read_message(batch.serialize()).serialize().to_pybytes())
    columns = ", ".join(f"{f.name} {f.type}" for f in value.schema)
    return f"table ({columns}) {summed.hexdigest()[:16]}"
