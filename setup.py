"""The README as a package index can show it; everything else is in pyproject.toml.

There is no address of the repository to link to.  Links into the checkout become their text, and a
picture becomes the words that stand for it.
"""

import re
from pathlib import Path

from setuptools import setup

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+://)([^)]*)\)")
_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+://|#)[^)]*\)")


def page(readme: str) -> str:
    """The text without what only a checkout can follow."""
    return _LINK.sub(r"\1", _PICTURE.sub(r"*\1 (a picture: `\2` in the source).*", readme))


if __name__ == "__main__":
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=page(readme), long_description_content_type="text/markdown")
