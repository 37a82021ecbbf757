"""The data of the W-join papers' experiments, and the order in which it comes.

    synthetic   integers; the time between two of them is exponential          `synthetic`
    shops       what tills of shops scan: open from 7:30 to 20:00, busy at noon and after
                work, few items sold often and many seldom                      `shops`

The papers' shops are those of a chain whose logs are not public; these are drawn to resemble what
the papers say about them: about 5,000 rows an hour in all, one hour windows, times in seconds.

Tuples come in one of two orders:

    by_time       as they happen: what comes next is the oldest
    round_robin   one of each stream in turn, whatever its time: how a stream manager serves what
                  has piled up, and how logs are replayed.  Streams of different rates drift apart.

All streams lie in one array after each other; `offset` says where each begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OPENS, CLOSES, DAY = 7.5 * 3600, 20.0 * 3600, 24.0 * 3600
BUSY = ((12.5 * 3600, 1.5 * 3600, 1.0), (17.5 * 3600, 1.2 * 3600, 1.4))
"""Busy times of a day: when, how wide, how much busier than else."""
ROWS_AN_HOUR = 5_000
HOUR = 3600.0
ITEMS, SKEW = 20_000, 0.7


class Streams(NamedTuple):
    """Sorted streams, one after the other."""

    times: Floats
    keys: Ints
    offset: Ints

    @property
    def ways(self) -> int:
        """How many streams there are."""
        return len(self.offset) - 1

    @property
    def rows(self) -> int:
        """How many tuples they have in all."""
        return len(self.times)


def joined(parts: Sequence[tuple[Floats, Ints]]) -> Streams:
    """Streams from times and keys of each."""
    lengths = [len(times) for times, _ in parts]
    return Streams(
        np.concatenate([times for times, _ in parts]),
        np.concatenate([keys for _, keys in parts]),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )


def synthetic(rates: Sequence[float], values: int, seconds: float, seed: int) -> Streams:
    """Streams over the same stretch of time, each at its rate, with integers below `values`."""
    parts = []
    for number, rate in enumerate(rates):
        generator = np.random.default_rng([seed, number])
        rows = max(round(rate * seconds), 1)
        times = np.cumsum(generator.exponential(1 / rate, rows))
        parts.append((times, generator.integers(0, values, rows)))
    return joined(parts)


def switching(
    rate: float, slow: float, every: int, streams: int, values: int, rows: int, seed: int
) -> Streams:
    """Streams at one rate, of which the last changes to a slow one and back."""
    parts = []
    for number in range(streams):
        generator = np.random.default_rng([seed, number])
        gaps = generator.exponential(1 / rate, rows)
        if number == streams - 1:
            gaps *= np.where(np.arange(rows) // every % 2 == 0, rate / slow, 1.0)
        parts.append((np.cumsum(gaps), generator.integers(0, values, rows)))
    return joined(parts)


def shops(count: int, days: float, seed: int, skew: float = SKEW) -> Streams:
    """The scans of some shops, all about as busy, over some days; with more skew more is sold of
    what is sold often."""
    weights = 1.0 / np.arange(1, ITEMS + 1) ** skew
    popular = np.cumsum(weights / weights.sum())
    parts = []
    for number in range(count):
        generator = np.random.default_rng([seed, number])
        busy = ROWS_AN_HOUR / count * generator.uniform(0.9, 1.1)
        times = np.sort(_scan_times(generator, days, busy))
        items = np.searchsorted(popular, generator.random(len(times)))
        parts.append((times, items.astype(np.int64)))
    return joined(parts)


def _scan_times(generator: np.random.Generator, days: float, rows_an_hour: float) -> Floats:
    """Whole seconds within opening hours, more of them when it is busy."""
    found = []
    for day in range(int(np.ceil(days))):
        seconds = np.arange(OPENS, CLOSES)
        weight = np.ones(len(seconds))
        for when, wide, more in BUSY:
            weight += more * np.exp(-(((seconds - when) / wide) ** 2))
        share = min(days - day, 1.0)
        # The last day may end early.
        weight[seconds > OPENS + share * (CLOSES - OPENS)] = 0.0
        mean = rows_an_hour * (CLOSES - OPENS) / HOUR * weight / weight.sum() * share
        found.append(np.repeat(seconds + day * DAY, generator.poisson(mean)))
    return np.concatenate(found)


# ── in which order they come ─────────────────────────────────────────────────────────────────


def by_time(streams: Streams) -> Ints:
    """The stream of each arrival, oldest tuple first."""
    owner = np.repeat(np.arange(streams.ways), np.diff(streams.offset))
    order = np.argsort(streams.times, kind="stable")
    found: Ints = owner[order].astype(np.int64)
    return found


def round_robin(streams: Streams) -> Ints:
    """The stream of each arrival, one of each in turn as long as it has tuples."""
    owner = np.repeat(np.arange(streams.ways), np.diff(streams.offset))
    turn = np.arange(streams.rows) - np.repeat(streams.offset[:-1], np.diff(streams.offset))
    found: Ints = owner[np.lexsort((owner, turn))].astype(np.int64)
    return found


def tables(streams: Streams) -> list[pa.Table]:
    """The streams as tables that a join takes: time `t`, key `k` and the row's number."""
    found = []
    for number in range(streams.ways):
        first, limit = streams.offset[number], streams.offset[number + 1]
        columns = {"t": streams.times[first:limit], "k": streams.keys[first:limit]}
        found.append(pa.table({**columns, "row": np.arange(first, limit)}))
    return found
