"""`matwin demo`: the storage engine at work, on rows that do not fit its memory.

A stream of sensor readings slides through a window in each of the three forms.  The table shows
what each form read, wrote and kept; the rows left in the window are compared with the rows that
should be there.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from matwin.storage import Store, Window, read_trace
from matwin.storage.units import format_size, parse_size

SCHEMA = pa.schema(
    [("t", pa.timestamp("ms")), ("x", pa.float64()), ("sensor", pa.string()), ("value", pa.int64())]
)
BATCH_ROWS = 50_000
STEPS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one form did."""

    form: str
    seconds: float
    pages: int
    reads: int
    writes: int
    file_bytes: int
    peak_bytes: int
    is_right: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows in the stream")
    parser.add_argument("--memory", default="8MiB", help="memory for the window")
    parser.add_argument("--trace", default=None, help="write the slab window's page trace here")


def run(args: argparse.Namespace) -> int:
    """Show it; 1 when a window does not hold the right rows."""
    steps = max(args.rows // BATCH_ROWS, 1)
    size = sum(batch.nbytes for batch in _stream(1)) * steps
    print(f"A stream of {steps * BATCH_ROWS:,} readings ({format_size(size)}), in order of time.")
    print(
        f"The window keeps the last {STEPS_KEPT} of {steps} batches, in ε-Grid-Order "
        f"(ε: 20 s in t, 0.25 in x),\nwith {args.memory} of memory and pages of 64 KiB.\n"
    )
    print(f"{'form':<10}{'seconds':>8}{'pages':>7}{'read':>7}{'written':>9}{'on disk':>11}"
          f"{'memory peak':>13}  rows")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(args.trace) if args.trace else Path(folder) / "slab.trace"
        outcomes = [
            _slide(form, steps, args.memory, trace) for form in ("standard", "grid", "slab")
        ]
        _explain(trace, parse_size(args.memory))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


def _slide(form: str, steps: int, memory: str, trace: Path) -> Outcome:
    started = time.perf_counter()
    with Store(memory=memory, page_size="64KiB", trace=trace if form == "slab" else None) as store:
        window = store.window("readings", SCHEMA, on={"t": "20s", "x": 0.25}, materialize=form)
        for step, batch in enumerate(_stream(steps), 1):
            window.append(batch)
            window.expire(below=max(step - STEPS_KEPT, 0) * BATCH_ROWS)
            if step % 5 == 0:
                window.settle()
        is_right = _is_right(window, steps)
        store.check()
        counters = store.pool.counters
        outcome = Outcome(
            form, time.perf_counter() - started, len(window.pages()), counters.reads,
            counters.writes, store.file.file_bytes, counters.bytes_peak, is_right,
        )  # fmt: skip
    print(
        f"{form:<10}{outcome.seconds:>8.2f}{outcome.pages:>7}{outcome.reads:>7}"
        f"{outcome.writes:>9}{format_size(outcome.file_bytes):>11}"
        f"{format_size(outcome.peak_bytes):>13}  {'as expected' if is_right else 'WRONG'}",
        flush=True,
    )
    return outcome


def _is_right(window: Window, steps: int) -> bool:
    """Whether exactly the rows of the last batches are there."""
    found = np.concatenate([batch.column("value").to_numpy().copy() for batch in window.scan()])
    found.sort()
    first = max(steps - STEPS_KEPT, 0) * BATCH_ROWS
    return np.array_equal(found, np.arange(first, steps * BATCH_ROWS))


def _explain(trace: Path, budget: int) -> None:
    events = read_trace(trace)
    counts = {row["values"]: row["counts"] for row in events["event"].value_counts().to_pylist()}
    first = events.filter(pa.compute.equal(events["event"], "expire")).slice(0, 1).to_pylist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    listed = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    print(f"\nThe slab window's trace has {events.num_rows:,} events: {listed}.")
    for event in first:
        print(f"The first page dropped: page {event['page']}, because {event['why']}.")
    print(f"Peak memory of the whole process: {format_size(peak)}, of which the windows may take "
          f"{format_size(budget)}.")  # fmt: skip


def _stream(steps: int) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(2026)
    sensors = pa.array([f"sensor {number}" for number in range(40)])
    for step in range(steps):
        value = np.arange(step * BATCH_ROWS, (step + 1) * BATCH_ROWS)
        which = pa.array(generator.integers(0, len(sensors), BATCH_ROWS))
        columns = [
            pa.array(value).cast(pa.timestamp("ms")),
            pa.array(generator.random(BATCH_ROWS)),
            sensors.take(which),
            pa.array(value),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
