"""What in a query DuckDB speaks of in an error: it names things, and we look for them.

    Scalar Function with name nofunc does not exist!     nofunc
    Could not convert string 'abc' to INT64              'abc'
    Referenced column "tt" not found …                   tt

DuckDB's own places are those of the text it was given, which is not the user's.
"""

from __future__ import annotations

import re

from .errors import Place
from .statements import blanked

_NAMED = re.compile(
    r'"(?P<quoted>[^"]+)"|\bname (?P<named>[\w.]+)|\'(?P<called>\w+)\(|\'(?P<text>[^\']*)\''
)


def blamed(text: str, message: str) -> Place | None:
    """The first thing of the query that a message names; None where it names nothing of it."""
    if "when casting from source column" in message:
        return None  # it names a value of the data
    for found in _NAMED.finditer(message.splitlines()[0] if message else ""):
        kind, name = found.lastgroup, found[found.lastgroup or 0]
        place = _literal(text, name) if kind == "text" else _word(text, name)
        if place is not None:
            return place
    return None


def _literal(text: str, content: str) -> Place | None:
    sign = "'" + content.replace("'", "''") + "'"
    start = text.find(sign)
    return Place(start, start + len(sign) - 1) if start >= 0 else None


def _word(text: str, name: str) -> Place | None:
    """A name where it stands in the text, not within a string or a comment."""
    plain = blanked(text, "string", "comment")
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", plain, re.IGNORECASE)
    return Place(found.start(), found.end() - 1) if found else None
