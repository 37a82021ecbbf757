"""DuckDB, which runs everything around our joins: one database for the process, shut in.

    describe(text, {name: columns})    what columns a query has; tables without rows stand in
    cursor(), database(memory)         in which streams can be registered, under any name

It is opened by `matwin.operators.duckdb`, which shuts it in and keeps it within a budget.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.operators.duckdb import Database

ABS = "__matwin_abs"
"""`abs` for lengths of time, which DuckDB's own does not take."""
MACROS = (f"CREATE MACRO {ABS}(length) AS greatest(length, -length)",)
_lock = threading.Lock()


def database(
    memory_bytes: int | None = None, scratch: str | Path | None = None, parts: int = 1
) -> Database:
    """A database of its own; see `matwin.operators.duckdb`."""
    return Database(memory=memory_bytes, scratch=scratch, before=MACROS, parts=parts)


@lru_cache(maxsize=1)
def _shared(pid: int) -> tuple[Database, Any]:
    """The process's database, and a cursor for questions about columns."""
    shared = database()
    return shared, shared.cursor()


def shared_database() -> Database:
    """The process's own database; a forked child has its own."""
    with _lock:
        return _shared(os.getpid())[0]


def cursor() -> Any:
    """A cursor of the process's own database."""
    return shared_database().cursor()


@lru_cache(maxsize=1)
def aggregates() -> frozenset[str]:
    """The names of DuckDB's functions that see several rows."""
    text = "SELECT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    return frozenset(name for (name,) in cursor().sql(text).fetchall())


def forget_if_broken(error: Exception) -> None:
    """Let the next query have a new database, where a mistake in DuckDB has broken this one."""
    if type(error).__name__ in ("InternalException", "FatalException"):
        with _lock:
            _shared.cache_clear()


def describe(text: str, tables: Mapping[str, pa.Schema]) -> pa.Schema:
    """The columns of a query whose tables have these; no row is touched."""
    try:
        return _described(text, tables)
    except Exception as error:
        forget_if_broken(error)
        raise


def _described(text: str, tables: Mapping[str, pa.Schema]) -> pa.Schema:
    with _lock:
        bound = _shared(os.getpid())[1]
        for name, schema in tables.items():
            bound.register(name, schema.empty_table())
        try:
            return bound.sql(f"SELECT * FROM (\n{text}\n) LIMIT 0").to_arrow_table().schema
        finally:
            for name in tables:
                bound.unregister(name)
