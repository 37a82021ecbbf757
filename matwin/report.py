"""What a join has done so far, in numbers that add up.

    rows in  =  used + late + rejected          on each side, in each stream, always

A `Report` is given to a join (``report=``) and is up to date whenever a batch has been handed out;
the progress callback gets the same object.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Visitors:
    """Those who have connected to a source that listens."""

    refused: int = 0
    """Connections that ended, or broke the format, without a whole row."""
    broken: int = 0
    """Those that broke off after rows."""
    halves: int = 0
    """Rows that were left out because their peer died in the middle of them."""


def visitors_of(source: object) -> Visitors | None:
    """The visitors of a source, or of the source of a stream; None where nobody can come."""
    found: Visitors | None = getattr(getattr(source, "source", source), "visitors", None)
    return found


@dataclass(slots=True)
class SideReport:
    """One side's rows: `late` were dropped, `rejected` have a null, NaN or infinity to join by."""

    rows_in: int = 0
    used: int = 0
    late: int = 0
    rejected: int = 0
    rows_expected: int | None = None
    visitors: Visitors | None = field(default=None, repr=False, compare=False)
    """Of a source that listens, counted as they come."""

    def check(self) -> None:
        """Raise `AssertionError` unless no row is lost."""
        assert self.rows_in == self.used + self.late + self.rejected, self


@dataclass(slots=True)
class StreamReport(SideReport):
    """One stream of a window join: its rows, and how long their results took.

    A portion's response time runs from reading it to having handed over what it found; what waits
    for other streams (forward evaluation) or for a step on pages is not in it.
    """

    portions: int = 0
    response_total: float = 0.0
    response_max: float = 0.0
    seconds: float = 0.0
    """From the first portion to the last, read and joined."""

    @property
    def response_mean(self) -> float:
        """Seconds that a portion took, on average."""
        return self.response_total / self.portions if self.portions else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows read per second."""
        return self.rows_in / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Report:
    """Counts of a running or finished join.

    >>> report = Report()
    >>> report.left.rows_in, report.rows_out, report.is_done
    (0, 0, False)
    """

    left: SideReport = field(default_factory=SideReport)
    right: SideReport = field(default_factory=SideReport)
    streams: dict[str, StreamReport] = field(default_factory=dict)
    """The streams of a window join, by name."""
    rows_out: int = 0
    steps: int = 0
    pages_read: int = 0
    pages_written: int = 0
    pairs_planned: int = 0
    pairs_visited: int = 0
    peak_bytes: int = 0
    """The most that the join has counted against its budget."""
    process_bytes: int = 0
    """The most that the whole process held meanwhile, as the kernel counts it: Python, libraries,
    what the caller keeps and what the allocators have not given back included."""
    budget_bytes: int = 0
    decisions: list[str] = field(default_factory=list)
    """What was chosen and why, in order."""
    is_done: bool = False

    def decide(self, what: str) -> None:
        """Note a choice, once: a live join has as many steps as it likes."""
        if what not in self.decisions:
            self.decisions.append(what)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        found = asdict(self)
        for name, stream in self.streams.items():
            more = {
                "response_mean": stream.response_mean,
                "rows_per_second": stream.rows_per_second,
            }
            found["streams"][name] |= more
        return found

    def check(self) -> None:
        """Raise `AssertionError` unless rows in = used + late + rejected everywhere."""
        for one in (self.left, self.right, *self.streams.values()):
            one.check()
