"""`matwin bench epochs`: continuous queries, as the epoch paper measures them and as they grow.

    figure 6    time after the cut of a join, by chunk size:
                one living query │ the same join, living │ a query for each chunk over temporary
                tables, started anew each time (DuckDB)
    figure 7    time after the cut: the join (blocked until both chunks are there) │ an aggregation
                (under way while the chunk comes)
    growth      rows a second through two-way epochs, each pair once, as the window grows;
                with a state folder │ without │ DuckDB doing the same chunk by chunk │ Pathway

Streams are read as fast as they can be (the paper's stress mode).  All must find the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import matwin

from .joins import THREADS
from .measures import Disagreement
from .suite import check_numbers

CHUNKS = (10_000, 25_000, 50_000, 100_000)
QUICK_CHUNKS = (500, 1_000)
EPOCHS = 10
BATCH_ROWS = 10_000
"""Rows that come at a time."""

JOIN = (
    "SELECT floor(s1.ts / {n}) AS minute, avg(s2.trt - s1.trt) AS delay, count(*) AS found "
    "FROM s1, s2 WHERE s1.pid = s2.pid GROUP BY minute"
)
AGGREGATE = (
    "SELECT floor(ts / {n}) AS minute, avg(bytes) AS mean, count(*) AS found "
    "FROM s1 GROUP BY minute"
)
LIVING, JOINED, ONE_TIME = "one living query", "our join, living", "a query for each chunk"


def packets(rows: int, chunk: int, seed: int) -> pa.Table:
    """What a router has seen: a packet's number stands in both routers' chunk, in any order."""
    chance = np.random.default_rng(seed)
    numbers = np.arange(rows).reshape(-1, chunk)
    pids = chance.permuted(numbers, axis=1).ravel()
    return pa.table({
        "pid": pids, "ts": np.arange(rows), "trt": chance.random(rows),
        "bytes": chance.integers(40, 1500, rows),
    })  # fmt: skip


def arriving(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows as they come."""
    return iter(table.to_batches(max_chunksize=BATCH_ROWS))


# ── figures 6 and 7 ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class After:
    """Milliseconds after the cut, the median of all epochs but the first."""

    what: str
    chunk: int
    milliseconds: float
    found: int


def living(what: str, query: object, streams: dict[str, pa.Table], chunk: int) -> After:
    """A continuous query over the streams."""
    asked = matwin.continuous_query(
        query,
        {name: matwin.stream(arriving(t), on="ts", live=False) for name, t in streams.items()},
        cut=matwin.cut.every(chunk, on="ts"),
        pairs="new" if isinstance(query, partial) else "all",
    )
    times, found = [], 0
    for epoch in asked:
        times.append(epoch.report.seconds_after_cut)
        rows = epoch.result.to_arrow()
        found += sum(rows["found"].to_pylist()) if "found" in rows.column_names else rows.num_rows
    return After(what, chunk, 1000 * statistics.median(times[1:]), found)


def one_time(text: str, streams: dict[str, pa.Table], chunk: int) -> After:
    """A query for each chunk, over temporary tables: started, asked and ended."""
    times, found = [], 0
    rows = next(iter(streams.values())).num_rows
    for first in range(0, rows, chunk):
        began = time.perf_counter()
        with duckdb.connect(config={"threads": THREADS}) as database:
            for name, table in streams.items():
                database.register("arrived", table.slice(first, chunk))
                database.execute(f"CREATE TEMP TABLE {name} AS FROM arrived")
            answer = database.sql(text).to_arrow_table()
        times.append(time.perf_counter() - began)
        found += sum(answer["found"].to_pylist())
    return After(ONE_TIME, chunk, 1000 * statistics.median(times[1:]), found)


def figures(chunks: tuple[int, ...], seed: int) -> tuple[list[After], list[After]]:
    """Figure 6, and figure 7."""
    six, seven = [], []
    for chunk in chunks:
        rows = EPOCHS * chunk
        both = {"s1": packets(rows, chunk, seed), "s2": packets(rows, chunk, seed + 1)}
        text = JOIN.format(n=chunk)
        ours = partial(
            matwin.window_join, {"s1": matwin.chunks("s1"), "s2": matwin.chunks("s2")},
            time="ts", windows=chunk, by="pid",
        )  # fmt: skip
        row = [living(LIVING, text, both, chunk), living(JOINED, ours, both, chunk),
               one_time(text, both, chunk)]  # fmt: skip
        _check([one.found for one in row], [one.what for one in row])
        six += row
        counted = AGGREGATE.format(n=chunk)
        seven += [row[0], living("aggregation", counted, {"s1": both["s1"]}, chunk)]
    return six, seven


# ── growth ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows a second through two-way epochs, once the window is full."""

    what: str
    window: int
    rows_per_second: float
    found: int


