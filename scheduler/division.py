"""How the work is divided, from a sample of the data.  Pure.

    sample ──▶ candidates: strips, or buckets of keys with hot keys apart, in several numbers
           ──▶ expected rows of each part ──▶ the cheapest

The cost of a layout is the time until its last task ends, counted in rows that one core joins:

    cost = rows with their copies of the slot that ends last x SPARK_SORT where Spark sorts them
         + tasks in a row x TASK_ROWS + tasks x PART_ROWS

Narrow strips spread the work and multiply the halos, wide ones the other way round: with strips w
wide and a reach of R = hi - lo, a row of a side with halos is in 1 + R/w strips on average.  That
is the replication factor (docs/SCALE.md).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .layout import ANCHOR, Group, Halo, Int64s, Layout, Number, Values

TASK_ROWS = 70_000
"""What starting a task costs, in rows that could be joined meanwhile."""
SPARK_SORT = 1.2
"""What a row costs that Spark sorts, beside one that its task sorts in memory."""
PART_ROWS = 1_000
"""What the driver's bookkeeping of a part costs."""
LARGEST_PART = 4_000_000
"""No part is meant to have more rows, so that a lost task is not much to repeat."""
SAMPLED_ROWS = 16
"""A part is cut by at least so many rows of the sample, or its size would be chance."""
FULL = 0.75
"""How full of what fits a part is meant to be: a sample does not tell it exactly."""
PARTS_MAX = 256
"""More at a time would make small pages; what is too large is cut again."""
MOST_HOT = 256
HOT_ROWS = 30
"""A key is called frequent for at least so many rows of the sample."""
UNEVEN = 1.6
"""A strip with so many times the mean can't have been cut: its rows are of one instant."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a side, as far as dividing them goes; each stands for `weights` rows."""

    values: Values
    hashes: Int64s
    weights: Values

    @property
    def rows(self) -> float:
        """How many rows the side has."""
        return float(self.weights.sum())


@dataclass(frozen=True, slots=True)
class Asked:
    """What a join lets the planner do: for each allowed anchor, the halo of every side."""

    halos: tuple[Mapping[str, Halo], ...]
    may_strip: bool
    has_keys: bool
    may_salt: bool
    slots: int
    strips: int | None = None
    unsorted_rows: float = 0.0
    """With so many rows a part need not come sorted: its task sorts them in its memory.  Rows of
    the largest side count twice, because a side has a copy while it is sorted."""
    largest: float = LARGEST_PART
    """No part is meant to have more rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout, with what is expected of it."""

    layout: Layout
    halos: Mapping[str, Halo]
    rows: Mapping[str, float]
    """Rows of each side, without copies."""
    loads: Mapping[str, Values]
    """Expected rows of each side in each part."""
    slots: int
    reason: str
    unsorted_rows: float = 0.0

    @property
    def parts(self) -> int:
        """How many tasks join."""
        return self.layout.parts

    @property
    def total(self) -> Values:
        """Expected rows in each part."""
        found: Values = np.sum(list(self.loads.values()), axis=0)
        return found

    @property
    def replication(self) -> float:
        """Rows that are shuffled for each row that there is."""
        rows = sum(self.rows.values())
        return float(self.total.sum()) / rows if rows else 1.0

    @property
    def cost(self) -> float:
        """Rows that are joined one after the other, task starts included."""
        waves = math.ceil(self.parts / self.slots)
        joined = last_end(self.total, self.slots) * (SPARK_SORT if self.is_sorted else 1)
        return float(joined + waves * TASK_ROWS + self.parts * PART_ROWS)

    def bytes_of_parts(self, weights: Mapping[str, float]) -> Values:
        """What each part takes, if a row of a side takes so much."""
        found: Values = np.sum([weights[name] * rows for name, rows in self.loads.items()], axis=0)
        return found

    def bytes_moved(self, weights: Mapping[str, float], room: float) -> float:
        """What is written and read again, copies included; what does not fit counts more."""
        parts = self.bytes_of_parts(weights)
        return float(parts.sum() + 2 * parts[parts > room].sum())

    @property
    def is_sorted(self) -> bool:
        """Whether Spark sorts the parts; unknown parts may be large."""
        if not self.rows:
            return True
        largest = np.max(list(self.loads.values()), axis=0)
        return float((self.total + largest).max()) > self.unsorted_rows


