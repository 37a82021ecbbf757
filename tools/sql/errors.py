"""Errors of a query: what is wrong, where it stands, and what to write instead.

    line 2, column 11: temp has no column 'tt' (did you mean 't'?)
      where abs(temp.tt - hum.t) <= 5
                ^^^^^^^

A place is a stretch of the user's own text, counted in characters.  Nothing is changed in the text
before it is parsed that would move them (see `leftovers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from matwin.storage.errors import InputError

WIDTH_MAX = 120
"""A line is cut to about so many characters around the place."""


class SqlError(InputError):
    """A query that can't be run, with the place that is to blame."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the text: its first and its last character."""

    start: int
    end: int


def place_of(node: exp.Expr | None) -> Place | None:
    """Where an expression stands, as far as its names and literals tell."""
    if node is None:
        return None
    metas = [part.meta for part in node.walk() if "start" in part.meta]
    if not metas:
        return None
    return Place(min(meta["start"] for meta in metas), max(meta["end"] for meta in metas))


def wrong(text: str, message: str, at: exp.Expr | Place | None = None) -> SqlError:
    """The error that says `message` of a place in the text."""
    place = at if isinstance(at, Place) or at is None else place_of(at)
    if place is None:
        return SqlError(message)
    line, column = position(text, place.start)
    shown = _excerpt(text, place)
    return SqlError(f"line {line}, column {column}: {message}\n{shown}", line, column)


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _excerpt(text: str, place: Place) -> str:
    """The line, and carets below the place."""
    first = text.rfind("\n", 0, place.start) + 1
    last = text.find("\n", place.start)
    line = text[first : len(text) if last < 0 else last].rstrip("\r")
    at = min(place.start - first, len(line))
    length = max(1, min(place.end + 1 - place.start, len(line) - at))
    cut = max(0, at - WIDTH_MAX // 2)
    shown = line[cut : cut + WIDTH_MAX]
    length = max(1, min(length, len(shown) - (at - cut)))
    # Tabs stay tabs below them, so that the carets stand where they should; what would move a
    # terminal's cursor is not shown at all.
    below = "".join("\t" if mark == "\t" else " " for mark in shown[: at - cut])
    return f"  {_plain(shown)}\n  {below}{'^' * length}"


def _plain(line: str) -> str:
    return "".join(mark if mark.isprintable() or mark == "\t" else "\ufffd" for mark in line)


def parse_failure(text: str, error: Any) -> SqlError:
    """What sqlglot could not read, said in our way."""
    detail = (error.errors or [{}])[0] if hasattr(error, "errors") else {}
    message = str(detail.get("description") or str(error).splitlines()[0]).rstrip(".")
    line, column = detail.get("line"), detail.get("col")
    if not line:
        return SqlError(f"this can't be read as SQL: {message}")
    lines = text.split("\n")
    start = sum(len(one) + 1 for one in lines[: line - 1]) + max(0, (column or 1) - 1)
    highlight = detail.get("highlight") or " "
    start = max(0, min(start - len(highlight) + 1, len(text)))
    place = Place(start, start + len(highlight) - 1)
    return wrong(text, f"this can't be read as SQL: {message}", place)
