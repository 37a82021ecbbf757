"""External sort: a source of any size, in order, within the budget.

    batches ──▶ tail ──full──▶ run ─┐
                     ──full──▶ run ─┼──merge──▶ one run, read page by page
                     ──end───▶ run ─┘

It is the standard materialization of everything at once: two passes over the data as long as the
number of runs does not exceed what can be merged at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from .materialize.standard import StandardWindow
from .runs import PageRef


class SortedRows:
    """A sorted source, on pages.  Give it back with `close`, or use it in a ``with`` block."""

    def __init__(self, window: StandardWindow, source: Iterable[pa.RecordBatch]) -> None:
        self._window = window
        try:
            for batch in source:
                window.append(batch)
            window.settle()
        except BaseException:
            window.close()
            raise

    def pages(self) -> list[PageRef]:
        """The pages in order, with their fences."""
        return self._window.pages()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, a page at a time."""
        return self._window.scan()

    def close(self) -> None:
        """Give up the pages."""
        self._window.close()

    def __enter__(self) -> SortedRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