def last_end(loads: Values, slots: int) -> float:
    """When the last of these tasks ends if whoever is free takes the next.

    >>> last_end(np.array([4.0, 4.0, 4.0]), 2)
    8.0
    """
    busy = [0.0] * slots
    for load in loads.tolist():
        heapq.heapreplace(busy, busy[0] + load)
    return max(busy)


def plan_of(samples: Mapping[str, Sample], asked: Asked) -> Plan:
    """The cheapest plan for these rows."""
    plans = [
        replace(
            expected(layout, halos, samples, asked.slots, reason),
            unsorted_rows=asked.unsorted_rows,
        )
        for halos in asked.halos
        for layout, reason in _candidates(samples, halos, asked)
    ]
    return min(plans, key=lambda plan: plan.cost)


def fitted(
    samples: Mapping[str, Sample], asked: Asked, weights: Mapping[str, float], room: float
) -> Plan:
    """The plan for one machine: parts that fit `room` bytes, with the least to write and to read.

    `weights` are the bytes that a row of each side takes while its part is joined.  What does not
    fit all the same must be written once more, or be walked: it counts three times.
    """
    total = sum(samples[name].rows * weight for name, weight in weights.items())
    least = max(2, math.ceil(total / (FULL * room)))
    most = max(2, sum(len(sample.values) for sample in samples.values()) // SAMPLED_ROWS)
    counts = sorted({min(math.ceil(least * more), PARTS_MAX, most) for more in (1.0, 1.4, 2.0)})
    plans = [
        expected(layout, halos, samples, asked.slots, reason)
        for halos in asked.halos
        for count in counts
        for layout, reason in _layouts(samples, halos, count, asked)
    ]
    return min(plans, key=lambda plan: plan.bytes_moved(weights, room))


def _layouts(
    samples: Mapping[str, Sample], halos: Mapping[str, Halo], count: int, asked: Asked
) -> Iterator[tuple[Layout, str]]:
    # Behind an open halo's nearest row of one key may be the nearest one of another.
    is_open = any(halo.is_open for halo in halos.values())
    if asked.may_strip and not (is_open and asked.has_keys):
        yield _strips(samples, halos, count, asked), "strips, cut by quantiles"
    if asked.has_keys:
        yield _by_key(samples, halos, count, asked), "keys by hash"


def expected(
    layout: Layout, halos: Mapping[str, Halo], samples: Mapping[str, Sample], slots: int,
    reason: str,
) -> Plan:  # fmt: skip
    """A layout with the rows that the samples let expect."""
    loads = {
        name: layout.loads(s.values, s.hashes, s.weights, halos[name])
        for name, s in samples.items()
    }
    rows = {name: sample.rows for name, sample in samples.items()}
    return Plan(layout, halos, rows, loads, slots, reason)


def _candidates(
    samples: Mapping[str, Sample], halos: Mapping[str, Halo], asked: Asked
) -> Iterator[tuple[Layout, str]]:
    rows = sum(sample.rows for sample in samples.values())
    most = max(1, sum(len(sample.values) for sample in samples.values()) // SAMPLED_ROWS)
    least = 1 if asked.strips else min(most, math.ceil(rows / asked.largest))
    wished = 1.6 * rows / asked.unsorted_rows if asked.unsorted_rows else 1.0
    counts = [asked.strips] if asked.strips else _counts(asked.slots, least, most, wished)
    if least == 1 and not asked.strips:
        yield Layout(), "few rows: one task"
    for count in counts:
        yield from _layouts(samples, halos, count, asked)
    if not asked.may_strip and not asked.has_keys:
        yield Layout(), "no bounded attribute and no key to divide by: one task"


def _counts(slots: int, least: int, most: int, wished: float) -> list[int]:
    """Numbers of parts worth a try, in whole waves."""
    times = {1, 2, 4, 8, math.ceil(least / slots), math.ceil(wished / slots)}
    found = {min(most, slots * n) for n in times if slots * n >= min(least, most)}
    return sorted(count for count in found if count > 1) or [1]


def _strips(
    samples: Mapping[str, Sample], halos: Mapping[str, Halo], count: int, asked: Asked
) -> Layout:
    bounds = quantiles(samples.values(), count)
    group = with_seen(Group(0, bounds, (1,) * (len(bounds) + 1)), samples, halos)
    return Layout(shared=_salted(group, samples, halos, count) if asked.may_salt else group)


def with_seen(group: Group, samples: Mapping[str, Sample], halos: Mapping[str, Halo]) -> Group:
    """The group with the rows that open halos reach to, as far as the sample knows them."""
    for name, halo in halos.items():
        if halo.is_open:
            group = group.having_seen(samples[name].values)
    return group


def quantiles(samples: Iterable[Sample], count: int) -> tuple[Number, ...]:
    """Bounds that divide the rows into so many strips, as evenly as ties allow."""
    given = [s for s in samples if len(s.values)]
    if not given or count < 2:
        return ()
    values = np.concatenate([s.values for s in given])
    weights = np.concatenate([s.weights for s in given])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    done = np.cumsum(weights)
    wanted = done[-1] * np.arange(1, count) / count
    at = np.minimum(np.searchsorted(done, wanted, side="right"), len(values) - 1)
    found = np.unique(values[at])
    return tuple(value.item() for value in found if value > values[0])


def _salted(
    group: Group, samples: Mapping[str, Sample], halos: Mapping[str, Halo], count: int
) -> Group:
    """The group with the strips that ties have left too large divided by salts."""
    rows = sum(sample.rows for sample in samples.values())
    anchor = next(name for name, halo in halos.items() if halo.is_anchor)
    mine = samples[anchor]
    layout = Layout(shared=group.moved_to(0))
    load = layout.loads(mine.values, mine.hashes, mine.weights, ANCHOR)
    mean = rows / count
    salts = [math.ceil(n / mean) if n > UNEVEN * mean else 1 for n in load]
    return replace(group, salts=tuple(salts))


def _by_key(
    samples: Mapping[str, Sample], halos: Mapping[str, Halo], count: int, asked: Asked
) -> Layout:
    """Buckets, and strips of their own for keys with more rows than half a part."""
    hashes = np.concatenate([s.hashes for s in samples.values()])
    weights = np.concatenate([s.weights for s in samples.values()])
    keys, inverse = np.unique(hashes, return_inverse=True)
    rows = np.bincount(inverse, weights) if len(keys) else np.zeros(0)
    seen = np.bincount(inverse) if len(keys) else np.zeros(0)
    rows_if_seen = np.where(seen >= HOT_ROWS, rows, 0)
    part = rows.sum() / count if len(keys) else 0.0
    order = [i for i in np.argsort(-rows_if_seen)[:MOST_HOT] if rows_if_seen[i] > part / 2]
    hot = [(int(keys[i]), math.ceil(rows[i] / part)) for i in order]
    if not (asked.may_strip or asked.may_salt):
        hot = [(key, 1) for key, _ in hot]
    groups = [(key, _hot(samples, halos, key, pieces, asked)) for key, pieces in hot]
    frequent = sum(rows[i] for i in order)
    left = float(rows.sum() - frequent) if len(keys) else 0.0
    return Layout.of_keys(max(1, round(left / part)) if part else 1, groups)


def _hot(
    samples: Mapping[str, Sample], halos: Mapping[str, Halo], key: int, pieces: int,
    asked: Asked,
) -> Group:  # fmt: skip
    mine = {name: _only(sample, key) for name, sample in samples.items()}
    bounds = quantiles(list(mine.values()), pieces) if asked.may_strip else ()
    group = with_seen(Group(0, bounds, (1,) * (len(bounds) + 1)), mine, halos)
    return _salted(group, mine, halos, pieces) if asked.may_salt else group


def _only(sample: Sample, key: int) -> Sample:
    mine = sample.hashes == key
    return Sample(sample.values[mine], sample.hashes[mine], sample.weights[mine])
