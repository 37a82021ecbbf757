"""A text in statements: where each of them ends, and whether the last one does.  Pure.

    select 'a;b' as x; -- one      ──▶   select 'a;b' as x       ends with its semicolon
    .mode csv                            .mode csv               a command ends with its line
    select 2                             select 2                goes on

A semicolon inside a string, a name in quotes, a comment or a dollar quote ends nothing, and who has
opened one of these and presses Enter goes on in it.  The prompt also takes its colours from here.

Invariant: a statement keeps its line and its column, because blanks stand for what comes before it;
so messages name the places of the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .leftovers import plain_signs

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*)|(?P<block>/\*)"
    r"|(?P<string>[eE]'(?:[^'\\]|\\.|'')*(?P<end1>')?|'(?:[^']|'')*(?P<end2>')?)"
    r"|(?P<name>\"(?:[^\"]|\"\")*(?P<end3>\")?|`[^`]*(?P<end4>`)?)"
    r"|(?P<dollar>\$(?:[A-Za-z_]\w*)?\$)"
    r"|(?P<number>\d+(?:\.\d+)?\b)|(?P<word>\w+)|(?P<semicolon>;)|(?P<blank>\s+)|(?P<other>.)",
    re.DOTALL,
)
_BLOCK = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a text from `start` to before `end`.

    `kind` is comment, string, name, number, word, semicolon, blank, other or command.
    """

    kind: str
    start: int
    end: int
    is_open: bool = False
    """Whether the text ends before it does."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, or a command that begins with a point."""

    text: str
    is_command: bool
    is_ended: bool


def stretch_at(text: str, at: int) -> Stretch:
    """The piece that begins at a place."""
    found = _TOKEN.match(text, at)
    assert found is not None
    if found["block"]:
        return _comment(text, at)
    if found["dollar"]:
        end = text.find(found[0], found.end())
        return Stretch("string", at, len(text) if end < 0 else end + len(found[0]), end < 0)
    kind = next(name for name in _KINDS if found[name] is not None)
    is_open = kind in ("string", "name") and not any(found[f"end{n}"] for n in range(1, 5))
    return Stretch(kind, at, found.end(), is_open)


_KINDS = ("comment", "string", "name", "number", "word", "semicolon", "blank", "other")


def _comment(text: str, start: int) -> Stretch:
    """A comment in /* */; there may be others in it."""
    depth = 0
    for found in _BLOCK.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return Stretch("comment", start, found.end())
    return Stretch("comment", start, len(text), is_open=True)


def stretches(text: str) -> Iterator[Stretch]:
    """All pieces of a text; a command is one."""
    at, is_begin = 0, True
    while at < len(text):
        if is_begin and text[at] == ".":
            found = Stretch("command", at, _line_end(text, at))
        else:
            found = stretch_at(text, at)
        yield found
        at = found.end
        if found.kind not in ("blank", "comment"):
            is_begin = found.kind in ("semicolon", "command")


def blanked(text: str, *kinds: str) -> str:
    """The text with blanks in the place of its pieces of these kinds; nothing else moves.

    >>> blanked("select 'a' -- b", "string", "comment")
    'select         '
    """
    return "".join(
        " " * (one.end - one.start) if one.kind in kinds else text[one.start : one.end]
        for one in stretches(text)
    )


def statements(text: str) -> list[Statement]:
    """The statements of a text, in order.

    >>> [one.text for one in statements("select 1; .mode csv\\nselect ';'")]
    ['select 1', '          .mode csv', "\\nselect ';'"]
    """
    plain = plain_signs(text)
    found: list[Statement] = []
    at = _begin(plain, 0)
    while at < len(plain):
        is_command = plain[at] == "."
        end, is_ended = (_line_end(plain, at), True) if is_command else _end(plain, at)
        found.append(Statement(_in_place(text, at, end), is_command, is_ended))
        at = _begin(plain, end)
    return found


def is_whole(text: str) -> bool:
    """Whether nothing of the text goes on: every statement has its end."""
    return all(one.is_ended for one in statements(text))


def open_stretch(text: str) -> Stretch | None:
    """The string, name or comment that a text opens and does not close."""
    return next((one for one in stretches(plain_signs(text)) if one.is_open), None)


def _begin(text: str, at: int) -> int:
    """Where the next statement begins: behind blanks, semicolons and comments."""
    while at < len(text):
        found = stretch_at(text, at)
        is_nothing = found.kind in ("blank", "semicolon", "comment") and not found.is_open
        if not is_nothing:
            break
        at = found.end
    return at


def _end(text: str, at: int) -> tuple[int, bool]:
    """Where a query ends, and whether it does."""
    while at < len(text):
        found = stretch_at(text, at)
        if found.kind == "semicolon":
            return found.start, True
        at = found.end
    return at, False


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _in_place(text: str, start: int, end: int) -> str:
    """A stretch of text with blanks for what stands before it."""
    line = text.rfind("\n", 0, start) + 1
    return "\n" * text.count("\n", 0, start) + " " * (start - line) + text[start:end]
