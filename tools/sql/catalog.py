"""What a query may name: its tables, and the orders, functions and lengths it uses.

    temp            keyword argument ▸ registered name ▸ variable in the caller's scope
    'x.parquet'     a file, or files by a glob, read by our own readers
    order1, w       an order, a function or a length, looked up in the same places

Nothing else can be reached: a name that is none of these is an error, never a file or a table that
DuckDB finds by itself.
"""

from __future__ import annotations

import numbers
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType
from typing import Any

import numpy as np

from matwin.hints import did_you_mean
from matwin.orders import (
    Order,
    indifferent,
    min_distance,
    minimize,
    order_of,
    subset,
    youngest,
)
from matwin.sources import Source, source_of
from matwin.storage.errors import InputError

_registered: dict[str, object] = {}
_lock = threading.Lock()


def _sum_of_costs(ours: float, theirs: float) -> float:
    return ours + theirs


ORDERS: dict[str, Order] = {
    "mindist": min_distance, "minattrdist": min_distance, "min_distance": min_distance,
    "mincost": minimize(_sum_of_costs), "minsum": minimize(_sum_of_costs),
    "youngest": youngest, "subset": subset, "indifferent": indifferent,
}  # fmt: skip
"""Orders that every query knows, in lower case."""


def register(name: str, value: object) -> None:
    """Give a source, an order or a function a name for `matwin.sql`, until `unregister`.

    >>> import matwin, pyarrow as pa
    >>> matwin.register("readings", pa.table({"t": [1, 2]}))
    >>> matwin.sql("select max(t) as last from readings").to_arrow().to_pydict()
    {'last': [2]}
    >>> matwin.unregister("readings")
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"register({name!r}): a name is text")
    with _lock:
        _registered[name.lower()] = value


def unregister(name: str) -> None:
    """Forget a name given by `register`."""
    with _lock:
        if _registered.pop(str(name).lower(), None) is None:
            near = did_you_mean(str(name), _registered)
            raise InputError(f"unregister({name!r}): nothing has this name{near}")


def _is_order(value: object) -> bool:
    """Whether a value can be an order or a function; words are paths here."""
    if isinstance(value, str):
        return False
    try:
        order_of(value, "")
    except InputError:
        return False
    return True


def is_length(value: object) -> bool:
    """Whether a value can be the length of a window."""
    if isinstance(value, bool):
        return False
    return isinstance(value, str | numbers.Real | timedelta | np.timedelta64 | tuple)


def is_source(value: object) -> bool:
    """Whether a variable can be a table; text is a path only where it is given on purpose."""
    if isinstance(value, Source) or hasattr(value, "__arrow_c_stream__"):
        return True
    if isinstance(value, str | bytes | ModuleType | type) or callable(value):
        return False
    module = type(value).__module__.split(".")[0]
    if module in ("duckdb", "_duckdb", "polars", "pyarrow", "pandas"):
        return True
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


@dataclass
class Catalog:
    """The names of one query."""

    given: Mapping[str, object]
    scope: Callable[[], Iterator[Mapping[str, object]]] = lambda: iter(())
    """The caller's variables, nearest first; asked for when nothing else has a name."""
    _sources: dict[str, Source] = field(default_factory=dict)

    def _values(self, name: str) -> Iterator[tuple[object, bool]]:
        """What has this name, and whether it was given on purpose."""
        for names in (self.given, _registered):
            found = names.get(name, names.get(name.lower()))
            if found is None:
                found = next((v for k, v in names.items() if k.lower() == name.lower()), None)
            if found is not None:
                yield found, True
        for variables in self.scope():
            if name in variables:
                yield variables[name], False

    def source(self, name: str, *, is_quoted: bool) -> Source | None:
        """The table of this name; a name in quotes may be a file."""
        if name in self._sources:
            return self._sources[name]
        found = self._source(name, is_quoted=is_quoted)
        if found is not None:
            self._sources[name] = found
        elif any(one.lower() == name.lower() for one, value in self.given.items() if value is None):
            raise InputError(f"{name} is None; give a table")
        return found

    def _source(self, name: str, *, is_quoted: bool) -> Source | None:
        for value, on_purpose in self._values(name):
            if is_source(value) or (on_purpose and not _is_order(value)):
                return source_of(value, name)
        if is_quoted and _looks_like_file(name):
            return source_of(name, name)
        return None

    def order(self, name: str) -> Order | Callable[..., Any] | None:
        """The order of this name."""
        for value, _ in self._values(name):
            if _is_order(value) and not is_source(value):
                return value  # type: ignore[return-value]
        return ORDERS.get(name.lower())

    def function(self, name: str) -> Callable[..., Any] | None:
        """The function of this name, if the caller has given it."""
        for value, on_purpose in self._values(name):
            if on_purpose and callable(value) and not is_source(value):
                return value
        return None

    def length(self, name: str) -> object | None:
        """The length that a name stands for."""
        return next((value for value, _ in self._values(name) if is_length(value)), None)

    def names(self) -> list[str]:
        """All names of tables that can be listed, for messages and completion."""
        found = [*self.given, *_registered]
        for variables in self.scope():
            found += [name for name, value in variables.items() if is_source(value)]
        return [name for name in dict.fromkeys(found) if not name.startswith("__")]

    def orders(self) -> list[str]:
        """All names of orders."""
        named = [name for name, value in {**_registered, **self.given}.items() if callable(value)]
        return [*ORDERS, *named]

    def columns(self) -> set[str]:
        """The columns of all sources that the query has named so far or may name."""
        found: set[str] = set()
        for name in self.names():
            try:
                source = self.source(name, is_quoted=False)
            except InputError:
                continue
            found.update(source.schema.names if source is not None else ())
        return found


def _looks_like_file(name: str) -> bool:
    return any(sign in name for sign in (".", os.sep, "/", "*", ":"))
