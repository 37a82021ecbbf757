"""The command's parser: argparse, with examples in every help and an answer to every misspelling.

    matwin jion            'jion' is not a command (did you mean 'join'?)
    --toleranse 5          no option --toleranse (did you mean --tolerance?)
    --direction backward   where a command has none: the way to say it there (hints.py)

Errors are one line; the whole usage, thirty lines for a join, would hide it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from matwin.hints import FOREIGN, did_you_mean, how_hint, nearest

EXIT_BAD_INPUT = 2
_EXAMPLES = "examples:"
_CHOICE = re.compile(r"argument (.+?): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


class _Formatter(argparse.HelpFormatter):
    """Descriptions in lines of the terminal's width; examples as they are to be typed."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith(_EXAMPLES):
            return super()._fill_text(text, width, indent)
        lines = [line for example in text.splitlines() for line in _broken(example, width)]
        return "\n".join(lines)


def _broken(example: str, width: int) -> list[str]:
    """A command line in several, as a shell reads them; an option stays with its value."""
    lines: list[str] = []
    for part in re.split(r" (?=--?[a-z])", example):
        if lines and len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"      {part}" if lines else part)
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


class Parser(argparse.ArgumentParser):
    """A parser whose errors say what to write instead."""

    def __init__(self, *, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(formatter_class=_Formatter, epilog=_epilog(examples), **more)
        self.example = examples[0] if examples else None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Look for options that are not there before anything else is found missing."""
        if self._subparsers is None or not self._has_commands:
            for word in _options_in(args or ()):
                self._check_option(word)
        return super().parse_known_args(args, namespace)

    @property
    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _check_option(self, word: str) -> None:
        known = self._option_string_actions
        if word.startswith("--"):
            if word not in known and not any(name.startswith(word) for name in known):
                self.error(self._unknown(word))
        elif f"-{word}" in known and word not in known:
            # argparse would take "-on t" for "-o n", with a stray t.
            self.error(f"{word} has one dash; write -{word}")

    def _unknown(self, word: str) -> str:
        name = word.removeprefix("--").replace("-", "_").lower()
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = nearest(word, options)
        is_typo = near is not None and word.lower() in (near, f"{near}s")
        if name in FOREIGN and not is_typo:
            return f"there is no {word} here: {FOREIGN[name].words}"
        return f"there is no option {word}" + (f" (did you mean {near}?)" if near else "")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help; argparse itself would hide that its reader has gone away."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong and where help is."""
        told = _explained(message)
        if message.startswith("the following arguments are required") and self.example:
            told += f"; for example: {self.example}"
        raise SystemExit(tell(f"{told}; `{self.prog} --help` tells more"))


def _epilog(examples: Sequence[str]) -> str | None:
    if not examples:
        return None
    # For argparse a percent sign begins a format.
    lines = [f"  {example}".replace("%", "%%") for example in examples]
    return "\n".join([_EXAMPLES, *lines])


def _options_in(args: Sequence[str]) -> list[str]:
    """The words that argparse takes for options, without their values."""
    found = []
    for word in args:
        if word == "--":
            break
        if word.startswith("-") and " " not in word and re.match(r"--?[A-Za-z]", word):
            found.append(word.partition("=")[0])
    return found


def _explained(message: str) -> str:
    """argparse's message, with a suggestion where a choice is misspelt."""
    match = _CHOICE.fullmatch(message)
    if match is None:
        return message
    argument, given, listed = match.groups()
    choices = [choice.strip("'") for choice in listed.split(", ")]
    near = did_you_mean(given, choices)
    shown = ", ".join(choices)
    if argument == "COMMAND":
        return f"{given!r} is not a command{near}; there are {shown}"
    hint = how_hint(given) if argument == "--how" else ""
    return f"{argument} {given!r}{near}; choose one of {shown}{hint}"


def tell(problem: str) -> int:
    """Say in one line what is wrong, however hostile the names in it are; the exit code."""
    from matwin.text import escaped

    line = escaped(" ".join(problem.split()))
    with suppress(OSError):  # then nobody can be told
        if sys.stderr.isatty():
            _tell_terminal(line)
        else:
            print("matwin: error:", line, file=sys.stderr)
    return EXIT_BAD_INPUT


def _tell_terminal(line: str) -> None:
    """The same in colour.  `Text` takes no markup from it, and words stay whole."""
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble("matwin: ", ("error:", "bold red"), " ", line)
    Console(stderr=True, highlight=False).print(text)
