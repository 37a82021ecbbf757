"""The `matwin` command: words on the command line to a module that does the work.

    matwin bench storage --rows 1000
           └────┬──────┘ └────┬────┘
          a row of COMMANDS   arguments declared by that module's configure(parser),
                              handed as a namespace to its run(args) -> exit code

Only the module of the chosen command is imported, so `matwin --help` and `matwin --version` answer
without loading Arrow or Numba.

Exit codes:
    0        done
    1        DuckDB finds other rows, and nothing else
    2        bad usage, bad input, and what the system refuses (a full disk, no memory); one line on
             stderr says what
    70       a bug of ours, with its traceback
    128 + n  ended by signal n: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP; 141 when the
             reader of our output has gone away
"""

import argparse
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import matwin

from .signals import Signals
from .standard import prepare

Words: TypeAlias = tuple[str, ...]
Menu: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_BAD_INPUT = 2
EXIT_BUG = 70
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
    ("bench", "memory"): Command(
        "matwin.tools.bench.memory", "measure joins with a tenth of the data as memory"
    ),
    ("bench", "ways"): Command(
        "matwin.tools.bench.ways", "measure every way of a join, and which one is taken"
    ),
    ("bench", "large"): Command(
        "matwin.tools.bench.large", "measure a join of large Parquet files in little memory"
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
    if argv is None:
        prepare()
    words = list(sys.argv[1:] if argv is None else argv)
    signals = Signals()
    try:
        with signals:
            status = _guarded(words, signals)
    except KeyboardInterrupt:  # it came when all was done, before the handlers were gone
        signals.__exit__(None, None, None)
        status = EXIT_INTERRUPTED
    _forget_unwritten()
    return signals.code or status


def _guarded(words: list[str], signals: Signals) -> int:
    """The exit code of a command, whatever becomes of it."""
    try:
        return _run(words)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except (OSError, MemoryError) as error:
        return _told(str(error) or "there is not enough memory")
    except Exception:
        # What a signal broke off may fail in its own way; that is no bug.
        if not signals.number:
            with suppress(OSError):
                traceback.print_exc()
        return EXIT_BUG


def _run(words: list[str]) -> int:
    status = _ran(words)
    try:
        sys.stdout.flush()  # here, while it can still be told that it does not work
    except BrokenPipeError:
        raise
    except OSError as error:
        return _told(f"standard output can't be written: {error.strerror}")
    return status


def _ran(words: list[str]) -> int:
    try:
        args = build_parser(words).parse_args(words)
    except SystemExit as stop:  # argparse has printed help, the version or a usage error
        return stop.code if isinstance(stop.code, int) else 0

    # Not at the top of the file: the package of the errors may load Arrow.
    from matwin.storage.errors import MatwinError

    _leave_signals_to_us()
    try:
        status: int = args.run(args)
    except MatwinError as error:
        return _told(str(error))
    return status


def _told(problem: str) -> int:
    """Say in one line what is wrong, however hostile the names in it are."""
    from .trace.text import escaped

    with suppress(OSError):  # then nobody can be told
        print("matwin: error:", escaped(" ".join(problem.split())), file=sys.stderr)
    return EXIT_BAD_INPUT


def _leave_signals_to_us() -> None:
    # While it reads, Arrow puts a handler of its own in the place of ours.
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].enable_signal_handlers(False)


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


def _forget_unwritten() -> None:
    # The interpreter flushes stdout once more at exit; where that does not work, an error message
    # and another exit code would come after the fact.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
