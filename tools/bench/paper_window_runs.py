"""Running the papers' window joins: which kernel with which rule, and how long every tuple takes.

    limits_of    windows of pairs, symmetric; `directed` along a path
    Algorithm    NLW, HW, MW, … : a kernel, and how its rule follows from the limits
    serve        arrivals in portions of 1,000, each timed: the papers' service time per tuple
    respond      arrivals on a clock of their own: what every tuple waits and takes

Times are the processor's, so that what else the machine does is in none of them.

Responses are reckoned, not waited for: the time that a portion has taken is measured, its tuples
start when they have come and those before are done, and they are done after their share of it.  A
forward join answers a tuple only when its period is complete; `done` says with which arrival.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .measures import Disagreement
from .paper_window_data import Floats, Ints, Streams
from .paper_window_kernels import PURGE_EVERY, Rule, backward, forward, new_state

PORTION = 1_000
FINE_PORTION = 50


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to join, as the papers call it.

    Widths of a forward join: "global" for the largest window everywhere, "local" for the largest of
    each stream.
    """

    name: str
    is_forward: bool = False
    is_hash: bool = False
    purge_every: int = 1
    widths: str = "global"
    is_path: bool = False

    def rules(self, alternatives: Sequence[Floats]) -> list[Rule]:
        """What to run; a backward join of a path both ways is two runs, one for each way."""
        if self.is_forward:
            return [self._rule(list(alternatives), is_refined=True)]
        return [self._rule([limits], is_refined=False) for limits in alternatives]

    def _rule(self, alternatives: list[Floats], *, is_refined: bool) -> Rule:
        keeps = [closed(limits) for limits in alternatives]
        # What may stay for one of the alternatives has to stay.
        keep = np.maximum.reduce(keeps)
        count = len(keep)
        # The papers take windows as they are given, and reckon only those that are missing.
        given = [
            np.where(np.isfinite(limits), limits, known)
            for limits, known in zip(alternatives, keeps, strict=True)
        ]
        reach = np.maximum.reduce(given)
        reach = np.maximum(reach, reach.T)
        width = reach.max(axis=1) if self.widths == "local" else np.full(count, reach.max())
        is_uniform = len(alternatives) == 1 and _is_uniform(alternatives[0])
        visit = along_path(count) if self.is_path else in_turn(count)
        return Rule(
            np.stack(alternatives), keep, width, visit, self.purge_every, self.is_hash,
            is_refined and not is_uniform,
        )  # fmt: skip


NLW = Algorithm("NLW")
HW = Algorithm("HW", is_hash=True)
MW = Algorithm("MW", is_forward=True)
FEW_HASH = Algorithm("FEW, hash", is_forward=True, is_hash=True)
RIPPLE = Algorithm("ripple join", purge_every=PURGE_EVERY)
XJOIN = Algorithm("XJoin", is_hash=True, purge_every=PURGE_EVERY)
GCA = Algorithm("GCA", is_forward=True)
LCA = Algorithm("LCA", is_forward=True, widths="local")
GRAPH = Algorithm("graph")
PATH_NLW = Algorithm("NLW along the path", is_path=True)


# ── windows ──────────────────────────────────────────────────────────────────────────────────


def uniform(count: int, window: float) -> Floats:
    """One window for every pair."""
    limits = np.full((count, count), float(window))
    np.fill_diagonal(limits, 0.0)
    return limits


def limits_of(count: int, windows: dict[tuple[int, int], float]) -> Floats:
    """Symmetric windows of some pairs; the others have none."""
    limits = np.full((count, count), np.inf)
    np.fill_diagonal(limits, 0.0)
    for (one, other), window in windows.items():
        limits[one, other] = limits[other, one] = window
    return limits


def directed(windows: Sequence[float]) -> list[Floats]:
    """A path, and the same path backward."""
    count = len(windows) + 1
    forward_limits = np.full((count, count), np.inf)
    np.fill_diagonal(forward_limits, 0.0)
    for at, window in enumerate(windows):
        forward_limits[at, at + 1], forward_limits[at + 1, at] = window, 0.0
    return [forward_limits, forward_limits.T.copy()]


def closed(limits: Floats) -> Floats:
    """The limits that follow, by shortest paths."""
    found = limits.copy()
    for via in range(len(found)):
        found = np.minimum(found, found[:, via, None] + found[None, via, :])
    return found


def _is_uniform(limits: Floats) -> bool:
    others = limits[~np.eye(len(limits), dtype=bool)]
    return bool((others == others[0]).all())


