"""The whole error family.

Every error a caller can meet is a `MatwinError`, and most are a built-in error as well, so that
code which catches `ValueError` or `OSError` keeps working.  A message says what happened, where
(source, column, row, path) and what to do about it.

    MatwinError
    ├── InputError   (ValueError)    the caller can fix it
    │   └── OrderError               a stream broke its promise about order
    ├── BudgetError  (ValueError)    too little memory; names the smallest budget that works
    └── StoreError   (OSError)       the disk, the file system or the file
        └── CorruptPage              a record is not what was written
"""

from __future__ import annotations


class MatwinError(Exception):
    """Base of every error raised on purpose."""


class InputError(MatwinError, ValueError):
    """The caller gave something that cannot be used, and can fix it."""


class OrderError(InputError):
    """A stream declared to be ordered was not."""


class BudgetError(MatwinError, ValueError):
    """The memory budget is too small; `smallest_bytes` is the least that works.

    `is_for_all` says that it is known to be enough for all rows, and is of the whole budget.
    """

    def __init__(self, message: str, *, smallest_bytes: int, is_for_all: bool = False) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes
        self.is_for_all = is_for_all


class StoreError(MatwinError, OSError):
    """The page file could not be read or written."""


class CorruptPage(StoreError):
    """A record's bytes are not the bytes that were written."""
