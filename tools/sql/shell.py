"""What the prompt understands: queries, and commands that begin with a point.

    text ──▶ Shell.take ──▶ queries, run and shown one after the other
                       └──▶ .tables .schema .explain .timer .mode .trace .load .help .quit

The shell knows no terminal: text comes in, text goes out, and `prompt.py` does the rest.  Whatever
goes wrong in a query is told, and the next one is taken; Ctrl-C drops those that wait.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from matwin.hints import did_you_mean
from matwin.outputs import check_outputs
from matwin.sinks import format_of, write
from matwin.storage.errors import InputError, MatwinError
from matwin.text import escaped

from ..progress import Progress
from ..signals import Signals
from .catalog import Catalog
from .command import counted_rows, inputs_of
from .complete import MODES
from .explain import explained
from .run import joins_of
from .session import planned, started
from .statements import Statement, is_whole, statements

MODE_NAMES = {
    "json": "jsonl", "ndjson": "jsonl", "box": "table", "duckbox": "table", "column": "table",
    "md": "markdown", "tabs": "tsv",
}  # fmt: skip
"""What modes are called at other prompts."""
ROWS_SHOWN = 40
NO_TABLES = "no tables; .load NAME FILE, or from 'file.parquet'"
HELP = """\
A query ends with a semicolon; Enter before that begins another line.  Tab completes.
  .tables [PART]      tables that have a name, or this in their name
  .schema [TABLE]     columns and types, of a table or of all; a file in quotes is a table too
  .load NAME FILE     give a file or a glob a name
  .explain [on|off]   show plans and run nothing, or run again; .explain QUERY shows one plan
  .timer [on|off]     say how long each query took
  .mode MODE          how rows are shown: table, csv, tsv, jsonl, markdown or line
  .trace [FILE|off]   write what happens to each page of the joins, for `matwin trace`
  .help               this
  .quit               leave; so does Ctrl-D
