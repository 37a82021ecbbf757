"""Full or partial: which ships fewer bytes, by the semijoin paper's cost model.

    n rows of a side, each sent r times (halos); a partial tuple has P bytes, a full one F
    p   the chance that a row matches: 1 - ((d - 1) / d) ^ |W|, with d distinct keys and |W| rows of
        the other side in its window (`matwin.operators.semijoin_cost`)

    full      sum of  n r F
    partial   sum of  n r P  +  p n (ID_BYTES executors)  +  p n r F

All of it is measured: n, r, d and |W| from the sample that the strips are cut by, P and F from the
first rows of each side.  d is the number of keys that a random pair would have to agree in: skew
makes it smaller.  Attributes beside the one that strips are cut by are not looked at, so p is
rather too high than too low, and ``auto`` stays with full when in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from math import prod

import numpy as np
import pyarrow as pa

from matwin.operators.semijoin_cost import match_probability
from matwin.scheduler.division import Plan, Sample
from matwin.scheduler.layout import Halo, Values
from matwin.storage.units import format_size

from .exchange import can_hash
from .prepared import Prepared
from .weigh import widths

ID_BYTES = 9
WORTH_BYTES = 64 << 20
"""Partial shipping reads the sources twice and runs two joins; below this it never pays."""
WORTH_RATIO = 1.5
GUESSED = 20
"""Bytes of a text, for telling whether it is worth looking."""


@dataclass(frozen=True, slots=True)
class Shipping:
    """How rows are shipped, and why."""

    ship: str
    reason: str
    requests: float | None = None
    """How many rows are expected to match."""


def shipping_of(prepared: Prepared) -> Shipping:
    """What was asked for, or what the cost model says."""
    asked = prepared.options.ship
    if prepared.asking is None or not all(map(_has_ids, prepared.frames, repeat(prepared))):
        return Shipping("full", "nothing that Spark could hash tells which rows match")
    if asked == "partial":
        return _as_asked(prepared)
    if asked != "auto":
        return Shipping(asked, "as asked for")
    if not any(_has_payload(prepared, side) for side in prepared.frames):
        return Shipping("full", "rows have little more than what they are joined by")
    if not prepared.plan.rows:
        return Shipping("full", "strips were given, so the data was not looked at")
    samples, plan = prepared.looked.samples, prepared.plan
    most = sum(plan.rows.values()) * plan.replication * _guessed_width(prepared)
    if most < WORTH_BYTES:
        return Shipping(
            "full", f"about {format_size(int(most))} in all: too little to pay for more"
        )
    if prepared.doubts:
        return Shipping("full", f"partial reads twice, and {_doubted(prepared)}")
    return _cheaper(prepared, plan, samples)


def _as_asked(prepared: Prepared) -> Shipping:
    """Partial, though it may cost more; what may differ when it is read again is pinned."""
    plan, reason = prepared.plan, "as asked for"
    if prepared.doubts:
        reason += f"; pinned on the executors first, because {_doubted(prepared)}"
    if not plan.rows:
        return Shipping("partial", reason)
    chances = _chances(plan, prepared.looked.samples)
    matching = sum(chances[side] * rows for side, rows in plan.rows.items())
    return Shipping("partial", reason, requests=matching)


def _doubted(prepared: Prepared) -> str:
    """Which sides may differ, and why."""
    told = ", ".join(f"{side} ({doubt})" for side, doubt in prepared.doubts.items())
    return f"these may give other rows then: {told}"


def _has_ids(side: str, prepared: Prepared) -> bool:
    fields = prepared.frames[side].fields
    return all(can_hash(fields[name].dataType) for name in prepared.needed[side])


def _has_payload(prepared: Prepared, side: str) -> bool:
    schema = prepared.frames[side].schema
    needed = [schema.field(name).type for name in prepared.needed[side]]
    return sum(map(_width, schema.types)) >= 2 * sum(map(_width, needed))


def _guessed_width(prepared: Prepared) -> float:
    widths = [10 * sum(map(_width, frame.schema.types)) for frame in prepared.frames.values()]
    return max(widths)


def _width(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return GUESSED


def _cheaper(prepared: Prepared, plan: Plan, samples: Mapping[str, Sample]) -> Shipping:
    full = partial = requests = 0.0
    chances = _chances(plan, samples)
    for side, frame in prepared.frames.items():
        rows, sent = plan.rows[side], float(plan.loads[side].sum())
        whole, narrow = widths(frame, prepared.needed[side])
        narrow += ID_BYTES
        matching = chances[side] * rows
        full += sent * whole
        partial += sent * narrow + matching * ID_BYTES * plan.slots
        partial += matching * (sent / rows if rows else 1) * whole
        requests += matching
    ship = "partial" if full > WORTH_RATIO * partial and full - partial > WORTH_BYTES else "full"
    reason = (
        f"about {format_size(int(full))} full, {format_size(int(partial))} partial; chance of a "
        "match " + ", ".join(f"{chance:.2g} ({side})" for side, chance in chances.items())
    )
    return Shipping(ship, reason, requests)


def _chances(plan: Plan, samples: Mapping[str, Sample]) -> dict[str, float]:
    """For each side, the chance that a row matches rows of all others."""
    found = {}
    for side, sample in samples.items():
        others = [other for other in samples if other != side]
        found[side] = prod(
            match_probability(distinct_keys(sample, samples[other]), window)
            for other in others
            for window in (window_rows(sample, samples[other], between(plan, side, other)),)
        )
    return found


def between(plan: Plan, side: str, other: str) -> Halo:
    """How far rows of the other side may be from those of this one."""
    mine, its = plan.halos[side], plan.halos[other]
    return Halo(its.lo - mine.hi, its.hi - mine.lo)


def distinct_keys(one: Sample, other: Sample) -> float:
    """One through the chance that a random pair has the same key."""
    keys, counts = _shares(one)
    others, theirs = _shares(other)
    _, at, its = np.intersect1d(keys, others, return_indices=True)
    chance = float((counts[at] * theirs[its]).sum())
    return 1 / chance if chance else max(len(keys), len(others), 1)


def _shares(sample: Sample) -> tuple[Values, Values]:
    keys, inverse = np.unique(sample.hashes, return_inverse=True)
    counts = np.bincount(inverse, sample.weights, len(keys))
    return keys, counts / max(counts.sum(), 1)


def window_rows(one: Sample, other: Sample, halo: Halo) -> float:
    """Rows of the other side that a row of this one has in its window, on average."""
    if not len(one.values) or not len(other.values):
        return 0.0
    order = np.argsort(other.values, kind="stable")
    values = other.values[order].astype(np.float64)
    below = np.concatenate([[0.0], np.cumsum(other.weights[order])])
    mine = one.values.astype(np.float64)
    begin = np.searchsorted(values, mine + float(halo.lo), side="left")
    end = np.searchsorted(values, mine + float(halo.hi), side="right")
    return float(np.average(below[end] - below[begin], weights=one.weights))
