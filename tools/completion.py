"""`matwin completion bash|zsh|fish`: a script that makes a shell complete commands and options.

    parser tree ──▶ Known: path, options, choices ──▶ a case for each path ──▶ eval, or a file

The script is written out once and asks nothing of Python afterwards: a shell that had to load
argparse at every Tab would wait for it.  Left out: names of columns, which only the files know;
arguments that are no options complete as files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from .cli import whole_parser

    known = list(known_of(whole_parser()))
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](known))
    return 0


@dataclass(frozen=True, slots=True)
class Known:
    """What may follow the words of a path: other words, options, and the choices of some."""

    path: tuple[str, ...]
    words: dict[str, str]
    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]


def known_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Known]:
    """Everything that the parser and those below it know."""
    words: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words = {a.dest: a.help or "" for a in action._choices_actions}
            below = dict(action.choices)
            continue
        for name in action.option_strings:
            options[name] = _first_line(action.help)
            if action.choices:
                choices[name] = tuple(map(str, action.choices))
        if not action.option_strings and action.choices:
            words |= dict.fromkeys(map(str, action.choices), "")
    yield Known(path, words, options, choices)
    for word, child in below.items():
        yield from known_of(child, (*path, word))


def _first_line(text: str | None) -> str:
    return "" if text in (None, argparse.SUPPRESS) else " ".join(str(text).split())


def bash(known: list[Known]) -> str:
    """A function for bash.  A path has at most two words; `=` splits words there, as in t=10min."""
    lines = ["_matwin() {", '    local cur="${COMP_WORDS[COMP_CWORD]}" path="" at']
    lines += ["    local prev=\"${COMP_WORDS[COMP_CWORD-1]}\" words=''"]
    groups = " | ".join(k.path[0] for k in known if len(k.path) == 1 and k.words and _is_menu(k))
    lines += [
        '    [ "$COMP_CWORD" -gt 1 ] && path="${COMP_WORDS[1]}"',
        f'    case "$path" in {groups})',
        '        [ "$COMP_CWORD" -gt 2 ] && path="$path ${COMP_WORDS[2]}";;',
        "    esac",
        '    case "$path $prev" in',
    ]
    for one in known:
        for option, given in one.choices.items():
            lines.append(f'        "{" ".join((*one.path, option))}") words="{" ".join(given)}";;')
    lines += ['        *) case "$path" in']
    for one in known:
        words = " ".join([*one.words, *one.options])
        lines.append(f'            "{" ".join(one.path)}") words="{words}";;')
    lines += [
        "        esac;;",
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -o bashdefault -F _matwin matwin",
    ]
    return "\n".join(lines)


def _is_menu(one: Known) -> bool:
    return one.path in {("bench",), ("trace",)}


def zsh(known: list[Known]) -> str:
    """The same for zsh, which reads completions of bash."""
    start = [
        "#compdef matwin",
        "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }",
        "autoload -Uz bashcompinit && bashcompinit",
    ]
    return "\n".join([*start, bash(known)])


def fish(known: list[Known]) -> str:
    """Rules for fish, each with its help."""
    lines = []
    for one in known:
        seen = f"-n '{_fish_condition(one, known)}'"
        for word, text in one.words.items():
            lines.append(f"complete -c matwin {seen} -f -a {word} -d {_fish(text)}")
        for option, text in one.options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            given = one.choices.get(option)
            more = f" -x -a '{' '.join(given)}'" if given else ""
            lines.append(f"complete -c matwin {seen} {flag}{more} -d {_fish(text)}")
    return "\n".join(lines)


def _fish_condition(one: Known, known: list[Known]) -> str:
    """When the words of a path have been written, and no word below it."""
    if not one.path:
        return "__fish_use_subcommand"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in one.path)
    below = [k.path[-1] for k in known if k.path[:-1] == one.path]
    return f"{seen}; and not __fish_seen_subcommand_from {' '.join(below)}" if below else seen


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