@dataclass(frozen=True, slots=True)
class Flow:
    """Two streams with about one match a row in a window of so many chunks."""

    chunk: int
    keep: int
    seed: int

    @property
    def epochs(self) -> int:
        """Until the window is full, and some more, which are measured."""
        return self.keep + max(4, self.keep // 4)

    @property
    def window(self) -> int:
        """Rows of a stream's window."""
        return self.chunk * self.keep

    def tables(self) -> list[pa.Table]:
        """Both streams."""
        return [self._table(side) for side in range(2)]

    def _table(self, side: int) -> pa.Table:
        chance = np.random.default_rng((self.seed, side))
        rows = self.chunk * self.epochs
        return pa.table({
            "ts": np.arange(rows), "k": chance.integers(0, self.window, rows),
            "v": chance.random(rows),
        })  # fmt: skip


def ours(flow: Flow, tables: list[pa.Table], state: Path | None) -> Rate:
    """A continuous query that gives each pair once."""
    join = partial(matwin.epsilon_join, matwin.chunks("a"), matwin.chunks("b"),
                   on={"ts": flow.window * 2}, by="k")  # fmt: skip
    asked = matwin.continuous_query(
        join, dict(zip("ab", tables, strict=True)), cut=matwin.cut.count(flow.chunk),
        keep=flow.keep, pairs="new", state=state,
    )  # fmt: skip
    return _rate(flow, "MatWin, durable" if state else "MatWin",
                 (epoch.report.rows_out for epoch in asked))  # fmt: skip


def _rate(flow: Flow, what: str, found: Iterator[int]) -> Rate:
    """Time the epochs behind the first `keep`."""
    total, began = 0, 0.0
    for number, rows in enumerate(found, 1):
        total += rows
        if number == flow.keep:
            began = time.perf_counter()
    seconds = time.perf_counter() - began
    return Rate(what, flow.window, 2 * flow.chunk * (flow.epochs - flow.keep) / seconds, total)


def duckdb_chunks(flow: Flow, tables: list[pa.Table]) -> Rate:
    """The same by hand: append each chunk, join it with both windows, delete what is too old."""
    return _rate(flow, "DuckDB by hand", _by_hand(flow, tables))


def _by_hand(flow: Flow, tables: list[pa.Table]) -> Iterator[int]:
    near = f"abs(a.ts - b.ts) <= {flow.window * 2}"
    with duckdb.connect(config={"threads": THREADS}) as database:
        for name in "ab":
            database.execute(f"CREATE TABLE {name} (ts BIGINT, k BIGINT, v DOUBLE, epoch BIGINT)")
        for epoch in range(1, flow.epochs + 1):
            for name, table in zip("ab", tables, strict=True):
                database.register("arrived", table.slice((epoch - 1) * flow.chunk, flow.chunk))
                database.execute(f"INSERT INTO {name} SELECT *, {epoch} FROM arrived")
                database.execute(f"DELETE FROM {name} WHERE epoch <= {epoch - flow.keep}")
            yield (
                database.sql(
                    f"SELECT a.*, b.* FROM a JOIN b USING (k) WHERE {near} "
                    f"AND (a.epoch = {epoch} OR b.epoch = {epoch})"
                )
                .to_arrow_table()
                .num_rows
            )


def growth(chunk: int, keeps: tuple[int, ...], seed: int) -> list[Rate]:
    """All of them, for each window."""
    found = []
    for keep in keeps:
        flow = Flow(chunk, keep, seed)
        tables = flow.tables()
        row = [ours(flow, tables, None), _durable(flow, tables), duckdb_chunks(flow, tables)]
        _check([one.found for one in row], [one.what for one in row])
        found += row + _pathway(flow, tables)
    return found


def _durable(flow: Flow, tables: list[pa.Table]) -> Rate:
    with tempfile.TemporaryDirectory() as folder:
        return ours(flow, tables, Path(folder) / "state")


def _pathway(flow: Flow, tables: list[pa.Table]) -> list[Rate]:
    """Pathway's interval join of the same rows, where it is installed: all at once, as it has no
    chunks; its windows are of time, so that it finds about as much."""
    if find_spec("pathway") is None:
        return []
    from .window_cases import WindowCase
    from .window_rivals import PATHWAY

    rows = flow.chunk * flow.epochs
    case = WindowCase("window", rows, 1, keys=flow.window)
    named = [t.rename_columns(["t", "k", "v"]) for t in tables]
    began = time.perf_counter()
    found = PATHWAY.run(case, *named)
    seconds = time.perf_counter() - began
    return [Rate("Pathway interval_join", flow.window, 2 * rows / seconds, found)]


def _check(found: list[int], names: list[str]) -> None:
    if len(set(found)) > 1:
        raise Disagreement(", ".join(f"{n} {f}" for n, f in zip(names, found, strict=True)))


# ── the command ──────────────────────────────────────────────────────────────────────────────


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_numbers(args)
    chunks = QUICK_CHUNKS if args.quick else CHUNKS
    six, seven = figures(chunks, args.seed)
    chunk, keep = (500, 2) if args.quick else (args.chunk, args.keep)
    rates = growth(chunk, (keep, 4 * keep, 16 * keep), args.seed)
    if args.json:
        told: dict[str, list[Any]] = {"figure_6": six, "figure_7": seven, "growth": rates}
        print(json.dumps({k: [asdict(one) for one in v] for k, v in told.items()}, indent=2))
    else:
        tables = [_after("figure 6: ms after the cut", six),
                  _after("figure 7: ms after the cut", seven), _rates(rates)]  # fmt: skip
        print("\n\n".join(tables))
    return 0


def _after(title: str, found: list[After]) -> str:
    names = list(dict.fromkeys(one.what for one in found))
    by_place = {(one.what, one.chunk): one.milliseconds for one in found}
    return _table(title, "rows a chunk", sorted({one.chunk for one in found}), names,
                  lambda what, chunk: f"{by_place[what, chunk]:.1f}")  # fmt: skip


def _rates(found: list[Rate]) -> str:
    names = list(dict.fromkeys(one.what for one in found))
    by_place = {(one.what, one.window): one.rows_per_second for one in found}
    return _table("rows a second, each pair once", "rows a window",
                  sorted({one.window for one in found}), names,
                  lambda what, window: f"{by_place[what, window]:,.0f}")  # fmt: skip


def _table(
    title: str, head: str, places: list[int], names: list[str], cell: Callable[[Any, Any], str]
) -> str:
    lines = [title, f"{head:<14}" + "".join(f"{name:>26}" for name in names)]
    lines.append("─" * len(lines[1]))
    for place in places:
        lines.append(f"{place:<14,}" + "".join(f"{cell(name, place):>26}" for name in names))
    return "\n".join(lines)
