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
_NUMBER = re.compile(r"argument (.+?): invalid (int|float) value: '(.*)'", re.DOTALL)
_NO_VALUE = re.compile(r"argument (?:-\w/)?(--[\w-]+)\S*: expected one argument")
_STRAY = "unrecognized arguments: "
_NEARLY = {"both": "nearest", "before": "backward", "previous": "backward", "after": "forward",
           "next": "forward"}  # fmt: skip
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
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Look for options that are not there before anything else is found missing."""
        self._words = list(args or ())
        if self._subparsers is None or not self._has_commands:
            for word in _options_in(self._words):
                self._check_option(word)
        elif self._words[:1] and self._words[0].startswith("--"):
            self._check_first(self._words[0])
        return super().parse_known_args(args, namespace)

    @property
    def _has_commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _check_first(self, word: str) -> None:
        known = self._option_string_actions
        if not any(name.startswith(word.partition("=")[0]) for name in known):
            self.error(f"{word} comes before the command; write for example: {self.example}")

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
        told, prog = _explained(message), self.prog
        if message.startswith(_STRAY):
            told = _stray(self._words, message.removeprefix(_STRAY).split()[0])
            prog = " ".join([prog, *self._words[:1]])
        if match := _NO_VALUE.fullmatch(message):
            told = _no_value(self._words, match[1])
        if message.startswith("the following arguments are required") and self.example:
            told += f"; for example: {self.example}"
        raise SystemExit(tell(f"{told}; `{prog} --help` tells more"))


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
    if match := _NUMBER.fullmatch(message):
        kind = "whole number, such as 1000000" if match[2] == "int" else "number"
        return f"{match[1]} {match[3]!r} is not a {kind}"
    match = _CHOICE.fullmatch(message)
    if match is None:
        return message
    argument, given, listed = match.groups()
    choices = [choice.strip("'") for choice in listed.split(", ")]
    near = did_you_mean(given, choices)
    shown = ", ".join(choices)
    if argument == "COMMAND":
        return f"{given!r} is not a command{near}; there are {shown}"
    if _NEARLY.get(given.lower()) in choices:
        near = f" (did you mean {_NEARLY[given.lower()]!r}?)"
    hint = how_hint(given) if argument == "--how" and "full" in choices else ""
    return f"{argument} {given!r}{near}; choose one of {shown}{hint}"


def _stray(words: Sequence[str], extra: str) -> str:
    """What to do about a word that belongs to nothing."""
    at = len(words) - 1 - [*reversed(words)].index(extra) if extra in words else 0
    option, value = (words[at - 2], words[at - 1]) if at >= 2 else ("", "")
    told = f"{extra!r} is a word too many"
    if option == "--on" and "=" not in value and "=" not in extra:
        return f"{told}; a limit comes after =, as in --on {value}={extra}"
    if option == "--suffixes":
        return f"{told}; write --suffixes {value},{extra}"
    if option in ("--on", "--by"):
        return f"{told}; each column has its own {option}: {option} {value} {option} {extra}"
    if words[:1] in (["join"], ["asof"], ["verify"]):
        return f"{told}: a join has two inputs; a list of files is a folder or a glob in quotes"
    return told


def _no_value(words: Sequence[str], option: str) -> str:
    """What to do about an option without a value, which may only look like an option."""
    at = words.index(option) + 1 if option in words else len(words)
    value = words[at] if at < len(words) else ""
    if re.match(r"-[\d.]", value) and option == "--tolerance":
        return f"{option} {value} is negative; it is a distance, so leave out the sign"
    if re.match(r"-[\d.]", value):
        return f"{option} {value} looks like another option; write {option}={value}"
    return f"{option} needs a value"


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
