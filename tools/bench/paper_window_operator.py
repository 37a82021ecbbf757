"""The same questions put to `matwin.window_join` on live streams: its algorithms, bounds and paths.

    batches   100 tuples of each stream at a time: a batch costs the operator about half a
              millisecond whatever it holds, which would hide everything at one tuple a batch
    paced     tuples at a rate, by the clock: how long until the results of a tuple are out,
              seen from outside, so that waiting for a period to be complete is in it

What it finds is compared with what the papers' algorithms find on the same streams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

import matwin

from .joins import drain, timed
from .measures import Disagreement
from .paper_window_data import Floats, Streams, by_time, tables
from .paper_window_data import synthetic as draw
from .paper_window_figures import (
    BEW,
    FEW,
    PATH_RATES,
    PATH_WINDOWS,
    RATE,
    Point,
    Size,
    one_pair_larger,
)
from .paper_window_runs import FEW_HASH, GRAPH, PATH_NLW, directed, serve, uniform

NAMES = "abcdef"
BATCH_ROWS = 100
ALGORITHMS = ("backward-nested-loop", "backward-hash", "forward-nested-loop", "forward-hash")
BOUNDS = ("global", "local", "graph")
PACED_RATES = (60, 150, 500, 1_500, 3_000)
PACED_SECONDS = 1.5
PACED_WINDOW = 0.5


def over_algorithms(size: Size) -> Iterator[Point]:
    """Service time of each algorithm, over the number of streams."""
    for count in size.streams[:3]:
        streams = draw([RATE] * count, size.values, size.seconds / 4, size.seed)
        windows = [uniform(count, size.window)]
        expected = serve(FEW_HASH, streams, by_time(streams), windows).found[0]
        for algorithm in ALGORITHMS:
            yield _measured(
                "operator", "live, 100 tuples a batch", algorithm, count, streams, expected, size,
                windows=size.window, algorithm=algorithm,
            )  # fmt: skip


def over_bounds(size: Size) -> Iterator[Point]:
    """Windows that differ, with each kind of bounds; forward, as the paper has it."""
    streams = draw([RATE] * 4, size.values, size.seconds / 4, size.seed)
    for place, small in enumerate((0.8, 0.1)):
        limits = one_pair_larger(4, small * size.window, size.window)
        expected = serve(GRAPH, streams, by_time(streams), [limits]).found[0]
        windows = {
            (NAMES[one], NAMES[other]): float(limits[one, other])
            for one in range(4)
            for other in range(one + 1, 4)
        }
        for bounds in BOUNDS:
            algorithm = "backward-nested-loop" if bounds == "graph" else "forward-nested-loop"
            yield _measured(
                "operator-bounds", f"windows of {small:g} s, one of 1 s", bounds, place, streams,
                expected, size, windows=windows, bounds=bounds, algorithm=algorithm,
            )  # fmt: skip


def over_paths(size: Size) -> Iterator[Point]:
    """A path both ways."""
    gaps = [window * size.window for window in PATH_WINDOWS]
    for place, (panel, rates) in enumerate(PATH_RATES.items()):
        streams = draw(rates, size.values // 2, size.seconds / 4, size.seed)
        expected = serve(PATH_NLW, streams, by_time(streams), directed(gaps)).found[0]
        path = matwin.path([*NAMES[:4]], windows=gaps, both_ways=True)
        for bounds in ("local", "graph"):
            algorithm = "backward-nested-loop" if bounds == "graph" else "forward-nested-loop"
            yield _measured(
                "operator-path", panel, bounds, place, streams, expected, size,
                windows=path, bounds=bounds, algorithm=algorithm,
            )  # fmt: skip


def _measured(
    experiment: str, panel: str, line: str, place: float, streams: Streams, expected: int,
    size: Size, **asked: Any,
) -> Point:  # fmt: skip
    parts = tables(streams)

    def join() -> int:
        live = {
            name: matwin.stream(_batches(part), order="sorted", schema=part.schema)
            for name, part in zip(NAMES, parts, strict=False)
        }
        return drain(matwin.window_join(live, time="t", by="k", threads=1, **asked))

    found = timed(join, size.repeat + 1)  # the first compiles
    if found.rows_out != expected:
        raise Disagreement(
            f"{experiment}, {panel}, {line}, seed {size.seed}: the operator finds "
            f"{found.rows_out:,} rows, the papers' algorithms {expected:,}"
        )
    return Point(experiment, panel, line, place, 1e6 * found.seconds / streams.rows, expected)


def _batches(part: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(part.combine_chunks().to_batches(max_chunksize=BATCH_ROWS))


# ── response time ────────────────────────────────────────────────────────────────────────────


def over_paces(size: Size, rates: tuple[int, ...] = PACED_RATES) -> Iterator[Point]:
    """How long after its youngest tuple was due a result is out, for both ways to join by hash."""
    count = 3
    seconds = PACED_SECONDS if size.seconds > 1 else 0.2
    _delays(count, rates[0], seconds, size.seed, "backward-hash")  # compiles
    _delays(count, rates[0], seconds, size.seed, "forward-hash")
    for total in rates:
        found = {
            line: _delays(count, total, seconds, size.seed, algorithm)
            for line, algorithm in ((BEW, "backward-hash"), (FEW, "forward-hash"))
        }
        if len({len(delays) for delays in found.values()}) > 1:
            raise Disagreement(f"paced, {total} a second, seed {size.seed}: results differ")
        for line, delays in found.items():
            mean = 1e3 * float(delays.mean()) if len(delays) else float("nan")
            yield Point("response", "the operator, by the clock", line, total, mean, len(delays))


def _delays(count: int, total: float, seconds: float, seed: int, algorithm: str) -> Floats:
    """The delay of every result, in seconds."""
    # As many values that a tuple has a few results at every rate.
    values = max(round(total / count * PACED_WINDOW / 2), 1)
    parts = tables(draw([total / count] * count, values, seconds, seed))
    begin = time.perf_counter()
    live = {
        name: matwin.stream(_paced(part, begin), order="sorted", schema=part.schema)
        for name, part in zip(NAMES, parts, strict=False)
    }
    delays = []
    for batch in matwin.window_join(
        live, time="t", by="k", windows=PACED_WINDOW, threads=1, algorithm=cast(Any, algorithm)
    ):
        now = time.perf_counter() - begin
        times = [batch.column(f"{name}_t").to_numpy() for name in NAMES[:count]]
        delays.append(now - np.maximum.reduce(times))
    return np.concatenate([np.empty(0), *delays])


def _paced(part: pa.Table, begin: float) -> Iterator[pa.RecordBatch]:
    """What has become due since the last batch, as soon as there is something."""
    rows = part.combine_chunks().to_batches()[0]
    due = rows.column("t").to_numpy()
    start = 0
    while start < len(due):
        wait = due[start] - (time.perf_counter() - begin)
        if wait > 0:
            time.sleep(wait)
        now = time.perf_counter() - begin
        stop = max(int(due.searchsorted(now, side="right")), start + 1)
        yield rows.slice(start, stop - start)
        start = stop
