"""The choice of a victim: which page leaves when a frame is needed.  No I/O, no bytes.

The pool tells a replacer which pages came, were used and went, and asks for one that may go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from .layout import PageId


class Replacer(Protocol):
    """What the pool asks of a replacement choice."""

    def used(self, page: PageId) -> None:
        """The page came, or was wanted again."""

    def gone(self, page: PageId) -> None:
        """The page left its frame."""

    def victim(self, may_go: Callable[[PageId], bool]) -> PageId | None:
        """A page that may go, or None."""


class LeastRecentlyUsed:
    """The page whose last use is longest ago.

    >>> replacer = LeastRecentlyUsed()
    >>> for page in (0, 1, 0):
    ...     replacer.used(PageId(0, page))
    >>> replacer.victim(lambda page: True)
    PageId(window=0, page=1)
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[PageId, None] = OrderedDict()

    def used(self, page: PageId) -> None:
        """Move the page to the young end."""
        self._pages[page] = None
        self._pages.move_to_end(page)

    def gone(self, page: PageId) -> None:
        """Forget the page."""
        self._pages.pop(page, None)

    def victim(self, may_go: Callable[[PageId], bool]) -> PageId | None:
        """The oldest page that may go."""
        return next((page for page in self._pages if may_go(page)), None)
