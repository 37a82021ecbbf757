"""The experiments of the W-join papers on the compiled algorithms, tuple by tuple.

    shops       service time over the tuples that have come, 2 to 4 shops      (figures 7, 8; 2002)
    streams     service time over the number of streams                        (figure 9 a and b)
    switching   service time while one stream changes its rate                 (figure 9 c)
    bounds      windows that differ: GCA, LCA, graph                           (figure 13)
    path        windows along a path, both ways: LCA, NLW along the path       (figure 14)
    throughput  the most tuples a second, over the number of streams           (2003, throughput)
    response    response time over the arrival rate                            (2003, response)
    output      time until so many results are out, shops                      (2003, output)

Every algorithm of an experiment has to find the same results, or the experiment stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from .paper_window_data import HOUR, Floats, Ints, Streams, by_time, round_robin, shops, switching
from .paper_window_data import synthetic as draw
from .paper_window_runs import (
    FEW_HASH,
    FINE_PORTION,
    GCA,
    GRAPH,
    HW,
    LCA,
    MW,
    NLW,
    PATH_NLW,
    RIPPLE,
    XJOIN,
    Algorithm,
    Served,
    agree,
    best_of,
    directed,
    limits_of,
    respond,
    uniform,
)

RATE = 1_000.0
SLOW, EVERY = 10.0, 100
BEW, FEW = "BEW (backward)", "FEW (forward)"
IN_TURN, IN_TIME = "variable rates, in turn", "variable rates, in order of time"
COMPARABLE = "comparable rates"
PATH_WINDOWS = (0.3, 0.3, 0.3)
PATH_RATES = {COMPARABLE: (1000, 950, 1050, 1000), "variable rates": (1000, 100, 500, 250)}
EVEN_SKEW = 0.5
"""Of shops of which many are joined: with more, six of them have thousands of results a tuple."""
GROWTH = 1.5
"""How the rate is raised until a join can't follow."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one line of one panel of a figure."""

    experiment: str
    panel: str
    line: str
    x: float
    y: float
    results: int | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything is measured."""

    days: float = 2.0
    streams: tuple[int, ...] = (2, 3, 4, 5, 6)
    seconds: float = 20.0
    rows: int = 10_000
    window: float = 1.0
    values: int = 500
    """Integers of the synthetic streams: as few as make many tuples join."""
    rate: float = 8_000.0
    """Where the search for the highest rate begins."""
    busy_window: float = 0.1
    repeat: int = 2
    seed: int = 0


QUICK = Size(0.05, (2, 3), 0.6, 300, 0.2, 40, 50_000.0, 0.002, 1)


# ── the report of 2002 ───────────────────────────────────────────────────────────────────────


def over_time(size: Size) -> Iterator[Point]:
    """Figures 7 and 8, and with them figure 8 of the later paper: logs of shops, replayed."""
    for count in (2, 3, 4):
        streams = shops(count, size.days, size.seed)
        arrivals, windows = round_robin(streams), [uniform(count, HOUR)]
        runs = []
        for figure, algorithms in (("loops", (RIPPLE, NLW, MW)), ("hash", (XJOIN, HW))):
            for algorithm in algorithms:
                served = best_of(size.repeat, algorithm, streams, arrivals, windows)
                runs.append(served)
                yield from _service("shops", f"{figure}, {count} streams", served)
        forward = best_of(size.repeat, FEW_HASH, streams, arrivals, windows)
        agree(f"{count} shops, seed {size.seed}", [*runs, forward])
        for line, served in ((BEW, runs[-1]), (FEW, forward)):
            yield from _output(f"{count} streams", line, served)


def _service(experiment: str, panel: str, served: Served) -> Iterator[Point]:
    seen = 0
    for seconds, tuples, results in zip(served.seconds, served.tuples, served.results, strict=True):
        seen += tuples
        yield Point(experiment, panel, served.algorithm, seen, 1e6 * seconds / tuples, results)


def _output(panel: str, line: str, served: Served) -> Iterator[Point]:
    """Seconds until so many results were out."""
    spent = np.cumsum(served.seconds)
    for at in np.unique(np.linspace(0, len(spent) - 1, 25).astype(int)).tolist():
        results = served.results[at]
        yield Point("output", panel, line, results, float(spent[at]), results)


def over_streams(size: Size) -> Iterator[Point]:
    """Figure 9 a and b."""
    for count in size.streams:
        rates = np.linspace(RATE, RATE / 10, count).tolist()
        streams = draw(rates, size.values, size.seconds, size.seed)
        for panel, arrivals in ((IN_TURN, round_robin(streams)), (IN_TIME, by_time(streams))):
            yield from _compare(
                "streams", panel, count, (NLW, MW, HW), streams, arrivals,
                [uniform(count, size.window)], size,
            )  # fmt: skip
        logs = shops(count, size.days / 2, size.seed, skew=EVEN_SKEW)
        yield from _compare(
            "streams", f"{COMPARABLE} (shops)", count, (NLW, MW, HW), logs, round_robin(logs),
            [uniform(count, HOUR)], size,
        )  # fmt: skip


def _compare(
    experiment: str, panel: str, place: float, algorithms: Sequence[Algorithm], streams: Streams,
    arrivals: Ints, windows: list[Floats], size: Size,
) -> Iterator[Point]:  # fmt: skip
    """The service time of some algorithms at one place."""
    runs = [best_of(size.repeat, one, streams, arrivals, windows) for one in algorithms]
    agree(f"{experiment}, {panel}, {place:g}, seed {size.seed}", runs)
    for run in runs:
        yield Point(experiment, panel, run.algorithm, place, run.microseconds, run.found[0])


def while_switching(size: Size) -> Iterator[Point]:
    """Figure 9 c: four streams, the last of them at one rate, then at two."""
    window, values = size.window / 5, size.values // 5
    for panel, slow in ((COMPARABLE, RATE), ("D switches its rate", SLOW)):
        streams = switching(RATE, slow, EVERY, 4, values, size.rows, size.seed)
        arrivals = round_robin(streams)
        runs = [
            best_of(size.repeat, one, streams, arrivals, [uniform(4, window)])
            for one in (NLW, MW, HW)
        ]
        agree(f"switching, {panel}, seed {size.seed}", runs)
        for run in runs:
            yield from _service("switching", panel, run)


def unequal_windows(size: Size) -> Iterator[Point]:
    """Figure 13: all pairs have the smaller window, one has 1 s."""
    streams = draw([RATE] * 4, size.values, size.seconds / 2, size.seed)
    for place, small in enumerate((0.8, 0.1)):
        yield from _compare(
            "bounds", f"windows of {small:g} s, one of 1 s", place, (GCA, LCA, GRAPH), streams,
            by_time(streams), [one_pair_larger(4, small * size.window, size.window)], size,
        )  # fmt: skip


def one_pair_larger(count: int, small: float, large: float) -> Floats:
    """The limits of a clique of which one pair has a larger window."""
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    return limits_of(count, {**dict.fromkeys(pairs, small), (0, 1): large})


def along_a_path(size: Size) -> Iterator[Point]:
    """Figure 14."""
    windows = directed([window * size.window for window in PATH_WINDOWS])
    for place, (panel, rates) in enumerate(PATH_RATES.items()):
        streams = draw(rates, size.values // 2, size.seconds / 2, size.seed)
        yield from _compare(
            "path", panel, place, (LCA, PATH_NLW), streams, round_robin(streams), windows, size
        )


# ── the paper of 2003 ────────────────────────────────────────────────────────────────────────

KINDS = {"nested loops": ((BEW, NLW), (FEW, MW)), "hash": ((BEW, HW), (FEW, FEW_HASH))}


def over_rates(size: Size) -> Iterator[Point]:
    """The highest rate that each join can follow."""
    for count in size.streams[:4]:
        for panel, lines in KINDS.items():
            for line, algorithm in lines:
                most = highest_rate(algorithm, count, size)
                yield Point("throughput", panel, line, count, most)


def highest_rate(algorithm: Algorithm, count: int, size: Size) -> float:
    """Tuples a second of all streams at which the work of a second takes a second."""
    rate, before = size.rate / count, None
    while True:
        load = count * rate * _seconds_a_tuple(algorithm, count, rate, size)
        if load >= 1:
            break
        before, rate = (rate, load), rate * GROWTH
    if before is None:
        return count * rate / load
    # The load grows like a power of the rate between two rates.
    share = -log(before[1]) / (log(load) - log(before[1]))
    return count * exp(log(before[0]) + share * log(GROWTH))


def _seconds_a_tuple(algorithm: Algorithm, count: int, rate: float, size: Size) -> float:
    """In a steady state: the windows are full after the first third."""
    streams = draw([rate] * count, 8 * size.values, 3 * size.busy_window, size.seed)
    windows = [uniform(count, size.busy_window)]
    run = best_of(size.repeat, algorithm, streams, by_time(streams), windows)
    filled = len(run.seconds) // 3
    return sum(run.seconds[filled:]) / sum(run.tuples[filled:])


def over_arrivals(size: Size) -> Iterator[Point]:
    """The response time of the hash joins, up to beyond what the backward one can follow."""
    count = 3
    most = highest_rate(HW, count, size)
    for share in (0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25):
        total = share * most
        seconds = max(3 * size.busy_window, 300 / total)
        streams = draw([total / count] * count, 8 * size.values, seconds, size.seed)
        arrivals, windows = by_time(streams), [uniform(count, size.busy_window)]
        runs = [
            best_of(size.repeat, algorithm, streams, arrivals, windows, FINE_PORTION)
            for _, algorithm in KINDS["hash"]
        ]
        agree(f"response, {total:.0f} a second, seed {size.seed}", runs)
        for (line, _), run in zip(KINDS["hash"], runs, strict=True):
            waited = respond(run, streams, arrivals)
            # What comes last waits for an end that a stream does not have.
            steady = waited[len(waited) // 3 : -len(waited) // 20]
            mean = 1e3 * float(np.nanmean(steady))
            yield Point("response", "compiled, tuple by tuple", line, total, mean, run.found[0])
