"""Frames and guards: a page in memory, and the only way to reach it.

Only the pool makes a guard, and only a guard reaches a page's bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from .columns import physical
from .layout import Page, PageId

VIEW_BYTES = 400
"""What Arrow takes for a column of a batch, however few rows it has: 340 to 540, measured."""
BULKY_SHARE = 8
FEW_COLUMNS = 100


@dataclass(slots=True)
class Frame:
    """One page in memory."""

    number: int
    size: int
    data: pa.Buffer | None
    is_dirty: bool
    is_kept: bool = False  # stays until it is dropped
    is_dropped: bool = False  # leaves with its last pin
    pins: int = 0
    page: Page | None = None

    @property
    def is_bulky(self) -> bool:
        """Whether the decoded page takes much beside its bytes: 10,000 columns take 4 MB, and pages
        of them took 620 MB in a budget of 64 MiB."""
        if self.page is None:
            return False
        columns = int(self.page.batch.num_columns)
        return columns > FEW_COLUMNS and VIEW_BYTES * columns > self.size // BULKY_SHARE


@dataclass(frozen=True, slots=True)
class Kind:
    """What the pool knows of a window: its name in traces and its pages' columns."""

    name: str
    schema: pa.Schema
    mark: int


class Pinned:
    """A guard: the page stays in its frame until the block ends.

    >>> from matwin.storage import Store
    >>> with Store(memory="8MiB") as store:
    ...     window = store.window("w", pa.schema([("t", pa.int64())]), on={"t": 10})
    ...     window.append(pa.record_batch({"t": [3, 1, 2]}))
    ...     with store.pool.pin(window.pages()[0].page_id) as page:
    ...         page.values("t").tolist()
    [1, 2, 3]
    """

    __slots__ = ("_page", "_unpin", "block", "page_id")

    def __init__(self, page_id: PageId, page: Page, unpin: Callable[[], None]) -> None:
        self.page_id = page_id
        self.block: Any = None
        """What a join has made of the rows for its kernels; it goes with the pin."""
        self._page: Page | None = page
        self._unpin: Callable[[], None] | None = unpin

    @property
    def page(self) -> Page:
        """The decoded page; only inside the block."""
        if self._page is None:
            raise RuntimeError(f"{self.page_id} is not pinned any more")
        return self._page

    @property
    def is_held(self) -> bool:
        """Whether it is still pinned."""
        return self._page is not None

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows, as views of the frame."""
        return self.page.batch

    def values(self, name: str) -> npt.NDArray[Any]:
        """A numeric column's values as stored, as a view of the frame."""
        return physical(self.batch.column(name))[0]

    def release(self) -> None:
        """Unpin; once is enough, and more does no harm."""
        unpin, self._unpin, self._page, self.block = self._unpin, None, None, None
        if unpin is not None:
            unpin()

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
