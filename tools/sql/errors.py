"""Errors of a query: what is wrong, where it stands, and what to write instead.

    line 2, column 11: temp has no column 'tt' (did you mean 't'?)
      where abs(temp.tt - hum.t) <= 5
                ^^^^^^^

A place is a stretch of the user's own text, counted in characters.  Nothing is changed in the text
before it is parsed that would move them (see `leftovers.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from matwin.hints import did_you_mean
from matwin.storage.errors import InputError
from matwin.text import width_of

from .statements import stretches

WIDTH_MAX = 76
"""A line is cut to about so many characters around the place."""


_SHELL = re.compile(r" \(on the command line [^()]*\)|, on the command line \S+$")
"""How a join's own message would have it written elsewhere."""


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
    message = _SHELL.sub("", message)
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
    # The carets stand below the place, however wide its signs are.
    shown = _plain(shown)
    before, place_itself = shown[: at - cut], shown[at - cut : at - cut + length]
    return f"  {shown}\n  {' ' * width_of(before)}{'^' * max(1, width_of(place_itself))}"


def _plain(line: str) -> str:
    """A line with nothing that moves a terminal's cursor; a tab is a blank, and counts as one."""
    blanks = line.replace("\t", " ")
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in blanks)


# ── what is not SQL ──────────────────────────────────────────────────────────────────────────────

FIRST = ("select", "with", "from", "values", "table")
"""Words that a query begins with."""
CLAUSES = (
    "from", "where", "group", "order", "having", "limit", "join", "left", "right", "full", "inner",
    "union", "window", "dwindow", "bestmatch", "using", "qualify",
)  # fmt: skip
ELSEWHERE = {
    "show": ".tables at the prompt lists tables",
    "describe": ".schema at the prompt tells the columns of a table",
    "desc": ".schema at the prompt tells the columns of a table",
    "explain": ".explain at the prompt, --explain and result.explain() show plans",
    "copy": "-o FILE and result.write(FILE) write rows",
    "create": "a query in the place of a table is written as with a as (select …)",
    "install": "files are read as they are: from 'data.parquet'",
    "pivot": "in a query it is from (pivot a on k in (1, 2) using sum(v))",
    "unpivot": "in a query it is from (unpivot a on v, w)",
    "summarize": "in a query it is from (summarize a)",
    "load": ".load NAME FILE at the prompt gives a file a name",
}
"""Where to find what another statement is for."""
_WORD = re.compile(r"\w+")


def parse_failure(text: str, error: Any) -> SqlError:
    """What sqlglot could not read, said in our way."""
    detail = (error.errors or [{}])[0]
    line, column = detail.get("line"), detail.get("col")
    if not line:
        return SqlError("this can't be read as SQL")
    lines = text.split("\n")
    start = sum(len(one) + 1 for one in lines[: line - 1]) + max(0, (column or 1) - 1)
    highlight = detail.get("highlight") or " "
    start = max(0, min(start - len(highlight) + 1, len(text)))
    place = Place(start, start + len(highlight) - 1)
    first = _first_word(text)
    if first is not None and (near := _misspelt(_words(text, first), FIRST)):
        return wrong(text, f"this can't be read as SQL{near}", first)
    reason, place = _reason(text, str(detail.get("description", "")).rstrip("."), place)
    return wrong(text, f"this can't be read as SQL: {reason}", place)


def _reason(text: str, description: str, place: Place) -> tuple[str, Place]:
    """Why a text can't be read, without the insides of a parser, and where that shows."""
    found = _words(text, place)
    is_end = text[place.end + 1 :].lstrip()[:1] in ("", ";")
    where = f"after {found!r}" if is_end else f"before {found!r}"
    if description.startswith("Required keyword"):
        return f"something is missing {where}", place
    if description.startswith("Expected table name"):
        return f"a table is missing {where}", place
    if description.startswith("Expecting "):
        return f"{description.removeprefix('Expecting ')} is missing {where}", place
    if description.startswith("Found multiple 'WINDOW'"):
        together = "window (a, b) = '5s' and window (b, c) = '3s'"
        return f"all windows stand together: {together}", place
    if not description.startswith("Invalid expression"):
        return description, place
    return _unexpected(text, place)


def _unexpected(text: str, place: Place) -> tuple[str, Place]:
    """A word that nothing can be made of, or the one before it that made something else of it."""
    before = re.search(r"\w+(?=\s*\Z)", text[: place.start])
    if before is not None and before[0].lower() == "bestmatch":
        return "a bestmatch join is written as R bestmatch join S on R.t mindist S.t", place
    places = [] if before is None else [Place(before.start(), before.end() - 1)]
    for one in (*places, place):
        if near := _misspelt(_words(text, one), CLAUSES):
            return f"{_words(text, one)!r} is not expected here{near}", one
    return f"{_words(text, place)!r} is not expected here", place


def not_a_query(text: str, place: Place, *, is_expression: bool) -> SqlError:
    """The refusal of a statement that is none of ours."""
    found = _WORD.match(text, place.start)
    if found is None:
        return wrong(text, "a query begins with select, with or from", place)
    word, at = found[0], Place(found.start(), found.end() - 1)
    if is_expression:
        near = _misspelt(word, FIRST)
        return wrong(text, f"a query begins with select, with or from, not with {word!r}{near}", at)
    hint = ELSEWHERE.get(word.lower())
    said = f"only a select can be run here, not {word.upper()}{f'; {hint}' if hint else ''}"
    return wrong(text, said, at)


def _first_word(text: str) -> Place | None:
    found = next((one for one in stretches(text) if one.kind == "word"), None)
    return Place(found.start, found.end - 1) if found else None


def _words(text: str, place: Place) -> str:
    return text[place.start : place.end + 1]


def _misspelt(word: str, known: tuple[str, ...]) -> str:
    """A question, where a word is nearly one of these."""
    is_odd = len(word) > 2 and word.isalpha() and word.lower() not in known
    return did_you_mean(word.lower(), known) if is_odd else ""
