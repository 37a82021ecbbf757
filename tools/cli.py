"""The `matwin` command: words on the command line to a module that does the work.

    matwin bench storage --rows 1000
           └────┬──────┘ └────┬────┘
          a row of COMMANDS   arguments declared by that module's configure(parser), or by
          (commands.py)       arguments.py; handed as a namespace to its run(args) -> exit code

Only the module of the chosen command is imported, and that of a join only once its arguments are
right: `matwin --help` takes 0.05 s of CPU, `matwin join --help` too, and Arrow alone 0.2 s.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TypeAlias

import matwin
from matwin import extras

from .commands import COMMANDS, GROUPS, Command, Words
from .signals import Signals
from .standard import prepare
from .usage import Parser, tell

Menu: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None:
        prepare()
    words = _spelt(list(sys.argv[1:] if argv is None else argv))
    signals = Signals()
    try:
        with signals:
            status = _guarded(words, signals)
    except KeyboardInterrupt:  # it came when all was done, before the handlers were gone
        signals.__exit__(None, None, None)
        status = EXIT_INTERRUPTED
    _forget_unwritten()
    return signals.code or status


def _spelt(words: list[str]) -> list[str]:
    """The words as they are declared: `matwin help join` is what many other commands have."""
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return ["--version"] if words in (["version"], ["-V"]) else words


def _guarded(words: list[str], signals: Signals) -> int:
    """The exit code of a command, whatever becomes of it."""
    try:
        return _run(words)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except (OSError, MemoryError) as error:
        return tell(str(error) or "there is not enough memory")
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
        return tell(f"standard output can't be written: {error.strerror}")
    return status


def _ran(words: list[str]) -> int:
    # Caught by its module: the package of the errors may load Arrow, which help does without.
    try:
        args = build_parser(words).parse_args(words)
        status: int = args.run(args)
    except SystemExit as stop:  # argparse has printed help, the version or a usage error
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        errors = sys.modules.get("matwin.storage.errors")
        if errors is None or not isinstance(error, errors.MatwinError):
            raise
        return tell(str(error))
    return status


def _leave_signals_to_us() -> None:
    # While it reads, Arrow puts a handler of its own in the place of ours.
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].enable_signal_handlers(False)


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of all commands; the one that `words` begin with also knows its arguments."""
    # Some releases of Python skip a "--" among the command words, others refuse it.
    chosen = tuple(word for word in words if word != "--")
    return _built(lambda path: chosen[: len(path)] == path)


def whole_parser() -> argparse.ArgumentParser:
    """The parser of all commands with all their arguments, as far as libraries are installed."""
    return _built(lambda path: True, is_strict=False)


def _built(is_chosen: Callable[[Words], bool], *, is_strict: bool = True) -> Parser:
    root = Parser(
        prog="matwin",
        description="Joins over windows that are larger than memory.",
        examples=[COMMANDS[words].examples[0] for words in (("join",), ("asof",))],
    )
    root.add_argument("--version", action="version", version=f"matwin {matwin.__version__}")
    menus: dict[Words, Menu] = {(): _menu(root)}
    for path, command in COMMANDS.items():
        if len(path) > 1 and path[:1] not in menus:
            group = path[:1]
            menus[group] = _menu(_add(menus, group, GROUPS[group], command.examples[:1]))
        parser = _add(menus, path, command.help, command.examples)
        if is_chosen(path):
            _configure(parser, command, is_strict=is_strict)
    return root


def _configure(parser: argparse.ArgumentParser, command: Command, *, is_strict: bool) -> None:
    """Declare a command's arguments, and load what does the work when they are right."""
    module, function = command.arguments or (command.module, "configure")
    try:
        getattr(_loaded(module), function)(parser)
    except (ImportError, ValueError):  # a library is missing, which completion does without
        if is_strict:
            raise
    parser.set_defaults(run=partial(_start, command.module))


def _start(module: str, args: argparse.Namespace) -> int:
    loaded = _loaded(module)
    _leave_signals_to_us()
    status: int = loaded.run(args)
    return status


def _loaded(module: str) -> ModuleType:
    """A command's module; libraries that it needs may be missing in a plain installation."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        told = extras.explained(error)
        if told is None:
            raise
        raise told from error


def _menu(parser: argparse.ArgumentParser) -> Menu:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _add(
    menus: Mapping[Words, Menu], path: Words, text: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    sentence = text[0].upper() + text[1:] + "."
    return menus[path[:-1]].add_parser(path[-1], help=text, description=sentence, examples=examples)


def _forget_unwritten() -> None:
    # The interpreter flushes stdout once more at exit; where that does not work, an error message
    # and another exit code would come after the fact.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
