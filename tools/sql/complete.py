"""Words that may follow at the prompt: tables, columns, orders, keywords and commands.  Pure.

select a.|                 columns of the table that is called a here
from |                     tables, and files of this folder in quotes
on a.t |                   orders
.|                         commands
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from matwin.storage.errors import InputError

from .catalog import Catalog

COMMANDS = (
    ".tables",
    ".schema",
    ".load",
    ".explain",
    ".timer",
    ".mode",
    ".trace",
    ".help",
    ".quit",
)
KEYWORDS = (
    "select", "from", "where", "group by", "order by", "having", "limit", "distinct", "with", "as",
    "join", "left", "right", "full", "outer", "inner", "bestmatch join", "asof join", "on",
    "using", "and", "or", "not", "between", "interval", "window", "dwindow", "union all", "case",
    "when", "then", "else", "end", "count", "sum", "avg", "min", "max", "abs", "floor", "exists",
    "stream", "is null", "desc", "asc", "over", "partition by", "qualify", "except", "intersect",
)  # fmt: skip
SUFFIXES = (".parquet", ".csv", ".tsv", ".arrow", ".feather", ".jsonl", ".ipc", ".gz", ".zst")
FILES_MAX = 200
_WORD = re.compile(r"[\w.]*$")
_TABLE = re.compile(
    r"\b(?:from|join|,)\s*(?P<table>'[^']+'|\"[^\"]+\"|\w+)(?:\s+(?:as\s+)?(?P<alias>\w+))?",
    re.IGNORECASE,
)


def completions(text: str, whole: str, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """What may stand in the place of the last word of `text`, and what it is."""
    found = _WORD.search(text)
    word = found[0] if found else ""
    if text.lstrip().startswith("."):
        if " " not in text.strip():
            yield from ((one, "command") for one in COMMANDS if one.startswith(text.strip()))
        else:
            yield from ((one, "table") for one in catalog.names() if one.startswith(word))
        return
    quote = re.search(r"'([^']*)$", text)
    if quote and text.count("'") % 2:
        yield from ((one, "file") for one in _files(quote[1]))
        return
    alias, point, _ = word.rpartition(".")
    if point:
        names = _columns(whole, alias, catalog)
        yield from (
            (f"{alias}.{name}", "column") for name in _starting(names, word[len(alias) + 1 :])
        )
        return
    yield from ((one, "table") for one in _starting(catalog.names(), word))
    yield from ((one, "column") for one in _starting(_all_columns(whole, catalog), word))
    yield from ((one, "order") for one in _starting(catalog.orders(), word))
    yield from ((one, "keyword") for one in _starting(KEYWORDS, word))


def _starting(names: object, word: str) -> Iterator[str]:
    seen = set()
    for name in names:  # type: ignore[attr-defined]
        if name.lower().startswith(word.lower()) and name not in seen:
            seen.add(name)
            yield name


def _tables(text: str) -> Iterator[tuple[str, str]]:
    """Tables of a text that may not be complete, and what they are called there."""
    for found in _TABLE.finditer(text):
        table = found["table"].strip("'\"")
        yield table, found["alias"] or table
        yield table, table


def _columns(text: str, alias: str, catalog: Catalog) -> list[str]:
    for table, called in _tables(text):
        if called.lower() == alias.lower():
            return _of(table, catalog)
    return _of(alias, catalog)


def _all_columns(text: str, catalog: Catalog) -> list[str]:
    return [name for table, _ in _tables(text) for name in _of(table, catalog)]


def _of(table: str, catalog: Catalog) -> list[str]:
    try:
        source = catalog.source(table, is_quoted=True)
    except (InputError, OSError):
        return []
    return [] if source is None else list(source.schema.names)


def _files(begun: str) -> list[str]:
    """Files that a path may become."""
    folder = begun.rpartition("/")[0]
    try:
        entries = sorted(Path(folder or ".").iterdir())[:FILES_MAX]
    except OSError:
        return []
    names = [
        f"{folder}/{one.name}" if folder else one.name
        for one in entries
        if one.name.endswith(SUFFIXES) or one.is_dir()
    ]
    return [name for name in names if name.startswith(begun)]
