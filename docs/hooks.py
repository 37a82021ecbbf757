"""Pages that mkdocs gets from elsewhere: README as the first page, the changelog, and the API.

    README.md      ──▶ index.md            links into docs/ become links of the site
    CHANGELOG.md   ──▶ changelog.md
    matwin.__all__ ──▶ api/*.md            docstrings of the public names, grouped by their modules

What is not public is not there: a name that is missing from `__all__` has no page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

import matwin

ROOT = Path(__file__).resolve().parent.parent
# The first prefix that fits a name's module decides; joins are what is left.
GROUPS = (
    ("matwin.streams", "streams"),
    ("matwin.tailing", "streams"),
    ("matwin.peers", "streams"),
    ("matwin.calls", "streams"),
    ("matwin.orders", "orders"),
    ("matwin.bounds", "orders"),
    ("matwin.storage.errors", "errors"),
    ("matwin.result", "results"),
    ("matwin.report", "results"),
    ("matwin.tools.continuous", "epochs"),
    ("matwin.operators.epochs", "epochs"),
    ("matwin.tools", "checks"),
    ("matwin.operators.explain", "checks"),
    ("matwin", "joins"),
)
TITLES = {
    "joins": "Joins", "streams": "Streams", "orders": "Orders and bounds",
    "epochs": "Continuous queries", "cut": "matwin.cut",
    "results": "Results and reports", "checks": "Checking and explaining", "errors": "Errors",
    "storage": "matwin.storage", "scheduler": "matwin.scheduler", "spark": "matwin.spark",
}  # fmt: skip
MODULES = ("cut", "storage", "scheduler", "spark")
WIDTH = 88
SHIM = re.compile(r"https://unpkg\.com/iframe-worker/shim")
"""What the theme's `offline` plugin would load, so that the search works without a server."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name, text in (*_copies(), *api_pages()):
        files.append(File.generated(config, name, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """No page asks another host for anything."""
    return SHIM.sub(get_relative_url("assets/worker.js", page.url), output)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for the page that servers show where there is none."""
    return SHIM.sub("/assets/worker.js", output_content)


def _copies() -> Iterator[tuple[str, str]]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield (
        "index.md",
        re.sub(r"\]\((?:docs/)?", "](", readme).replace("(CHANGELOG.md)", "(changelog.md)"),
    )
    yield "changelog.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def api_pages() -> Iterator[tuple[str, str]]:
    """The name and the text of every page of the API."""
    for group, names in grouped().items():
        parts = [f"# {TITLES[group]}", *(described(name, getattr(matwin, name)) for name in names)]
        yield f"api/{group}.md", "\n\n".join(parts) + "\n"
    for name in MODULES:
        yield f"api/{name}.md", _of_module(name, getattr(matwin, name))


def grouped() -> dict[str, list[str]]:
    """All public names that are not modules, by the page that they are on."""
    found: dict[str, list[str]] = {}
    for name in sorted(set(matwin.__all__) - set(MODULES), key=str.lower):
        module = matwin._NAMES[name]
        group = next(group for prefix, group in GROUPS if module.startswith(prefix))
        found.setdefault(group, []).append(name)
    return found


def _of_module(name: str, module: ModuleType) -> str:
    parts = [f"# {TITLES[name]}", as_markdown(inspect.getdoc(module) or "")]
    public = [public for public in module.__all__ if not inspect.ismodule(getattr(module, public))]
    parts += [
        described(public, getattr(module, public)) for public in sorted(public, key=str.lower)
    ]
    return "\n\n".join(parts) + "\n"


def described(name: str, value: Any) -> str:
    """A heading, the signature, the docstring and, of a class, its public members."""
    parts = [f"## {name}"]
    is_type = inspect.isclass(value)
    if is_type or callable(value):
        signature = _signature(name, value)
        parts += [f"```python\n{signature}\n```"] if signature else []
    doc = inspect.getdoc(value) if is_type or callable(value) or not _is_plain(value) else None
    parts.append(as_markdown(doc) if doc else f"`{value!r}`")
    parts += [_member(name, member, held) for member, held in _members(value)] if is_type else []
    return "\n\n".join(parts)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | tuple | frozenset | dict)


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for name, held in vars(value).items():
        shown = inspect.isfunction(held) or isinstance(held, property | classmethod | staticmethod)
        if not name.startswith("_") and shown and inspect.getdoc(held):
            yield name, held


def _member(owner: str, name: str, held: Any) -> str:
    doc = as_markdown(inspect.getdoc(held) or "")
    if isinstance(held, property):
        return f"### {owner}.{name}\n\n{doc}"
    function = held.__func__ if isinstance(held, classmethod | staticmethod) else held
    return f"### {owner}.{name}()\n\n```python\n{_signature(name, function)}\n```\n\n{doc}"


def _signature(name: str, value: Any) -> str:
    """As it would be written; on several lines where it is long."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    text = str(found.replace(parameters=parameters))
    # Annotations are text already (PEP 563), and `inspect` quotes them.
    text = re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,)= ]|$)", r"\1\3", text).replace("<factory>", "...")
    text = text.removesuffix(" -> None")
    one = f"{name}{text}"
    if len(one) <= WIDTH:
        return one
    inside, _, after = text[1:].rpartition(")")
    return f"{name}(\n" + "".join(f"    {part},\n" for part in _split(inside)) + f"){after}"


def _split(parameters: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth = [""], 0
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def as_markdown(doc: str) -> str:
    """A docstring as it stands, its doctests in fences."""
    out, is_example = [], False
    for line in doc.splitlines():
        if line.startswith(">>>") and not is_example:
            out += ["```pycon", line]
            is_example = True
        elif is_example and not line:
            out += ["```", line]
            is_example = False
        else:
            out.append(line)
    return "\n".join(out + ["```"] * is_example)
