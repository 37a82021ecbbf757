"""Options that every join takes, checked once, before any data is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from matwin.scheduler import MODES
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.machine import free_memory
from matwin.storage.materialize import FORMS
from matwin.storage.pool import smallest_budget
from matwin.storage.trace import check_target
from matwin.storage.units import (
    HOW_TO_WRITE,
    Duration,
    format_size,
    is_duration,
    nanoseconds,
    parse_size,
    shown,
)

from .report import Report

MEMORY_MIN, MEMORY_MAX = 16 * 2**20, 64 * 2**30


@dataclass(frozen=True, slots=True)
class Options:
    """How a join runs; none of it changes the result."""

    memory: int | str | None = None
    page_size: int | str = "256KiB"
    materialize: str = "auto"
    schedule: str = "auto"
    scratch: str | Path | None = None
    trace: str | Path | None = None
    """Where the page events go.  A join that reads its sources twice (``how="inner"`` of bestmatch)
    traces the second reading, which makes the rows: a trace is of one walk over one set of pages,
    and the first one's are gone by then."""
    threads: int | None = None
    progress: Callable[[Report], None] | None = None
    report: Report | None = None
    max_output_rows: int | None = None
    max_delay: Duration | None = None
    budget_bytes: int = field(init=False)
    page_bytes: int = field(init=False)
    workers: int = field(init=False)
    delay_seconds: float | None = field(init=False)

    def __post_init__(self) -> None:
        _one_of("materialize", self.materialize, ("auto", *FORMS))
        _one_of("schedule", self.schedule, MODES)
        for name in ("scratch", "trace"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, str | os.PathLike):
                raise InputError(f"{name}={path!r}: give a path")
        if self.trace is not None:
            check_target(Path(self.trace))
        if self.report is not None and not isinstance(self.report, Report):
            raise InputError(f"report={self.report!r}: give a matwin.Report()")
        if self.progress is not None and not callable(self.progress):
            raise InputError(f"progress={self.progress!r}: give a function of one report")
        _whole("threads", self.threads)
        _whole("max_output_rows", self.max_output_rows)
        page_bytes = parse_size(self.page_size)
        if page_bytes < 1 << 12:
            raise InputError(f"page_size={self.page_size!r}: the smallest that works is 4KiB")
        memory = _memory() if self.memory is None else parse_size(self.memory)
        smallest = smallest_budget(page_bytes)
        if self.memory is None:
            memory = max(memory, smallest)
        elif memory < smallest:
            raise BudgetError(
                f"memory={self.memory!r} is too small for pages of {format_size(page_bytes)}; the "
                f"smallest that works is {format_size(smallest)} ({smallest} bytes)",
                smallest_bytes=smallest,
            )
        delay = _seconds(self.max_delay)
        settings = {
            "budget_bytes": memory, "page_bytes": page_bytes, "delay_seconds": delay,
            "workers": self.threads or min(os.cpu_count() or 1, 8),
        }  # fmt: skip
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    @property
    def wants_pages(self) -> bool:
        """Whether the user asks for something that only pages have."""
        return self.trace is not None or self.materialize != "auto" or self.schedule != "auto"


def options_of(join: str, given: dict[str, Any]) -> Options:
    """The options of a join's keyword arguments."""
    known = [f.name for f in fields(Options) if f.init]
    for name in given:
        if name not in known:
            raise TypeError(
                f"{join}() got an unexpected keyword argument {name!r}; the options are "
                f"{', '.join(known)}"
            )
    return Options(**given)


def _seconds(delay: Any) -> float | None:
    if delay is None:
        return None
    if not is_duration(delay):
        raise InputError(f"max_delay={shown(delay)}: {HOW_TO_WRITE}")
    seconds = float(nanoseconds(delay)) / 1e9
    if seconds < 0:
        raise InputError(f"max_delay={shown(delay)} is negative")
    return seconds


def _memory() -> int:
    """A quarter of what is free to this process."""
    return max(MEMORY_MIN, min(free_memory() // 4, MEMORY_MAX))


def _one_of(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{name}={given!r}; choose one of {', '.join(allowed)}")


def _whole(name: str, given: object) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise InputError(f"{name}={given!r}: give a whole number from 1 on, or leave it out")
