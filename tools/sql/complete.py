"""Words that may follow at the prompt: tables, columns, orders, keywords and commands.  Pure.

select a.|                 columns of the table that is called a here
from |                     tables, and files of this folder in quotes
on a.t |                   orders
.|                         commands
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from matwin.storage.errors import InputError

from .catalog import Catalog

COMMANDS = (
    ".tables", ".schema", ".load", ".explain", ".timer", ".mode", ".trace", ".help", ".quit",
)  # fmt: skip
KEYWORDS = (
    "select", "from", "where", "group by", "order by", "having", "limit", "distinct", "with", "as",
    "join", "left", "right", "full", "outer", "inner", "bestmatch join", "asof join", "on",
    "using", "and", "or", "not", "between", "interval", "window", "dwindow", "union all", "case",
    "when", "then", "else", "end", "count", "sum", "avg", "min", "max", "abs", "floor", "exists",
    "stream", "is null", "desc", "asc", "over", "partition by", "qualify", "except", "intersect",
)  # fmt: skip
SUFFIXES = (".parquet", ".csv", ".tsv", ".arrow", ".feather", ".jsonl", ".ipc", ".gz", ".zst")
FILES_MAX = 200
MODES = ("table", "csv", "tsv", "jsonl", "markdown", "line")
"""How the prompt shows rows."""
_AFTER_ATTRIBUTE = re.compile(
    r"\bbestmatch\s+join\b[^;]*\bon\s+(?:[^;]*,\s*)?[\w.\"]+\s+\w*$", re.IGNORECASE
)
_TABLE = re.compile(
    r"\b(?:from|join|,)\s*(?P<table>'[^']+'|\"[^\"]+\"|\w+)(?:\s+(?:as\s+)?(?P<alias>\w+))?",
    re.IGNORECASE,
)


def completions(text: str, whole: str, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """What may stand in the place of the last word of `text`, and what it is."""
    line = text.rpartition("\n")[2].lstrip()
    if line.startswith("."):
        yield from _of_command(line, catalog)
        return
    word = begun_word(text)
    if is_in_quotes(text):
        yield from ((one, "file") for one in _files(word))
        return
    alias, point, name = word.rpartition(".")
    if point:
        columns = _columns(whole, alias, catalog)
        yield from ((f"{alias}.{one}", "column") for one in _starting(columns, name))
        return
    kinds = [("table", catalog.names()), ("column", _all_columns(whole, catalog)),
             ("order", catalog.orders()), ("keyword", KEYWORDS)]  # fmt: skip
    if _AFTER_ATTRIBUTE.search(text):
        kinds.sort(key=lambda kind: kind[0] != "order")
    for kind, names in kinds:
        yield from ((one, kind) for one in _starting(names, word))


def is_in_quotes(text: str) -> bool:
    """Whether a string is begun and not ended."""
    return text.count("'") % 2 == 1


def begun_word(text: str) -> str:
    """The word at the end of a text, which a completion replaces."""
    if is_in_quotes(text):
        return text.rpartition("'")[2]
    line = text.rpartition("\n")[2]
    is_command = line.lstrip().startswith(".") and not line.lstrip().startswith(".explain ")
    found = re.search(r"\S*$" if is_command else r"[\w.]*$", line)
    return found[0] if found else ""


def _of_command(line: str, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Commands, and what each of them takes."""
    command, blank, rest = line.partition(" ")
    word = rest.rpartition(" ")[2]
    if not blank:
        yield from ((one, "command") for one in _starting(COMMANDS, command))
    elif command == ".mode":
        yield from ((one, "mode") for one in _starting(MODES, word))
    elif command in (".timer", ".explain", ".trace") and " " not in rest:
        choices = ("off",) if command == ".trace" else ("on", "off")
        yield from ((one, "") for one in _starting(choices, word))
    elif command == ".schema":
        yield from ((one, "table") for one in _starting(catalog.names(), word))
    if blank and command == ".explain":
        yield from completions(rest, rest, catalog)
    if blank and (command in (".trace", ".schema") or (command == ".load" and " " in rest)):
        yield from ((one, "file") for one in _files(word.lstrip("'")))


def _starting(names: Iterable[str], word: str) -> Iterator[str]:
    """The names that begin so; keywords of somebody who writes capitals in capitals."""
    is_loud = len(word) > 1 and word.isupper()
    for name in dict.fromkeys(names):
        if name.lower().startswith(word.lower()):
            yield name.upper() if is_loud and name in KEYWORDS else name


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
    """The columns of the tables that are named, or of all while none is: select comes first."""
    tables = [table for table, _ in _tables(text)] or catalog.names()
    return [name for table in tables for name in _of(table, catalog)]


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