def in_turn(count: int) -> Ints:
    """A, then B, C, D; B, then C, D, A: as the paper goes round."""
    return np.array([[(at + step) % count for step in range(1, count)] for at in range(count)])


def along_path(count: int) -> Ints:
    """To one end of the path first, then to the other: each is a neighbour of one before it."""
    return np.array(
        [[*range(at - 1, -1, -1), *range(at + 1, count)] for at in range(count)], np.int64
    )


# ── service time ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Served:
    """What a join did: seconds and tuples of each portion, and the results after it."""

    algorithm: str
    seconds: list[float]
    tuples: list[int]
    results: list[int]
    tested: int
    mark: int
    done: Ints
    """With which arrival every tuple was joined; -1 where it never had to be."""

    @property
    def microseconds(self) -> float:
        """The service time of a tuple."""
        return 1e6 * sum(self.seconds) / max(sum(self.tuples), 1)

    @property
    def found(self) -> tuple[int, int]:
        """How many results, and which, hashed."""
        return (self.results[-1] if self.results else 0), self.mark


def serve(
    algorithm: Algorithm, streams: Streams, arrivals: Ints, alternatives: Sequence[Floats],
    portion: int = PORTION,
) -> Served:  # fmt: skip
    """Run a join over all arrivals, portion by portion."""
    runs = [
        _serve_rule(algorithm, rule, streams, arrivals, portion)
        for rule in algorithm.rules(alternatives)
    ]
    if len(runs) == 1:
        return runs[0]
    return Served(
        algorithm.name,
        [sum(parts) for parts in zip(*(run.seconds for run in runs), strict=True)],
        runs[0].tuples,
        [sum(parts) for parts in zip(*(run.results for run in runs), strict=True)],
        sum(run.tested for run in runs),
        sum(run.mark for run in runs) % 2**64,
        runs[0].done,
    )


def _serve_rule(
    algorithm: Algorithm, rule: Rule, streams: Streams, arrivals: Ints, portion: int
) -> Served:
    kernel = forward if algorithm.is_forward else backward
    state = new_state(streams, algorithm.is_hash)
    done = np.full(streams.rows, -1)
    kernel(streams, arrivals[:0], rule, state, done)  # compiles
    seconds, tuples, results = [], [], []
    for start in range(0, len(arrivals), portion):
        part = arrivals[start : start + portion]
        began = time.thread_time()
        kernel(streams, part, rule, state, done)
        seconds.append(time.thread_time() - began)
        tuples.append(len(part))
        results.append(int(state.counts[0]))
    return Served(
        algorithm.name, seconds, tuples, results, int(state.counts[1]), int(state.mark[0]), done
    )


def best_of(
    repeat: int, algorithm: Algorithm, streams: Streams, arrivals: Ints,
    alternatives: Sequence[Floats], portion: int = PORTION,
) -> Served:  # fmt: skip
    """Of some runs, every portion's shortest time."""
    runs = [serve(algorithm, streams, arrivals, alternatives, portion) for _ in range(repeat)]
    shortest = np.min([run.seconds for run in runs], axis=0).tolist() if runs[0].seconds else []
    first = runs[0]
    return Served(
        first.algorithm, shortest, first.tuples, first.results, first.tested, first.mark, first.done
    )


def agree(what: str, runs: Sequence[Served]) -> None:
    """Raise `Disagreement` unless all found the same."""
    if len({run.found for run in runs}) > 1:
        told = ", ".join(f"{run.algorithm} {run.found[0]:,}" for run in runs)
        raise Disagreement(f"{what}: results differ in number or in kind: {told}")


# ── response time ────────────────────────────────────────────────────────────────────────────


def respond(served: Served, streams: Streams, arrivals: Ints) -> Floats:
    """What each tuple waits and takes, in seconds, in order of arrival; NaN where it is dropped
    without being joined.  Arrivals come at the times of their tuples."""
    rows = _rows_of(streams, arrivals)
    came = streams.times[rows]
    cost = np.repeat(np.array(served.seconds) / np.array(served.tuples), np.array(served.tuples))
    # finish_e = max(came_e, finish_before) + cost_e, without a loop
    spent = np.cumsum(cost)
    finish = spent + np.maximum.accumulate(came - (spent - cost))
    joined_with = served.done[rows]
    return np.where(joined_with < 0, np.nan, finish[joined_with] - came)


def _rows_of(streams: Streams, arrivals: Ints) -> Ints:
    """The tuple of each arrival."""
    rows = np.empty(len(arrivals), np.int64)
    for stream in range(streams.ways):
        where = np.flatnonzero(arrivals == stream)
        rows[where] = streams.offset[stream] + np.arange(len(where))
    return rows
