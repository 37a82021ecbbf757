"""The `matwin` command: words on the command line to a module that does the work.

    matwin bench storage --rows 1000
           └────┬──────┘ └────┬────┘
          a row of COMMANDS   arguments declared by that module's configure(parser),
                              handed as a namespace to its run(args) -> exit code

Only the module of the chosen command is imported, so `matwin --help` and `matwin --version` answer
without loading Arrow or Numba.

Exit codes: what `run` returns; 2 for bad usage and for every MatwinError, which is told in one line
on stderr; 130 after Ctrl-C; 141 when the reader of our output has gone away, as a shell reports it.
Any other exception is a bug of ours and keeps its traceback.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import matwin

Words: TypeAlias = tuple[str, ...]
Menu: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


@dataclass(frozen=True, slots=True)
class Command:
    """A module with `configure(parser)` and `run(args) -> int`, and its line in the help."""

    module: str
    help: str


COMMANDS: dict[Words, Command] = {
    ("bench", "storage"): Command("matwin.tools.bench.storage", "measure the storage engine"),
    ("bench", "schedule"): Command(
        "matwin.tools.bench.schedule", "compare the page reads of every mode with the bound"
    ),
    ("bench", "epsilon"): Command(
        "matwin.tools.bench.epsilon", "measure the ε-join beside DuckDB, scipy and Polars"
    ),
    ("bench", "bestmatch"): Command(
        "matwin.tools.bench.bestmatch", "measure the bestmatch join beside DuckDB and nested loops"
    ),
    ("bench", "paper-bestmatch"): Command(
        "matwin.tools.bench.paper_bestmatch", "repeat the experiments of the bestmatch paper"
    ),
    ("bench", "window"): Command(
        "matwin.tools.bench.window", "measure the window join beside DuckDB and Polars"
    ),
    ("bench", "paper-window"): Command(
        "matwin.tools.bench.paper_window", "repeat the experiments of the window-join papers"
    ),
    ("bench", "paper-semijoin"): Command(
        "matwin.tools.bench.paper_semijoin", "repeat the experiments of the semijoin paper"
    ),
    ("bench", "scale"): Command(
        "matwin.tools.bench.scale", "compare Spark's copies and times with the cost model"
    ),
    ("bench", "spark"): Command(
        "matwin.tools.bench.spark", "measure joins on Spark beside Spark SQL"
    ),
    ("demo",): Command("matwin.tools.demo", "show MatWin at work on a small example"),
    ("join",): Command("matwin.tools.join", "join two files by nearness"),
    ("trace", "summary"): Command("matwin.tools.trace.summary", "count what a trace holds"),
    ("trace", "pages"): Command("matwin.tools.trace.pages", "show the life of each page"),
    ("trace", "dump"): Command("matwin.tools.trace.dump", "show one page, bytes beside meaning"),
    ("trace", "matrix"): Command("matwin.tools.trace.matrix", "draw the pair matrix of a walk"),
    ("trace", "replay"): Command(
        "matwin.tools.trace.replay", "reckon what other budgets, modes and replacements would cost"
    ),
    ("trace", "diff"): Command("matwin.tools.trace.diff", "compare two traces"),
    ("trace", "html"): Command("matwin.tools.trace.html", "write a trace as a page for a browser"),
    ("verify",): Command("matwin.tools.verify", "ask DuckDB the same and compare"),
    ("window-join",): Command(
        "matwin.tools.window_join", "join several streams inside sliding windows"
    ),
}

# words that only lead to other words
GROUPS: dict[Words, str] = {
    ("bench",): "run a benchmark",
    ("trace",): "look into a page trace",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(words)
        sys.stdout.flush()  # here, so that a closed pipe shows while it can still be handled
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    return status


def _run(words: list[str]) -> int:
    try:
        args = build_parser(words).parse_args(words)
    except SystemExit as stop:  # argparse has printed help, the version or a usage error
        return stop.code if isinstance(stop.code, int) else 0

    # Not at the top of the file: the package of the errors may load Arrow.
    from matwin.storage.errors import MatwinError

    try:
        status: int = args.run(args)
    except MatwinError as error:
        print("matwin: error:", " ".join(str(error).split()), file=sys.stderr)
        return EXIT_BAD_INPUT
    return status


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of all commands; the one that `words` begin with also knows its arguments."""
    root = argparse.ArgumentParser(
        prog="matwin", description="Joins over windows that are larger than memory."
    )
    root.add_argument("--version", action="version", version=f"matwin {matwin.__version__}")
    # Some releases of Python skip a "--" among the command words, others refuse it.
    chosen = tuple(word for word in words if word != "--")
    menus: dict[Words, Menu] = {(): _menu(root)}
    for path, text in GROUPS.items():
        menus[path] = _menu(_add(menus, path, text))
    for path, command in COMMANDS.items():
        parser = _add(menus, path, command.help)
        if chosen[: len(path)] == path:
            module = import_module(command.module)
            module.configure(parser)
            parser.set_defaults(run=module.run)
    return root


def _menu(parser: argparse.ArgumentParser) -> Menu:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _add(menus: Mapping[Words, Menu], path: Words, text: str) -> argparse.ArgumentParser:
    sentence = text[0].upper() + text[1:] + "."
    return menus[path[:-1]].add_parser(path[-1], help=text, description=sentence)


def _discard_stdout() -> None:
    # The interpreter flushes stdout once more at exit; with the pipe gone that would be an error
    # message after the fact.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
