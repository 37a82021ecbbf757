"""DuckDB, which runs everything around our joins: one database for the process, shut in.

    describe(text, {name: columns})    what columns a query has; tables without rows stand in
    cursor(), open_database(memory)    in which streams can be registered, under any name

No files, no network, no extensions, no variables of Python's, no settings: `SHUT` is run before
anything of a query's is seen, and can't be undone.  One thread: our joins have their own, and rows
then come in the same order each time.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from matwin.storage.machine import free_memory

from ..extras import needed

ABS = "__matwin_abs"
"""`abs` for lengths of time, which DuckDB's own does not take."""
SHUT = (
    f"CREATE MACRO {ABS}(length) AS greatest(length, -length)",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
MEMORY_MIN = 16 * 2**20
_lock = threading.Lock()


def open_database(memory_bytes: int | None = None, scratch: str | Path | None = None) -> Any:
    """A connection to a database of its own."""
    duckdb = needed("duckdb")
    budget = free_memory() // 4 if memory_bytes is None else memory_bytes
    folder = Path(scratch or tempfile.gettempdir()) / f"matwin-duckdb-{uuid.uuid4().hex}"
    config: dict[str, Any] = {
        "threads": 1,
        "python_enable_replacements": False,
        "memory_limit": f"{max(budget, MEMORY_MIN) // 1024}KiB",
        # Made when something has to be put down, and removed with the connection; by itself DuckDB
        # would make .tmp where the process happens to be.
        "temp_directory": str(folder),
    }
    connection = duckdb.connect(":memory:", config=config)
    for setting in SHUT:
        connection.execute(setting)
    return connection


@lru_cache(maxsize=1)
def _shared(pid: int) -> tuple[Any, Any]:
    """The process's database, and a cursor for questions about columns."""
    connection = open_database()
    return connection, connection.cursor()


def cursor() -> Any:
    """A cursor of the process's own database; a forked child has its own."""
    with _lock:
        return _shared(os.getpid())[0].cursor()


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