Ctrl-C drops the line, or stops the query that runs."""


@dataclass
class Shell:
    """The state of a prompt."""

    catalog: Catalog
    options: dict[str, Any] = field(default_factory=dict)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    mode: str = "table"
    is_timed: bool = False
    explains: bool = False
    is_done: bool = False

    def take(self, text: str) -> None:
        """Do what a text asks, one statement after the other; what is wrong is told."""
        bare = _bare_word(text)
        given = [Statement(bare, True, True)] if bare else statements(text)
        for one in given:
            if self.is_done or not self._took(one):
                break

    def _took(self, one: Statement) -> bool:
        """Do one statement; False if it was stopped, and what comes after it is not wanted."""
        signals = Signals()
        try:
            with signals:
                if one.is_command:
                    self._command(one.text.strip())
                else:
                    self._query(one.text, explain=self.explains)
        except (Exception, KeyboardInterrupt) as error:
            # What a signal breaks off may fail in its own way, DuckDB with several.
            if isinstance(error, KeyboardInterrupt) or signals.number:
                self._say("stopped")
                self.is_done = signals.number not in (0, signal.SIGINT)
                return False
            self._say(f"error: {_told(error)}")
        return True

    def _say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    # ── queries ──────────────────────────────────────────────────────────────────────────────

    def _query(self, text: str, *, explain: bool) -> None:
        begun = time.perf_counter()
        plan = planned(text, self.catalog)
        if explain:
            self._say(explained(plan))
            return
        if self.options.get("trace"):
            check_outputs({".trace": self.options["trace"]}, inputs_of(plan), overwrite=True)
        # Rows that stream over the terminal leave no line for a bar.
        with Progress(is_wanted=self.mode == "table") as progress:
            given: Any = {**self.options, "progress": progress.callback}
            found = progress.until_read(started(plan, given))
            rows = write(found, None, format=self.mode, max_rows_shown=ROWS_SHOWN)
        self._tell(rows, time.perf_counter() - begun)
        if self.options.get("trace") and not any(joins_of(plan)):
            self._say("no trace: the query has no join of MatWin's")

    def _tell(self, rows: int, seconds: float) -> None:
        """How many rows there were, unless an empty table has said so, and how long it took."""
        is_counted = bool(rows) or self.mode != "table"
        words = [counted_rows(rows)] if is_counted else []
        if self.is_timed:
            words.append(f"in {seconds:.3f} s")
        if words and (self.mode == "table" or self.is_timed):
            self._say(" ".join(words))

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _command(self, text: str) -> None:
        name, _, rest = text[1:].rstrip(";").partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "tables": self._tables, "schema": self._schema, "load": self._load,
            "explain": self._explain, "timer": self._timer, "mode": self._mode,
            "trace": self._trace, "help": self._help, "quit": self._quit, "exit": self._quit,
        }  # fmt: skip
        if name.lower() not in commands:
            near = did_you_mean(name, commands)
            raise InputError(f"there is no command .{name}{near}; .help lists them")
        commands[name.lower()](rest.strip())

    def _tables(self, rest: str) -> None:
        wanted = rest.strip("'\"%*").lower()
        names = [name for name in sorted(self.catalog.names()) if wanted in name.lower()]
        none = f"no table has {wanted!r} in its name" if wanted else NO_TABLES
        self._say("\n".join(map(escaped, names)) or none)

    def _schema(self, rest: str) -> None:
        names = [rest.strip("'\"")] if rest else sorted(self.catalog.names())
        if not names:
            self._say(NO_TABLES)
        for name in names:
            source = self.catalog.source(name, is_quoted=True)
            if source is None:
                near = did_you_mean(name, self.catalog.names())
                raise InputError(f"there is no table {name!r}{near}")
            self._say(escaped(name))
            for one in source.schema:
                self._say(f"  {escaped(one.name)}  {one.type}")

    def _load(self, rest: str) -> None:
        try:
            words = shlex.split(rest)
        except ValueError as error:  # a quote that nobody closes
            raise InputError(f"write .load NAME FILE: {str(error).lower()}") from None
        if len(words) != 2:
            raise InputError("write .load NAME FILE")
        name, path = words
        loaded = Catalog({**self.catalog.given, name: path}, self.catalog.scope)
        loaded.source(name, is_quoted=False)  # a file that can't be read gets no name
        self.catalog = loaded

    def _explain(self, rest: str) -> None:
        if len(rest.split()) > 1:
            self._query(rest, explain=True)
            return
        self.explains = self._switched("explain", rest, self.explains, ", or .explain QUERY")
        self._say(f"explain {'on' if self.explains else 'off'}")

    def _timer(self, rest: str) -> None:
        self.is_timed = self._switched("timer", rest, self.is_timed)
        self._say(f"timer {'on' if self.is_timed else 'off'}")

    def _switched(self, command: str, rest: str, is_on: bool, more: str = "") -> bool:
        """What on, off or nothing makes of a switch."""
        states = {"": not is_on, "on": True, "off": False}
        if rest.lower() not in states:
            raise InputError(f"write .{command} on or .{command} off{more}, not {rest!r}")
        return states[rest.lower()]

    def _mode(self, rest: str) -> None:
        mode = MODE_NAMES.get(rest.lower(), rest.lower())
        if rest and mode not in MODES:
            near = did_you_mean(mode, MODES)
            raise InputError(f"{rest!r} is no mode{near}; there are {', '.join(MODES)}")
        self.mode = format_of(None, mode or self.mode)
        self._say(f"mode {self.mode}")

    def _trace(self, rest: str) -> None:
        if rest.lower() == "off":
            self.options.pop("trace", None)
        elif rest:
            path = rest.strip("'\"")
            if not Path(path).absolute().parent.is_dir():
                raise InputError(f"there is no folder {str(Path(path).parent)!r} for the trace")
            self.options["trace"] = path
        file = self.options.get("trace")
        self._say(f"trace to {escaped(file)}" if file else "trace off")

    def _help(self, rest: str) -> None:
        self._say(HELP)

    def _quit(self, rest: str) -> None:
        self.is_done = True


def _told(error: Exception) -> str:
    """What went wrong, for somebody at a prompt."""
    if isinstance(error, MatwinError | OSError | MemoryError):
        return escaped_lines(str(error)) or "there is not enough memory"
    return (
        f"{type(error).__name__}: {escaped_lines(str(error))}\nThis is a fault of MatWin, not of "
        "your query; `matwin sql -c QUERY` shows where it lies."
    )


def escaped_lines(text: str) -> str:
    """A message of several lines without signs that would move a terminal's cursor."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def _bare_word(text: str) -> str:
    """The command that is meant by a word which other prompts take without a point."""
    word = text.strip().rstrip(";").strip().lower()
    return f".{word}" if word in ("help", "quit", "exit") else ""


def is_complete(text: str) -> bool:
    """Whether Enter ends what has been typed."""
    return is_whole(text) or bool(_bare_word(text))
