"""What a join on Spark costs as data and clusters grow: a model of five constants.  Pure.

    replication   1 + sum over the bounds b of F(b + hi) - F(b + lo)     for a side with halos; F is
                  the share of its rows below a value.  With rows spread evenly over a time T and
                  m strips that is 1 + (m - 1) R / T, R = hi - lo

    seconds       start + waves x task + (shuffled rows x row + results x result) / slots
    bytes         shuffled rows x bytes of a row

`Costs` are fitted to a few measured runs by least squares and then have to foretell others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Share = Callable[[float], float]


def replication(bounds: Sequence[float], lo: float, hi: float, share: Share) -> float:
    """How often a row of a side with halos is sent, on average.

    >>> even = lambda t: min(max(t / 100, 0), 1)
    >>> round(replication([25, 50, 75], -5, 5, even), 6)
    1.3
    """
    return 1 + sum(share(bound + hi) - share(bound + lo) for bound in bounds)


def even_replication(strips: int, reach: float, span: float) -> float:
    """The same for rows spread evenly over a span, and strips no narrower than the reach.

    >>> even_replication(4, 10, 100)
    1.3
    """
    return 1 + (strips - 1) * reach / span


@dataclass(frozen=True, slots=True)
class Run:
    """A join that was run, or is to be foretold."""

    shuffled_rows: float
    results: float
    parts: int
    slots: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of a join at all, of a task, of a shuffled row, and of a result."""

    start: float
    task: float
    row: float
    result: float

    @classmethod
    def fitted(cls, runs: Sequence[Run]) -> Costs:
        """The costs, none negative, that explain the runs best in relative terms."""
        terms = np.array([_terms(run) for run in runs])
        seconds = np.array([run.seconds for run in runs])
        left = list(range(terms.shape[1]))
        found = np.zeros(terms.shape[1])
        while left:
            scaled = terms[:, left] / seconds[:, None]
            best, *_ = np.linalg.lstsq(scaled, np.ones(len(runs)), rcond=None)
            if (best >= 0).all():
                found[left] = best
                break
            left.pop(int(np.argmin(best)))
        return cls(*map(float, found))

    def seconds(self, run: Run) -> float:
        """What a run should take."""
        return float(np.dot(_terms(run), [self.start, self.task, self.row, self.result]))


def _terms(run: Run) -> list[float]:
    waves = math.ceil(run.parts / run.slots)
    return [1.0, float(waves), run.shuffled_rows / run.slots, run.results / run.slots]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines that a join could run on."""

    executors: int
    cores: int
    network: float
    """Bytes a second that an executor sends and receives."""

    @property
    def slots(self) -> int:
        """Tasks at a time."""
        return self.executors * self.cores


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a join would take on a cluster."""

    parts: int
    replication: float
    shuffle_bytes: float
    compute_seconds: float
    network_seconds: float

    @property
    def seconds(self) -> float:
        """Computing and sending overlap badly within a stage: both count."""
        return self.compute_seconds + self.network_seconds


def outlook(
    costs: Costs, cluster: Cluster, *, rows: float, results: float, row_bytes: float, reach: float,
    span: float, largest_part: float, most_parts: int,
) -> Outlook:  # fmt: skip
    """A join of two sides with as many rows each half, spread evenly."""
    parts = min(most_parts, max(cluster.slots, math.ceil(rows / largest_part)))
    copies = (1 + even_replication(parts, reach, span)) / 2
    run = Run(rows * copies, results, parts, cluster.slots)
    sent = rows * copies * row_bytes
    return Outlook(
        parts, copies, sent, costs.seconds(run), sent / (cluster.executors * cluster.network)
    )
