"""What the prompt understands: queries, and commands that begin with a point.

    line ──▶ Shell.take ──▶ a query, run and shown
                       └──▶ .tables .schema .explain .timer .mode .trace .load .help .quit

The shell knows no terminal: text comes in, text goes out, and `prompt.py` does the rest.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from matwin.hints import did_you_mean
from matwin.outputs import check_outputs
from matwin.sinks import format_of, write
from matwin.storage.errors import InputError, MatwinError
from matwin.text import escaped

from ..progress import Progress
from ..signals import Signals
from .catalog import Catalog
from .command import inputs_of
from .explain import explained
from .session import planned, started

MODES = ("table", "csv", "tsv", "jsonl")
ROWS_SHOWN = 40
HELP = """\
A query ends with a semicolon; Enter before that begins another line.
  .tables             tables that have a name
  .schema [TABLE]     columns and types, of a table or of all; a file in quotes is a table too
  .load NAME FILE     give a file or a glob a name
  .explain [on|off]   show plans and run nothing, or run again; .explain QUERY shows one plan
  .timer [on|off]     say how long each query took
  .mode MODE          how rows are shown: table, csv, tsv or jsonl
  .trace FILE|off     write what happens to each page of the joins, for `matwin trace`
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
        """Do what a line or a query asks; what is wrong is told, and the prompt goes on."""
        text = text.strip()
        if not text.strip(";").strip():
            return
        try:
            if text.startswith("."):
                self._command(text)
            else:
                self._query(text, explain=self.explains)
        except MatwinError as error:
            self._say(f"error: {escaped_lines(str(error))}")
        except OSError as error:
            self._say(f"error: {error}")
        except KeyboardInterrupt:
            self._say("stopped")

    def _say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    # ── queries ──────────────────────────────────────────────────────────────────────────────

    def _query(self, text: str, *, explain: bool) -> None:
        begun = time.perf_counter()
        with Signals():
            plan = planned(text, self.catalog)
            if explain:
                self._say(explained(plan))
                return
            if self.options.get("trace"):
                check_outputs({".trace": self.options["trace"]}, inputs_of(plan), overwrite=True)
            with Progress() as progress:
                given: Any = {**self.options, "progress": progress.callback}
                result = started(plan, given)
                rows = write(result, None, format=self.mode, max_rows_shown=ROWS_SHOWN)
        taken = f" in {time.perf_counter() - begun:.3f} s" if self.is_timed else ""
        if self.mode == "table" or self.is_timed:
            self._say(f"{rows:,} row{'s' if rows != 1 else ''}{taken}")

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
        names = sorted(self.catalog.names())
        self._say(
            "\n".join(map(escaped, names)) or "no tables; .load NAME FILE, or from 'file.parquet'"
        )

    def _schema(self, rest: str) -> None:
        names = [rest.strip("'\"")] if rest else sorted(self.catalog.names())
        for name in names:
            source = self.catalog.source(name, is_quoted=True)
            if source is None:
                near = did_you_mean(name, self.catalog.names())
                raise InputError(f"there is no table {name!r}{near}")
            self._say(escaped(name))
            for one in source.schema:
                self._say(f"  {escaped(one.name)}  {one.type}")

    def _load(self, rest: str) -> None:
        words = shlex.split(rest)
        if len(words) != 2:
            raise InputError("write .load NAME FILE")
        name, path = words
        before = dict(self.catalog.given)
        self.catalog = Catalog({**before, name: path}, self.catalog.scope)
        self.catalog.source(name, is_quoted=False)

    def _explain(self, rest: str) -> None:
        if rest.lower() in ("", "on", "off"):
            self.explains = rest.lower() != "off" if rest else not self.explains
            self._say(f"explain {'on' if self.explains else 'off'}")
        else:
            self._query(rest, explain=True)

    def _timer(self, rest: str) -> None:
        self.is_timed = rest.lower() != "off" if rest else not self.is_timed
        self._say(f"timer {'on' if self.is_timed else 'off'}")

    def _mode(self, rest: str) -> None:
        if rest and rest not in MODES:
            raise InputError(f"{rest!r} is no mode; there are {', '.join(MODES)}")
        self.mode = format_of(None, rest or self.mode)
        self._say(f"mode {self.mode}")

    def _trace(self, rest: str) -> None:
        if rest in ("", "off"):
            self.options.pop("trace", None)
            self._say("trace off")
        else:
            self.options["trace"] = rest.strip("'\"")
            self._say(f"trace to {escaped(self.options['trace'])}")

    def _help(self, rest: str) -> None:
        self._say(HELP)

    def _quit(self, rest: str) -> None:
        self.is_done = True


def escaped_lines(text: str) -> str:
    """A message of several lines without signs that would move a terminal's cursor."""
    return "\n".join(escaped(line) for line in text.split("\n"))


def is_complete(text: str) -> bool:
    """Whether Enter ends what has been typed."""
    stripped = text.strip()
    return not stripped or stripped.startswith(".") or stripped.endswith(";")
