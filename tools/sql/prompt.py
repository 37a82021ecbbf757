"""The prompt on a terminal: history, several lines, colours and completion, by prompt_toolkit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from matwin.extras import needed
from matwin.text import escaped

from .catalog import ORDERS, Catalog
from .complete import KEYWORDS, begun_word, completions
from .shell import Shell, is_complete
from .statements import stretches

needed("prompt_toolkit")

from prompt_toolkit import PromptSession  # noqa: E402
from prompt_toolkit.completion import CompleteEvent, Completer, Completion  # noqa: E402
from prompt_toolkit.document import Document  # noqa: E402
from prompt_toolkit.enums import DEFAULT_BUFFER  # noqa: E402
from prompt_toolkit.filters import has_focus, is_searching  # noqa: E402
from prompt_toolkit.formatted_text import StyleAndTextTuples  # noqa: E402
from prompt_toolkit.history import FileHistory, History, InMemoryHistory  # noqa: E402
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent  # noqa: E402
from prompt_toolkit.lexers import Lexer  # noqa: E402
from prompt_toolkit.styles import Style  # noqa: E402

WORDS = frozenset(word for phrase in KEYWORDS for word in phrase.split()) | frozenset(ORDERS) | {
    "all", "any", "array", "bigint", "blob", "boolean", "by", "cast", "cross", "cube", "current",
    "date", "decimal", "double", "exclude", "extract", "false", "fetch", "filter", "first", "float",
    "following", "glob", "grouping", "ilike", "in", "int", "integer", "is", "last", "lateral",
    "like", "map", "natural", "null", "nulls", "offset", "pivot", "positional", "preceding",
    "range", "real", "recursive", "replace", "rollup", "row", "rows", "sample", "semi", "anti",
    "sets", "similar", "smallint", "struct", "table", "tablesample", "text", "time", "timestamp",
    "timestamptz", "tinyint", "true", "try_cast", "unbounded", "union", "unpivot", "uuid",
    "values", "varchar", "within",
}  # fmt: skip
STYLE = Style.from_dict({
    "keyword": "ansiblue bold", "string": "ansigreen", "number": "ansicyan",
    "comment": "ansibrightblack", "command": "ansimagenta",
})  # fmt: skip
MENU_LINES = 8
"""How much room there is for completions below what is typed, on a terminal of some height."""


class Colours(Lexer):
    """Keywords, strings, numbers and comments in colours."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The colours of each line."""
        lines = coloured(document.text)
        return lambda number: lines[number] if number < len(lines) else []


def coloured(text: str) -> list[StyleAndTextTuples]:
    """The lines of a text in pieces, each with its colour; a string may go over several."""
    lines: list[StyleAndTextTuples] = [[]]
    for one in stretches(text):
        piece = text[one.start : one.end]
        kind = "keyword" if one.kind == "word" and piece.lower() in WORDS else one.kind
        style = f"class:{kind}" if kind in STYLED else ""
        first, *others = piece.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, other)] for other in others]
    return lines


STYLED = ("keyword", "string", "number", "comment", "command")


class Words(Completer):
    """What may follow, as `complete.py` knows."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The completions at the cursor."""
        text = document.text_before_cursor
        length = len(begun_word(text))
        for word, kind in completions(text, document.text, self._shell.catalog):
            yield Completion(word, start_position=-length, display_meta=kind)


def _keys() -> KeyBindings:
    """Enter ends a query that is complete, and begins another line of one that is not."""
    keys = KeyBindings()

    # While the history is searched, Enter takes what has been found.
    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def history_file() -> Path:
    """Where queries are remembered."""
    given = os.environ.get("MATWIN_HISTORY")
    if given is not None:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "matwin" / "sql_history"


def _history() -> History:
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND, 0o600)
        os.close(descriptor)
    except OSError:
        return InMemoryHistory()  # nothing to remember it in
    return FileHistory(str(path))


def prompt(catalog: Catalog, options: dict[str, Any]) -> int:
    """Take queries until somebody leaves."""
    for name in catalog.names():
        catalog.source(name, is_quoted=False)  # a file that is not there is told at once
    shell = Shell(catalog, options)
    session: PromptSession[str] = PromptSession(
        history=_history(), lexer=Colours(), completer=Words(shell), style=STYLE, multiline=True,
        key_bindings=_keys(), prompt_continuation="   ...> ", complete_while_typing=False,
    )  # fmt: skip
    print("MatWin SQL. A query ends with a semicolon; Tab completes, .help lists commands.")
    names = ", ".join(map(escaped, sorted(catalog.names())))
    if names:
        print(f"tables: {names}")
    while not shell.is_done:
        # A terminal of a few lines has none for a menu, and would show nothing else.
        lines = shutil.get_terminal_size().lines
        session.reserve_space_for_menu = max(0, min(MENU_LINES, lines - 4))
        try:
            shell.take(session.prompt("matwin> "))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
    return 0
