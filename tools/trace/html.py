"""`matwin trace html`: a trace as one page for a browser, which works offline.

    page/template.html ─┐
    page/page.css      ─┤
    page/*.js          ─┼──▶ trace.html     nothing is loaded from anywhere
    packed columns     ─┘

A trace may come from anybody, so nothing in it can become active:

* the page's policy lets only the one script and the one style run that were put there, by their
  SHA-256; no markup, no handler and no address that a name smuggles in would be carried out;
* data comes as base64, and the little JSON beside it is ASCII without ``<``, ``>`` and ``&``;
* the script writes names as text only, never as markup; the policy forbids that as well.

There is never half of a page: `outputs.py` gives it its name when it is complete.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files

from matwin.text import escaped

from . import exporting
from .events import Events
from .packed import Block, Packed, pack
from .summary import summarize

# One idea a file, put together in this order inside one function.
SCRIPTS = (
    "text", "decode", "model", "walks", "check", "palette", "axis", "density", "cells", "matrix",
    "pointer", "timeline", "lanes", "plots", "details", "help", "links", "log", "controls", "main",
)  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_MARK = re.compile(r"\{\{(\w+)\}\}")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    return exporting.export(args, ".html", page_of)


def page_of(events: Events, name: str) -> Iterator[str]:
    """The page, piece by piece; `name` is what it calls the trace."""
    packed = pack(events, summarize(events))
    style = _resource("page.css")
    script = _script()
    fill = {
        "policy": _POLICY.format(script=_digest(script), style=_digest(style)),
        "title": html.escape(escaped(name)),
        "style": style,
        "script": script,
        "head": embedded_json(_head(packed, name, events.settings)),
    }
    for at, piece in enumerate(_MARK.split(_resource("template.html"))):
        if at % 2 == 0:
            yield piece
        elif piece == "blocks":
            yield from map(_element, packed.blocks)
        else:
            yield fill[piece]


def embedded_json(value: object) -> str:
    """JSON that no reader of HTML can mistake for the end of its element.

    >>> embedded_json("</script><!--\\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--\\\\u2028"'
    """
    text = json.dumps(value, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _head(packed: Packed, name: str, settings: dict[str, str]) -> dict[str, object]:
    return {
        "name": name,
        "settings": settings,
        "count": packed.count,
        "kinds": packed.kinds,
        "windows": packed.windows,
        "blocks": [block.head() for block in packed.blocks],
    }


def _element(block: Block) -> str:
    # Scripts of this type are data: browsers neither run them nor ask the policy about them.
    return f'<script type="text/plain" id="block-{block.name}">{block.text}</script>\n'


def _script() -> str:
    parts = "\n".join(_resource(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _resource(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
