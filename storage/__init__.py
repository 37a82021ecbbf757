"""The storage engine: pages in ε-Grid-Order on LMDB, a buffer pool, and materialized windows.

Start with `Store`.  The parts, from the bottom up:

    units · errors · columns      sizes and durations · the error family · columns as numbers
    grid · ordering               cells and reach · sorting by several keys
    layout                        a page's bytes
    scratch · env                 private folders · LMDB
    pagefile · memory             pages on disk · the memory twin
    trace · replacer · pool       what happened · who leaves · frames inside a budget
    runs · sort · materialize     sorted runs · external sort · windows
    manifest · store              what a step keeps · the front door

Nothing here has heard of joins.
"""

from __future__ import annotations

from .errors import BudgetError, CorruptPage, InputError, MatwinError, OrderError, StoreError
from .frame import Pinned
from .grid import Dimension, Grid, Key
from .layout import Fence, Page, PageId
from .materialize import Window, choose
from .memory import MemoryPageFile
from .pagefile import LmdbPageFile, PageFile
from .pool import BufferPool, smallest_budget
from .replacer import LeastRecentlyUsed, Replacer
from .runs import PageRef
from .sort import SortedRows
from .store import Store
from .trace import TraceFile, read_trace

__all__ = [
    "BudgetError",
    "BufferPool",
    "CorruptPage",
    "Dimension",
    "Fence",
    "Grid",
    "InputError",
    "Key",
    "LeastRecentlyUsed",
    "LmdbPageFile",
    "MatwinError",
    "MemoryPageFile",
    "OrderError",
    "Page",
    "PageFile",
    "PageId",
    "PageRef",
    "Pinned",
    "Replacer",
    "SortedRows",
    "Store",
    "StoreError",
    "TraceFile",
    "Window",
    "choose",
    "read_trace",
    "smallest_budget",
]
