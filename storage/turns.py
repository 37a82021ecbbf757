"""Locks that belong to one process.

A forked child has a copy of every lock, held by threads that it does not have: whoever waits for
one waits for ever.  So the process that made a lock is remembered, and a child meets an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from .errors import StoreError

F = TypeVar("F", bound=Callable[..., Any])


class Turn(threading.Condition):
    """A lock and condition that its thread may take again; `what` is named in errors."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._process = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child's copy."""
        return self._process != os.getpid()

    def check(self) -> None:
        """Raise `StoreError` in a forked child."""
        if self.is_inherited:
            raise StoreError(
                f"{self._what} was opened by process {self._process} before a fork; "
                "open it in this process"
            )

    def __enter__(self) -> bool:
        self.check()
        return super().__enter__()


def in_turn(method: F) -> F:
    """A method that runs while no other thread is in one of the same turn."""

    @wraps(method)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        with self._turn:
            return method(self, *args, **options)

    return cast(F, called)
