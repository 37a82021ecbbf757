"""Running the semijoin paper's joins: two streams, two nodes, one setting at a time.

    draw      two streams of equally frequent values at even gaps, in order of time
    run       warm up until both windows are full, then count messages and bytes, and take the time
    steps     what a probe, an update and a replacement take here: the cost model's constants

The paper slept for as long as a transmission would take; here the link's counts are turned into
seconds by the same formula.  Processing is the processor's time of this thread.  Costs are seconds
for each second of the streams: the paper's unit-time cost.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from matwin.operators.semijoin_cost import Processing, Statistics
from matwin.operators.semijoin_link import Counts, Kind, Link
from matwin.operators.semijoin_nodes import SemiJoin, SimpleJoin
from matwin.operators.semijoin_window import Last, Row, Window

from .measures import Disagreement

ATTRIBUTE_BYTES = 5
SPJ, SMJ, LEAN = "SPJ", "SMJ", "SMJ, nothing twice"
KINDS: tuple[Kind, ...] = ("full", "partial", "ask one", "ask all", "reply")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the paper varies, with its defaults."""

    distinct: int = 10_000
    full_attributes: int = 20
    partial_attributes: int = 2
    bytes_per_second: float = 1000.0
    window: int = 500
    rate: float = 500.0
    latency: float = 0.005
    block: int = 1
    """Tuples, of both streams, that are handled at once: the paper's future work."""

    @property
    def statistics(self) -> Statistics:
        """The cost model's view of it."""
        return Statistics(
            self.rate, self.rate, self.full_attributes * ATTRIBUTE_BYTES,
            self.partial_attributes * ATTRIBUTE_BYTES, self.latency, self.bytes_per_second,
            self.distinct, self.window, self.window,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """What a join did after its windows were full."""

    line: str
    seconds: float
    """Of the streams."""
    tuples: int
    transmission: float
    processing: float
    messages: dict[str, int]
    size_bytes: int
    replied: int
    """Full tuples that were sent on request."""
    results: int
    mark: int
    mixed: int
    """Requests that are made because the newest, and not the oldest, tuple is looked at."""

    @property
    def unit_transmission(self) -> float:
        """Seconds on the link for a second of the streams."""
        return self.transmission / self.seconds

    @property
    def unit_processing(self) -> float:
        """Seconds at the nodes for a second of the streams."""
        return self.processing / self.seconds


Arrivals = list[tuple[bool, Row]]


def draw(setting: Setting, rows: int, seed: int) -> Arrivals:
    """So many tuples of each stream, in order of time."""
    chance = np.random.default_rng(seed)
    full = setting.full_attributes * ATTRIBUTE_BYTES
    partial = setting.partial_attributes * ATTRIBUTE_BYTES
    arrivals: Arrivals = []
    for is_first in (True, False):
        times = ((np.arange(rows) + (0.5 if is_first else 1.0)) / setting.rate).tolist()
        keys = chance.integers(0, setting.distinct, rows).tolist()
        arrivals += [
            (is_first, Row(number, at, key, number, full, partial))
            for number, (at, key) in enumerate(zip(times, keys, strict=True))
        ]
    return sorted(arrivals, key=lambda one: one[1].time)


def run(line: str, setting: Setting, arrivals: Arrivals, warm: int) -> Ran:
    """One join over all arrivals; the first `warm` of them only fill the windows."""
    link = Link(setting.latency, setting.bytes_per_second)
    windows = Last(setting.window, setting.window)
    join = SimpleJoin(windows, link) if line == SPJ else SemiJoin(
        windows, link, resend=line == SMJ
    )  # fmt: skip
    _feed(join, _blocks(arrivals[:warm], setting.block))
    before = {kind: link.count(kind=kind) for kind in KINDS}
    spent_before, found_before = link.seconds, len(join.node_2.pairs)
    mixed_before = getattr(join.node_2, "mixed", 0)
    took = _feed(join, _blocks(arrivals[warm:], setting.block))
    counts = {kind: _since(link.count(kind=kind), before[kind]) for kind in KINDS}
    pairs = join.node_2.pairs[found_before:]
    return Ran(
        line, arrivals[-1][1].time - arrivals[warm - 1][1].time, len(arrivals) - warm,
        link.seconds - spent_before, took, {k: c.messages for k, c in counts.items()},
        sum(c.size_bytes for c in counts.values()), counts["reply"].tuples, len(pairs),
        sum(map(hash, pairs)) % 2**64, getattr(join.node_2, "mixed", 0) - mixed_before,
    )  # fmt: skip


def _blocks(arrivals: Arrivals, block: int) -> list[tuple[list[Row], list[Row]]]:
    """So many arrivals at a time, those of stream 1 and those of stream 2."""
    parts = [arrivals[start : start + block] for start in range(0, len(arrivals), block)]
    return [
        (
            [row for is_first, row in part if is_first],
            [row for is_first, row in part if not is_first],
        )
        for part in parts
    ]


def _feed(join: SimpleJoin | SemiJoin, blocks: list[tuple[list[Row], list[Row]]]) -> float:
    """Hand over all blocks; the seconds that it took."""
    insert_1, insert_2, settle = join.node_1.insert, join.node_2.insert, join.link.settle
    gc.disable()  # a million pairs that stay would be looked through again and again
    began = time.thread_time()
    for of_first, of_second in blocks:
        if of_first:
            insert_1(of_first)
            settle()
        if of_second:
            insert_2(of_second)
            settle()
    took = time.thread_time() - began
    gc.enable()
    return took


def _since(now: Counts, before: Counts) -> Counts:
    return Counts(
        now.messages - before.messages, now.tuples - before.tuples,
        now.size_bytes - before.size_bytes,
    )  # fmt: skip


def best_of(repeat: int, line: str, setting: Setting, arrivals: Arrivals, warm: int) -> Ran:
    """The run with the shortest processing; the counts of all are the same."""
    return min(
        (run(line, setting, arrivals, warm) for _ in range(repeat)), key=lambda ran: ran.processing
    )


def agree(what: str, runs: Sequence[Ran]) -> None:
    """Raise `Disagreement` unless all found the same."""
    if len({(ran.results, ran.mark) for ran in runs}) > 1:
        told = ", ".join(f"{ran.line} {ran.results:,}" for ran in runs)
        raise Disagreement(f"{what}: results differ in number or in kind: {told}")


# ── the constants of the cost model ──────────────────────────────────────────────────────────


def steps(setting: Setting, rows: int, seed: int) -> Processing:
    """What the single steps take on this machine, in a full window of this setting."""
    tuples = [row for is_first, row in draw(setting, rows + setting.window, seed) if is_first]
    window: Window[Row] = Window(setting.window, None)
    for row in tuples[: setting.window]:
        window.insert(row)
    probes = tuples[setting.window :]

    def first(row: Row) -> None:
        same = window.of(row.key)
        if same and same[-1]:
            pass

    def every(row: Row) -> None:
        [(one.payload, row.payload) for one in window.of(row.key)]

    def update(row: Row) -> None:
        window.insert(row)
        window.expire(None)

    def replace(row: Row) -> None:
        found = {row.number: row}
        row.payload = found[row.number].payload

    return Processing(*(_each(step, probes) for step in (first, every, update, replace)))


def _each(step: Callable[[Row], None], rows: Sequence[Row]) -> float:
    began = time.thread_time()
    for row in rows:
        step(row)
    return (time.thread_time() - began) / len(rows)
