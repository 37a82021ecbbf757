"""Options that every join takes, checked once, before any data is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from matwin.scheduler import MODES
from matwin.storage.errors import BudgetError, InputError
from matwin.storage.machine import free_memory
from matwin.storage.materialize import FORMS
from matwin.storage.pool import FRAMES_MIN, smallest_budget
from matwin.storage.trace import check_target
from matwin.storage.units import (
    HOW_TO_WRITE,
    Duration,
    format_size,
    is_duration,
    parse_size,
    seconds_of,
    shown,
)

from .hints import unexpected
from .report import Report
from .shares import HALF

MEMORY_MIN, MEMORY_MAX = 16 * 2**20, 64 * 2**30
PAGE_MIN, PAGE_MAX = 1 << 12, 1 << 18


Materialize: TypeAlias = Literal["auto", "standard", "grid", "slab"]
Schedule: TypeAlias = Literal["auto", "gallop", "crabstep", "lookahead"]


class JoinOptions(TypedDict, total=False):
    """Keyword arguments that every join takes; none of them changes the result.

    * `memory`: how much the join may take, such as ``"512MiB"`` or a number of bytes; by default a
      quarter of what is free.  What does not fit goes to `scratch`.
    * `page_size`: the size of a page on disk, by default 256 KiB, or less in a small budget.
    * `materialize`: how windows lie on pages: ``"standard"``, ``"grid"`` or ``"slab"``; ``"auto"``
      decides by how the rows come.
    * `schedule`: in which order pages are visited: ``"gallop"``, ``"crabstep"`` or
      ``"lookahead"``; ``"auto"`` takes the cheapest.
    * `scratch`: the folder for pages, by default the system's for temporary files.
    * `trace`: a file for every page event, for ``matwin trace``.
    * `threads`: how many to use, by default one for each core, at most 8.
    * `progress`: called with the `Report`, about ten times a second.
    * `report`: a `matwin.Report()` to be filled; a result has one anyway.
    * `max_output_rows`: an error beyond so many rows, in place of a full disk.
    * `max_delay`: how long the results of live streams may wait, such as ``"2s"``.
    """

    memory: int | str | None
    page_size: int | str | None
    materialize: Materialize
    schedule: Schedule
    scratch: str | Path | None
    trace: str | Path | None
    threads: int | None
    progress: Callable[[Report], None] | None
    report: Report | None
    max_output_rows: int | None
    max_delay: Duration | None


@dataclass(frozen=True, slots=True)
class Options:
    """How a join runs; none of it changes the result."""

    memory: int | str | None = None
    page_size: int | str | None = None
    """The size of a page; None is 256 KiB, or less where the memory is too small for such pages."""
    materialize: Materialize = "auto"
    schedule: Schedule = "auto"
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
    page_asked: int | None = field(init=False)
    """The size of a page that was asked for."""
    share: int = field(init=False, default=1)
    """Of how many shares of what the user gave this is one."""
    is_short: bool = field(init=False, default=False)
    """Whether the share that would be its own is too small for pages of any size."""

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
        memory = _memory() if self.memory is None else parse_size(self.memory)
        asked = None if self.page_size is None else parse_size(self.page_size)
        page_bytes = page_within(memory) if asked is None else asked
        if page_bytes < PAGE_MIN:
            raise InputError(f"page_size={self.page_size!r}: the smallest that works is 4KiB")
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
            "page_asked": asked, "share": 1, "is_short": False,
            "workers": self.threads or min(os.cpu_count() or 1, 8),
        }  # fmt: skip
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def page_at(self, memory: int) -> int:
        """The size of a page if so much memory were given, and divided as this is."""
        page = page_within(memory * self.share) if self.page_asked is None else self.page_asked
        return page if self.share == 1 else min(page, _page_of_share(memory))

    def at(self, memory: int) -> Options:
        """The options with another budget."""
        return replace(self, memory=memory, page_size=self.page_at(memory), trace=None)

    def untold(self) -> Options:
        """The options, as they are, of a join that nobody is told of."""
        found = copy(self)
        object.__setattr__(found, "progress", None)
        object.__setattr__(found, "trace", None)
        return found

    @property
    def wants_pages(self) -> bool:
        """Whether the user asks for something that only pages have."""
        return self.trace is not None or self.materialize != "auto" or self.schedule != "auto"


def half_of(options: Options) -> Options:
    """The options with half of the memory."""
    return share_of(options, HALF)


def share_of(options: Options, share: int) -> Options:
    """The options with a share of the memory, a half being 2; pages are smaller where that is too
    little for them."""
    memory = max(options.budget_bytes // share, smallest_budget(PAGE_MIN))
    page = min(options.page_bytes, _page_of_share(memory))
    found = replace(options, memory=memory, page_size=page)
    object.__setattr__(found, "page_asked", options.page_asked)
    object.__setattr__(found, "share", options.share * share)
    object.__setattr__(found, "is_short", options.budget_bytes // share < memory)
    return found


def _page_of_share(memory: int) -> int:
    return max(memory // FRAMES_MIN // PAGE_MIN, 1) * PAGE_MIN


def options_of(join: str, given: Mapping[str, Any]) -> Options:
    """The options of a join's keyword arguments."""
    known = [f.name for f in fields(Options) if f.init]
    for name in given:
        if name not in known:
            raise unexpected(join, name, known)
    return Options(**given)


def _seconds(delay: Any) -> float | None:
    if delay is None:
        return None
    if not is_duration(delay):
        raise InputError(f"max_delay={shown(delay)}: {HOW_TO_WRITE}")
    seconds = seconds_of(delay)
    if seconds < 0:
        raise InputError(f"max_delay={shown(delay)} is negative")
    return seconds


def _memory() -> int:
    """A quarter of what is free to this process."""
    return max(MEMORY_MIN, min(free_memory() // 4, MEMORY_MAX))


def page_within(memory: int, page: int = PAGE_MAX) -> int:
    """The largest page, by halves of a size, that the memory can work with.

    >>> page_within(2**21) >> 10, page_within(2**30) >> 10
    (64, 256)
    """
    while page > PAGE_MIN and smallest_budget(page) > memory:
        page = max(page // 2 // PAGE_MIN * PAGE_MIN, PAGE_MIN)
    return page


def _one_of(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{name}={given!r}; choose one of {', '.join(allowed)}")


def _whole(name: str, given: object) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise InputError(f"{name}={given!r}: give a whole number from 1 on, or leave it out")
